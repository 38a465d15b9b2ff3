#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Replays a recorded run-queue trace on a machine that is not at hand, and compares policies of stealing and waking.

    tools/simulate.py tools/traces/tree.trace --machine 4x2x8 --copies 16
    tools/simulate.py trace.json                    of any program: WEFT_TRACE=trace.json made it
    tools/simulate.py --shorten trace.json          what the simulator needs of it, as below
    tools/simulate.py --check                       the tests of the simulator itself

A machine is NODESxCACHESxCORES: caches of a node, cores of a cache, one P each; up to 256 Ps.

An execution trace (docs/inside.md) in short, a line an event (tools/traces/traced.c tells how those here were made):

    NS spawn BY G       BY started G. BY is 0 if it was no goroutine
    NS ready BY G       BY woke G, which waits or is about to
    NS run G            G runs
    NS park G           G waits until somebody wakes it
    NS yield G          G goes to the end of its P's ring
    NS end G

What is replayed is what each goroutine did, not when: how long each stretch of running lasted, and what it started and woke how
long after it began. A goroutine that parks goes on when it was woken as often as it was there; if nobody of the
trace woke it, as long after parking as it was. The queues are those of Weft: a slot that nobody else sees, a ring,
fresh ones newest first; thieves take half. An idle P is woken if there is work to share and nobody is looking for some.

    global    one queue for all, under a lock
    random    as on a machine without topology: victims at random, the P that idled last is woken
    nearest   the nearest victims first, the nearest idle P is woken
    near      likewise, but every eighth pass over the victims is random: what Weft does (src/find.c)

Costs (--costs) are guesses at a large server: waking a thread, a look at a victim and the move of a goroutine's data for each
distance (same P, cache, node, other node), holding the lock of the global queue. All in ns. What a policy costs or saves follows from
them: compare the counts first.
"""
import argparse
import collections
import heapq
import json
import pathlib
import random
import sys

CACHE, NODE, OTHER = 1, 2, 3
DISTANCES = ("same P", "cache", "node", "other node")
COSTS = {"wake": 20_000, "look": [0, 40, 80, 200], "move": [0, 200, 400, 1500], "lock": 60}
POLICIES = ("global", "random", "nearest", "near")
FAR_TURN = 8  # of src/find.c
MOST_PS = 256
FRESH, TURN, HANDOFF = range(3)


# ---- execution traces ------------------------------------------------------------------------------------------------

ENDS = {"wait": "park", "block": "park", "yield": "yield", "preempted": "yield"}  # the others end it


def shorten(text):
    """The lines of a short trace for an execution trace, which may have been cut short."""
    events = json.loads(text if text.rstrip().endswith("]") else text[:text.rindex(",\n")] + "]")
    runs, lines = collections.defaultdict(list), []
    for event in events:
        at, args = round(event["ts"] * 1000), event.get("args", {})
        if event["ph"] == "X" and event["pid"] == 1:
            runs[args["g"]].append((at, at + round(event["dur"] * 1000), ENDS.get(args["end"], "end")))
        elif event["ph"] == "s" and event["name"] == "wake":
            lines.append((at, 1, f"ready {args['by']} {args['g']}", args["g"]))
        elif event["ph"] == "i" and event["name"] == "spawn":
            lines.append((at, 1, f"spawn {args['by']} {args['g']}", None))
    woken = {(g, max((begin for begin, _, _ in runs[g] if begin <= at), default=None))
             for at, _, _, g in lines if g is not None}
    for g, stretches in runs.items():
        lines += told(g, sorted(stretches), woken)
    lines.sort(key=lambda line: line[:2])
    return [f"{at - lines[0][0]} {what}" for at, _, what, _ in lines]


def told(g, stretches, woken):
    """The stretches of one goroutine. One that nobody in the trace woke was woken from outside when it ran again."""
    for number, (begin, end, how) in enumerate(stretches):
        yield begin, 0, f"run {g}", None
        yield end, 2, f"{how} {g}", None
        if how == "park" and (g, begin) not in woken and number + 1 < len(stretches):
            yield stretches[number + 1][0] - 1, 1, f"ready 0 {g}", None


def read_trace(path):
    text = pathlib.Path(path).read_text()
    return Trace(shorten(text) if text.startswith("[") else text.splitlines())


# ---- the trace -------------------------------------------------------------------------------------------------------

class Stretch:
    """From one run of a goroutine to its park, yield or end."""

    def __init__(self):
        self.length = 0
        self.deeds = []  # (after so long, "spawn" or "ready", whom)
        self.end = "end"
        self.outside = None  # after parking, so long until a stranger woke it


class Trace:
    """The stretches of each goroutine, and those that nobody in the trace started."""

    def __init__(self, lines):
        self.stretches = collections.defaultdict(list)
        self.began, self.parked, self.started = {}, {}, set()
        for line in lines:
            at, what, *who = line.split()
            self.take(int(at), what, [int(g) for g in who])
        self.roots = [g for g in self.stretches if g not in self.started]

    def take(self, at, what, who):
        g = who[-1]
        if what == "run":
            self.stretches[g].append(Stretch())
            self.began[g] = at
        elif what in ("spawn", "ready"):
            self.deed(at, what, who[0], g)
        elif what in ("park", "yield", "end"):
            stretch = self.stretches[g][-1]
            stretch.length, stretch.end = at - self.began.pop(g), what
            if what == "park":
                self.parked[g] = at
        else:
            raise ValueError(f"no event is called {what}")

    def deed(self, at, what, by, g):
        if by in self.began:
            self.stretches[by][-1].deeds.append((at - self.began[by], what, g))
            if what == "spawn":
                self.started.add(g)
        elif what == "ready" and g in self.parked:
            self.stretches[g][-1].outside = at - self.parked[g]

    def work(self):
        return sum(s.length for all_of_one in self.stretches.values() for s in all_of_one)

    def count(self):
        return sum(map(len, self.stretches.values()))


# ---- the machine -----------------------------------------------------------------------------------------------------

class Machine:
    def __init__(self, text):
        self.nodes, self.caches, self.cores = (int(n) for n in text.split("x"))
        self.count = self.nodes * self.caches * self.cores
        if not 0 < self.count <= MOST_PS:
            raise ValueError(f"a machine has 1 to {MOST_PS} Ps")
        per_node = self.caches * self.cores
        self.of_cache = [p // self.cores for p in range(self.count)]
        self.of_node = [p // per_node for p in range(self.count)]
        self.rings = [self.rings_of(p) for p in range(self.count)]

    def distance(self, a, b):
        if a == b:
            return 0
        return CACHE if self.of_cache[a] == self.of_cache[b] else NODE if self.of_node[a] == self.of_node[b] else OTHER

    def rings_of(self, p):
        """The others by distance; the other nodes one by one, each P's from the next one on."""
        rings = collections.defaultdict(list)
        for other in range(self.count):
            d = self.distance(p, other)
            if d != 0:
                rings[d, (self.of_node[other] - self.of_node[p]) % self.nodes].append(other)
        return [rings[key] for key in sorted(rings)]


