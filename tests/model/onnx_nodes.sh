#!/bin/sh
# SPDX-License-Identifier: MIT
# ONNX's own node tests through our reader and kernels: a table operator → passed, failed, not
# applicable; then each failure and each test that does not apply, and why. The tests are those
# of Debian's libonnx-testdata and those that the onnx package of a Python writes. Exits with 1
# where a test of a listed operator fails, 77 where there are no tests at all.
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
{
    seen[$3] = 1; count[$2, $3]++; total[$2]++
    if ($2 == "fail" && ($3 in is || $3 == "crashed")) bad = 1
    if ($2 != "pass") note[$2] = note[$2] sprintf("  %s %s (%s): %s\n", $3, $4, $1, $5)
}
END {
    printf "%-30s %7s %7s %7s\n", "operator", "passed", "failed", "n/a"
    for (i = 1; i <= n; i++)
        printf "%-30s %7d %7d %7d\n", list[i], count["pass", list[i]],
               count["fail", list[i]], count["na", list[i]]
    print ""
    for (op in seen)
        if (!(op in is))
            printf "%-30s %7d %7d %7d\n", op, count["pass", op], count["fail", op],
                   count["na", op] | "sort"
    close("sort")
    printf "%-30s %7d %7d %7d\n", "all", total["pass"], total["fail"], total["na"]
    if (note["fail"]) printf "\nfailed:\n%s", note["fail"]
    if (note["na"]) printf "\nnot applicable:\n%s", note["na"]
    exit bad
}' "$results"
