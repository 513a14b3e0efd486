# SPDX-License-Identifier: Apache-2.0
"""The zoo of arrays: what is taken without a copy, and what is refused, with outputs untouched."""

import gc
import sys
import threading
import time
import warnings

import ml_dtypes
import numpy as np
import pytest

import tessera
from conftest import Problem

lce = tessera.linear_cross_entropy
CALL = {"implementation": "eigen"}


@pytest.fixture(scope="module")
def problem():
    return Problem()


@pytest.fixture(scope="module")
def loss(problem):
    return lce.forward(problem.x, problem.w, problem.labels, **CALL).loss


class Exporter:
    """An array that DLPack alone gets out, on a device of choice."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.where = array, device

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self.where


def strided(array):
    wide = np.full((2 * array.shape[0], 3 * array.shape[1]), np.nan, array.dtype)
    wide[::2, ::3] = array
    return wide[::2, ::3]


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


class Unwilling(Exporter):
    """As PyTorch's tensors that require a gradient."""

    def __dlpack__(self, **kwargs):
        raise BufferError("use tensor.detach()")


@pytest.mark.parametrize("make", [np.asfortranarray, strided, read_only, memoryview, Exporter])
def test_inputs_as_they_are(problem, loss, make):
    np.testing.assert_array_equal(
        lce.forward(make(problem.x), make(problem.w), problem.labels, **CALL).loss, loss)


def test_repeated_rows_and_leading_axes(problem):
    row = np.broadcast_to(problem.x[0], (2, 3, 40))
    result = lce.forward(row, problem.w, np.full((2, 3), 7, np.int32), reduction="none", **CALL)
    assert result.loss.shape == (2, 3) and np.ptp(result.loss) == 0


def test_bfloat16_results(problem):
    x, w = problem.x.astype(ml_dtypes.bfloat16), problem.w.astype(ml_dtypes.bfloat16)
    result = lce.value_and_grad(x, w, problem.labels, **CALL)
    assert result.grad_x.dtype == ml_dtypes.bfloat16 and result.loss.dtype == np.float32
    out = np.zeros_like(x)
    lce.value_and_grad(x, w, problem.labels, out={"grad_x": out}, **CALL)
    np.testing.assert_array_equal(out.view(np.uint16), result.grad_x.view(np.uint16))


def test_layout_of_a_square_w_is_as_told():
    p = Problem(hidden=40, words=40)
    hv = lce.forward(p.x, p.w, p.labels.clip(max=39), **CALL).loss
    vh = lce.forward(p.x, p.w.T, p.labels.clip(max=39), w_layout="vh", **CALL).loss
    other = lce.forward(p.x, p.w, p.labels.clip(max=39), w_layout="vh", **CALL).loss
    np.testing.assert_array_equal(hv, vh)
    assert abs(hv - other) > 1e-3


def test_nan_in_ignored_rows_and_no_rows(problem, loss):
    x = problem.x.copy()
    x[problem.labels < 0] = np.nan
    np.testing.assert_array_equal(lce.forward(x, problem.w, problem.labels, **CALL).loss, loss)
    none = lce.value_and_grad(x[:0], problem.w, problem.labels[:0], **CALL)
    assert none.loss == 0 and none.grad_x.shape == (0, 40) and not none.grad_w.any()


