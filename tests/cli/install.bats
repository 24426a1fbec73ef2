# SPDX-License-Identifier: MIT
# "make install" of a build with a prefix of its own, used by somebody else: by the two programs
# that read module files, by man and by bash-completion.

load ../slurm/common

# A folder that others may enter, unlike those of bats.
setup_file() {
    export ROOT=$(mktemp -d) && chmod 755 "$ROOT"
    export PREFIX=$ROOT/prefix BUILD=$ROOT/build HOME=$ROOT/home
    mkdir "$BUILD" "$HOME" && touch "$ROOT/began"
    cd "$BUILD" && "$(cd "$srcdir" && pwd)/configure" -q --prefix="$PREFIX" --without-cmocka \
        --without-cuda --without-nccl CFLAGS=-O0 >"$ROOT/log" 2>&1 &&
        make -s -j"$(nproc)" >>"$ROOT/log" 2>&1 &&
        make -s install DESTDIR="$ROOT/stage" >>"$ROOT/log" 2>&1 &&
        make -s install >>"$ROOT/log" 2>&1 || { tail -n 20 "$ROOT/log" >&2; return 1; }
    unset TASUKI_PKGLIBDIR
}

teardown_file() {
    rm -rf "$ROOT"
}

# Words of bash, run by an ordinary user with nothing in the environment.
as_user() {
    local become=
    [ "$(id -u)" -ne 0 ] || become='setpriv --reuid=65534 --regid=65534 --clear-groups'
    (cd / && $become env -i PATH=/usr/bin:/bin HOME=/nonexistent PREFIX="$PREFIX" \
        bash --noprofile --norc -c "$1")
}

# $init is the file that makes "module" known to a shell: $1, $2 and so on, whichever is there.
find_init() {
    for init in "$@"; do
        [ ! -e "$init" ] || return 0
    done
    return 1
}

# Of the system, or unpacked by etc/quickstart.
environment_modules() {
    find_init {,"$builddir/packages/environment-modules"}/usr/share/{m,M}odules/init/bash ||
        skip "Environment Modules is not installed"
}

lmod() {
    find_init {,"$builddir/packages/lmod"}/usr/share/lmod/lmod/init/bash ||
        skip "Lmod is not installed"
}

# What a user types, and what the module does to a shell: taken back when it is unloaded.
load_and_unload() {
    run as_user ". $init"'
        before=$(env | grep -vE "^(__|_=|_L|LMOD|LOADED|_Mod|MODULE)" | sort)
        module use "$PREFIX/share/tasuki/modulefiles" && module load tasuki &&
        [ "$(command -v tasuki)" = "$PREFIX/bin/tasuki" ] && tasuki --version && tasuki info &&
        man -w tasuki && man -w ls && man -P cat tasuki | grep -A2 ^NAME && module list 2>&1 && module help tasuki 2>&1 &&
        module whatis tasuki 2>&1 && module unload tasuki
        command -v tasuki && echo "tasuki is still there"
        [ "$before" = "$(env | grep -vE "^(__|_=|_L|LMOD|LOADED|_Mod|MODULE)" | sort)" ] ||
            { echo "not taken back:"; env; }'
    echo "$output"
    [[ "$output" == *"$PREFIX/share/man/man1/tasuki.1"* && "$output" == *"tasuki/$version"* ]]
    [[ "$output" == *$'\nNAME\n     tasuki '* ]]
    [[ "$output" == *"man tasuki-site"* && "$output" == *"Name: tasuki"* ]]
    [[ "$output" != *"still there"* && "$output" != *"not taken back"* ]]
    [[ "$output" == *"settings   $PREFIX/etc/tasuki/tasuki.conf"* ]]
}

setup() {
    version=$("$PREFIX/bin/tasuki" --version | awk 'NR == 1 { print $2 }')
}

@test "all of it is below the prefix, and nothing elsewhere" {
    (cd "$ROOT/stage$PREFIX" && find . ! -type d | sort) >"$ROOT/staged"
    (cd "$PREFIX" && find . ! -type d | sort) >"$ROOT/installed"
    diff "$ROOT/staged" "$ROOT/installed"
    [ "$(find "$ROOT/stage" ! -type d | wc -l)" -eq "$(wc -l <"$ROOT/staged")" ]
    [ -z "$(ls -A "$HOME")" ]
    [ -z "$(find /usr /etc /opt /var/lib -xdev -newer "$ROOT/began" -name '*tasuki*' 2>&-)" ]
    for file in bin/tasuki etc/tasuki/tasuki.conf.example share/tasuki/machines/laptop.json \
            share/tasuki/import/tasuki_import.py share/bash-completion/completions/tasuki \
            "share/tasuki/modulefiles/tasuki/$version" share/man/man8/tasuki-site.8 \
            "share/tasuki/modulefiles/tasuki/$version.lua" \
            share/tasuki/schedulers/{slurm,pjm,pbs,sge}.sh.in; do
        [ -s "$PREFIX/$file" ] || { echo "no $file"; false; }
    done
    for module in "$BUILD"/.libs/tasuki[-_]*.so; do
        [ -s "$PREFIX/lib/tasuki/${module##*/}" ]
    done
    [ -z "$(find "$PREFIX" -perm /6000)" ]
}

