#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A memory limit: the network is cut until it fits, and what is measured lies below it."""
import json
import re
import sys

import compare
import driver
from tap import Tap, check

MODELS = ["mlp", "transformer", "cnn"]
# Micro-batches, and the share of what the whole network takes. A cut halves parameters, but each
# stage has activations of several micro-batches in flight, and messages. Where layers are as
# narrow as a micro-batch is long these outweigh the parameters: so the MLP gets one sample at a
# time. Its largest layer alone may have 3/4 of all.
CUTS = {"mlp": (24, 0.85), "transformer": (2, 0.75), "cnn": (2, 0.75)}


def plan(session, case, **options):
    """plan.json of one or more equal devices; None and the run where there is none."""
    path = session.temporary(".json")
    words = ["plan", case.path("model.onnx"), "--data", case.path("train.safetensors"),
             "--loss", case.loss, "--global-batch", case.global_batch, "-o", path, "-q"]
    if case.batchnorm:
        words += ["--batchnorm-samples", "3"]
    for name, value in options.items():
        words += ["--" + name.replace("_", "-"), str(value)]
    result = session.tasuki(words)
    if result.code:
        return None, result
    with open(path) as file:
        return json.load(file), result


def cluster(devices, memory="16e9"):
    return f"flat:{devices},bandwidth=1e9,latency=1e-5,memory={memory}"


def measured(result):
    """Bytes of each rank at its peak, from the log."""
    event = result.event("memory")
    check(event, "no memory event in the log")
    return event["peak"]


def is_cut(session, name):
    case = session.case(name)
    micro_batches, share = CUTS[name]
    whole, said = plan(session, case, cluster=cluster(1), micro_batches=micro_batches)
    check(whole, said.err)
    need = whole["stages"][0]["memory"]
    limit = int(share * need)
    alone, said = plan(session, case, cluster=cluster(1), micro_batches=micro_batches,
                       memory=limit)
    check(alone is None and said.code == 1, "one device holds what it must not")
    options = {"micro_batches": micro_batches, "memory": limit}
    if case.batchnorm:
        options["batchnorm_samples"] = 3
    result = session.train(case, "float32", "sgd", ranks=3, **options)
    peaks = measured(result)
    check(len(peaks) == 3, f"{peaks}")
    check(max(peaks) < limit, f"peak {peaks}, limit {limit}")
    check(len(result.losses) == case.steps, "steps")
    return f"{need:.0f} bytes whole, limit {limit}, measured {max(peaks)}"


def stays_below(session, name):
    """Limit in float64 as well, and the curve is that of one rank."""
    case = session.case(name)
    options = {"batchnorm_samples": 3} if case.batchnorm else {}
    whole = session.train(case, "float64", "adamw", micro_batches=2, **options)
    limit = int(0.85 * max(measured(whole)))
    cut = session.train(case, "float64", "adamw", ranks=4, micro_batches=2, memory=limit,
                        **options)
    peaks = measured(cut)
    check(max(peaks) < limit, f"peak {peaks}, limit {limit}")
    compare.same_curve(cut.losses, whole.losses, 1e-10)
    return f"limit {limit}, measured {max(peaks)}"


def foreseen(session, name, schedule):
    """Between B and W other micro-batches run, and so more is kept."""
    case = session.case(name)
    options = {"batchnorm_samples": 3} if case.batchnorm else {}
    result = session.train(case, "float32", "adamw", ranks=4, replicas="1,1,1,1",
                           micro_batches=8, schedule=schedule, **options)
    plan = [stage["memory"] for stage in result.event("start")["plan"]["stages"]]
    peaks = measured(result)
    check(peaks == plan, f"peaks {peaks}, the plan says {plan}")


def foreseen_in_shards(session, name, layout, ema):
    """Replicas whose shares of the optimizer's state differ by an element allot the same."""
    case = session.case(name)
    options = {"batchnorm_samples": 1} if case.batchnorm else {}
    peaks = {}
    for zero in (True, False):
        result = session.train(case, "float32", "adamw", ranks=sum(layout), micro_batches=2,
                               replicas=driver.replicas_text(layout), zero=zero, no_zero=not zero,
                               ema=ema, **options)
        plan = [stage["memory"] for stage in result.event("start")["plan"]["stages"]
                for _ in range(stage["replicas"])]
        peaks[zero] = measured(result)
        check(max(peaks[zero]) == max(plan), f"peaks {peaks[zero]}, the plan says {plan}")
        check(all(is_ <= said for is_, said in zip(peaks[zero], plan)),
              f"peaks {peaks[zero]}, the plan says {plan}")
    if len(layout) == 1:    # cuts may differ
        check(max(peaks[True]) < max(peaks[False]), f"{peaks} with and without")


def foreseen_again(session, name, schedule):
    """What runs its forward again, or a part of it, keeps less, as was foreseen."""
    case, peaks = session.case(name), []
    options = {"batchnorm_samples": 1} if case.batchnorm else {}
    for recompute in ("none", "selective", "full"):
        result = session.train(case, "float32", "adamw", ranks=2, replicas="1,1",
                               micro_batches=8, schedule=schedule, recompute=recompute, **options)
        stages = result.event("start")["plan"]["stages"]
        plan = [stage["memory"] for stage in stages]
        peaks.append(measured(result))
        check(peaks[-1] == plan, f"peaks {peaks[-1]}, the plan says {plan}")
        # Sums tell something where the cuts are the same.
        options["pin"] = [f"{block['name']}={k}" for k, stage in enumerate(stages)
                          for block in stage["blocks"]]
    if schedule == "gpipe":
        check(sum(peaks[2]) < sum(peaks[1]) <= sum(peaks[0]),
              f"{peaks[2]} full, {peaks[1]} selective, {peaks[0]} without")


def names_the_block(session, name, ranks):
    case = session.case(name)
    options = {"batchnorm_samples": 3} if case.batchnorm else {}
    result = session.train(case, "float32", "sgd", ranks=ranks, memory="2K", fails=True,
                           **options)
    check(result.code in (1, 2), f"exit code {result.code}")
    lines = [line for line in result.err.splitlines() if "error: " in line]
    check(len(lines) == 1, f"not one error line:\n{result.err}")
    check(re.search(r'block "?[^ ]+', lines[0]) and re.search(r"\d+(\.\d+)? ?([KMG]i?B|bytes)",
                                                             lines[0]),
          f"names no block or no bytes: {lines[0]}")
    return lines[0]


def main():
    tap, session = Tap(), driver.Session()
    try:
        session.load(MODELS)
        tap.note(session.source)
        for name in MODELS:
            tap.test(f"{name}: what does not fit one device is cut, and stays below the limit",
                     is_cut, session, name)
            tap.test(f"{name}: cut by memory, the curve stays", stays_below, session, name)
            for schedule in ("zb-h1", "zb", "2bw"):
                tap.test(f"{name}: what is measured under {schedule} is what was foreseen",
                         foreseen, session, name, schedule)
            tap.test(f"{name}: with ZeRO-1 what is measured is what was foreseen",
                     foreseen_in_shards, session, name, (3,), 0.9)
            tap.test(f"{name}: with ZeRO-1 in two stages, too", foreseen_in_shards, session,
                     name, (2, 1), None)
            for schedule in ("gpipe", "1f1b", "zb-h1", "2bw"):
                tap.test(f"{name}: what recomputes under {schedule} has the memory foreseen",
                         foreseen_again, session, name, schedule)
            for ranks in (0, 2):
                tap.test(f"{name}: an impossible limit names the block ({ranks or 1} ranks)",
                         names_the_block, session, name, ranks)
    finally:
        session.close()
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
