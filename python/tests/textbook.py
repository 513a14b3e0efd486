# SPDX-License-Identifier: Apache-2.0
"""The operators as docs/maths.md has them, in double: what the tests compare with.

Losses take labels or a dense distribution; every array is float64 when it comes in.
"""

import numpy as np


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def final_logits(z, scale=1.0, cap=0.0):
    """The logits, and their derivative by z."""
    if not cap:
        return scale * z, np.full_like(z, scale)
    t = np.tanh(scale * z / cap)
    return cap * t, scale * (1 - t * t)


def cross_entropy(z, labels, *, weight=None, class_weight=None, logsumexp_weight=0.0,
                  logit_scale=1.0, logit_soft_cap=0.0, label_smoothing=0.0, ignore_index=-100,
                  reduction="mean", dloss=None, dlse=None):
    """Outputs and dz of logits z [B, V], before scale and cap."""
    rows, words = z.shape
    counts = labels != ignore_index
    y = np.where(counts, labels, 0)
    at = np.arange(rows)
    logits, slope = final_logits(z, logit_scale, logit_soft_cap)
    logp = log_softmax(logits)
    p = np.exp(logp)
    lse = logits[at, y] - logp[at, y]
    c = np.ones(words) if class_weight is None else class_weight
    row_weight = np.where(counts, 1.0 if weight is None else weight, 0.0)
    t = np.full((rows, words), label_smoothing / words)
    t[at, y] += 1 - label_smoothing
    nll = -(c * t * logp).sum(axis=1)
    z_loss = row_weight * logsumexp_weight * lse**2
    loss = row_weight * nll + z_loss
    whole = (row_weight * c[y]).sum() if reduction == "mean" else 1.0
    d = (np.ones(()) if dloss is None else dloss) / whole
    a = (c * t).sum(axis=1)
    q = row_weight * d * (a + 2 * logsumexp_weight * lse)
    if dlse is not None:
        q = q + np.where(counts, dlse, 0.0)
    dz = (q[:, None] * p - (row_weight * d)[:, None] * c * t) * slope
    return {
        "loss": loss if reduction == "none" else np.asarray(loss.sum() / whole),
        "lse": np.where(counts, lse, 0.0),
        "argmax": np.where(counts, logits.astype(np.float32).argmax(axis=1), -1),
        "label_logprob": np.where(counts, logp[at, y], 0.0),
        "entropy": np.where(counts, -(p * logp).sum(axis=1), 0.0),
        "z_loss": z_loss,
    }, dz


def linear_cross_entropy(x, w, labels, bias=None, **options):
    """Outputs and gradients of x [B, H] and w [H, V]."""
    outputs, dz = cross_entropy(x @ w + (0 if bias is None else bias), labels, **options)
    return outputs, {"grad_x": dz @ w.T, "grad_w": x.T @ dz, "grad_bias": dz.sum(axis=0)}


def forward_kl(x, w, teacher_x, teacher_w, labels, alpha, temperature, ignore_index=-100):
    """Mean loss and gradients of linear_distillation by KL(teacher || student)."""
    z, v = x @ w, teacher_x @ teacher_w
    counts = labels != ignore_index
    logq, logp = log_softmax(z / temperature), log_softmax(v / temperature)
    q, p = np.exp(logq), np.exp(logp)
    divergence = (p * (logp - logq)).sum(axis=1)
    outputs, dz = cross_entropy(z, labels, ignore_index=ignore_index)
    share = alpha * counts / counts.sum()
    loss = (1 - alpha) * outputs["loss"] + temperature**2 * (share * divergence).sum()
    dz = (1 - alpha) * dz + temperature * share[:, None] * (q - p)
    return loss, {"grad_x": dz @ w.T, "grad_w": x.T @ dz}


def rms_norm(x, scale, dy, epsilon=1e-6, offset=0.0):
    """y, and the gradients of x and scale."""
    r = 1 / np.sqrt((x * x).mean(axis=1, keepdims=True) + epsilon)
    g = dy * (offset + scale)
    grad_x = r * g - x * r**3 * (g * x).mean(axis=1, keepdims=True)
    return x * r * (offset + scale), grad_x, (dy * x * r).sum(axis=0)


def attention(q, k, v, *, bias=None, kv_lengths=None, sinks=None, alibi_slopes=None, scale=None,
              causal="no", window_left=-1, window_right=-1, logit_soft_cap=0.0):
    """y [..., Q, S, E] and lse [..., Q, S]; the arrays have heads before tokens."""
    queries, keys = q.shape[-2], k.shape[-2]
    group = q.shape[-3] // k.shape[-3]
    k, v = (np.repeat(each, group, axis=-3) for each in (k, v))
    z = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if logit_soft_cap:
        z = logit_soft_cap * np.tanh(z / logit_soft_cap)
    n = keys if kv_lengths is None else np.asarray(kv_lengths)[..., None, None, None]
    j = np.arange(keys)
    place = np.arange(queries)[:, None] + (0 if causal == "upper_left" else n - queries)
    seen = j < n
    if causal != "no":
        seen = seen & (j <= place)
    if window_left >= 0:
        seen = seen & (j >= place - window_left)
    if window_right >= 0:
        seen = seen & (j <= place + window_right)
    if bias is not None:
        z = z + bias
    if alibi_slopes is not None:
        z = z - alibi_slopes[:, None, None] * np.abs(place - j)
    z = np.where(seen, z, -np.inf)
    sink = np.full(q.shape[-3], -np.inf) if sinks is None else sinks
    most = np.maximum(z.max(axis=-1, initial=-np.inf), sink[:, None])
    most = np.where(np.isneginf(most), 0.0, most)
    e = np.exp(z - most[..., None])
    total = e.sum(axis=-1) + np.exp(sink[:, None] - most)
    with np.errstate(divide="ignore"):
        lse = most + np.log(total)
    return e @ v / np.where(total > 0, total, 1.0)[..., None], lse
