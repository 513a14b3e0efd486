# SPDX-License-Identifier: Apache-2.0
"""What autograd does with the functions: which passes run, what is kept, copied and noticed."""

import contextlib
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import tessera
import tessera.torch as tt
from conftest import Problem
from tessera.torch import ops

EIGEN = {"implementation": "eigen"}


@contextlib.contextmanager
def calls_of(monkeypatch):
    """Of each call its operator, options, and the addresses and sizes of its results.

    Not the results: a gradient that somebody else refers to is copied.
    """
    calls = []
    original = ops.call

    def call(op, *args, **options):
        results = original(op, *args, **options)
        calls.append((op.name().removeprefix("tessera::"), options,
                      [(each.data_ptr(), each.numel()) for each in results]))
        return results

    with monkeypatch.context() as patch:
        patch.setattr(ops, "call", call)
        yield calls


def expected(p, factor=1.0, **options):
    x, w = p.x.detach().double().requires_grad_(), p.w.detach().double().requires_grad_()
    (F.cross_entropy(F.linear(x, w), p.labels, **options) * factor).backward()
    return x.grad.float(), w.grad.float()


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_gradients_are_handed_over(monkeypatch, factor):
    """One pass, and .grad is the very memory that it wrote: no copy, also where it is scaled."""
    p = Problem()
    with calls_of(monkeypatch) as calls:
        (tt.linear_cross_entropy(p.x, p.w, p.labels, **EIGEN) * factor).backward()
    (name, _, results), = calls
    assert name == "linear_cross_entropy_value_and_grad"
    assert p.x.grad.data_ptr() == results[-3][0]
    assert p.w.grad.data_ptr() == results[-2][0]
    for grad, wanted in zip((p.x.grad, p.w.grad), expected(p, factor), strict=True):
        torch.testing.assert_close(grad, wanted, rtol=1e-4, atol=1e-5)


def test_only_what_is_needed(monkeypatch):
    p = Problem()
    for reduction, name in (("mean", "value_and_grad"), ("none", "backward")):
        with calls_of(monkeypatch) as calls:
            loss = tt.linear_cross_entropy(p.x.detach(), p.w, p.labels, reduction=reduction,
                                           linear_bias=p.bias, **EIGEN)
            loss.sum().backward()
        last, options, results = calls[-1]
        assert last == f"linear_cross_entropy_{name}"
        wants = {key: value for key, value in options.items() if key.startswith("wants_")}
        assert wants == {"wants_grad_x": False, "wants_grad_w": True, "wants_grad_bias": True}
        assert results[-3][1] == 0 and p.x.grad is None
    with calls_of(monkeypatch) as calls, torch.no_grad():
        loss = tt.linear_cross_entropy(p.x, p.w, p.labels, **EIGEN)
    assert [call[0] for call in calls] == ["linear_cross_entropy_forward"]
    assert not loss.requires_grad


