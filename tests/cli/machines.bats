# SPDX-License-Identifier: MIT
# Descriptions of machines: those that are shipped, by name, and those that sites save.

setup() {
    cd "$BATS_TEST_TMPDIR"
    shipped=$(cd "$srcdir/etc/machines" && ls | sed 's/\.json$//')
    cat >cost.json <<'END'
{ "schema": "tasuki-cost", "version": 1, "micro_batch": [1],
  "blocks": [
    { "name": "a", "forward": 1e-3, "dgrad": 1e-3, "wgrad": 1e-3, "parameters": 1000 },
    { "name": "b", "forward": 2e-3, "dgrad": 2e-3, "wgrad": 2e-3, "parameters": 1000 } ],
  "edges": [ { "from": "a", "to": "b", "bytes": 1000 } ] }
END
    export TASUKI_MACHINES=$PWD/mine:$PWD/others TASUKI_THREADS=1
    mkdir mine others
}

# A machine of $2 nodes called $1, in folder $3; $4: further keys.
describe() {
    cat >"$3/$1.json" <<END
{ "schema": "tasuki-topo", "version": 1, "name": "$1", $4
  "root": { "latency": 1e-6, "children": [
    { "kind": "node", "count": $2, "name": "$1-#", "bandwidth": 1e9, "children": [
      { "kind": "device", "id": "/gpu0", "device": "$3", "memory": 1e9 } ] } ] } }
END
}

plan() {
    "$TASUKI" plan --cost cost.json --global-batch 8 --micro-batches 4 "$@"
}

site() {
    "$TASUKI" info --format json | sed -n 's/.*"sysconfdir": "\(.*\)".*/\1/p'
}

no_machine_of_the_site() {
    local site=$(site)
    [ -z "$(ls "$site/tasuki/machines" 2>/dev/null)" ] || skip "$site/tasuki/machines has some"
}

@test "every shipped machine is reported, whole and in part, and its JSON is read back" {
    for machine in $shipped; do
        for format in text json dot svg; do
            "$TASUKI" topo --input "$machine:1" --format $format -o one
            [ -s one ]
        done
        run "$TASUKI" topo --input "$machine:1" --format nccl-xml
        [ "$status" -eq 1 ]
        [[ "$output" == *"only a tree"* ]]
        "$TASUKI" topo --input "$machine" -o text
        head -1 text | grep -Eq "^$machine: [0-9]+ nodes?, [0-9]+ devices?$"
        "$TASUKI" topo --input "$machine:1" --format json -o one.json
        "$TASUKI" topo --input one.json -o back
        "$TASUKI" topo --input "$machine:1" -o text
        diff <(sed 1d text) <(sed 1d back)
    done
}

@test "a shipped machine is as big as it is" {
    check() {
        "$TASUKI" topo --input "$1" | head -1
        "$TASUKI" topo --input "$1" | head -1 | grep -q ": $2, $3$"
    }
    check tsubame3 "540 nodes" "2160 devices"
    check tsubame3-ipoib "540 nodes" "2160 devices"
    check flow-type2 "221 nodes" "884 devices"
    check fugaku "158976 nodes" "635904 devices"
    check fugaku:1000 "1000 nodes" "4000 devices"
    check dgx-a100:16 "16 nodes" "128 devices"
    check dgx-h100:100 "100 nodes" "800 devices"
    check dgx-h200:2 "2 nodes" "16 devices"
    check rannc-v100:8 "8 nodes" "64 devices"
    check laptop "1 node" "1 device"
}

