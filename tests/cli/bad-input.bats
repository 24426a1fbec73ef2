# What train does with bad input, alone and on three ranks: one clear error, exit code 1 or 2,
# nothing half written, all ranks end.

setup_file() {
    command -v python3 >/dev/null || skip "no python3"
    export DIR="$BATS_FILE_TMPDIR" DEMO="$srcdir/etc/demo"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_rmaps_base_oversubscribe=1
    export OMPI_MCA_hwloc_base_binding_policy=none TASUKI_THREADS=1
    export TASUKI_MEASURE=none
    export OMPI_MCA_orte_tmpdir_base="$DIR" PRTE_MCA_prte_tmpdir_base="$DIR"
    export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    export OMPI_MCA_orte_tmpdir_base="$BATS_FILE_TMPDIR"
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$srcdir/tests/model" python3 - <<'END'
import os
import tensors

demo, out = os.environ["DEMO"], os.environ["DIR"]
good = tensors.read(demo + "/digits-train.safetensors")
image, label = good["image"], good["label"]
n = 96
image = ("F32", [n, 1, 8, 8], image[2][:n * 64])
label = ("I64", [n], label[2][:n])


def write(name, **tensors_of):
    tensors.write(f"{out}/{name}.safetensors", tensors_of)


def labels(at, value):
    values = label[2][:]
    values[at] = value
    return ("I64", [n], values)


write("good", image=image, label=label)
write("shape", image=("F32", [n, 1, 4, 16], image[2]), label=label)
write("rank", image=("F32", [n, 64], image[2]), label=label)
write("no-image", picture=image, label=label)
write("no-label", image=image)
write("count", image=image, label=("I64", [n - 1], label[2][:n - 1]))
write("too-large", image=image, label=labels(50, 10))
write("negative", image=image, label=labels(95, -7))
write("float-label", image=image, label=("F32", [n], [float(v) for v in label[2]]))
write("few", image=("F32", [20, 1, 8, 8], image[2][:20 * 64]), label=("I64", [20], label[2][:20]))
nan = image[2][:]
nan[7] = float("nan")
write("nan", image=("F32", [n, 1, 8, 8], nan), label=label)
for source, name in ((out + "/good.safetensors", "safetensors"), (demo + "/digits.onnx", "onnx")):
    data = open(source, "rb").read()
    for i, size in enumerate((0, 7, 8, 100, len(data) // 2, len(data) - 1)):
        with open(f"{out}/truncated{i}.{name}", "wb") as file:
            file.write(data[:size])
END
}

digits() {
    "$TASUKI" train "$DEMO/digits.onnx" --data "$DIR/good.safetensors" --global-batch 48 \
        --steps 2 --batchnorm-samples 4 -q "$@"
}

# refused RANKS TEXT COMMAND...: ends with code 1 or 2 and one error line that has TEXT.
refused() {
    local ranks=$1 text=$2
    shift 2
    if [ "$ranks" -gt 1 ]; then
        command -v mpirun >/dev/null || skip "no mpirun"
        run timeout 120 mpirun -n "$ranks" "$@"
    else
        run timeout 120 "$@"
    fi
    echo "exit code $status: $*"
    echo "$output"
    [ "$status" -eq 1 ] || [ "$status" -eq 2 ]
    [ "$(echo "$output" | grep '^tasuki: .*error: ' | sort -u | wc -l)" -eq 1 ]
    echo "$output" | grep '^tasuki: .*error: ' | grep -Eqi -e "$text"
}

# Options given twice: the last one counts.
train() {
    local ranks=$1 text=$2
    shift 2
    refused "$ranks" "$text" "$TASUKI" train "$DEMO/digits.onnx" --data "$DIR/good.safetensors" \
        --global-batch 48 --steps 2 --batchnorm-samples 4 -q "$@"
}

each() {
    train 1 "$@"
    train 3 "$@"
}

@test "a tensor of another shape is refused by name and shape" {
    each 'shape.*image|image.*(dimension|1x4x16)' --data "$DIR/shape.safetensors"
    each 'image' --data "$DIR/rank.safetensors"
}

@test "a missing input is refused by name" {
    each 'image' --data "$DIR/no-image.safetensors"
}

@test "missing labels are refused by name" {
    each 'label' --data "$DIR/no-label.safetensors" --loss cross-entropy:logits,label
    each 'loss' --data "$DIR/no-label.safetensors"
}

@test "tensors with different sample counts are refused" {
    each '9[56]' --data "$DIR/count.safetensors"
}

@test "a label out of range is refused by value and sample" {
    each 'label.*10' --data "$DIR/too-large.safetensors"
    each 'label.*-7' --data "$DIR/negative.safetensors"
}

@test "labels that are no integers are refused" {
    each 'label' --data "$DIR/float-label.safetensors" --loss cross-entropy:logits,label
}

@test "fewer samples than a batch are refused" {
    each '20.*48|48.*20' --data "$DIR/few.safetensors"
}

@test "truncated data files are refused by name" {
    for i in 0 1 2 3 4 5; do
        train 1 "truncated$i.safetensors" --data "$DIR/truncated$i.safetensors"
    done
    train 3 "truncated4.safetensors" --data "$DIR/truncated4.safetensors"
}

@test "truncated models are refused by name" {
    for i in 0 1 2 3 4 5; do
        refused 1 "truncated$i.onnx" "$TASUKI" train "$DIR/truncated$i.onnx" \
            --data "$DIR/good.safetensors" --global-batch 48 --steps 2 -q
    done
    refused 3 "truncated4.onnx" "$TASUKI" train "$DIR/truncated4.onnx" \
        --data "$DIR/good.safetensors" --global-batch 48 --steps 2 -q
}

@test "files that are not there and directories are refused by name" {
    each 'nothing.safetensors' --data "$DIR/nothing.safetensors"
    each "$DIR" --data "$DIR"
    refused 3 'nothing.onnx' "$TASUKI" train "$DIR/nothing.onnx" \
        --data "$DIR/good.safetensors" --global-batch 48 --steps 2 -q
}

@test "unknown and malformed options are usage errors on all ranks" {
    for options in --nosuchthing '--lr 0.1x' '--global-batch 0' '--global-batch 9e99' \
        '--optimizer sdg' '--schedule 2f2b' '--micro-batches -1' '--replicas 1,,2' \
        '--memory 3Q' '--loss cross:logits,label' '--precision float16'; do
        name=${options%% *}
        each "${name#--}" $options
        [ "$status" -eq 2 ]
    done
}

@test "pins that do not fit together are refused" {
    each 'micro-batch' --micro-batches 7
    train 3 'rank|device|replica' --stages 2 --replicas 3,3
    each 'stage|replica' --stages 2 --replicas 1,1,1
    each 'stage|block' --stages 4000
}

@test "a loss that names no output or tensor lists those there are" {
    each 'logits' --loss cross-entropy:nothing,label
    each 'label' --loss cross-entropy:logits,nothing
}

can_mount() {
    mkdir -p "$DIR/box"
    unshare -m mount -t tmpfs -o size=64k none "$DIR/box" 2>/dev/null ||
        skip "needs root and mount namespaces"
}

in_box='mount -t tmpfs -o "$1" none "$2" || exit 99; shift 2; "$@"; code=$?
        ls -lR "$DIR/box" >"$DIR/box.list"; exit $code'

@test "a read-only checkpoint directory is an error before the first step" {
    can_mount
    for ranks in 1 3; do
        rm -f "$DIR/log"
        if [ $ranks -eq 1 ]; then launch=; else launch="mpirun -n $ranks"; fi
        run timeout 120 unshare -m sh -c "$in_box" sh ro,size=16m "$DIR/box" \
            $launch "$TASUKI" train "$DEMO/digits.onnx" --data "$DIR/good.safetensors" \
            --global-batch 48 --steps 2 --batchnorm-samples 4 -q --checkpoint "$DIR/box/c" \
            --log "$DIR/log"
        echo "$output"
        [ "$status" -eq 1 ]
        [ "$(echo "$output" | grep '^tasuki: .*error: ' | sort -u | wc -l)" -eq 1 ]
        echo "$output" | grep -qi 'box/c.*read-only'
        ! grep -q '"step"' "$DIR/log" 2>/dev/null || false
    done
}

@test "a disk too small for a checkpoint is one error before the first step" {
    can_mount
    for ranks in 1 3; do
        if [ $ranks -eq 1 ]; then launch=; else launch="mpirun -n $ranks"; fi
        rm -f "$DIR/log"
        run timeout 120 unshare -m sh -c "$in_box" sh size=64k "$DIR/box" \
            $launch "$TASUKI" train "$DEMO/digits.onnx" --data "$DIR/good.safetensors" \
            --global-batch 48 --steps 2 --batchnorm-samples 4 -q --checkpoint "$DIR/box/c" \
            --log "$DIR/log"
        echo "$output"
        cat "$DIR/box.list"
        [ "$status" -eq 1 ]
        [ "$(echo "$output" | grep '^tasuki: .*error: ' | sort -u | wc -l)" -eq 1 ]
        echo "$output" | grep -q 'box/c: no space left for one checkpoint: it takes .* MB, .* free'
        ! grep -q '"step"' "$DIR/log" || false
        ! grep -Eq 'latest|safetensors|state.json' "$DIR/box.list" || false
    done
}

@test "a checkpoint path that is a file is refused" {
    touch "$DIR/file"
    each "$DIR/file" --checkpoint "$DIR/file"
    each "$DIR/file" --checkpoint "$DIR/file/c"
}

# As in the folder of a project: anybody of the group may put links there.
@test "links that another user made are refused, whatever is written, and what they lead to stays" {
    [ "$(id -u)" -eq 0 ] || skip "needs root, to be another user"
    local option
    mkdir -m 1777 "$DIR/project"
    mkdir "$DIR/private"
    echo precious >"$DIR/private/file"
    chown 65534 "$DIR/project"
    ln -s "$DIR/private" "$DIR/project/folder"
    ln -s "$DIR/private/file" "$DIR/project/file"
    chown -h 1234 "$DIR"/project/*
    for option in checkpoint stage-to; do
        each "project/folder.* is a link that another user made" --$option "$DIR/project/folder"
    done
    for option in log trace prometheus dump-gradients; do
        each "project/file.* is a link that another user made" --$option "$DIR/project/file"
        train 1 "is a link that another user made" --$option "$DIR/project/folder/new"
    done
    refused 1 "is a link that another user made" "$TASUKI" plan "$DEMO/digits.onnx" --data \
        "$DIR/good.safetensors" --global-batch 48 --cluster flat:2,bandwidth=1e9 -q \
        -o "$DIR/project/file"
    [ "$(cat "$DIR/private/file")" = precious ]
    [ "$(ls "$DIR/private")" = file ]
}

# Whose default access list, as "setfacl -d -m u:12345:rwx" leaves it, holds in place of the umask.
@test "a project's group and access list share all that a run writes" {
    local file files="project/log project/prom project/trace project/c/latest
        project/c/step-00000002/state.json project/c/step-00000002/shard-0000.safetensors"
    mkdir -m 2775 "$DIR/of-group"
    [ "$(id -u)" -ne 0 ] || chgrp 100 "$DIR/of-group"
    cp -a "$DIR/of-group" "$DIR/of-list"
    python3 -c '
import os, struct, sys
entries = [(1, 7, -1), (2, 7, 12345), (4, 5, -1), (16, 7, -1), (32, 0, -1)]
os.setxattr(sys.argv[1], "system.posix_acl_default",
            struct.pack("<i", 2) + b"".join(struct.pack("<HHi", *e) for e in entries))' \
        "$DIR/of-list" || skip "no access lists here"
    for folder in "$DIR/of-group" "$DIR/of-list"; do
        local mask=002
        [ "$folder" = "$DIR/of-group" ] || mask=077
        (umask $mask && digits --checkpoint "$folder/c" --log "$folder/log" \
            --prometheus "$folder/prom" --trace "$folder/trace")
        for file in $files; do
            file=${file/project/"$folder"}
            stat -c '%A %g %n' "$file"
            [ "$(stat -c %g "$file")" = "$(stat -c %g "$folder")" ]
            [[ "$(stat -c %A "$file")" == -rw-rw-* ]]
            [ $mask = 002 ] || python3 -c '
import os, sys
os.getxattr(sys.argv[1], "system.posix_acl_access")' "$file"
        done
        [[ "$(stat -c %A "$folder/c/step-00000002")" == drwxrw[xs]* ]]
    done
}

@test "a log that cannot be written is refused" {
    each 'log' --log "$DIR/no/such/directory/log.jsonl"
}

@test "a damaged checkpoint is refused by name, and a later run leaves it alone" {
    digits --checkpoint "$DIR/checkpoint"
    file=$(find "$DIR/checkpoint/" -name '*.safetensors' | head -n 1)
    cp "$file" "$DIR/kept"
    head -c 1000 "$DIR/kept" >"$file"
    each "${file##*/}" --checkpoint "$DIR/checkpoint" --resume --steps 4
    # The right size, one byte changed: the checksum tells.
    cp "$DIR/kept" "$file"
    size=$(wc -c <"$file")
    printf '\377' | dd of="$file" bs=1 seek=$((size - 100)) conv=notrunc 2>/dev/null
    cmp -s "$file" "$DIR/kept" && skip "the byte was 255 already"
    each "${file##*/}" --checkpoint "$DIR/checkpoint" --resume --steps 4
    cp "$DIR/kept" "$file"
    digits --checkpoint "$DIR/checkpoint" --resume --steps 4
}

@test "a damaged plan is refused by name" {
    "$TASUKI" plan "$DEMO/digits.onnx" --batchnorm-samples 4 --global-batch 48 \
        --cluster flat:1,bandwidth=1e9,latency=0,memory=1e9 -o "$DIR/plan.json" -q
    for size in 0 10 200; do
        head -c $size "$DIR/plan.json" >"$DIR/broken.json"
        refused 1 'broken.json' "$TASUKI" train "$DIR/broken.json" \
            --data "$DIR/good.safetensors" --steps 2 -q
    done
    refused 3 'broken.json' "$TASUKI" train "$DIR/broken.json" --data "$DIR/good.safetensors" \
        --steps 2 -q
}
