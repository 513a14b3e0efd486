# SPDX-License-Identifier: Apache-2.0
"""Every option, layout and type against the textbook: by pairs, each value in some case."""

import numpy as np
import pytest

import tessera
import textbook
from conftest import Problem, as_double, close

# (implementation, pass, type, layout, reduction, options, arrays beside x, w and labels)
CASES = [
    ("eigen", "value_and_grad", "f32", "hv", "mean", {}, ()),
    ("eigen", "value_and_grad", "f32", "vh", "sum", {"label_smoothing": 0.1}, ("bias", "weight")),
    ("eigen", "value_and_grad", "bf16", "hv", "none", {"logit_soft_cap": 5.0}, ("class_weight",)),
    ("eigen", "backward", "f16", "vh", "mean", {"logsumexp_weight": 1e-3}, ("weight", "dlse")),
    ("eigen", "forward", "bf16", "vh", "mean", {"logit_scale": 0.5}, ("bias",)),
    ("opencl", "value_and_grad", "f32", "hv", "mean",
     {"logsumexp_weight": 1e-3, "logit_soft_cap": 5.0}, ("bias", "weight")),
    ("opencl", "value_and_grad", "bf16", "vh", "none", {"dz_dtype": "float32"}, ("dlse",)),
    ("opencl", "backward", "f32", "vh", "sum", {"label_smoothing": 0.1}, ("class_weight",)),
    ("opencl", "forward", "f16", "hv", "none", {"logit_scale": 2.0}, ("weight",)),
    ("reference", "value_and_grad", "f32", "vh", "mean",
     {"ignore_index": 3, "logit_scale": 0.5}, ("dlse", "class_weight")),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(c[:5]))
def test_linear_cross_entropy(case):
    implementation, pass_name, kind, layout, reduction, options, extras = case
    if implementation == "opencl" and not tessera.devices():
        pytest.skip("no OpenCL device")
    p = Problem(kind=kind)
    p.labels[p.labels < 0] = options.get("ignore_index", -100)
    named = {name: getattr(p, name) for name in extras}
    double = {name: as_double(array) for name, array in named.items()}
    numbers = {key: value for key, value in options.items() if key != "dz_dtype"}
    if has_gradients := pass_name != "forward":
        d = np.float32(0.7) if reduction != "none" else p.rng.standard_normal(13).astype("f4")
        named["dloss"], double["dloss"] = d, as_double(d)
    elif "dlse" in named:
        del named["dlse"], double["dlse"]
    outputs, gradients = textbook.linear_cross_entropy(
        as_double(p.x), as_double(p.w), p.labels, reduction=reduction, **double, **numbers)
    call = {**named, **options, "reduction": reduction, "implementation": implementation,
            "w_layout": layout}
    w = p.w if layout == "hv" else np.ascontiguousarray(p.w.T)
    lce = tessera.linear_cross_entropy
    wants = list(outputs)[1:]
    if pass_name == "backward":
        names = {key: call[key] for key in call if key not in ("dloss", "dlse")}
        call["statistics"] = lce.forward(p.x, w, p.labels, wants="statistics", **names).statistics
        wants = None
    result = getattr(lce, pass_name)(p.x, w, p.labels, wants=wants, **call)
    assert result.dispatch.implementation.startswith(implementation)
    if pass_name != "backward":
        np.testing.assert_array_equal(result.argmax, outputs.pop("argmax"))
        size = max(1.0, np.abs(outputs["lse"]).max())
        for name, wanted in outputs.items():
            terms = 40 + 97 + (13 if reduction != "none" else 0)
            close(name, getattr(result, name), wanted, terms=terms,
                  scale=max(size, np.abs(wanted).max()))
    if has_gradients:
        for name, wanted in gradients.items():
            got = getattr(result, name)
            if name == "grad_bias" and "bias" not in extras:
                assert got is None
                continue
            if name == "grad_w" and layout == "vh":
                got = got.T
            # Logits of the row with outliers are some 30 times as large as their sums' last bits
            # allow for, and probabilities move by as much.
            close(name, got, wanted, terms=97 + 40, kind="f32" if name == "grad_bias" else kind,
                  scale=30 * np.abs(wanted).max())


def test_softmax_cross_entropy_in_place():
    p = Problem()
    z = as_double(p.x) @ as_double(p.w)
    logits = z.astype(np.float32)
    outputs, dz = textbook.cross_entropy(as_double(logits), p.labels, weight=as_double(p.weight))
    loss = np.full((), np.nan, np.float32)
    result = tessera.softmax_cross_entropy.value_and_grad(
        logits, p.labels, weight=p.weight, out={"loss": loss, "grad_logits": logits})
    assert result.grad_logits is logits and result.loss is loss and result.lse is None
    close("loss", loss, outputs["loss"], terms=110, scale=np.abs(z).max())
    close("grad_logits", logits, dz, terms=97, scale=30 * np.abs(dz).max())


def test_targets_in_place_of_labels():
    """Pairs, and a probability of every word, say the same as labels where they are labels."""
    p = Problem()
    p.labels[p.labels < 0] = 5
    call = {"implementation": "eigen", "weight": p.weight}
    lce = tessera.linear_cross_entropy
    by_label = lce.forward(p.x, p.w, p.labels, **call)
    by_pair = lce.forward(p.x, p.w, target_indices=p.labels[:, None].astype(np.int32),
                          target_probs=np.ones((13, 1), np.float32), **call)
    dense = np.eye(97, dtype=np.float32)[p.labels]
    by_word = lce.forward(p.x, p.w, targets=dense, **call)
    np.testing.assert_array_equal(by_label.loss, by_pair.loss)
    close("loss", by_word.loss, as_double(by_label.loss), terms=97)