@test "every figure of a shipped machine has a source" {
    command -v "${TASUKI_PYTHON:-python3}" >/dev/null || skip "no Python"
    "${TASUKI_PYTHON:-python3}" - "$srcdir"/etc/machines/*.json <<'END' || false
import json, sys
figures = {"bandwidth", "flow_bandwidth", "latency", "memory", "flops", "memory_bandwidth",
           "client_bandwidth", "slow_down", "local_bandwidth", "local_size",
           "latency_factor", "bandwidth_factor", "overlap", "efficiency", "algorithm"}

def check(where, place):
    source = place.get("source", {})
    missing = figures & set(place) - (set(place) if isinstance(source, str) else set(source))
    assert not missing, (where, place.get("name", place.get("id")), missing)
    for child in place.get("children", []):
        check(where, child)

for path in sys.argv[1:]:
    machine = json.load(open(path))
    assert machine["source"], path
    check(path, machine["root"])
    check(path, machine["storage"])
    check(path, machine.get("allreduce", {}))
END
}

@test "a plan is made for some nodes of every shipped machine, and simulated there" {
    for machine in $shipped; do
        n=2
        [ "$machine" = laptop ] && n=1
        plan --cluster "$machine:$n" -o plan.json >table
        grep -q " devices of $machine:$n, " table
        "$TASUKI" simulate plan.json --cost cost.json >again
        [ "$(grep iteration table)" ] && [ "$(grep iteration again)" ]
    done
}

@test "a model is planned for a described machine by its speed, and by a cost file of its GPU" {
    "$TASUKI" plan "$srcdir/etc/demo/digits.onnx" --global-batch 64 --cluster dgx-h100:1 \
        --data "$srcdir/etc/demo/digits-train.safetensors" -o plan.json
    grep -q '"node0/gpu0"' plan.json
    for device in "H100 80GB HBM3" V100-SXM2-32GB; do
        sed "s/\"version\": 1,/& \"device\": \"$device\",/" cost.json >"$device.json"
    done
    sed -i 's/e-3/e-1/g' "V100-SXM2-32GB.json"
    run "$TASUKI" plan --global-batch 8 --cost "V100-SXM2-32GB.json" \
        --cost "H100 80GB HBM3.json" --cluster dgx-h100:1 --stages 1 --replicas 1
    echo "$output"
    [[ "$output" == *"iteration    72 ms"* ]]
}

# A node of two GPUs, of these kinds.
of_kinds() {
    echo '{ "schema": "tasuki-topo", "version": 1, "root": { "children": [ { "kind": "node",'
    echo '"name": "n0", "bandwidth": 1e10, "children": ['
    for i in 0 1; do
        [ "$1" = fast ] && figures='"flops": 9e13, "memory_bandwidth": 9e11' ||
            figures='"flops": 1e12, "memory_bandwidth": 1e10'
        echo "{ \"kind\": \"device\", \"id\": \"/gpu$i\", \"device\": \"$1\","
        echo "\"bandwidth\": 1e11, $figures }"
        [ "$i" -eq 1 ] || echo ,
        shift
    done
    echo ']}]}}'
}

iteration_of() {
    sed -nE 's/^iteration +([0-9.e+-]+) ms.*/\1/p' "$1"
}

@test "devices of several kinds are planned by what each takes" {
    model="$srcdir/etc/demo/digits.onnx --data $srcdir/etc/demo/digits-train.safetensors"
    of_kinds fast slow >mixed.json
    of_kinds fast fast >fast.json
    of_kinds slow slow >slow.json
    for cluster in mixed slow fast; do
        "$TASUKI" plan $model --global-batch 64 --cluster $cluster.json --stages 2 \
            -o $cluster.plan >$cluster 2>$cluster.err
        cat $cluster $cluster.err
        [ ! -s $cluster.err ]
        "$TASUKI" simulate $cluster.plan --cluster $cluster.json --data "${model##* }" >$cluster.sim
        [ "$(iteration_of $cluster.sim)" = "$(iteration_of $cluster)" ]
    done
    awk -v a="$(iteration_of mixed)" -v slow="$(iteration_of slow)" -v fast="$(iteration_of fast)" \
        'BEGIN { exit !(a < slow && a > fast) }'
    # So it is with cost files, in any order.
    for kind in fast slow; do
        sed "s/\"version\": 1,/& \"device\": \"$kind\",/" cost.json >$kind.cost
    done
    sed -i 's/e-3/e-1/g' slow.cost
    for order in "--cost fast.cost --cost slow.cost" "--cost slow.cost --cost fast.cost"; do
        plan="$TASUKI plan --global-batch 8 $order --cluster mixed.json --stages 1 --replicas 1"
        $plan -o plan.json >table 2>err
        cat table
        [ ! -s err ]
        # One device does all: the fast one.
        [ "$(iteration_of table)" = 72 ]
        grep -q '"n0/gpu0"' plan.json
        run "$TASUKI" simulate plan.json $order --cluster mixed.json
        [[ "$output" == *"iteration 72 ms"* ]]
        sed -i 's#n0/gpu0#n0/gpu1#' plan.json
        run "$TASUKI" simulate plan.json $order --cluster mixed.json
        [[ "$output" == *"iteration 7200 ms"* ]]
    done
}

