# SPDX-License-Identifier: MIT
"""Read the text format of Prometheus (0.0.4) as strictly as node_exporter's textfile collector, and
stricter: print "NAME VALUE LABEL=VALUE ..." for each sample, or fail with the line."""
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(r"(%s)\{(%s(?:,%s)*)\} (\S+)" % (NAME, LABEL, LABEL))
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|NaN|[+-]Inf")


def fail(number, why):
    sys.exit("%s:%d: %s" % (sys.argv[1], number, why))


def unescape(text):
    return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text)


def main():
    data = open(sys.argv[1], "rb").read().decode("utf-8")
    helped, typed, closed, seen, family = set(), set(), set(), set(), None
    if not data.endswith("\n"):
        sys.exit("no newline at the end")
    for number, line in enumerate(data[:-1].split("\n"), 1):
        head = re.fullmatch(r"# (HELP|TYPE) (%s) (.+)" % NAME, line)
        sample = SAMPLE.fullmatch(line)
        if head:
            kind, name, text = head.groups()
            if name in (helped if kind == "HELP" else typed):
                fail(number, "a second %s" % kind)
            if kind == "TYPE" and (text != "gauge" or name not in helped):
                fail(number, "TYPE")
            (helped if kind == "HELP" else typed).add(name)
            if family not in (None, name):
                closed.add(family)
            family = name
        elif sample:
            name, labels = sample[1], re.findall(LABEL, sample[2])
            if name != family or name not in typed or name in closed:
                fail(number, "a sample outside its family")
            if len({label for label, _ in labels}) != len(labels):
                fail(number, "a label twice")
            value = line.rsplit(" ", 1)[1]
            if (name, sample[2]) in seen or not NUMBER.fullmatch(value):
                fail(number, "a sample twice, or no number")
            seen.add((name, sample[2]))
            print(name, float(value),
                  *("%s=%s" % (label, unescape(text)) for label, text in labels))
        else:
            fail(number, "neither a comment nor a sample: %r" % line)
    if helped != typed or len(seen) == 0:
        sys.exit("a HELP without its TYPE, or nothing at all")


main()
