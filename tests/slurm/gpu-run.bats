# SPDX-License-Identifier: MIT
# What tests/gpu/run runs on a machine with a GPU, over the stand-in.

load common

setup() {
    local reason
    reason=$(no_stand_in)
    [ -n "$reason" ] || command -v python3 >/dev/null || reason="no python3"
    [ -z "$reason" ] || skip "$reason"
    cd "$BATS_TEST_TMPDIR"
    export TASUKI_FAKE_NVML=$PWD/machine TASUKI_GPU_PRELOAD=$builddir/tests/.libs/fake_cuda.so
    export ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0:detect_leaks=0
    # Of what a step should take, and takes, over the stand-in nothing is asked.
    export TASUKI_TEST_HASTE=1
    echo "gpu 0000:1b:00.0" >machine
}

checks() {
    python3 "$srcdir/tests/gpu/checks.py" --top "$srcdir" --build "$builddir" "$@"
}

@test "the checks for a machine with one GPU end, and leave a table" {
    run checks --results "$srcdir/tests/gpu/results"
    [ "$status" -eq 1 ]
    [[ "$output" == *"results of a stand-in are none to keep"* ]]
    run checks --results results --checks curves,features,sanitizer --curves mlp \
        --features "recompute,zb-v,resumed$([ -z "${TASUKI_TEST_LONG:-}" ] || echo ,zero,lamb)"
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^ok  .*curve' results/*-fake-gpu.txt)" -eq 6 ]
    [ "$(grep -c '^ok  .*feature' results/*-fake-gpu.txt)" -ge 3 ]
    grep -q '^skipped .*memcheck' results/*-fake-gpu.txt
    python3 -m json.tool results/*-fake-gpu.json >/dev/null
}

# Without what it was built with, and with no library of the system's own by their names.
@test "what is carried along runs where nothing is built" {
    local library
    "$srcdir/tests/gpu/carry" --build "$builddir" carried
    [ -e carried/lib/libjansson.so.4 ]
    ! ls carried/lib | grep -E '^lib(c|cuda[^/]*|cudnn|nccl)\.so' || false
    # From there, and from nowhere else.
    for library in $(ls carried/lib); do
        LD_LIBRARY_PATH=$PWD/carried/lib ldd carried/tasuki carried/tests/unit/test_ops |
            awk -v name="$library" -v place="$PWD/carried/lib/" '
                $1 == name && index($3, place) != 1 { print; bad = 1 } END { exit bad }'
    done
    run env -u TASUKI -u TASUKI_PKGLIBDIR PATH=/usr/bin:/bin TASUKI_PYTHON=/bin/false \
        "$srcdir/tests/gpu/run" --carried carried --results results --checks features --features no-graphs
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^ok  .*feature' results/*-fake-gpu.txt)" -eq 1 ]
}

@test "a share of a peak is of what is known, and a row without tensor cores fails" {
    PYTHONPATH=$srcdir/tests/gpu PYTHONDONTWRITEBYTECODE=1 python3 - <<'END'
from peaks import PEAKS, peak
assert peak("NVIDIA H200, sm_90, CUDA 13.0", "bf16") == 989.5e12
assert peak("NVIDIA H200, sm_90, CUDA 13.0", "tf32") == 494.5e12
assert peak("NVIDIA H100 PCIe, sm_90, CUDA 12.4", "fp16") == 756e12
assert peak("Tesla V100-SXM2-16GB, sm_70, CUDA 12.4", "float32") == 15.7e12
assert peak("Fake GPU, sm_90, CUDA 13.0", "bf16") is None
# The first that fits counts: none hides behind another.
names = [name for name, _ in PEAKS]
assert not any(b.startswith(a) for i, a in enumerate(names) for b in names[i + 1:])

from checks import tensor_cores
def log(products, on_them):
    return [{"event": "end", "tensor_cores": {"products": products, "on_them": on_them}}]
assert tensor_cores(log(40, 38), "bf16") == {"on tensor cores": "38 of 40"}
assert tensor_cores(log(40, 0), "float32") == {"on tensor cores": "0 of 40"}
for precision in ("tf32", "bf16", "fp16"):
    try:
        tensor_cores(log(40, 0), precision)
    except RuntimeError as error:
        assert f"none of 40 products in {precision}" in str(error)
    else:
        raise AssertionError(precision)
END
}

@test "hazards that racecheck sees in kernels of libraries are counted, others fail" {
    PYTHONPATH=$srcdir/tests/gpu PYTHONDONTWRITEBYTECODE=1 python3 - <<'END'
from checks import hazards
def race(write, read):
    return (f"========= Error: Race reported between Write access at {write}+0x4d00\n"
            f"=========     and Read access at {read}+0x1f40 [128 hazards]\n")
def summary(n):
    return f"========= RACECHECK SUMMARY: {n} hazards displayed ({n} errors, 0 warnings)\n"
sdpa = "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_kernel0_0"
own = "void softmax_rows_float(cuda_softmax)"
assert hazards(summary(0)) == {}
assert hazards(race(sdpa, sdpa) + summary(1)) == {"hazards, all in libraries": 1}
for text in (race(sdpa, sdpa) + race(own, own) + summary(2), race(sdpa, own) + summary(1),
             summary(3), ""):
    try:
        hazards(text)
    except RuntimeError:
        continue
    raise AssertionError(text)
END
}

@test "PyTorch's side that ends, hangs or says other things, too, is a note of its row" {
    mkdir stand-in
    cat >stand-in/rival.py <<'END'
import sys, time
if sys.argv[1] == "ends":
    sys.exit("no memory")
print('{"a library": says this}', flush=True)
print('rival: "ready"', flush=True)
for line in sys.stdin:
    if line == "hangs\n":
        time.sleep(600)
    print('{"and": this}\nrival: {"eager": [0.5, 1e9]}', flush=True)
END
    PYTHONPATH=$srcdir/tests/gpu PYTHONDONTWRITEBYTECODE=1 timeout 60 python3 - <<'END'
import os
import types
import checks as program
program.HERE = os.path.abspath("stand-in")
args = types.SimpleNamespace(networks="a:bf16,b,a:fp16+tf32", precisions="bf16", beside="eager", steps=1,
                             models=os.getcwd(), timeout=3)
assert program.timed(args) == {"a": ["bf16", "fp16", "tf32"], "b": ["bf16"]}
checks = types.SimpleNamespace(args=args, directory=os.getcwd())
rival = program.Rival(checks, "a", ["bf16"])
found = program.beside_pytorch(rival, "bf16", 0.25)
assert found == {"PyTorch eager ms": 500.0, "as fast as eager": 2.0, "eager GB": 1.0}, found
for _ in range(2):      # killed after 3 s, and then gone
    assert list(program.beside_pytorch(rival, "hangs", 0.25)) == ["PyTorch"]
rival.end()
rival = program.Rival(checks, "ends", ["bf16"])
assert "ended" in program.beside_pytorch(rival, "bf16", 0.25)["PyTorch"]
rival.end()
END
}

@test "a check that raises anything is a row that failed, and ends nothing" {
    PYTHONPATH=$srcdir/tests/gpu PYTHONDONTWRITEBYTECODE=1 python3 - <<'END'
import os
import types
from checks import Checks
checks = Checks(types.SimpleNamespace(build="", jobs=2), os.getcwd())
checks.path = os.path.abspath("table")
checks.row("check", "first", lambda: [].pop())
checks.row("check", "second", lambda: {"figure": 1.5})
checks.alone("check", "third", lambda: int("x"))
checks.finish()
results = [row["result"] for row in checks.rows]
assert results == ["FAILED", "ok", "FAILED"], results
assert "ValueError" in open("table.txt").read()
END
}

needs_torch() {
    for python in "${TASUKI_PYTHON-}" python3; do
        [ -n "$python" ] && "$python" -c 'import torch, onnx, onnxscript' 2>/dev/null && return
    done
    skip "no Python with torch and onnx"
}

@test "curves of small networks are those of PyTorch, from the same weights" {
    needs_torch
    run "$python" "$srcdir/tests/gpu/checks.py" --top "$srcdir" --build "$builddir" \
        --results results --checks torch-curves --torch-curves mlp
    echo "$output"
    [ "$status" -eq 0 ]
    [ "$(grep -c '^ok  .*torch-curve' results/*-fake-gpu.txt)" -eq 2 ]
}

@test "the largest number that fits is found, and nothing is asked twice" {
    PYTHONPATH=$srcdir/tests/gpu PYTHONDONTWRITEBYTECODE=1 python3 - <<'END'
from capacity import largest
for n in range(70):
    for off in range(-3, 4):        # what two small ones foretell may be
        asked = []
        used = lambda layers: 50 + 10 * layers + (layers == 8) * off
        assert largest(lambda layers: asked.append(layers) or layers <= n, used, 59 + 10 * n) == n
        assert len(asked) == len(set(asked)) <= 8, asked
END
}

@test "how many layers fit is found by planning, and they train" {
    [ -n "${TASUKI_TEST_LONG:-}" ] || skip "plans and trains networks of some sizes: make check-long"
    needs_torch
    run "$python" "$srcdir/tests/gpu/checks.py" --top "$srcdir" --build "$builddir" \
        --results results --checks capacity --capacity 64,64,8,2,6000000
    echo "$output"
    [ "$status" -eq 0 ]
    grep -qE '^ok  .*capacity .*planned ([0-9]+), layers \1, GB 0\.00' results/*-fake-gpu.txt
}
