# configure: what was asked for and is missing is an error, the rest is a line in the summary.

# What does not depend on libraries is found out once: the programs, the compiler, libtool's.
setup_file() {
    [ ! -f "$srcdir/config.status" ] || return 0
    cd "$BATS_FILE_TMPDIR"
    "$srcdir/configure" -q --disable-openmp --without-cuda --without-mpi --cache-file=all \
        --disable-dependency-tracking
    grep -E '^(lt|am|ac)_cv_' all |
        grep -vE '^ac_cv_(env_|header_|lib_|search_|func_|prog_(ac_ct_)?C)' >cache
}

setup() {
    [ ! -f "$srcdir/config.status" ] || skip "the sources are configured in place"
    cd "$BATS_TEST_TMPDIR"
    # A compiler on a machine without hwloc.
    printf '#!/bin/sh\ncase "$*" in *-lhwloc*) exit 1 ;; esac\nexec gcc "$@"\n' >cc
    chmod +x cc
}

configure() {
    cp "$BATS_FILE_TMPDIR/cache" .
    "$srcdir/configure" -q --cache-file=cache --disable-openmp --without-cuda --without-mpi \
        --disable-dependency-tracking "$@"
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

# A toolkit that compiles for no GPU: 'nvcc' knows two of them.
toolkit() {
    mkdir -p "$1/bin" "$1/include" "$1/lib64"
    cat >"$1/bin/nvcc" <<'SCRIPT'
#!/bin/sh
[ "$1" != --list-gpu-code ] || { echo sm_75; echo sm_90; exit; }
case "$*" in *sm_1*) echo "nvcc fatal: Unsupported gpu architecture 'sm_1'" >&2; exit 1 ;; esac
while [ "$1" != -o ]; do shift; done
: >"$2"
SCRIPT
    chmod +x "$1/bin/nvcc"
    echo 'int cudaGetDeviceCount(int *n);' >"$1/include/cuda_runtime_api.h"
    echo 'int cudaGetDeviceCount(int *n) { return *n = 0; }' >cudart.c
    gcc -shared -fPIC cudart.c -o "$1/lib64/libcudart.so"
}

configure_cuda() {
    cp "$BATS_FILE_TMPDIR/cache" .
    "$srcdir/configure" -q --cache-file=cache --disable-openmp --without-mpi --disable-dependency-tracking \
        "$@"
}

@test "CUDA is taken from the directory that is named, else from where nvcc is found" {
    toolkit "$PWD/own"
    toolkit "$PWD/other"
    PATH=$PWD/other/bin:$PATH run configure_cuda --with-cuda="$PWD/own"
    echo "$output"
    [ "$status" -eq 0 ]
    grep -q "^NVCC = $PWD/own/bin/nvcc$" Makefile
    grep -q "^CUDA_LIBS = -L$PWD/own/lib64 " Makefile
    grep -q '^NVCC_GENCODE = .*code=sm_75 .*code=sm_90 .*code=compute_90$' Makefile
    PATH=$PWD/other/bin:$PATH run configure_cuda
    [ "$status" -eq 0 ]
    grep -q "^NVCC = $PWD/other/bin/nvcc$" Makefile
    grep -q "^CUDA_LIBS = -L$PWD/other/lib64 " Makefile
}

@test "a directory without CUDA, or GPUs that nvcc does not know, are an error" {
    toolkit "$PWD/own"
    mkdir -p none/lib64
    PATH=$PWD/own/bin:$PATH run configure_cuda --with-cuda="$PWD/none"
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" == *"--with-cuda: not found"* ]]
    run configure_cuda --with-cuda="$PWD/own" --with-nvcc-gencode=-arch=sm_1
    echo "$output"
    [ "$status" -ne 0 ]
    [[ "$output" == *"--with-nvcc-gencode: "*'nvcc does not compile with "-arch=sm_1"'*"--list-gpu-code"* ]]
    configure_cuda --with-cuda="$PWD/own" --with-nvcc-gencode=-arch=sm_75 NVCCFLAGS=-Werror=all-warnings
    grep -q '^NVCC_GENCODE = -arch=sm_75$' Makefile
    grep -q '^NVCCFLAGS = -Werror=all-warnings$' Makefile
}
