#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What libweft_posix.so is for: calls that park, and libraries that nobody here wrote.

    tests/posix/run.py BUILD

The programs of tests/posix/test_posix_*.c run once linked with libweft_posix.so and once with LD_PRELOAD. Then lib_*.c
use libraries; the servers that these talk to are started here, with sockets in a temporary folder, and ended by their
process ids. Prints "ok NAME" or "FAIL NAME" for each case, "skip NAME: why" for a library that is not installed here,
then "N passed, M failed".
"""
import collections
import contextlib
import glob
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LIMIT = 200  # seconds for a program, which has limits of its own for each case
PATIENCE = 60  # seconds for a server to start, or to end
CASE_LINE = re.compile(r"(ok|FAIL) (\S+)")
CLOSING_LINE = re.compile(r"(\d+) passed, (\d+) failed")

counts = collections.Counter()


def report(status, name, why=""):
    counts[status] += 1
    print(f"{status} {name}{why}", flush=True)


# ---- programs --------------------------------------------------------------------------------------------------------

def run_program(name, program, env):
    """Reports the program's cases as name/CASE, and one more if it ends badly; shows what else it says."""
    try:
        done = subprocess.run([program], env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT)
        code, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        code, output = None, late.stdout or b""
    own, closing = collections.Counter(), None
    for line in output.decode(errors="replace").splitlines():
        if case := CASE_LINE.fullmatch(line):
            own[case[1]] += 1
            report(case[1], f"{name}/{case[2]}")
        elif end := CLOSING_LINE.fullmatch(line):
            closing = (int(end[1]), int(end[2]))
        else:
            print(f"  {line}")
    if code is None:
        report("FAIL", f"{name}/time-limit")
    elif closing != (own["ok"], own["FAIL"]) or code != (1 if own["FAIL"] else 0):
        report("FAIL", f"{name}/bad-end-exit-{code}")


def run_own(build):
    for program in sorted((build / "tests" / "posix").glob("test_posix_*")):
        if program.suffix == "" and not program.is_dir():
            preload = program.name.endswith("_preload")
            run_program(program.name.removeprefix("test_posix_"), program,
                        {"LD_PRELOAD": str(build / "posix" / "libweft_posix.so")} if preload else {})


def names_in(library, *options):
    listing = subprocess.run(["nm", "-D", *options, library], stdout=subprocess.PIPE, text=True, check=True).stdout
    return {re.sub("@.*", "", line.split()[-1]) for line in listing.splitlines()}


def report_none_of(names, name):
    if names:
        print(f"  {', '.join(sorted(names))}")
    report("FAIL" if names else "ok", name)


def check_names(build):
    """libweft.so must not come back to itself through ours; it looks names up in a region."""
    libc = subprocess.run(["cc", "-print-file-name=libc.so.6"], stdout=subprocess.PIPE, text=True).stdout.strip()
    ours = names_in(build / "posix" / "libweft_posix.so", "--defined-only")
    called = names_in(build / "libweft.so", "--undefined-only")
    report_none_of(ours - names_in(libc, "--defined-only"), "every_name_is_one_of_libc")
    report_none_of((ours & called) - {"getaddrinfo", "getnameinfo"}, "the_runtime_goes_past_libc")


# ---- servers ---------------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def server(command, ready, end_signal, log, **how):
    """A server that answers, until the end of the block."""
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, **how)
    try:
        began = time.monotonic()
        while process.poll() is None and not ready() and time.monotonic() - began < PATIENCE:
            time.sleep(0.05)
        if process.poll() is not None or not ready():
            raise RuntimeError(f"{command[0]} does not start:\n{log.read_text(errors='replace')}")
        yield
    finally:
        end(process, end_signal)


def end(process, end_signal):
    process.send_signal(end_signal)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def quietly(command, **how):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          **how).returncode == 0


@contextlib.contextmanager
def redis(folder):
    socket = folder / "redis"
    command = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no",
               "--dir", folder, "--maxclients", "1000"]
    with server(command, lambda: quietly(["redis-cli", "-s", socket, "ping"]), signal.SIGTERM, folder / "redis.log"):
        yield {"TEST_REDIS": str(socket)}


def postgres_tool(name):
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    return shutil.which(name) or (found[-1] if found else None)


@contextlib.contextmanager
def postgres(folder):
    """It does not run as root: then as its own user, to whom the folder is given."""
    how = {"cwd": folder}
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        how.update(user="postgres", group="postgres", extra_groups=[])
    data = folder / "data"
    subprocess.run([postgres_tool("initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C",
                    "--no-sync"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, **how)
    command = [postgres_tool("postgres"), "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off",
               "-c", "max_connections=100"]
    ready = [postgres_tool("pg_isready"), "-q", "-h", folder, "-U", "postgres"]
    with server(command, lambda: quietly(ready), signal.SIGINT, folder / "postgres.log", **how):
        yield {"TEST_PQ": f"host={folder} dbname=postgres user=postgres sslmode=disable gssencmode=disable"}


@contextlib.contextmanager
def nothing(_folder):
    yield {}


# ---- libraries -------------------------------------------------------------------------------------------------------

Library = collections.namedtuple("Library", "name tools server packages")
LIBRARIES = (
    Library("redis", ("redis-server", "redis-cli"), redis, "libhiredis-dev and redis-server"),
    Library("pq", ("initdb", "postgres", "pg_isready"), postgres, "libpq-dev and postgresql"),
    Library("curl", (), nothing, "libcurl4-openssl-dev"),
)


def run_library(library, program):
    # sockets have short names
    with tempfile.TemporaryDirectory(prefix="weft-", dir="/tmp") as folder:
        try:
            with library.server(pathlib.Path(folder)) as env:
                run_program(library.name, program, env)
        except (OSError, RuntimeError, subprocess.CalledProcessError) as failure:
            print(f"  {failure}".replace("\n", "\n  "))
            report("FAIL", f"{library.name}/server")


def run_libraries(build):
    for library in LIBRARIES:
        program = build / "tests" / "posix" / f"lib_{library.name}"
        if program.exists() and all(map(postgres_tool, library.tools)):
            run_library(library, program)
        else:
            status = "FAIL" if os.environ.get("CI") == "true" else "skip"
            report(status, library.name, f": no {library.packages} here (tools/setup.sh build test installs them)")


def interrupted(_signal, _frame):
    sys.exit(130)  # through the ends of the blocks, which end the servers


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: run.py BUILD")
    signal.signal(signal.SIGTERM, interrupted)
    build = pathlib.Path(sys.argv[1]).resolve()
    check_names(build)
    run_own(build)
    run_libraries(build)
    skipped = f", {counts['skip']} skipped" if counts["skip"] else ""
    print(f"{counts['ok']} passed, {counts['FAIL']} failed{skipped}")
    return counts["FAIL"] != 0


if __name__ == "__main__":
    sys.exit(main())
