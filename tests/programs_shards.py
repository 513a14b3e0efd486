# SPDX-License-Identifier: Apache-2.0
"""Shards, --combine and --statistics against the whole."""
import itertools
import json
import os

import numpy as np

from programs_support import Workplace, check, compare, run

cases = [
    dict(bias=True, logsumexp_weight=1e-2),
    dict(layout="vh", x_dtype="bf16", w_dtype="bf16", label_smoothing=0.1, class_weight=True,
         weight=True, reduction="none", dloss=True, dlse=True),
    dict(logits=True, label_smoothing=0.3, logit_soft_cap=6.0, reduction="sum"),
    dict(logits=True, class_weight=True, logit_scale=2.0, ignore_index=0, dlse=True),
]
cuts = [[0, 129], [0, 50, 129], [0, 1, 64, 128, 129]]


def shard_arguments(place, arguments, begin, end):
    """The call's arguments with the arrays that hold columns cut to [begin, end)."""
    result = list(arguments)
    for i, argument in enumerate(arguments):
        if argument not in ("--w", "--bias", "--logits"):
            continue
        array = np.load(arguments[i + 1])
        vh = argument == "--w" and "vh" in arguments
        part = array[begin:end] if vh or array.ndim == 1 else array[..., begin:end]
        result[i + 1] = place.save(f"{argument[2:]}_{begin}_{end}", np.ascontiguousarray(part))
    return result


def of_the_whole(arguments):
    """What --combine takes: labels, per-token and class weights, loss options."""
    result, i = [], 0
    while i < len(arguments):
        if arguments[i] in ("--x", "--w", "--w-layout", "--bias", "--logits"):
            i += 2
            continue
        result += arguments[i:i + 2]
        i += 2
    return result


def run_case(name, implementation, problem, place, cut, fields, check_outputs):
    total = cut[-1]
    execution = ["--implementation", implementation]
    calls, folders = [], []
    for begin, end in itertools.pairwise(cut):
        call = shard_arguments(place, problem.arguments, begin, end) + execution
        call += ["--vocab-size-total", total] + (["--vocab-offset", begin] if begin else [])
        out = place.path(f"shard_{begin}")
        code, _, err = run("tessera-score", *call, "--out", out)
        check(code == 0, f"{name}: shard {begin}: exit {code}: {err}")
        if code != 0:
            return
        check(sorted(os.listdir(out)) == sorted([f"partial_{f}.npy" for f in fields]
                                                + ["report.json"]), f"{name}: {os.listdir(out)}")
        check(np.load(os.path.join(out, "partial_max.npy")).shape == problem.leading,
              f"{name}: leading axes of the fields")
        calls.append(call)
        folders.append(out)

    combined = place.path("combined")
    whole = of_the_whole(problem.arguments)
    code, said, err = run("tessera-score", "--combine", ",".join(reversed(folders)), *whole,
                          "--out", combined)
    check(code == 0, f"{name}: combine: exit {code}: {err}")
    check("combine on host; " in said and "nothing ran" not in said, f"{name}: combine: {said}")
    if code != 0:
        return
    with_gradients = problem.expected()
    cotangents, problem.cotangents = problem.cotangents, {}
    check_outputs(name, problem, combined, problem.expected(), False)
    problem.cotangents = cotangents
    with open(os.path.join(combined, "report.json")) as file:
        check(json.load(file)["options"]["vocab_size_total"] == total, f"{name}: total")

    # With the width given, folders that other programs wrote (no report.json) will do.
    again = place.path("again")
    for folder in folders:
        os.rename(os.path.join(folder, "report.json"), os.path.join(folder, "aside"))
    code, _, err = run("tessera-score", "--combine", ",".join(folders), *whole,
                       "--vocab-size-total", total, "--out", again)
    # A pipe without a writer is an error, not an endless wait.
    report = os.path.join(folders[0], "report.json")
    os.mkfifo(report)
    piped, _, piped_err = run("tessera-score", "--combine", ",".join(folders), *whole,
                              "--vocab-size-total", total, "--out", place.path("piped"))
    check(piped == 2 and "it is no regular file" in piped_err, f"{name}: {piped}: {piped_err}")
    os.remove(report)
    for folder in folders:
        os.rename(os.path.join(folder, "aside"), os.path.join(folder, "report.json"))
    check(code == 0, f"{name}: combine without reports: exit {code}: {err}")
    if code == 0:
        compare(f"{name}: any order", np.load(os.path.join(again, "loss.npy")),
                np.load(os.path.join(combined, "loss.npy")))

    # Gradients of each shard from the merged statistics; put together they are the whole's.
    parts = {key: [] for key in with_gradients if key.startswith("grad_")}
    for number, call in enumerate(calls):
        out = place.path(f"gradients_{number}")
        code, _, err = run("tessera-score", *call, "--grad", *problem.gradient_arguments,
                           "--grad-dtype", "f32", "--statistics", combined, "--out", out)
        check(code == 0, f"{name}: backward {number}: exit {code}: {err}")
        if code != 0:
            return
        check(sorted(os.listdir(out)) == sorted([p + ".npy" for p in parts] + ["report.json"]),
              f"{name}: backward writes {os.listdir(out)}")
        for key, arrays in parts.items():
            arrays.append(np.load(os.path.join(out, key + ".npy")))
    dtype = "bf16" if problem.x_dtype == "bf16" and not problem.logits else "f32"
    for key, arrays in parts.items():
        if key == "grad_x":
            whole_array = np.sum(arrays, axis=0, dtype=np.float32)
        else:
            axis = 0 if key == "grad_w" and problem.layout == "vh" else -1
            whole_array = np.concatenate(arrays, axis=axis)
        compare(f"{name}: {key}", whole_array, with_gradients[key], dtype)


