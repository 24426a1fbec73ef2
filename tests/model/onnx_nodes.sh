#!/bin/sh
# SPDX-License-Identifier: MIT
# ONNX's own node tests through our reader and kernels: a table operator → passed, failed, not
# applicable, of the operators that are listed and of others; then each failure and each test that
# does not apply, with the type that is none of float16, bfloat16, float32, float64, bool and the
# integers of 8 to 64 bits. The tests are those of Debian's libonnx-testdata and those that the onnx
# package of a Python writes. Exits with 1 where a test of a listed operator fails, 77 where there
# are no tests at all.
set -u

listed='Add Sub Mul Div Neg Abs Pow Sqrt Reciprocal Exp Log Erf Sin Cos Tanh Sigmoid Relu
LeakyRelu Elu Gelu Softplus HardSigmoid HardSwish Swish PRelu Min Max Clip Where Softmax
LogSoftmax MatMul Gemm Einsum Conv ConvTranspose BatchNormalization LayerNormalization
GroupNormalization InstanceNormalization RMSNormalization MaxPool AveragePool GlobalAveragePool
GlobalMaxPool ReduceMean ReduceSum ReduceMax ReduceMin ReduceL2 Reshape Flatten Transpose
Squeeze Unsqueeze Concat Split Slice Expand Tile Pad Gather GatherElements GatherND ScatterND
ScatterElements Resize Trilu CumSum Cast CastLike Identity Dropout Attention RotaryEmbedding
SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss LSTM GRU RNN Constant ConstantOfShape Shape
Size Range Equal Less LessOrEqual Greater GreaterOrEqual Not And Or Mod IsNaN Floor Ceil Round
ArgMax TopK OneHot NonZero If Loop'

program=${builddir:-.}/tests/model/onnx_node
debian=${TASUKI_ONNX_TESTS-/usr/share/libonnx-testdata/data/node}
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
results=$scratch/results

run() {
    find "$1" -mindepth 1 -maxdepth 1 -type d | sort | xargs "$program" |
        sed "s|^|$2	|" >>"$results"
}

: >"$results"
[ -z "$debian" ] || [ ! -d "$debian" ] || run "$debian" debian
for python in "${TASUKI_PYTHON-}" python3; do
    if [ -n "$python" ] && "$python" -c 'import onnx' 2>/dev/null; then
        PYTHONDONTWRITEBYTECODE=1 "$python" "${srcdir:-.}/tests/model/onnx_nodes.py" \
            "$scratch/new" && run "$scratch/new" package
        break
    fi
done
if [ ! -s "$results" ]; then
    echo "no tests: install libonnx-testdata, or the onnx package of Python"
    exit 77
fi

awk -F '\t' -v listed="$listed" '
BEGIN { n = split(listed, list, /[ \n]+/); for (i = 1; i <= n; i++) is[list[i]] = 1 }
{ source[NR] = $1; verdict[NR] = $2; op[NR] = $3; name[NR] = $4; why[NR] = $5; of[$1, $4] = $3 }

# The nodes that an operator comes to are a test of that operator.
function operator(i,    base) {
    base = name[i]
    if (op[i] != "several nodes" || !sub(/_expanded.*$/, "", base))
        return op[i]
    return (source[i], base) in of ? of[source[i], base] : op[i]
}
function row(o) {
    printf "%-30s %7d %7d %7d\n", o, count["pass", o], count["fail", o], count["na", o]
}
END {
    for (i = 1; i <= NR; i++) {
        o = operator(i)
        kind = o in is || o == "crashed" ? verdict[i] : "other"
        if (kind == "fail") bad = 1
        if (!(o in is)) other[o] = 1
        count[verdict[i], o]++
        total[verdict[i], kind == "other"]++
        if (verdict[i] != "pass")
            note[kind] = note[kind] sprintf("  %s %s (%s): %s\n", o, name[i], source[i], why[i])
    }
    printf "%-30s %7s %7s %7s\n", "operator", "passed", "failed", "n/a"
    for (i = 1; i <= n; i++) row(list[i])
    printf "%-30s %7d %7d %7d\n", "all of these", total["pass", 0], total["fail", 0],
           total["na", 0]
    print "\nnot listed"
    for (o in other)
        printf "%-30s %7d %7d %7d\n", o, count["pass", o], count["fail", o],
               count["na", o] | "sort"
    close("sort")
    printf "%-30s %7d %7d %7d\n", "all of these", total["pass", 1], total["fail", 1],
           total["na", 1]
    if (note["fail"]) printf "\nfailed:\n%s", note["fail"]
    if (note["na"]) printf "\nnot applicable, for the type:\n%s", note["na"]
    if (note["other"]) printf "\nnot listed, and not passed:\n%s", note["other"]
    exit bad
}' "$results"
