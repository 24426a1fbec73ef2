# SPDX-License-Identifier: MIT
# tasuki topo on 4 virtual nodes of a real Slurm, with 4 GPUs each and 2 leaf switches: what it
# says of nodes, switches, GPUs and CPUs is compared with what Slurm and the kernel say.
# The GPUs are Slurm's only; tests/fake_nvml.c is the driver that shows them.

bats_require_minimum_version 1.5.0
load common

setup_file() {
    local reason
    export LAB_DIR=$BATS_FILE_TMPDIR/lab LAB_NODES=4 LAB_CPUS=2 LAB_GPUS=4 LAB_LEAF=2 \
        LAB_BIND=affinity LAB_EXTRA="PartitionName=short Nodes=n[1-2] MaxTime=30 MaxNodes=2"
    if [ -e "$TASUKI_PKGLIBDIR/tasuki_spank.so" ]; then
        LAB_EXTRA+=$'\n'"PlugStackConfig=$BATS_FILE_TMPDIR/plugstack.conf"
        echo "optional $TASUKI_PKGLIBDIR/tasuki_spank.so tasuki=$TASUKI limit=50" \
            >"$BATS_FILE_TMPDIR/plugstack.conf"
    fi
    reason=$(no_mpi)
    [ -n "$reason" ] || [ -e "$TASUKI_PKGLIBDIR/tasuki-slurm.so" ] || reason="built without Slurm"
    [ -n "$reason" ] || [ "$(nproc)" -ge 2 ] || reason="tasks of a node need 2 CPUs to differ"
    start_lab "$reason"
}

teardown_file() {
    stop_lab
}

setup() {
    [ -z "$WHY_NOT" ] || skip "$WHY_NOT"
    mpi_environment
    unset HWLOC_XMLFILE CUDA_VISIBLE_DEVICES
    # Ranks that wait for those that measure take the cores that others of them have.
    export TASUKI_MEASURE=none
    cd "$BATS_TEST_TMPDIR"
}

teardown() {
    [ -n "$WHY_NOT" ] || "$lab" run scancel -u root || true
}

topo() {
    "$lab" run timeout 300 "$TASUKI" topo "$@"
}

# A driver that shows the GPUs which Slurm has: nvidia0 … nvidia3.
with_driver() {
    local i
    for i in 1 2 3 4; do
        printf 'gpu 0000:%d0:00.0\nname Tesla P100-SXM2-16GB\nuuid GPU-%d\n' $i $i
    done >nvml.txt
    export TASUKI_NVML=$builddir/tests/.libs/fake_nvml.so TASUKI_FAKE_NVML=$PWD/nvml.txt
}

# "rank host CPUs GPUs" of each task of a step with these options, as tasuki says, and as the
# environment, taskset and hwloc-bind say inside such a step. $1: what has no list.
tasks_agree() {
    local none=$1
    shift
    srun --mpi=pmix -N4 --ntasks-per-node=2 "$@" "$TASUKI" topo --measure none >report
    awk '$1 == "rank" { print $2, $3, $5, $7 }' report | sort -n >said
    # Two CPUs are "0-1" or "0,1".
    srun -N4 --ntasks-per-node=2 "$@" bash -c 'cpus=$(taskset -cp $$) cpus=${cpus##* }
        mask=$(hwloc-bind --get)
        [ $((mask)) = $((0x$(taskset -p $$ | sed "s/.* //"))) ] || mask="hwloc says $mask,"
        echo $SLURM_PROCID $SLURMD_NODENAME ${cpus/0,1/0-1} ${CUDA_VISIBLE_DEVICES:-'"$none"'} \
            ${mask##0x*}' | sort -n >real
    cat report
    diff real said
    [ "$(wc -l <said)" -eq 8 ]
}

@test "each task's GPUs are those that Slurm gave it, one for each task" {
    with_driver
    tasks_agree all --gpus-per-task=1
    [ "$(awk '{ printf "%s ", $4 }' said)" = "0 1 0 1 0 1 0 1 " ]
    ! grep -q "$LAB_DIR" report || false
}

@test "each task's GPUs are those of --gpu-bind=map_gpu and mask_gpu" {
    with_driver
    tasks_agree all --gpus-per-node=4 --gpu-bind=map_gpu:2,1
    [ "$(awk '{ printf "%s ", $4 }' said)" = "2 1 2 1 2 1 2 1 " ]
    tasks_agree all --gpus-per-node=4 --gpu-bind=mask_gpu:0x6,0x9
    [ "$(awk '{ printf "%s ", $4 }' said)" = "1,2 0,3 1,2 0,3 1,2 0,3 1,2 0,3 " ]
}

@test "tasks share the GPUs of --gres, and have all where they asked for none" {
    with_driver
    tasks_agree all --gres=gpu:3
    [ "$(awk '{ print $4 }' said | sort -u)" = 0,1,2 ]
    tasks_agree all
    [ "$(awk '{ print $4 }' said | sort -u)" = all ]
}

@test "SLURM_STEP_GPUS is explained, and a driver that shows more" {
    with_driver
    run srun -N1 -n1 --gres=gpu:2 "$TASUKI" topo
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"SLURM_STEP_GPUS=0,1: Slurm gave 2 of the 4 GPUs that the driver shows this process"* ]]
    [[ "$output" == *"CUDA_VISIBLE_DEVICES=0,1: this process sees 2 of 4 GPUs"* ]]
}

