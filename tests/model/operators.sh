#!/bin/sh
[ -x "$builddir/tests/unit/op_dump" ] || { echo "1..0 # SKIP no cmocka"; exit 0; }
# The first Python that has numpy and torch.
for python in "$TASUKI_PYTHON" python3; do
    if [ -n "$python" ] && "$python" -c 'import numpy, torch' 2>/dev/null; then
        PYTHONDONTWRITEBYTECODE=1 exec "$python" "$srcdir/tests/model/operators.py"
    fi
done
echo "1..0 # SKIP no Python with torch"
