#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What is resident beyond what Tasuki allots: no more than an empty run has, and 5 %.

The networks are chains of Gemm and Relu, written with the standard library alone: of one
narrow layer, which is the empty run, and of some that are so wide that whatever were kept twice,
the file or a copy of a parameter, would show, and whatever sums over replicas take besides.
"""
import json
import struct
import sys

import driver
from tap import Tap, check
from weightless import nested, put_varint

WIDTH, LAYERS = 1536, 6
OVER = 0.05


def number(field, value):
    return put_varint(field << 3) + put_varint(value)


def text(field, value):
    return nested(field, value.encode())


def tensor(name, width, start):
    """Diagonal, so that it costs little to write."""
    row = struct.pack("<f", start) + bytes(4 * width)
    return (number(1, width) + number(1, width) + number(2, 1) + text(8, name) +
            nested(9, (row * width)[:4 * width * width]))


def value(name, width):
    shape = nested(1, text(2, "batch")) + nested(1, number(1, width))
    return text(1, name) + nested(2, nested(1, number(1, 1) + nested(2, shape)))


def network(path, width, layers):
    graph, last = text(2, "chain"), "x"
    for i in range(layers):
        graph += nested(1, text(1, last) + text(1, f"w{i}") + text(2, f"h{i}") +
                        text(3, f"gemm{i}") + text(4, "Gemm"))
        graph += nested(1, text(1, f"h{i}") + text(2, f"y{i}") + text(3, f"relu{i}") +
                        text(4, "Relu"))
        graph += nested(5, tensor(f"w{i}", width, 0.5))
        last = f"y{i}"
    graph += nested(11, value("x", width)) + nested(12, value(last, width))
    with open(path, "wb") as file:
        file.write(number(1, 8) + nested(7, graph) + nested(8, text(1, "") + number(2, 17)))
    return last


def run(session, name, width, layers, ranks, options):
    """(peak, resident) of each rank of a run that need not measure costs."""
    path, log = session.temporary(f".{name}.onnx"), session.temporary(".jsonl")
    cost = session.temporary(".json")
    model = [path, "--data", "synthetic:16", "--loss", f"mse:{network(path, width, layers)},t",
             "--optimizer", "adam", "-q"]
    for words, n in ((["profile", *model, "--batch-size", "4,8", "-o", cost], 0),
                     (["train", *model, "--cost", cost, "--global-batch", 8, "--steps", 2,
                       "--log", log, *options], ranks)):
        result = session.tasuki(words, n)
        check(result.code == 0, result.err)
    with open(log) as file:
        memory = next(line for line in map(json.loads, file) if line.get("event") == "memory")
    return memory["peak"], memory["resident"]


def stays(session, ranks, options):
    empty = max(run(session, "narrow", 8, max(ranks, 1), ranks, options)[1])
    peaks, resident = run(session, "wide", WIDTH, LAYERS, ranks, options)
    for peak, there in zip(peaks, resident):
        check(peak >= 4 * 4 * WIDTH * WIDTH, f"{peak} bytes allotted are too few to tell")
        check(there <= peak * (1 + OVER) + empty,
              f"{there} bytes resident, {peak} allotted, {empty} in an empty run")
    return f"{peaks} allotted, {resident} resident, {empty} in an empty run"


def main():
    tap, session = Tap(), driver.Session()
    # Or what MPI has for messages would be none of an empty run's.
    session.environment["TASUKI_MEASURE"] = "quick"
    try:
        tap.test("one rank has nothing twice", stays, session, 0, ["--stages", "1"])
        tap.test("two stages: each has nothing of the other", stays, session, 2,
                 ["--stages", "2", "--micro-batches", "2"])
        for ranks in (2, 4):
            tap.test(f"{ranks} replicas: sums have what is allotted for them", stays, session,
                     ranks, ["--stages", "1", "--replicas", str(ranks)])
        tap.test("2 replicas with a part of the state each", stays, session, 2,
                 ["--stages", "1", "--replicas", "2", "--zero"])
    finally:
        session.close()
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