@test "each task's CPUs are those that Slurm bound it to" {
    local bind
    for bind in none rank cores map_cpu:1,0 mask_cpu:3,2; do
        tasks_agree none --cpu-bind=$bind
    done
    [ "$(awk '{ printf "%s ", $3 }' said | cut -c 1-6)" = "0-1 1 " ]
}

@test "a machine that each task is told to be on has the GPUs that Slurm gave the task" {
    "$TASUKI" info | grep -q '^hwloc *built in' || skip "built without hwloc"
    export HWLOC_XMLFILE=$srcdir/tests/data/gpu-node.xml
    run srun --mpi=pmix -N4 --ntasks-per-node=2 --gpus-per-task=1 "$TASUKI" topo --measure none
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(awk '$1 == "rank" { printf "%s ", $NF }' <<<"$output")" = "0 1 0 1 0 1 0 1 " ]
    [[ "$output" == *"    leaf2            n[3-4]"* ]]
}

# "switch what-is-on-it" of a report's section.
switches_of() {
    awk '/^switches/ { on = 1; next } /^$/ { on = 0 } on { print $1, $2 }' | sort
}

# The same of scontrol: nodes of leaves, switches of others.
switches_of_slurm() {
    "$lab" run scontrol show topology | sed -nE \
        -e 's/^SwitchName=([^ ]*) Level=0 .* Nodes=([^ ]*).*/\1 \2/p' \
        -e 's/^SwitchName=([^ ]*) Level=[1-9].* Switches=([^ ]*).*/\1 \2/p' | sort
}

@test "the switches are those that scontrol shows, by the task's address and by libslurm" {
    switches_of_slurm >real
    [ "$(wc -l <real)" -eq 3 ]
    srun --mpi=pmix -N4 --ntasks-per-node=1 "$TASUKI" topo --measure none >step
    cat step
    diff real <(switches_of <step)
    grep -q '^switches (SLURM_TOPOLOGY_ADDR)$' step
    topo --partition main >partition
    cat partition
    [[ "$(<partition)" != *"not collected: libslurm shows them to no program"* ]] ||
        skip "this libslurm keeps switches to itself"
    diff real <(switches_of <partition)
}

@test "a task that was not told its switches asks libslurm" {
    run srun --mpi=pmix -N4 --ntasks-per-node=1 env -u SLURM_TOPOLOGY_ADDR "$TASUKI" topo \
        --measure none
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" != *"not collected: libslurm shows them to no program"* ]] ||
        skip "this libslurm keeps switches to itself"
    [[ "$output" == *"switches (libslurm: topology/tree)"* ]]
    diff <(switches_of_slurm) <(switches_of <<<"$output")
}

@test "mpirun in an allocation has its nodes, switches and GPUs" {
    with_driver
    "$lab" run timeout 300 salloc -N4 --ntasks-per-node=2 --gpus-per-node=3 \
        mpirun -n 8 --map-by ppr:2:node:oversubscribe "$TASUKI" topo --measure none >report 2>&1
    cat report
    diff <(switches_of_slurm) <(switches_of <report)
    [ "$(awk '$1 == "rank" { printf "%s ", $3 }' report)" = "n1 n1 n2 n2 n3 n3 n4 n4 " ]
    [ "$(awk '$1 == "rank" { print $7 }' report | sort -u)" = 0,1,2 ]
}

