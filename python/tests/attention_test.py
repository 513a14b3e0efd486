# SPDX-License-Identifier: Apache-2.0
"""tessera.attention: every option, type and layout by pairs against the textbook, and the edges of
its Python side."""

import gc
import sys

import numpy as np
import pytest

import tessera
import textbook
from arrays_test import resident_pages
from conftest import TYPES, as_double, close
from pairs import pairs_of

attention = tessera.attention
IMPLEMENTATIONS = [each["name"] for each in attention.implementations()]

FACTORS = {
    "types": [("f32",) * 3, ("bf16",) * 3, ("f16",) * 3, ("f32", "bf16", "f16"),
              ("bf16", "f32", "f32")],
    "layout": ["bhsd", "bshd"],
    "batch": [(2,), (), (2, 3)],
    "heads": [(6, 2), (1, 1), (4, 4), (8, 1)],
    # More queries than keys too: the first see none where the last stand at the last key.
    "tokens": [(16, 16), (5, 37), (7, 3), (1, 24)],
    "depths": [(16, 16), (40, 24), (1, 8)],
    "causal": ["no", "lower_right", "upper_left"],
    "windows": [(-1, -1), (3, -1), (-1, 2), (4, 0)],
    "cap": [0.0, 2.0],
    "scale": [None, 0.3, 0.0],
    "bias": [None, "whole", "heads and keys", "queries", "masked"],
    "lengths": [None, np.int32, np.int64],
    "sinks": [None, "f32", "bf16"],
    "slopes": [None, "f32", "f16"],
    "results": ["y", "lse too", "out", "lse alone", "out of another type"],
}


def swapped(array):
    """The same numbers where tokens stand before heads, in memory too."""
    return np.ascontiguousarray(array.swapaxes(-3, -2))


