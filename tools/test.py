#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs everything that has to pass: the tests in each variant of the build, then the checks of the tree.

    tools/test.py                       what `make test` does
    tools/test.py --only asan,format    some of it; --list names the parts
    tools/test.py --full                also what shows little that another variant does not: half as long again

Two phases: all variants are built, warnings being errors; then every test executable of every variant runs as a process of its
own, and the checks with them, a few at a time, what took longest the last time first. An executable prints "ok CASE" or "FAIL CASE" a line and closes
with "N passed, M failed"; one that crashes, hangs or says something else than it did counts as a failure too. Only the
output of failures is shown; all of it is in build/variants/NAME/logs. The last line here is "N passed, M failed".
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
VARIANTS_DIR = ROOT / "build" / "variants"

# What each variant is and which families of tests run in it. `of` names another one, whose executables it runs in an environment
# of its own.
# `match` is what the names of its executables match; of these those run that match `brief` too, unless --full asks for all. With `alone`
# nothing else is built.
Variant = collections.namedtuple("Variant", "name compilers options families limit env emulator of match brief alone",
                                 defaults=({}, (), None, "", "", False))
ALL_BUT_MODEL = ("stress", "fault", "test")
ALL = ALL_BUT_MODEL + ("model",)


def but(*names):
    return f"^(?!({'|'.join(names)})$)"


