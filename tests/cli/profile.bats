# SPDX-License-Identifier: MIT
# What operators cost is measured once on each device, and kept for all models.

load data.bash

setup() {
    ranks_setup
    own_cache
    need_python
    cd "$DIR"
}

# counted ARGUMENTS...: leaves how many operators were 'measured', and how many 'taken'.
counted() {
    run "$TASUKI" "$@"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" =~ ([0-9]+)" operators measured"(", "([0-9]+)" taken from the cache")? ]]
    measured=${BASH_REMATCH[1]} taken=${BASH_REMATCH[3]:-0}
    kept_as_calm
}

# What was measured with others at work would be measured again.
kept_as_calm() {
    python3 - "$TASUKI_CACHE_DIR"/*.json <<'END'
import json, os, sys
for path in filter(os.path.exists, sys.argv[1:]):
    top = json.load(open(path))
    top["crowded"] = {}
    json.dump(top, open(path, "w"))
END
}

# profile NETWORK OPTIONS...
profile() {
    local case=$srcdir/tests/data/model/$1
    counted profile "$case/model.onnx" --data "$case/train.safetensors" --batch-size 1,4 \
        -o "$1.json" "${@:2}"
}

# The operators that a cache has, one a line.
operators_of() {
    python3 -c 'import json, sys
print("\n".join(sorted(json.load(open(sys.argv[1]))["seconds"])))' "$1"/cpu-*.json
}

@test "an operator is measured once, whichever model has it, and plans take it from there" {
    profile mlp
    first=$measured
    [ "$first" -gt 0 ] && [ "$taken" -eq 0 ]
    operators_of cache >mlp
    [ "$(wc -l <mlp)" -eq "$first" ]
    mv mlp.json before.json
    profile mlp
    [ "$measured" -eq 0 ] && [ "$taken" -eq "$first" ]
    diff before.json mlp.json
    # By itself, and where the other network was first.
    TASUKI_CACHE_DIR=$DIR/apart profile mlp-dropout
    alone=$measured
    [ "$taken" -eq 0 ]
    operators_of apart >dropout
    profile mlp-dropout
    [ "$measured" -gt 0 ] && [ "$taken" -gt 0 ] && [ $((measured + taken)) -eq "$alone" ]
    [ "$taken" -eq "$(comm -12 mlp dropout | wc -l)" ]
    sort -u mlp dropout | diff - <(operators_of cache)
    case=$srcdir/tests/data/model/mlp-dropout
    counted plan "$case/model.onnx" --data "$case/train.safetensors" --global-batch 4 -v \
        --cluster flat:2,bandwidth=1e9,latency=0
    [ "$measured" -eq 0 ] && [ "$taken" -eq "$alone" ]
}

@test "other threads, kernels, types and devices are measured anew, each once" {
    profile mlp
    first=$measured
    for other in '--threads 2' '--precision float64' '--backend reference'; do
        profile mlp $other
        [ "$measured" -gt 0 ] && [ "$taken" -eq 0 ]
        profile mlp $other
        [ "$measured" -eq 0 ] && [ "$taken" -gt 0 ]
    done
    profile mlp
    [ "$measured" -eq 0 ] && [ "$taken" -eq "$first" ]
    # As if all of that had been measured elsewhere.
    sed -E -i 's/("device": ")/\1another /' cache/*.json
    profile mlp
    [ "$measured" -eq "$first" ] && [ "$taken" -eq 0 ]
}

@test "what is kept is what a forecast goes by; with --no-cache it is neither read nor written" {
    profile mlp --no-cache
    [ "$measured" -gt 0 ] && [ "$taken" -eq 0 ]
    [ ! -e cache ]
    profile mlp
    python3 - cache/cpu-*.json <<'END'
import json, sys
top = json.load(open(sys.argv[1]))
top["seconds"] = {key: 1000 for key in top["seconds"]}
json.dump(top, open(sys.argv[1], "w"))
END
    slowest() { python3 -c 'import json
print(max(max(block["forward"]) for block in json.load(open("mlp.json"))["blocks"]))'; }
    profile mlp
    [ "$measured" -eq 0 ]
    slowest | awk '{ exit !($1 >= 1000) }'
    cp -r cache before
    profile mlp --no-cache
    [ "$measured" -gt 0 ] && [ "$taken" -eq 0 ]
    slowest | awk '{ exit !($1 < 1000) }'
    diff -r before cache
}
