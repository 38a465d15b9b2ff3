// SPDX-License-Identifier: MIT
// The live picture: asks the program for its figures a few times a second, and hands them to the parts of the page.
// When the program is gone the last picture stays, and the page keeps asking until there is a program again.
import { ask, compact, duration, bytes, percent, recall, remember } from "./common.js";
import { Scene } from "./scene.js";
import { Plots } from "./plots.js";
import { Groups } from "./groups.js";
import { startRecording } from "./record.js";

const $ = (id) => document.getElementById(id);
const RETRY = 1000; // ms

const scene = new Scene($("scene"));
const plots = new Plots($("plots"), $("window"));
const groups = new Groups();
let info = null, last = null, timer = 0, lastSeen = null;

// ---- theme ----

const themes = ["auto", "light", "dark"];
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const local = () => localStorage;
let theme = themes.find((name) => name === recall(local, "weft-theme")) || "auto";

function showTheme() {
  const dark = theme === "dark" || (theme === "auto" && systemDark.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = `Theme: ${theme}`;
  scene.readColours();
  plots.readColours();
}

$("theme").addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  remember(local, "weft-theme", theme);
  showTheme();
});
systemDark.addEventListener("change", showTheme);

// ---- tiles ----

const TILES = [
  ["alive", "goroutines alive", (s) => s.totals.alive, compact],
  ["busy", "processors busy", (s) => s.procs.filter((p) => p.state === "running" && p.goroutine !== s.self).length,
    (v, s) => `${v}<small> of ${s.totals.procs}</small>`],
  ["ready", "ready to run", (s) => queued(s.totals), compact],
  ["switches", "switches / s", (s, r) => r.switches, compact],
  ["spawned", "started / s", (s, r) => r.spawned, compact],
  ["threads", "threads", (s) => s.totals.threads, (v, s) => `${v}<small> ${s.totals.threads_blocked} blocked</small>`],
  ["cpu", "processor time", (s, r) => r.cpu, (v) => percent(v)],
  ["stack", "stacks kept", (s) => s.totals.stacks, (v, s) => `${compact(v)}<small> ${bytes(s.totals.stack_cached)} free</small>`],
];

function queued(t) {
  return t.queue_local + t.queue_high + t.queue_ran + t.queue_fresh + t.queue_heavy + t.queue_low;
}

for (const [key, label] of TILES) {
  const box = document.createElement("div");
  const dt = document.createElement("dt"), dd = document.createElement("dd");
  dt.textContent = label;
  dd.dataset.stat = key;
  dd.textContent = "–";
  box.append(dt, dd);
  $("tiles").append(box);
}

function showTiles(sample, rates) {
  for (const [key, , value, format] of TILES) {
    const dd = document.querySelector(`#tiles [data-stat="${key}"]`), v = value(sample, rates);
    dd.dataset.value = v;
    dd.innerHTML = format(v, sample); // numbers and words of ours only
  }
}

// ---- rates ----

const RATES = ["switches", "spawned", "steals_done", "polls", "thread_wakes"];

function cpuOf(s) {
  return s.threads.reduce((sum, m) => sum + m.cpu_ns, 0);
}

function preemptions(t) {
  return t.preempts_at_call + t.preempts_by_signal;
}

// A second's worth of each counter between two samples. Threads that end take their processor time with them: never below 0.
function ratesBetween(a, b) {
  const seconds = (b.time_ns - a.time_ns) / 1e9 || 1, r = {};
  for (const key of RATES) r[key] = (b.totals[key] - a.totals[key]) / seconds;
  r.preempted = (preemptions(b.totals) - preemptions(a.totals)) / seconds;
  r.cpu = Math.max(0, cpuOf(b) - cpuOf(a)) / 1e9 / seconds;
  const before = new Map(a.procs.map((p) => [p.id, p]));
  r.procs = new Map(b.procs.map((p) => {
    const q = before.get(p.id) || p;
    const since = (key) => p[key] - q[key];
    return [p.id, { switches: since("switches") / seconds, stolen: since("stolen"), spawned: since("spawned"),
      preempted: since("preempts_at_call") + since("preempts_by_signal") }];
  }));
  return r;
}

// When its run began tells one program from the next at the same address. (A microsecond, for clocks beyond 2 ** 53.)
function sameRun(a, b) {
  const began = (s) => s.time_ns - s.totals.uptime_ns;
  return a !== null && b.time_ns > a.time_ns && Math.abs(began(b) - began(a)) < 1000;
}

// ---- tables for those who do not look at drawings ----

function fillRows(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, i) => {
    const tr = body.rows[i] || body.insertRow();
    cells.forEach((text, k) => {
      const td = tr.cells[k] || tr.insertCell();
      if (typeof text === "number") td.className = "n";
      const shown = typeof text === "number" ? compact(text) : text;
      if (td.textContent !== shown) td.textContent = shown;
    });
  });
}

function showTables(s, r) {
  if (!$("procs").closest("details").open) return;
  const g = (x) => (x.goroutine === s.self ? "this page" : x.goroutine > 0 ? `G ${x.goroutine}` : "–");
  fillRows($("procs").tBodies[0], s.procs.map((p) => [`P ${p.id}`, p.state, p.thread >= 0 ? `M ${p.thread}` : "–", g(p),
    p.queue_slot + p.queue_ring + p.queue_fresh, r.procs.get(p.id).switches, p.timers]));
  fillRows($("threads").tBodies[0], s.threads.map((m) => [`M ${m.id}`, String(m.tid), m.state, m.proc >= 0 ? `P ${m.proc}` : "–",
    g(m), duration(m.cpu_ns)]));
}

// ---- the loop ----

function setStatus(state, text) {
  $("status").dataset.state = state;
  if ($("status-text").textContent !== text) $("status-text").textContent = text;
  document.body.toggleAttribute("data-gone", state === "gone");
}

async function learnWho() {
  info = await (await ask("api/info")).json();
  $("program").textContent = info.program;
  document.title = `${info.program} · weft`;
}

function show(sample) {
  const rates = sameRun(last, sample) ? ratesBetween(last, sample) : null;
  $("process").textContent = `process ${info.pid} · up ${duration(sample.totals.uptime_ns)}`;
  last = sample;
  if (rates === null) return;
  showTiles(sample, rates);
  showTables(sample, rates);
  scene.update(sample, rates);
  plots.add(sample, rates, queued(sample.totals));
  lastSeen = new Date();
}

async function look() {
  const response = await ask("api/stats");
  const sample = await response.json();
  sample.self = Number(response.headers.get("Weft-Goroutine"));
  if (info === null || !sameRun(last, sample)) await learnWho();
  show(sample);
  setStatus("live", Number($("rate").value) > 0 ? "live" : "paused");
}

function explain(error) {
  if (error.status === 401) return "a token is needed: open the address that the program printed";
  if (error.status) return error.message;
  return lastSeen === null ? "the program does not answer, trying again"
    : `the program has ended or does not answer; this is how it was at ${lastSeen.toLocaleTimeString()}, trying again`;
}

async function step() {
  const began = performance.now(), period = Number($("rate").value);
  let wait = period;
  try {
    await look();
    groups.follow(performance.now());
  } catch (error) {
    setStatus("gone", explain(error));
    scene.stop();
    wait = Math.max(period, RETRY);
  }
  if (period > 0 || $("status").dataset.state === "gone")
    timer = setTimeout(step, Math.max(20, wait - (performance.now() - began)));
}

$("rate").addEventListener("change", () => {
  clearTimeout(timer);
  if (Number($("rate").value) === 0) setStatus("wait", "paused");
  else step();
});

showTheme();
startRecording(() => info);
step();
