# SPDX-License-Identifier: MIT
"""The networks of the tests, with widths drawn from the seed. PyTorch only.

Each maker returns a Case: the module in float32, its data (NumPy, first axis = samples), the
loss in both languages and what is special about it.
"""
import copy
import dataclasses
import fnmatch
import random
import typing
import warnings

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


@dataclasses.dataclass
class Case:
    name: str
    module: nn.Module
    inputs: typing.Dict[str, np.ndarray]    # in the order of the module's arguments
    output: str
    target: str
    target_data: np.ndarray
    loss: str                       # "cross-entropy", "mse", "dot"
    global_batch: int = 24
    exporter: str = "torchscript"   # whose file is compared in full
    opset: int = 17
    exact: bool = True              # no constant that float32 rounds is baked into the file
    random: bool = False            # dropout: PyTorch's masks are its own
    optimizers: typing.Tuple[str, ...] = ("sgd", "momentum", "adamw")
    steps: int = 20
    rate: float = 1.0               # times the learning rates of export.py
    fusions: typing.Dict[str, int] = dataclasses.field(default_factory=dict)
    batchnorm: typing.Tuple[int, ...] = ()  # groups to give references for; () without BN
    curves: typing.List[typing.Tuple[int, str]] = dataclasses.field(default_factory=list)
    ties: typing.Dict[str, str] = dataclasses.field(default_factory=dict)
    carries: typing.Tuple[str, ...] = ()    # what goes far in it: "skip", "table", "tie"
    freeze: typing.List[str] = dataclasses.field(default_factory=list)      # patterns
    buffers: typing.List[str] = dataclasses.field(default_factory=list)     # floating ones


def images(rng, samples, channels, size):
    return rng.standard_normal((samples, channels, size, size), dtype=np.float32)


def labels(rng, shape, classes):
    return rng.integers(0, classes, shape, dtype=np.int64)


class MLP(nn.Module):
    def __init__(self, widths, bias=True, activation=nn.ReLU):
        super().__init__()
        layers = []
        for i, o in zip(widths, widths[1:]):
            layers += [nn.Linear(i, o, bias=bias), activation()] if activation \
                else [nn.Linear(i, o, bias=bias)]
        self.layers = nn.Sequential(*(layers[:-1] if activation else layers))

    def forward(self, x):
        return self.layers(x)


def mlp(draw, rng):
    widths = [draw.randint(9, 40) for _ in range(draw.randint(6, 8))] + [draw.randint(5, 12)]
    samples = 840       # 24 and 35 divide it: 20 steps of 35 for 5 and 7 micro-batches
    return Case("mlp", MLP(widths), {"x": rng.standard_normal((samples, widths[0]),
                                                              dtype=np.float32)},
                "logits", "label", labels(rng, samples, widths[-1]), "cross-entropy",
                curves=[(35, "sgd")])


def mlp_mse(draw, rng):
    widths = [draw.randint(9, 40) for _ in range(5)] + [draw.randint(2, 9)]
    return Case("mlp-mse", MLP(widths), {"x": rng.standard_normal((120, widths[0]),
                                                                  dtype=np.float32)},
                "y", "target", rng.standard_normal((120, widths[-1]), dtype=np.float32), "mse")


def linear_dot(draw, rng):
    width = draw.randint(16, 40)
    return Case("linear-dot", MLP([width] * 6, activation=None),
                {"x": rng.standard_normal((120, width), dtype=np.float32)}, "out", "grad",
                rng.standard_normal((120, width), dtype=np.float32), "dot",
                optimizers=("sgd",))


class CNN(nn.Module):
    """Every operator of a residual image network, epsilon and momentum exact in float32. No
    Conv with a bias stands before a BatchNorm: that bias has no gradient but rounding."""

    def __init__(self, channels, width, classes, eps):
        super().__init__()
        def norm(n):
            return nn.BatchNorm2d(n, eps=eps, momentum=0.125)
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm1 = norm(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = norm(width)
        self.conv3 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm3 = norm(width)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False)
        self.norm4 = norm(2 * width)
        self.short = nn.Conv2d(width, 2 * width, 1, stride=2, bias=False)
        self.norm5 = norm(2 * width)
        self.mix = nn.Conv2d(2 * width, 2 * width, 1)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.avgpool = nn.AvgPool2d(2)
        self.gap = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(2 * width, classes)

    def forward(self, image):
        x = self.maxpool(torch.relu(self.norm1(self.conv1(image))))
        y = torch.relu(self.norm2(self.conv2(x)))
        x = torch.relu(self.norm3(self.conv3(y)) + x)
        x = torch.relu(self.norm4(self.down(x)) + self.norm5(self.short(x)))
        x = self.gap(self.avgpool(torch.relu(self.mix(x))))
        return self.fc(torch.flatten(x, 1))


