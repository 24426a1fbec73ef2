# SPDX-License-Identifier: MIT
# File systems of checkpoints that fail, in a real Slurm: full, read-only and slow ones, which all
# nodes share; and a checkpoint in which a bit is another.

bats_require_minimum_version 1.5.0
load common

THROTTLE=/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device

# What nodes are to have is mounted before they are there.
setup_file() {
    export LAB_DIR=$BATS_FILE_TMPDIR/lab LAB_NODES=4 LAB_CPUS=4
    export BOX=$BATS_FILE_TMPDIR/box SLOW=$BATS_FILE_TMPDIR/slow
    mkdir "$BOX" "$SLOW"
    if [ "$(id -u)" = 0 ] && [ -z "$("$srcdir/tests/slurm/lab" why-not)" ]; then
        mount -t tmpfs -o size=16m none "$BOX"
        mount_slow
    fi
    start_slurm_lab
}

teardown_file() {
    local loop
    stop_lab
    [ -z "$(awk -v at="$BOX" '$2 == at' /proc/mounts)" ] || umount "$BOX"
    loop=$(awk -v at="$SLOW" '$2 == at { print $1 }' /proc/mounts)
    [ -n "$loop" ] || return 0
    throttle "$loop" 0
    umount "$SLOW"
    losetup -d "$loop"
}

# throttle DEVICE BYTES: that it takes in a second.
throttle() {
    echo "$(lsblk -dno MAJ:MIN "$1" | tr -d ' ') $2" >$THROTTLE
}

# A disk that can be made slow, if this machine has what it takes.
mount_slow() {
    local loop
    [ -w $THROTTLE ] || return 0
    truncate -s 64m "$BATS_FILE_TMPDIR/disk"
    mkfs.ext4 -q "$BATS_FILE_TMPDIR/disk" || return 0
    loop=$(losetup -f --show "$BATS_FILE_TMPDIR/disk") || return 0
    mount "$loop" "$SLOW" || losetup -d "$loop"
}

setup() {
    begin_in_lab --stages 2 --replicas 2,2
    rm -rf "$BOX"/*
}

# The launcher in an allocation of all nodes, in the background: "$job" is salloc.
start() {
    "$lab" run timeout -s KILL 240 salloc -Q -N4 --ntasks-per-node=1 --no-kill "$TASUKI" train \
        "${training[@]}" --log log "$@" >out 2>&1 3>&- &
    job=$!
}

# Step by step that of a run which nothing has disturbed, of $1 steps.
same_curve() {
    "$TASUKI" train "${training[@]}" --ranks-in-process 4 --steps "$1" --log alone -q
    last_of_each_step log >once
    same_losses once alone
    [ "$(wc -l <once)" -eq "$1" ]
}

# It is not tried again, and once there is room all goes on from what was complete.
@test "a disk that fills, or becomes read-only, ends a job with one error, and it can go on" {
    local spoil newest
    export TASUKI_TEST_WRITE_DELAY=0.3      # nothing is open for writing in between
    for spoil in fill read-only; do
        rm -rf log "$BOX"/*
        start --steps 1000000 --checkpoint "$BOX/c" --checkpoint-every 20
        wait_until has_line log '"event":"checkpoint"'
        if [ $spoil = fill ]; then
            cat /dev/zero >"$BOX/fill" 2>/dev/null || true
        else
            wait_until mount -o remount,ro "$BOX" 2>/dev/null
        fi
        ends_with 1
        [ "$(grep -c 'tasuki: .*error: ' out)" -eq 1 ]
        grep -Eqi 'error: .*(no space left|read-only)' out
        run ! grep 'going on from' out
        [ $spoil = fill ] || mount -o remount,rw "$BOX"
        rm -f "$BOX/fill"
        newest=$(sed -E 's/^step-0*//' "$BOX/c/latest")
        sed -i "/^{\"step\":$((newest + 1)),/,\$d" log      # what is lost
        start --steps $((newest + 6)) --checkpoint "$BOX/c" --resume
        ends_with 0
        grep -q "resuming from $BOX/c/$(printf 'step-%08d' "$newest")" out
        same_curve $((newest + 6))
    done
}

@test "a disk without room, or that cannot be written, is one error before the first step" {
    local code said
    cat /dev/zero >"$BOX/fill" 2>/dev/null || true
    for said in 'has [0-9.]* .* free|No space left' 'Read-only file system'; do
        start --steps 6 --checkpoint "$BOX/c"
        code=0
        wait $job || code=$?
        cat out
        [ $code -ne 0 ]
        grep -Eq "error: .*($said)" out
        run ! grep -q '^{"step"' log
        mount -o remount,ro "$BOX"
    done
    mount -o remount,rw "$BOX"
}

# A checkpoint here takes it some three seconds.
@test "a slow disk holds up no step; a rank that dies meanwhile is recovered from what was complete" {
    local slow
    slow=$(awk -v at="$SLOW" '$2 == at { print $1 }' /proc/mounts)
    [ -n "$slow" ] || skip "no $THROTTLE or no loop devices, by which a disk is made slow"
    throttle "$slow" 100000
    TASUKI_TEST_DELAY=1:30000 start --steps 40 --checkpoint "$SLOW/c" --checkpoint-every 4
    wait_until has_line log '"event":"checkpoint","step":4,'
    wait_until test -e "$SLOW/c/.step-00000008.tmp"
    "$lab" at n3 pkill -9 -x tasuki
    ends_with 0
    grep -q 'rank 2 (n3) is lost' out
    grep -q 'going on from step-00000004 with 4 nodes, restart 1 of at most 3' out
    awk '/^{"step":5,/ { five = 1 } /"event":"checkpoint","step":4,/ { later = five }
        END { exit !later }' log
    [ ! -e "$SLOW/c/.step-00000008.tmp" ]
    same_curve 40
}

# flip FILE: a bit in its middle.
flip() {
    python3 -c '
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(0, 2); f.seek(f.tell() // 2); byte = f.read(1)[0]; f.seek(-1, 1); f.write(bytes([byte ^ 1]))' "$1"
}

@test "a checkpoint in which one bit has flipped is found, and the one before it is used" {
    start --steps 8 --checkpoint c --checkpoint-every 4
    ends_with 0
    flip c/step-00000008/shard-0002.safetensors
    start --steps 12 --checkpoint c --resume
    ends_with 0
    [ "$(grep -c 'warning: .*step-00000008/shard-0002.safetensors: damaged: its checksum is' out)" -eq 1 ]
    grep -q 'resuming from c/step-00000004' out
    same_curve 12
}
