# The main job on real data; read by etc/quickstart, whose functions it uses.

out=$build/demo
digits=$top/etc/demo
tasuki=$build/tasuki
rm -rf "$out"
mkdir -p "$out"

# BatchNorm over groups of 32, so that every plan computes the same.
network="$digits/digits.onnx --data $digits/digits-train.safetensors --batchnorm-samples 32"
job="--global-batch 128 --optimizer momentum --weight-decay 1e-4"
train="--epochs 8 --lr 0.03 --seed 1 --test $digits/digits-test.safetensors"
train="$train --checkpoint $out/checkpoint --log $out/log.jsonl"

# figures LINES NAME: "seconds":0.0123 of the log's lines that begin like that.
figures() {
    sed -nE "/^\{\"$1\"/s/.*\"$2\": *([-0-9.e+]+).*/\1/p" "$out/log.jsonl"
}

# In milliseconds, over all steps but the first, which warms up.
median() {
    figures step "$1" | tail -n +2 | sort -g |
        awk '{ a[NR] = $1 } END { printf "%.2f ms\n", 1e3 * a[int((NR + 1) / 2)] }'
}

show() {
    printf '\n$ %s\n' "$*" | sed "s|$top/||g; s|mpirun_4|mpirun -n 4|"
    "$@"
}

say "What is here"
show "$tasuki" topo

say "The network"
show "$tasuki" inspect $network --batch-size 32

say "The plan for four ranks, and why"
show "$tasuki" plan $network ${job% --weight*} --cluster flat:4 -o "$out/plan.json"

if on_login_node; then
    say "This is a login node: here the demo stops. Train in an allocation:"
    echo "  srun --mpi=pmix -N 2 --ntasks-per-node=2 $tasuki train $network $job $train"
    exit 0
fi

say "Training on four ranks"
started=$(date +%s)
show mpirun_4 "$tasuki" train $network $job $train
seconds=$(($(date +%s) - started))

say "Forecast and measurement: one iteration (median)"
printf '  predicted  %s\n  measured   %s\n' "$(median predicted_seconds)" "$(median seconds)"

say "The checkpoint"
ls -l "$out/checkpoint" "$out/checkpoint/$(ls "$out/checkpoint" | grep step | tail -n 1)"

accuracy=$(figures 'event":"evaluation' accuracy | tail -n 1)
say "Test accuracy $accuracy after $seconds s of training"
awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.97) }' || fail "expected at least 0.97"
