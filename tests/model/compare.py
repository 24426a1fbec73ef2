# SPDX-License-Identifier: MIT
"""The rules by which two runs agree (DESIGN.md)."""
from tap import check


def curve_error(curve, wanted, relative_to_largest=False):
    """Largest relative difference of two loss curves. A loss that passes through zero (dot)
    is measured against the largest of its curve."""
    check(len(curve) == len(wanted), f"{len(curve)} steps in place of {len(wanted)}")
    top = max(map(abs, wanted)) if relative_to_largest else 0.0
    return max(abs(a - b) / max(abs(b), top) for a, b in zip(curve, wanted))


def same_curve(curve, wanted, tolerance, loss=""):
    error = curve_error(curve, wanted, loss.startswith("dot"))
    check(error <= tolerance, f"curves differ by {error:.3g}, allowed {tolerance:.3g}\n"
          f"got    {curve}\nwanted {wanted}")
    return f"{error:.2g}"


def spread(curves):
    """How far float32 curves of one rank lie apart: the largest difference at any step."""
    return max(max(step) - min(step) for step in zip(*curves))


def within_spread(curve, wanted, width):
    error = max(abs(a - b) for a, b in zip(curve, wanted))
    check(len(curve) == len(wanted), f"{len(curve)} steps in place of {len(wanted)}")
    check(error <= 10 * width, f"float32 curves differ by {error:.3g}, allowed 10 times the "
          f"spread {width:.3g}\ngot    {curve}\nwanted {wanted}")
    return f"{error / width:.2g} spreads" if width else "0"


def near_exact(curve, exact, other, width):
    """A float32 curve beside that of float64: another's float32 may itself be far off, as where a
    Relu's input is about 0 and has another sign."""
    own, theirs = (max(abs(a - b) for a, b in zip(c, exact)) for c in (curve, other))
    check(len(curve) == len(exact) == len(other), f"{len(curve)} steps in place of {len(exact)}")
    check(own <= max(10 * width, theirs), f"off by {own:.3g}, allowed 10 times the spread "
          f"{width:.3g}, or PyTorch's {theirs:.3g}\ngot    {curve}\nwanted {exact}")
    return f"{own:.2g}, PyTorch's {theirs:.2g}"


def largest(tensor):
    return max(map(abs, tensor[2]), default=0.0)


def worst(got, wanted, floor, skip):
    """(difference, name): the largest of a tensor relative to max(its largest entry, 'floor' x
    the largest entry of all)."""
    top = max(largest(tensor) for tensor in wanted.values())
    found = (0.0, "")
    for name, tensor in wanted.items():
        if name in skip:
            continue
        check(name in got, f"{name} is missing; there are {', '.join(sorted(got))}")
        check(list(got[name][1]) == list(tensor[1]), f"{name}: shape {got[name][1]}")
        scale = max(largest(tensor), floor * top) or 1.0
        error = max((abs(a - b) for a, b in zip(got[name][2], tensor[2])), default=0.0) / scale
        if not error <= found[0]:
            found = (error, name)
    return found


def distance(got, wanted, floor=0.0, skip=()):
    return worst(got, wanted, floor, skip)[0]


def same_tensors(got, wanted, tolerance, floor=0.0, skip=()):
    """Each tensor of 'wanted' within 'tolerance' of max(its largest entry, 'floor' x the
    largest entry of all)."""
    error, where = worst(got, wanted, floor, skip)
    check(error <= tolerance, f"{where} differs by {error:.3g}, allowed {tolerance:.3g}")
    return f"{error:.2g}"
