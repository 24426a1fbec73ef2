# SPDX-License-Identifier: MIT
# tasuki plan, from a cost file: no MPI, no GPU, no model.

load planning.bash

@test "a plan from a cost file is printed as a table and written as a file" {
    plan -o plan.json >table
    grep -q 'iteration' table
    grep -q 'lower bound' table
    grep -q '"schema": "tasuki-plan"' plan.json
    plan --format json >printed.json
    grep -v '"command"' plan.json >1
    grep -v '"command"' printed.json >2
    diff 1 2
}

@test "the table says of each stage what it has, and of others why they lost" {
    flat=tree:2x2,inside=1e10,across=1e9,memory=1e9
    run plan --replicas 3,1 --micro-batches 2
    echo "$output"
    [[ "$output" == *"0        3       500   n0/gpu0-1, n1/gpu0       a ... b (2 blocks)"* ]]
    [[ "$output" == *" of 953.7 MiB "*" 40 B"* ]]
    [[ "$output" == *"MFU          not known: a cost file says nothing of operations"* ]]
    # Times of the two stages: 8/3 and 8 of 12.
    [[ "$output" == *"limited by   stage 1, which computes "*" % of the time"* ]]
    run plan
    echo "$output"
    [ "$(sed -n '/^Others/,$p' <<<"$output" | grep -cE '^  .* micro-batch(es)? of [0-9]+: ')" -eq 3 ]
    # The others are slower, in order, and each says what takes longer.
    seconds=$(sed -nE 's/^iteration +([0-9.]+) ms.*/\1/p' <<<"$output")
    sed -nE 's/^  .* of [0-9]+: ([0-9.]+) ms, .* more: .* longer$/\1/p' <<<"$output" |
        awk -v last="$seconds" '$1 < last { exit 1 } { last = $1 }'
    run plan --memory 9000 --optimizer adam --no-zero
    [[ "$output" == *"1 stage, "*": does not fit: stage 0 wants 12030 bytes of 9000"* ]]
    grep -q '"memory_limit": 9000' <(plan --memory 9000 --no-zero --format json)
}

