# SPDX-License-Identifier: MIT
# tasuki simulate, from a cost file: no MPI, no GPU, no model.

load planning.bash

@test "simulate says what each device does, holds and moves, and what the links carry" {
    flat=tree:2x1,inside=1e9,across=1e9,memory=1e9
    plan --stages 2 --replicas 1,1 --micro-batches 4 --schedule 1f1b -o plan.json >table
    run "$TASUKI" simulate plan.json --cost cost.json
    echo "$output"
    # Values of 8 samples, 10 bytes each, and their gradients.
    megabytes=7.629e-05
    grep -qE "^n0/gpu0 .* $megabytes +$megabytes\$" <<<"$output"
    grep -qE "^n0 +$megabytes +$megabytes\$" <<<"$output"
    # What plan says.
    [ "$(sed -nE 's/^bubble +//p' <<<"$output")" = "$(sed -nE 's/.* bubble ([0-9.]+ %).*/\1/p' table)" ]
    "$TASUKI" simulate plan.json --cost cost.json --format json >sim.json
    memory() { sed -nE 's/^ +"memory": ([1-9][0-9.]*).*/\1/p' "$1"; }
    [ "$(memory plan.json)" = "$(memory sim.json)" ]
    [ "$(grep -c '"up": 80.0' sim.json)" -eq 4 ]
    # With more slots there is more to hold.
    "$TASUKI" simulate plan.json --cost cost.json --schedule gpipe --format json >gpipe.json
    [ "$(memory plan.json)" != "$(memory gpipe.json)" ]
    # Where the plan does not say: of forwards that are run again, and of several stages.
    held() {
        "$TASUKI" simulate plan.json --cost cost.json --format json "$@" >sim.json
        memory sim.json
    }
    for schedule in gpipe interleaved; do
        plan --stages 2 --micro-batches 4 --schedule $schedule --recompute full -o plan.json >table
        [ "$(held)" = "$(held --schedule $schedule)" ]
    done
}

@test "a trace has a process for each device, with the rows of a run's" {
    command -v python3 >/dev/null || skip "no python3"
    flat=flat:2,bandwidth=1e9,latency=0
    plan --stages 2 --replicas 1,1 --micro-batches 4 -o plan.json >table
    "$TASUKI" simulate plan.json --cost cost.json --trace trace.json >timeline
    "$TASUKI" simulate plan.json --cost cost.json --format chrome-trace | diff - trace.json
    "$TASUKI" simulate plan.json --cost cost.json --format json >sim.json
    python3 - <<'END'
import json
events = json.load(open("trace.json"))["traceEvents"]
sim = json.load(open("sim.json"))
names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
assert names == [b["device"] for b in sim["busy"]], names
for pid in range(2):
    rows = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == pid]
    assert rows == ["instructions", "reduce", "receive", "send"], rows
shown = [e for e in events if e["ph"] == "X"]
row = {"REDUCE": 1, "RECV": 2, "SEND": 3}
assert len(shown) == len(sim["events"])
for e, s in zip(shown, sim["events"]):
    assert e["name"].split()[0] == s["kind"] and e["tid"] == row.get(s["kind"], 0), (e, s)
    assert abs(e["ts"] - 1e6 * s["start"]) < 1e-3 and names[e["pid"]] == s["device"], (e, s)
END
}

@test "a plan for a topology file is simulated on it, wherever both are" {
    mkdir job
    cat >job/topo.json <<'END'
{ "schema": "tasuki-topo", "version": 1, "name": "ours", "root": { "children": [
    { "kind": "node", "name": "n#", "count": 3, "bandwidth": 1e9, "children": [
        { "kind": "device", "id": "/gpu0", "bandwidth": 1e9 } ] } ] } }
END
    plan="$TASUKI plan --cost $PWD/cost.json --global-batch 8 -o plan.json"
    for cluster in topo.json topo.json:2 "$PWD/job/topo.json"; do
        (cd job && $plan --cluster "$cluster" >table)
        (cd job && "$TASUKI" simulate plan.json --cost ../cost.json >timeline)
        "$TASUKI" simulate job/plan.json --cost cost.json | diff - job/timeline
        [ "$(sed -n 's/^iteration *//p' job/timeline)" = "$(sed -n 's/^iteration *//p' job/table)" ]
    done
    (cd job && $plan --cluster topo.json --nodes 1..2 >table)
    "$TASUKI" simulate job/plan.json --cost cost.json | grep '^iteration'
}

@test "jitter makes computations longer, as drawn by the seed" {
    flat=flat:2,bandwidth=1e9,latency=0
    plan --stages 2 --replicas 1,1 --micro-batches 4 -o plan.json >table
    seconds() {
        "$TASUKI" simulate plan.json --cost cost.json --format json "$@" |
            sed -nE 's/.*"iteration_seconds": ([0-9.]+).*/\1/p'
    }
    plain=$(seconds)
    shaken=$(seconds --jitter 0.2 --seed 3)
    awk -v a="$plain" -v b="$shaken" 'BEGIN { exit !(b > a && b < 1.2 * a) }'
    [ "$shaken" = "$(seconds --jitter 0.2 --seed 3)" ]
    [ "$shaken" != "$(seconds --jitter 0.2 --seed 4)" ]
    [ "$plain" = "$(seconds --jitter 0)" ]
}