def cnn(draw, rng):
    channels, width, classes = draw.randint(1, 4), draw.randint(4, 9), draw.randint(5, 11)
    return Case("cnn", CNN(channels, width, classes, 2.0 ** -16),
                {"image": images(rng, 120, channels, 12)}, "logits", "label",
                labels(rng, 120, classes), "cross-entropy", batchnorm=(24, 4, 3, 1))


def cnn_old(draw, rng):
    case = cnn(draw, rng)
    case.name, case.opset, case.optimizers = "cnn-old", 9, ("momentum",)
    case.batchnorm = (24,)
    return case


class Encoder(nn.Module):
    """Token and position embeddings, nn.TransformerEncoderLayer, a head for each token."""

    def __init__(self, vocabulary, length, dim, heads, layers, dropout, activation,
                 norm_first, batch_first, tied=False):
        super().__init__()
        self.batch_first = batch_first
        self.token = nn.Embedding(vocabulary, dim)
        self.position = nn.Parameter(0.1 * torch.randn(1, length, dim))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout, activation,
                                       batch_first=batch_first, norm_first=norm_first)
            for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocabulary, bias=not tied)
        if tied:
            self.head.weight = self.token.weight

    def forward(self, tokens):
        x = self.token(tokens) + self.position
        if not self.batch_first:
            x = x.transpose(0, 1)
        for layer in self.layers:
            x = layer(x)
        if not self.batch_first:
            x = x.transpose(0, 1)
        return self.head(self.norm(x))


def encoder(draw, rng, name, samples=72, **options):
    heads = draw.choice([2, 3])
    dim, length = heads * draw.choice([4, 8]), draw.randint(5, 9)
    vocabulary = draw.randint(11, 30)
    settings = {"dropout": 0.0, "activation": "gelu", "norm_first": True, "batch_first": True,
                "layers": 3}
    settings.update(options)
    return Case(name, Encoder(vocabulary, length, dim, heads, **settings),
                {"tokens": labels(rng, (samples, length), vocabulary)}, "logits", "label",
                labels(rng, (samples, length), vocabulary), "cross-entropy",
                exact=False, random=settings["dropout"] > 0)


def transformer(draw, rng):
    return encoder(draw, rng, "transformer")


def transformer_post(draw, rng):
    case = encoder(draw, rng, "transformer-post", activation="relu", norm_first=False,
                   batch_first=False, layers=2)
    case.opset = 14     # LayerNorm in parts
    return case


def transformer_dropout(draw, rng):
    return encoder(draw, rng, "transformer-dropout", dropout=0.25, layers=2)


def tied(draw, rng):
    case = encoder(draw, rng, "tied", layers=2, tied=True)
    case.ties = {"head.weight": "token.weight"}
    return case


class Skips(nn.Module):
    """Long skips, and a mask that every second layer reads."""

    def __init__(self, width, depth, classes):
        super().__init__()
        self.enter = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.leave = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x, mask):
        kept = []
        for i, layer in enumerate(self.enter):
            x = torch.relu(layer(x))
            kept.append(x)
            if i % 2 == 0:
                x = x * mask
        for i, layer in enumerate(self.leave):
            x = torch.relu(layer(torch.cat([x, kept.pop()], 1)))
            if i % 2 == 0:
                x = x * mask
        return self.head(x)


def skips(draw, rng):
    width, classes = draw.randint(9, 24), draw.randint(5, 12)
    return Case("skips", Skips(width, 3, classes),
                {"x": rng.standard_normal((120, width), dtype=np.float32),
                 "mask": (rng.random((120, width)) < 0.7).astype(np.float32)},
                "logits", "label", labels(rng, 120, classes), "cross-entropy")


def mlp_dropout(draw, rng):
    case = mlp(draw, rng)
    layers = []
    for layer in case.module.layers:
        layers += [layer, nn.Dropout(0.25)] if isinstance(layer, nn.ReLU) else [layer]
    case.module = nn.Sequential(*layers)
    case.name, case.random, case.curves = "mlp-dropout", True, []
    return case


