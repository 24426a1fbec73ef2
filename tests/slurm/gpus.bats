# SPDX-License-Identifier: MIT
# Links between GPUs, measured by tasuki-cuda.so over stand-ins of NVML, CUDA and NCCL.

load common
load gpus

# Prints what of topo.json is more than 20 % from CLASS SECONDS BYTES/S, and fails: bandwidth,
# and what a short, a middling and the longest message take by the figures. Where it waits a rank
# sleeps a tenth of what it has waited already: half of the 20 %; what others do is the rest.
agrees() {
    python3 - "$@" <<'END'
import json, sys
gpus = json.load(open("topo.json"))["gpus"]
node = gpus["cluster"]["root"]["children"][0]
island = next(c for c in node["children"] if c["kind"] == "island")
classes = {c["class"]: c for c in gpus["measured"]["classes"]}
wrong = []
def check(what, value, truth):
    if abs(value / truth - 1) > 0.2:
        wrong.append("%s: %g for %g" % (what, value, truth))
def seconds(place, bandwidth, size):
    eager = place.get("eager")
    if not eager or size > eager["bytes"]:
        return place["latency"] + size / bandwidth
    return eager["latency"] + size / eager.get("copy_bandwidth", 1e99) + size / bandwidth
def check_line(what, place, bandwidth, latency, truth):
    check(what + ", bandwidth", bandwidth, truth)
    for size in 8, 49152, 3145728:
        check("%s, %d bytes" % (what, size), seconds(place, bandwidth, size),
              latency + size / truth)
for at in range(1, len(sys.argv), 3):
    name, latency, bandwidth = sys.argv[at], float(sys.argv[at + 1]), float(sys.argv[at + 2])
    check_line(name, classes[name], classes[name]["bandwidth"], latency, bandwidth)
    if name.startswith("NV"):
        check_line("the island", island, island["children"][0]["bandwidth"], latency, bandwidth)
        assert island["latency_origin"] == "measured"
        assert all(c["origin"] == "measured" for c in island["children"])
assert node["latency_origin"] == "measured"
print("\n".join(wrong))
sys.exit(len(wrong) > 0)
END
}

@test "bytes arrive as they were sent, by NCCL and through the hosts" {
    no_wires
    run ranks 2 "$builddir/tests/gpu_check"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"hosts: ok"* ]]
    needs_nccl
    [[ "$output" == *"NCCL: ok"* ]]
}

# Other work makes messages slower: then it is measured again, up to eight times.
@test "each class of GPU pairs has the figures of its wire, in the table and the tree" {
    needs_nccl
    local try
    for try in 1 2 3 4 5 6 7 8; do
        topo_of_gpus 4 --format json -o topo.json
        ! agrees NV2 10e-3 40e6 PIX 15e-3 30e6 SYS 20e-3 20e6 || break
        [ $try -lt 8 ]
    done
    "$TASUKI" topo --input topo.json >report
    cat report
    grep -q '^GPUs of this allocation: 1 node, 4 devices$' report
    grep -qE '^GPU links by NCCL [0-9.]+, measured \(quick\)$' report
    [ "$(grep -cE '^  (NV2|PIX|SYS), NCCL +1 ' report)" -eq 3 ]
    ! grep -q 'not measured' report || false
    "$TASUKI" topo --input topo.json --format json -o again.json
    cmp topo.json again.json
}

@test "a full measurement has each pair of GPUs, and no slow one among good ones" {
    needs_nccl
    no_wires
    topo_of_gpus 4 --measure=full >report
    cat report
    grep -qE '^GPU links by NCCL [0-9.]+, measured$' report
    grep -qE '^  NV2, NCCL +1 ' report
    grep -qE '^  PIX, NCCL +1 ' report
    grep -qE '^  SYS, NCCL +4 ' report
}

