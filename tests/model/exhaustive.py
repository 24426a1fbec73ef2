# SPDX-License-Identifier: MIT
"""tasuki plan --exhaustive beside an enumeration and a simulation that share nothing with it.

Both are written from tasuki-plan(1), tasuki-simulate(1), tasuki-cost(5) and the headers schedule.h
and simulate.h: lists.py and timeline.py. 100 small problems are drawn; TASUKI_TEST_SEED says which.
--exhaustive is asked for each schedule, with and without ZeRO-1, and for the best of all.
"""
import collections
import functools
import itertools
import json
import math
import os
import random
import subprocess
import tempfile

import lists
import tap
import timeline

PROBLEMS = 100
# Sums of less than 1,000 numbers that are rounded differently differ by 1,000 times 2^-53, and
# those that they are subtracted from are at most as large: 1e-9 leaves room for 10,000 times that.
CLOSE = 1e-9
# What a stage that runs some of it again takes besides in B.
AGAIN = {"none": [], "selective": ["again"], "full": ["forward"]}
# What the bytes of a plan's stages depend on.
SIZED = ("stage", "replicas", "chunks", "kind", "more", "pipelines", "size", "micro", "zero")


class Cost:
    """tasuki-cost(5), as far as it is drawn here: every block has a batch axis. 'kinds' are those
    of devices, each with a Cost, of which the seconds count. Most plans ask what others have asked:
    answers are cached."""

    def __init__(self, top, kinds=None):
        self.kinds = kinds or {}
        self.sizes = top["micro_batch"]
        self.state = top["optimizer_bytes_per_parameter"]
        self.blocks = [dict(block, **selective(block)) for block in top["blocks"]]
        place = {block["name"]: i for i, block in enumerate(self.blocks)}
        self.edges = [dict(e, start=place[e["from"]], end=place[e["to"]]) for e in top["edges"]]

    def of(self, kind):
        return self.kinds.get(kind, self)

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

    @functools.lru_cache(maxsize=None)
    def sum(self, blocks, key, samples):
        return sum(self.at(self.blocks[b][key], samples) for b in blocks if key in self.blocks[b])

    @functools.lru_cache(maxsize=None)
    def seconds(self, blocks, again, samples):
        """Of each computation."""
        keys = {"F": ["forward"], "B": ["dgrad"] + AGAIN[again], "W": ["wgrad"],
                "BW": ["dgrad", "wgrad"] + AGAIN[again]}
        return {word: sum(self.sum(blocks, key, samples) for key in own)
                for word, own in keys.items()}

    @functools.lru_cache(maxsize=None)
    def step(self, blocks):
        return sum(self.blocks[b]["step"] for b in blocks)

    @functools.lru_cache(maxsize=None)
    def parameters(self, blocks):
        """Of each, in the order in which their gradients are there."""
        return tuple(self.blocks[b]["parameters"] for b in reversed(blocks))

    @functools.lru_cache(maxsize=None)
    def blocks_of(self, stage):
        """Of each stage."""
        return [tuple(b for b, s in enumerate(stage) if s == k) for k in range(max(stage) + 1)]

    @functools.lru_cache(maxsize=None)
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

    @functools.lru_cache(maxsize=None)
    def bytes(self, stage, source, target, samples):
        """Of a message: of values to a later stage, of gradients to an earlier one."""
        way = int(source > target)
        pairs = self.values(stage, min(source, target), max(source, target)).values()
        return sum(self.at(pair[way], samples) for pair in pairs)

    @functools.lru_cache(maxsize=None)
    def received(self, stage, target, samples):
        """Bytes of all values that a stage receives."""
        return sum(self.at(pair[0], samples) for source in range(target)
                   for pair in self.values(stage, source, target).values())

    @functools.lru_cache(maxsize=None)
    def links(self, stage):
        """[(from, to, whether gradients come back)], and the stages that return gradients."""
        found = []
        for source, target in itertools.combinations(range(max(stage) + 1), 2):
            values = self.values(stage, source, target).values()
            if values:
                back = any(pair[1][-1] > 0 or pair[0][-1] <= 0 for pair in values)
                found.append((source, target, back))
        return found, {target for _, target, back in found if back}


