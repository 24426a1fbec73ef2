#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""An ONNX file without the weights of another, by nothing but the standard library.

    weightless.py MODEL.onnx OUT.onnx [TENSOR=EXTERNAL:OFFSET ...]

Floating initializers lose their data. Those named get theirs from a file EXTERNAL beside OUT.
"""
import sys

FLOATING = {1: 4, 11: 8}        # ONNX's types, and bytes of an element


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def put_varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(data):
    """(number, wire type, value, the field as it stands)"""
    at = 0
    while at < len(data):
        start = at
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
        else:
            size, at = (4, at) if tag & 7 == 5 else (8, at) if tag & 7 == 1 else varint(data, at)
            value, at = data[at:at + size], at + size
        yield tag >> 3, tag & 7, value, data[start:at]


def nested(number, content):
    return put_varint(number << 3 | 2) + put_varint(len(content)) + content


def entry(key, value):
    return nested(13, nested(1, key.encode()) + nested(2, value.encode()))


def varints(data):
    at = 0
    while at < len(data):
        value, at = varint(data, at)
        yield value


def tensor(data, places):
    kind, name, elements = 0, "", 1
    for number, wire, value, _ in fields(data):
        if number == 1:
            for dim in [value] if wire == 0 else varints(value):
                elements *= dim
        elif number == 2:
            kind = value
        elif number == 8:
            name = value.decode()
    if kind not in FLOATING:
        return data
    kept = b"".join(raw for number, _, _, raw in fields(data) if number not in (4, 9, 10, 13, 14))
    if name in places:
        location, offset = places[name].rsplit(":", 1)
        said = entry("location", location) + entry("offset", offset) \
            + entry("length", str(elements * FLOATING[kind]))
    else:
        said = entry("location", "absent") + entry("absent", "1")
    return kept + said + put_varint(14 << 3) + put_varint(1)


def graph(data, places):
    return b"".join(nested(5, tensor(value, places)) if number == 5 else raw
                    for number, _, value, raw in fields(data))


def main(source, target, *places):
    with open(source, "rb") as file:
        data = file.read()
    given = dict(place.split("=", 1) for place in places)
    with open(target, "wb") as file:
        file.write(b"".join(nested(7, graph(value, given)) if number == 7 else raw
                            for number, _, value, raw in fields(data)))


if __name__ == "__main__":
    main(*sys.argv[1:])