@test "what a cost file says of steps gives the memory of compiled stages" {
    demo=$srcdir/etc/demo
    options="$demo/digits.onnx --data $demo/digits-train.safetensors --backend reference"
    options+=" --optimizer adam"
    "$TASUKI" profile $options --batch-size 8 --no-cache -o steps.json -q
    # What blocks have is for the search alone.
    sed -E '/"workspace": \[/{n;s/[0-9.e+-]+/1e7/}' steps.json >digits.json
    shape="--cost digits.json --cluster flat:2,bandwidth=1e9,latency=1e-5,memory=1e9"
    shape+=" --global-batch 32 --stages 2 --replicas 1,1 --micro-batches 4 --no-zero"
    # Whatever was measured, one cut.
    shape+=" --pin /pool/MaxPool=0 --pin /widen/Conv=1"
    memory() { sed -nE 's/^ +"memory": ([1-9][0-9.]*).*/\1/p' "$1"; }
    "$TASUKI" plan $shape --optimizer adam --schedule 1f1b -q -o plan.json
    "$TASUKI" plan $shape --optimizer adam --schedule gpipe -q -o gpipe.json
    "$TASUKI" simulate plan.json --cost digits.json --schedule gpipe --format json >sim.json
    [ "$(memory gpipe.json)" != "$(memory plan.json)" ]
    [ "$(memory gpipe.json)" = "$(memory sim.json)" ]
    "$TASUKI" plan $options $shape --schedule gpipe -q -o compiled.json
    paste <(memory gpipe.json) <(memory compiled.json) >both
    cat both
    awk '$1 < $2 || $1 > 1.05 * $2 { bad = 1 } END { exit bad || NR != 2 }' both
}

@test "the simulator has no figures of its own" {
    # 0, 1 and 2 are indices, and the two halves of an all-reduce; what an array has is no figure.
    for file in "$srcdir"/scheduler/simulate*.[ch]; do
        sed -zE 's@/\*([^*]|\*+[^*/])*\*+/@@g; s/"[^"]*"//g; s/\[[0-9]\];/;/g' "$file" |
            grep -nE '(^|[^A-Za-z0-9_.])([3-9]|[0-9][0-9.]*[0-9eExX]|[0-9]\.)' |
            grep -vE '(^|[^A-Za-z0-9_.])2\.0([^0-9]|$)' | sed "s|^|$file: |" >>figures || true
    done
    cat figures
    [ ! -s figures ]
}

@test "2048 ranks and 64 micro-batches are simulated within 2 seconds" {
    ! ldd "$(PATH=$(dirname "$TASUKI"):$PATH command -v tasuki)" 2>/dev/null | grep -q asan ||
        skip "built with sanitizers"
    "$TASUKI" plan --cost cost.json --cluster tree:256x8,inside=1e10,across=1e9 --pipelines 1024 \
        --global-batch 65536 --micro-batches 64 --replicas 1,1 --schedule 1f1b -o plan.json >table
    grep -q '^1024 pipelines of 2 stages on 2048 ' table
    (ulimit -t 2 && "$TASUKI" simulate plan.json --cost cost.json >/dev/null)
}

@test "a plan of 32 pipelines of 64 stages, 2048 ranks, is simulated instruction by instruction" {
    block='"forward": 1, "dgrad": 1, "wgrad": 1, "activations": 10'
    {
        echo '{ "schema": "tasuki-cost", "version": 1, "micro_batch": [1], "blocks": ['
        for i in {0..63}; do echo "{ \"name\": \"b$i\", $block }$([ "$i" -eq 63 ] || echo ,)"; done
        echo '], "edges": ['
        for i in {0..62}; do
            echo "{ \"from\": \"b$i\", \"to\": \"b$((i + 1))\", \"bytes\": 1 }$([ "$i" -eq 62 ] || echo ,)"
        done
        echo '] }'
    } >deep.json
    cluster=tree:256x8,inside=1e10,across=1e9
    "$TASUKI" plan --cost deep.json --cluster $cluster --global-batch 2048 --pipelines 32 \
        --stages 64 --micro-batches 64 --schedule 1f1b -o plan.json >table
    grep -q '^32 pipelines of 64 stages on 2048 ' table
    "$TASUKI" simulate plan.json --cost deep.json >timeline
    [ "$(grep -cE '^n[0-9]+/gpu[0-7] .* %' timeline)" -eq 2048 ]
    # 64 micro-batches of 3 s, and 63 times F and B; W is behind what is sent.
    awk '/^iteration/ { seen = 1; bad = $2 < 318000 || $2 > 318001 } END { exit bad || !seen }' timeline
}
