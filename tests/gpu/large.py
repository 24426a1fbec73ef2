# SPDX-License-Identifier: MIT
"""Networks that keep a large GPU busy, beside those of etc/bench/vs-pytorch."""
import torch
from networks import Network
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.reshape(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Layer(nn.Module):
    def __init__(self, width, heads, causal, gelu):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate=gelu),
                                 nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Language(nn.Module):
    """Token and place embeddings, layers, and logits for each token."""

    def __init__(self, words, length, width, heads, layers, causal, gelu):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.register_buffer("place", torch.arange(length), persistent=False)
        self.layers = nn.Sequential(*(Layer(width, heads, causal, gelu) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, x):
        x = self.words(x) + self.places(self.place)
        return self.head(self.norm(self.layers(x)))


class RootMeanSquare(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class GroupedAttention(nn.Module):
    """Rotary embeddings of halves, and several heads for each key and value."""

    def __init__(self, width, heads, keys, length):
        super().__init__()
        self.heads, self.keys, self.each = heads, keys, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, keys * self.each, bias=False) for _ in range(2))
        self.out = nn.Linear(width, width, bias=False)
        rate = 10000.0 ** (-torch.arange(0, self.each, 2) / self.each)
        angle = torch.arange(length)[:, None] * torch.cat([rate, rate])
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def turn(self, x):
        first, second = x.chunk(2, -1)
        return x * self.cos + torch.cat([-second, first], -1) * self.sin

    def forward(self, x):
        b, t, c = x.shape
        q = self.q(x).reshape(b, t, self.heads, self.each).transpose(1, 2)
        k, v = (f(x).reshape(b, t, self.keys, self.each).transpose(1, 2)
                for f in (self.k, self.v))
        k, v = (y[:, :, None].expand(b, self.keys, self.heads // self.keys, t, self.each)
                .reshape(b, self.heads, t, self.each) for y in (self.turn(k), v))
        y = F.scaled_dot_product_attention(self.turn(q), k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class GatedLayer(nn.Module):
    def __init__(self, width, heads, keys, inner, length):
        super().__init__()
        self.norm1, self.norm2 = RootMeanSquare(width), RootMeanSquare(width)
        self.attention = GroupedAttention(width, heads, keys, length)
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, words, length, width, heads, keys, inner, layers):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.Sequential(*(GatedLayer(width, heads, keys, inner, length)
                                      for _ in range(layers)))
        self.norm, self.head = RootMeanSquare(width), nn.Linear(width, words, bias=False)

    def forward(self, x):
        return self.head(self.norm(self.layers(self.words(x))))


class Vision(nn.Module):
    def __init__(self, size, patch, width, heads, layers, classes=1000):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2, width))
        self.layers = nn.Sequential(*(Layer(width, heads, False, "none") for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.norm(self.layers(x)).mean(1))


class Bottleneck(nn.Module):
    def __init__(self, inner, middle, stride):
        super().__init__()
        outer = 4 * middle
        self.body = nn.Sequential(
            nn.Conv2d(inner, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(),
            nn.Conv2d(middle, middle, 3, stride, 1, bias=False), nn.BatchNorm2d(middle),
            nn.ReLU(), nn.Conv2d(middle, outer, 1, bias=False), nn.BatchNorm2d(outer))
        self.shortcut = nn.Identity()
        if stride != 1 or inner != outer:
            self.shortcut = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False),
                                          nn.BatchNorm2d(outer))

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet50(classes=1000):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
              nn.MaxPool2d(3, 2, 1)]
    inner = 64
    for middle, n, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(n):
            layers.append(Bottleneck(inner, middle, stride if i == 0 else 1))
            inner = 4 * middle
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, classes))


def small_cnn():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(16, 1000))


def small_encoder():
    layer = nn.TransformerEncoderLayer(64, 4, 128, 0, activation="gelu", batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class Tokens(Network):
    words = 32000

    def batch(self):
        generator = torch.Generator().manual_seed(2)
        return tuple(torch.randint(0, self.words, self.shape, generator=generator)
                     for _ in range(2))

    def torch_loss(self, y, target):
        return F.cross_entropy(y.flatten(0, 1), target.flatten())


ADAMW = ["--lr", "1e-4", "--weight-decay", "0.01"]
LARGE = {
    "bert-large": Tokens("BERT-large, 32 x 512 tokens, AdamW",
                         lambda: Language(32000, 512, 1024, 16, 24, False, "none"), (32, 512),
                         "tokens", "cross-entropy", "adamw", ADAMW),
    "gpt2-medium": Tokens("GPT-2 medium, 8 x 1024 tokens, AdamW",
                          lambda: Language(32000, 1024, 1024, 16, 24, True, "tanh"), (8, 1024),
                          "tokens", "cross-entropy", "adamw", ADAMW),
    "llama-1.3b": Tokens("Llama-like, 1.3 billion parameters, 4 x 2048 tokens, AdamW",
                         lambda: Llama(32000, 2048, 2048, 16, 4, 6144, 24), (4, 2048),
                         "tokens", "cross-entropy", "adamw", ADAMW),
    "resnet50": Network("ResNet-50, batch 256 at 224x224, momentum", resnet50,
                        (256, 3, 224, 224), "labels", "cross-entropy", "momentum",
                        ["--lr", "1e-4"], images=True),
    "vit-large": Network("ViT-L/16, batch 64 at 224x224, AdamW",
                         lambda: Vision(224, 16, 1024, 16, 24), (64, 3, 224, 224), "labels",
                         "cross-entropy", "adamw", ADAMW),
}


class FewTokens(Tokens):
    words = 128


def language(title, make):
    return FewTokens(title, make, (4, 16), "tokens", "cross-entropy", "adamw", ADAMW)


def pictures(title, make, optimizer, options, shape=(4, 3, 32, 32)):
    return Network(title, make, shape, "labels", "cross-entropy", optimizer, options)


# What curves are compared of: the same networks, and small.
SMALL = {
    "mlp": Network("MLP", lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)),
                   (16, 64), "tensor", "mse", "sgd", ["--lr", "1e-4"]),
    "cnn": pictures("CNN", small_cnn, "momentum", ["--lr", "1e-4"]),
    "encoder": Network("Transformer encoder", small_encoder, (4, 16, 64), "tensor", "mse",
                       "adamw", ADAMW),
    "bert": language("BERT", lambda: Language(128, 16, 64, 4, 2, False, "none")),
    "gpt2": language("GPT-2", lambda: Language(128, 16, 64, 4, 2, True, "tanh")),
    "llama": language("Llama-like", lambda: Llama(128, 16, 64, 4, 2, 128, 2)),
    "resnet50": pictures("ResNet-50", resnet50, "momentum", ["--lr", "1e-4"], (8, 3, 64, 64)),
    "vit": pictures("ViT", lambda: Vision(32, 8, 64, 4, 2), "adamw", ADAMW),
}
