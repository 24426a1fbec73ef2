# SPDX-License-Identifier: MIT
"""Read and write safetensors files with nothing but the standard library.

A tensor is (dtype, shape, values): dtype as in the file ("F32", "I64", …), values an
array.array in row-major order. NumPy arrays go in as well where NumPy is there.
"""
import array
import json
import struct
import sys

TYPECODES = {"F64": "d", "F32": "f", "I64": "q", "I32": "i", "U8": "B", "BOOL": "B"}
NUMPY = {"float64": "F64", "float32": "F32", "int64": "I64", "int32": "I32",
         "uint8": "U8", "bool": "BOOL"}


def _bytes(tensor):
    if isinstance(tensor, tuple):
        dtype, shape, values = tensor
        data = array.array(TYPECODES[dtype], values)
        if sys.byteorder == "big":
            data.byteswap()
        return dtype, list(shape), data.tobytes()
    dtype = NUMPY[str(tensor.dtype)]
    return dtype, list(tensor.shape), tensor.tobytes()


def write(path, tensors, metadata=None):
    """Write {name: tensor} in the order given, data aligned to 8 bytes."""
    header = {"__metadata__": metadata} if metadata else {}
    blobs, offset = [], 0
    for name, tensor in tensors.items():
        dtype, shape, blob = _bytes(tensor)
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [offset, offset + len(blob)]}
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def read(path):
    """Return {name: (dtype, shape, array)}."""
    with open(path, "rb") as file:
        data = file.read()
    size, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = array.array(TYPECODES[entry["dtype"]])
        values.frombytes(data[8 + size + begin:8 + size + end])
        if sys.byteorder == "big":
            values.byteswap()
        tensors[name] = (entry["dtype"], entry["shape"], values)
    return tensors
