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
