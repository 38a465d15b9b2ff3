#!/bin/sh
# Installs what is missing for the given purposes: build, test, numa, bench, lab, docs, amalgamation, deb. With apt as root or through
# sudo; otherwise it names the packages and stops.
set -eu

missing=""
wanted=""
need() { # command package
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
want() { # command package: what uses it is left out without it
    command -v "$1" >/dev/null 2>&1 || wanted="$wanted $2"
}
need_file() { # file package
    [ -e "$1" ] || missing="$missing $2"
}
want_file() { # file package
    [ -e "$1" ] || wanted="$wanted $2"
}
header() { # its path, if it is there
    find /usr/include "/usr/include/$(uname -m)-linux-gnu" -path "*/$1" 2>/dev/null | head -n 1
}
need_header() { # header package
    need_file "$(header "$1")" "$2"
}
want_header() { # header package
    want_file "$(header "$1")" "$2"
}

for purpose in "$@"; do
    case $purpose in
    build)
        need cc gcc
        need_file /usr/include/stdio.h libc6-dev
        need make make
        need cmake cmake
        want_header liburing.h liburing-dev
        want_header elfutils/libdwfl.h libdw-dev
        want_header valgrind/memcheck.h valgrind
        want_header sys/sdt.h systemtap-sdt-dev
        want python3 python3
        ;;
    docs)
        need python3 python3
        need mandoc mandoc
        need pandoc pandoc
        ;;
    amalgamation)
        need python3 python3
        ;;
    deb)
        need dpkg-buildpackage dpkg-dev
        need dh debhelper
        need fakeroot fakeroot
        need cmake cmake
        need python3 python3
        need_header liburing.h liburing-dev
        need_header elfutils/libdwfl.h libdw-dev
        need_header valgrind/memcheck.h valgrind
        need_header sys/sdt.h systemtap-sdt-dev
        need lintian lintian
        ;;
    test)
        need python3 python3
        need g++ g++
        need clang clang
        need_file "$(clang -print-file-name="libclang_rt.tsan-$(uname -m).a" 2>/dev/null)" libclang-rt-dev
        need clang-format clang-format
        need spin spin
        want tcc tcc
        need gdb gdb
        want valgrind valgrind
        need pkg-config pkg-config
        need qemu-aarch64 qemu-user
        need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
        need_file /usr/aarch64-linux-gnu/lib/libc.so.6 libc6-dev-arm64-cross
        want wrk wrk
        want chromium chromium
        want_header hiredis/hiredis.h libhiredis-dev
        want_header postgresql/libpq-fe.h libpq-dev
        want_header curl/curl.h libcurl4-openssl-dev
        want redis-server redis-server
        want redis-cli redis-tools
        want_file "$(find /usr/lib/postgresql -path '*/bin/initdb' 2>/dev/null | head -n 1)" postgresql
        ;;
    bench)
        need python3 python3
        want go golang-go
        want cargo cargo
        want wrk wrk
        want_header liburing.h liburing-dev
        want_header elfutils/libdwfl.h libdw-dev
        want g++ g++
        want_header boost/fiber/all.hpp libboost-fiber-dev
        ;;
    numa)
        need python3 python3
        need qemu-system-x86_64 qemu-system-x86
        ;;
    lab)
        need python3 python3
        ;;
    *)
        echo "setup: unknown purpose '$purpose'" >&2
        exit 2
        ;;
    esac
done

[ -z "$missing$wanted" ] && exit 0

sudo=""
[ "$(id -u)" -eq 0 ] || sudo="sudo -n"
if ! command -v apt-get >/dev/null 2>&1 || { [ -n "$sudo" ] && ! $sudo true 2>/dev/null; }; then
    [ -z "$wanted" ] || echo "setup: some parts are left out without these packages:$wanted" >&2
    [ -n "$missing" ] || exit 0
    echo "setup: please install these packages, then run this again:$missing" >&2
    exit 1
fi
echo "setup: installing$missing$wanted"
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq || [ -z "$missing" ]
install() {
    $sudo apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
# shellcheck disable=SC2086
[ -z "$missing" ] || install $missing
for package in $wanted; do
    install "$package" || echo "setup: some parts are left out without $package" >&2
done
