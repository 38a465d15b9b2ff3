#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the lab: the workloads of lab/ on each of the six models, in turn, and shows what they say.

    tools/lab.py [--build BUILD]     all of it: the table on the terminal, BUILD/lab/report.html, BUILD/lab/results.json
    tools/lab.py --docs              also writes the figures into docs/models.md
    tools/lab.py --check BUILD...    tests the models of these builds; prints "ok NAME", then "N passed, M failed"

Each round goes through all workloads, and for each through all models (A B C A B C ...), so that a noisy moment of the machine
hits everybody; who begins changes with the round. Best and median are kept. With QUICK=1 in the environment there are fewer and
smaller rounds.
"""
import argparse
import collections
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

import plots

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs" / "models.md"
QUICK = os.environ.get("QUICK", "0") not in ("", "0")
CORES = len(os.sched_getaffinity(0))
LIMIT = 120  # seconds for one run
MAX_LINES = 300  # of a model

Model = collections.namedtuple("Model", "program label short")
MODELS = (Model("threads", "1:1 threads", "1:1"), Model("single", "N:1 single thread", "N:1"), Model("pool", "thread pool", "pool"),
          Model("shared", "M:N shared queue", "M:N"), Model("distributed", "M:N distributed", "dist."),
          Model("mpn", "M:P:N Weft", "Weft"))
BY_PROGRAM = {model.program: model for model in MODELS}
FIBERS = ("single", "shared", "distributed", "mpn")
QUEUES = ("shared", "distributed", "mpn")
THREADS = ("threads", "pool")

COUNTS = (1_000, 10_000, 100_000) if QUICK else (1_000, 10_000, 100_000, 1_000_000)
WIDTHS = (1, 2, 4, 16) if QUICK else (1, 2, 4, 8, 16, 32)
BLOCKED = (0, 16, 64) if QUICK else (0, 4, 16, 64, 256, 1024)


def fail(message):
    sys.exit(f"lab: {message}")


# ---- what is run -----------------------------------------------------------------------------------------------------

Run = collections.namedtuple("Run", "workload args models rounds")


def all_of(programs):
    return tuple(model.program for model in MODELS if model.program in programs)


def plan():
    """The workloads with their arguments; a pool is given as many threads as it takes to work at all."""
    everybody = all_of(BY_PROGRAM)
    often, seldom = (2, 1) if QUICK else (5, 2)
    runs = []
    for n in COUNTS:
        rounds = often if n <= 10_000 else seldom
        runs.append(Run("create", {"*": (n, 1), "pool": (n, 0)}, everybody if n <= 100_000 else all_of(FIBERS), rounds))
    runs.append(Run("spawn", {"*": (1,)}, everybody, often))
    runs.append(Run("pingpong", {"*": (1,), "pool": (2,)}, everybody, often))
    for blocked in (1, 4):
        runs.append(Run("blocking", {"*": (blocked, 2)}, everybody, often))
    runs.append(Run("parallel", {"*": (CORES,)}, everybody, often))
    runs += [Run("contention", {"*": (width,)}, all_of(QUEUES), often) for width in WIDTHS]
    runs += [Run("scan", {"*": (blocked, 2)}, all_of(QUEUES), often) for blocked in BLOCKED]
    runs += [Run(f"deadlock_{how}", {"*": (2,)}, everybody, 1) for how in ("own", "kernel", "hidden")]
    return runs


def arguments_of(run, program):
    return run.args.get(program, run.args["*"])


# ---- running ---------------------------------------------------------------------------------------------------------

class Results:
    """Samples by (program, workload, first argument, value)."""

    def __init__(self):
        self.samples = {}
        self.ends = {}  # program: (how many goroutines it came to, what ended it)
        self.failures = []
        self.load = os.getloadavg()[0]  # before the lab's own

    def add(self, program, run, output):
        first = run.args["*"][0]
        values = {}
        for line in output.splitlines():
            name, value, unit = (line.split(None, 2) + [""])[:3]
            values[name] = float(value), unit
        if "ended_by" in values:
            self.ends[program] = int(values["count"][0]), values["ended_by"][1]
            return
        for name, (value, _) in values.items():
            self.samples.setdefault((program, run.workload, first, name), []).append(value)

    def best(self, program, workload, first, name="ns"):
        samples = self.samples.get((program, workload, first, name))
        if not samples:
            return None
        return max(samples) if name == "cores" else min(samples)

    def median(self, program, workload, first, name="ns"):
        samples = self.samples.get((program, workload, first, name))
        return statistics.median(samples) if samples else None


def environment():
    """Nothing in it may change the models."""
    return {key: value for key, value in os.environ.items() if not key.startswith("WEFT_")}


def run_once(folder, program, workload, args):
    """What it prints; an exception with the reason otherwise."""
    command = [str(folder / f"lab_{program}"), workload, *map(str, args)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=LIMIT)
    if done.returncode != 0 or not done.stdout:
        raise RuntimeError(f"ended with status {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


class Progress:
    """A line on a terminal, with the time left by what the same took before."""

    def __init__(self, steps):
        self.steps, self.took, self.shown = steps, {}, sys.stderr.isatty()

    def show(self, position):
        if not self.shown:
            return
        left = sum(self.took.get((run.workload, run.args["*"], program), 0.4) for run, program in self.steps[position:])
        run, program = self.steps[position]
        line = f"{position + 1}/{len(self.steps)}  {program} {run.workload} {run.args['*']}  about {left:.0f} s left"
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)

    def clear(self):
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def interleaved(runs):
    steps = []
    for turn in range(max(run.rounds for run in runs)):
        for run in runs:
            first = turn % len(run.models)
            if turn < run.rounds:
                steps += [(run, program) for program in run.models[first:] + run.models[:first]]
    return steps


def measure(folder, runs):
    steps, results = interleaved(runs), Results()
    progress = Progress(steps)
    for position, (run, program) in enumerate(steps):
        args = arguments_of(run, program)
        if run.workload == "create" and program in results.ends and args[0] >= results.ends[program][0]:
            continue
        progress.show(position)
        began = time.monotonic()
        try:
            results.add(program, run, run_once(folder, program, run.workload, args))
        except (RuntimeError, ValueError, subprocess.TimeoutExpired) as reason:
            progress.clear()
            results.failures.append(f"{program} {run.workload} {' '.join(map(str, args))}: {reason}")
            print(f"lab: {results.failures[-1]}", file=sys.stderr)
        progress.took[run.workload, run.args["*"], program] = time.monotonic() - began
    progress.clear()
    return results


# ---- the tables ------------------------------------------------------------------------------------------------------

def pair(results, show, *key):
    """Best / median; the unit once if both have the same."""
    best, median = results.best(*key), results.median(*key)
    if best is None:
        return "-"
    number, _, unit = show(best).partition(" ")
    same = unit and show(median).endswith(f" {unit}")
    return f"{number if same else show(best)} / {show(median)}"


def cell_created(results, program, n, name, show):
    if results.best(program, "create", n, name) is None and program in results.ends:
        return f"!ends at {results.ends[program][0]:,}"
    return pair(results, show, program, "create", n, name)


def verdict(results, program, how):
    value = results.best(program, f"deadlock_{how}", 2, "deadlock")
    return "-" if value is None else "!deadlock" if value else "no"


def overview(results):
    """A row for each claim, a column for each model."""
    rows = []

    def row(label, cell):
        rows.append([label] + [cell(model.program) for model in MODELS])

    for n in COUNTS:
        row(f"start and park {n:,}, each", lambda p, n=n: cell_created(results, p, n, "ns", plots.nanoseconds))
    for n in COUNTS:
        row(f"memory of {n:,}, each", lambda p, n=n: cell_created(results, p, n, "bytes", plots.bytes_))
    row("start and end one", lambda p: pair(results, plots.nanoseconds, p, "spawn", 1))
    row("wake another and wait", lambda p: pair(results, plots.nanoseconds, p, "pingpong", 1))
    row(f"cores at work, of {CORES}", lambda p: pair(results, plots.number, p, "parallel", CORES, "cores"))
    for blocked in (1, 4):
        name = "1 blocking call" if blocked == 1 else f"{blocked} blocking calls"
        row(f"wait beside {name} of 50 ms", lambda p, b=blocked: pair(results, plots.nanoseconds, p, "blocking", b, "longest"))
    for how, label in (("own", "its own semaphore"), ("kernel", "a kernel semaphore"), ("hidden", "the same, unannounced")):
        row(f"deadlock: {label}", lambda p, how=how: verdict(results, p, how))
    return ["", *(model.label for model in MODELS)], rows


def contention_table(results):
    header = ["threads", *(BY_PROGRAM[p].label for p in all_of(QUEUES)), "lock found held"]
    rows = [[str(width), *(pair(results, plots.nanoseconds, p, "contention", width) for p in all_of(QUEUES)),
             pair(results, lambda v: f"{v:.1f} %", "shared", "contention", width, "waits")] for width in WIDTHS]
    return header, rows


def scan_table(results):
    header = ["threads in blocking calls", *(f"{BY_PROGRAM[p].label}: a search" for p in all_of(QUEUES)), "its queues, distributed",
              *(f"{BY_PROGRAM[p].label}: a short goroutine" for p in ("distributed", "mpn"))]
    rows = [[str(n), *(pair(results, plots.nanoseconds, p, "scan", n, "search") for p in all_of(QUEUES)),
             "-" if results.best("distributed", "scan", n, "looks") is None else
             f"{results.best('distributed', 'scan', n, 'looks'):.0f}",
             *(pair(results, plots.nanoseconds, p, "scan", n, "cpu") for p in ("distributed", "mpn"))] for n in BLOCKED]
    return header, rows


def as_text(header, rows):
    table = [header] + [[cell.lstrip("!") for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    return "\n".join("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                               for i, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in table)


def as_markdown(header, rows):
    def line(cells):
        return "| " + " | ".join(f"**{cell[1:]}**" if cell.startswith("!") else cell for cell in cells) + " |"
    return "\n".join([line(header), "|---" + "|---:" * (len(header) - 1) + "|", *map(line, rows)])


# ---- the report ------------------------------------------------------------------------------------------------------

PALETTE = plots.Palette(model.label for model in reversed(MODELS))  # Weft has the first colour


def series(results, programs, workload, xs, name="ns", unit=1):
    def value(program, x):
        best = results.best(program, workload, x, name)
        return None if best is None else best / unit
    found = [plots.Series(BY_PROGRAM[p].label, [(x, value(p, x)) for x in xs]) for p in all_of(programs)]
    return [one for one in found if any(y is not None for _, y in one.points)]


def by_model(results, workload, first, name="ns"):
    return [("", [(model.label, results.best(model.program, workload, first, name)) for model in MODELS])]


def ends_note(results):
    """Where the models that cannot go on for ever came to their end, and why."""
    if not results.ends:
        return ""
    limits = ", ".join(sorted({limit for _, limit in results.ends.values()}))
    ends = " and ".join(f"{BY_PROGRAM[p].label} at {n:,}" for p, (n, _) in sorted(results.ends.items(), reverse=True))
    return f"What needs a thread for each ends: {ends} (by {limits}, of which 2,048 were left to other programs)."


def machine():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*: (.+)$", text, re.M)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (f"{found.group(1) if found else platform.machine()}, {CORES} cores usable, {memory:.0f} GiB, "
            f"Linux {platform.release()} {platform.machine()}")


def facts(results):
    rounds = max(run.rounds for run in plan())
    busy = (f" The machine was busy with other things (load {results.load:.1f}): take these again on a quiet one."
            if results.load > CORES + 1 else "")
    return f"{machine()}; {datetime.date.today()}; best / median of up to {rounds} rounds.{busy}" + \
        (f" {len(results.failures)} runs failed." if results.failures else "")


def report(results):
    p, time_of = plots, plots.nanoseconds
    creation = [p.heading("Many of them", "create"),
                p.paragraph("Goroutines that all wait for one semaphore: a thread each takes the kernel's time and memory, and ends where its "
                            "numbers do. " + p.escape(ends_note(results))),
                p.lines("Start and park, each", series(results, BY_PROGRAM, "create", COUNTS), "goroutines", "time each", True, True,
                        y_format=time_of, palette=PALETTE),
                p.lines("Memory, each", series(results, BY_PROGRAM, "create", COUNTS, "bytes", 1024), "goroutines", "KiB each", True,
                        palette=PALETTE, note="Resident memory, page tables and kernel stacks."),
                p.bars("Start and end one", by_model(results, "spawn", 1), log=True, value_format=time_of, palette=PALETTE,
                       note="A pool starts no thread for it, but hands it to one; fibers do not even do that."),
                p.bars("Wake another and wait for it", by_model(results, "pingpong", 1), log=True, value_format=time_of, palette=PALETTE,
                       note="Half a round trip between two goroutines that wake each other with semaphores.")]
    running = [p.heading("Cores, and calls that block", "blocking"),
               p.bars("Cores at work", by_model(results, "parallel", CORES, "cores"), f"cores, of {CORES}", palette=PALETTE,
                      note="Eight goroutines that compute. One thread is one core."),
               *(p.bars(f"The longest wait for a turn beside {blocked} blocking call{'s' if blocked > 1 else ''}",
                        by_model(results, "blocking", blocked, "longest"), log=True, value_format=time_of, palette=PALETTE,
                        note="Each call sleeps for 50 ms; two threads may run. One more goroutine only yields.") for blocked in (1, 4))]
    searches = [p.Series(one.name, [(blocked + 2, y) for blocked, y in one.points])
                for one in series(results, QUEUES, "scan", BLOCKED, "search")]
    scaling = [p.heading("One queue, many queues", "contention"),
               p.lines("A yield on so many threads", series(results, QUEUES, "contention", WIDTHS), "threads", "time for each yield", True,
                       y_format=time_of, palette=PALETTE, note=f"64 goroutines that only yield, on {CORES} cores; time by the clock."),
               p.table(*contention_table(results)),
               p.lines("A search for work", searches, "threads, of which two are not in blocking calls", "time for a search", True, True,
                       y_format=time_of, palette=PALETTE,
                       note="What a thread with nothing to do looks through: one queue, one for each thread, or one for each processor."),
               p.table(*scan_table(results))]
    deadlocks = [p.heading("Deadlock", "deadlock"),
                 p.paragraph("Two threads run two goroutines that wait for a semaphore; the goroutine that releases it is next in the queue. The "
                             "semaphore is the model's, or the kernel's and waited for in a blocking call, or the kernel's without a word to "
                             "the model."),
                 p.table(["", *(model.label for model in MODELS)],
                         [row for row in overview(results)[1] if row[0].startswith("deadlock")])]
    return plots.page("Six ways to run goroutines", creation + running + scaling + deadlocks +
                      [p.heading("All figures"), p.table(*overview(results)), p.paragraph("Best / median. docs/models.md tells the story.")],
                      plots.escape(facts(results)))


# ---- the documentation -----------------------------------------------------------------------------------------------

def insert(text, name, body):
    """Replaces what stands between the markers of that name."""
    begin, end = f"<!-- lab:{name} -->", "<!-- /lab -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        fail(f"{DOCS.relative_to(ROOT)} has no {begin} ... {end}")
    return f"{before}{begin}\n{body}\n{end}{after}"


def write_docs(results):
    text = DOCS.read_text()
    text = insert(text, "overview", as_markdown(*overview(results)))
    text = insert(text, "contention", as_markdown(*contention_table(results)))
    text = insert(text, "scan", as_markdown(*scan_table(results)))
    text = insert(text, "ends", ends_note(results) or "No model came to its end.")
    text = insert(text, "machine", facts(results))
    DOCS.write_text(text)


# ---- the check -------------------------------------------------------------------------------------------------------

DEADLOCKS = {"own": {"pool"}, "kernel": {"single", "pool"}, "hidden": {"single", "pool", "shared", "distributed"}}
SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=0:handle_segv=0:handle_sigbus=0", "TSAN_OPTIONS": "halt_on_error=1"}


def own_cases(folder, program):
    """What the model's own check says."""
    try:
        done = subprocess.run([str(folder / f"lab_{program}"), "check"], env=environment(), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired as hang:
        print((hang.stdout or b"").decode(errors="replace"))
        return [("FAIL", f"{program}_check_hangs")]
    cases = re.findall(r"^(ok|FAIL) (\S+)", done.stdout, re.M)
    if done.returncode != 0 or not re.search(r"^\d+ passed, 0 failed$", done.stdout, re.M):
        print(done.stdout)
        cases.append(("FAIL", f"{program}_check"))
    return cases


def ends_as_expected(folder, program, how):
    try:
        output = run_once(folder, program, f"deadlock_{how}", (2,))
    except (RuntimeError, subprocess.TimeoutExpired) as reason:
        print(reason)
        return False
    return f"deadlock {int(program in DEADLOCKS[how])} " in output


def check_build(build):
    """The cases of each model's own check, and which of them end in a deadlock."""
    os.environ.update({key: os.environ.get(key, value) for key, value in SANITIZERS.items()})
    for model in MODELS:
        yield from own_cases(build / "lab", model.program)
        for how, stuck in DEADLOCKS.items():
            name = f"{model.program}_{'is_stuck' if model.program in stuck else 'goes_on'}_with_{how}_semaphore"
            yield "ok" if ends_as_expected(build / "lab", model.program, how) else "FAIL", name


def check_tree():
    for model in MODELS:
        lines = (ROOT / "lab" / f"{model.program}.c").read_text().count("\n")
        yield "ok" if lines < MAX_LINES else "FAIL", f"{model.program}_is_short"


def check_report():
    """That a report and the documentation can be made of results, also where a model came to its end."""
    results = Results()
    for run in plan():
        for program in run.models:
            names = {"create": "count 1 n\nns 10 ns\nbytes 4096 B", "blocking": "longest 5e7 ns", "parallel": "cores 1.9 cores",
                     "contention": "ns 20 ns\nwaits 3 %", "scan": "search 50 ns\nlooks 3 queues\nns 1 ns\ncpu 2 ns"}
            output = names.get(run.workload, "deadlock 1 yes" if run.workload.startswith("deadlock") else "ns 20 ns")
            if program == "threads" and run.workload == "create" and run.args["*"][0] > 10_000:
                output = "count 30000 goroutines\nended_by 11 kernel.pid_max"
            results.add(program, run, output)
    text = report(results)
    yield "ok" if "ends at 30,000" in text and text.count("<svg") == text.count("</svg>") >= 8 else "FAIL", "the_report_is_made"
    markers = re.findall(r"<!-- lab:(\w+) -->", DOCS.read_text())
    yield "ok" if sorted(markers) == ["contention", "ends", "machine", "overview", "scan"] else "FAIL", "the_documentation_has_places"


def check(builds):
    counts = collections.Counter()
    cases = [(status, name) for status, name in (*check_tree(), *check_report())]
    for build in builds:
        if not (build / "lab").is_dir():
            fail(f"there is no lab in {build}")
        cases += [(status, f"{build.name}_{name}") for status, name in check_build(build)]
    for status, name in cases:
        counts[status] += 1
        print(status, name)
    print(f"{counts['ok']} passed, {counts['FAIL']} failed")
    return 1 if counts["FAIL"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="where the programs are")
    parser.add_argument("--docs", action="store_true", help="write the figures into docs/models.md")
    parser.add_argument("--check", nargs="+", type=pathlib.Path, metavar="BUILD", help="test the models of these builds instead")
    options = parser.parse_args()
    if options.check:
        return check([build.resolve() for build in options.check])
    folder = options.build.resolve() / "lab"
    if not (folder / "lab_mpn").exists():
        fail(f"there is no lab in {options.build}: run make first")
    if options.docs and QUICK:
        fail("the documentation wants all figures: not with QUICK")
    results = measure(folder, plan())
    for header, rows in (overview(results), contention_table(results), scan_table(results)):
        print(as_text(header, rows) + "\n")
    print("Best / median.", facts(results), ends_note(results))
    (folder / "report.html").write_text(report(results))
    samples = [{"model": p, "workload": w, "argument": a, "value": v, "samples": s} for (p, w, a, v), s in results.samples.items()]
    (folder / "results.json").write_text(json.dumps({"machine": facts(results), "ends": results.ends, "samples": samples}, indent=1) + "\n")
    if options.docs:
        write_docs(results)
    print(f"The plots: {os.path.relpath(folder / 'report.html')}")
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(main())
