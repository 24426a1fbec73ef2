#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The memory of plans from a cost file is that of the compiled ones, or up to 5 % more, where these
networks are cut as the planner cuts them, and the MLP is cut anywhere. The others are not so
everywhere: etc/bench/memory/run --every-cut.
"""
import os
import subprocess
import sys
import tempfile

import driver
from tap import Tap, check, skip_all

BENCH = os.path.join(driver.HERE, "..", "..", "etc", "bench", "memory", "run")


# Given, since measured costs are others each time.
CUTS = {"mlp": ["every"], "cnn": ["15", "10,16,19"], "encoder": ["8", "4,8,12"],
        "wide": ["2", "1,2,3"], "plain": ["4", "2,3,4"]}


def is_forecast(python, name):
    with tempfile.TemporaryDirectory() as cache:
        alone = dict(os.environ, TASUKI_THREADS="1", TASUKI_CACHE_DIR=cache)
        cuts = [word for cut in CUTS[name]
                for word in (["--every-cut"] if cut == "every" else ["--cut", cut])]
        done = subprocess.run([python, BENCH, *cuts, name], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False, env=alone)
    said = done.stdout.decode()
    check(done.returncode == 0, said)
    return said.splitlines()[-1]


def main():
    python, tap = driver.python_with_torch(), Tap()
    if not python:
        skip_all("no Python with torch")
    for name in CUTS:
        tap.test(f"{name}: memory from a cost file", is_forecast, python, name)
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
