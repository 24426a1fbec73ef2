#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write mlp.onnx, a chain of linear layers without activation, and random data for it.

    make-mlp.py DIRECTORY [--layers N] [--width N] [--samples N]

This is the network of RaNNC's tutorial. Nothing but the standard library is needed: an ONNX file
is protobuf, and protobuf is tags, lengths and bytes. Weights are drawn as torch.nn.Linear
draws them, uniform within 1/sqrt(width).
"""
import argparse
import array
import json
import os
import random
import struct
import sys

FLOAT = 1               # TensorProto.FLOAT
INT = 2                 # AttributeProto.INT


def varint(value):
    out = bytearray()
    while value > 0x7f:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    return bytes(out + bytearray([value]))


def number(field, value):
    return varint(field << 3) + varint(value)


def block(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def little(values):
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def uniform(rng, count, bound):
    return array.array("f", ((rng.random() * 2 - 1) * bound for _ in range(count)))


def tensor(name, shape, values):
    return b"".join(number(1, d) for d in shape) + number(2, FLOAT) + block(8, name) \
        + block(9, little(values))


def value_info(name, width):
    def dim(text):
        return block(1, text)
    shape = dim(block(2, "batch")) + dim(number(1, width))
    return block(1, name) + block(2, block(1, number(1, FLOAT) + block(2, shape)))


def gemm(index, source, target):
    attribute = block(1, "transB") + number(3, 1) + number(20, INT)
    inputs = (source, f"layers.{index}.weight", f"layers.{index}.bias")
    return b"".join(block(1, name) for name in inputs) + block(2, target) \
        + block(3, f"/layers.{index}/Gemm") + block(4, "Gemm") + block(5, attribute)


def model(layers, width, rng):
    names = ["x"] + [f"/layers.{i}/Gemm_output_0" for i in range(layers - 1)] + ["out"]
    bound = width ** -0.5
    graph = b"".join(block(1, gemm(i, names[i], names[i + 1])) for i in range(layers))
    graph += block(2, "mlp")
    for i in range(layers):
        graph += block(5, tensor(f"layers.{i}.weight", (width, width),
                                 uniform(rng, width * width, bound)))
        graph += block(5, tensor(f"layers.{i}.bias", (width,), uniform(rng, width, bound)))
    graph += block(11, value_info("x", width)) + block(12, value_info("out", width))
    return number(1, 8) + block(2, "make-mlp.py") + block(7, graph) \
        + block(8, number(2, 17))


def safetensors(path, tensors):
    header, blobs, at = {}, [], 0
    for name, (shape, values) in tensors.items():
        blob = little(values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--samples", type=int, default=1024)
    args = parser.parse_args()
    rng = random.Random(1)
    os.makedirs(args.directory, exist_ok=True)
    with open(os.path.join(args.directory, "mlp.onnx"), "wb") as out:
        out.write(model(args.layers, args.width, rng))
    shape, count = [args.samples, args.width], args.samples * args.width
    safetensors(os.path.join(args.directory, "data.safetensors"),
                {"x": (shape, uniform(rng, count, 1.0)),
                 "target": (shape, uniform(rng, count, 1.0 / args.samples))})


if __name__ == "__main__":
    main()
