#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the benchmarks of Weft and of its peers in turn and compares them.

Each program (build/bench/weft_bench, go_bench, tokio_bench, pthread_bench, bare_bench) lists its workloads with -l and
prints lines `NAME VALUE UNIT`. The runs are interleaved (weft, go, tokio, ..., weft, ...) and each round goes through
all workloads, so that a noisy moment of the machine hits everybody, and no workload in all of its runs; who begins
changes with the round. Best and median are kept.

environment:
  ONLY=name[,name]       these workloads only
  AGAINST=peer[,peer]    these peers only: go, tokio, pthread, bare
  QUICK=1                2 rounds instead of 5, smaller files, shorter http
"""

import argparse
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs" / "benchmarks.md"
PEERS = ["go", "tokio", "pthread", "bare"]
LABELS = {"weft": "Weft", "go": "Go", "tokio": "tokio", "pthread": "pthread", "bare": "bare"}
ROUNDS, QUICK_ROUNDS = 5, 2
DEFAULT_BUILD_TYPE = "RelWithDebInfo (-O2 -g)"  # of CMakeLists.txt
TIME_LIMIT = 60  # seconds for one run
FAILURES_BEFORE_GIVING_UP = 2  # of one program at one workload


class Target:
    """A promise about one value of Weft: `factor` times better than a peer's, or at most `limit`."""

    def __init__(self, name, sentence, peer=None, factor=None, limit=None):
        self.name, self.sentence, self.peer, self.factor, self.limit = name, sentence, peer, factor, limit

    def judge(self, results):
        """Returns met (None: not measured) and what was measured, in words."""
        weft, unit = results.best("weft", self.name), results.units.get(self.name)
        if weft is None:
            return None, ""
        if self.limit is not None:
            return weft <= self.limit, f"{number(weft)} {unit}"
        peer, ratio = results.best(self.peer, self.name), results.advantage(self.peer, self.name)
        if ratio is None:
            return None, ""
        if results.higher_is_better(self.name):
            words = f"{number(weft)} against {number(peer)} {unit}, {ratio:.2f} times {LABELS[self.peer]}'s"
        else:
            words = f"{number(weft)} against {number(peer)} {unit}, {portion(ratio)} {LABELS[self.peer]}'s"
        return ratio >= self.factor, words


TARGETS = [
    Target("yield_1p", "A switch between two goroutines takes at most 1/9 of Go's time.", "go", 9),
    Target("spawn_1p", "Starting and ending a goroutine on one P takes at most 1/8 of Go's time.", "go", 8),
    Target("spawn_2p", "Starting and ending a goroutine on two Ps takes at most 1/5 of Go's time.", "go", 5),
    Target("spawnjoin", "Starting one goroutine and waiting for it takes at most 1/8 of Go's time.", "go", 8),
    Target("pingpong_1p", "A round trip by unbuffered channel on one P takes at most 1/5 of Go's time.", "go", 5),
    Target("pingpong_2p", "A round trip by unbuffered channel on two Ps takes at most 1/5 of Go's time.", "go", 5),
    Target("buffered_1p", "An item through a buffered channel on one P takes at most 1/4 of Go's time.", "go", 4),
    Target("buffered_2p", "An item through a buffered channel on two Ps takes at most 1/3 of Go's time.", "go", 3),
    Target("mpmc_2p", "An item from 8 producers to 8 consumers takes at most 1/5 of Go's time.", "go", 5),
    Target("select4_2p", "A select over 4 channels takes at most 1/3 of Go's time.", "go", 3),
    Target("mutex_uncontended", "Locking and unlocking a free mutex is no slower than in Go.", "go", 1),
    Target("mutex_contended", "Locking and unlocking a contended mutex takes at most 1/1.5 of Go's time.", "go", 1.5),
    Target("ring_1p", "A hop in a ring of 503 goroutines on one P takes at most 1/5 of Go's time.", "go", 5),
    Target("ring_2p", "A hop in a ring of 503 goroutines on two Ps takes at most 1/5 of Go's time.", "go", 5),
    Target("skynet_2p", "A tree of a million goroutines, from cold, takes at most 1/25 of Go's time.", "go", 25),
    Target("fib_2p", "Fork and join of a goroutine for each call takes at most 1/6 of Go's time.", "go", 6),
    Target("sieve_2p", "A chain of 2,000 filters takes at most 1/4 of Go's time.", "go", 4),
    Target("parked_1m.create", "Creating a million goroutines that block is no slower than in Go.", "go", 1),
    Target("parked_1m.bytes", "Each of a million blocked goroutines costs at most 4,400 bytes.", limit=4400),
    Target("timers_100k.p99", "Of 100,000 sleepers the latest hundredth is at most 1/10 as late as in Go.", "go", 10),
    Target("timers_100k.cpu", "100,000 sleepers take at most 1/3 of Go's processor time.", "go", 3),
]


