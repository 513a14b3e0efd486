#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times of PyTorch for the shapes of gpu.sh: x @ w.T alone, F.cross_entropy of it, and that with
its gradients, in bf16 by torch.compile too; with --peers the same loss by Liger and Cut Cross
Entropy, where they can be imported. A line for each shape and type, and a row in the JSON file. On
a GPU where torch sees one.
usage: gpu_torch.py --shapes BxHxV[,...] --out FILE [--peers]"""
import argparse
import importlib
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F

ROTATED_BYTES = 256 << 20  # arrays in turn: more than caches hold, as tessera-bench has it
SECONDS = 0.5  # of samples, 7 of them at least


def whole(x, w, labels):
    return F.cross_entropy(x @ w.T, labels)


def compiled():
    """Anew for each shape: there is a limit to how often one function is compiled again."""
    torch.compiler.reset()
    return torch.compile(whole, dynamic=False)


def liger():
    module = importlib.import_module("liger_kernel.ops.fused_linear_cross_entropy")
    function = module.LigerFusedLinearCrossEntropyFunction

    def loss(x, w, labels):
        result = function.apply(x, w, labels)
        return result[0] if isinstance(result, tuple) else result
    return loss


def cut_cross_entropy():
    return importlib.import_module("cut_cross_entropy").linear_cross_entropy


class Clock:
    """Seconds of calls by the device's events, by the host's clock on a CPU."""

    def __init__(self, device):
        self.is_gpu = device == "cuda"

    def once(self, call):
        if not self.is_gpu:
            start = time.perf_counter()
            call()
            return time.perf_counter() - start
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    def measure(self, calls):
        """Median and spread (quartiles over the median) of calls that take turns."""
        for call in calls:
            self.once(call)
        times, began = [], time.perf_counter()
        while len(times) < 7 or time.perf_counter() - began < SECONDS and len(times) < 200:
            times.append(self.once(calls[len(times) % len(calls)]))
        low, median, high = statistics.quantiles(times, n=4)
        return median, (high - low) / median


def arrays(shape, dtype, device):
    """Sets of x, w and labels that no cache holds together. Random, since zeros run faster."""
    b, h, v = shape
    size = (b + v) * h * torch.finfo(dtype).bits // 8
    sets = []
    for _ in range(max(1, min(8, math.ceil(ROTATED_BYTES / size)))):
        x = torch.randn(b, h, device=device).to(dtype).requires_grad_()
        w = (torch.randn(v, h, device=device) * 0.02).to(dtype).requires_grad_()
        sets.append((x, w, torch.randint(0, v, (b,), device=device)))
    return sets


def value_and_grad(loss, x, w, labels):
    x.grad = w.grad = None
    loss(x, w, labels).backward()


def measure(shape, dtype, device, loss, with_product):
    """Milliseconds and spreads of one row, and the memory beyond arrays and gradients."""
    clock, sets = Clock(device), arrays(shape, dtype, device)
    row = {}

    def keep(name, calls):
        median, spread = clock.measure(calls)
        row[name + "_ms"], row[name + "_spread"] = round(1e3 * median, 4), round(spread, 4)

    with torch.no_grad():
        if with_product:
            keep("matmul", [lambda s=s: s[0] @ s[1].T for s in sets])
        keep("forward", [lambda s=s: loss(*s) for s in sets])
    calls = [lambda s=s: value_and_grad(loss, *s) for s in sets]
    for call in calls:
        call()
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        calls[0]()
        row["extra_mib"] = round((torch.cuda.max_memory_allocated() - before) / 2**20)
    keep("value_and_grad", calls)
    return row


def text_of(row, flops):
    parts = []
    for name, factor in (("matmul", 1), ("forward", 1), ("value_and_grad", 3)):
        if name + "_ms" in row:
            ms = row[name + "_ms"]
            parts.append(f"{name} {ms:.3f} ms, {factor * flops / ms / 1e9:.3g} TFLOP/s, "
                         f"spread {100 * row[name + '_spread']:.1f}%")
    if "extra_mib" in row:
        parts.append(f"{row['extra_mib']} MiB more")
    return f"{row['shape']} {row['peer']} {row['dtype']}: " + "; ".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"torch {torch.__version__} on {name}", flush=True)
    torch.manual_seed(0)
    kinds = [("torch", lambda: whole, "bf16", torch.bfloat16, "highest"),
             ("torch.compile", compiled, "bf16", torch.bfloat16, "highest"),
             ("torch", lambda: whole, "tf32", torch.float32, "high"),
             ("torch", lambda: whole, "f32", torch.float32, "highest")]
    if options.peers:
        kinds = [(peer, make, "bf16", torch.bfloat16, "highest") for peer, make in
                 (("liger", liger), ("cce", cut_cross_entropy))]
    rows, failed = [], False
    for peer, make, dtype, type_, precision in kinds:
        if (dtype == "tf32" or peer == "torch.compile") and device == "cpu":
            continue
        for shape in options.shapes.split(","):
            extents = [int(extent) for extent in shape.split("x")]
            row = {"shape": shape, "peer": peer, "dtype": dtype, "device": name,
                   "torch": torch.__version__}
            try:
                torch.set_float32_matmul_precision(precision)
                row.update(measure(extents, type_, device, make(), peer == "torch"))
                print(text_of(row, 2 * math.prod(extents)), flush=True)
            except Exception as error:  # noqa: BLE001 - the other rows go on, out of memory too
                failed = True
                row["error"] = f"{type(error).__name__}: {error}"
                print(f"{shape} {peer} {dtype} not run: {row['error'][:160]}".replace("\n", " "),
                      flush=True)
            if device == "cuda":
                torch.cuda.empty_cache()
            rows.append(row)
            with open(options.out, "w", encoding="utf-8") as file:
                json.dump(rows, file, indent=1)
    sys.exit(failed)


if __name__ == "__main__":
    main()
