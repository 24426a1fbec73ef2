# configure: what was asked for and is missing is an error, the rest is a line in the summary.

setup() {
    [ ! -f "$srcdir/config.status" ] || skip "the sources are configured in place"
    cd "$BATS_TEST_TMPDIR"
    # A compiler on a machine without hwloc.
    printf '#!/bin/sh\ncase "$*" in *-lhwloc*) exit 1 ;; esac\nexec gcc "$@"\n' >cc
    chmod +x cc
}

configure() {
    "$srcdir/configure" -q --disable-openmp --without-cuda --without-mpi "$@"
}

@test "a library that was asked for and is missing is an error with its package" {
    run configure CC="$PWD/cc" --with-hwloc
    [ "$status" -ne 0 ]
    [[ "$output" == *"--with-hwloc: not found; install libhwloc-dev"*"spack install hwloc"* ]]
}

@test "a library that is missing costs a line in the summary" {
    run configure CC="$PWD/cc"
    [ "$status" -eq 0 ]
    echo "$output" | grep -E '^  hwloc +no +without it: '
    echo "$output" | grep -E '^  mpi +off +without it: '
    grep -q '/\* #undef HAVE_HWLOC \*/' config.h
}

@test "a directory that is none is an error" {
    run configure --with-pmix=/nonexistent
    [ "$status" -ne 0 ]
    [[ "$output" == *"--with-pmix: no directory /nonexistent"* ]]
    run configure --with-pmix=maybe
    [ "$status" -ne 0 ]
    [[ "$output" == *'expected yes, no or an absolute directory, got "maybe"'* ]]
}

@test "NCCL or cuDNN without CUDA is an error" {
    run configure --with-nccl
    [ "$status" -ne 0 ]
    [[ "$output" == *"--with-nccl: wants CUDA, too"* ]]
    run configure --with-cudnn
    [ "$status" -ne 0 ]
    [[ "$output" == *"--with-cudnn: wants CUDA, too"* ]]
}

@test "a directory is searched before the system" {
    command -v pkg-config >/dev/null && pkg-config --exists inih || skip "no inih to copy"
    mkdir -p own/include own/lib
    echo '#error the wrong one' >own/include/hwloc.h
    run configure --with-hwloc="$PWD/own"
    [ "$status" -ne 0 ]
    printf '#include "/usr/include/ini.h"\n' >own/include/ini.h
    ln -s "$(gcc -print-file-name=libinih.so)" own/lib/libinih.so
    run configure --with-inih="$PWD/own"
    [ "$status" -eq 0 ]
    grep -q "^INIH_CFLAGS = -I$PWD/own/include" Makefile
}
