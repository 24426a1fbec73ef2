#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What tests/gpu/run runs once all is built: every check that wants a GPU, on one GPU.

Operators beside the reference, curves of one stage, of several ranks in this process, and of what
a run may be told besides, beside the CPU's, and of small networks beside PyTorch's on the same GPU,
compute-sanitizer, the forecast of a step beside what was measured, how large a BERT fits, and samples
a second beside PyTorch, eager and compiled, the last four where there is what they need. What only
compares runs beside other such checks, as many as --jobs says, and networks that are timed are exported
and compiled meanwhile; what is timed runs alone. A check that fails does not end the others; the exit status is 1 where one has.
TASUKI_GPU_PRELOAD is preloaded into what uses the GPU: the stand-in, whose results are not written
among those of GPUs.
"""
import argparse
import concurrent.futures
import contextlib
import datetime
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from peaks import peak
from rival import ANSWER

HERE = os.path.dirname(os.path.abspath(__file__))
CURVES = ["mlp", "cnn", "tied", "transformer"]      # of tests/data/model
PLANS = [("1 stage", 1, ["--stages", "1", "--micro-batches", "2"]),
         ("2 stages", 2, ["--stages", "2", "--replicas", "1,1", "--micro-batches", "2"]),
         ("2 replicas", 2, ["--stages", "1", "--replicas", "2", "--micro-batches", "1"]),
         ("2 stages of 2", 4, ["--stages", "2", "--replicas", "2,2", "--micro-batches", "2"])]
# What a run may be told besides: how the GPU does it, and what is trained, there and on the CPU.
FEATURES = [("offload", 1, ["--stages", "1", "--offload", "optimizer"], []),
            ("recompute", 1, ["--stages", "1", "--micro-batches", "2", "--recompute", "full"], []),
            ("no-graphs", 1, ["--stages", "1", "--no-cuda-graphs"], []),
            ("no-chains", 1, ["--stages", "1"], []),
            ("zero", 2, ["--stages", "1", "--replicas", "2", "--micro-batches", "1", "--zero"],
             ["--optimizer", "adamw", "--no-decay", "*bias*"]),
            ("interleaved", 2, ["--schedule", "interleaved", "--stages", "4", "--replicas",
                                "1,1,1,1", "--micro-batches", "4"], []),
            ("zb-v", 2, ["--schedule", "zb-v", "--stages", "4", "--replicas", "1,1,1,1",
                         "--micro-batches", "4"], []),
            ("lamb", 1, ["--stages", "1"], ["--optimizer", "lamb", "--clip-norm", "0.5"]),
            ("lars", 2, ["--stages", "1", "--replicas", "2", "--micro-batches", "1"],
             ["--optimizer", "lars"]),
            ("resumed", 1, ["--stages", "1"], [])]
# Of a loss over some steps: float32 in another order; rounded to the 8 bits of bfloat16, 11 of float16.
TOLERANCE = {"float32": 1e-4, "bf16": 1e-2, "fp16": 1e-2 / 8}
SPREADS = 3         # of what PyTorch itself is off
FORECAST = 0.05
TORCH_CURVES = ["mlp", "cnn", "encoder", "bert", "gpt2", "llama", "resnet50", "vit"]
CURVE_STEPS = 5
NORMED = ["resnet50"]       # of BatchNorms and pools of images, which cuDNN has in 16 bits, too
BY_CUDNN = ["norm", "pool", "norm,pool"]
LIBRARY_KERNEL = re.compile("cudnn|cublas|cutlass|xmma|nvjet", re.I)
ROOM_OF_ONE = 45e9  # bytes: the Llama-like's step, which is the largest
SANITIZED = [("cnn", "float32"), ("cnn", "bf16"), ("causal", "bf16")]


class Skip(Exception):
    """What is missing."""


class Checks:
    def __init__(self, args, directory):
        self.args, self.directory = args, directory
        self.tasuki = os.path.join(args.build, "tasuki")
        self.rows, self.lock, self.pytorch = [], threading.Lock(), threading.Lock()
        self.pool = concurrent.futures.ThreadPoolExecutor(args.jobs)
        self.rivals, self.rival_pool = {}, concurrent.futures.ThreadPoolExecutor(1)
        self.path, self.head, self.cache = "", {}, "cache"

    def folder(self):
        return tempfile.mkdtemp(dir=self.directory)

    def environment(self, **more):
        env = dict(os.environ, TASUKI_CACHE_DIR=os.path.join(self.directory, self.cache),
                   TASUKI_PKGLIBDIR=os.path.join(self.args.build, ".libs"), **more)
        if os.environ.get("TASUKI_GPU_PRELOAD"):
            env.setdefault("LD_PRELOAD", os.environ["TASUKI_GPU_PRELOAD"])
        else:
            env["TASUKI_TEST_LONG"] = "1"
        return env

    def call(self, command, **more):
        done = subprocess.run(command, env=self.environment(**more), text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=self.args.timeout)
        if done.returncode:
            last = done.stdout.strip().splitlines()[-12:]
            raise RuntimeError(f"status {done.returncode}: {' '.join(command)}\n"
                               + "\n".join(last))
        return done.stdout

    def train(self, options, wrapper=(), **more):
        """The lines of the log."""
        log = os.path.join(self.folder(), "log.jsonl")
        self.call([*wrapper, self.tasuki, "train", *options, "--threads", "1", "-q",
                   "--log", log], **more)
        with open(log, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def row(self, check, what, function):
        row = {"check": check, "what": what}
        self.rows.append(row)
        return self.pool.submit(self.fill, row, function)

    def alone(self, check, what, function):
        """When nothing else runs."""
        self.finish()
        self.row(check, what, function).result()

    def finish(self):
        self.pool.shutdown()
        self.pool = concurrent.futures.ThreadPoolExecutor(self.args.jobs)

    def fill(self, row, function):
        begin = time.time()
        try:
            row.update(result="ok", figures=function() or {})
        except Skip as why:
            row.update(result="skipped", note=str(why))
        except Exception as error:      # whatever it is, it is this row's
            row.update(result="FAILED", note=f"{type(error).__name__}: {error}")
        row["seconds"] = round(time.time() - begin, 1)
        with self.lock:
            print(f"gpu: {line_of(row)}", flush=True)
            write(self)


def line_of(row):
    figures = ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                        for name, value in row.get("figures", {}).items())
    note = row.get("note", "").splitlines()
    return (f"{row['result']:8}{row['check']:12}{row['what']:34}{row['seconds']:8.1f} s  "
            f"{figures or (note[-1] if note else '')}").rstrip()


def losses(log):
    return [line["loss"] for line in log if "step" in line and "event" not in line]


def operators(checks, program, backend="cuda", **more):
    text = checks.call([os.path.join(checks.args.build, "tests", "unit", program)],
                       TASUKI_TEST_BACKEND=backend, **more)
    if "SKIPPED" in text:
        raise RuntimeError(f"{program} skips what it is to check")
    return {"tests": len(re.findall(r"^(?:ok|\[ +OK)", text, re.M))}


def network(checks, name):
    folder = os.path.join(checks.args.top, "tests", "data", "model", name)
    more = {"cnn": ["--batchnorm-samples", "2"], "causal": ["--loss", "cross-entropy:y,t"]}.get(name, [])
    return [os.path.join(folder, "model.onnx"), "--data",
            os.path.join(folder, "train.safetensors"), *more, "--global-batch", "8",
            "--steps", "5", "--lr", "0.03", "--optimizer", "momentum"]


def compare(got, expected, precision, spread=None):
    off = [abs(a - b) / abs(b) for a, b in zip(got, expected)]
    bound = [TOLERANCE[precision] + SPREADS * s for s in spread or [0] * len(expected)]
    if len(got) != len(expected) or not all(a <= b for a, b in zip(off, bound)):
        raise RuntimeError(f"losses {got} instead of {expected}, to be off by {bound} at most")
    return {"off by": max(off), **({"PyTorch by": max(spread)} if spread else {})}


def curve(checks, options, expected, ranks, plan, precision, spread=None, **more):
    """'spread': how far off rounding alone is, from step to step; 'more' is for the environment."""
    # Plans are pinned: that links are measured one network shows.
    measure = "quick" if os.path.join("mlp", "model.onnx") in options[0] else "none"
    got = losses(checks.train([*options, "--device", "cuda", "--precision", precision,
                               "--ranks-in-process", str(ranks), "--measure", measure, *plan],
                              **more))
    return compare(got, expected, precision, spread)


def expected_losses(checks, options):
    return losses(checks.train([*options, "--device", "cpu", "--stages", "1",
                                "--micro-batches", "1"]))


def curves(checks):
    for name in checks.args.curves.split(","):
        options = network(checks, name)
        expected = checks.pool.submit(expected_losses, checks, options)
        for title, ranks, plan in PLANS:
            checks.row("curve", f"{name}, {title}",
                       lambda o=options, e=expected, r=ranks, p=plan:
                       curve(checks, o, e.result(), r, p, "float32"))
        title, ranks, plan = PLANS[1]
        for narrow in ("bf16", "fp16"):
            checks.row("curve", f"{name}, {title}, {narrow}",
                       lambda o=options, e=expected, r=ranks, p=plan, n=narrow:
                       curve(checks, o, e.result(), r, p, n))


def resumed(checks, options, expected):
    """Some steps, and the rest from a checkpoint."""
    folder, got = os.path.join(checks.folder(), "checkpoints"), []
    for steps in ("3", "5"):
        got += losses(checks.train([*options, "--device", "cuda", "--stages", "1", "--steps", steps,
                                    "--checkpoint", folder, "--resume"]))
    return compare(got, expected, "float32")


def features(checks):
    for title, ranks, plan, training in FEATURES:
        options = [*network(checks, "transformer"), *training]
        more = {"TASUKI_CUDA_CHAINS": "0"} if title == "no-chains" else {}
        if title not in checks.args.features.split(","):
            continue
        if title == "resumed":
            checks.row("feature", title,
                       lambda o=options: resumed(checks, o, expected_losses(checks, o)))
            continue
        checks.row("feature", title,
                   lambda o=options, r=ranks, p=plan, m=more:
                   curve(checks, o, expected_losses(checks, o), r, p, "float32", **m))


def hazards(text):
    """Of what racecheck wrote, how many are in kernels of libraries, which wait for each other by
    barriers in memory, that it does not know. Any other is an error.
    """
    found = re.findall(r"(?:Write|Read|Atomic) access at (?:void )?(\S+)", text)
    own = [name for name in found if not LIBRARY_KERNEL.search(name)]
    if own:
        raise RuntimeError(f"racecheck: hazards in {', '.join(sorted(set(own)))}")
    said = re.search(r"RACECHECK SUMMARY: (\d+) hazards?", text)
    if not said or (int(said[1]) and not found):
        raise RuntimeError("racecheck: " + (text.strip().splitlines() or ["wrote nothing"])[-1])
    return {"hazards, all in libraries": int(said[1])} if found else {}


def sanitizer(checks, tool, name, precision):
    program = shutil.which("compute-sanitizer")
    if not program:
        raise Skip("no compute-sanitizer")
    if os.environ.get("TASUKI_GPU_PRELOAD"):
        raise Skip("a stand-in, no GPU")
    wrapper, written = [program, "--tool", tool], os.path.join(checks.folder(), "racecheck")
    wrapper += (["--print-limit", "0", "--log-file", written] if tool == "racecheck"
                else ["--error-exitcode", "9"])
    checks.train([*network(checks, name), "--device", "cuda", "--stages", "1", "--precision",
                  precision], wrapper)
    if tool != "racecheck":
        return None
    with open(written, encoding="utf-8", errors="replace") as file:
        return hazards(file.read())


def digits(checks):
    demo = os.path.join(checks.args.top, "etc", "demo")
    return [os.path.join(demo, "digits.onnx"), "--data",
            os.path.join(demo, "digits-train.safetensors"), "--batchnorm-samples", "32",
            "--optimizer", "momentum", "--lr", "0.03"], 128, None


def find_networks(checks):
    """Where they are, which is on the path by then."""
    path = [os.path.join(checks.args.top, "etc", "bench", "vs-pytorch"), HERE]
    if path[0] not in sys.path:
        sys.path[:0] = path
    try:
        import large
        import onnx
    except ImportError as error:
        raise Skip(f"no Python with torch and onnx: {error}") from None
    os.environ.setdefault("TASUKI_PYTHON", sys.executable)
    return path


def models_folder(checks, name, table):
    return os.path.join(checks.args.models or checks.directory, f"{name}-{table}")


def of_pytorch(checks, name, table="LARGE"):
    """A network of large.py's table or of etc/bench/vs-pytorch: options, batch, and the network."""
    find_networks(checks)
    import compare
    from rival import export, network_of
    chosen, folder = network_of(name, table), models_folder(checks, name, table)
    export(chosen, folder)
    return ([*compare.model_options(chosen, folder), *chosen.options], chosen.shape[0], chosen)


