#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the stress tests over and over, each time with a fresh seed, and watches for failures and hangs.

    tools/soak.py --build DIR [--seconds 3600] [--match REGEX]

Two run at a time. One that fails, or that takes longer than LIMIT seconds, ends the soak: its seed, its output and, if it
hangs, the stacks of its threads are shown. Ends like the tests do, with "N passed, M failed".
"""
import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT = 300
AT_ONCE = 2


def stacks_of(pid):
    command = ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all backtrace"]
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60).stdout.decode()
    except (OSError, subprocess.TimeoutExpired):
        return "(no gdb here)\n"


def run_once(executable, seed):
    """Returns None if all is well, else what is to be shown."""
    env = {**os.environ, "WEFT_TEST_SEED": str(seed)}
    process = subprocess.Popen([executable], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        output = process.communicate(timeout=LIMIT)[0].decode(errors="replace")
        if process.returncode == 0:
            return None
        return f"exit {process.returncode}\n{output[-20000:]}"
    except subprocess.TimeoutExpired:
        shown = stacks_of(process.pid)
        os.killpg(process.pid, signal.SIGABRT)  # the stress tests show the scheduler then
        time.sleep(6)
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        output = process.communicate()[0].decode(errors="replace")
        return f"it hangs\n{output[-20000:]}\n{shown}"


def soak(executables, end):
    """Each of them as often as time allows; returns how often each was well, and the first failure."""
    counts = {executable.name: 0 for executable in executables}

    def worker(number):
        rng = random.SystemRandom()
        at = number
        while time.monotonic() < end and not failures:
            executable = executables[at % len(executables)]
            at += 1
            seed = rng.randrange(1, 1 << 48)
            shown = run_once(executable, seed)
            if shown is not None:
                failures.append(f"{executable.name} with WEFT_TEST_SEED={seed}: {shown}")
            else:
                counts[executable.name] += 1

    failures = []
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for future in [pool.submit(worker, i * len(executables) // AT_ONCE) for i in range(AT_ONCE)]:
            future.result()
    return counts, failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", required=True, type=pathlib.Path)
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--match", default="^stress_", help="which of the tests, by name")
    options = parser.parse_args()
    executables = [path for path in sorted((options.build / "tests").glob("*"))
                   if re.search(options.match, path.name) and path.is_file() and os.access(path, os.X_OK)]
    if not executables:
        sys.exit(f"no test in {options.build}/tests matches {options.match}")
    counts, failures = soak(executables, time.monotonic() + options.seconds)
    for failure in failures:
        print(failure)
    for name, n in counts.items():
        failed = any(failure.startswith(name + " ") for failure in failures)
        print(f"{'FAIL' if failed else 'ok'} {name}" + (f" ({n} times)" if n else " (no time left)"))
    failed = len({failure.split(' ', 1)[0] for failure in failures})
    print(f"{len(counts) - failed} passed, {failed} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