@test "a plan for devices of several kinds is trained as planned" {
    demo="$srcdir/etc/demo/digits.onnx --data $srcdir/etc/demo/digits-train.safetensors"
    options="--global-batch 48 --batchnorm-samples 16 --backend reference --precision float64"
    losses() { sed -nE 's/.*"step": ?([0-9]+),.*"loss": ?([0-9.e+-]+).*/\1 \2/p' "$1"; }
    of_kinds slow fast >mixed.json
    sed -i 's/1e12/3e13/; s/1e10/3e11/2' mixed.json
    "$TASUKI" plan $demo $options --cluster mixed.json --stages 2 --micro-batches 3 \
        -o plan.json >table
    cat table
    grep -qx "Stages on fast: [01]." table
    grep -qx "Stages on slow: [01]." table
    "$TASUKI" train plan.json --data "${demo##* }" --precision float64 --backend reference \
        --steps 3 --cluster mixed.json --ranks-in-process 2 --no-cache --log two.jsonl --keep-plan
    "$TASUKI" train $demo $options --steps 3 --no-cache --log one.jsonl
    losses two.jsonl >two
    [ "$(wc -l <two)" -eq 3 ]
    losses one.jsonl | paste -d' ' - two |
        awk '{ d = $2 - $4; if ($1 != $3 || d * d > 1e-20) bad = 1 } END { exit bad }'
}

@test "a kind of device without costs is one clear error, and what is measured elsewhere is said" {
    of_kinds fast slow >mixed.json
    sed 's/"version": 1,/& "device": "fast",/' cost.json >fast.cost
    run "$TASUKI" plan --global-batch 8 --cost fast.cost --cluster mixed.json
    echo "$output"
    [ "$status" -eq 2 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ "$output" == *'no --cost is for devices of kind "slow"'* ]]
    # Costs that name no device are for any,
    run "$TASUKI" plan --global-batch 8 --cost fast.cost --cost cost.json --cluster mixed.json
    [ "$status" -eq 0 ]
    [[ "$output" != *"several kinds"* ]]
    # and those of none of them are taken for all.
    sed 's/"version": 1,/& "device": "other",/' cost.json >other.cost
    run "$TASUKI" plan --global-batch 8 --cost other.cost --cluster mixed.json
    [ "$status" -eq 0 ]
    [[ "$output" == *"of several kinds, fast and slow: all are taken to be as fast as other"* ]]
    # Of another network.
    sed 's/"version": 1,/& "device": "slow", "precision": "bf16",/' cost.json >slow.cost
    run "$TASUKI" plan --global-batch 8 --cost fast.cost --cost slow.cost --cluster mixed.json
    echo "$output"
    [ "$status" -eq 1 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ "$output" == *'the costs for "fast" are in float32, those for "slow" in bf16'* ]]
}

