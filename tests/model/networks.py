# SPDX-License-Identifier: MIT
"""Networks that people train, at a reduced size: own definitions, in the shape of the published
ones. Each maker returns a Case (models.py) with what fusion has to find in it.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

from models import Case, images, labels

EPS = 2.0 ** -16


def norm2d(width):
    return nn.BatchNorm2d(width, eps=EPS, momentum=0.125)


def conv(i, o, kernel, stride=1, groups=1):
    return nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False)


def unit(i, o, kernel=3, stride=1, groups=1, act=nn.ReLU):
    """Convolution, norm, activation."""
    layers = [conv(i, o, kernel, stride, groups), norm2d(o)]
    return nn.Sequential(*layers, act()) if act else nn.Sequential(*layers)


class Head(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(width, classes)

    def forward(self, x):
        return self.fc(torch.flatten(self.pool(x), 1))


class Residual(nn.Module):
    """A basic block, or a bottleneck where 'narrow' is given."""

    def __init__(self, i, o, stride, narrow=0):
        super().__init__()
        self.body = nn.Sequential(
            unit(i, narrow, 1), unit(narrow, narrow, 3, stride), unit(narrow, o, 1, act=None)
        ) if narrow else nn.Sequential(unit(i, o, 3, stride), unit(o, o, act=None))
        # As if trained a little: a block starts near its skip, and rounding does not grow. With
        # 1, as zoo.py has the shallower ones, PyTorch's own float32 gradients of a deep one are
        # off by a tenth (is_steady() in export.py).
        nn.init.constant_(self.body[-1][1].weight, 0.25)
        self.short = unit(i, o, 1, stride, act=None) if stride > 1 or i != o else nn.Identity()

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


def residual_net(depths, width, classes, expand=0, wide=1):
    layers, i = [unit(3, width), nn.MaxPool2d(3, 2, 1)], width
    for level, depth in enumerate(depths):
        for n in range(depth):
            o = width * 2 ** level * (expand or 1) * (1 if expand else wide)
            narrow = width * 2 ** level * wide if expand else 0
            layers.append(Residual(i, o, 2 if level and not n else 1, narrow))
            i = o
    return nn.Sequential(*layers, Head(i, classes))


def vision(name, module, rng, classes, size=16, batchnorm=True, batch=8, **fusions):
    case = Case(name, module, {"image": images(rng, 32, 3, size)}, "logits", "label",
                labels(rng, 32, classes), "cross-entropy", global_batch=batch, steps=10,
                optimizers=("momentum",),
                batchnorm=(batch, batch // 2) if batchnorm else (),
                fusions=fusions or {"linear+bias": 1})
    case.exact, case.carries = False, ("skip",)
    return case


def resnet18(draw, rng):
    return vision("resnet18", residual_net((2, 2, 2, 2), 4, 7), rng, 7, size=32)


def resnet50(draw, rng):
    return vision("resnet50", residual_net((3, 4, 6, 3), 4, 7, expand=4), rng, 7,
                  size=32, batch=16)


def wide_resnet(draw, rng):
    return vision("wide-resnet", residual_net((2, 2, 2), 4, 7, wide=2), rng, 7)


def vgg(draw, rng):
    layers, i = [], 3
    for o, depth in ((4, 1), (6, 1), (8, 2)):
        for _ in range(depth):
            layers += [nn.Conv2d(i, o, 3, padding=1), nn.ReLU()]
            i = o
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(32, 12), nn.ReLU(), nn.Linear(12, 7)]
    case = vision("vgg", nn.Sequential(*layers), rng, 7, batchnorm=False,
                  **{"linear+bias+relu": 1, "linear+bias": 1})
    case.carries = ()
    return case


class Dense(nn.Module):
    """Each layer reads what all before it made."""

    def __init__(self, width, growth, depth):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(norm2d(width + n * growth), nn.ReLU(),
                          conv(width + n * growth, 2 * growth, 1), norm2d(2 * growth),
                          nn.ReLU(), conv(2 * growth, growth, 3)) for n in range(depth))

    def forward(self, x):
        parts = [x]
        for layer in self.layers:
            parts.append(layer(torch.cat(parts, 1)))
        return torch.cat(parts, 1)


def densenet(draw, rng):
    module = nn.Sequential(unit(3, 6), Dense(6, 3, 4), norm2d(18), nn.ReLU(), conv(18, 9, 1),
                           nn.AvgPool2d(2), Dense(9, 3, 3), norm2d(18), nn.ReLU(), Head(18, 7))
    return vision("densenet", module, rng, 7)


class Squeeze(nn.Module):
    """Squeeze and excite."""

    def __init__(self, width, act, gate):
        super().__init__()
        self.down, self.up = nn.Conv2d(width, width // 2, 1), nn.Conv2d(width // 2, width, 1)
        self.pool, self.act, self.gate = nn.AdaptiveAvgPool2d(1), act(), gate()

    def forward(self, x):
        return x * self.gate(self.up(self.act(self.down(self.pool(x)))))


class Inverted(nn.Module):
    """Widen, a convolution for each channel, squeeze and excite, narrow."""

    def __init__(self, i, o, kernel, stride, act, squeeze, gate=nn.Hardsigmoid,
                 inner=nn.ReLU):
        super().__init__()
        wide = 2 * i
        layers = [unit(i, wide, 1, act=act), unit(wide, wide, kernel, stride, wide, act)]
        if squeeze:
            layers.append(Squeeze(wide, inner, gate))
        self.body = nn.Sequential(*layers, unit(wide, o, 1, act=None))
        self.skip = stride == 1 and i == o

    def forward(self, x):
        return self.body(x) + x if self.skip else self.body(x)


def mobilenet(draw, rng):
    module = nn.Sequential(unit(3, 4, act=nn.Hardswish), Inverted(4, 4, 3, 1, nn.ReLU, False),
                           Inverted(4, 6, 5, 2, nn.ReLU, True),
                           Inverted(6, 6, 5, 1, nn.Hardswish, True),
                           Inverted(6, 8, 3, 2, nn.Hardswish, True),
                           unit(8, 12, 1, act=nn.Hardswish), nn.AdaptiveAvgPool2d(1),
                           nn.Flatten(), nn.Linear(12, 10), nn.Hardswish(), nn.Linear(10, 7))
    return vision("mobilenet-v3", module, rng, 7, size=32, **{"linear+bias": 2})


def efficientnet(draw, rng):
    def block(i, o, kernel, stride):
        return Inverted(i, o, kernel, stride, nn.SiLU, True, nn.Sigmoid, nn.SiLU)
    module = nn.Sequential(unit(3, 4, act=nn.SiLU), block(4, 4, 3, 1), block(4, 6, 5, 2),
                           block(6, 6, 3, 1), unit(6, 12, 1, act=nn.SiLU), Head(12, 7))
    return vision("efficientnet", module, rng, 7, size=32, **{"silu": 11, "linear+bias": 1})


class Inception(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.one = unit(i, o, 1)
        self.three = nn.Sequential(unit(i, o, 1), unit(o, o, 3))
        self.five = nn.Sequential(unit(i, o, 1), unit(o, o, 5))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), unit(i, o, 1))

    def forward(self, x):
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)


def googlenet(draw, rng):
    module = nn.Sequential(unit(3, 4), nn.MaxPool2d(3, 2, ceil_mode=True), Inception(4, 2),
                           Inception(8, 3), nn.MaxPool2d(3, 2, ceil_mode=True),
                           Inception(12, 3), Head(12, 7))
    return vision("googlenet", module, rng, 7)


class Separable(nn.Module):
    def __init__(self, width, kernel, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.ReLU(), conv(width, width, kernel, stride, width), conv(width, width, 1),
            norm2d(width), nn.ReLU(), conv(width, width, kernel, 1, width),
            conv(width, width, 1), norm2d(width))

    def forward(self, x):
        return self.body(x)


class Halve(nn.Module):
    """Two convolutions of every second pixel, the second one pixel further."""

    def __init__(self, i, o):
        super().__init__()
        self.a, self.b = conv(i, o // 2, 1, 2), conv(i, o - o // 2, 1, 2)
        self.norm = norm2d(o)

    def forward(self, x):
        x = torch.relu(x)
        return self.norm(torch.cat([self.a(x), self.b(F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:])],
                                   1))


def operation(name, width, stride):
    kind, _, size = name.partition("-")
    if kind == "sep":
        return Separable(width, int(size), stride)
    if kind == "avg":
        return nn.AvgPool2d(3, stride, 1, count_include_pad=False)
    if kind == "max":
        return nn.MaxPool2d(3, stride, 1)
    if kind == "conv":
        return nn.Sequential(nn.ReLU(), conv(width, width, int(size), stride), norm2d(width))
    return nn.Identity() if stride == 1 else Halve(width, width)


class Cell(nn.Module):
    """Five pairs of operations on the outputs of the two cells before and of earlier pairs;
    what no pair reads is joined."""

    def __init__(self, genes, before, last, width, reduce, halved):
        super().__init__()
        self.genes = genes
        self.enter = nn.ModuleList([
            Halve(before, width) if halved else nn.Sequential(nn.ReLU(),
                                                              unit(before, width, 1, act=None)),
            nn.Sequential(nn.ReLU(), unit(last, width, 1, act=None))])
        self.operations = nn.ModuleList(
            operation(name, width, 2 if reduce and at < 2 else 1)
            for pair in genes for name, at in pair)
        used = {at for pair in genes for _, at in pair}
        self.free = [i for i in range(2, 2 + len(genes)) if i not in used]

    def forward(self, before, last):
        states, operations = [self.enter[0](before), self.enter[1](last)], iter(self.operations)
        for pair in self.genes:
            a, b = (next(operations)(states[at]) for _, at in pair)
            states.append(a + b)
        return torch.cat([states[i] for i in self.free], 1)


GENES = {
    "amoebanet-b": [[(("sep-3", 1), ("skip", 0)), (("sep-3", 1), ("avg", 0)),
                     (("conv-1", 0), ("sep-3", 1)), (("sep-3", 2), ("skip", 0)),
                     (("sep-3", 4), ("avg", 1))],
                    [(("sep-3", 0), ("conv-1", 1)), (("sep-5", 1), ("max", 0)),
                     (("sep-3", 1), ("max", 0)), (("skip", 2), ("sep-3", 3)),
                     (("skip", 2), ("avg", 4))]],
    "amoebanet-d": [[(("conv-1", 1), ("max", 1)), (("sep-3", 2), ("skip", 0)),
                     (("sep-5", 0), ("conv-1", 1)), (("skip", 1), ("sep-3", 2)),
                     (("avg", 4), ("skip", 3))],
                    [(("max", 0), ("sep-3", 1)), (("max", 0), ("conv-3", 0)),
                     (("conv-1", 1), ("sep-3", 2)), (("avg", 0), ("max", 1)),
                     (("skip", 3), ("sep-3", 4))]],
}


class Amoeba(nn.Module):
    def __init__(self, normal, reduce, width, classes):
        super().__init__()
        self.stem = unit(3, width, act=None)
        self.cells, before, last, halved = nn.ModuleList(), width, width, False
        for smaller in (False, True, False):
            width *= 2 if smaller else 1
            cell = Cell(reduce if smaller else normal, before, last, width, smaller, halved)
            self.cells.append(cell)
            before, last, halved = last, width * len(cell.free), smaller
        self.head = Head(last, classes)

    def forward(self, x):
        before = last = self.stem(x)
        for cell in self.cells:
            before, last = last, cell(before, last)
        return self.head(torch.relu(last))


def amoebanet_b(draw, rng):
    return vision("amoebanet-b", Amoeba(*GENES["amoebanet-b"], 4, 7), rng, 7, size=8)


def amoebanet_d(draw, rng):
    return vision("amoebanet-d", Amoeba(*GENES["amoebanet-d"], 4, 7), rng, 7, size=8)


# Sequences ---------------------------------------------------------------------------------

LENGTH, VOCABULARY = 6, 19


def text(name, module, inputs, target, classes_at="logits", **fusions):
    case = Case(name, module, inputs, classes_at, "label", target, "cross-entropy",
                global_batch=8, steps=10, optimizers=("momentum",), fusions=fusions)
    case.exact, case.carries = False, ("skip",)
    return case


def words(rng, samples=32, length=LENGTH):
    return labels(rng, (samples, length), VOCABULARY)


def split_heads(x, heads):
    return x.view(x.size(0), x.size(1), heads, -1).transpose(1, 2)


def join_heads(x):
    return x.transpose(1, 2).reshape(x.size(0), x.size(2), -1)


class Affine(nn.Module):
    """GPT-2's projection: the weight as [in, out], tokens of all sentences as rows."""

    def __init__(self, i, o):
        super().__init__()
        self.weight = nn.Parameter(0.2 * torch.randn(i, o))
        self.bias = nn.Parameter(torch.zeros(o))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(
            *x.shape[:-1], -1)


