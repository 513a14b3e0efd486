# SPDX-License-Identifier: Apache-2.0
"""The plots and the columns of the tables of sweep.py."""
import math

import report

# Counters of tessera-bench that a sweep keeps.
FIGURES = ("median_seconds", "spread", "flops", "flops_per_second", "peak_flops_per_second",
           "fraction_of_peak", "fraction_of_bracket", "fraction_of_bound", "bytes_ideal",
           "bytes_moved", "extra_bytes_peak", "first_call_seconds", "tokens_per_second", "noisy",
           "samples", "samples_counted", "max_abs_deviation")
# Results of an older tessera-bench do not have these.
LATER_FIGURES = ("compile_seconds", "mean_abs_deviation")
# And of rows with gradient_filter_eps.
FILTER_FIGURES = tuple(f"grad_{of}_filter_{what}" for of in "xw" for what in ("norm", "max"))

_SPEED = [("median ms", "milliseconds", ".2f"), ("spread", "spread", ".1%"),
          ("GFLOP/s", "gflops", ".1f"), ("of peak", "fraction_of_peak", ".1%"),
          ("of peak at that moment", "fraction_of_bracket", ".1%"),
          ("of bound", "fraction_of_bound", ".1%")]
TABLES = {
    "threads": _SPEED + [("time / one thread's", "time_of_first", ".2f")],
    "b": _SPEED + [("tokens/s", "tokens_per_second", ".0f")],
    "v": _SPEED + [("extra MiB", "extra_mib", ".1f")],
    "workspace": _SPEED + [("extra MiB", "extra_mib", ".1f")],
    "small": [("median ms", "milliseconds", ".3f"), ("spread", "spread", ".1%"),
              ("GB/s of inputs, each read once", "gigabytes", ".1f"),
              ("of read bandwidth", "fraction_of_read", ".1%"),
              ("of bound", "fraction_of_bound", ".1%"), ("tokens/s", "tokens_per_second", ".0f")],
    "ignored": _SPEED + [("time / no row ignored", "time_of_first", ".2f")],
    "gradients": [("median ms", "milliseconds", ".2f"), ("spread", "spread", ".1%"),
                  ("GFLOP/s", "gflops", ".1f"),
                  ("of peak at that moment", "fraction_of_bracket", ".1%"),
                  ("time / both", "time_of_first", ".2f")],
    "filter": [("median ms", "milliseconds", ".2f"), ("spread", "spread", ".1%"),
               ("time / eps 0 in turns", "filter_time", ".2f"),
               ("grad_x off, of its norm", "grad_x_filter_norm", ".1e"),
               ("at most", "grad_x_filter_max", ".1e"),
               ("grad_w off, of its norm", "grad_w_filter_norm", ".1e"),
               ("at most", "grad_w_filter_max", ".1e")],
    "rows": [("median ms", "milliseconds", ".2f"), ("spread", "spread", ".1%"),
             ("GB/s of what memory must move", "gigabytes", ".1f"),
             ("of the copy bandwidth", "fraction_of_bound", ".1%"),
             ("at that moment", "fraction_of_bracket", ".1%")],
}


def value_text(sweep, value):
    """A swept value for people: powers of two as such where they are thresholds."""
    if sweep == "filter" and value > 0 and math.log2(value).is_integer():
        return f"2^{math.log2(value):.0f}"
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def series(row):
    return row["pass"], row["implementation"], row["types"], row["layout"]


def add_units(rows):
    """Adds the units that tables and plots show."""
    for row in rows:
        row["milliseconds"] = 1e3 * row["median_seconds"]
        row["gflops"] = 1e-9 * row["flops_per_second"]
        row["gigabytes"] = 1e-9 * row["bytes_per_second"]
        row["extra_mib"] = row["extra_bytes_peak"] / 2**20


def title(data, rows):
    context = data["runs"][0]["context"]
    shape = dict(zip("BHV", data["shape"], strict=True))
    if data["sweep"] == "rows":
        shape = {"B * H": "2^25"}
    for name in {"b": "B", "small": "B", "v": "V"}.get(data["sweep"], ""):
        shape.pop(name)
    # Google Benchmark writes the local time with its offset: the day and the minute are enough.
    return (f"{data['sweep']}: {', '.join(f'{k} {v}' for k, v in shape.items())}; "
            f"{context.get('device', 'host')}, {context.get('driver', '')}\n"
            f"{context.get('date', '')[:16]}, revision {context.get('tessera_revision', '?')}"
            + ("; hollow: the machine was not quiet" if any(r["noisy"] for r in rows) else ""))


