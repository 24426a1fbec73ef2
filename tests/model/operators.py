# SPDX-License-Identifier: MIT
"""The reference kernels beside numpy and PyTorch: every case of tests/unit/op_cases.c."""
import json
import math
import os
import subprocess
import sys
import time

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"1..0 # SKIP {error}")
    sys.exit(0)

from tap import Tap, check

TOLERANCE = 1e-13   # a few hundred roundings of 1e-16


def tensor(described):
    data = [float(x) for x in described["data"]]    # "nan" and "inf", too
    return np.array(data, np.float64).reshape(described["shape"]).astype(described["dtype"])


def t(x):
    return torch.from_numpy(np.array(x, order="C"))


def gelu(x, kind):
    return F.gelu(t(x), approximate=kind).numpy()


def swap(x, wanted):
    return np.swapaxes(x, -1, -2) if wanted and x.ndim > 1 else x


def matmul(a, x):
    left, right = swap(x[0], a.get("transA")), swap(x[1], a.get("transB"))
    return a.get("alpha", 1) * np.matmul(left, right)


def gemm(a, x):
    y = matmul(a, x)
    return y + a.get("beta", 1) * x[2] if len(x) > 2 else y


def linear(a, x):
    y = np.matmul(x[0], x[1].T if a.get("transB") else x[1]) + (x[2] if len(x) > 2 else 0)
    kind = a.get("activation", "none")
    if kind in ("relu", "silu"):
        return getattr(F, kind)(t(y)).numpy()
    return y if kind == "none" else gelu(y, "tanh" if kind == "gelu_tanh" else "none")


def geometry(a, spatial):
    return (a.get("strides", [1] * spatial), a.get("dilations", [1] * spatial),
            a.get("pads", [0] * 2 * spatial))


def padded(x, pads, value):
    spatial = len(pads) // 2
    return np.pad(x, [(0, 0), (0, 0)] + [(pads[i], pads[spatial + i]) for i in range(spatial)],
                  constant_values=value)


def conv(a, x):
    spatial = x[0].ndim - 2
    strides, dilations, pads = geometry(a, spatial)
    function = (F.conv1d, F.conv2d, F.conv3d)[spatial - 1]
    return function(t(padded(x[0], pads, 0)), t(x[1]), t(x[2]) if len(x) > 2 else None,
                    stride=strides, dilation=dilations, groups=a.get("group", 1)).numpy()


def conv_transpose(a, x):
    """Without pads and with all that the strides leave open, then cut."""
    spatial = x[0].ndim - 2
    strides, dilations, pads = geometry(a, spatial)
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[spatial - 1]
    y = function(t(x[0]), t(x[1]), stride=strides, dilation=dilations,
                 groups=a["group"]).numpy()
    y = np.pad(y, [(0, 0), (0, 0)] + [(0, s) for s in strides])
    at = tuple(slice(p, p + n) for p, n in zip(pads, a["output_shape"]))
    return y[(slice(None), slice(None)) + at]


