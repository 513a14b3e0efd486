# SPDX-License-Identifier: Apache-2.0
"""tessera.torch.attention: values in the place of PyTorch's function, refusals, graphs, memory."""

import contextlib
import math
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

import tessera
import tessera.torch as tt
import textbook
from autograd_test import run
from pairs import pairs_of
from tessera.torch import functions, ops

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
EIGEN = {"implementation": "eigen"}
GROUPED = {"enable_gqa": True}

# PyTorch's function has these, with the same meaning.
OF_PYTORCH = {
    "types": [("f32",) * 3, ("bf16",) * 3, ("f16",) * 3, ("f32", "bf16", "f16"),
              ("bf16", "f32", "f32")],
    "mask": [None, "bool", "f32", "bf16", "f16"],
    "form": ["whole", "S T", "heads, T", "batch, T", "T", "S 1", "no axes", "expanded", "turned"],
    "causal": [None, "is_causal", "no", "upper_left"],
    "scale": [None, 0.3],
    "heads": [(6, 2), (1, 1), (4, 4), (8, 1)],
    "batch": [(2,), (), (2, 3), "no heads"],
    # More queries than keys too: the first see none where the last stand at the last key.
    "tokens": [(16, 16), (5, 37), (7, 3), (1, 24)],
    "depths": [(16, 16), (40, 24), (1, 8)],
    "layout": ["bhsd", "bshd", "bshd in memory", "strided"],
    "return_lse": [False, True],
    "implementation": ["eigen", "reference", None],
}
FURTHER = {
    "causal": [None, "is_causal", "no", "lower_right", "upper_left"],
    "windows": [(-1, -1), (3, -1), (-1, 2), (4, 0)],
    "cap": [None, 2.0],
    "sinks": [None, "f32", "bf16"],
    "slopes": [None, "f32", "f16"],
    "lengths": [None, torch.int32, torch.int64],
}


def form_of(case, shape):
    """The shape of a mask before it is expanded or turned, and how that is done."""
    *batch, heads, s, t = shape
    ones = [1] * len(batch)
    own = {"whole": shape, "S T": (s, t), "heads, T": (heads, 1, t), "batch, T": (*batch, 1, 1, t),
           "T": (t,), "S 1": (*ones, 1, s, 1), "no axes": (), "expanded": (*batch, 1, 1, t),
           "turned": (*batch, heads, t, s)}[case["form"]]
    if case["form"] == "expanded":
        return own, lambda mask: mask.expand(shape)
    return own, (lambda mask: mask.mT) if case["form"] == "turned" else (lambda mask: mask)


