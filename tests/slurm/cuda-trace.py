# SPDX-License-Identifier: MIT
"""Are the rows of a GPU in traces of --trace what the host handed over, each once, and in order? And has
the forecast of a step the same rows and instructions?
"""
import json
import sys
from collections import Counter

STEPS = 3
SLACK = 2000        # us, for the clocks of both


def read(path):
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    ranks = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    events = [dict(e, row=rows[e["pid"], e["tid"]]) for e in events if e["ph"] == "X"]
    forecast = [e for e in events if e["cat"] == "forecast"]
    events = [e for e in events if e["cat"] != "forecast"]
    check_forecast(events, forecast, rows, ranks)
    return events, [e for e in events if e["row"].startswith("GPU")]


def check_forecast(events, forecast, rows, ranks):
    """Processes of their own, at the start of the second step."""
    n = len(ranks) // 2
    begins = min(e["ts"] for e in events if e["args"]["step"] == 1 and e["cat"] != "RECV")
    assert abs(min(e["ts"] for e in forecast) - begins) < 1, begins
    for rank in range(n):
        assert ranks[n + rank] == f"forecast, rank {rank}", ranks
        assert rows[n + rank, 4] == rows[rank, 4] == "GPU, compute", rows
        for e in (e for e in forecast if e["pid"] == n + rank):
            row = {"RECV": "GPU, in", "SEND": "GPU, out", "REDUCE": "reduce"}
            assert e["row"] == rows[rank, e["tid"]], e
            assert e["row"].startswith(row.get(e["name"].split()[0], "GPU, compute")), e
        ran, told = (Counter(e["name"] for e in of if e["cat"] not in ("STEP", "REDUCE")
                             and e["name"] not in ("STEP", "REDUCE"))
                     for of in ([e for e in events if e["pid"] == rank and e["tid"] < 4
                                 and e["args"]["step"] == 1],
                                [e for e in forecast if e["pid"] == n + rank]))
        assert ran == told and told, (rank, ran, told)


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