@test "a node has the sockets, cores and memory that lstopo shows on it" {
    command -v lstopo-no-graphics hwloc-calc >/dev/null || skip "hwloc's tools are not installed"
    run srun -N1 -n1 --cpu-bind=none "$TASUKI" topo
    echo "$output"
    for kind in package:socket core:core pu:thread; do
        n=$(srun -N1 -n1 --cpu-bind=none hwloc-calc -N "${kind%:*}" all)
        [[ "$output" =~ [^0-9]$n\ (package|${kind#*:}) ]]
    done
}

@test "the planner's cluster has the nodes below their switches" {
    srun --mpi=pmix -N4 --ntasks-per-node=1 "$TASUKI" topo --format json -o topo.json
    "$TASUKI" topo --input topo.json >again
    cat again
    diff <(switches_of_slurm) <(switches_of <again)
    "$TASUKI" topo --input topo.json --format dot >again.dot
    for edge in 'spine" leaf1' 'spine" leaf2' 'leaf1" n1' 'leaf1" n2' 'leaf2" n3' 'leaf2" n4'; do
        awk -v up="${edge%%\"*}" -v down="${edge##*\" }" '
            match($0, /label="[^"]*"/) && $2 ~ /^\[label/ {
                name[$1] = substr($0, RSTART + 7, RLENGTH - 8) }
            $2 == "--" { if (name[$1] == up) want[$3] = 1; to[$3] = 1 }
            END { for (p in want) if (name[p] == down) exit 0; exit 1 }' again.dot
    done
    "$TASUKI" topo --input topo.json --format svg | grep -q '>leaf2<'
}

@test "the machine is saved by one step, and more of its nodes are planned for on the login node" {
    unset TASUKI_MEASURE
    export TASUKI_MACHINES=$PWD/machines XDG_CONFIG_HOME=$PWD/none
    cat >cost.json <<'END'
{ "schema": "tasuki-cost", "version": 1, "micro_batch": [1],
  "blocks": [ { "name": "a", "forward": 1e-3, "dgrad": 1e-3, "parameters": 1000 } ] }
END
    with_driver
    srun --mpi=pmix -N2 --ntasks-per-node=1 --gres=gpu:4 "$TASUKI" topo --save-machine gpus
    TASUKI_NVML= srun --mpi=pmix -N2 --ntasks-per-node=2 "$TASUKI" topo --save-machine ranks \
        -o "$PWD/ranks.json"
    run srun --mpi=pmix -N2 --ntasks-per-node=1 "$TASUKI" topo --save-machine gpus
    [ "$status" -ne 0 ]
    [[ "$output" == *"gpus.json exists: --force replaces it"* ]]
    grep -q '"measured"' machines/gpus.json
    "$TASUKI" topo --input gpus:4 >report
    cat report
    grep -q '^gpus:4: 4 nodes, 16 devices$' report
    grep -q '^4 nodes alike: node0, ' report
    grep -q '"extend_to"' ranks.json
    "$TASUKI" topo --input ranks.json:4 >report
    cat report
    grep -q ': 4 nodes, 8 devices$' report
    run "$TASUKI" plan --cost cost.json --global-batch 16 --nodes 4
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *" of gpus:4, "* ]]
    # The partition has four nodes, where libslurm tells.
    if grep -q '"extend_to": 4' machines/gpus.json; then
        run "$TASUKI" plan --cost cost.json --global-batch 16 --nodes 5
        [ "$status" -eq 2 ]
        [[ "$output" == *"has 4 nodes, not 5"* ]]
    fi
}

@test "GPUs of several nodes are measured below a switch and across switches" {
    grep -qs ncclSend "$builddir/.libs/tasuki-cuda.so" || skip "built without CUDA or NCCL"
    unset TASUKI_MEASURE
    with_driver
    echo 'wire network network 1e-3 1e9' >>nvml.txt
    srun --mpi=pmix -N4 --ntasks-per-node=1 --gres=gpu:1 \
        env LD_PRELOAD="$builddir/tests/.libs/fake_cuda.so" "$TASUKI" topo --measure=full >report
    cat report
    grep -q '^GPUs of this allocation: 4 nodes, 16 devices$' report
    grep -qE '^  same switch, NCCL +2 ' report
    grep -qE '^  same switch, level 1, NCCL +2 ' report
    sed '1,/^GPUs of/d' report | grep -qE '^ +leaf1, leaf2 .* between its parts.* \(measured\)'
    sed '1,/^GPUs of/d' report | grep -qE '^ +n1, n2 .* up \(measured\)'
    # One more on each node: these by NCCL, nodes by hosts, or all by hosts.
    for way in nccl+mpi mpi; do
        srun --mpi=pmix -N2 --ntasks-per-node=2 --gres=gpu:2 env \
            LD_PRELOAD="$builddir/tests/.libs/fake_cuda.so" "$TASUKI" topo --comm $way >report
        cat report
        what=$([ $way = mpi ] && echo hosts || echo 'NCCL [0-9.]+ and, between nodes, hosts')
        grep -qE "^GPU links by $what, " report
        grep -qE "^  same switch, hosts +1 " report
        sed '1,/^GPU links/d' report |
            grep -qE "^  [?], $([ $way = mpi ] && echo hosts || echo NCCL) +[12] "
    done
}

start_job() {
    job=$("$lab" run sbatch --parsable -o /dev/null "$@" --wrap 'sleep 1000')
    local end=$((SECONDS + 60))
    until [ "$("$lab" run squeue -h -j "$job" -o %T)" = RUNNING ]; do
        [ $SECONDS -lt $end ]
        sleep 0.05
    done
}

# What scontrol says of a job, by name.
job_word() {
    "$lab" run scontrol show -d job "$job" | grep -oE "(^| )$1=[^ ]*" | head -n 1 | sed 's/.*=//'
}

@test "--job tells the nodes, GPUs, time and switches that scontrol shows" {
    start_job -J mine -N2 --nodelist=n[2-3] --gres=gpu:p100:2 -t 50
    topo --job "$job" >report
    cat report
    grep -qx "job $job \"mine\" of root: running, partition main" report
    grep -qE '^  time +(49 min [0-9]+ s|50 min) left of 50 min$' report
    [ "$(job_word NodeList)" = "n[2-3]" ]
    grep -qE '^  n\[2-3\] +2 nodes, mixed$' report
    [ "$("$lab" run scontrol show -d job "$job" | grep -oE ' GRES=[^ ]*' | sort -u)" = \
        " GRES=gpu:p100:2(IDX:0-1)" ]
    grep -q 'GPUs 4 x p100, of which the job has 0-1$' report
    [ "$("$lab" run scontrol show node n2 | grep -oE 'State=[A-Z]*')" = State=MIXED ]
    grep -q '1 socket, 2 cores, 2 threads, 9.77 GiB$' report
    grep -q '^switches (libslurm: topology/tree)$' report ||
        grep -q 'not collected: libslurm shows them to no program' report
}

@test "--job gives a file that topo and plan read, with the job's GPUs" {
    start_job -N2 --gres=gpu:2
    topo --job "$job" --format json -o job.json
    [ "$(grep -c '"device": "p100"' job.json)" -ge 2 ]
    "$TASUKI" topo --input job.json >again
    topo --job "$job" | sed 's/[0-9]* s left/left/' >direct
    diff direct <(sed 's/[0-9]* s left/left/' again)
    echo '{ "schema": "tasuki-cost", "version": 1, "device": "p100", "precision": "float32",
        "micro_batch": [1], "blocks": [
        { "name": "a", "forward": 1e-3, "dgrad": 1e-3, "wgrad": 1e-3, "parameters": 8,
          "activations": 8, "kept_for_wgrad": 0, "workspace": 0 }], "edges": [] }' >cost.json
    run "$TASUKI" plan --cost cost.json --cluster job.json --global-batch 8 --format json
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *'n1/gpu0'* ]]
}

