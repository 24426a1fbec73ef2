#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One rank follows PyTorch: loss curves, gradients of the first step, final state."""
import os
import random
import sys

import compare
import driver
import tensors
from tap import Failed, Skip, Tap, check

MODELS = ["mlp", "mlp-mse", "linear-dot", "cnn", "transformer", "transformer-post", "tied",
          "skips", "frozen"]
MICRO_BATCHES = (1, 2, 4, 8)
# With the exporter's optimizations a CNN has no BatchNorm left.
DYNAMO = {"dynamo": ["mlp", "transformer", "transformer-post", "tied", "frozen", "unet",
                     "llama"],
          "dynamo-plain": ["cnn", "transformer", "frozen"],
          "torchscript": ["unet", "tagger", "steps"],
          "functions": ["mlp"]}


def pin(run):
    """Options that make a run normalise as PyTorch did: by groups, or the whole batch."""
    group = run["batchnorm_samples"]
    return {"batchnorm_samples": group} if group else {}


def follows(session, name, optimizer, backend):
    case = session.case(name)
    reference = case.reference("float64", optimizer)
    checkpoint = session.temporary()
    result = session.train(case, "float64", optimizer, backend=backend, checkpoint=checkpoint,
                           micro_batches=1, **pin(reference))
    said = compare.same_curve(result.losses, reference["loss"], case.tolerance, case.loss)
    path = case.path(reference["final"])
    if os.path.exists(path):
        same_state(session, case, checkpoint, tensors.read(path))
    return said


def same_state(session, case, checkpoint, wanted):
    """Parameters and running statistics after the last step. Adam divides by the gradient's
    size, so what has none in exact arithmetic (biases of keys) carries no more than 1e-6."""
    got = session.exported(checkpoint)
    for alias, owner in case.ties.items():
        if alias not in got and owner in got:
            wanted.pop(alias, None)
        elif owner not in got and alias in got:
            wanted.pop(owner, None)
    return compare.same_tensors(got, wanted, 1e-6)


def follows_by_groups(session, name, group):
    """BatchNorm by groups, in as many micro-batches as groups allow."""
    case = session.case(name)
    reference = case.reference("float64", "momentum", group=group)
    if not reference:
        raise Skip(f"no reference with groups of {group}")
    checkpoint = session.temporary()
    micro = case.global_batch // group
    result = session.train(case, "float64", "momentum", micro_batches=min(micro, 8),
                           batchnorm_samples=group, checkpoint=checkpoint)
    said = compare.same_curve(result.losses, reference["loss"], case.tolerance)
    path = case.path(reference["final"])
    if os.path.exists(path):
        same_state(session, case, checkpoint, tensors.read(path))
    return said


def moved(session, case, draw):
    """The data, each number by 2^-20 of itself: less than what float32 rounds in a network."""
    path = session.temporary(".safetensors")
    whole = {}
    for key, (dtype, shape, values) in tensors.read(case.path("train.safetensors")).items():
        if dtype == "F32":
            values = [x * (1 + draw.choice((-1, 1)) * 2.0 ** -20) for x in values]
        whole[key] = (dtype, shape, values)
    tensors.write(path, whole)
    return path


def follows_moved(session, case, reference, curve, width):
    """Where a Relu's input is about 0, or two of a pool are about equal, a rounding decides which
    way float64 goes, too: does one of its ways lie by this curve?"""
    draw = random.Random(driver.SEED)
    for i in range(40):
        other = session.train(case, "float64", reference["optimizer"], micro_batches=1,
                              backend="reference", data=moved(session, case, draw),
                              **pin(reference)).losses
        if max(abs(a - b) for a, b in zip(curve, other)) <= 10 * width:
            return f"float64's where data move by 2^-20, draw {i}"
    return None


def float32_curve(session, name, optimizer):
    case = session.case(name)
    group = 3 if case.batchnorm else None
    reference = case.reference("float32", optimizer if not group else "momentum", group=group)
    if not reference:
        raise Skip("no float32 reference")
    curves = [session.train(case, "float32", reference["optimizer"], micro_batches=m,
                            **pin(reference)).losses for m in MICRO_BATCHES]
    exact = case.reference("float64", reference["optimizer"], reference["global_batch"], group)
    width = compare.spread(curves)
    try:
        return compare.near_exact(curves[0], exact["loss"], reference["loss"], width)
    except Failed:
        said = follows_moved(session, case, reference, curves[0], width)
        if not said:
            raise
        return said


