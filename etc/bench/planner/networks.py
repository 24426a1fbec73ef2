# SPDX-License-Identifier: MIT
"""Networks that no one machine could train, in plain PyTorch."""
import importlib.util
import os
import sys

import torch
from torch import nn

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")


def load(name, path):
    """A file of the repository as a module."""
    path = os.path.join(TOP, path)
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.pop(0)
    return module


large = load("large_networks", "etc/bench/large/networks.py")
tests = load("test_networks", "tests/model/networks.py")
bert, gpt200b = large.bert, large.gpt       # 12.9 billion parameters with 256 layers; 200


def bert96():
    return large.bert(96)


def gpt175b():
    """GPT-3."""
    return large.Network(50257, 2048, 12288, 96, 96, True)


def gpt1t():
    return large.Network(50257, 2048, 25600, 160, 128, True)


def residual(depths, wide=1):
    net = tests.residual_net(depths, 64 * wide, 1000, expand=4)
    net[0] = tests.unit(3, 64 * wide, 7, 2)
    return net


def resnet50():
    return residual((3, 4, 6, 3))


def resnet152(wide=8):
    """3.7 billion parameters where all is 8 times as wide as in ResNet-152."""
    return residual((3, 8, 36, 3), wide)


class Amoeba(nn.Module):
    """AmoebaNet-B with 18 normal cells, as wide as makes 0.56 billion parameters."""

    def __init__(self, normal=6, filters=488, classes=1000):
        super().__init__()
        width = before = last = filters // 4
        self.stem = nn.Conv2d(3, width, 3, 2, 1, bias=False)
        self.norm = tests.norm2d(width)
        self.cells, halved = nn.ModuleList(), False
        for smaller in [True, True, *([False] * normal + [True]) * 2, *[False] * normal]:
            width *= 2 if smaller else 1
            genes = tests.GENES["amoebanet-b"][smaller]
            cell = tests.Cell(genes, before, last, width, smaller, halved)
            self.cells.append(cell)
            before, last, halved = last, width * len(cell.free), smaller
        self.head = tests.Head(last, classes)

    def forward(self, x):
        before = last = self.norm(self.stem(x))
        for cell in self.cells:
            before, last = last, cell(before, last)
        return self.head(torch.relu(last))


def amoebanet():
    return Amoeba()
