#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sweeps of tessera-bench over one quantity, as CSV, table and plot.

usage: sweep.py NAME [--out DIR] [options]      measures and draws
       sweep.py NAME --from FILE.json           draws again what was measured

  threads    1, 2, ... threads: speed, and fraction of the peak of as many threads
  b          tokens 16 to 4096, with the roofline of each shape
  v          vocabulary 1024 to 262144
  workspace  workspace_bytes from 1/64 of the f32 logits to all of them
  small      tokens 1 to 64: fraction of the bandwidth at which w can be read once
  ignored    0 to 90% of the rows ignored: time against that of no such row
  gradients  gradients of x, of w and of both: times against both
  rows       rms_norm of 2^25 elements in rows of 64 to 16384: fraction of the copy bandwidth
  filter     gradient_filter_eps 0, 2^-16, 2^-12, 2^-8 on data as a trained model's: times against
             0, and how far the gradients are from those of 0

NAME.json has tessera-bench's own rows and contexts, NAME.csv a line per row, NAME.md the table."""
import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import report
import sweep_plots
from command_line import command_text

ROOT = pathlib.Path(__file__).resolve().parent.parent
SWEEPS = ("threads", "b", "v", "workspace", "small", "ignored", "gradients", "filter", "rows")


def fail(message):
    sys.exit(f"sweep.py: error: {message}")


def powers(first, last):
    values = [first]
    while values[-1] * 2 <= last:
        values.append(values[-1] * 2)
    return values


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="\n".join(
        __doc__.splitlines()[5:]), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=SWEEPS)
    parser.add_argument("--out", default=str(ROOT / "build/sweeps"))
    parser.add_argument("--from", dest="recorded", help="a NAME.json instead of measuring")
    parser.add_argument("--bench", default=str(ROOT / "build/release/bin/tessera-bench"))
    parser.add_argument("--shape", default="512x2048x32768",
                        help="BxHxV; a sweep replaces its part")
    parser.add_argument("--values", help="of the swept quantity instead of the ones above: N,N,...")
    parser.add_argument("--passes", help="(forward,value_and_grad; small: forward; workspace and "
                                         "gradients: value_and_grad; filter: "
                                         "backward,value_and_grad; rows: forward,backward)")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--implementations", default="opencl")
    parser.add_argument("--w-layout", default="vh")
    parser.add_argument("--samples", type=int, default=9)
    parser.add_argument("--max-seconds", type=float, default=20.0, help="of a row")
    a = parser.parse_args()
    try:
        a.b, a.h, a.v = (int(n) for n in a.shape.split("x"))
        if a.values:
            a.values = [float(n) if a.name in ("ignored", "workspace", "filter") else int(n)
                        for n in a.values.split(",")]
    except ValueError:
        parser.error("--shape takes BxHxV, --values numbers")
    if a.values and a.name == "gradients":
        parser.error("--values: gradients are x, w and both")
    return a


