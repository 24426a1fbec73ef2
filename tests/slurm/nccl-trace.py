# SPDX-License-Identifier: MIT
"""Have traces of --trace rows with what NCCL moved, each message and sum once, in the order of its stream,
and when its wire was busy?

nccl-trace.py FILE LATENCY RANKS KIND...: 'LATENCY' seconds are what a message takes at least, and of these
kinds there are some.
"""
import json
import sys
from collections import Counter, defaultdict

STEPS = 3
SLACK = 2000        # us, for the clocks of both


def end(event):
    return event["ts"] + event["dur"]


def rows_of(path):
    """By rank and name of the row, in order; forecasts are processes behind the ranks'."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    rows = defaultdict(list)
    for e in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
        rows[e["pid"], names[e["pid"], e["tid"]]].append(e)
    return rows


def of(events, kind, step):
    return [e for e in events if e["cat"] == kind and e["args"]["step"] == step]


def check_rank(rows, rank, latency, told):
    streams = {name: events for (r, name), events in rows.items()
               if r == rank and name.startswith("NCCL ")}
    host = {name: rows[rank, name] for name in ("reduce", "receive", "send", "instructions")}
    for name, events in streams.items():
        for before, e in zip(events, events[1:]):
            assert e["dur"] >= 0 and e["ts"] >= end(before) - 1, (name, before, e)
        for e in events:
            kinds = {"to": ("SEND",), "from": ("RECV",), "sums": ("REDUCE", "STEP")}
            assert e["cat"] in kinds[name.split()[2]], (name, e)
            assert e["cat"] == "STEP" or e["cat"] == "REDUCE" or e["dur"] >= 0.9e6 * latency, (name, e)
    for step in range(STEPS):
        for kind, row in (("SEND", "send"), ("RECV", "receive"), ("REDUCE", "reduce")):
            handed, ran = of(host[row], kind, step), of(sum(streams.values(), []), kind, step)
            # A send by the host is an instruction, to however many ranks.
            if kind == "SEND":
                assert {e["name"] for e in handed} == {e["name"] for e in ran}, (rank, handed, ran)
            else:
                assert Counter(e["name"] for e in handed) == Counter(e["name"] for e in ran), \
                    (rank, step, handed, ran)
            for e in ran:
                told[kind] += 1
                # What was received was there before the host went on, what is sent was handed over before.
                first = min(h["ts"] for h in handed if h["name"] == e["name"])
                last = max(end(h) for h in handed if h["name"] == e["name"])
                if kind == "RECV":
                    assert end(e) <= last + SLACK, (rank, e, last)
                else:
                    assert e["ts"] >= first - SLACK, (rank, e, first)
        told["STEP"] += len(of(sum(streams.values(), []), "STEP", step))


def check(path, latency, ranks, kinds):
    rows, told = rows_of(path), Counter()
    for rank in range(ranks):
        check_rank(rows, rank, latency, told)
    assert told["SEND"] == told["RECV"] and set(told) >= set(kinds), told
    print(path, dict(told))


check(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
