#!/bin/sh
# etc/tasuki.conf.example has the settings of the option table, and each default in it is taken.
top=${srcdir:-$(cd "$(dirname "$0")/.." && pwd)}
build=${builddir:-$top/build}
tasuki=${TASUKI:-$build/tasuki}
example=$top/etc/tasuki.conf.example
echo 1..2

result() {
    [ -z "$2" ] || printf '%s\n' "$2" | sed 's/^/# /'
    if [ -z "$2" ]; then echo "ok $1"; else echo "not ok $1"; fi
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$build/tests/conf_example" >"$folder/new"
difference=$(diff "$example" "$folder/new") ||
    difference="$difference
run: build/tests/conf_example >etc/tasuki.conf.example"
result "1 - the example has every setting of the option table" "$difference"

# Words in capitals and choices say what is expected; the rest are values.
sed -n 's/^#\([a-z0-9-]* = [^A-Z|]*\)$/\1/p' "$example" >"$folder/tasuki.conf"
XDG_CONFIG_HOME=$folder "$tasuki" info --settings >"$folder/settings" 2>"$folder/errors"
result "2 - what it says of defaults is taken" "$(
    cat "$folder/errors"
    [ "$(grep -c "$folder/tasuki.conf" "$folder/settings")" -eq \
        "$(wc -l <"$folder/tasuki.conf")" ] || grep default "$folder/settings")"
