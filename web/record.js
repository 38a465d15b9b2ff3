// SPDX-License-Identifier: MIT
// Traces to download, and profiles as a flame graph: a box is a function, as wide as the time that it and what it calls took; those that
// it calls lie on it. A click makes a box as wide as the graph.
import { ask, compact, percent } from "./common.js";

const $ = (id) => document.getElementById(id);
const ROW = 21, NARROW = 0.0015; // boxes that would be narrower are left out

// Runs make() while the form says how long it takes; its outcome is told below.
function onSubmit(form, make) {
  const button = form.querySelector("button"), outcome = form.querySelector(".outcome");
  const say = (text, bad) => { outcome.textContent = text; outcome.toggleAttribute("data-bad", Boolean(bad)); };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const seconds = Number(form.elements.seconds.value), began = performance.now();
    const tick = () => say(`recording, ${Math.max(0, seconds - (performance.now() - began) / 1000).toFixed(1)} s to go`);
    const timer = setInterval(tick, 100);
    button.disabled = true;
    try {
      const text = await make(seconds);
      clearInterval(timer);
      say("");
      text(outcome);
    } catch (error) {
      clearInterval(timer);
      say(error.status ? error.message : "the program does not answer", true);
    }
    button.disabled = false;
  });
}

function asked(path, seconds) {
  return ask(`${path}?seconds=${seconds}`, { patience: seconds * 1000 + 60000 });
}

// ---- traces ----

function offer(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.textContent = name;
  return link;
}

async function trace(seconds, info) {
  const blob = await (await asked("api/trace", seconds)).blob();
  const link = offer(blob, `${info().program}-${info().pid}-${new Date().toISOString().slice(11, 19).replaceAll(":", "")}.json`);
  link.click();
  return (outcome) => outcome.append(link, ` ${compact(blob.size / 1024)} KiB`);
}

// ---- profiles ----

// "main;work;compute 12" a line.
function parse(text) {
  const root = { name: "all", value: 0, own: 0, children: new Map(), parent: null, depth: 0 };
  for (const line of text.split("\n")) {
    const cut = line.lastIndexOf(" "), value = Number(line.slice(cut + 1));
    if (cut <= 0 || !(value > 0)) continue;
    let node = root;
    root.value += value;
    for (const name of line.slice(0, cut).split(";")) {
      if (!node.children.has(name)) node.children.set(name, { name, value: 0, own: 0, children: new Map(), parent: node, depth: node.depth + 1 });
      node = node.children.get(name);
      node.value += value;
    }
    node.own += value;
  }
  return root;
}

function hue(name) {
  let h = 0;
  for (const letter of name) h = (h * 31 + letter.codePointAt(0)) | 0;
  return `hsl(${28 + Math.abs(h) % 34} ${70 + Math.abs(h >> 8) % 25}% ${64 + Math.abs(h >> 16) % 14}%)`;
}

class Flame {
  constructor() {
    $("flame-reset").addEventListener("click", () => this.zoom(this.root));
  }

  show(text) {
    this.root = parse(text);
    $("flame").hidden = false;
    this.zoom(this.root);
    this.showHot();
  }

  zoom(node) {
    const boxes = [], above = [];
    for (let up = node.parent; up !== null; up = up.parent) above.unshift(up);
    for (const up of above) boxes.push(this.box(up, 0, 1, true));
    const depth = this.place(node, 0, 1, boxes);
    $("flame-graph").replaceChildren(...boxes);
    $("flame-graph").style.height = `${(depth + 1) * ROW}px`;
    $("flame-reset").disabled = node === this.root;
    this.say(node);
  }

  // How deep it goes.
  place(node, x, width, boxes) {
    let deepest = node.depth, at = x;
    boxes.push(this.box(node, x, width, false));
    const children = [...node.children.values()].sort((a, b) => a.name.localeCompare(b.name));
    for (const child of children) {
      const part = width * child.value / node.value;
      if (part >= NARROW) deepest = Math.max(deepest, this.place(child, at, part, boxes));
      at += part;
    }
    return deepest;
  }

  box(node, x, width, dim) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = node.name;
    button.title = `${node.name}: ${percent(node.value / this.root.value)}`;
    button.setAttribute("role", "treeitem");
    button.setAttribute("aria-level", String(node.depth + 1));
    button.setAttribute("aria-label", button.title);
    button.style.left = `${x * 100}%`;
    button.style.width = `${width * 100}%`;
    button.style.top = `${node.depth * ROW}px`;
    button.style.background = hue(node.name);
    if (dim) button.className = "miss";
    button.addEventListener("click", () => this.zoom(node));
    button.addEventListener("pointerenter", () => this.say(node));
    button.addEventListener("focus", () => this.say(node));
    return button;
  }

  say(node) {
    const part = percent(node.value / (this.root.value || 1));
    $("flame-note").textContent = this.root.value === 0 ? "No processor time was used."
      : `${node.name}: ${compact(node.value)} samples, ${part}${node.own > 0 ? `, ${percent(node.own / this.root.value)} of its own` : ""}`;
  }

  showHot() {
    const sums = new Map();
    const visit = (node, on) => {
      const sum = sums.get(node.name) || { own: 0, all: 0 };
      sum.own += node.own;
      if (!on.has(node.name)) sum.all += node.value;
      sums.set(node.name, sum);
      for (const child of node.children.values()) visit(child, new Set(on).add(node.name));
    };
    for (const child of this.root.children.values()) visit(child, new Set());
    const hottest = [...sums].sort((a, b) => b[1].own - a[1].own).slice(0, 30);
    $("hot").tBodies[0].replaceChildren(...hottest.map(([name, sum]) => {
      const tr = document.createElement("tr");
      for (const [text, className] of [[percent(sum.own / this.root.value), "n"], [percent(sum.all / this.root.value), "n"]]) {
        const td = tr.insertCell();
        td.textContent = text;
        td.className = className;
      }
      const code = document.createElement("code");
      code.textContent = name;
      tr.insertCell().append(code);
      return tr;
    }));
  }
}

export function startRecording(info) {
  const flame = new Flame();
  onSubmit($("trace-form"), (seconds) => trace(seconds, info));
  onSubmit($("profile-form"), async (seconds) => {
    const text = await (await asked("api/profile", seconds)).text();
    return () => flame.show(text);
  });
}