def timed(args):
    """Networks, and the precisions of each."""
    found = {}
    for word in args.networks.split(","):
        name, _, own = word.partition(":")
        found.setdefault(name, []).extend(own.split("+") if own else args.precisions.split(","))
    return found


class Rival:
    """The process that times PyTorch's side of a network: rival.py."""

    def __init__(self, checks, name, precisions):
        folder = models_folder(checks, name, "LARGE")
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        self.limit = checks.args.timeout
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "rival.py"), name, checks.args.beside,
             ",".join(precisions), str(checks.args.steps), folder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.said, self.failed = self.answer(), None
        except RuntimeError as error:
            self.failed = str(error)

    def answer(self):
        """What it says next: one line, among those of libraries."""
        watch = threading.Timer(self.limit, self.process.kill)
        watch.start()
        try:
            for line in self.process.stdout:
                if line.startswith(ANSWER):
                    return json.loads(line[len(ANSWER):])
        finally:
            watch.cancel()
        raise RuntimeError("PyTorch's side ended: what it said is above")

    def ask(self, precision):
        if self.failed:
            raise RuntimeError(self.failed)
        print(precision, file=self.process.stdin, flush=True)
        return self.answer()

    def end(self):
        self.process.kill()
        self.process.communicate()


def prepare(checks, name):
    """Start it, if that was not done before."""
    find_networks(checks)
    if name not in checks.rivals:
        checks.rivals[name] = checks.rival_pool.submit(Rival, checks, name,
                                                       timed(checks.args)[name])
    return checks.rivals[name]


