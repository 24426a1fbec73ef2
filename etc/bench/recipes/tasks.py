# SPDX-License-Identifier: MIT
"""What is learnt: a ResNet reads digits (etc/demo), a small GPT the licences of the system."""
import glob
import json
import os
import struct

import torch
from torch import nn

from networks import Block

HERE = os.path.dirname(os.path.abspath(__file__))
LENGTH = 64


class Task:
    """Networks, data and a recipe, once in each language."""

    def __init__(self, title, module, load, batch, epochs, options, optimizer, schedule, clip,
                 smoothing):
        self.title, self.module, self.load = title, module, load
        self.batch, self.epochs, self.options = batch, epochs, options
        self.optimizer, self.schedule = optimizer, schedule
        self.clip, self.smoothing = clip, smoothing


def resnet():
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16),
                         nn.ReLU(), Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def read(path):
    """Image and label of a safetensors file of the demo."""
    with open(path, "rb") as file:
        data = file.read()
    size, = struct.unpack_from("<Q", data)
    header, found = json.loads(data[8:8 + size]), []
    for name, dtype in (("image", torch.float32), ("label", torch.int64)):
        begin, end = header[name]["data_offsets"]
        bits = bytearray(data[8 + size + begin:8 + size + end])
        found.append(torch.frombuffer(bits, dtype=dtype).reshape(header[name]["shape"]))
    return found


def digits():
    demo = os.path.join(HERE, "..", "..", "demo")
    return [read(os.path.join(demo, f"digits-{part}.safetensors")) for part in ("train", "test")]


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Of bytes; the embedding is the output's matrix, too."""

    def __init__(self, width=64, heads=4, layers=2):
        super().__init__()
        self.token = nn.Embedding(256, width)
        self.position = nn.Parameter(0.02 * torch.randn(1, LENGTH, width))
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.token.weight, std=0.02)

    def forward(self, x):
        x = self.token(x) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.norm(x) @ self.token.weight.t()


def licences():
    """Windows of bytes and the same one further; each tenth is held out."""
    paths = [path for path in sorted(glob.glob("/usr/share/common-licenses/*"))
             if not os.path.islink(path)]
    text = b"".join(open(path, "rb").read() for path in paths)
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    n = (len(data) - 1) // LENGTH
    x = data[:n * LENGTH].reshape(n, LENGTH)
    y = data[1:n * LENGTH + 1].reshape(n, LENGTH)
    held = torch.arange(n) % 10 == 9
    return (x[~held], y[~held]), (x[held], y[held])


def images(parameters):
    return torch.optim.SGD([{"params": list(dict(parameters).values()), "weight_decay": 1e-4}],
                           lr=0.05, momentum=0.9)


def bare(name):
    return name.endswith("bias") or "norm" in name


def text(parameters):
    named = dict(parameters)
    return torch.optim.AdamW(
        [{"params": [p for name, p in named.items() if not bare(name)], "weight_decay": 0.1},
         {"params": [p for name, p in named.items() if bare(name)], "weight_decay": 0.0}],
        lr=3e-3)


def by_steps(optimizer, steps_per_epoch, total):
    del total
    return torch.optim.lr_scheduler.StepLR(optimizer, 2 * steps_per_epoch, 0.1)


def by_cosine(optimizer, steps_per_epoch, total):
    del steps_per_epoch
    rise = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / 40, total_iters=39)
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total - 40, 3e-4)
    return torch.optim.lr_scheduler.SequentialLR(optimizer, [rise, fall], [40])


TASKS = {
    "resnet": Task(
        "ResNet, digits", resnet, digits, 32, 4,
        "--optimizer momentum --lr 0.05 --weight-decay 1e-4 --lr-schedule step "
        "--lr-every 2epochs --label-smoothing 0.1 --batchnorm-samples 32".split(),
        images, by_steps, None, 0.1),
    "gpt": Task(
        "GPT, licences", Gpt, licences, 32, 2,
        "--optimizer adamw --lr 3e-3 --weight-decay 0.1 --no-decay *bias --no-decay *norm* "
        "--lr-schedule cosine --warmup 40 --lr-final 0.1 --clip-norm 1".split(),
        text, by_cosine, 1.0, 0.0),
}