class GptLayer(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = Affine(width, 3 * width), Affine(width, width)
        self.rise, self.fall = Affine(width, 4 * width), Affine(4 * width, width)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).bool(),
                             persistent=False)

    def forward(self, x):
        q, k, v = (split_heads(y, self.heads)
                   for y in self.attend(self.norm1(x)).split(x.size(-1), 2))
        score = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
        score = torch.where(self.mask, score, torch.finfo(torch.float32).min)
        x = x + self.project(join_heads(score.softmax(-1) @ v))
        y = self.rise(self.norm2(x))
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y ** 3)))
        return x + self.fall(y)


class Gpt2(nn.Module):
    def __init__(self, width, heads, layers):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.layers = nn.ModuleList(GptLayer(width, heads, LENGTH) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.token.weight

    def forward(self, tokens):
        x = self.token(tokens) + self.place(torch.arange(tokens.size(1)))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def gpt2(draw, rng):
    case = text("gpt2", Gpt2(8, 2, 4), {"tokens": words(rng)}, words(rng),
                attention=4, **{"linear": 1, "linear+bias": 16, "gelu": 4,
                                "residual+layer-norm": 1})
    case.ties, case.carries = {"head.weight": "token.weight"}, ("skip", "tie")
    return case


class BertLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width, 1e-12), nn.LayerNorm(width, 1e-12)
        self.rise, self.fall = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, mask):
        q, k, v = (split_heads(layer(x), self.heads) for layer in (self.q, self.k, self.v))
        score = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1)) + mask
        x = self.norm1(self.out(join_heads(score.softmax(-1) @ v)) + x)
        return self.norm2(self.fall(F.gelu(self.rise(x))) + x)


