// SPDX-License-Identifier: MIT
// The drawing: the global lines on top, a lane for each P, and the threads that have no P below.
//
//      M2 ──( G 51 )── • • • • •        a P: its thread, what runs, and who is ready, first come first served
//
// What it shows are samples, some a second; what moves between two of them is made up at the rate that they tell: a dot goes
// from the queue to the P for each doubling of its switches a second. The ring around what runs fills up in ten milliseconds, the usual quantum.
import { compact, duration, colours, fit } from "./common.js";

const QUANTUM = 10e6; // ns
const LINES = [["high", "queue_high", "high"], ["ran before", "queue_ran", "ring"], ["never ran", "queue_fresh", "fresh"],
  ["heavy", "queue_heavy", "heavy"], ["low", "queue_low", "low"]];
const FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";
const TAU = 2 * Math.PI;

export class Scene {
  constructor(canvas) {
    this.canvas = canvas;
    this.sample = null;
    this.lanes = new Map(); // what is remembered of each P between frames
    this.notes = [];        // words that rise and fade
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.running = false;
    this.readColours();
    addEventListener("resize", () => this.draw(0));
  }

  readColours() {
    this.c = colours("ink", "soft", "faint", "edge", "panel", "paper", "accent", "warn", "run", "block", "spin", "idle", "slot", "ring", "fresh",
      "high", "heavy", "low");
    this.draw(0);
  }

  update(sample, rates) {
    this.sample = sample;
    for (const p of sample.procs) {
      const lane = this.lanes.get(p.id) || { flying: [], due: 0, queue: 0 }, rate = rates.procs.get(p.id);
      lane.rate = rate.switches;
      if (rate.stolen > 0) this.note(p.id, `+${rate.stolen} stolen`, "slot");
      if (rate.preempted > 0) this.note(p.id, rate.preempted > 1 ? `${rate.preempted} preempted` : "preempted", "heavy");
      this.lanes.set(p.id, lane);
    }
    this.describe(sample);
    if (this.still.matches || document.hidden) this.draw(0);
    else this.start();
  }

  describe(s) {
    const busy = s.procs.filter((p) => p.state === "running").length, t = s.totals;
    this.canvas.setAttribute("aria-label", `${busy} of ${t.procs} processors run goroutines, ${t.queue_local} are ready in their queues; ` +
      `${t.threads} threads, of them ${t.threads_blocked} blocked and ${t.threads_idle} idle`);
  }

  note(p, text, colour) {
    const last = this.notes.find((n) => n.p === p && n.colour === colour);
    if (last) Object.assign(last, { text, age: 0 });
    else this.notes.push({ p, text, colour, age: 0 });
  }

