# SPDX-License-Identifier: MIT
# spack repo add etc/spack, then "spack dev-build tasuki@main" in a checkout, or where the tarball
# of "make dist" is, "spack install --no-checksum tasuki".
import os

from spack.package import *


class Tasuki(AutotoolsPackage):
    """Trains ONNX networks as synchronous pipelines over a Slurm allocation."""

    manual_download = True
    url = "file://{0}/tasuki-0.1.0.tar.xz".format(os.getcwd())

    license("MIT")

    version("0.1.0")
    version("main")

    variant("hwloc", default=True, description="The topology of a node")
    variant("mpi", default=True, description="Ranks on several nodes")
    variant("pmix", default=True, description="Peers by PMIx")
    variant("slurm", default=False, description="What Slurm knows, by libslurm")
    variant("onednn", default=True, description="Fast kernels for CPUs")
    variant("inih", default=True, description="Configuration files")
    variant("pictures", default=True, description="JPEG pictures in tar archives as data")
    variant("xxhash", default=True, description="A changed model is noticed")
    variant("cuda", default=False, description="Links between GPUs, and kernels for them")
    variant("cudnn", default=False, description="Convolutions on GPUs")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("pkgconfig", type="build")
    for tool in ("autoconf", "automake", "libtool"):
        depends_on(tool, type="build", when="@main")

    depends_on("jansson@2.7:")
    depends_on("protobuf-c@1.3:")
    depends_on("hwloc@2:", when="+hwloc")
    depends_on("mpi@3.1:", when="+mpi")
    depends_on("pmix", when="+pmix")
    depends_on("slurm", when="+slurm")
    depends_on("onednn@2:", when="+onednn")
    depends_on("libinih", when="+inih")
    depends_on("libarchive", when="+pictures")
    depends_on("libjpeg-turbo", when="+pictures")
    depends_on("xxhash", when="+xxhash")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl", when="+cuda")
    depends_on("cudnn@9:", when="+cudnn")
    conflicts("+cudnn", when="~cuda")

    # A release has configure; a checkout makes it.
    def autoreconf(self, spec, prefix):
        if not os.path.exists("configure"):
            which("sh")("./autogen.sh")

    def configure_args(self):
        args = ["--without-cmocka"]
        for name in ("hwloc", "mpi", "pmix", "onednn", "inih", "xxhash"):
            args += self.with_or_without(name)
        for name in ("slurm", "cuda", "cudnn"):
            args += self.with_or_without(name, activation_value="prefix")
        args += self.with_or_without("nccl", variant="cuda",
                                     activation_value=lambda _: self.spec["nccl"].prefix)
        for name in ("libarchive", "libjpeg"):
            args += self.with_or_without(name, variant="pictures")
        return args
