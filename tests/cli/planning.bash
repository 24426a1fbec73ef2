# SPDX-License-Identifier: MIT
# What the tests of plan and simulate share: a cost file of three blocks.

setup() {
    cd "$BATS_TEST_TMPDIR"
    cat >cost.json <<'END'
{ "schema": "tasuki-cost", "version": 1, "micro_batch": [1],
  "optimizer_bytes_per_parameter": 8,
  "blocks": [
    { "name": "a", "forward": 1, "dgrad": 1, "wgrad": 1, "parameters": 1000, "activations": 10 },
    { "name": "b", "forward": 1, "dgrad": 1, "wgrad": 1, "parameters": 1000, "activations": 10 },
    { "name": "c", "forward": 2, "dgrad": 2, "wgrad": 2, "parameters": 1000, "activations": 10 } ],
  "edges": [ { "from": "a", "to": "b", "bytes": 10 }, { "from": "b", "to": "c", "bytes": 10 } ] }
END
    flat=flat:4,bandwidth=1e9,latency=0,memory=1e9
}

plan() {
    "$TASUKI" plan --cost cost.json --cluster "$flat" --global-batch 8 "$@"
}
