#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/sweep.py on a small sweep and on a recorded one, bench/peers with tessera as the only
peer, and its attention.py without packages. usage: bench_scripts_test.py TESSERA_BENCH TESSERA_PEER
SOURCE_DIR"""
import argparse
import csv
import importlib.util
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

bench, peer, source = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
sys.path[:0] = [str(source / "bench"), str(source / "bench/peers")]
import attention  # noqa: E402
import command_line  # noqa: E402
import compare  # noqa: E402
import inputs  # noqa: E402
import sweep  # noqa: E402
import tables  # noqa: E402
import turns  # noqa: E402

DRAWS = importlib.util.find_spec("matplotlib") is not None
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what, flush=True)


def run_sweep(*arguments):
    done = subprocess.run([sys.executable, source / "bench/sweep.py", *map(str, arguments)],
                          capture_output=True, text=True)
    return done.returncode, done.stderr


def read_csv(path):
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(file))


def check_drawn(code, err, out, name):
    if DRAWS:
        check(code == 0 and (out / f"{name}.png").stat().st_size > 10000, f"{name}: {code} {err}")
    else:
        check(code == 1 and "needs matplotlib" in err, f"{name}: {code} {err}")
    check((out / f"{name}.md").read_text(encoding="utf-8").count("\n|") > 2, f"{name}.md")


def sweeps(folder):
    options = ["--bench", bench, "--implementations", "eigen", "--dtypes", "f32", "--samples", 3,
               "--max-seconds", 0.05, "--shape", "16x24x200", "--out", folder]
    code, err = run_sweep("ignored", "--values", "0,0.5", *options)
    check_drawn(code, err, folder, "ignored")
    rows = read_csv(folder / "ignored.csv")
    check([r["value"] for r in rows] == ["0.0"] * 2 + ["0.5"] * 2, f"ignored: {rows}")
    check([float(r["time_of_first"]) for r in rows[:2]] == [1.0, 1.0], f"ignored: {rows}")
    check(all(float(r["max_abs_deviation"]) < 1e-4 for r in rows), f"ignored: {rows}")

    code, err = run_sweep("filter", "--values", "0,0.0625", "--passes", "value_and_grad", *options)
    check_drawn(code, err, folder, "filter")
    check("| 2^-4 | value_and_grad | eigen |" in
          (folder / "filter.md").read_text(encoding="utf-8"), "filter.md")

    code, err = run_sweep("workspace", "--values", "1e-6,100", *options)
    check("workspace 1e-06" in err and "minimum" in err, f"workspace: {err}")
    check([r["value"] for r in read_csv(folder / "workspace.csv")] == ["100.0"],
          f"workspace: {err}")

    record = json.loads((folder / "ignored.json").read_text(encoding="utf-8"))
    # Results are committed: no folder of this machine is in them.
    said = [run["command"] for run in record["runs"]]
    said += [run["context"]["executable"] for run in record["runs"]]
    check(not any(word.startswith("/") for text in said for word in text.split()), f"{said}")
    for run in record["runs"]:
        for row in run["benchmarks"]:
            row["fraction_of_bracket"] = 0.5 if run["value"] == 0.0 else 0.8
    (folder / "recorded.json").write_text(json.dumps(record), encoding="utf-8")
    code, err = run_sweep("ignored", "--from", folder / "recorded.json", "--out", folder / "again")
    check_drawn(code, err, folder / "again", "ignored")
    # 0.5 of the peak, then 0.8 for the same credit: 0.625 of the time.
    check(math.isclose(float(read_csv(folder / "again/ignored.csv")[-1]["time_of_first"]), 0.625),
          "the ratio of a recorded sweep")

    # Rows of an operator that has no vocabulary, of which a measurement would take minutes.
    recorded = source / "bench/results/sweeps/rows.json"
    code, err = run_sweep("rows", "--from", recorded, "--out", folder)
    check_drawn(code, err, folder, "rows")
    check(len(read_csv(folder / "rows.csv")) == 36, "rows.csv")

    code, err = run_sweep("b", "--from", folder / "recorded.json")
    check(code == 1 and "holds the sweep 'ignored'" in err, err)
    (folder / "bad.json").write_text("[]", encoding="utf-8")
    code, err = run_sweep("b", "--from", folder / "bad.json")
    check(code == 1 and "no recorded sweep" in err, err)
    code, err = run_sweep("small", "--bench", folder / "absent")
    check(code == 1 and "sweep.py: error: " in err, err)
    commands = {name: list(sweep.points(type("A", (), dict(name=name, values=None, b=2, h=3, v=5))))
                for name in sweep.SWEEPS}
    check(commands["threads"][0][2][1] == "POCL_MAX_PTHREAD_COUNT=1", f"{commands['threads']}")
    check(commands["v"][-1][1] == ["--shapes", "2x3x262144"], f"{commands['v']}")
    check(commands["rows"][0][1] == ["--shapes", "524288x64x1", "--operators", "rms_norm"],
          f"{commands['rows']}")


def commands():
    words = [source.resolve() / "build/x", "--out=/a/b/c", "--venv", "/h/v/", "512x2", "a/b",
             "p=/u/v"]
    check(command_line.command_text(words) == "build/x --out=c --venv v 512x2 a/b p=v",
          command_line.command_text(words))


def arrays():
    values = np.float32([1.0, 1.00390625, 1.01171875, -3.0e-39, 65280.0])
    check(inputs.from_bf16(inputs.to_bf16(values)).tolist()[:3] == [1.0, 1.0, 1.015625],
          "ties of bf16 go to even")
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((5, 7)), rng.standard_normal((11, 7))
    labels = np.array([0, 10, 3, 3, 4])
    loss, grad_x, grad_w = inputs.reference(x, w, labels, np.array([1, 4]), np.array([3, 7]), 4)
    z = x @ w.T
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    check(math.isclose(loss, -np.log(p[np.arange(5), labels]).mean()), "the reference's loss")
    p[np.arange(5), labels] -= 1.0
    check(np.allclose(grad_x, (p @ w / 5)[[1, 4]]) and np.allclose(grad_w, (p.T @ x / 5)[[3, 7]]),
          "the reference's gradients")


def figures():
    def row(seconds, peaks):
        r = turns.Row("p", "forward", "f32", "vh")
        r.samples = [{"round": i, "seconds": s, "before": p, "after": p}
                     for i, (s, p) in enumerate(zip(seconds, peaks, strict=True))]
        return r
    quiet = turns.summary(row([2.0] * 9, [10.0] * 9), 10.0, 10.0, row([1.0] * 9, [10.0] * 9))
    check(quiet["noisy"] == 0 and quiet["fraction_of_peak"] == 0.5 and
          quiet["times_of_baseline"] == 2.0, f"{quiet}")
    # Half the speed in half of the rounds, for both: the ratio does not see it.
    slow = [10.0, 5.0] * 4
    drift = turns.summary(row([2.0, 4.0] * 4, slow), 10.0, 10.0, row([1.0, 2.0] * 4, slow))
    check(drift["noisy"] == 1 and drift["samples_counted"] == 4 and
          drift["times_of_baseline"] == 2.0, f"{drift}")
    # A peak that something beside it halved is neither the row's share nor its ratio.
    halved = turns.summary(row([2.0] * 4, [10.0, 5.0] * 2), 10.0, 10.0, row([1.0] * 4, [10.0] * 4))
    check(halved["fraction_of_peak"] == 0.5 and halved["times_of_baseline"] == 2.0, f"{halved}")
    failed = turns.Row("q", "forward", "f32", "vh")
    failed.fail("has no such thing")
    good = row([1.0], [10.0])
    good.facts = {"what": "products", "loss": None}
    lines = tables.summaries([good, failed], (1, 2, 3), "p")
    text = tables.markdown({"date": "today"}, lines, "p")
    check("has no such thing |" in text and "| p | 0.0 | 120.0% |" in text, text)
    check(tables.impossible(lines) == ["p, forward, f32: 120.0% of the measured peak"],
          f"{tables.impossible(lines)}")


def attention_peers():
    extents = attention.parsed("B2/Q4/K2/S5/T3/D8/E6")
    check(extents == dict(B=2, Q=4, K=2, S=5, T=3, D=8, E=6), f"{extents}")
    check(attention.parsed("Q4/S5/D8") == dict(B=1, Q=4, K=4, S=5, T=5, D=8, E=8), "defaults")
    for text in ("Q4/S5", "Q4/S5/D8/H2", "Q4/Q4/S5/D8", "Q0/S5/D8", "4x5x8"):
        try:
            check(False, f"{text} was taken: {attention.parsed(text)}")
        except argparse.ArgumentTypeError:
            pass
    for s, t in ((5, 3), (3, 5), (4, 4)):
        seen = np.tri(s, t).sum()
        check(attention.pairs({"S": s, "T": t}, True) == seen, f"pairs of {s}, {t}")
    check(attention.credited(extents, False) == 2 * 4 * 5 * 3 * (2 * 8 + 2 * 6), "FLOPs")

    extents = attention.parsed("Q2/S40/T30/D8")
    problem = attention.Problem("p", extents, "bf16", True, 1)
    rows, expected = problem.reference()
    double = [a.astype(np.float64) for a in problem.exact]
    upper, lower = (attention.textbook().attention(*double, causal=causal)[0]
                    for causal in ("upper_left", "lower_right"))
    check(attention.deviation(upper, rows, expected) < 1e-12, "the reference's mask")
    check(attention.deviation(lower[:, :, ::-1], rows, expected) > 0.1, "another mask")
    check(attention.deviation(upper * np.nan, rows, expected) == math.inf, "NaN is off")

    def fails():
        raise ModuleNotFoundError("No module named 'jax'", name="jax")
    rows = attention.ready({"right": lambda: attention.Contender(lambda: upper, lambda y: y, "r"),
                            "wrong": lambda: attention.Contender(lambda: -upper, lambda y: y, "w"),
                            "absent": fails}, problem)
    check([row.reason for row in rows] == ["", "wrong: a row is off by 2 of its norm",
                                           "jax is not installed"], f"{[r.reason for r in rows]}")
    turns.take_turns(rows, lambda: 5e15, 3, 60, None, lambda text: None, 0.0)
    check([len(row.samples) for row in rows] == [3, 0, 0], f"{rows[0].samples}")
    for at, sample in enumerate(rows[0].samples):
        sample.update(seconds=2.0, before=4.0 * problem.flops, after=(4.0 - at) * problem.flops)
    (_, baseline, lines), = attention.figures([(problem, "right", rows)])
    check(lines[0]["fraction_of_peak"] == 0.125 and lines[0]["times_of_baseline"] == 1.0 and
          math.isclose(lines[0]["fraction_of_peaks_beside"], 1 / 7), f"{lines[0]}")
    text = attention.titled(problem, baseline, lines)
    check("| right | 2000 | 2000 to 2000 |" in text and "| jax is not installed |" in text, text)


def tessera(folder):
    sampled = inputs.make(folder, 33, 40, 300, ["f32", "bf16"])
    a = type("A", (), dict(threads=1, timeout=60, tessera=peer, venv=str(folder), b=33, h=40,
                           v=300, max_seconds=60))
    for dtype in ("f32", "bf16"):
        reference = np.load(folder / dtype / "reference.npz")
        for which in ("forward", "value_and_grad"):
            for layout in ("vh", "hv"):
                row = turns.Row("tessera.eigen", which, dtype, layout)
                compare.start(row, a, folder / dtype, folder / "log")
                compare.judge(row, a, reference, sampled, folder)
                peaks = turns.Process([peer], folder / "peak.log", 1)

                def peak(peaks=peaks):
                    return peaks.ask("peak", 60, threads=1, dtype="f32")["flops_per_second"]
                compare.measure_memory(row, a, peak)
                turns.take_turns([row], peak, 2, 60, 60, lambda text: None)
                peaks.close()
                check(not row.reason and len(row.samples) == 2, f"{row.reason} {row.samples}")
                check({"loss_deviation", "call_bytes", "version"} <= row.facts.keys() and
                      ("grad_w_deviation" in row.facts) == (which == "value_and_grad"),
                      f"{row.facts}")
                check(row.asked("nonsense", 60) is None and "unknown op" in row.reason, row.reason)
    reference = dict(reference, loss=reference["loss"] * 1.5)
    row = turns.Row("tessera.eigen", "forward", "bf16", "vh")
    compare.start(row, a, folder / "bf16", folder / "log")
    compare.judge(row, a, reference, sampled, folder)
    check(row.reason.startswith("wrong loss"), row.reason)
    gone = turns.Row("p", "forward", "f32", "vh")
    gone.process = turns.Process(["false"], folder / "log", 1)
    gone.asked("run", 60)
    check("ended with 1" in gone.reason, gone.reason)


with tempfile.TemporaryDirectory(prefix="tessera_scripts_") as scratch:
    sweeps(pathlib.Path(scratch))
    commands()
    arrays()
    figures()
    attention_peers()
    tessera(pathlib.Path(scratch))
print(f"{len(failures)} failures")
sys.exit(1 if failures else 0)
