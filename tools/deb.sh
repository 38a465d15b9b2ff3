#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds the Debian packages from a copy of the sources: tools/deb.sh FOLDER. They are in FOLDER then; what lintian says about them
# is shown and in FOLDER/lintian.txt, where lintian is there.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -eq 1 ] || { echo "usage: deb.sh FOLDER" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)

rm -rf "$folder/source" "$folder"/*.deb "$folder"/*.buildinfo "$folder"/*.changes "$folder/lintian.txt"
mkdir "$folder/source"
cd "$root"
if git rev-parse >/dev/null 2>&1; then git ls-files -co --exclude-standard; else find . -type f ! -path './build/*'; fi |
    while read -r file; do [ ! -f "$file" ] || echo "$file"; done |
    tar -cf - -T - | tar -xf - -C "$folder/source"

cd "$folder/source"
if ! dpkg-buildpackage -us -uc -b -d >"$folder/build.log" 2>&1; then
    tail -n 40 "$folder/build.log" >&2
    echo "deb: the packages did not build; $folder/build.log" >&2
    exit 1
fi
cd "$folder"
rm -rf source
if command -v lintian >/dev/null 2>&1; then
    lintian --allow-root --no-tag-display-limit ./*.changes >lintian.txt 2>&1 || true
    cat lintian.txt
fi
ls ./*.deb
