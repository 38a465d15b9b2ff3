#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What debuggers and tracers see of a program: tests/gdb/run.py BUILD

    known.c     under gdb with tools/weft-gdb.py, alive and as a core file: what is said of each goroutine; names of threads; the
                arguments of the probes, at which gdb can stop as well
    checked.c   under valgrind: no complaint, and the one that it deserves

Prints "ok NAME", "skip NAME: reason" or "FAIL NAME: reason" for each, then "N passed, M failed".
"""
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SCRIPT = ROOT / "tools" / "weft-gdb.py"
LIMIT = 120  # seconds
COMPILE = ["cc", "-g", "-O1", "-Wall", "-Wextra", f"-I{ROOT / 'include'}"]
LIBRARIES = ["-lpthread", "-ldl"]


class Failure(Exception):
    """The reason on the first line; what else there is to show on the others."""


class Skip(Exception):
    pass


# ---- programs --------------------------------------------------------------------------------------------------------

def environment(extra):
    return {**{name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}, **(extra or {})}


def allow_cores():
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)


def run(command, env=None, cwd=None, before=None):
    """Its exit code and what it prints."""
    try:
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT, cwd=cwd, env=environment(env), preexec_fn=before)
    except subprocess.TimeoutExpired as error:
        raise Failure(f"still running after {LIMIT} s\n{(error.output or b'').decode(errors='replace')}") from None
    return done.returncode, done.stdout.decode(errors="replace")


def succeed(command):
    code, output = run(command)
    if code != 0:
        raise Failure(f"{command[0]}: exit {code}\n{output}")
    return output


def gdb(arguments, commands, before=(), env=None):
    """What each of the commands says."""
    words = ["gdb", "-nx", "-q", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set pagination off", *before,
             "-ex", "set width 0"]
    for i, command in enumerate(commands):
        words += ["-ex", f"echo \\n--{i}--\\n", "-ex", command]
    output = run([*words, *arguments], env)[1]
    parts = re.split(r"\n--\d+--\n", output)[1:]
    if len(parts) != len(commands):
        raise Failure(f"gdb stopped at `{commands[len(parts) - 1]}`\n{output}")
    return dict(zip(commands, parts))


class Staying:
    """known, when all is set, until the end of a `with`: what gdb needs to find it."""

    def __init__(self, program, env=None):
        self.process = subprocess.Popen([program, "stays"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        env=environment(env))

    def __enter__(self):
        if self.process.stdout.readline() != b"all set\n":
            raise Failure(f"known ended: {self.process.wait()}")
        return ["-p", str(self.process.pid)]

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def expect(pattern, text):
    if not re.search(pattern, text, re.M):
        raise Failure(f"'{pattern}' is not in:\n{text}")


def refuse(pattern, text):
    if re.search(pattern, text, re.M):
        raise Failure(f"'{pattern}' is in:\n{text}")


# ---- what gdb says of known.c ----------------------------------------------------------------------------------------

LISTS = ["info goroutines", "info goroutines -group", "info goroutines -name numb -state waiting", "info goroutines -limit 2",
         "info goroutines -state asleep", "goroutine all -entry waiter -limit 3 bt", "goroutine 999 bt", "goroutine 1", "p &held",
         "info threads"]
SOURCE = ["-ex", f"source {SCRIPT}"]


def questions(numbers):
    """About each of them, and what is selected then."""
    one = numbers["numbers"]
    return [f"goroutine {n} bt" for n in numbers.values()] + [
        f"goroutine {one} frame function take_number", f"goroutine {one} bt 1", f"goroutine {one} bt -1", "bt 1"]


class Seen:
    """The answers: to the lists, and then to what is asked about each goroutine."""

    NAMES = re.compile("main|steady|numbers|sleeper|locker|blocked$|blocked blocked|computing|fresh|receiver|waiter")

    def __init__(self, ask, dead):
        self.dead = dead
        self.said = ask(LISTS)
        self.rows, self.numbers = {}, {}
        for line in self.said["info goroutines"].split("\n"):
            if found := re.match(r"\s*(\* )?(\d+)  (.*)", line):
                self.add(int(found[2]), (found[1] or "") + re.sub(" +", " ", found[3]))
        if absent := {"main", "steady", "numbers", "computing", "fresh", "receiver"} - self.numbers.keys():
            raise Failure(f"{absent} are not in:\n{self.said['info goroutines']}")
        self.said.update(ask(questions(self.numbers)))

    def add(self, number, text):
        """Known here by its name or, without one, by its entry."""
        found = self.NAMES.search(text)
        name = found[0].split(" ")[0] if found else text
        self.rows.setdefault(name, []).append(text)
        self.numbers.setdefault(name, number)

    def row(self, name, pattern, times=1):
        rows = self.rows.get(name, [])
        pattern = pattern.replace("TIME", r"at least \d+ ms" if self.dead else r"\d+ ms")
        if len(rows) != times or not all(re.fullmatch(pattern, row) for row in rows):
            raise Failure(f"{name}: {times} time(s) '{pattern}' and not\n{self.said['info goroutines']}")

    def about(self, name, command):
        return self.said[f"goroutine {self.numbers[name]} {command}"]

    def frames(self, name, *patterns):
        """In that order, and no other frame between them; to the very end."""
        text = self.about(name, "bt")
        expect(r".*\n#\d+ .*".join(patterns), text)
        expect(r"w_g_main \(\).*\n#\d+ .*w_entry \(\)[^\n]*\Z", text.rstrip("\n"))


def frame(function, name):
    """At the line of known.c that ends with that name; a loop may be in the line before."""
    lines = (HERE / "known.c").read_text().split("\n")
    line = next(number for number, text in enumerate(lines, 1) if text.endswith(f"/* {name} */"))
    return rf"{function} \(.*\) at \S*known\.c:({line}|{line - 1})$"


def every_goroutine_is_listed(seen):
    held = re.search(r"0x[0-9a-f]+", seen.said["p &held"])[0]
    seen.row("main", (r"\* " if seen.dead else "") + r"running M\d P[01] main start_all")
    seen.row("steady", r"running M\d P[01] steady steady")
    seen.row("numbers", r"waiting high numbers receiver receive from channel 0x[0-9a-f]+, TIME")
    seen.row("sleeper", r"waiting low sleeper sleeper sleep, TIME")
    seen.row("locker", rf"waiting locker mutex {held}, TIME")
    seen.row("blocked", r"blocked M\d( P\d)? blocked blocked TIME")
    seen.row("waiter", r"waiting waiter wait group 0x[0-9a-f]+, TIME", times=4)
    seen.row("computing", r"preempted computing computing")
    seen.row("receiver", r"waiting receiver receive from channel 0x[0-9a-f]+, TIME")
    seen.row("fresh", r"runnable fresh")


def alike_are_counted(seen):
    text = re.sub(" +", " ", seen.said["info goroutines -group"])
    expect(r"^ 4 waiting waiter wait group$", text)
    expect(r"^ 2 waiting receiver receive from channel$", text)
    expect(r"^13 in all$", text)


def filters_and_limits_hold(seen):
    text = seen.said["info goroutines -name numb -state waiting"]
    expect(r"^ *\d+  waiting .*numbers", text)
    refuse(r"sleeper|receiver.*\n.*receiver", text)
    expect(r"^\.\.\. and 11 more", seen.said["info goroutines -limit 2"])
    text = seen.said["goroutine all -entry waiter -limit 3 bt"]
    if len(re.findall(r"^goroutine \d+ \[waiting: wait group", text, re.M)) != 3 or text.count("weft_wg_wait") < 3:
        raise Failure(f"not three waiters:\n{text}")
    expect(r"^\.\.\. and 1 more", text)


def mistakes_are_named(seen):
    expect(r"'-state asleep' makes no sense", seen.said["info goroutines -state asleep"])
    expect(r"There is no goroutine 999", seen.said["goroutine 999 bt"])
    expect(r"goroutine N COMMAND", seen.said["goroutine 1"])


def parked_ones_are_unwound(seen):
    seen.frames("numbers", r"weft_recv \(", frame("take_number", "receiver"), r"receiver \(")
    seen.frames("receiver", r"weft_recv \(", frame("take_number", "receiver"), r"receiver \(")
    seen.frames("sleeper", r"weft_sleep \(", frame("sleeper", "sleeper"))
    seen.frames("locker", frame("locker", "locker"))
    refuse(r"^#0", seen.about("numbers", "bt"))


def one_stopped_by_a_signal_is_unwound(seen):
    seen.frames("computing", r"<signal handler called>", frame("computing", "computing"))


def those_on_threads_are_unwound(seen):
    seen.frames("main", r"(?:all_set|abort) \(", r"(?:start_all|in_scope) \(.*\) at \S*known\.c:")
    seen.frames("steady", frame("steady", "steady"))
    seen.frames("blocked", r"read \(", frame("blocked", "blocked"))


def one_without_a_stack_says_so(seen):
    expect(r"has not run yet.*begin in fresh", seen.about("fresh", "bt"))


def commands_run_in_its_frames(seen):
    expect(r"^#\d+ .*take_number \(wanted=4711\)", seen.about("numbers", "frame function take_number"))
    if len(re.findall("^#", seen.about("numbers", "bt 1"), re.M)) != 1:
        raise Failure(f"not one frame:\n{seen.about('numbers', 'bt 1')}")
    expect(r"\A#\d+ .*w_entry", seen.about("numbers", "bt -1"))


def what_was_selected_is_so_again(seen):
    """The main thread, which is the monitor; in a core file the one that died."""
    expect(r"\A#0 +(?!.*known\.c)", seen.said["bt 1"])


def threads_have_names(seen):
    """The main thread has the program's, which is the process's. A core file has none."""
    if not seen.dead:
        expect(r'"weft M\d"', seen.said["info threads"])
        expect(r'"known"', seen.said["info threads"])


GDB_CASES = (every_goroutine_is_listed, alike_are_counted, filters_and_limits_hold, mistakes_are_named, parked_ones_are_unwound,
             one_stopped_by_a_signal_is_unwound, those_on_threads_are_unwound, one_without_a_stack_says_so,
             commands_run_in_its_frames, what_was_selected_is_so_again, threads_have_names)


def alive(tmp):
    with Staying(tmp / "known") as process:
        return Seen(lambda commands: gdb(process, commands, SOURCE), False)


def dead(tmp):
    """A core file of the kernel's. Where it gives them to a program, that keeps them."""
    folder = tmp / "dead"
    folder.mkdir()
    run([tmp / "known", "dies"], cwd=folder, before=allow_cores)
    cores = list(folder.glob("*core*"))
    if not cores:
        pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
        raise Skip(f"no core file was left (core_pattern is '{pattern}')")
    return Seen(lambda commands: gdb([tmp / "known", cores[0]], commands, SOURCE), True)