def run_large(Problem):
    """Indices beyond what an i32 holds, of one shard of a vocabulary that no test could fill."""
    begin, total = 2 ** 32, 2 ** 32 + 129
    with Workplace() as place:
        problem = Problem(place)
        whole, shard, combined = (place.path(name) for name in ("whole", "shard", "combined"))
        run("tessera-score", *problem.arguments, "--out", whole)
        local = np.load(os.path.join(whole, "argmax.npy"))
        expected = np.where(local < 0, -1, begin + local.astype(np.int64))
        code, _, err = run("tessera-score", *problem.arguments, "--vocab-size-total", total,
                           "--vocab-offset", begin, "--out", shard)
        check(code == 0, f"large: exit {code}: {err}")
        # Without it nobody knows that the other columns are missing.
        os.remove(os.path.join(shard, "report.json"))
        code, _, err = run("tessera-score", "--combine", shard, *of_the_whole(problem.arguments),
                           "--vocab-size-total", total, "--out", combined)
        check(code == 0, f"large: combine: exit {code}: {err}")
        for folder, name in ((shard, "partial_argmax"), (combined, "argmax"),
                             (combined, "partial_argmax")):
            got = np.load(os.path.join(folder, f"{name}.npy"))
            check(got.dtype == np.int64 and np.array_equal(got, expected),
                  f"large: {name} is {got.dtype}, {got.ravel()[:3]}...")


def run_refusals(Problem):
    """Combinations that would give wrong numbers are told apart by what the folders record."""
    with Workplace() as place:
        problem = Problem(place, label_smoothing=0.1, class_weight=True)
        problem.arguments += ["--implementation", "reference"]
        whole = of_the_whole(problem.arguments)
        folders = []
        for begin, end in ((0, 50), (50, 100), (100, 129), (40, 129)):
            out = place.path(f"s{begin}")
            code, _, err = run("tessera-score",
                               *shard_arguments(place, problem.arguments, begin, end),
                               "--vocab-size-total", 129, "--vocab-offset", begin, "--out", out)
            check(code == 0, f"refusals: shard {begin}: {err}")
            folders.append(out)
        a, b, c, overlapping = folders
        out = place.path("out")

        def refuse(part, *arguments):
            code, _, err = run("tessera-score", *arguments, "--out", out)
            check(code == 2 and err.count("\n") == 1 and part in err and not os.path.exists(out),
                  f"refusals: {part!r}: exit {code}: {err!r}")

        refuse("are in no folder", "--combine", f"{a},{c}", *whole)
        refuse("cover columns 0 to 99", "--combine", f"{a},{b}", *whole)
        refuse("are in two folders", "--combine", f"{a},{overlapping}", *whole)
        refuse("--vocab-size-total", "--combine", f"{a},{b},{c}", *whole, "--vocab-size-total",
               130)
        refuse("--ignore-index", "--combine", f"{a},{b},{c}", *whole, "--ignore-index", 5)
        refuse("--logit-scale", "--combine", f"{a},{b},{c}", *whole, "--logit-scale", 2)
        without = [w for w in whole]
        at = without.index("--class-weight")
        refuse("--class-weight", "--combine", f"{a},{b},{c}", *without[:at], *without[at + 2:])
        refuse("partial_max.npy", "--combine", f"{a},{place.path('nowhere')}", *whole)
        refuse("empty item", "--combine", f"{a},,{b}", *whole)
        refuse("--combine", "--combine", a, *problem.arguments)
        refuse("statistics.npy", *problem.arguments, "--grad", "--statistics", place.folder)
        refuse("--combine", *problem.arguments, "--grad", "--statistics", a)
        combined = place.path("combined")
        code, _, err = run("tessera-score", "--combine", f"{a},{b},{c}", *whole, "--out", combined)
        check(code == 0, f"refusals: combine: {err}")
        refuse("--logit-soft-cap", *problem.arguments, "--grad", "--statistics", combined,
               "--logit-soft-cap", 3)
        # An unbroken combined folder serves a call on the whole, too.
        code, _, err = run("tessera-score", *problem.arguments, "--grad", "--statistics", combined,
                           "--out", combined)
        check(code == 0 and os.path.exists(os.path.join(combined, "grad_w.npy")),
              f"refusals: whole backward: {code} {err}")
        with open(os.path.join(c, "partial_sum.npy"), "r+b") as file:
            file.truncate(200)
        refuse("truncated", "--combine", f"{a},{b},{c}", *whole)


def run_all(Problem, linear, softmax, fields, check_outputs):
    for implementation in sorted(set(linear + softmax)):
        for number, case in enumerate(cases):
            if implementation not in (softmax if "logits" in case else linear):
                continue
            cut = cuts[number % len(cuts)]
            with Workplace() as place:
                problem = Problem(place, seed=100 + number, **case)
                run_case(f"{implementation} shards {number}", implementation, problem, place, cut,
                         fields, check_outputs)
    run_large(Problem)
    run_refusals(Problem)
