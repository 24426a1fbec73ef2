# SPDX-License-Identifier: MIT
"""Run `tasuki train` on one rank or many and read what it wrote."""
import functools
import json
import os
import random
import shutil
import subprocess
import tempfile
import time

import tensors
from tap import Failed, Skip, check

HERE = os.path.dirname(os.path.abspath(__file__))
SRCDIR = os.environ.get("srcdir", os.path.join(HERE, "..", ".."))
TASUKI = os.environ.get("TASUKI", os.path.join(SRCDIR, "build", "tasuki"))
LONG = os.environ.get("TASUKI_TEST_LONG", "") not in ("", "0", "no")
SEED = int(os.environ.get("TASUKI_TEST_SEED") or random.randrange(1, 10000))
HANGS = float(os.environ.get("TASUKI_TEST_HANGS", "300"))   # seconds: it will never end

# Two cores and more ranks than that: waiting ranks give way.
ENVIRONMENT = {"OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl_base_warn_component_unused":
               "0", "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMP_NUM_THREADS": "1",
               "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
               "OMPI_MCA_hwloc_base_binding_policy": "none", "TASUKI_THREADS": "1",
               "TASUKI_MEASURE": "none", "TASUKI_TEST_HASTE": "1"}


def some(draw, everything, n):
    """A sample; all where TASUKI_TEST_LONG is set."""
    return list(everything) if LONG else draw.sample(everything, n)


@functools.cache
def python_with_torch():
    if os.environ.get("TASUKI_PYTHON") == "none":
        return None
    candidates = [os.environ.get("TASUKI_PYTHON"), "python3"]
    for python in filter(None, candidates):
        probe = [python, "-c", "import torch, numpy, onnx"]
        try:
            if subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=120).returncode == 0:
                return python
        except (OSError, subprocess.TimeoutExpired):
            pass
    return None


class Case:
    """One network: its files, its options, PyTorch's runs of it."""

    def __init__(self, directory):
        self.directory = directory
        with open(os.path.join(directory, "case.json")) as file:
            self.__dict__.update(json.load(file))

    def path(self, name):
        return os.path.join(self.directory, name)

    @property
    def tolerance(self):
        """Of a float64 curve beside PyTorch's."""
        return 1e-10 if self.exact else 1e-7

    def reference(self, precision, optimizer, global_batch=None, group=None):
        """PyTorch's run of it; None where there is none."""
        for run in self.runs:
            if (run["precision"], run["optimizer"]) == (precision, optimizer) \
                    and run["global_batch"] == (global_batch or self.global_batch) \
                    and (group is None or run["batchnorm_samples"] == group):
                return run
        return None


