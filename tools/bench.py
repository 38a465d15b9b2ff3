#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the benchmarks of Weft and of its peers in turn and compares them.

    make bench                      runs them, prints the ratios, writes build/bench/report.html and results.json
    tools/bench.py --docs           writes docs/benchmarks.md from that results.json; runs nothing. Without one, from a run of which some
                                    rounds are missing, and says so
    tools/bench.py --report         writes report.html again, likewise

What is less than a full run (see below), or was ended before its last round, is in results-part.json, which is written after each
round: results.json is always a full run.

Each program (build/bench/weft_bench, go_bench, tokio_bench, boost_bench, pthread_bench, bare_bench) lists its workloads with -l
and prints lines `NAME VALUE UNIT`. The runs are interleaved (weft, go, tokio, ..., weft, ...) and each round goes through
all workloads, so that a noisy moment of the machine hits everybody, and no workload in all of its runs; who begins
changes with the round. Best and median are kept. Workloads called scale_* run on several numbers of Ps and with several numbers
of goroutines.

environment:
  ONLY=name[,name]       these workloads only
  AGAINST=peer[,peer]    these peers only: go, tokio, boost, pthread, bare
  QUICK=1                2 rounds instead of 5, each run a fifth as long, smaller files, fewer points of the scaling
"""

import argparse
import collections
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import bench_report
from bench_notes import SCALING
from bench_report import FIXED_PROCS, FIXED_SIZE, SCALE_PROCS, SCALE_SIZES, WANTED_ROUNDS
from bench_results import LABELS, Results

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs" / "benchmarks.md"
FULL, PART = "results.json", "results-part.json"
PEERS = ["go", "tokio", "boost", "pthread", "bare"]
ROUNDS, QUICK_ROUNDS = WANTED_ROUNDS, 2
QUICK_PROCS, QUICK_SIZES = (1, 2, 8), (1000, 10000, 100000)
DEFAULT_BUILD_TYPE = "RelWithDebInfo (-O2 -g)"  # of CMakeLists.txt
TIME_LIMIT = 60  # seconds for one run
OLDEST_RUST = 1, 85  # that can build what the tokio twin depends on
NEEDS = {"http_raw": "wrk"}  # workloads that run a command


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


def go_module(version):
    """A go.mod with the language of that version: an older one would have Go behave as it did then (timers, GOMAXPROCS)."""
    text = (ROOT / "bench" / "go" / "go.mod").read_text()
    return re.sub(r"^go .*$", f"go {first_match(r'go([0-9]+[.][0-9]+)', version, '1.19')}", text, flags=re.MULTILINE)


def build_go(folder):
    env = dict(os.environ, GOTOOLCHAIN="local", GOWORK="off")
    module = folder / "go.mod"
    module.write_text(go_module(output_of(["go", "env", "GOVERSION"])))
    run_build("go", ["go", "build", f"-modfile={module}", "-o", str(folder / "go_bench"), "."], env)


def is_old_rust(version):
    """Of a line such as "rustc 1.63.0". What cannot be read is left to cargo."""
    found = re.search(r" (\d+)\.(\d+)", version)
    return found is not None and (int(found.group(1)), int(found.group(2))) < OLDEST_RUST


def build_tokio(folder):
    target = folder / "tokio"
    if any(is_old_rust(output_of([command, "--version"])) for command in ("cargo", "rustc")):
        say(f"tokio: needs Rust {OLDEST_RUST[0]}.{OLDEST_RUST[1]} or later, left out")
    elif run_build("tokio", ["cargo", "build", "--release", "--target-dir", str(target)], os.environ):
        shutil.copy2(target / "release" / "tokio_bench", folder / "tokio_bench")


def build_boost(folder):
    libraries = ["-lboost_fiber", "-lboost_context", "-lpthread"]
    sources = [str(path) for path in sorted((ROOT / "bench" / "boost").glob("*.cpp"))]
    options = ["-std=c++17", "-O2", "-g", "-DNDEBUG"]  # without the assertions of Boost's headers
    run_build("boost", ["g++", *options, "-o", str(folder / "boost_bench"), *sources, *libraries], os.environ)


BUILDS = {"go": build_go, "tokio": build_tokio, "boost": build_boost}  # the others are built by make


def is_built(peer, path):
    """Whether the program is newer than all that it is made of, its options here too. Go and cargo find that out themselves."""
    sources = [source.stat().st_mtime for source in (Path(__file__), *(ROOT / "bench" / peer).iterdir())]
    return peer == "boost" and path.exists() and path.stat().st_mtime > max(sources)


def run_build(peer, command, env):
    if shutil.which(command[0]) is None:
        say(f"no {command[0]} command: the {LABELS[peer]} twin is left out")
        return False
    say(f"building the {LABELS[peer]} twin")
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
        if peer in BUILDS and not is_built(peer, path):
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
    skip = ("WEFT_", "TINY", "GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG", "TOKIO_")
    return {name: value for name, value in os.environ.items() if not name.startswith(skip)}


class RunFailed(Exception):
    pass


class NotPossible(Exception):
    """Why this program cannot do this workload here, such as O_DIRECT on a file system without."""


def parse(output):
    values = {}
    for line in output.splitlines():
        name, value, unit = line.split(None, 2)
        values[name] = float(value), unit
    return values


class Run(collections.namedtuple("Run", "workload procs size")):
    """A workload; at one point of its scaling, where it has one: procs and size are None otherwise."""

    @property
    def label(self):
        return self.workload if self.procs is None else bench_report.point(*self)

    @property
    def options(self):
        return [] if self.procs is None else ["-p", str(self.procs), "-n", str(self.size)]

    @property
    def cpus(self):
        """One CPU for what runs on one P, whoever's it is: the kernel moves nobody meanwhile. The others may use all."""
        usable = os.sched_getaffinity(0)
        return {max(usable)} if self.workload.endswith("_1p") else usable


