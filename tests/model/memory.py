#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The memory of plans from a cost file is that of the compiled ones, or up to 5 % more: where the
planner cuts networks, and for some of them anywhere; and under every schedule, for stages, replicas,
micro-batches and cuts that are drawn. Some of them, all where TASUKI_TEST_LONG is set.
"""
import json
import os
import random
import subprocess
import sys

import driver
from tap import Skip, Tap, check

BENCH = os.path.join(driver.HERE, "..", "..", "etc", "bench", "memory", "run")


NETWORKS = ("mlp", "cnn", "encoder", "encoder-pre", "wide")
CUT_ANYWHERE = ("plain", "lstm", "unet")
SMALL = ("mlp", "cnn", "transformer", "skips", "tied", "frozen")
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb", "zb-v", "2bw")
OPTIMIZERS = ("sgd", "momentum", "adamw")
STAGES = 12             # of each network and schedule, or a few more
MOST_ABOVE = 0.05


def is_planned_for(python, name):
    if not python:
        raise Skip("no Python with torch")
    options = ["--every-cut"] if name in CUT_ANYWHERE else []
    done = subprocess.run([python, BENCH, *options, name], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False,
                          env=dict(os.environ, TASUKI_THREADS="1", TASUKI_TEST_HASTE="1"))
    said = done.stdout.decode()
    check(done.returncode == 0, said)
    return said.splitlines()[-1]


def plan(session, *words):
    path = session.temporary(".json")
    result = session.tasuki(["plan", *words, "-q", "-o", path])
    check(result.code == 0, result.err)
    with open(path, encoding="utf-8") as file:
        return [stage["memory"] for stage in json.load(file)["stages"]]


def draw_shape(draw, schedule, blocks, batch):
    """Words for `tasuki plan`, with the stage of each block; None: drawn was what there is not."""
    chunks = {"interleaved": draw.choice([2, 3]), "zb-v": 2}.get(schedule, 1)
    lists = draw.choice([1, 2, 3, 4] if chunks == 1 else [2, 3])
    n, pipelines = lists * chunks, draw.choice([1, 1, 2])
    replicas = [draw.choice([1, 1, 2, 3]) for _ in range(lists)]
    if chunks > 1:
        replicas = [replicas[0]] * n
    micro = draw.choice([m for m in (1, 2, 3, 4, 6, 8, 12) if batch % (pipelines * m) == 0])
    if n > len(blocks) or batch // pipelines // micro < max(replicas) or \
            (schedule == "interleaved" and micro % lists):
        return None
    cuts = draw.sample(range(1, len(blocks)), n - 1)
    devices = pipelines * sum(replicas[:lists])
    words = ["--cluster", f"flat:{devices},bandwidth=1e9,latency=1e-5,memory=64e9",
             "--global-batch", batch, "--pipelines", pipelines, "--stages", n,
             "--replicas", ",".join(map(str, replicas)), "--micro-batches", micro,
             "--schedule", schedule, draw.choice(["--zero", "--no-zero"]),
             "--recompute", draw.choice(["none", "selective", "full"])]
    if schedule == "interleaved":
        words += ["--chunks", chunks]
    for b, block in enumerate(blocks):
        words += ["--pin", f"{block}={sum(b >= cut for cut in cuts)}"]
    return words


def is_forecast_under(session, draw, name, schedule):
    """Of the tests' own small networks, of which alignment is a large part."""
    case, cost, above = session.case(name), session.temporary(".json"), []
    model = [case.path("model.onnx"), "--data", case.path("train.safetensors"),
             "--loss", case.loss]
    options = ["--optimizer", draw.choice(OPTIMIZERS)]
    options += ["--batchnorm-samples", "1"] if case.batchnorm else []
    # All that a replica may get: between these scratch of kernels is up to 128 bytes over.
    sizes = [n for n in range(1, case.global_batch + 1) if case.global_batch % n == 0]
    result = session.tasuki(["profile", *model, *options, "--batch-size",
                             ",".join(map(str, sizes)), "-q", "-o", cost])
    check(result.code == 0, result.err)
    with open(cost, encoding="utf-8") as file:
        blocks = [block["name"] for block in json.load(file)["blocks"]]
    while len(above) < STAGES:
        words = draw_shape(draw, schedule, blocks, case.global_batch)
        if not words:
            continue
        words += ["--cost", cost, *options]
        for k, (said, has) in enumerate(zip(plan(session, *words), plan(session, *model, *words))):
            above.append(said / has - 1)
            check(0 <= above[-1] <= MOST_ABOVE, f"stage {k}: {said} bytes from the cost file, {has} "
                  f"compiled: tasuki plan {' '.join(map(str, words))}")
    return f"{len(above)} stages, {min(above):+.1%} to {max(above):+.1%}"


def under_schedules(tap, draw):
    session = driver.Session()
    try:
        session.load(SMALL)
        for schedule in SCHEDULES:
            for name in driver.some(draw, SMALL, 2):
                tap.test(f"{name}, {schedule}: memory from a cost file", is_forecast_under,
                         session, draw, name, schedule)
    finally:
        session.close()


def main():
    python, tap = driver.python_with_torch(), Tap()
    draw = random.Random(driver.SEED)
    tap.note(f"drawn with TASUKI_TEST_SEED={driver.SEED}")
    under_schedules(tap, draw)
    for name in driver.some(draw, NETWORKS, 2) + driver.some(draw, CUT_ANYWHERE, 1):
        tap.test(f"{name}: memory from a cost file", is_planned_for, python, name)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