OF_CODE = r"preempt|stack|unwind|overflow|block|_go$|_chan|select|mutex|scope|dump|profile"
VARIANTS = (
    Variant("gcc-O2", ["gcc"], ["-DCMAKE_BUILD_TYPE=RelWithDebInfo"], ALL, 180),
    # What computes is stopped all the time. In brief not what has a quantum of its own, waits for most of its time or takes long.
    Variant("quantum", ["gcc"], [], ALL_BUT_MODEL, 180, {"WEFT_QUANTUM": "200us"}, (), "gcc-O2", "",
            but("test_end", "test_fair", "test_priority", "test_urgent", "test_stack", "test_block", "test_file", "test_trace", "test_profile",
                "test_flight", "test_topology", "test_posix_calls", "fault_.*", "stress_(io.*|foreign)")),
    # gcc's TSan dies above 8,128 live fibers.
    Variant("tsan", ["clang", "gcc"], ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DWEFT_SANITIZE=thread"],
            ALL_BUT_MODEL, 400, {"TSAN_OPTIONS": "halt_on_error=1"}, (), None, but("fault_calls"), but("test_fair")),
    # -O1 builds in half the time, and its backtraces are truer.
    Variant("asan", ["gcc"], ["-DCMAKE_BUILD_TYPE=Sanitized", "-DCMAKE_C_FLAGS_SANITIZED=-O1 -g",
                              "-DCMAKE_CXX_FLAGS_SANITIZED=-O1 -g", "-DWEFT_SANITIZE=address,undefined",
                              "-DWEFT_CHECKS=ON"],
            ALL_BUT_MODEL, 180, {"UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}),
    Variant("aarch64", ["aarch64-linux-gnu-gcc"],
            ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/tools/aarch64.cmake"],
            ("stress", "test"), 400, {"WEFT_TEST_EMULATED": "1"}, ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"), None,
            but("test_fair", "test_priority", "test_urgent"), OF_CODE + "|stress|trace|_io_|leaks", True),
    # What depends on the code that a compiler makes: switches, stacks, errno and what is stopped by a signal. TSan's is clang's as well,
    # and builds all the others; ASan's has the checks too.
    Variant("gcc-O0", ["gcc"], ["-DCMAKE_BUILD_TYPE=Debug", "-DWEFT_CHECKS=ON"], ALL_BUT_MODEL, 180, {}, (), None, "",
            f"^test.*({OF_CODE})"),
    Variant("clang-O2", ["clang"], ["-DCMAKE_BUILD_TYPE=RelWithDebInfo"], ALL_BUT_MODEL, 180, {}, (), None, "",
            "^test.*(preempt|unwind|overflow|_go$|_chan|select|mutex|scope|posix)", True),
    # Builds without a warning; what runs without optimisation is gcc-O0's, what runs with clang is clang-O2's.
    Variant("clang-O0", ["clang"], ["-DCMAKE_BUILD_TYPE=Debug"], (), 180),
)
INSTALLED = "gcc-O2"  # the variant that the symbol, install, typed, docs, examples, posix and bench checks look at

CASE_LINE = re.compile(r"^(ok|FAIL|skip) (\S+)", re.M)
CLOSING_LINE = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)
SHOWN = 60_000  # characters of a failure's output, so that a test that prints for ever does not bury the rest


# ---- what is counted -------------------------------------------------------------------------------------------------

class Tally:
    """Every case by its full name, VARIANT/file/case or check/case."""

    def __init__(self):
        self.status = {}

    def add(self, name, status):
        while name in self.status:
            name += "'"
        self.status[name] = status

    def count(self, status):
        return sum(s == status for s in self.status.values())

    def close(self):
        for name, status in self.status.items():
            if status == "FAIL":
                print(f"failed: {name}")
        skipped = self.count("skip")
        print(f"{self.count('ok')} passed, {self.count('FAIL')} failed" + (f", {skipped} skipped" if skipped else ""))
        return 1 if self.count("FAIL") or not self.status else 0


def report(tally, prefix, cases, seconds, output):
    """Counts the (name, status) of one program under prefix; one line for it, and its output if any failed."""
    for name, status in cases:
        tally.add(f"{prefix}/{name}", status)
    counts = collections.Counter(status for _, status in cases)
    parts = [f"{counts[key]} {word}" for key, word in (("ok", "ok"), ("FAIL", "FAILED"), ("skip", "skipped"))
             if counts[key]]
    print(f"{prefix:32} {seconds:6.1f} s  {', '.join(parts)}")
    if counts["FAIL"]:
        print(shortened(output).rstrip())
        print(f"{prefix}: failed: {', '.join(name for name, status in cases if status == 'FAIL')}")
    sys.stdout.flush()


def shortened(text):
    if len(text) <= SHOWN:
        return text
    half = SHOWN // 2
    return f"{text[:half]}\n... {len(text) - SHOWN} characters left out ...\n{text[-half:]}"


def missing(tally, name, what):
    """Where tools are missing a part is skipped; CI has all of them."""
    status = "FAIL" if os.environ.get("CI") == "true" else "skip"
    print(f"{status} {name}: there is no {what} here (tools/setup.sh build test docs deb installs it)")
    tally.add(f"{name}/tools", status)


# ---- programs --------------------------------------------------------------------------------------------------------

running = set()


def environment(extra=None):
    """Ours without what would bend a test: settings of the runtime, and the make we may have been called from."""
    dropped = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "DESTDIR", "CFLAGS", "LDFLAGS", "CC", "CXX")
    env = {key: value for key, value in os.environ.items()
           if key not in dropped and (not key.startswith("WEFT_") or key == "WEFT_TEST_SEED")}
    return {**env, **(extra or {})}


