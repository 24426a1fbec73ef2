# SPDX-License-Identifier: MIT
# What a crash of the machine would leave of a checkpoint: its files are synced before they have their
# names, as tests/record_syncs.c records it; and who writes how much of it.

load data.bash

setup() {
    ranks_setup
    DEMO=$srcdir/etc/demo
    MODEL=$DEMO/digits.onnx
    export TASUKI_MEASURE=none
}

# train RANKS ARGUMENTS...
train() {
    local n=$1
    shift
    "$TASUKI" train "$MODEL" --data "$DEMO/digits-train.safetensors" -q \
        --batchnorm-samples 4 --global-batch 32 --seed 5 --ranks-in-process "$n" \
        --checkpoint "$DIR/out" "$@"
}

# Of a record: says what is renamed unsynced, or whose folder is not synced afterwards, then the paths
# that are durable. A step that is renamed to be removed need not be.
durable() {
    awk '
        function said(what, path) { print what ": " path; wrong = 1 }
        $1 == "write" { dirty[$2] = 1 }
        $1 == "fsync" { delete dirty[$2]; delete waiting[$2]; synced[$2] = 1 }
        $1 != "rename" || $3 !~ /\/(step-[0-9]+|state.json|latest)$/ { next }
        {
            for (path in dirty)
                if (path == $2 || index(path, $2 "/") == 1)
                    said("renamed before it was synced", path)
            if (!($2 in synced))
                said("renamed and never synced", $2)
            for (path in synced)
                if (path == $2 || index(path, $2 "/") == 1)
                    safe[$3 substr(path, length($2) + 1)] = synced[$3 substr(path, length($2) + 1)] = 1
            folder = $3
            sub(/\/[^\/]*$/, "", folder)
            waiting[folder] = $3
        }
        END {
            for (folder in waiting)
                said("not synced after a rename", folder)
            for (path in safe)
                print "safe " path
            exit wrong
        }' "$1"
}

# Is all that is in the directory durable by this record?
all_durable() {
    local path
    durable "$1" >"$DIR/durable" || { grep -v '^safe' "$DIR/durable"; return 1; }
    for path in "$DIR"/out/step-* "$DIR"/out/step-*/* "$DIR/out/latest"; do
        grep -qx "safe $path" "$DIR/durable" || { echo "never synced: $path"; return 1; }
    done
}

@test "each file of a checkpoint is synced before it has its name, and its folder afterwards" {
    local path paths
    DIR=$(realpath "$DIR")
    TASUKI_SYNCS=$DIR/record TASUKI_SYNCS_OF=$DIR/out \
        LD_PRELOAD=$builddir/tests/.libs/record_syncs.so \
        train 2 --stages 2 --steps 4 --checkpoint-every 2 --keep 0
    cat "$DIR/record"
    [ "$(ls "$DIR/out" | xargs)" = "latest step-00000002 step-00000004" ]
    [ "$(ls "$DIR/out/step-00000004" | xargs)" = \
        "shard-0000.safetensors shard-0001.safetensors state.json" ]
    all_durable "$DIR/record"
    # Each sync is needed: without those of a path the record is found wrong.
    paths=$(sed -n 's/^fsync //p' "$DIR/record" | grep -v '/\.lock' | sort -u)
    [ "$(wc -l <<<"$paths")" -ge 10 ]
    while read -r path; do
        grep -vxF "fsync $path" "$DIR/record" >"$DIR/less"
        ! all_durable "$DIR/less" >/dev/null || { echo "not missed: $path"; false; }
    done <<<"$paths"
}

# sizes FILE...: bytes of the file, of its header, and of the data behind that.
sizes() {
    local file header
    for file in "$@"; do
        header=$(od -An -tu8 -N8 "$file")
        echo "$(stat -c %s "$file") $((header + 8)) $(($(stat -c %s "$file") - header - 8))"
    done
}

# balanced FILE...: of the replicas of a stage; to 1 % of the data, and the headers.
balanced() {
    sizes "$@" | tee /dev/stderr | awk '
        { low = NR == 1 || $3 < low ? $3 : low; high = $3 > high ? $3 : high
          least = NR == 1 || $1 < least ? $1 : least; most = $1 > most ? $1 : most
          header = $2 > header ? $2 : header }
        END { exit !(low > 0 && high - low <= 0.01 * high && most - least <= 0.01 * high + header) }'
}

@test "the replicas of a stage write parts of it that are as large" {
    local step=$DIR/out/step-00000002 plan
    MODEL=$DIR/net.onnx
    "$builddir/tests/make_onnx" "$MODEL" <<'TEXT'
input image float batch,1,8,8
node Flatten image -> x
init a float 64,256
node Gemm x,a -> a1
node Relu a1 -> a2
init b float 256,256
init c float 256
node Gemm a2,b,c -> b1
node Relu b1 -> b2
init e float 256,10
init f float 10
node Gemm b2,e,f -> y
output y
TEXT
    for plan in "4 --stages 1 --replicas 4" "3 --stages 1 --replicas 3 --optimizer adamw --no-zero" \
        "4 --stages 1 --replicas 4 --optimizer adamw --zero --ema 0.9"; do
        rm -rf "$DIR/out"
        # shellcheck disable=SC2086
        train $plan --steps 2
        balanced "$step"/shard-*.safetensors
    done
    # Of two stages each by itself: 0 and 1 have the first, 2 and 3 the second.
    rm -rf "$DIR/out"
    train 4 --stages 2 --replicas 2,2 --optimizer adamw --steps 2
    balanced "$step"/shard-000[01].safetensors
    balanced "$step"/shard-000[23].safetensors
}
