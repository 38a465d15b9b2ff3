#!/bin/sh
# Installs what is missing for the given purposes: build, test, bench. With apt as root or through sudo; otherwise it
# names the packages and stops.
set -eu

missing=""
need() { # command package
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need_file() { # file package
    [ -e "$1" ] || missing="$missing $2"
}
need_header() { # header package
    need_file "$(find /usr/include "/usr/include/$(uname -m)-linux-gnu" -path "*/$1" 2>/dev/null | head -n 1)" "$2"
}

for purpose in "$@"; do
    case $purpose in
    build)
        need cc gcc
        need_file /usr/include/stdio.h libc6-dev
        need make make
        need cmake cmake
        ;;
    test)
        need python3 python3
        need g++ g++
        need clang clang
        need_file "$(clang -print-file-name="libclang_rt.tsan-$(uname -m).a" 2>/dev/null)" libclang-rt-dev
        need clang-format clang-format
        need spin spin
        need gdb gdb
        need pkg-config pkg-config
        need qemu-aarch64 qemu-user
        need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
        need_file /usr/aarch64-linux-gnu/lib/libc.so.6 libc6-dev-arm64-cross
        need_header hiredis/hiredis.h libhiredis-dev
        need_header postgresql/libpq-fe.h libpq-dev
        need_header curl/curl.h libcurl4-openssl-dev
        need redis-server redis-server
        need redis-cli redis-tools
        need_file "$(find /usr/lib/postgresql -path '*/bin/initdb' 2>/dev/null | head -n 1)" postgresql
        ;;
    bench)
        need python3 python3
        need go golang-go
        ;;
    *)
        echo "setup: unknown purpose '$purpose'" >&2
        exit 2
        ;;
    esac
done

[ -z "$missing" ] && exit 0

sudo=""
[ "$(id -u)" -eq 0 ] || sudo="sudo -n"
if ! command -v apt-get >/dev/null 2>&1 || { [ -n "$sudo" ] && ! $sudo true 2>/dev/null; }; then
    echo "setup: please install these packages, then run this again:$missing" >&2
    exit 1
fi
echo "setup: installing$missing"
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
# shellcheck disable=SC2086
$sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
