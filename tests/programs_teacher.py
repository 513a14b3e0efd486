# SPDX-License-Identifier: Apache-2.0
"""tessera-score with a teacher: linear_distillation."""
import json
import os

import numpy as np

from programs_support import Workplace, check, compare, run


def log_softmax(z, axis=-1):
    z = z - z.max(axis=axis, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=axis, keepdims=True))


def load(folder, name):
    return np.load(os.path.join(folder, name + ".npy"))


class Problem:
    """Six tokens, a student of 5 and a teacher of 3 hidden numbers, and nine words."""

    temperature, alpha, cap = 2.0, 0.75, 3.0

    def __init__(self, place):
        r = np.random.default_rng(11)
        self.place = place
        self.x, self.w = r.normal(size=(2, 3, 5)), r.normal(size=(5, 9))
        self.tx, self.tw = r.normal(size=(2, 3, 3)), r.normal(size=(3, 9))
        self.labels = r.integers(0, 9, (2, 3)).astype(np.int32)
        self.labels[1, 2] = -100
        self.student = self.x.astype(np.float32).astype(np.float64) @ \
            self.w.astype(np.float32).astype(np.float64)
        self.teacher = self.tx.astype(np.float32).astype(np.float64) @ \
            self.tw.astype(np.float32).astype(np.float64)

    def array(self, name, values):
        file = name + "x".join(map(str, values.shape))  # the same numbers may lie in two layouts
        return ["--" + name, self.place.save(file, np.ascontiguousarray(values, np.float32))]

    def layer(self):
        return self.array("x", self.x) + self.array("w", self.w)

    def targets(self):
        return ["--labels", self.place.save("labels", self.labels)]

    def divergence(self, kind, beta):
        """Of each row, and the entropy of the teacher's distribution."""
        t = self.cap * np.tanh(self.teacher / self.cap)
        log_q = log_softmax(self.student / self.temperature)
        log_p = log_softmax(t / self.temperature)
        p, q = np.exp(log_p), np.exp(log_q)
        log_m = np.log(beta * p + (1 - beta) * q)
        of = {"forward_kl": p * (log_p - log_q), "reverse_kl": q * (log_q - log_p),
              "jsd": beta * p * (log_p - log_m) + (1 - beta) * q * (log_q - log_m)}
        return of[kind].sum(axis=-1), -(p * log_p).sum(axis=-1)

    def options(self, kind, beta):
        of_jsd = ["--beta", beta] if kind == "jsd" else []
        return ["--divergence", kind, *of_jsd, "--temperature", self.temperature,
                "--teacher-logit-soft-cap", self.cap]


def run_values(problem, implementation):
    counts = problem.labels >= 0
    nll = -np.take_along_axis(log_softmax(problem.student),
                              np.maximum(problem.labels, 0)[..., None], -1)[..., 0]
    for kind, beta in (("forward_kl", 0.5), ("reverse_kl", 0.5), ("jsd", 0.3)):
        divergence, entropy = problem.divergence(kind, beta)
        teachers = {
            "layer": problem.array("teacher-x", problem.tx) + problem.array("teacher-w",
                                                                           problem.tw),
            "layer, vh": problem.array("teacher-x", problem.tx) +
            problem.array("teacher-w", problem.tw.T) + ["--teacher-w-layout", "vh"],
            "logits": problem.array("teacher-logits", problem.teacher)}
        for given, teacher in teachers.items():
            if given != "layer" and kind != "jsd":
                continue  # where logits come from is nothing to the divergence
            name = f"{kind}, {given}, {implementation}"
            out = problem.place.path("out")
            call = ["tessera-score", *problem.layer(), *teacher, *problem.options(kind, beta),
                    "--implementation", implementation, "--out", out]
            code, said, err = run(*call, *problem.targets(), "--alpha", problem.alpha, "--grad")
            check(code == 0 and "(mean of 5 tokens; 1 of 6 is ignored)\n" in said,
                  f"{name}: {code} {said} {err}")
            if code != 0:
                continue
            rows = (1 - problem.alpha) * nll + problem.alpha * problem.temperature**2 * divergence
            compare(name, load(out, "loss"), rows[counts].mean())
            compare(name, load(out, "divergence"), np.where(counts, divergence, 0))
            compare(name, load(out, "target_entropy"), np.where(counts, entropy, 0))
            check(load(out, "grad_w").shape == problem.w.shape, f"{name}: grad_w")
            with open(os.path.join(out, "report.json"), encoding="utf-8") as file:
                report = json.load(file)
            check(report["operator"] == "linear_distillation", f"{name}: {report['operator']}")
            check(report["options"]["divergence"] == kind, f"{name}: {report['options']}")
            # Without labels every row counts.
            code, said, err = run(*call, "--alpha", 1)
            check(code == 0 and "(mean of 6 tokens)\n" in said, f"{name}: {code} {said} {err}")
            compare(name, load(out, "loss"), problem.temperature**2 * divergence.mean())


