# SPDX-License-Identifier: MIT
# Scripts that "tasuki submit" writes, without a scheduler.

bats_require_minimum_version 1.5.0

setup() {
    cd "$BATS_TEST_TMPDIR"
    printf x >net.onnx
    training=(net.onnx --data d.safetensors --global-batch 8 --steps 4)
    mkdir tools modules
    export TASUKI_PKGLIBDIR=$PWD/modules    # no libslurm: nobody is asked
    export TASUKI_THREADS=1
}

# A tool of a scheduler that notes how it was called.
tool() {
    printf '#!/bin/sh\nprintf "%%s\\n" "$@" >%s/called\necho 4711\nexit %s\n' "$PWD" "${2:-0}" \
        >"tools/$1"
    chmod +x "tools/$1"
}

script() {
    "$TASUKI" submit "${training[@]}" --dry-run "$@" 2>talk
}

@test "a dry run prints the script and writes nothing" {
    script --nodes 4 --ntasks-per-node 8 --time 1-2:30 --partition gpu --job-name 'my run' \
        --max-restarts 7 -o "out dir/%j" >../job.sh
    rm talk
    [ "$(ls)" = $'modules\nnet.onnx\ntools' ]
    cat ../job.sh
    grep -qx "#SBATCH --job-name='my run'" ../job.sh
    grep -qx '#SBATCH --nodes=4' ../job.sh
    grep -qx '#SBATCH --ntasks-per-node=8' ../job.sh
    grep -qx '#SBATCH --time=26:30:00' ../job.sh
    grep -qx '#SBATCH --signal=B:USR1@300' ../job.sh
    grep -qx '#SBATCH --partition=gpu' ../job.sh
    grep -qx "#SBATCH --output='out dir/%j'" ../job.sh
    grep -q 'train my-run-1/job.conf' ../job.sh
    ! grep -q '@[A-Z]*@' ../job.sh || false
    ! grep -q 'gpus-per-node' ../job.sh || false
}

@test "times are Slurm's, and the notice before a short limit is shorter" {
    while read -r given time notice; do
        script --time "$given" >job.sh
        grep -x "#SBATCH --time=$time" job.sh
        grep -x "#SBATCH --signal=B:USR1@$notice" job.sh
    done <<'END'
90 1:30:00 300
10:30 0:10:30 126
2:00:00 2:00:00 300
1-0 24:00:00 300
1-2:03:04 26:03:04 300
2 0:02:00 60
1 0:01:00 30
END
}

@test "GPUs are asked for where ranks have them" {
    script --device cuda --nodes 2 --cluster dgx-h100 >job.sh
    grep -x '#SBATCH --ntasks-per-node=8' job.sh
    grep -x '#SBATCH --gpus-per-node=8' job.sh
    grep -x '#SBATCH --no-kill' job.sh
}

@test "scripts of all schedulers are sound, whatever the names in them" {
    local scheduler
    mkdir "it's here"
    cd "it's here"
    printf x >'a b.onnx'
    for scheduler in slurm pjm pbs sge; do
        "$TASUKI" submit 'a b.onnx' --data "d'; touch bad; '" --global-batch 8 --steps 4 -n \
            --scheduler $scheduler --job-name "\$(touch bad)" --directory '`touch bad`' \
            --time 60 --nodes 2 >$scheduler.sh -- --comment "it's; touch bad"
        bash -n $scheduler.sh
        ! grep -q '@[A-Z]*@' $scheduler.sh || false
        if command -v shellcheck; then shellcheck -S warning -e SC2016 $scheduler.sh; fi
    done
    # The script itself: it becomes tasuki, with a process of its own no longer.
    printf '#!/bin/sh\necho "$$ $TASUKI_JOB_END $@"\nkill -s USR1 $$\nexit 75\n' >tasuki
    chmod +x tasuki
    sed -i "s,^exec .*tasuki'\{0\,1\} train,exec tasuki train," slurm.sh
    grep -q '^exec tasuki train' slurm.sh
    PATH=$PWD:$PATH TASUKI_JOB_END=1 run bash -c 'echo $$; exec bash slurm.sh'
    echo "$output"
    [ "$status" -eq 75 ]
    [[ "${lines[1]}" == "${lines[0]}  train "*job.conf* ]]
    [ ! -e bad ]
}