def selective(block):
    """Seconds that a block runs again, and bytes that it does not keep."""
    for variant in block.get("variants", []):
        return {"again": [a - b for a, b in zip(variant["dgrad"], block["dgrad"])],
                "dropped": [a - b for a, b in zip(block["activations"], variant["activations"])]}
    return {}


class Wire:
    """Of a device or a node, in one direction."""

    def __init__(self, bandwidth):
        self.bandwidth = bandwidth


class Cluster:
    """Devices directly below the root, or in nodes; 'memory' and 'kinds' of each."""

    def __init__(self, nodes, each, inside, across, latency, inside_latency, memory, kinds):
        self.nodes, self.each, self.memory, self.kinds = nodes, each, memory, kinds
        self.inside, self.across = inside, across
        self.latency, self.inside_latency = latency, inside_latency
        self.devices = nodes * each
        self.up, self.down = ([Wire(inside) for _ in range(self.devices)] for _ in range(2))
        self.node_up, self.node_down = ([Wire(across) for _ in range(nodes)] for _ in range(2))

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

    @functools.lru_cache(maxsize=None)
    def route(self, a, b):
        """Wires, and seconds until bytes flow."""
        if a == b:
            return [], 0
        if self.node(a) == self.node(b):
            return [self.up[a], self.down[b]], self.inside_latency
        return [self.up[a], self.node_up[self.node(a)], self.node_down[self.node(b)],
                self.down[b]], self.latency

    @functools.lru_cache(maxsize=None)
    def ring(self, devices):
        return [self.route(a, b) for a, b in zip(devices, devices[1:] + devices[:1])]


def room(cluster, plan):
    """Of each list, the least memory of the devices that run it."""
    replicas, devices = plan["replicas"], plan["devices"]
    first, each, least = 0, sum(replicas), []
    for n in replicas:
        least.append(min([cluster.memory[devices[p + first + i]]
                          for p in range(0, len(devices), each) for i in range(n)]))
        first += n
    return tuple(least)


def waits(plan, s):
    """Is W put off, so that nothing is freed where the forward is run again?"""
    kind = plan["kind"]
    return kind == "zb-v" or lists.late_of(kind, plan["more"], plan["stages"], plan["micro"], s) > 0


