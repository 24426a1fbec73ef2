#!/bin/sh
# Every operator by the inner loops for processors that are older than this one: all of them with
# TASUKI_TEST_LONG, else one that is drawn.
top=${srcdir:-$(cd "$(dirname "$0")/.." && pwd)}
build=${builddir:-$top/build}
tasuki=${TASUKI:-$build/tasuki}

result() {
    [ -z "$2" ] || printf '%s\n' "$2" | sed 's/^/# /'
    if [ -z "$2" ]; then echo "ok $1"; else echo "not ok $1"; fi
}

# What the program says that it uses.
used() {
    TASUKI_MAX_ISA=$1 "$tasuki" info | sed -n 's/^cpu .*, \([a-z0-9]*\)$/\1/p'
}

best=$(used '')
[ -n "$best" ] || { echo '1..0 # SKIP built without the kernels of CPUs'; exit 0; }
echo 1..2
seed=${TASUKI_TEST_SEED:-$(date +%s)}
case ${TASUKI_TEST_LONG:+all}$best in
allavx512) tried='base avx2' ;;
avx512) tried=$([ $((seed % 2)) -eq 0 ] && echo base || echo avx2) ;;
*) tried=base ;;
esac
echo "# this machine: $best; seed $seed: $tried"
log=$(mktemp)
failed=
for isa in $tried; do
    [ "$(used $isa)" = "$isa" ] || failed="$failed${failed:+ }$isa is not used: $(used $isa)"
    TASUKI_MAX_ISA=$isa "$build/tests/unit/test_ops" >"$log" 2>&1 ||
        failed="$failed${failed:+ }$isa: $(grep '^not ok' "$log")"
    TASUKI_MAX_ISA=$isa "$build/tests/unit/test_cpu" >"$log" 2>&1 ||
        failed="$failed${failed:+ }$isa: $(grep '^not ok' "$log")"
done
rm -f "$log"
result "1 - $tried: every operator" "$failed"
result "2 - a word that is none is said" "$(
    TASUKI_MAX_ISA=sse9 "$tasuki" profile "$top/etc/demo/digits.onnx" --no-cache 2>&1 |
        grep -q 'TASUKI_MAX_ISA: expected base, avx2 or avx512, got "sse9"' || echo silence)"
