#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The networks that people train (networks.py, zoo.py), beside PyTorch: gradients, curves, what
is fused and that it is the same unfused, and cut so that what they carry far crosses two
boundaries.

A few of them; all where TASUKI_TEST_LONG is set, then as torchvision and transformers define
them where the Python has these.
"""
import json
import random
import shutil
import subprocess
import sys

import compare
import driver
import tensors
from tap import Failed, Skip, Tap, check, skip_all

FEW = ["gpt2", "bert", "t5", "mobilenet-v3"]
ALL = ["resnet18", "resnet50", "wide-resnet", "vgg", "densenet", "mobilenet-v3", "efficientnet",
       "googlenet", "amoebanet-b", "amoebanet-d", "unet", "gpt2", "bert", "bertac", "t5", "vit",
       "mixture", "llama", "tagger"]
THEIRS = {"torchvision": ["resnet18", "resnet50", "wide-resnet", "vgg", "densenet",
                          "mobilenet-v3", "efficientnet", "googlenet", "vit"],
          "transformers": ["gpt2", "bert", "llama", "t5", "vit"]}
# TorchScript's exporter has no nn.RMSNorm and no torch.diff, of which transformers makes masks.
IMPORTED = ["llama", "transformers-llama", "transformers-gpt2"]
# torch.export loses itself in the strides of the attention of transformers' T5 ("Cannot view a
# tensor with shape ..."), before anything of ours runs.
NOT_IMPORTED = ["transformers-t5"]
# torch.export's optimizations leave no BatchNorm, and fold T5's table of distances into what it
# looks up in it, which is then trained in its place: pitfalls.py.
DYNAMO = ["gpt2", "bert", "bertac", "vit", "mixture", "llama", "vgg", "transformers-gpt2",
          "transformers-bert", "transformers-llama", "torchvision-vit"]
OPTIMIZER = "momentum"
MOST = 4            # stages
ROUNDING = 1e-4     # of gradients in float32; export.py draws networks in which it is small
BRIEF = 3           # steps of a run whose cuts are chosen for what crosses them


def pins(case):
    return {"batchnorm_samples": case.batchnorm[-1]} if case.batchnorm else {}


def whole(case):
    """Norms over the batch, as PyTorch's are."""
    return {"batchnorm_samples": case.batchnorm[0]} if case.batchnorm else {}


def pinned(case):
    """The same as words."""
    return [word for name, value in pins(case).items()
            for word in ("--" + name.replace("_", "-"), value)]


def optimizer(case):
    return OPTIMIZER if any(run["optimizer"] == OPTIMIZER for run in case.runs) \
        else case.runs[0]["optimizer"]


def reference(case, precision):
    groups = whole(case) if precision == "float32" else pins(case)
    found = case.reference(precision, optimizer(case), group=groups.get("batchnorm_samples", 0))
    if not found:
        raise Skip(f"torch.export's files have no {precision} reference")
    return found


def fuses(session, case):
    """Each pattern as often as the network has it."""
    seen = session.tasuki(["inspect", case.path("model.onnx"), "--data",
                           case.path("train.safetensors"), "--loss", case.loss, "--fusions",
                           "--format", "json"])
    check(seen.code == 0, seen.err)
    found = {f["fusion"]: f["count"] for f in json.loads(seen.out)["fusions"]}
    check(not case.fusions or found == case.fusions, f"{found}, expected {case.fusions}")
    return ", ".join(f"{n} {name}" for name, n in sorted(found.items()))


def nothing(exact):
    """Parameters without gradient but rounding, such as a bias that a later BatchNorm takes
    away."""
    top = max(map(compare.largest, exact.values()))
    return [name for name in exact if compare.largest(exact[name]) <= 1e-12 * top]


def same_gradients(case, dump, precision, tolerance):
    wanted = tensors.read(case.path(reference(case, precision)["gradients"]))
    got, exact = tensors.read(dump), tensors.read(case.path(reference(case, "float64")
                                                            ["gradients"]))
    for alias, owner in case.ties.items():
        wanted.pop(alias if alias not in got else owner, None)
    return compare.same_tensors(got, wanted, tolerance, floor=1e-3, skip=nothing(exact))


