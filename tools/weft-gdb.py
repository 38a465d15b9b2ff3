# SPDX-License-Identifier: MIT
"""Goroutines for gdb, in live processes and core files:  (gdb) source weft-gdb.py

    info goroutines [FILTER...]             what each is, does and waits for
    info goroutines -group [FILTER...]      how many there are of a kind
    goroutine N COMMAND                     any command of gdb, such as bt, as if goroutine N were a thread
    goroutine all [FILTER...] COMMAND       for each of them

    FILTER: -state running|runnable|waiting|blocked|preempted, -name TEXT and -entry TEXT (a part of it), -limit N or all

How. All Gs lie in chunks (src/g.c), which are read whole, for there may be a million. One that is on a thread is shown by that
thread: it is the one whose stack pointer is on the goroutine's stack, whatever the states say, for the process may have been stopped in
the middle of a switch. One that is on no thread is one pointer to a frame of saved registers (src/switch_*.S). Nothing is written to the
process, which a core file would not allow: an unwinder claims the innermost frame of the present thread while the command runs,
and says that its caller's registers are the saved ones. gdb then sees the goroutine's frames from there on. Hence they do not
begin with number 0, which is the thread's, and is left out of backtraces.

It needs libweft's debug information.
"""
import re
import struct
import time

import gdb
import gdb.unwinder

STATES = ("W_IDLE", "W_RUNNABLE", "W_RUNNING", "W_WAITING", "W_BLOCKED", "W_PREEMPTED", "W_DEAD")
SHOWN_STATES = ("runnable", "running", "waiting", "blocked", "preempted")
LEVELS = {-1: "low", 0: "normal", 1: "high"}
DEFAULT_LIMIT = 100
NO_SYMBOLS = ("libweft's debug information is not here. Link a libweft that was built with -g and not stripped, or install its debug "
              "symbols; a core file needs the program's own file as well.")

# Where a context that is not running has its registers, by their offset from the saved stack pointer; and where that was.
LAYOUTS = {
    "x86-64": dict(registers={"r15": 8, "r14": 16, "r13": 24, "r12": 32, "rbx": 40, "rbp": 48, "rip": 56},
                   pc="rip", sp="rsp", size=64 + 128),
    "aarch64": dict(registers={"x29": 0, "pc": 8, **{f"x{19 + i}": 16 + 8 * i for i in range(10)}},
                    pc="pc", sp="sp", size=176),
}


# ---- what the runtime's memory looks like ----------------------------------------------------------------------------

def layout():
    name = gdb.selected_frame().architecture().name()
    if name.startswith("i386:x86-64"):
        return LAYOUTS["x86-64"]
    if name.startswith("aarch64"):
        return LAYOUTS["aarch64"]
    raise gdb.GdbError(f"Weft's frames on {name} are not known here")


def file_scope(function, name):
    """A static variable or constant of the file that defines a function of the runtime."""
    symbol = gdb.lookup_global_symbol(function)
    if symbol is None:
        raise gdb.GdbError(NO_SYMBOLS)
    for candidate in symbol.symtab.static_block():
        if candidate.name == name:
            return candidate.value()
    raise gdb.GdbError(f"{name} is not in {symbol.symtab.filename}: this libweft and this extension are of different versions")


def constant(name):
    try:
        return int(gdb.parse_and_eval(name))
    except gdb.error:
        raise gdb.GdbError(NO_SYMBOLS) from None


def memory(address, size):
    return gdb.selected_inferior().read_memory(address, size).tobytes()


def word(address):
    return struct.unpack("<Q", memory(address, 8))[0]


def function_name(address):
    block = gdb.block_for_pc(address)
    while block is not None and block.function is None:
        block = block.superblock
    if block is not None:
        return block.function.name
    shown = gdb.execute(f"info symbol {address:#x}", to_string=True)
    return shown.split(" ")[0] if " in section " in shown else f"{address:#x}"