# ---- other ways to be seen -------------------------------------------------------------------------------------------

def without_debug_information_it_says_so(_build, tmp):
    succeed(["strip", "-g", "-o", tmp / "stripped", tmp / "known"])
    commands = ["info goroutines", "break read", "run", "info goroutines -limit 9", "goroutine 1 bt"]
    said = gdb([tmp / "stripped"], commands, SOURCE)
    expect("There is no process here", said["info goroutines"])
    expect("libweft's debug information is not here", said["info goroutines -limit 9"])
    expect("libweft's debug information is not here", said["goroutine 1 bt"])


def gdb_loads_it_for_the_shared_library(build, tmp):
    prefix = tmp / "prefix"
    succeed(["cmake", "--install", build, "--prefix", prefix])
    lib = next(prefix.rglob("libweft.so.1")).parent
    succeed([*COMPILE, "-o", tmp / "shared", HERE / "known.c", f"-L{lib}", f"-Wl,-rpath,{lib}", "-lweft", *LIBRARIES])
    loads = ["-iex", f"add-auto-load-scripts-directory {prefix}/share/gdb/auto-load", "-iex", f"add-auto-load-safe-path {prefix}"]
    with Staying(tmp / "shared") as process:
        said = gdb(process, ["info goroutines", "goroutine all -name numbers bt"], loads)
    expect(r"^ *\d+ +waiting +high +numbers", said["info goroutines"])
    expect(frame("take_number", "receiver"), said["goroutine all -name numbers bt"])