def number(value):
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def portion(ratio):
    return f"1/{ratio:.1f} of" if ratio >= 1 else f"{1 / ratio:.2f} times"


def fail(message):
    sys.exit(f"bench: {message}")


def say(message):
    print(f"bench: {message}", file=sys.stderr)


def output_of(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


# ---- the programs -------------------------------------------------------------------------------------------------


class Program:
    def __init__(self, label, path):
        self.label, self.path = label, path
        self.workloads = output_of([path, "-l"]).split()


def build_go(folder):
    env = dict(os.environ, GOTOOLCHAIN="local", GOWORK="off")
    run_build("go", ["go", "build", "-o", str(folder / "go_bench"), "."], env)


def build_tokio(folder):
    target = folder / "tokio"
    if run_build("tokio", ["cargo", "build", "--release", "--target-dir", str(target)], os.environ):
        shutil.copy2(target / "release" / "tokio_bench", folder / "tokio_bench")


BUILDS = {"go": build_go, "tokio": build_tokio}  # the others are built by make


def run_build(peer, command, env):
    if shutil.which(command[0]) is None:
        say(f"no {command[0]} command: the {LABELS[peer]} twin is left out")
        return False
    result = subprocess.run(command, cwd=ROOT / "bench" / peer, env=env, capture_output=True, text=True)
    if result.returncode != 0:
        say(f"the {LABELS[peer]} twin does not build and is left out:\n{result.stderr.strip()}")
    return result.returncode == 0


def find_programs(folder, peers):
    if not (folder / "weft_bench").exists():
        fail("no weft_bench in the build folder: run make first")
    found = [Program("weft", folder / "weft_bench")]
    if not found[0].workloads:
        fail("weft_bench -l lists nothing")
    for peer in peers:
        path = folder / f"{peer}_bench"
        if peer in BUILDS:
            path.unlink(missing_ok=True)
            BUILDS[peer](folder)
        elif not path.exists():
            say(f"no {peer}_bench in the build folder: it is left out")
        if path.exists():
            found.append(Program(peer, path))
    return found


def list_from_environment(variable, allowed):
    names = [name for name in os.environ.get(variable, "").split(",") if name]
    unknown = [name for name in names if name not in allowed]
    if unknown:
        fail(f"{variable}: unknown {', '.join(unknown)} (there are {', '.join(allowed)})")
    return names or allowed


# ---- running ------------------------------------------------------------------------------------------------------


def clean_environment():
    """What the programs run with: nothing in it may change their number of processors or their memory policy."""
    skip = ("WEFT_", "GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG", "TOKIO_")
    return {name: value for name, value in os.environ.items() if not name.startswith(skip)}


class RunFailed(Exception):
    pass


class NotPossible(Exception):
    """The program said why it cannot do this workload here, such as O_DIRECT on a file system without."""


def parse(output):
    values = {}
    for line in output.splitlines():
        name, value, unit = line.split(None, 2)
        values[name] = float(value), unit
    return values


def run_once(program, workload):
    command = [program.path, workload]
    try:
        result = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        raise RunFailed(f"took more than {TIME_LIMIT} s", "") from None
    if result.returncode < 0:
        raise RunFailed(f"killed by {signal.Signals(-result.returncode).name}", result.stderr)
    if result.returncode > 0:
        raise RunFailed(f"ended with status {result.returncode}", result.stderr)
    try:
        values = parse(result.stdout)
    except ValueError:
        raise RunFailed("printed something that is no result", result.stdout) from None
    if not values:
        raise NotPossible(result.stderr.strip())
    return values


class Results:
    """The samples of every value by program, in the order of their first appearance."""

    def __init__(self, labels):
        self.labels = labels
        self.units = {}
        self.samples = {}
        self.failures = []  # (label, workload, reason)
        self.impossible = set()  # (label, workload)

    def add(self, label, values):
        for name, (value, unit) in values.items():
            self.units.setdefault(name, unit)
            self.samples.setdefault((label, name), []).append(value)

    def higher_is_better(self, name):
        return self.units[name].endswith("/s")

    def best(self, label, name):
        samples = self.samples.get((label, name))
        if not samples:
            return None
        return max(samples) if self.higher_is_better(name) else min(samples)

    def median(self, label, name):
        samples = self.samples.get((label, name))
        return statistics.median(samples) if samples else None

    def advantage(self, peer, name):
        """How many times better than the peer's best Weft's best is."""
        weft, other = self.best("weft", name), self.best(peer, name)
        if not weft or not other:
            return None
        return weft / other if self.higher_is_better(name) else other / weft

    def has_given_up(self, label, workload):
        failed = [f for f in self.failures if f[:2] == (label, workload)]
        return len(failed) >= FAILURES_BEFORE_GIVING_UP or (label, workload) in self.impossible


class Progress:
    """A line on the terminal with the time left, estimated from what the same run took before."""

    UNKNOWN = 2.5  # seconds, before the first of its kind

    def __init__(self, plan):
        self.plan, self.seconds, self.shown = plan, {}, sys.stderr.isatty()

    def show(self, position):
        if not self.shown:
            return
        left = sum(self.seconds.get((p.label, w), self.UNKNOWN) for p, w in self.plan[position:])
        program, workload = self.plan[position]
        line = f"{position + 1}/{len(self.plan)}  {program.label} {workload}  about {left:.0f} s left"
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)

    def took(self, program, workload, seconds):
        self.seconds[program.label, workload] = seconds

    def clear(self):
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def make_plan(programs, workloads, rounds):
    plan = []
    for i in range(rounds):
        first = i % len(programs)
        order = programs[first:] + programs[:first]
        plan += [(p, w) for w in workloads for p in order if w in p.workloads]
    return plan


