# SPDX-License-Identifier: MIT
# What tests/gpu/run runs on a machine with a GPU, over the stand-in.

@test "the checks for a machine with one GPU end, and leave a table" {
    local reason=
    [ -e "$builddir/.libs/tasuki-cuda.so" ] || reason="built without CUDA"
    [ -n "$reason" ] || [ -e "$builddir/tests/.libs/fake_cuda.so" ] ||
        reason="fake_cuda.so is not built"
    [ -n "$reason" ] || command -v python3 >/dev/null || reason="no python3"
    [ -z "$reason" ] || skip "$reason"
    cd "$BATS_TEST_TMPDIR"
    export TASUKI_FAKE_NVML=$PWD/machine TASUKI_GPU_PRELOAD=$builddir/tests/.libs/fake_cuda.so
    export ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0:detect_leaks=0
    echo "gpu 0000:1b:00.0" >machine
    run python3 "$srcdir/tests/gpu/checks.py" --top "$srcdir" --build "$builddir" \
        --results "$srcdir/tests/gpu/results"
    [ "$status" -eq 1 ]
    [[ "$output" == *"results of a stand-in are none to keep"* ]]
    run python3 "$srcdir/tests/gpu/checks.py" --top "$srcdir" --build "$builddir" \
        --results results --checks curves,sanitizer --curves mlp
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^ok  .*curve' results/*-fake-gpu.txt)" -eq 6 ]
    grep -q '^skipped .*memcheck' results/*-fake-gpu.txt
    python3 -m json.tool results/*-fake-gpu.json >/dev/null
}
