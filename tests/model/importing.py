#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`tasuki import` of networks and data as they stand in a user's file gives PyTorch's curves."""
import os
import subprocess
import sys

import compare
import driver
import tensors
from tap import Skip, Tap, check

MODELS = ["cnn", "llama", "transformer"]
LONG = ["frozen", "mlp", "mlp-mse", "linear-dot", "transformer-post", "skips", "tagger", "tied",
        "unet"]
DROPPING = ["transformer-dropout"]
# Each writes LayerNorm, GELU, attention and linear layers in its own way.
OPSETS = [f"torchscript-{n}" for n in range(14, 18)] + [f"dynamo-{n}" for n in range(18, 24)]

HELPER = os.path.join(driver.SRCDIR, "etc", "import", "tasuki_import.py")

NET = """\
import sys
sys.path.insert(0, {here!r})
import models

case = models.make({name!r}, {seed})


def make_model():
    return getattr(case.module, "net", case.module)


class Samples:
    def __len__(self):
        return len(case.target_data)

    def __getitem__(self, i):
        return (*(value[i] for value in case.inputs.values()), case.target_data[i])
"""

# PyTorch is loaded once for all of them.
ALL = """\
import runpy, sys
helper, *lines = sys.argv[1:]
for line in lines:
    sys.argv = [helper, *line.split("\\t")]
    try:
        runpy.run_path(helper, run_name="__main__")
    except SystemExit as exit:
        assert exit.code == 0, line
"""


def inputs_of(case):
    """NAME:DIMS:TYPE of what is no target, from the reference's data."""
    types = {"F32": "float32", "I64": "int64"}
    target = case.loss.rpartition(",")[2]
    for name, (dtype, shape, _) in tensors.read(case.path("train.safetensors")).items():
        if name != target:
            yield f"{name}:{'x'.join(map(str, [4, *shape[1:]]))}:{types[dtype]}"


def import_all(session, python, wanted):
    """model.onnx and train.safetensors of each (case, exporter) beside the reference's; an
    exporter may be "dynamo-23", with the opset."""
    lines = []
    for case, exporter in wanted:
        net = case.path("net_" + case.name.replace("-", "_") + ".py")
        with open(net, "w") as file:
            file.write(NET.format(here=driver.HERE, name=case.name, seed=case.seed))
        words = ["model", net + ":make_model", case.path(f"{exporter}.onnx"), "--quiet",
                 "--exporter", exporter.split("-")[0]]
        if "-" in exporter:
            words += ["--opset", exporter.split("-")[1]]
        for text in inputs_of(case):
            words += ["--input", text]
        lines.append("\t".join(words))
        names = ",".join([text.split(":")[0] for text in inputs_of(case)]
                         + [case.loss.rpartition(",")[2]])
        lines.append("\t".join(["data", net + ":Samples", case.path("imported.safetensors"),
                                "--quiet", "--names", names]))
    run = subprocess.run([python, "-c", ALL, HELPER, *lines], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, check=False)
    check(run.returncode == 0, run.stdout[-3000:])


def loss_of(case):
    """A network that gives one tensor calls it "output"."""
    kind, _, names = case.loss.partition(":")
    return f"{kind}:output,{names.split(',')[1]}"


def train(session, case, exporter, optimizer, **options):
    return session.train(case, "float64", optimizer, plan=case.path(f"{exporter}.onnx"),
                         loss=loss_of(case), data=case.path("imported.safetensors"), **options)


def follows(session, case, exporter):
    reference = case.runs[0]
    group = reference["batchnorm_samples"]
    result = train(session, case, exporter, reference["optimizer"], micro_batches=1,
                   global_batch=reference["global_batch"],
                   **({"batchnorm_samples": group} if group else {}))
    return compare.same_curve(result.losses, reference["loss"], case.tolerance, case.loss)


def same_data(case):
    given = tensors.read(case.path("train.safetensors"))
    made = tensors.read(case.path("imported.safetensors"))
    check(given == made, f"{sorted(given)} became {sorted(made)}, or their values differ")


def drops(session, case, exporter):
    """Two seeds of dropout give two curves."""
    curves = [train(session, case, exporter, "sgd", micro_batches=1, seed=seed, steps=3).losses
              for seed in (1, 2)]
    check(curves[0] != curves[1], f"nothing is dropped: {curves[0]}")


def main():
    tap, session = Tap(), driver.Session()
    try:
        python = driver.python_with_torch()
        if not python:
            tap.test("networks import", skip_without_torch)
            return tap.done()
        names = MODELS + (LONG if driver.LONG else [])
        cases = session.load(names + DROPPING, "dynamo-plain")
        tap.note(session.source)
        for case in cases.values():
            case.freeze = []        # requires_grad says it
        wanted = [(cases[name], "dynamo") for name in names + DROPPING
                  if driver.LONG or name != "transformer"]
        wanted += [(cases[name], "torchscript")
                   for name in ("cnn", "frozen")[:2 if driver.LONG else 1]]
        wanted += [(cases["transformer"], exporter)
                   for exporter in (OPSETS if driver.LONG else OPSETS[-1:])]
        wanted += [(cases["cnn"], "torchscript-13")]    # attention has no opset 13
        tap.test("networks and data import", import_all, session, python, wanted)
        for case, exporter in wanted:
            if case.name in DROPPING:
                tap.test(f"{case.name}: dropout is there ({exporter})", drops, session, case,
                         exporter)
                continue
            tap.test(f"{case.name}: imported by {exporter}, the curve is PyTorch's", follows,
                     session, case, exporter)
            if "-" not in exporter:
                tap.test(f"{case.name}: the samples are those of the user's data set",
                         same_data, case)
    finally:
        session.close()
    return tap.done()


def skip_without_torch():
    raise Skip("no Python with torch here")


if __name__ == "__main__":
    sys.exit(main())