@test "sbatch gets the script and what follows --, and its output and status are given on" {
    tool sbatch 3
    PATH=$PWD/tools:$PATH run --separate-stderr "$TASUKI" submit "${training[@]}" \
        --nodes 2 -- --account phys --begin 'now+1 hour'
    echo "$output $stderr"
    [ "$status" -eq 3 ]
    [ "$output" = 4711 ]
    [[ "$stderr" == *"limits are not checked: "*"tasuki-slurm.so is not installed"* ]]
    diff called - <<<$'--parsable\n--account\nphys\n--begin\nnow+1 hour\nnet-1/job.sh'
    [ -x net-1/job.sh ]
}

@test "each run has a directory of its own, with the settings of train, by the umask" {
    tool sbatch
    export PATH=$PWD/tools:$PATH
    umask 027
    "$TASUKI" submit "${training[@]}" --lr 0.5 --nodes 2 --time 5
    "$TASUKI" submit "${training[@]}" --checkpoint ck --log l
    [ "$(stat -c %a net-1 net-1/job.sh net-1/job.conf | xargs)" = "750 750 640" ]
    diff <(grep -v '^#' net-1/job.conf | sort) <({
        "$TASUKI" train "${training[@]}" --lr 0.5 --checkpoint net-1/checkpoints --resume \
            --log net-1/log.jsonl --print-config; } | sort)
    grep -x 'checkpoint = ck' net-2/job.conf
    grep -x 'log = l' net-2/job.conf
    run "$TASUKI" submit "${training[@]}" --directory net-1
    [ "$status" -eq 1 ]
    [[ "$output" == *"net-1/job.conf: another run's: choose another --directory"* ]]
    # A script that is there: what else was written goes, and a directory that was there stays.
    mkdir mine empty
    echo other >mine/job.sh
    run "$TASUKI" submit "${training[@]}" --directory mine
    [ "$status" -eq 1 ]
    [ "$(ls mine)" = job.sh ]
    [ "$(cat mine/job.sh)" = other ]
    run "$TASUKI" submit "${training[@]}" --directory empty --nodes 1..2
    [ "$status" -ne 0 ]
    [ -d empty ]
    # A job file is taken, and may say how many nodes; the command line is stronger.
    printf '%s\n' 'model = net.onnx' 'data = d' 'global-batch = 8' 'steps = 2' 'nodes = 3' \
        'time = 9' >j.conf
    "$TASUKI" submit j.conf --time 8
    grep -x '#SBATCH --nodes=3' net-3/job.sh
    grep -x '#SBATCH --time=0:08:00' net-3/job.sh
    "$TASUKI" train net-1/job.conf --print-config | grep -x 'lr = 0.5'
}

@test "tasks of an array have names of their own for what they write" {
    local given
    tool sbatch
    export PATH=$PWD/tools:$PATH
    for given in "--array=0-3" "--array 0-3" "-a0-3" "-a 0-3"; do
        "$TASUKI" submit "${training[@]}" --directory own -- $given
        grep -x 'checkpoint = own/checkpoints-%a' own/job.conf
        grep -x 'log = own/log-%a.jsonl' own/job.conf
        grep -x '#SBATCH --output=own/job-%A_%a.out' own/job.sh
        rm -r own
    done
    "$TASUKI" submit "${training[@]}" --directory own --checkpoint c -- --array=0-3
    grep -x 'checkpoint = c' own/job.conf
    "$TASUKI" submit "${training[@]}" --directory plain -- --account a
    grep -x 'checkpoint = plain/checkpoints' plain/job.conf
}

# A job of a script whose run writes a checkpoint and is not done: how it has itself submitted.
continued() {
    local script=$1
    shift
    printf '#!/bin/sh\nexit 75\n' >tools/mpirun
    cp tools/mpirun tools/mpiexec
    chmod +x tools/mpirun tools/mpiexec
    rm -f called
    run env "$@" PATH="$PWD/tools:$PATH" bash "$script"
    [ "$status" -eq 75 ]
    xargs <called
}

