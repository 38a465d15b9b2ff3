// SPDX-License-Identifier: MIT
// Asking the program, and how numbers read.

// Some browsers are told to remember nothing.
export function remember(store, name, value) {
  try {
    store().setItem(name, value);
  } catch {}
}

export function recall(store, name) {
  try {
    return store().getItem(name);
  } catch {
    return null;
  }
}

const session = () => sessionStorage;

// The token comes with the first address and stays with this tab; the address bar need not show it.
const given = new URLSearchParams(location.search).get("token");
if (given !== null) {
  remember(session, "weft-token", given);
  history.replaceState(null, "", location.pathname + location.hash);
}

export async function ask(path, options = {}) {
  const token = given ?? recall(session, "weft-token");
  const headers = token !== null ? { Authorization: `Bearer ${token}` } : {};
  const response = await fetch(path, { cache: "no-store", headers, signal: AbortSignal.timeout(options.patience || 5000) });
  if (!response.ok) {
    const error = new Error((await response.text()).trim());
    error.status = response.status;
    throw error;
  }
  return response;
}

const UNITS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

export function compact(n) {
  for (const [size, unit] of UNITS)
    if (Math.abs(n) >= size * 9.995) return (n / size).toFixed(n >= size * 99.95 ? 0 : 1) + unit;
  return Number.isInteger(n) || n >= 100 ? String(Math.round(n)) : n.toFixed(n >= 10 ? 0 : 1);
}

export function bytes(n) {
  for (const [shift, unit] of [[30, "GiB"], [20, "MiB"], [10, "KiB"]])
    if (n >= 2 ** shift) return `${(n / 2 ** shift).toFixed(n >= 100 * 2 ** shift ? 0 : 1)} ${unit}`;
  return `${n} B`;
}

export function percent(part) {
  return `${(part * 100).toFixed(part < 0.0995 ? 1 : 0)}%`;
}

export function duration(ns) {
  const s = ns / 1e9;
  if (s < 1e-3) return `${Math.round(ns / 1e3)} µs`;
  if (s < 1) return `${Math.round(ns / 1e6)} ms`;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
}

export function colours(...names) {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

// A canvas as large as its place on the page, in the screen's own points; height in CSS pixels.
export function fit(canvas, height) {
  const scale = devicePixelRatio || 1, width = canvas.clientWidth;
  if (canvas.style.height !== `${height}px`) canvas.style.height = `${height}px`;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width };
}