def test_linear_distillation():
    p = Problem()
    teacher_x = p.rng.standard_normal((13, 24)).astype(np.float32)
    teacher_w = p.rng.standard_normal((24, 97)).astype(np.float32)
    loss, gradients = textbook.forward_kl(*map(as_double, (p.x, p.w, teacher_x, teacher_w)),
                                          p.labels, alpha=0.3, temperature=2.0)
    result = tessera.linear_distillation.value_and_grad(
        p.x, p.w.T, teacher_x, teacher_w, p.labels, alpha=0.3, temperature=2.0, w_layout="vh")
    close("loss", result.loss, loss, terms=200, scale=50.0)
    close("grad_x", result.grad_x, gradients["grad_x"], terms=200,
          scale=30 * np.abs(gradients["grad_x"]).max())
    close("grad_w", result.grad_w.T, gradients["grad_w"], terms=200,
          scale=30 * np.abs(gradients["grad_w"]).max())


def test_rms_norm():
    p = Problem()
    scale, dy = p.w[:, 0].copy(), p.rng.standard_normal((13, 40)).astype(np.float32)
    y, grad_x, grad_scale = textbook.rms_norm(*map(as_double, (p.x, scale, dy)), offset=1.0)
    close("y", tessera.rms_norm.forward(p.x, scale=scale, offset=1.0).y, y, terms=40)
    result = tessera.rms_norm.backward(p.x, dy, scale=scale, offset=1.0)
    close("grad_x", result.grad_x, grad_x, terms=80)
    close("grad_scale", result.grad_scale, grad_scale, terms=40)


def test_gradients_by_name_and_accumulation():
    p = Problem()
    lce = tessera.linear_cross_entropy
    call = {"implementation": "eigen", "bias": p.bias}
    whole = lce.value_and_grad(p.x, p.w, p.labels, **call)
    one = lce.value_and_grad(p.x, p.w, p.labels, wants=["grad_bias", "lse"], **call)
    assert one.grad_x is None and one.grad_w is None and one.lse is not None
    np.testing.assert_array_equal(one.grad_bias, whole.grad_bias)
    grad_x, grad_w = np.full_like(p.x, np.nan), np.ones_like(p.w)
    lce.backward(p.x, p.w, p.labels, lse=one.lse, out={"grad_x": grad_x, "grad_w": grad_w},
                 accumulate="grad_w", **call)
    close("grad_x", grad_x, as_double(whole.grad_x), terms=40)
    close("grad_w", grad_w, 1 + as_double(whole.grad_w), terms=40)


def test_shards():
    """Three shards, one of them through a pickle, make what the whole makes."""
    import pickle

    p = Problem()
    lce = tessera.linear_cross_entropy
    call = {"implementation": "eigen", "label_smoothing": 0.1, "vocab_size_total": 97}
    cuts = [0, 30, 31, 97]
    shards = [
        lce.forward_partial(p.x, p.w[:, a:b], p.labels, vocab_offset=a, **call)
        for a, b in zip(cuts, cuts[1:], strict=False)
    ]
    assert shards[1].ranges == [(30, 31)] and shards[1].rows["max"].shape == (13,)
    shards[1] = pickle.loads(pickle.dumps(shards[1]))
    assert "of linear_cross_entropy, 13 rows" in repr(shards[1])
    merged = tessera.merge(shards[1:])
    got = lce.combine([shards[0], merged], labels=p.labels, label_smoothing=0.1,
                      wants=["argmax", "entropy"])
    whole = lce.forward(p.x, p.w, p.labels, implementation="eigen", label_smoothing=0.1,
                        wants=["argmax", "entropy"])
    np.testing.assert_array_equal(got.argmax, whole.argmax)
    close("loss", got.loss, as_double(whole.loss), terms=97, scale=50.0)
    close("entropy", got.entropy, as_double(whole.entropy), terms=97, scale=50.0)
    with pytest.raises(ValueError, match="missing|columns"):
        lce.combine(shards[:2], labels=p.labels)
    with pytest.raises(ValueError, match="linear_cross_entropy, not of softmax_cross_entropy"):
        tessera.softmax_cross_entropy.combine(shards, labels=p.labels)


def test_same_bits_and_questions():
    p = Problem()
    lce = tessera.linear_cross_entropy
    call = {"block_sizes": {"v_block_size": 64}, "workspace_bytes": 1 << 20}
    first = lce.value_and_grad(p.x, p.w, p.labels, **call)
    second = lce.value_and_grad(p.x, p.w, p.labels, **call)
    for name in ("loss", "grad_x", "grad_w"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    spec = [tessera.ArraySpec(a.shape, a.dtype) for a in (p.x, p.w, p.labels)]
    plan = lce.plan("value_and_grad", *spec, **call)
    assert plan.dispatch.knobs == first.dispatch.knobs
    assert plan.dispatch.block_sizes == first.dispatch.block_sizes
    assert plan.minimum_workspace_bytes <= plan.workspace_bytes <= 1 << 20
    assert lce.cost_estimate("forward", *spec).flops == 2 * 13 * 40 * 97
    assert lce.why_unsupported("eigen", "forward", *spec) is None
    assert "R8" in lce.why_unsupported("tpu_tile", "forward", *spec)
    blocks, source = lce.infer_block_sizes("eigen", "forward", *spec)
    assert set(blocks) == {"b_block_size", "h_block_size", "v_block_size"} and source
