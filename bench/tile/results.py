#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The loss on the tile machine beside the bare multiplications: several rounds of
tessera-tile-bench, of which the fastest call of either counts, as JSON and as a Markdown table.

    python3 bench/tile/results.py OUT.json [--build build/release] [--rounds 3] [--filter loss/]

On a machine that others use too, the median of the bracketed ratios says more than that of the
fastest calls: a call and the multiplications next to it see the same load."""
import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "bench"))
from command_line import command_text  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--filter", default="^(loss|memory)/")
    arguments = parser.parse_args()
    program = arguments.build / "bin/tessera-tile-bench"
    listed = subprocess.run([program, "--benchmark_list_tests",
                             f"--benchmark_filter={arguments.filter}"], check=True,
                            capture_output=True, text=True).stdout.split()
    seen = {name: [] for name in listed}
    for _ in range(arguments.rounds):
        for name in listed:  # a process each: what one leaves behind is not the next one's memory
            done = subprocess.run([program, f"--benchmark_filter=^{name}$",
                                   "--benchmark_format=json", "--benchmark_min_time=0.2"],
                                  check=True, capture_output=True, text=True)
            row = json.loads(done.stdout)["benchmarks"][0]
            if "error_message" in row:
                raise SystemExit(f"{name}: {row['error_message']}")
            seen[name].append(row)
            print(".", end="", file=sys.stderr, flush=True)
    rows = []
    for name, runs in seen.items():
        name = name.removesuffix("/manual_time").removesuffix("/iterations:1")
        if name.startswith("memory"):
            best = min(runs, key=lambda run: run["peak_bytes"])
            keys = ("operand_bytes", "vmem_bytes", "idle_bytes", "peak_bytes", "peak_over_operands")
            rows.append({"name": name} | {key: best[key] for key in keys})
            continue
        best, bare = (min(run[key] for run in runs) for key in ("seconds", "bare_seconds"))
        rows.append({"name": name, "seconds": best, "bare_seconds": bare, "ratio": best / bare,
                     "bracketed_ratio": statistics.median(run["bracketed_ratio"] for run in runs),
                     "gflops": max(run["gflops"] for run in runs)})
    info = [line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
            if line.startswith("model name")]
    arguments.out.write_text(json.dumps({
        "device": f"{len(info)} x {info[0] if info else platform.processor()}",
        "command": command_text(["python3", "bench/tile/results.py"] + sys.argv[1:]),
        "rounds": arguments.rounds, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    print()
    for row in rows:
        if "seconds" in row:
            print(f"| {row['name']} | {row['seconds'] * 1e3:.1f} | {row['bare_seconds'] * 1e3:.1f} "
                  f"| {row['ratio']:.2f} | {row['bracketed_ratio']:.2f} |")
        else:
            mib = [row[key] / 2**20 for key in ("operand_bytes", "vmem_bytes", "peak_bytes")]
            print(f"| {row['name']} | {mib[0]:.1f} | {mib[1]:.1f} | {mib[2]:.1f} | "
                  f"{row['peak_over_operands']:.2f} |")


if __name__ == "__main__":
    main()