def float32_gradients(session, name, backend, layout=(), micro_batches=1):
    case = session.case(name)
    group = 3 if case.batchnorm else None
    reference = case.reference("float32", "momentum" if group else "sgd", group=group)
    if not reference or not os.path.exists(case.path(reference["gradients"])):
        raise Skip("no gradients")
    dump = session.temporary(".safetensors")
    session.train(case, "float32", reference["optimizer"], ranks=sum(layout), backend=backend,
                  steps=1, micro_batches=micro_batches, stages=len(layout) or None,
                  replicas=driver.replicas_text(layout) or None, dump_gradients=dump,
                  **pin(reference))
    wanted = tensors.read(case.path(reference["gradients"]))
    got = tensors.read(dump)
    check(set(got) <= set(wanted) | set(case.ties), f"unknown gradients {set(got)}")
    for alias, owner in case.ties.items():
        wanted.pop(alias if alias not in got else owner, None)
    return compare.same_tensors(got, wanted, 1e-5, floor=1e-3)


def freezing_leaves_others(session, name, backend):
    """Whatever is frozen, the gradients of the rest are those of the whole network."""
    case = session.case(name)
    precision = "float64" if backend == "reference" else "float32"
    draw, groups = random.Random(driver.SEED), {"batchnorm_samples": 24} if case.batchnorm else {}

    def gradients(frozen, **pins):
        dump = session.temporary(".safetensors")
        session.train(case, precision, "sgd" if "sgd" in case.options else "momentum",
                      backend=backend, steps=1, micro_batches=1, dump_gradients=dump,
                      freeze=frozen, **groups, **pins)
        return tensors.read(dump)

    whole, worst = gradients([]), 0.0
    for share in (0.25, 0.5, 0.9):
        frozen = [key for key in sorted(whole) if draw.random() < share]
        frozen = frozen[1:] if len(frozen) == len(whole) else frozen
        rest = gradients(frozen)
        check(set(rest) == set(whole) - set(frozen), f"{frozen}: gradients of {sorted(rest)}")
        compare.same_tensors(rest, {key: whole[key] for key in rest},
                             1e-12 if precision == "float64" else 1e-5, floor=1e-3)
        worst = max(worst, len(frozen))
    return f"up to {worst} of {len(whole)} frozen"


def dynamo(session, cases, name):
    if name not in cases:
        raise Skip("no Python with torch here")
    case = cases[name]
    reference = case.runs[0]
    result = session.train(case, "float64", reference["optimizer"], micro_batches=1,
                           global_batch=reference["global_batch"], **pin(reference))
    return compare.same_curve(result.losses, reference["loss"], case.tolerance)


def main():
    tap, session, draw = Tap(), driver.Session(), random.Random(driver.SEED)
    try:
        session.load(MODELS + ["cnn-old"])
        tap.note(f"{session.source}; drawn with TASUKI_TEST_SEED={driver.SEED}")
        for name in MODELS:
            optimizers = ["sgd"] if name == "linear-dot" else ["sgd", "momentum", "adamw"]
            for optimizer in driver.some(draw, optimizers, 1):
                tap.test(f"{name}: 20 steps of {optimizer} in float64 are PyTorch's",
                         follows, session, name, optimizer, "reference")
        for group in (4, 3, 1):
            tap.test(f"cnn: BatchNorm over groups of {group} gives PyTorch's curve and statistics",
                     follows_by_groups, session, "cnn", group)
        for name in MODELS:
            for backend in ("reference", "cpu"):
                tap.test(f"{name}: float32 gradients of step 1 are PyTorch's ({backend})",
                         float32_gradients, session, name, backend)
            for backend in driver.some(draw, ["reference", "cpu"], 1):
                tap.test(f"{name}: what is frozen leaves the gradients of the rest ({backend})",
                         freezing_leaves_others, session, name, backend)
            tap.test(f"{name}: so are those of stages 2,1 (cpu)", float32_gradients, session,
                     name, "cpu", (2, 1), 2)
        for name in driver.some(draw, MODELS, 4):
            tap.test(f"{name}: the float32 curve is as near float64's as micro-batches are, or "
                     "PyTorch's", float32_curve, session, name, "sgd")
        tap.test("cnn of opset 9 gives PyTorch's curve", follows, session, "cnn-old",
                 "momentum", "reference")
        for exporter, every in DYNAMO.items():
            names = driver.some(draw, every, (len(every) + 1) // 2)
            live = driver.python_with_torch()
            exported = session.load(names, exporter) if live else {}
            for name in names:
                tap.test(f"{name}: torch.export's file ({exporter}) gives PyTorch's curve too",
                         dynamo, session, exported, name)
    finally:
        session.close()
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
