#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The memory of plans from a cost file is that of the compiled ones, or up to 5 % more: where the
planner cuts networks, and for some of them anywhere. Some of them, all where TASUKI_TEST_LONG is set.
"""
import os
import random
import subprocess
import sys
import tempfile

import driver
from tap import Tap, check, skip_all

BENCH = os.path.join(driver.HERE, "..", "..", "etc", "bench", "memory", "run")


NETWORKS = ("mlp", "cnn", "encoder", "encoder-pre", "wide")
CUT_ANYWHERE = ("plain", "lstm", "unet")


def is_forecast(python, name):
    options = ["--every-cut"] if name in CUT_ANYWHERE else []
    with tempfile.TemporaryDirectory() as cache:
        alone = dict(os.environ, TASUKI_THREADS="1", TASUKI_CACHE_DIR=cache)
        done = subprocess.run([python, BENCH, *options, name], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False, env=alone)
    said = done.stdout.decode()
    check(done.returncode == 0, said)
    return said.splitlines()[-1]


def main():
    python, tap = driver.python_with_torch(), Tap()
    if not python:
        skip_all("no Python with torch")
    draw = random.Random(driver.SEED)
    tap.note(f"drawn with TASUKI_TEST_SEED={driver.SEED}")
    for name in driver.some(draw, NETWORKS, 2) + driver.some(draw, CUT_ANYWHERE, 1):
        tap.test(f"{name}: memory from a cost file", is_forecast, python, name)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
