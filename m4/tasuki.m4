dnl SPDX-License-Identifier: MIT
dnl Optional libraries: --with-NAME[=DIR|yes|no].

dnl TASUKI_WITH(name, what it is)
dnl Sets with_NAME to check, yes or no and NAME_dir to the directory, if one was given.
AC_DEFUN([TASUKI_WITH], [
AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1@<:@=DIR|yes|no@:>@], [$2 (default: if found)])],
  [], [with_$1=check])
$1_dir=
AS_CASE([$with_$1], [yes|no|check], [], [/*],
  [AS_IF([test -d "$with_$1"], [], [AC_MSG_ERROR([--with-$1: no directory $with_$1])])
   $1_dir=$with_$1 with_$1=yes],
  [AC_MSG_ERROR([--with-$1: expected yes, no or an absolute directory, got "$with_$1"])])
])

dnl TASUKI_TRY_LINK(name, VARIABLE, cflags, libs, includes, call)
dnl Sets have_NAME and VARIABLE_CFLAGS, VARIABLE_LIBS if a program builds with these flags.
AC_DEFUN([TASUKI_TRY_LINK], [
tasuki_save_CPPFLAGS=$CPPFLAGS tasuki_save_LIBS=$LIBS
CPPFLAGS="$CPPFLAGS $3" LIBS="$4 $LIBS"
AC_LINK_IFELSE([AC_LANG_PROGRAM([$5], [$6])],
  [have_$1=yes $2_CFLAGS="$3" $2_LIBS="$4"])
CPPFLAGS=$tasuki_save_CPPFLAGS LIBS=$tasuki_save_LIBS
])

dnl TASUKI_SEARCH(name, VARIABLE, pkg-config names, library, includes, call)
dnl In --with-NAME=DIR only; else by pkg-config, else where the compiler looks.
AC_DEFUN([TASUKI_SEARCH], [
have_$1=no
AS_IF([test "$with_$1" = no], [],
[AC_MSG_CHECKING([for $1])
 AS_IF([test -n "$$1_dir"],
 [for tasuki_lib in lib64 lib lib/$host; do
    AS_IF([test "$have_$1" = no && test -d "$$1_dir/$tasuki_lib"],
      [TASUKI_TRY_LINK([$1], [$2], [-I$$1_dir/include],
         [-L$$1_dir/$tasuki_lib -Wl,-rpath,$$1_dir/$tasuki_lib $4], [$5], [$6])])
  done],
 [for tasuki_pc in $3; do
    AS_IF([test "$have_$1" = no && $PKG_CONFIG --exists "$tasuki_pc" 2>/dev/null],
      [tasuki_cflags=`$PKG_CONFIG --cflags "$tasuki_pc"`
       tasuki_libs=`$PKG_CONFIG --libs "$tasuki_pc"`
       TASUKI_TRY_LINK([$1], [$2], [$tasuki_cflags], [$tasuki_libs], [$5], [$6])])
  done
  AS_IF([test "$have_$1" = no], [TASUKI_TRY_LINK([$1], [$2], [], [$4], [$5], [$6])])])
 AC_MSG_RESULT([$have_$1])])
])

dnl TASUKI_RESULT(name, VARIABLE, Debian package, Spack name, what it costs to be without,
dnl               remark where found)
dnl Asked for and missing is an error; otherwise define HAVE_… and note it for the summary.
AC_DEFUN([TASUKI_RESULT], [
AS_IF([test "$have_$1" = no && test "$with_$1" = yes],
  [AC_MSG_ERROR([--with-$1: not found; install $3 (Debian, Ubuntu) or "spack install $4", or name its directory])])
AS_IF([test "$have_$1" = yes],
  [AC_DEFINE([HAVE_]m4_toupper([$2]), [1], [Define if $1 is used])
   TASUKI_NOTE([$1], [yes], [$6])],
  [test "$with_$1" = no],
  [TASUKI_NOTE([$1], [off], [without it: $5])],
  [TASUKI_NOTE([$1], [no], [without it: $5
                  install $3; Spack: $4])])
AM_CONDITIONAL([HAVE_]m4_toupper([$2]), [test "$have_$1" = yes])
AC_SUBST([$2_CFLAGS])
AC_SUBST([$2_LIBS])
])

dnl TASUKI_NOTE(name, yes|no|off, remark): one line of the summary.
AC_DEFUN([TASUKI_NOTE], [
tasuki_summary="$tasuki_summary
`printf '  %-10s %-4s%s' '$1' '$2' '$3'`"
])

dnl TASUKI_LIBRARY(name, VARIABLE, what it is, pkg-config names, library, includes, call,
dnl                Debian package, Spack name, what it costs to be without,
dnl                remark where found)
AC_DEFUN([TASUKI_LIBRARY], [
TASUKI_WITH([$1], [$3])
TASUKI_SEARCH([$1], [$2], [$4], [$5], [$6], [$7])
TASUKI_RESULT([$1], [$2], [$8], [$9], m4_argn([10], $@), m4_argn([11], $@))
])

dnl MPI has no single way to be found: DIR/bin/mpicc, pkg-config, mpicc on PATH, plain -lmpi.
AC_DEFUN([TASUKI_MPI], [
TASUKI_WITH([mpi], [MPI: several ranks, in a module of its own])
m4_define([tasuki_mpi_includes], [@%:@include <mpi.h>])
have_mpi=no
AS_IF([test "$with_mpi" = no], [],
[AS_IF([test -n "$mpi_dir"], [MPICC=$mpi_dir/bin/mpicc],
  [test "$cross_compiling" = yes], [MPICC=no],
  [AC_PATH_PROG([MPICC], [mpicc], [no])])
 AC_MSG_CHECKING([for mpi])
 AS_IF([test -x "$MPICC"],
   [for tasuki_way in "--showme:compile --showme:link" "-compile_info -link_info"; do
      AS_IF([test "$have_mpi" = no],
        [set x $tasuki_way; shift
         # The first word that MPICH prints is the compiler.
         tasuki_cflags=`$MPICC $[]1 2>/dev/null | sed 's/^[[a-z]][[^ ]]* //'`
         tasuki_libs=`$MPICC $[]2 2>/dev/null | sed 's/^[[a-z]][[^ ]]* //'`
         TASUKI_TRY_LINK([mpi], [MPI], [$tasuki_cflags], [$tasuki_libs],
           [tasuki_mpi_includes], [MPI_Init(0, 0)])])
    done])
 AC_MSG_RESULT([$have_mpi])
 AS_IF([test "$have_mpi" = no],
   [TASUKI_SEARCH([mpi], [MPI], [ompi-c ompi mpi-c mpich mpi], [-lmpi],
      [tasuki_mpi_includes], [MPI_Init(0, 0)])])])
TASUKI_RESULT([mpi], [MPI], [libopenmpi-dev openmpi-bin], [openmpi],
  [one process only, no pipeline over several ranks])
])

dnl An MPI that was built with a PMIx of its own does not run beside another one: found at load
dnl time as undefined symbols. Nothing is lost without, so the other one is left out.
AC_DEFUN([TASUKI_PMIX_BESIDE_MPI], [
AS_IF([test "$have_pmix" = yes && test "$have_mpi" = yes && test "$cross_compiling" != yes],
[AC_MSG_CHECKING([whether pmix is the one of mpi])
 tasuki_save_LIBS=$LIBS
 LIBS="-Wl,--no-as-needed $MPI_LIBS $PMIX_LIBS $LIBS"
 AC_RUN_IFELSE([AC_LANG_PROGRAM([], [return 0])], [], [have_pmix=no], [:])
 LIBS=$tasuki_save_LIBS
 AC_MSG_RESULT([$have_pmix])])
])

dnl CUDA: nvcc in DIR, on PATH or where NVIDIA installs it says where headers and libraries are.
dnl A cross compiler wants DIR.
AC_DEFUN([TASUKI_CUDA], [
TASUKI_WITH([cuda], [CUDA toolkit: GPUs, in a module of its own])
AC_ARG_VAR([NVCCFLAGS], [flags for nvcc, behind those of the build])
have_cuda=no NVCC=no
AS_IF([test "$with_cuda" = no], [],
 [test "$cross_compiling" = yes && test -z "$cuda_dir"], [],
[# What was asked for is not found elsewhere.
 AS_IF([test -n "$cuda_dir"], [tasuki_path=$cuda_dir/bin],
   [tasuki_path=$PATH$PATH_SEPARATOR/usr/local/cuda/bin])
 AC_PATH_PROG([NVCC], [nvcc], [no], [$tasuki_path])
 AS_IF([test "$NVCC" != no],
  [AS_IF([test -n "$cuda_dir"], [],
     [cuda_dir=`AS_DIRNAME(["$NVCC"])` cuda_dir=`AS_DIRNAME(["$cuda_dir"])`])
   AC_MSG_CHECKING([for cuda])
   for tasuki_lib in lib64 lib lib/$host; do
     AS_IF([test "$have_cuda" = no && test -d "$cuda_dir/$tasuki_lib"],
       [tasuki_libs="-L$cuda_dir/$tasuki_lib -Wl,-rpath,$cuda_dir/$tasuki_lib"
        # The system's own needs no path.
        AS_IF([test "$cuda_dir" = /usr], [tasuki_cflags= tasuki_libs=],
          [tasuki_cflags="-isystem $cuda_dir/include"])
        TASUKI_TRY_LINK([cuda], [CUDA], [$tasuki_cflags], [$tasuki_libs -lcudart],
          [@%:@include <cuda_runtime_api.h>], [int n; cudaGetDeviceCount(&n)])])
   done
   # Kernels want the compiler that nvcc wants, too.
   AS_IF([test "$have_cuda" = yes],
     [echo '__global__ void kernel() {}' >conftest.cu
      AS_IF(["$NVCC" $NVCCFLAGS -c conftest.cu -o conftest.o >&AS_MESSAGE_LOG_FD 2>&1], [], [have_cuda=no])
      rm -f conftest.cu conftest.o])
   AC_MSG_RESULT([$have_cuda])])])
TASUKI_RESULT([cuda], [CUDA], [nvidia-cuda-toolkit], [cuda], [no GPUs])
AC_ARG_WITH([nvcc-gencode], [AS_HELP_STRING([--with-nvcc-gencode=FLAGS],
  [GPUs to compile for, as nvcc takes it (default: P100 to H100, as far as it knows them)])],
  [], [with_nvcc_gencode=])
AS_IF([test "$have_cuda" = yes && test -n "$with_nvcc_gencode"], [TASUKI_TRY_GENCODE],
  [test "$have_cuda" = yes], [TASUKI_GENCODE])
AC_SUBST([NVCC_GENCODE], [$with_nvcc_gencode])
])

dnl How libslurm is asked for a step: releases differ. Where in neither way the plugin is left out.
AC_DEFUN([TASUKI_SPANK], [
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[@%:@include <slurm/slurm.h>]],
  [[return _Generic(&slurm_get_job_steps, int (*)(time_t, uint32_t, uint32_t,
                    job_step_info_response_msg_t **, uint16_t): 0);]])],
  [have_spank=yes],
  [AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[@%:@include <slurm/slurm.h>]],
    [[return _Generic(&slurm_get_job_steps, int (*)(slurm_step_id_t *,
                      job_step_info_response_msg_t **, uint16_t): 0);]])],
    [have_spank=yes
     AC_DEFINE([SLURM_STEPS_BY_ID], [1], [libslurm is asked for a step by its slurm_step_id_t])])])
])

dnl Of the generations that there are results for those that this nvcc knows, and the last one's
dnl intermediate code for what comes after it.
AC_DEFUN([TASUKI_GENCODE], [
AC_MSG_CHECKING([which GPUs nvcc compiles for])
tasuki_codes=`"$NVCC" --list-gpu-code 2>/dev/null`
tasuki_last=
for tasuki_gpu in 60 70 75 80 90; do
  AS_CASE([" "`echo $tasuki_codes`" "], [*" sm_$tasuki_gpu "*],
    [with_nvcc_gencode="$with_nvcc_gencode -gencode=arch=compute_$tasuki_gpu,code=sm_$tasuki_gpu"
     tasuki_last=$tasuki_gpu])
done
AS_IF([test -n "$tasuki_last"],
  [with_nvcc_gencode="$with_nvcc_gencode -gencode=arch=compute_$tasuki_last,code=compute_$tasuki_last"])
AC_MSG_RESULT([$with_nvcc_gencode])
])

dnl What was asked for shows now, not in the middle of a build.
AC_DEFUN([TASUKI_TRY_GENCODE], [
echo '__global__ void kernel() {}' >conftest.cu
AS_IF(["$NVCC" $with_nvcc_gencode $NVCCFLAGS -c conftest.cu -o conftest.o >&AS_MESSAGE_LOG_FD 2>&1], [],
  [AC_MSG_ERROR([--with-nvcc-gencode: $NVCC does not compile with "$with_nvcc_gencode": see config.log; "nvcc --list-gpu-code" shows what it knows])])
rm -f conftest.cu conftest.o
])

dnl cuBLASLt comes with CUDA, in a package of its own.
AC_DEFUN([TASUKI_CUBLASLT], [
have_cublaslt=no CUBLASLT_CFLAGS= CUBLASLT_LIBS=
AS_IF([test "$have_cuda" = yes],
 [AC_MSG_CHECKING([for cublaslt])
  tasuki_cuda_CPPFLAGS=$CPPFLAGS tasuki_cuda_LIBS=$LIBS
  CPPFLAGS="$CPPFLAGS $CUDA_CFLAGS" LIBS="$CUDA_LIBS $LIBS"
  TASUKI_TRY_LINK([cublaslt], [CUBLASLT], [], [-lcublasLt], [@%:@include <cublasLt.h>],
    [cublasLtHandle_t h; cublasLtCreate(&h)])
  AC_COMPUTE_INT([CUDA_MAJOR], [CUDART_VERSION / 1000], [@%:@include <cuda_runtime_api.h>], [])
  CPPFLAGS=$tasuki_cuda_CPPFLAGS LIBS=$tasuki_cuda_LIBS
  AC_MSG_RESULT([$have_cublaslt])
  AS_IF([test "$have_cublaslt" = yes],
    [AC_DEFINE([HAVE_CUBLASLT], [1], [Define if cublaslt is used])
     TASUKI_NOTE([cublaslt], [yes], [])],
    [TASUKI_NOTE([cublaslt], [no], [without it: products of matrices are computed by the host])])])
AM_CONDITIONAL([HAVE_CUBLASLT], [test "$have_cublaslt" = yes])
AC_SUBST([CUBLASLT_LIBS])
AC_SUBST([CUDA_MAJOR])
])

dnl cuDNN is of use with CUDA alone, whose directories may hold it.
AC_DEFUN([TASUKI_CUDNN], [
TASUKI_WITH([cudnn], [cuDNN: convolutions on GPUs])
tasuki_with_cudnn=$with_cudnn
AS_CASE([$have_cuda/$with_cudnn], [no/yes], [AC_MSG_ERROR([--with-cudnn: wants CUDA, too])],
  [no/check], [with_cudnn=no])
tasuki_cuda_CPPFLAGS=$CPPFLAGS tasuki_cuda_LIBS=$LIBS
CPPFLAGS="$CPPFLAGS $CUDA_CFLAGS" LIBS="$CUDA_LIBS $LIBS"
TASUKI_SEARCH([cudnn], [CUDNN], [cudnn], [-lcudnn],
  [@%:@include <cudnn.h>
   @%:@if CUDNN_MAJOR < 9
   @%:@error too old
   @%:@endif], [cudnnBackendDescriptor_t d;
               cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &d)])
CPPFLAGS=$tasuki_cuda_CPPFLAGS LIBS=$tasuki_cuda_LIBS with_cudnn=$tasuki_with_cudnn
TASUKI_RESULT([cudnn], [CUDNN], [libcudnn9-dev-cuda-12], [cudnn],
  [convolutions are computed by the host])
])

dnl NCCL is of use with CUDA alone, whose directories may hold it.
AC_DEFUN([TASUKI_NCCL], [
TASUKI_WITH([nccl], [NCCL: messages from GPU to GPU])
tasuki_with_nccl=$with_nccl
AS_CASE([$have_cuda/$with_nccl], [no/yes], [AC_MSG_ERROR([--with-nccl: wants CUDA, too])],
  [no/check], [with_nccl=no])
tasuki_cuda_CPPFLAGS=$CPPFLAGS tasuki_cuda_LIBS=$LIBS
CPPFLAGS="$CPPFLAGS $CUDA_CFLAGS" LIBS="$CUDA_LIBS $LIBS"
TASUKI_SEARCH([nccl], [NCCL], [nccl], [-lnccl],
  [@%:@include <nccl.h>
   @%:@if NCCL_VERSION_CODE < 21400
   @%:@error too old
   @%:@endif], [ncclConfig_t c = NCCL_CONFIG_INITIALIZER; ncclUniqueId id = { 0 };
               ncclCommInitRankConfig(0, 0, id, 0, &c)])
CPPFLAGS=$tasuki_cuda_CPPFLAGS LIBS=$tasuki_cuda_LIBS with_nccl=$tasuki_with_nccl
TASUKI_RESULT([nccl], [NCCL], [libnccl-dev], [nccl],
  [messages between GPUs go through the memory of hosts])
])