def test_a_second_backward():
    """With retain_graph the second adds the same again, and frees nothing that the first gave."""
    p = Problem()
    loss = tt.linear_cross_entropy(p.x, p.w, p.labels, **EIGEN)
    loss.backward(retain_graph=True)
    first = p.w.grad.clone()
    (loss * 2).backward()
    torch.testing.assert_close(p.w.grad, 3 * first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_changes_in_place_are_noticed(reduction):
    for changed in ("x", "w", "labels"):
        p = Problem()
        loss = tt.linear_cross_entropy(p.x, p.w, p.labels, reduction=reduction, **EIGEN).sum()
        with torch.no_grad():
            getattr(p, changed).mul_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_float16_is_scaled_before_it_is_rounded():
    """A GradScaler's factor must reach gradients that would vanish in float16 without it."""
    p = Problem((500,), kind=torch.float16)
    x = (p.x.detach() * 1e-3).requires_grad_()
    loss = tt.linear_cross_entropy(x, p.w, p.labels, token_weight=torch.full((500,), 1e-5),
                                   reduction="sum", **EIGEN)
    (loss * 2.0**16).backward()
    wanted = torch.autograd.grad(F.cross_entropy(
        F.linear(x.double(), p.w.double()), p.labels, reduction="sum") * 1e-5 * 2.0**16, x)[0]
    torch.testing.assert_close(x.grad, wanted.half(), rtol=1e-2, atol=1e-4)


@pytest.mark.filterwarnings("ignore:`torch.jit")  # of PyTorch's own code
def test_func_grad_and_forward_mode():
    p = Problem()
    x, w = p.x.detach(), p.w.detach()

    def loss(x, w, **options):
        return tt.linear_cross_entropy(x, w, p.labels, **EIGEN, **options)

    grads = torch.func.grad(loss, argnums=(0, 1))(x, w)
    for grad, wanted in zip(grads, expected(p), strict=True):
        torch.testing.assert_close(grad, wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(NotImplementedError, match="jvp"):
        torch.func.jvp(lambda x: loss(x, w), (x,), (x,))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match="jvp"):
        loss(torch.autograd.forward_ad.make_dual(x, x), w)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        torch.func.grad(lambda x: torch.func.grad(loss)(x, w).sum())(x)


@pytest.mark.parametrize("options", [{}, {"reduction": "none"}], ids=str)
def test_second_derivatives_raise(options):
    p = Problem()
    loss = tt.linear_cross_entropy(p.x, p.w, p.labels, **EIGEN, **options).sum()
    grad, = torch.autograd.grad(loss, p.x, create_graph=True)
    torch.testing.assert_close(grad, expected(p, reduction="sum" if options else "mean")[0],
                               rtol=1e-4, atol=1e-4)
    with pytest.raises(NotImplementedError, match="derivative"):
        grad.sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    p = Problem()

    def loss(x):
        return tt.linear_cross_entropy(torch.tanh(x), p.w, p.labels, **EIGEN)

    checkpoint(loss, p.x, use_reentrant=reentrant).backward()
    kept = p.x.grad, p.w.grad
    p.x.grad = p.w.grad = None
    loss(p.x).backward()
    assert torch.equal(kept[0], p.x.grad) and torch.equal(kept[1], p.w.grad)


def test_autocast_and_tied_weights():
    """The embedding is the head's weight; hidden states are bf16, and weights f32."""
    p = Problem()
    tokens = torch.randint(0, 50, (12,), generator=p.generator)
    with torch.autocast("cpu", torch.bfloat16):
        hidden = F.linear(F.embedding(tokens, p.w), torch.eye(20))
        assert hidden.dtype == torch.bfloat16
        tt.linear_cross_entropy(hidden, p.w, p.labels, **EIGEN).backward()
    w = p.w.detach().double().requires_grad_()
    F.cross_entropy(F.linear(F.embedding(tokens, w), w), p.labels).backward()
    assert p.w.grad.dtype == torch.float32
    torch.testing.assert_close(p.w.grad.double(), w.grad, rtol=0.02, atol=0.01)


def test_negative_views():
    """A tensor that PyTorch negates lazily comes to the library negated."""
    p = Problem()
    x = torch.complex(torch.zeros(12, 20), -p.x.detach()).conj().imag
    assert x.is_neg()
    torch.testing.assert_close(tt.linear_cross_entropy(x, p.w, p.labels, **EIGEN),
                               tt.linear_cross_entropy(p.x, p.w, p.labels, **EIGEN))


@pytest.mark.filterwarnings("ignore:Input #")  # that float64 would be better
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("with_lse", [False, True])
def test_gradcheck(reduction, with_lse):
    p = Problem((4,), hidden=5, words=7)
    x = (p.x.detach() / 4).requires_grad_()

    def loss(x, w, bias):
        return tt.linear_cross_entropy(x, w, p.labels, linear_bias=bias, reduction=reduction,
                                       return_lse=with_lse, **EIGEN)

    assert torch.autograd.gradcheck(loss, (x, p.w, p.bias), eps=1e-2, atol=2e-3, rtol=1e-2,
                                    nondet_tol=0.0)


def test_the_gil_is_free():
    """Another thread of Python runs while an operator does."""
    p = Problem((256,), hidden=256, words=4096)
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.0005)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.monotonic()
    while time.monotonic() - start < 0.3:
        tt.linear_cross_entropy(p.x, p.w, p.labels, **EIGEN)
    done.set()
    thread.join()
    gaps = [b - a for a, b in zip(ticks, ticks[1:], strict=False)]
    assert len(ticks) > 30 and sorted(gaps)[len(gaps) // 2] < 0.005


def resident():
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_no_growth_in_1000_steps():
    p = Problem((64,), hidden=64, words=1000)

    def steps(count):
        for i in range(count):
            p.x.grad = p.w.grad = None
            loss = tt.linear_cross_entropy(p.x, p.w, p.labels, reduction=("mean", "none")[i % 2],
                                           **EIGEN)
            (loss.sum() * (1 + i % 3)).backward()
        gc.collect()
        return resident()

    before = steps(100)
    assert steps(1000) - before < 4 << 20  # one gradient of w is 256 KB


def run(program, **environment):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True,
                          text=True, timeout=120, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_one_copy_of_the_gradient():
    """By the peak of resident memory: grad_w, and no second one beside it."""
    out = run("""
        import re, torch, tessera.torch as tt
        x, w = torch.ones(16, 512), torch.ones(32768, 512, requires_grad=True)
        labels = torch.zeros(16, dtype=torch.int64)
        def step():
            w.grad = None
            tt.linear_cross_entropy(x, w, labels, implementation="eigen").backward()
        def status(key):
            text = open("/proc/self/status").read()
            return int(re.search(key + r":\\s+(\\d+) kB", text)[1]) / 1024
        step()
        w.grad = None
        before = status("VmRSS")
        open("/proc/self/clear_refs", "w").write("5")
        step()
        print(status("VmHWM") - before)
    """)
    assert 60 < float(out) < 96  # grad_w is 64 MiB


@pytest.mark.skipif(not os.path.exists("/sys/kernel/mm/transparent_hugepage/enabled"),
                    reason="this system has no large pages")
def test_large_pages():
    """A gradient that the functions allocate asks for large pages; PyTorch's own arrays do not."""
    assert run("""
        import torch, tessera.torch as tt
        x, w = torch.ones(16, 512), torch.ones(32768, 512, requires_grad=True)
        labels = torch.zeros(16, dtype=torch.int64)
        tt.linear_cross_entropy(x, w, labels, implementation="eigen").backward()

        def asks(tensor):
            middle, holds = tensor.data_ptr() + tensor.nbytes // 2, False
            for line in open("/proc/self/smaps"):
                first = line.split()[0]
                if "-" in first:
                    begin, end = (int(each, 16) for each in first.split("-"))
                    holds = begin <= middle < end
                elif holds and first == "VmFlags:":
                    return "hg" in line.split()

        print(asks(w.grad), asks(w))
    """) == "True False\n"


def test_threads_and_warnings():
    """The context has as many threads as PyTorch; what it warns of is a warning of Python's."""
    assert run("""
        import os, warnings
        import torch
        torch.set_num_threads(1)
        import tessera, tessera.torch as tt
        x, w, labels = torch.ones(64, 256), torch.ones(4096, 256), torch.zeros(64).long()

        def threads():
            return len(os.listdir("/proc/self/task"))

        before = threads()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            tt.linear_cross_entropy(x, w, labels)
        print({each.category is tessera.Warning and "no OpenCL device" in str(each.message)
               for each in caught})
        print(threads() - before)
        tt.set_context(tessera.Context(threads=3, host_only=True))
        tt.linear_cross_entropy(x, w, labels, implementation="eigen")
        print(threads() - before)
    """, OCL_ICD_VENDORS="/nonexistent") == "{True}\n0\n2\n"


@pytest.mark.filterwarnings("ignore::tessera.Warning")
def test_context():
    p = Problem()
    loss = tt.linear_cross_entropy(p.x, p.w, p.labels, **EIGEN)
    tt.set_context(tessera.Context(host_only=True, threads=1))
    with pytest.raises(tessera.Error, match="opencl"):
        tt.linear_cross_entropy(p.x, p.w, p.labels, implementation="opencl")
    with pytest.warns(tessera.Warning, match="no OpenCL device"):
        assert torch.equal(tt.linear_cross_entropy(p.x, p.w, p.labels), loss)
    tt.set_context(None)
    with pytest.raises(TypeError, match="context is a int"):
        tt.set_context(3)


def test_operator_without_gradients():
    """Its forward runs; a derivative is refused rather than 0."""
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, heads, 6, 8, generator=generator) for heads in (4, 2, 2))
    forward = torch.ops.tessera.attention_forward
    call = {"implementation": "reference", "causal": "lower_right"}
    y, _ = forward(q.requires_grad_(), k, v, **call)
    wanted = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True,
                                            enable_gqa=True)
    # Logits are below 8, and the scale is rounded to f32.
    torch.testing.assert_close(y.double(), wanted, rtol=0, atol=8 * 2.0**-23)
    with pytest.raises(NotImplementedError, match="tessera computes no gradients of attention"):
        y.sum().backward()
    assert q.grad is None
    with torch.no_grad():
        assert torch.equal(forward(q, k, v, scale=8**-0.5, **call)[0], y)
        last = forward(q, k, v, scale=0.0, **call)[0][:, :, -1]  # which sees all keys alike
    torch.testing.assert_close(last, v.mean(2).repeat_interleave(2, dim=1))
