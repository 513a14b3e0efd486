#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention's forward pass: tessera beside PyTorch, JAX and OpenVINO, in one process, in turns.

    scripts/torch_tools.sh
    build/tools/torch/bin/pip install --no-deps --target build/tools/openvino openvino   # or not
    cmake --preset release && cmake --build --preset release --target tessera_python tessera_torch
    PYTHONPATH=build/release/python:build/tools/openvino \\
        build/tools/torch/bin/python bench/peers/attention.py --out build/peers_attention

Rounds of one call each, A B C A B C ..., between samples of the machine's peak in the same process
(the loops of tessera-info --peaks, from a library that the script builds). Then a small call from
PyTorch, in microseconds. A contender that cannot run here or is wrong is a row with its reason."""
import argparse
import ctypes
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import sys

import numpy as np

import environment
import inputs
import tables
import turns
from environment import ROOT, say

sys.path.append(str(ROOT / "bench"))
from command_line import command_text  # noqa: E402

BASELINE = "torch.flash"
PEERS = ("tessera", "torch.flash", "torch.math", "jax", "openvino")
PACKAGES = ("torch", "jax", "jaxlib", "openvino", "numpy")
# A row of a head, norm-wise. bf16: results have 8 bits, and so have probabilities on the way.
TOLERANCES = {"f32": 1e-4, "bf16": 2e-2}
SAMPLED_ROWS = 16
SETTLE = 0.05  # seconds: measured, the threads of all sleep 25 ms after a call
SMALL, SMALL_BASELINE = "Q8/S16/D64", "F.scaled_dot_product_attention"
SMALL_ROUNDS, SMALL_COUNT = 40, 100


def parsed(text):
    """Q8/S2048/D64: extents by the letters of tessera/attention.hpp, B the batch, others given."""
    found = re.fullmatch(r"(?:[BQKSTDE]\d+)(?:/[BQKSTDE]\d+)*", text)
    parts = [(part[0], int(part[1:])) for part in text.split("/")] if found else []
    extents = dict(parts)
    if len(extents) != len(parts) or not {"Q", "S", "D"} <= extents.keys() or \
            min(extents.values()) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no shape as Q8/S2048/D64, with B, K, T, E")
    q, s, d = (extents[letter] for letter in "QSD")
    return {"B": 1, "K": q, "T": s, "E": d, **extents}


def pairs(extents, causal):
    """Queries and keys that they see, of one head; causal is PyTorch's, the upper left."""
    s, t = extents["S"], extents["T"]
    if not causal:
        return s * t
    return min(s, t) * (min(s, t) + 1) // 2 + max(s - t, 0) * t


def credited(extents, causal):
    """FLOPs: two products, of depth D and width E."""
    return 2 * pairs(extents, causal) * extents["B"] * extents["Q"] * (extents["D"] + extents["E"])