class Task:
    """A goroutine of one copy of the trace."""
    __slots__ = ("stretches", "at", "tokens", "waits", "where", "copy")

    def __init__(self, stretches, copy):
        self.stretches, self.copy = stretches, copy
        self.at = self.tokens = 0
        self.waits = False
        self.where = None  # the P whose caches know it


class P:
    def __init__(self):
        self.slot = self.slot_kind = None
        self.ring, self.fresh = collections.deque(), collections.deque()
        self.idle_since = 0

    def shared(self):
        return len(self.ring) + len(self.fresh)


# ---- the simulation --------------------------------------------------------------------------------------------------

class Simulation:
    """Events are (time, number, function, arguments). A P is idle, on its way (woken), or runs."""

    def __init__(self, trace, machine, policy, copies=1, costs=None, seed=1):
        self.trace, self.machine, self.policy = trace, machine, policy
        self.costs = {**COSTS, **(costs or {})}
        self.random = random.Random(seed)
        self.ps = [P() for _ in range(machine.count)]
        self.idle = list(range(machine.count - 1, -1, -1))  # who idled last is the last
        self.queue = collections.deque()
        self.lock_free_at = self.now = self.searching = self.numbered = 0
        self.events = []
        self.steals, self.moves, self.passes = [0] * 4, [0] * 4, [0] * machine.count
        self.ran = self.work = self.overhead = self.idle_time = 0
        self.tasks = [{g: Task(s, copy) for g, s in trace.stretches.items()} for copy in range(copies)]

    def at(self, time, function, *args):
        self.numbered += 1
        heapq.heappush(self.events, (time, self.numbered, function, args))

    def run(self):
        for copy in self.tasks:
            for g in self.trace.roots:
                self.queue.append(copy[g])
                self.wake(None)
        while self.events:
            self.now, _, function, args = heapq.heappop(self.events)
            function(*args)
        for p in self.idle:
            self.idle_time += self.now - self.ps[p].idle_since
        return self

    # -- queues

    def place(self, p, task, kind):
        """As sched.c: what a P runs next lies in its slot."""
        if self.policy == "global":
            self.queue.append(task)
            return
        me = self.ps[p]
        if me.slot is None:
            if kind == HANDOFF or not me.ring:
                me.slot, me.slot_kind = task, kind
            else:
                self.share(me, task, kind)
        elif kind == HANDOFF or me.slot_kind == FRESH:
            self.share(me, me.slot, me.slot_kind)
            me.slot, me.slot_kind = task, kind
        else:
            self.share(me, task, kind)

    @staticmethod
    def share(me, task, kind):
        (me.fresh if kind == FRESH else me.ring).append(task)

    def pick(self, p):
        me = self.ps[p]
        if me.slot is not None:
            task, me.slot = me.slot, None
            return task
        return me.ring.popleft() if me.ring else me.fresh.pop() if me.fresh else None

    def from_all(self):
        """The time that it takes to get one from the global queue, and the one."""
        if not self.queue:
            return 0, None
        begun = max(self.now, self.lock_free_at)
        self.lock_free_at = begun + self.costs["lock"]
        return self.lock_free_at - self.now, self.queue.popleft()

    def victims(self, p):
        rings = self.machine.rings[p]
        self.passes[p] += 1
        anywhere = self.policy == "random" or (self.policy == "near" and self.passes[p] % FAR_TURN == 0)
        if not anywhere and self.policy != "global":
            for ring in rings:
                yield from self.random.sample(ring, len(ring))
        elif anywhere:
            everybody = [other for ring in rings for other in ring]
            yield from self.random.sample(everybody, len(everybody))

    def steal(self, p):
        """The time that it takes, and one task; half of the victim's others come along."""
        spent = 0
        for victim in self.victims(p):
            d, other = self.machine.distance(p, victim), self.ps[victim]
            spent += self.costs["look"][d]
            source = other.fresh or other.ring
            if not source:
                continue
            batch = [source.popleft() for _ in range((len(source) + 1) // 2)]
            mine = self.ps[p].ring if source is other.ring else self.ps[p].fresh
            mine.extend(batch[1:])
            self.steals[d] += 1
            return spent, batch[0]
        return spent, None

    # -- waking

    def work_to_share(self):
        return bool(self.queue) or (self.policy != "global" and any(p.shared() for p in self.ps))

    def wake(self, near):
        """Somebody looks for work, unless one does already or nobody idles."""
        if self.searching or not self.idle:
            return
        p = self.idle[-1] if near is None or not self.policy.startswith("near") else self.nearest_idle(near)
        self.idle.remove(p)
        self.searching += 1
        self.idle_time += self.now - self.ps[p].idle_since
        self.overhead += self.costs["wake"]
        self.at(self.now + self.costs["wake"], self.search, p, True)

    def nearest_idle(self, near):
        for d in (CACHE, NODE, OTHER):
            for p in reversed(self.idle):
                if self.machine.distance(near, p) <= d:
                    return p
        raise AssertionError("nobody idles")

    def announce(self, p):
        if self.ps[p].shared() or self.queue:
            self.wake(p)

    # -- running

    def search(self, p, searching):
        """Its own queues, the global one, the others; else it idles."""
        spent, task = 0, self.pick(p)
        if task is None:
            spent, task = self.from_all()
        if task is None:
            if not searching:
                self.searching += 1
                searching = True
            spent, task = self.steal(p)
        self.overhead += spent
        if task is not None:
            self.at(self.now + spent, self.start, p, task, searching)
        else:
            self.at(self.now + spent, self.go_idle, p)

    def stop_searching(self, p):
        self.searching -= 1
        if not self.searching and self.work_to_share():
            self.wake(p)

    def go_idle(self, p):
        self.idle.append(p)
        self.ps[p].idle_since = self.now
        self.stop_searching(p)

    def start(self, p, task, searching):
        if searching:
            self.stop_searching(p)
        d = 0 if task.where is None else self.machine.distance(p, task.where)
        self.moves[d] += 1
        task.where = p
        self.overhead += self.costs["move"][d]
        begun = self.now + self.costs["move"][d]
        stretch = task.stretches[task.at]
        for after, what, whom in stretch.deeds:
            self.at(begun + after, self.do, p, what, self.tasks[task.copy].get(whom))
        self.at(begun + stretch.length, self.leave, p, task, stretch)

    def do(self, p, what, task):
        if task is None:  # the trace ended before it ran
            return
        if what == "spawn":
            task.where = p
            self.place(p, task, FRESH)
            self.announce(p)
        elif task.waits:
            task.waits = False
            self.place(p, task, HANDOFF)
            self.announce(p)
        else:
            task.tokens += 1

    def leave(self, p, task, stretch):
        self.ran += 1
        self.work += stretch.length
        task.at += 1
        if task.at < len(task.stretches):
            if stretch.end == "yield":
                self.place(p, task, TURN)
                self.announce(p)
            else:
                self.park(p, task, stretch)
        self.search(p, False)

    def park(self, p, task, stretch):
        if stretch.outside is not None:
            self.at(self.now + stretch.outside, self.come_back, task)
        elif task.tokens > 0:
            task.tokens -= 1
            self.place(p, task, TURN)
        else:
            task.waits = True

    def come_back(self, task):
        self.queue.append(task)
        self.wake(None)

    # -- results

    def row(self):
        total = len(self.ps) * self.now
        far = self.steals[OTHER] / max(1, sum(self.steals))
        return [self.policy, f"{self.now / 1e6:.2f}", f"{100 * self.idle_time / max(1, total):.0f}",
                f"{100 * self.overhead / max(1, total):.0f}", *self.steals[1:], f"{100 * far:.0f}", *self.moves[1:]]


HEADINGS = ("policy", "ms", "idle %", "lost %", "stolen: cache", "node", "other node", "far %", "moved: cache", "node",
            "other node")


def table(rows):
    yield "| " + " | ".join(HEADINGS) + " |"
    yield "|" + "---|" * len(HEADINGS)
    for row in rows:
        yield "| " + " | ".join(map(str, row)) + " |"


# ---- its tests -------------------------------------------------------------------------------------------------------

def conserves_work(trace, simulation, copies):
    everything = simulation.work + simulation.overhead + simulation.idle_time
    return (simulation.ran == trace.count() * copies and simulation.work == trace.work() * copies
            and everything == simulation.machine.count * simulation.now)


def check():
    """Cases as the test executables print them."""
    verdicts = {}
    for path in sorted((pathlib.Path(__file__).parent / "traces").glob("*.trace")):
        trace = Trace(path.read_text().splitlines())
        for shape in ("1x1x1", "2x1x8", "4x2x8"):
            machine = Machine(shape)
            done = {policy: Simulation(trace, machine, policy, copies=4).run() for policy in POLICIES}
            for policy, simulation in done.items():
                verdicts[f"{path.stem}-{shape}-{policy}-conserves-work"] = conserves_work(trace, simulation, 4)
            if machine.nodes > 1:
                shares = [done[p].steals[OTHER] / max(1, sum(done[p].steals)) for p in ("near", "random")]
                verdicts[f"{path.stem}-{shape}-near-steals-nearer"] = shares[0] < shares[1]
    for name, good in verdicts.items():
        print("ok" if good else "FAIL", name)
    failed = list(verdicts.values()).count(False)
    print(f"{len(verdicts) - failed} passed, {failed} failed")
    return 1 if failed or not verdicts else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace", nargs="?")
    parser.add_argument("--machine", default="2x1x8", help="NODESxCACHESxCORES (2x1x8)")
    parser.add_argument("--copies", type=int, default=1, help="so many of the trace at once (1)")
    parser.add_argument("--policy", choices=POLICIES, help="one of them; all otherwise")
    parser.add_argument("--costs", type=json.loads, default={}, help=f"any of {json.dumps(COSTS)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shorten", action="store_true", help="print the short form of an execution trace")
    parser.add_argument("--check", action="store_true", help="test the simulator")
    options = parser.parse_args()
    if options.check:
        return check()
    if options.trace is None:
        parser.error("which trace?")
    try:
        machine = Machine(options.machine)
    except ValueError as error:
        parser.error(f"--machine {options.machine}: {error}")
    if options.shorten:
        print("\n".join(shorten(pathlib.Path(options.trace).read_text())))
        return 0
    trace = read_trace(options.trace)
    policies = [options.policy] if options.policy else POLICIES
    print("\n".join(table(Simulation(trace, machine, policy, options.copies, options.costs, options.seed).run().row()
                          for policy in policies)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
