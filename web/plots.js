// SPDX-License-Identifier: MIT
// Counters over the last minutes. A plot is one or more series over the same samples; stacked ones lie on each other.
import { compact, bytes, percent, duration, colours, fit } from "./common.js";

const LONGEST = 900; // seconds that are kept
const HEIGHT = 84;

const PLOTS = [
  { title: "switches a second", series: [["switches", "ring", (s, r) => r.switches]] },
  { title: "started a second", series: [["spawns", "fresh", (s, r) => r.spawned]] },
  { title: "steals a second", series: [["steals", "slot", (s, r) => r.steals_done]] },
  { title: "preemptions a second", series: [["preemptions", "heavy", (s, r) => r.preempted]] },
  { title: "goroutines alive", series: [["alive", "accent", (s) => s.totals.alive]] },
  { title: "ready", stacked: true, names: true, series: [
    ["local", "ring", (s) => s.totals.queue_local], ["global", "heavy", (s, r, q) => q - s.totals.queue_local]] },
  { title: "threads", stacked: true, names: true, series: [
    ["running", "run", (s) => s.totals.threads_running + s.totals.threads_spinning],
    ["blocked", "block", (s) => s.totals.threads_blocked + s.totals.threads_pinned],
    ["idle", "idle", (s) => s.totals.threads_idle]] },
  { title: "stack memory", format: bytes, stacked: true, names: true, series: [
    ["in use", "accent", (s) => s.totals.stack_used], ["free", "idle", (s) => s.totals.stack_cached]] },
  { title: "processor time", format: percent, series: [["cpu", "run", (s, r) => r.cpu]] },
  { title: "waited for", names: true, series: [
    ["timers", "fresh", (s) => s.totals.timers], ["descriptors", "slot", (s) => s.totals.io_waits]] },
  { title: "threads woken a second", series: [["wakes", "spin", (s, r) => r.thread_wakes]] },
  { title: "polls a second", series: [["polls", "low", (s, r) => r.polls]] },
];

function makePlot(spec, hover) {
  const figure = document.createElement("figure"), caption = document.createElement("figcaption");
  const title = document.createElement("span"), output = document.createElement("output"), canvas = document.createElement("canvas");
  figure.className = "plot";
  figure.dataset.plot = spec.title;
  title.textContent = spec.title;
  canvas.setAttribute("role", "img");
  caption.append(title, output);
  figure.append(caption, canvas);
  canvas.addEventListener("pointermove", (e) => hover(e.offsetX / canvas.clientWidth));
  canvas.addEventListener("pointerleave", () => hover(null));
  return { ...spec, figure, output, canvas };
}

export class Plots {
  constructor(box, choice) {
    this.choice = choice;
    this.times = [];
    this.values = PLOTS.map((p) => p.series.map(() => []));
    this.hovered = null;
    this.plots = PLOTS.map((spec) => makePlot(spec, (x) => { this.hovered = x; this.draw(); }));
    box.append(...this.plots.map((p) => p.figure));
    choice.addEventListener("change", () => this.draw());
    addEventListener("resize", () => this.draw());
    this.readColours();
  }

  readColours() {
    this.colours = colours("ink", "soft", "edge", "panel", "accent", "run", "block", "idle", "ring", "fresh", "slot", "heavy", "spin", "low");
    this.draw();
  }

  add(sample, rates, queued) {
    const now = sample.time_ns / 1e9;
    if (this.times.length > 0 && now < this.times[this.times.length - 1]) this.forget(this.times.length);
    this.times.push(now);
    PLOTS.forEach((p, i) => p.series.forEach((s, k) => this.values[i][k].push(s[2](sample, rates, queued))));
    const old = this.times.findIndex((t) => t > now - LONGEST - 5);
    if (old > 200) this.forget(old);
    this.draw();
  }

  forget(n) {
    this.times.splice(0, n);
    for (const plot of this.values) for (const series of plot) series.splice(0, n);
  }

  // The sample nearest to where the pointer is, or the last one.
  sampleAt(x, from, span) {
    if (x === null) return this.times.length - 1;
    const t = from + x * span;
    let best = this.times.length - 1;
    while (best > 0 && Math.abs(this.times[best - 1] - t) <= Math.abs(this.times[best] - t)) best--;
    return best;
  }