# Of the four pairs across the sockets one is slow. Where other work makes those that are not
# differ, it is not told from them, and measured again.
@test "a slow pair of GPUs is named, by --check as well" {
    needs_nccl
    {
        sed '/^wire/d' good
        echo 'wire 0000:06:00.0 0000:86:00.0 1e-3 300e6'
        echo 'wire * * 1e-3 1500e6'
    } >machine
    for try in 1 2 3 4 5 6 7 8; do
        run topo_of_gpus 4 --measure=full --check
        echo "$output"
        [[ "$output" != *"GPU link "*"/gpu0 - "*"/gpu2: "*"B/s of "*"B/s"* ]] || break
    done
    [ "$status" -eq 3 ]
    [[ "$output" == *"GPU link "*"/gpu0 - "*"/gpu2: "*"B/s of "*"B/s"* ]]
    [[ "$output" == *"nvidia-smi nvlink"* ]]
}

@test "ranks on one GPU send through the hosts, which is said" {
    sed '/^wire 0000/d' good >machine
    CUDA_VISIBLE_DEVICES=3 topo_of_gpus 2 --format json -o topo.json
    python3 - <<'END'
import json
gpus = json.load(open("topo.json"))["gpus"]
(x,) = gpus["measured"]["classes"]
assert (x["class"], x["way"], x["pairs"]) == ("X", "hosts", 1)
assert "gpu3 - " in x["slowest"]
# A copy to the host and one from it, at least.
for seconds, size in zip(x["seconds"], gpus["measured"]["bytes"]):
    assert seconds > 2 * (1e-4 + size / 1e9), size
END
    "$TASUKI" topo --input topo.json >report
    grep -q '^GPU links by hosts, measured (quick)$' report
    grep -qE '^  X, hosts +1 ' report
}

# Three ranks on two GPUs: the third shares the first one's.
@test "a rank for which no GPU is left shares one, and the others still use NCCL" {
    needs_nccl
    no_wires
    CUDA_VISIBLE_DEVICES=2,1 topo_of_gpus 3 >report
    cat report
    grep -qE '^  X, hosts +1 .* [^ ]*/gpu2 - [^ ]*/gpu2, ' report
    grep -qE '^  SYS, NCCL +1 .* [^ ]*/gpu1 - [^ ]*/gpu2, ' report
}

# Each rank by itself sees one GPU, which CUDA calls 0.
@test "GPUs are joined with the node by PCI address, whatever numbers ranks see" {
    needs_nccl
    no_wires
    ranks 2 sh -c '
        CUDA_VISIBLE_DEVICES=$((3 - OMPI_COMM_WORLD_RANK)) exec "$TASUKI" topo' >report
    cat report
    grep -qE '^  PIX, NCCL +1 .* [^ ]*/gpu2 - [^ ]*/gpu3, ' report
}

@test "a GPU that its node does not report is named" {
    no_wires
    sed 's/0000:86/0000:96/' good >machine.other
    ranks 2 sh -c '
        CUDA_VISIBLE_DEVICES=$((2 * OMPI_COMM_WORLD_RANK)); export CUDA_VISIBLE_DEVICES
        [ $OMPI_COMM_WORLD_RANK = 0 ] || export TASUKI_NVML= TASUKI_FAKE_NVML=machine.other
        exec "$TASUKI" topo' >report
    cat report
    is_told '1 (.*) takes no part: 0000:96:00.0 is none of the GPUs that its node reports$'
}