class Bert(nn.Module):
    def __init__(self, width, heads, layers, classes=0):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.segment, self.norm = nn.Embedding(2, width), nn.LayerNorm(width, 1e-12)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(layers))

    def forward(self, tokens, segments, mask):
        mask = (1.0 - mask[:, None, None, :].to(self.segment.weight.dtype)) * \
            torch.finfo(torch.float32).min
        x = self.token(tokens) + self.place(torch.arange(tokens.size(1))) + \
            self.segment(segments)
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, mask)
        return x


class MaskedWords(nn.Module):
    def __init__(self, width, heads, layers):
        super().__init__()
        self.bert = Bert(width, heads, layers)
        self.dense, self.norm = nn.Linear(width, width), nn.LayerNorm(width, 1e-12)
        self.decoder = nn.Linear(width, VOCABULARY)
        self.decoder.weight = self.bert.token.weight

    def forward(self, tokens, segments, mask):
        x = self.bert(tokens, segments, mask)
        return self.decoder(self.norm(F.gelu(self.dense(x))))


def bert_inputs(rng, samples=32):
    segments = (labels(rng, (samples, LENGTH), LENGTH) > 2).astype("int64")
    mask = (labels(rng, (samples, LENGTH), 5) > 0).astype("int64")
    mask[:, 0] = 1
    return {"tokens": words(rng), "segments": segments, "mask": mask}


