# SPDX-License-Identifier: MIT
"""What the benchmarks come to: a table for the terminal, report.html with plots, and docs/benchmarks.md."""
import plots
from bench_notes import SCALING, SECTIONS, WORKLOAD_NOTES
from bench_results import LABELS, TARGETS, number, verdict

SCALE_PROCS, SCALE_SIZES = (1, 2, 4, 8, 16), (1000, 10000, 100000, 1000000)
WANTED_ROUNDS = 5  # of a full run
FIXED_PROCS, FIXED_SIZE = 2, 10000  # while the other one changes


def point(name, procs, size):
    """What a value of a scaling workload is called."""
    return f"{name}[p={procs},n={size}]"


def is_point(name):
    return "[" in name


# ---- tables ----------------------------------------------------------------------------------------------------------

def pair(results, label, name):
    best, median = results.best(label, name), results.median(label, name)
    return "-" if best is None else f"{number(best)} / {number(median)}"


def peers_of(results):
    return [label for label in results.labels if label != "weft"]


def ratio_of(results, peer, name):
    ratio = results.advantage(peer, name)
    return "-" if ratio is None else f"{ratio:.2f}"


def table_rows(results):
    """All but the scaling, the header first."""
    header = ["workload", "unit", "Weft"]
    for peer in peers_of(results):
        header += [LABELS[peer], f"{LABELS[peer]}:Weft"]
    rows = [header]
    for name, unit in results.units.items():
        if is_point(name):
            continue
        more = ", more is better" if results.higher_is_better(name) else ""
        row = [name, unit + more, pair(results, "weft", name)]
        for peer in peers_of(results):
            row += [pair(results, peer, name), ratio_of(results, peer, name)]
        rows.append(row)
    return rows


def scaling_points(results, name, axis):
    """(x, the value's name) along one axis, "p" or "n", where anybody was measured."""
    if axis == "p":
        points = [(procs, point(name, procs, FIXED_SIZE)) for procs in SCALE_PROCS]
    else:
        points = [(size, point(name, FIXED_PROCS, size)) for size in SCALE_SIZES]
    return [(x, value) for x, value in points if value in results.units]


def scaling_rows(results, name, axis):
    """The header first; [] where nothing was measured."""
    points = scaling_points(results, name, axis)
    labels = [label for label in results.labels if any((label, value) in results.samples for _, value in points)]
    if not points or not labels:
        return []
    rows = [["Ps" if axis == "p" else "goroutines"] + [LABELS[label] for label in labels]]
    return rows + [[f"{x:,}"] + [pair(results, label, value) for label in labels] for x, value in points]


def aligned(rows, left=1):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))]
        yield "  ".join(cells).rstrip()


def few_rounds(results):
    return f" (fewer than the {WANTED_ROUNDS} of a full run)" if results.rounds < WANTED_ROUNDS else ""


def print_tables(results):
    rows = table_rows(results)
    if len(rows) > 1:
        print("\n".join(aligned(rows, 2)))
    for name, words in SCALING:
        for axis, other in (("p", f"{FIXED_SIZE:,} goroutines"), ("n", f"{FIXED_PROCS} Ps")):
            rows = scaling_rows(results, name, axis)
            if rows:
                print(f"\n{name}: {words}, {other}, ns")
                print("\n".join(aligned(rows)))
    for label, names, reason in left_out(results):
        print(f"\nleft out: {LABELS[label]} {', '.join(names)}: {reason}")
    print(f"\nbest / median of {results.rounds} interleaved runs{few_rounds(results)}; the ratios compare the best, above 1 Weft is"
          " ahead")


def print_targets(results):
    for target in TARGETS:
        met, words = target.judge(results)
        if met is not None:
            print(f"{verdict(met):7} {target.key}: {words}; wanted: {target.wanted}")


def left_out(results):
    """What a program cannot do: (label, its workloads, the reason), those of one reason together."""
    together = {}
    for (label, workload), reason in results.impossible.items():
        together.setdefault((label, reason), []).append(workload)
    return [(label, workloads, reason) for (label, reason), workloads in together.items()]


def losses(results):
    """Everything at which a peer that ran the workload did better: (name, label, how many times)."""
    for name in results.units:
        for peer in peers_of(results):
            ratio = results.advantage(peer, name)
            if ratio is not None and ratio < 1:
                yield name, peer, 1 / ratio


def summary(results):
    """How many targets are met, and which are not; what was not measured is told where all should have been."""
    verdicts = {target.key: verdict(target.judge(results)[0]) for target in TARGETS}
    judged = [outcome for outcome in verdicts.values() if outcome != "not measured" or not results.partial]
    sentences = [f"{judged.count('met')} of {len(judged)} targets are met."]
    for outcome in ("missed",) if results.partial else ("missed", "not measured"):
        names = [name for name, found in verdicts.items() if found == outcome]
        if names:
            sentences.append(f"{outcome.capitalize()}: {', '.join(names)}.")
    return " ".join(sentences)


# ---- report.html -----------------------------------------------------------------------------------------------------

def values_of(results, workload):
    return [name for name in results.units if name == workload or name.startswith(f"{workload}.")]


def section_figures(results, title, workloads):
    """A plot for each unit, since different ones have no common axis."""
    by_unit = {}
    for workload in workloads:
        for name in values_of(results, workload):
            bars = [(LABELS[label], results.best(label, name)) for label in results.measured(name)]
            if all(value > 0 for _, value in bars):
                by_unit.setdefault(results.units[name], []).append((name, bars))
    for unit, groups in by_unit.items():
        better = "More is better." if unit.endswith("/s") else "Less is better."
        yield plots.bars(f"{title}, {unit}", groups, unit=unit, log=True, note=f"{better} Logarithmic.")


