# SPDX-License-Identifier: MIT
"""What plans that were run in turn show: how their times compare, and when there were enough."""
import math
import statistics

LEAST = 9
MOST = 30
# An interval that holds 1 says "as fast" only where it is as narrow as this.
WIDE = 0.1


def interval(ratios):
    """The 95 % interval of the median that the sign test gives; (0, inf) of fewer than 6."""
    n, outside, likelihood = len(ratios), 0, 0
    while True:
        likelihood += 2 * math.comb(n, outside) / 2 ** n
        if likelihood > 0.05:
            break
        outside += 1
    if outside == 0:
        return 0, math.inf
    ordered = sorted(ratios)
    return ordered[outside - 1], ordered[n - outside]


def verdict(ratios):
    """Of a plan's times by those of the plan that is judged: "faster" is what must not be."""
    low, high = interval(ratios)
    if high < 1:
        return "faster"
    if low > 1:
        return "slower"
    return "as fast" if high - low <= WIDE else "undecided"


def compare(judged, others, turn):
    """Ratios of each of the others to the one judged. turn(): seconds of all of these by name, once
    more: LEAST times, then until none is undecided, or MOST times.
    """
    ratios = {name: [] for name in others}
    for done in range(1, MOST + 1):
        seconds = turn()
        for name in others:
            ratios[name].append(seconds[name] / seconds[judged])
        if done >= LEAST and all(verdict(own) != "undecided" for own in ratios.values()):
            break
    return ratios


def line(ratios):
    low, high = interval(ratios)
    return f"{statistics.median(ratios):.3f} ({low:.3f} to {high:.3f}) x  {verdict(ratios)}"


def complaints(ratios):
    """What of compare()'s the judged plan fails by: a sentence each."""
    said = {name: verdict(own) for name, own in ratios.items()}
    return ([f"{name} is faster" for name in said if said[name] == "faster"] +
            [f"{name} is undecided: after {len(ratios[name])} turns its interval is wider than "
             f"{100 * WIDE:.0f} %" for name in said if said[name] == "undecided"])
