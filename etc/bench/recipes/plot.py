# SPDX-License-Identifier: MIT
"""Accuracy over elapsed time as SVG, with nothing but the standard library."""

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 60, 40, 240, 50
COLOURS = ["#000000", "#d55e00", "#0072b2", "#e69f00", "#56b4e9"]


def ticks(most):
    """At most six round numbers from 0."""
    step = next(digit * 10.0 ** power for power in range(-6, 9) for digit in (1, 2, 5)
                if most / (digit * 10.0 ** power) <= 5)
    return [i * step for i in range(int(most / step) + 1)]


def write(path, title, curves):
    """Each curve is (label, solid or dashed, [(seconds, accuracy)])."""
    most = max(seconds for _, _, points in curves for seconds, _ in points)
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(seconds, accuracy):
        return LEFT + wide * seconds / most, TOP + high * (1 - accuracy)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="24" font-size="15">{title}</text>']
    for value in (0, 0.2, 0.4, 0.6, 0.8, 1):
        _, y = at(0, value)
        out += [f'<path d="M{LEFT} {y:.1f}h{wide}" stroke="#ddd"/>',
                f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>']
    for value in ticks(most):
        x, _ = at(value, 0)
        out += [f'<path d="M{x:.1f} {TOP + high}v5" stroke="black"/>',
                f'<text x="{x:.1f}" y="{TOP + high + 18}" text-anchor="middle">{value:g}</text>']
    out += [f'<text x="{LEFT + wide / 2}" y="{HEIGHT - 10}" text-anchor="middle">seconds of '
            'training</text>',
            f'<text x="16" y="{TOP + high / 2}" text-anchor="middle" '
            f'transform="rotate(-90 16 {TOP + high / 2})">test accuracy</text>',
            f'<path d="M{LEFT} {TOP}v{high}h{wide}" fill="none" stroke="black"/>']
    for i, (label, solid, points) in enumerate(curves):
        places = [at(*point) for point in points]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        style = f'stroke="{COLOURS[i]}" stroke-width="2"' + \
            ("" if solid else ' stroke-dasharray="6 4"')
        y = TOP + 16 + 22 * i
        out += [f'<polyline points="{line}" fill="none" {style}/>',
                *(f'<circle cx="{x:.1f}" cy="{v:.1f}" r="3" fill="{COLOURS[i]}"/>'
                  for x, v in places),
                f'<path d="M{WIDTH - RIGHT + 16} {y - 4}h30" {style}/>',
                f'<text x="{WIDTH - RIGHT + 52}" y="{y}">{label}</text>']
    with open(path, "w") as file:
        file.write("\n".join(out) + "\n</svg>\n")
