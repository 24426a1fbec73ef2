#!/bin/sh
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
PYTHONDONTWRITEBYTECODE=1 exec python3 "$srcdir/tests/model/memory.py"
