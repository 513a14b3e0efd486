# SPDX-License-Identifier: Apache-2.0
"""What run.py starts with the Python of its folder: measures, judges and writes."""
import argparse
import json
import pathlib
import sys
import tempfile

import numpy as np

import environment
import inputs
import tables
import turns
from environment import HERE, say

BASELINE = "tessera.opencl"
# Of the loss, relative; of sampled gradients, norm-wise. f32: sums of 32768 terms in any order.
# bf16: PyTorch's logits and loss are rounded to 8 bits, and so are the gradients of all.
TOLERANCES = {"f32": (1e-4, 1e-3), "bf16": (1e-2, 4e-2)}


def start(row, a, folder, log):
    """Starts the row's process and prepares it; the row fails with its reason."""
    job = {"peer": row.peer, "pass": row.which, "dtype": row.dtype, "layout": row.layout,
           "threads": a.threads, "x": str(folder / "x.npy"), "labels": str(folder / "labels.npy"),
           "w": str(folder / f"w_{row.layout}.npy")}
    if row.peer.startswith("tessera"):
        if a.tessera is None:
            return row.fail("tessera-peer is not built")
        parts = row.peer.split(".")
        job["implementation"] = parts[1]
        if len(parts) > 2:  # scratch memory bounded to an eighth of the f32 logits
            if row.which == "forward":
                return row.fail("the forward pass keeps no logits anyway")
            job["workspace_bytes"] = max(a.b * a.v * 4 // 8, 1)
        command = [a.tessera]
    else:
        command = [sys.executable, str(HERE / "worker.py")]
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(pathlib.Path(a.venv) / "cache/inductor"),
             "TORCHINDUCTOR_COMPILE_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    row.process = turns.Process(command, log, a.threads, cache)
    row.asked("prepare", a.timeout, **job)
    first = row.asked("run", a.timeout)
    if first:
        row.facts.update(first_seconds=first["seconds"], loss=first["loss"])
    described = row.asked("describe", a.timeout)
    if described:
        row.facts.update(described)
    return None


def judge(row, a, reference, sampled, scratch):
    """Compares with the reference in double; what is too far off fails the row."""
    loss_bound, gradient_bound = TOLERANCES[row.dtype]
    if row.reason or row.facts.get("loss") is None:
        return
    off = abs(row.facts["loss"] / float(reference["loss"]) - 1.0)
    row.facts["loss_deviation"] = off
    if not off <= loss_bound:
        return row.fail(f"wrong loss: {row.facts['loss']} instead of {float(reference['loss'])}")
    if row.which != "value_and_grad":
        return
    prefix = str(scratch / row.peer)
    if row.asked("save", a.timeout, prefix=prefix, rows=sampled[0], columns=sampled[1]) is None:
        return
    for name in ("grad_x", "grad_w"):
        got = np.load(f"{prefix}.{name}.npy").astype(np.float64)
        off = np.linalg.norm(got - reference[name]) / np.linalg.norm(reference[name])
        row.facts[f"{name}_deviation"] = float(off)
        if not off <= gradient_bound:
            return row.fail(f"wrong {name}: off by {off:.2g} of its norm")


def measure_memory(row, a, peak):
    before = peak()
    reply = row.asked("memory", a.timeout)
    if reply:
        if reply["seconds"] > a.max_seconds:  # minutes: this call is its sample, too
            row.samples.append({"round": 0, "seconds": reply["seconds"], "before": before,
                                "after": peak()})
        extra = reply["peak_bytes"] - reply["before_bytes"]
        size = {"f32": 4, "bf16": 2}[row.dtype]
        own = size * a.h * (a.b + a.v) if row.which == "value_and_grad" else 0
        row.facts.update(call_bytes=extra, call_bytes_beyond_gradients=extra - own)


def measure(a, out):
    """The rows of each pass and type, with their samples and facts, as they are done."""
    with tempfile.TemporaryDirectory(prefix="peers_") as scratch:
        scratch = pathlib.Path(scratch)
        say("making inputs and the reference in double")
        sampled = inputs.make(scratch, a.b, a.h, a.v, a.dtypes)
        for dtype in a.dtypes:
            reference = np.load(scratch / dtype / "reference.npz")
            for which in a.passes:
                say(f"{which}, {dtype}")
                group = [turns.Row(p, which, dtype, a.layouts[p])
                         for p in a.peers]
                meter = turns.Process([a.tessera], out / "logs/peak.log", a.threads) \
                    if a.tessera else None

                def peak(meter=meter, dtype=dtype):
                    return meter.ask("peak", a.timeout, threads=a.threads,
                                     dtype=dtype)["flops_per_second"] if meter else None
                try:
                    for row in group:
                        start(row, a, scratch / dtype,
                              out / f"logs/{row.peer}-{which}-{dtype}.log")
                        judge(row, a, reference, sampled, scratch)
                        measure_memory(row, a, peak)
                        say(f"  {row.peer}: {row.reason or 'ready'}")
                    turns.take_turns(group, peak, a.rounds, a.max_seconds, a.timeout, say)
                finally:
                    for row in group:
                        if row.process:
                            row.process.close()
                    if meter:
                        meter.close()
                yield group


def main():
    a = argparse.Namespace(**json.loads(sys.argv[1]))
    out = pathlib.Path(a.out)
    (out / "logs").mkdir(parents=True, exist_ok=True)
    about = environment.machine(a.threads)
    about["command"] = a.command
    about["shape"] = f"B {a.b}, H {a.h}, V {a.v}"
    rows, wrong = [], []
    try:
        for group in measure(a, out):
            rows += group
            about["versions"] = "; ".join(sorted({r.facts["version"] for r in rows
                                                  if "version" in r.facts}))
            (out / "machine.json").write_text(json.dumps(about, indent=1) + "\n",
                                              encoding="utf-8")
            wrong = tables.write(out, about, rows, (a.b, a.h, a.v), BASELINE)
    except turns.Failed as error:  # of the meter: without peaks no sample means anything
        sys.exit(f"run.py: error: {error}")
    say(f"results: {out}/table.md, summary.csv, samples.csv, chart.png")
    if wrong:
        sys.exit("run.py: error: no row can be that fast:\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