@test "a plan is drawn on the tree, with names escaped and in bounds" {
    sed -i 's/"a"/"<a \\"\&\\">"/g' cost.json
    flat=tree:2x2,inside=1e10,across=1e9,memory=1e9
    plan --replicas 2,1 --micro-batches 2 --format svg -o plan.json >plan.svg
    grep -q '"schema": "tasuki-plan"' plan.json
    "$TASUKI" plan --help | grep -qE -- '-o, --output FILE +the plan, as JSON whatever --format prints'
    ! grep -q '<a "' plan.svg || false
    grep -q 'stage 0: 2 replicas' plan.svg
    for label in 0.0 0.1 1.0 n0 n1 gpu1; do grep -q ">$label<" plan.svg; done
    [ "$(grep -c 'stroke="#555" fill="#' plan.svg)" -eq 5 ]
    flat=tree:1000x8,inside=1e10,across=1e9
    plan --stages 1 --replicas 8 --format svg >large.svg
    size=$(sed -nE '1s/.* width="([0-9]+)" height="([0-9]+)".*/\1 \2/p' large.svg)
    echo "$size"
    read -r width height <<<"$size"
    [ "$width" -le 2400 ] && [ "$height" -le 4500 ]
    [ "$(grep -c 'class="numa"' large.svg)" -eq 512 ]
    run plan --format svg --gpus 1..2
    [[ "$status" -eq 2 && "$output" == *"--format svg draws one plan: leave out --gpus"* ]]
    command -v python3 >/dev/null || skip "no python3"
    for file in plan.svg large.svg; do
        python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' $file
    done
}

@test "the clusters of README and of the manual pages are planned for" {
    local n=0
    for flat in $(grep -ohE '(flat|tree):[0-9][^ ]*' "$srcdir/README.md" "$srcdir"/man/*.1); do
        n=$((n + 1))
        run plan --micro-batches 1
        echo "$flat: $output"
        [ "$status" -eq 0 ]
    done
    [ "$n" -ge 4 ]
}

@test "a cluster of very many devices is planned for" {
    for flat in flat:90000,bandwidth=1e9 tree:90000x1,inside=1e9,across=1e9; do
        run plan
        echo "$output"
        [[ "$status" -eq 0 && "$output" == *" of 90000 devices of $flat"* ]]
    done
    # It took minutes.
    run timeout 60 "$TASUKI" plan --cost cost.json --cluster fugaku --global-batch 2048
    echo "$output"
    [[ "$status" -eq 0 && "$output" == *" of 635904 devices of fugaku"* ]]
}

@test "a plan that meets its bound, and has one micro-batch, is told so" {
    flat=flat:1,bandwidth=1e9,latency=0
    run plan --micro-batches 1
    [[ "$output" == *"the plan is 0 % above"*"for each of 1 micro-batch, "* ]]
}

@test "pinned stages, replicas, micro-batches and schedule are in the plan" {
    run plan --replicas 2,1 --micro-batches 2 --schedule gpipe
    [ "$status" -eq 0 ]
    [[ "$output" == "2 stages on 3 of 4 devices of flat:"*", gpipe, 2 micro-batches of 4"* ]]
    run plan --stages 3 --micro-batch-size 1
    [[ "$output" == "3 stages on "*" 8 micro-batches of 1"* ]]
    run plan --stages 2 --schedule zb --schedule-memory 1.5 --format json
    [[ "$output" == *'"schedule": "zb"'*'"memory": 1.5'* ]]
}

@test "a device gets several stages where such a schedule is asked for, or the reason why not" {
    eight_blocks >cost.json
    run plan --schedule zb-v --stages 8 --micro-batches 8
    [ "$status" -eq 0 ]
    [[ "$output" == "8 stages on 4 of 4 devices of flat:"*", zb-v, 8 micro-batches of 1"* ]]
    plan --schedule interleaved --chunks 4 --stages 8 --micro-batches 8 -o chunks.json
    grep -q '"chunks": 4' chunks.json
    run "$TASUKI" simulate chunks.json --cost cost.json
    [ "$status" -eq 0 ]
    [[ "$output" == *"iteration "* ]]
    run "$TASUKI" simulate chunks.json --cost cost.json --schedule zb
    [ "$status" -eq 1 ]
    [[ "$output" == *'--schedule zb: device "0" stands there twice'* ]]
    run plan --schedule interleaved --stages 6 --micro-batches 4
    [ "$status" -eq 2 ]
    [[ "$output" == *"4 micro-batches over 3 devices: the nearest count"*" is 3"* ]]
    run plan --schedule zb-v --stages 7
    [ "$status" -eq 2 ]
    [[ "$output" == *"--stages 7: --schedule zb-v has 2 on each device"* ]]
    run plan --schedule zb-v --chunks 2
    [ "$status" -eq 2 ]
    [[ "$output" == *"--chunks is about --schedule interleaved alone"* ]]
    run plan --schedule zb-v --replicas 1,2
    [ "$status" -eq 2 ]
    [[ "$output" == *"has the same number for all stages"* ]]
    run plan --schedule zb-v --memory 100
    [ "$status" -eq 2 ]
    [[ "$output" == *"no number of devices from 1 to 4 suits"*"; leave some out, or ask for more"* ]]
    run plan --schedule zb-v --stages 2 --memory 8M
    echo "$output"
    [[ "$output" == *"suits the micro-batches, the pins and the memory; without --stages there is a plan" ]]
}

@test "plans of an asked-for schedule, a list and a rule are told from others that were looked at" {
    eight_blocks >cost.json
    for options in "--schedule interleaved" "--schedule zb-v" "--policy equal" "--policy rannc"; do
        plan $options >table
        cat table
        grep -qE '^Stage 0( and those beside it are| is) the slowest: ' table
        sed -n '/^Others, and why they lost:/,$p' table >others
        [ "$(wc -l <others)" -ge 2 ]
        [ "$(grep -cE '^  ([0-9]+ pipelines of )?[1-8] stages?, .*micro-batch(es)? of [1-8]: ' others)" \
            -eq $(($(wc -l <others) - 1)) ]
    done
    [ -z "$(plan --schedule zb-v | sed -n '/^Others/,$p' | grep -E '1f1b|gpipe')" ]
    plan --stages 4 --micro-batches 8 -o plan.json >table
    "$TASUKI" simulate plan.json --cost cost.json --cluster "$flat" --format schedule -o list
    plan --schedule list >table
    grep -q '^Stage 0 is the slowest: ' table
    [ -z "$(sed -n '/^Others/,$p' table)" ]
}

# The stage of a block in plan.json.
stage_of() {
    awk -v block="$1" '/"replicas"/ { s++ } $0 ~ "\"" block "\"" { print s + 0 }' plan.json
}

# Eight blocks, the last without parameters.
eight_blocks() {
    echo '{ "schema": "tasuki-cost", "version": 1, "micro_batch": [1], "blocks": ['
    for b in a b c d e f g; do
        echo "{ \"name\": \"$b\", \"forward\": 1, \"dgrad\": 1, \"wgrad\": 1,"
        echo "\"activations\": 100, \"parameters\": 1000000 },"
    done
    echo '{ "name": "h", "forward": 1, "dgrad": 1, "wgrad": 1, "activations": 100 } ] }'
}

# Each sends to the next.
chain_of_eight() {
    local from=a to edges=

    for to in b c d e f g h; do
        edges+="${edges:+, }{ \"from\": \"$from\", \"to\": \"$to\", \"bytes\": 10 }"
        from=$to
    done
    eight_blocks | sed "s/ ] }\$/ ], \"edges\": [ $edges ] }/"
}

@test "blocks are pinned to the stages of a device that has several" {
    eight_blocks >cost.json
    plan --schedule zb-v --stages 4 --pin c=0 --pin g=2 -o plan.json >table
    [ "$(stage_of a) $(stage_of c) $(stage_of g) $(stage_of h)" = "0 0 2 3" ]
    # Without a number of stages those are tried that the schedule has.
    plan --schedule zb-v --pin c=0 -o plan.json >table
    [ "$(stage_of a) $(stage_of c)" = "0 0" ]
    plan --schedule interleaved --pin a=0 --pin b=1 -o plan.json >table
    [ "$(stage_of a) $(stage_of b)" = "0 1" ]
    plan --schedule zb-v --pin h=5 -o plan.json >table
    [ "$(grep -c '"replicas"' plan.json)" -eq 6 ]
    run plan --schedule zb-v --pin h=4
    [ "$status" -eq 2 ]
    [[ "$output" == *"suits the micro-batches, the pins and the memory"* ]]
}

@test "pins that want more stages than a schedule can have are refused" {
    eight_blocks >cost.json
    flat=flat:2,bandwidth=1e9,memory=16e9
    for schedule in interleaved zb-v; do
        plan --schedule $schedule --pin d=3 >table
        run plan --schedule $schedule --pin e=4
        echo "$output"
        [ "$status" -eq 2 ]
        [[ "$output" == *"--pin needs 6 stages with this schedule, 2 for each device: at most 4 fit the network's 8 blocks and 2 devices: pin to lower ones, "* ]]
    done
    run plan --schedule 1f1b --pin c=2
    [ "$status" -eq 2 ]
    [[ "$output" == *"--pin needs 3 stages with this schedule, 1 for each device: at most 2 fit"* ]]
}

@test "more stages than devices are planned for where a schedule has several on each" {
    eight_blocks >cost.json
    for pins in "--stages 8" "--stages 6" "--replicas 2,2,2,2" "--stages 4 --pipelines 2"; do
        run plan $pins
        echo "$output"
        [ "$status" -eq 0 ]
        [[ "$output" == *" stages on 4 of 4 devices of "*", "@(zb-v|interleaved)", "* ]]
        [[ "$output" != *"All 0 plans"* ]]
    done
    run plan --stages 7
    [ "$status" -eq 2 ]
    [[ "$output" == *"--stages 7: $flat has 4 devices, and no schedule divides so many"* ]]
    run plan --stages 8 --memory 900
    [ "$status" -eq 2 ]
    [[ "$output" == *"--stages 8 on 4 devices: no schedule that gives a device several stages"* ]]
}

@test "BatchNorm's groups are named where they leave no plan" {
    model="$srcdir/etc/demo/digits.onnx --data $srcdir/etc/demo/digits-train.safetensors"
    plan="$TASUKI plan $model --global-batch 32 --cluster $flat,flops=1e12,memory-bandwidth=1e11"
    said="each share is a multiple of BatchNorm's 16 samples"
    run $plan --replicas 4
    echo "$output"
    [ "$status" -eq 2 ]
    [[ "$output" == *"; $said, the default: --batchnorm-samples 8 would do" ]]
    run $plan --memory 600K --batchnorm-samples 16
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"; $said: --batchnorm-samples 8 would do" ]]
    $plan --batchnorm-samples 8 --replicas 4 | grep -q '^BatchNorm    over groups of 8 samples: each'
    $plan | grep -q '^BatchNorm    over groups of 16 samples: each share is a multiple'
    ! plan | grep -q '^BatchNorm' || false
    # What is suggested does; and nothing is, where smaller groups do not help.
    $plan --memory 600K --batchnorm-samples 8
    run $plan --stages 7 --replicas 1
    [[ "$status" -eq 2 && "$output" != *BatchNorm* ]]
}

@test "every plan is simulated where that is asked for, and too much is refused" {
    run plan --exhaustive
    [ "$status" -eq 0 ]
    [[ "$output" == *"All "*" plans were simulated: none is faster."* ]]
    # Where a schedule is asked for that gives a device several stages, all are such: here in one,
    # two or four pipelines of one device, with the blocks in two stages, cut in two ways, or in
    # three.
    run plan --exhaustive --schedule zb-v --micro-batch-size 1
    echo "$output"
    [[ "$status" -eq 0 && "$output" == *"All 6 plans were simulated: none is faster."* ]]
    run plan --exhaustive --schedule interleaved --chunks 3 --micro-batch-size 1
    [[ "$status" -eq 0 && "$output" == *"All 3 plans were simulated: none is faster."* ]]
    run plan --exhaustive --schedule zb-v --stages 4
    [[ "$status" -eq 2 && "${#lines[@]}" -eq 1 ]]
    flat=flat:9,bandwidth=1e9,latency=0
    run plan --exhaustive
    [ "$status" -eq 2 ]
    [[ "$output" == *"--exhaustive: 3 blocks on 9 devices: at most 12 on 8, where all"* ]]
    flat=tree:3x2,inside=1e9,across=1e8
    run plan --exhaustive
    [ "$status" -eq 2 ]
    [[ "$output" == *"--exhaustive: 3 blocks on 6 devices: at most 8 on 4, or 12 on 8 that"* ]]
    # Blocks that do not depend on each other can be parted in very many ways.
    {
        echo '{ "schema": "tasuki-cost", "version": 1, "micro_batch": [1], "blocks": ['
        for b in a b c d e f g h i j k; do
            echo "{ \"name\": \"$b\", \"forward\": 1, \"dgrad\": 1 },"
        done
        echo '{ "name": "l", "forward": 1, "dgrad": 1 } ] }'
    } >cost.json
    flat=flat:8,bandwidth=1e9,latency=0
    run plan --exhaustive
    [ "$status" -eq 2 ]
    [[ "$output" == *"--exhaustive: there are more than 10000000 plans; pin some of it"* ]]
}

# A chain of so many blocks, drawn.
chain() {
    awk -v n="$1" -v seed="$2" 'BEGIN {
        srand(seed)
        print "{ \"schema\": \"tasuki-cost\", \"version\": 1, \"micro_batch\": [1], \"blocks\": ["
        for (i = 0; i < n; i++)
            printf "{ \"name\": \"b%d\", \"forward\": %g, \"dgrad\": %g, \"wgrad\": %g, " \
                "\"parameters\": %d, \"activations\": 10 }%s\n", i, 1 + rand(), 1 + rand(),
                1 + rand(), 1e8 * rand(), i < n - 1 ? "," : " ],"
        print "\"edges\": ["
        for (i = 1; i < n; i++)
            printf "{ \"from\": \"b%d\", \"to\": \"b%d\", \"bytes\": %d }%s\n", i - 1, i,
                1e8 * rand(), i < n - 1 ? "," : " ] }"
    }' >cost.json
}

@test "all plans of 8 blocks on 4 devices of a tree, and of 12 on 8, are gone through" {
    seed=${TASUKI_TEST_SEED:-$RANDOM}
    echo "TASUKI_TEST_SEED=$seed"
    batch=3
    for problem in '8 tree:2x2,inside=1e9,across=1e8,memory=1e12' \
                   '12 flat:8,bandwidth=1e9,latency=0,memory=1e12'; do
        chain "${problem% *}" "$seed"
        flat=${problem#* }
        run plan --exhaustive --global-batch "$batch" -o every.json
        echo "$output"
        [ "$status" -eq 0 ]
        [[ "$output" =~ "All "([0-9]+)" plans" ]]
        echo "${BASH_REMATCH[1]}"
        # What is found without going through all is never faster, and no more than 10 % above.
        plan --global-batch "$batch" -q -o found.json
        sed -nE 's/^ *"iteration_seconds": ([0-9.e+-]+),?$/\1/p' found.json every.json | xargs |
            awk '{ exit !($2 <= $1 * (1 + 1e-9) && $1 <= 1.1 * $2) }'
    done
}

@test "pinned nodes are in their stages, whatever the number of stages" {
    plan --pin 'b=1' --stages 2 -o plan.json >table
    [ "$(stage_of a) $(stage_of b) $(stage_of c)" = "0 1 1" ]
    plan --pin '[ab]=0' --pin 'c*=1' -o plan.json >table
    [ "$(stage_of a) $(stage_of b) $(stage_of c)" = "0 0 1" ]
    # As many stages as are pinned, or more.
    plan --pin c=2 -o plan.json >table
    [ "$(stage_of a) $(stage_of b) $(stage_of c)" = "0 1 2" ]
    plan --pin c=1 --pin b=1 --exhaustive -o plan.json >table
    [ "$(stage_of a) $(stage_of b) $(stage_of c)" = "0 1 1" ]
    run plan --pipelines 2 --replicas 1,1
    [[ "$output" == "2 pipelines of 2 stages on 4 of 4 devices"* ]]
}

@test "pins of nodes that contradict are refused with the reason" {
    refused() {
        local text=$1
        shift
        run plan "$@"
        echo "$output"
        [ "$status" -eq 2 ] && [ "${#lines[@]}" -eq 1 ] && [[ "$output" == *"$text"* ]]
    }
    refused 'block "c" comes after "b" in the network, not before it: pin it to 1 or more, or leave one '\
'of them out' --pin b=1 --pin c=0
    refused '--pin a=0 and [ab]=1: both mean block "a", which is never cut; leave one of them out' \
        --pin a=0 --pin '[ab]=1'
    refused '--pin bb=0: matches no node and no block; did you mean "b"?' --pin bb=0
    refused 'too few blocks are before "b" for the stages before it: pin it to 1 or less' --pin b=2
    refused 'too few blocks are behind "c" for the stages behind it: at most --stages 2' \
        --pin c=1 --stages 3
    refused '--pin b=1: --stages 1 has stages 0 to 0; at least --stages 2 would do' --pin b=1 --stages 1
    for wrong in b b= b=x b=3 =1 b=-1; do
        refused "--pin $wrong: expected PATTERN=STAGE" --pin $wrong
    done
    refused '--policy equal and --pin: leave one of them out' --pin b=1 --policy equal
    refused '--pipelines 3: does not divide the global batch of 8; 2 would do' --pipelines 3
    refused ' has 4 devices; at most 4 would do' --pipelines 8
    refused ' has 4 devices; at most 2 would do' --pipelines 4 --stages 2
    refused ' has 4 devices; fewer --pipelines or replicas would do' --pipelines 2 --replicas 1,2
    refused ' has 4 devices; fewer replicas would do' --replicas 3,2
    refused '--stages 4: the network has 3 blocks, and a stage one at least; at most --stages 3 would do' \
        --stages 4
}

@test "what fusion put together is pinned together, by the names of all its nodes" {
    case=$srcdir/tests/data/model/transformer
    go() {
        "$TASUKI" plan "$case/model.onnx" --data "$case/train.safetensors" --global-batch 24 \
            --cluster "$flat,flops=1e10,memory-bandwidth=1e10" --backend reference "$@"
    }
    run go --pin '/layers.0/*=0' --pin '/layers.[12]/*=1'
    echo "$output"
    [[ "$output" == *" ... /layers.0/Add_2 ("*" /layers.1/norm1/LayerNormalization ... loss ("* ]]
    run go --pin /layers.1/Erf=1 --pin /layers.1/Mul_1=2
    [ "$status" -eq 2 ]
    [[ "$output" == *'both mean block "/layers.1/Mul_1", which is never cut'* ]]
}

@test "sizes are compared, and one is recommended" {
    flat=flat:4,bandwidth=1e9,latency=0
    run plan --gpus 1..4 --steps 10 --start-up 5 -o "$BATS_TEST_TMPDIR/best.json"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -cE ' %  (computing|start-up|other stages|unused devices)$' <<<"$output")" -eq 4 ]
    [[ "$output" == *"Recommended: "*" devices."* ]]
    # The size that is recommended is the one whose plan is written.
    seconds=$(sed -n 's/.*"iteration_seconds": \([0-9.e-]*\).*/\1/p' "$BATS_TEST_TMPDIR/best.json")
    marked=$(awk '$1 == "*" { print $5 }' <<<"$output")
    awk -v a="$seconds" -v b="$marked" 'BEGIN { d = 1e3 * a / b; exit !(d > 0.999 && d < 1.001) }'
    # 10 steps and the start.
    awk '$1 ~ /^[*1]$/ { i = $1 == "*"; d = $(12 + i) - $(9 + i) - 10 * $(4 + i) / 1e3
                         if (d > 0.01 || d < -0.01) exit 1 }' <<<"$output"
    [ "$(awk '$1 ~ /^[*1]$/ { print $(9 + ($1 == "*")) }' <<<"$output" | sort -u)" = 5 ]
    run plan --gpus 1..4 --format json
    [ "$(grep -c '"efficiency"' <<<"$output")" -eq 4 ]
    [ "$(grep -c '"limited_by": "computing"' <<<"$output")" -ge 1 ]
    plan --gpus 1..2 --steps 10 --format json >all.json
    grep -q '"schema": "tasuki-sizes"' all.json
    for key in $(grep -o '"[a-z_]*":' all.json | tr -d '":' | sort -u); do
        echo "$key is in the manual page"
        sed -n '/^.Sh COMPARISON/,/^.Sh EXAMPLES/p' "$srcdir/man/tasuki-plan.5" |
            grep -qE "Li (.*, )?$key( |\$)"
    done
    plan --gpus 2..2 -o "$BATS_TEST_TMPDIR/two.json" >/dev/null
    flat=flat:2,bandwidth=1e9,latency=0
    plan -o "$BATS_TEST_TMPDIR/same.json" >/dev/null
    cmp <(grep -h iteration_seconds "$BATS_TEST_TMPDIR/two.json") \
        <(grep -h iteration_seconds "$BATS_TEST_TMPDIR/same.json")
}

@test "epochs are as many steps as their samples fill batches" {
    flat=flat:4,bandwidth=1e9,latency=0
    plan --gpus 1..4 --steps 15 --start-up 5 >steps
    plan --gpus 1..4 --epochs 5 --samples 31 --start-up 5 >epochs
    diff steps epochs
    run plan --gpus 1..4 --epochs 5
    [[ "$status" -eq 2 && "$output" == *"--epochs: needs --data DATA or --samples N"* ]]
    run plan --gpus 1..4 --epochs 5 --samples 7
    [[ "$status" -eq 2 && "$output" == *"7 samples do not fill a batch of 8: --global-batch 7 "* ]]
    run plan --gpus 1..4 --epochs 5 --steps 7
    [[ "$status" -eq 2 && "$output" == *"--steps and --epochs: leave one of them out"* ]]
    run plan --epochs 5
    [[ "$status" -eq 2 && "$output" == *"--epochs: only --nodes FIRST..LAST"* ]]
    # In a job file they are for training; 1442 samples are 45 batches of 32.
    demo=$srcdir/etc/demo
    printf '%s\n' "model = $demo/digits.onnx" "data = $demo/digits-train.safetensors" \
        "epochs = 2" "global-batch = 32" "backend = reference" \
        "cluster = $flat,flops=1e12,memory-bandwidth=1e11" >job.conf
    "$TASUKI" plan job.conf >/dev/null
    run "$TASUKI" plan job.conf --gpus 1..2
    [[ "$output" == *": 90 steps"* ]]
}

@test "sizes are compared by what they read, too, from shared storage or from copies" {
    cat >machine.json <<'END'
{ "schema": "tasuki-topo", "version": 1, "name": "four",
  "storage": { "client_bandwidth": 2e6, "slow_down": 1, "local_bandwidth": 20e6 },
  "root": { "children": [ { "kind": "node", "name": "n#", "count": 4, "bandwidth": 1e12,
    "children": [ { "kind": "device", "id": "/gpu0", "memory": 1e9 } ] } ] } }
END
    flat=machine.json
    # 12 s of computing and 10 MB for each of 8 samples: on any number of nodes one file takes 40 s.
    options="--nodes 1..4 --epochs 2 --samples 80 --data-size 800MB --stages 1"
    values() {
        plan $options --format json "${@:2}" | sed -n "s/ *\"$1\": \([0-9.]*\),*/\1/p" |
            awk '{ printf "%s%.4g", (NR > 1 ? " " : ""), $1 }'
    }
    [ "$(values iteration_seconds)" = "96 48 36 24" ]
    [ "$(values reading_seconds)" = "40 40 40 40" ]
    [ "$(values steps_seconds)" = "1920 960 800 800" ]
    [ "$(values finish_seconds)" = "1920 960 800 800" ]
    [ "$(values idle | cut -d' ' -f4)" = 0.4 ]
    run plan $options
    echo "$output"
    [[ "$output" == *"Recommended: 3 nodes."*"Its steps wait for data: 40 s to read, 24 s to compute one; --stage-to"* ]]
    # Each node copies all once, and then reads its samples from its own disk.
    [ "$(values reading_seconds --stage-to /tmp)" = "4 2 1.333 1" ]
    [ "$(values staging_seconds --stage-to /tmp)" = "400 400 400 400" ]
    [ "$(values finish_seconds --stage-to /tmp)" = "2320 1360 1120 880" ]
    sed -i 's/"local_bandwidth": 20e6/&, "local_size": 800e6/' machine.json
    [ "$(values staging_seconds --stage-to /tmp)" = "400 400 400 400" ]
    sed -i 's/"local_size": 800e6/"local_size": 500e6/' machine.json
    run plan $options --stage-to /tmp
    echo "$output"
    [[ "$status" -eq 2 && "$output" == *"--stage-to: 0.8 GB of data do not fit the disk of a node, of which machine.json:4 has 0.5 GB: leave it out"* ]]
    plan $options >table
    run plan --nodes 1..4 --steps 20 --data-size 800M
    [[ "$output" == *"What a step reads is not counted: --samples N."* ]]
    run plan --stage-to /tmp
    [[ "$status" -eq 2 && "$output" == *"--stage-to: only --nodes FIRST..LAST"* ]]
}

@test "sizes that cannot be compared are refused" {
    flat=flat:4,bandwidth=1e9
    for wrong in 0..3 3..2 1.. ..4 1..2..3 x 1..5; do
        run plan --gpus $wrong
        echo "$wrong: $output"
        [ "$status" -eq 2 ]
        [[ "$output" == *"--gpus"* ]]
    done
    run plan --gpus 1..2 --nodes 1..2
    [ "$status" -eq 2 ]
    run plan --gpus 1..2 --data-size 3G
    [[ "$status" -eq 2 && "$output" == *"--data-size: needs --steps or --epochs"* ]]
    run plan --gpus 1..2 --start-up 3
    [[ "$status" -eq 2 && "$output" == *"--start-up: needs --steps or --epochs"* ]]
    for wrong in 3, ,1 3,1,2 -1 3,x 3,-1 1e10 nan; do
        run plan --gpus 1..2 --steps 3 --start-up=$wrong
        [[ "$status" -eq 2 && "$output" == *"--start-up: expected one or two numbers from 0 to "* ]]
    done
    run plan --steps 3
    [[ "$status" -eq 2 && "$output" == *"--steps: only "* ]]
}

# RaNNC's tutorial took 15.46 s on four nodes of Flow (Furo) Type II, and 13.59 s on one.
@test "of a short job of the tutorial's network on Flow one node is recommended, and why is said" {
    command -v python3 >/dev/null || skip "no python3"
    python3 "$srcdir/etc/bench/mlp-tutorial/make-mlp.py" .
    go() {
        "$TASUKI" plan mlp.onnx --data data.safetensors --loss dot:out,target --optimizer sgd \
            --cluster flow-type2 "$@"
    }
    # Launch, discovery and planning take longer than the steps, and more on more nodes.
    go --nodes 1..4 --global-batch 256 --steps 500 --start-up 10,0.5 >table
    cat table
    grep -q '^Recommended: 1 nodes\.' table
    grep -q '^Most of it is not computing: its start takes 10.5 of ' table
    [ "$(sed -nE 's/^\*? +([1-4]) .* start-up$/\1/p' table | tr -d '\n')" = 1234 ]
    [ "$(awk '/ start-up$/ { print $(9 + ($1 == "*")) }' table | paste -sd' ')" = "10.5 11 11.5 12" ]
    for n in 2 3 4; do
        grep -qE "^$n nodes: 1\.[01][0-9]* times as long, [2-5].* the node-hours: its start takes" table
    done
    # What the machine's description has is taken where nothing is said.
    go --nodes 1..4 --global-batch 256 --steps 500 >table
    cat table
    grep -q '^Recommended: 1 nodes\.' table
    grep -q '^Most of it is not computing: its start takes 13.5' table
    ! grep -q 'start of a run is not counted' table || false
    go --nodes 1..4 --global-batch 256 --steps 500 --start-up 0 | grep -q 'start of a run is not counted'
    # More devices than are of use make the plan no worse: it is searched for as if they were fewer.
    go --nodes 3..4 --global-batch 64 >table
    cat table
    awk '/^[* ] +[34] / { ms[$1 == "*" ? $2 : $1] = $(4 + ($1 == "*")) }
        END { exit !(ms[3] > 0 && ms[4] <= 1.01 * ms[3]) }' table
    # By RaNNC's rules three GPUs are two stages, of which one has two; the search has three shares.
    go --gpus 1..4 --global-batch 8192 --policy rannc >table
    cat table
    grep -q '^Recommended: 4 devices\.' table
    grep -qE '^3 devices are a dip, efficiency 8.* % between 9.*: waiting for other stages' table
    go --gpus 1..4 --global-batch 8192 >table
    cat table
    [ -z "$(grep 'are a dip' table)" ]
}

@test "a size at which shares are uneven is a dip, and says so; one that leaves devices idle, too" {
    # Of eight samples three devices have 3, 3 and 2.
    plan --gpus 1..4 --stages 1 >table
    cat table
    grep -q '^3 devices are a dip, efficiency 88.9 % between 100 and 100: shares that are uneven cost 4 s\.' table
    # Of two samples they have 1 and 1.
    plan --gpus 1..3 --stages 1 --micro-batches 4 >table
    cat table
    grep -qE '^\* .* 2 .* computing$' table
    grep -qE ' 3 .* 67 % .* computing$' table
    grep -q '^3 devices: no sooner, 1 times the node-hours: devices without work cost 16 s more\.' table
}

@test "blocks that do not read of each other are pinned in any order" {
    local kind='"forward": 1, "dgrad": 1, "parameters": 100, "activations": 10'
    cat >fork.json <<END
{ "schema": "tasuki-cost", "version": 1, "micro_batch": [1],
  "blocks": [{ "name": "top", $kind }, { "name": "left", $kind }, { "name": "left2", $kind },
             { "name": "right", $kind }, { "name": "end", $kind }],
  "edges": [{ "from": "top", "to": "left", "bytes": 8 }, { "from": "top", "to": "right", "bytes": 8 },
            { "from": "left", "to": "left2", "bytes": 8 }, { "from": "left2", "to": "end", "bytes": 8 },
            { "from": "right", "to": "end", "bytes": 8 }] }
END
    fork() {
        run "$TASUKI" plan --cost fork.json --cluster "$flat" --global-batch 8 --format json "$@"
        echo "$output"
    }
    blocks() {
        python3 -c 'import json, sys
print(*("+".join(s["blocks"]) for s in json.load(sys.stdin)["stages"]))' \
            <<<"$output"
    }
    fork --stages 2 --pin left=1 --pin right=0
    [ "$(blocks)" = "top+right left+left2+end" ]
    fork --stages 3 --pin left2=2 --pin left=1 --pin right=0
    [ "$(blocks)" = "top+right left left2+end" ]
    fork --stages 2 --pin left=0 --pin left2=1 --pin right=0
    [ "$(blocks)" = "top+left+right left2+end" ]
    # A stage between is given what is free.
    fork --stages 3 --pin left=0 --pin left2=2
    [ "$(blocks)" = "top+left right left2+end" ]
    fork --stages 3 --pin left2=0 --pin end=2
    [ "$(blocks)" = "top+left+left2 right end" ]
    fork --stages 2 --pin right=0 --pin left=1 --pin end=0
    [ "$status" -eq 2 ]
    [[ "$output" == *'--pin left=1 and end=0: block "end" comes after "left" in the network'* ]]
}

@test "pins that cannot be are refused with the reason and a suggestion" {
    run plan --stages 5
    [ "$status" -eq 2 ]
    [[ "$output" == *"--stages 5: "*" has 4 devices"*"; --stages 3 would do" ]]
    run plan --replicas 4 --micro-batch-size 2
    [ "$status" -eq 2 ]
    [[ "$output" == *"--micro-batch-size 4 would do"* ]]
    run plan --schedule zb-h1 --schedule-memory 1.5
    [ "$status" -eq 2 ]
    [[ "$output" == *"--schedule-memory is about --schedule zb alone; give that, or leave it out" ]]
    run plan --schedule zb --schedule-memory 3
    [ "$status" -eq 2 ]
    run plan --micro-batches 3
    [ "$status" -eq 2 ]
    [[ "$output" == *"does not divide the global batch of 8"* ]]
}

@test "every share is a multiple of the BatchNorm group" {
    plan --batchnorm-samples 4 -o plan.json >/dev/null
    ! grep -A4 '"samples"' plan.json | grep -qE '^ +[1235679],?$' || false
}

@test "ZeRO-1 comes where the memory demands it, and is pinned or forbidden" {
    run plan --replicas 4 --memory 10000 --optimizer adam
    echo "$output"
    [[ "$output" == *"1 stage on 4 of 4 devices "*", ZeRO-1, "*"Without ZeRO-1 nothing fits."* ]]
    run plan --replicas 4 --memory 10000 --optimizer adam --no-zero
    [ "$status" -ne 0 ]
    [[ "$output" == *"does not fit"* ]]
    run plan --replicas 4 --optimizer adam
    [[ "$output" != *"ZeRO-1"* ]]
    plan --zero --replicas 4 --optimizer adam -o plan.json
    grep -q '"zero": true' plan.json
    "$TASUKI" simulate plan.json --cost cost.json --cluster "$flat" >simulated
    grep iteration simulated
}

# A chain of 24 uneven blocks, and links past some of them, as 'seed' says; sets 'memory', which is
# from 1.2 to 2.5 times what parameters take on each of 12 devices where these are shared evenly.
drawn_chain() {
    memory=$(awk -v seed="$1" -v file="$2" '
        function draw(least, most) {
            seed = (seed * 16807 + 11) % 2147483647
            return least + (most - least) * seed / 2147483647
        }
        BEGIN {
            draw(0, 1)
            for (b = 0; b < 24; b++) {
                f = draw(5e-4, 2e-3)
                p = draw(5e7, 4e8)
                all += p
                blocks = blocks sprintf("%s{ \"name\": \"b%d\", \"forward\": %g, \"dgrad\": %g, " \
                    "\"wgrad\": %g, \"step\": %g, \"parameters\": %.0f, \"activations\": %.0f }", \
                    b ? "," : "", b, f, f * draw(0.8, 1.2), f * draw(0.5, 1.2), p * 5e-10, p, \
                    draw(2e7, 2e8))
                from = b > 3 && draw(0, 1) < 0.1 ? b - 3 : -1
                if (b)
                    edges = edges sprintf("%s{ \"from\": \"b%d\", \"to\": \"b%d\", " \
                        "\"bytes\": %.0f }", b > 1 ? "," : "", b - 1, b, draw(1e6, 1e7))
                if (from >= 0)
                    edges = edges sprintf(",{ \"from\": \"b%d\", \"to\": \"b%d\", " \
                        "\"value\": \"skip%d\", \"bytes\": %.0f }", from, b, b, draw(1e6, 2e7))
            }
            printf("{ \"schema\": \"tasuki-cost\", \"version\": 1, \"micro_batch\": [1], " \
                   "\"message_buffers\": 2, \"blocks\": [%s], \"edges\": [%s] }\n", \
                   blocks, edges) >file
            printf("%.0f\n", all * 4 / 12 * draw(1.2, 2.5))
        }')
}

# 0 where nothing fits.
milliseconds_of() {
    "$TASUKI" plan --cost drawn.json --cluster "tree:3x4,inside=5e10,across=1e10,memory=$memory" \
        --global-batch 32 --optimizer adam -o drawn-plan.json "$@" 2>/dev/null |
        awk '/^iteration/ { seconds = $2 } END { print seconds + 0 }'
}

@test "of plans with and without ZeRO-1 the faster is found where memory is short" {
    local seed
    for seed in 5 6 7 8 9 10 11 12; do
        drawn_chain $seed drawn.json
        any=$(milliseconds_of)
        with=$(milliseconds_of --zero)
        without=$(milliseconds_of --no-zero)
        echo "seed $seed, memory $memory: $any; with $with, without $without"
        awk -v any="$any" -v with="$with" -v without="$without" 'BEGIN {
            best = with == 0 || (without > 0 && without < with) ? without : with
            exit !(best > 0 ? any > 0 && any <= best * 1.001 : any == 0)
        }'
    done
}

@test "a list that suits nothing without ZeRO-1 is no reason against what it suits" {
    local block='"forward": 1, "dgrad": 1, "activations": 1, "parameters"'
    cat >skip.json <<END
{ "schema": "tasuki-cost", "version": 1, "micro_batch": [1],
  "blocks": [{ "name": "a", $block: 400 }, { "name": "b", $block: 400 },
             { "name": "c", $block: 100 }, { "name": "d", $block: 100 }],
  "edges": [{ "from": "a", "to": "b", "bytes": 1 }, { "from": "b", "to": "c", "bytes": 1 },
            { "from": "c", "to": "d", "bytes": 1 }, { "from": "a", "to": "c", "bytes": 1 }] }
END
    skip() {
        local memory=$1
        shift
        "$TASUKI" plan --cost skip.json --cluster "flat:6,bandwidth=1e9,latency=0,memory=$memory" \
            --global-batch 16 --replicas 2,2,2 --optimizer adam "$@"
    }
    skip 1e6 --schedule 1f1b --pin b=0 --pin c=1 --micro-batches 8 -o skip-plan.json >/dev/null
    "$TASUKI" simulate skip-plan.json --cost skip.json --format schedule -o list.txt
    run skip 2000 --schedule list.txt
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"Without ZeRO-1 nothing fits."* ]]
}