def runs_of(workload, quick):
    if workload not in dict(SCALING):
        return [Run(workload, None, None)]
    points = [(procs, FIXED_SIZE) for procs in (QUICK_PROCS if quick else SCALE_PROCS)]
    points += [(FIXED_PROCS, size) for size in (QUICK_SIZES if quick else SCALE_SIZES)]
    return [Run(workload, *point) for point in dict.fromkeys(points)]


def run_once(program, run):
    command, cpus = [program.path, *run.options, run.workload], run.cpus
    if run.workload in NEEDS and shutil.which(NEEDS[run.workload]) is None:
        raise NotPossible(f"there is no {NEEDS[run.workload]} command")
    try:
        result = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=TIME_LIMIT,
                                preexec_fn=lambda: os.sched_setaffinity(0, cpus))
    except subprocess.TimeoutExpired:
        raise RunFailed(f"took more than {TIME_LIMIT} s", "") from None
    if result.returncode < 0:
        raise RunFailed(f"killed by {signal.Signals(-result.returncode).name}", result.stderr)
    if result.returncode > 0:
        raise RunFailed(f"ended with status {result.returncode}", result.stderr)
    try:
        values = {run.label + name[len(run.workload):]: value for name, value in parse(result.stdout).items()}
    except ValueError:
        raise RunFailed("printed something that is no result", result.stdout) from None
    if not values:
        raise NotPossible(" ".join(result.stderr.split()).removeprefix("bench: ") or "it prints nothing")
    return values


class Progress:
    """The time left, estimated from what the same run took before, now or the last time: a line on the terminal that is
    overwritten, elsewhere one a while."""

    UNKNOWN = 2.5  # seconds, before the first of its kind
    QUIET = 30  # seconds between two lines that stay

    def __init__(self, plan, seconds):
        self.plan, self.seconds, self.shown, self.last = plan, seconds, sys.stderr.isatty(), 0

    @staticmethod
    def key(program, run):
        return f"{program.label} {run.label}"

    def show(self, position):
        left = sum(self.seconds.get(self.key(*step), self.UNKNOWN) for step in self.plan[position:])
        time_left = f"{left / 60:.0f} min" if left >= 90 else f"{left:.0f} s"
        line = f"{position + 1}/{len(self.plan)}  {self.key(*self.plan[position])}  about {time_left} left"
        if self.shown:
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self.last >= self.QUIET:
            self.last = time.monotonic()
            say(line)

    def took(self, program, run, seconds):
        self.seconds[self.key(program, run)] = round(seconds, 2)

    def clear(self):
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def make_plan(programs, runs, rounds):
    plan = []
    for i in range(rounds):
        first = i % len(programs)
        order = programs[first:] + programs[:first]
        plan += [(p, run) for run in runs for p in order if run.workload in p.workloads]
    return plan


def run_step(program, run, results, progress):
    start = time.monotonic()
    try:
        results.add(program.label, run_once(program, run))
    except RunFailed as failure:
        reason, detail = failure.args
        results.failures.append((program.label, run.label, reason))
        progress.clear()
        say(f"{program.label} {run.label}: {reason}\n{detail.strip()[-2000:]}")
    except NotPossible as reason:
        results.impossible[program.label, run.label] = str(reason)
        progress.clear()
        say(f"{program.label} {run.label}: left out: {reason}")
    progress.took(program, run, time.monotonic() - start)