def bert(draw, rng):
    target = words(rng)
    target[labels(rng, target.shape, 3) > 0] = -100     # not masked: not to be guessed
    target[:, 0] = 1
    case = text("bert", MaskedWords(8, 2, 4), bert_inputs(rng), target, attention=4,
                **{"linear+bias": 21, "linear+bias+gelu": 5, "residual+layer-norm": 9})
    case.ties = {"decoder.weight": "bert.token.weight"}
    case.carries = ("skip", "table", "tie")
    return case


class Bertac(nn.Module):
    """BERT beside a convolutional network over the same words, joined before the classes."""

    def __init__(self, width, classes):
        super().__init__()
        self.bert, self.token = Bert(width, 2, 2), nn.Embedding(VOCABULARY, width)
        self.convs = nn.ModuleList(nn.Conv1d(width, 4, k) for k in (1, 2, 3))
        self.join = nn.Linear(width + 12, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 2 * width, 0, "gelu",
                                                batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens, segments, mask):
        x, y = self.bert(tokens, segments, mask), self.token(tokens).transpose(1, 2)
        y = torch.cat([torch.relu(c(y)).amax(2) for c in self.convs], 1)
        y = y.unsqueeze(1).expand(-1, x.size(1), -1)
        return self.head(self.layer(self.join(torch.cat([x, y], 2)))[:, 0])