def run(command, log, limit=600, env=None):
    """Runs a program, output to log. Returns its exit code (None: it hit its time limit), output and seconds."""
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with open(log, "wb") as out:
        process = subprocess.Popen([str(word) for word in command], cwd=ROOT, env=environment(env), stdout=out,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
        running.add(process)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
            out.write(stacks_of(process.pid))
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        running.discard(process)
    return code, log.read_bytes().decode(errors="replace"), time.monotonic() - began


def stacks_of(pid):
    """What the threads of a program that hangs are doing."""
    command = ["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "thread apply all backtrace"]
    try:
        shown = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        shown = b""
    return b"\n---- it hangs: " + shown + b"\n"


def end_all(_signal, _frame):
    for process in list(running):
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
    print("interrupted", flush=True)
    os._exit(130)


def verdicts(code, output):
    """The cases that a program reported, and one more for a bad end."""
    cases = [(name, status) for status, name in CASE_LINE.findall(output)]
    counts = collections.Counter(status for _, status in cases)
    closing = CLOSING_LINE.findall(output)
    if code is None:
        cases.append(("time-limit", "FAIL"))
    elif code < 0:
        cases.append((f"killed-by-{signal.Signals(-code).name}", "FAIL"))
    elif not closing:
        cases.append((f"bad-end-exit-{code}", "FAIL"))
    elif tuple(int(n or 0) for n in closing[-1]) != (counts["ok"], counts["FAIL"], counts["skip"]):
        cases.append(("closing-line-differs", "FAIL"))
    elif (code != 0) != (counts["FAIL"] != 0):
        cases.append((f"exit-{code}", "FAIL"))
    return cases


def run_script(tally, name, command, limit=600):
    """A check that prints its cases the way the test executables do."""
    code, output, seconds = run(command, VARIANTS_DIR / "logs" / f"{name}.log", limit)
    report(tally, name, verdicts(code, output), seconds, output)


# ---- variants --------------------------------------------------------------------------------------------------------

class Build:
    """One variant on this machine: its folder, and what it takes to run a program of it."""

    def __init__(self, variant, jobs):
        self.variant = variant
        self.jobs = jobs
        self.folder = VARIANTS_DIR / (variant.of or variant.name)
        self.logs = VARIANTS_DIR / variant.name / "logs"
        self.compiler = next(filter(shutil.which, variant.compilers), None)
        self.launcher = list(variant.emulator)
        self.env = dict(variant.env)
        self.built = False

    def missing_tool(self):
        if self.compiler is None:
            return self.variant.compilers[0]
        return next((tool for tool in self.variant.emulator[:1] if not shutil.which(tool)), None)

    def build(self, tally):
        began = time.monotonic()
        log = self.logs / "build.log"
        configure = ["cmake", "-S", ROOT, "-B", self.folder, f"-DCMAKE_C_COMPILER={self.compiler}", "-DWEFT_WERROR=ON"]
        code, output, _ = run(configure + self.variant.options, log)
        if code == 0:
            code, output, _ = run(["cmake", "--build", self.folder, "--parallel", self.jobs, *self.targets(), "--", "-k"], log, 1200)
        self.built = code == 0
        report(tally, self.variant.name, [("build", "ok" if self.built else "FAIL")], time.monotonic() - began, output)
        if self.built:
            self.adapt()

    def adapt(self):
        """Sanitizers do not work alike everywhere: leak detection needs ptrace, TSan a known layout of memory."""
        if self.variant.name == "asan":
            leaks = self.probe("address", "#include <stdlib.h>\nint main(void) { return malloc(9) == (void *)9; }", [],
                               {"ASAN_OPTIONS": "detect_leaks=1"})
            works = "detected memory leaks" in leaks
            self.env["ASAN_OPTIONS"] = f"detect_leaks={int(works)}:handle_segv=0:handle_sigbus=0"
            if not works:
                print("asan: leaks are not looked for, LeakSanitizer does not work here")
        if self.variant.name == "tsan" and self.probe("thread", "int main(void) { return 0; }", [], {}) != "":
            self.launcher = ["setarch", "-R"]

    def probe(self, sanitizer, program, launcher, env):
        """What a small program prints when built with a sanitizer."""
        source, binary, log = (self.folder / f"probe.{ext}" for ext in ("c", "exe", "log"))
        source.write_text(program + "\n")
        code, output, _ = run([self.compiler, f"-fsanitize={sanitizer}", "-o", binary, source], log)
        return output if code != 0 else run(launcher + [binary], log, 60, env)[1]

    def sources(self):
        """The families in the order of the table."""
        for family in self.variant.families:
            for source in sorted(path for pattern in ("tests/{}_*.c", "tests/{}_*.cpp", "tests/posix/{}_*.c")
                                 for path in ROOT.glob(pattern.format(family))):
                if re.search(self.variant.match, source.stem) and re.search(self.variant.brief, source.stem):
                    yield source

    def targets(self):
        """What to build; nothing said: all."""
        if not self.variant.alone:
            return []
        known = run(["cmake", "--build", self.folder, "--target", "help"], self.logs / "targets.log")[1]
        return ["--target", *(source.stem for source in self.sources() if re.search(rf"\b{source.stem}$", known, re.M))]

    def executables(self):
        """Those whose source is still there."""
        for source in self.sources():
            executable = self.folder / source.relative_to(ROOT).with_suffix("")
            if source.parent.name == "posix" and self.variant.name == INSTALLED:
                continue  # check_posix runs these
            if executable.exists():  # a file may be a part of others
                yield executable

    def run_test(self, executable):
        log = self.logs / f"{executable.name}.log"
        return run(self.launcher + [executable], log, self.variant.limit, self.env)


def run_test(tally, name, build, executable):
    code, output, seconds = build.run_test(executable)
    report(tally, name, verdicts(code, output), seconds, output)


def tests_of(tally, builds):
    """What there is to run, by name; each with the seconds that it may take at the most."""
    return {f"{build.variant.name}/{executable.name}":
            (build.variant.limit, run_test, (tally, f"{build.variant.name}/{executable.name}", build, executable))
            for build in builds if build.built for executable in build.executables()}


# ---- checks ----------------------------------------------------------------------------------------------------------

def check_model(tally, _builds):
    script = ROOT / "tests" / "model" / "run.sh"
    if not script.exists():
        return
    if not shutil.which("spin"):
        missing(tally, "model", "spin")
        return
    run_script(tally, "model", ["sh", script])


def check_orders(tally, _builds):
    checker = ROOT / "tools" / "check-orders.py"
    run_script(tally, "orders/self-test", [sys.executable, checker, "--self-test"])
    run_script(tally, "orders", [sys.executable, checker])


def check_simulate(tally, _builds):
    """That the simulator of run queues loses no work, and that near victims are what Weft steals from."""
    run_script(tally, "simulate", [sys.executable, ROOT / "tools" / "simulate.py", "--check"])


def c_files():
    """Tracked, or new and not ignored."""
    folders = ["src", "posix", "include", "tests", "bench", "examples", "lab", "web", "tools"]
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "--", *folders], cwd=ROOT,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    names = listed.stdout.split("\n") if listed.returncode == 0 else \
        [str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*")]
    return sorted(name for name in set(names) if name.endswith((".c", ".h")) and (ROOT / name).exists())


def check_format(tally, _builds):
    if not shutil.which("clang-format"):
        missing(tally, "format", "clang-format")
        return
    log = VARIANTS_DIR / "logs" / "format.log"
    code, output, seconds = run(["clang-format", "--dry-run", "--Werror", *c_files()], log)
    report(tally, "format", [("clang-format", "ok" if code == 0 else "FAIL")], seconds, format_summary(output))


def format_summary(output):
    """The lines of each file that clang-format would change; all of it otherwise, if it did not get that far."""
    lines = {}
    for name, line in re.findall(r"^(\S+?):(\d+):\d+: error: code should be clang-formatted", output, re.M):
        lines.setdefault(name, []).append(line)
    text = "".join(f"{name}: `make format` would change line {', '.join(dict.fromkeys(where))}\n"
                   for name, where in lines.items())
    return text or output


def check_symbols(tally, builds):
    folder = builds[INSTALLED].folder
    logs = VARIANTS_DIR / "logs"
    _, dynamic, _ = run(["readelf", "-d", folder / "libweft.so"], logs / "soname.log")
    _, exported, seconds = run(["nm", "-D", "--defined-only", folder / "libweft.so"], logs / "exports.log")
    _, archived, _ = run(["nm", "-g", "--defined-only", folder / "libweft.a"], logs / "archive.log")
    strangers = foreign_symbols(exported, ("weft_",))
    polluting = foreign_symbols(archived, ("weft_", "w_", "_.stapsdt.base"))  # the last marks static probes, hidden
    cases = [("soname", "Library soname: [libweft.so.1]" in dynamic),
             ("shared-exports-weft-only", " T weft_run\n" in exported and not strangers),
             ("static-defines-weft-and-w-only", " T weft_run\n" in archived and not polluting)]
    output = f"{dynamic}\nlibweft.so also exports: {strangers}\nlibweft.a also defines: {polluting}\n"
    report(tally, "symbols", [(name, "ok" if good else "FAIL") for name, good in cases], seconds, output)


def foreign_symbols(listing, prefixes):
    return [name for name in re.findall(r"^[0-9a-f]* +[A-Za-z] (\S+)$", listing, re.M)
            if not name.startswith(prefixes)]


def check_install(tally, builds):
    for tool in ("pkg-config", "g++"):
        if not shutil.which(tool):
            missing(tally, "install", tool)
            return
    run_script(tally, "install", ["sh", ROOT / "tests" / "install" / "run.sh", builds[INSTALLED].folder])


def check_typed(tally, builds):
    run_script(tally, "typed", [sys.executable, ROOT / "tests" / "typed" / "run.py", builds[INSTALLED].folder])


def check_docs(tally, builds):
    if not shutil.which("cc"):
        missing(tally, "docs", "cc")
        return
    run_script(tally, "docs", [sys.executable, ROOT / "tools" / "check-docs.py", builds[INSTALLED].folder])


def check_examples(tally, builds):
    run_script(tally, "examples", [sys.executable, ROOT / "tests" / "examples" / "run.py", builds[INSTALLED].folder])


def check_demo(tally, builds):
    run_script(tally, "demo", [sys.executable, ROOT / "tests" / "pack" / "demo.py", builds[INSTALLED].folder])


def pack_check(name, *tools):
    """tests/pack/NAME.sh, where the tools that it needs are there."""
    def check(tally, _builds):
        if lacking := [tool for tool in tools if not shutil.which(tool)]:
            missing(tally, name, lacking[0])
            return
        run_script(tally, name, ["sh", ROOT / "tests" / "pack" / f"{name}.sh"])
    return check


def check_posix(tally, builds):
    run_script(tally, "posix", [sys.executable, ROOT / "tests" / "posix" / "run.py", builds[INSTALLED].folder])


def check_gdb(tally, builds):
    if not shutil.which("gdb"):
        missing(tally, "gdb", "gdb")
        return
    run_script(tally, "gdb", [sys.executable, ROOT / "tests" / "gdb" / "run.py", builds[INSTALLED].folder])


def check_trace(tally, builds):
    """That others can open what the library writes."""
    run_script(tally, "trace", [sys.executable, ROOT / "tests" / "trace" / "run.py", builds[INSTALLED].folder])


def check_web(tally, builds):
    """The live picture in a browser, and weft top."""
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        missing(tally, "web", "chromium")
        return
    run_script(tally, "web", [sys.executable, ROOT / "tests" / "web" / "run.py", builds[INSTALLED].folder], 300)


def check_bench(tally, builds):
    """That the benchmarks work, in their smallest size, and what is made of their figures."""
    run_script(tally, "bench", [sys.executable, ROOT / "tests" / "bench" / "run.py", builds[INSTALLED].folder])


# ---- fuzzing ---------------------------------------------------------------------------------------------------------

FUZZ_DIR = ROOT / "tests" / "fuzz"
FUZZ_COMPILE = ["clang", "-std=gnu11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Werror",
                "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined",
                *(f"-I{ROOT / folder}" for folder in ("include", "src", "examples", "tests"))]
FUZZ_ENV = {"ASAN_OPTIONS": "detect_leaks=0"}  # does not work everywhere; the variant asan looks for leaks
SOURCES_LINE = re.compile(r"^ \* Sources: (.+)$", re.M)  # what else a fuzzer is made of, from the root


def check_fuzz(tally, _builds):
    """Each tests/fuzz/fuzz_NAME.c for FUZZ_SECONDS, starting from tests/fuzz/corpus/NAME."""
    if not shutil.which("clang"):
        missing(tally, "fuzz", "clang")
        return
    sources = sorted(FUZZ_DIR.glob("fuzz_*.c"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for source, (cases, seconds, output) in zip(sources, pool.map(fuzz, sources)):
            report(tally, f"fuzz/{source.stem}", cases, seconds, output)


def fuzz(source):
    """Builds and runs one. The input that made it fail stays in its folder."""
    folder = VARIANTS_DIR / "fuzz" / source.stem
    log, binary = folder / "fuzz.log", folder / source.stem
    others = [ROOT / name for line in SOURCES_LINE.findall(source.read_text()) for name in line.split()]
    code, output, built_in = run([*FUZZ_COMPILE, "-o", binary, source, *others], log)
    if code != 0:
        return [("build", "FAIL")], built_in, output
    seconds = int(os.environ.get("FUZZ_SECONDS", "15"))
    seeds = FUZZ_DIR / "corpus" / source.stem[len("fuzz_"):]
    options = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=2048", f"-artifact_prefix={folder}/"]
    with tempfile.TemporaryDirectory(prefix="weft-fuzz-") as corpus:
        folders = [corpus, seeds] if seeds.is_dir() else [corpus]
        code, output, ran_for = run([*fixed_layout(), binary, *options, *folders], log, seconds + 120, FUZZ_ENV)
    done = re.search(r"^Done \d+ runs", output, re.M)
    return [("build", "ok"), ("run", "ok" if code == 0 and done else "FAIL")], built_in + ran_for, output


def fixed_layout():
    """Before clang 17, ASan may not start where the kernel spreads mappings over all of 32 bits."""
    try:
        works = subprocess.run(["setarch", "-R", "true"], stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        works = False
    return ["setarch", "-R"] if works else []


def check_lab(tally, builds):
    """That each model of the lab works, and which of them end in a deadlock; with ASan too where that is built."""
    folders = [builds[name].folder for name in (INSTALLED, "asan") if builds[name].built]
    run_script(tally, "lab", [sys.executable, ROOT / "tools" / "lab.py", "--check", *folders])


def check_soak(tally, builds):
    """The stress tests of input and output for a while, a fresh seed each time; `make soak` runs them all for an hour."""
    soak = [sys.executable, ROOT / "tools" / "soak.py", "--build", builds[INSTALLED].folder, "--seconds", "20",
            "--match", "^stress_io"]
    run_script(tally, "soak", soak)


CHECKS = {"model": check_model, "orders": check_orders, "simulate": check_simulate, "format": check_format,
          "symbols": check_symbols, "install": check_install, "typed": check_typed, "docs": check_docs,
          "examples": check_examples, "posix": check_posix, "gdb": check_gdb, "trace": check_trace, "lab": check_lab,
          "web": check_web, "bench": check_bench, "fuzz": check_fuzz, "soak": check_soak}
NEED_BUILD = ("symbols", "install", "typed", "docs", "examples", "posix", "gdb", "trace", "lab", "web", "bench", "soak")

# What is made of the library.
CHECKS.update({"demo": check_demo, "man": pack_check("man", "mandoc", "pandoc"),
               "amalgamation": pack_check("amalgamation", "clang", "aarch64-linux-gnu-gcc", "qemu-aarch64"),
               "deb": pack_check("deb", "dpkg-buildpackage", "dh", "lintian", "pkg-config")})
NEED_BUILD += ("demo",)


# ---- all together ----------------------------------------------------------------------------------------------------

def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", metavar="PART[,PART]", help="variants and checks to run; all of them otherwise")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="tests at a time, and compilers in each of two builds")
    parser.add_argument("--full", action="store_true", help="also what shows little that another variant does not")
    parser.add_argument("--list", action="store_true", help="name the variants and the checks")
    options = parser.parse_args()
    parts = [variant.name for variant in VARIANTS] + list(CHECKS)
    options.variants = [variant._replace(brief="", alone=False) if options.full else variant for variant in VARIANTS]
    options.parts = options.only.split(",") if options.only else parts
    if unknown := [part for part in options.parts if part not in parts]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(parts)}")
    return options


def build_variants(tally, variants, parts, jobs):
    """Builds what was asked for and what the checks look at; returns all builds by name."""
    builds = {variant.name: Build(variant, jobs) for variant in variants}
    borrowed = {builds[part].variant.of for part in parts if part in builds}
    wanted = []
    for name, build in builds.items():
        looked_at = name in borrowed or (name == INSTALLED and any(part in NEED_BUILD for part in parts))
        if build.variant.of is not None or (name not in parts and not looked_at):
            continue
        tool = build.missing_tool()
        if tool is None:
            wanted.append(build)
        else:
            missing(tally, name, tool)
    with concurrent.futures.ThreadPoolExecutor(min(jobs, 2)) as pool:  # while one is configured or linked the other compiles
        list(pool.map(lambda build: build.build(tally), wanted))
    for build in builds.values():
        if build.variant.of is not None:
            build.built = builds[build.variant.of].built
    return builds


def run_check(tally, name, check, builds):
    if name in NEED_BUILD and not builds[INSTALLED].built:
        print(f"skip {name}: {INSTALLED} is not built")
        tally.add(f"{name}/all", "skip")
    else:
        check(tally, builds)


def checks_of(tally, parts, builds):
    """As tests_of."""
    return {name: (600, run_check, (tally, name, check, builds)) for name, check in CHECKS.items() if name in parts}


SLEEPERS = re.compile(r"/test_(end|block|stack|trace)$")


def run_all(programs, jobs):
    """Half as many again as there are cores: many of them wait half of the time; and one more of those that hardly do anything else.
    What took longest the last time, or may take longest if it never ran, comes first, so that no core is left with nothing to do in
    the end."""
    file = VARIANTS_DIR / "seconds.json"
    seconds = json.loads(file.read_text()) if file.exists() else {}

    def timed(name, fn, args):
        began = time.monotonic()
        fn(*args)
        seconds[name] = time.monotonic() - began

    order = sorted(programs, key=lambda name: -seconds.get(name, programs[name][0]))
    with concurrent.futures.ThreadPoolExecutor(jobs + (jobs + 1) // 2) as pool, \
            concurrent.futures.ThreadPoolExecutor(1) as bedroom:
        for done in [(bedroom if SLEEPERS.search(name) else pool).submit(timed, name, *programs[name][1:]) for name in order]:
            done.result()
    VARIANTS_DIR.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(seconds, indent=1, sort_keys=True) + "\n")


def main():
    options = arguments()
    if options.list:
        print("\n".join(options.parts))
        return 0
    signal.signal(signal.SIGINT, end_all)
    signal.signal(signal.SIGTERM, end_all)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # for the tests: a shell has what it starts in the background ignore it
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    began = time.monotonic()
    tally = Tally()
    builds = build_variants(tally, options.variants, options.parts, options.jobs)
    chosen = [build for name, build in builds.items() if name in options.parts]
    run_all({**checks_of(tally, options.parts, builds), **tests_of(tally, chosen)}, options.jobs)
    print(f"\n{time.monotonic() - began:.0f} s")
    return tally.close()


if __name__ == "__main__":
    sys.exit(main())