def gdb_loads_it_for_the_static_library(build, tmp):
    """Where it was configured to: as what comm.c says then."""
    define = f'-DW_GDB_SCRIPT="{SCRIPT}"'
    succeed([*COMPILE, "-D_GNU_SOURCE", define, "-c", "-o", tmp / "comm.o", ROOT / "src" / "comm.c"])
    succeed([*COMPILE, "-o", tmp / "static", HERE / "known.c", tmp / "comm.o", build / "libweft.a", *LIBRARIES])
    said = gdb([tmp / "static"], ["info goroutines"], ["-iex", f"add-auto-load-safe-path {ROOT / 'tools'}"])
    expect("There is no process here", said["info goroutines"])


def comm_shows_goroutines_that_have_names(_build, tmp):
    with Staying(tmp / "known", {"WEFT_DEBUG": "comm"}) as process:
        threads = gdb(process, ["info threads"])["info threads"]
    expect(r'"main" .*all_set', threads)
    expect(r'"steady" .*steady', threads)
    expect(r'"blocked" .*read', threads)
    expect(r'"known"', threads)


def comm_shows_the_thread_for_others(_build, tmp):
    """Who has no name runs where one with a name ran before."""
    said = gdb([tmp / "known"], ["break waiter", "run", "info threads"], env={"WEFT_DEBUG": "comm"})
    expect(r'^\* .*"weft M\d" +waiter', said["info threads"])