@test "kinds that nothing is known of, or more than costs have room for, count as the slowest" {
    digits="$srcdir/etc/demo/digits.onnx --global-batch 64 --data $srcdir/etc/demo/digits-train.safetensors"
    of_kinds fast slow >mixed.json
    of_kinds fast fast >fast.json
    for kind in slow cpu; do
        sed "s/\"flops\": 1e12, \"memory_bandwidth\": 1e10/\"memory\": 1e9/; s/\"slow\"/\"$kind\"/" \
            mixed.json >unknown.json
        "$TASUKI" plan $digits --cluster unknown.json --stages 2 >table 2>err
        cat table err
        [ "$(wc -l <err)" -eq 1 ]
        grep -q "nothing says how fast its devices of kind \"$kind\" are: they are taken" err
        "$TASUKI" plan $digits --cluster fast.json --stages 2 >both 2>err
        [ "$(iteration_of table)" = "$(iteration_of both)" ]
    done
    # The first one of nine is the slowest.
    {
        echo '{ "schema": "tasuki-topo", "version": 1, "root": { "children": [ { "kind": "node",'
        echo '"name": "n0", "bandwidth": 1e10, "children": ['
        for i in 1 2 3 4 5 6 7 8 9; do
            echo "{ \"kind\": \"device\", \"id\": \"/gpu$i\", \"device\": \"k$i\","
            echo "\"bandwidth\": 1e11, \"flops\": ${i}e12, \"memory_bandwidth\": ${i}e10 }"
            [ "$i" -eq 9 ] || echo ,
        done
        echo ']}]}}'
    } >nine.json
    sed -E 's/"device": "k."/"device": "k"/; s/[0-9]e12/1e12/; s/[0-9]e10 }/1e10 }/' nine.json >one.json
    "$TASUKI" plan $digits --cluster nine.json >table 2>err
    cat table err
    [ "$(wc -l <err)" -eq 1 ]
    grep -q "k8 and k9: all are taken to be as fast as k1" err
    "$TASUKI" plan $digits --cluster one.json >alike
    [ "$(iteration_of table)" = "$(iteration_of alike)" ]
}

@test "more nodes than the machine has, or none, are one clear error" {
    for n in 541 0 -1 many 1e3 99999999999; do
        run "$TASUKI" topo --input "tsubame3:$n"
        echo "$output"
        [ "$status" -eq 2 ]
        [ "${#lines[@]}" -eq 1 ]
    done
    run plan --cluster tsubame3:541
    [ "$status" -eq 2 ]
    [[ "$output" == *"has 540 nodes, not 541"* ]]
    [[ "$output" == *"tsubame3.json"* ]]
}

@test "an unknown machine is answered with those there are" {
    describe ours 4 mine
    run plan --cluster no-such:2
    [ "$status" -eq 1 ]
    echo "$output"
    for machine in $shipped ours; do
        [[ "$output" == *"$machine"* ]]
    done
}

@test "the first folder that has the name counts, and a file is a file" {
    describe ours 4 others
    [[ $("$TASUKI" topo --input ours) == *"4 nodes"* ]]
    describe ours 3 mine
    [[ $("$TASUKI" topo --input ours) == *"3 nodes"* ]]
    describe ours 2 .
    [[ $("$TASUKI" topo --input ours.json) == *"2 nodes"* ]]
    [[ $("$TASUKI" topo --input ./ours.json:1) == *"1 node,"* ]]
    TASUKI_MACHINES= XDG_CONFIG_HOME=$PWD/config run "$TASUKI" topo --input ours
    [ "$status" -eq 1 ]
    mkdir -p config/tasuki
    mv mine config/tasuki/machines
    TASUKI_MACHINES= XDG_CONFIG_HOME=$PWD/config run "$TASUKI" topo --input ours
    [[ "$output" == *"3 nodes"* ]]
}

@test "a description that may grow does, up to what there is" {
    describe ours 2 mine '"extend_to": 12,'
    run "$TASUKI" topo --input ours:12
    [[ "$output" == *"12 nodes, 12 devices"* ]]
    [[ "$output" == *"ours-0 ... ours-11"* ]]
    run "$TASUKI" topo --input ours:13
    [ "$status" -eq 2 ]
    [[ "$output" == *"has 12 nodes, not 13"* ]]
}

@test "--nodes needs no --cluster where one machine was saved, or the settings name one" {
    no_machine_of_the_site
    run plan --nodes 4
    [ "$status" -eq 2 ]
    [[ "$output" == *"--save-machine"* ]]
    describe ours 4 mine
    run plan --nodes 4
    [ "$status" -eq 0 ]
    [[ "$output" == *"of ours:4, "* ]]
    describe theirs 8 others
    run plan --nodes 4
    [ "$status" -eq 2 ]
    [[ "$output" == *"ours, theirs"* ]]
    TASUKI_CLUSTER=theirs run plan --nodes 4
    [[ "$output" == *"of theirs:4, "* ]]
    mkdir config
    echo "cluster = ours" >config/tasuki.conf
    XDG_CONFIG_HOME=$PWD/config run plan --nodes 3
    [[ "$output" == *"of ours:3, "* ]]
    run plan --cluster theirs --nodes 8 -o plan.json
    [[ "$output" == *"of theirs:8, "* ]]
    run "$TASUKI" simulate plan.json --cost cost.json --cluster theirs --nodes 8
    [ "$status" -eq 0 ]
}

