#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits the tile machine's time model to measured kernels and prints what is left, row by row.

usage: scripts/tile_calibrate.py BUILD_FOLDER [--fit NAME,NAME,...] [--set NAME=VALUE ...]
                                 [--without BLOCKS]

Rows: bench/tile/tpu7x_measured.csv (medians of Tokamax's fused loss on a TPU7x, published with it);
their schedules: bench/tile/loss_schedule.cpp, which BUILD_FOLDER's tessera-tile-rows replays. The
fit minimises the squares of log(modelled / measured) over all rows, at most four parameters; --fit=
fits none. Exit code 1 when the median error of all rows is above 10 %.
"""
import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MEASURED = os.path.join(ROOT, "bench", "tile", "tpu7x_measured.csv")
# What no published figure gives and the rows can tell apart; docs/tile_reference.md says what came
# out.
DEFAULT_FIT = "mxu_efficiency,unit_overlap,dma_latency_seconds"
MAX_PARAMETERS = 4
# Where the fit starts, and between which values it stays: efficiencies are parts, a clock above
# 3 GHz does not exist, and nothing on a chip takes a step 10 us.
START = {"mxu_efficiency": (0.8, 0.3, 1.0), "unit_overlap": (0.5, 0.0, 1.0),
         "hbm_efficiency": (0.8, 0.3, 1.0), "vpu_ops_per_second": (7e12, 1e12, 1.2e13),
         "eup_rate": (0.25, 0.03, 1.0), "xlu_rate": (0.25, 0.03, 1.0),
         "step_overhead_seconds": (0.35e-6, 1e-8, 1e-5), "dma_latency_seconds": (1e-6, 1e-8, 1e-5)}
MEDIAN_LIMIT = 0.10


class Model:
    """tessera-tile-rows with the measured rows."""

    def __init__(self, build, rows):
        program = os.path.join(build, "bin", "tessera-tile-rows")
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        for row in rows:
            self.send({k: v for k, v in row.items() if k != "source"})

    def send(self, thing):
        self.process.stdin.write(json.dumps(thing) + "\n")
        self.process.stdin.flush()

    def __call__(self, parameters):
        self.send({"parameters": parameters})
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("tessera-tile-rows ended")
        return json.loads(answer)


def read_rows():
    with open(MEASURED, encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    integers = ("b", "h", "v", "b_block_size", "h_block_size", "v_block_size")
    return [{k: int(v) if k in integers else v for k, v in row.items()} for row in rows]


def fit(numpy, residuals, names):
    """Levenberg-Marquardt from START, within its bounds; the values and the Jacobian there."""
    start, low, high = numpy.array([START[n] for n in names], float).T
    scale = high - low
    values = start.copy()
    current = residuals(values)
    damping = 1e-3
    jacobian = numpy.zeros((len(current), len(names)))
    for _ in range(30):
        for i in range(len(names)):
            step = 1e-3 * scale[i] * (1 if values[i] + 1e-3 * scale[i] <= high[i] else -1)
            moved = values.copy()
            moved[i] += step
            jacobian[:, i] = (residuals(moved) - current) / (step / scale[i])
        # A parameter at its bound that wants to go beyond stays there.
        gradient = jacobian.T @ current
        free = ~(((values <= low) & (gradient > 0)) | ((values >= high) & (gradient < 0)))
        improved = False
        while damping < 1e6 and free.any():
            j = jacobian[:, free]
            normal = j.T @ j
            change = numpy.zeros(len(names))
            damped = normal + damping * numpy.diag(numpy.diag(normal) + 1e-12)
            change[free] = -numpy.linalg.solve(damped, j.T @ current)
            tried = numpy.clip(values + change * scale, low, high)
            result = residuals(tried)
            if result @ result < current @ current:
                improved = (current @ current - result @ result) > 1e-9
                values, current = tried, result
                damping = max(damping / 10, 1e-9)
                break
            damping *= 10
        if not improved:
            break
    return values, jacobian


def blocks_of(row):
    return f"{row['b_block_size']},{row['h_block_size']},{row['v_block_size']}"


def report(rows, answers):
    print(f"{'pass':9}{'B':>7}{'V':>8} {'blocks':>15}{'measured':>10}{'modelled':>10}{'error':>8}"
          f"  bound    {'mxu':>5}{'vpu':>5}{'hbm':>5}{'wait':>5} for")
    errors = []
    for row, answer in zip(rows, answers, strict=True):
        seconds = answer["seconds"]
        measured = float(row["median_ms"])
        errors.append(seconds * 1e3 / measured - 1)
        parts = "".join(f"{answer[k] / seconds:5.0%}" for k in ("mxu", "vpu", "hbm", "waiting"))
        print(f"{row['pass']:9}{row['b']:7}{row['v']:8} {blocks_of(row):>15}{measured:10.3f}"
              f"{seconds * 1e3:10.3f}{errors[-1]:8.1%}  {answer['bound']:8} {parts} "
              f"{answer['waits_for']}")
    sizes = [abs(e) for e in errors]
    median, worst = statistics.median(sizes), max(sizes)
    print(f"{len(rows)} rows: median error {median:.1%}, worst {worst:.1%}")
    return median, worst, errors


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--fit", default=DEFAULT_FIT)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--without", default="", metavar="BLOCKS",
                        help="leave rows with these blocks (b,h,v) out of the fit, not out of the "
                             "table")
    parser.add_argument("--json", help="write parameters and errors there")
    arguments = parser.parse_args()
    names = [n for n in arguments.fit.split(",") if n]
    unknown = [n for n in names if n not in START]
    if unknown or len(names) > MAX_PARAMETERS:
        parser.error(f"--fit takes at most {MAX_PARAMETERS} of {', '.join(START)}")
    fixed = {n: float(v) for n, v in (item.split("=", 1) for item in arguments.set)}
    rows = read_rows()
    fitted = [blocks_of(row) != arguments.without for row in rows]
    model = Model(arguments.build, rows)
    parameters = dict(fixed)
    if names:
        import numpy  # only the fit needs it

        def residuals(values):
            answers = model({**fixed, **dict(zip(names, map(float, values), strict=True))})
            return numpy.log([a["seconds"] * 1e3 / float(r["median_ms"])
                              for a, r, used in zip(answers, rows, fitted, strict=True) if used])

        values, jacobian = fit(numpy, residuals, names)
        parameters.update(zip(names, map(float, values), strict=True))
        rest = residuals(values)
        spread = math.sqrt(rest @ rest / max(1, len(rest) - len(names)))
        deviation = spread * numpy.sqrt(numpy.diag(numpy.linalg.pinv(jacobian.T @ jacobian)))
        for i, name in enumerate(names):
            width = deviation[i] * (START[name][2] - START[name][1])
            bound = " (at its bound)" if values[i] in START[name][1:] else ""
            print(f"{name} = {values[i]:.4g} +- {width:.2g}{bound}")
    answers = model(parameters)
    median, worst, errors = report(rows, answers)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as stream:
            json.dump({"parameters": parameters, "median": median, "worst": worst,
                       "errors": errors}, stream, indent=1)
    return 1 if median > MEDIAN_LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
