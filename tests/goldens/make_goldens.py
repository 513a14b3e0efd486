#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the goldens: small problems with what PyTorch's float64 autograd says of them.

    pip install torch numpy
    python tests/goldens/make_goldens.py            # rewrites tests/goldens/<case>/

Each case is a folder of .npy files and an options.json. Inputs are float32 (and so exactly
representable for every implementation), labels int64, results float64 (argmax int64). Options are
rounded to float32 first, because that is the type of the fields of LossOptions.

The goldens are committed, so that the tests need no PyTorch; run this again only to add a case.
"""

import json
import pathlib
import shutil

import numpy as np
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent
IGNORED = -100


def f32(value):
    return float(np.float32(value))


def soft_targets(r, targets, b, v, ignored):
    """Pairs, `targets` a row, or a probability of every word. Rows differ in what they add up to
    and in how many pairs they have; what pads a row has a probability that must not count."""
    if targets == "dense":
        q = r.dirichlet(np.full(v, 0.5), b)
        q[:, v // 4] = 0
        q[b // 2] *= 0.8
        return {"targets": q}
    indices = np.stack([r.permutation(v)[:targets] for _ in range(b)])
    probs = r.dirichlet(np.ones(targets), b)
    probs[0] *= 0.6
    probs[1, 1] = 0
    indices[2, targets // 2:] = IGNORED
    for row in ignored:
        indices[row] = IGNORED
    return {"target_indices": indices, "target_probs": probs}


def inputs(seed, b, h, v, *, softmax=False, bias=False, weight=False, class_weight=False,
           ignored=(), dloss=None, dlse=False, spread=1.0, targets=None, teacher=None):
    """Random inputs with one dominating column per call, as float32."""
    r = np.random.default_rng(seed)
    data = {"labels": r.integers(0, v, b)}
    for row in ignored:
        data["labels"][row] = IGNORED
    if targets is not None:
        data = soft_targets(r, targets, b, v, ignored)
    if softmax:
        data["logits"] = spread * 2 * r.standard_normal((b, v))
        data["logits"][:, v // 3] += 3
    else:
        data["x"] = spread * r.standard_normal((b, h))
        data["w"] = r.standard_normal((h, v)) * 2 / np.sqrt(max(h, 1))
        data["w"][:, v // 3] *= 2
    if bias:
        data["bias"] = r.standard_normal(v)
    if weight:
        data["weight"] = r.uniform(-0.5, 2, b)
        data["weight"][b // 2] = 0
    if class_weight:
        data["class_weight"] = r.uniform(0.2, 3, v)
        data["class_weight"][v // 2] = 0
    if teacher == "logits":
        data["teacher_logits"] = 2 * r.standard_normal((b, v))
    elif teacher is not None:
        data["teacher_x"] = r.standard_normal((b, teacher))
        data["teacher_w"] = r.standard_normal((teacher, v)) * 2 / np.sqrt(teacher)
        data["teacher_bias"] = r.standard_normal(v)
    if dloss == "rows":
        data["dloss"] = r.standard_normal(b)
    elif dloss is not None:
        data["dloss"] = np.array(dloss)
    if dlse:
        data["dlse"] = r.standard_normal(b)
    return {k: a if a.dtype == np.int64 else a.astype(np.float32) for k, a in data.items()}


def target_of(t, shape, c):
    """What F.cross_entropy takes; the probabilities of all words; which rows count; what a row of
    weight 1 adds to the mean's denominator."""
    if "labels" in t:
        counted = t["labels"] != IGNORED
        safe = torch.where(counted, t["labels"], 0)
        q = F.one_hot(safe, shape[-1]).to(torch.float64)
        return t["labels"], q, counted, c[safe]
    if "targets" in t:
        q = t["targets"]
        return q, q, torch.ones(shape[0], dtype=bool), torch.ones(shape[0], dtype=torch.float64)
    real = t["target_indices"] != IGNORED
    words = torch.where(real, t["target_indices"], 0)
    probs = torch.where(real, t["target_probs"], 0.0)
    q = torch.zeros(shape, dtype=torch.float64).scatter_add(-1, words, probs)
    return q, q, real.any(-1), (q * c).sum(-1) / probs.sum(-1)