def run(session, case, precision, no_fuse=False):
    """Ten steps in float64, one in float32, and the gradients of the first; run once each."""
    if (case.directory, precision, no_fuse) not in RUNS:
        dump = session.temporary(".safetensors")
        options = {"steps": 1, "backend": "cpu", **whole(case)} if precision == "float32" \
            else pins(case)
        result = session.train(case, precision, optimizer(case), micro_batches=1,
                               dump_gradients=dump, no_fuse=no_fuse, **options)
        RUNS[case.directory, precision, no_fuse] = result.losses, dump
    return RUNS[case.directory, precision, no_fuse]


RUNS = {}


def spelled(case):
    """Is there a reference of its own for a file whose GELU is not fused?"""
    return case.reference("float64-spelled", optimizer(case)) is not None


def follows(session, case, no_fuse=False):
    """Gradients of the first step and the curve, in float64. The reference has the numbers of
    the file but for those inside PyTorch's own functions, which are float32 in the file: 1e-7.
    The root of two in a GELU is worth up to 1e-6; so without fusion the reference computes with
    the one that the file has."""
    precision = "float64-spelled" if no_fuse and spelled(case) else "float64"
    losses, dump = run(session, case, "float64", no_fuse)
    said = compare.same_curve(losses, reference(case, precision)["loss"], 1e-7)
    if case.exporter == "dynamo":           # weights under made-up names, transposed
        return said
    return f"{said}, gradients {same_gradients(case, dump, precision, 1e-7)}"


def float32(session, case):
    return same_gradients(case, run(session, case, "float32")[1], "float32", ROUNDING)


def same_unfused(session, case):
    """Fused and unfused from the same weights, directly. In float64 both have the numbers of
    the file, and only the order of sums differs: 1e-10; but a GELU that is fused has exact
    ones. Then either is within 1e-7 of its own reference, and those are a known distance apart.
    In float32 either rounds as PyTorch does."""
    (curve, dump), (plain_curve, plain) = (run(session, case, "float64", no_fuse)
                                           for no_fuse in (False, True))
    gelu = any("gelu" in name for name in case.fusions)
    apart = compare.distance(
        *(tensors.read(case.path(reference(case, name)["gradients"]))
          for name in ("float64", "float64-spelled")), floor=1e-3) if spelled(case) else 0.0
    tolerance = 2e-7 + apart if gelu else 1e-10
    drift = compare.curve_error(reference(case, "float64-spelled")["loss"],
                                reference(case, "float64")["loss"]) if spelled(case) else 0.0
    said = [compare.same_curve(curve, plain_curve, 2e-7 + drift if gelu else 1e-10)]
    for precision, allowed in (("float64", tolerance), ("float32", 2 * ROUNDING)):
        one, other = (tensors.read(run(session, case, precision, no_fuse)[1])
                      for no_fuse in (False, True))
        exact = tensors.read(plain)
        said.append(compare.same_tensors(one, other, allowed, floor=1e-3, skip=nothing(exact)))
    return f"curve {said[0]}, gradients {said[1]} in float64, {said[2]} in float32"


# In stages --------------------------------------------------------------------------------

class Cuts:
    """Where blocks stand, and what goes from which to which: "span" of first and last block by
    name, and of what kind each is."""

    def __init__(self, session, case):
        path = session.temporary(".json")
        made = session.tasuki(["profile", case.path("model.onnx"), "--data",
                               case.path("train.safetensors"), "--loss", case.loss,
                               "--precision", "float64", "--batch-size",
                               case.global_batch // 2, "-o", path, "-q", *freeze(case),
                               *pinned(case)])
        check(made.code == 0, made.err)
        with open(path) as file:
            cost = json.load(file)
        self.names = [block["name"] for block in cost["blocks"]]
        at = {name: i for i, name in enumerate(self.names)}
        self.span, self.kind = {}, {}
        for edge in cost["edges"]:
            self.extend(edge["value"], at[edge["from"]], at[edge["to"]],
                        "skip" if any(edge.get("gradient_bytes", edge["bytes"])) else "table")
        for value in cost["inputs"]:
            for name in value["to"]:
                self.extend(value["name"], at[name], at[name], "input")
        for tie in cost.get("shared", []):
            for name in tie["blocks"]:
                self.extend(tie["name"], at[name], at[name], "tie")

    def extend(self, name, first, last, kind):
        known = self.span.get(name, (first, last))
        self.span[name] = (min(known[0], first), max(known[1], last))
        self.kind[name] = kind

    def far(self):
        """What has a block between its ends, and so can cross two boundaries."""
        return {name: span for name, span in self.span.items() if span[1] - span[0] >= 2}