def windows(a, x, reduce):
    """Pooling by its definition: for each window the elements inside the input, and how many
    positions lie inside the padded input."""
    spatial = x.ndim - 2
    strides, dilations, pads = geometry(a, spatial)
    kernel, size, out = a["kernel_shape"], x.shape[2:], []
    for i in range(spatial):
        room = size[i] + pads[i] + pads[spatial + i] - dilations[i] * (kernel[i] - 1) - 1
        n = (math.ceil(room / strides[i]) if a.get("ceil_mode") else room // strides[i]) + 1
        if a.get("ceil_mode") and (n - 1) * strides[i] >= size[i] + pads[i]:
            n -= 1
        out.append(n)
    y = np.empty(x.shape[:2] + tuple(out))
    for at in np.ndindex(*out):
        index, count = [], 1
        for i in range(spatial):
            where = [at[i] * strides[i] - pads[i] + k * dilations[i] for k in range(kernel[i])]
            count *= sum(w < size[i] + pads[spatial + i] for w in where)
            index.append([w for w in where if 0 <= w < size[i]])
        y[(slice(None), slice(None)) + at] = reduce(
            x[np.ix_(range(x.shape[0]), range(x.shape[1]), *index)].reshape(*x.shape[:2], -1),
            count)
    return y


def max_pool_indices(a, x):
    """By pooling the numbers of the elements in the order of their values."""
    order = np.argsort(x[0], axis=None)
    rank = np.empty(x[0].size, np.int64)
    rank[order] = np.arange(x[0].size)
    best = order[windows(a, rank.reshape(x[0].shape), lambda v, n: v.max(-1)).astype(np.int64)]
    if not a.get("storage_order"):
        return best
    where = np.unravel_index(best, x[0].shape)
    plane = where[0] * x[0].shape[1] + where[1]
    return plane * math.prod(x[0].shape[2:]) + np.ravel_multi_index(where[2:], x[0].shape[2:],
                                                                    order="F")


def symmetric(a, spatial):
    _, dilations, pads = geometry(a, spatial)
    return (pads[:spatial] == pads[spatial:] and
            all(2 * p <= k for p, k in zip(pads, a["kernel_shape"])), dilations)


def max_pool(a, x):
    y = windows(a, x[0], lambda v, n: v.max(-1))
    even, dilations = symmetric(a, x[0].ndim - 2)
    if even:    # what PyTorch can say, it shall confirm
        function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[x[0].ndim - 3]
        theirs = function(t(x[0]), a["kernel_shape"], a["strides"],
                          a["pads"][:x[0].ndim - 2], dilations, bool(a.get("ceil_mode")))
        check(np.array_equal(theirs.numpy(), y), f"PyTorch's MaxPool differs for {a}")
    return y


def average_pool(a, x):
    inside = not a.get("count_include_pad")
    y = windows(a, x[0], lambda v, n: v.sum(-1) / (v.shape[-1] if inside else n))
    even, dilations = symmetric(a, x[0].ndim - 2)
    if even and max(dilations) == 1:
        function = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[x[0].ndim - 3]
        theirs = function(t(x[0]), a["kernel_shape"], a["strides"], a["pads"][:x[0].ndim - 2],
                          bool(a.get("ceil_mode")), not inside).numpy()
        check(np.allclose(theirs, y, rtol=1e-13, atol=1e-13),
              f"PyTorch's AveragePool differs for {a}")
    return y


def batch_norm(a, x, group):
    group = group or x[0].shape[0]
    parts = [F.batch_norm(t(part), None, None, t(x[1]), t(x[2]), True, 0.1, a["epsilon"])
             if part[:, 0].size > 1 else t(np.zeros_like(part)) + t(x[2]).reshape(1, -1)
             for part in np.split(x[0], x[0].shape[0] // group)]
    return torch.cat(parts).numpy()


def layer_norm(a, x):
    return F.layer_norm(t(x[0]), x[1].shape, t(x[1]), t(x[2]) if len(x) > 2 else None,
                        a.get("epsilon", 1e-5)).numpy()


def slices(a, x):
    index = [slice(None)] * x[0].ndim
    for start, end, axis, step in zip(a["starts"], a["ends"], a["axes"], a["steps"]):
        index[axis] = slice(start, None if step < 0 and end == -1 else end, step)
    return x[0][tuple(index)]


def split(a, x):
    return np.split(x[0], np.cumsum(a["split"])[:-1], a["axis"])


def cross_entropy(a, x):
    logits = np.moveaxis(x[0], a["axis"], 1)
    loss = F.cross_entropy(t(logits), t(x[1].astype(np.int64)),
                           t(x[3]) if len(x) > 3 else None,
                           ignore_index=a.get("ignore_index", -100), reduction="sum",
                           label_smoothing=a.get("label_smoothing", 0)).numpy()
    counted = x[1] != a.get("ignore_index", -100)
    return [loss, ((logits.argmax(1) == x[1]) & counted).sum()]


def scatter(a, x):
    if x[0].dtype.kind != "f":      # PyTorch has no sums of small integers
        wide = scatter(a, [part.astype(np.int64).astype(float) for part in x])
        return wide.astype(np.int64).astype(x[0].dtype)
    data, index, updates = t(x[0]), t(x[1].astype(np.int64)), t(x[2])
    index = torch.where(index < 0, index + data.shape[a["axis"]], index)
    if a.get("reduction", "none") == "none":
        return data.scatter(a["axis"], index, updates).numpy()
    name = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[a["reduction"]]
    return data.scatter_reduce(a["axis"], index, updates, name).numpy()


def gather_elements(a, x):
    index = np.where(x[1] < 0, x[1] + x[0].shape[a["axis"]], x[1])
    return torch.gather(t(x[0]), a["axis"], t(index.astype(np.int64))).numpy()


def gather_nd(a, x):
    lead = a.get("batch_dims", 0)
    groups = x[1].shape[:lead]
    data = x[0].reshape(-1, *x[0].shape[lead:])
    index = x[1].reshape(-1, *x[1].shape[lead:])
    parts = [d[tuple(np.moveaxis(i, -1, 0))] for d, i in zip(data, index)]
    return np.stack(parts).reshape(*groups, *parts[0].shape)


def scatter_nd(a, x):
    y = x[0].copy()
    at = tuple(np.moveaxis(x[1], -1, 0))
    if a.get("reduction", "none") == "none":
        y[at] = x[2]
    else:
        {"add": np.add, "mul": np.multiply, "max": np.maximum,
         "min": np.minimum}[a["reduction"]].at(y, at, x[2])
    return y


def cumsum(a, x):
    y = np.flip(x[0], a["axis"]) if a.get("reverse") else x[0]
    sums = np.cumsum(y, a["axis"], dtype=x[0].dtype) - (y if a.get("exclusive") else 0)
    return np.flip(sums, a["axis"]) if a.get("reverse") else sums


def argmax(a, x):
    y = x[0] if a.get("largest", 1) else -x[0]
    if a.get("select_last_index"):
        best = y.shape[a["axis"]] - 1 - np.flip(y, a["axis"]).argmax(a["axis"])
    else:
        best = y.argmax(a["axis"])
    return np.expand_dims(best, a["axis"]) if a.get("keepdims", 1) else best


def topk(a, x):
    y = x[0] if not a.get("largest", 1) else -x[0]
    index = np.argsort(y, a["axis"], kind="stable").take(range(a["k"]), a["axis"])
    return [np.take_along_axis(x[0], index, a["axis"]), index]


def add_norm(a, x, norm):
    return [norm(a, [x[0] + x[1], *x[2:]]), x[0] + x[1]]


def attention(a, x):
    q, k, v = map(t, x[:3])
    k = k.transpose(-1, -2) if a.get("transK") else k
    if q.ndim == 4:
        k, v = (y.repeat_interleave(q.shape[1] // y.shape[1], 1) for y in (k, v))
    s = a["scale"] * q @ k.transpose(-1, -2)
    if len(x) > 3 and x[3].dtype == bool:
        hidden = t(x[3]) == bool(a.get("hide"))
        s = torch.where(hidden, a.get("fill", -np.inf), s)
    elif len(x) > 3:
        s = s + t(x[3])
    if a.get("causal"):
        s = s.masked_fill(torch.ones(s.shape[-2:]).tril(a["past"]) == 0, -np.inf)
    p = F.softmax(s, -1)
    return ((torch.nan_to_num(p) if a.get("masked") else p) @ v).numpy()


OPERATORS = {
    "GatherElements": gather_elements, "ScatterElements": scatter, "GatherND": gather_nd,
    "ScatterND": scatter_nd, "CumSum": cumsum, "ArgMax": argmax, "TopK": topk,
    "Pad": lambda a, x: np.pad(x[0], list(zip(a["pads"][:x[0].ndim], a["pads"][x[0].ndim:])),
                               constant_values=a.get("value", 0)),
    "Relu": lambda a, x: np.maximum(x[0], 0), "Sqrt": lambda a, x: np.sqrt(x[0]),
    "Exp": lambda a, x: np.exp(x[0]), "Log": lambda a, x: np.log(x[0]),
    "Erf": lambda a, x: torch.erf(t(x[0])).numpy(), "Tanh": lambda a, x: np.tanh(x[0]),
    "Sigmoid": lambda a, x: torch.sigmoid(t(x[0])).numpy(), "Neg": lambda a, x: -x[0],
    "Gelu": lambda a, x: gelu(x[0], a.get("approximate", "none")),
    "Add": lambda a, x: x[0] + x[1], "Sub": lambda a, x: x[0] - x[1],
    "Mul": lambda a, x: x[0] * x[1],
    "Div": lambda a, x: x[0] / x[1] if x[0].dtype.kind == "f" else np.trunc(x[0] / x[1]),
    "Abs": lambda a, x: np.abs(x[0]), "Reciprocal": lambda a, x: 1 / x[0],
    "Sin": lambda a, x: np.sin(x[0]), "Cos": lambda a, x: np.cos(x[0]),
    "LeakyRelu": lambda a, x: F.leaky_relu(t(x[0]), a["alpha"]).numpy(),
    "Elu": lambda a, x: F.elu(t(x[0]), a["alpha"]).numpy(),
    "Celu": lambda a, x: F.celu(t(x[0]), a["alpha"]).numpy(),
    "Selu": lambda a, x: a["beta"] * F.elu(t(x[0]), a["alpha"]).numpy(),
    "Softplus": lambda a, x: F.softplus(t(x[0])).numpy(),
    "Softsign": lambda a, x: F.softsign(t(x[0])).numpy(),
    "HardSigmoid": lambda a, x: F.hardsigmoid(t(x[0])).numpy(),
    "HardSwish": lambda a, x: F.hardswish(t(x[0])).numpy(),
    "Swish": lambda a, x: x[0] * torch.sigmoid(t(a["alpha"] * x[0])).numpy(),
    "Mish": lambda a, x: F.mish(t(x[0])).numpy(),
    "Clip": lambda a, x: np.clip(x[0], a.get("min"), a.get("max")),
    "Floor": lambda a, x: np.floor(x[0]), "Ceil": lambda a, x: np.ceil(x[0]),
    "Round": lambda a, x: np.round(x[0]), "Sign": lambda a, x: np.sign(x[0]),
    "Max": lambda a, x: np.maximum(*x), "Min": lambda a, x: np.minimum(*x),
    "PRelu": lambda a, x: np.where(x[0] < 0, x[0] * x[1], x[0]),
    "Equal": lambda a, x: x[0] == x[1], "Less": lambda a, x: x[0] < x[1],
    "LessOrEqual": lambda a, x: x[0] <= x[1], "Greater": lambda a, x: x[0] > x[1],
    "GreaterOrEqual": lambda a, x: x[0] >= x[1], "And": lambda a, x: x[0] & x[1],
    "Or": lambda a, x: x[0] | x[1], "Xor": lambda a, x: x[0] ^ x[1], "Not": lambda a, x: ~x[0],
    "Mod": lambda a, x: np.fmod(*x) if a.get("fmod") else np.mod(*x),
    "IsNaN": lambda a, x: np.isnan(x[0]),
    "IsInf": lambda a, x: (np.isposinf(x[0]) & (a.get("detect_positive", 1) == 1)) |
                          (np.isneginf(x[0]) & (a.get("detect_negative", 1) == 1)),
    "Pow": lambda a, x: np.power(x[0], x[1].astype(np.float64)),
    "Where": lambda a, x: np.where(*x), "Dropout": lambda a, x: [x[0], np.ones(x[0].shape)],
    "AddN": lambda a, x: sum(x), "Copy": lambda a, x: x[0], "Reorder": lambda a, x: x[0],
    "Attention": attention,
    "AddLayerNorm": lambda a, x: add_norm(a, x, layer_norm),
    "AddRmsNorm": lambda a, x: add_norm(a, x, OPERATORS["RMSNormalization"]),
    "MatMul": matmul, "Gemm": gemm, "Linear": linear, "Conv": conv,
    "ConvTranspose": conv_transpose, "MaxPool": max_pool,
    "AveragePool": average_pool,
    "GlobalAveragePool": lambda a, x: x[0].mean(tuple(range(2, x[0].ndim)), keepdims=True),
    "LayerNormalization": layer_norm,
    "GroupNormalization": lambda a, x: F.group_norm(t(x[0]), a["num_groups"], t(x[1]), t(x[2]),
                                                    a["epsilon"]).numpy(),
    "RMSNormalization": lambda a, x: F.rms_norm(t(x[0]), x[1].shape, t(x[1]),
                                                a.get("epsilon", 1e-5)).numpy(),
    "Softmax": lambda a, x: (np.nan_to_num if a.get("masked") else np.asarray)(
        F.softmax(t(x[0]), a["axis"]).numpy()),
    "LogSoftmax": lambda a, x: F.log_softmax(t(x[0]), a["axis"]).numpy(),
    "ReduceMean": lambda a, x: x[0].mean(tuple(a["axes"]), keepdims=a.get("keepdims", 1) == 1),
    "ReduceSum": lambda a, x: x[0].sum(tuple(a["axes"]), x[0].dtype,
                                       keepdims=a.get("keepdims", 1) == 1),
    "ReduceMax": lambda a, x: x[0].max(tuple(a["axes"]), keepdims=a.get("keepdims", 1) == 1),
    "ReduceMin": lambda a, x: x[0].min(tuple(a["axes"]), keepdims=a.get("keepdims", 1) == 1),
    "ReduceL2": lambda a, x: np.sqrt((x[0] ** 2).sum(tuple(a["axes"]),
                                                     keepdims=a.get("keepdims", 1) == 1)),
    "MaxPoolIndices": max_pool_indices,
    "Reshape": lambda a, x: x[0].reshape(a["shape"]),
    "Transpose": lambda a, x: np.transpose(x[0], a.get("perm")),
    "Concat": lambda a, x: np.concatenate(x, a["axis"]), "Slice": slices, "Split": split,
    "Expand": lambda a, x: np.broadcast_to(x[0], a["shape"]),
    "Gather": lambda a, x: np.take(x[0], x[1], a["axis"]), "CrossEntropySum": cross_entropy,
    "MseSum": lambda a, x: ((x[0] - x[1]) ** 2).sum(), "DotSum": lambda a, x: (x[0] * x[1]).sum(),
    "SumLoss": lambda a, x: x[0].sum(),
}


def expect(line, inputs, outputs):
    if line["op"] == "BatchNormalization":
        return batch_norm(line["attrs"], inputs, line["group"])
    if line["op"] == "Cast":
        return inputs[0].astype(outputs[0].dtype)
    if line["op"] == "View":
        return inputs[0].reshape(outputs[0].shape)
    return OPERATORS[line["op"]](line["attrs"], inputs)


def compare(lines):
    for line in lines:
        inputs = [tensor(x) for x in line["inputs"]]
        outputs = [tensor(y) for y in line["outputs"]]
        expected = expect(line, inputs, outputs)
        if not isinstance(expected, list):
            expected = [expected]
        for ours, theirs in zip(outputs, expected):
            theirs = np.asarray(theirs, np.float64)
            check(ours.shape == theirs.shape,
                  f"variant {line['variant']}: shape {ours.shape}, expected {theirs.shape}")
            scale = 1 + np.abs(theirs).max(initial=0)
            error = np.abs(ours - theirs).max(initial=0)
            check(error <= TOLERANCE * scale,
                  f"variant {line['variant']} ({line['attrs']}): error {error}")
    return f"{len(lines)} cases"


def main():
    seed = os.environ.get("TASUKI_TEST_SEED", str(int(time.time())))
    program = os.path.join(os.environ.get("builddir", "."), "tests/unit/op_dump")
    tap = Tap()
    tap.note(f"TASUKI_TEST_SEED={seed}")
    text = subprocess.run([program, seed], check=True, stdout=subprocess.PIPE).stdout
    lines = [json.loads(line) for line in text.splitlines()]
    for op in dict.fromkeys(line["op"] for line in lines):
        tap.test(f"{op} is what numpy and PyTorch make of it", compare,
                 [line for line in lines if line["op"] == op])
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