@test "Environment Modules loads and unloads it" {
    environment_modules
    load_and_unload
}

@test "Lmod loads and unloads it" {
    lmod
    load_and_unload
}

@test "man shows every page" {
    command -v man >/dev/null || skip "man is not installed"
    for page in "$srcdir"/man/*.[1-8]; do
        page=${page##*/}
        run as_user 'MANPATH=$PREFIX/share/man: man -P cat '"${page##*.} ${page%.*}"
        [ "$status" -eq 0 ] && grep -q "^NAME" <<<"$output" || { echo "$page: $output"; false; }
    done
}

# As bash-completion loads it when a user of the module presses TAB.
@test "completion completes every option of every command, cut short by a letter" {
    [ -e /usr/share/bash-completion/bash_completion ] || skip "bash-completion is not installed"
    run as_user 'export PATH=$PREFIX/bin:$PATH XDG_DATA_DIRS=$PREFIX/share
        . /usr/share/bash-completion/bash_completion; _completion_loader tasuki
        for command in $(tasuki --help | awk "/^  [a-z]/ { print \$1 }"); do
            for option in $(tasuki $command --help |
                    sed -nE "s/^  (-., |    )--(\[no-\])?([a-z0-9-]+).*/--\3 \2\3/p" |
                    sed "s/ \[no-\]/ --no-/; s/ [^-].*//"); do
                COMP_WORDS=(tasuki $command ${option%?}) COMP_CWORD=2 COMPREPLY=()
                _tasuki
                [[ " ${COMPREPLY[*]} " == *" $option "* ]] || echo "no $option of $command"
                n=$((n + 1))
            done
        done
        echo "$n options"'
    echo "$output"
    [[ "$output" =~ ^[0-9]{3}\ options$ ]]
}

@test "moved as a whole it finds its modules, machines, settings and helpers" {
    cp -R "$PREFIX" "$ROOT/moved"
    echo "threads = 3" >"$ROOT/moved/etc/tasuki/tasuki.conf"
    mv "$PREFIX" "$ROOT/gone"
    run as_user "PATH=$ROOT/moved/bin:/usr/bin:/bin demo=$srcdir/etc/demo"'
        tasuki info --settings | grep threads; tasuki info; tasuki topo --input dgx-h100:2
        tasuki submit $demo/digits.onnx --data $demo/digits-train.safetensors --global-batch 32 \
            --epochs 1 --nodes 2 --time 10 --scheduler pbs -n
        tasuki import /nonexistent:x --input x:1x1 -o /dev/null'
    mv "$ROOT/gone" "$PREFIX"
    echo "$output"
    [[ "$output" == *"$ROOT/moved/etc/tasuki/tasuki.conf:1"* ]]
    [[ "$output" == *"dgx-h100:2: 2 nodes"* && "$output" != *"$PREFIX"* ]]
    [[ "$output" == *$'\n#PBS '* ]]
    for module in "$PREFIX"/lib/tasuki/tasuki-*.so; do
        [[ "$output" == *"$ROOT/moved/lib/tasuki/${module##*/}"* ]]
    done
}

# Another user, on the login node: $init makes "module" known. With --mpi=pmix, and where that is the
# site's default without.
srun_by_module() {
    run "$lab" run timeout 100 setpriv --reuid=65534 --regid=65534 --clear-groups \
        env -u TASUKI_PKGLIBDIR HOME=/nonexistent bash --noprofile --norc -c '
        cd / && . "$1" && module use "$PREFIX/share/tasuki/modulefiles" &&
        export MANPAGER=cat TASUKI_MEASURE=none &&
        module load tasuki && man tasuki && srun -N2 tasuki topo && srun --mpi=pmix -N2 tasuki topo' \
        bash "$init"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *$'\nNAME\n     tasuki '* ]]
    [ "$(grep -c '  rank 1  *n2 ' <<<"$output")" -eq 2 ]
}

slurm_up() {
    local reason
    [ -e "$PREFIX/lib/tasuki/tasuki-mpi.so" ] || skip "built without MPI"
    export LAB_DIR=$ROOT/lab LAB_NODES=2 LAB_CPUS=4 LAB_MPI=pmix
    reason=$("$lab" why-not) || reason=
    [ -z "$reason" ] || skip "$reason"
    "$lab" up
}

teardown() {
    [ ! -e "$ROOT/lab" ] || LAB_DIR=$ROOT/lab "$lab" down
}

@test "under Slurm another user loads the module by Environment Modules and starts it by srun" {
    environment_modules
    slurm_up
    srun_by_module
}

@test "under Slurm another user loads the module by Lmod and starts it by srun" {
    lmod
    slurm_up
    srun_by_module
}
