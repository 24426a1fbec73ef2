# SPDX-License-Identifier: MIT
# Calls that fail, and a rank that dies, while links between GPUs are measured.

load common
load gpus

# The second GPU, of rank 1, is the one that fails.
fails_with() {
    no_wires
    awk -v fault="error $1" '{ print } /^gpu 0000:07/ { print fault }' machine >failing
    mv failing machine
    run topo_of_gpus 2
    echo "$1: $output"
    [ "$status" -eq 1 ]
    [ "$(grep -c '^tasuki: ' <<<"$output")" -eq 1 ]
    grep -qE "^tasuki: (rank 1: )?error: rank 1 \(.*\): GPU 0000:07:00.0: ${1%% *}: $2\$" \
        <<<"$output"
    [[ "$output" != *"GPU links"* ]]
}

@test "a call of CUDA that fails is one error with rank, GPU and call, and all ranks end" {
    fails_with "cudaSetDevice 46" "error 46"
    for call in cudaStreamCreateWithFlags cudaEventCreateWithFlags cudaMalloc cudaMallocHost \
                cudaMemcpyAsync cudaStreamSynchronize cudaEventRecord cudaEventQuery; do
        fails_with "$call 2" "out of memory"
    done
    fails_with "cudaEventQuery 719 50" "error 719"
}

@test "a call of NCCL that fails is one error with rank, GPU and call, and all ranks end" {
    needs_nccl
    for call in ncclCommInitRankConfig ncclCommGetAsyncError ncclGroupStart ncclSend ncclRecv \
                ncclGroupEnd ncclCommFinalize; do
        fails_with "$call 5" "invalid usage"
    done
    fails_with "ncclSend 5 20" "invalid usage"
    fails_with "ncclCommGetAsyncError 6 30" "error 6"
}

@test "when a rank dies while GPU links are measured, the others end" {
    needs_nccl
    no_wires
    awk '{ print } /^gpu 0000:07/ { print "error ncclSend -1 20" }' machine >failing
    mv failing machine
    run topo_of_gpus 3
    echo "$output"
    [ "$status" -ne 0 ]
    [ "$status" -ne 124 ]
    [[ "$output" != *"GPU links"* ]]
}
