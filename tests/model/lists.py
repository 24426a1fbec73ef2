# SPDX-License-Identifier: MIT
"""Instruction lists of every schedule, written from schedule.h and the papers that it names.

An instruction is (part, micro-batch, chunk). Parts are F, B, W, or BW of a stage that returns no
gradient; SF and SB, what is sent of values and gradients, and RF and RB, receives; REDUCE; STEP.
"""
import functools

SINGLE = ("1f1b", "gpipe", "zb-h1", "zb")
SEVERAL = ("interleaved", "zb-v")


def list_of(kind, lists, s):
    """Which of so many lists has stage 's'."""
    return 2 * lists - 1 - s if kind == "zb-v" and s >= lists else s % lists


def slots_of(kind, more, stages, micro, s):
    """Micro-batches that the one stage of a list keeps: 'more' than zb-h1's."""
    return min(micro, {"gpipe": micro, "1f1b": stages - s}.get(kind, stages + more))


def late_of(kind, more, stages, micro, s):
    """Micro-batches that B is ahead of W there."""
    further = min(more, stages - 1 - s)
    return min(s + more - further, micro - 1) if kind.startswith("zb") else 0


def computations(kind, more, stages, micro, s, returns):
    """The computations of a stage that returns gradients, or does not."""
    if kind == "gpipe":
        order = [("F", m, 0) for m in range(micro)]
        for m in reversed(range(micro)):
            order += [("B", m, 0), ("W", m, 0)] if returns else [("BW", m, 0)]
        return order
    ahead = stages - 1 - s
    further = min(more, ahead)
    late = late_of(kind, more, stages, micro, s) if returns else 0
    order, forward = [], 0
    for m in range(micro):
        while forward < micro and forward <= m + ahead + further:
            order.append(("F", forward, 0))
            forward += 1
        order.append(("B", m, 0) if returns else ("BW", m, 0))
        if returns and m >= late:
            order.append(("W", m - late, 0))
    return order + [("W", m, 0) for m in range(micro - late, micro) if returns]


@functools.lru_cache(maxsize=None)
def single(kind, more, stages, micro, s, returns):
    """(instructions, [slots], [place of the last W]). What is received is asked for one computation
    ahead, but not before the slot is free by the list."""
    order = computations(kind, more, stages, micro, s, returns)
    slots = slots_of(kind, more, stages, micro, s)
    before = [[] for _ in order]
    last = {}
    ahead = stages - 1 - s + min(more, stages - 1 - s)
    for i, (part, m, _) in enumerate(order):
        if part == "F":
            j = last.get("F", i)
            freed = [k for k, (p, w, _) in enumerate(order) if p in ("W", "BW") and w == m - slots]
            before[j if not freed or freed[0] < j else i].append(("RF", m, 0))
        elif part in ("B", "BW"):
            # The first is asked for before the F that it waits for, if there is that one.
            first = last.get("B") is None
            alone = first and (kind == "gpipe" or ahead >= micro)
            before[i if alone else last["any"]].append(("RB", m, 0))
        if part == "F":
            last["F"] = last["any"] = i
        elif part in ("B", "BW"):
            last["B"] = last["any"] = i
    return whole(order, before, [slots])


def with_messages(order, before):
    """What is asked for before each computation, and what is sent behind it."""
    result = []
    for asked, item in zip(before, order):
        result += asked + [item]
        if item[0] in ("F", "B"):
            result.append(("S" + item[0], *item[1:]))
    return result + [("REDUCE", 0, 0), ("STEP", 0, 0)]


def whole(order, before, slots):
    items = with_messages(order, before)
    return items, slots, [max(i for i, (part, _, c) in enumerate(items)
                              if part in ("W", "BW") and c == chunk)
                          for chunk in range(len(slots))]


def interleaved(lists, chunks, micro, d):
    """As many micro-batches as there are lists through a chunk, then through the next, and back in
    the same way; the backward begins when the first gradient can be there."""
    def turns(order):
        return [(m, c) for first in range(0, micro, lists) for c in order
                for m in range(first, first + lists)]

    forwards, backwards = turns(range(chunks)), turns(range(chunks)[::-1])
    ahead = min(2 * (lists - 1 - d) + (chunks - 1) * lists, len(forwards))
    order = [("F", *f) for f in forwards[:ahead]]
    for i, (m, c) in enumerate(backwards):
        order += [("F", *f) for f in forwards[ahead + i:ahead + i + 1]]
        order += [("B", m, c), ("W", m, c)]
    return order


def v_shaped(lists, micro, d):
    """Of 2 lists - 1 micro-batches or more, without those that there are not: forwards until the
    first gradient comes back to chunk 0, a turn of six that needs no more slots, and at the end W
    where the others wait for B."""
    most = max(micro, 2 * lists - 1)
    rest = lists - d
    words = ["F0"] * (2 * rest - 1) + ["F1", "F0"] * d + ["F1", "B1", "W1"] * rest
    words += ["B0", "W0", "F0", "F1", "B1", "W1"] * (most - lists)
    words += ["B0", "B1"] * d + ["B0", "W0"] * rest
    words += ["W1"] * (most - words.count("W1")) + ["W0"] * (most - words.count("W0"))
    order, seen = [], {}
    for word in words:
        m = seen[word] = seen.get(word, -1) + 1
        if m < micro:
            order.append((word[0], m, int(word[1])))
    return order


@functools.lru_cache(maxsize=None)
def several(kind, lists, chunks, micro, d, returns):
    """The same of a list of several stages, 'returns' for each."""
    order = (interleaved(lists, chunks, micro, d) if kind == "interleaved"
             else v_shaped(lists, micro, d))
    order = [("BW" if part == "B" and not returns[c] else part, m, c) for part, m, c in order
             if part != "W" or returns[c]]
    slots, live, freed = [0] * chunks, [0] * chunks, {}
    for i, (part, m, c) in enumerate(order):
        live[c] += (part == "F") - (part in ("W", "BW"))
        slots[c] = max(slots[c], live[c])
        if part in ("W", "BW"):
            freed[m, c] = i
    before = [[] for _ in order]
    last = 0
    for i, (part, m, c) in enumerate(order):
        if part == "W":
            continue
        late = part == "F" and freed.get((m - slots[c], c), -1) >= last
        before[i if late else last].append(("RF" if part == "F" else "RB", m, c))
        last = i
    return whole(order, before, slots)
