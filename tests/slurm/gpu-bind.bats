# SPDX-License-Identifier: MIT
# Which GPU a rank takes: as the plan says, and of those that Slurm gave its step. Over stand-ins of
# CUDA and its driver, on this machine and on two nodes of a Slurm that confines no devices.

load common

setup_file() {
    local reason
    reason=$(no_stand_in)
    export WHY_NOT_HERE=$reason LAB_DIR=$BATS_FILE_TMPDIR/lab LAB_NODES=2 LAB_CPUS=2 LAB_GPUS=4
    reason=${reason:-$(no_mpi)}
    start_lab "$reason"
}

teardown_file() {
    stop_lab
}

setup() {
    [ -z "$WHY_NOT_HERE" ] || skip "$WHY_NOT_HERE"
    use_stand_in
    mpi_environment
    unset HWLOC_XMLFILE CUDA_VISIBLE_DEVICES
    device_files 1b 3d
    export TASUKI_MEASURE=none TASUKI_NVML=$builddir/tests/.libs/fake_nvml.so TASUKI_PROCFS=$PWD/proc
    fake=$builddir/tests/.libs/fake_cuda.so
    printf 'gpu 0000:%s:00.0\n' 1b 3d >machine
    data=$srcdir/tests/data/model/mlp
    settings="--data $data/train.safetensors --optimizer sgd --threads 1 --steps 2 --lr 0.03 --log log"
    model="$data/model.onnx $settings --global-batch 8"
    [ -e ../cost.json ] || "$TASUKI" profile $data/model.onnx --data $data/train.safetensors \
        --optimizer sgd --threads 1 --batch-size 2,8 -q -o ../cost.json
    costs="--cost ../cost.json"
}

# device_files BUS...: /dev/nvidia0 and on are these GPUs, in order.
device_files() {
    local gpu minor=0
    for gpu; do
        mkdir -p proc/driver/nvidia/gpus/0000:$gpu:00.0
        printf 'Device Minor: \t %d\n' $((minor++)) >proc/driver/nvidia/gpus/0000:$gpu:00.0/information
    done
}

train() {
    LD_PRELOAD="$fake" "$TASUKI" train "$@"
}

# drives DEVICE...: these by rank, in the last run of "log".
drives() {
    local expected
    expected=$(printf '"%s",' "$@")
    grep '"event":"start"' log | tail -n 1 | grep -o '"drives":\[[^]]*\]' | tee /dev/stderr |
        grep -qxF "\"drives\":[${expected%,}]"
}

# The plan of a run by these devices, stages in order, in place of those that it had, into plan.json.
plan_for() {
    local stages=$# replicas
    replicas=$(printf '1,%.0s' "$@")
    CUDA_VISIBLE_DEVICES=$(seq -s, 0 $((stages - 1))) train $model $costs --device cuda -q \
        --ranks-in-process $stages --stages $stages --replicas ${replicas%,} --micro-batches 2 \
        --schedule 1f1b --checkpoint for-plan
    python3 - "$@" <<'END'
import glob, json, sys
plan = json.load(open(sorted(glob.glob("for-plan/step-*/state.json"))[-1]))["plan"]
for stage, device in zip(plan["stages"], sys.argv[1:]):
    stage["devices"] = [[device]]
json.dump(plan, open("plan.json", "w"))
END
    rm -r for-plan
}

@test "a rank takes the GPU that its plan names, and others may idle then" {
    local host
    host=$(hostname)
    for device in gpu1 0000:3d:00.0; do
        plan_for $host/$device
        for said in "" "--device cuda"; do
            train plan.json $settings --keep-plan $said
            drives $host/$device
        done
    done
    # Of GPUs with one more in front, whose UUIDs are known.
    printf 'gpu 0000:%s:00.0\nuuid GPU-%s\n' 0a 1 1b 2 3d 3 >machine
    plan_for $host/GPU-3
    train plan.json $settings --keep-plan
    drives $host/GPU-3
}

