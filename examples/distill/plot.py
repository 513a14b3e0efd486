#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws curve.csv of distill as a PNG. usage: plot.py CURVE.csv OUT.png"""
import csv
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 (the backend comes first)
from matplotlib.ticker import EngFormatter, ScalarFormatter  # noqa: E402


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    models = {}
    with open(sys.argv[1], newline="") as file:
        for row in csv.DictReader(file):
            models.setdefault(row["model"], []).append(row)
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.5), sharey=True)
    for axes, key in zip(panels, ("seconds", "tokens"), strict=True):
        for name, rows in models.items():
            axes.plot([float(row[key]) for row in rows],
                      [float(row["held_out_perplexity"]) for row in rows], "o-", label=name)
        axes.set_xlabel(key + (" of training" if key == "seconds" else ""))
        axes.set_yscale("log")
        axes.yaxis.set_minor_formatter(ScalarFormatter())
        if key == "tokens":
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(True, which="both", alpha=0.25)
    panels[0].set_ylabel("held-out perplexity")
    panels[0].legend()
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=120)


if __name__ == "__main__":
    main()
