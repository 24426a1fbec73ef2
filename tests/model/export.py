#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Export the test networks to ONNX and run PyTorch on them: the reference.

    export.py DIRECTORY [--seed N] [--exporter torchscript|dynamo|dynamo-plain|functions|import]
              [MODEL …]

"import" is `tasuki import` of what a user would have.

For each model, DIRECTORY/MODEL gets model.onnx, train.safetensors, case.json (options,
tolerances, loss curves in float64 and float32), gradients-*.safetensors (of
step 1) and final-*.safetensors (parameters and running statistics after the last step).
Samples are taken in order, from the start again after the last.
"""
import argparse
import contextlib
import copy
import dataclasses
import inspect
import json
import math
import os
import subprocess
import sys
import warnings

import numpy as np
import onnx
import onnx.numpy_helper
import torch
from torch.overrides import TorchFunctionMode

import batchnorm
import driver
import importing
import models
import tensors

EXPORTERS = ("torchscript", "dynamo", "dynamo-plain", "functions", "import")
SPELLED = "float64-spelled"     # GELU as a file without fusion has it
TANH_GELU = 0.044715, math.sqrt(2 / math.pi)
STEADY = 7e-5                   # 1e-4 over the root of 2: as much is left for Tasuki's rounding
NUDGES = 16
ATTEMPTS = 1000
REAL = {"float64": torch.float64, "float32": torch.float32, SPELLED: torch.float64}
OPTIMIZERS = {
    "sgd": {"--lr": "0.125"},
    "momentum": {"--lr": "0.03125", "--momentum": "0.875", "--weight-decay": "0.0078125"},
    "adamw": {"--lr": "0.00390625", "--weight-decay": "0.015625"},
}


def make_optimizer(name, parameters, lr_scale):
    settings = {key: float(value) for key, value in OPTIMIZERS[name].items()}
    lr, decay = settings["--lr"] * lr_scale, settings.get("--weight-decay", 0.0)
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=decay)
    return torch.optim.SGD(parameters, lr=lr, momentum=settings.get("--momentum", 0.0),
                           weight_decay=decay)


def lr_scale(case):
    """A sum over the batch (dot) has gradients as large as the batch."""
    return 2.0 ** -10 if case.loss == "dot" else case.rate


def loss_of(case, output, target):
    if case.loss == "mse":
        return torch.nn.functional.mse_loss(output, target)
    if case.loss == "dot":
        return (output * target).sum()
    return torch.nn.functional.cross_entropy(output.flatten(0, -2), target.flatten())


def to_torch(data, real):
    value = torch.from_numpy(data)
    return value.to(real) if value.is_floating_point() else value


def names_and_values(module):
    state = dict(module.named_parameters())
    state.update((name, value) for name, value in module.named_buffers()
                 if "num_batches" not in name)
    return {name: value.detach().numpy() for name, value in state.items()}


def to_float32(value):
    return float(np.float32(value)) if abs(value) < 3e38 else value


def spelled_gelu(x, approximate="none"):
    """As the TorchScript exporter writes it."""
    root = to_float32(2.0 ** 0.5)
    return 0.5 * x * (torch.erf(x / root) + 1) if approximate == "none" \
        else torch.nn.functional.gelu(x, approximate=approximate)


def hardsigmoid(x, inplace=False):
    return torch.clamp(x * to_float32(1 / 6) + 0.5, 0.0, 1.0)


class InDouble(TorchFunctionMode):
    """The network as the file has it, in double: numbers in the code are rounded to float32, as
    attributes and constants are in every file, and what the code takes to float32 in between
    (norms and angles of transformers) stays double. 'spelled': GELU in its parts, with the
    numbers of the file; else fused, with exact ones."""

    def __init__(self, spelled):
        super().__init__()
        self.spelled = spelled

    def replace(self, value):
        if type(value) is float:
            return to_float32(value) if self.spelled or value not in TANH_GELU else value
        return torch.float64 if value is torch.float32 else value

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        elif func is torch.nn.functional.hardsigmoid:
            func = hardsigmoid
        elif func is torch.nn.functional.gelu and self.spelled:
            func = spelled_gelu
        return func(*map(self.replace, args),
                    **{name: self.replace(value) for name, value in (kwargs or {}).items()})


def train(case, precision, optimizer_name, global_batch, group):
    """Return (losses, gradients of step 1, final state)."""
    real = REAL[precision]
    as_in_file = InDouble(precision == SPELLED) if real == torch.float64 \
        else contextlib.nullcontext()
    module = batchnorm.by_groups(copy.deepcopy(case.module), group).to(real)
    module.train()
    optimizer = make_optimizer(optimizer_name, module.parameters(), lr_scale(case))
    inputs = [to_torch(data, real) for data in case.inputs.values()]
    target = to_torch(case.target_data, real)
    samples, losses, gradients = len(target), [], {}
    for step in range(case.steps):
        at = step * global_batch % samples
        part = slice(at, at + global_batch)
        optimizer.zero_grad()
        with as_in_file:
            loss = loss_of(case, module(*(value[part] for value in inputs)), target[part])
        loss.backward()
        if step == 0:
            gradients = {name: p.grad.numpy().copy() for name, p in module.named_parameters()
                         if p.grad is not None}
        optimizer.step()
        losses.append(loss.item())
    return losses, gradients, names_and_values(module)


def by_import(case, path, seed):
    """As a user would: by a file with a function that makes the module."""
    net = os.path.join(os.path.dirname(path), "net.py")
    with open(net, "w") as file:
        file.write(importing.NET.format(here=driver.HERE, name=case.name, seed=seed))
    words = [sys.executable, importing.HELPER, "model", net + ":make_model", path, "--quiet",
             "--exporter", "dynamo"]
    for name, data in case.inputs.items():
        words += ["--input", f"{name}:{'x'.join(map(str, (4, *data.shape[1:])))}:{data.dtype}"]
    subprocess.run(words, check=True)


def export(case, path, exporter, seed):
    if exporter == "import":
        by_import(case, path, seed)
        return
    module = copy.deepcopy(case.module).train()
    arguments = tuple(torch.from_numpy(data[:4]) for data in case.inputs.values())
    names = list(case.inputs)
    common = {"input_names": names, "output_names": [case.output],
              "training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter.startswith("dynamo"):
            batch = torch.export.Dim("batch", min=2, max=4096)
            shapes = tuple({0: batch} for _ in names)
            # What stands for all inputs takes the shapes of all.
            packed = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in
                         inspect.signature(module.forward).parameters.values())
            common["dynamic_shapes"] = (shapes,) if packed else shapes
            torch.onnx.export(module, arguments, path, dynamo=True, external_data=False,
                              verbose=False, optimize=exporter == "dynamo", **common)
        else:
            axes = {name: {0: "batch"} for name in names + [case.output]}
            torch.onnx.export(module, arguments, path, dynamo=False,
                              opset_version=case.opset,
                              dynamic_axes=axes, **common)
    if exporter == "functions":
        outline(path)


def outline(path):
    """Each Gemm becomes a call of a function of the file: PyTorch itself writes none."""
    model = onnx.load(path)
    gemm = onnx.helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    integer = onnx.AttributeProto.INT
    gemm.attribute.add(name="transB", ref_attr_name="transB", type=integer)
    model.functions.append(onnx.helper.make_function(
        "net.layers", "Linear", ["x", "w", "b"], ["y"], [gemm], model.opset_import, ["transB"]))
    for node in model.graph.node:
        if node.op_type == "Gemm":
            node.domain, node.op_type = "net.layers", "Linear"
    model.opset_import.add(domain="net.layers", version=1)
    onnx.save(model, path)


def as_exported(values, exporter):
    """Under the names of the module itself, where it was that one which was exported."""
    return {name.removeprefix("net.") if exporter == "import" else name: value
            for name, value in values.items()}


def references(case, directory, exporter):
    """Run every (precision, optimizer, global batch, group) that the case asks for. Gradients
    of the first step do not depend on the optimizer. Of a second exporter's file one run in
    float64 is enough."""
    brief = exporter != case.exporter
    precisions = ["float64", "float32"]
    if any("gelu" in name for name in case.fusions):
        precisions.append(SPELLED)
    wanted = [(name, case.global_batch, group) for name in case.optimizers
              for group in (case.batchnorm[:1] or (0,))]
    wanted += [("momentum", case.global_batch, group) for group in case.batchnorm[1:]]
    wanted += [(name, batch, 0) for batch, name in case.curves]
    if brief:
        wanted = wanted[-1:]
    runs = []
    for name, batch, group in wanted:
        for precision in ["float64"] if brief else precisions:
            losses, gradients, final = train(case, precision, name, batch, group)
            files = {"gradients": f"gradients-{precision}-{batch}-{group}.safetensors",
                     "final": f"final-{precision}-{name}-{batch}-{group}.safetensors"}
            runs.append({"precision": precision, "optimizer": name, "global_batch": batch,
                         "batchnorm_samples": group, "loss": losses, **files})
            tensors.write(os.path.join(directory, files["gradients"]),
                          as_exported(gradients, exporter))
            tensors.write(os.path.join(directory, files["final"]), as_exported(final, exporter))
    return runs


def start_where_the_file_does(case, path):
    """Tracing runs the network once, which moves the running statistics that are written."""
    written = {tensor.name: tensor for tensor in onnx.load(path).graph.initializer}
    with torch.no_grad():
        for name, buffer in case.module.named_buffers():
            if name in written:
                buffer.copy_(torch.from_numpy(onnx.numpy_helper.to_array(written[name]).copy()))


def thin(directory, runs):
    """For files to be shipped: one final state and one set of gradients a precision."""
    kept = set()
    for run in runs:
        if run["precision"] == "float64" and run["optimizer"] == "momentum":
            kept.add(run["final"])
        if run["precision"] == "float32":
            kept.add(run["gradients"])
    for name in os.listdir(directory):
        if name.endswith(".safetensors") and name != "train.safetensors" and name not in kept:
            os.remove(os.path.join(directory, name))


def write_case(case, directory, seed, exporter, shipped):
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, "model.onnx")
    export(case, path, exporter, seed)
    start_where_the_file_does(case, path)
    data = dict(case.inputs)
    data[case.target] = case.target_data
    tensors.write(os.path.join(directory, "train.safetensors"), data)
    options = {}
    for name in case.optimizers:
        settings = dict(OPTIMIZERS[name])
        settings["--lr"] = repr(float(settings["--lr"]) * lr_scale(case))
        options[name] = [word for pair in settings.items() for word in pair]
    output = "output" if exporter == "import" and not hasattr(case.module, "net") \
        else case.output
    description = {
        "name": case.name, "seed": seed, "exporter": exporter, "steps": case.steps,
        "loss": f"{case.loss}:{output},{case.target}", "exact": case.exact,
        "random": case.random, "global_batch": case.global_batch, "options": options,
        "ties": {alias: owner.removeprefix("net.") if exporter == "import" else owner
                 for alias, owner in as_exported(case.ties, exporter).items()},
        # torch.export says what is a buffer; other files do not.
        "freeze": case.freeze + (case.buffers if exporter == "torchscript" else []),
        "batchnorm": list(case.batchnorm),
        "fusions": case.fusions, "carries": list(case.carries),
        "runs": [] if case.random else references(case, directory, exporter)}
    with open(os.path.join(directory, "case.json"), "w") as out:
        json.dump(description, out, indent=1)
    if shipped:
        thin(directory, description["runs"])


def nudged(case):
    """The same but for the rounding of every parameter, by which the first step takes another
    way through float32."""
    case = dataclasses.replace(case, steps=1, module=copy.deepcopy(case.module))
    with torch.no_grad():
        for parameter in case.module.parameters():
            parameter *= 1 + 2.0 ** -23 * torch.randint(-1, 2, parameter.shape)
    return case


def first_gradients(case, precision):
    return train(case, precision, case.optimizers[0], case.global_batch,
                 case.batchnorm[0] if case.batchnorm else 0)[1]


def is_steady(case):
    """Are PyTorch's own gradients in float32 right, whatever the rounding? Among the activations
    of a large network some may be so near to the kink of a ReLU, or to each other in a MaxPool,
    that float32 takes the other side, and with it another gradient; and norms over few samples
    make much of little."""
    exact = first_gradients(dataclasses.replace(case, steps=1), "float64")
    top = max(np.abs(gradient).max() for gradient in exact.values())
    allowed = {name: STEADY * max(np.abs(gradient).max(), 1e-3 * top)
               for name, gradient in exact.items() if np.abs(gradient).max() > 1e-12 * top}
    return all(np.abs(found[name] - exact[name]).max() <= most
               for found in (first_gradients(nudged(case), "float32") for _ in range(NUDGES))
               for name, most in allowed.items())


def make(name, seed):
    """(case, the seed that gives it): large networks are drawn until they are steady."""
    for attempt in range(ATTEMPTS):
        drawn = seed + 10000 * attempt
        case = models.make(name, drawn)
        if name in models.MAKERS or is_steady(case):
            return case, drawn
    sys.exit(f"export.py: {name}: in {ATTEMPTS} draws PyTorch's float32 gradients were never "
             f"within {STEADY} of its float64 ones")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--exporter", default="torchscript", choices=EXPORTERS)
    parser.add_argument("--shipped", action="store_true", help="leave out what fixtures lack")
    args = parser.parse_intermixed_args()
    torch.set_num_threads(1)
    for name in args.models or models.MAKERS:
        case, seed = make(name, args.seed)
        write_case(case, os.path.join(args.directory, name), seed, args.exporter, args.shipped)


if __name__ == "__main__":
    sys.exit(main())
