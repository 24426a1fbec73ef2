# SPDX-License-Identifier: MIT
"""The largest BERT that trains on one GPU, all forwards made again in the backward: its layers.

Tasuki's is found by planning alone, and then trained for a few steps; PyTorch's by training, since it
has no other way to tell. What two small ones take says where to look.
"""
import gc
import json
import os

# What imports it has the folder of large.py on its path.
MODEL = '''import sys
sys.path[:0] = {path!r}
from large import Language


def network():
    return Language({words}, {length}, {width}, {heads}, {layers}, False, "none")
'''
STEPS = 3
BEYOND = 4          # layers that training may lack of what planning promised


SMALL = (4, 8)      # layers


def largest(fits, used, room):
    """The largest n for which fits(n), of which all below it do, 0: none; used(n): bytes it takes."""
    few, more = (used(n) for n in SMALL)
    n = SMALL[0] + int((room - few) / ((more - few) / (SMALL[1] - SMALL[0])))
    n = max(n, 1)
    if fits(n):
        while fits(n + 1):
            n += 1
        return n
    n -= 1
    while n > 0 and not fits(n):
        n -= 1
    return n


class Capacity:
    """'shape': width, words, tokens of a sample, samples of a step, and bytes for where PyTorch sees
    no GPU.
    """

    def __init__(self, checks, make_plan, shape, path):
        self.checks, self.make_plan, self.path = checks, make_plan, path
        self.width, self.words, self.length, self.batch, *room = shape
        self.room = room[0] if room else 0
        self.folder = os.path.join(checks.args.models or checks.directory, "capacity")
        os.makedirs(self.folder, exist_ok=True)

    def model(self, layers):
        """Without weights: a file of some megabytes."""
        source = os.path.join(self.folder, "network.py")
        target = os.path.join(self.folder, f"bert-{layers}.onnx")
        with open(source, "w", encoding="utf-8") as file:
            file.write(MODEL.format(path=self.path, words=self.words, length=self.length,
                                    width=self.width, heads=max(1, self.width // 64),
                                    layers=layers))
        if not os.path.exists(target):
            self.checks.call([self.checks.tasuki, "import", f"{source}:network", "--no-weights",
                              "--input", f"x:{self.batch}x{self.length}:int64", "-o", target, "-q"],
                             LD_PRELOAD="")     # PyTorch is no part of what is stood in for
        return target

    def data(self):
        import torch
        from compare import write_safetensors
        path = os.path.join(self.folder, "train.safetensors")
        if not os.path.exists(path):
            shape = (self.batch, self.length)
            write_safetensors(path, {name: torch.randint(0, self.words, shape).numpy()
                                     for name in ("x", "t")})
        return path

    def memory(self):
        """Bytes that a run has of the GPU: the rest is for what libraries load (module_runtime.c)."""
        import torch
        if not torch.cuda.is_available():
            return self.room
        free = torch.cuda.mem_get_info()[0]
        return free - max(free // 32, 1 << 30)

    def plan(self, layers, room=None):
        return self.make_plan(self.checks, [self.model(layers), "--data", self.data(), "--loss",
                                            "cross-entropy:output,t", "--optimizer", "adamw",
                                            "--precision", "bf16", "--global-batch",
                                            str(self.batch), "--recompute", "full"],
                              room or self.memory())

    def planned_bytes(self, layers):
        with open(self.plan(layers, 10**15), encoding="utf-8") as file:
            return json.load(file)["stages"][0]["memory"]

    def train(self, layers):
        self.log = self.checks.train([self.plan(layers), "--data", self.data(), "--init", "fan-in",
                                      "--lr", "1e-4", "--device", "cuda", "--steps", str(STEPS)])

    @staticmethod
    def holds(function, layers):
        try:
            function(layers)
        except RuntimeError as error:
            if "does not fit" not in str(error) and "out of memory" not in str(error):
                raise
            return False
        return True

    def tasuki(self):
        promised = largest(lambda n: self.holds(self.plan, n), self.planned_bytes, self.memory())
        layers, least = promised, max(0, promised - BEYOND)
        while layers > least and not self.holds(self.train, layers):
            layers -= 1
        if layers == least:
            raise RuntimeError(f"{promised} layers are said to fit, and {layers + 1} do not")
        peak = next(line for line in self.log if line.get("event") == "memory")["peak"]
        return {"planned": promised, "layers": layers, "GB": max(peak) / 1e9}

    def torch_step(self, layers):
        import torch
        from large import Language
        from torch.nn.functional import cross_entropy
        from torch.utils.checkpoint import checkpoint
        with torch.device("cuda"):
            net = Language(self.words, self.length, self.width, max(1, self.width // 64), layers,
                           False, "none")
            x, target = (torch.randint(0, self.words, (self.batch, self.length)) for _ in range(2))
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
        for _ in range(STEPS):
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.bfloat16):
                y = net.words(x) + net.places(net.place)
                for layer in net.layers:
                    y = checkpoint(layer, y, use_reentrant=False)
                loss = cross_entropy(net.head(net.norm(y)).flatten(0, 1), target.flatten())
            loss.backward()
            optimizer.step()
            loss.item()

    def torch_holds(self, layers):
        import torch
        try:
            self.torch_step(layers)
        except torch.OutOfMemoryError:
            return False
        finally:
            gc.collect()
            torch.cuda.empty_cache()
        return True

    def torch_bytes(self, layers):
        import torch
        torch.cuda.reset_peak_memory_stats()
        self.torch_step(layers)
        gc.collect()
        torch.cuda.empty_cache()
        return torch.cuda.max_memory_allocated()

    def run(self):
        import torch
        figures = self.tasuki()
        if torch.cuda.is_available():
            figures["PyTorch layers"] = largest(self.torch_holds, self.torch_bytes,
                                                torch.cuda.mem_get_info()[0])
        return figures