def stage_bytes(cost, plan, s, d, slots):
    """By what stage 's', of list 'd', may run again."""
    blocks = cost.blocks_of(plan["stage"])[s]
    share = -(-plan["size"] // plan["replicas"][d])
    copies = plan["pipelines"] * plan["replicas"][d] if plan["zero"] else 1
    fixed = (2 + cost.state / 4 / copies) * sum(cost.parameters(blocks)[::-1])
    fixed += slots * cost.received(plan["stage"], s, share)
    kept, dropped = (cost.sum(blocks, key, share) for key in ("activations", "dropped"))
    if waits(plan, s):
        return {"none": fixed + slots * kept}
    return {"none": fixed + slots * kept, "selective": fixed + slots * (kept - dropped) + dropped,
            "full": fixed + kept}


def all_again(cost, plan, rooms, recompute):
    """What stages run again, nothing where that fits; else, where they may, all that fits."""
    n, chunks = plan["stages"], plan["chunks"]
    sizes = []
    for d in range(n // chunks):
        own = timeline.stages_of(plan["kind"], n // chunks, n, d)
        slots = timeline.instructions(plan, d, (True,) * chunks)[1]
        sizes.append({s: stage_bytes(cost, plan, s, d, k) for s, k in zip(own, slots)})
    if all(sum([size["none"] for size in own.values()]) <= limit
           for own, limit in zip(sizes, rooms)):
        return [{s: "none" for own in sizes for s in own}]
    if not recompute:
        return []
    each = [[dict(zip(own, again)) for again in itertools.product(*own.values())
             if sum([size[k] for size, k in zip(own.values(), again)]) <= limit]
            for own, limit in zip(sizes, rooms)]
    return [dict(itertools.chain(*(own.items() for own in choice)))
            for choice in itertools.product(*each)]


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


def all_cuts(n, stages):
    """Every way to cut the row of blocks."""
    for cuts in itertools.combinations(range(1, n), stages - 1):
        yield tuple(sum(cut <= b for cut in cuts) for b in range(n))


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
    if micro == 1:
        return [("1f1b", 0)]
    if stages == 1:
        return [("1f1b", 0), ("gpipe", 0)]
    return ([("1f1b", 0), ("gpipe", 0), ("zb-h1", 0)] +
            [("zb", more) for more in range(1, min(stages - 1, micro - stages) + 1)])


def all_single(cost, devices, size, micro):
    """One stage for each device."""
    for stages, stage in all_stages(cost, devices):
        for replicas in itertools.product(range(1, min(devices, size) + 1), repeat=stages):
            if sum(replicas) <= devices:
                for kind, more in all_schedules(stages, micro):
                    yield {"stages": stages, "stage": stage, "replicas": replicas, "chunks": 1,
                           "kind": kind, "more": more}


def all_several(cost, devices, size, micro):
    """Several, of blocks in a row."""
    n = len(cost.blocks)
    for count, replicas in itertools.product(range(1, devices + 1), range(1, size + 1)):
        if count * replicas > devices:
            continue
        kinds = [("zb-v", 2)] + [("interleaved", chunks) for chunks in range(2, n // count + 1)
                                 if micro % count == 0]
        for kind, chunks in kinds:
            for stage in all_cuts(n, count * chunks):
                yield {"stages": count * chunks, "stage": stage, "replicas": (replicas,) * count,
                       "chunks": chunks, "kind": kind, "more": 0}


def all_plans(cost, cluster, batch):
    side_by_side = divisors(batch) if cluster.nodes > 1 else [1]
    for pipelines in side_by_side:
        devices = cluster.devices // pipelines
        places = {n: list(all_places(cluster, pipelines * n)) for n in range(1, devices + 1)}
        for size in divisors(batch // pipelines):
            micro = batch // pipelines // size
            for plan in itertools.chain(all_single(cost, devices, size, micro),
                                        all_several(cost, devices, size, micro)):
                for where in places[sum(plan["replicas"])]:
                    yield dict(plan, pipelines=pipelines, size=size, micro=micro, devices=where)


def draw_cost(draw):
    n = draw.randint(3, 5)
    blocks = [{"name": f"b{i}", "forward": times(draw), "dgrad": times(draw),
               "step": draw.uniform(0, 4e-3), "parameters": draw.uniform(0, 1e6),
               "activations": sizes(draw)} for i in range(n)]
    for block in blocks:
        if draw.random() < 0.75:
            block["wgrad"] = times(draw)
        if draw.random() < 0.5:
            block["variants"] = [draw_variant(draw, block)]
    edges = []
    chain = draw.random() < 0.5
    for start, end in itertools.combinations(range(n), 2):
        if end == start + 1 if chain else draw.random() < 0.5:
            edges.append({"from": f"b{start}", "to": f"b{end}", "value": f"h{start}-{end}",
                          "bytes": sizes(draw)})
            if draw.random() < 0.2:
                edges[-1]["gradient_bytes"] = [0, 0]
    return {"schema": "tasuki-cost", "version": 1, "micro_batch": [1, 2], "blocks": blocks,
            "edges": edges, "optimizer_bytes_per_parameter": draw.choice([0, 0, 4, 8])}


def draw_variant(draw, block):
    """Selective recompute."""
    again, kept = draw.uniform(0, 0.5), draw.uniform(0, 0.9)
    return {"recompute": "selective",
            "dgrad": [a + again * b for a, b in zip(block["dgrad"], block["forward"])],
            "activations": [kept * size for size in block["activations"]]}


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
        for variant in block.get("variants", []):
            variant["dgrad"] = [times * seconds for seconds in variant["dgrad"]]
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
                           "--global-batch", str(batch), "--format", "json", *pins],
                          capture_output=True, text=True)
    if done.returncode and ("fit" in done.stderr or "suits" in done.stderr):
        return math.inf
    tap.check(done.returncode == 0, done.stderr)
    return json.loads(done.stdout)["iteration_seconds"]


def names(plan):
    """The schedules that make this plan where they are asked for."""
    if plan["chunks"] > 1:
        return [(plan["kind"], plan["chunks"])]
    if plan["micro"] == 1:
        return [(kind, 1) for kind in lists.SINGLE]
    if plan["stages"] == 1 and plan["kind"] != "gpipe":
        return [(kind, 1) for kind in lists.SINGLE if kind != "gpipe"]
    return [(plan["kind"], 1)] + ([("zb", 1)] if plan["kind"] == "zb-h1" else [])


class Best:
    """The fastest plans by schedule, stages of a device and ZeRO-1, and of all."""

    def __init__(self, cost, cluster, recompute):
        self.cost, self.cluster, self.recompute = cost, cluster, recompute
        self.found, self.count, self.again = {}, 0, {}

    def all_again(self, plan):
        """The same for plans that differ by their places alone, if these have as much memory."""
        rooms = room(self.cluster, plan)
        key = (rooms, *[plan[word] for word in SIZED])
        if key not in self.again:
            self.again[key] = all_again(self.cost, plan, rooms, self.recompute)
        return self.again[key]

    def see(self, plan, shards):
        """'shards': what it stands for, with ZeRO-1 or without."""
        keys = [(*name, zero) for name in names(plan) for zero in shards]
        if plan["chunks"] == 1 or len(plan["replicas"]) > 1:
            keys.append("all")
        for again in self.all_again(plan):
            self.count += 1
            one = dict(plan, again=again)
            seconds = timeline.Simulation(self.cost, self.cluster, one).run()
            for key in keys:
                if seconds < self.seconds(key)[0]:
                    self.found[key] = seconds, one

    def seconds(self, key):
        return self.found.get(key, (math.inf, None))


def pins_of(kind, chunks, zero, state):
    pins = ["--schedule", kind]
    pins += ["--chunks", str(chunks)] if kind == "interleaved" else []
    return pins + (["--zero" if zero else "--no-zero"] if state else [])


def compare(seed, folder):
    """Of one problem; what is fastest here."""
    draw = random.Random(seed)
    top = draw_cost(draw)
    cluster = draw_cluster(draw, top)
    batch = draw.choice([3, 4, 6])
    fast = draw_fast(draw, top)
    recompute = draw.random() < 0.5
    cost = Cost(top, {"fast": Cost(fast)})
    best = Best(cost, cluster, recompute)
    shards = [False, True] if cost.state > 0 else [False]
    for plan in all_plans(cost, cluster, batch):
        # Without copies there is nothing to share out.
        alone = plan["pipelines"] * max(plan["replicas"]) == 1
        for own in [shards] if alone else [[zero] for zero in shards]:
            best.see(dict(plan, zero=own[0]), own)
    problem = write(folder, [top, fast], cluster)
    problem += [] if recompute else ["--recompute", "none"]
    several = [("interleaved", chunks) for chunks in range(2, len(cost.blocks) + 1)]
    for (kind, chunks), zero in itertools.product(
            [(kind, 1) for kind in lists.SINGLE] + several + [("zb-v", 2)], shards):
        pins = pins_of(kind, chunks, zero, cost.state)
        check(seed, batch, pins, ask(problem, batch, *pins), best.seconds((kind, chunks, zero)))
    check(seed, batch, [], ask(problem, batch), best.seconds("all"))
    return best


def check(seed, batch, pins, found, best):
    seconds, plan = best
    tap.check(found == seconds or abs(found - seconds) <= CLOSE * min(found, seconds),
              f"seed {seed}, batch {batch} {pins}: --exhaustive {found!r}, here {seconds!r} by "
              f"{plan}")


def agree():
    first = 1000 * int(os.environ.get("TASUKI_TEST_SEED", "1"))
    compared, won, count = collections.Counter(), collections.Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(PROBLEMS):
            best = compare(first + i, folder)
            count += best.count
            compared.update({key[0] for key in best.found if key != "all"})
            compared["ZeRO-1"] += best.cost.state > 0
            plan = best.seconds("all")[1] or {"kind": "none"}
            won[plan["kind"]] += 1
            won["ZeRO-1"] += plan.get("zero", False)
            won["recompute"] += any(again != "none" for again in plan.get("again", {}).values())
    said = [", ".join(f"{name} in {n}" for name, n in counter.most_common())
            for counter in (compared, won)]
    return f"{PROBLEMS} problems, {count} plans: {said[0]}; fastest: {said[1]}"


def even_run(kind, devices, chunks, micro, dgrad, wgrad):
    """Stages with F of a second on equal devices, and no messages to speak of; and the seconds of
    an iteration."""
    n = devices * chunks
    blocks = [{"name": f"b{i}", "forward": [1], "dgrad": [dgrad], "wgrad": [wgrad], "step": 0,
               "parameters": 0, "activations": [0]} for i in range(n)]
    edges = [{"from": f"b{i}", "to": f"b{i + 1}", "value": f"h{i}", "bytes": [1]}
             for i in range(n - 1)]
    cost = Cost({"micro_batch": [1], "blocks": blocks, "edges": edges,
                 "optimizer_bytes_per_parameter": 0})
    cluster = Cluster(1, devices, 1e300, 1e300, 0, 0, [math.inf] * devices, [""] * devices)
    run = timeline.Simulation(cost, cluster, {
        "pipelines": 1, "stages": n, "stage": tuple(range(n)), "replicas": (1,) * devices,
        "chunks": chunks, "kind": kind, "more": 0, "size": 1, "micro": micro, "zero": False,
        "devices": tuple(range(devices)), "again": dict.fromkeys(range(n), "none")})
    return run, run.run()


def idle_interleaved():
    """(p - 1)(F + B + W) / v, with those of a device, where W delays gradients as B does."""
    for p, v, turns in itertools.product(range(1, 5), range(2, 5), range(1, 4)):
        _, seconds = even_run("interleaved", p, v, turns * p, 2, 0)
        tap.check(abs(seconds - turns * p * 3 * v - (p - 1) * 3) < CLOSE,
                  f"{p} devices, {v} chunks, {turns * p} micro-batches: {seconds} s")


def idle_v():
    """None between the first F and the last W of a device, with 2p slots of half a device."""
    for p, more in itertools.product(range(1, 6), range(4)):
        run, seconds = even_run("zb-v", p, 2, 2 * p + more, 1, 1)
        for worker in run.workers:
            tap.check(abs(worker.over - worker.began - 6 * (2 * p + more)) < CLOSE and
                      sum(part.slots for part in worker.parts) <= 2 * p,
                      f"{p} devices, {2 * p + more} micro-batches, device {worker.device}: from "
                      f"{worker.began} s to {worker.over} s of {seconds} s")


TAP = tap.Tap()
TAP.test("interleaved idles for what its chunks leave of the bubble, in this simulation",
         idle_interleaved)
TAP.test("zb-v does not idle from its first F to its last W, in this simulation", idle_v)
TAP.test("--exhaustive finds the fastest of all plans by another enumeration and simulation", agree)
TAP.done()
