#!/bin/sh
# SPDX-License-Identifier: MIT
# The Debian packages: built, unpacked into a folder of their own, and used from there: tests/pack/deb.sh
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
. "$root/tests/check.sh"

said="squares 332833500, the hog was stopped, the socket said hello"

are_built() {
    "$root/tools/deb.sh" deb
    for package in libweft1 libweft-dev weft-tools; do
        test -f deb/${package}_*.deb
        dpkg -x deb/${package}_*.deb image
    done
}

# A package without anything in it is what there is as long as the tree has no tools.
lintian_is_content() {
    test -f deb/lintian.txt
    ! grep -E '^[EW]: ' deb/lintian.txt | grep -v 'weft-tools: empty-binary-package'
}

lib() {
    dirname "$(find "$tmp/image/usr/lib" -name libweft.so.1)"
}

files_are_there() {
    test -f image/usr/include/weft.h
    test -f "$(lib)/libweft.a"
    test -f "$(lib)/libweft_posix.so.1"
    test -f image/usr/share/man/man7/weft.7.gz
    test -f image/usr/share/doc/libweft-dev/README.md
    test -f image/usr/share/doc/libweft-dev/docs/tutorial.md
    gzip -dc image/usr/share/man/man3/weft_go.3.gz | grep -q weft_go
    test ! -f "$root/tools/weft-gdb.py" || test -f image/usr/share/weft/weft-gdb.py
}

runs() {
    "$@" >out
    cat out
    echo "$said" | cmp - out
}

shared_app() {
    flags=$(PKG_CONFIG_PATH=$(lib)/pkgconfig pkg-config --cflags --libs weft)
    # shellcheck disable=SC2086
    cc -O2 -Wall -Wextra -Werror -o shared "$here/app.c" $flags
    readelf -d shared | grep -q 'NEEDED.*libweft\.so\.1'
    runs env LD_LIBRARY_PATH="$(lib)" timeout 120 ./shared
}

static_app() {
    cc -O2 -Wall -Wextra -Werror -o static "$here/app.c" -Iimage/usr/include "$(lib)/libweft.a" -pthread
    runs timeout 120 ./static
}

check packages_are_built_and_unpacked are_built
check lintian_has_nothing_to_say lintian_is_content
check the_files_are_where_they_belong files_are_there
check a_program_is_built_and_runs shared_app
check a_program_is_linked_statically_and_runs static_app
finish
