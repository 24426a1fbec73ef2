#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Optimizers, learning rates, decay, clipping, smoothing, averages and evaluations are PyTorch's,
on one rank and on many, and go on from a checkpoint as if there had been none."""
import array
import json
import os
import random
import subprocess
import sys

import compare
import driver
import tensors
from tap import Tap, check, skip_all

# Biases and norms, as is customary.
BARE = ["*bias", "*norm*"]
RECIPES = [
    ("nesterov, step by epochs after a warm-up", "cnn", "nesterov",
     {"lr": 0.03125, "weight-decay": 0.0078125, "lr-schedule": "step", "warmup": 3,
      "lr-every": "2epochs", "lr-factor": 0.5, "no-decay": BARE}),
    ("adam, one-cycle, clipped", "transformer", "adam",
     {"lr": 0.015625, "weight-decay": 0.015625, "lr-schedule": "one-cycle", "clip-norm": 0.5}),
    ("adamw, cosine after a warm-up, smoothed and averaged", "tied", "adamw",
     {"lr": 0.00390625, "weight-decay": 0.0625, "lr-schedule": "cosine", "warmup": "1epochs",
      "lr-final": 0.125, "no-decay": BARE, "label-smoothing": 0.125, "ema": 0.75,
      "eval-ema": True, "clip-norm": 1.0}),
    ("momentum, linear, averaged", "cnn", "momentum",
     {"lr": 0.0625, "lr-schedule": "linear", "lr-length": 16, "lr-final": 0.25, "ema": 0.875,
      "eval-ema": True}),
    ("lars", "cnn", "lars",
     {"lr": 1.0, "weight-decay": 0.03125, "trust-coefficient": 0.0625, "no-decay": BARE,
      "clip-norm": 0.25}),
    ("lars of all", "mlp", "lars", {"lr": 0.5, "trust-coefficient": 0.0625, "momentum": 0.5}),
    ("lamb, one-cycle of its own length", "tied", "lamb",
     {"lr": 0.03125, "lr-schedule": "one-cycle", "warmup": 4, "lr-length": 18,
      "weight-decay": 0.03125, "no-decay": BARE, "label-smoothing": 0.25}),
    ("lamb of all", "mlp-mse", "lamb", {"lr": 0.015625, "weight-decay": 0.0, "clip-norm": 0.5}),
    ("sgd, smoothed", "transformer", "sgd", {"lr": 0.125, "label-smoothing": 0.1}),
    ("momentum, one update late", "mlp", "momentum", {"lr": 0.0625, "schedule": "2bw"}),
    ("adamw, one update late, averaged", "tied", "adamw",
     {"lr": 0.00390625, "weight-decay": 0.0625, "clip-norm": 1.0, "ema": 0.75, "eval-ema": True,
      "schedule": "2bw"}),
    ("momentum, one update late, with statistics of micro-batches", "cnn", "momentum",
     {"lr": 0.0625, "schedule": "2bw", "batchnorm-samples": 3}),
]
LATE = [9, 10, 11]  # under 2bw
TIED = [2, 6]       # a tie must step alike in all stages
MODELS = sorted({recipe[1] for recipe in RECIPES})
LAYOUTS = [(1, 1), (2, 1), (1, 1, 1), (1, 3), (2, 2), (3,), (1, 2, 1)]
EVALUATE = (7, 14, 20)


def options_of(case, recipe, **more):
    """As arguments of Session.train(). Figures of the case are replaced."""
    options = {key.replace("-", "_"): value for key, value in recipe[3].items()}
    if case.batchnorm:
        group = options.get("batchnorm_samples", case.global_batch)
        options["batchnorm_samples"] = more.pop("group", group)
    return {"test": case.path("test.safetensors"), "eval_every": EVALUATE[0], **options, **more}


def train(session, recipe, layout=(), **more):
    case = session.case(recipe[1])
    if layout:
        more.update(ranks=sum(layout), stages=len(layout),
                    replicas=driver.replicas_text(layout))
    return session.train(case, "float64", recipe[2], **options_of(case, recipe, **more))


def same_numbers(what, got, wanted, tolerance):
    check(len(got) == len(wanted), f"{what}: {len(got)} in place of {len(wanted)}")
    worst = max((abs(a - b) / max(abs(b), 1e-12) for a, b in zip(got, wanted)), default=0.0)
    check(worst <= tolerance, f"{what}: differs by {worst:.3g}\ngot    {got}\nwanted {wanted}")


def column(result, key):
    return [line[key] for line in result.steps if key in line]


def evaluations(result):
    return {line["step"]: line for line in result.events if line["event"] == "evaluation"}


def same_evaluations(result, wanted, tolerance):
    got = evaluations(result)
    check(sorted(got) == sorted(map(int, wanted)), f"evaluated after {sorted(got)}")
    for step, figures in wanted.items():
        for key, value in figures.items():
            same_numbers(f"{key} of step {step}", [got[int(step)][key]], [value], tolerance)


def exported(session, checkpoint, *words):
    path = session.temporary(".safetensors")
    run = session.tasuki(["export", checkpoint, "-o", path, "-q", *words])
    check(run.code == 0, f"export: {run.err}")
    return tensors.read(path)


def same_state(case, got, wanted):
    """Without the names under which a tied parameter is not in the file."""
    for alias, owner in case.ties.items():
        wanted.pop(alias if alias not in got else owner, None)
    compare.same_tensors(got, wanted, 1e-6)


def same_statistics(case, checkpoint, wanted):
    """What BatchNorm keeps, in double."""
    for (kind, name), data in driver.state(checkpoint).items():
        if kind == "value" and "running_" in name:
            shape = wanted[name][1]
            compare.same_tensors({name: ("F64", shape, array.array("d", data))},
                                 {name: wanted[name]}, 10 * case.tolerance)


def follows(session, runs, recipe, layout=(), micro_batches=1):
    case, wanted = session.case(recipe[1]), runs[recipe[0]]
    checkpoint = session.temporary()
    result = train(session, recipe, layout, micro_batches=micro_batches, checkpoint=checkpoint)
    said = compare.same_curve(result.losses, wanted["loss"], case.tolerance)
    same_numbers("lr", column(result, "lr"), wanted["lr"], 1e-12)
    same_numbers("gradient_norm", column(result, "gradient_norm"), wanted["gradient_norm"],
                 10 * case.tolerance)
    same_evaluations(result, wanted["evaluation"], 10 * case.tolerance)
    same_state(case, exported(session, checkpoint), tensors.read(wanted["final"]))
    same_statistics(case, checkpoint, tensors.read(wanted["final"]))
    if "ema" in wanted:
        same_state(case, exported(session, checkpoint, "--ema"), tensors.read(wanted["ema"]))
    return said


def follows_late(tap, session, runs, recipe, micro_batches):
    """Four stages beside a reference whose updates are one late; evaluations and a checkpoint in
    between run the pipeline empty. What another schedule learns is printed beside it."""
    said = follows(session, runs, recipe, (1, 1, 1, 1), micro_batches)
    plain = train(session, (*recipe[:3], {**recipe[3], "schedule": "1f1b"}), (1, 1, 1, 1),
                  micro_batches=micro_batches)
    tap.note(f"{recipe[1]}: loss of each step under 2bw, and under 1f1b")
    for step, losses in enumerate(zip(runs[recipe[0]]["loss"], plain.losses)):
        tap.note(f"{step + 1:4d} {losses[0]:12.8g} {losses[1]:12.8g}")
    return said


def same_over_ranks(session, recipe, layout, micro_batches):
    group = 1 if session.case(recipe[1]).batchnorm else None
    one = train(session, recipe, micro_batches=1, group=group)
    many = train(session, recipe, layout, micro_batches=micro_batches, group=group)
    for key in ("loss", "lr", "gradient_norm"):
        same_numbers(key, column(many, key), column(one, key), 1e-10)
    same_evaluations(many, {step: {"loss": line["loss"]} for step, line
                            in evaluations(one).items()}, 1e-10)


def goes_on(session, recipe, k, before, after):
    """The options of the recipe are said once. The schedule keeps its length."""
    case = session.case(recipe[1])
    group = 1 if case.batchnorm else None
    whole_at, parts_at = session.temporary(), session.temporary()
    pins = {"micro_batches": 2, "group": group, "lr_length": 18}
    whole = train(session, recipe, checkpoint=whole_at, **pins)
    first = train(session, recipe, before, checkpoint=parts_at, steps=k, **pins)
    more = {"ranks": sum(after), "stages": len(after) or None,
            "replicas": driver.replicas_text(after) or None}
    second = session.train(case, "float64", recipe[2], checkpoint=parts_at, resume=True,
                           micro_batches=3, lr=recipe[3]["lr"],
                           weight_decay=recipe[3].get("weight-decay", 0.0), **more)
    check(len(first.losses) == k, f"{len(first.losses)} steps")
    for key in ("loss", "lr", "gradient_norm"):
        same_numbers(key, column(first, key) + column(second, key), column(whole, key), 1e-10)
    for words in [[]] + ([["--ema"]] if "ema" in recipe[3] else []):
        compare.same_tensors(exported(session, parts_at, *words),
                             exported(session, whole_at, *words), 1e-9)


def keeps_the_best(session, recipe, layout, by):
    """A rate so high that the test loss rises in the end."""
    checkpoint = session.temporary()
    pins = {"checkpoint": checkpoint, "best": by, "eval_every": 2, "micro_batches": 2,
            "group": 1 if session.case(recipe[1]).batchnorm else None, "ema": None,
            "eval_ema": None}
    result = train(session, recipe, layout, **{**pins, "lr": 4 * recipe[3]["lr"]})
    found = evaluations(result)
    sign = -1 if by == "accuracy" else 1
    best = min(found, key=lambda step: (sign * found[step][by], step))
    with open(os.path.join(checkpoint, "best", "latest")) as file:
        name = file.read().strip()
    check(name == f"step-{best:08d}", f"kept {name}, the best is step {best}")
    folders = sorted(os.listdir(os.path.join(checkpoint, "best")))
    check(folders == ["latest", name], f"{folders}")
    with open(os.path.join(checkpoint, "best", name, "state.json")) as file:
        state = json.load(file)
    check(state["best"]["step"] == best and state["best"]["value"] == found[best][by],
          f"{state['best']}")
    again = train(session, recipe, layout, **{**pins, "lr": 0.0}, resume=True, steps=22)
    check(len(again.losses) == 2, f"{len(again.losses)} steps")
    folders = sorted(os.listdir(os.path.join(checkpoint, "best")))
    check(folders == ["latest", name], f"{folders} after a resume without improvement")
    return f"step {best}"


def references(session, python):
    asked = [{"name": name, "model": model, "optimizer": optimizer, "options": options,
              "evaluate": EVALUATE} for name, model, optimizer, options in RECIPES]
    root = os.path.join(session.scratch, "torchscript")
    run = subprocess.run([python, os.path.join(driver.HERE, "recipe_reference.py"), root,
                          str(driver.SEED)], input=json.dumps(asked), text=True,
                         stdout=subprocess.PIPE, check=True)
    return json.loads(run.stdout)


def main():
    python = driver.python_with_torch()
    if not python:
        skip_all("no Python with torch here")
    tap, session = Tap(), driver.Session()
    draw = random.Random(driver.SEED)
    try:
        session.load(MODELS)
        for case in session.cases.values():
            case.options = {recipe[2]: [] for recipe in RECIPES}
        runs = references(session, python)
        tap.note(f"{session.source}; drawn with TASUKI_TEST_SEED={driver.SEED}")
        for recipe in RECIPES:
            tap.test(f"{recipe[1]}: {recipe[0]} is PyTorch's", follows, session, runs, recipe)
        for i in LATE:
            group = RECIPES[i][3].get("batchnorm-samples", 1)
            counts = [m for m in (4, 6, 8) if 24 // m % group == 0]
            tap.test(f"{RECIPES[i][1]}: {RECIPES[i][0]} is PyTorch's on 4 ranks",
                     follows_late, tap, session, runs, RECIPES[i], draw.choice(counts))
        layouts = draw.sample(LAYOUTS, len(LAYOUTS))
        others = [i for i in range(len(RECIPES)) if i not in TIED + LATE]
        for i in TIED + LATE + (others if driver.LONG else draw.sample(others, 3)):
            recipe, layout = RECIPES[i], layouts[i % len(layouts)]
            tap.test(f"{recipe[1]}: {recipe[0]} is the same over {layout}", same_over_ranks,
                     session, recipe, layout, draw.choice([2, 3, 4]))
        for i in [2, 4, 6] + LATE:
            k, before, after = draw.randint(1, 19), layouts[i % 7], layouts[i % 7 - 1]
            tap.test(f"{RECIPES[i][0]}: stopped after {k} steps of {before}, resumed as {after}",
                     goes_on, session, RECIPES[i], k, before, after)
        for i, layout, by in ((2, (), "loss"), (6, (2, 1), "loss"), (8, (1, 2), "accuracy")):
            tap.test(f"the best by {by} is kept over {layout or 'one rank'}", keeps_the_best,
                     session, RECIPES[i], layout, by)
    finally:
        session.close()
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