class Call:
    """A case's tensors with heads before tokens, and what is given."""

    def __init__(self, case, seed):
        self.case = case
        g = torch.Generator().manual_seed(seed)

        def randn(*shape):
            return torch.randn(shape, generator=g)

        (heads, kv_heads), (s, t), (d, e) = case["heads"], case["tokens"], case["depths"]
        batch, self.layout = case["batch"], case["layout"]
        if batch == "no heads":
            batch, heads, kv_heads = (), 1, 1
            self.layout = "bhsd" if "bshd" in self.layout else self.layout
        self.tensors = [randn(*batch, *shape).to(TYPES[kind]) for kind, shape in zip(
            case["types"], [(heads, s, d), (kv_heads, t, d), (kv_heads, t, e)], strict=True)]
        q, k, _ = (each.double() for each in self.tensors)
        # A logit is at most so large (Cauchy and Schwarz), and is wrong by its share of that.
        self.logit = 1.0 + (d**-0.5 if case["scale"] is None else case["scale"]) * (
            q.norm(dim=-1).max() * k.norm(dim=-1).max()).item()
        self.options = {"scale": case["scale"], "enable_gqa": heads != kv_heads,
                        "return_lse": case["return_lse"], "implementation": case["implementation"]}
        causal, self.mask = case["causal"], None
        if case["mask"] is not None:
            own, turned = form_of(case, (*batch, heads, s, t))
            if case["mask"] == "bool":
                mask = torch.rand(own, generator=g) < 0.7
            else:
                mask = torch.where(torch.rand(own, generator=g) < 0.2, -torch.inf, randn(*own))
                mask = mask.to(TYPES[case["mask"]])
                self.logit += mask.nan_to_num(neginf=0.0).abs().max().item()
            self.mask = turned(mask)
            causal = "upper_left" if causal == "is_causal" else causal
        self.options.update({"is_causal": True} if causal == "is_causal" else {"causal": causal})
        self.causal = {"is_causal": "upper_left", None: "no"}.get(causal, causal)
        self.further = {}
        if case.get("windows", (-1, -1)) != (-1, -1):
            self.further["window_left"], self.further["window_right"] = case["windows"]
        if case.get("cap") is not None:
            self.further["logit_soft_cap"] = case["cap"]
        if case.get("sinks") is not None:
            self.further["sinks"] = randn(heads).to(TYPES[case["sinks"]])
        if case.get("slopes") is not None:
            self.further["alibi_slopes"] = torch.rand(heads, generator=g).to(TYPES[case["slopes"]])
            self.logit += s + t
        if case.get("lengths") is not None:
            self.further["kv_lengths"] = torch.randint(0, t + 1, batch, generator=g).to(
                case["lengths"])
        self.terms = d + t + 1

    def given(self):
        """query, key and value as the case gives them."""
        if self.case["batch"] == "no heads":
            return [each[0] for each in self.tensors]
        turned = [each.transpose(-3, -2).contiguous() for each in self.tensors]
        if self.layout == "bshd":
            return turned
        if self.layout == "bshd in memory":
            return [each.transpose(-3, -2) for each in turned]
        if self.layout == "strided":
            return [torch.stack([each, torch.full_like(each, math.nan)], -1)[..., 0]
                    for each in self.tensors]
        return self.tensors

    def expected(self):
        """By the textbook: y and lse."""
        bias = self.mask
        if bias is not None and bias.dtype == torch.bool:
            bias = torch.where(bias, 0.0, -torch.inf)
        arrays = [each.double().numpy() for each in self.tensors]
        further = {name: each.double().numpy() if isinstance(each, torch.Tensor) else each
                   for name, each in self.further.items()}
        y, lse = textbook.attention(*arrays, **further, causal=self.causal,
                                    scale=self.options["scale"],
                                    bias=None if bias is None else bias.double().numpy())
        return torch.from_numpy(np.asarray(y)), torch.from_numpy(np.asarray(lse))

    def by_pytorch(self):
        """By PyTorch's function in double, or None where it does not have what is asked for."""
        if self.further or self.causal == "lower_right":
            return None
        mask = self.mask
        if mask is not None:
            mask = mask if mask.dtype == torch.bool else mask.double()
            mask = mask.expand(*[1] * max(0, 2 - mask.dim()), *mask.shape)
            if self.causal == "upper_left":  # it takes no mask beside is_causal
                upper = torch.ones(self.case["tokens"]).triu(1).bool()
                mask = mask & ~upper if mask.dtype == torch.bool else mask.masked_fill(
                    upper, -torch.inf)
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(
                *(each.double() for each in self.tensors), mask,
                is_causal=self.causal == "upper_left" and mask is None,
                scale=self.options["scale"], enable_gqa=self.options["enable_gqa"])

    def got(self):
        """y and lse with heads before tokens; lse is None where it was not asked for."""
        result = tt.attention(
            *self.given(), self.mask, **self.options, **self.further,
            layout="bshd" if self.layout == "bshd" else "bhsd")
        y, lse = result if self.options["return_lse"] else (result, None)
        if self.layout == "bshd":
            y = y.transpose(-3, -2)
        if self.case["batch"] == "no heads":
            y, lse = y[None], None if lse is None else lse[None]
        return y, lse