REFUSED = [
    ("float64", {"x": lambda p: p.x.astype(np.float64)}, TypeError, "x has .* float64; give"),
    ("complex", {"w": lambda p: p.w.astype(np.complex64)}, TypeError, "w has .* complex64"),
    ("integer x", {"x": lambda p: p.x.astype(np.int32)}, TypeError, "x has .* i32; give float32"),
    ("list", {"x": lambda p: p.x.tolist()}, TypeError, "x is a list; give a numpy array"),
    ("byte-swapped", {"x": lambda p: p.x.astype(">f4")}, TypeError, "x has .* >f4; give native"),
    ("negative", {"x": lambda p: p.x[::-1]}, ValueError, r"x has strides \[-40, 1\].*copy"),
    ("odd stride", {"x": lambda p: np.zeros(13, np.dtype("V6,40f4", align=False))["f1"]},
     ValueError, "x has a stride of 166 bytes.*copy"),
    ("misaligned", {"x": lambda p: np.zeros(13 * 160 + 1, np.uint8)[1:].view("f4").reshape(13, 40)},
     ValueError, "x .*not aligned to"),
    ("float labels", {"labels": lambda p: p.labels.astype("f4")}, TypeError, "labels has .* f32;"),
    ("bool labels", {"labels": lambda p: p.labels > 3}, TypeError, "labels has .* bool"),
    ("uint8 labels", {"labels": lambda p: p.labels.astype("u1")}, TypeError, "labels has .* uint8"),
    ("short labels", {"labels": lambda p: p.labels[1:]}, ValueError, r"labels.*\[12\]"),
    ("label beyond", {"labels": lambda p: p.labels + 97}, IndexError, "labels: row .*0 to 96"),
    ("no labels", {"labels": lambda p: None}, ValueError, "labels is not given"),
    ("other layout", {"w": lambda p: p.w.T}, ValueError, "fits w_layout='vh' alone"),
    ("neither layout", {"w": lambda p: p.w[1:]}, ValueError,
     r"w is \[39, 97\] .* x is 40, which fits neither w_layout='vh' nor 'hv'"),
    ("neither, as [V, H]", {"w": lambda p: p.w[1:].T, "w_layout": lambda p: "vh"}, ValueError,
     r"w is \[97, 39\] .* x is 40, which fits neither w_layout='vh' nor 'hv'"),
    ("layout", {"w_layout": lambda p: "ab"}, ValueError, "w_layout is 'ab'; give 'hv'"),
    ("cuda", {"x": lambda p: Exporter(p.x, (2, 0))}, TypeError, "x lies on .*copy it to the CPU"),
    ("unwilling", {"x": lambda p: Unwilling(p.x)}, BufferError, "use tensor.detach"),
    ("uint16 by DLPack", {"w": lambda p: Exporter(p.w.astype("u2"))}, TypeError, "w has .*; give"),
    ("nine axes", {"x": lambda p: p.x.reshape((1,) * 7 + (13, 40))}, ValueError, "9 axes"),
    ("reduction", {"reduction": lambda p: "avg"}, ValueError, "reduction is 'avg'; .*'mean'"),
    ("reduction's type", {"reduction": lambda p: 1}, TypeError, "reduction is 1; give one of"),
    ("cap", {"logit_soft_cap": lambda p: -1.0}, ValueError, "logit_soft_cap.*-1.*turns it off"),
    ("number", {"logit_scale": lambda p: "2"}, TypeError, "logit_scale is a str; give a number"),
    ("integer", {"ignore_index": lambda p: 1.5}, TypeError, "ignore_index is 1.5; give an integer"),
    ("smoothing", {"label_smoothing": lambda p: 2}, ValueError, "label_smoothing.*1"),
    ("dtype", {"dz_dtype": lambda p: "float64"}, TypeError, "dz_dtype is float64; give float32"),
    ("unknown name", {"lambda_": lambda p: 1}, TypeError, "no argument 'lambda_'; it has x, w,"),
    ("implementation", {"implementation": lambda p: "cuda"}, ValueError, '"cuda"; known are'),
    ("blocks", {"block_sizes": lambda p: {"k": 1}}, ValueError, "no block size 'k'; it has b_"),
    ("knob", {"knobs": lambda p: {"lanes": 1.5}}, TypeError, r"knobs\['lanes'\] is 1.5"),
    ("workspace", {"workspace_bytes": lambda p: -1}, ValueError, "workspace_bytes is -1"),
    ("little workspace", {"workspace_bytes": lambda p: 8}, ValueError, "workspace_bytes.*8"),
    ("context", {"context": lambda p: 3}, TypeError, "context is a int; give a tessera.Context"),
    ("queue", {"queue": lambda p: "q"}, TypeError, "queue is a str"),
    ("wants", {"out": lambda p: None, "wants": lambda p: "logits"}, ValueError, "'logits'"),
    ("out and wants", {"wants": lambda p: "lse"}, ValueError, "out and wants"),
    ("accumulate", {"accumulate": lambda p: "loss"}, ValueError, "'loss', which is no gradient"),
]


@pytest.mark.parametrize("change, error, text", [c[1:] for c in REFUSED],
                         ids=[c[0] for c in REFUSED])
def test_refused_with_outputs_untouched(problem, change, error, text):
    out = {"loss": np.full((), 7, np.float32), "grad_w": np.full((40, 97), 7, np.float32)}
    call = {"x": problem.x, "w": problem.w, "labels": problem.labels, "out": out, **CALL}
    call.update({name: make(problem) for name, make in change.items()})
    if call["out"] is None:
        del call["out"]
    with pytest.raises(error, match=text):
        lce.value_and_grad(**call)
    assert out["loss"] == 7 and np.all(out["grad_w"] == 7)


class NotWritable(Exporter):
    pass


