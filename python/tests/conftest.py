# SPDX-License-Identifier: Apache-2.0
"""Problems that the tests share, and how results are compared with the textbook."""

import ml_dtypes
import numpy as np
import pytest

import tessera

needs_device = pytest.mark.skipif(not tessera.devices(), reason="no OpenCL device")

TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
# What one rounding to the type may change, relative to a number.
ROUNDING = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}


class Problem:
    """Arrays of one case; rows with outliers, a confident row and ignored rows among them."""

    def __init__(self, rows=13, hidden=40, words=97, kind="f32", seed=0):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((rows, hidden))
        x[1] *= 30
        w = rng.standard_normal((hidden, words)) / np.sqrt(hidden)
        self.x, self.w = x.astype(TYPES[kind]), w.astype(TYPES[kind])
        self.labels = rng.integers(0, words, rows)
        self.labels[rows // 2] = -100
        self.bias = rng.standard_normal(words).astype(np.float32)
        self.weight = rng.uniform(0.5, 2, rows).astype(np.float32)
        self.class_weight = rng.uniform(0.5, 2, words).astype(np.float32)
        self.dlse = rng.standard_normal(rows).astype(np.float32)
        self.rng = rng


# By type: how much of its limit the worst element took, and of which result it is.
worst_of_type = {}


def pytest_terminal_summary(terminalreporter):
    for kind, (share, name) in sorted(worst_of_type.items()):
        terminalreporter.write_line(f"{kind}: at most {share:.0%} of what is allowed ({name})")


def as_double(array):
    return np.asarray(array).astype(np.float64)


def close(name, got, wanted, *, terms, kind="f32", scale=None):
    """Asserts that each element is within what `terms` additions of f32 and one rounding allow.

    `scale`: how large the numbers are that were added up; by default the largest that is wanted.
    """
    got, wanted = as_double(got), np.asarray(wanted)
    assert got.shape == wanted.shape, name
    size = np.abs(wanted).max(initial=0.0) if scale is None else scale
    limit = 4 * np.sqrt(terms) * 2.0**-24 * size + 1.01 * ROUNDING[kind] * np.abs(wanted) + 1e-30
    share = np.abs(got - wanted) / limit
    at = share.argmax() if share.size else 0
    assert np.all(share <= 1), f"{name}: {got.flat[at]}, not {wanted.flat[at]}"
    if share.size and share.flat[at] > worst_of_type.get(kind, (0,))[0]:
        worst_of_type[kind] = (share.flat[at], name)
