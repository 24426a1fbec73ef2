# SPDX-License-Identifier: MIT
"""tasuki plan --exhaustive beside an enumeration and a simulation that share nothing with it.

Both are written from tasuki-plan(1), tasuki-simulate(1), tasuki-cost(5) and the headers schedule.h
and simulate.h. 100 small problems are drawn; TASUKI_TEST_SEED says which. Here are the schedules
that give a device one stage: --exhaustive is asked for each of these, and for all is no slower.
"""
import itertools
import json
import math
import os
import random
import subprocess
import tempfile

import tap

PROBLEMS = 100
# Sums of less than 1,000 numbers that are rounded differently differ by 1,000 times 2^-53, and
# those that they are subtracted from are at most as large: 1e-9 leaves room for 10,000 times that.
CLOSE = 1e-9
SINGLE = ("1f1b", "gpipe", "zb-h1", "zb")


class Cost:
    """tasuki-cost(5), as far as it is drawn here: every block has a batch axis. 'kinds' are those
    of devices, each with a Cost, of which the seconds count."""

    def __init__(self, top, kinds=None):
        self.kinds = kinds or {}
        self.sizes = top["micro_batch"]
        self.blocks = top["blocks"]
        place = {block["name"]: i for i, block in enumerate(self.blocks)}
        self.edges = [dict(e, start=place[e["from"]], end=place[e["to"]]) for e in top["edges"]]

    def at(self, array, samples):
        """Linear between the listed sizes, proportional outside."""
        sizes = self.sizes
        if samples <= sizes[0]:
            return array[0] * samples / sizes[0]
        for i in range(1, len(sizes)):
            if samples <= sizes[i]:
                part = (samples - sizes[i - 1]) / (sizes[i] - sizes[i - 1])
                return array[i - 1] + part * (array[i] - array[i - 1])
        return array[-1] * samples / sizes[-1]

    def sum(self, blocks, key, samples):
        return sum(self.at(self.blocks[b][key], samples) for b in blocks if key in self.blocks[b])

    def values(self, stage, source, target):
        """Values that one stage sends to another: {(block, value): [bytes, gradient bytes]}, the
        most that goes back to it."""
        found = {}
        for e in self.edges:
            if stage[e["start"]] == source and stage[e["end"]] == target:
                pair = found.setdefault((e["start"], e["value"]), [e["bytes"], [0, 0]])
                back = e.get("gradient_bytes", e["bytes"])
                pair[1] = max(pair[1], back, key=lambda array: array[-1])
        return found


class Cluster:
    """Devices directly below the root, or in nodes; 'memory' and 'kinds' of each. A wire is (place,
    direction)."""

    def __init__(self, nodes, each, inside, across, latency, inside_latency, memory, kinds):
        self.nodes, self.each, self.memory, self.kinds = nodes, each, memory, kinds
        self.inside, self.across = inside, across
        self.latency, self.inside_latency = latency, inside_latency

    @property
    def devices(self):
        return self.nodes * self.each

    def tree(self):
        """tasuki-topo(5)."""
        devices = [{"kind": "device", "id": str(d), "bandwidth": self.inside, "memory": memory,
                    "device": self.kinds[d]} for d, memory in enumerate(self.memory)]
        root = {"latency": self.latency, "children": [
            {"kind": "node", "name": f"n{n}", "bandwidth": self.across,
             "latency": self.inside_latency,
             "children": devices[n * self.each:(n + 1) * self.each]} for n in range(self.nodes)]}
        if self.nodes == 1:
            root = {"latency": self.inside_latency, "children": devices}
        return {"schema": "tasuki-topo", "version": 1, "name": "drawn", "root": root}

    def node(self, device):
        return device // self.each

    def route(self, a, b):
        """Wires, and seconds until bytes flow."""
        if self.node(a) == self.node(b):
            return [("device", a, "up"), ("device", b, "down")], self.inside_latency
        return [("device", a, "up"), ("node", self.node(a), "up"), ("node", self.node(b), "down"),
                ("device", b, "down")], self.latency

    def bandwidth(self, wire):
        return self.inside if wire[0] == "device" else self.across


