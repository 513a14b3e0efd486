# SPDX-License-Identifier: Apache-2.0
"""What a run of the peers leaves: samples.csv, summary.csv, table.md and chart.png."""
import csv
import sys

import turns

MOST_OF_PEAK = 1.03
COLUMNS = [
    "peer", "pass", "dtype", "w_layout", "b", "h", "v", "reason", "what", "version", "samples",
    "samples_counted", "noisy", "median_seconds", "spread", "flops_per_second",
    "peak_flops_per_second", "fraction_of_peak", "times_of_baseline",
    "first_seconds", "call_bytes", "call_bytes_beyond_gradients", "loss", "loss_deviation",
    "grad_x_deviation", "grad_w_deviation"]


def summaries(rows, shape, baseline):
    b, h, v = shape
    best = {}
    for row in rows:
        for s in row.samples:
            best[row.dtype] = max(best.get(row.dtype) or 0.0, s["before"] or 0.0, s["after"] or 0.0)
    lines = []
    for row in rows:
        line = dict.fromkeys(COLUMNS, "")
        line.update({"peer": row.peer, "pass": row.which, "dtype": row.dtype,
                     "w_layout": row.layout, "b": b, "h": h, "v": v}, **row.facts)
        line["reason"] = row.reason
        if not row.reason and row.samples:
            other = next((r for r in rows if r.peer == baseline and r.which == row.which and
                          r.dtype == row.dtype and not r.reason), None)
            flops = (2 if row.which == "forward" else 6) * b * h * v
            line.update(turns.summary(row, flops, best.get(row.dtype), other))
        lines.append(line)
    return lines


def impossible(lines):
    """Of rows that are faster than the best peak of the run by more than a peak's own spread, what
    is wrong: either the peak or the row was not measured."""
    return [f"{s['peer']}, {s['pass']}, {s['dtype']}: {s['fraction_of_peak']:.1%} of the "
            "measured peak" for s in lines if s["fraction_of_peak"] not in ("", None) and
            s["fraction_of_peak"] > MOST_OF_PEAK]


def write_csv(path, columns, lines):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(lines)


def table(title, heads, rows):
    lines = [f"**{title}**", "", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(cells) + " |" for cells in rows), ""])


def markdown(about, lines, baseline):
    out = [f"- {key}: {value}" for key, value in about.items()]
    for which, dtype in dict.fromkeys((s["pass"], s["dtype"]) for s in lines):
        out += ["", f"**{which}, {dtype}**", "",
                "| peer | GFLOP/s | of peak | ms | spread | samples | "
                f"time / {baseline} | memory of a call, MiB | beyond gradients | first call s | "
                "loss off by | gradients off by | |", "|---" * 13 + "|"]
        for s in lines:
            if (s["pass"], s["dtype"]) != (which, dtype):
                continue
            if s["reason"] or s["median_seconds"] == "":
                out.append(f"| {s['peer']} " + "| " * 11 + f"| {s['reason'] or 'no samples'} |")
                continue

            def share(key, s=s):
                return f"{s[key]:.1%}" if s[key] != "" else ""

            def number(key, form, factor=1.0, s=s):
                return format(s[key] * factor, form) if s[key] not in ("", None) else ""
            gradients = [number(k, ".1e") for k in ("grad_x_deviation", "grad_w_deviation")]
            out.append(
                f"| {s['peer']} | {s['flops_per_second'] * 1e-9:.1f} | {share('fraction_of_peak')} "
                f"| {1e3 * s['median_seconds']:.0f} | "
                f"{s['spread']:.1%} | {s['samples']}{' noisy' if s['noisy'] else ''} | "
                f"{number('times_of_baseline', '.2f')} | {number('call_bytes', '.0f', 2**-20)} | "
                f"{number('call_bytes_beyond_gradients', '.0f', 2**-20)} | "
                f"{number('first_seconds', '.1f')} | {number('loss_deviation', '.1e')} | "
                f"{', '.join(g for g in gradients if g)} | {s['what']} |")
    return "\n".join(out) + "\n"


def chart(path, about, lines):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    groups = list(dict.fromkeys((s["pass"], s["dtype"]) for s in lines))
    peers = list(dict.fromkeys(s["peer"] for s in lines))
    figure, axes = plt.subplots(2, 1, figsize=(3.2 + 3.4 * len(groups), 9.5))
    width = 0.85 / len(peers)
    for panel, (key, factor, title) in zip(axes, (
            ("flops_per_second", 1e-9, "GFLOP/s (2BHV forward, 6BHV with gradients)"),
            ("call_bytes_beyond_gradients", 2.0**-20,
             "memory of a call beyond the gradients, MiB")), strict=True):
        for i, peer in enumerate(peers):
            for g, group in enumerate(groups):
                s = next(s for s in lines if s["peer"] == peer and (s["pass"], s["dtype"]) == group)
                at = g + (i - (len(peers) - 1) / 2) * width
                if s["reason"] or s[key] == "":
                    panel.text(at, 0, "x", ha="center", va="bottom", fontsize=8, color="gray")
                    continue
                value = max(s[key] * factor, 0.0)
                panel.bar(at, value, width, color=f"C{i}" if i < 10 else "black",
                          label=peer, alpha=0.5 if s.get("noisy") else 1.0)
                panel.text(at, value, f"{value:.0f}", ha="center", va="bottom", fontsize=6,
                           rotation=90)
        panel.set_xticks(range(len(groups)), [f"{p}, {d}" for p, d in groups])
        panel.set_ylabel(title)
        panel.grid(axis="y", alpha=0.25)
        panel.margins(y=0.12)
    for g, (which, dtype) in enumerate(groups):
        peak = next((s["peak_flops_per_second"] for s in lines
                     if (s["pass"], s["dtype"]) == (which, dtype) and s["peak_flops_per_second"]),
                    None)
        if peak:
            axes[0].plot([g - 0.46, g + 0.46], [peak * 1e-9] * 2, color="black", linewidth=1.2,
                         label="the machine's measured peak" if g == 0 else None)
    handles = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    axes[0].legend(handles.values(), handles.keys(), fontsize=8, loc="center left",
                   bbox_to_anchor=(1.01, 0.5))
    axes[0].set_title(f"{about['processor']}, cores {about['cores']}, {about['instructions']}; "
                      f"{about['shape']}; {about['date']}\nx: gives no figures, see table.md; "
                      "pale: the machine was not quiet", fontsize=9)
    figure.savefig(path, dpi=130, bbox_inches="tight")


def write(out, about, rows, shape, baseline):
    """Writes all, and returns what `impossible` says."""
    lines = summaries(rows, shape, baseline)
    samples = [{"peer": r.peer, "pass": r.which, "dtype": r.dtype, **s,
                "peak_before": s["before"], "peak_after": s["after"]}
               for r in rows for s in r.samples]
    write_csv(out / "samples.csv",
              ["peer", "pass", "dtype", "round", "seconds", "peak_before", "peak_after"], samples)
    write_csv(out / "summary.csv", COLUMNS, lines)
    (out / "table.md").write_text(markdown(about, lines, baseline), encoding="utf-8")
    try:
        chart(out / "chart.png", about, lines)
    except ImportError as error:
        print(f"no chart.png: {error}", file=sys.stderr)
    return impossible(lines)
