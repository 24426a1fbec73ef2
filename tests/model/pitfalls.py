#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What people export without thinking of training: it trains as PyTorch does, or is warned of."""
import json
import os
import subprocess
import sys

import compare
import driver
from tap import Skip, Tap, check

# (network, how it is exported)
JOBS = [("transformer", "static-torchscript"), ("transformer", "static-dynamo"),
        ("cnn", "static-torchscript"), ("cnn", "inference-kept"), ("cnn", "inference-folded"),
        ("fresh", "inference-folded"), ("fresh", "optimized"), ("t5", "optimized")]

EXPORT = """\
import json, sys, warnings
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("ignore")
import torch
import models

def fresh():
    layers = [torch.nn.Linear(9, 9), torch.nn.LayerNorm(9), torch.nn.ReLU(),
              torch.nn.Linear(9, 9), torch.nn.LayerNorm(9)]
    return torch.nn.Sequential(*layers), {"x": torch.zeros(4, 9).numpy()}, "y"

for name, seed, how, path in json.loads(sys.argv[2]):
    case = models.make(name, seed) if name != "fresh" else None
    module, inputs, output = (case.module, case.inputs, case.output) if case else fresh()
    values = tuple(torch.from_numpy(data[:4]) for data in inputs.values())
    names = {"input_names": list(inputs), "output_names": [output]}
    modes = torch.onnx.TrainingMode
    if how == "static-torchscript":
        torch.onnx.export(module.train(), values, path, dynamo=False, do_constant_folding=False,
                          training=modes.TRAINING, opset_version=17, **names)
    elif how == "static-dynamo":
        torch.onnx.export(module.train(), values, path, dynamo=True, optimize=False,
                          verbose=False, external_data=False, **names)
    elif how == "inference-kept":
        torch.onnx.export(module.eval(), values, path, dynamo=False, do_constant_folding=False,
                          training=modes.PRESERVE, opset_version=17,
                          dynamic_axes={key: {0: "batch"} for key in [*inputs, output]}, **names)
    elif how == "inference-folded":
        torch.onnx.export(module.eval(), values, path, dynamo=False, opset_version=17, **names)
    else:
        torch.onnx.export(module.eval(), values, path, dynamo=True, verbose=False,
                          external_data=False, **names)
"""


def export_all(session, python, jobs):
    run = subprocess.run([python, "-c", EXPORT, driver.HERE, json.dumps(jobs)],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         check=False)
    check(run.returncode == 0, run.stdout[-3000:])


def curve(session, case, path):
    """The file's batch was 4; the run's is another, whole and in micro-batches."""
    reference = case.runs[0]
    group = reference["batchnorm_samples"]
    losses = [session.train(case, "float64", reference["optimizer"], plan=path,
                            global_batch=reference["global_batch"], micro_batches=count,
                            **({"batchnorm_samples": group} if group else {})).losses
              for count in ([1] if group else [1, 3])]
    return max(compare.same_curve(each, reference["loss"], case.tolerance) for each in losses)


def notes(session, path, *wanted):
    run = session.tasuki(["inspect", path, "--batch-size", "4"])
    check(run.code == 0, run.err)
    for text in wanted:
        check(text in run.out, f"inspect does not say \"{text}\":\n{run.out[-1500:]}")


def skip_without_torch():
    raise Skip("no Python with torch here")


def main():
    tap, session = Tap(), driver.Session()
    try:
        python = driver.python_with_torch()
        if not python:
            tap.test("careless exports", skip_without_torch)
            return tap.done()
        cases = session.load(["transformer", "cnn"], "dynamo-plain")
        tap.note(session.source)
        paths = {job: os.path.join(session.scratch, "-".join(job) + ".onnx") for job in JOBS}
        tap.test("careless exports are written", export_all, session, python,
                 [(name, driver.SEED, how, paths[name, how]) for name, how in JOBS])
        for name, how in JOBS[:4]:
            tap.test(f"{name}, {how}: the curve is PyTorch's in training", curve, session,
                     cases[name], paths[name, how])
        tap.test("BatchNorm in inference form is said", notes, session, paths[JOBS[3]],
                 "exported for inference, trained with the statistics of the batch")
        tap.test("BatchNorm folded into Conv is warned of", notes, session, paths[JOBS[4]],
                 "warning: ", "no normalization: if the network had any, the exporter folded it")
        for job in JOBS[5:7]:
            tap.test(f"parameters that were equal and are merged are warned of ({job[1]})",
                     notes, session, paths[job], "(tied)", "start with one value everywhere",
                     "merges tensors that are equal")
        tap.test("a table of which the lookups are left is warned of", notes, session,
                 paths[JOBS[7]], "warning: 2 initializers were computed by the exporter from "
                 "parameters, and trained in place of them", "from \"near.0.weight\"")
    finally:
        session.close()
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
