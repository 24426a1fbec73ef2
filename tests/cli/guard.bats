# SPDX-License-Identifier: MIT
# Steps whose numbers are bad: --on-nan and --loss-spike; --loss-scale; what a run cost.

load data.bash

setup() {
    ranks_setup
    cd "$DIR"
    demo=$srcdir/etc/demo
    cp "$demo/digits-train.safetensors" data
    chmod u+w data
    header=$((8 + $(od -An -tu8 -N8 data)))
}

# Of sample $1 a pixel becomes infinite, and with it all that it touches.
spoil_image() {
    printf '\0\0\200\177' |
        dd of=data bs=1 seek=$((header + $1 * 256 + 20)) conv=notrunc status=none
}

# Labels of samples $1 to $2 become $3.
spoil_labels() {
    local i
    for i in $(seq "$1" "$2"); do
        printf "\\$(printf %03o "$3")" |
            dd of=data bs=1 seek=$((header + 369152 + 8 * i)) conv=notrunc status=none
    done
}

# Samples from $1 on are put at $2, too, $3 of them.
copy_samples() {
    dd if=data of=data bs=1 skip=$((header + $1 * 256)) seek=$((header + $2 * 256)) \
        count=$(($3 * 256)) conv=notrunc status=none
    dd if=data of=data bs=1 skip=$((header + 369152 + $1 * 8)) \
        seek=$((header + 369152 + $2 * 8)) count=$(($3 * 8)) conv=notrunc status=none
}

train() {
    "$TASUKI" train "$demo/digits.onnx" --data data --precision float64 --global-batch 32 \
        --batchnorm-samples 8 --seed 5 --no-shuffle --micro-batches 2 --threads 1 "$@"
}

losses() {
    sed -n '/^{"step"/s/.*"loss":\([0-9.e+nul-]*\).*/\1/p' "$1"
}

@test "a run stops at a gradient that is not finite, and names its parameter" {
    spoil_image 40
    run train --steps 6 --log log --checkpoint saved --checkpoint-every 2
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *'error: step 2: the gradient of "head.weight" is not finite (stage 0, rank 0, '* ]]
    [ ! -e saved/latest ]
    grep -q '^{"event":"bad_step","step":2,"cause":"gradient","tensor":"head.weight","stage":0,"rank":0,"loss":null,"action":"stop","count":1}$' log
    tail -1 log | grep -q '"event":"failed","error":"step 2: the gradient'
    run train --steps 3 --on-nan ignore
    [ "$status" -eq 0 ]
}

@test "a step is skipped on all ranks alike, whatever the plan" {
    local plan n=0
    spoil_image 40
    train --steps 6 --on-nan skip --log alone
    [ "$(losses alone | sed -n 2p)" = null ]
    [ "$(losses alone | grep -c '^[0-9.]*$')" -eq 5 ]
    tail -1 alone | grep -q '"event":"end".*"bad_steps":1'
    for plan in "--stages 3 --replicas 1,2,1" "--stages 2 --replicas 2,2 --zero" \
                "--stages 4 --replicas 1,1,1,1 --clip-norm 1e9"; do
        : $((n += 1))
        run train --ranks-in-process 4 --steps 6 --on-nan skip --log $n $plan
        echo "$output"
        [ "$status" -eq 0 ]
        grep '"bad_step"' $n
        grep -q '"bad_step","step":2,"cause":"gradient","tensor":"head.weight"' $n
        paste <(losses alone | grep -v null) <(losses $n | grep -v null) | awk '
            { d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > 1e-10) bad = 1 }
            END { exit bad || NR != 5 }'
    done
    run train --ranks-in-process 2 --steps 6 --on-nan skip --log 2bw --schedule 2bw --stages 2 \
        --replicas 1,1
    [ "$status" -eq 0 ]
    [ "$(losses 2bw | grep -c '^[0-9.]*$')" -eq 5 ]
}

# The samples of the step go by; the parameters are those after step 4 again.
@test "a run goes back to the last checkpoint, and on with other samples" {
    spoil_image $((32 * 6 + 3))
    run train --steps 12 --on-nan rollback --checkpoint saved --checkpoint-every 4 --log log \
        --ranks-in-process 2 --stages 2 --replicas 1,1
    echo "$output"
    [ "$status" -eq 0 ]
    grep -q '"bad_step","step":7,.*"action":"rollback","count":1}$' log
    grep -q '^{"event":"rollback","step":8,"to":4,"path":"saved/step-00000004"}$' log
    "$TASUKI" watch log --once >view
    cat view
    grep -qx 'bad steps  1, the last 7' view
    grep -q '^step 7: a bad step: gradient of .*; rollback$' view
    grep -qx 'step 8: back to the checkpoint of step 4' view
    "$TASUKI" watch log --format json | grep -q '"last_bad_step": 7,'
    [ "$(losses log | grep -c '^[0-9.]*$')" -eq 11 ]
    [ -e saved/step-00000012 ]
    run train --steps 2 --on-nan rollback
    [ "$status" -eq 2 ]
    [[ "$output" == *"--on-nan rollback needs --checkpoint"* ]]
}

