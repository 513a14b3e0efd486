# SPDX-License-Identifier: Apache-2.0
"""Soft targets in place of labels: pairs, and a probability of every word."""
import os

import numpy as np

from programs_support import Workplace, check, compare, run


class Problem:
    """Logits of six rows against nine words, a target in both forms, and the rows' losses."""

    def __init__(self, place):
        r = np.random.default_rng(7)
        self.place = place
        self.z = r.normal(size=(2, 3, 9)).astype(np.float32)
        words = np.stack([r.permutation(9)[:4] for _ in range(6)]).reshape(2, 3, 4)
        words[0, 1, 2:] = words[1, 2] = -100
        probs = r.uniform(0.05, 0.25, words.shape).astype(np.float32)
        one_hot = words[..., None] == np.arange(9)  # padding is no word
        dense = (one_hot * probs[..., None]).sum(axis=2)
        log_p = self.z - np.log(np.exp(self.z.astype(np.float64)).sum(axis=-1, keepdims=True))
        self.losses = -(dense * log_p).sum(axis=-1)
        self.entropies = -(dense * np.log(np.where(dense > 0, dense, 1))).sum(axis=-1)
        self.arrays = {"target-indices": words, "target-probs": probs,
                       "targets": dense.astype(np.float32)}

    def forms(self, order="C"):
        """The options of each form, how many of its rows count, and how the program says that."""
        def option(name):
            array = np.asarray(self.arrays[name], order=order)
            return ["--" + name, self.place.save(name + order, array)]
        pairs = option("target-indices") + option("target-probs")
        return {"pairs": (pairs, 5, "(mean of 5 tokens; 1 of 6 is ignored)\n"),
                "every word": (option("targets"), 6, "(mean of 6 tokens)\n")}


def run_whole(problem, implementation):
    place = problem.place
    for order in "CF":
        for name, (targets, counted, text) in problem.forms(order).items():
            name = f"{name}, {order}, {implementation}"
            call = ["--logits", place.save("z", problem.z), *targets, "--implementation",
                    implementation]
            out = place.path("out")
            code, said, err = run("tessera-score", *call, "--grad", "--out", out)
            check(code == 0 and text in said, f"{name}: {code} {said} {err}")
            loss = np.load(os.path.join(out, "loss.npy"))
            compare(name, loss, problem.losses.sum() / counted)
            compare(name, np.load(os.path.join(out, "target_entropy.npy")), problem.entropies)
            shape = np.load(os.path.join(out, "grad_logits.npy")).shape
            check(shape == problem.z.shape, f"{name}: grad_logits {shape}")
            run("tessera-score", *call, "--reduction", "none", "--out", out)
            compare(name, np.load(os.path.join(out, "loss.npy")), problem.losses)


def run_shards(problem, implementation):
    place = problem.place
    for name, (targets, counted, _) in problem.forms().items():
        name = f"{name} on shards, {implementation}"
        folders = []
        for begin, end in ((0, 4), (4, 9)):
            folders.append(place.path(f"shard_{begin}"))
            part = place.save(f"z{begin}", np.ascontiguousarray(problem.z[..., begin:end]))
            code, _, err = run("tessera-score", "--logits", part, *targets, "--implementation",
                               implementation, "--vocab-size-total", 9, "--vocab-offset", begin,
                               "--out", folders[-1])
            check(code == 0, f"{name}: {begin}: {code} {err}")
        out = place.path("merged")
        code, _, err = run("tessera-score", "--combine", ",".join(folders), *targets, "--out", out)
        check(code == 0, f"{name}: combine: {code} {err}")
        if code == 0:
            loss = np.load(os.path.join(out, "loss.npy"))
            compare(name, loss, problem.losses.sum() / counted)
            compare(name, np.load(os.path.join(out, "target_entropy.npy")), problem.entropies)


def run_refusals(problem):
    place = problem.place
    pairs, every = (form[0] for form in problem.forms().values())
    for wrong, says in ((pairs[:2], "target_probs is not given"),
                        (pairs + every, "target_indices and targets are both given"),
                        ([], "--labels is missing")):
        code, _, err = run("tessera-score", "--logits", place.save("z", problem.z), *wrong,
                           "--out", place.path("never"))
        check(code == 2 and says in err, f"targets {wrong}: {code} {err}")


def run_all(implementations):
    for implementation in implementations:
        with Workplace() as place:
            problem = Problem(place)
            run_whole(problem, implementation)
            run_shards(problem, implementation)
            run_refusals(problem)
