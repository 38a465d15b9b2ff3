#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""That the benchmarks work: every workload of Weft in its smallest size prints what it has to, and tools/bench.py counts, compares
and reports what it is given as it should. Nothing is timed here.

    tests/bench/run.py BUILD        BUILD: a build folder, whose bench/weft_bench is run
"""
import contextlib
import io
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import bench  # noqa: E402
import bench_notes  # noqa: E402
import bench_report  # noqa: E402
from bench_results import Results, Target  # noqa: E402

LINE = re.compile(r"^([a-z0-9_]+)((?:\.[a-z0-9_]+)?) (-?[0-9]+\.[0-9]{2}) (\S.*)$")
NEEDS = {"http_raw": "wrk"}
MAY_SAY_WHY_NOT = ("files_hot", "files_direct")  # where there is no place for their file

counts = {"ok": 0, "FAIL": 0, "skip": 0}


def report(name, error=None, status=None):
    status = status or ("FAIL" if error else "ok")
    counts[status] += 1
    print(f"{status} {name}" + (f": {error}" if error else ""), flush=True)


# ---- the workloads ---------------------------------------------------------------------------------------------------

def run_tiny(program, arguments):
    return subprocess.run([program, *arguments], env=dict(os.environ, TINY="1"), capture_output=True, text=True, timeout=120)


def what_is_wrong(workload, result):
    if result.returncode != 0:
        return f"status {result.returncode}: {result.stderr.strip()[-500:]}"
    lines = result.stdout.splitlines()
    if not lines:
        return None if workload in MAY_SAY_WHY_NOT and result.stderr else "it prints nothing"
    for line in lines:
        match = LINE.match(line)
        if match is None or match.group(1) != workload:
            return f"it prints {line!r}"
        if not math.isfinite(float(match.group(3))):
            return f"its value is no number: {line!r}"
    names = [line.split()[0] for line in lines]
    return None if len(set(names)) == len(names) else "it prints a name twice"


def check_workloads(program):
    listed = subprocess.run([program, "-l"], capture_output=True, text=True, check=True).stdout.split()
    for workload in listed:
        if workload in NEEDS and not shutil.which(NEEDS[workload]):
            report(workload, f"there is no {NEEDS[workload]}", "skip")
            continue
        try:
            report(workload, what_is_wrong(workload, run_tiny(program, [workload])))
        except subprocess.TimeoutExpired:
            report(workload, "it does not end")
    described = "\n".join(bench_notes.WORKLOAD_NOTES)
    missing = [name for name in listed if f"`{name}`" not in described]
    report("every_workload_is_described", ", ".join(missing))
    report("what_scales_is_there", ", ".join(set(dict(bench_notes.SCALING)) - set(listed)))


def check_options(program):
    chosen = run_tiny(program, ["-p", "3", "-n", "100", "scale_spawn"])
    report("processors_and_size_can_be_chosen", what_is_wrong("scale_spawn", chosen))
    for name, arguments in (("an_unknown_name_is_refused", ["nothing"]), ("no_name_is_refused", []),
                            ("a_size_where_it_is_fixed_is_refused", ["-n", "9", "mutex_contended"]),
                            ("processors_where_they_are_fixed_are_refused", ["-p", "2", "yield_1p"]),
                            ("a_size_that_is_no_number_is_refused", ["-n", "5x", "scale_spawn"]),
                            ("no_processors_are_refused", ["-p", "0", "scale_spawn"])):
        result = run_tiny(program, arguments)
        report(name, None if result.returncode == 2 and result.stderr else f"status {result.returncode}")


# ---- the tool --------------------------------------------------------------------------------------------------------

def canned():
    """Two programs, with a loss, a rate, a value that is no ratio, a failure and some points of a scaling."""
    results = Results(["weft", "go"], 3, {"CPU": "one <of> a kind"})
    for weft, go in ((10.0, 90.0), (12.0, 80.0), (11.0, 100.0)):
        results.add("weft", {"yield_1p": (weft, "ns/switch"), "echo_2p": (weft * 100, "rt/s"), "parked_10k.bytes": (4400, "B")})
        results.add("go", {"yield_1p": (go, "ns/switch"), "echo_2p": (go * 10, "rt/s"), "parked_10k.bytes": (2200, "B")})
        results.add("weft", {"quantum_cost.percent": (-0.5, "%")})
        for procs in (1, 4):  # and not 2, as where something failed
            name = bench_report.point("scale_spawn", procs, bench_report.FIXED_SIZE)
            results.add("weft", {name: (weft * procs, "ns/spawn")})
            results.add("go", {name: (go * procs, "ns/spawn")})
    results.failures.append(("go", "sieve_2p", "took more than 60 s"))
    results.impossible = {("go", "files_direct"): "no O_DIRECT <here>", ("go", "files_hot"): "no O_DIRECT <here>"}
    return results


def case(fn):
    try:
        fn()
        report(fn.__name__)
    except Exception as error:  # an assertion, or the tool's own failure
        report(fn.__name__, f"{type(error).__name__} {error}".strip())


def best_is_the_least_of_times_and_the_most_of_rates():
    results = canned()
    assert results.best("weft", "yield_1p") == 10 and results.median("weft", "yield_1p") == 11
    assert results.best("weft", "echo_2p") == 1200 and results.median("go", "echo_2p") == 900
    assert results.best("tokio", "yield_1p") is None and results.median("tokio", "yield_1p") is None


def a_ratio_is_above_one_where_weft_is_ahead():
    results = canned()
    assert results.advantage("go", "yield_1p") == 8
    assert results.advantage("go", "echo_2p") == 1.2
    assert results.advantage("go", "parked_10k.bytes") == 0.5
    results.add("go", {"quantum_cost.percent": (1, "%")})
    assert results.advantage("go", "quantum_cost.percent") is None


def targets_are_judged():
    results = canned()
    assert Target("yield_1p", "", "go", 8).judge(results)[0] is True
    assert Target("yield_1p", "", "go", 9).judge(results)[0] is False
    assert Target("yield_1p", "", "tokio", 1).judge(results)[0] is None
    assert Target("quantum_cost.percent", "", limit=1).judge(results)[0] is True
    assert Target("parked_10k.bytes", "", limit=4000).judge(results)[0] is False
    assert Target("no_such", "", limit=1).judge(results)[0] is None


def results_survive_their_file():
    results = canned()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "results.json"
        results.write(path)
        again = Results.read(path)
    assert again.samples == results.samples and again.units == results.units and again.failures == results.failures
    assert again.impossible == results.impossible
    assert bench_report.markdown(again) == bench_report.markdown(results)


def losses_and_failures_are_told():
    text = bench_report.markdown(canned())
    assert "`parked_10k.bytes`: Go is 2.00 times better (4,400 against 2,200 B)." in text
    assert "- Go `sieve_2p`: took more than 60 s." in text
    assert "- Go `files_direct`, `files_hot`: no O_DIRECT <here>." in text
    assert "| yield_1p | ns/switch | 10.0 / 11.0 | 80.0 / 90.0 | 8.00 |" in text
    assert "| 4 | 40.0 / 44.0 | 320 / 360 |" in text
    assert "one <of> a kind" in text


def the_page_is_well_formed_and_has_the_plots():
    page = bench_report.html(canned())
    assert "<of>" not in page and "<here>" not in page and "files_direct, files_hot" in page
    assert "fewer than the 5" in page and "http" not in page.replace("http_raw", "")
    figures = re.findall(r"<figure>.*?</figure>", page, re.S)
    for figure in figures:
        xml.etree.ElementTree.fromstring(figure)
    scaling = [figure for figure in figures if "scale_spawn" in figure]
    assert len(scaling) == 1 and scaling[0].count('class="line') == 2, "a line for each program, without a gap"
    assert any("yield_1p" in figure for figure in figures)
    assert '<td class="bad">0.50</td>' in page


def runs_are_interleaved_and_take_turns_at_the_beginning():
    a, b = (type("Program", (), {"label": label, "workloads": names})
            for label, names in (("a", ["x", "y"]), ("b", ["x"])))
    runs = [run for name in ("x", "y") for run in bench.runs_of(name, False)]
    plan = [program.label + run.label for program, run in bench.make_plan([a, b], runs, 2)]
    assert plan == ["ax", "bx", "ay", "bx", "ax", "ay"], plan


def scaling_has_its_points():
    labels = [run.label for run in bench.runs_of("scale_spawn", False)]
    assert len(labels) == len(set(labels)) == 8
    assert "scale_spawn[p=16,n=10000]" in labels and "scale_spawn[p=2,n=1000000]" in labels
    assert bench.Run("scale_spawn", 4, 100).options == ["-p", "4", "-n", "100"]


def who_fails_twice_is_given_up():
    results = Results(["weft"])
    assert not results.has_given_up("weft", "x")
    results.failures += [("weft", "x", "why"), ("weft", "y", "why")]
    assert not results.has_given_up("weft", "x")
    results.failures.append(("weft", "x", "why"))
    assert results.has_given_up("weft", "x") and not results.has_given_up("weft", "y")


def unfinished_and_partial_results_never_replace_full_ones():
    a = type("Program", (), {"label": "weft", "path": "/bin/true", "workloads": ["x"]})

    def run(folder, partial, after_round=lambda: None):
        results = Results(["weft"], 0, {}, partial)
        keeper = bench.Keeper(folder, results, 2)

        def keep():
            keeper.after_round()
            after_round()
        with contextlib.redirect_stderr(io.StringIO()):
            bench.run_all([a], bench.runs_of("x", False), 2, results, keep)

    def stop():
        raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        full, part = folder / bench.FULL, folder / bench.PART
        run(folder, ["ONLY"])
        assert not full.exists() and Results.read(part).partial == ["ONLY"]
        run(folder, [])
        assert Results.read(full).rounds == 2 and not part.exists()
        assert Results.read(full).impossible == {("weft", "x"): "it prints nothing"}
        before = full.read_text()
        try:
            run(folder, [], stop)
        except KeyboardInterrupt:
            pass
        assert full.read_text() == before and Results.read(part).partial == ["1 of 2 rounds"]
        assert bench.read_results(folder, [bench.FULL]).partial == []


def one_p_is_one_cpu_for_every_program():
    usable = os.sched_getaffinity(0)
    assert len(bench.Run("yield_1p", None, None).cpus) == 1
    assert bench.Run("http_raw", None, None).cpus == bench.Run("spawn_2p", None, None).cpus == usable
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "program"
        script.write_text("#!/bin/sh\necho $1 $(nproc) CPUs\n")
        script.chmod(0o755)
        program = type("Program", (), {"label": "a", "path": script})
        assert bench.run_once(program, bench.Run("x_1p", None, None)) == {"x_1p": (1.0, "CPUs")}
        assert bench.run_once(program, bench.Run("x_2p", None, None)) == {"x_2p": (float(len(usable)), "CPUs")}


def versions_of_compilers_are_read():
    assert re.search(r"^go 1\.26$", bench.go_module("go1.26.8"), re.M) and "module weft/bench" in bench.go_module("go1.26.8")
    assert re.search(r"^go 1\.28$", bench.go_module("devel go1.28-0123abc X:some"), re.M)
    assert bench.is_old_rust("rustc 1.63.0") and bench.is_old_rust("cargo 0.66.0") and bench.is_old_rust("cargo 1.84.1 (abc)")
    assert not bench.is_old_rust("rustc 1.85.0 (abc 2025-02-17)") and not bench.is_old_rust("cargo 2.0.0")
    assert not bench.is_old_rust("")


def what_is_no_result_is_refused():
    script = type("Program", (), {"label": "a", "path": "/bin/echo"})
    try:
        bench.run_once(script, bench.Run("nothing", None, None))
    except bench.RunFailed:
        return
    raise AssertionError("it was taken for one")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    program = pathlib.Path(sys.argv[1]).resolve() / "bench" / "weft_bench"
    for fn in (best_is_the_least_of_times_and_the_most_of_rates, a_ratio_is_above_one_where_weft_is_ahead, targets_are_judged,
               results_survive_their_file, losses_and_failures_are_told, the_page_is_well_formed_and_has_the_plots,
               runs_are_interleaved_and_take_turns_at_the_beginning, scaling_has_its_points, who_fails_twice_is_given_up,
               unfinished_and_partial_results_never_replace_full_ones, one_p_is_one_cpu_for_every_program,
               versions_of_compilers_are_read, what_is_no_result_is_refused):
        case(fn)
    check_options(program)
    check_workloads(program)
    skipped = f", {counts['skip']} skipped" if counts["skip"] else ""
    print(f"{counts['ok']} passed, {counts['FAIL']} failed{skipped}")
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