@test "stages run their forward again where the memory demands it, or are told to" {
    # 6000 bytes of parameters and gradients, and 4 x 30 of activations or once 30.
    one="--replicas 1 --micro-batch-size 1 --micro-batches 8 --schedule gpipe --optimizer sgd"
    plan $one --memory 6200 -o plan.json >table
    cat table
    grep -q '1 of 1 stages run their forward again' table
    grep -q '"recompute": "full"' plan.json
    run plan $one --memory 6200 --recompute none
    [ "$status" -ne 0 ]
    run plan $one --format json
    [[ "$output" == *'"recompute": "none"'* ]]
    # 12 seconds of F, B and W for each of 8, and another 4.
    plan $one --recompute full | grep -q '^iteration *128000 ms'
    [ "$(plan $one --recompute full | grep -cE ' recompute$|^ +0 .* full$')" -eq 2 ]
    ! plan $one --recompute none | grep -q recompute || false
    "$TASUKI" simulate plan.json --cost cost.json --cluster "$flat" | grep -q '128'
    run plan $one --recompute half
    [ "$status" -eq 2 ]
    # Selective is what the cost file says of it, and where that says nothing, no other than none.
    plan $one --recompute selective -o plan.json | grep -q '^iteration *96000 ms'
    grep -q '"recompute": "selective"' plan.json
    variant='{ "recompute": "selective", "dgrad": 2.5, "activations": 4 }'
    sed -i "s/\"activations\": 10/&, \"variants\": [ $variant ]/" cost.json
    # 1.5, 1.5 and 0.5 seconds more; 4 x 12 bytes kept, and once 18.
    plan $one --recompute selective -o plan.json | grep -q '^iteration *124000 ms'
    "$TASUKI" simulate plan.json --cost cost.json --cluster "$flat" | grep -q '124'
    plan $one --memory 6200 | grep -q '1 of 1 stages run their forward again, 0 all of it'
}

