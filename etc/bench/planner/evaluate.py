# SPDX-License-Identifier: MIT
"""Seconds of an iteration of a plan, by an evaluator that shares nothing with the planner.

It reads the plan, a cost file, a machine of etc/machines, and the order in which each rank
computes, and replays that: a message takes latency + bytes / bandwidth and waits for the one before
it; the gradients of a stage are reduced by a ring from the start of its last backward on, and no
sooner done than that backward; the update comes last. Nodes share their uplink evenly.
"""
import bisect
import collections
import json


class Costs:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.file = json.load(file)
        self.sizes = self.file["micro_batch"]
        self.blocks = {block["name"]: block for block in self.file["blocks"]}

    def at(self, figures, samples, scales=True):
        """Linear between the listed sizes, proportional outside."""
        if not isinstance(figures, list):
            figures = [figures]
        sizes = self.sizes[:len(figures)]
        if not scales:
            return figures[0]
        if samples <= sizes[0] or len(sizes) == 1:
            return figures[0] * samples / sizes[0]
        if samples >= sizes[-1]:
            return figures[-1] * samples / sizes[-1]
        i = bisect.bisect_left(sizes, samples)
        part = (samples - sizes[i - 1]) / (sizes[i] - sizes[i - 1])
        return figures[i - 1] + part * (figures[i] - figures[i - 1])

    def of(self, names, key, samples):
        return sum(self.at(self.blocks[name].get(key, 0), samples,
                           self.blocks[name].get("batch_axis", True)) for name in names)

    def dgrad(self, names, recompute, samples):
        """With what is run again for it."""
        if recompute == "full":
            return self.of(names, "dgrad", samples) + self.of(names, "forward", samples)
        seconds = 0
        for name in names:
            block = self.blocks[name]
            ways = [block] + [way for way in block.get("variants", [])
                              if way.get("recompute") == recompute != "none" and "dgrad" in way]
            seconds += self.at(ways[-1].get("dgrad", 0), samples, block.get("batch_axis", True))
        return seconds


