#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs a build into a temporary prefix and uses it from there as a stranger would: tests/install/run.sh BUILD
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
[ $# -eq 1 ] && [ -f "$1/CMakeCache.txt" ] || { echo "usage: run.sh BUILD (a built folder)" >&2; exit 2; }
build=$(cd "$1" && pwd)

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
. "$root/tests/check.sh"

libdir() { # prefix
    dirname "$(find "$1" -name libweft.so.1)"
}

with_cmake() {
    cmake --install "$build" --prefix "$tmp/cmake"
}

# Into another prefix than the build was configured with.
with_make() {
    make -C "$root" install BUILD="$build" PREFIX="$tmp/make"
}

# As a packager does: DESTDIR before the prefix.
with_destdir() {
    make -C "$root" install BUILD="$build" PREFIX=/opt/weft DESTDIR="$tmp/dest"
    test -f "$tmp/dest/opt/weft/include/weft.h"
}

same_files() {
    (cd cmake && find . | sed "s|$tmp/cmake|PREFIX|" | sort) >cmake.files # gdb's extension lies under the library's full path
    (cd make && find . | sed "s|$tmp/make|PREFIX|" | sort) >make.files
    diff cmake.files make.files
}

package=weft

# Builds a source against the prefix with what pkg-config says, then runs it with the shared library.
pkg_config_app() { # prefix, compiler and source
    lib=$(libdir "$1")
    shift
    flags=$(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs $package)
    echo "$* $flags"
    # shellcheck disable=SC2086
    "$@" -Wall -Wextra -Werror -o app $flags
    readelf -d app | grep -q 'NEEDED.*libweft\.so\.1'
    LD_LIBRARY_PATH=$lib ./app
}

posix_app() {
    package=weft-posix
    pkg_config_app "$tmp/cmake" "$@"
    readelf -d app | grep -q 'NEEDED.*libweft_posix\.so\.1'
}

find_package() {
    cmake -S "$here" -B project -DCMAKE_PREFIX_PATH="$tmp/cmake"
    cmake --build project
    readelf -d project/app_shared | grep -q 'NEEDED.*libweft\.so\.1'
}

# The static one needs nothing of the library at run time.
static_app() {
    if readelf -d project/app_static | grep libweft; then return 1; fi
    project/app_static
}

# Without a shared libc nobody is stopped by a signal: it is said once, to whoever wants to know, and all works.
static_libc() {
    lib=$(libdir "$tmp/cmake")
    cc -static -Wall -Wextra -o static_libc "$here/static.c" -I"$tmp/cmake/include" "$lib/libweft.a" -pthread
    ./static_libc 2>said
    test ! -s said
    WEFT_DEBUG=leaks ./static_libc 2>said
    cat said
    test "$(grep -c 'no asynchronous preemption: libc' said)" -eq 1
    test "$(wc -l <said)" -eq 1
}

check cmake_installs with_cmake
check make_installs with_make
check make_installs_below_destdir with_destdir
check both_install_the_same_files same_files
check pkg_config_finds_the_library pkg_config_app "$tmp/cmake" cc -std=c11 "$here/app.c"
check pkg_config_finds_it_after_make_install pkg_config_app "$tmp/make" cc -std=c11 "$here/app.c"
check cxx_programs_use_the_header pkg_config_app "$tmp/cmake" g++ -std=c++17 -Wpedantic "$here/app.cc"
check pkg_config_finds_libweft_posix posix_app cc -std=c11 "$here/app.c"
check find_package_finds_both_libraries find_package
check find_package_shared_runs project/app_shared
check find_package_posix_runs project/app_posix
check find_package_static_runs static_app
check a_static_libc_turns_preemption_off static_libc
finish
