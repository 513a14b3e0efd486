#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the same steps on several implementations and compares the loss curves.

usage: compare.py TRAIN_TEXT [--implementations a,b,...] [--tolerance 1e-4] [--out DIR]
                  -- OPTIONS...

OPTIONS go to train_text and must hold --steps. Fails when two curves differ by more than the
tolerance at any step.
"""
import argparse
import csv
import pathlib
import subprocess
import sys
import tempfile


def losses(folder):
    with open(folder / "curve.csv", newline="") as file:
        file.readline()  # the unigram baseline
        return [float(row["loss"]) for row in csv.DictReader(file) if row["loss"]]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("train_text")
    parser.add_argument("--implementations", default="reference,eigen,opencl.cpu,opencl.simt")
    # Rounding differs by 1e-7 a step and the weights drift apart slowly; a wrong gradient is seen
    # within a few steps at 1e-2.
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--out")
    parser.add_argument("options", nargs="+")
    arguments = parser.parse_args()

    curves = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in arguments.implementations.split(","):
            folder = pathlib.Path(arguments.out or temporary) / name
            run = subprocess.run(
                [arguments.train_text, "--implementation", name, "--out", str(folder),
                 *arguments.options], capture_output=True, text=True, check=False)
            if run.returncode != 0:
                sys.exit(f"{name}: exit code {run.returncode}\n{run.stdout}{run.stderr}")
            curves[name] = losses(folder)
            ran = run.stdout.strip().splitlines()[-1]
            if not ran.startswith(f"ran: {name} "):
                sys.exit(f"{name} was asked for, but {ran}")

    first, *others = curves
    if len(curves[first]) < 2 or curves[first][-1] >= curves[first][0]:
        sys.exit(f"{first}: the loss did not fall: {curves[first]}")
    print(f"{first}: {len(curves[first])} steps, loss {curves[first][0]:.6f} -> "
          f"{curves[first][-1]:.6f}")
    failed = False
    for name in others:
        worst = max(abs(a - b) for a, b in zip(curves[first], curves[name], strict=True))
        failed |= not worst <= arguments.tolerance
        print(f"{name}: largest difference {worst:.3g}")
    if failed:
        sys.exit(f"the curves differ by more than {arguments.tolerance:g}")


if __name__ == "__main__":
    main()