def run_shards(problem, implementation):
    """Two shards, merged, and their gradients, against one call."""
    out = problem.place.path
    for kind, targets, alpha in (("forward_kl", problem.targets(), 0.75), ("reverse_kl", [], 1)):
        name = f"shards, {kind}, {implementation}"
        options = [*problem.options(kind, 0.5), "--alpha", alpha]
        common = ["--implementation", implementation, *options, *targets]
        code, _, err = run("tessera-score", *problem.layer(),
                           *problem.array("teacher-x", problem.tx),
                           *problem.array("teacher-w", problem.tw), *common, "--grad", "--out",
                           out("whole"))
        check(code == 0, f"{name}: {err}")
        shards = {"first": slice(0, 4), "second": slice(4, 9)}

        def call(columns, *more, name=name, common=common):
            arrays = [*problem.array("x", problem.x), *problem.array("w", problem.w[:, columns]),
                      *problem.array("teacher-x", problem.tx),
                      *problem.array("teacher-w", problem.tw[:, columns])]
            code, _, err = run("tessera-score", *arrays, *common, "--vocab-size-total", 9,
                               "--vocab-offset", columns.start, *more)
            check(code == 0, f"{name}, {columns}: {err}")

        for shard, columns in shards.items():
            call(columns, "--out", out(shard))
        # What shapes the sums is filled in from the shards' reports.
        combined = ["tessera-score", "--combine", f"{out('first')},{out('second')}", *targets,
                    "--out", out("merged")]
        code, said, err = run(*combined)
        check(code == 0, f"{name}, combine: {err}")
        for output in ("loss", "divergence", "target_entropy", "label_logprob", "lse"):
            compare(f"{name}, {output}", load(out("merged"), output), load(out("whole"), output))
        with open(os.path.join(out("merged"), "report.json"), encoding="utf-8") as file:
            report = json.load(file)
        check(report["options"]["temperature"] == problem.temperature, f"{name}: {report}")
        grads = {}
        for shard, columns in shards.items():
            call(columns, "--grad", "--statistics", out("merged"), "--out", out("g" + shard))
            grads[shard] = load(out("g" + shard), "grad_w")
        compare(f"{name}, grad_w", np.concatenate([grads["first"], grads["second"]], axis=1),
                load(out("whole"), "grad_w"))
        compare(f"{name}, grad_x", load(out("gfirst"), "grad_x") + load(out("gsecond"), "grad_x"),
                load(out("whole"), "grad_x"))
        for wrong, says in ((["--temperature", 0.3], "--temperature is 0.3 here"),
                            (["--beta", 0.3], f"--beta is 0.3 but --divergence is {kind}; beta is"),
                            (["--divergence", "jsd"], "--divergence is jsd here")):
            code, _, err = run(*combined, *wrong)
            check(code == 2 and says in err, f"{name}, {wrong}: {code} {err}")
        # A report of another version, or by hand.
        for unknown, text in (("hellinger", "hellinger"), (7, "7")):
            path = os.path.join(out("second"), "report.json")
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
            report["options"]["divergence"] = unknown
            with open(path, "w", encoding="utf-8") as file:
                json.dump(report, file)
            code, _, err = run(*combined)
            says = (f"{path}: divergence is '{text}', which is not one of forward_kl, reverse_kl, "
                    "jsd")
            check(code == 2 and says in err and err.count("\n") == 1,
                  f"{name}, a divergence of {unknown}: {code} {err}")


def run_refusals(problem):
    tx, tw = problem.array("teacher-x", problem.tx), problem.array("teacher-w", problem.tw)
    z = problem.array("teacher-logits", problem.teacher)
    turned = problem.array("teacher-w", problem.tw.T)
    labels = problem.targets()
    for wrong, says in ((tx + labels, "teacher_w is not given"),
                        (tx + tw + z + labels, "teacher_x is given"),
                        (tx + tw, "alpha is 0.5, and only at 1 may a call do without"),
                        (tx + tw + labels + problem.array("class-weight", np.ones(9)),
                         "--class-weight is not taken with a teacher; leave it out"),
                        (z + labels + ["--teacher-w-layout", "vh"],
                         "--teacher-w-layout is of --teacher-w, which is not given; leave it out"),
                        (labels + ["--temperature", 2], "--temperature says how a teacher is"),
                        (tx + tw + labels + ["--temperature", 0], "temperature is 0"),
                        (tx + tw + labels + ["--beta", 0.3],
                         "--beta is 0.3 but --divergence is forward_kl; beta is of jsd: give "
                         "--divergence jsd or leave it out"),
                        (tx + tw + labels + ["--beta", 0.3, "--divergence", "reverse_kl"],
                         "--divergence is reverse_kl; beta is of jsd"),
                        (tx + turned + labels, "pass --teacher-w-layout vh"),
                        (tx + tw + labels + ["--divergence", "jsd", "--vocab-size-total", 12],
                         "two rounds of exchange")):
        code, _, err = run("tessera-score", *problem.layer(), *wrong, "--out",
                           problem.place.path("never"))
        check(code == 2 and says in err, f"teacher {wrong}: {code} {err}")
    code, _, err = run("tessera-score", "--combine", "a,b", *labels, "--alpha", 1, "--out",
                       problem.place.path("never"))
    check(code == 2 and "the shards had none" in err, f"combine: {code} {err}")


def run_all(implementations):
    for implementation in implementations:
        with Workplace() as place:
            run_values(Problem(place), implementation)
            # What a program hands on depends on no engine, and each call compiles anew on a driver
            # that remembers nothing.
            if implementation != "opencl.simt":
                run_shards(Problem(place), implementation)
    with Workplace() as place:
        run_refusals(Problem(place))
