# SPDX-License-Identifier: MIT
# A node with four GPUs, and wires between them that take the time that they say.

# NVLinks join the first two GPUs of four, a PCIe switch the others.
setup() {
    local reason
    reason=$(no_mpi)
    [ -n "$reason" ] || [ -e "$builddir/.libs/tasuki-cuda.so" ] || reason="built without CUDA"
    [ -n "$reason" ] || [ -e "$builddir/tests/.libs/fake_cuda.so" ] ||
        reason="fake_cuda.so is not built"
    [ -z "$reason" ] || skip "$reason"
    mpi_environment
    cd "$BATS_TEST_TMPDIR"
    # Sanitizers want to be the first library.
    export ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0
    export HWLOC_XMLFILE=$srcdir/tests/data/topo/omni-path/hwloc.xml
    export TASUKI_NVML=$builddir/tests/.libs/fake_nvml.so TASUKI_FAKE_NVML=$PWD/machine
    awk '$1 == "gpu" { gpu = $2 }
        $1 == "link" && (gpu ~ /:8[67]:/ || $5 ~ /:8[67]:/) { $3 = "down" }
        { print }' "$srcdir/tests/data/topo/omni-path/nvml.txt" >good
    cat >>good <<'END'
wire host host 1e-4 1e9
wire 0000:06:00.0 0000:07:00.0 10e-3 40e6
wire 0000:86:00.0 0000:87:00.0 15e-3 30e6
wire * * 20e-3 20e6
END
    cp good machine
}

needs_nccl() {
    grep -q ncclSend "$builddir/.libs/tasuki-cuda.so" || skip "built without NCCL"
}

# So many ranks run this with GPUs. mpirun itself shall not see the stand-in.
ranks() {
    local n=$1
    shift
    timeout 300 mpirun -n $n -x LD_PRELOAD="$builddir/tests/.libs/fake_cuda.so" "$@"
}

topo_of_gpus() {
    local n=$1
    shift
    ranks $n "$TASUKI" topo "$@"
}

# The report says which rank takes no part and why.
is_told() {
    grep "^GPU links: not measured: rank $1" report
}

# Wires so fast that they take no time.
no_wires() {
    sed '/^wire/d' good >machine
}