def shares(samples, replicas):
    """The interval of each replica."""
    return [(i * samples // replicas, (i + 1) * samples // replicas) for i in range(replicas)]


def slots_of(kind, more, stages, micro, s):
    """Micro-batches that a stage keeps: 'more' than zb-h1's."""
    return min(micro, {"gpipe": micro, "1f1b": stages - s}.get(kind, stages + more))


def computations(kind, more, stages, micro, s, returns):
    """[(part, micro-batch)] of a stage that returns gradients, or does not."""
    if kind == "gpipe":
        order = [("F", m) for m in range(micro)]
        for m in reversed(range(micro)):
            order += [("B", m), ("W", m)] if returns else [("BW", m)]
        return order
    ahead = stages - 1 - s
    further = min(more, ahead)
    late = min(s + more - further, micro - 1) if kind.startswith("zb") and returns else 0
    order, forward = [], 0
    for m in range(micro):
        while forward < micro and forward <= m + ahead + further:
            order.append(("F", forward))
            forward += 1
        order.append(("B", m) if returns else ("BW", m))
        if returns and m >= late:
            order.append(("W", m - late))
    return order + [("W", m) for m in range(micro - late, micro) if returns]


def instructions(kind, more, stages, micro, s, returns):
    """With "SF" and "SB", what is sent of values and gradients, and "RF" and "RB", receives: one
    computation ahead, but not before the slot is free by the list."""
    order = computations(kind, more, stages, micro, s, returns)
    slots = slots_of(kind, more, stages, micro, s)
    before = [[] for _ in order]
    last = {}
    ahead = stages - 1 - s + min(more, stages - 1 - s)
    for i, (part, m) in enumerate(order):
        if part == "F":
            j = last.get("F", i)
            freed = [k for k, (p, w) in enumerate(order) if p in ("W", "BW") and w == m - slots]
            before[j if not freed or freed[0] < j else i].append(("RF", m))
        elif part in ("B", "BW"):
            # The first is asked for before the F that it waits for, if there is that one.
            first = last.get("B") is None
            alone = first and (kind == "gpipe" or ahead >= micro)
            before[i if alone else last["any"]].append(("RB", m))
        if part == "F":
            last["F"] = last["any"] = i
        elif part in ("B", "BW"):
            last["B"] = last["any"] = i
    result = []
    for i, item in enumerate(order):
        result += before[i] + [item]
        if item[0] in ("F", "B"):
            result.append(("S" + item[0], item[1]))
    return result + [("REDUCE", 0), ("STEP", 0)], slots


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


class Worker:
    def __init__(self, stage, device, items, slots, samples):
        self.stage, self.device, self.items, self.slots = stage, device, items, slots
        self.samples = samples
        self.next, self.end, self.pieces = 0, None, 0
        self.channels = {"RF": [], "RB": [], "SF": [], "SB": []}
        self.last = max(i for i, item in enumerate(items) if item[0] in ("W", "BW"))


class Reduction:
    """Gradients of a stage in buckets, from the last block: of a quarter of them, but at least
    16 KiB and at most 4 MiB, or of one block. 'ends': how many blocks are done when each is."""

    def __init__(self, workers, blocks):
        self.workers, self.done, self.flows = workers, 0, 0
        self.sizes, self.ends = [], []
        limit = min(max(sum(blocks) / 4, 2 ** 14), 2 ** 22)
        for i, size in enumerate(blocks):
            if size > 0 and self.sizes and self.sizes[-1] + size <= limit:
                self.sizes[-1] += size
                self.ends[-1] = i + 1
            elif size > 0:
                self.sizes.append(size)
                self.ends.append(i + 1)


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
        n, b = plan["stages"], plan["size"]
        edges = {}
        for source, target in itertools.combinations(range(n), 2):
            values = cost.values(plan["stage"], source, target)
            if values:
                back = any(v[1][-1] > 0 or v[0][-1] <= 0 for v in values.values())
                edges[source, target] = values, back
        by_stage = [[] for _ in range(n)]
        devices = iter(plan["devices"])
        for _ in range(plan["pipelines"]):
            row = []
            for s in range(n):
                returns = any(t == s and back for (_, t), (_, back) in edges.items())
                row.append([])
                for start, end in shares(b, plan["replicas"][s]):
                    items, slots = instructions(plan["kind"], plan["more"], n, plan["micro"], s,
                                                returns)
                    row[s].append(Worker(s, next(devices), items, slots, end - start))
                by_stage[s] += row[s]
            for (source, target), (values, back) in edges.items():
                self.connect(row[source], row[target], values, back)
        for s in range(n):
            self.workers += by_stage[s]
            sizes = [cost.blocks[k]["parameters"] for k in reversed(self.blocks[s])]
            self.reductions.append(Reduction(by_stage[s], sizes))

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
        """The next message moves when both sides have posted it."""
        done = len(channel.arrived)
        if channel.busy or done >= len(channel.sent) or done >= channel.posted:
            return
        channel.busy = True

        def arrive():
            channel.busy = False
            channel.arrived.add(channel.sent[done])
            self.start(channel)

        self.flows.append(Flow(channel.wires, self.now + channel.latency, channel.size, arrive))

    def send(self, worker, part, micro):
        """To one stage after the other; False where too many messages are on their way."""
        left = [c for c in worker.channels[part] if micro not in c.sent]
        while left:
            row = [c for c in left if c.peer == left[0].peer]
            if any(len(c.sent) - len(c.arrived) >= c.most for c in row):
                return False
            for channel in row:
                channel.sent.append(micro)
                self.start(channel)
            left = left[len(row):]
        return True

    def may_run(self, worker, part, micro):
        if part in ("SF", "SB"):
            return self.send(worker, part, micro)
        if part == "F":
            return all(micro in c.arrived for c in worker.channels["RF"])
        if part in ("B", "BW"):
            return all(micro in c.arrived for c in worker.channels["RB"])
        if part == "REDUCE":
            group = self.reductions[worker.stage]
            return group.done == len(group.sizes)
        return True

    def seconds(self, worker, part):
        blocks = self.blocks[worker.stage]
        cost = self.cost.kinds.get(self.cluster.kinds[worker.device], self.cost)
        if part == "STEP":
            return sum(cost.blocks[b]["step"] for b in blocks)
        if worker.next == worker.last:
            blocks = [blocks[-1 - worker.pieces]]
        keys = {"F": ["forward"], "B": ["dgrad"], "W": ["wgrad"], "BW": ["dgrad", "wgrad"]}
        return sum(cost.sum(blocks, key, worker.samples) for key in keys[part])

    def advance(self, worker):
        """Run what can be run at once; True where anything has changed."""
        moved = False
        while worker.end is None and worker.next < len(worker.items):
            part, micro = worker.items[worker.next]
            if not self.may_run(worker, part, micro):
                return moved
            moved = True
            if part in ("RF", "RB"):
                for channel in worker.channels[part]:
                    channel.posted += 1
                    self.start(channel)
            if part in ("SF", "SB", "RF", "RB", "REDUCE"):
                worker.next += 1
            else:
                worker.end = self.now + self.seconds(worker, part)
        return moved

    def finish(self, worker):
        part, _ = worker.items[worker.next]
        worker.end = None
        if worker.next == worker.last:
            worker.pieces += 1
            if worker.pieces < len(self.blocks[worker.stage]):
                worker.end = self.now + self.seconds(worker, part)
                return
        worker.next += 1

    def reduce(self, group):
        """A ring over the workers in tree order, of all buckets that are ready."""
        blocks = min(worker.pieces for worker in group.workers)
        ready = sum(end <= blocks for end in group.ends)
        if group.flows or ready == group.done:
            return False
        size, n = sum(group.sizes[group.done:ready]), len(group.workers)
        if n < 2:
            group.done = ready
            return True
        ring = sorted(worker.device for worker in group.workers)
        routes = [self.cluster.route(a, ring[(i + 1) % n]) for i, a in enumerate(ring)]
        start = self.now + 2 * (n - 1) * max(latency for _, latency in routes)
        group.flows = n

        def arrive():
            group.flows -= 1
            if group.flows == 0:
                group.done = ready

        self.flows += [Flow(wires, start, 2 * (n - 1) / n * size, arrive) for wires, _ in routes]
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


def room(cluster, plan, s):
    """The least memory of a stage's devices."""
    first, each = sum(plan["replicas"][:s]), sum(plan["replicas"])
    return min(cluster.memory[plan["devices"][p * each + first + i]]
               for p in range(plan["pipelines"]) for i in range(plan["replicas"][s]))


def fits(cost, cluster, plan):
    n = plan["stages"]
    for s in range(n):
        blocks = [b for b, k in enumerate(plan["stage"]) if k == s]
        share = -(-plan["size"] // plan["replicas"][s])
        parameters = sum(cost.blocks[b]["parameters"] for b in blocks)
        kept = cost.sum(blocks, "activations", share)
        for source in range(s):
            kept += sum(cost.at(pair[0], share)
                        for pair in cost.values(plan["stage"], source, s).values())
        slots = slots_of(plan["kind"], plan["more"], n, plan["micro"], s)
        if 2 * parameters + slots * kept > room(cluster, plan, s):
            return False
    return True


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


def all_stages(cost, most):
    """Every way to give blocks to stages so that none reads from a later one."""
    n = len(cost.blocks)
    for stages in range(1, min(most, n) + 1):
        for stage in itertools.product(range(stages), repeat=n):
            if len(set(stage)) == stages and all(stage[e["start"]] <= stage[e["end"]]
                                                 for e in cost.edges):
                yield stages, stage


def all_places(cluster, n):
    """Devices of n replicas, one way of those that differ by names alone."""
    seen = set()
    for devices in itertools.permutations(range(cluster.devices), n):
        names = {}
        key = tuple((names.setdefault(cluster.node(d), len(names)), cluster.memory[d],
                     cluster.kinds[d]) for d in devices)
        if key not in seen:
            seen.add(key)
            yield devices


def all_schedules(stages, micro):
    if stages == 1 or micro == 1:
        return [("1f1b", 0)]
    return ([("1f1b", 0), ("gpipe", 0), ("zb-h1", 0)] +
            [("zb", more) for more in range(1, min(stages - 1, micro - stages) + 1)])


def all_plans(cost, cluster, batch):
    side_by_side = divisors(batch) if cluster.nodes > 1 else [1]
    for pipelines in side_by_side:
        devices = cluster.devices // pipelines
        if devices == 0:
            continue
        places = {n: list(all_places(cluster, pipelines * n)) for n in range(1, devices + 1)}
        for stages, stage in all_stages(cost, devices):
            for replicas in itertools.product(range(1, devices + 1), repeat=stages):
                if sum(replicas) > devices:
                    continue
                for size in divisors(batch // pipelines):
                    if max(replicas) > size:
                        continue
                    micro = batch // pipelines // size
                    for kind, more in all_schedules(stages, micro):
                        for where in places[sum(replicas)]:
                            yield {"pipelines": pipelines, "stages": stages, "stage": stage,
                                   "replicas": replicas, "size": size, "micro": micro,
                                   "kind": kind, "more": more, "devices": where}


def draw_cost(draw):
    n = draw.randint(3, 5)
    blocks = [{"name": f"b{i}", "forward": times(draw), "dgrad": times(draw),
               "step": draw.uniform(0, 1e-3), "parameters": draw.uniform(0, 1e6),
               "activations": sizes(draw)} for i in range(n)]
    for block in blocks:
        if draw.random() < 0.75:
            block["wgrad"] = times(draw)
    edges = []
    chain = draw.random() < 0.5
    for start, end in itertools.combinations(range(n), 2):
        if end == start + 1 if chain else draw.random() < 0.5:
            edges.append({"from": f"b{start}", "to": f"b{end}", "value": f"h{start}-{end}",
                          "bytes": sizes(draw)})
            if draw.random() < 0.2:
                edges[-1]["gradient_bytes"] = [0, 0]
    return {"schema": "tasuki-cost", "version": 1, "micro_batch": [1, 2], "blocks": blocks,
            "edges": edges}


def times(draw):
    """Two samples take less than twice one."""
    one = draw.uniform(1e-3, 1e-2)
    return [one, one * draw.uniform(1.2, 2)]


def sizes(draw):
    one = draw.uniform(1e3, 1e6)
    return [one, 2 * one]


def draw_cluster(draw, top):
    nodes, each = draw.choice([(1, 2), (1, 3), (1, 4), (2, 2), (3, 1)])
    inside = 10 ** draw.uniform(7.5, 10)
    across = inside / 10 ** draw.uniform(0, 1.5)
    need = sum(2 * b["parameters"] + b["activations"][0] for b in top["blocks"])
    memory = need * draw.uniform(0.5, 1.2) if draw.random() < 0.5 else 1e30
    uneven = draw.random() < 0.25
    memory = [memory * (draw.choice([1, 2]) if uneven else 1) for _ in range(nodes * each)]
    latency = draw.uniform(0, 1e-3)
    inside_latency = latency if nodes == 1 else draw.uniform(0, latency)
    several = draw.random() < 0.4
    kinds = [draw.choice(["", "fast"]) if several else "" for _ in memory]
    return Cluster(nodes, each, inside, across, latency, inside_latency, memory, kinds)


def draw_fast(draw, top):
    """The same network on devices that take less for most blocks."""
    fast = json.loads(json.dumps(top))
    fast["device"] = "fast"
    for block in fast["blocks"]:
        times = draw.uniform(0.3, 1.2)
        for key in ("forward", "dgrad", "wgrad"):
            if key in block:
                block[key] = [times * seconds for seconds in block[key]]
        block["step"] *= times
    return fast


def write(folder, tops, cluster):
    """The options that name the problem's files."""
    options = []
    for i, top in enumerate(tops):
        options += ["--cost", os.path.join(folder, f"cost{i}.json")]
        with open(options[-1], "w", encoding="utf-8") as file:
            json.dump(top, file)
    tree = os.path.join(folder, "cluster.json")
    with open(tree, "w", encoding="utf-8") as file:
        json.dump(cluster.tree(), file)
    return options + ["--cluster", tree]


def ask(problem, batch, *pins):
    """The seconds of --exhaustive; infinite where nothing fits."""
    done = subprocess.run([os.environ["TASUKI"], "plan", "--exhaustive", *problem,
                           "--global-batch", str(batch), "--recompute", "none", "--format",
                           "json", *pins],
                          capture_output=True, text=True)
    if done.returncode and "fit" in done.stderr:
        return math.inf
    tap.check(done.returncode == 0, done.stderr)
    return json.loads(done.stdout)["iteration_seconds"]


def compare(seed, folder):
    draw = random.Random(seed)
    top = draw_cost(draw)
    cluster = draw_cluster(draw, top)
    batch = draw.choice([3, 4, 6])
    fast = draw_fast(draw, top)
    cost = Cost(top, {"fast": Cost(fast)})
    best, which, count = math.inf, None, 0
    for plan in all_plans(cost, cluster, batch):
        count += 1
        if fits(cost, cluster, plan):
            seconds = Simulation(cost, cluster, plan).run()
            if seconds < best:
                best, which = seconds, plan
    problem = write(folder, [top, fast], cluster)
    found = min(ask(problem, batch, "--schedule", kind) for kind in SINGLE)
    tap.check(found == best or abs(found - best) <= CLOSE * best,
              f"seed {seed}, {json.dumps(cluster.tree())}, batch {batch}: --exhaustive "
              f"{found!r}, here {best!r} by {which}")
    every = ask(problem, batch)
    tap.check(every <= found * (1 + CLOSE),
              f"seed {seed}, batch {batch}: {every!r} of all schedules, {found!r} of some")
    return count


def agree():
    first = 1000 * int(os.environ.get("TASUKI_TEST_SEED", "1"))
    with tempfile.TemporaryDirectory() as folder:
        counts = [compare(first + i, folder) for i in range(PROBLEMS)]
    return f"{PROBLEMS} problems, {sum(counts)} plans"


TAP = tap.Tap()
TAP.test("--exhaustive finds the fastest of all plans by another enumeration and simulation", agree)
TAP.done()