def freeze(case):
    return [word for pattern in case.freeze for word in ("--freeze", pattern)]


def flat(stages):
    return f"flat:{stages},bandwidth=1e9"


def planned(session, case, stages):
    """The planner's own cuts."""
    path = session.temporary(".json")
    made = session.tasuki(
        ["plan", case.path("model.onnx"), "--data", case.path("train.safetensors"), "--loss",
         case.loss, "--cluster", flat(stages), "--precision", "float64", "--global-batch",
         case.global_batch, "--optimizer", optimizer(case), "-q", "--stages", stages,
         "--replicas", driver.replicas_text([1] * stages), "--micro-batches", 2, "-o", path,
         *freeze(case), *pinned(case)])
    check(made.code == 0, made.err)
    return path


def move_cuts(path, names, cuts):
    """Let the plan have the blocks before, between and behind these cuts, in the order of the
    profile, whatever order the planner cut them in."""
    with open(path) as file:
        plan = json.load(file)
    found = {block if isinstance(block, str) else block["name"]: block
             for stage in plan["stages"] for block in stage["blocks"]}
    check(sorted(found) == sorted(names), "the plan has other blocks than the profile")
    blocks = [found[name] for name in names]
    edges = [0, *cuts, len(blocks)]
    for stage, first, last in zip(plan["stages"], edges, edges[1:]):
        stage["blocks"] = blocks[first:last]
    with open(path, "w") as file:
        json.dump(plan, file)


def crossings(plan, span):
    """Boundaries between the ends of a span of blocks, as the run had its stages."""
    sizes = [len(stage["blocks"]) for stage in plan["stages"]]
    stage_of = [n for n, size in enumerate(sizes) for _ in range(size)]
    return stage_of[span[1]] - stage_of[span[0]]


def in_stages(session, case, path, stages, steps):
    """Run the plan; its curve beside one rank's, and the plan that was run."""
    result = session.train(case, "float64", optimizer(case), ranks=stages, plan=path,
                           keep_plan=True, cluster=flat(stages), steps=steps, **pins(case))
    said = compare.same_curve(result.losses, run(session, case, "float64")[0][:steps], 1e-10)
    return said, result.event("start")["plan"]


def is_cut(session, case, stages):
    path = planned(session, case, stages)
    said, plan = in_stages(session, case, path, stages, case.steps)
    sizes = [len(stage["blocks"]) for stage in plan["stages"]]
    check(len(sizes) == stages, f"{len(sizes)} stages")
    return f"{said}, blocks {'+'.join(map(str, sizes))}"


def cover(draw, far, blocks):
    """Cuts for what still has to cross two boundaries: two of them inside something drawn among
    the shortest, a third that takes most of the others with it."""
    name = draw.choice(sorted(far, key=lambda name: (far[name][1] - far[name][0], name))[:3])
    first, last = far[name]
    cuts = {draw.randint(first + 1, last - 1), last}

    def crossed(cuts):
        return sum(sum(a < cut <= b for cut in cuts) >= 2 for a, b in far.values())
    while len(cuts) < min(MOST, blocks) - 1:
        cuts.add(max((cut for cut in range(1, blocks) if cut not in cuts),
                     key=lambda cut: crossed(cuts | {cut})))
    return sorted(cuts)


