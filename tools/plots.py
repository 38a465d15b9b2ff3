# SPDX-License-Identifier: MIT
"""Plots and pages for reports: one HTML file with inline SVG, light and dark, readable on paper, without a script.

    series = [Series("Weft", [(1, 20.0), (2, 21.5)]), Series("Go", [(1, 140.0), (2, None)])]
    svg = lines("Cost of a switch", series, x_label="processors", y_label="ns", x_log=True)
    svg = bars("Start and end", [("spawn", [("Weft", 37.1), ("Go", 397.0)])], unit="ns", log=True)
    Path("report.html").write_text(page("Report", [heading("Switches"), svg, table(["a", "b"], [["1", "2"]])]))

A name has the same colour and marker in every plot of a page if the caller gives the names in one order to `Palette`, or lets
the module do it: names are given places as they first appear. Colours differ in lightness too, and each has a marker of its
own, so that a plot printed in grey can be read. A point whose value is None is not measured: the line stops there.
"""
import collections
import html
import math

Series = collections.namedtuple("Series", "name points")  # [(x, y or None)], in the order of x

WIDTH, HEIGHT = 720, 340
LEFT, RIGHT, TOP, BOTTOM = 76, 150, 14, 46
LABEL_GAP = 15  # between two labels at the ends of lines, at the least
MARK_GAP = 30  # between two marks of an axis
COLOURS = 8
LIGHT = ("#1f6fb2", "#c8501e", "#1c8a5a", "#8a4fb0", "#a8781a", "#4d4d4d", "#b8336a", "#2a8fa3")
DARK = ("#6cb4ee", "#f08a5d", "#5fc99a", "#c39be0", "#e0b454", "#b8b8b8", "#f07fae", "#6fd0e0")


class Palette:
    """The place of each name, which its colour and marker follow from."""

    def __init__(self, names=()):
        self.places = {}
        for name in names:
            self.place(name)

    def place(self, name):
        return self.places.setdefault(name, len(self.places)) % COLOURS


default_palette = Palette()