class Reader:
    """Turns the bytes of a struct into the fields that are asked for, by what the debug information says of it."""

    CODES = {(1, False): "B", (1, True): "b", (2, False): "H", (2, True): "h", (4, False): "I", (4, True): "i",
             (8, False): "Q", (8, True): "q"}

    def __init__(self, type_name, fields):
        try:
            self.type = gdb.lookup_type(type_name)
        except gdb.error:
            raise gdb.GdbError(NO_SYMBOLS) from None
        known = {field.name: field for field in self.type.fields()}
        places = sorted((known[name].bitpos // 8, name) for name in fields)
        text, at = "<", 0
        for offset, name in places:
            kind = known[name].type.strip_typedefs()
            signed = kind.code == gdb.TYPE_CODE_INT and int(gdb.Value(-1).cast(kind.unqualified())) < 0
            text += f"{offset - at}x{self.CODES[kind.sizeof, signed]}"
            at = offset + kind.sizeof
        self.names = [name for _, name in places]
        self.format = struct.Struct(f"{text}{self.type.sizeof - at}x")

    def __call__(self, data, offset=0):
        return dict(zip(self.names, self.format.unpack_from(data, offset)))


class Runtime:
    """What is read once for a command."""

    G_FIELDS = ("sp", "state", "flags", "fn", "arg", "stack_lo", "id", "name", "waits_on", "since", "reason", "stack_class",
                "priority")
    M_FIELDS = ("g", "p", "blocked_p", "all_next", "id", "tid", "alt_stack")

    def __init__(self):
        symbol = gdb.lookup_global_symbol("w_sched")
        self.read_g = Reader("struct w_g", self.G_FIELDS)
        self.read_m = Reader("struct w_m", self.M_FIELDS)
        if symbol is None:
            raise gdb.GdbError(NO_SYMBOLS)
        self.sched = symbol.value()
        self.up = self.is_up()
        self.states = {constant(name): name[2:].lower() for name in STATES}
        self.stack_shift = int(file_scope("w_stack_size", "MIN_SHIFT"))
        self.alt_stack_size = constant("W_ALT_STACK")
        self.member_flag = constant("W_G_MEMBER")
        self.first_descriptor = constant("W_REASON_READ")
        self.sleep = constant("W_REASON_SLEEP")
        names = file_scope_in_function("w_reason_name", "names")
        self.reasons = [names[i].string() for i in range(constant("W_REASON_COUNT"))]
        self.ms = self.read_ms() if self.up else []
        self.by_g = {m["g"]: m for m in self.ms if m["g"]}
        self.now, self.exact = self.clock()
        self.symbols = {}

    def is_up(self):
        try:
            return int(self.sched["run"]) % 2 == 1
        except gdb.MemoryError:
            return False  # the program has not been started

    def clock(self):
        """A core file tells only when the monitor last looked."""
        coarse = int(self.sched["coarse_now"]) if self.up else 0
        connection = getattr(gdb.selected_inferior(), "connection", None)
        if connection is not None and connection.type == "native":
            return max(coarse, time.clock_gettime_ns(time.CLOCK_MONOTONIC)), True
        return coarse, False

    def read_ms(self):
        ms, at = [], int(self.sched["all_ms"])
        while at:
            m = {"at": at, **self.read_m(memory(at, self.read_m.type.sizeof))}
            ms.append(m)
            at = m["all_next"]
        return ms

    def gs(self):
        """Those alive, as dictionaries."""
        if not self.up:
            return
        pool = file_scope("w_gs_each", "pool")
        live = {number for number, name in self.states.items() if name not in ("idle", "dead")}
        state_at = next(f.bitpos // 8 for f in self.read_g.type.fields() if f.name == "state")
        for node in range(int(self.sched["nodes"])):
            part = pool["part"][node]
            yield from self.gs_of(part["chunks"], int(part["used"]), live, state_at)

    def gs_of(self, chunk, used, live, state_at):
        size = self.read_g.type.sizeof
        while int(chunk):
            array = chunk.dereference()["g"]
            first = int(array.address)
            data = memory(first, used * size)
            for offset in range(0, used * size, size):
                if data[offset + state_at] in live:
                    yield {"at": first + offset, **self.read_g(data, offset)}
            chunk = chunk.dereference()["next"]
            used = array.type.range()[1] + 1

    # ---- one goroutine

    def state(self, g):
        return self.states.get(g["state"], "?")

    def name(self, g):
        if not g["name"]:
            return ""
        try:
            return gdb.Value(g["name"]).cast(gdb.lookup_type("char").pointer()).string(errors="replace")
        except gdb.MemoryError:
            return "?"  # a core file need not have all memory

    def entry(self, g):
        """Of a scope's member, what it was started with."""
        fn = g["fn"]
        if g["flags"] & self.member_flag:
            member = gdb.Value(g["arg"]).cast(gdb.lookup_type("struct w_member").pointer())
            fn = int(member["fn"])
        if fn not in self.symbols:
            self.symbols[fn] = function_name(fn)
        return self.symbols[fn]

    def reason(self, g):
        return self.reasons[g["reason"]] if self.state(g) == "waiting" else ""

    def waits(self, g):
        """The reason, the object and how long."""
        state = self.state(g)
        if state not in ("waiting", "blocked"):
            return ""
        text = self.reason(g)
        if g["waits_on"] and state == "waiting" and g["reason"] != self.sleep:  # its object is a timer of the runtime's
            text += f" {g['waits_on']}" if g["reason"] >= self.first_descriptor else f" {g['waits_on']:#x}"
        ms = max(0, self.now - g["since"]) // 1_000_000
        return f"{text}{', ' if text else ''}{'' if self.exact else 'at least '}{ms} ms"

    def where(self, g):
        m = self.by_g.get(g["at"])
        if m is None:
            return ""
        return f"M{m['id']}{self.p_of(m)}"

    def p_of(self, m):
        """The P that an M has, or will have after a blocking call unless somebody takes it meanwhile."""
        if not (m["p"] or m["blocked_p"]):
            return ""
        p = gdb.Value(m["p"] or m["blocked_p"]).cast(gdb.lookup_type("struct w_p").pointer())
        kept = m["p"] or int(p["blocked_by"]) == m["at"]
        return f" P{int(p['id'])}" if kept else ""

    def stack(self, g):
        return range(g["stack_lo"], g["stack_lo"] + (1 << (g["stack_class"] + self.stack_shift)))


def file_scope_in_function(function, name):
    """A static variable inside a function."""
    symbol = gdb.lookup_global_symbol(function)
    if symbol is None:
        raise gdb.GdbError(NO_SYMBOLS)
    block = gdb.block_for_pc(int(symbol.value().address))
    for candidate in block:
        if candidate.name == name:
            return candidate.value()
    raise gdb.GdbError(f"{name} is not in {function}: this libweft and this extension are of different versions")


# ---- where a goroutine is --------------------------------------------------------------------------------------------

def stack_pointers():
    """Of each thread."""
    chosen = gdb.selected_thread()
    found = []
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        found.append((thread, int(gdb.newest_frame().read_register("sp")) & (1 << 64) - 1))
    chosen.switch()
    return found


def thread_of(runtime, g, pointers):
    """The thread that it is on, or None: it is where its saved registers say."""
    for thread, sp in pointers:
        if g["stack_lo"] and sp in runtime.stack(g):
            return thread
    m = runtime.by_g.get(g["at"])
    for thread, sp in pointers:
        if m is not None and sp - m["alt_stack"] in range(runtime.alt_stack_size):
            return thread  # in a handler of a signal
    return None


class FrameId:
    def __init__(self, sp, pc):
        self.sp = sp
        self.pc = pc


class Detour(gdb.unwinder.Unwinder):
    """While it is on, the innermost frame of the present thread was called by the goroutine."""

    def __init__(self):
        super().__init__("weft")
        self.innermost = self.saved = None

    def __call__(self, pending):
        if self.saved is None:
            return None
        shape = layout_of(pending)
        here = (int(pending.read_register(shape["pc"])), int(pending.read_register(shape["sp"])))
        if here != self.innermost:
            return None
        sp_type = pending.read_register(shape["sp"]).type
        info = pending.create_unwind_info(FrameId(gdb.Value(self.saved).cast(sp_type),
                                                  pending.read_register(shape["pc"])))
        for name, offset in shape["registers"].items():
            info.add_saved_register(name, gdb.Value(word(self.saved + offset)).cast(pending.read_register(name).type))
        info.add_saved_register(shape["sp"], gdb.Value(self.saved + shape["size"]).cast(sp_type))
        return info

    def begin(self, g, shape):
        pc = word(g["sp"] + shape["registers"][shape["pc"]])
        if pc == 0:
            raise gdb.GdbError(f"The stack of goroutine {g['id']} is not in this core file. gdb's gcore leaves out what follows a "
                               "guard page; the kernel's core files have it.")
        frame = gdb.newest_frame()
        self.innermost = (int(frame.read_register(shape["pc"])), int(frame.read_register(shape["sp"])))
        self.saved = g["sp"]
        gdb.invalidate_cached_frames()
        frame, level = gdb.newest_frame(), 0
        while frame is not None and frame.pc() != pc:
            frame, level = frame.older(), level + 1
        if frame is None:
            raise gdb.GdbError(f"goroutine {g['id']}: gdb does not unwind its frame at {g['sp']:#x}")
        frame.select()
        return level

    def end(self):
        self.innermost = self.saved = None
        gdb.invalidate_cached_frames()


def layout_of(pending):
    return LAYOUTS["aarch64" if pending.architecture().name().startswith("aarch64") else "x86-64"]


detour = Detour()
gdb.unwinder.register_unwinder(None, detour, replace=True)

BACKTRACE = re.compile(r"^(?:bt|backtrace|where)\b")


def run_in_detour(g, command):
    try:
        level = detour.begin(g, layout())
        if not BACKTRACE.match(command):
            gdb.execute(command)
            return
        counted = re.sub(r"(?<=\s)(\d+)$", lambda n: str(int(n[1]) + level), command)
        shown = gdb.execute(counted, to_string=True)
        gdb.write(shown[max(0, shown.find(f"#{level} ")):])
    finally:
        detour.end()


def run_on_thread(thread, command):
    thread.switch()
    gdb.execute(command)


def run_in(runtime, g, command, pointers):
    """A command in the context of a goroutine; what was selected before is selected again."""
    thread = thread_of(runtime, g, pointers)
    if thread is None and not g["sp"]:
        gdb.write(f"It has not run yet, and has no stack. It will begin in {runtime.entry(g)}.\n")
        return
    chosen, level = gdb.selected_thread(), gdb.selected_frame().level()
    try:
        if thread is not None:
            run_on_thread(thread, command)
        else:
            run_in_detour(g, command)
    finally:
        chosen.switch()
        frame = gdb.newest_frame()
        for _ in range(level):
            frame = frame.older() or frame
        frame.select()


# ---- commands --------------------------------------------------------------------------------------------------------

class Filter:
    """The options that commands have in common; `rest` is what follows them."""

    def __init__(self, text):
        self.state = self.name = self.entry = None
        self.group, self.limit, self.rest = False, DEFAULT_LIMIT, text.strip()
        while self.rest.startswith("-"):
            option, _, self.rest = self.rest.partition(" ")
            if option == "-group":
                self.group = True
            else:
                value, _, self.rest = self.rest.strip().partition(" ")
                self.take(option, value)
            self.rest = self.rest.strip()

    def take(self, option, value):
        if option == "-limit" and re.fullmatch(r"\d+|all", value):
            self.limit = None if value == "all" else int(value)
        elif option == "-state" and value in SHOWN_STATES:
            self.state = value
        elif option in ("-name", "-entry") and value:
            setattr(self, option[1:], value)
        else:
            raise gdb.GdbError(f"'{option} {value}' makes no sense here. There are -group, -limit N|all, -name TEXT, -entry TEXT "
                               f"and -state {'|'.join(SHOWN_STATES)}.")

    def accepts(self, runtime, g):
        return ((self.state is None or self.state == runtime.state(g))
                and (self.name is None or self.name in runtime.name(g))
                and (self.entry is None or self.entry in runtime.entry(g)))

    def chosen(self, runtime):
        """In the order of their numbers; all of them, whatever the limit."""
        return sorted((g for g in runtime.gs() if self.accepts(runtime, g)), key=lambda g: g["id"])

    def limited(self, gs):
        return gs if self.limit is None else gs[:self.limit]

    def say_rest(self, gs):
        left = len(gs) - len(self.limited(gs))
        if left > 0:
            gdb.write(f"... and {left} more: -limit N or all shows them, `info goroutines -group` counts them\n")


def the_runtime():
    if not gdb.selected_inferior().threads():
        raise gdb.GdbError("There is no process here: start the program, attach to one, or give a core file.")
    runtime = Runtime()
    if not runtime.up:
        raise gdb.GdbError("No goroutines: weft_run has not begun, or has ended.")
    return runtime


def write_table(rows):
    """The columns as wide as they have to be; those that nobody uses are left out."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    used = [any(row[i] for row in rows[1:]) for i in range(len(widths))]
    for row in rows:
        cells = [cell.rjust(width) if i == 0 else cell.ljust(width)
                 for i, (cell, width) in enumerate(zip(row, widths)) if used[i]]
        gdb.write("  ".join(cells).rstrip() + "\n")


class InfoGoroutines(gdb.Command):
    """Goroutines: number, state, what they wait for and how long, name, entry, priority, M and P.

    info goroutines [-state STATE] [-name TEXT] [-entry TEXT] [-limit N|all]
    info goroutines -group [...]    how many there are of each state, reason and entry

The goroutine of the present thread is marked with a star."""

    def __init__(self):
        super().__init__("info goroutines", gdb.COMMAND_STATUS)

    def invoke(self, argument, _from_tty):
        wanted = Filter(argument)
        if wanted.rest:
            raise gdb.GdbError(f"'{wanted.rest}' makes no sense here: help info goroutines")
        runtime = the_runtime()
        gs = wanted.chosen(runtime)
        if not gs:
            gdb.write("No goroutines of that kind.\n")
        elif wanted.group:
            self.write_groups(runtime, wanted, gs)
        else:
            self.write_each(runtime, wanted, gs)

    def write_each(self, runtime, wanted, gs):
        tid = gdb.selected_thread().ptid[1]
        mine = next((m["g"] for m in runtime.ms if m["tid"] == tid), 0)
        rows = [("id", "state", "where", "priority", "name", "entry", "waits for")]
        for g in wanted.limited(gs):
            priority = LEVELS.get(g["priority"], str(g["priority"]))
            rows.append((("* " if g["at"] == mine else "") + str(g["id"]), runtime.state(g), runtime.where(g),
                         "" if priority == "normal" else priority, runtime.name(g), runtime.entry(g), runtime.waits(g)))
        write_table(rows)
        wanted.say_rest(gs)

    def write_groups(self, runtime, wanted, gs):
        counts = {}
        for g in gs:
            kind = (runtime.state(g), runtime.reason(g), runtime.entry(g))
            counts[kind] = counts.get(kind, 0) + 1
        kinds = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        rows = [("number", "state", "entry", "waits for")]
        rows += [(str(n), state, entry, reason) for (state, reason, entry), n in wanted.limited(kinds)]
        write_table(rows)
        wanted.say_rest(kinds)
        gdb.write(f"{len(gs)} in all\n")


class Goroutine(gdb.Command):
    """Any command in the context of a goroutine:

    goroutine N bt                              its frames; so `goroutine N frame 3`, `goroutine N info locals`
    goroutine all [-state STATE] [-name TEXT] [-entry TEXT] [-limit N|all] bt

The frames of one that is on no thread do not begin with number 0. Registers that were not saved are <not saved>. It is meant for
commands that look at something, not for those that let the program run, such as finish."""

    def __init__(self):
        super().__init__("goroutine", gdb.COMMAND_STACK)

    def invoke(self, argument, _from_tty):
        which, _, rest = argument.strip().partition(" ")
        if which != "all" and not re.fullmatch(r"\d+", which) or not rest.strip():
            raise gdb.GdbError("goroutine N COMMAND, or goroutine all COMMAND: help goroutine")
        if which == "all":
            self.for_all(Filter(rest))
            return
        runtime = the_runtime()
        g = next((g for g in runtime.gs() if g["id"] == int(which)), None)
        if g is None:
            raise gdb.GdbError(f"There is no goroutine {which}: it has ended, or never was. See info goroutines.")
        run_in(runtime, g, rest.strip(), stack_pointers())

    def for_all(self, wanted):
        if not wanted.rest:
            raise gdb.GdbError("goroutine all COMMAND: which command?")
        runtime, pointers = the_runtime(), stack_pointers()
        gs = wanted.chosen(runtime)
        for g in wanted.limited(gs):
            name = f" \"{runtime.name(g)}\"" if g["name"] else ""
            waits = runtime.waits(g)
            gdb.write(f"goroutine {g['id']}{name} [{runtime.state(g)}{': ' if waits else ''}{waits}]\n")
            try:
                run_in(runtime, g, wanted.rest, pointers)
            except (gdb.error, gdb.GdbError) as error:
                gdb.write(f"{error}\n")
            gdb.write("\n")
        wanted.say_rest(gs)


InfoGoroutines()
Goroutine()
