# The main job on real data; read by etc/quickstart, whose functions it uses.

out=$build/demo
digits=$top/etc/demo
tasuki=$build/tasuki
rm -rf "$out"
mkdir -p "$out"

# Costs are measured anew: those of another day may come from a busier machine.
TASUKI_CACHE_DIR=$out/cache
export TASUKI_CACHE_DIR

# BatchNorm over groups of 32, so that every plan computes the same; two stages, so that there
# is a pipeline to see: for so small a network four replicas of the whole would do.
network="$digits/digits.onnx --data $digits/digits-train.safetensors --batchnorm-samples 32"
job="--global-batch 128 --optimizer momentum --replicas 2,2"
training="--device cpu --epochs 8 --lr 0.03 --weight-decay 1e-4 --seed 1"
training="$training --test $digits/digits-test.safetensors"
training="$training --checkpoint $out/checkpoint --log $out/log.jsonl"

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
if on_login_node; then
    cluster=tree:2x2,inside=5e9,across=1e9,memory=4e9
    show "$tasuki" topo
else
    cluster=$out/topo.json
    show mpirun_4 "$tasuki" topo
    mpirun_4 "$tasuki" topo -q --format json -o "$cluster"
fi

say "The network"
show "$tasuki" inspect $network --batch-size 32

say "The plan for four ranks, and why"
show "$tasuki" plan $network $job --cluster "$cluster" -o "$out/plan.json"

if on_login_node; then
    say "This is a login node: here the demo stops. Train in an allocation:"
    echo "  srun --mpi=pmix -N 2 --ntasks-per-node=2 $tasuki train $network $job $training"
    exit 0
fi

say "Training on four ranks"
started=$(date +%s)
show mpirun_4 "$tasuki" train "$out/plan.json" --data "$digits/digits-train.safetensors" \
    $training
seconds=$(($(date +%s) - started))

say "Forecast and measurement: one iteration (median)"
printf '  predicted  %s\n  measured   %s\n' "$(median predicted_seconds)" "$(median seconds)"

say "The checkpoint"
ls -l "$out/checkpoint" "$out/checkpoint/$(ls "$out/checkpoint" | grep step | tail -n 1)"

accuracy=$(figures 'event":"evaluation' accuracy | tail -n 1)
say "Test accuracy $(awk -v a="$accuracy" 'BEGIN { printf "%.2f", 100 * a }') %, $seconds s of training"
awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.97) }' || fail "expected at least 97 %"
