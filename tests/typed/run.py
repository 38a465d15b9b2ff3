#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What typed channels accept, and what they must refuse: tests/typed/run.py BUILD

    good.c, good.cpp    compiled in each dialect without a warning, linked with BUILD/libweft.a and run.
    wrong.c             each case by each compiler of its languages: its wrong word has to be an error, even where the
                        header's warnings are not shown, and the right one in its place has to pass without a warning.

Prints "ok NAME" or "FAIL NAME: reason" for each, then "N passed, M failed".
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = HERE.parent.parent / "include"
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
CXX_OF = {"gcc": "g++", "clang": "clang++"}
LIMIT = 60  # seconds


class Failure(Exception):
    """The reason on the first line; what else there is to show on the others."""


def run(command):
    """Its exit code and what it prints."""
    try:
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise Failure(f"still running after {LIMIT} s") from None
    return done.returncode, done.stdout.decode(errors="replace")


def must_pass(what, command):
    code, output = run(command)
    if code != 0:
        raise Failure(f"{what}, exit code {code}\n{output}")


# ---- good ------------------------------------------------------------------------------------------------------------

def check_good(c, compiler, dialect, source, build, folder):
    binary, drain = (folder / f"{compiler}-{dialect}.{ext}" for ext in ("exe", "o"))
    flags = [*STRICT, "-O1", f"-I{INCLUDE}"]
    must_pass("does not compile", [c, "-std=c11", *flags, "-c", "-o", drain, HERE / "drain.c"])
    must_pass("does not compile", [compiler, f"-std={dialect}", *flags, "-o", binary, source, drain,
                                   build / "libweft.a", "-pthread"])
    must_pass("does not work", [binary])


def good_checks(build, folder):
    for c, cxx in CXX_OF.items():
        for compiler, source, dialects in ((c, "good.c", ("c11", "gnu11", "gnu2x")),
                                           (cxx, "good.cpp", ("c++17", "gnu++20"))):
            for dialect in dialects:
                yield (f"{compiler}/{dialect}", compiler,
                       lambda c=c, x=compiler, d=dialect, s=HERE / source: check_good(c, x, d, s, build, folder))


# ---- wrong -----------------------------------------------------------------------------------------------------------

def check_wrong(case, compiler, dialect):
    command = [compiler, f"-std={dialect}", "-x", "c++" if "++" in dialect else "c", "-fsyntax-only", f"-D{case}",
               HERE / "wrong.c"]
    must_pass("does not compile when it is right", [*command, "-DRIGHT", *STRICT, f"-I{INCLUDE}"])
    code, output = run([*command, f"-isystem{INCLUDE}"])
    if code == 0:
        raise Failure(f"compiles although it is wrong\n{output}")
    if "error:" not in output:
        raise Failure(f"ends with {code} and without an error\n{output}")


def wrong_checks():
    for case in re.findall(r"^#ifdef ([a-z]\w*)$", (HERE / "wrong.c").read_text(), re.M):
        for c, cxx in CXX_OF.items():
            for compiler, dialect, elsewhere in ((c, "c11", "_in_cxx"), (cxx, "c++17", "_in_c")):
                if not case.endswith(elsewhere):
                    yield (f"{compiler}/{case}", compiler,
                           lambda n=case, x=compiler, d=dialect: check_wrong(n, x, d))


# ---- all together ----------------------------------------------------------------------------------------------------

def verdict(name, compiler, check):
    """Where a compiler is missing its cases are skipped; CI has all of them."""
    if not shutil.which(compiler) and os.environ.get("CI") != "true":
        return "skip", f"skip {name}: there is no {compiler} here"
    try:
        check()
        return "ok", f"ok {name}"
    except (Failure, OSError) as failure:
        reason, _, details = str(failure).partition("\n")
        return "FAIL", "\n    ".join([f"FAIL {name}: {reason}", *details.rstrip("\n").split("\n")])


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: run.py BUILD")
    build = pathlib.Path(sys.argv[1]).resolve()
    count = {"ok": 0, "FAIL": 0, "skip": 0}
    with tempfile.TemporaryDirectory(prefix="weft-typed-") as folder, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        checks = [*good_checks(build, pathlib.Path(folder)), *wrong_checks()]
        for status, line in pool.map(lambda check: verdict(*check), checks):
            count[status] += 1
            print(line)
    skipped = f", {count['skip']} skipped" if count["skip"] else ""
    print(f"{count['ok']} passed, {count['FAIL']} failed{skipped}")
    return count["FAIL"] != 0


if __name__ == "__main__":
    sys.exit(main())
