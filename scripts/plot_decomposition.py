#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stacked bars of what each part of a call adds to its time, from tessera-bench --decompose.

usage: scripts/plot_decomposition.py FILE.json OUT.png

FILE.json is what --benchmark_out wrote. The black line in a bar is the time that the products alone
would take at the peak of multiplication which the same process measured."""
import argparse
import json
import sys


def fail(text):
    sys.exit(f"plot_decomposition.py: {text}")


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        return data["context"], [(row["name"], row["parts"]) for row in data["rows"]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        fail(f"{path} is not what tessera-bench --decompose --benchmark_out wrote: {error!r}")


def draw(axes, rows):
    names = list(dict.fromkeys(part["name"] for _, parts in rows for part in parts))
    for place, (_, parts) in enumerate(rows):
        left = 0.0
        for part in parts:
            # A difference of medians: where a part takes next to nothing, it may be negative.
            width = max(1e3 * part["added_seconds"], 0.0)
            axes.barh(place, width, left=left, height=0.7, color=f"C{names.index(part['name'])}",
                      edgecolor="white", linewidth=0.5)
            left += width
        peak = 1e3 * parts[-1]["seconds_at_peak"]
        axes.plot([peak, peak], [place - 0.42, place + 0.42], color="black", linewidth=1.6)
        axes.text(left, place, f"  {1e3 * parts[-1]['seconds']:.1f} ms, "
                  f"{parts[-1]['fraction_of_peak']:.0%} of the peak",
                  va="center", fontsize=7)
    for index, name in enumerate(names):
        axes.barh(0, 0, color=f"C{index}", label=name)
    axes.plot([], [], color="black", linewidth=1.6, label="products at the peak")
    axes.set_yticks(range(len(rows)), ["/".join(name.split("/")[1:5]) for name, _ in rows],
                    fontsize=7)
    axes.set(ylim=(len(rows) - 0.4, -0.6), xlabel="ms")
    axes.set_xlim(0, 1.3 * axes.get_xlim()[1])
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("out")
    arguments = parser.parse_args()
    context, rows = read(arguments.file)
    try:
        import matplotlib
    except ImportError:
        fail("the picture needs matplotlib (Debian: python3-matplotlib)")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(layout="constrained", figsize=(10, 1.6 + 0.5 * len(rows)))
    draw(axes, rows)
    shapes = dict.fromkeys(" ".join(name.split("/")[5:]) for name, _ in rows)
    axes.set_title(f"{', '.join(shapes)} on {context.get('device', 'this machine')}, "
                   f"{context.get('driver', '')}", fontsize=9)
    figure.savefig(arguments.out, dpi=130)


if __name__ == "__main__":
    main()
