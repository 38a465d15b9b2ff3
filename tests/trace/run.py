#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Traces and profiles as the programs that open them see them: tests/trace/run.py BUILD

Prints "ok NAME" or "FAIL NAME: reason" for each case, "skip NAME: reason" where a tool is missing, then "N passed, M failed".
"""
import collections
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIMIT = 120  # seconds: what a hang takes
WORKERS, ROUNDS = 8, 50  # of busy.c
SKEW = 0.1  # microseconds between the counters of two cores

sys.path.insert(0, str(ROOT / "tools"))
import simulate  # noqa: E402


class Skip(Exception):
    """What is missing."""


def run(folder, **env):
    subprocess.run([folder / "busy"], check=True, timeout=LIMIT, env={**os.environ, "WEFT_PROCS": "2", **env})


def traced(folder):
    path = folder / "trace.json"
    run(folder, WEFT_TRACE=str(path))
    return path.read_text()


def slices(events):
    tracks = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    return {track: sorted(some) for track, some in tracks.items()}


def trace_is_json_with_a_name_for_each_track(folder):
    events = json.loads(traced(folder))
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xisf"} <= named
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {"processors", "threads"}
    assert len({tid for _, tid in named}) == len(named), "a tid stands for two tracks"


def slices_do_not_overlap(folder):
    for track, some in slices(json.loads(traced(folder))).items():
        for (_, end), (begin, _) in zip(some, some[1:]):
            assert end <= begin + SKEW, f"{end} > {begin} on {track}"


def arrows_lead_from_slice_to_slice(folder):
    events = json.loads(traced(folder))
    tracks, begins = slices(events), {}
    for event in sorted((e for e in events if e["ph"] in "sf"), key=lambda e: (e["id"], e["ph"] == "f")):
        where = tracks[event["pid"], event["tid"]]
        assert any(begin <= event["ts"] <= end for begin, end in where), f"{event} is in no slice"
        if event["ph"] == "s":
            begins[event["id"]] = event["ts"]
        else:
            assert begins.pop(event["id"]) <= event["ts"], f"{event} points back"
    assert not begins and any(e["ph"] == "s" for e in events)


def everybody_is_in_it(folder):
    events = json.loads(traced(folder))
    spawned = {e["args"]["g"] for e in events if e["name"] == "spawn"}
    ran = {e["args"]["g"] for e in events if e["ph"] == "X" and e["pid"] == 1}
    assert len(spawned) == WORKERS and ran == spawned | {1}
    assert any(e["name"].startswith('first "of" all ') for e in events)
    assert sum(e["name"] == "blocking call" for e in events) == WORKERS
    assert events[-1]["args"]["lost"] == 0


def a_trace_that_was_cut_short_is_one(folder):
    text = traced(folder)
    cut = text[:2 * len(text) // 3]
    assert simulate.shorten(cut)


def the_simulator_replays_it(folder):
    trace = simulate.Trace(simulate.shorten(traced(folder)))
    simulation = simulate.Simulation(trace, simulate.Machine("2x1x2"), "near").run()
    assert simulate.conserves_work(trace, simulation, 1) and trace.count() > WORKERS


def collapsed_stacks_name_the_function(folder):
    path = folder / "cpu.folded"
    run(folder, WEFT_PROFILE=str(path))
    for line in path.read_text().splitlines():
        assert re.fullmatch(r".+ [1-9]\d*", line), line
    assert "work;burn " in path.read_text()


def gzip_and_plain_profiles_can_be_unpacked(folder):
    for name in ("cpu.pb", "cpu.pb.gz"):
        run(folder, WEFT_PROFILE=str(folder / name))
        data = (folder / name).read_bytes()
        assert b"burn" in (gzip.decompress(data) if name.endswith(".gz") else data)


def pprof_reads_them(folder):
    if not shutil.which("go"):
        raise Skip("there is no go here")
    run(folder, WEFT_PROFILE=str(folder / "go.pb.gz"))
    shown = subprocess.run(["go", "tool", "pprof", "-raw", folder / "go.pb.gz"], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, timeout=5 * LIMIT)  # the first time, go compiles it
    if "no such tool" in shown.stderr:
        raise Skip("there is no pprof here")
    assert shown.returncode == 0, shown.stderr
    assert "Period: 10000000" in shown.stdout and " burn " in shown.stdout and "entry:[work]" in shown.stdout


CASES = (trace_is_json_with_a_name_for_each_track, slices_do_not_overlap, arrows_lead_from_slice_to_slice,
         everybody_is_in_it, a_trace_that_was_cut_short_is_one, the_simulator_replays_it,
         collapsed_stacks_name_the_function, gzip_and_plain_profiles_can_be_unpacked, pprof_reads_them)


def build(folder, library):
    command = ["cc", "-O2", "-rdynamic", f"-I{ROOT / 'include'}", ROOT / "tests" / "trace" / "busy.c", library, "-lpthread",
               "-ldl", "-o", folder / "busy"]
    subprocess.run(command, check=True)


def main():
    counts = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="weft-trace-") as name:
        folder = pathlib.Path(name)
        build(folder, pathlib.Path(sys.argv[1]) / "libweft.a")
        for case in CASES:
            verdict, reason = "ok", ""
            try:
                case(folder)
            except Skip as missing:
                verdict, reason = "skip", f": {missing}"
            except (AssertionError, ValueError, KeyError, OSError, subprocess.SubprocessError) as error:
                verdict, reason = "FAIL", f": {error or type(error).__name__}"
            counts[verdict] += 1
            print(f"{verdict} {case.__name__}{reason}")
    skipped = f", {counts['skip']} skipped" if counts["skip"] else ""
    print(f"{counts['ok']} passed, {counts['FAIL']} failed{skipped}")
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
