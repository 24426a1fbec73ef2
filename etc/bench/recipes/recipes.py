#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The same recipe in Tasuki and in PyTorch, on real data, over three seeds; and what more ranks
do to the accuracy.

A seed chooses the first parameters and the order of the samples; both sides start from the same
parameters and draw orders of their own. Means are compared by Welch's test at 99 %.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "vs-pytorch"))

from compare import write_safetensors   # noqa: E402
from tasks import TASKS                 # noqa: E402
import plot                             # noqa: E402

SEEDS = (1, 2, 3)
STUDENT = 4.604         # 99 %, both sides, 4 degrees of freedom
LOCAL = 32              # samples of a rank where those are fixed
RANKS = (1, 2, 4)
# Few steps in a short run: what a larger batch leaves out is missed.
SCALING = "--optimizer momentum --lr 0.003 --batchnorm-samples 8".split()
SCALING_EPOCHS = 3


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.environment = {**os.environ, "OMPI_MCA_rmaps_base_oversubscribe": "1",
                            "OMPI_MCA_mpi_yield_when_idle": "1", "TASUKI_CACHE_DIR": folder,
                            "OMPI_MCA_hwloc_base_binding_policy": "none",
                            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}

    def path(self, name):
        return os.path.join(self.folder, name)

    def prepare(self, name):
        """Data for both sides."""
        task = TASKS[name]
        task.train, task.test = task.load()
        for part, (x, y) in (("train", task.train), ("test", task.test)):
            write_safetensors(self.path(f"{name}-{part}.safetensors"),
                              {"x": x.numpy(), "y": y.numpy()})
        return task

    def model(self, name, seed):
        """With the parameters of this seed: (module, path of the ONNX file)."""
        torch.manual_seed(seed)
        module, path = TASKS[name].module().train(), self.path(f"{name}-{seed}.onnx")
        if not os.path.exists(path):
            state = {key: value.clone() for key, value in module.state_dict().items()}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.onnx.export(module, (TASKS[name].train[0][:4],), path, dynamo=False,
                                  opset_version=17, input_names=["x"], output_names=["out"],
                                  do_constant_folding=False,
                                  training=torch.onnx.TrainingMode.TRAINING,
                                  dynamic_axes={"x": {0: "b"}, "out": {0: "b"}})
            module.load_state_dict(state)   # tracing moves the statistics
        return module, path

    def tasuki(self, name, seed, options, batch, epochs, ranks=1):
        """The log's evaluations as (seconds of training so far, line)."""
        log = self.path("log.jsonl")
        command = [self.args.tasuki, "train", self.model(name, seed)[1], "--data",
                   self.path(f"{name}-train.safetensors"), "--test",
                   self.path(f"{name}-test.safetensors"), "--loss", "cross-entropy:out,y",
                   "--global-batch", str(batch), "--epochs", str(epochs), "--seed", str(seed),
                   "--log", log, "--quiet", "--stages", "1", "--threads",
                   str(self.args.threads), *options]
        if ranks > 1:
            command = ["mpirun", "-n", str(ranks), *command, "--replicas", str(ranks)]
        subprocess.run(command, check=True, env=self.environment)
        elapsed, found = 0.0, []
        with open(log) as lines:
            for line in map(json.loads, lines):
                if "event" not in line:
                    elapsed += line["seconds"]
                elif line["event"] == "evaluation":
                    found.append((elapsed, line))
        return found


def loss_of(task, module, x, y, smoothing=0.0):
    return torch.nn.functional.cross_entropy(module(x).flatten(0, -2), y.flatten(),
                                             label_smoothing=smoothing)