def points(a):
    """What to run: the swept value, tessera-bench's arguments, and what goes before them."""
    cpus = sorted(os.sched_getaffinity(0))
    defaults = {
        "threads": sorted(set(powers(1, len(cpus)) + [len(cpus)])),
        "b": powers(16, 4096), "v": powers(1024, 262144),
        "workspace": [1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0],
        "small": powers(1, 64), "ignored": [0.0, 0.1, 0.25, 0.5, 0.75, 0.9],
        "gradients": ["both", "x", "w"], "filter": [0.0, 2.0**-16, 2.0**-12, 2.0**-8],
        "rows": powers(64, 16384),
    }
    for value in a.values or defaults[a.name]:
        shape, extra, before = [a.b, a.h, a.v], [], []
        if a.name == "threads":
            if not 1 <= value <= len(cpus):
                fail(f"--values: {value} threads on {len(cpus)} processors")
            # PoCL has as many threads as this says; taskset alone would leave all of them on
            # fewer cores. It keeps the host's threads and the driver's own together.
            before = ["env", f"POCL_MAX_PTHREAD_COUNT={value}", "taskset", "-c",
                      ",".join(map(str, cpus[:value]))]
            extra = ["--threads", str(value)]
        elif a.name in ("b", "small"):
            shape[0] = value
        elif a.name == "v":
            shape[2] = value
        elif a.name == "rows":
            shape = [2**25 // value, value, 1]
            extra = ["--operators", "rms_norm"]
        elif a.name == "workspace":
            extra = ["--workspace-bytes", str(round(value * a.b * a.v * 4))]
        elif a.name == "ignored":
            extra = ["--ignored", str(value)]
        elif a.name == "filter":
            extra = ["--data", "trained", "--gradient-filter-eps", str(value)]
        else:
            extra = ["--gradients", value]
        yield value, ["--shapes", "x".join(map(str, shape)), *extra], before


def measure(a):
    """Rows of all points, each with its "sweep" value, and each point's context."""
    passes = a.passes or {"small": "forward", "workspace": "value_and_grad",
                          "gradients": "value_and_grad", "rows": "forward,backward",
                          "filter": "backward,value_and_grad"}.get(a.name, "forward,value_and_grad")
    runs = []
    with tempfile.TemporaryDirectory(prefix="sweep_") as folder:
        for value, extra, before in points(a):
            file = pathlib.Path(folder) / "out.json"
            command = [*before, a.bench, "--passes", passes, "--implementations",
                       a.implementations, "--dtypes", a.dtypes, "--w-layout", a.w_layout,
                       "--samples", str(a.samples), "--max-seconds", str(a.max_seconds), *extra,
                       f"--benchmark_out={file}"]
            print(" ".join(command), file=sys.stderr, flush=True)
            try:
                done = subprocess.run(command, stdout=sys.stderr)
            except OSError as error:
                fail(f"{a.bench}: {error.strerror}; build tessera-bench or give --bench")
            if not file.exists() or not file.read_text(encoding="utf-8").strip():
                # No row of this point can run, and stderr has said why.
                print(f"{a.name} {value}: no results (exit {done.returncode})", file=sys.stderr)
                continue
            data = json.loads(file.read_text(encoding="utf-8"))
            runs.append({"value": value, "command": command_text(command[:-1]), **data})
            file.unlink()
    if not runs:
        fail("nothing could run")
    return {"sweep": a.name, "shape": [a.b, a.h, a.v], "runs": runs}


def rows_of(data):
    """One dict per good row: what it is, its value of the sweep, and its figures."""
    rows = []
    for run in data["runs"]:
        context = run["context"]
        for row in run["benchmarks"]:
            match = report.NAME.match(row["name"])
            if match is None or row.get("run_type", "iteration") != "iteration":
                continue
            p = match.groupdict()
            extents = report.extents_of(p)
            if row.get("error_occurred"):
                print(f"{data['sweep']} {run['value']}: {row['name']}: "
                      f"{row.get('error_message', '')}", file=sys.stderr)
                continue
            where = report.where_of(p["implementation"])
            read = report.peak_of(context, where, "read")
            line = {"value": run["value"], "pass": p["pass"],
                    "implementation": p["implementation"], "types": p["types"],
                    "layout": p["layout"], "b": extents["B"], "h": extents.get("H", 0),
                    "v": extents.get("V", 1), **{k: row[k] for k in sweep_plots.FIGURES},
                    **{k: row.get(k, "") for k in sweep_plots.LATER_FIGURES}}
            if data["sweep"] == "filter":  # of eps 0 nothing is compared
                line.update({k: row.get(k, 0.0) for k in sweep_plots.FILTER_FIGURES})
                line["filter_time"] = row.get("filter_time", 1.0)
            # What the machine could have multiplied in the time of a call: unlike the time, it can
            # be compared between runs of a machine whose speed drifts.
            line["peak_flops_of_call"] = row["flops"] / row["fraction_of_bracket"]
            line["bytes_per_second"] = row["bytes_ideal"] / row["median_seconds"]
            line["peak_read"] = read or ""
            line["fraction_of_read"] = line["bytes_per_second"] / read if read else ""
            line["roof_flops_per_second"] = row["flops_per_second"] / row["fraction_of_bound"]
            line["label"] = row["label"]
            rows.append(line)
    if not rows:
        fail("no row has results")
    relate(rows, data["sweep"])
    return rows


def relate(rows, sweep):
    """Each row's time over that of the first value, "both" or no ignored row, of its series."""
    first = {}
    for row in rows:
        key = sweep_plots.series(row)
        first.setdefault(key, row)
        row["time_of_first"] = (row["peak_flops_of_call"] /
                                first[key]["peak_flops_of_call"])
        if sweep == "threads":  # peaks differ between these runs: plain times
            row["time_of_first"] = row["median_seconds"] / first[key]["median_seconds"]


def table(data, rows):
    context = data["runs"][0]["context"]
    columns = sweep_plots.TABLES[data["sweep"]]
    out = [f"- {key}: {context[key]}" for key in
           ("device", "driver", "processor", "tessera_revision", "tessera_build", "date")
           if context.get(key)]
    out += [f"- first command: `{data['runs'][0]['command']}`", "",
            f"| {data['sweep']} | pass | implementation | types | layout | " +
            " | ".join(title for title, _, _ in columns) + " | |",
            "|---" * (6 + len(columns)) + "|"]
    for row in rows:
        cells = [format(row[key], form) if row[key] != "" else "" for _, key, form in columns]
        value = row["value"]
        out.append(f"| {sweep_plots.value_text(data['sweep'], value)} ")
        out[-1] += (f"| {row['pass']} | {row['implementation']} | {row['types']} | "
                    f"{row['layout'] or ''} | " + " | ".join(cells) +
                    f" | {'noisy' if row['noisy'] else ''} |")
    return "\n".join(out) + "\n"


def main():
    a = arguments()
    if a.recorded:
        try:
            data = json.loads(pathlib.Path(a.recorded).read_text(encoding="utf-8"))
            if data["sweep"] != a.name:
                fail(f"{a.recorded} holds the sweep '{data['sweep']}'")
        except (OSError, ValueError, KeyError, TypeError) as error:
            fail(f"{a.recorded}: no recorded sweep: {error}")
    else:
        data = measure(a)
    rows = rows_of(data)
    out = pathlib.Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    if not a.recorded:
        (out / f"{a.name}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    with open(out / f"{a.name}.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    sweep_plots.add_units(rows)
    (out / f"{a.name}.md").write_text(table(data, rows), encoding="utf-8")
    sweep_plots.draw(data, rows, out / f"{a.name}.png")
    print(f"{out}/{a.name}.json, .csv, .md, .png", file=sys.stderr)


if __name__ == "__main__":
    main()
