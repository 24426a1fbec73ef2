# SPDX-License-Identifier: MIT
# tasuki topo on a Slurm that groups its nodes into blocks (topology/block, since 23.11).

load common

setup_file() {
    local reason version
    export LAB_DIR=$BATS_FILE_TMPDIR/lab LAB_NODES=4 LAB_CPUS=2 LAB_LEAF=2 LAB_TOPOLOGY=block
    reason=$(no_mpi)
    version=$(slurmctld -V 2>/dev/null | sed -nE 's/^slurm[a-z-]* ([0-9]+)\.([0-9]+).*/\1\2/p')
    [ -n "$reason" ] || [ "${version:-2311}" -ge 2311 ] ||
        reason="this Slurm has no topology/block"
    start_lab "$reason"
}

teardown_file() {
    stop_lab
}

@test "the nodes of a block hang together below it" {
    [ -z "$WHY_NOT" ] || skip "$WHY_NOT"
    mpi_environment
    run srun --mpi=pmix -N4 --ntasks-per-node=1 "$TASUKI" topo \
        --measure none
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"switches (SLURM_TOPOLOGY_ADDR)
  b1                 n[1-2]
  b2                 n[3-4]
"* ]]
}

@test "a partition says why its blocks are not known" {
    [ -z "$WHY_NOT" ] || skip "$WHY_NOT"
    [ -e "$TASUKI_PKGLIBDIR/tasuki-slurm.so" ] || skip "built without Slurm"
    run "$lab" run "$TASUKI" topo --partition main
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"not collected: libslurm shows them to no program since 23.11"* ]]
}
