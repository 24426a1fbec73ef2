#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Seconds of a training step (forward, backward, update) in Tasuki and in PyTorch.

Both sides run in turn, each in its own process on the same cores with the same number of
threads, several rounds; what counts is the median over the rounds of each side's median step.
PyTorch is the best of eager, torch.compile and, for images, eager with channels_last.
"""
import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, array in tensors.items():
        kind = {"float32": "F32", "int64": "I64"}[str(array.dtype)]
        header[name] = {"dtype": kind, "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            out.write(array.tobytes())


def export(network, directory):
    import torch
    x, target = network.batch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network.module(), (x,), os.path.join(directory, "model.onnx"),
                          dynamo=False, opset_version=17, input_names=["x"],
                          output_names=["y"], do_constant_folding=False,
                          training=torch.onnx.TrainingMode.TRAINING,
                          dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}})
    write_safetensors(os.path.join(directory, "train.safetensors"),
                      {"x": x.numpy(), "t": target.numpy()})


def torch_side(name, variant, threads, steps):
    """In a process of its own: print the seconds of each step."""
    import torch
    from networks import NETWORKS
    torch.set_num_threads(threads)
    network = NETWORKS[name]
    module, (x, target) = network.module(), network.batch()
    if variant == "channels_last":
        module = module.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    optimizer = network.torch_optimizer(module.parameters())
    forward = torch.compile(module) if variant == "compile" else module
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        network.torch_loss(forward(x), target).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    print(json.dumps(seconds))


def middle(seconds):
    """The median without the warm-up: the first fifth, compilation included."""
    return statistics.median(seconds[max(2, len(seconds) // 5):])


def run_torch(args, name, variant):
    command = [sys.executable, __file__, "--torch-side", variant, "--threads",
               str(args.threads), "--steps", str(args.steps), name]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE,
                          stderr=None if args.verbose else subprocess.DEVNULL)
    return middle(json.loads(done.stdout.decode().splitlines()[-1]))


def model_options(network, directory):
    return [os.path.join(directory, "model.onnx"), "--data",
            os.path.join(directory, "train.safetensors"), "--loss", f"{network.loss}:y,t",
            "--optimizer", network.optimizer, "--quiet"]


def run_tasuki(args, network, directory):
    log = os.path.join(directory, "log.jsonl")
    if os.path.exists(log):
        os.remove(log)
    batch = str(network.shape[0])
    subprocess.run([args.tasuki, "train", *model_options(network, directory),
                    *network.options, "--threads", str(args.threads), "--global-batch", batch,
                    "--micro-batches", "1", "--stages", "1", "--steps", str(args.steps),
                    "--no-shuffle", "--log", log], check=True)
    with open(log) as lines:
        steps = [json.loads(line) for line in lines]
    return middle([line["seconds"] for line in steps if "step" in line and "event" not in line])


def print_reorders(args, network, directory):
    """Tasuki's own table of a step, of which the reorder line is shown."""
    done = subprocess.run([args.tasuki, "profile", *model_options(network, directory),
                           "--threads", str(args.threads), "--batch-size",
                           str(network.shape[0]), "--format", "text"], check=True,
                          stdout=subprocess.PIPE)
    text = done.stdout.decode()
    if args.verbose:
        print(text)
    for line in text.splitlines():
        if "reorder" in line.lower():
            print(f"  {line.strip()}")


def compare(args, name, network):
    variants = ["eager", "compile"] + (["channels_last"] if network.images else [])
    seconds = {variant: [] for variant in variants + ["tasuki"]}
    with tempfile.TemporaryDirectory() as directory:
        export(network, directory)
        for _ in range(args.rounds):
            for variant in variants:
                seconds[variant].append(run_torch(args, name, variant))
            seconds["tasuki"].append(run_tasuki(args, network, directory))
        print(f"{network.title}, {args.threads} threads", flush=True)
        result = {side: statistics.median(values) for side, values in seconds.items()}
        for side, value in result.items():
            spread = (max(seconds[side]) - min(seconds[side])) / value
            print(f"  {side:14} {value * 1e3:9.3f} ms per step  (spread {spread:.0%})")
        ratio = min(result[variant] for variant in variants) / result["tasuki"]
        print(f"  ratio          {ratio:9.2f} (best of PyTorch / Tasuki)", flush=True)
        print_reorders(args, network, directory)
    return ratio


def parse(names):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK",
                        help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="of each round and side")
    parser.add_argument("--tasuki", default=os.environ.get("TASUKI", "build/tasuki"))
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--torch-side", metavar="VARIANT", help=argparse.SUPPRESS)
    args = parser.parse_args()
    for name in args.networks:
        if name not in names:
            parser.error(f"{name}: expected {', '.join(names)}")
    return args


def main():
    sys.path.insert(0, HERE)
    from networks import NETWORKS
    args = parse(NETWORKS)
    if args.torch_side:
        torch_side(args.networks[0], args.torch_side, args.threads, args.steps)
        return 0
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < args.threads:
        print(f"vs-pytorch: {args.threads} threads on {len(cores)} cores", file=sys.stderr)
        return 1
    os.sched_setaffinity(0, cores[:args.threads])   # of all that is started here, too
    ratios = [compare(args, name, NETWORKS[name]) for name in args.networks or NETWORKS]
    print(f"lowest ratio {min(ratios):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
