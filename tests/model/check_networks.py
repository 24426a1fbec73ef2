#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The networks that people train (networks.py), beside PyTorch: gradients, curves, what is
fused, and cut so that what they carry far crosses two boundaries.

A few of them; all where TASUKI_TEST_LONG is set.
"""
import json
import os
import random
import sys

import compare
import driver
import tensors
from tap import Skip, Tap, check

FEW = ["gpt2", "bert", "t5", "mobilenet-v3"]
ALL = ["resnet18", "resnet50", "wide-resnet", "vgg", "densenet", "mobilenet-v3", "efficientnet",
       "googlenet", "amoebanet-b", "amoebanet-d", "unet", "gpt2", "bert", "bertac", "t5", "vit",
       "mixture", "llama", "tagger"]
# TorchScript's exporter has no nn.RMSNorm; torch.export's optimizations leave no BatchNorm, and
# fold T5's table of distances into what it looks up in it, which is then trained in its place.
DYNAMO = ["gpt2", "bert", "bertac", "vit", "mixture", "llama", "vgg"]
OPTIMIZER = "momentum"
STAGES = 3


def pins(case):
    return {"batchnorm_samples": case.batchnorm[-1]} if case.batchnorm else {}


def pinned(case):
    """The same as words."""
    return [word for name, value in pins(case).items()
            for word in ("--" + name.replace("_", "-"), value)]


def optimizer(case):
    return OPTIMIZER if any(run["optimizer"] == OPTIMIZER for run in case.runs) \
        else case.runs[0]["optimizer"]


def reference(case, precision):
    group = case.batchnorm[-1] if case.batchnorm else 0
    found = case.reference(precision, optimizer(case), group=group)
    if not found:
        raise Skip(f"torch.export's files have no {precision} reference")
    return found


def fuses(session, case):
    """Each pattern as often as the network has it."""
    run = session.tasuki(["inspect", case.path("model.onnx"), "--data",
                          case.path("train.safetensors"), "--loss", case.loss, "--fusions",
                          "--format", "json"])
    check(run.code == 0, run.err)
    found = {f["fusion"]: f["count"] for f in json.loads(run.out)["fusions"]}
    check(not case.fusions or found == case.fusions, f"{found}, expected {case.fusions}")
    return ", ".join(f"{n} {name}" for name, n in sorted(found.items()))


def same_gradients(case, dump, precision, tolerance):
    wanted = tensors.read(case.path(reference(case, precision)["gradients"]))
    got, exact = tensors.read(dump), tensors.read(case.path(reference(case, "float64")
                                                            ["gradients"]))
    # A bias that a later BatchNorm takes away has no gradient but rounding.
    top = max(map(compare.largest, exact.values()))
    nothing = [name for name in exact if compare.largest(exact[name]) <= 1e-12 * top]
    for alias, owner in case.ties.items():
        wanted.pop(alias if alias not in got else owner, None)
    return compare.same_tensors(got, wanted, tolerance, floor=1e-3, skip=nothing)


def follows(session, case, **options):
    """Gradients of the first step and the curve, in float64. The constants of the file are
    float32: 1e-7; in a gelu that is not fused they are inside of what has a slope."""
    spelled = options.get("no_fuse") and any("gelu" in name for name in case.fusions)
    dump = session.temporary(".safetensors")
    result = session.train(case, "float64", optimizer(case), micro_batches=1,
                           dump_gradients=dump,
                           **pins(case), **options)
    said = compare.same_curve(result.losses, reference(case, "float64")["loss"], 1e-7)
    if case.exporter != "torchscript":      # weights under made-up names, transposed
        return said
    worst = same_gradients(case, dump, "float64", 1e-6 if spelled else 1e-7)
    return f"{said}, gradients {worst}"


def float32(session, case):
    dump = session.temporary(".safetensors")
    wanted = reference(case, "float32")
    session.train(case, "float32", wanted["optimizer"], steps=1, micro_batches=1, backend="cpu",
                  dump_gradients=dump, **pins(case))
    return same_gradients(case, dump, "float32", 1e-4)


class Cuts:
    """Where blocks stand, and what goes from which to which."""

    def __init__(self, session, case):
        path = session.temporary(".json")
        run = session.tasuki(["profile", case.path("model.onnx"), "--data",
                              case.path("train.safetensors"), "--loss", case.loss,
                              "--precision", "float64", "--batch-size",
                              case.global_batch // 2, "-o", path, "-q", *freeze(case), *pinned(case)])
        check(run.code == 0, run.err)
        with open(path) as file:
            cost = json.load(file)
        self.names = [block["name"] for block in cost["blocks"]]
        at = {name: i for i, name in enumerate(self.names)}
        self.spans = {}
        for edge in cost["edges"]:
            first, last = self.spans.get(edge["value"], (at[edge["from"]],) * 2)
            self.spans[edge["value"]] = (first, max(last, at[edge["to"]]))
        for value in cost["inputs"]:
            self.spans[value["name"]] = (min(at[name] for name in value["to"]),
                                         max(at[name] for name in value["to"]))
        self.ties = {tie["name"]: (min(at[name] for name in tie["blocks"]),
                                   max(at[name] for name in tie["blocks"]))
                     for tie in cost.get("shared", [])}

    def far(self):
        """Values and ties with a block between their ends."""
        return {name: span for name, span in {**self.spans, **self.ties}.items()
                if span[1] - span[0] >= 2}


def freeze(case):
    return [word for pattern in getattr(case, "freeze", []) for word in ("--freeze", pattern)]


def cut_at(session, case, names, cuts):
    """A plan with the blocks before, between and behind two cuts."""
    path = session.temporary(".json")
    words = ["plan", case.path("model.onnx"), "--data", case.path("train.safetensors"),
             "--loss", case.loss, "--cluster", f"flat:{STAGES},bandwidth=1e9", "--precision",
             "float64", "--global-batch", case.global_batch, "--optimizer", optimizer(case),
             "-q", "--stages", STAGES, "--replicas", "1,1,1", "--micro-batches", "2", "-o",
             path, *freeze(case), *pinned(case)]
    made = session.tasuki(words)
    check(made.code == 0, made.err)
    with open(path) as file:
        plan = json.load(file)
    blocks = [block for stage in plan["stages"] for block in stage["blocks"]]
    check([block if isinstance(block, str) else block["name"] for block in blocks] == names,
          "the plan has other blocks than the profile")
    edges = [0, *cuts, len(blocks)]
    for stage, first, last in zip(plan["stages"], edges, edges[1:]):
        stage["blocks"] = blocks[first:last]
    with open(path, "w") as file:
        json.dump(plan, file)
    return path


def crossings(plan, span):
    """Boundaries between the ends of a span of blocks, as the run had its stages."""
    sizes = [len(stage["blocks"]) for stage in plan["stages"]]
    stage_of = [n for n, size in enumerate(sizes) for _ in range(size)]
    return stage_of[span[1]] - stage_of[span[0]]


def crosses(session, case, draw):
    """In three stages, cut so that something drawn crosses both boundaries, and so do whatever
    begins before and ends behind it: the curve of one rank."""
    cuts = Cuts(session, case)
    far = cuts.far()
    if not far:
        raise Skip("nothing in it goes far")
    wanted = compared = None
    said = []
    for name in choose(draw, far, cuts):
        first, last = far[name]
        where = (draw.randint(first + 1, last - 1), last)
        path = cut_at(session, case, cuts.names, where)
        result = session.train(case, "float64", optimizer(case), ranks=STAGES, plan=path,
                               keep_plan=True, cluster=f"flat:{STAGES},bandwidth=1e9",
                               **pins(case))
        plan = result.event("start")["plan"]
        check(crossings(plan, far[name]) == 2, f"{name} does not cross both boundaries")
        wanted = wanted or session.train(case, "float64", optimizer(case), micro_batches=1,
                                         **pins(case)).losses
        compared = compare.same_curve(result.losses, wanted, 1e-10)
        crossed = sum(crossings(plan, span) == 2 for span in far.values())
        said.append(f"{name} and {crossed - 1} more")
    return f"{compared}; {'; '.join(said)}"


def choose(draw, far, cuts):
    """A value that goes farthest, one of any; and in a long run a tie and two more."""
    values = [name for name in far if name in cuts.spans]
    ties = [name for name in far if name in cuts.ties]
    chosen = draw.sample(sorted(values), min(len(values), 3 if driver.LONG else 1))
    return dict.fromkeys(chosen + (ties[:1] if driver.LONG or not chosen else []))


def main():
    tap, session = Tap(), driver.Session()
    draw, names = random.Random(driver.SEED), ALL if driver.LONG else FEW
    if not driver.python_with_torch():
        from tap import skip_all
        skip_all("no Python with torch")
    try:
        tap.note(f"drawn with TASUKI_TEST_SEED={driver.SEED}")
        session.load([name for name in names if name != "llama"])
        session.cases.update(session.load(["llama"], "dynamo") if "llama" in names else {})
        for name in names:
            case = session.cases[name]
            tap.test(f"{name}: what there is to fuse is fused", fuses, session, case)
            tap.test(f"{name}: float64 gradients and curve are PyTorch's", follows, session,
                     case)
            tap.test(f"{name}: so they are without fusion", follows, session, case,
                     no_fuse=True)
            tap.test(f"{name}: float32 gradients are PyTorch's (cpu)", float32, session, case)
            if session.mpirun:
                tap.test(f"{name}: in stages that it crosses, the curve of one rank", crosses,
                         session, case, draw)
        if driver.LONG:
            for name, case in session.load(DYNAMO, "dynamo").items():
                tap.test(f"{name}: torch.export's file gives PyTorch's curve",
                         follows, session, case)
    finally:
        session.close()
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
