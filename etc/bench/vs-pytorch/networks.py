# SPDX-License-Identifier: MIT
"""The networks that are compared: module, batch, loss and optimizer of each."""
import torch
from torch import nn


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, inner, outer, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.shortcut = nn.Identity()
        if stride != 1 or inner != outer:
            self.shortcut = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False),
                                          nn.BatchNorm2d(outer))

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
              nn.MaxPool2d(3, 2, 1)]
    inner = 64
    for outer, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inner, outer, stride), Block(outer, outer, 1)]
        inner = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def mlp():
    return nn.Sequential(*(nn.Linear(512, 512) for _ in range(10)))


def encoder(dropout=0.1):
    layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout, activation="gelu",
                                       batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


class Network:
    def __init__(self, title, make, shape, target, loss, optimizer, options, images=False):
        self.title, self.make, self.shape = title, make, shape
        self.target, self.loss = target, loss       # what targets and the loss are
        self.optimizer, self.options = optimizer, options
        self.images = images                        # channels_last is worth a try

    def module(self):
        torch.manual_seed(1)
        return self.make().train()

    def batch(self):
        generator = torch.Generator().manual_seed(2)
        x = torch.randn(self.shape, generator=generator)
        if self.target == "labels":
            return x, torch.randint(0, 1000, self.shape[:1], generator=generator)
        return x, torch.randn(self.shape, generator=generator)

    def torch_loss(self, y, target):
        if self.loss == "cross-entropy":
            return nn.functional.cross_entropy(y, target)
        return nn.functional.mse_loss(y, target) if self.loss == "mse" else (y * target).sum()

    def torch_optimizer(self, parameters):
        if self.optimizer == "adamw":
            return torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.01)
        momentum = 0.9 if self.optimizer == "momentum" else 0
        return torch.optim.SGD(parameters, lr=1e-4, momentum=momentum)


NETWORKS = {
    "mlp": Network("MLP 10 x Linear(512,512), batch 64, SGD", mlp, (64, 512), "tensor", "dot",
                   "sgd", ["--lr", "1e-4"]),
    "resnet18": Network("ResNet-18, batch 8 at 224x224, momentum", resnet18, (8, 3, 224, 224),
                        "labels", "cross-entropy", "momentum", ["--lr", "1e-4"], images=True),
    "encoder": Network("Transformer encoder, 4 x 768, 4x128 tokens, dropout 0.1, AdamW",
                       encoder, (4, 128, 768), "tensor", "mse", "adamw",
                       ["--lr", "1e-4", "--weight-decay", "0.01"]),
    "encoder-0": Network("Transformer encoder, the same without dropout",
                         lambda: encoder(0), (4, 128, 768), "tensor", "mse", "adamw",
                         ["--lr", "1e-4", "--weight-decay", "0.01"]),
}
