# etc/quickstart on machines unlike this one, made of a PATH of our own.

setup() {
    bin=$BATS_TEST_TMPDIR/bin
    mkdir "$bin"
    for tool in sh dirname getconf id grep sed printf cat uname; do
        ln -s "$(command -v $tool)" "$bin/$tool"
    done
    quickstart=$srcdir/etc/quickstart
}

fake() {
    printf '#!/bin/sh\n%s\n' "$2" >"$bin/$1"
    chmod +x "$bin/$1"
}

@test "help explains the three commands" {
    run "$quickstart" --help
    [ "$status" -eq 0 ]
    [[ "$output" == *"quickstart demo"* && "$output" == *"quickstart check"* ]]
}

@test "unknown words are refused" {
    run "$quickstart" dmeo
    [ "$status" -eq 1 ]
    [[ "$output" == *"unknown command dmeo"* ]]
    run "$quickstart" build --prefx=/x
    [ "$status" -eq 1 ]
    [[ "$output" == *"unknown option --prefx=/x"* ]]
}

@test "not root and packages missing: one command for the administrator" {
    fake dpkg-query 'echo "unknown ok not-installed"'
    fake apt-get 'echo "apt-get must not run" >&2; exit 9'
    rm "$bin/id"
    fake id 'echo 1000'
    PATH=$bin run "$quickstart" build
    [ "$status" -eq 1 ]
    [ "$(echo "$output" | grep -c 'apt-get install -y')" -eq 1 ]
    [[ "$output" == *libjansson-dev* && "$output" == *libopenmpi-dev* ]]
    [[ "$output" != *"must not run"* ]]
}

@test "without apt and without what is needed: a list with Spack names and costs, no build" {
    PATH=$bin run "$quickstart" build --prefix "$BATS_TEST_TMPDIR/to"
    [ "$status" -eq 1 ]
    [[ "$output" == *"spack install jansson "*"needed"* ]]
    [[ "$output" == *"spack install onednn "*"without it: the slow reference kernels only"* ]]
    [[ "$output" == *"cannot build without:"*jansson* ]]
    [ ! -e "$BATS_TEST_TMPDIR/to" ]
}

# The demo with quickstart's own functions, in a build folder that has the program alone.
demo() {
    mkdir -p "$BATS_TEST_TMPDIR/build" "$BATS_TEST_TMPDIR/login"
    ln -s "$TASUKI" "$BATS_TEST_TMPDIR/build/tasuki"
    printf '#!/bin/sh\necho "main up 1 idle n1"\n' >"$BATS_TEST_TMPDIR/login/sinfo"
    chmod +x "$BATS_TEST_TMPDIR/login/sinfo"
    env -u SLURM_JOB_ID PATH="$BATS_TEST_TMPDIR/login:$PATH" sh -euc '
        eval "$(sed -n "/^say() {/,/^}/p; /^fail() {/,/^}/p; /^on_login_node() {/,/^}/p" "$1")"
        mpirun_4() { fail "mpirun on a login node"; }
        top=$2 build=$3 here=no
        . "$2/etc/demo/run.sh"' sh "$quickstart" "$srcdir" "$BATS_TEST_TMPDIR/build"
}

@test "on a login node the demo stops after the plan and prints the srun line" {
    run demo
    echo "$output"
    [ "$status" -eq 0 ]
    [ -s "$BATS_TEST_TMPDIR/build/demo/plan.json" ]
    [[ "$output" == *"srun --mpi=pmix -N 2 --ntasks-per-node=2 "*"tasuki train "* ]]
    [ ! -e "$BATS_TEST_TMPDIR/build/demo/checkpoint" ]
}

@test "kernels for one kind of GPU, which tests do with, do not stay in a build" {
    cd "$BATS_TEST_TMPDIR"
    run sh -euc '
        eval "$(sed -n "/^build() {/,/^}/p" "$1")"
        say() { :; }
        build_in() { [ -e "$1/Makefile" ] || echo "$@"; : >"$1/Makefile"; }
        build=$PWD/all prefix= gpu=
        mkdir all
        build
        gpu=--one
        build
        build=$PWD/checked
        build
        build
        gpu=
        build
        build' - "$quickstart"
    echo "$output"
    [ "$output" = "$(printf '%s\n' "$PWD/all" "$PWD/checked --one" "$PWD/checked")" ]
}

@test "a check says what its failed tests said, after all else" {
    cd "$BATS_TEST_TMPDIR"
    mkdir -p tests/unit
    printf 'ok 1 - before\nnot ok 2 - one\n# 3, not 2\nok 3 - after\nnot ok 4 - three # TODO later\nok 5 - four\nPASS: a 5 - four\nAborted\n' \
        >tests/unit/a.log
    printf ':test-result: PASS\n:test-result: FAIL\n' >tests/unit/a.trs
    { echo "not ok 1 - long" && seq -f 'line %g' 100; } >tests/long.log
    printf 'Segmentation fault\n' >tests/crash.log
    printf 'not ok 1 - of another day\n' >tests/old.log
    printf ':test-result: FAIL\n' | tee tests/long.trs >tests/old.trs
    touch -d '1 hour ago' tests/old.trs
    printf ':test-result: ERROR\n' >tests/crash.trs
    printf '# FAIL:  2\n# ERROR: 1\n' >check.log
    touch -d '1 minute ago' check.began
    echo 'failed, 1 s' >check.result
    run sh -euc '
        eval "$(sed -n "/^count() {/,/^}/p; /^failures() {/,/^}/p; /^explain() {/,/^}/p; /^report() {/,/^}/p" "$1")"
        say() { :; }
        build=. passed=0 failed=0 skipped=0
        report check
        echo "$failed"
        sort failures' sh "$quickstart"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *$'\ncheck: failed, 1 s\n3\n'* ]]
    [ "$(grep -c 'log:$' failures)" -eq 3 ]
    sed -n '/a.log/,/:$/p' failures | grep -qx '    # 3, not 2'
    sed -n '/a.log/,/:$/p' failures | grep -qx '    Aborted'
    grep -qx '    Segmentation fault' failures
    [ "$(grep -c 'line' failures)" -eq 41 ]
    grep -qx '    line 100' failures
    ! grep -q 'before\|after\|three\|four\|another' failures || false
}