@test "without the module, a driver or a second GPU, the report says what is missing" {
    mkdir modules
    ln -s "$TASUKI_PKGLIBDIR/tasuki-mpi.so" modules/
    TASUKI_PKGLIBDIR=$PWD/modules topo_of_gpus 2 --format json -o topo.json
    "$TASUKI" topo --input topo.json >report
    is_told '0 (.*) and 1 more take no part: tasuki-cuda.so is not installed'
    ! grep -q '^GPUs of' report || false
    { echo 'error cudaGetDeviceCount 100'; cat good; } >machine
    topo_of_gpus 2 >report
    is_told '0 .* take no part: cudaGetDeviceCount: no CUDA-capable device is detected$'
    cp good machine
    ranks 2 sh -c '
        [ $OMPI_COMM_WORLD_RANK = 0 ] || export CUDA_VISIBLE_DEVICES=
        exec "$TASUKI" topo' >report
    cat report
    is_told '1 (.*) takes no part: cudaGetDeviceCount: no CUDA'
}

@test "nodes without GPUs, --measure=none and one rank alone are silent about GPU links" {
    run topo_of_gpus 2 --measure none
    [ "$status" -eq 0 ]
    [[ "$output" != *"GPU links"* ]]
    run topo_of_gpus 1
    [ "$status" -eq 0 ]
    [[ "$output" != *"GPU links"* ]]
    HWLOC_XMLFILE=$srcdir/tests/data/topo/no-gpu/hwloc.xml TASUKI_NVML= run topo_of_gpus 2
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"links, measured"* ]]
    [[ "$output" != *"GPU links"* ]]
}

@test "a machine that is saved has the links of its GPUs as measured" {
    no_wires
    topo_of_gpus 2 --save-machine ours -o "$PWD/ours.json"
    "$TASUKI" topo --input ours.json:2 >report
    cat report
    grep -qE '^ours.json:2: 2 nodes, 8 devices$' report
    grep -qE '^ +island0 .* between its parts.* \(measured\)' report
    grep -qE 'gpu0, .*gpu1 .* up \(measured\)$' report
}

# Two stages of a network whose layers take no time, planned on four ranks, of which NVLinks join 0 and 2,
# with these options: milliseconds of a step, and the two GPUs.
plan_two_stages() {
    local data=$srcdir/tests/data/model/tied
    [ -e cost.json ] || env -u HWLOC_XMLFILE "$TASUKI" profile "$data/model.onnx" \
        --data "$data/train.safetensors" --optimizer momentum --batch-size 8 --threads 1 -q -o cost.json
    rm -f run.jsonl
    TASUKI_MEASURE=quick CUDA_VISIBLE_DEVICES=0,2,1,3 ranks 4 "$TASUKI" train "$data/model.onnx" \
        --data "$data/train.safetensors" --cost cost.json --optimizer momentum --threads 1 --steps 1 \
        --global-batch 8 --micro-batches 1 --stages 2 --replicas 1,1 --device cuda --log run.jsonl \
        -q "$@" 2>/dev/null
    python3 -c '
import json
plan = json.loads(open("run.jsonl").readline())["plan"]
gpus = [d.split("/")[1] for stage in plan["stages"] for replica in stage["devices"] for d in replica]
print(round(1e3 * plan["iteration_seconds"], 1), " ".join(sorted(gpus)))'
}

# Between these times, on those GPUs; "": on any.
is_planned() {
    awk -v low="$1" -v high="$2" -v gpus="$3" '
        { exit !($1 >= low && $1 <= high && (gpus == "" || $2 " " $3 == gpus)) }' plan
}

# Likewise, by this --comm: what other work adds is measured anew.
is_soon_planned() {
    local try comm=$1
    shift
    for try in 1 2 3 4; do
        plan_two_stages --comm $comm >plan
        cat plan
        ! is_planned "$@" || return 0
    done
    return 1
}

# There and back, and what a rank sleeps beyond a wait, a tenth of it, at each.
@test "a run plans with what messages take by the way of --comm" {
    needs_nccl
    is_soon_planned nccl 20 30 "gpu0 gpu1"
    # Each message leaves one GPU for its host, and reaches the other from there.
    sed '/^wire/d' good >machine
    printf 'wire host host 10e-3 1e9\nwire * * 1e-3 1e9\n' >>machine
    is_soon_planned mpi 40 70 ""
}