def textbook():
    """The tests' module: beside it lies a folder torch, so its folder is not put into the path."""
    spec = importlib.util.spec_from_file_location("textbook", ROOT / "python/tests/textbook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Problem:
    """The arrays that all read. There is one set: a call reads k and v once for each block of
    queries, so that where they were before it is less than a hundredth of its time."""

    def __init__(self, text, extents, dtype, causal, threads):
        self.text, self.extents, self.dtype, self.causal = text, extents, dtype, causal
        self.threads = threads
        b, q, k, s, t, d, e = (extents[letter] for letter in "BQKSTDE")
        rng = np.random.default_rng(7)
        self.arrays = [rng.standard_normal(shape, dtype=np.float32)
                       for shape in ((b, q, s, d), (b, k, t, d), (b, k, t, e))]
        self.exact = self.arrays
        if dtype == "bf16":
            self.arrays = [inputs.to_bf16(array) for array in self.arrays]
            self.exact = [inputs.from_bf16(bits) for bits in self.arrays]
        self.flops = credited(extents, causal)

    def typed(self):
        """The arrays in numpy's types."""
        if self.dtype == "f32":
            return self.arrays
        import ml_dtypes
        return [bits.view(ml_dtypes.bfloat16) for bits in self.arrays]

    def reference(self):
        """Some rows, and y there in double: q's other rows are left out, so the textbook is told
        by a bias what these see."""
        q, k, v = (array.astype(np.float64) for array in self.exact)
        rows = np.unique(np.linspace(0, q.shape[2] - 1, SAMPLED_ROWS).astype(np.int64))
        seen = np.arange(k.shape[2]) <= rows[:, None]
        bias = np.where(seen, 0.0, -np.inf) if self.causal else None
        return rows, textbook().attention(q[:, :, rows], k, v, bias=bias)[0]


def deviation(y, rows, reference):
    """The worst row's, of its norm."""
    if y.shape[2] <= rows[-1] or y[:, :, rows].shape != reference.shape:
        return float("inf")
    off = np.linalg.norm(y[:, :, rows].astype(np.float64) - reference, axis=-1)
    worst = np.max(off / np.linalg.norm(reference, axis=-1))
    return float(worst) if np.isfinite(worst) else float("inf")


class Contender:
    """One that is ready: `call` answers something, and `numbers` makes f32 [B, Q, S, E] of that.
    turns.Row asks it as if it were a process."""

    def __init__(self, call, numbers, what, count=1):
        self.call, self.numbers, self.what, self.count = call, numbers, what, count

    def ask(self, op, timeout):
        assert op == "run"
        try:
            return {"seconds": round(turns.timed(self.call, self.count), 9)}
        except Exception as error:  # whatever a library throws is this row's reason
            raise turns.Failed(reason(error)) from None

    def close(self):
        self.call = self.numbers = None


def reason(error):
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed"
    kind = "" if isinstance(error, turns.Failed) else f"{type(error).__name__}: "
    return " ".join(f"{kind}{error}".replace("|", "/").split())[:300]


def torch_contender(problem, function, what, count=1, **options):
    import torch

    from peer_torch import tensor
    q, k, v = map(tensor, problem.arrays)

    def call():
        with torch.no_grad():
            return function(q, k, v, is_causal=problem.causal, **options)
    return Contender(call, lambda y: y.float().numpy(), what, count)


def torch_backend(problem, name):
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def function(*operands, **options):
        with sdpa_kernel(getattr(SDPBackend, name)):
            return F.scaled_dot_product_attention(*operands, **options)
    grouped = problem.extents["Q"] != problem.extents["K"]
    return torch_contender(problem, function, f"F.scaled_dot_product_attention, SDPBackend.{name}",
                           enable_gqa=grouped)


def jax_contender(problem):
    import jax
    # [B, T, heads, D], as its users have them.
    q, k, v = (jax.block_until_ready(jax.device_put(np.ascontiguousarray(a.swapaxes(1, 2))))
               for a in problem.typed())

    @jax.jit
    def function(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, is_causal=problem.causal)
    return Contender(lambda: jax.block_until_ready(function(q, k, v)),
                     lambda y: np.asarray(y, np.float32).swapaxes(1, 2),
                     "jit of jax.nn.dot_product_attention")


def openvino_contender(problem):
    sys.modules["openvino_telemetry"] = None  # it would fork, and call home
    import openvino as ov
    from openvino import opset13
    kind = {"f32": ov.Type.f32, "bf16": ov.Type.bf16}[problem.dtype]
    nodes = [opset13.parameter(list(array.shape), kind) for array in problem.arrays]
    model = ov.Model([opset13.scaled_dot_product_attention(*nodes, causal=problem.causal)], nodes)
    compiled = ov.Core().compile_model(model, "CPU", {
        "INFERENCE_PRECISION_HINT": kind, "INFERENCE_NUM_THREADS": problem.threads,
        "NUM_STREAMS": 1})
    request = compiled.create_infer_request()
    for i, array in enumerate(problem.arrays):
        request.set_input_tensor(i, ov.Tensor(array, list(array.shape), kind))

    def numbers(_):
        tensor = request.get_output_tensor(0)
        if tensor.element_type == ov.Type.bf16:
            return inputs.from_bf16(tensor.data.view(np.uint16))
        return np.array(tensor.data, np.float32)
    return Contender(request.infer, numbers, "a graph of opset13's scaled_dot_product_attention")


def tessera_contender(problem, name, context, count=1):
    import tessera
    q, k, v = problem.typed()
    options = {"causal": "upper_left" if problem.causal else "no", "context": context}
    why = name and tessera.attention.why_unsupported(name, "forward", q, k, v, **options)
    if why:
        raise turns.Failed(why)
    y = np.empty((*q.shape[:-1], v.shape[-1]), q.dtype)

    def call():
        return tessera.attention.forward(q, k, v, out={"y": y}, implementation=name, **options)
    return Contender(call, lambda _: y.astype(np.float32), str(call().dispatch).strip("<>"), count)


def contenders(problem, a, context):
    """By name, what makes each ready."""
    makers = {"torch.flash": lambda: torch_backend(problem, "FLASH_ATTENTION"),
              "torch.math": lambda: torch_backend(problem, "MATH"),
              "jax": lambda: jax_contender(problem),
              "openvino": lambda: openvino_contender(problem)}
    try:
        import tessera
        own = [each["name"] for each in tessera.attention.implementations()]
    except ImportError:
        own = ["eigen"]  # whose row says it
    ours = {f"tessera.{name}": lambda name=name: tessera_contender(problem, name, context)
            for name in own if a.reference or name != "reference"}
    chosen = {}
    for peer in a.peers:
        chosen.update(ours if peer == "tessera" else {peer: makers[peer]})
    return chosen


def small_contenders(problem, context):
    """The calls that PyTorch's users make, and tessera's without PyTorch in between."""
    def theirs():
        import torch.nn.functional as F
        return torch_contender(problem, F.scaled_dot_product_attention, "PyTorch's own choice",
                               SMALL_COUNT)

    def ours():
        import tessera.torch as tt
        if not hasattr(tt, "attention"):
            raise turns.Failed("this tessera.torch has no attention")
        tt.set_context(context)
        return torch_contender(problem, tt.attention, "its own choice", SMALL_COUNT)
    return {SMALL_BASELINE: theirs, "tessera.torch.attention": ours,
            "tessera.attention.forward": lambda: tessera_contender(problem, None, context,
                                                                   SMALL_COUNT)}


def ready(makers, problem):
    """A row for each: called once, which compiles, and judged; or with its reason."""
    rows, reference = [], problem.reference()
    for name, make in makers.items():
        row = turns.Row(name, "forward", problem.dtype, "bhsd")
        rows.append(row)
        try:
            row.process = make()
            off = deviation(row.process.numbers(row.process.call()), *reference)
            row.facts = {"what": row.process.what, "deviation": off}
            if off > TOLERANCES[problem.dtype]:
                raise turns.Failed(f"wrong: a row is off by {off:.2g} of its norm")
        except Exception as error:  # whatever a library throws is this row's reason
            row.fail(reason(error))
            row.facts = {}
        say(f"  {name}: {row.reason or 'ready'}")
    return rows


def figures(groups):
    """(problem, baseline, rows), and for each row instead a dict of its figures and calls."""
    best = {}
    for problem, _, rows in groups:
        peaks = peaks_of(row.samples for row in rows)
        best[problem.dtype] = max([best.get(problem.dtype, 0.0), *peaks])
    for problem, baseline, rows in groups:
        other = next((row for row in rows if row.peer == baseline and not row.reason), None)
        peak = best[problem.dtype] if peaks_of(row.samples for row in rows) else None
        lines = []
        for row in rows:
            line = {"peer": row.peer, "pass": "forward", "dtype": row.dtype, "shape": problem.text,
                    "causal": problem.causal, "flops": problem.flops, "reason": row.reason,
                    "fraction_of_peak": "", **row.facts, "calls": row.samples}
            if row.samples and not row.reason:
                line.update(turns.summary(row, problem.flops, peak, other))
                beside = [2 * problem.flops / s["seconds"] / (s["before"] + s["after"])
                          for s in row.samples if s["before"]]
                line["fraction_of_peaks_beside"] = turns.median(beside) if beside else ""
            lines.append(line)
        yield problem, baseline, lines


def peaks_of(calls):
    return [s[at] for each in calls for s in each for at in ("before", "after") if s[at]]


def titled(problem, baseline, lines):
    """The table of one problem."""
    title = f"{problem.text}, {problem.dtype}, {'causal' if problem.causal else 'plain'}"
    peaks = peaks_of(line["calls"] for line in lines)
    if peaks:
        title += f"; peak beside the calls: median {turns.median(peaks) * 1e-9:.0f}, best " \
                 f"{max(peaks) * 1e-9:.0f} GFLOP/s"
    unit, factor = ("microseconds", 1e6) if baseline == SMALL_BASELINE else ("ms", 1e3)
    columns = {"": lambda s: s["peer"],
               unit: lambda s: f"{factor * s['median_seconds']:.4g}",
               "quartiles": lambda s: " to ".join(f"{factor * e:.4g}" for e in s["quartiles"]),
               "GFLOP/s": lambda s: f"{s['flops_per_second'] * 1e-9:.1f}",
               "of best peak": lambda s: f"{s['fraction_of_peak']:.1%}",
               "of peaks beside": lambda s: f"{s['fraction_of_peaks_beside']:.1%}",
               f"time / {baseline}": lambda s: format(s.get("times_of_baseline", ""),
                                                       ".2f" if "times_of_baseline" in s else ""),
               "calls": lambda s: f"{s['samples']}{' noisy' if peaks and s['noisy'] else ''}",
               "off by": lambda s: f"{s['deviation']:.1e}",
               " ": lambda s: s["what"]}
    if not peaks:
        del columns["of best peak"], columns["of peaks beside"]
    cells = []
    for line in lines:
        if "median_seconds" in line:
            cells.append([cell(line) for cell in columns.values()])
        else:
            cells.append([line["peer"], *[""] * (len(columns) - 2), line["reason"] or "no samples"])
    return tables.table(title, columns, cells)


def written(out, about, groups):
    """Writes attention.md and attention.json, and returns the lines of all."""
    done = list(figures(groups))
    text = [f"- {key}: {value}" for key, value in about.items()] + [""]
    text += [titled(*each) for each in done]
    (out / "attention.md").write_text("\n".join(text), encoding="utf-8")
    lines = [line for *_, of_group in done for line in of_group]
    rows = ",\n".join(map(json.dumps, lines))  # a line each
    (out / "attention.json").write_text(
        f'{{"about": {json.dumps(about, indent=1)},\n"rows": [\n{rows}\n]}}\n', encoding="utf-8")
    return lines


def peak_samplers(library, dtypes, threads):
    """By type, what takes a sample of the peak in this process, and which loop it is."""
    if library is None:
        return {dtype: (lambda: None, "not measured: the library is not built")
                for dtype in dtypes}
    loops = ctypes.CDLL(str(library))
    loops.tessera_peak_open.restype = ctypes.c_void_p
    loops.tessera_peak_sample.restype = ctypes.c_double
    loops.tessera_peak_sample.argtypes = [ctypes.c_void_p]
    loops.tessera_peak_description.restype = ctypes.c_char_p
    loops.tessera_peak_description.argtypes = [ctypes.c_void_p]

    def sampler(dtype):
        peak = loops.tessera_peak_open(threads, int(dtype == "bf16"))
        return (lambda: round(loops.tessera_peak_sample(peak)),
                loops.tessera_peak_description(peak).decode())
    return {dtype: sampler(dtype) for dtype in dtypes}


def versions():
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            pass
    return ", ".join(found)


def arguments():
    def listed(known):
        def of(text):
            for item in text.split(","):
                if item not in known:
                    raise argparse.ArgumentTypeError(f"'{item}' is not one of {', '.join(known)}")
            return text.split(",")
        return of
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/peers_attention",
                        help="folder of attention.md and attention.json")
    parser.add_argument("--build", default=ROOT / "build/release",
                        help="tessera's build, for the peak")
    parser.add_argument("--shapes", default="Q8/S2048/D64,Q8/S2048/D128",
                        type=lambda text: [(each, parsed(each)) for each in text.split(",")],
                        help="letters as in tessera/attention.hpp; unless given, B 1, K as Q, T as "
                             "S, E as D")
    parser.add_argument("--dtypes", default="f32,bf16", type=listed(tuple(TOLERANCES)))
    parser.add_argument("--causal", default="no,yes", type=listed(("no", "yes")))
    parser.add_argument("--peers", default=",".join(PEERS), type=listed(PEERS))
    parser.add_argument("--reference", action="store_true", help="tessera's reference, too")
    parser.add_argument("--no-small", action="store_true", help="leave the small call out")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--max-seconds", type=float, default=8.0,
                        help="of calls of one peer and problem, after which it leaves with three "
                             "samples or more, or after three times as many with fewer")
    a = parser.parse_args()
    if min(a.threads, a.rounds) < 1:
        parser.error("a number below 1")
    return a