def number(value):
    """As short as it can be read: 3 digits that count, thousands set off."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    digits = 1 if size >= 10 else 2 if size >= 0.1 else 3
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def count(value):
    """For axes of amounts: 1, 1,000, 10^5."""
    power = round(math.log10(value)) if value > 0 else 0
    if power >= 5 and abs(value - 10 ** power) < value * 1e-9:
        return "10" + str(power).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return number(value)


def nanoseconds(value):
    for limit, unit, size in ((1e3, "ns", 1), (1e6, "µs", 1e3), (1e9, "ms", 1e6), (math.inf, "s", 1e9)):
        if value < limit:
            return f"{number(value / size)} {unit}"
    return ""


def bytes_(value):
    for limit, unit, size in ((1 << 10, "B", 1), (1 << 20, "KiB", 1 << 10), (1 << 30, "MiB", 1 << 20),
                              (math.inf, "GiB", 1 << 30)):
        if value < limit:
            return f"{number(value / size)} {unit}"
    return ""


# ---- scales ----------------------------------------------------------------------------------------------------------

class Scale:
    """From values to a stretch of pixels, with round marks on it."""

    def __init__(self, values, start, end, log=False, from_zero=False):
        self.start, self.end, self.log = start, end, log
        low, high = (min(values), max(values)) if values else (1, 10)
        if log and low <= 0:
            raise ValueError("a logarithmic scale has no place for zero")
        if from_zero and not log:
            low, high = min(low, 0), max(high, 0)
        self.low, self.high, self.ticks = self.log_ticks(low, high) if log else self.linear_ticks(low, high)

    @staticmethod
    def linear_ticks(low, high):
        if low == high:
            low, high = (0, high * 2 or 1) if high >= 0 else (low * 2, 0)
        raw = (high - low) / 5
        power = 10 ** math.floor(math.log10(raw))
        step = next(step * power for step in (1, 2, 5, 10) if step * power >= raw * 0.999)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        return first * step, last * step, [i * step for i in range(first, last + 1)]

    @staticmethod
    def log_ticks(low, high):
        first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
        if first == last:
            last += 1
        steps = (1, 2, 5) if last - first <= 2 else (1,)
        ticks = [step * 10.0 ** power for power in range(first, last + 1) for step in steps]
        while len(ticks) > 2 and ticks[1] <= low * (1 + 1e-9):
            ticks.pop(0)
        while len(ticks) > 2 and ticks[-2] >= high * (1 - 1e-9):
            ticks.pop()
        return ticks[0], ticks[-1], ticks

    def __call__(self, value):
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)


def use_marks(scale, marks):
    """The marks where there are values, where those are few: 1, 2, 4, 8 threads; of those that would overlap, the first."""
    scale.ticks = []
    for mark in marks:
        if not scale.ticks or abs(scale(mark) - scale(scale.ticks[-1])) >= MARK_GAP:
            scale.ticks.append(mark)


# ---- marks -----------------------------------------------------------------------------------------------------------

def escape(text):
    return html.escape(str(text), quote=True)


def text_at(x, y, text, anchor="start", kind=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


def marker(place, x, y, title="", size=4.5):
    """Circle, square, triangle, diamond; the second four of a palette are hollow."""
    if place % 4 == 0:
        shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size * 0.95:.1f}"'
    else:
        around = {1: [(-1, -1), (1, -1), (1, 1), (-1, 1)], 2: [(0, -1.25), (1.15, 0.9), (-1.15, 0.9)],
                  3: [(0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)]}[place % 4]
        corners = " ".join(f"{x + dx * size * 0.87:.1f},{y + dy * size * 0.87:.1f}" for dx, dy in around)
        shape = f'<polygon points="{corners}"'
    hollow = " hollow" if place >= 4 else ""
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'{shape} class="mark s{place}{hollow}">{inside}</{shape[1:].split(" ", 1)[0]}>'


def figure(title, width, height, parts, note=""):
    body = "\n".join(parts)
    caption = f"<figcaption><b>{escape(title)}</b>{' ' + note if note else ''}</figcaption>"
    return (f'<figure>{caption}\n<svg viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{escape(title)}">\n'
            f"{body}\n</svg></figure>")


# ---- lines -----------------------------------------------------------------------------------------------------------

def frame(x, y, x_label, y_label, x_format, y_format):
    """The grid and what stands beside it."""
    parts = []
    for tick in y.ticks:
        parts.append(f'<line x1="{x.start}" x2="{x.end}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" class="grid"/>')
        parts.append(text_at(x.start - 8, y(tick) + 4, y_format(tick), "end", "tick"))
    for tick in x.ticks:
        parts.append(f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{y.start}" y2="{y.start + 5}" class="axis"/>')
        parts.append(text_at(x(tick), y.start + 18, x_format(tick), "middle", "tick"))
    parts.append(f'<line x1="{x.start}" x2="{x.end}" y1="{y.start}" y2="{y.start}" class="axis"/>')
    parts.append(text_at((x.start + x.end) / 2, y.start + 38, x_label, "middle", "name"))
    middle = (y.start + y.end) / 2
    parts.append(f'<g transform="rotate(-90 14 {middle:.1f})">{text_at(14, middle, y_label, "middle", "name")}</g>')
    return parts


def runs_of(points):
    """The stretches of points that were measured."""
    run = []
    for x, y in list(points) + [(None, None)]:
        if y is not None:
            run.append((x, y))
        elif run:
            yield run
            run = []


def spread(wanted, low, high):
    """Places for labels near the wanted ones, none within LABEL_GAP of another."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places = [0.0] * len(wanted)
    last = low - LABEL_GAP
    for i in order:
        places[i] = last = max(wanted[i], last + LABEL_GAP)
    last = high + LABEL_GAP
    for i in reversed(order):
        places[i] = last = min(places[i], last - LABEL_GAP)
    return places