@test "a memory limit cuts the network, and names the block that does not fit" {
    run plan --memory 9000 --optimizer adam --no-zero -o plan.json
    [ "$status" -eq 0 ]
    [[ "$output" == *"stages on"* ]]
    run plan --memory 4000 --optimizer adam --no-zero
    [ "$status" -eq 1 ]
    # 4 x 1000 bytes, one sample's output and what is received of another block.
    [[ "$output" == *"block \"b\" does not fit on one device, by 20 bytes"* ]]
}

@test "the optimizer's state counts in the memory" {
    plan --stages 1 --optimizer sgd --format json >sgd.json
    plan --stages 1 --optimizer adam --format json >adam.json
    [ "$(grep '"memory": [1-9]' sgd.json)" != "$(grep '"memory": [1-9]' adam.json)" ]
    # Of the device, whoever asks; in shards it is nothing still.
    plan --stages 1 --optimizer adam --offload optimizer --no-zero --format json >away.json
    [ "$(grep '"memory": [1-9]' sgd.json)" = "$(grep '"memory": [1-9]' away.json)" ]
    memory() { "$TASUKI" simulate "$1" --cost cost.json --cluster "$flat" --format json |
        grep '"memory": [1-9]'; }
    [ "$(memory sgd.json)" = "$(memory away.json)" ]
    [ "$(memory sgd.json)" != "$(memory adam.json)" ]
}