@test "a job that waits has no nodes, and says why" {
    start_job -N4 --exclusive
    local first=$job
    job=$("$lab" run sbatch --parsable -N3 -o /dev/null --wrap true)
    run topo --job "$job"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *": pending"*", partition main"* ]]
    [[ "$output" == *"none yet, it wants 3"* ]]
    run topo --job "$job" --format json
    echo "$output"
    [ "$status" -eq 1 ]
    [[ "$output" == *"job $job is pending and has no nodes" ]]
}

@test "--partition tells limits, and which nodes are bad and why" {
    "$lab" run scontrol update nodename=n4 state=drain reason="bad fan"
    run topo --partition main
    "$lab" run scontrol update nodename=n4 state=resume
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"partition main: up"* ]]
    [[ "$output" == *"no time limit"* ]]
    [[ "$output" == *"  n[1-3] "*" 3 nodes, idle"* ]]
    [[ "$output" == *"  n4 "*" 1 node, idle+drain: bad fan"* ]]
    [[ "$output" == *"GPUs 4 x p100"* ]]
    run topo --partition short
    echo "$output"
    [[ "$output" == *"30 min at most"*"at most 2 nodes"* ]]
    [[ "$output" == *"  n[1-2] "* ]]
    topo --partition main --format json -o all.json
    [ "$("$TASUKI" topo --input all.json --format dot | grep -c '/gpu[0-3]"')" -eq 16 ]
}

@test "tasks of arrays are told apart" {
    job=$("$lab" run sbatch --parsable -a 1-2 -N1 -o /dev/null --wrap 'sleep 1000')
    local end=$((SECONDS + 60))
    until [ "$("$lab" run squeue -h -r -j "$job" -o %T | grep -c RUNNING)" = 2 ]; do
        [ $SECONDS -lt $end ]
        sleep 0.05
    done
    for task in 1 2; do
        run topo --job "${job}_$task"
        echo "$output"
        [ "$status" -eq 0 ]
        [[ "$output" == *"  $("$lab" run squeue -h -j "${job}_$task" -o %N) "*"1 node, "* ]]
    done
    run topo --job "${job}_3"
    [ "$status" -eq 1 ]
}

one_line() {
    echo "$output"
    [ "$status" -eq "$1" ]
    [ "$(wc -l <<<"$output")" -eq 1 ]
    [[ "$output" == *"$2"* ]]
}