class Result:
    def __init__(self, code, out, err, log, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds
        self.steps = [line for line in log if "step" in line and "event" not in line]
        self.events = [line for line in log if "event" in line]

    @property
    def losses(self):
        return [line["loss"] for line in self.steps]

    def event(self, name):
        found = [line for line in self.events if line["event"] == name]
        return found[-1] if found else None


class Session:
    """A scratch directory, the networks in it, and runs."""

    def __init__(self):
        self.scratch = tempfile.mkdtemp(prefix="tasuki-model-")
        self.cases, self.count, self.source = {}, 0, None
        self.one_process = False        # ranks are threads of one process, not processes of MPI
        self.mpirun = shutil.which("mpirun")
        # Launchers of other tests that end meanwhile clear what they think is theirs in /tmp.
        self.environment = {**os.environ, **ENVIRONMENT,
                            "OMPI_MCA_orte_tmpdir_base": self.scratch,
                            "PRTE_MCA_prte_tmpdir_base": self.scratch}

    def close(self):
        if os.environ.get("TASUKI_TEST_KEEP"):
            print("# kept", self.scratch)
        else:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def load(self, names, exporter="torchscript"):
        """Make the networks live with torch; without torch take the shipped ones."""
        python = python_with_torch()
        root = os.path.join(self.scratch, exporter)
        if python:
            subprocess.run([python, os.path.join(HERE, "export.py"), root, "--seed", str(SEED),
                            "--exporter", exporter, *names], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.source = f"PyTorch, seed {SEED}"
        else:
            root = os.path.join(SRCDIR, "tests", "data", "model")
            self.source = "shipped fixtures, no Python with torch here"
        found = {}
        for name in names:
            if os.path.exists(os.path.join(root, name, "case.json")):
                found[name] = Case(os.path.join(root, name))
        if exporter == "torchscript":
            self.cases.update(found)
        return found

    def case(self, name):
        if name not in self.cases:
            raise Skip(f"no fixture of {name}")
        return self.cases[name]

    def temporary(self, suffix=""):
        self.count += 1
        return os.path.join(self.scratch, f"{self.count}{suffix}")

    def tasuki(self, arguments, ranks=0, environment=None):
        """Run tasuki; 0 ranks: without a launcher."""
        command = [TASUKI, *map(str, arguments)]
        if ranks:
            if not self.mpirun:
                raise Skip("no mpirun")
            command = [self.mpirun, "-n", str(ranks), *command]
        began = time.monotonic()
        try:
            run = subprocess.run(command, env={**self.environment, **(environment or {})},
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, timeout=HANGS, text=True,
                                 errors="replace")
        except subprocess.TimeoutExpired:
            raise Failed("never ended: " + " ".join(command)) from None
        return Result(run.returncode, run.stdout, run.stderr, [], time.monotonic() - began)

    def exported(self, checkpoint):
        """Parameters and running statistics of the newest checkpoint, as `export` gives them."""
        path = self.temporary(".safetensors")
        run = self.tasuki(["export", checkpoint, "--format", "safetensors", "-o", path, "-q"])
        check(run.code == 0, f"export: exit code {run.code}\n{run.err}")
        return tensors.read(path)

    def train(self, case, precision="float64", optimizer="sgd", ranks=0, fails=False,
              environment=None, plan=None, **options):
        """Train 'case', by a plan file if there is one; options are long options ('_' for '-'),
        True a flag, a list several, None left out."""
        if ranks and self.one_process:
            options["ranks_in_process"], ranks = ranks, 0
        log = self.temporary(".jsonl")
        settings = {"data": case.path("train.safetensors"), "global_batch": case.global_batch,
                    "steps": case.steps, "loss": case.loss, "precision": precision,
                    "optimizer": optimizer, "log": log, "no_shuffle": True, "quiet": True}
        settings.update(options)
        words = ["train", plan or case.path("model.onnx"), *case.options.get(optimizer, [])]
        for pattern in getattr(case, "freeze", []):
            words += ["--freeze", pattern]
        for name, value in settings.items():
            if value is True:
                words.append("--" + name.replace("_", "-"))
            elif isinstance(value, list):
                for item in value:
                    words += ["--" + name.replace("_", "-"), str(item)]
            elif value is not None and value is not False:
                words += ["--" + name.replace("_", "-"), str(value)]
        result = self.tasuki(words, ranks, environment)
        if os.path.exists(log):
            with open(log) as file:
                lines = [json.loads(line) for line in file]
            result = Result(result.code, result.out, result.err, lines, result.seconds)
        if not fails:
            check(result.code == 0, f"exit code {result.code}: tasuki " + " ".join(
                map(str, words)) + f" ({ranks} ranks)\n{result.err[-2000:]}")
        return result


def cluster(devices, memory="16e9"):
    """A machine that does not change, so that a model is cut alike each time."""
    return (f"flat:{devices},bandwidth=1e9,latency=1e-5,memory={memory},flops=1e12,"
            "memory-bandwidth=1e11")


def replicas_text(replicas):
    return ",".join(map(str, replicas))


def shard_paths(checkpoint):
    """The tensor files of the newest checkpoint."""
    with open(os.path.join(checkpoint, "latest")) as file:
        folder = os.path.join(checkpoint, file.read().strip())
    found = [os.path.join(folder, name) for name in sorted(os.listdir(folder))
             if name.endswith(".safetensors")]
    check(found, f"{folder} holds no tensors")
    return found


def shards(checkpoint):
    """Their bytes: optimizer state too."""
    found = {}
    for path in shard_paths(checkpoint):
        with open(path, "rb") as file:
            found[os.path.basename(path)] = file.read()
    return found


def state(checkpoint):
    """What they hold by (kind, parameter), whichever ranks wrote the parts of it."""
    found = {}
    folder = os.path.dirname(shard_paths(checkpoint)[0])
    with open(os.path.join(folder, "state.json")) as file:
        files = json.load(file)["files"]
    for entry in files:
        held = tensors.read(os.path.join(folder, entry["file"]))
        for piece in entry["pieces"]:
            parts = found.setdefault((piece["kind"], piece["name"]), {})
            parts[piece["start"]] = held[piece["key"]][2]
    return {key: b"".join(parts[start].tobytes() for start in sorted(parts))
            for key, parts in found.items()}
