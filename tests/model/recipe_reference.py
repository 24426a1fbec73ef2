#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch's runs of recipes: python recipe_reference.py DIRECTORY SEED < recipes.json > runs.json

A recipe is {"name", "model", "optimizer", "options": {long option: value or list}} of `tasuki
train`; a run is its losses, learning rates, norms, evaluations, and the names of files with the
final parameters and their averages. For each model test.safetensors is written, whose 50 samples
fill no batch.
"""
import copy
import fnmatch
import json
import math
import os
import sys

import torch
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import batchnorm
import export
import models
import tensors

TEST = 50


class Lars(torch.optim.Optimizer):
    """You, Gitman, Ginsburg 2017, with the learning rate outside of the momentum."""

    def __init__(self, groups, lr, momentum, trust):
        super().__init__(groups, {"lr": lr, "momentum": momentum, "trust": trust})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                ratio, decay = 1.0, group["weight_decay"]
                norm, slope = p.norm(), p.grad.norm()
                if group["decays"] and norm > 0 and slope > 0:
                    ratio = group["trust"] * norm / (slope + decay * norm)
                direction = ratio * (p.grad + decay * p)
                state = self.state[p]
                state["m"] = direction + group["momentum"] * state.get("m", 0)
                p -= group["lr"] * state["m"]


class Lamb(torch.optim.Optimizer):
    """You et al. 2019, by Adam's moments with their bias corrected."""

    def __init__(self, groups, lr, betas, eps):
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps})
        self.count = 0

    @torch.no_grad()
    def step(self):
        self.count += 1
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                state["m"] = first * state.get("m", 0) + (1 - first) * p.grad
                state["v"] = second * state.get("v", 0) + (1 - second) * p.grad ** 2
                m = state["m"] / (1 - first ** self.count)
                v = state["v"] / (1 - second ** self.count)
                u = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p
                ratio = 1.0
                if group["decays"] and p.norm() > 0 and u.norm() > 0:
                    ratio = p.norm() / u.norm()
                p -= group["lr"] * ratio * u


def make_optimizer(name, module, o):
    decay, patterns = o.get("weight-decay", 0.0), o.get("no-decay", [])
    groups = [{"params": [], "weight_decay": decay, "decays": True},
              {"params": [], "weight_decay": 0.0, "decays": False}]
    for key, p in module.named_parameters():
        out = any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)
        groups[out]["params"].append(p)
    groups = [group for group in groups if group["params"]]
    lr, betas = o["lr"], (o.get("beta1", 0.9), o.get("beta2", 0.999))
    if name == "lars":
        return Lars(groups, lr, o.get("momentum", 0.9), o.get("trust-coefficient", 0.001))
    if name == "lamb":
        return Lamb(groups, lr, betas, o.get("epsilon", 1e-6))
    for group in groups:
        del group["decays"]
    if name in ("adam", "adamw"):
        make = torch.optim.Adam if name == "adam" else torch.optim.AdamW
        return make(groups, lr=lr, betas=betas, eps=o.get("epsilon", 1e-8))
    momentum = 0.0 if name == "sgd" else o.get("momentum", 0.9)
    return torch.optim.SGD(groups, lr=lr, momentum=momentum, nesterov=name == "nesterov")


def steps_of(span, steps_per_epoch):
    text = str(span)
    return int(text[:-6]) * steps_per_epoch if text.endswith("epochs") else int(text)


def make_schedule(optimizer, o, steps_per_epoch, total):
    kind, warmup = o.get("lr-schedule", "constant"), steps_of(o.get("warmup", 0), steps_per_epoch)
    length = steps_of(o.get("lr-length", total), steps_per_epoch)
    final = o.get("lr-final", 0.0)
    if kind == "one-cycle":
        rise = warmup / length if warmup else 0.3
        return lr_scheduler.OneCycleLR(optimizer, o["lr"], length, pct_start=rise,
                                       cycle_momentum=False)
    rising = [lr_scheduler.LinearLR(optimizer, 1 / warmup, total_iters=warmup - 1)] \
        if warmup else []
    if kind == "step":
        falling = lr_scheduler.StepLR(optimizer, steps_of(o["lr-every"], steps_per_epoch),
                                      o.get("lr-factor", 0.1))
        return lr_scheduler.ChainedScheduler(rising + [falling])
    if kind == "cosine":
        falling = lr_scheduler.CosineAnnealingLR(optimizer, length - warmup, final * o["lr"])
    elif kind == "linear":
        falling = lr_scheduler.LinearLR(optimizer, 1.0, final, length - warmup)
    else:
        falling = lr_scheduler.ConstantLR(optimizer, 1.0, 1)
    return lr_scheduler.SequentialLR(optimizer, rising + [falling], [warmup]) if rising \
        else falling


