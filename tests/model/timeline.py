# SPDX-License-Identifier: MIT
"""Seconds of an iteration, by events: written from simulate.h and tasuki-simulate(1).

What plans have in common is made once: functions of what is equal in them are cached.
"""
import functools
import math

import lists
import tap

IDLE = math.inf     # the end of what does not run


@functools.lru_cache(maxsize=None)
def shares(samples, replicas):
    """The interval of each replica."""
    return [(i * samples // replicas, (i + 1) * samples // replicas) for i in range(replicas)]


@functools.lru_cache(maxsize=None)
def common(samples, senders, receivers):
    """(sender, receiver, samples) where one has samples that the other needs."""
    return [(i, j, min(y, v) - max(x, u)) for i, (x, y) in enumerate(shares(samples, senders))
            for j, (u, v) in enumerate(shares(samples, receivers)) if min(y, v) > max(x, u)]


@functools.lru_cache(maxsize=None)
def stages_of(kind, n, stages, d):
    """Those of list 'd' of 'n'."""
    return [s for s in range(stages) if lists.list_of(kind, n, s) == d]


def instructions(plan, d, returns):
    """Of list 'd', of whose stages 'returns' says which return gradients; their slots; and where
    the last W of each is."""
    kind, n = plan["kind"], plan["stages"] // plan["chunks"]
    if kind in lists.SEVERAL:
        return lists.several(kind, n, plan["chunks"], plan["micro"], d, returns)
    return lists.single(kind, plan["more"], n, plan["micro"], d, returns[0])


class Flow:
    """It has no rate until bytes move."""

    def __init__(self, wires, start, size, done):
        self.wires, self.start, self.left, self.done = wires, start, size, done
        self.rate, self.end = None, start


class Channel:
    """Messages between two replicas in one direction, in order, one at a time; 'most' of them may
    be sent and not there."""

    def __init__(self, route, size, ends, most):
        self.wires, self.latency = route
        self.size, self.peer, self.most = size, ends[1].stage, most
        self.workers = [part.worker for part in ends]
        self.sent, self.posted, self.arrived, self.busy = [], 0, set(), False


class Part:
    """A stage of a worker. Channels: 'posts', those that a receive posts; 'waits', those that a
    computation waits for; 'rows', those that a message is sent on, by stage."""

    def __init__(self, worker, stage, blocks, slots, last, seconds):
        self.worker, self.stage, self.blocks, self.slots = worker, stage, blocks, slots
        self.last, self.seconds, self.pieces = last, seconds, 0
        values, gradients = [], []
        self.posts = {"RF": values, "RB": gradients}
        self.waits = {"F": values, "B": gradients, "BW": gradients, "W": (), "STEP": ()}
        self.rows, self.turn = {"SF": [], "SB": []}, 0


class Worker:
    def __init__(self, device, cost, samples, items):
        self.device, self.cost, self.samples, self.items = device, cost, samples, items
        self.next, self.end, self.parts = 0, IDLE, []
        self.began = self.over = None       # its first computation, its last W


@functools.lru_cache(maxsize=None)
def buckets(blocks):
    """Gradients of a stage, from the last block: of a quarter of them, but at least 16 KiB and at
    most 4 MiB, or of one block; and how many blocks are done when each is."""
    sizes, ends = [], []
    limit = min(max(sum(blocks) / 4, 2 ** 14), 2 ** 22)
    for i, size in enumerate(blocks):
        if size > 0 and sizes and sizes[-1] + size <= limit:
            sizes[-1] += size
            ends[-1] = i + 1
        elif size > 0:
            sizes.append(size)
            ends.append(i + 1)
    return sizes, ends


class Reduction:
    """Of the gradients of a stage, in buckets."""

    def __init__(self, parts, blocks, cluster):
        self.parts, self.done, self.flows = parts, 0, 0
        self.sizes, self.ends = buckets(blocks)
        self.hops = cluster.ring(tuple(sorted([part.worker.device for part in parts])))
        self.rounds = 2 * (len(parts) - 1)
        self.latency = self.rounds * max([latency for _, latency in self.hops])
        self.share = self.rounds / len(parts)
        self.late = 0

    def shard(self):
        """ZeRO-1: half of it is left, and the other half follows the step."""
        if self.rounds > 0 and self.sizes:
            slowest = min(wire.bandwidth for wires, _ in self.hops for wire in wires)
            self.late = (self.latency + sum(self.sizes) * self.share / slowest) / 2
        self.latency /= 2
        self.share /= 2


class Simulation:
    def __init__(self, cost, cluster, plan):
        self.cost, self.cluster, self.plan = cost, cluster, plan
        self.now, self.flows = 0.0, []
        self.changed = False                # do the flows that move, since they got their rates?
        self.workers, self.reductions = [], []
        self.build()
        # Workers that may go on, and reductions that may: none else are looked at.
        self.awake, self.grown = list(self.workers), []

    def build(self):
        cost, plan = self.cost, self.plan
        blocks = cost.blocks_of(plan["stage"])
        links, returning = cost.links(plan["stage"])
        devices = iter(plan["devices"])
        by_stage = [[] for _ in blocks]
        for _ in range(plan["pipelines"]):
            row = self.pipeline(devices, blocks, returning)
            for parts, own in zip(by_stage, row):
                parts += own
            for source, target, back in links:
                self.connect(row[source], row[target], back)
        for parts, own in zip(by_stage, blocks):
            self.reductions.append(Reduction(parts, cost.parameters(own), self.cluster))
            if plan["zero"]:
                self.reductions[-1].shard()

    def pipeline(self, devices, blocks, returning):
        """Its workers on the next devices; their parts by stage."""
        plan, stages = self.plan, self.plan["stages"]
        n = stages // plan["chunks"]
        row = [[] for _ in range(stages)]
        for d in range(n):
            own = stages_of(plan["kind"], n, stages, d)
            items, slots, last = instructions(plan, d, tuple([s in returning for s in own]))
            for start, end in shares(plan["size"], plan["replicas"][d]):
                device = next(devices)
                cost = self.cost.of(self.cluster.kinds[device])
                worker = Worker(device, cost, end - start, items)
                self.workers.append(worker)
                for s, kept, at in zip(own, slots, last):
                    seconds = cost.seconds(blocks[s], plan["again"][s], end - start)
                    part = Part(worker, s, blocks[s], kept, at, seconds)
                    worker.parts.append(part)
                    row[s].append(part)
        return row

    def connect(self, senders, receivers, back):
        for i, j, samples in common(self.plan["size"], len(senders), len(receivers)):
            self.channel(senders[i], receivers[j], senders[i].slots, samples, "F")
            if back:
                self.channel(receivers[j], senders[i], senders[i].slots, samples, "B")

    def channel(self, sender, receiver, slots, samples, way):
        route = self.cluster.route(sender.worker.device, receiver.worker.device)
        size = self.cost.bytes(self.plan["stage"], sender.stage, receiver.stage, samples)
        most = min(2 * abs(sender.stage - receiver.stage), slots)
        channel = Channel(route, size, (sender, receiver), most)
        rows = sender.rows["S" + way]
        if not rows or rows[-1][0].peer != channel.peer:
            rows.append([])
        rows[-1].append(channel)
        receiver.posts["R" + way].append(channel)

    def move(self, wires, latency, size, done):
        flow = Flow(wires, self.now + latency, size, done)
        self.flows.append(flow)
        self.changed |= flow.start <= self.now

    def start(self, channel):
        """The next message moves when both sides have posted it; within a device it is there."""
        done = len(channel.arrived)
        if channel.busy or done >= len(channel.sent) or done >= channel.posted:
            return
        if channel.wires:
            channel.busy = True
            self.move(channel.wires, channel.latency, channel.size,
                      functools.partial(self.arrive, channel))
        else:
            self.arrive(channel)

    def wake(self, workers):
        self.awake += [worker for worker in workers if worker.end == IDLE]

    def arrive(self, channel):
        channel.busy = False
        channel.arrived.add(channel.sent[len(channel.arrived)])
        self.wake(channel.workers)
        self.start(channel)

    def send(self, part, rows, micro):
        """To one stage after the other; False where too many messages are on their way."""
        for row in rows[part.turn:]:
            for channel in row:
                if len(channel.sent) - len(channel.arrived) >= channel.most:
                    return False
            for channel in row:
                channel.sent.append(micro)
                self.start(channel)
            part.turn += 1
        part.turn = 0
        return True

    def reduced(self, worker):
        """May it leave REDUCE?"""
        groups = [self.reductions[part.stage] for part in worker.parts]
        return all(group.done == len(group.sizes) for group in groups)

    def seconds(self, worker, part, word):
        if worker.next < part.last:
            return part.seconds[word]
        if word == "STEP":
            return sum([self.step(worker.cost, part) for part in worker.parts])
        again = self.plan["again"][part.stage]
        return worker.cost.seconds((part.blocks[-1 - part.pieces],), again, worker.samples)[word]

    def step(self, cost, part):
        """Of a share under ZeRO-1, and until all have all shares."""
        group = self.reductions[part.stage]
        seconds = cost.step(part.blocks)
        return seconds / (len(group.parts) if self.plan["zero"] else 1) + group.late

    def advance(self, worker):
        """Run what can be run at once."""
        items, parts = worker.items, worker.parts
        while worker.end == IDLE and worker.next < len(items):
            word, micro, chunk = items[worker.next]
            part = parts[chunk]
            if word in part.waits:
                for channel in part.waits[word]:
                    if micro not in channel.arrived:
                        return
                worker.end = self.now + self.seconds(worker, part, word)
                worker.began = self.now if worker.began is None else worker.began
                return
            if word in part.posts:
                for channel in part.posts[word]:
                    channel.posted += 1
                    self.start(channel)
            elif word in part.rows:
                if not self.send(part, part.rows[word], micro):
                    return
            elif not self.reduced(worker):
                return
            worker.next += 1

    def finish(self, worker):
        word, _, chunk = worker.items[worker.next]
        part = worker.parts[chunk]
        worker.end = IDLE
        if worker.next == part.last:
            part.pieces += 1
            self.grown.append(self.reductions[part.stage])
            if part.pieces < len(part.blocks):
                worker.end = self.now + self.seconds(worker, part, word)
                return
            worker.over = self.now
        worker.next += 1
        self.awake.append(worker)

    def reduce(self, group):
        """A ring over the workers in tree order, of all buckets that are ready."""
        if group.flows or group.done == len(group.sizes):
            return
        blocks = min([part.pieces for part in group.parts])
        ready = sum([end <= blocks for end in group.ends])
        if ready == group.done:
            return
        if group.rounds == 0:
            self.reduce_done(group, ready)
            return
        size = group.share * sum(group.sizes[group.done:ready])
        group.flows = len(group.hops)

        def arrive():
            group.flows -= 1
            if group.flows == 0:
                self.reduce_done(group, ready)

        for wires, _ in group.hops:
            self.move(wires, group.latency, size, arrive)

    def reduce_done(self, group, ready):
        group.done = ready
        self.grown.append(group)
        self.wake([part.worker for part in group.parts])

    def settle(self):
        """All that takes no time. The order does not matter: what can go on still can after
        anything else has."""
        while self.grown:
            self.reduce(self.grown.pop())
        while self.awake:
            self.advance(self.awake.pop())

    def rates(self):
        """Each wire is shared evenly, and the slowest sets the pace."""
        moving = [flow for flow in self.flows if flow.start <= self.now]
        users = {}
        for flow in moving:
            for wire in flow.wires:
                users[wire] = users.get(wire, 0) + 1
        for flow in moving:
            flow.rate = min([wire.bandwidth / users[wire] for wire in flow.wires])
        self.changed = False

    def next_flow(self):
        """When the next starts or ends."""
        if self.changed:
            self.rates()
        for flow in self.flows:
            if flow.rate is not None:
                flow.end = self.now + flow.left / flow.rate
        return min([flow.end for flow in self.flows])

    def carry(self, now):
        """Bytes until then; the flows that are over."""
        over = []
        for flow in self.flows:
            if flow.rate is None:
                if flow.start <= now:
                    self.changed = True
                    if flow.left <= 0:
                        over.append(flow)
            elif flow.end <= now:
                over.append(flow)
            else:
                flow.left = max(0, flow.left - (now - self.now) * flow.rate)
        if over:
            self.flows = [flow for flow in self.flows if flow not in over]
            self.changed = True
        return over

    def run(self):
        workers = self.workers
        while True:
            self.settle()
            now = min([worker.end for worker in workers])
            if self.flows:
                now = min(now, self.next_flow())
            if now == IDLE:
                break
            over = self.carry(now) if self.flows else ()
            self.now = now
            for flow in over:
                flow.done()
            for worker in workers:
                if worker.end <= now:
                    self.finish(worker)
        tap.check(all(w.next == len(w.items) for w in workers), "deadlock")
        return self.now