class Frozen(nn.Module):
    """A table that is no parameter, and layers that are not trained: at the bottom, where no
    gradient need go, and in the midst, where one must pass."""

    def __init__(self, width, length, vocabulary, classes):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.register_buffer("position", torch.randn(1, length, width))
        self.register_buffer("scale", 0.5 + torch.rand(width))
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        x = self.token(tokens) + self.position
        for layer in self.layers:
            x = torch.relu(layer(x)) * self.scale
        return self.head(self.norm(x))


def frozen(draw, rng):
    width, classes, length, vocabulary = draw.randint(9, 20), draw.randint(7, 11), 6, 17
    case = Case("frozen", Frozen(width, length, vocabulary, classes),
                {"tokens": rng.integers(0, vocabulary, (120, length))}, "logits", "label",
                rng.integers(0, classes, (120, length)), "cross-entropy")
    case.exact = False
    case.freeze, case.buffers = ["token.*", "layers.[02].*"], ["position", "scale"]
    for name, parameter in case.module.named_parameters():
        if any(fnmatch.fnmatch(name, pattern) for pattern in case.freeze):
            parameter.requires_grad_(False)
    return case


class UNet(nn.Module):
    """Down and up again over a skip: group and instance norms, transposed and resized."""

    def __init__(self, channels, width, classes):
        super().__init__()
        self.down = nn.Conv2d(channels, width, 3, padding=1, padding_mode="reflect")
        self.norm1 = nn.GroupNorm(2, width, eps=2.0 ** -16)
        self.deep = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False)
        self.norm2 = nn.InstanceNorm2d(2 * width, affine=True, eps=2.0 ** -16)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.prelu = nn.PReLU(width)
        self.head = nn.Conv2d(2 * width, classes, 1)

    def forward(self, x):
        skip = nn.functional.silu(self.norm1(self.down(x)))
        y = nn.functional.hardswish(self.norm2(self.deep(skip)))
        y = torch.cat([self.prelu(self.up(y)), skip], 1)
        y = nn.functional.interpolate(self.head(y), scale_factor=2, mode="bilinear")
        return nn.functional.adaptive_max_pool2d(y, 1).flatten(1)


def unet(draw, rng):
    channels, width, classes = draw.randint(1, 3), 2 * draw.randint(2, 4), draw.randint(5, 9)
    case = Case("unet", UNet(channels, width, classes),
                {"image": images(rng, 120, channels, 8)}, "logits", "label",
                labels(rng, 120, classes), "cross-entropy")
    case.exact, case.carries = False, ("skip",)
    return case


