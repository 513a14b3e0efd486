#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A picture of the memory of tests/soak over time.

usage: scripts/plot_soak.py CURVE.csv OUT.png

CURVE.csv is what `soak --curve` writes: lines of comment, then a column each for the time, calls,
resident memory, the heap, open descriptors and live OpenCL objects.
"""
import argparse
import csv
import sys

WARM_SHARE = 0.2  # as tests/soak/soak.cpp has it
RSS_SHARE = 0.01
MIB = 2.0 ** 20


def fail(text):
    sys.exit(f"plot_soak.py: {text}")


def read(path):
    """Comments and columns."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            lines = file.read().splitlines()
    except OSError as error:
        fail(f"{path}: {error}")
    comments = [line[1:].strip() for line in lines if line.startswith("#")]
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    if not rows or "rss_bytes" not in rows[0]:
        fail(f"{path} has no curve: is it of soak --curve?")
    return comments, {name: [float(row[name]) for row in rows] for name in rows[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("out")
    arguments = parser.parse_args()
    comments, columns = read(arguments.data)
    try:
        import matplotlib
    except ImportError:
        fail("the pictures need matplotlib (Debian: python3-matplotlib)")
    matplotlib.use("Agg")
    from matplotlib import pyplot
    seconds = columns["seconds"]
    warm = WARM_SHARE * seconds[-1]
    base = max(i for i, s in enumerate(seconds) if s <= warm or i == 0)
    rss = [value / MIB for value in columns["rss_bytes"]]
    figure, (top, bottom) = pyplot.subplots(2, 1, sharex=True, layout="constrained",
                                            figsize=(9, 5.5), height_ratios=(3, 2))
    top.plot(seconds, rss, label="resident")
    top.axvline(seconds[base], color="0.6", linewidth=0.8, linestyle=":")
    top.axhline(rss[base] * (1 + RSS_SHARE), color="tab:red", linewidth=0.8, linestyle="--",
                label=f"{RSS_SHARE:.0%} above what it was at {seconds[base]:.0f} s")
    low = min(rss)
    top.set(ylabel="MiB", ylim=(low - 0.01 * low, rss[base] * (1 + 2 * RSS_SHARE)))
    top.legend(fontsize=8, loc="lower right")
    bottom.plot(seconds, columns["descriptors"], label="open descriptors")
    bottom.plot(seconds, columns["events"], label="live events while no call runs")
    bottom.set(xlabel="seconds", ylim=(-0.5, max(columns["descriptors"]) + 1.5))
    bottom.legend(fontsize=8, loc="center right")
    for axes in (top, bottom):
        axes.grid(True, alpha=0.25)
        axes.tick_params(labelsize=8)
    figure.suptitle("\n".join(comments + [f"{columns['calls'][-1]:.0f} calls"]), fontsize=9)
    figure.savefig(arguments.out, dpi=110)


if __name__ == "__main__":
    main()
