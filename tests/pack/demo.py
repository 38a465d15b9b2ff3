#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tour of `make demo` in its short form, on a pipe and on terminals: tests/pack/demo.py BUILD

Prints "ok NAME" or "FAIL NAME: reason" for each case, then "N passed, M failed".
"""
import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import termios

LIMIT = 300  # seconds
DEMO = None
ESCAPE = re.compile(r"\033\[[0-9;]*[A-Za-z]")


def environment(**changes):
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")}
    return {**env, **changes}


def on_a_pipe(*arguments, code=0):
    done = subprocess.run([DEMO, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=LIMIT, env=environment(TERM="xterm"))
    assert done.returncode == code, f"exit code {done.returncode}: {done.stderr.decode()}"
    return done.stdout.decode(), done.stderr.decode()


def on_a_terminal(columns, *arguments, **env):
    """What a terminal of that width gets to see."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([DEMO, *arguments], stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL,
                               env=environment(TERM="xterm", **env))
    os.close(theirs)
    pieces = []
    try:
        while piece := os.read(ours, 65536):
            pieces.append(piece)
    except OSError:  # how a terminal ends
        pass
    os.close(ours)
    assert process.wait(LIMIT) == 0, f"exit code {process.returncode}"
    return b"".join(pieces).decode()


def widest(text):
    """The columns of the longest line, be it one that moves."""
    return max(len(piece) for line in text.split("\n") for piece in ESCAPE.sub("", line).split("\r"))


def six_steps_on_a_pipe():
    out, err = on_a_pipe("--quick")
    assert re.findall(r"^(\d)  \w", out, re.M) == list("123456"), out
    assert "their sum is right" in out and "the last prime is 229" in out, out
    assert len(re.findall(r"^   weft ", out, re.M)) >= 6 and len(re.findall(r"^   pthreads ", out, re.M)) >= 6, out
    assert "(extrapolated)" in out and "Read next: " in out and "Run next: " in out, out
    assert "\033" not in out and "\r" not in out, "a pipe gets escape sequences"
    assert '"Kant"' in err and "mutex" in err and "weft_run returned -35" in out, err


def a_terminal_gets_colours_and_a_line_that_moves():
    text = on_a_terminal(80, "--quick", "3")
    assert "\033[1m" in text and re.search(r"\r\033\[K +weft +\[#", text), repr(text)
    assert widest(text) <= 80, f"{widest(text)} columns: {text}"


def a_narrow_terminal_is_enough():
    text = on_a_terminal(40, "--quick", "2", "4")
    assert widest(text) <= 40, f"{widest(text)} columns: {text}"


def no_color_is_plain():
    text = on_a_terminal(80, "--quick", "2", NO_COLOR="1")
    assert "\033" not in text and "the last prime is 229" in text, repr(text)


def nonsense_is_refused():
    for words in (["7"], ["0"], ["--fast"], ["2", "x"]):
        assert on_a_pipe(*words, code=2)[1].startswith("usage: demo"), words


def main():
    global DEMO
    if len(sys.argv) != 2:
        sys.exit("usage: demo.py BUILD")
    DEMO = str(pathlib.Path(sys.argv[1]).resolve() / "examples" / "demo")
    failed = 0
    cases = (six_steps_on_a_pipe, a_terminal_gets_colours_and_a_line_that_moves, a_narrow_terminal_is_enough,
             no_color_is_plain, nonsense_is_refused)
    for case in cases:
        try:
            case()
            print(f"ok {case.__name__}", flush=True)
        except (AssertionError, OSError, subprocess.TimeoutExpired) as failure:
            failed += 1
            print(f"FAIL {case.__name__}: {failure}", flush=True)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
