# SPDX-License-Identifier: MIT
"""A BERT of 12.9 billion parameters and a GPT of 200 billion, in plain PyTorch."""
import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    """Attention and MLP, with norms before them (GPT) or after (BERT)."""

    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.rise, self.fall = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)

    def attend(self, x):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for part in self.qkv(x).chunk(3, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.drop(self.out(y.transpose(1, 2).flatten(2)))

    def feed(self, x):
        return self.drop(self.fall(F.gelu(self.rise(x))))

    def forward(self, x):
        if self.causal:
            x = x + self.attend(self.norm1(x))
            return x + self.feed(self.norm2(x))
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.feed(x))


class Network(nn.Module):
    def __init__(self, vocabulary, length, width, heads, layers, causal):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.register_buffer("places", torch.arange(length), persistent=False)
        self.layers = nn.ModuleList(Layer(width, heads, causal) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.token(ids) + self.place(self.places)
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.token.weight)


def bert(layers=256):
    return Network(30522, 512, 2048, 32, layers, False)


def gpt():
    return Network(50257, 2048, 12288, 96, 110, True)


def small():
    return Network(50257, 512, 2048, 32, 4, True)
