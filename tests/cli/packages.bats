# SPDX-License-Identifier: MIT
# The packages of etc/ are made of a release tarball: by make check-long only, since each compiles
# everything.

setup_file() {
    export ROOT=$(mktemp -d)
    [ -n "${TASUKI_TEST_LONG:-}" ] || return 0
    make -s -C "$builddir" dist >"$ROOT/log" 2>&1 || { tail -n 20 "$ROOT/log" >&2; return 1; }
    export TARBALL=$(ls "$builddir"/tasuki-*.tar.xz)
}

teardown_file() {
    rm -rf "$ROOT"
}

setup() {
    [ -n "${TASUKI_TEST_LONG:-}" ] || skip "compiles everything anew: make check-long"
}

# The files of a package, unpacked into $1, are where a system has them, and the program runs.
complete_in() {
    [ "$(find "$1" -type f ! -path "$1/usr/*" ! -path "$1/etc/tasuki/*" | wc -l)" -eq 0 ]
    [ "$(find "$1/usr/share/man" -name 'tasuki*' | wc -l)" -eq \
        "$(ls "$srcdir"/man/*.[1-8] | wc -l)" ]
    [ -s "$1/etc/tasuki/tasuki.conf.example" ] && [ ! -e "$1/usr/share/tasuki/modulefiles" ]
    env -u TASUKI_PKGLIBDIR "$1/usr/bin/tasuki" info
    env -u TASUKI_PKGLIBDIR "$1/usr/bin/tasuki" info | grep "^mpi  *$1/usr/lib.*/tasuki-mpi.so"
}

@test "etc/debian/build makes a package that installs" {
    for tool in dpkg-buildpackage dh fakeroot; do
        command -v $tool >/dev/null || skip "$tool is not installed"
    done
    DEB_BUILD_OPTIONS="parallel=$(nproc) noopt" "$srcdir/etc/debian/build" "$TARBALL" "$ROOT" \
        >"$ROOT/deb.log" 2>&1 || { tail -n 20 "$ROOT/deb.log"; false; }
    deb=$(ls "$ROOT"/tasuki_*.deb)
    [[ "$(dpkg-deb -f "$deb" Recommends)" == *libopenmpi* ]]
    [[ "$(dpkg-deb -f "$deb" Depends)" != *mpi* ]]
    dpkg-deb -x "$deb" "$ROOT/deb"
    complete_in "$ROOT/deb"
    [ "$(id -u)" -eq 0 ] || skip "built; not root, who alone may try to install it"
    mkdir -p "$ROOT/root/var/lib/dpkg"
    touch "$ROOT/root/var/lib/dpkg/status"
    dpkg --root="$ROOT/root" --force-depends --install "$deb"
    "$ROOT/root/usr/bin/tasuki" --version
    dpkg --root="$ROOT/root" --purge tasuki
    [ ! -e "$ROOT/root/usr/bin/tasuki" ] && [ ! -e "$ROOT/root/etc/tasuki" ]
    apt_installs "$deb"
}

# What this system has, and what is written over it, which goes away: a whole system for apt.
apt_installs() {
    command -v apt-get >/dev/null || skip "built; apt is not installed"
    mkdir "$ROOT/over" "$ROOT/system"
    unshare -m --propagation private true 2>/dev/null || skip "built; no namespaces for apt"
    run unshare -m bash -ec '
        mount -t tmpfs none "$1/over" && mkdir "$1/over/upper" "$1/over/work"
        mount -t overlay none -o "lowerdir=/,upperdir=$1/over/upper,workdir=$1/over/work" \
            "$1/system"
        mount -t proc none "$1/system/proc"
        cp "$2" "$1/system/tmp/tasuki.deb"
        # What it needs is looked up among all packages, as if none were there.
        chroot "$1/system" apt-get -s -o Dir::State::status=/dev/null install /tmp/tasuki.deb >"$3" ||
            echo "no lists of packages"
        chroot "$1/system" apt-get -q -y -o Dpkg::Use-Pty=0 --no-install-recommends \
            install /tmp/tasuki.deb
        chroot "$1/system" sh -c "dpkg -s tasuki; /usr/bin/tasuki --version; apt-get check"
        chroot "$1/system" apt-get -q -y purge tasuki
        [ ! -e "$1/system/usr/bin/tasuki" ]' bash "$ROOT" "$1" "$ROOT/simulated"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ "$output" == *"Status: install ok installed"* ]]
    if [[ "$output" != *"no lists of packages"* ]]; then
        grep -q '^Inst tasuki ' "$ROOT/simulated"
        grep -q '^Inst libhwloc15 ' "$ROOT/simulated"
    fi
}

# Debian has no packages that RPM knows: what it needs is not looked at there.
@test "rpmbuild makes a package of the tarball" {
    for tool in rpmbuild rpm2cpio cpio; do
        command -v $tool >/dev/null || skip "$tool is not installed"
    done
    nodeps=
    [ ! -e /etc/debian_version ] || nodeps=--nodeps
    rpmbuild -tb $nodeps --define "_topdir $ROOT/rpm" --define "debug_package %{nil}" \
        --define "optflags -O0" "$TARBALL" >"$ROOT/rpm.log" 2>&1 ||
        { tail -n 20 "$ROOT/rpm.log"; false; }
    package=$(find "$ROOT/rpm/RPMS" -name 'tasuki-*.rpm')
    [[ "$(rpm -qp --requires "$package")" != *libmpi* ]]
    mkdir "$ROOT/files"
    (cd "$ROOT/files" && rpm2cpio "$package" | cpio -id --quiet)
    complete_in "$ROOT/files"
}

# With the system's compiler and libraries, not with those that EasyBuild would compile first.
@test "EasyBuild builds the recipe, and its module has manuals beside the system's" {
    command -v eb >/dev/null || skip "EasyBuild is not installed: pip install easybuild"
    init=/usr/share/modules/init/bash
    [ -e $init ] || skip "Environment Modules is not installed"
    export EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES=1
    export EASYBUILD_PREFIX=$ROOT/eb EASYBUILD_MODULES_TOOL=EnvironmentModules
    run env -u TASUKI_PKGLIBDIR -u MANPATH bash --noprofile --norc -c '. "$0" &&
        eb "$1" --sourcepath="$2" --module-syntax=Tcl --disable-map-toolchains \
            --try-toolchain=system,system \
            --filter-deps=pkgconf,Jansson,protobuf-c,hwloc,PMIx,inih,libarchive,libjpeg-turbo,xxHash &&
        module use "$EASYBUILD_PREFIX/modules/all" && module load tasuki && tasuki info &&
        man -w tasuki && man -w ls' $init "$srcdir/etc/easybuild/tasuki-0.1.0-foss-2024a.eb" \
        "$(cd "${TARBALL%/*}" && pwd)"
    echo "$output" | tail -n 40
    [ "$status" -eq 0 ]
    grep "^mpi  *$ROOT/eb/software/tasuki/.*/tasuki-mpi.so" <<<"$output"
}

# The sections of the definition, as Apptainer runs them, in a root of Debian's.
@test "what etc/tasuki.def says makes an image of an unpacked tarball" {
    command -v mmdebstrap >/dev/null || skip "mmdebstrap is not installed"
    [ "$(id -u)" -eq 0 ] || skip "not root"
    def=$(cd "$srcdir" && pwd)/etc/tasuki.def
    section() { awk -v name="%$1" '/^%/ { on = $1 == name; next } on' "$def"; }
    export APPTAINER_ROOTFS=$ROOT/image
    mmdebstrap --variant=apt bookworm "$APPTAINER_ROOTFS" >"$ROOT/image.log" 2>&1 ||
        skip "no packages can be had"
    tar -xf "$TARBALL" -C "$ROOT"
    (cd "$ROOT"/tasuki-*/ && section setup | sh -ex)
    section post >"$APPTAINER_ROOTFS/post"
    for script in "sh -ex /post" "tasuki info"; do
        unshare -m --propagation private bash -c 'mount -t proc none "$0/proc" &&
            mount --bind /dev "$0/dev" && exec chroot "$0" env -i CFLAGS=-O0 \
            PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin $1' "$APPTAINER_ROOTFS" "$script" \
            >>"$ROOT/image.log" 2>&1 || { tail -n 20 "$ROOT/image.log"; false; }
    done
    grep "^mpi  */usr/local/lib/tasuki/tasuki-mpi.so" "$ROOT/image.log"
}
