# SPDX-License-Identifier: Apache-2.0
"""The loss in numpy's float64, .npy types that numpy lacks, and a way to run the programs."""
import os
import shutil
import subprocess
import tempfile

import numpy as np

bin_folder = ""  # set by programs_test.py
failures = []
checks = 0


def check(condition, what):
    global checks
    checks += 1
    if not condition:
        failures.append(what)
        print("FAILED:", what, flush=True)


def run(program, *arguments, env=None):
    """Exit code, stdout and stderr of one call."""
    command = [os.path.join(bin_folder, program)] + [str(a) for a in arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    return done.returncode, done.stdout, done.stderr


class Workplace:
    """A folder of its own for one case."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="tessera_programs_")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def save(self, name, array):
        path = self.path(name + ".npy")
        np.save(path, array)
        return path


# -- Types ---------------------------------------------------------------


def bf16_bits(array):
    """float -> the bits of bf16, to nearest even."""
    u = np.asarray(array, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def bits_to_float(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def encode(array, dtype, as_bits=False):
    """What a user would save: bf16 as V2, as ml_dtypes does, or as its bits."""
    if dtype == "bf16":
        bits = np.asarray(bf16_bits(array))
        return bits if as_bits else bits.view("V2")
    return np.asarray(array, {"f32": np.float32, "f16": np.float16}[dtype])


def decode(array):
    """float64 of any array that the programs read or write."""
    if array.dtype.kind == "V" or array.dtype == np.uint16:
        return bits_to_float(array.view(np.uint16)).astype(np.float64)
    return array.astype(np.float64)


# -- The loss, from docs/maths.md ---------------------------------------------------------------


def softmax_loss(z, labels, *, weight=None, class_weight=None, logsumexp_weight=0.0,
                 logit_scale=1.0, logit_soft_cap=0.0, label_smoothing=0.0, ignore_index=-100,
                 reduction="mean", dloss=None, dlse=None):
    """z [B, V] float64, labels [B]; returns outputs per row, the loss, and dz."""
    b, v = z.shape
    scaled = logit_scale * z
    t = np.tanh(scaled / logit_soft_cap) if logit_soft_cap else None
    logit = logit_soft_cap * t if logit_soft_cap else scaled
    counted = labels != ignore_index
    y = np.where(counted, labels, 0)
    c = np.ones(v) if class_weight is None else class_weight
    w = np.ones(b) if weight is None else weight
    top = logit.max(axis=1)
    e = np.exp(logit - top[:, None])
    total = e.sum(axis=1)
    p = e / total[:, None]
    lse = top + np.log(total)
    logit_y = logit[np.arange(b), y]
    nll = ((1 - label_smoothing) * c[y] * (lse - logit_y)
           + label_smoothing / v * (c * (lse[:, None] - logit)).sum(axis=1))
    z_loss = w * logsumexp_weight * lse ** 2
    row_loss = w * nll + z_loss
    denominator = (w * c[y])[counted].sum()
    outputs = {
        "lse": lse, "argmax": logit.argmax(axis=1), "label_logprob": logit_y - lse,
        "entropy": lse - (p * logit).sum(axis=1), "z_loss": z_loss, "row_loss": row_loss,
    }
    for name, values in outputs.items():
        values[~counted] = -1 if name == "argmax" else 0
    row_loss = outputs.pop("row_loss")
    cotangent = np.ones(b) if dloss is None else np.broadcast_to(dloss, b).astype(np.float64)
    if reduction == "none":
        outputs["loss"] = row_loss
    elif reduction == "sum":
        outputs["loss"] = row_loss.sum()
    else:
        outputs["loss"] = row_loss.sum() / denominator if denominator else 0.0
        cotangent = cotangent / denominator if denominator else 0 * cotangent
    a = (1 - label_smoothing) * c[y] + label_smoothing / v * c.sum()
    onehot = np.zeros((b, v))
    onehot[np.arange(b), y] = 1
    g = (w * cotangent)[:, None] * ((a + 2 * logsumexp_weight * outputs["lse"])[:, None] * p
                                    - ((1 - label_smoothing) * c[y])[:, None] * onehot
                                    - label_smoothing * c / v)
    if dlse is not None:
        g = g + dlse[:, None] * p
    g = g * logit_scale * ((1 - t ** 2) if logit_soft_cap else 1)
    g[~counted] = 0
    return outputs, g


# -- Comparing ---------------------------------------------------------------

# Norm-wise: f32 sums of a few hundred terms of size one; the 16-bit types round once (2^-12, 2^-9),
# and OpenCL engines may round dz to bf16 before the product where x and w are bf16.
tolerances = {"f32": 3e-5, "f16": 2e-3, "bf16": 1.2e-2}


def compare(what, got, want, dtype="f32"):
    want = np.asarray(want)
    if got.shape != want.shape:
        check(False, f"{what}: shape {got.shape}, expected {want.shape}")
        return
    limit = tolerances[dtype] * max(1e-30, float(np.abs(want).max(initial=0)))
    # A confident row's outputs are differences of numbers of the size of its logits.
    limit = max(limit, 1e-5 if dtype == "f32" else 0)
    worst = float(np.abs(decode(got) - want).max(initial=0))
    check(worst <= limit, f"{what}: deviates by {worst:.3g}, limit {limit:.3g}")
