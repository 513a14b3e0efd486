#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What people script against: the names of tessera-bench's rows, its counters, its exit codes and
messages, and report.py. usage: bench_test.py TESSERA_BENCH SOURCE_DIR"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

COUNTERS = {
    "flops", "flops_per_second", "peak_flops_per_second", "fraction_of_peak", "bytes_ideal",
    "bytes_moved", "extra_bytes_peak", "first_call_seconds", "max_abs_deviation",
    "mean_abs_deviation", "compile_seconds",
    "tokens_per_second", "fraction_of_bound", "fraction_of_bracket", "executed_flops",
    "transcendentals", "median_seconds", "spread", "samples", "samples_counted", "noisy",
    "deviation_in_tolerances"}
# Short samples, few of them, and small arrays: this is no measurement.
QUICK = ["--samples", "3", "--max-seconds", "0.05", "--rotate-bytes", "200000"]
# Where a machine keeps its files is no part of results.
os.environ["TESSERA_SOME_FOLDERS"] = "a:/b/c:d=/e/f/"
# The names begin like those of AMD's, Intel's and Mesa's drivers, and are none of them.
STEERING = {"HSA_SOME": "1", "NEO_SOME": "2", "RUSTICL_SOME": "3"}
os.environ.update(STEERING, NEO4J_AUTH="secret")
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what, flush=True)