def check_case(case, seed, deviations):
    call = Call(case, seed)
    y, lse = call.got()
    wanted, wanted_lse = call.expected()
    theirs = call.by_pytorch()
    kind = TYPES[case["types"][0]]
    size = call.logit * call.tensors[2].double().abs().max().item()
    assert y.dtype == kind
    deviations.close("y", y, wanted, terms=call.terms, kind=kind, scale=size)
    if theirs is not None:
        deviations.close("y, by PyTorch", y, theirs, terms=call.terms, kind=kind, scale=size)
    if lse is not None:
        assert lse.dtype == torch.float32
        nothing = wanted_lse.isneginf()
        assert torch.equal(lse.isneginf(), nothing)
        deviations.close("lse", lse.masked_fill(nothing, 0.0), wanted_lse.masked_fill(nothing, 0.0),
                         terms=call.terms, scale=call.logit)
    if call.layout.startswith("bshd"):
        assert y.transpose(-3, -2).is_contiguous()
    elif call.layout == "bhsd":
        assert y.is_contiguous()
    deviations.cases += 1
    return theirs is not None


def check_cases(factors, deviations):
    """How many cases there were, and how many PyTorch judged, too."""
    judged = []
    for seed, case in enumerate(pairs_of(factors)):
        try:
            judged.append(check_case(case, seed, deviations))
        except Exception:
            print(f"case {seed}: {case}")
            raise
    return len(judged), sum(judged)


def test_in_the_place_of_pytorch(deviations):
    """Pairs of all that PyTorch has; its own function in double judges each."""
    count, judged = check_cases(OF_PYTORCH, deviations)
    assert count == judged > 40


def test_all_options(deviations):
    check_cases({**OF_PYTORCH, **FURTHER}, deviations)


q, k, v = (torch.randn(2, heads, tokens, depth, generator=torch.Generator().manual_seed(seed))
           for seed, (heads, tokens, depth) in enumerate([(4, 5, 8), (2, 7, 8), (2, 7, 6)]))


def turned(tensor):
    """The same numbers with tokens before heads, in memory too."""
    return tensor.transpose(-3, -2).contiguous()


def test_where_the_two_differ():
    """docs/torch.md lists these differences."""
    # Rows that see nothing are 0, of boolean masks and additive ones.
    none = torch.zeros(5, 7, dtype=torch.bool)
    y, lse = tt.attention(q, k, v, none, **GROUPED, return_lse=True)
    assert not y.any() and lse.isneginf().all()
    # NaN in what is not seen has no effect.
    broken = k.clone()
    broken[:, :, 3:] = torch.nan
    seen = torch.arange(7) < 3
    assert torch.equal(tt.attention(q, broken, v, seen, **GROUPED),
                       tt.attention(q, k, v, seen, **GROUPED))
    assert tt.attention(q, broken, v, **GROUPED).isnan().all()
    # The default type of tensors is not that of a boolean mask's bias.
    torch.set_default_dtype(torch.float64)
    try:
        assert tt.attention(q, k, v, seen, **GROUPED).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert tt.attention(q, k, v, **GROUPED).dtype == torch.float32