@test "what does not exist, and a module that is missing, is one line and the exit code" {
    run topo --job 99999
    one_line 1 "job 99999: Slurm knows of no such job"
    run topo --partition nowhere
    one_line 1 "partition nowhere: Slurm knows of no such partition"
    run topo --job n1
    one_line 2 "--job: expected"
    TASUKI_PKGLIBDIR=$PWD run topo --job 1
    one_line 1 "tasuki-slurm.so is not installed"
    echo "no library" >tasuki-slurm.so
    TASUKI_PKGLIBDIR=$PWD run topo --job 1
    one_line 1 "tasuki-slurm.so: cannot be loaded"
    run topo --job 1 --partition main
    one_line 2 "give one of them"
    run topo --job 1 --check
    one_line 2 "srun tasuki topo --check"
}

@test "the login node has the module that info names" {
    run "$lab" run "$TASUKI" info
    echo "$output"
    [[ "$output" == *"$TASUKI_PKGLIBDIR/tasuki-slurm.so"* ]]
}

with_report() {
    run --separate-stderr srun -N2 --tasuki-report="$1" sh -c 'echo "task of $SLURMD_NODENAME"'
    echo "$output $stderr"
    [ "$status" -eq 0 ]
    [ "$(sort <<<"$output")" = $'task of n1\ntask of n2' ]
}

@test "srun --tasuki-report writes what topo says, before the step, and never keeps it from starting" {
    [ -e "$TASUKI_PKGLIBDIR/tasuki_spank.so" ] || skip "built without spank.h"
    "$lab" run srun --help | grep -q -- --tasuki-report
    with_report of-two.txt
    [[ "$stderr" == *"--tasuki-report: of-two.txt"* ]]
    srun --mpi=pmix -N2 --ntasks-per-node=1 "$TASUKI" topo -q -o same.txt
    grep -qw n2 of-two.txt
    diff <(grep -oE '\bn[1-4]\b|[0-9]+ GPUs?' same.txt) \
        <(grep -oE '\bn[1-4]\b|[0-9]+ GPUs?' of-two.txt)
    with_report nowhere/report.txt
    [[ "$stderr" == *"nowhere/report.txt"* && "$stderr" == *"the step starts without"* ]]
    run srun -N1 true       # who does not ask has none
    [ -z "$output" ]
    [ ! -e tasuki-report-* ]
}

# Of a step of job $1: which nodes it speaks of.
report_has() {
    cat "$1"
    [ "$(grep -oE '\bn[1-4]\b' "$1" | sort -u | tr '\n' ' ')" = "$2 " ]
}

batch_job_ended() {
    [ "$("$lab" run squeue -h -t all -j "$1" -o %T)" = COMPLETED ]
}

@test "srun --tasuki-report writes beside a batch job's output, and in steps of any allocation" {
    [ -e "$TASUKI_PKGLIBDIR/tasuki_spank.so" ] || skip "built without spank.h"
    local job
    mkdir out
    job=$("$lab" run sbatch --parsable -N2 -w n1,n2 -o out/job-%j.txt \
        --wrap 'cd /; srun --tasuki-report=/nonexistent/x true; srun --tasuki-report hostname')
    wait_until batch_job_ended "$job"
    cat out/job-*.txt
    # The report is made by a step, too: the first one, which failed, was number 1.
    report_has out/tasuki-report-"$job".2.txt "n1 n2"
    grep -qx n2 out/job-"$job".txt
    # Output that is no file has nothing beside it.
    job=$("$lab" run sbatch --parsable -N1 -w n3 -o /dev/null --wrap 'srun --tasuki-report true')
    wait_until batch_job_ended "$job"
    report_has tasuki-report-"$job".0.txt n3
    [ ! -e /dev/tasuki-report-"$job".0.txt ]
    # shellcheck disable=SC2016
    "$lab" run timeout 100 salloc -Q -N2 -w n2,n3 sh -c \
        'srun -N1 -w n3 --tasuki-report true && echo $SLURM_JOB_ID' >number
    report_has tasuki-report-"$(cat number)".0.txt n3
}

@test "srun --tasuki-report has the nodes of all components of a heterogeneous step, and no others" {
    [ -e "$TASUKI_PKGLIBDIR/tasuki_spank.so" ] || skip "built without spank.h"
    # shellcheck disable=SC2016
    run "$lab" run timeout 200 salloc -Q -N1 -w n1 : -N2 -w n2,n3 sh -c '
        srun --het-group=0,1 --tasuki-report=all.txt sh -c "echo task of \$SLURMD_NODENAME" &&
        srun --het-group=1 --tasuki-report=second.txt true &&
        srun -N1 --tasuki-report=left.txt true : -N1 -w n3 true'
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" != *error* ]]
    [ "$(grep -c '^task of n[123]$' <<<"$output")" -eq 3 ]
    report_has all.txt "n1 n2 n3"
    report_has second.txt "n2 n3"
    report_has left.txt "n1 n3"
}

