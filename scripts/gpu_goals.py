#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What opencl.wgmma is to reach on a Hopper, beside what a run of gpu.sh measured: the time of a
call over that of F.cross_entropy in the same run, torch.compile's of it, and opencl.mma's; the
speed of each product over that of a prototype of the same kernels.
usage: gpu_goals.py FOLDER"""
import json
import pathlib
import re
import sys

PASSES = ("forward", "value_and_grad")
# Times of F.cross_entropy(x @ w.T, labels) that a call may take at most; and its scratch memory.
TIMES = {"8192x4096x128256": (0.95, 1.0), "4096x2048x32768": (0.85, 1.0),
         "512x2048x32768": (1.5, 1.5)}
MOST_MIB = 4300
# TFLOP/s of the prototype on an H200 (driver 580.159.04, 2026-11-28), the middle where runs differ:
# logits and their statistics, the same with logits kept, grad_x, grad_w.
PROTOTYPE = {"8192x4096x128256": (737, 748, 773, 764), "4096x2048x32768": (755, 717, 810, 768),
             "512x2048x32768": (683, 651, 217, 586)}
LEAST_OF_PROTOTYPE = 0.95
KERNELS = ((PASSES[0], "forward"), (PASSES[1], "forward"), (PASSES[1], "grad_x"),
           (PASSES[1], "grad_w"))


def contents(path, default):
    """Of a JSON file; of none, or of half a one, which an ended program leaves: the default."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return default


def bench_rows(path):
    """Of a file of tessera-bench: milliseconds and MiB of scratch by pass; rows that are right."""
    return {row["name"].split("/")[1]: (row["real_time"], row["extra_bytes_peak"] / 2**20)
            for row in contents(path, {}).get("benchmarks", ())
            if row["status"] in ("ok", "noisy")}


def torch_rows(path):
    """By shape and peer."""
    return {(row["shape"], row["peer"]): row for row in contents(path, ())
            if row["dtype"] == "bf16"}


def kernel_times(path):
    """Milliseconds a call by pass and kernel, of the tables behind the rows."""
    times, of = {}, ""
    for line in path.read_text().splitlines() if path.exists() else []:
        if row := re.fullmatch(r"\w+/(\w+)/\S+", line):
            of = row[1]
        elif kernel := re.match(r" +kernel +(\w+) +\d+ +([\d.]+) ", line):
            times[of, kernel[1]] = float(kernel[2])
    return times


def verdict(value, goal, is_most):
    met = value <= goal if is_most else value >= goal
    return f"{'at most' if is_most else 'at least'} {goal}: {'reached' if met else 'MISSED'}"


def tell_times(folder, shape, torch):
    rows = bench_rows(folder / f"speed.{shape}.bf16.wgmma.json")
    mma = bench_rows(folder / f"speed.{shape}.bf16.mma.json")
    for name, goal in zip(PASSES, TIMES[shape], strict=True):
        if name not in rows:
            print(f"{shape} {name}: not measured")
            continue
        ms, mib = rows[name]
        parts = []
        for peer in ("torch", "torch.compile"):
            of_peer = torch.get((shape, peer), {}).get(name + "_ms")
            if of_peer is None:
                parts.append(f"{peer} not measured")
            else:
                ratio = ms / of_peer
                parts.append(f"{ratio:.3f} of {peer}'s {of_peer:.3f}")
                if peer == "torch":
                    parts[-1] += f" ({verdict(ratio, goal, True)})"
        if name in mma:
            parts.append(f"{ms / mma[name][0]:.3f} of opencl.mma's {mma[name][0]:.3f}")
        if name == PASSES[1]:
            parts.append(f"{mib:.0f} MiB ({verdict(mib, MOST_MIB, True)})")
        print(f"{shape} {name} {ms:.3f} ms, " + ", ".join(parts))


def tell_products(folder, shape, torch):
    b, h, v = (int(extent) for extent in shape.split("x"))
    times = kernel_times(folder / f"speed.{shape}.bf16.wgmma.txt")
    parts = []
    for (name, kernel), reached in zip(KERNELS, PROTOTYPE[shape], strict=True):
        if not times.get((name, kernel)):
            continue
        speed = 2e-9 * b * h * v / times[name, kernel]
        kept = " keeping logits" if (name, kernel) == KERNELS[1] else ""
        parts.append(f"{kernel}{kept} {speed:.0f} TFLOP/s, {speed / reached:.2f} of {reached} "
                     f"({verdict(speed / reached, LEAST_OF_PROTOTYPE, False)})")
    if alone := torch.get((shape, "torch"), {}).get("matmul_ms"):
        parts.append(f"torch's product {2e-9 * b * h * v / alone:.0f}")
    print(f"{shape} products: " + ("; ".join(parts) or "not measured"))


def tell_variants(folder):
    """Other layouts and knobs, each over the row without them."""
    for path in sorted(folder.glob("speed.*.bf16.wgmma.*.json")):
        shape, variant = re.match(r"speed\.(\w+)\.bf16\.wgmma\.(.*)\.json", path.name).groups()
        usual = bench_rows(folder / f"speed.{shape}.bf16.wgmma.json")
        parts = [f"{name} {ms:.3f} ms, {ms / usual[name][0]:.3f} of the usual"
                 for name, (ms, _) in bench_rows(path).items() if name in usual]
        print(f"{shape} {variant}: " + ("; ".join(parts) or "not measured"))


def main():
    folder = pathlib.Path(sys.argv[1])
    torch = torch_rows(folder / "torch.json")
    for shape in TIMES:
        tell_times(folder, shape, torch)
    for shape in TIMES:
        tell_products(folder, shape, torch)
    tell_variants(folder)


if __name__ == "__main__":
    main()