@test "a network and a global batch are needed" {
    run "$TASUKI" plan --cost cost.json --cluster "$flat"
    [ "$status" -eq 2 ]
    [[ "$output" == *"--global-batch"* ]]
    run "$TASUKI" plan --cluster "$flat" --global-batch 8
    [ "$status" -eq 2 ]
    [[ "$output" == *"MODEL or --cost"* ]]
}

@test "a cost file with an unknown key is refused by file and key" {
    sed -i 's/"activations": 10/"activation": 10/' cost.json
    run plan
    [ "$status" -eq 1 ]
    [[ "$output" == *'cost.json: blocks[0]: unknown key "activation"'* ]]
}

@test "of several cost files the one for the cluster's devices is used" {
    sed 's/"version": 1,/"version": 1, "device": "other",/; s/"forward": 2/"forward": 9/' \
        cost.json >other.json
    run "$TASUKI" plan --cost cost.json --cost other.json --cluster "$flat" --global-batch 8 \
        --stages 1 --replicas 1
    [ "$status" -eq 0 ]
    [[ "$output" == *"iteration    96000 ms"* ]]
}

@test "costs of other devices than the cluster has are taken with a warning" {
    sed 's/"version": 1,/"version": 1, "device": "other",/' cost.json >other.json
    sed 's/"version": 1,/"version": 1, "device": "NVIDIA H100 80GB HBM3, sm_90",/' cost.json >same.json
    run "$TASUKI" plan --cost other.json --cluster dgx-h100:1 --global-batch 8 -q -o plan.json
    [ "$status" -eq 0 ]
    [ "$output" = 'tasuki: warning: dgx-h100:1 has devices of kind "H100 80GB HBM3": they are taken to be as fast as "other", which the costs are for' ]
    run "$TASUKI" plan --cost same.json --cluster dgx-h100:1 --global-batch 8 -q -o plan.json
    [ "$status" -eq 0 ] && [ -z "$output" ]
}

@test "a plan that cannot be written leaves nothing and is an error" {
    run plan -o nowhere/plan.json
    [ "$status" -eq 1 ]
    [[ "$output" == *"nowhere/plan.json"* ]]
}

@test "simulate draws what plan forecasts" {
    plan --stages 2 -o plan.json >table
    run "$TASUKI" simulate plan.json --cost cost.json --trace trace.json
    [ "$status" -eq 0 ]
    [ "$(echo "$output" | sed -n 's/^iteration *//p')" = "$(sed -n 's/^iteration *//p' table)" ]
    grep -q '"traceEvents"' trace.json
    run "$TASUKI" simulate plan.json --cost cost.json --cluster "$flat" --format json
    [[ "$output" == *'"schema": "tasuki-simulation"'* ]]
    "$TASUKI" simulate plan.json --cost cost.json --format svg -o plan.svg
    grep -q '^<svg' plan.svg
    "$TASUKI" simulate plan.json --cost cost.json --format chrome-trace -o t.json
    diff t.json trace.json
}

@test "a plan for this machine is simulated without saying on which" {
    "$TASUKI" plan --cost cost.json --global-batch 8 -o here.json >table
    "$TASUKI" simulate here.json --cost cost.json >simulated
    [ "$(awk '$1 == "iteration" { print $2 }' simulated)" = \
      "$(awk '$1 == "iteration" { print $2 }' table)" ]
}

@test "simulate refuses a plan of another network by block" {
    plan -o plan.json >/dev/null
    sed -i 's/"name": "c"/"name": "z"/; s/"to": "c"/"to": "z"/' cost.json
    run "$TASUKI" simulate plan.json --cost cost.json
    [ "$status" -eq 1 ]
    [[ "$output" == *'block "c" is not in the cost file'* ]]
}

@test "a truncated plan is one clear error" {
    plan -o plan.json >/dev/null
    head -c 300 plan.json >cut.json
    run "$TASUKI" simulate cut.json --cost cost.json
    [ "$status" -eq 1 ]
    [[ "$output" == *"cut.json"* ]]
    [ "$(echo "$output" | wc -l)" -eq 1 ]
}

@test "names in a file cannot write to the terminal" {
    plan -o plan.json >table
    sed 's/"zero"/"\\u001b[31m\\nred"/' plan.json >bad.json
    run "$TASUKI" simulate bad.json --cost cost.json
    echo "$output"
    [ "$status" -eq 1 ]
    [ "${#lines[@]}" -eq 1 ]
    [[ "$output" == *'unknown key "?[31m?red"'* ]]
    # Nor names of blocks, of devices and of the cluster.
    sed -i 's/"a"/"a\\u001b[31m\\nred"/' cost.json
    cat >topo.json <<<'{ "schema": "tasuki-topo", "version": 1, "name": "c\u001b\nc", "root": {
        "children": [ { "kind": "device", "id": "d\u001b\nd", "bandwidth": 1e9 } ] } }'
    flat=topo.json
    plan -o plan.json >table
    "$TASUKI" simulate plan.json --cluster topo.json --cost cost.json >timeline
    plan --gpus 1..1 >sizes
    cat table timeline sizes
    grep -q 'd??d  *a?\[31m?red ... c' table
    grep -q '^d??d ' timeline
    ! grep -q $'\e' table timeline sizes || false
}

@test "--quiet prints warnings and errors only" {
    plan -q -o plan.json >output 2>&1
    grep -q tasuki-plan plan.json
    plan -q --gpus 1..2 >>output 2>&1
    [ ! -s output ]
    [ "$(plan -q --format json | head -c 1)" = "{" ]
}

@test "the options of a model are checked without one, too" {
    for wrong in "precision half" "threads 0" "device gpu" "backend none" "sequence-length 0" \
                 "image-size x"; do
        refused 2 "--${wrong% *}: expected " --${wrong}
    done
    refused 2 "leave one of them out" --device cuda --backend cpu
}

@test "what costs nothing is planned without dividing by it" {
    sed -i -E 's/("forward"|"dgrad"|"wgrad"): [0-9]/\1: 0/g' cost.json
    plan >table
    cat table
    grep -q 'more\|longer' table
    ! grep -q 'inf\|nan' table || false
}

# value FILE EXPRESSION of what that JSON file has: $value.
value() {
    value=$(python3 -c 'import json, sys; it = json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$@")
}

@test "in 16 bits, and on GPUs, a model is planned for a described machine that is elsewhere, with no GPU" {
    local flops memory precision words machine
    local -A seconds peak used
    unset TASUKI_NVML
    words=("$srcdir/etc/demo/digits.onnx" --data "$srcdir/etc/demo/digits-train.safetensors"
        --global-batch 32)
    # As fast as its products are, and nothing else: half the time at twice the speed.
    machine=flat:2,bandwidth=1e15,flops=1e9,flops-tf32=2e9,flops-bf16=4e9,flops-fp16=4e9
    for precision in float32 tf32 bf16 fp16; do
        "$TASUKI" plan "${words[@]}" --cluster $machine --device cuda --precision $precision \
            --stages 2 --replicas 1,1 --micro-batches 1 -o plan.json >table
        grep -q "MFU .* TFLOP/s" table
        value plan.json 'it["iteration_seconds"]'; seconds[$precision]=$value
        value plan.json 'it["peak_flops"]'; peak[$precision]=$value
        value plan.json 'it["stages"][0]["memory"]'; used[$precision]=$value
        grep -q "\"precision\": \"$precision\"" plan.json
        # Forecast as it is planned, by itself.
        "$TASUKI" simulate plan.json --data "$srcdir/etc/demo/digits-train.safetensors" \
            --cluster $machine --format json >simulated
        value simulated 'it["iteration_seconds"]'
        awk -v a="$value" -v b="${seconds[$precision]}" 'BEGIN { exit !(a > 0.999 * b && a < 1.001 * b) }'
    done
    awk -v a="${peak[float32]}" -v b="${peak[tf32]}" -v c="${peak[bf16]}" 'BEGIN { exit !(b == 2 * a && c == 4 * a) }'
    awk -v a="${seconds[float32]}" -v b="${seconds[tf32]}" -v c="${seconds[bf16]}" -v d="${seconds[fp16]}" \
        'BEGIN { print a, b, c, d; exit !(b < 0.55 * a && c < 0.3 * a && c == d) }'
    [ "${used[tf32]}" = "${used[float32]}" ]
    awk -v a="${used[float32]}" -v b="${used[bf16]}" 'BEGIN { print a, b; exit !(b < a) }'
    # Nobody says how fast: one error, with the figure; costs that are given do without.
    run "$TASUKI" plan "${words[@]}" --cluster flat:2,bandwidth=1e9,flops=1e9 --precision bf16
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"nothing says how fast its devices are in bf16"*flops_bf16*flops-bf16*"--cost FILE"* ]]
    "$TASUKI" profile "${words[@]:0:3}" --roofline --cluster $machine --precision bf16 \
        --batch-size 8,16 -o cost.json
    "$TASUKI" plan "${words[@]}" --cluster flat:2,bandwidth=1e9 --precision bf16 --cost cost.json \
        --device cuda -o plan.json
    grep -q '"precision": "bf16"' plan.json
    run "$TASUKI" profile "${words[@]:0:3}" --efficiency --cluster $machine --precision bf16
    [ "$status" -ne 0 ]
    # What a GPU before Ampere has.
    run "$TASUKI" plan "${words[@]}" --cluster flat:2,bandwidth=1e9,flops-fp16=1e9 --precision bf16
    [ "$status" -eq 0 ]
    [[ "$output" == *'flops-fp16=1e9 has no "flops_bf16", and has '* ]]
    run "$TASUKI" plan "${words[@]}" --cluster rannc-v100:1 --precision bf16 -o plan.json
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *'V100-SXM2-32GB has no "flops_bf16", and has "flops_fp16": computed is in float16'* ]]
    grep -q '"precision": "fp16"' plan.json
}