def bertac(draw, rng):
    return text("bertac", Bertac(8, 5), bert_inputs(rng), labels(rng, 32, 5),
                attention=3, split=1, **{"linear+bias": 15, "linear+bias+gelu": 3,
                                         "residual+layer-norm": 7})


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS))


class T5Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False)
                                            for _ in range(4))

    def forward(self, x, memory, bias):
        q, k, v = (split_heads(y, self.heads)
                   for y in (self.q(x), self.k(memory), self.v(memory)))
        score = q @ k.transpose(-1, -2)
        score = score if bias is None else score + bias
        return self.out(join_heads(score.softmax(-1) @ v))


class T5Layer(nn.Module):
    def __init__(self, width, heads, decoder):
        super().__init__()
        self.norms = nn.ModuleList(RmsNorm(width) for _ in range(3 if decoder else 2))
        self.attend = T5Attention(width, heads)
        self.cross = T5Attention(width, heads) if decoder else None
        self.rise, self.fall = (nn.Linear(i, o, bias=False)
                                for i, o in ((width, 2 * width), (2 * width, width)))

    def forward(self, x, bias, memory=None):
        y = self.norms[0](x)
        x = x + self.attend(y, y, bias)
        if self.cross is not None:
            x = x + self.cross(self.norms[1](x), memory, None)
        return x + self.fall(torch.relu(self.rise(self.norms[-1](x))))


