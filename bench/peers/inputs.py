# SPDX-License-Identifier: Apache-2.0
"""The arrays that every peer reads, and what their results are compared with, in double."""
import pathlib

import numpy as np

OUTLIER_EVERY, OUTLIER = 128, 8.0  # as tessera-bench: some channels of a hidden state are strong
LOGIT_SPREAD = 2.0
SAMPLED_ROWS, SAMPLED_COLUMNS = 16, 64


def to_bf16(values):
    """Bits of f32 values rounded to the nearest bf16, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def zipf_labels(generator, b, v):
    """Density 1 / (rank + 2.7), as words have it (Mandelbrot's shift), inverted."""
    shift = 2.7
    ranks = shift * np.exp(generator.random(b) * np.log((v + shift) / shift)) - shift
    return np.clip(np.rint(ranks), 0, v - 1).astype(np.int64)


def reference(x, w, labels, rows, columns, block=4096):
    """The mean loss, sampled rows of grad_x and sampled columns of grad_w [n, H], in double."""
    b, v = x.shape[0], w.shape[0]
    x = x.astype(np.float64)
    top = np.full(b, -np.inf)
    total = np.zeros(b)
    label_logit = np.zeros(b)
    for start in range(0, v, block):
        z = x @ w[start:start + block].astype(np.float64).T
        new = np.maximum(top, z.max(axis=1))
        total = total * np.exp(top - new) + np.exp(z - new[:, None]).sum(axis=1)
        top = new
        here = (labels >= start) & (labels < start + block)
        label_logit[here] = z[here, labels[here] - start]
    lse = top + np.log(total)
    grad_x = np.zeros((len(rows), x.shape[1]))
    for start in range(0, v, block):
        part = w[start:start + block].astype(np.float64)
        grad_x += np.exp(x[rows] @ part.T - lse[rows, None]) @ part
    grad_x = (grad_x - w[labels[rows]]) / b
    dz = np.exp(x @ w[columns].astype(np.float64).T - lse[:, None])
    dz[labels[:, None] == columns[None, :]] -= 1.0
    return (lse - label_logit).mean(), grad_x, (dz / b).T @ x


def make(folder, b, h, v, dtypes, seed=7):
    """Writes x, w as [V, H] (w_vh) and [H, V] (w_hv), labels and the reference into a folder for
    each type, and returns the sampled rows and columns."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((b, h), dtype=np.float32)
    x[:, OUTLIER_EVERY // 2::OUTLIER_EVERY] *= OUTLIER
    w = generator.standard_normal((v, h), dtype=np.float32)
    w *= LOGIT_SPREAD / np.sqrt(h * (1.0 + OUTLIER * OUTLIER / OUTLIER_EVERY))
    labels = zipf_labels(generator, b, v)
    rows = np.unique(np.linspace(0, b - 1, min(b, SAMPLED_ROWS)).astype(np.int64))
    spread = np.linspace(0, v - 1, SAMPLED_COLUMNS // 2).astype(np.int64)
    columns = np.unique(np.concatenate([spread, labels[:SAMPLED_COLUMNS // 2]]))
    for dtype in dtypes:
        path = pathlib.Path(folder) / dtype
        path.mkdir(parents=True, exist_ok=True)
        rounded = (x, w) if dtype == "f32" else (to_bf16(x), to_bf16(w))
        np.save(path / "x.npy", rounded[0])
        np.save(path / "w_vh.npy", rounded[1])
        np.save(path / "w_hv.npy", np.ascontiguousarray(rounded[1].T))
        np.save(path / "labels.npy", labels)
        exact = (x, w) if dtype == "f32" else tuple(map(from_bf16, rounded))
        loss, grad_x, grad_w = reference(*exact, labels, rows, columns)
        np.savez(path / "reference.npz", loss=loss, grad_x=grad_x, grad_w=grad_w)
    return rows.tolist(), columns.tolist()