@test "a model is planned for a described machine, with its memory exact" {
    demo=$srcdir/etc/demo
    machine=$flat,flops=1e12,memory-bandwidth=1e11
    run "$TASUKI" plan "$demo/digits.onnx" --data "$demo/digits-train.safetensors" \
        --cluster "$machine" --global-batch 32 --stages 2 --backend reference -o plan.json
    [ "$status" -eq 0 ]
    [[ "$output" == "2 stages on "* ]]
    grep -q '"xxh3"' plan.json
    grep -q '"first"' plan.json
    # 2 devices of 1e12, and the operations that inspect counts in forward and backward.
    flops=$("$TASUKI" inspect "$demo/digits.onnx" --data "$demo/digits-train.safetensors" \
        --batch-size 16 --format json | awk -F'[:,]' '/_flops/ { n += $2 } END { print 2 * n }')
    awk -v flops="$flops" -F'[:,]' '/"flops"/ { d = $2 / flops } /"peak_flops"/ { peak = $2 }
        END { exit !(d > 0.999 && d < 1.001 && peak == 2e12) }' plan.json
    [[ "$output" == *"MFU          "*" of 2 TFLOP/s"* ]]
    # That is float32.
    run "$TASUKI" plan "$demo/digits.onnx" --data "$demo/digits-train.safetensors" \
        --cluster "$machine" --global-batch 32 --backend reference --precision float64 -o plan.json
    [[ "$output" == *"MFU          not known: nothing says how fast its devices are in float64"* ]]
    grep -q '"peak_flops": 0.0,' plan.json
    run "$TASUKI" plan "$demo/digits.onnx" --data "$demo/digits-train.safetensors" \
        --cluster "$machine" --global-batch 32 --backend reference --memory 64K
    [ "$status" -eq 1 ]
    [[ "$output" == *'block "'*'does not fit'*' bytes'* ]]
}

@test "without a cost file simulate takes the plan's model" {
    cp "$srcdir/etc/demo/digits.onnx" .
    data=$srcdir/etc/demo/digits-train.safetensors
    machine=$flat,flops=1e12,memory-bandwidth=1e11
    "$TASUKI" plan digits.onnx --data "$data" --cluster "$machine" --global-batch 32 --stages 2 \
        --backend reference -o plan.json >table
    run "$TASUKI" simulate plan.json --data "$data" --backend reference --threads 1 --fuse --no-cache
    [ "$status" -eq 0 ]
    [ "$(echo "$output" | sed -n 's/^iteration *//p')" = "$(sed -n 's/^iteration *//p' table)" ]
    rm digits.onnx
    run "$TASUKI" simulate plan.json --data "$data"
    [ "$status" -eq 1 ]
    [[ "$output" == *"plan.json: without --cost FILE its model is needed: digits.onnx"* ]]
    sed -i '/"model"/,/}/d; /"xxh3"/d' plan.json
    plan -o plan.json >table
    run "$TASUKI" simulate plan.json
    [ "$status" -eq 2 ]
    [[ "$output" == *"plan.json: made from a cost file alone: give it by --cost FILE"* ]]
}

@test "simulate refuses a model that has changed, and asks for a cluster that is not known" {
    data=$srcdir/etc/demo/digits-train.safetensors
    "$TASUKI" plan "$srcdir/etc/demo/digits.onnx" --data "$data" --global-batch 32 -o plan.json \
        --cluster "$flat,flops=1e12,memory-bandwidth=1e11" --backend reference -q >table
    sed 's/"xxh3": "../"xxh3": "zz/' plan.json >other.json
    run "$TASUKI" simulate other.json --data "$data" --loss cross-entropy:logits,label
    [ "$status" -eq 1 ]
    [[ "$output" == *"digits.onnx has changed since other.json was made"* ]]
    sed 's/"cluster": "[^"]*"/"cluster": "job 7"/' plan.json >here.json
    run "$TASUKI" simulate here.json --cost cost.json
    [ "$status" -eq 1 ]
    [[ "$output" == *'names its cluster "job 7": give another by --cluster SPEC'* ]]
}

@test "simulate finds a model beside its plan, whose hash may be unknown, and freezes what it froze" {
    mkdir job
    cp "$srcdir/etc/demo/digits.onnx" job
    data=$srcdir/etc/demo/digits-train.safetensors
    (cd job && "$TASUKI" plan digits.onnx --data "$data" --global-batch 32 --freeze '*weight' \
        --cluster "$flat,flops=1e12,memory-bandwidth=1e11" --backend reference -o plan.json >table)
    sed -i 's/"xxh3": ".*"/"xxh3": ""/' job/plan.json
    run "$TASUKI" simulate job/plan.json --data "$data" --backend reference
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(echo "$output" | sed -n 's/^iteration *//p')" = "$(sed -n 's/^iteration *//p' job/table)" ]
}

@test "train and simulate take the cost file of their kind of device, too" {
    demo=$srcdir/etc/demo
    options="$demo/digits.onnx --data $demo/digits-train.safetensors --backend reference"
    "$TASUKI" profile $options --batch-size 8 --no-cache -o slow.json -q
    sed 's/"device": "[^"]*"/"device": "V100"/' slow.json >v100.json
    sed -E '/"forward": \[/{n;s/[0-9.e+-]+/1.0/}; s/"device": "[^"]*"/"device": "cpu"/' \
        slow.json >cpu.json
    train="$TASUKI train $options --global-batch 8 --epochs 1 --dry-run --no-cache"
    run $train --cost v100.json --cost cpu.json
    [ "$status" -eq 0 ]
    predicted=$(echo "$output" | sed -nE 's/.*predicted ([0-9]+)\..*/\1/p')
    [ "$predicted" -gt 1000 ]
    run $train --cost v100.json
    [ "$status" -eq 0 ]
    predicted=$(echo "$output" | sed -nE 's/.*predicted ([0-9]+)\..*/\1/p')
    [ "$predicted" -lt 1000 ]
    sed 's/"version": 1,/"version": 1, "device": "other",/; s/"forward": 2/"forward": 9/' \
        cost.json >other.json
    plan --stages 1 --replicas 1 -o plan.json >table
    run "$TASUKI" simulate plan.json --cost cost.json --cost other.json
    [[ "$output" == *"iteration 96000 ms"* ]]
}

@test "a schedule that is not flushed is planned where it is asked for, and says what it is" {
    stale="asynchronous: each update is computed from gradients of weights one update old"
    plan --stages 2 --micro-batches 8 >table
    ! grep -q asynchronous table || false
    plan --stages 2 --micro-batches 8 --schedule 2bw -o late.json >table
    grep -qx "$stale" table
    # Two stages of 6 seconds for each of 8 micro-batches.
    [ "$(sed -n 's/^iteration *//p' table)" = "48000 ms, 0.166667 samples/s" ]
    run "$TASUKI" simulate --cost cost.json late.json
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"$stale"*"iteration 48000 ms"* ]]
    # Its instructions do, too, and are told from those of others by their versions.
    "$TASUKI" simulate --cost cost.json late.json --format schedule -o list
    grep -qx 'schedule 2bw stages 2 micro-batches 8 versions 2' list
    grep -qx 'F 8 0' list
    plan --schedule list >again
    diff <(grep -E '^(iteration|lower|asyn| +[01] )' table) <(grep -E '^(iteration|lower|asyn| +[01] )' again)
    sed 's/ versions 2//' list >wrong
    run plan --schedule wrong
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" == *'"8": expected an integer from 0 to 7'* ]]
}

@test "instructions are printed, read back, planned for and forecast alike" {
    simulate() { "$TASUKI" simulate --cost cost.json "$@"; }
    plan --stages 2 --micro-batches 4 --schedule zb -o zb.json >table
    simulate zb.json --format schedule -o list
    plan --schedule list -o list.json >same
    diff <(grep -E '^(iteration|lower| +[01] )' table) <(grep -E '^(iteration|lower| +[01] )' same)
    grep -q '"schedule zb stages 2 micro-batches 4"' list.json
    simulate list.json --format schedule | diff - list
    # Another plan under these lists, and these lists under another schedule.
    plan --stages 2 --micro-batches 4 --schedule gpipe -o gpipe.json >other
    iteration() { sed -n 's/^iteration *//p'; }
    [ "$(iteration <other)" != "$(iteration <table)" ]
    [ "$(simulate gpipe.json --schedule list | iteration)" = "$(iteration <table)" ]
    [ "$(simulate list.json --schedule gpipe | iteration)" = "$(iteration <other)" ]
    plan --stages 2 --micro-batches 4 --schedule zb-h1 -o zb-h1.json >table
    simulate zb-h1.json --format schedule -o zb-h1.list
    # Memory follows the slots.
    sed 's/slots [0-9]*/slots 4/' list >wide
    plan --schedule wide --format json >wide.json
    memory() { sed -n 's/.*"memory": \([1-9][0-9.]*\).*/\1/p' "$1" | head -n 1; }
    [ "$(memory wide.json)" != "$(memory list.json)" ]
    # What is put off needs what a forward that is run again would free.
    held() {
        plan --micro-batches 4 --recompute full --format json "$@" >held.json
        grep '"memory": [1-9]' held.json | tail -n 1
    }
    [ "$(held --stages 2 --schedule zb-h1)" = "$(held --schedule zb-h1.list)" ]
}

@test "what each schedule makes is planned for, drawn and forecast as its name is" {
    chain_of_eight >cost.json
    simulate() { "$TASUKI" simulate --cost cost.json "$@"; }
    for schedule in gpipe 1f1b zb-h1 "zb --schedule-memory 1.5" 2bw zb-v "interleaved --chunks 4"; do
        [[ "$schedule" == zb-v || "$schedule" == inter* ]] && stages=8 || stages=4
        plan --schedule $schedule --stages $stages --micro-batches 8 -o named.json >named
        simulate named.json --format schedule -o list
        plan --schedule list -o listed.json >listed
        diff named listed
        diff <(simulate named.json --format json) <(simulate listed.json --format json)
        simulate listed.json --format schedule | diff - list
    done
    # Whatever it is called.
    sed "1s/schedule interleaved/schedule mine/" list >mine
    plan --schedule mine | sed "s/, mine,/, interleaved,/" | diff named -
    diff <(simulate named.json --format svg) <(simulate named.json --schedule mine --format svg)
}

