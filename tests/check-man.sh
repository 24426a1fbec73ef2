#!/bin/sh
# Every command has a page with every option of the table, the completion offers each and some
# test uses it; mandoc finds no fault in any page.
top=${srcdir:-$(cd "$(dirname "$0")/.." && pwd)}
tasuki=${TASUKI:-$top/build/tasuki}

commands=$("$tasuki" --help | awk '/^  [a-z]/ { print $1 }')
pages=$(ls "$top"/man/*.[1-8])
echo "1..$((4 * $(echo $commands | wc -w) + 1 + $(echo $pages | wc -w)))"

n=0
result() {
    n=$((n + 1))
    [ -n "$2" ] && printf '%s\n' "$2" | sed 's/^/# /'
    if [ -z "$2" ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; fi
}

skip() {
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}

# --help prints "-o, --output FILE" and "--[no-]shuffle": names only.
options_of() {
    "$tasuki" "$1" --help | sed -nE 's/^  (-., |    )--(\[no-\])?([a-z0-9-]+).*/\3/p'
}

missing_in_page() {
    page=$top/man/tasuki-$1.1
    [ -f "$page" ] || { echo "there is no man/tasuki-$1.1"; return; }
    text=$(mandoc -Tascii "$page" | sed "s/.$(printf '\b')//g")
    for option in $(options_of "$1"); do
        printf '%s\n' "$text" | grep -qE -- "--(no-|\[no-\])?$option([^a-z0-9-]|$)" ||
            echo "man/tasuki-$1.1: no --$option"
    done
}

unknown_in_page() {
    page=$top/man/tasuki-$1.1
    [ -f "$page" ] || return
    known=" $(options_of "$1" | tr '\n' ' ')"
    for option in $(sed -nE 's/^\.It .*Fl Fl (no-|Oo Cm no- Oc Ns Cm )?([a-z0-9-]+).*/\2/p' \
                        "$page"); do
        case $known in
        *" $option "* | *" no-$option "*) ;;
        *) echo "man/tasuki-$1.1: --$option is no option of $1" ;;
        esac
    done
}

missing_in_completion() {
    offered=$(PATH=$(dirname "$tasuki"):$PATH bash -c '
        . "$1/etc/completion/tasuki"
        COMP_WORDS=(tasuki "$2" --) COMP_CWORD=2
        _tasuki; printf "%s\n" "${COMPREPLY[@]}"' bash "$top" "$1")
    for option in $(options_of "$1"); do
        printf '%s\n' "$offered" | grep -qx -- "--$option" || echo "no --$option"
    done
}

# --keep-plan in a script, keep_plan= for the driver in Python: some test gives it.
untested() {
    for option in $(options_of "$1"); do
        keyword="[ (]$(echo "$option" | tr - _)="
        grep -rqE -e "--(no-)?$option([^a-z0-9-]|$)|$keyword" --include='*.bats' --include='*.sh' \
            --include='*.py' "$top/tests" "$top/etc/demo" || echo "--$option is in no test"
    done
}

for command in $commands; do
    if command -v mandoc >/dev/null; then
        result "tasuki-$command(1) has every option" "$(missing_in_page "$command")"
        result "tasuki-$command(1) has no other option" "$(unknown_in_page "$command")"
    else
        skip "tasuki-$command(1) has every option" "mandoc is not installed"
        skip "tasuki-$command(1) has no other option" "mandoc is not installed"
    fi
    result "completion offers every option of $command" "$(missing_in_completion "$command")"
    result "every option of $command is in a test" "$(untested "$command")"
done

absent=
for command in $commands; do
    grep -q "Xr tasuki-$command 1" "$top/man/tasuki.1" || absent="$absent $command"
done
result "tasuki(1) refers to every command" "$absent"

# Which other manuals are installed here says nothing about the page; ours are checked.
lint() {
    grep -nE '^\.([PB]q )?[DQS]q .* [DQS]q ' "$1" | sed 's/$/: quotes within quotes/'
    mandoc -Tlint "$1" 2>&1 | grep -vE 'referenced manual not found|outdated mandoc.db'
    sed -nE 's/^\.Xr (tasuki[a-z.-]*) ([1-8]).*/\1.\2/p' "$1" | sort -u | while read -r other; do
        [ -f "$top/man/$other" ] || echo "refers to $other, which does not exist"
    done
}

for page in $pages; do
    if command -v mandoc >/dev/null; then
        result "$(basename "$page") is clean under mandoc -Tlint" "$(lint "$page")"
    else
        skip "$(basename "$page") is clean under mandoc -Tlint" "mandoc is not installed"
    fi
done