@test "--nodes beside a number of nodes, or a cluster in one word, is refused" {
    describe ours 4 mine
    for cluster in ours:2 flat:4,bandwidth=1e9 tree:2x2,inside=1e9,across=1e9; do
        run plan --cluster $cluster --nodes 2
        [ "$status" -eq 2 ]
        [[ "$output" == *"--cluster $cluster says how many nodes"* ]]
    done
    run plan --cluster ours --nodes 0
    [ "$status" -eq 2 ]
}

@test "the storage of a machine is shown" {
    run "$TASUKI" topo --input tsubame3:2
    [[ "$output" == *"storage "*"Lustre, "*" for all, "*" for a node, "*"disk in the node"* ]]
}

@test "a machine is saved once, and --nodes takes as many of its nodes as there are to be" {
    no_machine_of_the_site
    run "$TASUKI" topo --measure none --save-machine here
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"$PWD/mine/here.json describes here: --cluster here:N"* ]]
    grep -q '"source": "tasuki topo --save-machine on 1 node, ' mine/here.json
    run plan --nodes 3
    [ "$status" -eq 0 ]
    [[ "$output" == *" of here:3, "* ]]
    run "$TASUKI" topo --input here:3
    [[ "$output" == *"3 nodes alike: node0, node1, node2;"* ]]
    for serial in GPU- guid '"machine"'; do
        ! grep -q -e "$serial" mine/here.json || false
    done
}

@test "a description that is there is replaced with --force alone, and keeps what nobody measures" {
    describe here 2 mine '"extend_to": 7, "storage": { "bandwidth": 12e9 },'
    cp mine/here.json before
    run "$TASUKI" topo --measure none --save-machine here
    [ "$status" -eq 1 ]
    [[ "$output" == *"mine/here.json exists: --force replaces it"* ]]
    cmp before mine/here.json
    "$TASUKI" topo --measure none --save-machine here --force -q
    grep -q '"extend_to": 7' mine/here.json
    [[ $("$TASUKI" topo --input here:7) == *"12 GB/s for all"* ]]
    run "$TASUKI" topo --input here:8
    [ "$status" -eq 2 ]
    [ "$(ls mine)" = here.json ]
}

@test "-o says where a description goes, and it does not replace a file silently either" {
    "$TASUKI" topo --input tsubame3:20 --save-machine ours -q -o ours.json
    [ -z "$(find mine others -type f)" ]
    [[ $("$TASUKI" topo --input ours.json:600) == *"600 nodes, 2400 devices"* ]]
    "$TASUKI" topo --input ours.json:600 | grep -q 'chassis0 ... chassis65 .*66 x '
    run "$TASUKI" topo --input tsubame3:2 --save-machine ours -o ours.json
    [ "$status" -eq 1 ]
    "$TASUKI" topo --input tsubame3:2 --save-machine ours -o - | grep -q '"name": "ours"'
    run "$TASUKI" topo --input tsubame3:2 --save-machine ours -o /nonexistent/ours.json
    [ "$status" -eq 1 ]
}

@test "the first folder of TASUKI_MACHINES that is missing is made, else the user's where the site's may not be written" {
    "$TASUKI" info --format json | grep -q sysconfdir
    TASUKI_MACHINES=$PWD/new/folder "$TASUKI" topo --input laptop --save-machine mine -q
    [ -f new/folder/mine.json ]
    export TASUKI_MACHINES= XDG_CONFIG_HOME=$PWD/config
    # Root may write all but what is mounted read-only.
    local before=()
    if [ "$(id -u)" -eq 0 ]; then
        before=(unshare -m sh -c 'mount -t tmpfs -o ro tmpfs "$0" && exec "$@"' "$(site)")
        "${before[@]}" true || skip "root may write the site's, and may not mount"
    fi
    "${before[@]}" "$TASUKI" topo --input laptop --save-machine mine -q
    [ -f config/tasuki/machines/mine.json ]
}