@pytest.mark.parametrize("array, error, text", [
    (read_only(np.zeros((40, 97), np.float32)), TypeError, "grad_w is a .*may not be written"),
    (NotWritable(np.zeros((40, 97), np.float32)), TypeError, "NotWritable that may not be"),
    (np.zeros((40, 97)), TypeError, "grad_w has .* float64"),
    (np.zeros((97, 40), np.float32), ValueError, r"grad_w.*\[97, 40\]"),
    (np.broadcast_to(np.zeros(1, np.float32), (40, 97)), TypeError, "may not be written"),
    ([0], TypeError, "grad_w is a list"),
])
def test_outputs_refused(problem, array, error, text):
    with pytest.raises(error, match=text):
        lce.value_and_grad(problem.x, problem.w, problem.labels, out={"grad_w": array}, **CALL)


def test_overlapping_outputs(problem):
    both = np.zeros((40, 98), np.float32)
    with pytest.raises(ValueError, match="overlap"):
        lce.value_and_grad(problem.x, problem.w, problem.labels, bias=np.zeros(97, np.float32),
                           out={"grad_w": both[:, :97], "grad_bias": both[3, 1:]}, **CALL)
    with pytest.raises(ValueError, match="'grad_x', which linear_cross_entropy.forward does not"):
        lce.forward(problem.x, problem.w, problem.labels, out={"grad_x": both}, **CALL)


def test_errors_are_tessera_errors(problem):
    with pytest.raises(tessera.Error) as caught:
        lce.forward(problem.x, problem.w, problem.labels, implementation="tpu_tile",
                    logit_scale=np.inf)
    assert isinstance(caught.value, tessera.InvalidArgumentError)
    assert caught.value.code == "invalid_argument" and caught.value.build_log == ""
    with pytest.raises(tessera.DeviceNotFoundError, match="no such"):
        tessera.Context(device="no such device")


def test_warnings_are_pythons(problem):
    # A context of its own, which has warned of nothing yet.
    host = tessera.Context(host_only=True)
    with pytest.warns(tessera.Warning, match="opencl"):
        result = lce.forward(problem.x, problem.w, problem.labels, context=host)
    assert result.dispatch.implementation == "eigen" and result.dispatch.refused
    host = tessera.Context(host_only=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(tessera.Warning):
            lce.forward(problem.x, problem.w, problem.labels, context=host)


def test_no_growth(problem):
    """Neither references nor memory grow with calls, be they right or wrong."""
    x, w, labels = problem.x, problem.w, problem.labels
    out = {"loss": np.zeros((), np.float32)}
    bf16 = x.astype(ml_dtypes.bfloat16)

    def calls(count):
        for _ in range(count):
            lce.value_and_grad(x, w, labels, wants="lse", **CALL)
            lce.forward(bf16, w, Exporter(labels), out=out, **CALL)
            with pytest.raises(TypeError):
                lce.forward(x, w, labels.astype("f4"), **CALL)

    calls(50)
    gc.collect()
    before = [sys.getrefcount(each) for each in (x, w, labels, bf16, out["loss"])]
    resident = resident_pages()
    calls(3400)  # 10,200 of them
    gc.collect()
    assert [sys.getrefcount(each) for each in (x, w, labels, bf16, out["loss"])] == before
    # One array of w that leaked in each call would be 39 MB; an object of 100 bytes is found too.
    assert resident_pages() - resident < 60


def resident_pages():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1])


def test_threads_share_a_context():
    p = Problem(rows=64)
    call = {"context": tessera.Context(host_only=True, threads=2), **CALL}
    wanted = lce.forward(p.x, p.w, p.labels, **call).loss
    got = []
    workers = [threading.Thread(target=lambda: got.append(
        lce.forward(p.x, p.w, p.labels, **call).loss)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(got) == 4 and all(np.array_equal(each, wanted) for each in got)


def test_calls_release_the_gil():
    p = Problem(rows=256, hidden=256, words=4096)
    lce.forward(p.x, p.w, p.labels, **CALL)  # the first makes the context
    ticks, stop = [0], threading.Event()

    def tick():
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(0)  # gives the GIL away, so that the other thread need not ask for it

    other = threading.Thread(target=tick)
    other.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # nobody is made to give it away
    try:
        time.sleep(0.02)  # a request that was made before is over
        for _ in range(50):  # a busy machine may not have run the other thread during one call
            before = ticks[0]
            lce.forward(p.x, p.w, p.labels, **CALL)
            advanced = ticks[0] - before
            if advanced > 0:
                break
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        other.join()
    assert advanced > 0