def main():
    a = arguments()
    a.out.mkdir(parents=True, exist_ok=True)
    library = environment.build_tessera(a.build, "tessera-peer-peak", "lib/libtessera-peer-peak.so")
    # Before a library counts processors or reads its environment.
    cpus, limited = turns.limits(a.threads)
    os.sched_setaffinity(0, cpus)
    os.environ.update(limited, JAX_PLATFORMS="cpu")
    about = environment.machine(a.threads)
    about["command"] = command_text(["bench/peers/attention.py", *sys.argv[1:]])
    about["versions"] = versions()
    try:
        import torch
        torch.set_num_threads(a.threads)
    except ImportError:
        pass
    context = None
    try:
        import tessera  # first, so that the library of the peak takes this libtessera, too
        context = tessera.Context(threads=a.threads)
        about["tessera"] = f"{tessera.__version__} {tessera.revision}, {context!r}"
    except ImportError:
        pass
    samplers = peak_samplers(library, a.dtypes, a.threads)
    for dtype, (_, loop) in samplers.items():
        about[f"peak, {dtype}"] = loop
    groups = []
    for text, extents in a.shapes:
        for dtype in a.dtypes:
            for causal in a.causal:
                problem = Problem(text, extents, dtype, causal == "yes", a.threads)
                say(f"{text}, {dtype}, causal: {causal}")
                rows = ready(contenders(problem, a, context), problem)
                groups.append((problem, BASELINE, rows))
                turns.take_turns(rows, samplers[dtype][0], a.rounds, a.max_seconds, None,
                                 lambda text: None, SETTLE)
                for row in rows:
                    if row.process:
                        row.process.close()
                written(a.out, about, groups)
    for dtype in () if a.no_small else a.dtypes:
        problem = Problem(SMALL, parsed(SMALL), dtype, False, a.threads)
        say(f"{SMALL}, {dtype}")
        rows = ready(small_contenders(problem, context), problem)
        groups.append((problem, SMALL_BASELINE, rows))
        turns.take_turns(rows, lambda: None, SMALL_ROUNDS, a.max_seconds, None, lambda text: None,
                         0.0)
    wrong = tables.impossible(written(a.out, about, groups))
    print((a.out / "attention.md").read_text(encoding="utf-8"))
    if wrong:
        sys.exit("attention.py: error: no row can be that fast:\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