def crosses(session, case, draw):
    """Cut into four so that all that goes far (in a short run something drawn, and whatever
    does with it) crosses two boundaries at least: the curve of one rank."""
    cuts = Cuts(session, case)
    far = cuts.far()
    kinds = {cuts.kind[name] for name in far}
    check(kinds >= set(case.carries), f"only {', '.join(sorted(kinds)) or 'nothing'} goes far, "
          f"expected {', '.join(case.carries)}")
    if not far:
        raise Skip("nothing in it goes far")
    left, compared, runs = dict(far), [], 0
    while left and (driver.LONG or not runs):
        where = cover(draw, left, len(cuts.names))
        path = planned(session, case, len(where) + 1)
        move_cuts(path, cuts.names, where)
        said, plan = in_stages(session, case, path, len(where) + 1, BRIEF)
        compared.append(float(said))
        crossed = [name for name in left if crossings(plan, left[name]) >= 2]
        check(crossed, f"cut at {where}, nothing crosses two boundaries")
        for name in crossed:
            del left[name]
        runs += 1
    said = [f"{sum(cuts.kind[name] == kind for name in far if name not in left)} {kind}"
            for kind in sorted(kinds)]
    return f"{max(compared):.2g}; {', '.join(said)} in {runs} plans"


# All of it --------------------------------------------------------------------------------

def check_network(tap, session, name, case, draw):
    tap.test(f"{name}: what there is to fuse is fused", fuses, session, case)
    tap.test(f"{name}: float64 gradients and curve are PyTorch's", follows, session, case)
    tap.test(f"{name}: so they are without fusion", follows, session, case, no_fuse=True)
    tap.test(f"{name}: float32 gradients are PyTorch's (cpu)", float32, session, case)
    tap.test(f"{name}: fused is unfused, in float64 and float32", same_unfused, session, case)
    if not session.mpirun:
        return
    for stages in range(2, MOST + 1) if driver.LONG else ():
        tap.test(f"{name}: cut into {stages} by the planner, the curve of one rank", is_cut,
                 session, case, stages)
    tap.test(f"{name}: in stages that it crosses, the curve of one rank", crosses, session,
             case, draw)


def has(package):
    return subprocess.run([driver.python_with_torch(), "-c", f"import {package}"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          check=False).returncode == 0


def long_list(tap):
    """Their definitions in place of ours, where they can be had."""
    names = list(ALL)
    for package, theirs in THEIRS.items():
        if has(package):
            names = [name for name in names if name not in theirs]
            names += [f"{package}-{name}" for name in theirs]
        else:
            tap.note(f"no {package}: own definitions of {', '.join(theirs)} (pip install "
                     f"{package}, or name another Python by TASUKI_PYTHON)")
    return names


def not_exported(name, exporter):
    raise Failed(f"export.py fails with --exporter {exporter} --seed {driver.SEED} {name}")


def each(tap, session, names, exporter):
    """(name, case), one at a time: some have 100 MB of weights in 10 files."""
    for name in names:
        how = exporter(name)
        try:
            case = session.load([name], how)[name]
        except subprocess.CalledProcessError:
            tap.test(f"{name}: exported", not_exported, name, how)
            continue
        yield name, case
        shutil.rmtree(case.directory, ignore_errors=True)
        RUNS.clear()


def check_long(tap, session, draw):
    names = long_list(tap)
    for name, case in each(tap, session, names, lambda name: "import" if name in IMPORTED
                           else "torchscript"):
        check_network(tap, session, name, case, draw)
    theirs = [f"{package}-{name}" for package in THEIRS for name in THEIRS[package]]
    for name, case in each(tap, session, [name for name in theirs if name in names and
                                          name not in IMPORTED + NOT_IMPORTED],
                           lambda name: "import"):
        tap.test(f"{name}: imported, gradients and curve are PyTorch's", follows, session, case)
    for name, case in each(tap, session, [name for name in DYNAMO if name in names],
                           lambda name: "dynamo"):
        tap.test(f"{name}: torch.export's file gives PyTorch's curve", follows, session, case)


def main():
    tap, session, draw = Tap(), driver.Session(), random.Random(driver.SEED)
    if not driver.python_with_torch():
        skip_all("no Python with torch")
    try:
        tap.note(f"drawn with TASUKI_TEST_SEED={driver.SEED}")
        if driver.LONG:
            check_long(tap, session, draw)
        else:
            for name, case in session.load(FEW).items():
                check_network(tap, session, name, case, draw)
    finally:
        session.close()
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