# ---- probes ----------------------------------------------------------------------------------------------------------

PROBES = {"spawn": "8 8 8", "end": "8 8", "switch": "8 8 8 4 4", "park": "8 8 -4 8", "ready": "8 8 8", "steal": "8 8 4 4",
          "preempt": "8 8 4 4", "block_enter": "8 8 4", "block_found": "8 8 4", "block_leave": "8 8 4"}


def probes_of(file):
    """The sizes of the arguments of each, by name."""
    notes = re.findall(r"Provider: weft\s+Name: (\w+)\s+Location: .*\s+Arguments: (.*)", succeed(["readelf", "-n", file]))
    if not notes:
        raise Skip("Weft was built without <sys/sdt.h>")
    return {name: {" ".join(argument.split("@")[0] for argument in found.split()) for n, found in notes if n == name}
            for name, _ in notes}


def every_probe_is_there(build, tmp):
    for file in (build / "libweft.so", tmp / "known"):
        found = probes_of(file)
        if found != {name: {sizes} for name, sizes in PROBES.items()}:
            raise Failure(f"{file}: {found}")


def probes_say_who(_build, tmp):
    """gdb stops at one after the other: number, name and the third argument, of a park the reason. A thread that gdb stops is taken for
    a blocked one, so that steady's P goes to others: only in a crowd is somebody preempted all the same. That is whoever runs when its time
    has passed, as gdb's stops let it pass: the list has its name, or none."""
    probes_of(tmp / "known")
    wanted = {"spawn": "main", "switch": "main", "park": "numbers", "block_enter": "blocked", "preempt": None}
    commands = []
    for i, probe in enumerate(wanted):
        commands += [f"tbreak -probe-stap weft:{probe}", "continue" + " " * i if i > 0 else "run crowd",
                     f"printf \"{probe} %lu %s %ld\\n\", $_probe_arg0, $_probe_arg1, (long)$_probe_arg2"]
    said = gdb([tmp / "known"], [*commands, "p (int)W_REASON_RECV", f"source {SCRIPT}", "info goroutines"])
    recv = said["p (int)W_REASON_RECV"].split("= ")[1].strip()
    for probe, name in wanted.items():
        answer = next(text for command, text in said.items() if command.startswith(f'printf "{probe} '))
        expect(rf"^{probe} {1 if name == 'main' else '[0-9]+'} {name or '.*'} {recv if probe == 'park' else '-?[0-9]+'}$", answer)
    _, number, name, _ = answer.split()
    expect(rf"^[* ]*{number} +running +M\d+ +P\d +{'' if name == '(null)' else name + ' +'}\w+ *$", said["info goroutines"])