@test "an srun that does not end once the report is there does not hold the step up" {
    local real
    [ -e "$TASUKI_PKGLIBDIR/tasuki_spank.so" ] || skip "built without spank.h"
    real=$(type -P srun)
    mkdir bin
    printf '#!/bin/sh\n"%s" "$@"\nexec sleep 2000\n' "$real" >bin/srun
    chmod +x bin/srun
    echo old >report.txt
    PATH=$PWD/bin:$PATH run "$lab" run "$real" -N2 -w n1,n2 --tasuki-report=report.txt echo started
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" != *error* ]]
    [ "$(grep -c '^started$' <<<"$output")" -eq 2 ]
    report_has report.txt "n1 n2"
    run ! "$lab" run pgrep -fx 'sleep 2000'
}

demo_steps() {
    local demo=$srcdir/etc/demo
    srun --mpi=pmix "$@" "$TASUKI" train "$demo/digits.onnx" --data "$demo/digits-train.safetensors" \
        --global-batch 16 --batchnorm-samples 4 --steps 2 --stages 1 --log log $device
}

# The same by the launcher.
in_allocation() {
    local demo=$srcdir/etc/demo
    "$lab" run timeout -s KILL 120 salloc -Q "$@" "$TASUKI" train "$demo/digits.onnx" \
        --data "$demo/digits-train.safetensors" --global-batch 16 --batchnorm-samples 4 --steps 2 \
        --stages 1 --log log $device
}

# The same by a batch script, whatever comes of it: what it says is in "out".
in_batch() {
    local demo=$srcdir/etc/demo
    printf '#!/bin/sh\nexec "%s" train "%s" --data "%s" --global-batch 16 %s\n' "$TASUKI" \
        "$demo/digits.onnx" "$demo/digits-train.safetensors" \
        "--batchnorm-samples 4 --steps 2 --stages 1 --log log $device" >script
    "$lab" run timeout -s KILL 120 sbatch -Q -W -o out "$@" script || true
    cat out
}

@test "a run says which GPUs of its step nobody asked for, or would idle, and the line to use" {
    with_driver
    device=
    run demo_steps -N2 --ntasks-per-node=1 --gpus-per-node=4
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" == *"2 tasks, 8 GPUs: 6 would idle; use srun --mpi=pmix -N2 --ntasks-per-node=4 \
--gpus-per-node=4 tasuki ..., or --device cpu"* ]]
    device="--precision float64"
    run demo_steps -N2 --ntasks-per-node=1 --gpus-per-node=4
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" == *"4 GPUs of n"?", and --device is not given: --device cuda uses GPUs"* ]]
    device="--device cuda"
    run demo_steps -N2 --ntasks-per-node=1 --gpus-per-node=4
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" == *"2 tasks, 8 GPUs: 6 would idle; use srun --mpi=pmix -N2 --ntasks-per-node=4 \
--gpus-per-node=4 tasuki"* ]]
    device="--device cpu"
    demo_steps -N2 --ntasks-per-node=1 --gpus-per-node=4
}

@test "GPUs that Slurm gave and the driver does not show end a run, unless CPUs are meant" {
    export TASUKI_NVML=/nonexistent/libnvidia-ml.so
    device=
    run demo_steps -N2 --ntasks-per-node=1 --gpus-per-node=2
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" == *"rank 0 (n"?"): Slurm gave this step 2 GPUs there, and the driver shows none: \
/nonexistent/libnvidia-ml.so cannot be opened; --device cpu says that none are meant"* ]]
    [ "$(grep -c 'driver shows none' <<<"$output")" -eq 1 ]
    device="--device cpu"
    demo_steps -N2 --ntasks-per-node=1 --gpus-per-node=2
}

@test "GPUs that a step did not ask for end a run, with the line to use, unless CPUs are meant" {
    export TASUKI_NVML=/nonexistent/libnvidia-ml.so
    device=
    run demo_steps -N2 --ntasks-per-node=1
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" == *" has 4 GPUs by Slurm, and no rank is shown any; use srun --mpi=pmix -N2 \
--ntasks-per-node=4 --gpus-per-node=4 tasuki ..., or --device cpu, where none are meant"* ]]
    CUDA_VISIBLE_DEVICES=NoDevFiles run demo_steps -N2 --ntasks-per-node=1
    [ "$status" -ne 0 ]
    [[ "$output" == *" has 4 GPUs by Slurm"* ]]
    [ "$(grep -c 'by Slurm' <<<"$output")" -eq 1 ]
    # As PCI has them, where Slurm is not asked.
    TASUKI_JOB_NOTICE=0 HWLOC_XMLFILE=$srcdir/tests/data/gpu-node.xml run demo_steps -N1 -n1
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" == *" has "*" GPUs, and no rank is shown any; use srun"* ]]
    device="--device cpu"
    demo_steps -N2 --ntasks-per-node=1
}