def run_all(programs, workloads, rounds):
    plan = make_plan(programs, workloads, rounds)
    results, progress = Results([p.label for p in programs]), Progress(plan)
    for position, (program, workload) in enumerate(plan):
        if results.has_given_up(program.label, workload):
            continue
        progress.show(position)
        start = time.monotonic()
        try:
            results.add(program.label, run_once(program, workload))
        except RunFailed as failure:
            reason, detail = failure.args
            results.failures.append((program.label, workload, reason))
            progress.clear()
            say(f"{program.label} {workload}: {reason}\n{detail.strip()[-2000:]}")
        except NotPossible as reason:
            results.impossible.add((program.label, workload))
            progress.clear()
            say(f"{program.label} {workload}: left out: {reason}")
        progress.took(program, workload, time.monotonic() - start)
    progress.clear()
    return results


# ---- the machine --------------------------------------------------------------------------------------------------


def first_match(pattern, text, default=""):
    match = re.search(pattern, text, re.MULTILINE)
    return match.group(1).strip() if match else default


def first_line(command):
    return (output_of(command).splitlines() or ["unknown"])[0]


def read_cache(build):
    path = build / "CMakeCache.txt"
    text = path.read_text() if path.exists() else ""
    return dict(re.findall(r"^([A-Za-z_]+):[A-Z]+=(.*)$", text, re.MULTILINE))


def machine_facts(cache, labels):
    cpu = first_match(r"^model name\s*:(.*)$", Path("/proc/cpuinfo").read_text(), platform.machine())
    kib = int(first_match(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(), "0"))
    compiler = first_line([cache.get("CMAKE_C_COMPILER", "cc"), "--version"])
    facts = {
        "CPU": f"{cpu}, {len(os.sched_getaffinity(0))} usable",
        "memory": f"{kib / 2**20:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "C library": " ".join(platform.libc_ver()) or "unknown",
        "C compiler": f"{compiler}, {cache.get('CMAKE_BUILD_TYPE') or DEFAULT_BUILD_TYPE}",
        "Weft": cache.get("CMAKE_PROJECT_VERSION", "unknown"),
    }
    if "go" in labels:
        facts["Go"] = first_line(["go", "version"]).replace("go version ", "")
    if "tokio" in labels:
        lock = (ROOT / "bench" / "tokio" / "Cargo.lock").read_text()
        version = first_match(r'^name = "tokio"\nversion = "(.*)"$', lock, "unknown")
        facts["tokio"] = f"{version}, {first_line(['rustc', '--version'])}"
    return facts


def warn_about_slow_build(cache):
    if cache.get("WEFT_SANITIZE"):
        say("this build has sanitizers: its figures mean nothing")
    if cache.get("WEFT_CHECKS") in ("ON", "1", "TRUE"):
        say("this build checks invariants (WEFT_CHECKS): its figures mean nothing")
    if cache.get("CMAKE_BUILD_TYPE") == "Debug":
        say("this is a debug build: its figures mean nothing")


# ---- what comes out -----------------------------------------------------------------------------------------------


