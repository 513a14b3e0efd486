# SPDX-License-Identifier: Apache-2.0
"""Values and gradients against PyTorch's own functions in float64."""

import pytest
import torch
import torch.nn.functional as F

import tessera
import tessera.torch as tt
from conftest import Problem, cross_entropy, double
from pairs import pairs_of

TYPES = {"f32": (torch.float32, None), "bf16": (torch.bfloat16, None),
         "f16": (torch.float16, None), "bf16 x, f32 w": (torch.bfloat16, torch.float32)}
FACTORS = {
    "types": list(TYPES),
    "implementation": ["eigen", "opencl"],
    "reduction": ["mean", "sum", "none"],
    "target": ["int64", "int32", "probabilities"],
    "rows": [(), (12,), (3, 4)],
    "bias": [False, True],
    "weight": [False, True],
    "token_weight": [False, True],
    "label_smoothing": [0.0, 0.1],
    "logsumexp_weight": [0.0, 1e-2],
    "logit_scale": [1.0, 0.5],
    "logit_soft_cap": [None, 3.0],
    "cotangent": ["1", "0.7", "of the loss and lse", "of lse"],
    "layout": ["dense", "w turned", "x strided"],
    "needs": ["all", "x", "w"],
}


def named(case):
    return "-".join(str(value) for value in case.values())


@pytest.mark.parametrize("case", pairs_of(FACTORS), ids=named)
def test_linear_cross_entropy(case, deviations):
    if case["implementation"] == "opencl" and not tessera.devices():
        pytest.skip("no OpenCL device")
    kind, weight_kind = TYPES[case["types"]]
    p = Problem(case["rows"], kind=kind, weight_kind=weight_kind)
    x, w = p.x.detach(), p.w.detach()
    if case["layout"] == "w turned":
        w = w.t().contiguous().t()
    elif case["layout"] == "x strided":
        x = torch.stack([x, x], -1)[..., 0]
    x.requires_grad_(case["needs"] != "w")
    w.requires_grad_(case["needs"] != "x")
    target = p.probabilities if case["target"] == "probabilities" else p.labels.to(
        getattr(torch, case["target"]))
    options = {name: case[name] for name in ("reduction", "label_smoothing", "logsumexp_weight",
                                             "logit_scale", "logit_soft_cap")}
    options["weight"] = p.class_weight if case["weight"] else None
    options["token_weight"] = p.token_weight if case["token_weight"] else None
    leaves = [x, w] + ([p.bias] if case["bias"] else [])
    doubles = [double(leaf) for leaf in leaves]
    z = F.linear(*doubles)
    wanted, wanted_lse = cross_entropy(z, target, **options)
    with_lse = "lse" in case["cotangent"]
    got = tt.linear_cross_entropy(x, w, target, linear_bias=p.bias if case["bias"] else None,
                                  implementation=case["implementation"], return_lse=with_lse,
                                  **options)
    size = max(1.0, z.abs().max().item())
    if with_lse:
        got, lse = got
        deviations.close("lse", lse, wanted_lse, terms=100, scale=size)
    # The sums of what may be large: z-losses, weights of 1.5, 12 rows.
    deviations.close("loss", got, wanted, terms=100,
                     scale=size * (1 + size * case["logsumexp_weight"]) * 36)
    factor = torch.tensor(0.7 if case["cotangent"] != "1" else 1.0)
    if case["reduction"] == "none":
        factor = p.randn(*case["rows"])
    dlse = p.randn(*case["rows"])
    total, wanted_total = (got * factor).sum(), (wanted * factor.double()).sum()
    if case["cotangent"] == "of lse":
        total, wanted_total = (lse * dlse).sum(), (wanted_lse * dlse.double()).sum()
    elif with_lse:
        total, wanted_total = (total + (lse * dlse).sum(),
                               wanted_total + (wanted_lse * dlse.double()).sum())
    total.backward()
    wanted_total.backward()
    for name, leaf, right in zip(("x", "w", "bias"), leaves, doubles, strict=False):
        if not leaf.requires_grad:
            assert leaf.grad is None
            continue
        assert leaf.grad.dtype == leaf.dtype
        # Logits of the row with outliers are some ten times as large as the others' and move
        # probabilities by as much.
        scale = 30 * size * right.grad.abs().max().item()
        deviations.close(f"grad of {name}", leaf.grad, right.grad, terms=100, kind=leaf.dtype,
                         scale=scale, roundings=2 if case["cotangent"] == "0.7" else 1)
    deviations.cases += 1


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_softmax_cross_entropy(reduction, deviations):
    p = Problem((3, 4))
    logits = (p.x.detach() @ p.w.detach().t()).requires_grad_()
    right = double(logits)
    got = tt.softmax_cross_entropy(logits, p.labels, weight=p.class_weight, reduction=reduction)
    wanted, _ = cross_entropy(right, p.labels, weight=p.class_weight, reduction=reduction)
    deviations.close("loss", got, wanted, terms=100, scale=500.0)
    got.sum().backward()
    wanted.sum().backward()
    deviations.close("grad", logits.grad, right.grad, terms=100,
                     scale=30 * right.grad.abs().max().item())