def at_once():
    """How many large networks are trained beside each other: by what they need, about."""
    import torch
    if not torch.cuda.is_available():
        return 1
    return max(1, int(torch.cuda.mem_get_info()[0] / ROOM_OF_ONE))


def losses_of_pytorch(chosen, steps, precision):
    import torch
    device = "cuda" if torch.cuda.is_available() else "cpu"
    kind = torch.float64 if precision == "float64" else torch.float32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    module = chosen.module().to(device, kind)
    x, target = (t.to(device, kind if t.is_floating_point() else t.dtype) for t in chosen.batch())
    optimizer, found = chosen.torch_optimizer(module.parameters()), []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            loss = chosen.torch_loss(module(x), target)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def plan_unmeasured(checks, options, memory=10**10):
    """A plan of one stage for a GPU with so many bytes, for which nothing is measured."""
    path = os.path.join(checks.folder(), "plan.json")
    checks.call([checks.tasuki, "plan", *options, "--device", "cuda", "--stages", "1",
                 "--micro-batches", "1", "--cluster", "flat:1,bandwidth=1e9,flops=1e14,"
                 "flops-tf32=1e14,flops-bf16=1e14,flops-fp16=1e14,"
                 f"memory-bandwidth=1e12,memory={memory}", "-q", "-o", path])
    return path


