#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tessera-score and tessera-info as users do.

programs_test.py BIN_FOLDER values|shards|errors|targets|teacher|info
"""
import json
import os
import sys

import numpy as np

import programs_support as support
from programs_support import Workplace, check, compare, decode, encode, run, softmax_loss

contract_fields = ["implementation", "schedule", "device", "driver", "block_sizes", "knobs",
                   "block_source", "block_reason", "refused", "warnings", "seconds_first",
                   "seconds", "extra_bytes_peak", "revision"]
partial_fields = ["max", "sum", "label_logit", "class_logit", "class_sum", "argmax_value",
                  "argmax", "exp_logit", "target_logit", "target_sum", "weighted_logit",
                  "weighted_sum"]
per_token = ["lse", "argmax", "label_logprob", "entropy", "z_loss"]


def implementations(operator="linear_cross_entropy"):
    code, out, err = run("tessera-info", "--json")
    check(code == 0, f"tessera-info --json: {err}")
    info = json.loads(out)
    names = [row["name"] for row in info["implementations"] if operator in row["operators"]]
    # tpu_tile takes whole blocks of 128 alone (test_tile), and matrix units 16 bits on a GPU.
    return [n for n in names if n not in ("tpu_tile", "opencl.mma", "opencl.wgmma")
            and (not n.startswith("opencl") or info["device"] is not None)]


class Problem:
    """Random arrays with outliers, their files, and what the programs should say of them."""

    def __init__(self, place, seed=1, leading=(3, 7), h=33, v=129, x_dtype="f32", w_dtype="f32",
                 layout="hv", labels_dtype=np.int32, fortran=False, bits=False, bias=False,
                 weight=False, class_weight=False, dlse=False, dloss=False, logits=False,
                 **options):
        r = np.random.default_rng(seed)
        self.options, self.leading, self.layout, self.bits = options, leading, layout, bits
        self.logits, self.x_dtype, self.w_dtype = logits, x_dtype, w_dtype
        b = int(np.prod(leading, dtype=int))
        x = r.normal(size=(b, h))
        if b > 2:
            x[2] *= 8
        w = r.normal(size=(h, v)) / np.sqrt(h)
        self.labels = r.integers(0, v, size=b)
        if b > 4:
            self.labels[[1, 4]] = options.get("ignore_index", -100)
        z = 4 * r.normal(size=(b, v))
        self.arguments = []

        def give(name, array, dtype="f32", order="C"):
            stored = np.asarray(encode(array, dtype, bits), order=order)
            self.arguments += [f"--{name}", place.save(name.replace("-", "_"), stored)]
            return decode(stored)

        if logits:
            self.z = give("logits", z.reshape(leading + (v,)), x_dtype).reshape(b, v)
        else:
            self.x = give("x", x.reshape(leading + (h,)), x_dtype).reshape(b, h)
            order = "F" if fortran else "C"
            if layout == "hv":
                self.w = give("w", w, w_dtype, order)
            else:
                self.w = give("w", np.ascontiguousarray(w.T), w_dtype, order).T
                self.arguments += ["--w-layout", "vh"]
        self.arguments += ["--labels",
                           place.save("labels", self.labels.reshape(leading).astype(labels_dtype))]
        self.extra, self.bias = {}, None
        if bias:
            self.bias = give("bias", r.normal(size=v))
        if weight:
            self.extra["weight"] = give("weight", r.normal(size=leading), "f16").reshape(b)
        if class_weight:
            self.extra["class_weight"] = give("class-weight", r.uniform(0.5, 2, size=v))
        self.cotangents = {}
        self.gradient_arguments = []
        shown, self.arguments = self.arguments, self.gradient_arguments
        reduction = options.get("reduction", "mean")
        if dloss:
            d = give("dloss", r.normal(size=leading if reduction == "none" else ()))
            self.cotangents["dloss"] = d.reshape(b) if reduction == "none" else d
        if dlse:
            self.cotangents["dlse"] = give("dlse", r.normal(size=leading)).reshape(b)
        self.arguments = shown
        for key, value in options.items():
            self.arguments += ["--" + key.replace("_", "-"), value]
        if bits:
            self.arguments.append("--bf16-bits")

    def expected(self):
        z = self.z if self.logits else self.x @ self.w
        if self.bias is not None:
            z = z + self.bias
        outputs, dz = softmax_loss(z, self.labels, **self.extra, **self.cotangents,
                                   **self.options)
        for name in per_token + (["loss"] if self.options.get("reduction") == "none" else []):
            outputs[name] = outputs[name].reshape(self.leading)
        if self.logits:
            outputs["grad_logits"] = dz.reshape(self.leading + dz.shape[1:])
            return outputs
        outputs["grad_x"] = (dz @ self.w.T).reshape(self.leading + self.w.shape[:1])
        grad_w = self.x.T @ dz
        outputs["grad_w"] = grad_w if self.layout == "hv" else grad_w.T
        if self.bias is not None:
            outputs["grad_bias"] = dz.sum(axis=0)
        return outputs

    def gradient_dtypes(self, grad_dtype):
        same = {"grad_x": self.x_dtype, "grad_w": self.w_dtype, "grad_logits": self.x_dtype,
                "grad_bias": "f32"}
        return {k: t if grad_dtype in (None, "same") else grad_dtype for k, t in same.items()}


def stored_type(array):
    return {"<f4": "f32", "<f2": "f16", "|V2": "bf16", "<u2": "bf16-bits"}.get(array.dtype.str)


def check_outputs(name, problem, out, want, gradients, grad_dtype=None, values=True):
    types = problem.gradient_dtypes(grad_dtype)
    both_bf16 = not problem.logits and problem.x_dtype == problem.w_dtype == "bf16"
    for field, expected in want.items():
        path = os.path.join(out, field + ".npy")
        is_gradient = field.startswith("grad_")
        if not (gradients if is_gradient else values):
            check(not os.path.exists(path), f"{name}: {field}.npy was written")
            continue
        got = np.load(path)
        if field == "argmax":
            check(got.dtype == np.int32, f"{name}: argmax is {got.dtype}")
            check(np.array_equal(got, expected), f"{name}: argmax")
            continue
        dtype = types[field] if is_gradient else "f32"
        stored = dtype + ("-bits" if dtype == "bf16" and problem.bits else "")
        check(stored_type(got) == stored, f"{name}: {field} is {got.dtype.str}, expected {stored}")
        compare(f"{name}: {field}", got, expected, "bf16" if is_gradient and both_bf16 else dtype)
    leftovers = [f for f in os.listdir(out) if f.endswith(".unfinished")]
    check(not leftovers, f"{name}: left {leftovers}")


def check_report(name, out, implementation):
    with open(os.path.join(out, "report.json")) as file:
        report = json.load(file)
    for field in contract_fields:
        check(field in report, f"{name}: report.json has no {field}")
    check(report["implementation"] == implementation
          or report["implementation"].startswith(implementation + "."),
          f"{name}: {report['implementation']} ran")
    check(report["seconds"] > 0 and report["seconds_first"] > 0, f"{name}: seconds")
    check(report["extra_bytes_peak"] >= 0, f"{name}: extra_bytes_peak")
    check(sorted(report["files"] + ["report.json"]) == sorted(os.listdir(out)), f"{name}: files")
    return report


value_cases = [
    dict(),
    dict(layout="vh", bias=True, labels_dtype=np.int64, logsumexp_weight=1e-2, reduction="none",
         dloss=True, dlse=True, weight=True),
    dict(x_dtype="bf16", w_dtype="bf16", layout="vh", logit_soft_cap=5.0, reduction="sum"),
    dict(x_dtype="f32", w_dtype="bf16", bits=True, grad_dtype="bf16", label_smoothing=0.1,
         class_weight=True, leading=(11,)),
    dict(x_dtype="f16", w_dtype="f16", fortran=True, logit_scale=0.5, ignore_index=3, dloss=True),
    dict(leading=(), layout="vh", fortran=True, grad_dtype="f16", dlse=True),
    dict(logits=True, leading=(2, 2, 3), label_smoothing=0.2, class_weight=True, weight=True,
         logsumexp_weight=1e-3, logit_soft_cap=9.0, reduction="none"),
    dict(logits=True, x_dtype="bf16", leading=(17,), reduction="sum", dlse=True, dloss=True),
    dict(logits=True, x_dtype="f16", grad_dtype="f32"),
    dict(leading=(0,), reduction="sum"),
    dict(h=1, v=1, leading=(1,), label_smoothing=1.0),
    dict(leading=(5,), v=7, execution=["--block-sizes", "64,64,256"]),
]


def test_values():
    linear, softmax = implementations(), implementations("softmax_cross_entropy")
    for implementation in sorted(set(linear + softmax)):
        for number, case in enumerate(value_cases):
            if implementation not in (softmax if "logits" in case else linear):
                continue
            case = dict(case)
            grad_dtype, execution = case.pop("grad_dtype", None), case.pop("execution", [])
            name = f"{implementation} case {number}"
            with Workplace() as place:
                problem = Problem(place, seed=number, **case)
                out = place.path("deep/out")
                call = problem.arguments + execution + ["--implementation", implementation]
                gradients = ["--grad"] + problem.gradient_arguments
                gradients += ["--grad-dtype", grad_dtype] if grad_dtype else []
                code, text, err = run("tessera-score", *call, *gradients, "--out", out)
                check(code == 0, f"{name}: exit {code}: {err}")
                if code != 0:
                    continue
                check_outputs(name, problem, out, problem.expected(), True, grad_dtype)
                check_report(name, out, implementation)
                if implementation.startswith("opencl") and number % 3 != 0:
                    continue  # each pass compiles kernels of its own, which takes seconds
                problem.cotangents = {}
                out = place.path("forward")
                code, text, err = run("tessera-score", *call, "--out", out)
                check(code == 0, f"{name} forward: exit {code}: {err}")
                if code == 0:
                    check_outputs(name, problem, out, problem.expected(), False)
                    check("loss" in text or case.get("reduction") == "none", f"{name}: {text}")
    test_default_order()
    test_counted_tokens()
    test_tile()


def test_counted_tokens():
    """The line of the loss counts the tokens that the loss counts."""
    for labels, extra, want in (
            ([1, 2, -100, 4, 0, 3], [], "mean of 5 tokens; 1 of 6 is ignored"),
            ([1, 2, 3], [], "mean of 3 tokens"), ([7], ["--reduction", "sum"], "sum of 1 token"),
            ([7, 2, 7], ["--ignore-index", "7"], "mean of 1 token; 2 of 3 are ignored")):
        for dtype in (np.int32, np.int64):
            with Workplace() as place:
                b = len(labels)
                code, text, err = run(
                    "tessera-score", "--implementation", "eigen", *extra,
                    "--logits", place.save("z", np.ones((b, 9), np.float32)),
                    "--labels", place.save("labels", np.array(labels, dtype)),
                    "--out", place.path("out"))
                check(code == 0 and f"({want})\n" in text, f"tokens: {want}: {text} {err}")


def test_tile():
    with Workplace() as place:
        problem = Problem(place, leading=(128,), h=128, v=301, layout="vh", bias=True)
        call = problem.arguments + ["--implementation", "tpu_tile", "--device", "TPU v6e"]
        out = place.path("out")
        code, _, err = run("tessera-score", *call, "--grad", *problem.gradient_arguments, "--out",
                           out)
        check(code == 0, f"tpu_tile: exit {code}: {err}")
        check_outputs("tpu_tile", problem, out, problem.expected(), True)
        report = check_report("tpu_tile", out, "tpu_tile")
        check(report["device"].startswith("v6e"), f"tpu_tile: device {report['device']}")
        code, _, err = run("tessera-score", *call, "--block-sizes", "128,100,128", "--out",
                           place.path("never"))
        check(code == 2 and "R7" in err, f"tpu_tile with illegal blocks: exit {code}: {err}")


def test_default_order():
    with Workplace() as place:
        problem = Problem(place)
        out = place.path("out")
        code, _, err = run("tessera-score", *problem.arguments, "--out", out)
        check(code == 0, f"default: {err}")
        first = os.stat(os.path.join(out, "loss.npy")).st_ino
        code, _, err = run("tessera-score", *problem.arguments, "--implementation",
                           "reference,eigen", "--out", out)
        check(code == 0 and os.stat(os.path.join(out, "loss.npy")).st_ino != first,
              "a second run replaces files by renaming")
        # A list falls back with a warning and a reason; no driver is there at all.
        empty = dict(os.environ, OCL_ICD_VENDORS=place.path("no_vendors/"))
        os.mkdir(place.path("no_vendors"))
        code, _, err = run("tessera-score", *problem.arguments, "--out", out, env=empty)
        # Built without OpenCL nothing was to be expected of it, so nothing is refused.
        built = '"opencl.cpu"' in run("tessera-info", "--json")[1]
        check(code == 0 and ("warning" in err) == built, f"no OpenCL: exit {code}: {err}")
        report = check_report("no OpenCL", out, "eigen")
        check(bool(report["refused"]) == built and all(r["reason"] for r in report["refused"]),
              f"no OpenCL: refused {report['refused']}")
        check(bool(report["warnings"]) == built, "no OpenCL: warnings are in the report")
        out = place.path("never")
        code, _, err = run("tessera-score", *problem.arguments, "--implementation", "opencl",
                           "--out", out, env=empty)
        check(code == 2 and err.count("\n") == 1 and not os.path.exists(out),
              f"opencl without OpenCL: exit {code}: {err}")


def test_shards():
    import programs_shards
    programs_shards.run_all(Problem, implementations(),
                            implementations("softmax_cross_entropy"), partial_fields,
                            check_outputs)


def test_errors():
    import programs_errors
    programs_errors.run_all(Problem, implementations())


def test_targets():
    import programs_targets
    programs_targets.run_all(implementations("softmax_cross_entropy"))


def test_teacher():
    import programs_teacher
    programs_teacher.run_all(implementations("linear_distillation"))


def test_trace():
    with Workplace() as place:
        problem = Problem(place)
        trace = place.path("trace.json")
        for name in implementations():
            made = place.path("dump_" + name)
            code, _, err = run("tessera-score", *problem.arguments, "--implementation", name,
                               "--out", place.path("out"), "--trace", trace, "--dump", made)
            check(code == 0, f"trace: {name}: {code} {err}")
            with open(trace, encoding="utf-8") as stream:
                events = [e for e in json.load(stream)["traceEvents"] if e["ph"] == "X"]
            calls = [e["args"]["implementation"] for e in events if e["cat"] == "call"]
            check(calls == [name, name], f"trace: {name}: {calls}")
            work = "kernel" if name.startswith("opencl") else "task"
            check(any(e["cat"] == work for e in events), f"trace: {name}: no {work}")
            summaries = [file for _, _, files in os.walk(made) for file in files
                         if file == "summary.json"]
            check(bool(summaries) == (work == "kernel"), f"dump: {name}: {summaries}")
            made = place.path("dump_of_info_" + name)
            code, _, err = run("tessera-info", "--shape", "8x8x8", "--implementation", name,
                               "--dump", made)
            sources = [file for _, _, files in os.walk(made) for file in files
                       if file == "source.cl"]
            check(code == 0 and bool(sources) == (work == "kernel"),
                  f"info --dump: {name}: {code} {err} {sources}")


def test_explain():
    shape = ["--shape", "512x1024x32768"]
    for machine in ("h100", "cpu-64"):
        call = [*shape, "--facts", machine, "--explain"]
        code, text, err = run("tessera-info", *call)
        if "without OpenCL" in err:
            check(code == 2 and not text, f"{call}: {code} {text}")
            return
        check(code == 0 and not err, f"{call}: {code} {err}")
        code, out, err = run("tessera-info", "--json", *call)
        check(code == 0, f"{call}: {code} {err}")
        info = json.loads(out) if code == 0 else {"plan": {}}
        plan = info["plan"]
        check(info["device"]["name"] == machine and len(info["devices"]) == 1, f"{call}: device")
        check(plan["implementation"] == ("opencl.simt" if machine == "h100" else "opencl.cpu"),
              f"{call}: {plan['implementation']}")
        taken = [one for one in plan["considered"] if one["is_taken"]]
        check(len(taken) == 1 and taken[0]["name"] == plan["schedule"] and taken[0]["launches"],
              f"{call}: {taken}")
        check(0.1 < plan["bound"] <= 1, f"{call}: bound {plan['bound']}")
        for one in plan["considered"]:
            check(one["reason"] and one["name"] in text and one["reason"] in text, f"{call}: {one}")
        for launch in taken[0]["launches"]:
            check(0 < launch["share"] <= 1 and f"{launch['groups']} groups" in text, f"{launch}")
    for name, rows in (("softmax_cross_entropy", "512x50257"), ("rms_norm", "512x4096")):
        call = ["--operator", name, "--shape", rows, "--facts", "h100", "--explain"]
        code, text, err = run("tessera-info", *call)
        check(code == 0 and not err and "groups, 9" in text and "bound" not in text,
              f"{call}: {code} {err} {text}")
        code, out, err = run("tessera-info", "--json", *call)
        plan = json.loads(out)["plan"] if code == 0 else {"considered": []}
        taken = [one for one in plan["considered"] if one["is_taken"]]
        check(len(taken) == 1 and taken[0]["launches"] and plan["bound"] is None, f"{call}: {plan}")
    code, out, err = run("tessera-info", *shape, "--explain", "--implementation", "eigen")
    check(code == 0 and "eigen has no other" in out, f"explain eigen: {code} {err}")
    code, out, err = run("tessera-info", *shape)
    check(code == 0 and "looked at" not in out, f"unasked: {code} {err}")
    for call, part in (([*shape, "--facts", "h200"], "h100"), (["--facts", "h100"], "--shape"),
                       (["--explain"], "--shape"),
                       ([*shape, "--facts", "h100", "--peaks"], "--peaks"),
                       ([*shape, "--facts", "h100", "--device", "pocl"], "--device")):
        code, out, err = run("tessera-info", *call)
        check(code == 2 and part in err and not out, f"{call}: {code} {err}")


def test_info():
    for arguments in ([], ["--shape", "64x128x1000"], ["--shape", "64x128x1000", "--x-dtype",
                      "bf16", "--w-dtype", "f32", "--w-layout", "vh", "--pass", "backward"],
                      ["--shape", "0x1x1", "--pass", "forward"],
                      ["--shape", "8x8x100", "--pass", "forward_partial", "--x-dtype", "f16"]):
        code, text, err = run("tessera-info", *arguments)
        check(code == 0 and text.startswith("tessera "), f"info {arguments}: {code} {err}")
        code, out, err = run("tessera-info", "--json", *arguments)
        check(code == 0, f"info --json {arguments}: {code} {err}")
        if code != 0:
            continue
        info = json.loads(out)
        for name in [row["name"] for row in info["implementations"]]:
            check(name in text, f"info {arguments}: {name} is not in the text")
        if not arguments:
            continue
        check(info["plan"]["implementation"] in [v["implementation"] for v in info["verdicts"]],
              f"info {arguments}: plan")
        check(sum(v["runs"] for v in info["verdicts"]) == 1, f"info {arguments}: one runs")
        check(all(v["runs"] or v["reason"] for v in info["verdicts"]), f"info {arguments}: reasons")
        check(set(info["plan"]["block_sizes"]) == {"b_block_size", "h_block_size", "v_block_size"},
              f"info {arguments}: blocks")
    for shape in ("64x1000", "64x128x1000"):  # the softmax has no H: the middle number says nothing
        call = ["--operator", "softmax_cross_entropy", "--shape", shape, "--block-sizes", "8,64",
                "--implementation", "eigen", "--pass", "backward"]
        code, text, err = run("tessera-info", *call)
        check(code == 0 and "softmax_cross_entropy backward B 64 V 1000, f32" in text,
              f"{call}: {err}")
        code, out, err = run("tessera-info", "--json", *call)
        info = json.loads(out) if code == 0 else {"request": {}, "plan": {"block_sizes": {}}}
        check(info["request"] == {"operator": "softmax_cross_entropy", "pass": "backward", "b": 64,
                                  "v": 1000, "x_dtype": "f32"}, f"{call}: {err} {info['request']}")
        check(info["plan"]["block_sizes"] == {"b_block_size": 8, "v_block_size": 64},
              f"{call}: {info['plan']['block_sizes']}")
    # Neither H nor V: a number for each of its letters.
    call = ["--operator", "attention", "--shape", "2x8x128x64x4x256x32"]
    code, text, err = run("tessera-info", *call)
    check(code == 0 and "attention forward B 2 Q 8 S 128 D 64 K 4 T 256 E 32, f32" in text
          and "runs on      eigen" in text, f"{call}: {code} {err} {text}")
    code, out, err = run("tessera-info", "--json", *call)
    check(code == 0 and json.loads(out)["cost"]["flops"] == 2 * 8 * 128 * 256 * 2 * (64 + 32),
          f"{call}: {code} {err} {out}")
    # The same by letter: those left out are 1, or the ones that they follow. Options are set.
    call = ["--operator", "attention", "--shape", "T256/S128/Q8/D64", "--set", "causal=upper_left",
            "--set", "scale=unset"]
    code, out, err = run("tessera-info", "--json", *call)
    info = json.loads(out) if code == 0 else {"request": {}, "cost": {}}
    check(info["request"] == {"operator": "attention", "pass": "forward", "b": 1, "q": 8, "s": 128,
                              "d": 64, "t": 256, "x_dtype": "f32",
                              "options": {"causal": "upper_left", "scale": "unset"}},
          f"{call}: {err} {info['request']}")
    check(info["cost"].get("flops") == 8 * 128 * 129 // 2 * 2 * (64 + 64), f"{info['cost']}")
    code, out, err = run("tessera-info", "--json", "--shape", "8x8x8", "--set", "dz_dtype=bf16",
                         "--set", "ignore_index=-1", "--set", "reduction=none")
    check(code == 0 and json.loads(out)["request"]["options"] == {
        "dz_dtype": "bf16", "ignore_index": "-1", "reduction": "none"}, f"{err} {out}")
    code, text, err = run("tessera-info", "--shape", "B64/H128/V1000", "--explain")
    check(code == 0 and "value_and_grad B 64 H 128 V 1000, x f32, w f32 hv:" in text,
          f"{err}{text}")
    for call, part in ((["--shape", "Q8/Z1"], "there is no letter Z: attention has B Q S D K T E"),
                       (["--shape", "Q8/Q8"], "'Q8/Q8' has Q twice"),
                       (["--shape", "Q8/S-1"], "a negative extent"),
                       (["--shape", "Q8/S4/D0"], "its last axis must be 1 to 512"),
                       (["--shape", "8x4"], "neither BxQxSxDxKxTxE nor extents by letter"),
                       (["--shape", "S4", "--set", "cap=1"], "has no option 'cap'; it has scale"),
                       (["--shape", "S4", "--set", "causal=x"], "not one of no, lower_right"),
                       (["--shape", "S4", "--set", "window_left=1.5"], "is not an integer"),
                       (["--set", "causal=no"], "goes with --shape only")):
        code, out, err = run("tessera-info", "--operator", "attention", *call)
        check(code == 2 and part in err and not out, f"info {call}: {code} {err!r}")
    check(run("tessera-info", "--operator", "attention", "--shape", "S4/T0")[0] == 0, "no keys")
    code, out, err = run("tessera-info", "--peaks", "--json")
    check(code == 0 and not err, f"info --peaks: {code} {err}")
    peaks = json.loads(out)["peaks"] if code == 0 else {}
    check("host" in peaks and ("device" in peaks) == (json.loads(out)["device"] is not None),
          f"info --peaks: {peaks.keys()}")
    for where, list_ in peaks.items():
        for peak in list_:
            check(peak["absent"] if peak["best"] is None else peak["best"] >= peak["median"] > 0,
                  f"info --peaks: {where} {peak}")
        have = {peak["kind"] for peak in list_ if peak["best"] is not None}
        check({"fma_f32", "read", "write", "copy", "read_modify_write", "exp"} <= have,
              f"info --peaks: {where} {have}")
        if where == "device":
            # What multiplies pairs is measured against a peak of pairs.
            _, out, err = run("tessera-info", "--json", "--shape", "64x64x64", "--x-dtype", "bf16",
                              "--implementation", "opencl,eigen")
            by_pairs = "dot_bf16" in json.loads(out)["plan"]["knobs"]
            check(by_pairs == ("dot_bf16" in have) and not err, f"info --peaks: {have}, {err}")
    for arguments in (["--shape", "64x128"], ["--shape", "axbxc"], ["--shape", "-1x2x3"],
                      ["--pass", "forward"], ["--shape", "1x2x3", "--pass", "sideways"],
                      ["--shape", "1x2x3", "--x-dtype", "f64"], ["--device", "no such device"],
                      ["--shape", "1x2x3", "--implementation", "reference,nothing"], ["extra"],
                      ["--shape", "4x4x4", "--block-sizes", "0,1,1"],
                      ["--shape", "4x4x4", "--block-sizes", "1,1"],
                      ["--shape", "4x4", "--operator", "convolution"],
                      ["--shape", "4x4", "--operator", "attention"],
                      ["--operator", "softmax_cross_entropy"],
                      ["--shape", "4", "--operator", "softmax_cross_entropy"],
                      ["--shape", "4x4", "--operator", "softmax_cross_entropy", "--w-layout",
                       "vh"]):
        code, out, err = run("tessera-info", *arguments)
        check(code == 2 and err.count("\n") == 1 and not out, f"info {arguments}: {code} {err!r}")
    for program in ("tessera-info", "tessera-score"):
        for flag in ("--help", "--version"):
            code, out, err = run(program, flag)
            check(code == 0 and program in out and not err, f"{program} {flag}: {code} {out}")


if __name__ == "__main__":
    support.bin_folder = sys.argv[1]
    {"values": test_values, "shards": test_shards, "errors": test_errors,
     "targets": test_targets, "teacher": test_teacher, "info": test_info,
     "explain": test_explain, "trace": test_trace}[sys.argv[2]]()
    print(f"{support.checks} checks, {len(support.failures)} failed")
    sys.exit(1 if support.failures or support.checks == 0 else 0)