@pytest.mark.parametrize("teacher", ["layer", "logits"])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_linear_distillation(teacher, reduction, deviations):
    p = Problem((3, 4))
    alpha, temperature = 0.3, 2.0
    their_x, their_w = p.randn(3, 4, 7), p.randn(50, 7)
    their_logits = their_x @ their_w.t()
    given = ({"teacher_logits": their_logits} if teacher == "logits" else
             {"teacher_input": their_x, "teacher_weight": their_w})
    got = tt.linear_distillation(p.x, p.w, target=p.labels, alpha=alpha, temperature=temperature,
                                 reduction=reduction, **given)
    x, w = double(p.x), double(p.w)
    z = x @ w.t()
    nll, _ = cross_entropy(z, p.labels, reduction="none")
    divergence = F.kl_div((z / temperature).log_softmax(-1),
                          (their_logits.double() / temperature).log_softmax(-1),
                          reduction="none", log_target=True).sum(-1)
    counts = p.labels != -100
    wanted = (1 - alpha) * nll + alpha * temperature**2 * torch.where(counts, divergence, 0.0)
    if reduction == "mean":
        wanted = wanted.sum() / counts.sum()
    deviations.close("loss", got, wanted, terms=100, scale=200.0)
    (got.sum() * 3).backward()
    (wanted.sum() * 3).backward()
    for leaf, right in ((p.x, x), (p.w, w)):
        deviations.close("grad", leaf.grad, right.grad, terms=200,
                         scale=100 * right.grad.abs().max().item())


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_rms_norm(kind, deviations):
    p = Problem((3, 4), kind=kind)
    scale = p.randn(20).requires_grad_()
    x, s = double(p.x), double(scale)
    got = tt.rms_norm(p.x, scale, eps=1e-5, offset=1.0)
    wanted = F.rms_norm(x, (20,), s + 1.0, eps=1e-5)
    assert got.dtype == kind
    deviations.close("y", got, wanted, terms=30, kind=kind)
    dy = p.randn(3, 4, 20).to(kind)
    got.backward(dy)
    wanted.backward(dy.double())
    deviations.close("grad_x", p.x.grad, x.grad, terms=100, kind=kind)
    deviations.close("grad_scale", scale.grad, s.grad, terms=100)


def test_as_pytorch_has_it():
    """Rows that do not count, and none that does: PyTorch's values, but 0 in place of its NaN."""
    p = Problem()
    p.labels[:5] = -100
    ours = tt.linear_cross_entropy(p.x, p.w, p.labels, weight=p.class_weight, label_smoothing=0.1)
    theirs = F.cross_entropy(F.linear(p.x, p.w), p.labels, weight=p.class_weight,
                             label_smoothing=0.1)
    torch.testing.assert_close(ours, theirs)
    p.labels[:] = -100
    loss = tt.linear_cross_entropy(p.x, p.w, p.labels)
    loss.backward()
    assert loss == 0 and not p.x.grad.any() and not p.w.grad.any()


@pytest.mark.skipif(not hasattr(torch.nn, "LinearCrossEntropyLoss"),
                    reason="PyTorch has the module from 2.13 on")
def test_module():
    p = Problem()
    loss = tt.LinearCrossEntropyLoss(20, 50, bias=True, weight=p.class_weight, label_smoothing=0.1,
                                     reduction="sum")
    theirs = torch.nn.LinearCrossEntropyLoss(20, 50, bias=True, weight=p.class_weight,
                                             label_smoothing=0.1, reduction="sum")
    assert loss.load_state_dict(theirs.state_dict()).missing_keys == []
    torch.testing.assert_close(loss(p.x, p.labels), theirs(p.x, p.labels))
    loss(p.x, p.labels).backward()
    assert loss.linear.weight.grad is not None and loss.linear.bias.grad is not None
    assert "num_classes=50" in repr(loss)


@pytest.mark.parametrize("implementation", ["eigen", "opencl"])
def test_same_bits(implementation):
    if implementation == "opencl" and not tessera.devices():
        pytest.skip("no OpenCL device")
    runs = []
    for _ in range(2):
        p = Problem((64,), hidden=64, words=500, kind=torch.bfloat16)
        loss, lse = tt.linear_cross_entropy(p.x, p.w, p.labels, return_lse=True,
                                            implementation=implementation)
        (loss + lse.sum()).backward()
        one = tt.linear_cross_entropy(p.x, p.w, p.labels, implementation=implementation)
        runs.append([loss, lse, p.x.grad, p.w.grad, *torch.autograd.grad(one, (p.x, p.w))])
    for first, second in zip(*runs, strict=True):
        assert torch.equal(first, second)
