#!/bin/sh
# SPDX-License-Identifier: MIT
# The manual pages that weft.h makes, and the documentation as HTML: tests/pack/man.sh
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
. "$root/tests/check.sh"

is_made() {
    python3 "$root/tools/man.py" man
    test -s man/man7/weft.7
}

# Counted in another way than the generator's.
calls() {
    sed 's|/\*.*\*/||' "$root/include/weft.h" | grep -E '^(WEFT_API|static inline) ' |
        grep -oE '\bweft_[a-z0-9_]*[a-z0-9]\(' | tr -d '('
}

every_call() {
    test "$(calls | wc -l)" -gt 80
    for call in $(calls); do
        page=man/man3/$call.3
        test -f "$page" || { echo "$call has no page"; exit 1; }
        case $(cat "$page") in .so*) page=man/$(sed 's/^\.so //' "$page") ;; esac
        grep -q "^.*[ *]$call(" "$page" || { echo "$page does not show $call"; exit 1; }
        grep -q "^\.BR\|$call" man/man7/weft.7
    done
}

pages() {
    grep -L '^\.so' man/man?/*
}

is_clean() {
    for page in $(pages); do
        mandoc -T lint -W warning "$page"
        ! command -v groff || groff -man -ww -Tutf8 -z "$page" 2>&1 | tee complaints
        test ! -s complaints
    done
}

# A header in which a call came without a word about it.
silent_call() {
    mkdir -p other/include other/tools other/examples
    cp "$root/tools/man.py" other/tools && cp "$root/CMakeLists.txt" other && cp "$root/examples/hello.c" other/examples
    sed 's|^/\* ---- time .*|&\n\nWEFT_API int weft_silent(int n);\n|' "$root/include/weft.h" >other/include/weft.h
    grep -q weft_silent other/include/weft.h
    if python3 other/tools/man.py other/man 2>said; then return 1; fi
    grep -q 'says nothing about weft_silent$' said
}

html() {
    python3 "$root/tools/docs.py" man html
    test -s html/index.html
    test -s html/weft.7.html
    # Every link inside leads to a page that is there.
    grep -ohE 'href="[^"#:]+["#]' html/*.html | sed 's/href="//; s/["#]$//' | sort -u >links
    while read -r link; do
        test -e "html/$link" || { echo "no $link"; exit 1; }
    done <links
}

check pages_are_made is_made
check every_call_has_a_page every_call
check the_pages_are_clean is_clean
check a_call_without_a_word_is_an_error silent_call
check html_is_made_and_its_links_hold html
finish
