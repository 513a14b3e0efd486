#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A picture of configuration against speed, from the raw results of tessera-tune.

usage: scripts/plot_tune.py RAW.csv... OUT.png [--most N]

There is a panel for each problem: the speed of each candidate over the heuristic's, in units of the
peak beside each measurement. A thin mark is one measurement; the bar ends at their median, dark
where the candidate took turns with the heuristic. What failed has its status instead. --most: so
many candidates of a panel at most, the fastest and those that failed (24)."""
import argparse
import csv
import statistics
import sys

FORMAT = "# tessera raw tuning 1"
PROBLEM = ("operator", "pass", "implementation", "dtype", "layout", "shape")


def fail(text):
    sys.exit(f"plot_tune.py: {text}")


def pyplot():
    try:
        import matplotlib
    except ImportError:
        fail("the pictures need matplotlib (Debian: python3-matplotlib)")
    matplotlib.use("Agg")
    import matplotlib.pyplot
    return matplotlib.pyplot


def read(path):
    """The lines that have all their cells."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            if file.readline().rstrip("\r\n") != FORMAT:
                fail(f"{path} does not begin with \"{FORMAT}\"")
            return [row for row in csv.DictReader(file) if None not in row.values()]
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")


def panel_of(rows, most):
    """The candidates of a problem, fastest first: config, ratios, whether it took turns, status."""
    good = [row for row in rows if row["status"] in ("ok", "noisy")]
    own = {stage: [float(row["share_of_peak"]) for row in good if row["config"] == "heuristic" and
                   row["stage"] == stage] for stage in ("search", "final")}
    if not own["search"]:
        return []
    candidates = []
    for config in dict.fromkeys(row["config"] for row in rows):
        bad = [row["status"] for row in rows if row["config"] == config and row not in good]
        stage = "final" if own["final"] and any(
            row["config"] == config and row["stage"] == "final" for row in good) else "search"
        base = statistics.median(own[stage])
        ratios = [float(row["share_of_peak"]) / base for row in good
                  if row["config"] == config and row["stage"] == stage]
        candidates.append((config, [] if bad else ratios, stage == "final", bad[0] if bad else ""))
    candidates.sort(key=lambda each: -statistics.median(each[1]) if each[1] else -1e9)
    failed = [each for each in candidates if each[3]]
    return failed + [each for each in candidates if not each[3]][:max(most - len(failed), 1)]


def draw(axes, problem, candidates):
    names = [config for config, _, _, _ in candidates]
    for place, (config, ratios, is_final, status) in enumerate(candidates):
        if status:
            axes.text(0.02, place, status, fontsize=7, va="center", color="C3")
            continue
        colour = "0.5" if config == "heuristic" else "C0"
        axes.barh(place, statistics.median(ratios), color=colour, alpha=0.9 if is_final else 0.4)
        axes.plot(ratios, [place] * len(ratios), "|", color="black", markersize=5)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.tick_params(axis="x", labelsize=7)
    axes.set(xlim=(0, None), ylim=(len(names) - 0.4, -0.6))
    axes.set_title(" ".join(part for part in problem if part), fontsize=8, loc="left")
    axes.grid(True, axis="x", alpha=0.25)
    axes.set_axisbelow(True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("raw", nargs="+")
    parser.add_argument("out")
    parser.add_argument("--most", type=int, default=24)
    arguments = parser.parse_args()
    rows = [row for path in arguments.raw for row in read(path)]
    panels = {}
    for problem in dict.fromkeys(tuple(row[name] for name in PROBLEM) for row in rows):
        mine = [row for row in rows if tuple(row[name] for name in PROBLEM) == problem]
        if candidates := panel_of(mine, arguments.most):
            panels[problem] = candidates
    if not panels:
        fail("the raw results have no problem whose heuristic was measured")
    plt = pyplot()
    heights = [1.0 + 0.2 * len(candidates) for candidates in panels.values()]
    figure, grid = plt.subplots(len(panels), 1, squeeze=False, layout="constrained",
                                figsize=(8, sum(heights) + 0.6),
                                gridspec_kw={"height_ratios": heights})
    for (axes,), (problem, candidates) in zip(grid, panels.items(), strict=True):
        draw(axes, problem, candidates)
    grid[-1][0].set_xlabel("speed / the heuristic's", fontsize=8)
    figure.suptitle(f"{rows[0]['device']}, {rows[0]['driver']}, revision {rows[0]['revision']}",
                    fontsize=9)
    figure.savefig(arguments.out, dpi=130)


if __name__ == "__main__":
    main()