@test "ranks take the GPUs of their plan, whichever has which stage" {
    local host
    host=$(hostname)
    printf 'gpu 0000:%s:00.0\n' 0a 1b 3d >machine
    plan_for $host/gpu2 $host/gpu1
    train plan.json $settings --keep-plan --ranks-in-process 2
    drives $host/gpu1 $host/gpu2
    mpirun -n 2 -x LD_PRELOAD="$fake" "$TASUKI" train plan.json $settings --keep-plan
    drives $host/gpu1 $host/gpu2
    # A rank for which the plan has none leaves the others theirs.
    mpirun -n 3 -x LD_PRELOAD="$fake" "$TASUKI" train plan.json $settings --keep-plan
    drives $host/gpu1 $host/gpu2 $host/gpu0
    # Two ranks on one, where another is free.
    plan_for $host/gpu1.0 $host/gpu1.1
    mpirun -n 2 -x LD_PRELOAD="$fake" "$TASUKI" train plan.json $settings --keep-plan
    drives $host/gpu1.0 $host/gpu1.1
}

@test "a plan that does not fit changes nothing" {
    local host
    host=$(hostname)
    plan_for $host/gpu7
    run train plan.json $settings
    echo "$output"
    [ "$status" -eq 2 ]
    [[ "$output" == *"1 task, 2 GPUs: 1 would idle"* ]]
    plan_for elsewhere/gpu1
    CUDA_VISIBLE_DEVICES=0 train plan.json $settings $costs
    drives $host/gpu0
    CUDA_VISIBLE_DEVICES=0 run train plan.json $settings --keep-plan
    [ "$status" -eq 1 ]
    [[ "$output" == *'"elsewhere/gpu1" is driven by no rank'* ]]
}

# What Slurm tells a task of a step.
in_step() {
    env SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_GPUS_ON_NODE=1 LD_PRELOAD="$fake" \
        "$TASUKI" train --device cuda "$@"
}

@test "a GPU that Slurm did not give the step ends a run, with both" {
    SLURM_STEP_GPUS=1 CUDA_VISIBLE_DEVICES=0 run in_step $model $costs
    echo "$output"
    [ "$status" -eq 2 ]
    [[ "$output" == *"rank 0 ($(hostname)) would compute on GPU 0000:1b:00.0 \
(CUDA_VISIBLE_DEVICES=0), which Slurm did not give this step: it gave 0000:3d:00.0 \
(SLURM_STEP_GPUS=1); use CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1, or ask for more GPUs" ]]
    SLURM_STEP_GPUS=1 CUDA_VISIBLE_DEVICES=1 in_step $model $costs
    drives $(hostname)/gpu1
    # The plan is no excuse.
    plan_for $(hostname)/gpu0
    SLURM_STEP_GPUS=1 run in_step plan.json $settings --keep-plan
    [ "$status" -eq 2 ]
    [[ "$output" == *"would compute on GPU 0000:1b:00.0, which Slurm did not give"* ]]
    # A control group shows what was given, numbered anew.
    echo 'gpu 0000:3d:00.0' >machine
    SLURM_STEP_GPUS=1 CUDA_VISIBLE_DEVICES=0 in_step $model $costs
    # Numbers of device files in another order: nobody knows which are meant.
    printf 'gpu 0000:%s:00.0\n' 1b 3d >machine
    device_files 3d 1b
    SLURM_STEP_GPUS=1 CUDA_VISIBLE_DEVICES=0 in_step $model $costs
}