# alone SCHEDULER VARIABLES AGAIN OPTIONS...: a task of an array, asked for by each of the options,
# submits itself by AGAIN.
alone() {
    local scheduler=$1 variables=$2 again=$3 given
    shift 3
    for given; do
        rm -rf "$scheduler"
        "$TASUKI" submit "${training[@]}" --scheduler "$scheduler" --directory "$scheduler" -- $given
        [ "$(continued "$scheduler/job.sh" $variables)" = "$again $scheduler/job.sh" ]
        grep -x "checkpoint = $scheduler/checkpoints-%a" "$scheduler/job.conf"
        grep -x "log = $scheduler/log-%a.jsonl" "$scheduler/job.conf"
    done
}

# The same of what is no array.
as_before() {
    local scheduler=$1 variables=$2 again=$3
    shift 3
    rm -rf "$scheduler"
    "$TASUKI" submit "${training[@]}" --scheduler "$scheduler" --directory "$scheduler" -- "$@"
    [ "$(continued "$scheduler/job.sh" $variables)" = "$again $scheduler/job.sh" ]
    grep -x "log = $scheduler/log.jsonl" "$scheduler/job.conf"
}

@test "with other schedulers a task of an array goes on alone, and finds what it wrote" {
    tool qsub
    tool pjsub
    export PATH=$PWD/tools:$PATH
    alone pbs "PBS_ARRAY_INDEX=5 TASUKI_RESTARTS=2" "-v TASUKI_RESTARTS=3 -J 5-6:2 -A a" \
        "-J 0-9 -A a" "-A a -J0-9" "-J 0-9:3 -A a"
    alone sge SGE_TASK_ID=5 "-v TASUKI_RESTARTS=1 -t 5 -tc 3" "-t 1-9 -tc 3" "-tc 3 -t1-9" "-t 4 -tc 3"
    grep -F 'sge/job-$TASK_ID.out' sge/job.sh
    alone pjm PJM_BULKNUM=0 "-x TASUKI_RESTARTS=1 --bulk --sparam 0-0 -g x" \
        "--bulk --sparam 0-9 -g x" "-g x --sparam=0-9 --bulk"
    run ! grep '^export TASUKI_JOB_END' pjm/job.sh
    as_before sge SGE_TASK_ID=undefined "-v TASUKI_RESTARTS=1 -pe mpi 2" -pe mpi 2
    as_before pbs "" "-v TASUKI_RESTARTS=1 -l x" -l x
    as_before pjm "" "-x TASUKI_RESTARTS=1"
    as_before pjm "" "-x TASUKI_RESTARTS=1 --step --sparam jid=7" --step --sparam jid=7
}

@test "other schedulers are found by their commands, which get the script and what follows --" {
    local only=$PWD/tools
    tool pjsub 3
    run --separate-stderr env PATH="$only" "$TASUKI" submit "${training[@]}" --nodes 2 -- \
        -g 'my group'
    echo "$output $stderr"
    [ "$status" -eq 3 ]
    [ "$output" = 4711 ]
    diff called - <<<$'-g\nmy group\nnet-1/job.sh'
    grep -x '#PJM -L node=2' net-1/job.sh
    rm tools/pjsub
    tool qsub
    PATH=$only SGE_ROOT=/sge "$TASUKI" submit "${training[@]}" -- -pe mpi 2
    grep -x '#$ -N net' net-2/job.sh
    diff called - <<<$'-terse\n-pe\nmpi\n2\nnet-2/job.sh'
    PATH=$only "$TASUKI" submit "${training[@]}"
    grep -x '#PBS -l select=1:ncpus=1:mpiprocs=1' net-3/job.sh
    diff called - <<<net-3/job.sh
}