def torch_curve(checks, name, precision, **more):
    """The same weights, from the ONNX file, and the same batch; beside PyTorch in float64, from which
    its own losses in this precision show what rounding does.
    """
    with checks.pytorch:        # its switches and random numbers are the process's
        options, batch, chosen = of_pytorch(checks, name, "SMALL")
        expected = losses_of_pytorch(chosen, CURVE_STEPS, "float64")
        narrow = losses_of_pytorch(chosen, CURVE_STEPS, precision)
    spread = [abs(a - b) / abs(b) for a, b in zip(narrow, expected)]
    spread = [max(spread[:i + 1]) for i in range(len(spread))]
    model, data, groups = options[0], options[1:3], ["--batchnorm-samples", str(batch)]
    plan = plan_unmeasured(checks, [model, *data, "--loss", f"{chosen.loss}:y,t", "--optimizer",
                                    chosen.optimizer, "--precision", precision, "--global-batch",
                                    str(batch), *(groups if name == "resnet50" else [])])
    return curve(checks, [plan, *data, *chosen.options, "--steps", str(CURVE_STEPS),
                          "--no-shuffle"], expected, 1, [], precision, spread, **more)


def of_log(log, event):
    return next(line for line in log if line.get("event") == event)


def beside_pytorch(rival, precision, took):
    figures = {}
    try:
        answer = rival.ask(precision)
    except (OSError, RuntimeError, ValueError) as error:
        return {"PyTorch": str(error)}
    for variant, (theirs, peak) in answer.items():
        figures.update({f"PyTorch {variant} ms": 1e3 * theirs,
                        f"as fast as {variant}": theirs / took,
                        f"{variant} GB": peak / 1e9})
    return figures


