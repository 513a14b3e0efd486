# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's autograd costs over a bare call, beside PyTorch's own function, in one process.

    scripts/torch_tools.sh
    cmake --preset release && cmake --build --preset release --target tessera_python
    PYTHONPATH=build/release/python build/tools/torch/bin/python bench/peers/torch_autograd.py

Rounds of one call each, A B C D A B C D ...; medians and quartiles, the median of the ratios within
a round, and the peak of resident memory in one call above what was resident before, without the
gradients. Then a small shape on `eigen`, in microseconds. `--markdown` writes the tables to a file.
"""
import argparse
import gc
import pathlib
import platform
import re
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F

import inputs
import tessera
import tessera.torch as tt
import turns
from tables import table

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
WHOLE, CHUNKED = "F.linear_cross_entropy, whole logits", "F.linear_cross_entropy, chunked"
BARE, OURS = "tessera, bare call", "tessera.torch"


class Calls:
    """The contenders of one type, on the same arrays."""

    def __init__(self, shape, kind, context):
        b, h, v = shape
        generator = torch.Generator().manual_seed(7)
        self.x = torch.randn(b, h, generator=generator).to(TYPES[kind]).requires_grad_()
        w = torch.randn(v, h, generator=generator) * (inputs.LOGIT_SPREAD / h**0.5)
        self.w = w.to(TYPES[kind]).requires_grad_()
        self.labels = torch.from_numpy(inputs.zipf_labels(np.random.default_rng(7), b, v))
        self.context = context
        self.out = {"loss": torch.zeros(()), "grad_x": torch.zeros_like(self.x).detach(),
                    "grad_w": torch.zeros_like(self.w).detach()}
        self.bare_call = {"w_layout": "vh", "context": context}

    def bare(self, grad):
        call = tessera.linear_cross_entropy
        x, w = self.x.detach(), self.w.detach()
        if grad:
            call.value_and_grad(x, w, self.labels, out=self.out, **self.bare_call)
        else:
            call.forward(x, w, self.labels, out={"loss": self.out["loss"]}, **self.bare_call)
        return self.out["loss"]

    def through(self, function, grad, **options):
        self.x.grad = self.w.grad = None
        if grad:
            loss = function(self.x, self.w, self.labels, **options)
            loss.backward()
            return loss
        with torch.no_grad():
            return function(self.x, self.w, self.labels, **options)

    def contenders(self, grad):
        chunks = getattr(torch.nn, "LinearCrossEntropyOptions", None)  # from PyTorch 2.13 on
        yield BARE, lambda: self.bare(grad)
        yield OURS, lambda: self.through(tt.linear_cross_entropy, grad)
        if chunks is not None:
            yield WHOLE, lambda: self.through(F.linear_cross_entropy, grad)
            yield CHUNKED, lambda: self.through(F.linear_cross_entropy, grad, options=chunks())


def status(key):
    text = pathlib.Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.search(key + r":\s+(\d+) kB", text)[1]) / 1024


def extra_memory(call, held):
    """MiB above what was resident, without the gradients that the call leaves (`held`)."""
    gc.collect()
    before = status("VmRSS")
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    call()
    return status("VmHWM") - before - held


def in_turns(contenders, rounds, count=1, pause=0.0, seconds=float("inf")):
    """Seconds of each call by name, a list of a number (or None) for each round.

    Who has taken longer than `seconds` in all sits out once it has three.
    """
    times = {name: [] for name, _ in contenders}
    for _ in range(rounds):
        for name, call in contenders:
            own = [each for each in times[name] if each is not None]
            if len(own) >= 3 and sum(own) > seconds:
                times[name].append(None)
                continue
            time.sleep(pause)  # threads of the call before go to sleep
            times[name].append(turns.timed(call, count))
    return times


def row(name, times, baseline, unit, extra=None):
    own = [each * unit for each in times[name] if each is not None]
    low, middle, high = statistics.quantiles(own, n=4)
    ratios = [a / b for a, b in zip(times[name], times[baseline], strict=True)
              if a is not None and b is not None]
    cells = [name, f"{middle:.4g}", f"{low:.4g} to {high:.4g}", f"{statistics.median(ratios):.2f}",
             str(len(own))]
    return cells + ([] if extra is None else [f"{extra:.0f}"])


def large(arguments, context):
    shape = tuple(map(int, arguments.shape.split("x")))
    for kind in arguments.types.split(","):
        calls = Calls(shape, kind, context)
        for grad in (False, True):
            contenders = list(calls.contenders(grad))
            losses = {name: call().detach().item() for name, call in contenders}  # compiles, too
            if max(losses.values()) - min(losses.values()) > 1e-2 * max(losses.values()):
                raise SystemExit(f"{kind}: the losses differ: {losses}")
            times = in_turns(contenders, arguments.rounds, pause=0.05, seconds=arguments.seconds)
            extra = {}
            for name, call in contenders:
                calls.x.grad = calls.w.grad = None
                held = 0.0
                if grad and name != BARE:
                    held = sum(t.numel() * t.element_size() for t in (calls.x, calls.w)) / 2**20
                extra[name] = extra_memory(call, held)
            what = "loss and gradients" if grad else "forward"
            yield table(f"{what}, {kind}, B x H x V {arguments.shape}, ms",
                        ["", "median", "quartiles", f"time / {OURS}", "calls", "extra MiB"],
                        [row(name, times, OURS, 1e3, extra[name]) for name, _ in contenders])


def small(context):
    calls = Calls((8, 64, 256), "f32", context)
    calls.bare_call["implementation"] = "eigen"

    def ours(*args):
        return tt.linear_cross_entropy(*args, implementation="eigen")

    for grad in (False, True):
        contenders = [(name, call) for name, call in calls.contenders(grad) if name != CHUNKED]
        contenders[1] = (OURS, lambda grad=grad: calls.through(ours, grad))
        times = in_turns(contenders, 40, count=100)
        baseline = WHOLE if len(contenders) > 2 else OURS
        yield table(f"{'forward and backward' if grad else 'forward'}, f32, B 8, H 64, V 256, "
                    "`eigen`, microseconds",
                    ["", "median", "quartiles", f"time / {baseline}", "rounds of 100"],
                    [row(name, times, baseline, 1e6) for name, _ in contenders])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="512x1024x32768", help="BxHxV")
    parser.add_argument("--types", default="f32,bf16")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=12.0, help="of one contender and table")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--markdown", type=pathlib.Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    context = tessera.Context(threads=arguments.threads)
    tt.set_context(context)
    start = time.monotonic()
    parts = [f"{platform.machine()}, {context!r}, {arguments.threads} threads; PyTorch "
             f"{torch.__version__}, tessera {tessera.__version__} ({tessera.revision})\n"]
    print(parts[0])
    for part in (*large(arguments, context), *small(context)):
        print(part, flush=True)
        parts.append(part)
    print(f"{time.monotonic() - start:.0f} s")
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