class Call:
    """The arrays of a case as the textbook has them, and the arguments of the call."""

    def __init__(self, case, seed):
        rng = np.random.default_rng(seed)
        (heads, kv_heads), (s, t), (d, e) = case["heads"], case["tokens"], case["depths"]
        batch = case["batch"]
        self.arrays = {}
        for name, kind, shape in zip("qkv", case["types"],
                                     [(heads, s, d), (kv_heads, t, d), (kv_heads, t, e)],
                                     strict=True):
            self.arrays[name] = rng.standard_normal((*batch, *shape)).astype(TYPES[kind])
        extents = {None: None, "whole": (*batch, heads, s, t), "masked": (*batch, heads, s, t),
                   "heads and keys": (*[1] * len(batch), heads, 1, t),
                   "queries": (*batch, 1, s, 1)}[case["bias"]]
        self.extra = {}
        if extents is not None:
            bias = rng.standard_normal(extents).astype(np.float32)
            if case["bias"] == "masked":
                bias[rng.random(extents) < 0.3] = -np.inf
            self.extra["bias"] = bias
        if case["lengths"] is not None:
            self.extra["kv_lengths"] = rng.integers(0, t + 1, batch).astype(case["lengths"])
        if case["sinks"] is not None:
            self.extra["sinks"] = rng.standard_normal(heads).astype(TYPES[case["sinks"]])
        if case["slopes"] is not None:
            self.extra["alibi_slopes"] = rng.uniform(0, 0.5, heads).astype(TYPES[case["slopes"]])
        self.options = {"causal": case["causal"], "window_left": case["windows"][0],
                        "window_right": case["windows"][1], "logit_soft_cap": case["cap"],
                        "scale": case["scale"]}
        self.layout = case["layout"]
        self.y_shape, self.lse_shape = (*batch, heads, s, e), (*batch, heads, s)
        # A logit is at most so large (Cauchy and Schwarz), and is wrong by its share of that.
        q, k = as_double(self.arrays["q"]), as_double(self.arrays["k"])
        scale = d**-0.5 if case["scale"] is None else case["scale"]
        self.logit = 1.0 + scale * (np.linalg.norm(q, axis=-1).max(initial=0.0)
                                    * np.linalg.norm(k, axis=-1).max(initial=0.0))
        if extents is not None:
            self.logit += np.abs(bias[np.isfinite(bias)]).max(initial=0.0)
        self.logit += 0.5 * (s + t) * (case["slopes"] is not None)
        self.terms = d + t + 1

    def given(self):
        """q, k and v in the layout of the call."""
        turn = swapped if self.layout == "bshd" else np.asarray
        return {name: turn(array) for name, array in self.arrays.items()}

    def expected(self):
        double = {name: as_double(array) for name, array in {**self.arrays, **self.extra}.items()}
        return textbook.attention(**double, **self.options)

    def check(self, name, got, wanted, kind):
        if name == "y":
            got = got.swapaxes(-3, -2) if self.layout == "bshd" else got
            size = np.abs(as_double(self.arrays["v"])).max(initial=0.0)
        else:
            size = max(1.0, np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
            np.testing.assert_array_equal(np.isneginf(got), np.isneginf(wanted))
            got, wanted = (np.where(np.isneginf(each), 0.0, each) for each in (got, wanted))
        close(name, got, wanted, terms=self.terms, kind=kind, scale=self.logit * size)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_values(implementation):
    for seed, case in enumerate(pairs_of(FACTORS)):
        try:
            check_case(implementation, case, seed)
        except Exception:
            print(f"case {seed}: {case}")
            raise


def check_case(implementation, case, seed):
    call = Call(case, seed)
    y, lse = call.expected()
    kind, results = case["types"][0], case["results"]
    options = {**call.options, "layout": call.layout, "implementation": implementation}
    if results in ("y", "lse too"):
        options["wants"] = "lse" if results == "lse too" else None
        result = attention.forward(**call.given(), **call.extra, **options)
        assert result.y.dtype == TYPES[kind] and result.y.flags.c_contiguous
        assert (result.lse is None) == (results == "y")
    else:
        out = {"lse": np.full(call.lse_shape, np.nan, np.float32)}
        if results != "lse alone":
            kind = kind if results == "out" else {"f32": "bf16"}.get(kind, "f32")
            own = np.full(call.y_shape, np.nan, TYPES[kind])
            out["y"] = swapped(own) if call.layout == "bshd" else own
        result = attention.forward(**call.given(), **call.extra, **options, out=out)
        assert result.lse is out["lse"] and result.y is out.get("y")
    assert result.dispatch.implementation == implementation
    if result.y is not None:
        call.check("y", result.y, y, kind)
    if result.lse is not None:
        assert result.lse.dtype == np.float32
        call.check("lse", result.lse, lse, "f32")


@pytest.fixture
def qkv():
    rng = np.random.default_rng(1)
    return {"q": rng.standard_normal((2, 4, 5, 8)).astype("f4"),
            "k": rng.standard_normal((2, 2, 7, 8)).astype("f4"),
            "v": rng.standard_normal((2, 2, 7, 6)).astype("f4")}


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_views_are_taken_as_they_are(qkv, implementation):
    """A layout is an exchange of axes: numpy's own view of the other one gives the same bits."""
    call = {"implementation": implementation, "causal": "lower_right", "wants": "lse"}
    plain = attention.forward(**qkv, **call)
    views = {name: array.swapaxes(-3, -2) for name, array in qkv.items()}
    turned = attention.forward(**views, **call, layout="bshd")
    np.testing.assert_array_equal(turned.y, plain.y.swapaxes(-3, -2))
    np.testing.assert_array_equal(turned.lse, plain.lse)
    unset = attention.forward(**qkv, **call, scale=8**-0.5, layout=None)
    np.testing.assert_array_equal(unset.y, plain.y)
    out = {"y": np.full((2, 6, 4, 5), np.nan, np.float32).transpose(0, 2, 3, 1)}
    result = attention.forward(**qkv, out=out, implementation=implementation,
                               causal="lower_right")
    assert result.y is out["y"]
    np.testing.assert_array_equal(out["y"], plain.y)


REFUSED = [
    ("layout", {"layout": "bhds"}, ValueError,
     r"layout is 'bhds'; give 'bhsd' for \[..., heads, tokens, depth\] or 'bshd' for"),
    ("layout's type", {"layout": 3}, ValueError, "layout is 3; give 'bhsd'"),
    ("causal", {"causal": "yes"}, ValueError, "causal is 'yes'; give one of 'no', 'lower_right'"),
    ("causal's type", {"causal": True}, TypeError, "causal is True; give one of"),
    ("scale", {"scale": "1"}, TypeError, "scale is a str; give a number"),
    ("no scale", {"scale": np.inf}, ValueError, "scale is inf; give a finite number"),
    ("cap", {"logit_soft_cap": -1}, ValueError, "logit_soft_cap is -1.*least is 0.*turns it off"),
    ("window", {"window_left": -2}, ValueError, "window_left is -2; the least is -1, which sees"),
    ("window's type", {"window_right": 1.5}, TypeError, "window_right is 1.5; give an integer"),
    ("float64", {"k": lambda c: c["k"].astype("f8")}, TypeError, "k has .* float64; give native"),
    ("integers", {"v": lambda c: c["v"].astype("i4")}, TypeError,
     "v has elements of type i32; give float32, bfloat16 or float16"),
    ("lengths' type", {"kv_lengths": np.ones(2, "f4")}, TypeError,
     "kv_lengths has elements of type f32; give int32 or int64"),
    ("lengths beyond T", {"kv_lengths": np.array([7, 8])}, ValueError,
     "kv_lengths of sequence 1 is 8; give 0 to 7, the number of keys T"),
    ("a negative length", {"kv_lengths": np.array([-1, 8])}, ValueError, "is -1; give 0 to 7"),
    ("rank 2", {"q": lambda c: c["q"][0, 0]}, ValueError,
     r"q has shape \[5, 8\], expected \[..., Q, S, D\]"),
    ("rank 2 with tokens first", {"q": lambda c: c["q"][0, 0], "layout": "bshd"}, ValueError,
     r"q has shape \[5, 8\], expected \[..., Q, S, D\] \(shapes are written with heads before"),
    ("no axes", {"v": np.float32(1)}, ValueError, "v has no axes"),
    ("heads", {"q": lambda c: c["q"][:, :3]}, ValueError,
     "the 3 heads of q, axis -3, must be a multiple of the 2 of k"),
    ("other heads of v", {"v": lambda c: c["v"][:, :1]}, ValueError, r"v has shape \[2, 1, 7, 6\]"),
    ("depth of k", {"k": lambda c: c["k"][..., :7]}, ValueError, "the last axis of k must be D"),
    ("keys of v", {"v": lambda c: c["v"][:, :, :6]}, ValueError,
     "axis -2 of v must be T, axis -2 of k"),
    ("keys of v with tokens first",
     {"layout": "bshd", "q": lambda c: swapped(c["q"]), "k": lambda c: swapped(c["k"]),
      "v": lambda c: swapped(c["v"][:, :, :6])}, ValueError,
     r"v has shape \[2, 2, 6, 6\] but k has .*heads before tokens, also with layout='bshd'\)"),
    ("batch", {"k": lambda c: c["k"][:1]}, ValueError, r"k has shape \[1, 2, 7, 8\], expected \[2"),
    ("bias", {"bias": np.zeros((2, 4, 5, 6), "f4")}, ValueError,
     r"bias has shape \[2, 4, 5, 6\], expected \[2, 4, 5, 7\], or 1 in the place of any"),
    ("bias of rank 2", {"bias": np.zeros((5, 7), "f4")}, ValueError, r"bias has shape \[5, 7\]"),
    ("sinks", {"sinks": np.zeros(2, "f4")}, ValueError, r"sinks has shape \[2\], expected \[4\]"),
    ("slopes", {"alibi_slopes": np.zeros((4, 1), "f4")}, ValueError,
     r"alibi_slopes has shape \[4, 1\]"),
    ("no k", {"k": None}, ValueError, "k is not given"),
    ("out's shape", {"out": {"y": np.full((2, 4, 5, 7), 7, "f4")}}, ValueError,
     r"y has shape \[2, 4, 5, 7\], expected \[2, 4, 5, 6\]"),
    ("out's layout", {"out": {"y": np.full((2, 4, 5, 6), 7, "f4")}, "layout": "bshd",
                      "q": lambda c: swapped(c["q"]), "k": lambda c: swapped(c["k"]),
                      "v": lambda c: swapped(c["v"])}, ValueError,
     r"y has shape \[2, 5, 4, 6\], expected \[2, 4, 5, 6\].*layout='bshd'\)"),
    ("out's type", {"out": {"lse": np.full((2, 4, 5), 7, "f2")}}, TypeError,
     "lse has elements of type f16; give float32"),
    ("out's name", {"out": {"grad_q": np.full(1, 7, "f4")}}, ValueError, "out has 'grad_q'"),
    ("wants", {"wants": "logits", "out": None}, ValueError, "wants has 'logits', which attention"),
    ("blocks", {"block_sizes": {"q_block_size": 0}}, ValueError, "q_block_size"),
    ("block's name", {"block_sizes": {"v": 1}}, ValueError, "no block size 'v'; it has q_block"),
    ("a layout of an input", {"q_layout": "bshd"}, TypeError, "no argument 'q_layout'; it has q, "),
]


@pytest.mark.parametrize("change, error, text", [c[1:] for c in REFUSED],
                         ids=[c[0] for c in REFUSED])
def test_refused_with_outputs_untouched(qkv, change, error, text):
    call = {"out": {"y": np.full((2, 4, 5, 6), 7, "f4"), "lse": np.full((2, 4, 5), 7, "f4")},
            "implementation": "reference", **qkv}
    call.update({name: value(qkv) if callable(value) else value
                 for name, value in change.items()})
    with pytest.raises(error, match=text):
        attention.forward(**call)
    for array in (call["out"] or {}).values():
        assert np.all(array == 7)


def test_overlap_refused(qkv):
    with pytest.raises(ValueError, match="y.*overlap"):
        attention.forward(qkv["q"], qkv["k"], qkv["k"], out={"y": qkv["q"]},
                          implementation="reference")


def test_no_gradients():
    assert not hasattr(attention, "backward")


def test_questions(qkv):
    specs = {name: tessera.ArraySpec(array.shape, "bfloat16") for name, array in qkv.items()}
    turned = {name: tessera.ArraySpec(swapped(array).shape, "bfloat16")
              for name, array in qkv.items()}
    call = {"implementation": IMPLEMENTATIONS[0], "causal": "lower_right", "window_left": 2}
    # 5 queries of 4 heads in 2 sequences see 3 keys each: a product and a sum by 8 and by 6.
    for arrays in (specs, {**turned, "layout": "bshd"}):
        plan = attention.plan("forward", **arrays, **call)
        assert plan.dispatch.implementation == IMPLEMENTATIONS[0]
        assert set(plan.dispatch.block_sizes) == {"q_block_size", "kv_block_size"}
        assert attention.cost_estimate("forward", **arrays, **call).flops == 2 * 4 * 15 * 2 * 14
        for each in IMPLEMENTATIONS:
            assert attention.why_unsupported(each, "forward", **arrays) is None
            blocks, source = attention.infer_block_sizes(each, "forward", **arrays,
                                                         implementation=each)
            assert set(blocks) == set(plan.dispatch.block_sizes) and source
        assert "layout" not in attention.why_unsupported("opencl", "forward", **arrays)
    assert "q_block_size is 0" in attention.why_unsupported(
        "reference", "forward", **specs, block_sizes={"q_block_size": 0})
    with pytest.raises(ValueError, match="pass_name is 'backward'; attention has 'forward'"):
        attention.plan("backward", **specs)
    # The other layout has 5 heads of q.
    assert "the 5 heads of q" in attention.why_unsupported("reference", "forward", **specs,
                                                        layout="bshd")


def test_no_growth():
    """Neither references nor memory grow with 10,000 calls, be they right or wrong."""
    q, k, v = (np.ones((2, 1, 4), np.float32) for _ in range(3))
    lengths = np.array(2)
    out = {"y": np.zeros((2, 1, 4), np.float32)}
    call = {"implementation": IMPLEMENTATIONS[0], "layout": "bshd"}

    def calls(count):
        for _ in range(count):
            attention.forward(q, k, v, kv_lengths=lengths, wants="lse", scale=None, **call)
            attention.forward(q, k, v, out=out, **call)
            with pytest.raises(ValueError):
                attention.forward(q, k, v, layout="b")

    calls(50)
    gc.collect()
    before = [sys.getrefcount(each) for each in (q, k, v, lengths, out["y"])]
    resident = resident_pages()
    calls(3400)  # 10,200 of them
    gc.collect()
    assert [sys.getrefcount(each) for each in (q, k, v, lengths, out["y"])] == before
    # An object of 24 bytes that leaked in each call would be 60 pages.
    assert resident_pages() - resident < 60