def pytorch(bench, name, seed):
    """The test loss after the recipe."""
    task, (module, _) = TASKS[name], bench.model(name, seed)
    x, y = task.train
    steps = len(x) // task.batch
    optimizer = task.optimizer(module.named_parameters())
    schedule = task.schedule(optimizer, steps, steps * task.epochs)
    order = torch.Generator().manual_seed(seed)
    for _ in range(task.epochs):
        shuffled = torch.randperm(len(x), generator=order)
        for step in range(steps):
            part = shuffled[step * task.batch:(step + 1) * task.batch]
            optimizer.zero_grad()
            loss_of(task, module, x[part], y[part], task.smoothing).backward()
            if task.clip:
                torch.nn.utils.clip_grad_norm_(module.parameters(), task.clip)
            optimizer.step()
            schedule.step()
    module.eval()
    with torch.no_grad():
        return loss_of(task, module, *task.test).item()


def differ(a, b):
    """Do the means differ by more than seed noise?"""
    noise = STUDENT * math.sqrt((statistics.variance(a) + statistics.variance(b)) / len(SEEDS))
    return abs(statistics.mean(a) - statistics.mean(b)) > noise


def said(values, digits=4):
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def compare(bench, name):
    task = bench.prepare(name)
    theirs, ours, first, second = [], [], 0.0, 0.0
    for seed in SEEDS:
        start = time.perf_counter()
        theirs.append(pytorch(bench, name, seed))
        middle = time.perf_counter()
        ours.append(bench.tasuki(name, seed, task.options, task.batch,
                                 task.epochs)[-1][1]["loss"])
        first, second = first + middle - start, second + time.perf_counter() - middle
    agree = not differ(theirs, ours)
    print(f"{task.title}: test loss after {task.epochs} epochs, {len(SEEDS)} seeds\n"
          f"  PyTorch  {said(theirs)}   ({first:.0f} s)\n"
          f"  Tasuki   {said(ours)}   ({second:.0f} s)\n"
          f"  {'within' if agree else 'NOT within'} seed noise", flush=True)
    return agree


def scaling(bench):
    """Accuracy by ranks, samples of a rank fixed or those of a step."""
    bench.prepare("resnet")
    runs, curves = {}, []
    for ranks in RANKS:
        for local in (True, False) if ranks > 1 else (True,):
            batch = LOCAL * ranks if local else LOCAL
            logs = [bench.tasuki("resnet", seed, SCALING, batch,
                                 SCALING_EPOCHS, ranks) for seed in SEEDS]
            runs[ranks, local] = [log[-1][1]["accuracy"] for log in logs]
            label = f"{ranks} rank{'s' * (ranks > 1)}, {batch} samples a step"
            print(f"  {label:32} accuracy {said(runs[ranks, local])}", flush=True)
            curves.append((label, local, [
                (statistics.mean(log[i][0] for log in logs),
                 statistics.mean(log[i][1]["accuracy"] for log in logs))
                for i in range(SCALING_EPOCHS)]))
    one, most = runs[1, True], runs[RANKS[-1], True]
    falls = statistics.mean(most) < statistics.mean(one) and differ(one, most)
    equal = not any(differ(one, runs[ranks, False]) for ranks in RANKS[1:])
    print(f"  with {LOCAL} samples of each rank it {'falls' if falls else 'does NOT fall'}; with "
          f"{LOCAL} of all it is {'equal' if equal else 'NOT equal'} within seed noise")
    plot.write(bench.args.plot, f"ResNet, digits, {SCALING_EPOCHS} epochs", curves)
    return falls and equal


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART",
                        help="resnet, gpt or scaling (default: all)")
    parser.add_argument("--tasuki", default=os.environ.get("TASUKI", "build/tasuki"))
    parser.add_argument("--threads", type=int, default=1, help="of each rank, and of PyTorch")
    parser.add_argument("--plot", default="scaling.svg", metavar="FILE")
    args = parser.parse_args()
    parts = args.parts or [*TASKS, "scaling"]
    for part in parts:
        if part not in (*TASKS, "scaling"):
            parser.error(f"{part}: expected resnet, gpt or scaling")
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        good = [scaling(bench) if part == "scaling" else compare(bench, part)
                for part in parts]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