class Machine:
    """Figures of links inside a node and between nodes, and of the wire that nodes share."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            place = json.load(file)["root"]
        self.latency_across = place["latency"]
        while "children" in place:
            place = place["children"][0]
            if place["kind"] == "node":
                self.node, self.across = place["bandwidth"], place["flow_bandwidth"]
                self.latency_across = max(self.latency_across, place["latency"])
            elif place["kind"] == "island":
                self.latency_inside = place["latency"]
        self.inside = place.get("flow_bandwidth", place["bandwidth"])

    def send(self, sender, receiver, count, size):
        """One of 'count' messages that leave a node at once."""
        if sender.split("/")[0] == receiver.split("/")[0]:
            return self.latency_inside + size / self.inside
        return self.latency_across + size / min(self.across, self.node / count)

    def reduce(self, devices, rings, size):
        """A ring, beside others that leave the same nodes."""
        n, nodes = len(devices), {device.split("/")[0] for device in devices}
        if n < 2:
            return 0
        latency, wire = ((self.latency_inside, self.inside) if len(nodes) == 1 else
                         (self.latency_across, min(self.across, self.node / rings, self.inside)))
        return 2 * (n - 1) * (latency + size / n / wire)


Stage = collections.namedtuple("Stage", "names replicas devices forward dgrad wgrad step bytes")


def stages_of(plan, costs):
    stages = []
    for stage in plan["stages"]:
        names = [b if isinstance(b, str) else b["name"] for b in stage["blocks"]]
        share = max(stage["samples"])
        stages.append(Stage(
            names, stage["replicas"], stage["devices"], costs.of(names, "forward", share),
            costs.dgrad(names, stage["recompute"], share), costs.of(names, "wgrad", share),
            sum(costs.blocks[name].get("step", 0) for name in names),
            sum(costs.blocks[name].get("parameters", 0) for name in names)))
    return stages


def messages_of(plan, costs, stages, machine):
    """{(from, to): (seconds of values, seconds of gradients)}, the values each once."""
    where = {name: s for s, stage in enumerate(stages) for name in stage.names}
    values, gradients = collections.defaultdict(dict), collections.defaultdict(dict)
    for edge in costs.file["edges"]:
        a, b = where[edge["from"]], where[edge["to"]]
        if a == b:
            continue
        share = plan["micro_batch"] / min(stages[a].replicas, stages[b].replicas)
        key = edge["from"], edge.get("value", "")
        values[a, b][key] = costs.at(edge["bytes"], share)
        gradients[a, b][key] = max(gradients[a, b].get(key, 0),
                                   costs.at(edge.get("gradient_bytes", edge["bytes"]), share))
    result = {}
    for a, b in values:
        count = max(stages[a].replicas, stages[b].replicas)
        ends = stages[a].devices[0][-1], stages[b].devices[0][0], count
        result[a, b] = tuple(machine.send(*ends, sum(table[a, b].values()))
                             for table in (values, gradients))
    return result


def order_of(listing):
    """What each rank computes, in order: (its stages, [(kind, micro-batch, chunk)])."""
    ranks = []
    for line in listing.splitlines():
        words = line.split()
        if words and words[0] == "stage":
            if not ranks or ranks[-1][1]:
                ranks.append(([], []))
            ranks[-1][0].append(int(words[1]))
        elif words and words[0] in ("F", "B", "W", "BW"):
            ranks[-1][1].append((words[0], int(words[1]), int(words[2])))
    return ranks


class Replay:
    def __init__(self, stages, messages, ranks):
        self.stages, self.messages = stages, messages
        self.chunks, self.ranks = zip(*ranks)
        self.before, self.behind = collections.defaultdict(list), collections.defaultdict(list)
        for a, b in messages:
            self.before[b].append(a)
            self.behind[a].append(b)
        self.done, self.free = {}, collections.defaultdict(float)
        self.last = {}

    def arrival(self, ready, a, b, back, micro):
        """When a message is there; None while it has not been sent."""
        sent = self.done.get((ready, b if back else a, micro))
        if sent is None:
            return None
        key = ("message", a, b, back, micro)
        if key not in self.done:
            wire = a, b, back
            self.done[key] = max(sent, self.free[wire]) + self.messages[a, b][back]
            self.free[wire] = self.done[key]
        return self.done[key]

    def ready(self, kind, s, micro):
        if kind == "F":
            times = [self.arrival("F", a, s, 0, micro) for a in self.before[s]]
        elif kind in ("B", "BW"):
            times = [self.arrival("B", s, b, 1, micro) for b in self.behind[s]
                     if self.messages[s, b][1] > 0]
            times.append(self.done.get(("F", s, micro)))
        else:
            times = [self.done.get(("B", s, micro))]
        return None if None in times else max(times, default=0)

    def seconds(self, kind, s):
        stage = self.stages[s]
        return {"F": stage.forward, "B": stage.dgrad, "W": stage.wgrad,
                "BW": stage.dgrad + stage.wgrad}[kind]

    def run(self):
        """When each rank has computed all of its own."""
        at, clock = [0] * len(self.ranks), [0.0] * len(self.ranks)
        moved = True
        while moved:
            moved = False
            for r, todo in enumerate(self.ranks):
                while at[r] < len(todo):
                    kind, micro, chunk = todo[at[r]]
                    s = self.chunks[r][chunk]
                    ready = self.ready(kind, s, micro)
                    if ready is None:
                        break
                    begin = max(ready, clock[r])
                    clock[r] = begin + self.seconds(kind, s)
                    self.done["B" if kind == "BW" else kind, s, micro] = clock[r]
                    if kind in ("W", "BW"):
                        self.last[s] = begin
                    at[r] += 1
                    moved = True
        if any(n < len(todo) for n, todo in zip(at, self.ranks)):
            raise ValueError("the lists do not end")
        return clock


def evaluate(plan, costs, machine, listing):
    """(seconds, {what of them: seconds})."""
    stages = stages_of(plan, costs)
    messages = messages_of(plan, costs, stages, machine)
    replay = Replay(stages, messages, order_of(listing))
    clock, end, reducing = replay.run(), 0, 0
    for rank, chunks in enumerate(replay.chunks):
        for s in chunks:
            devices = [device for pipeline in stages[s].devices for device in pipeline]
            rings = sum(devices[0].split("/")[0] in {d.split("/")[0] for p in t.devices for d in p}
                        for t in stages)
            reduce = machine.reduce(devices, rings, stages[s].bytes)
            finish = max(clock[rank], replay.last[s] + reduce) + stages[s].step
            reducing = max(reducing, finish - clock[rank])
            end = max(end, finish)
    count = plan["micro_batches"]
    rank_work = [sum(stages[s].forward + stages[s].dgrad + stages[s].wgrad for s in chunks)
                 for chunks in replay.chunks]
    slowest = count * max(rank_work)
    return end, {"slowest stage": slowest, "bubble and messages": max(clock) - slowest,
                 "all-reduce and update": end - max(clock)}