def write_table(checks, name, precision, options, batch):
    """What a step takes by operator, each by itself."""
    own = [option for option in options if option not in ("-q", "--quiet")]
    for option in ("--lr", "--weight-decay"):
        if option in own:
            del own[own.index(option):own.index(option) + 2]
    os.makedirs(checks.args.results, exist_ok=True)
    text = checks.call([checks.tasuki, "profile", *own, "--device", "cuda", "--precision",
                        precision, "--batch-size", str(batch), "--format", "text"])
    with open(os.path.join(checks.args.results, f"{name}-{precision}-operators.txt"), "w",
              encoding="utf-8") as file:
        file.write(text)


def share_of_peak(checks, precision, flops):
    most = peak(checks.head["device"], precision)
    return {"MFU": flops / most} if most else {}


def tensor_cores(log, precision):
    """What libraries say of what they chose; where rounding is allowed some must use them."""
    found = of_log(log, "end")["tensor_cores"]
    if precision != "float32" and found["products"] and not found["on_them"]:
        raise RuntimeError(f"none of {found['products']} products in {precision} runs on tensor cores")
    return {"on tensor cores": f"{found['on_them']} of {found['products']}"}


def speed(checks, name, precision, **more):
    """'more', for the environment: of who computes what; then without PyTorch's side."""
    rival = None if name == "digits" or more else prepare(checks, name).result()
    options, batch, _ = digits(checks) if name == "digits" else of_pytorch(checks, name)
    log = checks.train([*options, "--device", "cuda", "--precision", precision, "--stages", "1",
                        "--micro-batches", "1", "--global-batch", str(batch), "--steps",
                        str(checks.args.steps + 3)], **more)
    steps = [line["seconds"] for line in log if "step" in line and "event" not in line]
    took = statistics.median(steps[3:])
    plan, forecast = of_log(log, "start")["plan"], of_log(log, "end")["predicted_seconds"]
    figures = {"samples/s": batch / took, "ms": 1e3 * took, "TFLOP/s": plan["flops"] / took / 1e12,
               "GB": max(of_log(log, "memory")["peak"]) / 1e9,
               **share_of_peak(checks, precision, plan["flops"] / took),
               **tensor_cores(log, precision),
               "forecast ms": 1e3 * forecast, "forecast off by": forecast / took - 1,
               "forecast holds": "yes" if abs(forecast / took - 1) <= FORECAST else "no"}
    if checks.args.tables and not more:
        write_table(checks, name, precision, options, batch)
    if rival and checks.args.beside:
        figures.update(beside_pytorch(rival, precision, took))
    return figures


