# SPDX-License-Identifier: Apache-2.0
"""What the tests of tessera.torch share: problems, the textbook in double, how close is right."""

import pytest
import torch
import torch.nn.functional as F

import tessera

needs_device = pytest.mark.skipif(not tessera.devices(), reason="no OpenCL device")

# What one rounding to the type may change, relative to a number.
ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


class Problem:
    """Leaves of one case; a row with outliers and an ignored row among them."""

    def __init__(self, rows=(12,), hidden=20, words=50, kind=torch.float32, weight_kind=None,
                 seed=0):
        g = torch.Generator().manual_seed(seed)
        self.generator = g
        self.x = torch.randn(*rows, hidden, generator=g)
        self.x.reshape(-1, hidden)[0] *= 10
        self.w = torch.randn(words, hidden, generator=g) / hidden**0.5
        self.x = self.x.to(kind).requires_grad_()
        self.w = self.w.to(weight_kind or kind).requires_grad_()
        self.bias = torch.randn(words, generator=g).requires_grad_()
        self.labels = torch.randint(0, words, rows, generator=g)
        if self.labels.dim():
            self.labels.reshape(-1)[-1] = -100
        self.probabilities = torch.randn(*rows, words, generator=g).softmax(-1)
        self.class_weight = torch.rand(words, generator=g) + 0.5
        self.token_weight = torch.rand(rows, generator=g) + 0.5

    def randn(self, *shape):
        return torch.randn(shape, generator=self.generator)


def double(tensor):
    """A leaf of its own in float64."""
    return tensor.detach().double().requires_grad_(tensor.requires_grad)


def cross_entropy(z, target, *, weight=None, token_weight=None, reduction="mean",
                  label_smoothing=0.0, logsumexp_weight=0.0, logit_scale=1.0, logit_soft_cap=None):
    """The loss of logits (..., V) before scale and cap, by PyTorch's own; and lse."""
    z = logit_scale * z
    if logit_soft_cap:
        z = logit_soft_cap * torch.tanh(z / logit_soft_cap)
    leading, words = z.shape[:-1], z.shape[-1]
    z = z.reshape(-1, words)
    soft = target.is_floating_point()
    target = target.double().reshape(-1, words) if soft else target.reshape(-1).long()
    options = {"weight": None if weight is None else weight.double(),
               "label_smoothing": label_smoothing}
    counts = torch.ones(len(z)).bool() if soft else target != -100
    lse = torch.where(counts, z.logsumexp(-1), 0.0)
    if token_weight is None and not logsumexp_weight:
        loss = F.cross_entropy(z, target, reduction=reduction, **options)
    else:
        per_row = torch.ones(len(z)).double() if token_weight is None else token_weight.double()
        per_row = torch.where(counts, per_row.reshape(-1), 0.0)
        loss = F.cross_entropy(z, target, reduction="none", **options)
        loss = per_row * loss + per_row * logsumexp_weight * lse**2
        if reduction != "none":
            shares = per_row
            if reduction == "mean" and weight is not None and not soft:
                shares = per_row * weight.double()[target.clamp(min=0)]
            loss = loss.sum() / (shares.sum() if reduction == "mean" else 1.0)
    return loss.reshape(leading) if reduction == "none" else loss, lse.reshape(leading)


class Deviations:
    """Asserts closeness, and remembers the largest deviations for a line of report."""

    def __init__(self):
        self.worst = {}
        self.cases = 0

    def close(self, name, got, wanted, *, terms, kind=torch.float32, scale=None,
              roundings=1):
        """Each element within what `terms` additions of f32 and roundings to `kind` allow.

        `scale`: how large the numbers are that were added up; by default the largest wanted.
        """
        got, wanted = got.detach().double(), wanted.detach().double()
        assert got.shape == wanted.shape, f"{name}: {got.shape}, not {wanted.shape}"
        largest = wanted.abs().max().item() if wanted.numel() else 0.0
        size = largest if scale is None else scale
        limit = 4 * terms**0.5 * 2.0**-24 * size + 1e-30
        limit = limit + 1.01 * roundings * ROUNDING[kind] * wanted.abs()
        error = (got - wanted).abs()
        assert (error <= limit).all(), f"{name}: off by {error.max():.3g} of {largest:.3g}"
        if largest:
            self.worst[kind] = max(self.worst.get(kind, 0.0), error.max().item() / largest)

    def report(self, what):
        worst = ", ".join(f"{str(kind).removeprefix('torch.')} {value:.1e}"
                          for kind, value in sorted(self.worst.items(), key=str))
        print(f"\n{what}: {self.cases} cases; worst deviation from double, as a part of the "
              f"largest element: {worst}")


@pytest.fixture(scope="module")
def deviations(request):
    kept = Deviations()
    yield kept
    if kept.cases:
        kept.report(request.module.__name__)