@test "a loss far beyond the usual is a bad step, too" {
    spoil_labels 480 511 1
    run train --steps 18 --on-nan skip --loss-spike 2 --lr 0.05 --log log
    echo "$output"
    cat log
    [ "$status" -eq 0 ]
    [[ "$output" == *"step 16: the loss is "*" times the usual "*": it is skipped"* ]]
    [ "$(grep -c '"bad_step"' log)" -eq 1 ]
    grep -q '"bad_step","step":16,"cause":"spike","tensor":null' log
    run train --steps 18 --loss-spike 2 --lr 0.05 --ranks-in-process 2
    [ "$status" -eq 1 ]
    run train --steps 1 --on-nan ignore --loss-spike 2
    [ "$status" -eq 2 ]
}

# Step 18 is the first with the parameters after step 12 again: so is step 13 of a run that goes on
# from there, with the same samples.
@test "a spike of the loss is gone back from, to the last checkpoint and on with other samples" {
    spoil_labels 480 511 1
    run train --steps 20 --on-nan rollback --loss-spike 2 --lr 0.05 --checkpoint saved \
        --checkpoint-every 6 --log log --ranks-in-process 2 --stages 2 --replicas 1,1
    echo "$output"
    cat log
    [ "$status" -eq 0 ]
    [[ "$output" == *"step 16: the loss is "*" times the usual "*": back to the last checkpoint"* ]]
    [ "$(grep -cE '"(bad_step|rollback)"' log)" -eq 2 ]
    grep -q '"bad_step","step":16,"cause":"spike","tensor":null.*"action":"rollback","count":1}$' log
    grep -q '^{"event":"rollback","step":17,"to":12,"path":"saved/step-00000012"}$' log
    tail -1 log | grep -q '"event":"end".*"bad_steps":1'
    [ -e saved/step-00000020 ]
    copy_samples 544 384 32
    train --steps 13 --lr 0.05 --resume-from saved/step-00000012 --log again
    paste <(losses log | sed -n 18p) <(losses again) | awk '
        { d = $1 - $2; exit NF != 2 || d > 1e-10 || d < -1e-10 }'
}

# A power of two: nothing but exponents change.
@test "a scaled loss gives the same bits, whatever the plan and optimizer" {
    local plan
    measured cost.json --optimizer adamw --precision float64
    for plan in "--optimizer momentum" "--optimizer lamb --clip-norm 1 --stages 3 --replicas 1,2,1" \
        "--optimizer lars --lr 1 --stages 2 --replicas 2,2 --zero" \
        "--optimizer adamw --ema 0.9 --schedule 2bw --stages 4 --replicas 1,1,1,1"; do
        plan="--ranks-in-process 4 --deterministic --cost cost.json $plan"
        train --steps 4 $plan --log plain --dump-gradients plain.st
        train --steps 4 $plan --log scaled --dump-gradients scaled.st --loss-scale 1024
        [ "$(losses plain)" = "$(losses scaled)" ]
        cmp plain.st scaled.st
        [ "$(grep -c '"loss_scale":1024,"skipped":false}' scaled)" -eq 4 ]
    done
    spoil_image 40
    run train --steps 3 --loss-scale 1024
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *'step 2: the gradient of "head.weight" is not finite'* ]]
}

# The counter stands still, so nothing is used; a GPU there is none.
@test "the end of a run says what it cost" {
    local zone=sys/class/powercap/intel-rapl:0
    TASUKI_SYSFS=$PWD/nothing run train --steps 2 --log log
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "${lines[-1]}" == "tasuki: "[0-9.]*" node-hours, 0 GPU-hours, energy not collected" ]]
    tail -1 log | grep -q '"usage":{"nodes":1,"gpus":0,"node_hours":[0-9].*"kwh":null}}$'
    mkdir -p $zone
    echo package-0 >$zone/name
    echo 1000000 >$zone/max_energy_range_uj
    echo 5 >$zone/energy_uj
    TASUKI_SYSFS=$PWD/sys run train --steps 2 --log log
    echo "$output"
    [[ "${lines[-1]}" == *" GPU-hours, 0 kWh (processors 0)" ]]
    tail -1 log | grep -q '"cpu_kwh":0.0,"gpu_kwh":null,"kwh":0.0}}$'
}
