#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch's side of what checks.py times, of one network, in a process of its own.

    rival.py NETWORK VARIANTS PRECISIONS STEPS FOLDER

It exports the network into FOLDER, compiles it in each precision if VARIANTS has "compile", leaves the
GPU's memory and writes a line, "rival: ready". For each line that it then reads, a precision, it
writes one of JSON behind "rival: ": for each variant the seconds of a step and the most bytes that
were allocated.
"""
import json
import os
import shutil
import statistics
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "etc", "bench", "vs-pytorch"), HERE]
WARM_UP = 3
ANSWER = "rival: "


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
    part = tempfile.mkdtemp(prefix=os.path.basename(folder), dir=os.path.dirname(folder))
    compare.export(chosen, part)
    try:
        os.rename(part, folder)
    except OSError:
        shutil.rmtree(part)     # somebody else was faster
        if not os.path.isdir(folder):
            raise


class Rival:
    def __init__(self, chosen):
        import torch
        self.torch, self.chosen = torch, chosen
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.module, self.batch = chosen.module(), chosen.batch()
        self.optimizer = self.compiled = None

    def forward(self, variant):
        if variant != "compile":
            return self.module
        if self.compiled is None:
            self.compiled = self.torch.compile(self.module)
        return self.compiled

    def step(self, forward, batch, narrow, scaler):
        x, target = batch
        self.optimizer.zero_grad()
        with self.torch.autocast(self.device, narrow, enabled=narrow is not None):
            loss = self.chosen.torch_loss(forward(x), target)
        if scaler:
            scaler.scale(loss).backward()
            scaler.step(self.optimizer)
            scaler.update()
        else:
            loss.backward()
            self.optimizer.step()
        loss.item()     # as Tasuki has it in each step, too

    def leave(self):
        self.optimizer.zero_grad()
        self.optimizer = None
        self.module.to("cpu")
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
        self.module.to(self.device)
        self.optimizer = self.chosen.torch_optimizer(self.module.parameters())
        batch = [t.to(self.device) for t in self.batch]
        for _ in range(steps + WARM_UP):
            begin = time.perf_counter()
            self.step(forward, batch, narrow, scaler)
            if self.device == "cuda":
                torch.cuda.synchronize()
            took.append(time.perf_counter() - begin)
        peak = torch.cuda.max_memory_allocated() if self.device == "cuda" else 0
        self.leave()
        return took[WARM_UP:], peak


def main():
    name, variants, precisions, steps, folder = sys.argv[1:]
    chosen, variants = network_of(name), [v for v in variants.split(",") if v]
    export(chosen, folder)
    rival = Rival(chosen) if variants else None
    for precision in precisions.split(","):
        if "compile" in variants:
            rival.run("compile", precision, 0)
    print(ANSWER + json.dumps("ready"), flush=True)
    for line in sys.stdin:
        found = {}
        for variant in variants:
            took, peak = rival.run(variant, line.strip(), int(steps))
            found[variant] = [statistics.median(took), peak]
        print(ANSWER + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