class Ops(TorchDispatchMode):
    """The operators that run, with their tensors."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls.append((function, args))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("mask", [None, torch.float32, torch.bool])
def test_only_views(layout, mask):
    """The operator is given the caller's memory, whatever its strides; a boolean mask has a bias
    of its own shape."""
    given = [turned(each) for each in (q, k, v)] if layout == "bshd" else [q, k, v]
    if mask is not None:
        mask = torch.ones(2, 1, 1, 7, dtype=mask).expand(2, 4, 5, 7)
    with Ops() as run_ops:
        tt.attention(*given, mask, layout=layout, **GROUPED, **EIGEN)
    views = {"aten.transpose.int", "aten.view.default", "aten.slice.Tensor"}
    made = [call for call in run_ops.calls if str(call[0]) not in views]
    bias = ["aten.new_full.default", "aten.masked_fill_.Scalar"] if mask is not None and (
        mask.dtype == torch.bool) else []
    assert [str(function) for function, _ in made] == [*bias, "tessera.attention_forward.default"]
    taken = made[-1][1]
    for tensor, mine in zip(taken[:3], given, strict=True):
        mine = mine.transpose(1, 2) if layout == "bshd" else mine
        assert tensor.data_ptr() == mine.data_ptr() and tensor.shape == mine.shape
        assert tensor.stride() == mine.stride()
    if bias:
        assert taken[3].shape == (2, 1, 1, 7)
    elif mask is not None:
        assert taken[3].data_ptr() == mask.data_ptr() and taken[3].stride() == mask.stride()


def test_no_memory_for_what_is_expanded():
    """Keys whose heads share rows, 512 MiB if they were copied, and a mask of 256 MiB as a bias."""
    out = run("""
        import re, torch, tessera.torch as tt
        def status(key):
            text = open("/proc/self/status").read()
            return int(re.search(key + r":\\s+(\\d+) kB", text)[1]) / 1024
        T = 1 << 18
        q, k = torch.ones(1, 16, 16, 64), torch.ones(1, T, 1, 64).expand(1, T, 8, 64)
        mask = torch.ones(T, dtype=torch.bool).expand(1, 16, 16, T)
        def call(*masks):
            y = tt.attention(q, k, k, *masks, enable_gqa=True, layout="bshd",
                             implementation="eigen")
            assert torch.all((y - 1).abs() < 1e-3)
        call()
        before = status("VmRSS")
        open("/proc/self/clear_refs", "w").write("5")
        call()
        call(mask)
        print(status("VmHWM") - before)
    """)
    assert float(out) < 32


@pytest.mark.parametrize("tokens, heads, batch", [(5, 4, (2,)), (1, 4, (2,)), (5, 1, (2,)),
                                                  (5, 4, ()), (5, 4, (2, 3)), (0, 4, (2,))])
def test_strides_of_results(tokens, heads, batch):
    """y lies in memory as query does, and lse is row-major; so says the kernel of fake tensors."""
    query = torch.ones(*batch, heads, tokens, 8)
    key, value = torch.ones(*batch, heads, 7, 8), torch.ones(*batch, heads, 7, 6)
    views = [turned(each).transpose(-3, -2) for each in (query, key, value)]
    for given, is_turned in (((query, key, value), False), (views, True)):
        y, lse = tt.attention(*given, return_lse=True)
        assert lse.is_contiguous()
        assert (y.transpose(-3, -2) if is_turned else y).is_contiguous()
        with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fake = ops.operators["attention"].forward(*map(mode.from_tensor, given))
        for real, made in zip((y, lse), fake, strict=True):
            assert made.shape == real.shape and made.dtype == real.dtype
            assert made.stride() == real.stride() or not real.numel()
    y = tt.attention(*map(turned, (query, key, value)), layout="bshd")
    assert y.shape == (*batch, tokens, heads, 6) and y.is_contiguous()


def attend(*args, **options):
    return lambda: tt.attention(*args, **{**GROUPED, **options})


mask = torch.zeros(5, 7)
learns = torch.ones(2, 4, 5, 8, requires_grad=True)

CASES = {
    "no tensor": (attend(q, k.numpy(), v), TypeError, "key is a ndarray; give a torch.Tensor"),
    "meta": (attend(q, k, v.to("meta")), TypeError, r"value lies on meta, .*value\.cpu\(\)"),
    "sparse": (attend(q.to_sparse(), k, v), TypeError,
               r"query has the layout torch.sparse_coo; .*to_dense"),
    "jagged": (lambda: tt.attention(*[torch.nested.nested_tensor([q[0], q[0]],
                                                                 layout=torch.jagged)] * 3),
               TypeError, "query is a nested tensor; use query.to_padded_tensor"),
    "nested": (lambda: tt.attention(q, k, torch.nested.nested_tensor([v[0], v[0]])), TypeError,
               "value is a nested tensor"),
    "float64": (attend(q, k.double(), v), TypeError,
                "key has elements of torch.float64; convert it to one of float32"),
    "integers": (attend(q, k, v.int()), TypeError, "value has elements of torch.int32; convert"),
    "mask of integers": (attend(q, k, v, mask.int()), TypeError,
                         "attn_mask has elements of torch.int32; convert it to one of bool, float"),
    "mask of float64": (attend(q, k, v, mask.double()), TypeError, "attn_mask has .*float64"),
    "no mask": (attend(q, k, v, True), TypeError, "attn_mask is a bool; give a torch.Tensor"),
    "lengths' type": (attend(q, k, v, kv_lengths=torch.ones(2)), TypeError,
                      "kv_lengths has elements of torch.float32; convert it to one of int64"),
    "sinks' type": (attend(q, k, v, sinks=torch.ones(4).long()), TypeError,
                    "sinks has elements of torch.int64"),
    "slopes' device": (attend(q, k, v, alibi_slopes=torch.ones(4, device="meta")), TypeError,
                       "alibi_slopes lies on meta"),
    "dropout": (attend(q, k, v, dropout_p=0.1), ValueError, "dropout_p is 0.1, .*give 0.0"),
    "is_causal and a mask": (attend(q, k, v, mask, is_causal=True), ValueError,
                             "is_causal is True beside attn_mask; give causal='upper_left'"),
    "is_causal and causal": (attend(q, k, v, is_causal=True, causal="no"), ValueError,
                             "is_causal is True beside causal='no'"),
    "causal": (attend(q, k, v, causal="yes"), ValueError, "causal is 'yes'; give None, 'no', "),
    "causal as is_causal": (attend(q, k, v, causal=True), ValueError, "causal is True; give None"),
    "layout": (attend(q, k, v, layout="sbhd"), ValueError, r"layout is 'sbhd'; give 'bhsd' for"),
    "heads": (attend(q, k, v, enable_gqa=False), ValueError,
              "query has 4 heads and key 2; give enable_gqa=True"),
    "one head": (attend(q, k[:, :1], v[:, :1], enable_gqa=False), ValueError,
                 "query has 4 heads and key 1; give enable_gqa=True"),
    "no multiple": (attend(q[:, :3], k, v), ValueError,
                    "query has 3 heads and key 2; give a multiple of key's heads"),
    "heads of value": (attend(q, k, v[:, :1]), ValueError,
                       r"key has shape \[2, 2, 7, 8\] and value \[2, 1, 7, 6\]: batch, heads and"),
    "tokens of value": (attend(turned(q), turned(k), turned(v)[:, :6], layout="bshd"), ValueError,
                        r"key has shape \[2, 7, 2, 8\] and value \[2, 6, 2, 6\]"),
    "batch": (attend(q, k[:1], v[:1]), ValueError,
              r"query has shape \[2, 4, 5, 8\] and key \[1, 2, 7, 8\]: .*use key.expand"),
    "depth": (attend(q, k[..., :7], v), ValueError, "batch and depth must be the same"),
    "no depth": (attend(q[..., :0], k[..., :0], v), ValueError, "its last axis must be 1 to 512"),
    "ranks": (attend(q, k[0], v[0]), ValueError, r"query has shape \[2, 4, 5, 8\], key \[2, 7, 8\]"
              r" and value \[2, 7, 6\]; give three tensors"),
    "one axis": (attend(q[0, 0, 0], k[0, 0, 0], v[0, 0, 0]), ValueError, r"query has shape \[8\]"),
    "no heads to turn": (attend(q[0, 0], k[0, 0], v[0, 0], layout="bshd"), ValueError,
                         "in layout 'bhsd' of tokens and depth alone"),
    "mask": (attend(q, k, v, mask[:, :6]), ValueError,
             r"attn_mask has shape \[5, 6\]; give one that broadcasts to \[2, 4, 5, 7\]"),
    "mask of a batch": (attend(q, k, v, mask.expand(3, 1, 5, 7)), ValueError, r"\[3, 1, 5, 7\]"),
    "mask's axes": (attend(q, k, v, mask[None, None, None]), ValueError, r"\[1, 1, 1, 5, 7\]"),
    "sinks": (attend(q, k, v, sinks=torch.ones(2)), ValueError,
              r"sinks has shape \[2\], not \[4\]: one number for each head"),
    "slopes": (attend(q, k, v, alibi_slopes=torch.ones(1, 4)), ValueError,
               r"alibi_slopes has shape \[1, 4\], not \[4\]"),
    "lengths": (attend(q, k, v, kv_lengths=torch.ones(4).int()), ValueError,
                r"kv_lengths has shape \[4\], not \[2\]"),
    "lengths beyond": (attend(q, k, v, kv_lengths=torch.tensor([7, 8])),
                       tessera.InvalidArgumentError, "kv_lengths of sequence 1 is 8; give 0 to 7"),
    "cap": (attend(q, k, v, logit_soft_cap=-1.0), ValueError, "logit_soft_cap is -1; the least"),
    "window": (attend(q, k, v, window_left=-2), ValueError, "window_left is -2; the least is -1"),
    "scale": (attend(q, k, v, scale=math.inf), ValueError, "scale is inf; give a finite number"),
    "workspace": (attend(q, k, v, workspace_bytes=-1), ValueError, "workspace_bytes is -1"),
    "implementation": (attend(q, k, v, implementation="cuda"), ValueError, 'unknown name "cuda"'),
    "no kernels": (attend(q, k, v, implementation="opencl"), tessera.UnsupportedError,
                   "attention has no OpenCL kernels yet"),
    "query learns": (attend(learns, k, v), NotImplementedError,
                     r"query requires a gradient, and attention has none yet; call it under "
                     r"torch.no_grad\(\), or give query.detach\(\)"),
    "value learns": (attend(q, k, v.clone().requires_grad_()), NotImplementedError, "value requir"),
    "mask learns": (attend(q, k, v, mask.clone().requires_grad_()), NotImplementedError,
                    "attn_mask requires a gradient"),
    "sinks learn": (attend(q, k, v, sinks=torch.ones(4, requires_grad=True)), NotImplementedError,
                    "sinks requires a gradient"),
    "func.grad": (lambda: torch.func.grad(lambda q: attend(q, k, v)().sum())(q),
                  NotImplementedError, "query requires a gradient"),
    "func.jvp": (lambda: torch.func.jvp(lambda q: attend(q, k, v)(), (q,), (q,)),
                 NotImplementedError, r"attention has no derivatives of forward mode .*jvp"),
    "func.vmap": (lambda: torch.func.vmap(lambda q: attend(q, k, v)())(q[None]),
                  NotImplementedError, "torch.vmap has no rule for attention; give .* axes"),
    "vmap of a mask": (lambda: torch.func.vmap(lambda mask: attend(q, k, v, mask)())(
        torch.ones(3, 5, 7, dtype=torch.bool)), NotImplementedError, "torch.vmap has no rule"),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("case", CASES)
def test_refused(case):
    call, kind, message = CASES[case]
    with pytest.raises(kind, match=message):
        call()
    assert learns.grad is None


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_tensors_that_learn_where_nothing_is_recorded(without):
    wanted = tt.attention(learns.detach(), k, v, **GROUPED)
    with without():
        got = tt.attention(learns, k, v, **GROUPED)
    assert torch.equal(got, wanted) and not got.requires_grad
    assert torch.equal(torch.func.grad(lambda q: (q * tt.attention(
        q.detach(), k, v[..., :1], **GROUPED)).sum())(q)[..., :1],
        tt.attention(q, k, v[..., :1], **GROUPED))


def test_forward_mode_is_refused():
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(q, q)
        for without in (contextlib.nullcontext, torch.no_grad):
            with without(), pytest.raises(NotImplementedError, match="forward mode"):
                tt.attention(dual, k, v, **GROUPED)


def test_no_gradient_is_zero():
    """Below the function, too: what comes from an operator without a backward has no derivative."""
    y, _ = functions.apply("attention", {"q": learns, "k": k, "v": v}, EIGEN)
    for of in (y, torch.ops.tessera.attention_forward(learns, k, v, **EIGEN)[1]):
        with pytest.raises(NotImplementedError, match="tessera computes no gradients of attention"):
            of.sum().backward()
    assert learns.grad is None


def samples():
    """Bias, lengths, all that may be given, and views whose tokens stand before heads."""
    yield (q, k, v, torch.zeros(1, 4, 1, 7)), {"scale": 0.3, "causal": "upper_left"}
    yield (q.bfloat16(), k, v), {"kv_lengths": torch.tensor([3, 7]), "window_left": 2}
    views = [turned(each).transpose(-3, -2) for each in (q, k, v)]
    yield views, {"sinks": torch.ones(4), "alibi_slopes": torch.ones(4)}
    yield (views[0][0], k[0], v[0]), {"logit_soft_cap": 2.0}


@pytest.mark.parametrize("sample", samples())
def test_opcheck(sample):
    args, options = sample
    results = torch.library.opcheck(torch.ops.tessera.attention_forward.default, tuple(args),
                                    {**options, **EIGEN})
    assert set(results.values()) == {"SUCCESS"} and len(results) == 4


def problem(batch, s, t):
    """query (as it is made in a graph), key, value, a mask and lengths."""
    g = torch.Generator().manual_seed(s)
    return (torch.randn(batch, s, 4, 8, generator=g), torch.randn(batch, t, 2, 8, generator=g),
            torch.randn(batch, t, 2, 6, generator=g), torch.rand(s, t, generator=g) < 0.8,
            torch.arange(batch) + 2)


def model(query, key, value, mask, lengths):
    y, lse = tt.attention(torch.tanh(query), key, value, mask, kv_lengths=lengths, layout="bshd",
                          return_lse=True, **GROUPED, **EIGEN)
    heads = [each.transpose(1, 2) for each in (query, key, value)]
    return y * 2, lse, tt.attention(*heads, is_causal=True, **GROUPED, **EIGEN)


def same(got, wanted):
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
        assert a.stride() == b.stride()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile(backend):
    """One graph without breaks, for several shapes, with the values of eager mode."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
    for shape in ((3, 5, 7), (2, 9, 4), (4, 6, 6)):
        given = problem(*shape)
        same(compiled(*given), model(*given))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    query, *others = problem(2, 5, 7)
    with pytest.raises(Exception, match="query requires a gradient"):
        compiled(query.requires_grad_(), *others)
    with torch.no_grad():
        same(compiled(query, *others), model(query, *others))


def test_export():
    """With axes that are dynamic, and a program that runs without the function."""

    class Model(torch.nn.Module):
        forward = staticmethod(model)

    batch, s, t = (torch.export.Dim(name, min=2, max=1000) for name in ("batch", "s", "t"))
    kv = {0: batch, 1: t}
    program = torch.export.export(
        Model(), problem(2, 5, 7),
        dynamic_shapes=({0: batch, 1: s}, kv, kv, {0: s, 1: t}, {0: batch}))
    assert len(re.findall(r"tessera.attention_forward", str(program.graph))) == 2
    given = problem(4, 33, 21)
    same(program.module()(*given), model(*given))
