#!/bin/sh
# The simulator has no figures of its own: they come from profile and topo. Numbers in it count
# things: 0 and 1, the 2 of there and back, and the words of erand48()'s seed.
cd "${srcdir:-$(dirname "$0")/..}" || exit 1

# Without comments, strings and included names.
constants() {
    sed -E -e 's@/\*([^*]|\*[^/])*\*/@@g' -e '/\/\*/,/\*\//d' -e 's/"[^"]*"/""/g' \
        -e '/^ *# *include/d' -e 's/unsigned short seed\[3\]//' "$@" |
        grep -oE '(^|[^A-Za-z0-9_.])([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?' |
        sed -E 's/^[^0-9.]//' | grep -vxE '[012](\.0)?' | sort -u | tr '\n' ' '
}

echo "1..2"
good=ok
for file in scheduler/simulate*.[ch]; do
    found=$(constants "$file")
    [ -z "$found" ] && continue
    good="not ok"
    echo "# $file: $found"
done
echo "$good 1 - the simulator's constants come from profile and topo"

good=ok
found=$(printf '/* 7 of\n * 8\n */\n x += 0.85 * y[1] + 2 * 1e-6; /* 9 */ f("5"), seconds3;\n' | constants)
[ "$found" = "0.85 1e-6 " ] || good="not ok"
echo "$good 2 - others would be found"
