#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""linear_distillation beside PyTorch's composed form, in turns, in one run: a student that learns
from labels and from a teacher's layer (alpha 1/2, T 1), value_and_grad, in f32 and, where the
processor multiplies bf16, in bf16. PyTorch forms the logits of both, cross_entropy, log_softmax and
kl_div (in f32 from logits of bf16); each of its turns is a process of its own, whose peak memory
beyond inputs and gradients is a column. tessera's turns are rows of tessera-bench;
linear_cross_entropy stands beside them in the same process, value_and_grad and the forward that a
teacher's logits cost at least. usage: distillation.py --out FILE.json [--shape BxHxV] [--rounds N]
[--dtypes f32,bf16]; --venv and --no-install are those of run.py."""
import argparse
import itertools
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DIVERGENCES = ("forward_kl", "jsd")


def composed(kind, dtype, shape, steps, threads):
    """Median time of PyTorch's form in ms, and how many MiB its peak is above what was there."""
    import torch
    from torch.nn import functional

    torch.set_num_threads(threads)
    to_type = torch.bfloat16 if dtype == "bf16" else torch.float32
    b, h, v = shape
    numbers = torch.Generator().manual_seed(0)

    def layer():
        return (torch.randn(b, h, generator=numbers).to(to_type),
                (torch.randn(v, h, generator=numbers) * (2 / h**0.5)).to(to_type))

    (x, w), (teacher_x, teacher_w) = layer(), layer()
    labels = torch.randint(0, v, (b,), generator=numbers)
    for array in (x, w):
        array.requires_grad_()
        array.grad = torch.ones_like(array)  # there before the call, as tessera's views are

    def step():
        x.grad = w.grad = None
        logits = (x @ w.T).float()
        with torch.no_grad():
            p = functional.log_softmax((teacher_x @ teacher_w.T).float(), -1)
        q = functional.log_softmax(logits, -1)
        if kind == "forward_kl":
            divergence = functional.kl_div(q, p, log_target=True, reduction="batchmean")
        else:
            m = torch.logaddexp(q, p) - 0.6931471805599453  # log 2: beta is 1/2
            divergence = sum(functional.kl_div(m, each, log_target=True, reduction="batchmean")
                             for each in (p, q)) / 2
        loss = (functional.cross_entropy(logits, labels) + divergence) / 2
        loss.backward()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - begin))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"ms": statistics.median(times), "extra_mib": (after - before) / 1024,
            "version": f"torch {torch.__version__}"}


def tessera(build, kind, dtype, shape, threads):
    """The same of rows of tessera-bench, with the fraction of the machine's peak, and the time over
    that of linear_cross_entropy's value_and_grad and forward together."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "row.json"
        subprocess.run([build / "bin/tessera-bench", "--operators",
                        "linear_distillation,linear_cross_entropy", "--implementations", "opencl",
                        "--divergence", kind, "--dtypes", dtype, "--passes",
                        "forward,value_and_grad", "--w-layout", "vh", "--samples", "3",
                        "--shapes", "x".join(map(str, shape)), "--max-seconds", "8",
                        "--threads", str(threads), f"--benchmark_out={out}",
                        "--benchmark_out_format=json"], check=True, stdout=subprocess.DEVNULL)
        report = json.loads(out.read_text(encoding="utf-8"))
    rows = {"/".join(row["name"].split("/")[:2]): row for row in report["benchmarks"]}
    row = rows["linear_distillation/value_and_grad"]
    least = sum(rows[f"linear_cross_entropy/{which}"]["median_seconds"]
                for which in ("forward", "value_and_grad"))
    return {"over": row["median_seconds"] / least,
            "revision": report["context"]["tessera_revision"],
            "ms": 1e3 * row["median_seconds"], "extra_mib": row["extra_bytes_peak"] / 2**20,
            "fraction_of_peak": row["fraction_of_peak"], "name": row["name"],
            "label": row["label"]}


def has_bf16():
    return "avx512_bf16" in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")


def main():
    import environment

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--venv", default=str(ROOT / "build/tools/peers"))
    parser.add_argument("--no-install", action="store_true")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--shape", default="512x2048x32768")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtypes", default="f32,bf16" if has_bf16() else "f32")
    arguments = parser.parse_args()
    if not arguments.no_install:
        environment.install(arguments.venv)
    shape = [int(extent) for extent in arguments.shape.split("x")]
    turns = []
    for turn in range(arguments.rounds):
        for kind, dtype in itertools.product(DIVERGENCES, arguments.dtypes.split(",")):
            worker = [str(environment.venv_python(arguments.venv)), __file__, "--worker", kind,
                      dtype, arguments.shape, str(arguments.threads)]
            peer = json.loads(subprocess.run(worker, check=True, stdout=subprocess.PIPE).stdout)
            own = tessera(arguments.build, kind, dtype, shape, arguments.threads)
            turns.append({"round": turn, "divergence": kind, "dtype": dtype, "torch": peer,
                          "tessera": own})
            print(f"{kind} {dtype}: torch {peer['ms']:.0f} ms, {peer['extra_mib']:.0f} MiB; "
                  f"tessera {own['ms']:.0f} ms, {own['extra_mib']:.0f} MiB, {own['over']:.2f} of "
                  "linear_cross_entropy", flush=True)
    pathlib.Path(arguments.out).write_text(
        json.dumps({"machine": environment.machine(arguments.threads), "shape": arguments.shape,
                    "turns": turns}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        _, _, divergence, number_type, extents, thread_count = sys.argv
        print(json.dumps(composed(divergence, number_type, [int(e) for e in extents.split("x")], 5,
                                  int(thread_count))))
    else:
        main()
