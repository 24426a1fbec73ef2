#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Stop after k steps, go on with other ranks and another plan: the same curve."""
import random
import shutil
import sys

import compare
import driver
from tap import Tap, check

MODELS = ["mlp", "cnn", "transformer-dropout", "tied"]
PLANS = [(), (1, 1), (2, 1), (1, 1, 1), (1, 2), (3,)]
SCHEDULES = ["gpipe", "1f1b", "zb-h1", "zb"]


def pins(case, layout, micro_batches):
    options = {"micro_batches": micro_batches}
    if case.batchnorm:
        options["batchnorm_samples"] = 1
    if layout:
        options.update(ranks=sum(layout), stages=len(layout),
                       replicas=driver.replicas_text(layout))
    return options


def goes_on(session, name, optimizer, k, before, after, schedules, shuffle, zero):
    case = session.case(name)
    common = {"no_shuffle": not shuffle, "seed": 7}
    whole = session.train(case, "float64", optimizer, **common, **pins(case, (), 1))
    checkpoint = session.temporary()
    first = session.train(case, "float64", optimizer, checkpoint=checkpoint, steps=k, **common,
                          schedule=schedules[0], zero=zero[0], **pins(case, before, 2))
    second = session.train(case, "float64", optimizer, checkpoint=checkpoint, resume=True,
                           schedule=schedules[1], zero=zero[1], **common,
                           **pins(case, after, 3))
    check(len(first.losses) == k and len(second.losses) == case.steps - k,
          f"{len(first.losses)} and {len(second.losses)} steps")
    return compare.same_curve(first.losses + second.losses, whole.losses, 1e-10, case.loss)


def same_bits(session, name, layout, precision):
    """The same plan with --deterministic: run in one go, or in two, or again."""
    case = session.case(name)
    options = {"deterministic": True, "cluster": driver.cluster(sum(layout)),
               **pins(case, layout, 2)}
    folders = [session.temporary() for _ in range(3)]
    losses = []
    for folder in folders[:2]:
        losses.append(session.train(case, precision, "adamw", checkpoint=folder,
                                    **options).losses)
    first = session.train(case, precision, "adamw", checkpoint=folders[2], steps=9, **options)
    second = session.train(case, precision, "adamw", checkpoint=folders[2], resume=True,
                           **options)
    losses.append(first.losses + second.losses)
    check(losses[0] == losses[1], "two runs differ")
    check(losses[0] == losses[2], "the resumed run differs")
    states = [driver.shards(folder) for folder in folders]
    check(states[0] == states[1] == states[2], "final states differ")
    for folder in folders:
        shutil.rmtree(folder)


def main():
    tap, session = Tap(), driver.Session()
    if not session.mpirun:
        from tap import skip_all
        skip_all("no mpirun")
    draw = random.Random(driver.SEED)
    try:
        session.load(MODELS)
        tap.note(f"{session.source}; drawn with TASUKI_TEST_SEED={driver.SEED}")
        for name in MODELS:
            for optimizer in ("momentum", "adamw"):
                k, plans = draw.randint(1, 18), draw.sample(PLANS, 2)
                schedules = draw.sample(SCHEDULES, 2)
                zero = draw.choice([(False, False), (True, False), (False, True), (True, True)])
                first, second = [f"{driver.replicas_text(layout) or 'one rank'}, {schedule}"
                                 f"{', ZeRO-1' if sharded else ''}"
                                 for layout, schedule, sharded in zip(plans, schedules, zero)]
                tap.test(f"{name}, {optimizer}: stopped after {k} steps as {first}, resumed as "
                         f"{second}, goes on the same", goes_on, session, name, optimizer, k,
                         *plans, schedules, draw.choice([True, False]), zero)
            for layout, precision in (((2, 1), "float32"), ((1, 1, 1), "float64")):
                tap.test(f"{name}, {precision}: {driver.replicas_text(layout)} with "
                         "--deterministic gives the same bits, resumed too",
                         same_bits, session, name, layout, precision)
    finally:
        session.close()
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
