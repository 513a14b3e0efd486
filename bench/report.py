#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A table and a roofline of what tessera-bench measured.

usage: report.py FILE [--table OUT.md] [--plot OUT.png]
       report.py FILE --speeds    the table of docs/performance.md and README.md
FILE is tessera-bench's --benchmark_out, JSON or CSV. The table goes to standard output without
--table; the plot needs matplotlib."""
import argparse
import csv
import json
import pathlib
import re
import sys

NAME = re.compile(r"(?P<operator>\w+)/(?P<pass>\w+)/(?P<implementation>[\w.]+)/(?P<types>[\w:]+)"
                  r"(?:/(?P<layout>vh|hv))?(?P<extents>/B\d+(?:/[A-Z]\d+)*)"
                  r"(?P<rest>(?:/\w[\w.=-]*)*)")
MARKS = {"forward": "o", "backward": "s", "value_and_grad": "^"}


def fail(message):
    sys.exit(f"report.py: error: {message}")


def read_json(text):
    data = json.loads(text)
    if not isinstance(data, dict) or "benchmarks" not in data:
        raise ValueError("there is no list 'benchmarks'")
    return data.get("context", {}), data["benchmarks"]


def read_csv(text):
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("name,")), None)
    if start is None:
        raise ValueError("there is no header that begins with 'name,'")
    rows = []
    for row in csv.DictReader(lines[start:]):
        for key, value in row.items():
            try:
                row[key] = float(value)
            except (TypeError, ValueError):
                pass
        row["error_occurred"] = row.get("error_occurred") == "true"
        rows.append(row)
    return {}, rows


def read(path):
    """The context and the rows that have results; what failed is told on stderr."""
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
        context, rows = (read_json if text.lstrip().startswith("{") else read_csv)(text)
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")
    good = []
    for row in rows:
        match = NAME.match(row["name"])
        if match is None or row.get("run_type", "iteration") != "iteration":
            continue
        if row.get("error_occurred"):
            print(f"{row['name']}: {row.get('error_message', '')}", file=sys.stderr)
            continue
        row.update({"parts": match.groupdict()})
        good.append(row)
    if not good:
        fail(f"{path}: no row has results")
    return context, good


def extents_of(parts):
    return {each[0]: int(each[1:]) for each in parts["extents"][1:].split("/")}


def shape(parts):
    """"512 x 2048 x 32768" of a last layer, else "B1 Q8 S2048 D128"; then what else the row has."""
    extents = extents_of(parts)
    if extents.keys() <= set("BHV"):
        text = " x ".join(map(str, extents.values()))
    else:
        text = " ".join(f"{letter}{extent}" for letter, extent in extents.items())
    return text + parts["rest"].replace("/", ", ")


def where_of(implementation):
    """Whose peaks the context holds for it."""
    return "device" if implementation.startswith("opencl") else "host"


def peak_of(context, where, kind):
    """A measured peak, or None where there is none."""
    text = context.get(f"peak_{where}_{kind}", "")
    return float(text) if text[:1].isdigit() else None


def pyplot():
    try:
        import matplotlib
    except ImportError:
        fail("the plot needs matplotlib (Debian: python3-matplotlib)")
    matplotlib.use("Agg")
    import matplotlib.pyplot
    return matplotlib.pyplot


def figure(row, name, form):
    """A figure that results of an older tessera-bench do not have."""
    return format(row[name], form) if name in row else ""


def table(context, rows):
    out = []
    for key in ("device", "driver", "platform", "processor", "host_threads", "tessera_revision",
                "tessera_build", "environment", "date"):
        if context.get(key):
            out.append(f"- {key}: {context[key]}")
    peaks = {k: v for k, v in context.items() if k.startswith("peak_") and v[0].isdigit()}
    if peaks:
        out.append("- measured peaks, 1e9/s: " +
                   ", ".join(f"{k[5:]} {float(v) * 1e-9:.1f}" for k, v in peaks.items()))
    out += ["", "| pass | implementation | types | layout | shape | median ms | spread | GFLOP/s | "
            "of peak | of peak at that moment | of bound | extra MiB | first call s | "
            "compiling s | tokens/s | deviation, mean | largest | |", "|---" * 18 + "|"]
    several = len({row["parts"]["operator"] for row in rows}) > 1
    for row in rows:
        p = row["parts"]
        note = "noisy" if row["noisy"] else ""
        of = f"{p['operator']} " if several else ""
        out.append(
            f"| {of}{p['pass']} | {p['implementation']} | {p['types']} | {p['layout'] or ''} | "
            f"{shape(p)} | {1e3 * row['median_seconds']:.2f} | {row['spread']:.1%} | "
            f"{row['flops_per_second'] * 1e-9:.1f} | {row['fraction_of_peak']:.1%} | "
            f"{row['fraction_of_bracket']:.1%} | {row['fraction_of_bound']:.1%} | "
            f"{row['extra_bytes_peak'] / 2**20:.1f} | {row['first_call_seconds']:.3f} | "
            f"{figure(row, 'compile_seconds', '.3f')} | {row['tokens_per_second']:.0f} | "
            f"{figure(row, 'mean_abs_deviation', '.2g')} | {row['max_abs_deviation']:.2g} | "
            f"{note} |")
    return "\n".join(out) + "\n"


def speeds(context, rows):
    """Where and when, then GFLOP/s and share of the peak of each pass and type, in both layouts."""
    peaks = {row["parts"]["types"]: row["peak_flops_per_second"] * 1e-9 for row in rows}
    of_types = ", ".join(f"{peak:.0f} GFLOP/s in {types}" for types, peak in peaks.items())
    out = [f"Device `{context['device']}`, driver {context['driver']}, {context['date'][:10]}, "
           f"tessera {context['tessera_revision']};", f"peaks: {of_types}.", "",
           "| pass | type | GFLOP/s, `[V,H]` | `[H,V]` |", "|---|---|---|---|"]
    cells = {}
    for row in rows:
        p = row["parts"]
        cells.setdefault((p["pass"], p["types"]), {})[p["layout"]] = (
            f"{row['flops_per_second'] * 1e-9:.0f}, {row['fraction_of_peak']:.0%}"
            f"{', noisy' if row['noisy'] else ''}")
    for (which, types), by_layout in cells.items():
        out.append(f"| {which} | {types} | {by_layout.get('vh', '')} | {by_layout.get('hv', '')} |")
    return "\n".join(out) + "\n"


def plot(context, rows, path):
    """Every row at its FLOP per byte, joined to its own bound: the measured peak that says the most
    for it, which for a loss may be exp or, with little to multiply, memory."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(11, max(6.5, 0.22 * len(rows))))
    intensities = [row["flops"] / row["bytes_ideal"] for row in rows]
    low, high = min(1.0, min(intensities) / 4), max(intensities) * 4  # with the slope in sight
    styles = {}
    roofs = set()
    for row, x in zip(rows, intensities, strict=True):
        p = row["parts"]
        where = where_of(p["implementation"])
        memory = max((peak_of(context, where, k) or 0.0 for k in ("read", "copy")), default=0.0)
        roofs.add((where, memory, row["peak_flops_per_second"]))
        style = styles.setdefault((p["implementation"], p["types"]), f"C{len(styles) % 10}")
        y = row["flops_per_second"]
        bound = y / row["fraction_of_bound"] if row["fraction_of_bound"] > 0 else None
        if bound:
            axes.plot([x, x], [y, bound], color=style, linewidth=0.6, alpha=0.7)
            axes.plot([x], [bound], "_", color=style, markersize=12)
        by = re.search(r"bound by (\w+)", str(row.get("label", "")))
        axes.scatter(x, y, color=style, marker=MARKS[p["pass"]], s=48,
                     facecolors="none" if row["noisy"] else style,
                     label=f"{row['fraction_of_bound']:.0%} of {by.group(1) if by else 'bound'}: "
                           f"{p['implementation']} {p['pass']} {p['types']}"
                           f"{' ' + p['layout'] if p['layout'] else ''}, {shape(p)}"
                           f"{', noisy' if row['noisy'] else ''}")
    for where, memory, multiply in sorted(roofs):
        line = "-" if where == "device" else "--"
        points = [low, high] if not memory else [low, min(max(multiply / memory, low), high), high]
        heights = [min(multiply, memory * x) if memory else multiply for x in points]
        axes.plot(points, heights, line, color="black", linewidth=1.2,
                  label=f"measured peak, {where}: {multiply * 1e-9:.0f} GFLOP/s" +
                        (f", {memory * 1e-9:.0f} GB/s" if memory else ""))
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte of inputs and outputs",
             ylabel="FLOP/s",
             title=f"tessera-bench on {context.get('device', 'this machine')}, "
                   f"{str(context.get('date', ''))[:16]}\n"
                   "each row below the tick of its own bound; hollow: the machine was not quiet")
    axes.grid(True, which="both", alpha=0.25)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.savefig(path, dpi=130, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--table", help="write the table here instead of printing it")
    parser.add_argument("--plot", help="write a roofline here (PNG, SVG or PDF)")
    parser.add_argument("--speeds", action="store_true",
                        help="print the speeds alone, as docs/performance.md has them")
    arguments = parser.parse_args()
    context, rows = read(arguments.file)
    text = (speeds if arguments.speeds else table)(context, rows)
    if arguments.table:
        pathlib.Path(arguments.table).write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    if arguments.plot:
        plot(context, rows, arguments.plot)


if __name__ == "__main__":
    main()