  start() {
    if (this.running) return;
    this.running = true;
    let before = performance.now();
    const frame = (now) => {
      if (!this.running) return;
      this.draw(Math.min(0.1, (now - before) / 1000));
      before = now;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  stop() {
    this.running = false;
  }

  // ---- where everything goes ----

  layout(width) {
    const procs = this.sample.procs.filter((p) => p.state !== "retired"), n = procs.length;
    const columns = Math.max(1, Math.min(Math.floor(width / 330), Math.ceil(n / 4), n > 32 ? 4 : n > 8 ? 3 : 2));
    const rows = Math.ceil(n / columns), height = rows <= 6 ? 60 : rows <= 16 ? 44 : 28;
    const perLine = width >= 620 ? 5 : width >= 420 ? 3 : 2, lineRows = Math.ceil(LINES.length / perLine), top = lineRows * 40 + 12;
    const aside = this.sample.threads.filter((m) => m.proc < 0), chip = 96, perRow = Math.max(1, Math.floor((width + 8) / (chip + 8)));
    const bottom = top + rows * height + 8;
    return { procs, columns, rows, height, perLine, top, aside, chip, perRow, bottom, laneWidth: width / columns,
      total: bottom + 22 + Math.max(1, Math.ceil(aside.length / perRow)) * 36 };
  }

  draw(dt) {
    if (this.sample === null) return;
    const where = this.layout(this.canvas.clientWidth), { context: c, width } = fit(this.canvas, where.total);
    c.textBaseline = "middle";
    this.drawLines(c, where, width);
    where.procs.forEach((p, i) => {
      const x = Math.floor(i / where.rows) * where.laneWidth, y = where.top + i % where.rows * where.height;
      this.drawLane(c, p, x + 4, y, where.laneWidth - 8, where.height, dt);
    });
    this.drawAside(c, where);
    this.notes = this.notes.filter((note) => (note.age += dt) < 1.4);
  }

  text(c, text, x, y, size, colour, align = "left", weight = 400) {
    c.font = `${weight} ${size}px ${FONT}`;
    c.fillStyle = colour;
    c.textAlign = align;
    c.fillText(text, x, y);
  }

  dot(c, x, y, r, colour) {
    c.fillStyle = colour;
    c.beginPath();
    c.arc(x, y, r, 0, TAU);
    c.fill();
  }

  // ---- the global lines ----

  drawLines(c, where, width) {
    const cell = width / where.perLine, t = this.sample.totals;
    LINES.forEach(([name, key, colour], i) => {
      const x = i % where.perLine * cell + 4, y = Math.floor(i / where.perLine) * 40, n = t[key];
      c.fillStyle = this.c.paper;
      c.beginPath();
      c.roundRect(x, y, cell - 8, 34, 8);
      c.fill();
      this.text(c, name, x + 8, y + 10, 11, this.c.soft);
      this.text(c, compact(n), x + cell - 16, y + 10, 12, n > 0 ? this.c.ink : this.c.faint, "right", 600);
      const room = Math.floor((cell - 30) / 8);
      for (let k = 0; k < Math.min(n, room); k++) this.dot(c, x + 12 + k * 8, y + 24, 2.8, this.c[colour]);
    });
  }

  // ---- a lane ----

  drawLane(c, p, x, y, width, height, dt) {
    const lane = this.lanes.get(p.id), mid = y + height / 2, radius = Math.min(21, height * 0.36), small = height < 40;
    const mx = x + 24, px = mx + (small ? 34 : 52), from = px + radius + 16, to = x + width - 34;
    const busy = p.state === "running" && p.goroutine > 0, mine = busy && p.goroutine === this.sample.self;
    c.strokeStyle = this.c.edge;
    c.lineWidth = small ? 8 : 14;
    c.lineCap = "round";
    c.beginPath();
    c.moveTo(from, mid);
    c.lineTo(to, mid);
    c.stroke();
    this.drawThread(c, p, mx, px - radius, mid, small);
    this.drawFlying(c, lane, from, px, mid, dt, busy);
    this.drawRunner(c, p, px, mid, radius, busy, mine);
    this.drawQueue(c, p, lane, from, to, mid, dt, small);
    this.drawNotes(c, p.id, px + radius, mid - radius, small);
  }

  drawThread(c, p, mx, end, mid, small) {
    const there = p.thread >= 0, colour = p.state === "blocked" ? this.c.block : there ? this.c.run : this.c.idle;
    if (there) {
      c.strokeStyle = colour;
      c.lineWidth = 2;
      c.beginPath();
      c.moveTo(mx + 14, mid);
      c.lineTo(end, mid);
      c.stroke();
      c.beginPath();
      c.roundRect(mx - 20, mid - (small ? 9 : 12), 36, small ? 18 : 24, 6);
      c.fillStyle = this.c.panel;
      c.fill();
      c.stroke();
      this.text(c, `M${p.thread}`, mx - 2, mid + 0.5, small ? 10 : 11.5, this.c.ink, "center", 600);
    } else {
      this.text(c, "–", mx - 2, mid, 12, this.c.faint, "center");
    }
  }

  drawRunner(c, p, px, mid, r, busy, mine) {
    const part = Math.min(1, p.running_ns / QUANTUM), colour = mine ? this.c.soft : busy ? this.c.run : p.state === "blocked" ? this.c.block : this.c.idle;
    c.beginPath();
    c.arc(px, mid, r, 0, TAU);
    c.fillStyle = this.c.panel;
    c.fill();
    c.globalAlpha = busy ? 0.2 : 0.1;
    c.fillStyle = colour;
    c.fill();
    c.globalAlpha = 1;
    c.strokeStyle = colour;
    c.lineWidth = 1.5;
    c.stroke();
    if (busy && !mine) {
      c.strokeStyle = p.running_ns > 2 * QUANTUM ? this.c.warn : this.c.run;
      c.lineWidth = 3.5;
      c.beginPath();
      c.arc(px, mid, r - 0.5, -TAU / 4, -TAU / 4 + TAU * part);
      c.stroke();
    }
    const label = mine ? "page" : busy ? `G${p.goroutine}` : p.state === "running" ? "…" : p.state;
    if (r > 14) {
      this.text(c, `P${p.id}`, px, mid - 6, 9.5, this.c.soft, "center");
      this.text(c, label, px, mid + 5, label.length > 5 ? 8.5 : 10.5, this.c.ink, "center", 600);
    } else {
      this.text(c, `P${p.id}`, px, mid + 0.5, 9, this.c.ink, "center", 600);
    }
  }

  // As many a second as the switches a second have doublings.
  drawFlying(c, lane, from, px, mid, dt, busy) {
    lane.due += dt * Math.log2(1 + lane.rate) * (busy ? 1 : 0.5);
    for (; lane.due >= 1; lane.due--) if (lane.flying.length < 12) lane.flying.push(Math.random() * -0.1);
    lane.flying = lane.flying.map((at) => at + dt / 0.6).filter((at) => at < 1);
    for (const at of lane.flying) {
      if (at < 0) continue;
      c.globalAlpha = Math.sin(Math.PI * at);
      this.dot(c, from + 10 - (from + 10 - px) * at, mid - Math.sin(Math.PI * at) * 13, 3, this.c.ring);
    }
    c.globalAlpha = 1;
  }

  drawQueue(c, p, lane, from, to, mid, dt, small) {
    const n = p.queue_slot + p.queue_ring + p.queue_fresh, step = small ? 8 : 11, r = small ? 2.6 : 4;
    const room = Math.max(0, Math.floor((to - from) / step)), shown = Math.min(n, room);
    lane.queue = dt > 0 ? lane.queue + (n - lane.queue) * Math.min(1, dt * 6) : n;
    for (let i = 0; i < shown; i++) {
      const colour = i < p.queue_slot ? "slot" : i < p.queue_slot + p.queue_ring ? "ring" : "fresh";
      const sway = this.running ? Math.sin(performance.now() / 260 + i * 0.7) * Math.min(1.6, Math.log10(1 + lane.rate) * 0.5) : 0;
      c.globalAlpha = Math.max(0.15, Math.min(1, lane.queue + 0.6 - i));
      this.dot(c, from + i * step + 2, mid + sway, r, this.c[colour]);
    }
    c.globalAlpha = 1;
    this.text(c, compact(n), to + 34, mid, 12, n > 0 ? this.c.ink : this.c.faint, "right", 600);
  }

  drawNotes(c, p, x, y, small) {
    const notes = this.notes.filter((note) => note.p === p);
    for (const note of notes) {
      c.globalAlpha = Math.max(0, 1 - note.age / 1.4);
      this.text(c, note.text, x + (note.colour === "slot" ? 10 : 96), y + (small ? 2 : 4) - note.age * 4, 10.5,
        this.c[note.colour], "left", 600);
    }
    c.globalAlpha = 1;
  }

  // ---- threads without a P ----

  drawAside(c, where) {
    this.text(c, "Threads without a processor", 4, where.bottom + 8, 11, this.c.soft);
    if (where.aside.length === 0) this.text(c, "none", 4, where.bottom + 36, 12, this.c.faint);
    where.aside.forEach((m, i) => {
      const x = i % where.perRow * (where.chip + 8) + 4, y = where.bottom + 20 + Math.floor(i / where.perRow) * 36;
      this.drawChip(c, m, x, y, where.chip);
    });
  }

  drawChip(c, m, x, y, width) {
    const colour = { blocked: this.c.block, pinned: this.c.block, spinning: this.c.spin, running: this.c.run }[m.state] || this.c.idle;
    c.beginPath();
    c.roundRect(x, y, width, 28, 7);
    c.globalAlpha = m.state === "idle" ? 0.06 : 0.15;
    c.fillStyle = colour;
    c.fill();
    c.globalAlpha = m.state === "idle" ? 0.6 : 1;
    c.strokeStyle = colour;
    c.lineWidth = 1.3;
    c.setLineDash(m.state === "idle" ? [3, 3] : []);
    c.stroke();
    c.setLineDash([]);
    c.globalAlpha = 1;
    this.text(c, `M${m.id}`, x + 8, y + 14, 11, this.c.ink, "left", 600);
    this.text(c, m.goroutine > 0 ? `G${m.goroutine}` : m.state, x + width - 8, y + 9, 9.5, this.c.soft, "right");
    this.text(c, m.goroutine > 0 ? m.state : duration(m.cpu_ns), x + width - 8, y + 20, 9, this.c.soft, "right");
    if (m.state === "spinning") {
      const turn = performance.now() / 160;
      c.strokeStyle = colour;
      c.lineWidth = 2;
      c.beginPath();
      c.arc(x + 42, y + 14, 5, turn, turn + 4);
      c.stroke();
    }
  }
}