@test "where the command of another scheduler is not here, the line to type there is printed" {
    while IFS='|' read -r scheduler line; do
        run --separate-stderr env PATH=/nonexistent "$TASUKI" submit "${training[@]}" \
            --scheduler $scheduler --directory $scheduler -- -g 'my group'
        echo "$output $stderr"
        [ "$status" -eq 0 ]
        [ "$output" = "$line" ]
        [[ "$stderr" == *"there is no ${line%% *} here; where there is one, submit the script by:"* ]]
        [ -x $scheduler/job.sh ]
        [ -e $scheduler/job.conf ]
    done <<'END'
pjm|pjsub -g 'my group' pjm/job.sh
pbs|qsub -g 'my group' pbs/job.sh
sge|qsub -g 'my group' sge/job.sh
END
}

@test "what cannot be submitted is refused by name, and leaves nothing" {
    local path=$PATH
    while IFS='|' read -r status_wanted options message; do
        PATH=/nonexistent run "$TASUKI" submit $options
        echo "$options: $status $output"
        [ "$status" -eq "$status_wanted" ]
        [[ "$output" == *"$message"* ]]
    done <<'END'
1|net.onnx --data d --global-batch 8 --steps 4|there is no Slurm here
1|net.onnx --data d --global-batch 8 --steps 4|without one mpirun starts the ranks: mpirun -n N tasuki
1|net.onnx --data d --global-batch 8 --steps 4 --scheduler slurm|there is no sbatch here; --dry-run
1|no.conf|no.conf: no such file
1|no.onnx --data d --global-batch 8 --steps 4|no.onnx: No such file
2|net.onnx --global-batch 8 --steps 4|--data is missing
2|net.onnx --data d --global-batch 8 --steps 4 --directory a%j --dry-run|--directory a%j: % begins
2|net.onnx --data d --global-batch 8|say either --epochs or --steps
2|net.onnx --data d --global-batch 8 --steps 4 --lr x|--lr: expected
2|net.onnx --data d --steps 4 --nodes 0|--nodes: expected a number of nodes, auto, or
2|net.onnx --data d --steps 4 --nodes 4..2|--nodes: expected
2|net.onnx --data d --steps 4 --nodes 2x|--nodes: expected
2|net.onnx --data d --steps 4 --time 1:2:3:4|--time: expected
2|net.onnx --data d --steps 4 --time 0|--time: expected
2|net.onnx --data d --steps 4 --scheduler lsf|--scheduler: expected
1|net.onnx --data d --steps 4 --nodes auto --dry-run|tasuki-slurm.so is not installed
END
    PATH=$path
    run "$TASUKI" submit "${training[@]}" --dry-run --job-name $'a\n#SBATCH --uid=0'
    echo "$output"
    [ "$status" -eq 2 ]
    [[ "$output" == *"control characters"* ]]
    [ "$(ls)" = $'modules\nnet.onnx\ntools' ]
}

@test "sizes are compared without Slurm where a range is given" {
    demo=$srcdir/etc/demo
    mkdir temporary
    TMPDIR=$PWD/temporary "$TASUKI" submit "$demo/digits.onnx" --steps 4 --global-batch 32 \
        --data "$demo/digits-train.safetensors" --stages 1 --nodes 1..2 -n --no-cache \
        --cluster tree:2x1,inside=1e9,across=1e9 >job.sh 2>talk
    cat talk
    [ -z "$(ls temporary)" ]
    grep -q 'Recommended: [12] nodes' talk
    grep -x "#SBATCH --nodes=$(sed -nE 's/.*Recommended: ([12]) nodes.*/\1/p' talk)" job.sh
}

# Nobody can end the guard of a job on a node that is cut off.
@test "a guard whom Slurm does not answer leaves" {
    export TASUKI_PKGLIBDIR=$builddir/.libs
    [ -e "$TASUKI_PKGLIBDIR/tasuki-slurm.so" ] || skip "built without slurm"
    printf '%s\n' ClusterName=none SlurmctldHost=localhost SlurmctldPort=1 AuthType=auth/none \
        >slurm.conf
    SLURM_CONF=$PWD/slurm.conf SLURM_JOB_ID=1 SLURM_STEP_ID=0 TASUKI_GUARD=n1 \
        run timeout 300 "$TASUKI" train
    [ "$status" -eq 1 ]
    [ -z "$output" ]
}
