// SPDX-License-Identifier: MIT
// The goroutines: those that do the same are one row, most of them first; a row opens to its backtrace. To look at them costs the
// program more than its counters do, so it is done every two seconds, less often if it takes long, and only while the table is seen.
import { ask, compact, duration } from "./common.js";

const $ = (id) => document.getElementById(id);
const EVERY = 2000, LONGEST = 15000, PATIENCE = 30000; // ms
const SHARE = 8;  // a pause is so many times as long as the look before it took, within these limits
const MOST = 400; // rows

function element(name, text, className) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

function where(frame) {
  const file = frame.file ? `${frame.file.replace(/^.*\/(?=[^/]+\/[^/]+$)/, "")}:${frame.line}` : "";
  return [frame.symbol || frame.pc, file || frame.object || ""];
}

// The first frame of the program's own: those of the library and of libc tell less.
function frontFrame(group) {
  const own = group.frames.find((f) => f.symbol && !/^(w_|weft_)/.test(f.symbol) && !/^(libc|ld-)/.test(f.object || ""));
  return own || group.frames[0];
}

function title(group) {
  return group.name || group.entry || "?";
}

function waits(group) {
  if (group.since_ns_max === null) return "";
  const lo = duration(group.since_ns_min), hi = duration(group.since_ns_max);
  return lo === hi ? hi : `${lo} – ${hi}`;
}

// What it is, apart from how many and for how long: the same row the next time.
function keyOf(group) {
  return [group.state, group.reason, group.name, group.entry, group.object, ...group.frames.map((f) => f.pc)].join("|");
}

export class Groups {
  constructor() {
    this.all = [];
    this.open = new Set();
    this.hidden = new Set(); // states that are not shown
    this.next = this.lookedAt = 0;
    this.busy = false;
    this.seen = true;
    $("search").addEventListener("input", () => this.show());
    $("refresh").addEventListener("click", () => this.look());
    new IntersectionObserver((entries) => { this.seen = entries.some((e) => e.isIntersecting); }, { rootMargin: "200px" }).observe($("goroutines"));
  }

  // Called after each look at the counters.
  follow(now) {
    this.sayAge(now);
    if ($("follow").checked && now >= this.next && (this.seen || this.all.length === 0) && !document.hidden) this.look();
  }

  sayAge(now) {
    const age = now - this.lookedAt, text = age > 2 * EVERY ? `${duration(Math.floor(age / 1000) * 1e9)} ago` : "";
    if ($("age").textContent !== text) $("age").textContent = text;
  }

  async look() {
    if (this.busy) return;
    this.busy = true;
    const began = performance.now();
    try {
      this.all = await (await ask("api/goroutines", { patience: PATIENCE })).json();
      for (const group of this.all) group.text = this.textOf(group);
      this.lookedAt = performance.now();
      this.show();
    } catch (error) {
      if (error.status) $("found").textContent = error.message;
    } finally {
      this.busy = false;
      const now = performance.now();
      this.next = now + Math.min(LONGEST, Math.max(EVERY, (now - began) * SHARE));
    }
  }

  textOf(group) {
    const frames = group.frames.map((f) => `${f.symbol || ""} ${f.file || ""}:${f.line} ${f.object || ""} ${f.pc}`);
    const ids = group.ids.map((id) => `G${id}`);
    return [group.name, group.entry, group.state, group.reason, group.object, group.started_at, ...ids, ...frames].join(" ").toLowerCase();
  }

  matching() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    return this.all.filter((group) => words.every((word) => group.text.includes(word)));
  }

  show() {
    const found = this.matching(), shown = found.filter((g) => !this.hidden.has(g.state));
    const count = (list) => list.reduce((n, g) => n + g.count, 0);
    this.showStates(found);
    $("found").textContent = `${compact(count(shown))} of ${compact(count(this.all))} in ${shown.length} ${shown.length === 1 ? "row" : "rows"}`;
    $("empty").hidden = shown.length > 0;
    const focused = document.activeElement?.closest?.("#groups tr.row")?.dataset.key;
    shown.sort((a, b) => b.count - a.count || a.state.localeCompare(b.state) || title(a).localeCompare(title(b)));
    $("groups").tBodies[0].replaceChildren(...shown.slice(0, MOST).flatMap((g) => this.rowsOf(g)));
    if (focused) for (const row of $("groups").querySelectorAll("tr.row")) if (row.dataset.key === focused) row.querySelector("button").focus();
  }

  showStates(found) {
    const counts = new Map();
    for (const g of this.all) counts.set(g.state, 0);
    for (const g of found) counts.set(g.state, counts.get(g.state) + g.count);
    const text = JSON.stringify([...counts, ...this.hidden]);
    if (text === this.statesShown) return;
    this.statesShown = text;
    const focused = document.activeElement?.dataset?.filter;
    $("states").replaceChildren(...[...counts].sort().map(([state, n]) => this.stateButton(state, n)));
    if (focused) $("states").querySelector(`[data-filter="${CSS.escape(focused)}"]`)?.focus();
  }

  stateButton(state, n) {
    const button = element("button", `${state} ${compact(n)}`);
    button.type = "button";
    button.dataset.filter = state;
    button.setAttribute("aria-pressed", String(!this.hidden.has(state)));
    button.addEventListener("click", () => {
      if (!this.hidden.delete(state)) this.hidden.add(state);
      this.show();
    });
    return button;
  }

  rowsOf(group) {
    const key = keyOf(group), open = this.open.has(key), row = element("tr", undefined, "row");
    const frame = frontFrame(group), button = element("button", title(group));
    row.dataset.key = key;
    button.type = "button";
    button.setAttribute("aria-expanded", String(open));
    const state = element("td"), chip = element("span", group.state, "chip"), name = element("td"), at = element("td");
    chip.dataset.state = group.state;
    state.append(chip);
    if (group.reason) state.append(" ", element("span", group.reason, "dim"));
    name.append(button);
    if (group.name && group.entry) name.append(" ", element("code", group.entry, "dim"));
    if (frame) at.append(element("code", where(frame)[0]), " ", element("span", where(frame)[1], "dim"));
    row.append(element("td", compact(group.count), "n"), state, name, at, element("td", waits(group), "n dim"));
    row.addEventListener("click", () => {
      if (!this.open.delete(key)) this.open.add(key);
      this.show();
    });
    return open ? [row, this.detail(group)] : [row];
  }

  detail(group) {
    const tr = element("tr", undefined, "detail"), td = element("td"), facts = element("dl"), frames = element("ol");
    td.colSpan = 5;
    const more = group.count > group.ids.length ? ` and ${compact(group.count - group.ids.length)} more` : "";
    const lines = [["numbers", group.ids.map((id) => `G${id}`).join(" ") + more], ["entry", group.entry], ["started at", group.started_at],
      ["waits for", group.object], ["priority", { "-1": "low", 0: "normal", 1: "high" }[group.priority]],
      ["processor", group.p === null ? null : `P${group.p}`], ["thread", group.thread]];
    for (const [name, value] of lines)
      if (value !== null && value !== undefined && value !== "") facts.append(element("dt", name), element("dd", String(value)));
    for (const f of group.frames) {
      const li = element("li"), [symbol, place] = where(f);
      li.title = f.file ? `${f.file}:${f.line}` : f.pc;
      li.append(element("code", symbol), " ", element("span", place, "dim"));
      frames.append(li);
    }
    td.append(facts, group.frames.length > 0 ? frames : element("p", "It did not stand still for a backtrace, or has not begun.", "dim"));
    tr.append(td);
    return tr;
  }
}