def end_labels(ends, x_end):
    """ends: (place, name, x, y) of the last point of each line; the names stand right of the plot, in order."""
    parts = []
    heights = spread([y for *_, y in ends], TOP + 4, HEIGHT - BOTTOM)
    for (place, name, x, y), at in zip(ends, heights):
        parts.append(f'<path d="M{x + 6:.1f} {y:.1f}L{x_end + 8:.1f} {at:.1f}" class="lead"/>')
        parts.append(marker(place, x_end + 15, at))
        parts.append(text_at(x_end + 24, at + 4, name, "start", "series"))
    return parts


def lines(title, series, x_label, y_label, x_log=False, y_log=False, x_format=count, y_format=number, note="",
          from_zero=True, palette=default_palette):
    """A plot of some series over a common x."""
    points = [(px, py) for one in series for px, py in one.points if py is not None]
    xs = sorted({px for px, _ in points})
    x = Scale(xs, LEFT, WIDTH - RIGHT, x_log)
    y = Scale([py for _, py in points], HEIGHT - BOTTOM, TOP, y_log, from_zero)
    if len(xs) <= 8:
        x.low, x.high = (xs[0], xs[-1]) if len(xs) > 1 else (x.low, x.high)
        use_marks(x, xs)
    parts, ends = frame(x, y, x_label, y_label, x_format, y_format), []
    for one in series:
        place = palette.place(one.name)
        for run in runs_of(one.points):
            path = "L".join(f"{x(px):.1f} {y(py):.1f}" for px, py in run)
            parts.append(f'<path d="M{path}" class="line s{place}"/>')
            parts += [marker(place, x(px), y(py), f"{one.name}, {x_format(px)}: {y_format(py)}") for px, py in run]
        measured = [(px, py) for px, py in one.points if py is not None]
        if measured:
            ends.append((place, one.name, x(measured[-1][0]), y(measured[-1][1])))
    parts += end_labels(ends, x.end)
    return figure(title, WIDTH, HEIGHT, parts, note)


# ---- bars ------------------------------------------------------------------------------------------------------------

