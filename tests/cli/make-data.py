# SPDX-License-Identifier: MIT
"""make-data.py npy FILE.safetensors DIRECTORY: one NAME.npy for each tensor;
tokens FILE COUNT VOCABULARY header|raw."""
import json
import os
import struct
import sys

DESCR = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "|u1", "BOOL": "|b1"}


def npy(path, descr, shape, data):
    header = repr({"descr": descr, "fortran_order": False, "shape": tuple(shape)})
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def arrays(source, directory):
    with open(source, "rb") as file:
        data = file.read()
    (size,) = struct.unpack("<Q", data[:8])
    os.makedirs(directory, exist_ok=True)
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            npy(os.path.join(directory, name + ".npy"), DESCR[entry["dtype"]], entry["shape"],
                data[8 + size + begin:8 + size + end])


def tokens(path, count, vocabulary, header):
    """Tokens that follow a rule, so that there is something to learn."""
    count, vocabulary, values, token = int(count), int(vocabulary), [], 1
    for i in range(count):
        token = (5 * token + i % 3) % vocabulary
        values.append(token)
    with open(path, "wb") as file:
        if header == "header":
            file.write(b"TASUKITK" + struct.pack("<IIQQ", 1, 2, count, vocabulary))
        file.write(struct.pack("<%dH" % count, *values))


COMMANDS = {"npy": arrays, "tokens": tokens}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
