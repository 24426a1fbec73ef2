# SPDX-License-Identifier: MIT
"""Samples of any kind to a safetensors file: one tensor for each name, samples first.

SOURCE gives, or is, one of: tensors (a dict of them, a tuple of them) whose first dimension counts
samples; a DataLoader, which gives batches of those; a data set or an iterable, which gives samples
one by one, as dicts, tuples or single tensors.
"""
import json
import os
import struct

import numpy as np

PIECE = 1 << 22         # bytes copied at once
TYPES = {"float64": "F64", "float32": "F32", "int64": "I64", "int32": "I32", "uint8": "U8",
         "bool": "BOOL"}
WIDER = {"float16": "float32", "bfloat16": "float32", "int8": "int32", "int16": "int32",
         "uint16": "int32", "uint32": "int64"}
tool = None             # the helper's module


def to_array(value, name):
    """Any tensor, array, image or number, in a type of the file."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    if isinstance(value, float):
        value = np.float32(value)
    array = np.asarray(value)
    if isinstance(value, (list, tuple)) and array.dtype == np.float64:
        array = array.astype(np.float32)
    array = array.astype(WIDER.get(str(array.dtype), array.dtype))
    if str(array.dtype) not in TYPES:
        raise tool.Failure(f"\"{name}\": a {type(value).__name__} of {array.dtype} is no tensor")
    return array


# Samples --------------------------------------------------------------------------------

def is_tensor(value):
    return hasattr(value, "shape") and hasattr(value, "dtype")


def is_columns(data):
    """Tensors that have all samples, by name or in order."""
    values = list(data.values()) if isinstance(data, dict) else data
    return isinstance(values, (list, tuple)) and len(values) > 0 \
        and (isinstance(data, (dict, tuple))) and all(map(is_tensor, values)) \
        and all(len(value.shape) and value.shape[0] == values[0].shape[0] for value in values)


class Namer:
    """Names of what one sample has: its keys, or --names in order."""

    def __init__(self, names):
        self.names = names.split(",") if names else []

    def __call__(self, sample):
        if hasattr(sample, "items"):
            keys = list(sample)
            unknown = [name for name in self.names if name not in keys]
            if unknown:
                raise tool.Failure(f"--names: a sample has no \"{unknown[0]}\", but "
                                   f"{', '.join(map(str, keys))}")
            return {str(key): sample[key] for key in self.names or keys}
        values = list(sample) if isinstance(sample, (tuple, list)) else [sample]
        names = self.names or {1: ["x"], 2: ["x", "label"]}.get(len(values))
        if not names or len(names) != len(values):
            raise tool.Failure(f"a sample is {len(values)} values"
                               + (f", --names has {len(names)}" if names else
                                  ": say --names NAME,... in their order"))
        return dict(zip(names, values))


def samples_of(data, namer):
    """Stretches of samples: {name: array}, the first dimension counting them."""
    if is_tensor(data):
        data = (data,)
    if is_columns(data):
        columns = namer(data)
        n = len(next(iter(columns.values())))
        step = 1024
        return ({name: to_array(value[at:at + step], name)
                 for name, value in columns.items()} for at in range(0, n, step))
    if type(data).__name__ == "DataLoader" and hasattr(data, "batch_size"):
        return ({name: to_array(value, name) for name, value in namer(batch).items()}
                for batch in data)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        items = (data[i] for i in range(len(data)))
    elif hasattr(data, "__iter__") or hasattr(data, "__next__"):
        items = iter(data)
    else:
        raise tool.Failure(f"a {type(data).__name__} is neither tensors nor a data set")
    return ({name: to_array(value, name)[None] for name, value in namer(item).items()}
            for item in items)


# The file -------------------------------------------------------------------------------

class Column:
    """One tensor as it grows, in a file of its own."""

    def __init__(self, folder, index, name, array):
        self.name, self.dtype, self.shape, self.n = name, array.dtype, array.shape[1:], 0
        self.path = os.path.join(folder, f"{index}")
        self.file = open(self.path, "wb")

    def append(self, array):
        if array.dtype != self.dtype or array.shape[1:] != self.shape:
            raise tool.Failure(f"sample {self.n}: \"{self.name}\" is {describe(array)}, those "
                               f"before it {describe(np.empty((1,) + self.shape, self.dtype))}")
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        self.file.write(np.ascontiguousarray(little).tobytes())
        self.n += len(array)


def describe(array):
    return f"{array.dtype} {'x'.join(map(str, array.shape[1:])) or 'scalar'}"


def collect(stretches, folder, limit):
    columns, n = {}, 0
    for stretch in stretches:
        if not columns:
            columns = {name: Column(folder, i, name, array)
                       for i, (name, array) in enumerate(stretch.items())}
        if set(stretch) != set(columns):
            raise tool.Failure(f"sample {n} has {', '.join(sorted(stretch))}, those before it "
                               f"{', '.join(sorted(columns))}")
        lengths = {name: len(array) if array.ndim else -1 for name, array in stretch.items()}
        if len(set(lengths.values())) != 1 or -1 in lengths.values():
            raise tool.Failure(f"sample {n}: the tensors have different numbers of samples: "
                               f"{lengths}")
        for name, array in stretch.items():
            columns[name].append(array[:limit - n] if limit else array)
        n = next(iter(columns.values())).n
        if limit and n >= limit:
            break
    if not n:
        raise tool.Failure("there are no samples")
    for column in columns.values():
        column.file.close()
    return columns, n


def assemble(columns, path):
    header, offset = {}, 0
    for column in columns.values():
        size = os.path.getsize(column.path)
        header[column.name] = {"dtype": TYPES[column.dtype.name],
                               "shape": [column.n, *column.shape],
                               "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for column in columns.values():
            with open(column.path, "rb") as part:
                while piece := part.read(PIECE):
                    out.write(piece)
            os.remove(column.path)


def run(args, helper):
    global tool
    tool = helper
    found = tool.load(args.source)
    namer = Namer(args.names)
    with tool.workshop(args.output) as folder:
        path = os.path.join(folder, "out.safetensors")
        with tool.users_code(args.source):
            is_data = is_tensor(found) or hasattr(found, "items") \
                or (hasattr(found, "__getitem__") and not isinstance(found, type))
            data = found if is_data or not callable(found) else found()
            columns, n = collect(samples_of(data, namer), folder, args.samples)
        try:
            assemble(columns, path)
            tool.release(path, args.output)
        except OSError as error:
            raise tool.Failure(f"{args.output}: {error.strerror or error}") from error
    if not args.quiet:
        tool.say(f"{args.output}: {n} samples of " + ", ".join(
            f"{column.name} ({describe(np.empty((1,) + column.shape, column.dtype))})"
            for column in columns.values()))