def bars(title, groups, unit="", log=False, value_format=number, note="", palette=default_palette):
    """Groups of horizontal bars from zero: [(label, [(name, value or None)])]. On a logarithmic scale, which has no zero, a bar
    would lie: there are dots. A value of None is shown as not measured; a text in its place is shown as it is."""
    values = [v for _, group in groups for _, v in group if isinstance(v, (int, float))]
    left = 20 + 7 * max(len(name) for _, group in groups for name, _ in group)
    x = Scale(values, left, WIDTH - 90, log, True)
    row, gap, parts, at = 20, 26, [], 8
    rows = []
    for label, group in groups:
        if label:
            rows.append(text_at(0, at + 14, label, "start", "group"))
            at += gap - 4
        for name, value in group:
            rows += bar(x, at, row, name, value, value_format, log, palette.place(name))
            at += row
        at += 8
    for tick in x.ticks:
        parts.append(f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="4" y2="{at}" class="grid"/>')
        parts.append(text_at(x(tick), at + 16, value_format(tick), "middle", "tick"))
    parts += rows
    if unit:
        parts.append(text_at((x.start + x.end) / 2, at + 36, unit, "middle", "name"))
    return figure(title, WIDTH, at + (44 if unit else 24), parts, note)


def bar(x, at, row, name, value, value_format, log, place):
    middle = at + row / 2
    parts = [text_at(x.start - 8, middle + 4, name, "end", "series")]
    if not isinstance(value, (int, float)):
        return parts + [text_at(x.start + 6, middle + 4, "not measured" if value is None else value, "start", "none")]
    end, title = x(value), f"{name}: {value_format(value)}"
    if log:
        parts.append(f'<line x1="{x.start}" x2="{end:.1f}" y1="{middle}" y2="{middle}" class="stem s{place}"/>')
        parts.append(marker(place, end, middle, title, 5))
    else:
        parts.append(f'<rect x="{x.start}" y="{at + 3}" width="{max(end - x.start, 1):.1f}" height="{row - 6}" '
                     f'class="bar s{place}"><title>{escape(title)}</title></rect>')
    return parts + [text_at(end + 9, middle + 4, value_format(value), "start", "value")]


# ---- pages -----------------------------------------------------------------------------------------------------------

def rules(selector, colours):
    return "".join(f"{selector} .s{i}{{--c:{colour}}}" for i, colour in enumerate(colours))


STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--soft:#5b6570;--grid:#e3e7ec;--axis:#9aa4af;--shade:#f5f7f9}
@media (prefers-color-scheme:dark){:root{--paper:#14171b;--ink:#e6e9ed;--soft:#9aa5b1;--grid:#2a3037;--axis:#5c6773;--shade:#1c2127}}
body{background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;max-width:60rem;
margin:2rem auto;padding:0 1.2rem}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 .3rem}h2{font-size:1.25rem;margin:2.4rem 0 .4rem}
p{max-width:46rem}p.lead{color:var(--soft);margin-top:0}a{color:inherit}code{font-size:.92em}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums;margin:.8rem 0}
.wide{overflow-x:auto}th,td{padding:.28rem .55rem;text-align:right;border-bottom:1px solid var(--grid)}
td{white-space:nowrap}td:first-child{white-space:normal}th{color:var(--soft);font-weight:600;vertical-align:bottom}th:first-child,td:first-child{text-align:left}
tbody tr:hover{background:var(--shade)}td.bad{font-weight:700}
figure{margin:1rem 0 1.6rem;break-inside:avoid}figcaption{margin-bottom:.4rem;max-width:46rem}
svg{width:100%;max-width:720px;height:auto;display:block}svg text{fill:var(--ink);font-size:13px}
svg .tick,svg .name,svg .none{fill:var(--soft)}svg .tick{font-size:12px}svg .group{font-weight:600}
.grid{stroke:var(--grid)}.axis{stroke:var(--axis)}.lead{stroke:var(--grid);fill:none}
.line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}.mark{fill:var(--c);stroke:var(--c);stroke-width:1.5}
.mark.hollow{fill:var(--paper)}.bar{fill:var(--c)}.stem{stroke:var(--c);stroke-width:1.5;opacity:.55}
""" + rules(":root", LIGHT) + "\n@media (prefers-color-scheme:dark){" + rules(":root", DARK) + """}
@media print{:root{color-scheme:light;--paper:#fff;--ink:#000;--soft:#444;--grid:#ccc;--axis:#666;--shade:#fff}
body{margin:0;max-width:none;font-size:11pt}table{font-size:7.5pt}th,td{padding:.15rem .3rem}.wide{overflow:visible}h2{break-after:avoid}""" + rules(":root", LIGHT) + "}\n"


def heading(text, anchor=""):
    target = f' id="{escape(anchor)}"' if anchor else ""
    return f"<h2{target}>{escape(text)}</h2>"


def paragraph(markup):
    """Markup is HTML: escape what comes from outside."""
    return f"<p>{markup}</p>"


def table(header, rows):
    """Cells are plain text; one that begins with ! is bad news and stands out."""
    def cell(value):
        value = str(value)
        return f'<td class="bad">{escape(value[1:])}</td>' if value.startswith("!") else f"<td>{escape(value)}</td>"
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "\n".join("<tr>" + "".join(cell(value) for value in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def page(title, parts, lead=""):
    """A whole HTML file. lead: what stands below the title, as HTML."""
    body = "\n".join(parts)
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width,initial-scale=1">'
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n"
            + (f'<p class="lead">{lead}</p>\n' if lead else "") + f"{body}\n</body></html>\n")
