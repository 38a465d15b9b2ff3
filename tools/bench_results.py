# SPDX-License-Identifier: MIT
"""What the benchmarks measured: the samples by program and value, what they come to, and the targets that they are held to."""
import json
import statistics

LABELS = {"weft": "Weft", "go": "Go", "tokio": "tokio", "boost": "Boost.Fiber", "pthread": "pthread", "bare": "bare"}
FAILURES_BEFORE_GIVING_UP = 2  # of one program at one workload


def number(value):
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def portion(ratio):
    return f"1/{ratio:.1f} of" if ratio >= 1 else f"{1 / ratio:.2f} times"


class Results:
    """The samples of every value by program, in the order of their first appearance."""

    def __init__(self, labels, rounds=0, facts=None, partial=()):
        self.labels, self.rounds, self.facts = labels, rounds, facts or {}
        self.partial = list(partial)  # what made it less than a full run: QUICK, ONLY, AGAINST
        self.units = {}
        self.samples = {}
        self.seconds = {}  # of the last run, by "label workload"
        self.failures = []  # (label, workload, reason)
        self.impossible = {}  # by (label, workload): the reason

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
        """How many times better than the peer's best Weft's best is; None where there is no such number."""
        weft, other = self.best("weft", name), self.best(peer, name)
        if weft is None or other is None or weft <= 0 or other <= 0:
            return None
        return weft / other if self.higher_is_better(name) else other / weft

    def has_given_up(self, label, workload):
        failed = [f for f in self.failures if f[:2] == (label, workload)]
        return len(failed) >= FAILURES_BEFORE_GIVING_UP or (label, workload) in self.impossible

    def measured(self, name):
        return [label for label in self.labels if (label, name) in self.samples]

    # ---- results.json ----

    def write(self, path):
        def entry(label, name):
            return {"best": self.best(label, name), "median": self.median(label, name),
                    "samples": self.samples[label, name]}

        values = {name: {"unit": unit, "by": {label: entry(label, name) for label in self.measured(name)}}
                  for name, unit in self.units.items()}
        content = {"machine": self.facts, "runs": self.rounds, "partial": self.partial, "programs": self.labels,
                   "values": values,
                   "targets": {target.key: {"target": target.sentence, "result": verdict(target.judge(self)[0])}
                               for target in TARGETS},
                   "failures": [list(failure) for failure in self.failures],
                   "impossible": [[*who, reason] for who, reason in self.impossible.items()], "seconds": self.seconds}
        path.write_text(json.dumps(content, indent=1) + "\n")

    @staticmethod
    def read(path):
        content = json.loads(path.read_text())
        results = Results(content["programs"], content["runs"], content["machine"], content["partial"])
        for name, value in content["values"].items():
            results.units[name] = value["unit"]
            for label, entry in value["by"].items():
                results.samples[label, name] = entry["samples"]
        results.failures = [tuple(failure) for failure in content["failures"]]
        results.impossible = {(label, workload): reason for label, workload, reason in content.get("impossible", [])}
        results.seconds = content["seconds"]
        return results


# ---- targets ---------------------------------------------------------------------------------------------------------

def verdict(met):
    return "not measured" if met is None else "met" if met else "missed"


class Target:
    """A promise about one value of Weft: `factor` times better than a peer's, or at most `limit`."""

    def __init__(self, name, sentence, peer=None, factor=None, limit=None):
        self.name, self.sentence, self.peer, self.factor, self.limit = name, sentence, peer, factor, limit

    @property
    def key(self):
        return f"{self.name} against {LABELS[self.peer]}" if self.peer else self.name

    @property
    def wanted(self):
        if self.limit is not None:
            return f"at most {number(self.limit)}"
        return f"a ratio of {number(self.factor)} to {LABELS[self.peer]}"

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
    Target("mpmc_2p", "An item from 8 producers to 8 consumers takes no longer than in tokio.", "tokio", 1),
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
    Target("echo_2p", "Echoes are 1.4 times as many as in Go.", "go", 1.4),
    Target("echo_2p", "Echoes are 1.15 times as many as in tokio.", "tokio", 1.15),
    Target("echo_2p.cpu_per_rt", "An echo takes less processor time than in Go.", "go", 1),
    Target("echo_2p.cpu_per_rt", "An echo takes less processor time than in tokio.", "tokio", 1),
    Target("http_raw", "HTTP requests are 1.5 times as many as in Go.", "go", 1.5),
    Target("http_raw", "HTTP requests are 1.1 times as many as in tokio.", "tokio", 1.1),
    Target("http_raw.p99", "The slowest hundredth of HTTP requests is no slower than in Go.", "go", 1),
    Target("http_raw.p99", "The slowest hundredth of HTTP requests is no slower than in tokio.", "tokio", 1),
    Target("blocking.total", "64 goroutines that block take at most 1/3.5 of Go's time.", "go", 3.5),
    Target("blocking.threads", "64 goroutines that block need no more threads than in tokio.", "tokio", 1),
    Target("files_hot", "A cached read takes at most 1.3 times that of a plain pread.", "pthread", 1 / 1.3),
    Target("files_direct", "A read from the device takes at most 1.3 times that of a bare io_uring.", "bare", 1 / 1.3),
    Target("mixed.extra_p99", "Heavy requests make the slowest hundredth of the light ones at most 5 ms later.", limit=5000),
    Target("preempt.p50", "Beside hogs a sleeper is late by at most 1 ms in the median.", limit=1000),
    Target("preempt.p99", "Beside hogs a sleeper is late by at most 10 ms in the slowest hundredth.", limit=10000),
    Target("preempt_high.p50", "With high priority it is late by at most 50 us in the median.", limit=50),
    Target("preempt_high.p99", "With high priority it is late by at most 100 us in the slowest hundredth.", limit=100),
    Target("ready_high.p99", "Who is woken with high priority runs within 100 us in the slowest hundredth.", limit=100),
    Target("preempt_own.p50", "One preemption takes its thread less than 8 us, from when the signal is let in.", limit=8),
    Target("preempt_cost.p50", "One preemption takes less than 8 us, the signal's way from another CPU included.", limit=8),
    Target("quantum_cost.percent", "A quantum of 1 ms costs a program that computes less than 1 %.", limit=1),
]
