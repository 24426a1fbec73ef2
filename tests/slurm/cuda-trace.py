# SPDX-License-Identifier: MIT
"""Are the rows of a GPU in traces of --trace what the host handed over, each once, and in order?"""
import json
import sys

STEPS = 3
SLACK = 2000        # us, for the clocks of both


def read(path):
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    events = [dict(e, row=rows[e["pid"], e["tid"]]) for e in events if e["ph"] == "X"]
    return events, [e for e in events if e["row"].startswith("GPU")]


def check_row(events):
    """A stream does one thing at a time."""
    events.sort(key=lambda e: e["ts"])
    for before, e in zip(events, events[1:]):
        assert e["dur"] >= 0 and e["ts"] >= before["ts"] + before["dur"] - 1, (before, e)


def names(events, rank, step, cat):
    """The first time of each name, and how often it is there."""
    found = {}
    for e in events:
        if (e["pid"], e["args"]["step"], e["cat"]) == (rank, step, cat) and "again" not in e["name"]:
            first, n = found.get(e["name"], (e["ts"], 0))
            found[e["name"]] = min(first, e["ts"]), n + 1
    return found


def check(path):
    events, gpu = read(path)
    host = [e for e in events if not e["row"].startswith("GPU")]
    chunks = 2 if "four" in path else 1
    assert any(e["row"].startswith("GPU, compute") for e in gpu), path
    for row in {(e["pid"], e["row"]) for e in gpu}:
        check_row([e for e in gpu if (e["pid"], e["row"]) == row])
    for rank in {e["pid"] for e in events}:
        for step in range(STEPS):
            for cat in ("F", "B", "W", "BW", "SEND", "RECV", "STEP"):
                handed, ran = (names(of, rank, step, cat) for of in (host, gpu))
                assert handed.keys() == ran.keys(), (path, cat, handed, ran)
                for name, (when, n) in handed.items():
                    assert ran[name][0] >= when - SLACK, (path, name, when, ran[name])
                    assert ran[name][1] == n * (chunks if cat == "STEP" else 1), (path, name, ran)
    again = sum("again" in e["name"] for e in gpu)
    assert (again > 0) == ("four" in path), (path, again)


for given in sys.argv[1:]:
    check(given)
