#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The live picture in a real browser, and weft top: tests/web/run.py BUILD [NAME...]

Programs are BUILD/tests/lively (tests/web/lively.c says what runs in it) on addresses of the loopback. The browser is chromium, headless.
"""
import json
import os
import pathlib
import pty
import re
import select
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

import browser as browsers

BUILD = pathlib.Path(sys.argv[1])
PATIENCE = 20
CASES = []


def case(fn):
    CASES.append(fn)
    return fn


def check(holds, *what):
    if not holds:
        raise AssertionError(" ".join(map(str, what)))


class Program:
    """lively, with its address."""

    loiterer = None  # a connection that only sits there

    def __init__(self, hogs=0, seconds=1800, port=0, **env):
        self.process = subprocess.Popen([BUILD / "tests" / "lively", str(hogs), str(seconds)], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True,
                                        env={**os.environ, "LIVELY_ADDRESS": f"127.0.0.1:{port}", "WEFT_PROCS": "2", **env})
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}/"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        if self.loiterer is not None:
            self.loiterer.close()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as answer:
            return answer.read().decode()

    def stats(self):
        return json.loads(self.get("api/stats"))


def opened(browser, program, **how):
    page = browser.open(program.url, **how)
    page.wait_for("document.querySelector('#status').dataset.state === 'live' && document.querySelector('[data-stat=alive]').dataset.value > 0",
                  PATIENCE)
    return page


def rows(page):
    """The table of goroutines: name to (count, state)."""
    return {name: (int(count), state) for count, state, name in page.evaluate(
        "[...document.querySelectorAll('#groups tr.row')].map(r => [r.cells[0].textContent, r.querySelector('.chip').textContent,"
        " r.querySelector('button').textContent])")}


# ---- the page --------------------------------------------------------------------------------------------------------

@case
def it_loads_without_complaints_and_asks_nobody_else(browser, program, page):
    check(page.evaluate("document.title") == "lively · weft", page.evaluate("document.title"))
    check(page.evaluate("document.querySelector('#process').textContent").startswith(f"process {program.process.pid} "))
    strangers = [url for url in page.requests if not url.startswith((program.url, "data:", "about:"))]
    check(not strangers, strangers)
    check(not page.complaints, page.complaints)


@case
def it_moves(browser, program, page):
    script = ("[document.querySelector('[data-stat=switches]').dataset.value, document.querySelector('#scene').toDataURL(),"
              " document.querySelector('.plot canvas').toDataURL(), document.querySelector('#process').textContent]")
    before = page.evaluate(script)
    for i, what in enumerate(("the rate", "the drawing", "a plot", "the time")):
        page.wait_for(f"{script}[{i}] !== {json.dumps(before[i])}", PATIENCE)
        check(True, what)
    drawn = page.evaluate("(() => { const c = document.querySelector('#scene'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
                          " let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; })()")
    check(drawn > 5000, "the drawing has", drawn, "points")


@case
def its_numbers_are_those_of_the_program(browser, program, page):
    page.wait_for("document.querySelectorAll('#groups tr.row').length > 0", PATIENCE)
    page.evaluate("document.querySelector('#follow').checked && document.querySelector('#follow').click()")
    found = {}
    for _ in range(40):
        page.evaluate("document.querySelector('#refresh').click()")
        time.sleep(0.2)
        found = rows(page)
        if found.get("sleeper") == (40, "waiting"):
            break
    check(found.get("sleeper") == (40, "waiting"), found)
    check(found.get("blocker", (0,))[0] == 1 and found.get("main", (0,))[0] == 1, found)
    check("weft http" not in str(found), found)
    # The same figures, asked for by the page and by us, differ by what happened in between: those that do not move are equal.
    theirs, ours = page.evaluate("fetch('api/stats').then(r => r.json())"), program.stats()
    check(theirs["totals"]["procs"] == ours["totals"]["procs"] == 2, theirs["totals"], ours["totals"])
    check(theirs["totals"]["switches"] <= ours["totals"]["switches"])
    for figures in (theirs["totals"], ours["totals"]):
        check(figures["spawned"] == figures["ended"] + figures["alive"], figures)
        check(figures["alive"] >= 54, figures)  # 40 + 3 + 8 + 1 + 1 + main
    before = program.stats()["totals"]
    seen = page.wait_for("(() => { const e = document.querySelector('[data-plot=\"goroutines alive\"] output'); return e && Number(e.textContent); })()")
    after = program.stats()["totals"]
    check(54 <= seen <= max(before["alive"], after["alive"], 54) + 200, seen, before["alive"], after["alive"])
    page.click("details summary")
    check(page.wait_for("document.querySelectorAll('#procs tbody tr').length") == 2)
    check(page.evaluate("document.querySelectorAll('#threads tbody tr').length") >= 2)


@case
def numbers_that_stand_still_are_shown_as_they_are(browser, program, page):
    page.evaluate("document.querySelector('#rate').value = '0'; document.querySelector('#rate').dispatchEvent(new Event('change'))")
    script = "Object.fromEntries([...document.querySelectorAll('#tiles dd')].map(d => [d.dataset.stat, d.dataset.value]))"
    shown, deadline = None, time.monotonic() + PATIENCE
    while shown != (shown := page.evaluate(script)):  # a look may be under way
        check(time.monotonic() < deadline, "it does not stand still", shown)
        time.sleep(0.7)
    check(int(shown["threads"]) >= 2 and float(shown["cpu"]) >= 0 and int(shown["busy"]) <= 2, shown)
    page.evaluate("document.querySelector('#rate').value = '250'; document.querySelector('#rate').dispatchEvent(new Event('change'))")


@case
def the_table_is_searched_and_opens_to_backtraces(browser, program, page):
    page.evaluate("document.querySelector('#search').focus()")
    page.type("sleeper waiting")
    page.wait_for("document.querySelectorAll('#groups tr.row').length === 1")
    check(page.evaluate("document.querySelector('#found').textContent").startswith("40 of "))
    page.click("#groups tr.row button")
    page.wait_for("document.querySelectorAll('#groups tr.detail').length === 1")
    check("weft_sleep" in page.evaluate("document.querySelector('.detail').textContent"))
    check(page.evaluate("document.querySelector('#groups tr.row button').getAttribute('aria-expanded')") == "true")
    page.evaluate("document.querySelector('#groups tr.row button').focus()")
    page.press("Enter", 13)  # the same with the keyboard
    page.wait_for("document.querySelectorAll('#groups tr.detail').length === 0")
    page.evaluate("document.querySelector('#search').value = 'blocker'; document.querySelector('#search').dispatchEvent(new Event('input'))")
    page.wait_for("document.querySelectorAll('#groups tr.row').length === 1")
    page.click("#groups tr.row button")
    page.wait_for("/block .*lively\\.c:\\d+/.test(document.querySelector('.detail')?.textContent)")
    page.evaluate("document.querySelector('#search').value = 'no such thing'; document.querySelector('#search').dispatchEvent(new Event('input'))")
    page.wait_for("!document.querySelector('#empty').hidden")
    page.evaluate("document.querySelector('#search').value = ''; document.querySelector('#search').dispatchEvent(new Event('input'))")
    page.click("#states [data-filter=waiting]")
    page.wait_for("![...document.querySelectorAll('#groups .chip')].some(c => c.textContent === 'waiting')")
    page.click("#states [data-filter=waiting]")


@case
def a_trace_is_recorded_and_downloaded(browser, program, page):
    with tempfile.TemporaryDirectory(prefix="weft-web-") as folder:
        page.download_to(folder)
        page.evaluate("document.querySelector('#trace-form').elements.seconds.value = 0.3")
        page.click("#trace-form button")
        deadline = time.monotonic() + PATIENCE
        files = []
        while not files and time.monotonic() < deadline:
            time.sleep(0.1)
            files = [f for f in pathlib.Path(folder).iterdir() if f.suffix == ".json"]
        check(files and re.fullmatch(rf"lively-{program.process.pid}-\d{{6}}\.json", files[0].name), files)
        page.wait_for("document.querySelector('#trace-form a') !== null")
        events = json.loads(files[0].read_text())
        check(isinstance(events, list) and len(events) > 20 and any(e.get("ph") == "X" for e in events), str(events)[:500])


@case
def a_profile_becomes_a_flame_graph(browser, program, page):
    page.evaluate("document.querySelector('#profile-form').elements.seconds.value = 1")
    page.click("#profile-form button")
    page.wait_for("document.querySelectorAll('#flame-graph button').length > 1", PATIENCE)
    names = page.evaluate("[...document.querySelectorAll('#flame-graph button')].map(b => b.textContent)")
    check(any("worker" in name or "do_job" in name for name in names), names)
    check(page.evaluate("document.querySelector('#flame-reset').disabled"))
    page.click("#flame-graph button:nth-child(2)")
    page.wait_for("!document.querySelector('#flame-reset').disabled")
    page.click("#flame-reset")
    page.wait_for("document.querySelector('#flame-reset').disabled")


@case
def it_is_light_or_dark_as_one_likes(browser, program, page):
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.dark(True)
    page.wait_for(f"{ground} !== {json.dumps(light)}")
    dark = page.evaluate(ground)
    for wanted in (light, dark, dark):  # auto (dark) -> light -> dark -> auto
        page.click("#theme")
        page.wait_for(f"{ground} === {json.dumps(wanted)}")
    page.dark(False)
    page.wait_for(f"{ground} === {json.dumps(light)}")


@case
def it_fits_a_phone(browser, program, page):
    page.size(360, 740, mobile=True)
    time.sleep(0.5)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    check(page.evaluate("document.documentElement.scrollWidth") <= 360, page.evaluate("document.documentElement.scrollWidth"))
    small = page.evaluate("[...document.querySelectorAll('header button, header select, form button, #search')].filter(b => b.offsetHeight < 28).length")
    check(small == 0, small, "are too small to touch")
    page.size(1200, 900)


@case
def it_can_be_used_without_eyes_or_a_mouse(browser, program, page):
    nameless = page.evaluate("[...document.querySelectorAll('button, input, select, canvas')].filter(e => !(e.textContent.trim() || e.title ||"
                             " e.getAttribute('aria-label') || e.labels?.length)).map(e => e.outerHTML.slice(0, 80))")
    check(not nameless, nameless)
    label = page.evaluate("document.querySelector('#scene').getAttribute('aria-label')")
    check(re.match(r"\d of 2 processors run goroutines", label), label)
    check(page.evaluate("document.documentElement.lang") == "en")
    check(not page.complaints, page.complaints)


@case
def it_survives_the_end_of_the_program(browser, program, page):
    with Program() as other:
        mine = opened(browser, other)
        mine.wait_for("document.querySelectorAll('#groups tr.row').length > 0", PATIENCE)
        alive = mine.evaluate("document.querySelector('[data-stat=alive]').dataset.value")
        check(int(alive) > 0)
        other.end()
        mine.wait_for("document.querySelector('#status').dataset.state === 'gone'", PATIENCE)
        check("trying again" in mine.evaluate("document.querySelector('#status-text').textContent"))
        check(int(mine.evaluate("document.querySelector('[data-stat=alive]').dataset.value")) > 0)
        check(mine.evaluate("document.querySelectorAll('#groups tr.row').length") > 0)
        with Program(port=other.port) as next_one:
            mine.wait_for("document.querySelector('#status').dataset.state === 'live'", PATIENCE)
            mine.wait_for(f"document.querySelector('#process').textContent.startsWith('process {next_one.process.pid} ')", PATIENCE)


@case
def another_program_at_the_same_address_is_another(browser, program, page):
    """Though it has run for longer, and switched more often, when the page finds it."""
    with Program() as other:
        mine = opened(browser, other)
        mine.offline(True)
        mine.wait_for("document.querySelector('#status').dataset.state === 'gone'", PATIENCE)
        before = other.stats()["totals"]
        other.end()
        with Program(port=other.port) as next_one:
            deadline = time.monotonic() + PATIENCE
            while any(next_one.stats()["totals"][key] <= before[key] for key in ("uptime_ns", "switches")):
                check(time.monotonic() < deadline, "it does not catch up")
                time.sleep(0.1)
            mine.offline(False)
            mine.wait_for(f"document.querySelector('#process').textContent.startsWith('process {next_one.process.pid} ')", PATIENCE)


@case
def it_answers_while_hogs_compute(browser, program, page):
    with Program(hogs=4) as busy:
        mine = opened(browser, busy)
        mine.wait_for("document.querySelectorAll('#groups tr.row').length > 0", PATIENCE)
        worst = 0
        for _ in range(10):
            began = time.monotonic()
            busy.stats()
            worst = max(worst, time.monotonic() - began)
        check(worst < 5, worst)
        check(sum(count for name, (count, _) in rows(mine).items() if name == "hog") > 0, rows(mine))


@case
def who_sends_half_a_request_is_shown_the_door(browser, program, page):
    program.loiterer.settimeout(PATIENCE)
    try:
        said = program.loiterer.recv(4096)  # it came at the beginning, and has ten seconds
    except ConnectionResetError:
        said = b""
    check(said == b"", said)


# ---- weft top --------------------------------------------------------------------------------------------------------

def top(*words, patience=PATIENCE):
    done = subprocess.run([BUILD / "weft", "top", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          stdin=subprocess.DEVNULL, timeout=patience)
    return done.returncode, done.stdout, done.stderr


@case
def top_shows_a_process_by_its_number(browser, program, page):
    code, said, wrong = top("--once", program.process.pid)
    check(code == 0 and "lively" in said and re.search(r"goroutines\s+\d+ alive", said), said, wrong)
    check(len(re.findall(r"^P\d+ ", said, re.M)) == 2, said)
    check("\033" not in said, repr(said))


@case
def top_shows_an_address(browser, program, page):
    code, said, wrong = top("--once", f"127.0.0.1:{program.port}")
    check(code == 0 and f"process {program.process.pid}" in said, said, wrong)


@case
def top_says_what_is_wrong(browser, program, page):
    for words, code, what in ((("--once", os.getpid()), 1, "WEFT_HTTP"), (("--once", 999999999), 1, "no process"),
                              (("--once", "127.0.0.1:1"), 1, "127.0.0.1:1"), ((), 2, "usage"), (("--twice", 1), 2, "usage")):
        got, said, wrong = top(*words)
        check(got == code and what in wrong, words, got, said, wrong)


@case
def top_finds_the_token_by_itself(browser, program, page):
    with Program(WEFT_HTTP_TOKEN="open-sesame") as guarded:
        check(top("--once", guarded.process.pid)[0] == 0)
        code, _, wrong = top("--once", f"127.0.0.1:{guarded.port}")
        check(code == 1 and "token" in wrong, code, wrong)
        check(top("--once", f"http://127.0.0.1:{guarded.port}/?token=open-sesame")[0] == 0)


@case
def top_lives_in_a_terminal(browser, program, page):
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(BUILD / "weft", ["weft", "top", "--every", "0.1", str(program.process.pid)])
    seen = read_until(fd, lambda text: text.count("alive") >= 3)
    check("\033[?1049h" in seen, repr(seen[:200]))
    os.write(fd, b"p")
    read_until(fd, lambda text: "paused" in text)
    os.write(fd, b"q")
    rest = read_until(fd, lambda text: "\033[?1049l" in text)
    check("\033[?1049l" in rest, repr(rest[-200:]))
    check(os.waitpid(pid, 0)[1] == 0)
    os.close(fd)


def read_until(fd, enough):
    text = ""
    deadline = time.monotonic() + PATIENCE
    while not enough(text):
        if time.monotonic() > deadline or not select.select([fd], [], [], 1)[0] and time.monotonic() > deadline:
            raise AssertionError(f"in vain: {text[-400:]!r}")
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        text += data.decode(errors="replace")
    return text


# ---- all together ----------------------------------------------------------------------------------------------------

def main():
    chosen = [fn for fn in CASES if not sys.argv[2:] or fn.__name__ in sys.argv[2:]]
    passed = failed = 0
    with Program() as program, browsers.Browser() as browser:
        program.loiterer = socket.create_connection(("127.0.0.1", program.port))
        program.loiterer.send(b"GET / HTTP/1.1\r\nHost: local")
        page = opened(browser, program)
        for fn in chosen:
            try:
                fn(browser, program, page)
                passed += 1
                print(f"ok {fn.__name__}", flush=True)
            except Exception:
                failed += 1
                traceback.print_exc(file=sys.stdout)
                print(f"FAIL {fn.__name__}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
