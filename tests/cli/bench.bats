# SPDX-License-Identifier: MIT
# What the benchmarks decide by, fed with times.

@test "plans that run in turn are judged when their interval is narrow, and not before" {
    command -v python3 >/dev/null || skip "no python3"
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$srcdir/etc/bench/planner python3 - <<'END_OF_PYTHON'
import math
import turns
from turns import verdict

def wide(middle, n, half):
    return [middle - half if i % 2 else middle + half for i in range(n)]

# As tables of the sign test have it: of 15 the fourth from either end.
assert turns.interval([1.0] * 5) == (0, math.inf)
assert turns.interval([float(i) for i in range(1, 7)]) == (1, 6)
assert turns.interval([float(i) for i in range(15, 0, -1)]) == (4, 12)
assert verdict(wide(1, 15, 0.04)) == "as fast"
assert verdict(wide(1, 15, 0.06)) == "undecided"
assert verdict(wide(0.8, 15, 0.1)) == "faster"
assert verdict(wide(1.5, 15, 0.4)) == "slower"

def run(other):
    """Ratios after turns in which another plan takes other(turn) as long."""
    done = []

    def turn():
        done.append(None)
        return {"judged": 2.0, "same": 2.0, "other": 2 * other(len(done))}

    return turns.compare("judged", ["same", "other"], turn)

def told(ratios):
    return len(ratios["other"]), turns.complaints(ratios)

assert told(run(lambda turn: 1.01)) == (turns.LEAST, [])
assert told(run(lambda turn: 0.99)) == (turns.LEAST, ["other is faster"])
# Disturbed at first, it is given more turns; where it stays so, that is no pass.
n, none = told(run(lambda turn: 1.5 if turn <= 3 else 0.7 if turn <= 6 else 1))
assert turns.LEAST < n < turns.MOST and not none, n
assert told(run(lambda turn: 0.8 + 0.4 * (turn % 2))) == (
    turns.MOST, ["other is undecided: after 30 turns its interval is wider than 10 %"])
END_OF_PYTHON
}
