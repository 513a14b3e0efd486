# SPDX-License-Identifier: Apache-2.0
"""OpenBLAS's products alone, as numpy's wheel brings it: the logits whole, no loss at all. The
gradients' products take the logits in the place of dz, which has the same shape and density."""
import numpy as np

from worker import Unsupported


class Peer:
    warm_on_tiny = True

    def __init__(self, grad):
        self.grad = grad
        blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        self.version = f"OpenBLAS {blas['version']} (numpy {np.__version__})"
        if "openblas" not in blas["name"]:
            raise Unsupported(f"this numpy is linked with {blas['name']}")
        self.what = "x w^T" + (", z w, z^T x" if grad else "") + "; products only, no loss"

    def load(self, x, w, labels):
        self.x, self.w = x, w

    def call(self):
        z = self.x @ self.w.T
        return (z, z @ self.w, z.T @ self.x) if self.grad else (z,)

    def loss(self, results):
        return None  # there is none

    def sample(self, results, rows, columns):
        raise Unsupported("products only")


def make(name, which, dtype, layout, threads):
    if dtype != "f32":
        raise Unsupported("numpy has no bf16 product, and its OpenBLAS is built without sbgemm")
    if layout != "vh":
        raise Unsupported("one layout of the products is enough of a baseline")
    return Peer(which == "value_and_grad")