@test "a job on nodes with GPUs that did not ask for them is refused by the launcher" {
    device=
    run in_allocation -N2 --ntasks-per-node=1
    echo "$output"
    [ "$status" -eq 2 ]
    [[ "$output" == *"job "*": node n"?" has 4 GPUs, and not all nodes of the job were given any: \
ask sbatch or salloc for --gpus-per-node=4, or say --device cpu"* ]]
    device="--device cpu"
    in_allocation -N2 --ntasks-per-node=1
    # Those that it was given are used: a rank for each.
    device=
    run in_allocation -N2 --exclusive --gpus-per-node=2
    echo "$output"
    [[ "$output" == *"2 nodes, 2 ranks on each"* ]]
}

@test "a job keeps its GPUs on nodes that are drained, which no other job is given" {
    local code='scontrol update nodename=$SLURM_JOB_NODELIST state=drain reason=test && exec "$@"'
    for device in "" "--device cuda"; do
        run in_allocation -N2 -w n1,n2 --exclusive --gpus-per-node=2 sh -c "$code" sh
        echo "$output"
        "$lab" run scontrol update nodename=n1,n2 state=resume
        [[ "$output" == *"2 nodes, 2 ranks on each"* ]]
        [[ "$output" != *gpus-per-node* ]]
    done
}

# sbatch sets SLURM_NTASKS only where it was told.
@test "one task for each node is what a batch job says, and not what nobody said" {
    device="--device cuda"
    in_batch -N2 --exclusive --gpus-per-node=2 --ntasks=2
    grep 'job .*: 2 nodes, 1 rank on each' out
    in_batch -N2 --exclusive --gpus-per-node=2
    grep 'job .*: 2 nodes, 2 ranks on each' out
}

@test "ranks that share a GPU are warned of, with the line to use" {
    with_driver
    device="--device cuda"
    run demo_steps -N2 --ntasks-per-node=2 --gpus-per-node=1
    echo "$output"
    [[ "$output" == *"warning: 2 of 4 ranks share a GPU with another, rank 1 (n"?") for one, \
and take turns; a GPU for each: srun --mpi=pmix -N2 --ntasks-per-node=2 --gpus-per-node=2 \
--gpu-bind=none tasuki ..."* ]]
    [ "$(grep -c 'share a GPU' <<<"$output")" -eq 1 ]
    run demo_steps -N2 --ntasks-per-node=2 --gpus-per-node=2
    [[ "$output" != *"share a GPU"* ]]
}

# The same with the environment of each task as this shell code makes it.
demo_tasks() {
    local demo=$srcdir/etc/demo code=$1
    shift
    srun --mpi=pmix "$@" sh -c "$code"'
        exec "$@"' sh "$TASUKI" train "$demo/digits.onnx" --data "$demo/digits-train.safetensors" \
        --global-batch 16 --batchnorm-samples 4 --steps 2 --stages 1 --log log $device
}

@test "tasks that are shown no GPU while others are end a run, with the task, its node and the line to use" {
    local none='[ $SLURM_PROCID -lt 3 ] || export CUDA_VISIBLE_DEVICES=NoDevFiles'
    with_driver
    for device in "" "--device cuda"; do
        run demo_tasks "$none" -N2 --ntasks-per-node=2 --gpus-per-node=2
        echo "$output"
        [ "$status" -ne 0 ]
        [[ "$output" == *"rank 3 (n"?") is shown no GPU, 3 of 4 ranks are; use srun --mpi=pmix -N2 \
--ntasks-per-node=2 --gpus-per-node=2 --gpu-bind=none tasuki ..."* ]]
        [ "$(grep -c 'is shown no GPU' <<<"$output")" -eq 1 ]
        [ -n "$device" ] || [[ "$output" == *", or --device cpu, where none are meant"* ]]
        [ -z "$device" ] || [[ "$output" != *"--device cpu"* ]]
    done
    device="--device cpu"
    demo_tasks "$none" -N2 --ntasks-per-node=2 --gpus-per-node=2
}

@test "where no task is shown a GPU --device cuda is one error, with the line to use" {
    with_driver
    device="--device cuda"
    run demo_tasks 'export CUDA_VISIBLE_DEVICES=NoDevFiles' -N2 --ntasks-per-node=1
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" == *"n"?" has 4 GPUs"*", and no rank is shown any; use srun --mpi=pmix -N2 \
--ntasks-per-node=4 --gpus-per-node=4 tasuki ..."* ]]
    [ "$(grep -c 'no rank is shown any' <<<"$output")" -eq 1 ]
    [[ "$output" != *"no GPU can be used"* ]]
}