def capacity(checks, shape):
    path = find_networks(checks)
    from capacity import Capacity
    return Capacity(checks, plan_unmeasured, [int(n) for n in shape.split(",")], path).run()


def device_of(checks):
    """Its name, as `tasuki info` has it; and driver and clocks where nvidia-smi tells."""
    text = checks.call([checks.tasuki, "info"])
    found = re.search(r"^ *cuda\W+(.+)$", text, re.M) or re.search(r"(\S.*, sm_\d+.*)$", text, re.M)
    if not found or "sm_" not in found[1]:
        sys.exit("gpu: no GPU that CUDA can use:\n" + text)
    driver = ""
    if shutil.which("nvidia-smi"):
        driver = subprocess.run(["nvidia-smi", "--format=csv,noheader",
                                 "--query-gpu=driver_version,clocks.max.sm,memory.total"],
                                stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
    return found[1].strip(), driver


def begin(checks):
    """Who measures what, and where that is written."""
    device, driver = device_of(checks)
    if "Fake" in device and os.path.realpath(checks.args.results) == os.path.join(HERE, "results"):
        sys.exit("gpu: results of a stand-in are none to keep: name a folder by --results")
    print(f"gpu: {device}")
    os.makedirs(checks.args.results, exist_ok=True)
    day = datetime.datetime.now(datetime.timezone.utc)
    gpu = re.sub(r"[^a-z0-9]+", "-", device.split(",")[0].lower()).strip("-")
    checks.path = os.path.join(checks.args.results, f"{day:%Y-%m-%d-%H%M%S}-{gpu}")
    checks.head = {"time": f"{day:%Y-%m-%dT%H:%MZ}", "device": device, "driver": driver,
                   "tasuki": checks.call([checks.tasuki, "--version"]).strip().splitlines()[0]}


def write(checks):
    path, head = checks.path, checks.head
    rows = [row for row in checks.rows if "seconds" in row]
    with open(path + ".json", "w", encoding="utf-8") as file:
        json.dump(dict(head, checks=rows), file, indent=1)
        file.write("\n")
    with open(path + ".txt", "w", encoding="utf-8") as file:
        file.writelines(f"{name}: {value}\n" for name, value in head.items() if value)
        file.writelines("\n" + line_of(row) for row in rows)
        file.write("\n")


def prepare_all(checks, wanted):
    """While other checks run, unless they need all of the memory."""
    if "speed" in wanted and "capacity" not in wanted and checks.args.jobs > 1:
        with contextlib.suppress(Skip):     # the rows say it
            find_networks(checks)
            checks.rival_pool = concurrent.futures.ThreadPoolExecutor(at_once())
            for name in timed(checks.args):
                if name != "digits":
                    prepare(checks, name)


def run_all(checks, wanted):
    prepare_all(checks, wanted)
    if "operators" in wanted:
        for program in ("test_ops", "test_cuda_product", "test_update", "test_chain"):
            checks.row("operators", program, lambda p=program: operators(checks, p))
        for narrow in ("bf16", "fp16"):
            checks.row("operators", f"test_ops, {narrow}",
                       lambda n=narrow: operators(checks, "test_ops", f"cuda-{n}"))
            checks.row("operators", f"test_ops, {narrow}, {BY_CUDNN[-1]} by cuDNN",
                       lambda n=narrow: operators(checks, "test_ops", f"cuda-{n}",
                                                  TASUKI_CUDA_CUDNN=BY_CUDNN[-1]))
    if "curves" in wanted:
        curves(checks)
    if "features" in wanted:
        features(checks)
    if "torch-curves" in wanted:
        for name in checks.args.torch_curves.split(","):
            for precision in ("float32", "bf16"):
                checks.row("torch-curve", f"{name}, {precision}",
                           lambda n=name, p=precision: torch_curve(checks, n, p))
            if name in NORMED:
                checks.row("torch-curve", f"{name}, bf16, {BY_CUDNN[-1]} by cuDNN",
                           lambda n=name: torch_curve(checks, n, "bf16",
                                                      TASUKI_CUDA_CUDNN=BY_CUDNN[-1]))
    if "sanitizer" in wanted:
        for tool in ("memcheck", "racecheck", "initcheck"):
            for name, precision in SANITIZED:
                checks.row("sanitizer", f"{tool}, {name}, {precision}",
                           lambda t=tool, n=name, p=precision: sanitizer(checks, t, n, p))
    if "capacity" in wanted:
        checks.alone("capacity", "BERT, bf16", lambda: capacity(checks, checks.args.capacity))
    checks.finish()
    if "speed" in wanted:
        speeds(checks)


def end_rival(checks, name):
    rival = checks.rivals.pop(name, None)
    if rival and not rival.cancel() and not rival.exception():
        rival.result().end()


def speeds(checks):
    """Costs that were measured beside other checks are worth nothing."""
    checks.cache = "quiet"
    concurrent.futures.wait(checks.rivals.values())
    for name, precisions in timed(checks.args).items():
        for precision in precisions:
            checks.alone("speed", f"{name}, {precision}",
                         lambda n=name, p=precision: speed(checks, n, p))
            for words in BY_CUDNN if name in NORMED and precision in ("bf16", "fp16") else []:
                checks.alone("speed", f"{name}, {precision}, {words} by cuDNN",
                             lambda n=name, p=precision, w=words:
                             speed(checks, n, p, TASUKI_CUDA_CUDNN=w))
        end_rival(checks, name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--top", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--results", required=True)
    parser.add_argument("--checks", default="operators,curves,features,torch-curves,sanitizer,capacity,speed")
    parser.add_argument("--capacity", default="2048,30522,512,8", metavar="WIDTH,WORDS,LENGTH,BATCH[,BYTES]",
                        help="of the BERT whose layers are counted")
    parser.add_argument("--curves", default=",".join(CURVES), help="of tests/data/model")
    parser.add_argument("--features", default=",".join(title for title, *_ in FEATURES),
                        help="of a run: what it may be told besides")
    parser.add_argument("--torch-curves", default=",".join(TORCH_CURVES), help="of large.py, small")
    parser.add_argument("--jobs", type=int, default=max(1, min(8, (os.cpu_count() or 1) // 2)),
                        help="of what only compares, at once")
    parser.add_argument("--steps", type=int, default=50, help="of what is timed")
    parser.add_argument("--networks", default="digits,mlp,resnet18,encoder-0,bert-large,"
                        "gpt2-medium,llama-1.3b,resnet50,vit-large",
                        metavar="NAME[:PRECISION+…],…",
                        help="that are timed; all but digits need a Python with torch and onnx")
    parser.add_argument("--precisions", default="float32,tf32,bf16",
                        help="in which they are timed; fp16 is there, too")
    parser.add_argument("--beside", metavar="eager,compile",
                        default="eager" if os.environ.get("TASUKI_GPU_PRELOAD") else "eager,compile",
                        help="what of PyTorch is timed, too")
    parser.add_argument("--models", metavar="FOLDER",
                        help="where exported networks are, and stay for the next run")
    parser.add_argument("--tables", action="store_true",
                        help="write what operators take, too, into files beside the results")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds of a program")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        checks = Checks(args, directory)
        begin(checks)
        try:
            run_all(checks, args.checks.split(","))
        finally:
            for pool in (checks.pool, checks.rival_pool):
                pool.shutdown(cancel_futures=True)
            for name in list(checks.rivals):
                end_rival(checks, name)
        print(f"gpu: {checks.path}.txt and .json")
    return 1 if any(row["result"] == "FAILED" for row in checks.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
