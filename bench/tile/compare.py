#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tile machine beside JAX's interpret mode, in one go on one machine, as a Markdown table.

    python3 bench/tile/compare.py [--build build/release] [--venv build/tools/jax] [--quick]

Runs jax_interpret.py for a program and then tessera-tile-bench for the same one, so that both see
the same load. Times are the best of some calls after the first; JAX's first call compiles
besides."""""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# jax_interpret.py's name -> tessera-tile-bench's, what is counted.
PROGRAMS = {"matmul_call": ("matmul/call", "step"),
            "matmul_pipeline_1": ("matmul/pipeline_1", "step"),
            "matmul_pipeline_2": ("matmul/pipeline_2", "step"),
            "matmul_call_16": ("matmul/call_16", "step"), "add": ("add", "step"),
            "copies": ("copies", "DMA")}
for _blocks in ("1024_512_2048", "1024_128_256"):
    for _pass in ("forward", "backward"):
        PROGRAMS[f"loss_{_pass}_{_blocks}"] = (f"loss/{_pass}/v5e/f32/{_blocks}/threads:0", "call")


def jax(name, arguments):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, HERE / "jax_interpret.py", "--out", file.name, name]
        if arguments.venv:
            command += ["--venv", arguments.venv]
        subprocess.run(command + ["--quick"] * arguments.quick, check=True,
                       stderr=subprocess.DEVNULL)
        return {row["races"]: row for row in json.load(file)["rows"]}


def tile(name, arguments):
    program = arguments.build / "bin/tessera-tile-bench"
    done = subprocess.run(
        [program, f"--benchmark_filter=^{name}/races:", "--benchmark_format=json",
         "--benchmark_repetitions=5", "--benchmark_min_time=0.1"], check=True, capture_output=True,
        text=True)
    rows = json.loads(done.stdout)["benchmarks"]
    best = {}
    for row in rows:
        if "error_message" in row:
            raise SystemExit(f"{row['name']}: {row['error_message']}")
        if row["run_type"] == "iteration":
            races = "races:1" in row["name"]
            best[races] = min(best.get(races, row["per_step"]), row["per_step"])
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--venv", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="two calls of JAX, not five")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(PROGRAMS)}; all by default")
    arguments = parser.parse_args()
    print("| program | races looked for | JAX, us | tile machine, us | times faster |")
    print("|---|---|---|---|---|")
    for name in arguments.names or PROGRAMS:
        bench, unit = PROGRAMS[name]
        theirs, ours = jax(name, arguments), tile(bench, arguments)
        for races, row in theirs.items():
            if "error" in row:
                raise SystemExit(f"{name}: {row['error']}")
            there = row["best_s"] * 1e6 if unit == "call" else row["best_per_step_us"]
            here = ours[races] * 1e6
            print(f"| {name}, per {unit} | {'yes' if races else 'no'} | {there:.0f} | {here:.2f} | "
                  f"{there / here:.3g} |", flush=True)


if __name__ == "__main__":
    main()