# own_list "STAGE STAGE ..." "F0 B0 ..."...: of each device its stages, as a chain, and in which order it
# takes two micro-batches through all of these, or back.
own_list() {
    local words=("$@") all=(${*//[FB][0-9]/}) chunks pass c m s

    echo "schedule own stages ${#all[@]} micro-batches 2"
    for ((i = 0; i < ${#words[@]}; i += 2)); do
        chunks=(${words[i]})
        printf 'stage %d slots 2\n' "${chunks[@]}"
        for pass in ${words[i + 1]}; do
            m=${pass:1}
            for ((k = 0; k < ${#chunks[@]}; k++)); do
                [ "${pass:0:1}" = F ] && c=$k || c=$((${#chunks[@]} - 1 - k))
                s=${chunks[c]}
                if [ "${pass:0:1}" = F ]; then
                    [ $s -eq 0 ] || echo "RECV $m $c <- $((s - 1))"
                    echo "F $m $c"
                    [ $s -eq $((${#all[@]} - 1)) ] || echo "SEND $m $c -> $((s + 1))"
                    continue
                fi
                [ $s -eq $((${#all[@]} - 1)) ] || echo "RECV $m $c <- $((s + 1)) gradient"
                [ $s -gt 0 ] || echo "BW $m $c"
                [ $s -eq 0 ] ||
                    printf '%s\n' "B $m $c" "SEND $m $c -> $((s - 1)) gradient" "W $m $c"
            done
        done
        printf 'REDUCE\nSTEP\n'
    done
}

# Each device has two stages, one behind the other, which no schedule has.
contiguous_list() {
    own_list "0 1" "F0 F1 B0 B1" "2 3" "F0 F1 B0 B1"
}

@test "a list of several stages that is a user's own is planned for, with the stages where it has them" {
    chain_of_eight >cost.json
    contiguous_list >list
    plan --schedule list -o plan.json >table
    cat table
    [[ "$(<table)" == "4 stages on 4 of 4 devices of flat:"*", own, 2 micro-batches of 4"* ]]
    python3 -c 'import json
stages = json.load(open("plan.json"))["stages"]
assert [s["devices"] for s in stages] == 2 * [[["0", "1"]]] + 2 * [[["2", "3"]]], stages
assert [len(s["blocks"]) for s in stages] == 4 * [2], stages'
    # F, B and W of two samples and four blocks take 8 s each. The second device starts 8 s late, gives
    # its last gradient back 44 s later, and the first one runs 16 s more, and sums for 1 ms.
    grep -q "^iteration *68001 ms" table
    "$TASUKI" simulate plan.json --cost cost.json --format schedule | diff - list
    "$TASUKI" simulate plan.json --cost cost.json | grep -q "^iteration 68001 ms"
    flat=flat:2,bandwidth=1e9,latency=0
    plan --schedule list --pin a=0 --pin d=0 -o plan.json >table
    python3 -c 'import json
stages = json.load(open("plan.json"))["stages"]
assert [s["devices"] for s in stages] == 2 * [[["0"]]] + 2 * [[["1"]]], stages
assert len(stages[0]["blocks"]) >= 4, stages'
}

@test "lists of several stages that do not suit are refused by file, and stage or pin" {
    chain_of_eight >cost.json
    plan --schedule zb-v --stages 8 --micro-batches 8 -o plan.json >table
    "$TASUKI" simulate plan.json --cost cost.json --format schedule -o list
    contiguous_list >own
    # refused STATUS FILE MESSAGE OPTION...
    refused() {
        run plan --schedule "$2" "${@:4}"
        echo "$output"
        [ "$status" -eq "$1" ] && [ "${#lines[@]}" -eq 1 ]
        [[ "$output" == *"error: $2: $3"* ]]
    }
    pins=(--stages 4 --micro-batches 4 --schedule-memory 1.5 --replicas 2,1,1,1,1,1,1,1
        --replicas 2,2,2,2,2,2,2,2 --pipelines 2 --policy equal --micro-batch-size 2)
    for ((i = 0; i < ${#pins[@]}; i += 2)); do
        refused 2 list "" "${pins[@]:i:2}"
    done
    plan --schedule list --chunks 2 --stages 8 --micro-batches 8 | diff table -
    refused 2 list "lists of 2 stages, --chunks says 3" --chunks 3
    refused 2 list "lists for 8 stages, --replicas names 2" --replicas 1,1
    refused 2 list "lists for 8 micro-batches, which do not divide the global batch of 12" \
        --global-batch 12
    refused 2 own "no replicas of 2 devices suit" --memory 100
    refused 2 own "--schedule own and --exhaustive" --exhaustive
    refused 2 list "no replicas of 4 devices suit" --memory 3M
    flat=flat:3,bandwidth=1e9,latency=0 refused 2 list "lists for 4 devices, "
    sed '0,/^W 0 1/{/^W 0 1/d}' list >short
    refused 1 short "stage 7: micro-batch 0 is not complete"
    sed '/^RECV 0 1 <- 2 gradient/d' own >lost
    refused 1 lost "micro-batch 0's gradient between stages 1 and 2 is missing"
    own_list "0 1" "F0 B0 F1 B1" "2 3" "F0 F1 B0 B1" >late
    refused 1 late "stage 1: B 0 1: waits for ever"
    own_list "0 1" "F0 F1 B0 B1" "2" "F0 F1 B0 B1" >uneven
    refused 1 uneven "stages in the list of stage 2: 1, in that of stage 0: 2; all devices"
    # Their stages would send each other nothing.
    eight_blocks >cost.json
    refused 1 own "stage 0: SEND 0 0 -> 1: no such edge"
}

@test "instructions that do not suit are refused by file, line or stage, and instruction" {
    plan --stages 2 --micro-batches 4 --schedule 1f1b -o plan.json >table
    "$TASUKI" simulate plan.json --cost cost.json --format schedule -o list
    refused() {
        run plan --schedule "$1" "${@:3}"
        echo "$output"
        [ "$status" -ne 0 ] && [ "${#lines[@]}" -eq 1 ] && [[ "$output" == *"$2"* ]]
    }
    sed 's/^BW 0 0/BW 1 0/' list >twice
    refused twice 'twice: stage 0: BW 1 0: before its F, or twice'
    sed 's/^F 1 0/F 1/' list >short
    refused short 'short: line 6: too few or too many words'
    sed $'1s/1f1b/\\xff/' list >binary
    refused binary 'binary: line 1: the name is not UTF-8'
    sed '2s/$/\x00 B 9 9/' list >zero
    refused zero 'zero: line 2: holds a zero byte'
    refused list 'list: lists for 2 stages and 4 micro-batches, asked for 3 and 4' --stages 3
    refused nothing ' or a file, got "nothing": '
    plan --schedule list -o list.json >table
    sed 's/"BW 0 0"/"BW 9 0"/' list.json >wrong.json
    run "$TASUKI" simulate wrong.json --cost cost.json
    [[ "$status" -eq 1 && "$output" == *'wrong.json: instructions: line '*'"9"'* ]]
}

@test "a plan by the rules of others is an ordinary plan, and no faster" {
    plan -o search.json >/dev/null
    best=$(sed -n 's/.*"iteration_seconds": \([0-9.e-]*\).*/\1/p' search.json)
    for policy in rannc gpipe equal; do
        run plan --policy $policy -o $policy.json
        echo "$output"
        [ "$status" -eq 0 ]
        [[ "$output" == *"The plan follows --policy $policy, not the search."* ]]
        "$TASUKI" simulate $policy.json --cost cost.json --cluster "$flat"
        seconds=$(sed -n 's/.*"iteration_seconds": \([0-9.e-]*\).*/\1/p' $policy.json)
        awk -v a="$best" -v b="$seconds" 'BEGIN { exit !(a <= b * 1.000001) }'
    done
    [[ "$(plan --policy gpipe)" == "3 stages on 3 of 4 devices of "*", gpipe, "* ]]
}

@test "a rule of others that does not fit may do with the optimizer's state in shards" {
    # Parameters, gradients and state are 3000, 3000 and 6000 bytes, of which a quarter is 1500.
    run plan --policy equal --stages 1 --memory 9000 --optimizer adam
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"no plan of its kind fits into the memory of 4 devices; --zero would do" ]]
    run plan --policy equal --stages 1 --memory 9000 --optimizer adam --zero
    [[ "$status" -eq 0 && "$output" == *", ZeRO-1, "* ]]
    run plan --policy equal --memory 100 --optimizer adam
    [[ "$output" == *" of 4 devices; more of them may do, or leave out --policy" ]]
    run plan --policy rannc --replicas 1,1,1
    [[ "$status" -eq 2 && "$output" == *"no plan of its kind; without --replicas there is a plan" ]]
}

@test "where pins leave no plan that fits, the one without which there is one is named" {
    run plan --stages 1 --memory 9000 --optimizer adam --no-zero
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *" does not fit on 4 devices of 9000 bytes; one stage with all of it lacks "*" bytes; without --stages there is a plan; --memory "*" would do" ]]
    # Of two pins the other one stays: two stages of three blocks do not fit, whichever is where.
    cat >three.json <<'EOF'
{ "schema": "tasuki-cost", "version": 1, "micro_batch": [1], "blocks": [
  { "name": "a", "forward": 1, "dgrad": 1, "wgrad": 1, "parameters": 100, "activations": 10 },
  { "name": "b", "forward": 1, "dgrad": 1, "wgrad": 1, "parameters": 100, "activations": 10 },
  { "name": "c", "forward": 1, "dgrad": 1, "wgrad": 1, "parameters": 100, "activations": 10 } ],
  "edges": [ { "from": "a", "to": "b", "bytes": 1 }, { "from": "b", "to": "c", "bytes": 1 } ] }
EOF
    three="--cost three.json --cluster flat:3,bandwidth=1e9 --global-batch 6 --micro-batch-size 1"
    three="$three --no-zero --recompute none --memory 300"
    run "$TASUKI" plan $three --pin b=0 --stages 2
    echo "$output"
    [[ "$status" -eq 1 && "$output" != *"there is a plan"* ]]
    run "$TASUKI" plan $three --stages 2 --replicas 1,1
    echo "$output"
    [[ "$status" -eq 1 && "$output" != *"there is a plan"* ]]
    run "$TASUKI" plan $three --pin a=0 --pin b=1 --stages 2
    echo "$output"
    [[ "$status" -eq 1 && "$output" == *"; without --stages there is a plan;"* ]]
    "$TASUKI" plan $three --pin a=0 --pin b=1
    run "$TASUKI" plan $three --pin b=0
    [[ "$status" -eq 1 && "$output" == *"; without --pin there is a plan;"* ]]
}

@test "a policy that does not suit the pins or the network is refused" {
    run plan --policy gpipe --schedule zb
    [[ "$status" -eq 2 && "$output" == *"--policy gpipe runs under --schedule gpipe, not zb"* ]]
    run plan --policy gpipe --replicas 2,1
    [[ "$status" -eq 2 && "$output" == *"leave out --replicas"* ]]
    run plan --policy rannc --replicas 3
    [[ "$status" -eq 2 && "$output" == *"only powers of two"* ]]
    run plan --policy best
    [[ "$status" -eq 2 && "$output" == *"--policy"*"rannc"* ]]
    # What it lacks is named, of the costs and of the model.
    sed -i '/"a"/s/1000/700/; /"b"/s/1000/500/' cost.json
    run plan --policy megatron
    [[ "$status" -eq 2 && "$output" == *"no layer of it is repeated"* ]]
    run "$TASUKI" plan "$srcdir/etc/demo/digits.onnx" --global-batch 8 --policy megatron
    [[ "$status" -eq 2 && "$output" == *"it has no attention"* ]]
}

# refused CODE TEXT ARGUMENTS...: one line of error, which has a suggestion behind its ";" or ":".
refused() {
    local code=$1 text=$2
    shift 2
    run plan "$@"
    echo "$output"
    [ "$status" -eq "$code" ] && [ "${#lines[@]}" -eq 1 ] && [[ "$output" == *"$text"* ]]
}

@test "a cycle of blocks is refused by its blocks" {
    sed -i 's/{ "from": "b", "to": "c"/{ "from": "c", "to": "a", "bytes": 1 }, &/' cost.json
    refused 1 'cost.json: edges: a cycle: "a" reads "c" reads "b" reads "a"; leave one of these'
}

@test "an edge from a block to itself is refused" {
    sed -i 's/{ "from": "b", "to": "c"/{ "from": "b", "to": "b", "bytes": 1 }, &/' cost.json
    refused 1 'edges[1].to: an edge from "b" to itself; leave it out: what stays in a block is no edge'
}

@test "negative and infinite costs are refused by block and key" {
    cp cost.json good.json
    hint='tasuki profile measures costs, 0 is for what costs nothing'
    sed '0,/"dgrad": 1/s//"dgrad": -1/' good.json >cost.json
    refused 1 "blocks[0].dgrad: expected a number from 0 to 1e+18; $hint"
    sed '0,/"bytes": 10/s//"bytes": [-1]/' good.json >cost.json
    refused 1 "edges[0].bytes: expected numbers from 0 to 1e+18; $hint"
    sed '0,/"parameters": 100/s//"parameters": -1/' good.json >cost.json
    refused 1 "blocks[0].parameters: expected a number from 0 to 1e+18; $hint"
    for value in 1e999 Infinity; do
        sed "0,/\"forward\": 1/s//\"forward\": $value/" good.json >cost.json
        refused 1 'JSON has finite numbers alone: leave out what is not known'
    done
}

@test "a cluster without devices is refused with what would do" {
    for flat in flat:0,bandwidth=1e9 flat:-1,bandwidth=1e9 flat:1048577,bandwidth=1e9; do
        refused 2 'expected a number of devices from 1 to 1048576, got "'
    done
    for flat in tree:0x4,inside=1e9,across=1e9 tree:4x0,inside=1e9,across=1e9 \
                tree:1025x1024,inside=1e9,across=1e9; do
        refused 2 'expected NODESxDEVICES, from 1x1 to 1048576 devices in all, got "'
    done
    flat=dgx-h100:0
    refused 2 'expected a number of nodes after the colon, from 1 to '
}

@test "no memory at all is refused, and not taken for no limit" {
    for none in 0 0K 0.5; do
        refused 2 "--memory: expected a size of at least 1, such as 512M or 16GB, got \"$none\"" \
            --memory $none
    done
}

@test "memory that cannot do is refused with what would" {
    # What is suggested does, and much less does not.
    suffices() {
        local least
        least=$(sed -nE 's/.*; --memory ([0-9]+) would do$/\1/p' <<<"$output")
        plan "$@" --memory "$least" >table
        run plan "$@" --memory $((least * 97 / 100))
        [ "$status" -eq 1 ]
    }
    refused 1 'does not fit on one device, by 2420 bytes; --memory ' --memory 100
    suffices
    refused 1 '; --memory 75' --memory 3000 --stages 1
    suffices --stages 1
    refused 1 '; --memory ' --memory 3000 --optimizer adam --no-zero
    suffices --optimizer adam --no-zero
    # More than the devices have must be theirs.
    flat=flat:4,bandwidth=1e9,latency=0,memory=3000
    refused 1 '; devices of 75' --stages 1
    refused 1 ' on devices of as much would do' --stages 1 --memory 2000
    # Of compiled stages, too.
    plan() { "$TASUKI" plan "$srcdir/etc/demo/digits.onnx" --global-batch 32 --cluster \
        flat:4,bandwidth=1e9,flops=1e12 --data "$srcdir/etc/demo/digits-train.safetensors" \
        --batchnorm-samples 16 "$@"; }
    run plan --memory 600K
    output=${output%%; each share*}
    suffices
}

@test "a batch that does not divide is refused with what would" {
    refused 2 '--micro-batches 3: does not divide the global batch of 8; 2 would do' \
        --micro-batches 3
    refused 2 '--micro-batch-size 5: does not divide the global batch of 8; 4 would do' \
        --micro-batch-size 5
    refused 2 '--micro-batches 4: does not divide the global batch of 6 over --pipelines; 3 ' \
        --pipelines 2 --micro-batches 4 --global-batch 6
    refused 2 '1000000 micro-batches in a pipeline: at most 65536 are planned for; --micro-batch-size '\
'16 would do' --micro-batch-size 1 --global-batch 1000000
    refused 2 '131072 micro-batches in a pipeline: at most 65536 are planned for; --micro-batch-size '\
'2 would do' --micro-batches 131072 --global-batch 131072
    refused 2 'no sample: no micro-batch that is allowed has as many samples as a stage has' \
        --replicas 3 --micro-batch-size 2
}

@test "a pinned zb-v is searched as where the schedule is left open" {
    cat >cost.json <<'COST'
{"schema": "tasuki-cost", "version": 1, "micro_batch": [1], "blocks": [
 {"name": "a", "forward": [0.00186], "dgrad": [0.0035], "parameters": 0, "activations": [593000]},
 {"name": "b", "forward": [0.00256], "dgrad": [0.00372], "parameters": 0, "activations": [545000],
  "step": 0.000784},
 {"name": "c", "forward": [0.0022], "dgrad": [0.00188], "parameters": 11900000,
  "activations": [1890000]},
 {"name": "d", "forward": [0.00357], "dgrad": [0.00191], "parameters": 0,
  "activations": [2000000], "wgrad": [0.0018]},
 {"name": "e", "forward": [0.00392], "dgrad": [0.00138], "parameters": 0,
  "activations": [698000], "step": 5.59e-06}],
 "edges": [{"from": "a", "to": "b", "value": "a", "bytes": [797000]},
           {"from": "b", "to": "c", "value": "b", "bytes": [735000]},
           {"from": "a", "to": "d", "value": "a", "bytes": [797000]},
           {"from": "d", "to": "e", "value": "d", "bytes": [468000]}]}
COST
    for pins in "" "--schedule zb-v" "--schedule zb-v --stages 4 --micro-batches 1"; do
        "$TASUKI" plan -q --cost cost.json --cluster flat:4,bandwidth=1e9,latency=1e-5 \
            --global-batch 1 $pins -o plan.json
        grep -o '"iteration_seconds": *[0-9.e-]*' plan.json | head -n 1
        grep -q '"schedule": *"zb-v"' plan.json
    done >seconds
    cat seconds
    [ "$(sort -u seconds | wc -l)" -eq 1 ]
}

@test "sizes of a network that takes no time are not compared" {
    cat >cost.json <<'COST'
{"schema": "tasuki-cost", "version": 1, "micro_batch": [1], "blocks": [
 {"name": "a", "forward": [0], "dgrad": [0], "parameters": 0, "activations": [1000]}],
 "edges": []}
COST
    run "$TASUKI" plan --cost cost.json --cluster flat:2,bandwidth=1e9 --global-batch 2 --gpus 1..2
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"no size has a plan; 1: by its costs the network takes no time" ]]
}

# Estimates are less than what is compiled: the fastest plans by these do not fit.
@test "where little memory is a plan is no slower than with its number of stages pinned" {
    local memory free n
    seconds() { sed -n 's/^ *"iteration_seconds": *\([0-9.e-]*\).*/\1/p' plan.json | head -n 1; }
    for memory in 1215488 911616; do
        go="plan -q $srcdir/etc/demo/digits.onnx --global-batch 64 --optimizer adam --cluster
            tree:2x4,flops=1e12,memory-bandwidth=1e11,inside=1e10,across=1e9,latency=1e-6,memory=$memory"
        "$TASUKI" $go -o plan.json
        free=$(seconds)
        for n in 2 3 4; do
            "$TASUKI" $go --stages $n -o plan.json 2>/dev/null || continue
            echo "$memory, $n stages: $(seconds), free $free"
            awk -v a="$free" -v b="$(seconds)" 'BEGIN { exit !(a <= b * (1 + 1e-6)) }'
        done
    done
}

# equal_chain BLOCKS SECONDS STEP BYTES: each of forward, dgrad and wgrad of a sample.
equal_chain() {
    python3 - "$@" >cost.json <<'PYTHON'
import json, sys
n, seconds, step, kept = int(sys.argv[1]), *map(float, sys.argv[2:])
each = [seconds, 2 * seconds]
print(json.dumps({
    "schema": "tasuki-cost", "version": 1, "micro_batch": [1, 2],
    "optimizer_bytes_per_parameter": 8,
    "blocks": [{"name": f"b{i}", "forward": each, "dgrad": each, "wgrad": each, "step": step,
                "parameters": 1000, "activations": [kept, 2 * kept]} for i in range(n)],
    "edges": [{"from": f"b{i}", "to": f"b{i + 1}", "value": f"v{i}", "bytes": [100, 200]}
              for i in range(n - 1)]}))
PYTHON
}

iteration_of() {
    "$TASUKI" plan -q --cost cost.json -o plan.json "$@"
    sed -n 's/^ *"iteration_seconds": *\([0-9.e-]*\).*/\1/p' plan.json | head -n 1
}

is_no_slower() {
    echo "$1 s, $2 s"
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b * (1 + 1e-6)) }'
}

# By a closed form they promise nothing: all stages would have to run again; replicas of one share.
@test "several stages of a device are not missed where few have room, or steps are shared out" {
    local flat=bandwidth=1e10,latency=1e-7 memory
    equal_chain 6 1e-3 0 1e6
    for memory in 3400000 5700000; do
        set -- --cluster "flat:2,$flat,memory=$memory" --global-batch 8
        is_no_slower "$(iteration_of "$@")" "$(iteration_of "$@" --exhaustive)"
        grep -q '"schedule": *"interleaved"' plan.json
    done
    equal_chain 4 1e-3 0.018 1000
    set -- --cluster "flat:6,$flat,memory=1e30" --global-batch 12 --micro-batches 3
    is_no_slower "$(iteration_of "$@")" "$(iteration_of "$@" --exhaustive)"
    grep -q '"zero": *true' plan.json
}

# Without shards other plans are the fastest.
@test "where the step takes long a plan is no slower than with ZeRO-1 asked for" {
    local batch
    equal_chain 6 1e-3 0.07 1000
    for batch in 24 32; do
        set -- --cluster tree:3x8,inside=4e9,across=1e9,latency=2e-5,memory=1e12 \
            --global-batch $batch
        is_no_slower "$(iteration_of "$@")" "$(iteration_of "$@" --zero)"
    done
}
