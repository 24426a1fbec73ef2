# SPDX-License-Identifier: MIT
"""Write the node tests of the onnx package into a folder, as libonnx-testdata has them."""
import os
import sys
import warnings

from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases


def write(path, kind, values, infos):
    for i, (value, info) in enumerate(zip(values, infos)):
        if not info.type.HasField("tensor_type"):
            continue
        if not isinstance(value, TensorProto):
            value = numpy_helper.from_array(value, info.name)
        with open(os.path.join(path, f"{kind}_{i}.pb"), "wb") as file:
            file.write(value.SerializeToString())


def main(folder):
    warnings.simplefilter("ignore")     # numpy's, about overflows that the tests want
    for case in collect_testcases(None):
        path = os.path.join(folder, case.name)
        os.makedirs(path)
        with open(os.path.join(path, "model.onnx"), "wb") as file:
            file.write(case.model.SerializeToString())
        with open(os.path.join(path, "tolerance"), "w") as file:
            print(case.rtol, case.atol, file=file)
        for i, (inputs, outputs) in enumerate(case.data_sets):
            data = os.path.join(path, f"test_data_set_{i}")
            os.mkdir(data)
            write(data, "input", inputs, case.model.graph.input)
            write(data, "output", outputs, case.model.graph.output)


if __name__ == "__main__":
    main(sys.argv[1])