def scaling_figures(results):
    for name, words in SCALING:
        for axis, x_label, other in (("p", "Ps", f"{FIXED_SIZE:,} goroutines"),
                                     ("n", "goroutines", f"{FIXED_PROCS} Ps")):
            points = scaling_points(results, name, axis)
            series = [plots.Series(LABELS[label], [(x, results.best(label, value)) for x, value in points])
                      for label in results.labels if any((label, value) in results.samples for _, value in points)]
            if series:
                yield plots.lines(f"{name}: {words}, {other}", series, x_label, "time of each", x_log=True, y_log=True,
                                  y_format=plots.nanoseconds)


def target_table(results):
    rows = []
    for target in TARGETS:
        met, words = target.judge(results)
        if met is not None or not results.partial:
            rows.append([target.sentence, target.key, words or "-", "!missed" if met is False else verdict(met)])
    return plots.table(["target", "workload", "measured", "result"], rows)


def marked(row):
    """Ratios below 1 stand out; they are every second cell from the fifth on."""
    return [f"!{cell}" if i >= 4 and i % 2 == 0 and cell != "-" and float(cell) < 1 else cell
            for i, cell in enumerate(row)]


def html(results):
    facts = "; ".join(f"{name}: {value}" for name, value in results.facts.items())
    less = f" Not a full run: {', '.join(results.partial)}." if results.partial else ""
    lead = f"Best of {results.rounds} runs{few_rounds(results)}, the programs taking turns.{less} {plots.escape(facts)}."
    for label in LABELS.values():
        plots.default_palette.place(label)
    parts = [plots.heading("Targets"), plots.paragraph(plots.escape(summary(results))), target_table(results)]
    figures = list(scaling_figures(results))
    if figures:
        parts += [plots.heading("How cost grows")] + figures
    for title, workloads in SECTIONS:
        figures = list(section_figures(results, title, workloads))
        if figures:
            parts += [plots.heading(title)] + figures
    rows = table_rows(results)
    parts += [plots.heading("All values"),
              plots.paragraph("Best / median. A ratio compares the best and is above 1 where Weft is ahead; bold where it is"
                              " not."),
              plots.table(rows[0], [marked(row) for row in rows[1:]])]
    if results.impossible:
        parts += [plots.heading("Left out"),
                  plots.table(["program", "workloads", "reason"],
                              [[LABELS[label], ", ".join(names), reason] for label, names, reason in left_out(results)])]
    if results.failures:
        parts += [plots.heading("Runs that failed"),
                  plots.table(["program", "workload", "reason"], [[LABELS[f[0]], *f[1:]] for f in results.failures])]
    return plots.page("Weft's benchmarks", parts, lead)


# ---- docs/benchmarks.md ----------------------------------------------------------------------------------------------

def markdown_table(rows, left=1):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * left + "---:|" * (len(rows[0]) - left))
    return lines


def markdown_targets(results):
    lines = []
    for target in TARGETS:
        met, words = target.judge(results)
        measured = f" ({words})" if words else ""
        lines.append(f"- **{verdict(met)}**: {target.sentence} `{target.name}`{measured}")
    return lines


def markdown_left_out(results):
    if not results.impossible:
        return []
    lines = [f"- {LABELS[label]} {', '.join(f'`{name}`' for name in names)}: {reason}."
             for label, names, reason in left_out(results)]
    return ["", "Left out, since it cannot be done:", ""] + lines


def markdown_losses(results):
    lines = []
    for name, peer, times in losses(results):
        figures = f"{number(results.best('weft', name))} against {number(results.best(peer, name))}"
        lines.append(f"- `{name}`: {LABELS[peer]} is {times:.2f} times better ({figures} {results.units[name]}).")
    return lines or ["Nowhere in this run."]


def markdown_scaling(results):
    lines = []
    for name, words in SCALING:
        for axis, other in (("p", f"{FIXED_SIZE:,} goroutines"), ("n", f"{FIXED_PROCS} Ps")):
            rows = scaling_rows(results, name, axis)
            if rows:
                lines += ["", f"`{name}`: {words}, {other}, ns.", ""] + markdown_table(rows)
    return ["", "## How cost grows"] + lines if lines else []


def markdown(results):
    lines = ["# Benchmarks", "",
             "This file is generated: `make bench` measures, `tools/bench.py --docs` writes it from what was measured. Do not"
             " edit it.", "",
             f"Best / median of {results.rounds} runs{few_rounds(results)}, the programs taking turns. A ratio compares the best and is above 1"
             " where Weft is ahead.",
             "The figures hold for this machine at that time; the ratios travel better than the figures.", ""]
    lines += [summary(results), ""] + markdown_table(table_rows(results), 2) + markdown_left_out(results)
    lines += markdown_scaling(results)
    lines += ["", "## Targets", ""] + markdown_targets(results)
    lines += ["", "## Where Weft loses", "", "Whatever a peer does better, target or not.", ""] + markdown_losses(results)
    if results.failures:
        lines += ["", "## Runs that failed", ""]
        lines += [f"- {LABELS[label]} `{workload}`: {reason}." for label, workload, reason in results.failures]
    lines += ["", "## The machine", ""] + [f"- {name}: {value}" for name, value in results.facts.items()]
    lines += ["", "## The workloads", ""] + WORKLOAD_NOTES
    return "\n".join(lines) + "\n"
