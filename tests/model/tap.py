# SPDX-License-Identifier: MIT
"""Test Anything Protocol: what automake's driver reads."""
import os
import re
import sys
import traceback

ONLY = re.compile(os.environ.get("TASUKI_TEST_ONLY", ""))


class Skip(Exception):
    pass


class Failed(Exception):
    """A check did not hold; the text says which."""


def check(condition, text):
    if not condition:
        raise Failed(text)


class Tap:
    def __init__(self):
        self.count = self.failed = 0

    def note(self, text):
        for line in str(text).splitlines():
            print("#", line)
        sys.stdout.flush()

    def test(self, name, function, *args, **options):
        """Run one test; what it returns, if anything, is printed beside its name."""
        if not ONLY.search(name):
            return
        self.count += 1
        try:
            said = function(*args, **options)
            print(f"ok {self.count} - {name}" + (f" ({said})" if said else ""))
        except Skip as skip:
            print(f"ok {self.count} - {name} # SKIP {skip}")
        except Failed as failure:
            self.failed += 1
            print(f"not ok {self.count} - {name}")
            self.note(failure)
        except Exception:
            self.failed += 1
            print(f"not ok {self.count} - {name}")
            self.note(traceback.format_exc())
        sys.stdout.flush()

    def done(self):
        print(f"1..{self.count}")
        return 0


def skip_all(reason):
    print(f"1..0 # SKIP {reason}")
    sys.exit(0)