class T5(nn.Module):
    """An encoder and a decoder; the distance of two words is a learned bias of each head, which
    all layers share."""

    def __init__(self, width, heads, layers):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.near = nn.ModuleList(nn.Embedding(8, heads) for _ in range(2))
        self.encoder, self.decoder = (
            nn.ModuleList(T5Layer(width, heads, decoder) for _ in range(layers))
            for decoder in (False, True))
        self.norms = nn.ModuleList(RmsNorm(width) for _ in range(2))

    def bias(self, table, length, both):
        place = torch.arange(length)
        apart = place[None, :] - place[:, None]
        half = 4 if both else 8
        base = (apart > 0).long() * half if both else torch.zeros_like(apart)
        apart = apart.abs() if both else -torch.clamp(apart, max=0)
        exact = half // 2
        far = exact + (torch.log(apart.float() / exact + 1e-6) / math.log(16 / exact) *
                       (half - exact)).long()
        far = torch.clamp(far, max=half - 1)
        bucket = base + torch.where(apart < exact, apart, far)
        return table(bucket).permute(2, 0, 1).unsqueeze(0)

    def forward(self, tokens, answer):
        memory, x = self.token(tokens), self.token(answer)
        near = self.bias(self.near[0], tokens.size(1), True)
        for layer in self.encoder:
            memory = layer(memory, near)
        memory = self.norms[0](memory)
        length = answer.size(1)
        future = torch.triu(torch.full((length, length), torch.finfo(torch.float32).min), 1)
        near = self.bias(self.near[1], length, False) + future
        for layer in self.decoder:
            x = layer(x, near, memory)
        return F.linear(self.norms[1](x), self.token.weight)


def t5(draw, rng):
    case = text("t5", T5(8, 2, 2), {"tokens": words(rng, length=7), "answer": words(rng)},
                words(rng), attention=6, **{"rms-norm": 10, "residual+rms-norm": 2,
                                           "linear+relu": 4, "linear": 29})
    case.carries = ("skip", "tie")
    return case


class VitLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.all, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.rise, self.fall = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        y = self.all(self.norm1(x))
        y = y.reshape(x.size(0), x.size(1), 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(y[0], y[1], y[2])
        x = x + self.out(join_heads(y))
        return x + self.fall(F.gelu(self.rise(self.norm2(x))))


class Vit(nn.Module):
    def __init__(self, width, heads, layers, classes):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.place = nn.Parameter(torch.randn(1, 17, width))
        self.layers = nn.ModuleList(VitLayer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, image):
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.size(0), -1, -1), x], 1) + self.place
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


def vit(draw, rng):
    return vision("vit", Vit(8, 2, 3, 7), rng, 7, batchnorm=False, attention=3,
                  **{"linear+bias": 10, "linear+bias+gelu": 3, "residual+layer-norm": 1})


class Experts(nn.Module):
    """Every expert answers every word; a gate weighs the answers."""

    def __init__(self, width, experts):
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(width), nn.Linear(width, experts, bias=False)
        self.rise = nn.Parameter(0.3 * torch.randn(experts, width, 2 * width))
        self.fall = nn.Parameter(0.3 * torch.randn(experts, 2 * width, width))

    def forward(self, x):
        y = self.norm(x)
        share = self.gate(y).softmax(-1)
        each = F.silu(torch.einsum("btd,edh->bteh", y, self.rise))
        each = torch.einsum("bteh,ehd->bted", each, self.fall)
        return x + (share.unsqueeze(-1) * each).sum(2)


class Mixture(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(
            layer for _ in range(layers) for layer in (VitLayer(width, 2), Experts(width, 3)))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        x = self.token(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def mixture(draw, rng):
    return text("mixture", Mixture(8, 2), {"tokens": words(rng)}, words(rng), attention=2,
                silu=2, linear=4, **{"linear+bias": 7, "linear+bias+gelu": 2})


NETWORKS = {"resnet18": resnet18, "resnet50": resnet50, "wide-resnet": wide_resnet, "vgg": vgg,
            "densenet": densenet, "mobilenet-v3": mobilenet, "efficientnet": efficientnet,
            "googlenet": googlenet, "amoebanet-b": amoebanet_b, "amoebanet-d": amoebanet_d,
            "gpt2": gpt2, "bert": bert, "bertac": bertac, "t5": t5, "vit": vit,
            "mixture": mixture}
