#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch's side of what checks.py times, of one network, in a process of its own.

    rival.py NETWORK VARIANTS PRECISIONS STEPS FOLDER

It exports the network into FOLDER, compiles it in each precision if VARIANTS has "compile", gives
back what memory it can and writes "ready". For each line that it then reads, a precision, it writes
a line of JSON: for each variant the seconds of a step and the most bytes that were allocated.
"""
import json
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "etc", "bench", "vs-pytorch"), HERE]
WARM_UP = 3


def network_of(name, table="LARGE"):
    """Of large.py's table or of etc/bench/vs-pytorch."""
    import large
    import networks
    return getattr(large, table).get(name) or networks.NETWORKS[name]


def export(chosen, folder):
    """Nothing, where it is there."""
    import compare
    if os.path.isdir(folder):
        return
    part = f"{folder}.part{os.getpid()}"
    os.makedirs(part)
    compare.export(chosen, part)
    os.rename(part, folder)


class Rival:
    def __init__(self, chosen):
        import torch
        self.torch, self.chosen = torch, chosen
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.module = chosen.module().to(self.device)
        self.optimizer = chosen.torch_optimizer(self.module.parameters())
        self.x, self.target = (t.to(self.device) for t in chosen.batch())
        self.compiled = None

    def forward(self, variant):
        if variant != "compile":
            return self.module
        if self.compiled is None:
            self.compiled = self.torch.compile(self.module)
        return self.compiled

    def step(self, forward, narrow, scaler):
        self.optimizer.zero_grad()
        with self.torch.autocast(self.device, narrow, enabled=narrow is not None):
            loss = self.chosen.torch_loss(forward(self.x), self.target)
        if scaler:
            scaler.scale(loss).backward()
            scaler.step(self.optimizer)
            scaler.update()
        else:
            loss.backward()
            self.optimizer.step()
        loss.item()     # as Tasuki has it in each step, too

    def give_back(self):
        self.optimizer.zero_grad()
        if self.device == "cuda":
            self.torch.cuda.empty_cache()
            self.torch.cuda.reset_peak_memory_stats()

    def run(self, variant, precision, steps):
        """The seconds of each step after some, and the most bytes."""
        torch, took = self.torch, []
        tf32 = precision != "float32"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        narrow = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
        scaler = torch.amp.GradScaler(self.device) if precision == "fp16" else None
        forward = self.forward(variant)
        for _ in range(steps + WARM_UP):
            begin = time.perf_counter()
            self.step(forward, narrow, scaler)
            if self.device == "cuda":
                torch.cuda.synchronize()
            took.append(time.perf_counter() - begin)
        peak = torch.cuda.max_memory_allocated() if self.device == "cuda" else 0
        self.give_back()
        return took[WARM_UP:], peak


def main():
    name, variants, precisions, steps, folder = sys.argv[1:]
    chosen, variants = network_of(name), [v for v in variants.split(",") if v]
    export(chosen, folder)
    rival = Rival(chosen) if variants else None
    for precision in precisions.split(","):
        if "compile" in variants:
            rival.run("compile", precision, 0)
    print("ready", flush=True)
    for line in sys.stdin:
        found = {}
        for variant in variants:
            took, peak = rival.run(variant, line.strip(), int(steps))
            found[variant] = [statistics.median(took), peak]
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