@test "nodes that differ are not one machine" {
    cat >two.json <<'END'
{ "schema": "tasuki-topo", "version": 1, "root": { "children": [
    { "kind": "node", "name": "n1", "children": [ { "kind": "device", "id": "/gpu0" } ] },
    { "kind": "node", "name": "n2", "children": [
        { "kind": "device", "id": "/gpu0" }, { "kind": "device", "id": "/gpu1" } ] } ] } }
END
    run "$TASUKI" topo --input two.json --save-machine two
    [ "$status" -eq 1 ]
    [[ "$output" == *"nodes n1 and n2 have other devices"* ]]
    sed 's/, { "kind": "device", "id": "\/gpu1" }//; s/"name": "n2"/"name": "deep"/' two.json |
        sed 's/^    { "kind": "node", "name": "deep"/    { "kind": "switch", "name": "s", "children": [\n&/; s/ \] } \] } }$/ ] } ] } ] } }/' >deep.json
    run "$TASUKI" topo --input deep.json --save-machine deep
    [ "$status" -eq 1 ]
    [[ "$output" == *"node deep is below more switches"* ]]
    echo '{ "schema": "tasuki-topo", "version": 1, "root": { "children": [
        { "kind": "device", "id": "0" } ] } }' >flat.json
    run "$TASUKI" topo --input flat.json --save-machine flat
    [[ "$output" == *"no nodes to describe"* ]]
    [ -z "$(ls mine)" ]
}

@test "a name that could be a path, and a report beside a description, are refused" {
    for name in ../up a/b "" .hidden "a b" x.json; do
        run "$TASUKI" topo --input laptop --save-machine "$name"
        [ "$status" -eq 2 ]
    done
    for option in --check "--format json" "--job 1"; do
        run "$TASUKI" topo --save-machine ours $option
        [ "$status" -eq 2 ]
        [[ "$output" == *"--save-machine"* ]]
    done
    [ -z "$(ls mine)" ]
}

@test "a cost file is estimated for a machine that is elsewhere" {
    cd "$BATS_TEST_TMPDIR"
    model=$srcdir/etc/demo/digits.onnx
    "$TASUKI" profile "$model" --roofline --cluster dgx-h100:1 --batch-size 16,64 -o h100.json
    grep -q '"device": "H100' h100.json
    run "$TASUKI" plan --cost h100.json --cluster dgx-h100:1 --global-batch 64
    [ "$status" -eq 0 ]
    run "$TASUKI" profile "$model" --roofline
    [[ "$status" -eq 2 && "$output" == *"--roofline needs --cluster"* ]]
    run "$TASUKI" profile "$model" --cluster dgx-h100:1
    [[ "$status" -eq 2 && "$output" == *"--cluster is about --roofline and --efficiency"* ]]
    run "$TASUKI" profile "$model" --roofline --cluster flat:2,bandwidth=1e9
    [[ "$status" -eq 1 && "$output" == *"nothing says how fast its devices are"* ]]
}

# What a plan by a cost file alone is for follows from the file.
@test "costs have the precision that they were taken in, and a plan for another one a warning" {
    cd "$BATS_TEST_TMPDIR"
    model=$srcdir/etc/demo/digits.onnx
    "$TASUKI" profile "$model" --roofline --cluster dgx-h100:1 --batch-size 16,64 -o cost.json
    "$TASUKI" profile "$model" --roofline --cluster dgx-h100:1 --batch-size 16,64 --precision bf16 \
        -o half.json
    grep -q '"precision": "float32"' cost.json
    grep -q '"precision": "bf16"' half.json
    plan="--cluster dgx-h100:1 --global-batch 64 -q -o plan.json"
    run "$TASUKI" plan --cost half.json $plan
    [ "$status" -eq 0 ] && [ -z "$output" ]
    grep -q '"precision": "bf16"' plan.json
    run "$TASUKI" simulate plan.json --cluster dgx-h100:1 --cost cost.json -q
    [ "$status" -eq 0 ]
    [[ "$output" == *"the costs are of training in float32, "*": the plan is for bf16"* ]]
    run "$TASUKI" plan "$model" --cost half.json $plan
    [ "$status" -eq 0 ]
    [[ "$output" == *"the costs are of training in bf16, "*": the plan is for float32"* ]]
    run "$TASUKI" plan "$model" --cost half.json --precision bf16 $plan
    [ "$status" -eq 0 ] && [ -z "$output" ]
}

