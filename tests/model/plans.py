#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every plan gives the curve of one rank: stages, replicas, schedules, micro-batches."""
import itertools
import json
import random
import sys

import compare
import driver
from tap import Tap, check

MODELS = ["mlp", "cnn", "transformer", "transformer-dropout", "tied", "skips", "frozen"]
LAYOUTS = [(1, 1), (1, 1, 1), (1, 1, 1, 1), (2, 1), (1, 3), (2, 2), (3,), (1, 2, 1)]
SCHEDULES = ["gpipe", "1f1b", "zb-h1", "zb"]
CHUNKED = ["interleaved", "zb-v"]
RECOMPUTES = ["selective", "full"]
MICRO_BATCHES = [1, 2, 3, 4, 6, 8]      # of 24 samples; 5 and 7 have their own test
OPTIMIZER = "momentum"
SHARE = 0.75            # of the tests whose ranks are of one process: these start sooner


def groups_allowed(case, layout, micro_batches):
    """Sizes G such that every share of every replica is a multiple of G."""
    size = case.global_batch // micro_batches
    edges = {i * size // r for r in layout for i in range(r + 1)}
    return [g for g in case.batchnorm if g < case.global_batch and
            all(edge % g == 0 for edge in edges)]


class Drawn(Tap):
    """Of each test is drawn whether its ranks are processes of MPI or threads of one process."""

    def __init__(self, session, draw):
        super().__init__()
        self.session, self.draw, self.share = session, draw, SHARE

    def test(self, name, function, *args, **options):
        self.session.one_process = self.draw.random() < self.share
        super().test(name + (", in one process" if self.session.one_process else ""), function,
                     *args, **options)
        self.session.one_process = False


class Baselines:
    """One-rank curves, and the spread of float32, made once per network."""

    def __init__(self, session):
        self.session, self.curves, self.spreads = session, {}, {}

    def curve(self, case, precision, **pins):
        key = (case.name, precision, tuple(sorted(pins.items())))
        if key not in self.curves:
            result = self.session.train(case, precision, OPTIMIZER,
                                        **{"micro_batches": 1, **pins})
            self.curves[key] = result.losses
        return self.curves[key]

    def spread(self, case, **pins):
        key = (case.name, tuple(sorted(pins.items())))
        if key not in self.spreads:
            size = pins.get("batchnorm_samples", 1)
            counts = [m for m in (1, 2, 4, 8) if case.global_batch // m % size == 0]
            self.spreads[key] = compare.spread(
                [self.curve(case, "float32", micro_batches=m, **pins) for m in counts])
        return self.spreads[key]


def same_as_one_rank(session, baselines, name, layout, schedule, micro_batches, precision,
                     environment=None, **options):
    case = session.case(name)
    pins = {key: options[key] for key in ("batchnorm_samples", "global_batch", "seed")
            if key in options}
    result = session.train(case, precision, OPTIMIZER, ranks=sum(layout), stages=len(layout),
                           replicas=driver.replicas_text(layout), schedule=schedule,
                           micro_batches=micro_batches, environment=environment, **options)
    wanted = baselines.curve(case, precision, **pins)
    if precision == "float64":
        return compare.same_curve(result.losses, wanted, 1e-10, case.loss)
    return compare.within_spread(result.losses, wanted, baselines.spread(case, **pins))


def chosen(draw, everything, layouts):
    """A sample of the matrix in which each layout, schedule and count comes up."""
    if driver.LONG:
        return everything
    schedules = itertools.cycle(draw.sample(SCHEDULES, len(SCHEDULES)))
    counts = itertools.cycle(draw.sample(MICRO_BATCHES, len(MICRO_BATCHES)))
    return [(layout, next(schedules), next(counts)) for layout in layouts]


def matrix(tap, session, baselines, draw, precision, samples):
    for name in MODELS:
        layouts = driver.some(draw, LAYOUTS, samples)
        everything = list(itertools.product(layouts, SCHEDULES, MICRO_BATCHES))
        for layout, schedule, micro_batches in chosen(draw, everything, layouts):
            options = {}
            if name == "cnn":
                case = session.cases.get(name)
                allowed = groups_allowed(case, layout, micro_batches) if case else [1]
                options["batchnorm_samples"] = draw.choice(allowed)
            said = f" by {options['batchnorm_samples']}" if options else ""
            tap.test(f"{name}{said}, {precision}: stages {driver.replicas_text(layout)}, "
                     f"{schedule}, {micro_batches} micro-batches give the one-rank curve",
                     same_as_one_rank, session, baselines, name, layout, schedule,
                     micro_batches, precision, **options)


def odd_counts(tap, session, baselines, draw):
    """Five and seven micro-batches, of 35 samples."""
    for micro_batches, layout in itertools.product((5, 7), [(1, 1, 1), (2, 1), (3, 1)]):
        schedule = draw.choice(SCHEDULES)
        tap.test(f"mlp, 35 samples: stages {driver.replicas_text(layout)}, {schedule}, "
                 f"{micro_batches} micro-batches give the one-rank curve", same_as_one_rank,
                 session, baselines, "mlp", layout, schedule, micro_batches, "float64",
                 global_batch=35)


def unequal_shares(tap, session, baselines, draw):
    """Three replicas of eight samples own 2, 3 and 3."""
    for name in driver.some(draw, MODELS, 4):
        options = {"batchnorm_samples": 1} if name == "cnn" else {}
        tap.test(f"{name}: 3 replicas of 8 samples give the one-rank curve", same_as_one_rank,
                 session, baselines, name, (3, 1), "1f1b", 3, "float64", **options)


def made(session, case, layout, batch, precision, micro_batches, schedule, options):
    """Where the planner's plan is for so many replicas of each stage, and what it says."""
    path = session.temporary(".json")
    words = ["plan", case.path("model.onnx"), "--data", case.path("train.safetensors"), "--loss",
             case.loss, "--cluster", f"flat:{sum(layout)},bandwidth=1e9", "--precision",
             precision, "--global-batch", batch, "--optimizer", OPTIMIZER, "-q", "--replicas",
             driver.replicas_text(layout), "--schedule", schedule, "--micro-batches",
             micro_batches, "-o", path]
    for name, value in options.items():
        words += ["--" + name.replace("_", "-"), value]
    for pattern in getattr(case, "freeze", []):
        words += ["--freeze", pattern]
    planned = session.tasuki(words)
    check(planned.code == 0, planned.err)
    with open(path) as file:
        return path, json.load(file)


def as_pipelines(session, case, layout, pipelines, schedule, **options):
    """A plan of so many whole pipelines, each on neighbouring devices: one, made by the planner,
    and the same again."""
    each = sum(layout)
    path, plan = made(session, case, layout, case.global_batch // pipelines, "float64", 2, schedule,
                      options)
    plan["pipelines"], plan["global_batch"] = pipelines, case.global_batch
    for stage in plan["stages"]:
        stage["devices"] = [[str(int(device) + p * each) for device in stage["devices"][0]]
                            for p in range(pipelines)]
    with open(path, "w") as file:
        json.dump(plan, file)
    return path


def pipelines_as_one_rank(session, baselines, name, layout, pipelines, schedule):
    case = session.case(name)
    options = {"batchnorm_samples": "1"} if case.batchnorm else {}
    path = as_pipelines(session, case, layout, pipelines, schedule, **options)
    ranks = sum(layout) * pipelines
    result = session.train(case, "float64", OPTIMIZER, ranks=ranks, plan=path, keep_plan=True,
                           cluster=f"flat:{ranks},bandwidth=1e9", **options)
    check(result.event("start")["plan"]["pipelines"] == pipelines, "another plan was run")
    return compare.same_curve(result.losses, baselines.curve(case, "float64", **options), 1e-10,
                              case.loss)


def whole_pipelines(tap, session, baselines, draw):
    """Copies of the whole pipeline: gradients are summed over all replicas of all of them."""
    for name in driver.some(draw, MODELS, 4):
        layout, pipelines = draw.choice([((1, 1), 2), ((2, 1), 2), ((1, 1), 3), ((1, 2), 2)])
        schedule = draw.choice(SCHEDULES)
        tap.test(f"{name}: {pipelines} pipelines of stages {driver.replicas_text(layout)}, "
                 f"{schedule} give the one-rank curve", pipelines_as_one_rank, session, baselines,
                 name, layout, pipelines, schedule)


def in_chunks(session, case, devices, chunks, replicas, schedule, micro_batches, precision,
              recompute, zero, options):
    """A plan in which each device has several stages: one of as many stages on devices of their
    own, made by the planner, and folded."""
    n = devices * chunks
    path, plan = made(session, case, [replicas] * n, case.global_batch, precision, micro_batches,
                      "1f1b", options)
    plan["schedule"], plan["schedule_options"] = schedule, {"chunks": chunks, "memory": 0}
    plan["zero"] = zero
    for s, stage in enumerate(plan["stages"]):
        stage["recompute"] = recompute
        at = 2 * devices - 1 - s if schedule == "zb-v" and s >= devices else s % devices
        stage["devices"] = [[str(at * replicas + i) for i in range(replicas)]]
    with open(path, "w") as file:
        json.dump(plan, file)
    return path


def train_in_chunks(session, case, devices, chunks, replicas, schedule, micro_batches, precision,
                    environment=None, recompute="none", zero=False, **options):
    pins = {"batchnorm_samples": 1} if case.batchnorm else {}
    path = in_chunks(session, case, devices, chunks, replicas, schedule, micro_batches,
                     precision, recompute, zero, pins)
    ranks = devices * replicas
    return session.train(case, precision, OPTIMIZER, ranks=ranks, plan=path, keep_plan=True,
                         cluster=f"flat:{ranks},bandwidth=1e9", environment=environment, **pins,
                         **options)


def chunks_as_one_rank(session, baselines, name, devices, chunks, replicas, schedule,
                       micro_batches, environment=None):
    case = session.case(name)
    result = train_in_chunks(session, case, devices, chunks, replicas, schedule, micro_batches,
                             "float64", environment)
    check(result.event("start")["plan"]["schedule"] == schedule, "another plan was run")
    pins = {"batchnorm_samples": 1} if case.batchnorm else {}
    return compare.same_curve(result.losses, baselines.curve(case, "float64", **pins), 1e-10,
                              case.loss)


def same_bits_in_chunks(session, name, devices, schedule, micro_batches, recompute="none"):
    """Devices with two stages each accumulate what one rank does."""
    case, folders = session.case(name), [session.temporary(), session.temporary()]
    options = {"batchnorm_samples": 1} if case.batchnorm else {}
    session.train(case, "float32", OPTIMIZER, micro_batches=micro_batches, deterministic=True,
                  steps=3, checkpoint=folders[0], schedule="1f1b", **options)
    train_in_chunks(session, case, devices, 2, 1, schedule, micro_batches, "float32",
                    deterministic=True, steps=3, checkpoint=folders[1], recompute=recompute)
    check(driver.state(folders[0]) == driver.state(folders[1]), "other bits than those of one "
          "rank")


def sharded_in_chunks(session, name, schedule):
    """ZeRO-1 where a device has a share of the state of each of its two stages."""
    case, states = session.case(name), []
    for zero in (False, True):
        folder = session.temporary()
        train_in_chunks(session, case, 2, 2, 2, schedule, 4, "float32", deterministic=True,
                        steps=3, checkpoint=folder, zero=zero, ema=0.9)
        states.append(driver.state(folder))
    check(states[0] == states[1], "other bits than without")


def goes_on_in_chunks(session, name, schedule, replicas=1, zero=False):
    """Clipped, averaged, evaluated, kept and taken up again by other plans, as one rank does."""
    case, folder = session.case(name), session.temporary()
    options = {"clip_norm": 0.5, "ema": 0.9, "eval_ema": True, "eval_every": 1, "test":
               case.path("train.safetensors")}
    alone = session.train(case, "float64", OPTIMIZER, micro_batches=4, steps=6, **options)
    runs = [train_in_chunks(session, case, 2, 2, replicas, schedule, 4, "float64", steps=2,
                            checkpoint=folder, zero=zero, **options),
            session.train(case, "float64", OPTIMIZER, ranks=2, stages=2, steps=4, resume=True,
                          checkpoint=folder, **options),
            train_in_chunks(session, case, 2, 2, replicas, schedule, 4, "float64", steps=6,
                            resume=True, checkpoint=folder, zero=zero, **options)]
    losses = [loss for run in runs for loss in run.losses]
    tests = [[e["loss"] for run in some for e in run.events if e["event"] == "evaluation"]
             for some in (runs, [alone])]
    compare.same_curve(tests[0], tests[1], 1e-10, case.loss)
    return compare.same_curve(losses, alone.losses, 1e-10, case.loss)


def several_chunks(tap, session, baselines, draw):
    """Devices with several stages: skips, ties and masks between stages of one device, too."""
    folds = [("zb-v", 2, 2, 1), ("zb-v", 3, 2, 1), ("zb-v", 1, 2, 1), ("zb-v", 2, 2, 2),
             ("interleaved", 2, 2, 1), ("interleaved", 2, 3, 1), ("interleaved", 1, 3, 1),
             ("interleaved", 2, 2, 2)]
    for name in MODELS:
        for fold in driver.some(draw, folds, 2):
            schedule, devices, chunks, replicas = fold
            counts = [c for c in (4, 6, 8) if schedule == "zb-v" or c % devices == 0]
            count = draw.choice(counts)
            tap.test(f"{name}: {devices} times {chunks} stages of {replicas}, {schedule}, {count} "
                     "micro-batches give the one-rank curve", chunks_as_one_rank, session,
                     baselines, name, devices, chunks, replicas, schedule, count)


def planned_in_chunks(session, baselines, name, schedule, chunks, ranks=2, recompute=None,
                      zero=False):
    """From the model straight; the forecast of memory is what is taken."""
    case, stages = session.case(name), 2 * (chunks or 2)
    result = session.train(case, "float64", OPTIMIZER, ranks=ranks, schedule=schedule,
                           chunks=chunks, replicas=driver.replicas_text([ranks // 2] * stages),
                           micro_batches=4, recompute=recompute, zero=zero)
    plan = result.event("start")["plan"]
    check(plan["schedule"] == schedule and plan["zero"] == zero, "another plan was run")
    foreseen = {}
    for stage in plan["stages"]:
        check(stage["recompute"] == (recompute or "none"), "another recompute")
        for device in stage["devices"][0]:
            foreseen[device] = foreseen.get(device, 0) + stage["memory"]
    check(sorted(foreseen.values()) == sorted(result.event("memory")["peak"]),
          f"memory {foreseen} foreseen, {result.event('memory')['peak']} taken")
    return compare.same_curve(result.losses, baselines.curve(case, "float64"), 1e-10, case.loss)


def chunks_go_on(tap, session, baselines):
    for schedule, chunks in (("interleaved", 3), ("zb-v", None)):
        tap.test(f"transformer: the planner's {schedule} gives the one-rank curve in the memory "
                 "that was foreseen", planned_in_chunks, session, baselines, "transformer", schedule,
                 chunks)
        for recompute in RECOMPUTES:
            tap.test(f"transformer-dropout: {schedule} with --recompute {recompute}, too",
                     planned_in_chunks, session, baselines, "transformer-dropout", schedule,
                     chunks, recompute=recompute)
        tap.test(f"transformer: {schedule} on four ranks with --zero, too", planned_in_chunks,
                 session, baselines, "transformer", schedule, chunks, ranks=4, zero=True)
    for schedule in CHUNKED:
        tap.test(f"tied: 2 times 2 stages, {schedule} are clipped, averaged, evaluated and resumed "
                 "as one rank", goes_on_in_chunks, session, "tied", schedule)
        tap.test(f"tied: 2 times 2 stages of 2 with ZeRO-1, {schedule}, too", goes_on_in_chunks,
                 session, "tied", schedule, replicas=2, zero=True)


def same_bits(session, name, schedule):
    """Four stages accumulate what one rank does in the same order of micro-batches."""
    case, states = session.case(name), []
    order = "gpipe" if schedule == "gpipe" else "1f1b"
    stages = {"ranks": 4, "stages": 4, "replicas": "1,1,1,1", "schedule": schedule}
    options = {"batchnorm_samples": 1} if case.batchnorm else {}
    for pins in ({"schedule": order}, stages):
        folder = session.temporary()
        session.train(case, "float32", OPTIMIZER, micro_batches=8, deterministic=True, steps=3,
                      checkpoint=folder, **options, **pins)
        states.append(driver.state(folder))
    check(states[0] == states[1], "other bits than those of one rank")


def plain_accumulation(tap, session, draw):
    models = ["mlp", "cnn", "transformer-dropout"]
    for schedule in SCHEDULES:
        for name in models if driver.LONG else [draw.choice(models)]:
            tap.test(f"{name}: stages 1,1,1,1, {schedule} with --deterministic give the bits of "
                     "one rank", same_bits, session, name, schedule)
    # The mlp and the cnn have fewer than eight blocks.
    folds = [("mlp", 3, 6), ("cnn", 3, 6), ("transformer", 4, 8), ("transformer-dropout", 4, 8)]
    for schedule in CHUNKED:
        for name, devices, count in folds if driver.LONG else [draw.choice(folds), folds[-1]]:
            tap.test(f"{name}: {devices} times 2 stages, {schedule} with --deterministic give the "
                     "bits of one rank", same_bits_in_chunks, session, name, devices, schedule,
                     count)
        for recompute in RECOMPUTES:
            for name, devices, count in folds if driver.LONG else [draw.choice(folds)]:
                tap.test(f"{name}: {devices} times 2 stages, {schedule}, --recompute {recompute} "
                         "with --deterministic give the bits of one rank", same_bits_in_chunks,
                         session, name, devices, schedule, count, recompute)
        for name in MODELS if driver.LONG else ["tied", draw.choice(MODELS)]:
            tap.test(f"{name}: 2 times 2 stages of 2, {schedule}, with ZeRO-1 have the bits of "
                     "those without", sharded_in_chunks, session, name, schedule)


def planned(session, case, ranks, *words):
    path = session.temporary(".json")
    for pattern in getattr(case, "freeze", []):
        words += "--freeze", pattern
    run = session.tasuki(["plan", case.path("model.onnx"), "--data", case.path("train.safetensors"),
                          "--loss", case.loss, "--cluster", driver.cluster(ranks), "--global-batch",
                          case.global_batch, "--optimizer", OPTIMIZER, "-q", "-o", path, *words])
    check(run.code == 0, run.err)
    return path


def content(path):
    with open(path, "rb") as file:
        return file.read()


def list_as_named(session, name, schedule, stages):
    """What a schedule makes, printed and loaded: the plan, the gradients and the losses of its name."""
    case, text = session.case(name), session.temporary(".list")
    named = planned(session, case, 2, "--schedule", schedule, "--stages", stages, "--micro-batches", 4)
    run = session.tasuki(["simulate", named, "--data", case.path("train.safetensors"), "--loss",
                          case.loss, "--format", "schedule", "-o", text])
    check(run.code == 0, run.err)
    paths, losses, gradients = [named, planned(session, case, 2, "--schedule", text)], [], []
    plans = [json.loads(content(path)) for path in paths]
    check("\n".join(plans[1]["instructions"]) + "\n" == content(text).decode(), "another list")
    for plan in plans:
        for key in "command", "instructions", "schedule_options":
            plan.pop(key, None)
    check(plans[0] == plans[1], "another plan")
    for path in paths:
        dumped = session.temporary()
        losses.append(session.train(case, "float32", OPTIMIZER, ranks=2, plan=path, keep_plan=True,
                                    cluster=driver.cluster(2), deterministic=True, steps=3,
                                    dump_gradients=dumped).losses)
        gradients.append(content(dumped))
    check(gradients[0] == gradients[1] and losses[0] == losses[1], "other bits")


def own_list(devices, micro_batches):
    """Two stages for each device, one behind the other; all F, then all B and W."""
    last, all_micro = 2 * devices - 1, range(micro_batches)
    yield f"schedule own stages {last + 1} micro-batches {micro_batches}"
    for first in range(0, last, 2):
        yield from (f"stage {s} slots {micro_batches}" for s in (first, first + 1))
        for m, c in itertools.product(all_micro, (0, 1)):
            if first + c > 0:
                yield f"RECV {m} {c} <- {first + c - 1}"
            yield f"F {m} {c}"
            if first + c < last:
                yield f"SEND {m} {c} -> {first + c + 1}"
        for m, c in itertools.product(all_micro, (1, 0)):
            if first + c < last:
                yield f"RECV {m} {c} <- {first + c + 1} gradient"
            if first + c > 0:
                yield from (f"B {m} {c}", f"SEND {m} {c} -> {first + c - 1} gradient", f"W {m} {c}")
            else:
                yield f"BW {m} {c}"
        yield from ("REDUCE", "STEP")


def own_list_as_one_rank(session, baselines, name):
    case, path = session.case(name), session.temporary(".list")
    with open(path, "w") as file:
        file.write("\n".join(own_list(2, 4)) + "\n")
    result = session.train(case, "float64", OPTIMIZER, ranks=2, schedule=path,
                           cluster=driver.cluster(2))
    check(result.event("start")["plan"]["schedule"] == "own", "another plan was run")
    return compare.same_curve(result.losses, baselines.curve(case, "float64"), 1e-10, case.loss)


def lists(tap, session, baselines, draw):
    """Instructions from files; tests/cli/train.bats has those of one stage for each rank."""
    plain = SCHEDULES + ["2bw"]
    kinds = [(s, 4) for s in CHUNKED] + [(s, 2) for s in (plain if driver.LONG else
                                                          [draw.choice(plain)])]
    for schedule, stages in kinds:
        tap.test(f"transformer: instructions of {schedule} in {stages} stages, printed and loaded, "
                 "have the plan and the bits of its name", list_as_named, session, "transformer",
                 schedule, stages)
    tap.test("transformer: two ranks with a list of their own for two stages each give the one-rank "
             "curve", own_list_as_one_rank, session, baselines, "transformer")


def run_both_ways(session, case, layout, precision, change, settings=None):
    """A plan, and the same one changed: what both runs have in the end, and their losses."""
    plan, states, curves, options = None, [], [], {"optimizer": "adamw", **(settings or {})}
    optimizer = options.pop("optimizer")
    pins = {"stages": len(layout), "replicas": driver.replicas_text(layout),
            "micro_batches": options.pop("micro_batches", 2),
            "schedule": options.pop("schedule", None)}
    if case.batchnorm:
        options["batchnorm_samples"] = 1
    for _ in range(2):
        folder = session.temporary()
        result = session.train(case, precision, optimizer, ranks=sum(layout), steps=5, plan=plan,
                               deterministic=True, checkpoint=folder, **pins, **options)
        states.append(driver.state(folder))
        curves.append(result.losses)
        made, plan, pins = result.event("start")["plan"], session.temporary(".json"), {}
        change(made)
        with open(plan, "w") as file:
            json.dump(made, file)
        options["keep_plan"] = True
    return states, curves


def sharded(session, name, layout, precision, settings):
    """ZeRO-1 sums in the same order; only norms are sums of other parts."""
    case = session.case(name)
    states, curves = run_both_ways(session, case, layout, precision,
                                   lambda plan: plan.update(zero=True), settings=settings)
    if precision == "float64":
        return compare.same_curve(curves[1], curves[0], 1e-10, case.loss)
    check(curves[0] == curves[1], "other losses than without")
    check(states[0] == states[1], "other parameters or states than without")
    return None


def clipped_in_shards(session, baselines, name):
    """The norm over all slices, where MPI sums as it likes; Adam would not see what scales all."""
    case, settings = session.case(name), {"clip_norm": 0.1}
    if case.batchnorm:
        settings["batchnorm_samples"] = 1
    result = session.train(case, "float64", OPTIMIZER, ranks=4, replicas="2,2", micro_batches=4,
                           zero=True, **settings)
    return compare.same_curve(result.losses, baselines.curve(case, "float64", **settings), 1e-10,
                              case.loss)


def optimizer_states_in_shards(tap, session, baselines, draw):
    layouts = [(2,), (4,), (3, 1), (2, 2), (1, 2, 1)]
    for name in ("mlp", "cnn", "tied", "frozen"):
        for layout in driver.LONG and layouts or draw.sample(layouts, 2):
            settings = {"optimizer": draw.choice(["momentum", "adamw"]), "ema": 0.9}
            tap.test(f"{name}, {settings['optimizer']}: stages {driver.replicas_text(layout)} "
                     "with ZeRO-1 have the bits of those without", sharded, session, name, layout,
                     "float32", settings)
    for name in ("mlp", "cnn"):
        tap.test(f"{name}: stages 2,2 with ZeRO-1 are clipped as one rank", clipped_in_shards,
                 session, baselines, name)
    for name, settings in (("mlp", {"optimizer": "lars"}), ("tied", {"optimizer": "lamb"}),
                           ("cnn", {"optimizer": "lars"}),
                           ("transformer", {"optimizer": "lamb", "clip_norm": 0.01}),
                           ("tied", {"clip_norm": 0.01, "ema": 0.9})):
        layout = draw.choice(layouts)
        said = ", ".join(f"{key} {value}" for key, value in settings.items())
        tap.test(f"{name}: stages {driver.replicas_text(layout)} with ZeRO-1 and {said} follow "
                 "those without", sharded, session, name, layout, "float64", settings)


def recomputed(session, name, layout, schedule, precision, kind):
    """The forward that is run again makes what it made before."""
    case = session.case(name)

    def change(plan):
        for stage in plan["stages"]:
            stage["recompute"] = kind

    states, curves = run_both_ways(session, case, layout, precision, change,
                                   {"schedule": schedule, "micro_batches": 4})
    check(curves[0] == curves[1], "other losses than without")
    check(states[0] == states[1], "other parameters or states than without")


def forward_run_again(tap, session, draw):
    layouts = [(1, 1, 1, 1), (2, 1), (1, 2, 1), (1, 1)]
    for name in MODELS:
        for kind, schedule in itertools.product(
                RECOMPUTES, SCHEDULES if driver.LONG else draw.sample(SCHEDULES, 1)):
            layout, precision = draw.choice(layouts), draw.choice(["float32", "float64"])
            tap.test(f"{name}, {precision}: stages {driver.replicas_text(layout)}, {schedule}, "
                     f"recompute {kind} have the bits of those that keep all", recomputed, session,
                     name, layout, schedule, precision, kind)


def late_as_one_rank(session, baselines, name, layout, micro_batches, environment, **options):
    """The curve of updates that are one late, as one rank has it: recipes.py has PyTorch's."""
    case = session.case(name)
    groups = {"batchnorm_samples": 1} if case.batchnorm else {}
    result = session.train(case, "float64", OPTIMIZER, ranks=sum(layout), schedule="2bw",
                           replicas=driver.replicas_text(layout), micro_batches=micro_batches,
                           environment=environment, **groups, **options)
    check(result.event("start")["plan"]["schedule"] == "2bw", "another plan was run")
    return compare.same_curve(result.losses,
                              baselines.curve(case, "float64", schedule="2bw", **groups), 1e-10,
                              case.loss)


def late(tap, session, baselines, draw):
    """Without a flush between steps, whatever else is asked for, and with random delays."""
    others = [{}, {"zero": True}, {"recompute": "full"}, {"recompute": "selective"},
              {"clip_norm": 1e6}, {"ema": 0.9}]
    for name in driver.some(draw, MODELS, 4):
        layouts = [(1, 1, 1, 1), draw.choice([(2, 2), (1, 2, 1), (2, 1), (1, 3)])]
        for layout in layouts:
            options = draw.choice(others) if layout != layouts[0] else {}
            said = "".join(f", --{key.replace('_', '-')}" for key in options)
            count = draw.choice([m for m in (2, 3, 4, 6, 8, 12) if 24 // m >= max(layout)])
            tap.test(f"{name}: stages {driver.replicas_text(layout)}, 2bw, {count} micro-batches"
                     f"{said} give the one-rank curve without eager messages and with random "
                     "delays", late_as_one_rank, session, baselines, name, layout, count, slow(),
                     **options)


def slow():
    """No message leaves before its receive is posted, and ranks dawdle at random."""
    # 56 bytes are the header alone: with btl tcp every message, however short, waits for its
    # receive (the shared-memory btl sends up to 256 bytes at once whatever it is told).
    return {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "lo",
            "OMPI_MCA_btl_tcp_eager_limit": "56",
            "OMPI_MCA_btl_self_eager_limit": "56", "TASUKI_TEST_DELAY": f"{driver.SEED}:2000"}


def rendezvous(tap, session, baselines, draw):
    for name, layout in (("mlp", (1, 1, 1, 1)), ("mlp", (2, 2)), ("transformer", (1, 3)),
                         ("skips", (1, 1, 1, 1)), ("tied", (2, 1)), ("cnn", (2, 2))):
        for schedule in SCHEDULES if driver.LONG else draw.sample(SCHEDULES, 1):
            options = {"batchnorm_samples": 1} if name == "cnn" else {}
            count = draw.choice([4, 6, 8])
            tap.test(f"{name}: stages {driver.replicas_text(layout)}, {schedule}, {count} "
                     "micro-batches end without eager messages and with random delays",
                     same_as_one_rank, session, baselines, name, layout, schedule, count,
                     "float64", environment=slow(), **options)
    for name in ("skips", "tied"):
        for schedule in CHUNKED:
            tap.test(f"{name}: 2 times 2 stages, {schedule} end without eager messages and with "
                     "random delays", chunks_as_one_rank, session, baselines, name, 2, 2, 1,
                     schedule, 6, environment=slow())


def main():
    session, draw = driver.Session(), random.Random(driver.SEED)
    if not session.mpirun:
        from tap import skip_all
        skip_all("no mpirun")
    baselines, tap = Baselines(session), Drawn(session, draw)
    try:
        session.load(MODELS)
        tap.note(f"{session.source}; drawn with TASUKI_TEST_SEED={driver.SEED}")
        matrix(tap, session, baselines, draw, "float64", 3)
        odd_counts(tap, session, baselines, draw)
        unequal_shares(tap, session, baselines, draw)
        whole_pipelines(tap, session, baselines, draw)
        several_chunks(tap, session, baselines, draw)
        chunks_go_on(tap, session, baselines)
        plain_accumulation(tap, session, draw)
        tap.share = 1                   # what follows is about plans
        lists(tap, session, baselines, draw)
        tap.share = SHARE
        optimizer_states_in_shards(tap, session, baselines, draw)
        forward_run_again(tap, session, draw)
        matrix(tap, session, baselines, draw, "float32", 1)
        tap.share = 0                   # what follows is about MPI's messages
        rendezvous(tap, session, baselines, draw)
        late(tap, session, baselines, draw)
    finally:
        session.close()
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
