# SPDX-License-Identifier: MIT
"""What a GPU computes at most, without sparsity, of which a step's share is its MFU."""

# TFLOP/s in float32, TF32 and 16 bits (dense), by the start of the name that CUDA has for it: what
# is longer comes first. NVIDIA's data sheets: H200 and H100 (2024), A100 (2021), V100 (2020), P100
# (2016: no tensor cores, float16 at twice float32).
PEAKS = [
    ("NVIDIA H200 NVL", (60, 417.5, 835.5)),
    ("NVIDIA H200", (67, 494.5, 989.5)),
    ("NVIDIA H100 PCIe", (51, 378, 756)),
    ("NVIDIA H100 NVL", (60, 417.5, 835.5)),
    ("NVIDIA H100", (67, 494.5, 989.5)),
    ("NVIDIA A100", (19.5, 156, 312)),
    ("Tesla V100-PCIE", (14, 14, 112)),
    ("Tesla V100", (15.7, 15.7, 125)),
    ("Tesla P100-PCIE", (9.3, 9.3, 18.7)),
    ("Tesla P100", (10.6, 10.6, 21.2)),
]


def peak(device, precision):
    """FLOP/s of "NVIDIA H200, sm_90, CUDA 13.0"; None where it is not in the table."""
    column = {"float32": 0, "tf32": 1, "bf16": 2, "fp16": 2}[precision]
    for name, figures in PEAKS:
        if device.startswith(name):
            return 1e12 * figures[column]
    return None
