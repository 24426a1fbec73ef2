# SPDX-License-Identifier: MIT
"""Seconds of an iteration, by events: written from simulate.h and tasuki-simulate(1)."""
import itertools

import lists
import tap

def shares(samples, replicas):
    """The interval of each replica."""
    return [(i * samples // replicas, (i + 1) * samples // replicas) for i in range(replicas)]


def instructions(plan, d, returns):
    """Of list 'd', of whose stages 'returns' says which return gradients; and their slots."""
    kind, n = plan["kind"], plan["stages"] // plan["chunks"]
    if kind in lists.SEVERAL:
        return lists.several(kind, n, plan["chunks"], plan["micro"], d, tuple(returns))
    return lists.single(kind, plan["more"], n, plan["micro"], d, returns[0])


class Flow:
    def __init__(self, wires, start, size, done):
        self.wires, self.start, self.left, self.done = wires, start, size, done


class Channel:
    """Messages between two replicas in one direction, in order, one at a time; 'most' of them may
    be sent and not there."""

    def __init__(self, route, size, peer, most):
        self.wires, self.latency = route
        self.size, self.peer, self.most = size, peer, most
        self.sent, self.posted, self.arrived, self.busy = [], 0, set(), False


class Part:
    """A stage of a worker."""

    def __init__(self, stage, device, slots, samples, last):
        self.stage, self.device, self.slots, self.samples = stage, device, slots, samples
        self.last, self.pieces = last, 0
        self.channels = {"RF": [], "RB": [], "SF": [], "SB": []}


class Worker:
    def __init__(self, stages, device, items, slots, samples):
        self.device, self.items, self.next, self.end = device, items, 0, None
        self.began = self.over = None       # its first computation, its last W
        self.parts = [Part(s, device, slots[c], samples,
                           max(i for i, (part, _, chunk) in enumerate(items)
                               if part in ("W", "BW") and chunk == c))
                      for c, s in enumerate(stages)]

    @property
    def part(self):
        return self.parts[self.items[self.next][2]]


class Reduction:
    """Gradients of a stage in buckets, from the last block: of a quarter of them, but at least
    16 KiB and at most 4 MiB, or of one block. 'ends': how many blocks are done when each is."""

    def __init__(self, parts, blocks, cluster):
        self.parts, self.done, self.flows = parts, 0, 0
        self.sizes, self.ends = [], []
        limit = min(max(sum(blocks) / 4, 2 ** 14), 2 ** 22)
        for i, size in enumerate(blocks):
            if size > 0 and self.sizes and self.sizes[-1] + size <= limit:
                self.sizes[-1] += size
                self.ends[-1] = i + 1
            elif size > 0:
                self.sizes.append(size)
                self.ends.append(i + 1)
        ring = sorted(part.device for part in parts)
        self.hops = [cluster.route(a, b) for a, b in zip(ring, ring[1:] + ring[:1])]
        self.rounds = 2 * (len(ring) - 1)
        self.latency = self.rounds * max(latency for _, latency in self.hops)
        self.share = self.rounds / len(ring)
        self.late = 0

    def shard(self, cluster):
        """ZeRO-1: half of it is left, and the other half follows the step."""
        if self.rounds > 0 and self.sizes:
            slowest = min(cluster.bandwidth(wire) for wires, _ in self.hops for wire in wires)
            self.late = (self.latency + sum(self.sizes) * self.share / slowest) / 2
        self.latency /= 2
        self.share /= 2


class Simulation:
    def __init__(self, cost, cluster, plan):
        self.cost, self.cluster, self.plan = cost, cluster, plan
        self.now, self.flows = 0.0, []
        self.blocks = [[b for b, s in enumerate(plan["stage"]) if s == k]
                       for k in range(plan["stages"])]
        self.workers, self.reductions = [], []
        self.build()

    def build(self):
        cost, plan = self.cost, self.plan
        edges = {}
        for source, target in itertools.combinations(range(plan["stages"]), 2):
            values = cost.values(plan["stage"], source, target)
            if values:
                back = any(v[1][-1] > 0 or v[0][-1] <= 0 for v in values.values())
                edges[source, target] = values, back
        devices = iter(plan["devices"])
        by_stage = [[] for _ in self.blocks]
        for _ in range(plan["pipelines"]):
            row = self.pipeline(devices, {t for (_, t), (_, back) in edges.items() if back})
            for parts, own in zip(by_stage, row):
                parts += own
            for (source, target), (values, back) in edges.items():
                self.connect(row[source], row[target], values, back)
        for parts, blocks in zip(by_stage, self.blocks):
            sizes = [cost.blocks[k]["parameters"] for k in reversed(blocks)]
            self.reductions.append(Reduction(parts, sizes, self.cluster))
            if plan["zero"]:
                self.reductions[-1].shard(self.cluster)

    def pipeline(self, devices, returning):
        """Its workers on the next devices; their parts by stage."""
        plan, n = self.plan, self.plan["stages"]
        row = [[] for _ in range(n)]
        for d in range(n // plan["chunks"]):
            own = [s for s in range(n) if lists.list_of(plan["kind"], n // plan["chunks"], s) == d]
            items, slots = instructions(plan, d, [s in returning for s in own])
            for start, end in shares(plan["size"], plan["replicas"][d]):
                worker = Worker(own, next(devices), items, slots, end - start)
                self.workers.append(worker)
                for part in worker.parts:
                    row[part.stage].append(part)
        return row

    def connect(self, senders, receivers, values, back):
        b = self.plan["size"]
        for (x, y), sender in zip(shares(b, len(senders)), senders):
            for (u, v), receiver in zip(shares(b, len(receivers)), receivers):
                common = min(y, v) - max(x, u)
                if common <= 0:
                    continue
                for way in range(1 + back):
                    ends = (sender, receiver) if way == 0 else (receiver, sender)
                    route = self.cluster.route(ends[0].device, ends[1].device)
                    size = sum(self.cost.at(pair[way], common) for pair in values.values())
                    apart = abs(ends[0].stage - ends[1].stage)
                    channel = Channel(route, size, ends[1].stage, min(2 * apart, sender.slots))
                    ends[0].channels["SB" if way else "SF"].append(channel)
                    ends[1].channels["RB" if way else "RF"].append(channel)

    def start(self, channel):
        """The next message moves when both sides have posted it; within a device it is there."""
        done = len(channel.arrived)
        if channel.busy or done >= len(channel.sent) or done >= channel.posted:
            return
        channel.busy = True

        def arrive():
            channel.busy = False
            channel.arrived.add(channel.sent[done])
            self.start(channel)

        if channel.wires:
            self.flows.append(Flow(channel.wires, self.now + channel.latency, channel.size, arrive))
        else:
            arrive()

    def send(self, part, way, micro):
        """To one stage after the other; False where too many messages are on their way."""
        left = [c for c in part.channels[way] if micro not in c.sent]
        while left:
            row = [c for c in left if c.peer == left[0].peer]
            if any(len(c.sent) - len(c.arrived) >= c.most for c in row):
                return False
            for channel in row:
                channel.sent.append(micro)
                self.start(channel)
            left = left[len(row):]
        return True

    def may_run(self, worker, word, micro):
        if word in ("SF", "SB"):
            return self.send(worker.part, word, micro)
        if word == "F":
            return all(micro in c.arrived for c in worker.part.channels["RF"])
        if word in ("B", "BW"):
            return all(micro in c.arrived for c in worker.part.channels["RB"])
        if word == "REDUCE":
            groups = [self.reductions[part.stage] for part in worker.parts]
            return all(group.done == len(group.sizes) for group in groups)
        return True

    def seconds(self, worker, word):
        cost = self.cost.of(self.cluster.kinds[worker.device])
        if word == "STEP":
            return sum(self.step(cost, part) for part in worker.parts)
        part = worker.part
        blocks = self.blocks[part.stage]
        if worker.next == part.last:
            blocks = [blocks[-1 - part.pieces]]
        keys = {"F": ["forward"], "B": ["dgrad"], "W": ["wgrad"], "BW": ["dgrad", "wgrad"]}[word]
        if word in ("B", "BW"):
            keys = keys + {"none": [], "selective": ["again"],
                           "full": ["forward"]}[self.plan["again"][part.stage]]
        return sum(cost.sum(blocks, key, part.samples) for key in keys)

    def step(self, cost, part):
        """Of a share under ZeRO-1, and until all have all shares."""
        group = self.reductions[part.stage]
        seconds = sum(cost.blocks[b]["step"] for b in self.blocks[part.stage])
        return seconds / (len(group.parts) if self.plan["zero"] else 1) + group.late

    def advance(self, worker):
        """Run what can be run at once; True where anything has changed."""
        moved = False
        while worker.end is None and worker.next < len(worker.items):
            word, micro, _ = worker.items[worker.next]
            if not self.may_run(worker, word, micro):
                return moved
            moved = True
            if word in ("RF", "RB"):
                for channel in worker.part.channels[word]:
                    channel.posted += 1
                    self.start(channel)
            if word in ("SF", "SB", "RF", "RB", "REDUCE"):
                worker.next += 1
            else:
                worker.end = self.now + self.seconds(worker, word)
                worker.began = self.now if worker.began is None else worker.began
        return moved

    def finish(self, worker):
        word, part = worker.items[worker.next][0], worker.part
        worker.end = None
        if worker.next == part.last:
            part.pieces += 1
            if part.pieces < len(self.blocks[part.stage]):
                worker.end = self.now + self.seconds(worker, word)
                return
            worker.over = self.now
        worker.next += 1

    def reduce(self, group):
        """A ring over the workers in tree order, of all buckets that are ready."""
        if group.flows or group.done == len(group.sizes):
            return False
        blocks = min(part.pieces for part in group.parts)
        ready = sum(end <= blocks for end in group.ends)
        if ready == group.done:
            return False
        size = sum(group.sizes[group.done:ready])
        if group.rounds == 0:
            group.done = ready
            return True
        group.flows = len(group.hops)

        def arrive():
            group.flows -= 1
            if group.flows == 0:
                group.done = ready

        self.flows += [Flow(wires, self.now + group.latency, group.share * size, arrive)
                       for wires, _ in group.hops]
        return True

    def settle(self):
        moved = True
        while moved:
            moved = any([self.advance(worker) for worker in self.workers])
            moved |= any([self.reduce(group) for group in self.reductions])

    def rates(self):
        """Each wire is shared evenly, and the slowest sets the pace."""
        moving = [flow for flow in self.flows if flow.start <= self.now]
        users = {}
        for flow in moving:
            for wire in flow.wires:
                users[wire] = users.get(wire, 0) + 1
        return {id(flow): min(self.cluster.bandwidth(wire) / users[wire] for wire in flow.wires)
                for flow in moving}

    def run(self):
        while True:
            self.settle()
            rates = self.rates()
            ends = {id(flow): self.now + flow.left / rates[id(flow)] if id(flow) in rates
                    else flow.start for flow in self.flows}
            times = list(ends.values()) + [w.end for w in self.workers if w.end is not None]
            if not times:
                break
            now = min(times)
            over = [flow for flow in self.flows if id(flow) in rates and ends[id(flow)] <= now]
            over += [flow for flow in self.flows
                     if id(flow) not in rates and flow.start <= now and flow.left <= 0]
            for flow in self.flows:
                if id(flow) in rates:
                    flow.left = max(0, flow.left - (now - self.now) * rates[id(flow)])
            self.now = now
            self.flows = [flow for flow in self.flows if flow not in over]
            for flow in over:
                flow.done()
            for worker in self.workers:
                if worker.end is not None and worker.end <= now:
                    self.finish(worker)
        tap.check(all(w.next == len(w.items) for w in self.workers), "deadlock")
        return self.now
