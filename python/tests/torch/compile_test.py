# SPDX-License-Identifier: Apache-2.0
"""The operators in graphs: opcheck, torch.compile, torch.export."""

import pytest
import torch

import tessera.torch as tt
from conftest import Problem

EIGEN = {"implementation": "eigen"}
ops = torch.ops.tessera


def gradients(p, loss):
    return torch.autograd.grad(loss, (p.x, p.w))


def same(got, wanted):
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def samples():
    """Arguments of each operator: both types of labels, probabilities, any subset of gradients."""
    p = Problem((3, 4))
    x, w, bias, labels = p.x, p.w, p.bias, p.labels
    statistics = ops.linear_cross_entropy_forward(
        x.detach(), w.detach(), None, labels, **EIGEN)[2]
    yield ops.linear_cross_entropy_forward, (x, w, bias, labels), EIGEN
    yield ops.linear_cross_entropy_forward, (x, w, None, labels.int(), p.token_weight,
                                             p.class_weight), {"reduction": "none", **EIGEN}
    yield ops.linear_cross_entropy_forward, (x, w), {"targets": p.probabilities, **EIGEN}
    detached = x.detach(), w.detach(), bias.detach(), labels
    for wants in ((True, True, True), (True, False, False), (False, True, True)):
        wants = dict(zip(("wants_grad_x", "wants_grad_w", "wants_grad_bias"), wants, strict=True))
        yield ops.linear_cross_entropy_backward, detached, {
            "statistics": statistics, "dlse": p.token_weight, **wants, **EIGEN}
        yield ops.linear_cross_entropy_value_and_grad, detached, {**wants, **EIGEN}
    yield ops.linear_cross_entropy_value_and_grad, (x, w, None, labels), EIGEN
    logits = x.detach() @ w.detach().t()
    yield ops.softmax_cross_entropy_forward, (logits.requires_grad_(), labels), EIGEN
    yield ops.softmax_cross_entropy_value_and_grad, (logits.detach(), labels), EIGEN
    teacher = {"teacher_x": p.randn(3, 4, 7), "teacher_w": p.randn(50, 7), "labels": labels}
    yield ops.linear_distillation_forward, (x, w), {**teacher, **EIGEN}
    yield ops.linear_distillation_value_and_grad, (x.detach(), w.detach()), {**teacher, **EIGEN}
    yield ops.rms_norm_forward, (x, bias[:20]), EIGEN
    yield ops.rms_norm_backward, (x.detach(), None, x.detach()), EIGEN
    q, k, v = p.randn(2, 4, 5, 8).bfloat16(), p.randn(2, 2, 7, 8), p.randn(2, 2, 7, 6)
    yield ops.attention_forward, (q, k, v, p.randn(2, 1, 5, 1)), {"implementation": "reference",
                                                                  "scale": 0.3}


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample[0].__name__)
def test_opcheck(sample):
    op, args, kwargs = sample
    results = torch.library.opcheck(op.default, args, kwargs)
    assert set(results.values()) == {"SUCCESS"} and len(results) == 4


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile(backend):
    """One graph without breaks, for several shapes, with the values of eager mode."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()

    def loss(x, w, labels):
        loss, lse = tt.linear_cross_entropy(torch.tanh(x), w, labels, reduction="none",
                                            return_lse=True, **EIGEN)
        return loss.mean() + 1e-3 * lse.square().sum() + tt.linear_cross_entropy(
            x, w, labels, label_smoothing=0.1, **EIGEN)

    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend=backend)
    for rows in (12, 7, 20):
        p = Problem((rows,))
        same(gradients(p, compiled(p.x, p.w, p.labels)), gradients(p, loss(p.x, p.w, p.labels)))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_compiled_modules():
    """Static shapes; the module, distillation and normalisation in one graph."""
    torch._dynamo.reset()
    p = Problem()
    head = tt.LinearCrossEntropyLoss(20, 50, bias=True)
    teacher = p.randn(12, 50)

    def loss(x):
        y = tt.rms_norm(x, p.bias[:20], **EIGEN)
        return head(y, p.labels) + tt.linear_distillation(
            y, p.w, target=p.labels, teacher_logits=teacher, **EIGEN)

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    same(gradients(p, compiled(p.x)), gradients(p, loss(p.x)))


def test_export():
    """Exported with a dynamic axis; the program has derivatives, too."""

    class Loss(torch.nn.Module):
        def forward(self, x, w, labels):
            return tt.linear_cross_entropy(x, w, labels, **EIGEN)

    p = Problem()
    rows = torch.export.Dim("rows", min=2, max=1000)
    program = torch.export.export(Loss(), (p.x, p.w, p.labels),
                                  dynamic_shapes=({0: rows}, None, {0: rows}))
    assert "tessera.linear_cross_entropy_forward" in str(program.graph)
    q = Problem((33,))
    got = program.module()(q.x, q.w, q.labels)
    wanted = Loss()(q.x, q.w, q.labels)
    torch.testing.assert_close(got, wanted)
    same(gradients(q, got), gradients(q, wanted))


def test_errors_of_compiled_calls():
    """Wrong shapes fail as the graph is made, wrong labels as it runs."""
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda x, w, labels: tt.linear_cross_entropy(x, w, labels, **EIGEN), backend="aot_eager")
    p = Problem()
    with pytest.raises(Exception, match="linear_weight has 3 axes"):
        compiled(p.x, p.w[None], p.labels)
    p.labels[3] = 50
    with pytest.raises(IndexError, match="labels: row 3 is 50"):
        compiled(p.x, p.w, p.labels)