class Tagger(nn.Module):
    """Two layers of LSTM in both directions, then a GRU."""

    def __init__(self, vocabulary, width, classes):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, 2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(2 * width, width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        x, _ = self.lstm(self.token(tokens))
        x, _ = self.gru(x)
        return self.head(x)


def tagger(draw, rng):
    # As many classes as words in a sentence would be taken for PyTorch's order of axes.
    width, classes, length, vocabulary = draw.randint(5, 12), draw.randint(6, 9), 5, 17
    case = Case("tagger", Tagger(vocabulary, width, classes),
                {"tokens": rng.integers(0, vocabulary, (120, length))}, "logits", "label",
                rng.integers(0, classes, (120, length)), "cross-entropy")
    return case


def settle(x, weight, bias):
    """Scripted: the exporter writes a Loop with an If in it, and an If behind it."""
    for i in range(3):
        x = torch.tanh(torch.nn.functional.linear(x, weight, bias))
        if i == 1:
            x = x + 1.0
    if x.size(1) > 4:
        x = torch.relu(x)
    else:
        x = -x
    return x


with warnings.catch_warnings():
    warnings.simplefilter("ignore")     # of its deprecation
    settle = torch.jit.script(settle)


class Steps(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.first, self.deep = nn.Linear(width, width), nn.Linear(width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(settle(self.first(x), self.deep.weight, self.deep.bias))


def steps(draw, rng):
    width, classes = draw.randint(6, 20), draw.randint(5, 11)
    return Case("steps", Steps(width, classes),
                {"x": rng.standard_normal((120, width), dtype=np.float32)}, "logits", "label",
                labels(rng, 120, classes), "cross-entropy")


class Llama(nn.Module):
    """RMS norms, rotated grouped queries, causal attention and SwiGLU."""

    def __init__(self, vocabulary, heads, shared, size, length):
        super().__init__()
        self.heads, self.shared, self.size = heads, shared, size
        width = heads * size
        self.token = nn.Embedding(vocabulary, width)
        self.norm1, self.norm2 = (nn.RMSNorm(width, eps=2.0 ** -16) for _ in range(2))
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * shared * size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.rise = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.fall = nn.Linear(2 * width, width, bias=False)
        self.head = nn.Linear(width, vocabulary, bias=False)
        angle = torch.outer(torch.arange(length), 100.0 ** -torch.arange(0, 1, 2 / size))
        self.register_buffer("cos", torch.cat([angle.cos(), angle.cos()], -1))
        self.register_buffer("sin", torch.cat([angle.sin(), angle.sin()], -1))

    def turn(self, x):
        a, b = x.chunk(2, -1)
        return x * self.cos + torch.cat([-b, a], -1) * self.sin

    def forward(self, tokens):
        x = self.token(tokens)
        y = self.norm1(x)
        q = self.q(y).unflatten(2, (self.heads, self.size)).transpose(1, 2)
        k, v = self.kv(y).unflatten(2, (2 * self.shared, self.size)).transpose(1, 2).chunk(2, 1)
        y = nn.functional.scaled_dot_product_attention(
            self.turn(q), self.turn(k).repeat_interleave(self.heads // self.shared, 1),
            v.repeat_interleave(self.heads // self.shared, 1), is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return self.head(x + self.fall(nn.functional.silu(self.gate(y)) * self.rise(y)))


def llama(draw, rng):
    length, vocabulary = 6, 17
    case = Case("llama", Llama(vocabulary, 4, 2, 2 * draw.randint(2, 4), length),
                {"tokens": rng.integers(0, vocabulary, (120, length))}, "logits", "label",
                rng.integers(0, vocabulary, (120, length)), "cross-entropy")
    case.exact, case.buffers, case.carries = False, ["cos", "sin"], ("skip",)
    case.exporter = "import"
    return case


MAKERS = {"mlp": mlp, "mlp-mse": mlp_mse, "linear-dot": linear_dot, "cnn": cnn, "cnn-old": cnn_old,
          "transformer": transformer, "transformer-post": transformer_post,
          "transformer-dropout": transformer_dropout, "tied": tied, "skips": skips,
          "mlp-dropout": mlp_dropout, "frozen": frozen, "unet": unet, "tagger": tagger,
          "llama": llama, "steps": steps}


class Kinks(TorchDispatchMode):
    """How near to 0 an input of a ReLU comes, relative to the largest."""

    def __init__(self):
        super().__init__()
        self.nearest = 1.0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in (torch.ops.aten.relu, torch.ops.aten.relu_):
            size = args[0].detach().abs()
            self.nearest = min(self.nearest, (size.min() / size.max()).item())
        return func(*args, **(kwargs or {}))


def is_smooth(case):
    """Is no ReLU so near its kink that float32 may take the other side? Then its gradient is
    another one: the first step says nothing. 8 units of float32 stand for the rounding of what
    comes before."""
    def first(data):
        data = torch.from_numpy(data[:case.global_batch])
        return data.double() if data.is_floating_point() else data

    with torch.random.fork_rng(), torch.no_grad(), Kinks() as kinks:
        copy.deepcopy(case.module).double().train()(*map(first, case.inputs.values()))
    return kinks.nearest > 8 * 2.0 ** -24


def make(name, seed):
    """Small networks are drawn until they are smooth; among the activations of large ones some
    always are not."""
    for attempt in range(32):
        case = drawn(name, seed + 10000 * attempt)
        if name not in MAKERS or is_smooth(case):
            break
    return case


def drawn(name, seed):
    """No two parameters are equal (exporters merge equal ones) and none is 0 or 1 throughout."""
    from networks import NETWORKS
    from zoo import ZOO
    makers = {**MAKERS, **NETWORKS, **{f"{package}-{key}": maker for package in ZOO
                                       for key, maker in ZOO[package].items()}}
    torch.manual_seed(seed)
    case = makers[name](random.Random(seed), np.random.default_rng(seed))
    case.name = name
    with torch.no_grad():
        for parameter in case.module.parameters():
            if parameter.dim() == 1:
                parameter += 0.125 * torch.randn_like(parameter)
    return case