def capped(z, scale, cap):
    return scale * z if not cap else cap * torch.tanh(scale * z / cap)


def divergence_of(t, o, logits):
    """The divergence of each row, and the entropy of the teacher's distribution, of F.kl_div."""
    z = t["teacher_logits"] if "teacher_logits" in t else t["teacher_x"] @ t["teacher_w"]
    z = z + t.get("teacher_bias", 0.0)
    log_p = torch.log_softmax(
        capped(z, o["teacher_logit_scale"], o["teacher_logit_soft_cap"]) / o["temperature"], -1)
    log_q = torch.log_softmax(logits / o["temperature"], -1)

    def kl(log_a, log_b):  # F.kl_div takes them the other way round
        return F.kl_div(log_b, log_a, reduction="none", log_target=True).sum(-1)

    if o["divergence"] == "forward_kl":
        value = kl(log_p, log_q)
    elif o["divergence"] == "reverse_kl":
        value = kl(log_q, log_p)
    else:
        beta = o["beta"]
        log_m = torch.logaddexp(log_p + np.log(beta), log_q + np.log1p(-beta))
        value = beta * kl(log_p, log_m) + (1 - beta) * kl(log_q, log_m)
    return value, torch.special.entr(log_p.exp()).sum(-1)


def run(data, options):
    """PyTorch's answer: a dict of float64 arrays."""
    o = {"logsumexp_weight": 0.0, "logit_scale": 1.0, "logit_soft_cap": 0.0,
         "label_smoothing": 0.0, "reduction": "mean", "temperature": 1.0, "alpha": 0.5,
         "beta": 0.5, "divergence": "forward_kl", "teacher_logit_scale": 1.0,
         "teacher_logit_soft_cap": 0.0, **options}
    t = {k: torch.tensor(a, dtype=torch.float64 if a.dtype == np.float32 else None)
         for k, a in data.items()}
    leaves = [k for k in ("x", "w", "bias", "logits") if k in t]
    for name in leaves:
        t[name].requires_grad_()
    if "logits" in t:
        z = t["logits"]
    else:
        z = t["x"] @ t["w"] + t.get("bias", 0.0)
    logits = capped(z, o["logit_scale"], o["logit_soft_cap"])
    c = t.get("class_weight", torch.ones(logits.shape[-1], dtype=torch.float64))
    target, q, counted, share = target_of(t, logits.shape, c)
    lse = torch.where(counted, torch.logsumexp(logits, -1), 0.0)
    nll = F.cross_entropy(logits, target, weight=t.get("class_weight"), ignore_index=IGNORED,
                          label_smoothing=o["label_smoothing"], reduction="none")
    distills = "teacher_x" in t or "teacher_logits" in t
    if distills:
        divergence, entropy_of_teacher = divergence_of(t, o, logits)
        nll = (1 - o["alpha"]) * nll + o["alpha"] * o["temperature"] ** 2 * divergence
    weight = t.get("weight", torch.ones(counted.shape, dtype=torch.float64))
    z_loss = weight * o["logsumexp_weight"] * lse ** 2
    rows = torch.where(counted, weight * nll + z_loss, 0.0)
    if o["reduction"] == "mean":
        loss = rows.sum() / (weight * share)[counted].sum()
        plain = not o["logsumexp_weight"] and not distills
        if "weight" not in t and "target_indices" not in t and plain:
            # Where PyTorch has a mean of its own, it is this one.
            own = F.cross_entropy(logits, target, weight=t.get("class_weight"),
                                  ignore_index=IGNORED, label_smoothing=o["label_smoothing"])
            torch.testing.assert_close(loss, own, rtol=1e-13, atol=0)
    else:
        loss = rows.sum() if o["reduction"] == "sum" else rows
    objective = (loss * t.get("dloss", 1.0)).sum()
    if "dlse" in t:
        objective = objective + torch.where(counted, t["dlse"] * lse, 0.0).sum()
    objective.backward()

    log_p = torch.log_softmax(logits, -1)
    # 0 where q is, even if the word is masked.
    picked = torch.where(q != 0, q * log_p, 0.0).sum(-1)
    out = {
        "loss": loss,
        "lse": lse,
        "label_logprob": torch.where(counted, picked, 0.0),
        "entropy": torch.where(counted, torch.special.entr(log_p.exp()).sum(-1), 0.0),
        "z_loss": z_loss,
        "argmax": torch.where(counted, logits.argmax(-1), -1),
    }
    if distills:
        out["divergence"] = torch.where(counted, divergence, 0.0)
        out["target_entropy"] = torch.where(counted, entropy_of_teacher, 0.0)
    out.update({"grad_" + name: t[name].grad for name in leaves})
    return {k: a.detach().numpy() for k, a in out.items()}