def pair(results, label, name):
    best, median = results.best(label, name), results.median(label, name)
    return "-" if best is None else f"{number(best)} / {number(median)}"


def table_rows(results):
    peers = [label for label in results.labels if label != "weft"]
    header = ["workload", "unit", "Weft"]
    for peer in peers:
        header += [LABELS[peer], f"{LABELS[peer]}:Weft"]
    rows = [header]
    for name, unit in results.units.items():
        more = ", more is better" if results.higher_is_better(name) else ""
        row = [name, unit + more, pair(results, "weft", name)]
        for peer in peers:
            ratio = results.advantage(peer, name)
            row += [pair(results, peer, name), "-" if ratio is None else f"{ratio:.2f}"]
        rows.append(row)
    return rows


def print_table(results, rounds):
    rows = table_rows(results)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())
    print(f"\nbest / median of {rounds} interleaved runs; the ratios compare the best, above 1 Weft is ahead")


def verdict(met):
    return "not measured" if met is None else "met" if met else "missed"


def print_targets(results):
    for target in TARGETS:
        met, words = target.judge(results)
        if met is not None:
            print(f"{verdict(met):7} {target.name}: {words}")


def write_json(path, results, rounds, facts):
    def entry(label, name):
        samples = results.samples.get((label, name), [])
        return {"best": results.best(label, name), "median": results.median(label, name), "samples": samples}

    values = {}
    for name, unit in results.units.items():
        measured = [label for label in results.labels if (label, name) in results.samples]
        values[name] = {"unit": unit, **{label: entry(label, name) for label in measured}}
    failures = [dict(zip(("program", "workload", "reason"), failure)) for failure in results.failures]
    targets = {t.name: {"target": t.sentence, "result": verdict(t.judge(results)[0])} for t in TARGETS}
    content = {"machine": facts, "runs": rounds, "values": values, "targets": targets, "failures": failures}
    path.write_text(json.dumps(content, indent=2) + "\n")


def markdown_table(rows):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|---|---|" + "---:|" * (len(rows[0]) - 2))
    return lines


def markdown_targets(results):
    lines = []
    for target in TARGETS:
        met, words = target.judge(results)
        measured = f" ({words})" if words else ""
        lines.append(f"- **{verdict(met)}**: {target.sentence} `{target.name}`{measured}")
    return lines


def markdown_losses(results):
    """Everything at which a peer that ran the workload did better."""
    losses = []
    for name in results.units:
        for peer in results.labels[1:]:
            ratio = results.advantage(peer, name)
            if ratio is not None and ratio < 1:
                figures = f"{number(results.best('weft', name))} against {number(results.best(peer, name))}"
                losses.append(f"- `{name}`: {LABELS[peer]} is {1 / ratio:.2f} times better"
                              f" ({figures} {results.units[name]}).")
    return losses or ["Nowhere in this run."]


def markdown_summary(results):
    """How many targets are met, and which are not, before anything else."""
    verdicts = {target.name: verdict(target.judge(results)[0]) for target in TARGETS}
    lines = [f"{list(verdicts.values()).count('met')} of {len(TARGETS)} targets are met."]
    for outcome in ("missed", "not measured"):
        names = [f"`{name}`" for name, found in verdicts.items() if found == outcome]
        if names:
            lines.append(f"{outcome.capitalize()}: {', '.join(names)}.")
    return [" ".join(lines)]