def lines(axes, rows, key, factor=1.0):
    """One line per series; hollow marks where a row is noisy."""
    names = list(dict.fromkeys(series(r) for r in rows))
    for i, name in enumerate(names):
        mine = [r for r in rows if series(r) == name and r[key] != ""]
        xs = [r["value"] for r in mine]
        ys = [r[key] * factor for r in mine]
        axes.plot(xs, ys, color=f"C{i}", linewidth=1.2,
                  label=f"{name[0]}, {name[1]}, {name[2]} {name[3] or ''}")
        for x, y, r in zip(xs, ys, mine, strict=True):
            axes.plot([x], [y], report.MARKS[name[0]], color=f"C{i}",
                      fillstyle="none" if r["noisy"] else "full")


def roofs(axes, rows, key, factor=1.0):
    """What the measured peaks allow at each point: dotted, in the colour of its series."""
    for i, name in enumerate(dict.fromkeys(series(r) for r in rows)):
        mine = [r for r in rows if series(r) == name]
        axes.plot([r["value"] for r in mine], [r[key] * factor for r in mine], ":",
                  color=f"C{i}", linewidth=1.0, label="its bound" if i == 0 else None)


def bars(axes, rows, key, what):
    names = list(dict.fromkeys(series(r) for r in rows))
    values = list(dict.fromkeys(r["value"] for r in rows))
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        for j, value in enumerate(values):
            for r in rows:
                if series(r) == name and r["value"] == value:
                    at = j + (i - (len(names) - 1) / 2) * width
                    axes.bar(at, r[key], width, color=f"C{i}", alpha=0.5 if r["noisy"] else 1.0,
                             label=f"{name[0]}, {name[1]}, {name[2]} {name[3] or ''}"
                             if j == 0 else None)
                    axes.text(at, r[key], f"{r[key]:.2f}", ha="center", va="bottom", fontsize=7)
    axes.set_xticks(range(len(values)),
                    [f"{what}: {value_text(rows[0]['sweep'], v)}" for v in values])


def draw(data, rows, path):
    plt = report.pyplot()
    sweep = data["sweep"]
    panels = 1 if sweep in ("gradients", "small", "filter", "rows") else 2
    for row in rows:
        row["sweep"] = sweep
    figure, axes = plt.subplots(panels, 1, figsize=(9, 4.2 * panels + 0.6), squeeze=False)
    top, bottom = axes[0][0], axes[-1][0]
    if sweep == "gradients":
        bars(top, rows, "time_of_first", "gradients")
        top.axhline(0.7, color="black", linestyle="--", linewidth=0.8, label="0.7 of both")
        top.set_ylabel("time / time of both gradients")
    elif sweep == "filter":
        bars(top, rows, "filter_time", "eps")
        top.set_ylabel("time / time without a filter")
    elif sweep == "small":
        lines(top, rows, "fraction_of_read")
        top.axhline(1.0, color="black", linewidth=0.8, label="measured read bandwidth")
        top.axhline(0.85, color="black", linestyle="--", linewidth=0.8, label="85% of it")
        top.set(xscale="log", xlabel="tokens, B", ylim=(0, None),
                ylabel="bytes of inputs, each once / time / read bandwidth")
    elif sweep == "rows":
        lines(top, rows, "fraction_of_bracket")
        top.axhline(0.9, color="black", linestyle="--", linewidth=0.8, label="90% of it")
        top.set(xscale="log", xlabel="length of a row, H", ylim=(0, None),
                ylabel="of the copy bandwidth at that moment")
    elif sweep == "ignored":
        lines(top, rows, "time_of_first")
        xs = sorted({r["value"] for r in rows})
        top.plot(xs, [1.0 - x for x in xs], "--", color="black", linewidth=0.8,
                 label="share of the rows that count")
        top.set_ylabel("time / time with no ignored row")
        lines(bottom, rows, "gflops")
        bottom.set(ylabel="GFLOP/s, credited for all rows", xlabel="share of ignored rows")
    else:
        label = {"threads": "threads", "b": "tokens, B", "v": "vocabulary, V",
                 "workspace": "workspace_bytes / bytes of the f32 logits"}[sweep]
        lines(top, rows, "gflops")
        roofs(top, rows, "roof_flops_per_second", 1e-9)
        top.set(ylabel="GFLOP/s (2BHV, 6BHV)", ylim=(0, None))
        lines(bottom, rows, "fraction_of_bracket")
        bottom.set(ylabel="of the peak at that moment", xlabel=label, ylim=(0, 1.05))
        for panel in (top, bottom):
            if sweep != "threads":
                panel.set_xscale("log", base=2)
            else:
                panel.set_xticks(sorted({r["value"] for r in rows}))
    for (panel,) in axes:
        panel.grid(True, which="both", alpha=0.25)
    top.set_title(title(data, rows), fontsize=9)
    top.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.savefig(path, dpi=130, bbox_inches="tight")
