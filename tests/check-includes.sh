#!/bin/sh
# Includes run one way only (HACKING.md): each folder may read those on its line, and itself.
cd "${srcdir:-$(dirname "$0")/..}" || exit 1

allowed() {
    case $1 in
    base)      echo "base" ;;
    graph)     echo "graph base" ;;
    topology)  echo "topology base" ;;
    kernels)   echo "kernels graph base" ;;
    comm)      echo "comm graph base" ;;
    scheduler) echo "scheduler topology graph base" ;;
    train)     echo "train scheduler topology graph kernels comm base" ;;
    cmd)       echo "train scheduler topology graph kernels comm base" ;;
    esac
}

folder_of() {
    case $1 in
    src/base/*) echo base ;;
    src/graph/*) echo graph ;;
    src/train/*) echo train ;;
    src/comm/*) echo comm ;;
    topology/*) echo topology ;;
    scheduler/*) echo scheduler ;;
    kernels/*) echo kernels ;;
    src/*) echo cmd ;;
    esac
}

check_file() {
    folder=$(folder_of "$1")
    bad=
    for included in $(sed -n 's/^ *# *include *"\([a-z]*\)\/.*/\1/p' "$1" | sort -u); do
        case " $(allowed "$folder") " in
        *" $included "*) ;;
        *) bad="$bad $included" ;;
        esac
    done
    case $folder in
    base|graph|topology|scheduler)
        grep -qE '^ *# *include *<(mpi|cuda|nvml|nccl)' "$1" && bad="$bad (MPI, CUDA or NVML)" ;;
    esac
    [ -z "$bad" ] && return 0
    echo "# $1 of $folder includes$bad"
    return 1
}

n=0
echo "1..9"
for folder in src/base src/graph topology kernels src/comm scheduler src/train src; do
    n=$((n + 1))
    good=ok
    [ $folder = src ] && depth="-maxdepth 1" || depth=
    for file in $(find $folder $depth -name '*.[ch]' ! -name '*.pb-c.*' 2>/dev/null); do
        check_file "$file" || good="not ok"
    done
    echo "$good $n - $folder includes only what it may"
done

# What other programs print is for people: it is asked for by a library, or by exec with arguments.
good=ok
call='(^|[^A-Za-z0-9_])(popen|system)\('
for file in $(find src topology scheduler kernels -name '*.[ch]' -o -name '*.cu'); do
    grep -nE "$call" "$file" | sed "s,^,# $file: ," | grep . && good="not ok"
done
echo "$good 9 - no source calls popen() or system()"
