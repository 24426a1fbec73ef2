#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `tasuki import` runs: a user's PyTorch model to ONNX, a user's data to safetensors.

    tasuki_import.py model SOURCE OUTPUT [--input NAME:DIMS[:TYPE]]... [options]
    tasuki_import.py data SOURCE OUTPUT [--names NAME,...] [--samples N]

SOURCE is FILE.py:NAME or MODULE:NAME. The command has checked the options.
"""
import argparse
import contextlib
import importlib
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import traceback

sys.dont_write_bytecode = True      # neither beside the user's files nor where this is installed
HERE = os.path.dirname(os.path.abspath(__file__))
FRAMES = 5                          # of the user's files, in an error


class Failure(Exception):
    """Said in one line, without a traceback."""


class Terminated(KeyboardInterrupt):
    """By SIGTERM: what was begun is removed."""


def terminate(*_):
    raise Terminated


def say(text):
    print(f"tasuki: {text}", file=sys.stderr, flush=True)


def is_own(path):
    """A file of this helper, or of an installed package: not where the user looks first."""
    return path.startswith((HERE + os.sep, "<")) or "site-packages" in path \
        or path.startswith(os.path.dirname(os.__file__) + os.sep)


def describe(error, doing):
    """The end of the traceback, from the user's own files where it has any."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not is_own(frame.filename)]
    lines = []
    for frame in own[-FRAMES:]:
        lines.append(f"  {frame.filename}:{frame.lineno}, in {frame.name}")
        if frame.line:
            lines.append(f"    {frame.line}")
    if isinstance(error, SyntaxError) and error.filename and not is_own(error.filename):
        lines.append(f"  {error.filename}:{error.lineno}")
        lines.append(f"    {(error.text or '').strip()}")
    said = [line for line in str(error).strip().splitlines() if line.strip()]
    kind = type(error).__name__
    first = f"error: {doing}: {kind}: {said[0]}" if said else f"error: {doing}: {kind}"
    return "\n".join([first, *lines, *("  " + line for line in said[1:20])])


@contextlib.contextmanager
def users_code(doing):
    """Whatever the user's code raises becomes a Failure that shows where."""
    try:
        yield
    except Failure:
        raise
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:      # a user's sys.exit() is no success either
        raise Failure(describe(error, doing)[len("error: "):]) from error


def need(*modules):
    """PyTorch and what its exporter wants; said with what to install."""
    missing = []
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError as error:
            if error.name not in (None, name) and not error.name.startswith(name + "."):
                raise Failure(f"{name} cannot be imported: {error}") from error
            missing.append(name)
    if missing:
        raise Failure(f"{sys.executable} has no {' and no '.join(missing)}: install with "
                      f"\"{sys.executable} -m pip install {' '.join(missing)}\", or name another "
                      "Python by --python or TASUKI_PYTHON")


def load_module(where):
    if not where.endswith(".py"):
        sys.path.insert(0, os.getcwd())
        return importlib.import_module(where)
    path = os.path.abspath(where)
    if not os.path.isfile(path):
        raise Failure(f"{where}: no such file")
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location(
        os.path.splitext(os.path.basename(path))[0], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module     # as dataclasses and pickle expect
    spec.loader.exec_module(module)
    return module


def load(source):
    """The object that SOURCE names, as it is in the user's file."""
    where, _, name = source.rpartition(":")
    with users_code(where):
        found = load_module(where)
    for part in name.split("."):
        if not hasattr(found, part):
            names = sorted(key for key, value in vars(found).items()
                           if not key.startswith("_") and callable(value))
            raise Failure(f"{where}: there is no {name}"
                          + (f"; it has {', '.join(names[:12])}" if names else ""))
        found = getattr(found, part)
    return found


@contextlib.contextmanager
def workshop(output):
    """A folder beside the output that is gone in the end: files are renamed out of it."""
    folder = os.path.dirname(os.path.abspath(output))
    if not os.path.isdir(folder):
        raise Failure(f"{output}: no such folder")
    if os.path.exists(output) and not os.path.isfile(output):
        raise Failure(f"{output}: not a regular file")
    try:
        path = tempfile.mkdtemp(prefix="." + os.path.basename(output) + ".", dir=folder)
    except OSError as error:
        raise Failure(f"{output}: {error.strerror}") from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def release(path, target):
    """On disk before it has its name."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, 0o666 & ~mask)
    os.replace(path, target)


def parse(words):
    parser = argparse.ArgumentParser(prog="tasuki_import.py")
    parser.add_argument("what", choices=("model", "data"))
    parser.add_argument("source")
    parser.add_argument("output")
    parser.add_argument("--input", action="append", default=[])
    parser.add_argument("--no-weights", action="store_true")
    parser.add_argument("--exporter", choices=("auto", "dynamo", "torchscript"), default="auto")
    parser.add_argument("--opset", type=int, default=0)
    parser.add_argument("--names", default="")
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--quiet", action="store_true")
    return parser.parse_args(words)


def main():
    args = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, terminate)
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != HERE]
    sys.argv = [args.source]            # what the user's file may look at is not ours
    try:
        if args.what == "model":
            need("torch", "onnx", "onnxscript")
            work = load_module(os.path.join(HERE, "import_model.py"))
        else:
            need("numpy")
            work = load_module(os.path.join(HERE, "import_data.py"))
        sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != HERE]
        work.run(args, sys.modules[__name__])
    except Failure as failure:
        say(f"error: {failure}")
        return 1
    except Terminated:
        return 143
    except KeyboardInterrupt:
        return 130
    except MemoryError:
        say(f"error: {args.source}: out of memory")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