def loss_of(case, output, target, smoothing=0.0):
    if case.loss == "mse":
        return torch.nn.functional.mse_loss(output, target)
    return torch.nn.functional.cross_entropy(output.flatten(0, -2), target.flatten(),
                                             label_smoothing=smoothing)


def evaluate(case, module, inputs, target):
    module.eval()
    with torch.no_grad():
        output = module(*(value[:TEST] for value in inputs))
        result = {"loss": loss_of(case, output, target[:TEST]).item()}
        if case.loss != "mse":
            result["accuracy"] = (output.argmax(-1) == target[:TEST]).double().mean().item()
            if target.dim() > 1:
                result["perplexity"] = math.exp(result["loss"])
    module.train()
    return result


def weights(module):
    return [p.detach().clone() for p in module.parameters()]


def set_weights(module, values):
    with torch.no_grad():
        for p, value in zip(module.parameters(), values):
            p.copy_(value)


def run(recipe, directory, seed):
    o = recipe["options"]
    case = models.make(recipe["model"], seed)
    steps = case.steps
    export.start_where_the_file_does(case, os.path.join(directory, case.name, "model.onnx"))
    module = batchnorm.by_groups(copy.deepcopy(case.module), o.get("batchnorm-samples"))
    module = module.double().train()
    inputs = [export.to_torch(data, torch.float64) for data in case.inputs.values()]
    target = export.to_torch(case.target_data, torch.float64)
    optimizer = make_optimizer(recipe["optimizer"], module, o)
    schedule = make_schedule(optimizer, o, len(target) // case.global_batch, steps)
    averages = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(o["ema"])) \
        if "ema" in o else None
    late = o.get("schedule") == "2bw"
    old = weights(module)
    result = {"loss": [], "lr": [], "gradient_norm": [], "evaluation": {}}
    for step in range(steps):
        at = step * case.global_batch % len(target)
        part = slice(at, at + case.global_batch)
        optimizer.zero_grad()
        if late:        # gradients of the weights before the last update
            latest = weights(module)
            set_weights(module, old)
        loss = loss_of(case, module(*(value[part] for value in inputs)), target[part],
                       o.get("label-smoothing", 0.0))
        loss.backward()
        if late:
            set_weights(module, latest)
            old = latest
        if "clip-norm" in o:
            result["gradient_norm"].append(
                torch.nn.utils.clip_grad_norm_(module.parameters(), o["clip-norm"]).item())
        result["lr"].append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step + 1 < getattr(schedule, "total_steps", steps + 1):
            schedule.step()
        if averages:
            averages.update_parameters(module)
        result["loss"].append(loss.item())
        if step + 1 in recipe["evaluate"]:
            tested = averages.module if averages and o.get("eval-ema") else module
            result["evaluation"][str(step + 1)] = evaluate(case, tested, inputs, target)
    for name, value in (("final", module), ("ema", averages and averages.module)):
        if value:
            result[name] = os.path.join(directory, f"{recipe['name']}-{name}.safetensors")
            tensors.write(result[name], export.names_and_values(value))
    return result


def main():
    directory, seed = sys.argv[1], int(sys.argv[2])
    recipes = json.load(sys.stdin)
    torch.set_num_threads(1)
    for name in {recipe["model"] for recipe in recipes}:
        case = models.make(name, seed)
        data = {key: value[:TEST] for key, value in case.inputs.items()}
        data[case.target] = case.target_data[:TEST]
        tensors.write(os.path.join(directory, name, "test.safetensors"), data)
    json.dump({recipe["name"]: run(recipe, directory, seed) for recipe in recipes}, sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
