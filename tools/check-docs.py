#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiles and runs what the documentation shows.

    program    a ```c block of README.md or docs/*.md with `int main(`: it is compiled, linked with libweft.a and run.
               If the next block begins within five lines and has no language, it is what the program prints, exactly,
               but for `...`: it stands for anything in a line, and for any lines where it is a line of its own. What
               follows ```c on its line, as in ```c WEFT_PROCS=1, is the program's environment.
    fragment   a ```c block without main is compiled if its first line is a comment `/* compiles: ... */`: as the body
               of a function, or else as declarations. Other blocks are skipped.
    example    in the comment that opens examples/*.c, a line ` *   $ ... ./NAME` and what it prints, in lines of that
               indentation. What follows the last && is run in BUILD/examples. Without such lines it is skipped.

    tools/check-docs.py BUILD

Whatever is run has to end with exit code 0 within the limit. A warning is shown, but fails nothing: a fragment is no
whole program. Prints "ok NAME" or "FAIL NAME: reason" for each, then "N passed, M failed".
"""
import collections
import difflib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT = 20  # seconds
NEAR = 5  # lines between a program and its output

# What newer compilers reject anyway; without a link step nobody else notices a function that does not exist.
COMPILE = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror=implicit", "-Werror=int-conversion",
           "-Werror=incompatible-pointer-types", f"-I{ROOT / 'include'}"]
HEADERS = ("errno.h", "stdatomic.h", "stdbool.h", "stdint.h", "stdio.h", "stdlib.h", "string.h", "unistd.h", "weft.h")

FENCE = re.compile(r"^ {0,3}(`{3,})[ \t]*([^`\n]*?)[ \t]*$")
MAIN = re.compile(r"\bint main\(")
COMPILES = re.compile(r"^\s*/\* compiles:.*\*/")
OPENING = re.compile(r"\A(?:\s*/\*.*?\*/)+", re.S)
COMMAND = re.compile(r"^ \*   \$ (?:.*&& *)?(.*\./[\w-]+.*)$")
OUTPUT = re.compile(r"^ \*   (?!\$ )(.*)$|^ \*$")

Block = collections.namedtuple("Block", "language env first last text")  # the lines of its fences, from 1


class Failure(Exception):
    """The reason on the first line; what else there is to show on the others."""


# ---- running ---------------------------------------------------------------------------------------------------------

def run(command, folder, limit=LIMIT, env=None):
    """What it prints; an error unless it ends well and in time."""
    process = subprocess.Popen(command, cwd=folder, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output = process.communicate(timeout=limit)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output = process.communicate()[0].decode(errors="replace")
        raise Failure(f"still running after {limit} s\n{output}") from None
    if process.returncode < 0:
        raise Failure(f"killed by {signal.Signals(-process.returncode).name}\n{output}")
    if process.returncode > 0:
        raise Failure(f"exit code {process.returncode}\n{output}")
    return output


def compile_c(text, folder, arguments):
    (folder / "snippet.c").write_text(text)
    try:
        return run(COMPILE + ["snippet.c", *arguments], folder, 120)
    except Failure as failure:
        raise Failure(f"does not compile\n{failure}") from None


def pattern_of(expected):
    """A regular expression for it, where ... stands for anything."""
    lines = (r"(?:.*\n)*?" if line == "..." else ".*?".join(map(re.escape, line.split("..."))) + r"\n"
             for line in expected.splitlines())
    return re.compile("".join(lines))


def compare(output, expected):
    if pattern_of(expected).fullmatch(output):
        return
    shown = difflib.unified_diff(expected.splitlines(), output.splitlines(), "expected", "printed", lineterm="")
    if output.splitlines() == expected.splitlines():
        shown = ["the ends of the lines differ"]
    raise Failure("prints something else\n" + "\n".join(shown))


# ---- documents -------------------------------------------------------------------------------------------------------

def blocks_of(text):
    """The fenced blocks; one that is not closed goes on to the end."""
    lines = text.rstrip("\n").split("\n") + ["`" * 99]
    blocks, first, ticks, words = [], 0, 0, []
    for number, line in enumerate(lines, 1):
        fence = FENCE.match(line)
        if fence and first == 0:
            first, ticks, words = number, len(fence[1]), fence[2].split()
        elif fence and fence[2] == "" and len(fence[1]) >= ticks:
            language, env = "".join(words[:1]), dict(word.split("=", 1) for word in words[1:] if "=" in word)
            blocks.append(Block(language, env, first, number, "".join(f"{line}\n" for line in lines[first:number - 1])))
            first = 0
    return blocks


def output_of(blocks, i):
    """The text of the block that says what block i prints, or None."""
    after = blocks[i + 1] if i + 1 < len(blocks) else None
    return after.text if after and after.language == "" and after.first - blocks[i].last <= NEAR else None


def at(path, block):
    """So that the compiler's messages show the document."""
    return f'#line {block.first + 1} "{path}"\n'


def check_program(path, block, expected, build, folder):
    link = ["-o", "snippet", build / "libweft.a", "-pthread", "-rdynamic"]  # names in dumps
    warnings = compile_c(at(path, block) + block.text, folder, link)
    output = run(["./snippet"], folder, env=block.env)
    if expected is not None:
        compare(output, expected)
    return warnings


def check_fragment(path, block, folder):
    includes = "".join(f"#include <{name}>\n" for name in HEADERS)
    includes += "".join(re.findall(r"^#include .*\n", block.text, re.M))
    text = at(path, block) + re.sub(r"^#include .*$", "", block.text, flags=re.M)
    try:
        return compile_c(f"{includes}void snippet(void *arg)\n{{\n(void)arg;\n{text}}}\n", folder, ["-c"])
    except Failure as as_body:
        try:
            return compile_c(includes + text, folder, ["-c"])
        except Failure as as_declarations:
            raise Failure(f"{as_body}\nas declarations it {as_declarations}") from None


def document_checks(path, build, folder):
    """Yields (name, check) of each snippet."""
    blocks = blocks_of(path.read_text())
    for i, block in enumerate(blocks):
        name = f"{path.relative_to(ROOT)}:{block.first}"
        if block.language != "c":
            continue
        if MAIN.search(block.text):
            yield name, lambda b=block, e=output_of(blocks, i): check_program(path, b, e, build, folder)
        elif COMPILES.match(block.text):
            yield name, lambda b=block: check_fragment(path, b, folder)


# ---- examples --------------------------------------------------------------------------------------------------------

def commands_of(text):
    """Yields each command of the opening comment with its output."""
    opening = OPENING.match(text)
    lines = opening[0].split("\n") if opening else []
    for i, line in enumerate(lines):
        command = COMMAND.match(line)
        output = []
        for line in lines[i + 1:] if command else []:
            if not (shown := OUTPUT.match(line)):
                break
            output.append(shown[1] or "")
        while output and output[-1] == "":
            output.pop()
        if output:
            yield command[1], "".join(f"{line}\n" for line in output)


def example_checks(path, build):
    folder = build / "examples"
    for i, (command, expected) in enumerate(commands_of(path.read_text())):
        name = f"{path.relative_to(ROOT)}" + (f"#{i + 1}" if i > 0 else "")
        yield name, lambda c=command, e=expected: compare(run(["sh", "-c", c], folder), e)


# ---- all together ----------------------------------------------------------------------------------------------------

def all_checks(build, folder):
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]:
        yield from document_checks(path, build, folder)
    for path in sorted(ROOT.glob("examples/*.c")):
        yield from example_checks(path, build)


def indented(text):
    return "".join(f"    {line}\n" for line in (text or "").rstrip("\n").split("\n") if line)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: check-docs.py BUILD")
    build = pathlib.Path(sys.argv[1]).resolve()
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="weft-docs-") as folder:
        for name, check in all_checks(build, pathlib.Path(folder)):
            try:
                warnings = check()
                print(f"ok {name}\n{indented(warnings)}", end="")
                passed += 1
            except (Failure, OSError) as failure:
                reason, _, details = str(failure).partition("\n")
                print(f"FAIL {name}: {reason}\n{indented(details)}", end="")
                failed += 1
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