  draw() {
    if (this.times.length === 0) return;
    const span = Number(this.choice.value), to = this.times[this.times.length - 1], from = to - span;
    const first = Math.max(0, this.times.findIndex((t) => t >= from) - 1), at = this.sampleAt(this.hovered, from, span);
    this.plots.forEach((plot, i) => this.drawPlot(plot, this.values[i], { from, span, first, at }));
  }

  drawPlot(plot, values, view) {
    const { context: c, width } = fit(plot.canvas, HEIGHT), format = plot.format || compact;
    const layers = plot.stacked ? stack(values, view.first) : values.map((v) => v.slice(view.first));
    const most = nice(Math.max(...layers.flat(), plot.format === percent ? 0.01 : 1), plot.format === bytes);
    const x = (i) => (this.times[view.first + i] - view.from) / view.span * width;
    const y = (v) => HEIGHT - 3 - v / most * (HEIGHT - 16);
    this.drawGrid(c, width, y, most, format);
    for (let k = layers.length - 1; k >= 0; k--)
      drawSeries(c, layers[k], x, y, this.colours[plot.series[k][1]], plot.stacked ? this.colours.panel : null);
    if (this.hovered !== null) this.drawCursor(c, x(view.at - view.first), layers.map((l) => y(l[view.at - view.first])), plot);
    this.say(plot, values, view, format);
  }

  say(plot, values, view, format) {
    const parts = plot.series.map(([name], k) => (plot.names ? `${name} ` : "") + format(values[k][view.at]));
    const ago = this.hovered === null ? "" : `  ${duration((this.times[this.times.length - 1] - this.times[view.at]) * 1e9)} ago`;
    plot.output.textContent = parts.join(" · ") + ago;
    plot.canvas.setAttribute("aria-label", `${plot.title}: ${parts.join(", ")}`);
  }

  drawGrid(c, width, y, most, format) {
    c.strokeStyle = this.colours.edge;
    c.fillStyle = this.colours.soft;
    c.lineWidth = 1;
    c.font = "10px system-ui, sans-serif";
    for (const part of [0, 0.5, 1]) {
      const line = Math.round(y(most * part)) + 0.5;
      c.beginPath();
      c.moveTo(0, line);
      c.lineTo(width, line);
      c.stroke();
    }
    c.fillText(format(most), 2, y(most) - 3);
  }

  drawCursor(c, x, dots, plot) {
    c.strokeStyle = this.colours.soft;
    c.setLineDash([3, 3]);
    c.beginPath();
    c.moveTo(x, 0);
    c.lineTo(x, HEIGHT);
    c.stroke();
    c.setLineDash([]);
    dots.forEach((y, k) => {
      c.fillStyle = this.colours[plot.series[k][1]];
      c.beginPath();
      c.arc(x, y, 3, 0, 7);
      c.fill();
    });
  }
}

function stack(values, first) {
  const layers = [];
  values.forEach((series, k) => layers.push(series.slice(first).map((v, i) => v + (k > 0 ? layers[k - 1][i] : 0))));
  return layers;
}

// The next of 1, 2, 5, 10, ...; of bytes, the next power of two.
function nice(most, binary) {
  if (binary) return 2 ** Math.ceil(Math.log2(Math.max(most, 1024)));
  const size = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].find((n) => n * size >= most) * size;
}

// under: a stacked one hides what lies below it, and is not mixed with it.
function drawSeries(c, layer, x, y, colour, under) {
  c.beginPath();
  layer.forEach((v, i) => c.lineTo(x(i), y(v)));
  c.strokeStyle = colour;
  c.lineWidth = 1.6;
  c.lineJoin = "round";
  c.stroke();
  c.lineTo(x(layer.length - 1), y(0));
  c.lineTo(x(0), y(0));
  c.closePath();
  if (under !== null) {
    c.fillStyle = under;
    c.fill();
  }
  c.globalAlpha = under !== null ? 0.45 : 0.16;
  c.fillStyle = colour;
  c.fill();
  c.globalAlpha = 1;
}