def run(*arguments):
    done = subprocess.run([bench, *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def rows_of(*arguments):
    code, out, err = run(*arguments, *QUICK, "--benchmark_format=json")
    check(code == 0, f"{arguments}: exit {code}: {err[-2000:]} {out[-2000:]}")
    if code != 0:
        return {}, {}
    data = json.loads(out)
    return data["context"], {row["name"]: row for row in data["benchmarks"]}


def check_row(name, row, b):
    check(COUNTERS <= row.keys(), f"{name}: without {COUNTERS - row.keys()}")
    for counter in COUNTERS & row.keys():
        check(math.isfinite(row[counter]) and row[counter] >= 0,
              f"{name}: {counter} {row[counter]}")
    check(0 < row["mean_abs_deviation"] <= row["max_abs_deviation"], f"{name}: mean deviation")
    check(row["deviation_in_tolerances"] <= 1, f"{name}: deviation {row['max_abs_deviation']}")
    check(row["label"], f"{name}: no label")
    check(math.isclose(row["tokens_per_second"] * row["median_seconds"], b, rel_tol=1e-3),
          f"{name}: tokens_per_second")
    check(("noisy" in row["label"]) == bool(row["noisy"]), f"{name}: label {row['label']}")
    check(row["status"] == ("noisy" if row["noisy"] else "ok") and row["error"] == "",
          f"{name}: status {row['status']}, error {row['error']!r}")
    check(row["compile_seconds"] < row["first_call_seconds"] and
          (row["compile_seconds"] > 0) == ("/opencl" in name),
          f"{name}: compiling took {row['compile_seconds']} of {row['first_call_seconds']} s")


def passes_types_and_layouts():
    for implementation in ("eigen", "reference"):
        context, rows = rows_of("--implementations", implementation, "--dtypes", "f32,bf16,f32:f16",
                                "--w-layout", "hv,vh", "--shapes", "5x24x67")
        check("tessera_revision" in context and "peak_host_fma_f32" in context, f"{context}")
        check(context["executable"] == "tessera-bench", f"a folder: {context['executable']}")
        environment = json.loads(context["environment"])
        check(environment["TESSERA_SOME_FOLDERS"] == "a:c:d=f", f"folders: {environment}")
        check(STEERING.items() <= environment.items() and "NEO4J_AUTH" not in environment,
              f"variables that steer drivers: {environment}")
        wanted = {f"linear_cross_entropy/{p}/{implementation}/{t}/{layout}/B5/H24/V67"
                  for p in ("forward", "backward", "value_and_grad")
                  for t in ("f32", "bf16", "f32:f16") for layout in ("hv", "vh")}
        check(rows.keys() == wanted, f"names {sorted(rows)}")
        for name, row in rows.items():
            check_row(name, row, 5)
            factor = 2 if "/forward/" in name else 6
            check(row["flops"] == factor * 5 * 24 * 67, f"{name}: flops {row['flops']}")


def report_of(file):
    return subprocess.run([sys.executable, source / "bench/report.py", file], capture_output=True,
                          text=True)


def device_rows(folder):
    """Where a device is, its rows; every operator; report.py on JSON and CSV."""
    out = folder / "bench.json"
    code, text, err = run("--operators", "linear_cross_entropy,softmax_cross_entropy",
                          "--implementations", "opencl,eigen,eigen.gemm", "--shapes", "33x40x129",
                          *QUICK, f"--benchmark_out={out}")
    check(code == 0, f"exit {code}: {err[-2000:]} {text[-2000:]}")
    rows = json.loads(out.read_text())["benchmarks"]
    for row in rows:
        if not row.get("error_occurred"):
            check_row(row["name"], row, 33)
    good = {row["name"] for row in rows if not row.get("error_occurred")}
    refused = {row["name"] for row in rows if row.get("error_occurred")}
    check("linear_cross_entropy/forward/eigen.gemm/f32/vh/B33/H40/V129" in good, f"{good}")
    check("softmax_cross_entropy/value_and_grad/eigen/f32/B33/V129" in good, f"{good}")
    check("softmax_cross_entropy/forward/eigen.gemm/f32/B33/V129" in refused, f"{refused}")
    for row in rows:
        if row.get("error_occurred"):
            check(row["status"] == "refused" and row["error"] == row["error_message"] != "",
                  f"{row}")
    code, text, err = run("--shapes", "33x40x129", "--implementations", "eigen", *QUICK,
                          "--benchmark_format=csv")
    (folder / "bench.csv").write_text(text)
    for file in (out, folder / "bench.csv"):
        report = report_of(file)
        check(report.returncode == 0 and "value_and_grad | eigen | f32 |" in report.stdout,
              f"report.py {file}: {report.stderr} {report.stdout}")
    # Results of an older tessera-bench, whose rows have less.
    old = source / "bench/results/models-2026-11-22.json"
    report = report_of(old)
    check(report.returncode == 0 and "| opencl.cpu |" in report.stdout, report.stderr)
    bad = folder / "bad.json"
    bad.write_text("{")
    report = report_of(bad)
    check(report.returncode == 1 and "report.py: error: " in report.stderr, report.stderr)


def extents_by_letter(folder):
    """Rows of an operator with letters of its own, alone and beside another, and their report."""
    out = folder / "letters.json"
    call = ["--operators", "attention,rms_norm", "--passes", "forward", "--implementations",
            "reference,eigen", "--dtypes", "f32,bf16"]
    code, text, err = run(*call, "--shapes", "B2/Q4/S9/D8,K2/T12/E5/S3/Q4/D8/B1,6x16x40",
                          *QUICK, f"--benchmark_out={out}")
    check(code == 0, f"exit {code}: {err[-2000:]} {text[-2000:]}")
    rows = {row["name"]: row for row in json.loads(out.read_text())["benchmarks"]}
    for name, tokens, flops in (
            ("attention/forward/eigen/bf16/B2/Q4/S9/D8", 18, 2 * 4 * 9 * 9 * 2 * 16),
            ("attention/forward/reference/f32/B1/Q4/S3/D8/K2/T12/E5", 3, 4 * 3 * 12 * 2 * 13),
            ("rms_norm/forward/eigen/f32/B6/H16", 6, None)):
        if name not in rows:
            check(False, f"{name} of {list(rows)}")
            continue
        check_row(name, rows[name], tokens)
        check(flops in (None, rows[name]["flops"]), f"{name}: {rows[name]['flops']} FLOP")
    check(len(rows) == 2 * 2 * 3, f"{list(rows)}")
    report = report_of(out)
    check("| attention forward | reference | f32 |  | B1 Q4 S3 D8 K2 T12 E5 |" in report.stdout and
          "| rms_norm forward | eigen | bf16 |  | 6 x 16 |" in report.stdout, report.stdout)
    # Options change the name, the FLOP and the numbers that results are held against.
    options = {"causal": "lower_right", "window_left": "2", "window_right": "-1", "scale": "0.3",
               "logit_soft_cap": "1.5"}
    code, text, err = run(*call[:-2], "--shapes", "Q2/S5/T7/D8",
                          *[f"--set={name}={value}" for name, value in options.items()], *QUICK,
                          f"--benchmark_out={out}")
    check(code == 0, f"--set: exit {code}: {err[-2000:]} {text[-2000:]}")
    rows = json.loads(out.read_text())["benchmarks"]
    suffix = "".join(f"/{name}={value}" for name, value in options.items())
    check([row["name"] for row in rows] == [f"attention/forward/{each}/f32/B1/Q2/S5/D8/T7{suffix}"
                                            for each in ("reference", "eigen")], f"{rows}")
    for row in rows:
        check(row["flops"] == 2 * 5 * 3 * 2 * 16, f"{row['name']}: {row['flops']} FLOP")
    report = report_of(out)
    check("| B1 Q2 S5 D8 T7, causal=lower_right, window_left=2," in report.stdout, report.stdout)
    models = ["--shapes", str(source / "bench/shapes/attention.txt"), "--benchmark_list_tests"]
    code, out, _ = run("--operators", "attention", "--implementations", "eigen", *models)
    check(code == 0 and "attention/forward/eigen/f32/B1/Q64/S512/D64/K8\n" in out, out)
    code, out, _ = run("--operators", "attention", "--implementations", "eigen", *models,
                       "--tokens", "7", "--set", "causal=no", "--block-sizes", "64,32;64,64")
    check("attention/forward/eigen/f32/B1/Q12/S7/D32/causal=no/blocks64x32\n" in out, out)


def quiet():
    """Nothing of a driver's own on stderr, whatever it is that it is asked to build."""
    code, _, err = run("--operators", "linear_cross_entropy,softmax_cross_entropy", "--passes",
                       "value_and_grad", "--dtypes", "f32,bf16,f16", "--shapes", "9x40x129", *QUICK)
    check(code == 0 and not err, f"exit {code}, stderr {err[-2000:]!r}")


def one_gradient_and_own_blocks():
    _, rows = rows_of("--implementations", "eigen", "--passes", "value_and_grad", "--gradients",
                      "x", "--shapes", "6x16x40", "--block-sizes", "64,512,64")
    (name, row), = rows.items()
    check(name.endswith("/B6/H16/V40/dx"), name)
    check(row["flops"] == 4 * 6 * 16 * 40, f"{name}: {row['flops']}")
    check("v_block_size 64 (caller)" in row["label"], row["label"])


def several_blocks():
    asked = ("--implementations", "eigen,eigen.gemm", "--passes", "forward", "--shapes", "6x16x40",
             "--include-inferred")
    _, rows = rows_of(*asked, "--block-sizes", "64,512,64;0,512,64", "--block-sizes", "32,512,64")
    stem = "linear_cross_entropy/forward/eigen/f32/vh/B6/H16/V40"
    wanted = {f"{stem}/blocks64x512x64": "v_block_size 64 (caller)",
              f"{stem}/blocks32x512x64": "b_block_size 32", stem: "(heuristic)"}
    check(rows.keys() == {*wanted, f"{stem}/blocks0x512x64", stem.replace("eigen", "eigen.gemm")},
          f"names {sorted(rows)}")
    for name, label in wanted.items():
        check_row(name, rows[name], 6)
        check(label in rows[name]["label"], f"{name}: {rows[name]['label']}")
    # The one that cannot be does not end the run, and says why.
    illegal = rows[f"{stem}/blocks0x512x64"]
    check(illegal["status"] == "refused" and "b_block_size" in illegal["error"], f"{illegal}")
    # Sizes that an operator does not have are not in its names.
    _, rows = rows_of("--operators", "softmax_cross_entropy", *asked, "--block-sizes", "8,1,64",
                      "--block-sizes", "8,2,64")
    check(sum("/blocks8x64" in name for name in rows) == 1, f"{sorted(rows)}")


def ignored_rows():
    _, rows = rows_of("--operators", "linear_cross_entropy,softmax_cross_entropy",
                      "--implementations", "eigen", "--shapes", "9x16x40", "--ignored", "0.5")
    check(len(rows) == 6, f"{sorted(rows)}")
    for name, row in rows.items():
        check(name.endswith("/V40/ignored50"), name)
        check_row(name, row, 9)


def rows_of_pairs():
    _, rows = rows_of("--operators", "linear_cross_entropy,softmax_cross_entropy",
                      "--shapes", "9x16x40", "--target-pairs", "0,3", "--ignored", "0.25")
    for name, row in rows.items():
        if row.get("error_occurred") and "/opencl" in name:
            continue  # no device here
        check_row(name, row, 9)
    pairs = [name for name in rows if name.endswith("/V40/pairs3/ignored25")]
    check(len(rows) == 2 * len(pairs) > 0, f"{sorted(rows)}")


def rows_of_dense_targets():
    _, rows = rows_of("--operators",
                      "linear_cross_entropy,softmax_cross_entropy,linear_distillation",
                      "--implementations", "eigen", "--shapes", "9x16x40",
                      "--targets", "labels,dense")
    for name, row in rows.items():
        check_row(name, row, 9)
    dense = [name for name in rows if "/V40/dense" in name]
    check(len(rows) == 2 * len(dense) > 0, f"{sorted(rows)}")


def filtered_rows():
    _, rows = rows_of("--passes", "forward,value_and_grad", "--implementations", "opencl,eigen",
                      "--shapes", "9x16x400", "--data", "trained", "--gradient-filter-eps",
                      "0.0625")
    for name, row in rows.items():
        if row.get("error_occurred") and "/opencl" in name:
            continue  # no device here
        check_row(name, row, 9)
        filtered = "/value_and_grad/" in name
        check(name.endswith("/V400/trained" + ("/filter0.0625" if filtered else "")), name)
        check(("grad_x_filter_norm" in row) == filtered, f"{name}: {row}")
        if filtered:
            lost = row["grad_w_filter_norm"]
            check(lost == 0 if "/eigen/" in name else 0 < lost < 0.5, f"{name}: {lost}")


def turns(folder):
    """Beside itself, every row's ratio lies within its interval, which holds no nonsense."""
    call = ["--passes", "forward,value_and_grad", "--implementations", "eigen", "--shapes",
            "9x16x40", "--samples", "6", "--max-seconds", "0.05"]
    code, out, err = run(*call, "--compare", bench)
    lines = out.splitlines()[1:]
    check(code == 0 and not err and len(lines) == 2, f"exit {code}: {out} {err}")
    for line in lines:
        name, ms, other, ratio, low, high, pairs = line.split()
        check(name.startswith("linear_cross_entropy/"), line)
        check(0 < float(low) <= float(ratio) <= float(high) < 100, line)
        check(float(ms) > 0 and float(other) > 0 and int(pairs) == 6, line)
    # A program whose calls all take a second.
    slow = folder / "slow"
    slow.write_text("#!/bin/sh\necho ready\nwhile read -r line; do echo 1; done\n")
    slow.chmod(0o755)
    code, out, err = run(*call, "--compare", slow)
    lines = out.splitlines()[1:]
    check(code == 0 and not err and len(lines) == 2, f"exit {code}: {out} {err}")
    for line in lines:
        _, ms, other, ratio, low, high, _ = line.split()
        check(float(ms) < 500 and float(other) == 1000, line)
        check(float(low) <= float(ratio) <= float(high) < 0.5, line)
    code, out, err = run(*call, f"--compare={folder / 'absent'}")
    check(code == 1 and "absent: it could not be started" in err, f"exit {code}: {err}")
    code, out, err = run(*call, "--compare", "/bin/true")
    check(code == 1 and "it does not take turns" in err, f"exit {code}: {err}")
    code, out, err = run(*call, "--turns", "nothing")
    check(code == 2 and "there is no row nothing" in err, f"exit {code}: {err}")


def profiles(folder):
    trace = folder / "trace.json"
    call = ["--shapes", "33x40x129", "--implementations", "eigen", "--dtypes", "f32",
            "--profile", trace, *QUICK]
    code, out, err = run(*call, "--passes", "forward,value_and_grad")
    table = out[out.rfind("linear_cross_entropy/value_and_grad"):]
    check(code == 0 and "trace.2.json" in table, f"--profile: exit {code}: {err} {out}")
    for part in ("grad_x and grad_w", "multiply", "logits to dz", "exp", "the rest of the calls"):
        check(part in table, f"--profile: no {part!r}: {table}")
    for file in (trace, folder / "trace.2.json"):
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
        count = sum(event.get("cat") == "call" for event in events)
        check(count == 3, f"--profile: {count} calls in {file.name}")


def no_such_engine(code, err):
    """A build without OpenCL knows none of its engines by name."""
    return code == 2 and "'opencl." in err and "is not one of" in err


def dumps(folder):
    """Of two variants; where there is no device, a dump has the rows alone."""
    call = ["--passes", "forward", "--implementations", "opencl.simt,eigen", "--shapes",
            "33x40x129", "--no-peak-list", *QUICK]
    texts = {}
    for item in ("8", "16"):
        code, texts[item], err = run(*call, "--knobs", f"item={item}", "--dump", folder / item)
        if no_such_engine(code, err):
            return
        # The other implementation has no such knob.
        check(code == 1, f"--dump: exit {code}: {err}")
        rows = json.loads((folder / item / "rows.json").read_text(encoding="utf-8"))["benchmarks"]
        check(len(rows) == 2 and "fraction_of_bound" not in rows[0], f"--dump: {rows}")
        check("nan" not in texts[item], f"a bound that nobody measured: {texts[item]}")
    if "opencl.simt" not in texts["8"] or "refused" in texts["8"]:
        return
    code, out, err = run("--compare-dumps", folder / "8", folder / "16")
    check(code == 0, f"--compare-dumps: exit {code}: {err}")
    for part in ("only in A: -DITEM_M=8 -DITEM_N=8", "only in B: -DITEM_M=16 -DITEM_N=16",
                 "linear_cross_entropy/forward/opencl.simt"):
        check(part in out, f"--compare-dumps: no {part!r}: {out}")
    for summary in folder.glob("*/linear-forward-*/summary.json"):
        kernel = json.loads(summary.read_text(encoding="utf-8"))["kernels"][0]
        if kernel.get("file", "").endswith(".so") and "loop" in kernel:
            # PoCL's code has a file for each kernel; Intel's has one, whose parts have no names.
            check("  forward  " in out, f"--compare-dumps: no kernel 'forward': {out}")
            # 256 sums of a work-item are more than any processor of PoCL has registers for.
            check(kernel["spills"] or "/4/" in str(summary), f"{summary}: {kernel}")
            check(kernel["loop"]["multiplications"] > 0, f"{summary}: {kernel}")


def decomposition(folder):
    file = folder / "parts.json"
    code, out, err = run("--decompose", "--shapes", "33x40x129", "--implementations",
                         "opencl.cpu,eigen", f"--benchmark_out={file}", *QUICK)
    if no_such_engine(code, err) or (code == 2 and "no row is that" in err):
        return  # no device
    check(code == 0, f"--decompose: exit {code}: {err}")
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    parts = [[part["name"] for part in row["parts"]] for row in rows]
    check(parts[0] == ["products only", "+ maximum", "+ exp and sum", "full forward"], parts[0])
    for names in parts[1:]:
        check({"+ grad_w", "+ grad_x", "full call"} <= set(names), names)
    for row in rows:
        check(row["name"] in out, f"--decompose: no {row['name']}: {out}")
        whole = sum(part["added_seconds"] for part in row["parts"])
        check(math.isclose(whole, row["parts"][-1]["seconds"], rel_tol=1e-6), row)
        check(all(part["seconds"] > 0 and part["fraction_of_peak"] > 0
                  for part in row["parts"]), row)


def shapes_of_files_and_lists():
    code, out, _ = run("--shapes", str(source / "bench/shapes/models.txt"), "--tokens", "256",
                       "--implementations", "eigen", "--benchmark_list_tests",
                       "--benchmark_filter=forward.*V50257$")
    check(code == 0 and out == "linear_cross_entropy/forward/eigen/f32/vh/B256/H768/V50257\n", out)


def custom_rows(folder):
    file = folder / "kernel.json"
    (folder / "kernel.cl").write_text("kernel void add(global const INPUT_0_TYPE* x, float s, "
                                      "global OUTPUT_0_TYPE* y) {"
                                      "y[get_global_id(0)] = N * s * x[get_global_id(0)]; }")
    row = {"inputs": [{"dtype": "f32", "shape": [8, 64]}],
           "outputs": [{"dtype": "f32", "shape": [8, 64]}], "parameters": {"N": 3},
           "global": [512], "local": [64]}
    launch = {"inputs": [{"dtype": "f32", "shape": [4]}],
              "outputs": [{"dtype": "f32", "shape": [4]}], "parameters": {"N": 1}}

    def write(**changes):
        file.write_text(json.dumps({"source": "kernel.cl", "entry": "add", "rows": [row, launch],
                                    **changes}))

    # A scalar stands behind the arrays: this kernel does not have it there.
    write()
    code, out, err = run("--custom", str(file), *QUICK)
    if "there is no OpenCL device" in out + err:
        return
    check(code == 1 and "a row failed" in err, f"--custom: exit {code}: {err}")
    code, out, _ = run("--custom", str(file), *QUICK, "--benchmark_format=json")
    rows = json.loads(out)["benchmarks"]
    check([row["status"] for row in rows] == ["failed"] * 2 and all(row["error"] for row in rows),
          f"--custom: {rows}")
    (folder / "kernel.cl").write_text("kernel void add(global const INPUT_0_TYPE* x, "
                                      "global OUTPUT_0_TYPE* y, float s) {"
                                      "y[get_global_id(0)] = N * s * x[get_global_id(0)]; }")
    row["scalars"] = launch["scalars"] = [0.5]
    write()
    _, rows = rows_of("--custom", str(file))
    check(list(rows) == ["custom/add/f32[8,64]/N3", "custom/add/f32[4]/N1"], f"--custom: {rows}")
    for name, measured in rows.items():
        check(measured["bytes_ideal"] in (4096, 32) and measured["median_seconds"] > 0, name)
        check(0 < measured["compile_seconds"] < measured["first_call_seconds"] and
              measured["status"] in ("ok", "noisy"), f"{name}: {measured}")
    done = subprocess.run([bench, "--custom", file, "--turns", "custom/add/f32[4]/N1"], text=True,
                          input="\n\n", capture_output=True)
    ready, *seconds = done.stdout.split()
    check(done.returncode == 0 and ready == "ready" and len(seconds) == 2 and
          all(float(each) > 0 for each in seconds), f"--turns: {done}")
    code, _, err = run("--custom", str(file), "--turns", "custom/add")
    check(code == 2 and "there is no row custom/add" in err, f"--turns: exit {code}: {err}")
    code, _, err = run("--custom", str(file), "--candidate", "0123:width=4")
    check(code == 2 and "no row has the candidate '0123:width=4'" in err, f"exit {code}: {err}")
    for changes, message in (({"source": "absent.cl"}, "cannot read"), ({"rows": []}, "no rows"),
                             ({"rows": [{}]}, "row 0"),
                             ({"rows": [row, {**row, "outputs": [{"dtype": "f8", "shape": []}]}]},
                              "row 1: --custom: 'f8' is no element type")):
        write(**changes)
        code, _, err = run("--custom", str(file), "--benchmark_list_tests")
        check(code == 2 and message in err, f"--custom {changes}: exit {code}: {err}")


def bad_calls(folder):
    empty = folder / "empty.txt"
    empty.write_text("# nothing\n")
    wrong = folder / "wrong.txt"
    wrong.write_text("name 1x2x3x4\n")
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    cases = [
        (["--passes", "sideways"], "'sideways' is not one of backward, forward, value_and_grad"),
        (["--implementations", "cuda"], "'cuda' is not one of opencl"),
        (["--implementations", "tpu_tile", "--operators", "softmax_cross_entropy"],
         "'tpu_tile' is not one of opencl"),
        (["--implementations", "eigen,"], "empty item"),
        (["--dtypes", "f64"], "'f64' is not one of f32, bf16, f16"),
        (["--dtypes", "f32:bf16:f32"], "neither TYPE nor X:W"),
        (["--w-layout", "hw"], "'hw' is not one of hv, vh"),
        (["--shapes", "512"], "neither BxHxV"),
        (["--shapes", "0x2x3"], "extent below 1"),
        (["--shapes", "B2/H0/V3"], "'B2/H0/V3' has an extent below 1"),
        (["--shapes", "B2/H3/Z4"], "there is no letter Z: linear_cross_entropy has B H V"),
        (["--shapes", "B2/H3/H3"], "'B2/H3/H3' has H twice"),
        (["--shapes", "B2/H3x"], "'3x' is not an integer"),
        (["--shapes", "B2/Hx"], "the file 'B2/Hx' cannot be read"),
        (["--shapes", str(source / "bench/shapes/attention.txt")],
         "'Q12/D64' says nothing of linear_cross_entropy; its extents are B H V"),
        (["--shapes", "B2/H99999999999999999999"], "does not fit into 64 bits"),
        (["--shapes", "b2/h3"], "or Q8/S2048/D128"),
        (["--shapes", "4x4x4", "--operators", "attention"],
         "'4x4x4' says nothing of attention; its extents are B Q S D K T E, such as B1/Q1/S1/D1"),
        (["--shapes", "Q3/K2/D4", "--operators", "attention"], "the 3 heads of q"),
        (["--shapes", "Q8/D1000", "--operators", "attention"], "last axis must be 1 to 512"),
        (["--operators", "attention", "--set", "causal"], "'causal' is not NAME=VALUE"),
        (["--operators", "attention", "--set", "causal=up"], "'up' is not one of no, lower_right"),
        (["--operators", "attention", "--set", "scale=x"], "'x' is not a finite number"),
        (["--operators", "attention", "--set", "dropout=1"],
         "rows of attention have no option 'dropout'"),
        (["--operators", "attention", "--set", "window_left=-2"], "window_left is -2; the least"),
        (["--operators", "attention", "--set", "causal=no", "--set", "causal=no"], "set twice"),
        (["--set", "label_smoothing=0.1"], "rows of linear_cross_entropy have no option 'label_sm"),
        (["--operators", "attention", "--block-sizes", "1,2,3"], "attention takes Q,K"),
        (["--shapes", str(folder / "absent")], "cannot be read"),
        (["--shapes", "/dev/zero"], "it is no regular file"),
        (["--custom", str(folder)], "it is a folder"),
        (["--custom", str(pipe)], "it is no regular file"),
        (["--shapes", str(empty)], "holds no shape"),
        (["--shapes", str(wrong)], "wrong.txt:1: "),
        (["--shapes", "2x3", "--tokens", "0"], "--tokens 0 is below 1"),
        (["--block-sizes", "1,2"], "'1,2' has 2 numbers; linear_cross_entropy takes B,H,V"),
        (["--block-sizes", "1,2,3;"], "empty item"),
        (["--block-sizes", "1,2,3", "4,5,6"], "4,5,6"),
        (["--include-inferred"], "--include-inferred goes with --block-sizes"),
        (["--workspace-bytes", "-1"], "-1 is negative"),
        (["--ignored", "1"], "1 is outside 0 to below 1"),
        (["--target-pairs", "-1"], "-1 is negative"),
        (["--targets", "soft"], "'soft' is not one of dense, labels"),
        (["--targets", "dense", "--ignored", "0.5"], "--ignored 0.5 does not go with"),
        (["--shapes", "2x3x4", "--target-pairs", "5"], "5 is more than the 4 words"),
        (["--gradients", "none"], "'none' is not one of both, x, w"),
        (["--data", "real"], "'real' is not one of random, trained"),
        (["--gradient-filter-eps", "-0.5"], "-0.5 is outside 0 to below 1"),
        (["--gradient-filter-eps", "nan"], "nan is outside 0 to below 1"),
        (["--threads", "0"], "0 is outside 1 to 4096"),
        (["--samples", "0"], "0 is below 1"),
        (["--max-seconds", "0"], "not positive"),
        (["--operators", "convolution"], "'convolution' is not one of"),
        (["--device", "no such device"], "no such device"),
        (["--benchmark_nonsense=1"], "'--benchmark_nonsense=1' is no flag of Google Benchmark"),
        (["--benchmark_filter=("], "no regular expression"),
        (["--benchmark_filter=nothing"], "no row matches 'nothing'"),
        (["--benchmark_format=xml"], "'xml' is no format"),
        (["--benchmark_out=/no/such/folder/f.json"], "cannot be written"),
        (["--benchmark_min_time=soon"], "'soon' is no number of seconds"),
        (["--implementations", "eigen.gemm", "--dtypes", "bf16"], "Eigen multiplies f32 only"),
        (["--implementations", "reference", "--shapes", "65536x1x65536"], "no row can run"),
        (["--operators", "rms_norm", "--passes", "value_and_grad"],
         "none of the operators has one of these passes"),
        (["--operators", "rms_norm", "--passes", "value_and_grad", "--benchmark_list_tests"],
         "none of the operators has one of these passes"),
        (["--custom", str(empty), "--compare", "/bin/true"], "--compare takes no rows of --custom"),
        (["--custom", str(empty), "--candidate", "row"], "parse error"),
        (["--profile", str(folder / "trace.json"), "--compare", "/bin/true"],
         "leave --compare and --custom out"),
        (["--profile", str(folder / "trace.json"), "--benchmark_format=json"],
         "--profile prints tables"),
        (["--profile", str(folder / "absent/trace.json")], "its folder is not there"),
        (["--dump", "/dev/null/dump"], "is not a folder; give another"),
        (["--dump", str(folder / "dump"), "--compare", "/bin/true"], "leave --compare out"),
        (["--dump", str(folder / "dump"), "--benchmark_out_format=csv"],
         "leave --benchmark_out_format out"),
        (["--compare-dumps", str(folder), "/no/such/folder"], "holds no programs"),
        (["--decompose", "--dump", str(folder / "dump")], "leave --compare, --custom"),
        (["--decompose"], "no row is that"),
        (["--nonsense"], "--nonsense"),
    ]
    for arguments, message in cases:
        if "--implementations" not in arguments and "--device" not in arguments:
            arguments = ["--implementations", "eigen", *arguments]
        code, out, err = run(*arguments)
        label = " ".join(arguments)
        check(code == 2, f"{label}: exit {code}: {err!r}")
        last = err.strip().splitlines()[-1] if err.strip() else ""
        check(last.startswith("tessera-bench: error: ") and message in last, f"{label}: {err!r}")
        check(not out, f"{label}: stdout {out!r}")
    code, out, _ = run("--help")
    check(code == 0 and "--implementations" in out and "--benchmark_filter" in out, "--help")
    code, out, _ = run("--version")
    check(code == 0 and out.startswith("tessera-bench "), out)


bench, source = sys.argv[1], pathlib.Path(sys.argv[2])
with tempfile.TemporaryDirectory(prefix="tessera_bench_") as scratch:
    passes_types_and_layouts()
    device_rows(pathlib.Path(scratch))
    extents_by_letter(pathlib.Path(scratch))
    quiet()
    one_gradient_and_own_blocks()
    several_blocks()
    ignored_rows()
    rows_of_pairs()
    rows_of_dense_targets()
    filtered_rows()
    profiles(pathlib.Path(scratch))
    dumps(pathlib.Path(scratch))
    decomposition(pathlib.Path(scratch))
    shapes_of_files_and_lists()
    turns(pathlib.Path(scratch))
    custom_rows(pathlib.Path(scratch))
    bad_calls(pathlib.Path(scratch))
print(f"{len(failures)} failures")
sys.exit(1 if failures else 0)