def run_all(programs, runs, rounds, results, after_round):
    plan = make_plan(programs, runs, rounds)
    progress = Progress(plan, results.seconds)
    for position, (program, run) in enumerate(plan):
        if not results.has_given_up(program.label, run.label):
            progress.show(position)
            run_step(program, run, results, progress)
        if (position + 1) % (len(plan) // rounds) == 0:
            results.rounds += 1
            after_round()
    progress.clear()


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
    if "boost" in labels:
        header = Path("/usr/include/boost/version.hpp")
        version = first_match(r'BOOST_LIB_VERSION "(.*)"', header.read_text() if header.exists() else "", "unknown")
        facts["Boost"] = f"{version.replace('_', '.')}, {first_line(['g++', '--version'])}"
    return facts


def warn_about_slow_build(cache):
    if cache.get("WEFT_SANITIZE"):
        say("this build has sanitizers: its figures mean nothing")
    if cache.get("WEFT_CHECKS") in ("ON", "1", "TRUE"):
        say("this build checks invariants (WEFT_CHECKS): its figures mean nothing")
    if cache.get("CMAKE_BUILD_TYPE") == "Debug":
        say("this is a debug build: its figures mean nothing")


# ---- main ------------------------------------------------------------------------------------------------------------


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="the build folder (default: build)")
    parser.add_argument("--docs", action="store_true", help="write docs/benchmarks.md from results.json")
    parser.add_argument("--report", action="store_true", help="write report.html from results.json")
    return parser.parse_args()


def is_quick():
    return os.environ.get("QUICK", "0") not in ("", "0")


def former_seconds(folder):
    """What each run took the last time, if there was one that can be read and was as quick as this one."""
    seconds = {}
    for name in (FULL, PART):
        try:
            former = Results.read(folder / name)
        except (OSError, ValueError, KeyError):
            continue
        if ("QUICK" in former.partial) == is_quick():
            seconds.update(former.seconds)
    return seconds


class Keeper:
    """Writes the results after each round. Those of a full run take the place of the last full one when it is over."""

    def __init__(self, folder, results, rounds):
        self.folder, self.results, self.rounds, self.partial = folder, results, rounds, results.partial
        self.began = time.monotonic()

    def after_round(self):
        results, part = self.results, self.folder / PART
        unfinished = [f"{results.rounds} of {self.rounds} rounds"] if results.rounds < self.rounds else []
        results.partial = self.partial + unfinished
        results.facts["time"] = f"{(time.monotonic() - self.began) / 60:.0f} minutes"
        results.write(part)
        if not results.partial:
            part.replace(self.folder / FULL)


def measure(build):
    folder, cache = build / "bench", read_cache(build)
    warn_about_slow_build(cache)
    programs = find_programs(folder, list_from_environment("AGAINST", PEERS))
    workloads = list_from_environment("ONLY", programs[0].workloads)
    labels = [p.label for p in programs]
    partial = [name for name in ("QUICK", "ONLY", "AGAINST") if os.environ.get(name, "0") not in ("", "0")]
    results = Results(labels, 0, machine_facts(cache, labels), partial)
    results.seconds = former_seconds(folder)
    rounds = QUICK_ROUNDS if is_quick() else ROUNDS
    keeper = Keeper(folder, results, rounds)
    run_all(programs, [run for name in workloads for run in runs_of(name, is_quick())], rounds, results, keeper.after_round)
    bench_report.print_tables(results)
    bench_report.print_targets(results)
    return results


def write_report(folder, results):
    (folder / "report.html").write_text(bench_report.html(results))
    say(f"{folder / 'report.html'} has the plots, {folder / (PART if results.partial else FULL)} the samples")


def read_results(folder, names):
    """Of the first of these files that is there."""
    for name in names:
        if (folder / name).exists():
            return Results.read(folder / name)
    return fail(f"there is no {folder / names[0]}: run make bench first")


def main():
    arguments = parse_arguments()
    build = arguments.build.resolve()
    folder = build / "bench"
    if arguments.docs:
        results = read_results(folder, [FULL, PART])
        if left_out := [what for what in results.partial if not what.endswith(" rounds")]:  # fewer rounds are told
            fail(f"--docs needs every workload and every peer: the last run was with {', '.join(left_out)}")
        DOCS.write_text(bench_report.markdown(results))
        return 0
    results = read_results(folder, [FULL, PART]) if arguments.report else measure(build)
    write_report(folder, results)
    return 1 if results.failures and not arguments.report else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