# A recorded machine with 8 GPUs and 4 adapters; the stand-in of CUDA shows these GPUs, too.
@test "MPI starts with the adapter that is nearest to a task's GPU, unless the user says which" {
    local dgx=$srcdir/tests/data/topo/dgx1 preload=$builddir/tests/.libs/fake_mpi.so line
    "$TASUKI" info | grep -q '^hwloc *built in' || skip "built without hwloc"
    [ -z "$(no_mpi)" ] || skip "$(no_mpi)"
    unset ${!UCX_*} HFI_UNIT
    export HWLOC_XMLFILE=$dgx/hwloc.xml TASUKI_SYSFS=$PWD/sys TASUKI_FAKE_NVML=$dgx/nvml.txt
    export TASUKI_FAKE_MPI=adapters
    while read -r line; do
        mkdir -p "sys/$(dirname "${line%%:*}")"
        printf '%s\n' "${line#*:}" >>"sys/${line%%:*}"
    done <$dgx/sys.txt
    what="$model $costs --stages 1 --replicas 4 --dry-run -v --device cuda"
    CUDA_VISIBLE_DEVICES=0,3,4,7 mpirun -n 4 -x LD_PRELOAD="$preload $fake" "$TASUKI" train $what 2>&1 |
        tee out
    [ "$(grep -o '^MPI starts with .*' out | sort | tr '\n' ' ')" = "MPI starts with mlx5_0:1 MPI starts \
with mlx5_1:1 MPI starts with mlx5_2:1 MPI starts with mlx5_3:1 " ]
    grep -q '^tasuki: rank 3: GPU 0000:8a:00.0, NIC mlx5_3:1 (PIX)$' out
    CUDA_VISIBLE_DEVICES=0,3,4,7 UCX_NET_DEVICES=all mpirun -n 4 -x LD_PRELOAD="$preload $fake" \
        "$TASUKI" train $what 2>&1 | tee out
    [ "$(grep -c '^MPI starts with all$' out)" -eq 4 ]
    # Of all that they are shown, those of the plan; these make, stages in order, the first four's adapters.
    plan_for $(hostname)/gpu{1,2,5,6}
    mpirun -n 4 -x LD_PRELOAD="$preload $fake" "$TASUKI" train plan.json $settings --keep-plan -v \
        --device cuda 2>&1 | tee out
    [ "$(grep -o '^MPI starts with .*' out | sort | tr '\n' ' ')" = "MPI starts with mlx5_0:1 MPI starts \
with mlx5_1:1 MPI starts with mlx5_2:1 MPI starts with mlx5_3:1 " ]
    [ "$(grep -c ': GPU 0000:.*, NIC .*(PIX)$' out)" -eq 4 ]
    # Tasks that are several ranks have all.
    CUDA_VISIBLE_DEVICES=0,3,4,7 mpirun -n 4 -x LD_PRELOAD="$preload $fake" "$TASUKI" train $what \
        --ranks-in-process 1 2>&1 | tee out
    [ "$(grep -c '^MPI starts with all$' out)" -eq 4 ]
}

in_lab() {
    [ -z "$WHY_NOT" ] || skip "$WHY_NOT"
    device_files 1b 3d 4e 5f
    printf 'gpu 0000:%s:00.0\n' 1b 3d 4e 5f >machine
}

# CODE ARGUMENT...: tasks of a step with these, after that shell code in each.
step() {
    local code=$1
    shift
    srun --mpi=pmix "$@" sh -c "$code"'
        LD_PRELOAD='"$fake"' exec "$@"' sh "$TASUKI" train $what
}

@test "tasks of a step compute on what Slurm gave them, and on nothing else" {
    in_lab
    what="$model $costs --stages 1 --replicas 4"
    # This Slurm tells a step with --gpu-bind=none nothing of its GPUs.
    for how in --gpus-per-task=1 --gpus-per-node=2 "--gpus-per-node=2 --gpu-bind=map_gpu:1,0"; do
        step "" -N2 --ntasks-per-node=2 $how
    done
    # Each may use those of the other.
    step "export CUDA_VISIBLE_DEVICES=0,1" -N2 --ntasks-per-node=2 $how
    # A job beside it has the first GPU.
    what="$model $costs --stages 1 --replicas 2"
    "$lab" run salloc -Q -N2 --gpus-per-node=1 sleep 120 3>&- &
    wait_until in_use
    step "" -N2 --ntasks-per-node=1 --gpus-per-node=1
    drives n1/gpu1 n2/gpu1
    run step "export CUDA_VISIBLE_DEVICES=0" -N2 --ntasks-per-node=1 --gpus-per-node=1
    "$lab" run scancel --user=root
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" == *"rank 0 (n1) would compute on GPU 0000:1b:00.0 (CUDA_VISIBLE_DEVICES=0), which \
Slurm did not give this step: it gave 0000:3d:00.0 (SLURM_STEP_GPUS=1); use "* ]]
    [ "$(grep -c 'did not give' <<<"$output")" -eq 1 ]
}

in_use() {
    "$lab" run squeue -h -t running -o %i | grep -q .
}

@test "a plan for nodes of Slurm has its GPUs there" {
    in_lab
    plan_for n1/gpu2 n2/gpu1
    what="plan.json $settings --keep-plan"
    step "" -N2 --ntasks-per-node=1 --gpus-per-node=4
    drives n1/gpu2 n2/gpu1
    plan_for n2/gpu3 n1/gpu0
    step "" -N2 --ntasks-per-node=1 --gpus-per-node=4
    drives n1/gpu0 n2/gpu3
}