def sure_rows():
    """Logits of a student and a teacher that are sure of a word, the same or another; probabilities
    that are denormal in double or 0 in float."""
    student = [[0, -2000, 3, -1], [0, 5, -30, 2], [-740, 0, -744, 1], [9, 9, 9, -1000],
               [0, -1e-3, 1e-3, 0], [-3000, 0, -2999, -3001]]
    teacher = [[0, -745, -732, -50], [5, 0, -30, 2], [0, -745, -700, -1], [9, 9, -1000, 9],
               [1e-3, 0, 0, -1e-3], [0, -2000, -1999, -2001]]
    rows = len(student)
    data = {"labels": np.arange(rows) % 4, "x": np.eye(rows), "w": np.array(student, float),
            "teacher_logits": np.array(teacher, float)}
    return {k: a if a.dtype == np.int64 else a.astype(np.float32) for k, a in data.items()}


ALL = {"logsumexp_weight": 0.1, "logit_scale": 0.8, "logit_soft_cap": 4.0, "label_smoothing": 0.15}
EVERY = {"bias": True, "weight": True, "class_weight": True, "ignored": (1, 4), "dlse": True}
MASK = np.array([2, 3, 9, 10, 11])  # words that a -Inf bias removes


def cases():
    yield "mean", inputs(1, 7, 5, 11), {}
    yield "sum", inputs(2, 7, 5, 11, dloss=0.7), {"reduction": "sum"}
    yield "none", inputs(3, 7, 5, 11, dloss="rows", dlse=True), {"reduction": "none"}
    yield "bias", inputs(4, 6, 4, 13, bias=True), {}
    yield "scale_cap", inputs(5, 6, 4, 13, spread=3), {"logit_scale": 0.5, "logit_soft_cap": 2.0}
    yield "z_loss", inputs(6, 6, 4, 13, dloss=1.3), {"logsumexp_weight": 0.25}
    yield "smoothing", inputs(7, 6, 4, 13), {"label_smoothing": 0.3}
    yield "class_weight", inputs(8, 6, 4, 13, class_weight=True), {}
    yield ("smoothing_class_weight", inputs(9, 6, 4, 13, class_weight=True, dloss="rows"),
           {"label_smoothing": 0.3, "reduction": "none"})
    yield "weight", inputs(10, 8, 4, 9, weight=True), {"logsumexp_weight": 0.05}
    yield "ignored", inputs(11, 8, 4, 9, ignored=(0, 3, 7), dlse=True), {}
    yield "everything_mean", inputs(12, 9, 6, 17, dloss=-1.5, **EVERY), ALL
    yield "everything_sum", inputs(13, 9, 6, 17, **EVERY), {**ALL, "reduction": "sum"}
    yield ("everything_none", inputs(14, 9, 6, 17, dloss="rows", **EVERY),
           {**ALL, "reduction": "none"})
    masked = inputs(15, 6, 4, 16, bias=True, dlse=True)
    masked["bias"][MASK] = -np.inf
    masked["labels"] = np.array([0, 1, 4, 15, 8, 7])
    yield "masked_bias", masked, {"logsumexp_weight": 0.1}
    yield "large_logits", inputs(16, 5, 6, 12, spread=4000), {"logsumexp_weight": 1e-4}
    yield "one_word", inputs(17, 3, 2, 1), {"logsumexp_weight": 0.5}
    yield "wide", inputs(18, 33, 19, 257, **{**EVERY, "dlse": False}), ALL
    yield "softmax_mean", inputs(19, 7, 0, 19, softmax=True), {}
    yield ("softmax_everything", inputs(20, 9, 0, 21, softmax=True, weight=True,
                                        class_weight=True, ignored=(2,), dloss="rows", dlse=True),
           {**ALL, "reduction": "none"})


    yield "pairs", inputs(21, 7, 5, 23, targets=4, dlse=True, ignored=(5,)), {}
    yield ("pairs_everything", inputs(22, 9, 6, 17, targets=5, dloss=-1.5, **EVERY), ALL)
    yield "dense", inputs(23, 7, 5, 11, targets="dense"), {"label_smoothing": 0.2}
    yield ("dense_class_weight", inputs(24, 6, 4, 13, targets="dense", class_weight=True), {})
    yield ("dense_everything", inputs(25, 9, 6, 17, targets="dense", dloss="rows",
                                      **{**EVERY, "ignored": ()}), {**ALL, "reduction": "none"})
    yield ("softmax_pairs", inputs(26, 8, 0, 19, softmax=True, targets=3, class_weight=True,
                                   ignored=(4,)), {"label_smoothing": 0.1})
    yield ("softmax_dense", inputs(27, 8, 0, 19, softmax=True, targets="dense", weight=True),
           {"logsumexp_weight": 0.2})
    yield ("distill_forward_kl", inputs(28, 7, 5, 13, teacher=9, dlse=True),
           {"temperature": 2.0, "alpha": 0.7})
    yield ("distill_reverse_kl", inputs(29, 8, 4, 11, teacher=6, bias=True, weight=True,
                                        ignored=(3,)),
           {"divergence": "reverse_kl", "temperature": 1.5, "alpha": 0.4, "reduction": "sum"})
    yield ("distill_jsd", inputs(30, 7, 5, 13, teacher="logits", ignored=(2,)),
           {"divergence": "jsd", "beta": 0.3, "temperature": 3.0, "alpha": 1.0})
    for divergence in ("forward_kl", "reverse_kl", "jsd"):
        yield ("distill_everything_" + divergence,
               inputs(31, 9, 6, 17, teacher=7, dloss="rows",
                      **{**EVERY, "class_weight": False}),
               {**ALL, "reduction": "none", "divergence": divergence, "temperature": 2.5,
                "alpha": 0.6, "beta": 0.7, "teacher_logit_scale": 1.25,
                "teacher_logit_soft_cap": 6.0})
    for name, divergence, beta in (("forward_kl", "forward_kl", 0.5),
                                   ("reverse_kl", "reverse_kl", 0.5), ("jsd", "jsd", 0.5),
                                   ("jsd_small_beta", "jsd", 1e-6),
                                   ("jsd_large_beta", "jsd", 1 - 1e-6)):
        yield ("distill_sure_" + name, sure_rows(),
               {"divergence": divergence, "beta": beta, "alpha": 1.0, "reduction": "none"})
    yield ("distill_cold_jsd", inputs(32, 7, 5, 13, teacher="logits"),
           {"divergence": "jsd", "beta": 0.01, "alpha": 1.0, "temperature": 0.2})


def main():
    for name, data, options in cases():
        options = {k: v if isinstance(v, str) else f32(v) for k, v in options.items()}
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for key, array in {**data, **run(data, options)}.items():
            np.save(folder / f"{key}.npy", np.asarray(array, order="C"))
        (folder / "options.json").write_text(json.dumps(options, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