def write_docs(results, rounds, facts):
    lines = ["# Benchmarks", ""]
    lines += ["This file is generated: `tools/bench.py --write-docs` after `make` writes it. Do not edit it.", ""]
    lines += [
        f"Best / median of {rounds} runs, the programs taking turns. A ratio compares the best and is above 1 where"
        " Weft is ahead.",
        "The figures hold for this machine at that time; the ratios travel better than the figures.",
        "",
    ]
    lines += markdown_summary(results) + [""]
    lines += markdown_table(table_rows(results))
    lines += ["", "## Targets", ""] + markdown_targets(results)
    lines += ["", "## Where Weft loses", "", "Whatever a peer does better, target or not."]
    lines += [""] + markdown_losses(results)
    if results.failures:
        lines += ["", "## Runs that failed", ""]
        lines += [f"- {LABELS[label]} `{workload}`: {reason}." for label, workload, reason in results.failures]
    lines += ["", "## The machine", ""] + [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", "## The workloads", ""] + WORKLOAD_NOTES
    DOCS.parent.mkdir(exist_ok=True)
    DOCS.write_text("\n".join(lines) + "\n")


WORKLOAD_NOTES = """\
`_1p` is one P (GOMAXPROCS=1, one CPU), `_2p` two; the others use every CPU unless they say so. A run takes about a
second, warm-up is not counted unless it says cold. The programs are `bench/weft_*.c`, `bench/go/`, `bench/tokio/`,
`bench/pthread/` and `bench/bare/` (nothing but the kernel).

- `yield_1p`: two goroutines yield in turn. Threads: `sched_yield` on one CPU.
- `spawn_1p`, `spawn_2p`: 1,000,000 empty goroutines in batches of 1,000 with a wait group, again and again. Threads:
  batches of 100, created and joined.
- `spawnjoin`: start one and wait for it, in a loop.
- `pingpong_1p`, `pingpong_2p`: a value goes to and fro between two goroutines by two unbuffered channels. Threads: a
  turn under a mutex, with a condition variable for each side.
- `buffered_1p`, `buffered_2p`: one producer, one consumer, a channel of capacity 128.
- `mpmc_2p`: the same with 8 producers and 8 consumers.
- `select4_2p`: one consumer selects over 4 unbuffered channels with a producer each.
- `mutex_uncontended`, `mutex_contended`: one goroutine, or 8 on two Ps, count under a mutex; the time of one lock,
  count and unlock.
- `ring_1p`, `ring_2p`: 503 goroutines in a ring of unbuffered channels pass a token.
- `skynet_2p`: a tree of goroutines with 10 below each and 1,000,000 leaves, whose numbers are summed by unbuffered
  channels; cold, the first thing that the process does. `.warm`: again and again after that.
- `fib_2p`: fib(27) with a goroutine for each call down to n < 2 and a wait group for each pair.
- `sieve_2p`: the first 2,000 primes through a chain of filters, a goroutine and an unbuffered channel for each.
- `parked_1m`, `parked_10k`: so many goroutines blocked on one unbuffered channel (threads, 10,000 only: a condition
  variable). `.create`: until all have arrived. `.bytes`: growth of resident memory and page tables for each; a thread's
  kernel stack is not in it. `.wake`: from the release until all are done.
- `timers_100k`: 100,000 goroutines sleep for random times up to 200 ms, three times over. `.p50`, `.p99`, `.max`: how
  much longer than wanted a sleep was. `.cpu`: processor time of one time over, starting the goroutines included.
- `blocking`: on two Ps, 64 goroutines sleep 200 times 1 ms each in the kernel, where no scheduler sees them, while two
  others count and yield every 30 us or so. `.total`: until all have slept, 200 ms at best. `.counted`: what the two
  came to meanwhile. `.threads`: the most OS threads of the process. tokio: `spawn_blocking` for each sleep.
- `echo_2p`: 64 TCP connections in the process, a goroutine at each end, 64 bytes to and fro. `.cpu_per_rt`: processor
  time of a round trip, both ends. Bare: two threads with an epoll each; both ends of a connection are on the same.
- `http_raw`: a keep-alive server that finds the end of each request and sends a fixed answer, on two Ps, asked by
  `wrk -t1 -c64 -d5s` on the same CPUs. `.cpu_per_req`: processor time of the server alone. Bare: as for the echo.
- `files_hot`, `files_direct`: 32 goroutines read 4 KiB at random places of a file of 256 MiB, from the page cache, or
  from the device with O_DIRECT. `.cpu`: processor time of one read. tokio: `spawn_blocking` for each. Threads: 32 of
  them. Bare: one thread with 32 requests in an io_uring.
""".splitlines()


# ---- main ---------------------------------------------------------------------------------------------------------


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="the build folder (default: build)")
    parser.add_argument("--write-docs", action="store_true", help="regenerate docs/benchmarks.md; needs a full run")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    if arguments.write_docs and any(os.environ.get(name) for name in ("ONLY", "QUICK", "AGAINST")):
        fail("--write-docs needs a full run: without ONLY, QUICK and AGAINST")
    rounds = QUICK_ROUNDS if os.environ.get("QUICK", "0") not in ("", "0") else ROUNDS
    build = arguments.build.resolve()
    folder = build / "bench"
    cache = read_cache(build)
    warn_about_slow_build(cache)

    programs = find_programs(folder, list_from_environment("AGAINST", PEERS))
    workloads = list_from_environment("ONLY", programs[0].workloads)
    facts = machine_facts(cache, [p.label for p in programs])
    results = run_all(programs, workloads, rounds)

    print_table(results, rounds)
    print_targets(results)
    write_json(folder / "results.json", results, rounds, facts)
    if arguments.write_docs:
        write_docs(results, rounds, facts)
    return 1 if results.failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