# A control group for each task is a driver that shows each another GPU.
@test "tasks whose GPUs are hidden from each other are warned of once, with the line to use" {
    local own='export TASUKI_FAKE_NVML=$PWD/own$SLURM_LOCALID CUDA_VISIBLE_DEVICES=0'
    with_driver
    printf 'gpu 0000:10:00.0\nname Tesla P100-SXM2-16GB\nuuid GPU-1\n' >own0
    printf 'gpu 0000:20:00.0\nname Tesla P100-SXM2-16GB\nuuid GPU-2\n' >own1
    device="--device cuda"
    run demo_tasks "$own" -N2 --ntasks-per-node=2 --gpus-per-task=1
    echo "$output"
    [[ "$output" == *"warning: 4 of 4 ranks, rank 0 (n"?") for one, are shown their own GPUs only \
(--gpus-per-task, --gpu-bind), which cannot reach each other by NVLink or PCIe then; use srun \
--mpi=pmix -N2 --ntasks-per-node=2 --gpus-per-node=2 --gpu-bind=none tasuki ..."* ]]
    [ "$(grep -c 'their own GPUs only' <<<"$output")" -eq 1 ]
    # One on each node has nobody to reach there, and one driver for all hides nothing.
    run demo_tasks "$own" -N2 --ntasks-per-node=1 --gpus-per-task=1
    [[ "$output" != *"their own GPUs only"* ]]
    run demo_steps -N2 --ntasks-per-node=2 --gpus-per-node=2 --gpu-bind=none
    [[ "$output" != *"their own GPUs only"* ]]
    # The check has the line, too.
    run srun --mpi=pmix -N2 --ntasks-per-node=2 --gpus-per-task=1 sh -c "$own"'
        exec "$@"' sh "$TASUKI" topo --check --measure none
    echo "$output"
    [[ "$output" == *"GPUs are isolated"*"srun --mpi=pmix --ntasks-per-node=N --gpus-per-node=N \
--gpu-bind=none tasuki ..."* ]]
}

@test "a run says that --cpus-per-task was not inherited" {
    device="--device cpu"
    SLURM_CPUS_PER_TASK=2 run demo_steps -N1 -n1
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"1 of 1 ranks may run on fewer cores"*"srun does not inherit it; use srun \
--mpi=pmix -N1 --ntasks-per-node=1 --cpus-per-task=2 tasuki ..."* ]]
    rm log
    run demo_steps -N1 -n1 --cpus-per-task=2
    [[ "$output" != *"fewer cores"* ]]
}

# Slurm stands in for the mpirun of another scheduler, whose job has other nodes, or fewer slots.
@test "ranks of mpirun on nodes that are not the job's, or too many, are an error with the line to use" {
    local demo=$srcdir/etc/demo
    ranks_on() {
        printf '%s all.q@x UNDEFINED\n' "$@" >nodes
        run "$lab" run timeout 300 salloc -Q -N2 -w n1,n2 --ntasks-per-node=2 \
            mpirun -n 4 --map-by ppr:2:node:oversubscribe env -u SLURM_JOB_ID -u SLURM_STEP_ID \
            -u OMPI_MCA_mpi_oversubscribe SGE_TASK_ID=undefined JOB_ID=7 PE_HOSTFILE="$PWD/nodes" \
            "$TASUKI" train "$demo/digits.onnx" --data "$demo/digits-train.safetensors" --device cpu \
            --global-batch 16 --batchnorm-samples 4 --steps 1 --stages 1 --launcher none
        echo "$output"
    }
    ranks_on "n1 2" "n3 2"
    [ "$status" -ne 0 ]
    [[ "$output" == *"rank 2 is on n2, which is no node of this job of Grid Engine \
(PE_HOSTFILE=$PWD/nodes); use mpirun -n 4 --map-by ppr:2:node tasuki ..."* ]]
    [ "$(grep -c 'is no node of this job' <<<"$output")" -eq 1 ]
    ranks_on "n1 2" "n2 1"
    [ "$status" -ne 0 ]
    [[ "$output" == *"2 ranks are on n2, where this job of Grid Engine has 1 slot "* ]]
    ranks_on "n1.site 2" "n2.site 2"
    [ "$status" -eq 0 ]
}

# The last one: outside of the lab its address leads nowhere; then its controller is gone.
@test "a Slurm that does not answer is one line" {
    SLURM_CONF=/nonexistent/slurm.conf run timeout 300 "$TASUKI" topo --job 1
    one_line 1 "SLURM_CONF=/nonexistent/slurm.conf: No such file"
    echo "nonsense" >slurm.conf
    SLURM_CONF=$PWD/slurm.conf run timeout 300 "$TASUKI" topo --job 1
    one_line 1 "job 1: Slurm does not answer: "
    "$lab" run pkill -9 slurmctld
    run topo --job 1
    one_line 1 "job 1: Slurm: the job: Unable to contact slurm controller"
}
