#!/bin/sh
# SPDX-License-Identifier: MIT
# The library as one file, compiled with one command and used: tests/pack/amalgamation.sh
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
. "$root/tests/check.sh"

said="squares 332833500, the hog was stopped, the socket said hello"

is_generated() {
    python3 "$root/tools/amalgamate.py" "$tmp"
    test -f weft.c
    cmp weft.h "$root/include/weft.h"
}

compiles() { # compiler and options
    "$@" -O2 -Wall -Wextra -Werror -c weft.c -pthread
}

# Preemption knows the library's code by its section.
is_in_its_section() {
    objdump -t weft.o >symbols
    grep -q 'F weft_text.* weft_run$' symbols
    ! grep 'F \.text' symbols
}

shows_its_calls_only() {
    objdump -t weft.o | grep ' g ' | grep -v '\.hidden' >shown
    grep -q ' weft_run$' shown
    ! grep -v ' weft_[a-z_]*$' shown
}

runs() { # launcher...
    "$@" >out
    cat out
    echo "$said" | cmp - out
}

app() { # compiler
    "$1" -O2 -Wall -Wextra -Werror -I. -o app "$here/app.c" weft.o -pthread
    runs timeout 120 ./app
}

whole_program() {
    gcc -O2 -flto=auto -I. -o app "$here/app.c" weft.c -pthread
    runs timeout 120 ./app
}

cross_app() {
    compiles aarch64-linux-gnu-gcc
    is_in_its_section
    aarch64-linux-gnu-gcc -O2 -Wall -Wextra -Werror -I. -o app "$here/app.c" weft.o -pthread
    runs timeout 300 qemu-aarch64 -L /usr/aarch64-linux-gnu ./app
}

check one_file_is_made is_generated
check gcc_compiles_it_without_a_warning compiles gcc
check all_of_its_code_is_in_one_section is_in_its_section
check only_its_calls_are_seen shows_its_calls_only
check channels_preemption_and_sockets_work app gcc
check with_link_time_optimisation_it_works whole_program
check clang_compiles_it_without_a_warning compiles clang
check with_clang_its_code_is_in_one_section is_in_its_section
check with_clang_it_works app clang
check on_aarch64_it_works cross_app
finish
