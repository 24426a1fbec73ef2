# SPDX-License-Identifier: MIT
# Recorded machines (tests/data/topo) for the tests of tasuki topo.

needs_hwloc() {
    "$TASUKI" info | grep -q '^hwloc *built in' || skip "built without hwloc"
}

# The folder of machine $1 as the program reads it, below $2: sys.txt and proc.txt become files.
unpack() {
    mkdir -p "$2/$1"
    cp "$srcdir/tests/data/topo/$1/"* "$2/$1/"
    chmod -R u+w "$2/$1"
    local top
    for top in sys proc; do
        [ -f "$2/$1/$top.txt" ] || continue
        while IFS= read -r line; do
            mkdir -p "$2/$1/$top/$(dirname "${line%%:*}")"
            printf '%s\n' "${line#*:}" >>"$2/$1/$top/${line%%:*}"
        done <"$2/$1/$top.txt"
    done
}

# tasuki topo on machine $1, which was unpacked here.
topo_of() {
    local machine=$1
    shift
    if [ -f "$machine/nvml.txt" ]; then
        TASUKI_NVML=$builddir/tests/.libs/fake_nvml.so TASUKI_FAKE_NVML=$machine/nvml.txt \
            "$TASUKI" topo --input "$machine" "$@"
    else
        TASUKI_NVML= "$TASUKI" topo --input "$machine" "$@"
    fi
}
