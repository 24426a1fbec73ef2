#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A memory limit: the network is cut until it fits, and what is measured lies below it."""
import json
import random
import re
import statistics
import sys

import compare
import driver
from tap import Tap, check

MODELS = ["mlp", "transformer", "cnn"]
MICRO_BATCHES = 4       # where stages are held to what a lower bound counts
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


def measured(result):
    """Bytes of each rank at its peak, from the log."""
    event = result.event("memory")
    check(event, "no memory event in the log")
    return event["peak"]


def is_cut(session, name):
    case = session.case(name)
    micro_batches, share = CUTS[name]
    whole, said = plan(session, case, cluster=driver.cluster(1), micro_batches=micro_batches)
    check(whole, said.err)
    need = whole["stages"][0]["memory"]
    limit = int(share * need)
    alone, said = plan(session, case, cluster=driver.cluster(1), micro_batches=micro_batches,
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


def cost_of(session, case, batch):
    path = session.temporary(".json")
    words = ["profile", case.path("model.onnx"), "--loss", case.loss, "--optimizer", "adamw",
             "--batch-size", batch, "-o", path, "-q"]
    if case.batchnorm:
        words += ["--batchnorm-samples", "1"]
    result = session.tasuki(words)
    check(result.code == 0, result.err)
    with open(path) as file:
        return json.load(file)


def arrives(cost, indices):
    """Bytes that a stage keeps of what it receives, whatever it runs again: the smallest value
    that crosses its border, if what is made of that alone is read backward; else 0."""
    first = indices[0]
    order = {block["name"]: i for i, block in enumerate(cost["blocks"])}
    fed = {order[name] for entry in cost["inputs"] for name in entry["to"]}
    crossing = [edge["bytes"][0] for edge in cost["edges"]
                if order[edge["from"]] < first <= order[edge["to"]]]
    for i in indices:
        block = cost["blocks"][i]
        if i in fed or not crossing:
            return 0
        if block["read_by_backward"][0] > block["read_from_others"][0]:
            return min(crossing)
    return 0


def messages(cost, indices, slots):
    """Bytes of the buffers for what goes from block to block: in and back at the front; out behind,
    and as many again as there are slots."""
    order = {block["name"]: i for i, block in enumerate(cost["blocks"])}
    sends = min(cost["message_buffers"], MICRO_BATCHES)
    total = 0
    for edge in cost["edges"]:
        ends = order[edge["from"]], order[edge["to"]]
        if ends[1] != ends[0] + 1 or not edge["gradient_bytes"][0]:
            continue
        if ends[1] == indices[0]:
            total += sends * (edge["bytes"][0] + edge["gradient_bytes"][0])
        if ends[0] == indices[-1]:
            total += (sends + min(sends, slots)) * edge["bytes"][0]
    return total


def bytes_at_least(cost, indices, slots, again):
    """What the lower bound of a plan counts for a stage, from the keys of tasuki-cost(5)."""
    blocks = [cost["blocks"][i] for i in indices]

    def total(key):
        return sum(block[key][0] for block in blocks)

    each = 1 + (cost["gradient_bytes_per_parameter"] + cost["optimizer_bytes_per_parameter"]) / 4
    made = total("read_by_backward")
    kept = (made if again == "none" else total("read_selectively") if again == "selective"
            else max(blocks[0]["read_from_others"][0], arrives(cost, indices)))
    trained = sum(block["parameters"] - block.get("statistics", 0) for block in blocks)
    # A part is run again piece by piece, all of it before the backward begins.
    first = kept if again == "selective" else made
    return each * trained + first + (slots - 1) * kept + messages(cost, indices, slots)


def counted_at_least(session, name):
    """No stage has less, as it is compiled, than its lower bound counts; most have little more."""
    case, parts = session.case(name), []
    cost = cost_of(session, case, case.global_batch // MICRO_BATCHES)
    order = {block["name"]: i for i, block in enumerate(cost["blocks"])}
    pins = ["--batchnorm-samples", "1"] if case.batchnorm else []
    for n in range(1, 1 + min(4, len(order))):
        for again in ("none", "selective", "full"):
            path = session.temporary(".json")
            result = session.tasuki(
                ["plan", case.path("model.onnx"), "--data", case.path("train.safetensors"),
                 "--loss", case.loss, "--optimizer", "adamw", "--cluster",
                 driver.cluster(4), "--stages", n, "--replicas", ",".join(["1"] * n),
                 "--global-batch", case.global_batch, "--micro-batches", MICRO_BATCHES,
                 "--schedule", "1f1b", "--recompute", again, "--no-zero", *pins, "-o", path, "-q"])
            check(result.code == 0, result.err)
            with open(path) as file:
                stages = json.load(file)["stages"]
            for k, stage in enumerate(stages):
                indices = sorted(order[block["name"]] for block in stage["blocks"])
                least = bytes_at_least(cost, indices, min(MICRO_BATCHES, n - k), again)
                check(least <= stage["memory"], f"stage {k} of {n}, recompute {again}: "
                      f"{stage['memory']} bytes, at least {least}")
                parts.append(least / stage["memory"])
    middle = statistics.median(parts)
    # Of the CNN workspace is nearly half.
    check(middle > 0.4, f"half of them count less than {middle:.2f} of what there is")
    return f"{len(parts)} stages, {middle:.2f} of the bytes at the median, most {max(parts):.3f}"


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
    tap, session, draw = Tap(), driver.Session(), random.Random(driver.SEED)
    try:
        session.load(MODELS)
        tap.note(f"{session.source}; drawn with TASUKI_TEST_SEED={driver.SEED}")
        for name in MODELS:
            tap.test(f"{name}: what does not fit one device is cut, and stays below the limit",
                     is_cut, session, name)
            tap.test(f"{name}: cut by memory, the curve stays", stays_below, session, name)
            for schedule in driver.some(draw, ["zb-h1", "zb", "2bw"], 1):
                tap.test(f"{name}: what is measured under {schedule} is what was foreseen",
                         foreseen, session, name, schedule)
            tap.test(f"{name}: with ZeRO-1 what is measured is what was foreseen",
                     foreseen_in_shards, session, name, (3,), 0.9)
            tap.test(f"{name}: with ZeRO-1 in two stages, too", foreseen_in_shards, session,
                     name, (2, 1), None)
            for schedule in driver.some(draw, ["gpipe", "1f1b", "zb-h1", "2bw"], 2):
                tap.test(f"{name}: what recomputes under {schedule} has the memory foreseen",
                         foreseen_again, session, name, schedule)
            tap.test(f"{name}: the lower bound counts no more bytes than a stage has",
                     counted_at_least, session, name)
            for ranks in (0, 2):
                tap.test(f"{name}: an impossible limit names the block ({ranks or 1} ranks)",
                         names_the_block, session, name, ranks)
    finally:
        session.close()
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