# ---- valgrind --------------------------------------------------------------------------------------------------------

def valgrind(build, tmp, *arguments):
    if not shutil.which("valgrind"):
        raise Skip("there is no valgrind here")
    if not re.search(r"^WEFT_HAVE_VALGRIND:\w+=1$", (build / "CMakeCache.txt").read_text(), re.M):
        raise Skip("Weft was built without valgrind's headers")
    return run(["valgrind", "--error-exitcode=9", "--leak-check=full", tmp / "checked", *arguments])


def memcheck_has_nothing_to_say(build, tmp):
    code, output = valgrind(build, tmp)
    if code != 0:
        raise Failure(f"exit {code}\n{output}")
    expect(r"ERROR SUMMARY: 0 errors", output)
    refuse(r"switching stacks|unhandled|WARNING|Warning", output)


def memcheck_finds_what_a_goroutine_does_wrong(build, tmp):
    code, output = valgrind(build, tmp, "wrong")
    if code != 9:
        raise Failure(f"exit {code}\n{output}")
    expect(r"Invalid read of size 4\n.* at 0x\w+: culprit \(checked\.c:\d+\)", output)
    expect(r"0 bytes after a block of size 16 alloc'd", output)
    refuse(r"switching stacks", output)


# ---- all together ----------------------------------------------------------------------------------------------------

def throw(error):
    raise error


def cases(build, tmp):
    """Name and what to call."""
    for way in (alive, dead):
        try:
            seen = way(tmp)
        except (Failure, Skip) as error:
            yield way.__name__, lambda error=error: throw(error)
            continue
        for case in GDB_CASES:
            yield f"{way.__name__}_{case.__name__}", lambda case=case, seen=seen: case(seen)
    for case in (without_debug_information_it_says_so, gdb_loads_it_for_the_shared_library, gdb_loads_it_for_the_static_library,
                 comm_shows_goroutines_that_have_names, comm_shows_the_thread_for_others, every_probe_is_there, probes_say_who,
                 memcheck_has_nothing_to_say, memcheck_finds_what_a_goroutine_does_wrong):
        yield case.__name__, lambda case=case: case(build, tmp)


def main():
    if len(sys.argv) != 2 or not (pathlib.Path(sys.argv[1]) / "libweft.a").exists():
        print("usage: run.py BUILD (a built folder)", file=sys.stderr)
        return 2
    build = pathlib.Path(sys.argv[1]).resolve()
    counts = {"ok": 0, "FAIL": 0, "skip": 0}
    with tempfile.TemporaryDirectory(prefix="weft-gdb-") as folder:
        tmp = pathlib.Path(folder)
        for name in ("known", "checked"):
            succeed([*COMPILE, "-o", tmp / name, HERE / f"{name}.c", build / "libweft.a", *LIBRARIES])
        for name, case in cases(build, tmp):
            status, reason = "ok", ""
            try:
                case()
            except Failure as error:
                status, reason = "FAIL", f": {error}"
            except Skip as error:
                status, reason = "skip", f": {error}"
            counts[status] += 1
            print(f"{status} {name}{reason}", flush=True)
    print(f"{counts['ok']} passed, {counts['FAIL']} failed" + (f", {counts['skip']} skipped" if counts["skip"] else ""))
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
