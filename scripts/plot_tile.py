#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures of what tessera-tile says.

usage: scripts/plot_tile.py sweep SWEEP.json OUT.png [--h SIZE,...] [--keep SHOWN.json]
       scripts/plot_tile.py timeline TRACE.json OUT.png [--from US --to US] [--title TEXT]

sweep     of `tessera-tile --sweep --json`: block sizes b x v, a panel per h (the best one and its
          neighbours), coloured by time; what is illegal is hatched, with the rule that refuses it;
          --keep writes the part of the sweep that is shown, without the reasons' texts, for the
          same picture again
timeline  of `tessera-tile --trace`: a lane per track; without --from and --to the beginning, and
          as many steps in the middle
"""
import argparse
import colorsys
import json
import sys

# Times beyond this many times the best have one colour, and most colours are near the best: that is
# where who picks blocks looks.
SLOWEST = 1.5
CLOSE = 0.5  # the exponent of the scale
STEPS_SHOWN = 6
LETTER = 0.008  # the width of one in a label, of a timeline's
HAIR = 0.001
SKIPPED_LANES = ("kernels",)
FIRST_COLOURS = ("#66c2a5", "#fc8d62", "#8da0cb", "#e78ac3", "#a6d854", "#ffd92f", "#e5c494",
                 "#b3b3b3")  # matplotlib's Set2


def fail(text):
    sys.exit(f"plot_tile.py: {text}")


def pyplot():
    try:
        import matplotlib
    except ImportError:
        fail("the pictures need matplotlib (Debian: python3-matplotlib)")
    matplotlib.use("Agg")
    import matplotlib.pyplot
    return matplotlib.pyplot


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        fail(f"{path}: {error}")


# -- Sweeps ---------------------------------------------------------------


def sizes(candidate):
    blocks = candidate["block_sizes"]
    return tuple(blocks[f"{axis}_block_size"] for axis in "bhv")


def chosen_h(candidates, best):
    """The best one and the nearest to either side of which something is legal."""
    legal = sorted({sizes(c)[1] for c in candidates if not c["refused"]})
    at = legal.index(sizes(best)[1])
    return legal[max(0, at - 1):at + 2]


def draw_cell(plt, axes, x, y, candidate, best, colours, limit):
    plt_text = {"ha": "center", "va": "center"}
    box = {"xy": (x - 0.5, y - 0.5), "width": 1, "height": 1}
    if candidate["refused"]:
        axes.add_patch(plt.Rectangle(**box, facecolor="0.93", edgecolor="0.78", hatch="////",
                                     linewidth=0))
        rules = list(dict.fromkeys(r["rule"] for r in candidate["refused"]))
        axes.text(x, y, "\n".join(rules[:2]), fontsize=6, color="0.25", **plt_text,
                  bbox={"facecolor": "0.93", "edgecolor": "none", "pad": 0.6})
        return
    relative = candidate["modelled_seconds"] / best["modelled_seconds"]
    colour = colours.to_rgba(min(relative, SLOWEST))
    axes.add_patch(plt.Rectangle(**box, facecolor=colour, edgecolor="white", linewidth=0.6))
    bright = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2] > 0.5
    tight = candidate["vmem_with_temporaries_bytes"] > limit
    axes.text(x, y, f"{1e3 * candidate['modelled_seconds']:.4g}" + ("°" if tight else ""),
              fontsize=6, color="black" if bright else "white", **plt_text)
    if candidate is best:
        axes.add_patch(plt.Rectangle(**box, facecolor="none", edgecolor="red", linewidth=2,
                                     zorder=3))


def sweep_title(data, best):
    b, h, v = data["shape"]
    calibrated = ("calibrated" if data["calibrated"] else
                  "calibrated: false, no measurements of this chip")
    return (f"{data['kernel']} {data['pass']} on {data['chip']}, B {b}, H {h}, V {v}, "
            f"x {data['x_dtype']}, w {data['w_dtype']} {data['w_layout']}; {calibrated}\n"
            f"modelled milliseconds; best: {','.join(map(str, sizes(best)))} with "
            f"{1e3 * best['modelled_seconds']:.4g} ms, bound by {best['bound']}; "
            "hatched: refused, by rule; °: with the compiler's temporaries VMEM may not suffice")


def keep(data, best, panels, path):
    """One candidate a line, so that changes can be read."""
    lines = []
    for candidate in data["candidates"]:
        if candidate is best or sizes(candidate)[1] in panels:
            rules = [{"rule": r["rule"]} for r in candidate["refused"]]
            lines.append(json.dumps({**candidate, "refused": rules}))
    rest = json.dumps({k: v for k, v in data.items() if k != "candidates"})
    with open(path, "w", encoding="utf-8") as file:
        file.write(rest[:-1] + ', "candidates": [\n' + ",\n".join(lines) + "\n]}\n")


def plot_sweep(arguments):
    data = read(arguments.data)
    if "candidates" not in data:
        fail(f"{arguments.data} has no candidates: is it of tessera-tile --sweep --json?")
    legal = sorted((c for c in data["candidates"] if not c["refused"]),
                   key=lambda c: c["modelled_seconds"])
    if not legal:
        fail("no block sizes are legal; there is nothing to compare")
    best = legal[0]
    by_size = {sizes(c): c for c in data["candidates"]}
    panels = arguments.h or chosen_h(data["candidates"], best)
    rows = sorted({b for b, h, _ in by_size if h in panels})
    columns = sorted({v for _, h, v in by_size if h in panels})
    if not rows:
        fail(f"--h: no candidate has h_block_size {panels}")
    if arguments.keep:
        keep(data, best, panels, arguments.keep)
    plt = pyplot()
    from matplotlib.colors import PowerNorm
    colours = plt.cm.ScalarMappable(PowerNorm(CLOSE, 1.0, SLOWEST), plt.get_cmap("viridis_r"))
    figure, grid = plt.subplots(1, len(panels), squeeze=False, sharey=True, layout="constrained",
                                figsize=(0.6 + (0.42 * len(columns) + 0.5) * len(panels),
                                         1.5 + 0.34 * len(rows)))
    limit = data["vmem_limit_bytes"]
    for axes, h in zip(grid[0], panels, strict=True):
        for x, v in enumerate(columns):
            for y, b in enumerate(rows):
                if (b, h, v) in by_size:
                    draw_cell(plt, axes, x, y, by_size[b, h, v], best, colours, limit)
        axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(-0.5, len(rows) - 0.5),
                 xlabel="v_block_size")
        axes.set_title(f"h_block_size {h}" + (" (best)" if h == sizes(best)[1] else ""), fontsize=9)
        axes.set_xticks(range(len(columns)), columns, rotation=90, fontsize=7)
        axes.set_yticks(range(len(rows)), rows, fontsize=7)
    grid[0][0].set_ylabel("b_block_size")
    bar = figure.colorbar(colours, ax=list(grid[0]), pad=0.01, extend="max")
    bar.set_label("time / time of the best", fontsize=8)
    bar.set_ticks([1, 1.02, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5])
    bar.ax.tick_params(labelsize=7)
    figure.suptitle(sweep_title(data, best), fontsize=9)
    figure.savefig(arguments.out, dpi=130)


# -- Timelines ---------------------------------------------------------------


def lanes_of(trace):
    """Names of the tracks by (process, thread), in the order in which they are shown, and their
    boxes."""
    processes, threads, order, boxes = {}, {}, {}, {}
    for event in trace["traceEvents"]:
        key = event.get("pid", 0), event.get("tid", 0)
        if event["ph"] == "X":
            boxes.setdefault(key, []).append(event)
        elif event["name"] == "process_name":
            processes[key[0]] = event["args"]["name"]
        elif event["name"] == "thread_name":
            threads[key] = event["args"]["name"]
        elif event["name"] == "thread_sort_index":
            order[key] = event["args"]["sort_index"]
    several = len(processes) > 1
    lanes = []
    for key in sorted(boxes, key=lambda k: (k[0], order.get(k, k[1]))):
        name = threads.get(key, str(key[1]))
        if name not in SKIPPED_LANES:
            lanes.append(((f"{processes[key[0]]}, " if several else "") + name,
                          sorted(boxes[key], key=lambda e: e["ts"])))
    return list(processes.values()), lanes


def default_windows(lanes):
    """The first steps of the first core that has some, and as many in the middle of them."""
    steps = next((boxes for name, boxes in lanes if name.endswith("steps")), None)
    last = max(e["ts"] + e["dur"] for _, boxes in lanes for e in boxes)
    if not steps or len(steps) <= 2 * STEPS_SHOWN:
        return [("all of it", 0.0, last)]
    middle = len(steps) // 2 - STEPS_SHOWN // 2  # what ends in the middle of a grid is seen too
    end = steps[STEPS_SHOWN]["ts"]
    return [("the beginning", 0.0, end),
            ("in the middle", steps[middle]["ts"], steps[middle]["ts"] + end - steps[0]["ts"])]


def kind_of(lane, box):
    """What a box is coloured after: an array's name, or what all of its lane's are."""
    return next((kind for kind in ("steps", "waits") if lane.endswith(kind)), box["name"])


def colour_of(number):
    """The colour of the kind that is the `number`th to be seen; no two numbers have the same."""
    if number < len(FIRST_COLOURS):
        return FIRST_COLOURS[number]
    # Darker ones, each as far around the circle from all others as the golden ratio leads.
    return colorsys.hls_to_rgb(number * 0.618034 % 1, 0.42, 0.6)


def draw_window(plt, axes, lanes, begin, end, palette):
    shown = [(name, [e for e in boxes if e["ts"] < end and e["ts"] + e["dur"] > begin])
             for name, boxes in lanes]
    width = end - begin
    for lane, (name, boxes) in enumerate(shown):
        if lane and shown[lane - 1][0].split(" ")[:2] != name.split(" ")[:2]:
            axes.axhline(lane - 0.5, color="0.4", linewidth=0.6)
        for box in boxes:
            left = max(box["ts"], begin)
            length = min(box["ts"] + box["dur"], end) - left
            colour, hatch = palette(kind_of(name, box))
            if length < HAIR * width:  # too short to be seen as a box
                axes.vlines(left, lane - 0.36, lane + 0.36, color=colour, linewidth=1)
                continue
            axes.add_patch(plt.Rectangle((left, lane - 0.36), length, 0.72, facecolor=colour,
                                         hatch=hatch, edgecolor="white" if not hatch else "0.6",
                                         linewidth=0.4))
            if length > LETTER * width * len(box["name"]):
                axes.text(left + length / 2, lane, box["name"], fontsize=6, ha="center",
                          va="center", clip_on=True)
    axes.set(xlim=(begin, end), ylim=(len(shown) - 0.5, -0.5))
    axes.set_yticks(range(len(shown)), [name for name, _ in shown], fontsize=7)
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(True, axis="x", alpha=0.25)
    axes.set_axisbelow(True)


def plot_timeline(arguments):
    trace = read(arguments.data)
    if "traceEvents" not in trace:
        fail(f"{arguments.data} has no traceEvents: is it of tessera-tile --trace?")
    processes, lanes = lanes_of(trace)
    if not lanes:
        fail("the trace has no events")
    if (arguments.begin is None) != (arguments.end is None):
        fail("--from and --to go together")
    windows = default_windows(lanes)
    if arguments.begin is not None:
        windows = [("", arguments.begin, arguments.end)]
    for _, begin, end in windows:
        if not begin < end:
            fail(f"from {begin} us to {end} us is no window")
    # Tracks without a box in any window are left out.
    lanes = [(name, boxes) for name, boxes in lanes
             if any(e["ts"] < end and e["ts"] + e["dur"] > begin
                    for e in boxes for _, begin, end in windows)]
    if not lanes:
        fail("nothing happens in that window")
    plt = pyplot()
    used = {}

    def palette(kind):
        if kind == "steps":
            return "0.88", None
        if kind == "waits":
            return "white", "//////"
        return colour_of(used.setdefault(kind, len(used))), None

    figure, grid = plt.subplots(len(windows), 1, squeeze=False, layout="constrained",
                                figsize=(11, 0.6 + (0.6 + 0.27 * len(lanes)) * len(windows)))
    for (axes,), (name, begin, end) in zip(grid, windows, strict=True):
        draw_window(plt, axes, lanes, begin, end, palette)
        axes.set_title(name, fontsize=8, loc="left")
    grid[0][0].legend([plt.Rectangle((0, 0), 1, 1, color=palette(kind)[0]) for kind in used], used,
                      fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1))
    grid[-1][0].set_xlabel("microseconds", fontsize=8)
    last = max(e["ts"] + e["dur"] for _, boxes in lanes for e in boxes)
    figure.suptitle((arguments.title or ", ".join(processes)) + f"; all of it takes {last:.6g} us",
                    fontsize=9)
    figure.savefig(arguments.out, dpi=130)


def integers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(required=True)
    sweep = kinds.add_parser("sweep")
    sweep.add_argument("--h", type=integers)
    sweep.add_argument("--keep")
    sweep.set_defaults(plot=plot_sweep)
    timeline = kinds.add_parser("timeline")
    timeline.add_argument("--from", dest="begin", type=float)
    timeline.add_argument("--to", dest="end", type=float)
    timeline.add_argument("--title")
    timeline.set_defaults(plot=plot_timeline)
    for kind in (sweep, timeline):
        kind.add_argument("data")
        kind.add_argument("out")
    arguments = parser.parse_args()
    arguments.plot(arguments)


if __name__ == "__main__":
    main()
