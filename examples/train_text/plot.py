#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws curve.csv of train_text as a PNG. usage: plot.py CURVE.csv [LABEL=CURVE.csv...] OUT.png"""
import csv
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402 (the backend comes first)


def read(path):
    unigram, rows = None, []
    with open(path, newline="") as file:
        first = file.readline()
        if first.startswith("# unigram_perplexity"):
            unigram = float(first.split()[-1])
        for row in csv.DictReader(file):
            rows.append({key: float(value) if value else None for key, value in row.items()})
    return unigram, rows


def series(rows, key):
    points = [(row["tokens"], row[key]) for row in rows if row[key] is not None]
    return [p[0] for p in points], [p[1] for p in points]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    *curves, out = sys.argv[1:]
    figure, axes = plt.subplots(figsize=(8, 5))
    unigram = None
    for argument in curves:
        label, path = argument.split("=", 1) if "=" in argument else ("", argument)
        unigram, rows = read(path)
        (line,) = axes.plot(*series(rows, "perplexity"), linewidth=0.8, alpha=0.6,
                            label=f"training {label}".strip())
        axes.plot(*series(rows, "held_out_perplexity"), "o-", color=line.get_color(),
                  markeredgecolor="black", label=f"held out {label}".strip())
    if unigram is not None:
        axes.axhline(unigram, color="gray", linestyle="--", label="unigram baseline")
    axes.set_yscale("log")
    axes.set_xlabel("tokens")
    axes.set_ylabel("perplexity")
    axes.grid(True, which="both", alpha=0.25)
    axes.legend()
    figure.tight_layout()
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    main()