# forward, dgrad and wgrad of all blocks of a cost file, in seconds
seconds_of() {
    "$TASUKI_PYTHON" -c 'import json, sys
print(sum(sum(b[k]) for b in json.load(open(sys.argv[1]))["blocks"]
          for k in ("forward", "dgrad", "wgrad") if k in b))' "$1"
}

@test "an estimate takes the efficiency that a machine gives, and refuses what is none" {
    cd "$BATS_TEST_TMPDIR"
    model=$srcdir/etc/demo/digits.onnx
    machine() {
        echo '{ "schema": "tasuki-topo", "version": 1, "root": { "children": [ {
            "kind": "device", "id": "0", "flops": 1e12, "memory_bandwidth": 1e11'"$1"' } ] } }' \
            >own.json
    }
    all='[[1, 0.25]]'
    machine ''
    "$TASUKI" profile "$model" --roofline --cluster own.json --batch-size 16 -o peak.json
    machine ', "efficiency": { "matmul": '"$all"', "convolution": '"$all"', "attention": '"$all"',
        "normalization": '"$all"', "memory": '"$all"' }'
    "$TASUKI" profile "$model" --roofline --cluster own.json --batch-size 16 -o share.json
    # A quarter of the speed is at most four times the time; what moves bytes for a product is not.
    "$TASUKI_PYTHON" -c 'import sys
peak, share = map(float, sys.argv[1:])
assert 2 * peak < share <= 4.0000001 * peak, (peak, share)' "$(seconds_of peak.json)" \
        "$(seconds_of share.json)"
    machine ', "efficiency": { "memory": [[1e3, 0.5], [1e3, 0.6]] }'
    run "$TASUKI" profile "$model" --roofline --cluster own.json --batch-size 16
    [ "$status" -eq 1 ]
    [[ "$output" == *"own.json: root.children[0].efficiency.memory: point 2: work must"* ]]
}

@test "what operators reach here becomes the efficiency of a machine" {
    cd "$BATS_TEST_TMPDIR"
    model=$srcdir/etc/demo/digits.onnx
    export TASUKI_CACHE_DIR=$PWD/cache
    "$TASUKI" profile "$model" --batch-size 16,64 -o measured.json
    # As if every operator took a millisecond: then a share is in proportion to the work, which
    # is what lies between two points, and a mean stands for what has up to 8 times more to do.
    "$TASUKI_PYTHON" -c 'import glob, json
for name in glob.glob("cache/*-*.json"):
    top = json.load(open(name))
    top["crowded"] = {}
    top["seconds"] = {key: 1e-9 if key.startswith("update") else 1e-3 for key in top["seconds"]}
    json.dump(top, open(name, "w"))'
    "$TASUKI" profile "$model" --batch-size 16,64 -o measured.json
    "$TASUKI" profile "$model" --efficiency --cluster laptop --batch-size 16,64 -o here.json
    grep -q "efficiency: measured by tasuki profile" here.json
    "$TASUKI" profile "$model" --roofline --cluster here.json --batch-size 16,64 -o curve.json
    "$TASUKI" profile "$model" --roofline --cluster laptop --batch-size 16,64 -o peak.json
    "$TASUKI_PYTHON" -c 'import sys
measured, curve, peak = map(float, sys.argv[1:])
assert 0.5 < curve / measured < 2, (measured, curve)
assert peak / measured < 0.1, (measured, peak)' "$(seconds_of measured.json)" \
        "$(seconds_of curve.json)" "$(seconds_of peak.json)"
    run "$TASUKI" profile "$model" --efficiency
    [[ "$status" -eq 2 && "$output" == *"--efficiency needs --cluster"* ]]
    run "$TASUKI" profile "$model" --efficiency --roofline --cluster laptop
    [[ "$status" -eq 2 && "$output" == *"give one of them"* ]]
    run "$TASUKI" profile "$model" --efficiency --cluster laptop --format text
    [[ "$status" -eq 2 && "$output" == *"--format text"*"--efficiency writes JSON"* ]]
}
