# SPDX-License-Identifier: Apache-2.0
"""PyTorch: the whole logits, the chunked form of F.linear_cross_entropy, and torch.compile."""
import numpy as np
import torch
import torch.nn.functional as F

from worker import Unsupported


def whole(x, w, labels):
    return F.linear_cross_entropy(x, w, labels)


def plain(x, w, labels):
    return F.cross_entropy(F.linear(x, w), labels)


def chunked(x, w, labels):
    return F.linear_cross_entropy(x, w, labels, options=torch.nn.LinearCrossEntropyOptions())


def tensor(array):
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


class Peer:
    warm_on_tiny = True

    def __init__(self, name, grad):
        function, self.what = {
            "torch.default": (whole, "F.linear_cross_entropy, whole logits"),
            "torch.chunked": (chunked, "F.linear_cross_entropy, LinearCrossEntropyOptions()"),
            "torch.compile": (plain, "torch.compile of F.linear and F.cross_entropy"),
        }[name]
        if name == "torch.compile":
            function = torch.compile(function, dynamic=False)
            self.warm_on_tiny = False  # it would compile for the tiny shape too
        self.function, self.grad = function, grad
        self.version = f"torch {torch.__version__}"

    def load(self, x, w, labels):
        self.arrays = tensor(x), tensor(w), tensor(labels)
        for a in self.arrays[:2]:
            a.requires_grad_(self.grad)

    def call(self):
        if not self.grad:
            with torch.no_grad():
                return (self.function(*self.arrays),)
        loss = self.function(*self.arrays)
        return (loss, *torch.autograd.grad(loss, self.arrays[:2]))

    def loss(self, results):
        return results[0].item()

    def sample(self, results, rows, columns):
        return results[1][rows].float().numpy(), results[2][columns].float().numpy()


def make(name, which, dtype, layout, threads):
    if layout != "vh":
        raise Unsupported("F.linear takes a weight [V, H]")
    torch.set_num_threads(threads)
    return Peer(name, which == "value_and_grad")
