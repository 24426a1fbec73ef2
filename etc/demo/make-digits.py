#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Make digits-train.safetensors, digits-test.safetensors and digits.onnx.

Needs torch, onnx and scikit-learn; the files made are part of the distribution, so nobody
has to run this. With --check it also trains the network in PyTorch, BatchNorm over groups
of samples as Tasuki computes it, and prints the accuracy for several seeds.
"""
import argparse
import os
import sys
import warnings

import numpy as np
import torch
from sklearn.datasets import load_digits

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "model"))
import batchnorm  # noqa: E402
import tensors  # noqa: E402

GROUP = 32


class Residual(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1 = torch.nn.BatchNorm2d(width)
        self.conv2 = torch.nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = torch.nn.BatchNorm2d(width)

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + x)


class Digits(torch.nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(width)
        self.block1 = Residual(width)
        self.pool = torch.nn.MaxPool2d(2)
        self.widen = torch.nn.Conv2d(width, 2 * width, 3, padding=1, bias=False)
        self.widen_norm = torch.nn.BatchNorm2d(2 * width)
        self.block2 = Residual(2 * width)
        self.head = torch.nn.Linear(2 * width * 16, 10)

    def forward(self, image):
        x = torch.relu(self.norm(self.conv(image)))
        x = self.pool(self.block1(x))
        x = torch.relu(self.widen_norm(self.widen(x)))
        return self.head(torch.flatten(self.block2(x), 1))


def split():
    """Of each class, every fifth image (in the order of the set) is held out."""
    data = load_digits()
    held = np.zeros(len(data.target), bool)
    for digit in range(10):
        held[np.flatnonzero(data.target == digit)[4::5]] = True
    image = (data.images[:, None] / 16).astype(np.float32)
    label = data.target.astype(np.int64)
    return (image[~held], label[~held]), (image[held], label[held])


def export(path):
    torch.manual_seed(20)
    model = Digits()
    model.train()
    warnings.simplefilter("ignore")
    torch.onnx.export(model, (torch.zeros(2, 1, 8, 8),), path, dynamo=False, opset_version=17,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=["image"], output_names=["logits"],
                      dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}})


def accuracy(seed, train, test, steps, batch, lr):
    torch.manual_seed(seed)
    model = batchnorm.by_groups(Digits(), GROUP)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)
    image, label = (torch.from_numpy(a) for a in train)
    order = torch.randperm(len(label))
    at = 0
    for _ in range(steps):
        if at + batch > len(order):
            order, at = torch.randperm(len(label)), 0
        pick = order[at:at + batch]
        at += batch
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(image[pick]), label[pick]).backward()
        optimizer.step()
    model.eval()
    image, label = (torch.from_numpy(a) for a in test)
    with torch.no_grad():
        return float((model(image).argmax(1) == label).double().mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", type=int, metavar="SEEDS", default=0)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.03)
    args = parser.parse_args()
    train, test = split()
    if args.check:
        steps = args.epochs * (len(train[1]) // args.batch)
        for seed in range(args.check):
            print(seed, accuracy(seed, train, test, steps, args.batch, args.lr), flush=True)
        return
    for name, (image, label) in (("train", train), ("test", test)):
        tensors.write(os.path.join(HERE, f"digits-{name}.safetensors"),
                      {"image": image, "label": label})
    export(os.path.join(HERE, "digits.onnx"))


if __name__ == "__main__":
    main()
