# SPDX-License-Identifier: Apache-2.0
"""What is refused: one exception of the right type, which names the argument, what it is, and what
to do. Nothing has been computed then."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
import torch

import tessera
import tessera.torch as tt
from conftest import Problem

x, w, labels = torch.randn(6, 4), torch.randn(9, 4), torch.zeros(6, dtype=torch.int64)
probabilities = torch.ones(6, 9) / 9


def lce(*args, **options):
    return lambda: tt.linear_cross_entropy(*args, **options)


def with_storage(tensor, missing):
    """A copy whose storage lacks bytes; FSDP leaves none to what it has sharded."""
    tensor = tensor.clone()
    storage = tensor.untyped_storage()
    storage.resize_(max(storage.nbytes() - missing, 0))
    return tensor


class FakeDTensor(torch.Tensor):
    pass


FakeDTensor.__name__ = "DTensor"

CASES = {
    "meta": (lce(x.to("meta"), w, labels), TypeError, r"input lies on meta, .*input\.cpu\(\)"),
    "target meta": (lce(x, w, labels.to("meta")), TypeError, r"target lies on meta"),
    "sparse": (lce(x, w.to_sparse(), labels), TypeError,
               r"linear_weight has the layout torch.sparse_coo; .*to_dense"),
    "quantised": (lambda: tt.linear_cross_entropy(
        torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), w, labels), TypeError,
        "input has elements of torch.qint8; convert"),
    "DTensor": (lce(x, w.as_subclass(FakeDTensor), labels), TypeError,
                "linear_weight is a DTensor"),
    "float64": (lce(x.double(), w, labels), TypeError, "input has elements of torch.float64; .*32"),
    "integer": (lce(x, w.int(), labels), TypeError, "linear_weight has elements of torch.int32"),
    "complex": (lce(x.cfloat(), w, labels), TypeError, "input has elements of torch.complex64"),
    "no tensor": (lce(x.numpy(), w, labels), TypeError, "input is a ndarray; give a torch.Tensor"),
    "labels as float": (lce(x, w, labels.float()), TypeError,
                        r"target has elements of torch.float32 and the shape of labels; convert "
                        r"it to int64"),
    "labels as uint8": (lce(x, w, labels.byte()), TypeError, "target has elements of torch.uint8"),
    "labels' shape": (lce(x, w, labels[:5]), ValueError, r"target has shape \[5\], not \[6\]"),
    "probabilities' shape": (lce(x, w, probabilities[:, :8]), ValueError,
                             r"target has shape \[6, 8\], not \[6, 9\]"),
    "probabilities that learn": (lce(x, w, probabilities.clone().requires_grad_()), ValueError,
                                 r"target requires a gradient.*target\.detach\(\)"),
    "ignored probabilities": (lce(x, w, probabilities, ignore_index=3), ValueError,
                              "ignore_index is 3"),
    "label above": (lce(x, w, labels + 9), IndexError, "labels: row 0 is 9; .*0 to 8"),
    "label below": (lce(x, w, labels - 1), tessera.LabelOutOfRangeError, "labels: row 0 is -1"),
    "3-D weight": (lce(x, w[None], labels), ValueError, r"linear_weight has 3 axes and shape "
                   r"\[1, 9, 4\]; give a matrix"),
    "hidden": (lce(x, w[:, :3], labels), ValueError,
               r"input has shape \[6, 4\] and linear_weight \[9, 3\]"),
    "no axes": (lce(x[0, 0], w, labels), ValueError, r"input has shape \[\]"),
    "bias": (lce(x, w, labels, linear_bias=w[:8, 0]), ValueError, r"linear_bias has shape \[8\]"),
    "class weight": (lce(x, w, labels, weight=w[:8, 0]), ValueError, r"weight has shape \[8\]"),
    "class weight that learns": (
        lce(x, w, labels, weight=torch.ones(9, requires_grad=True)), ValueError, "weight requires"),
    "token weight": (lce(x, w, labels, token_weight=w[:, 0]), ValueError,
                     r"token_weight has shape \[9\], not \[6\]"),
    "reduction": (lce(x, w, labels, reduction="avg"), ValueError, "reduction is 'avg'; give"),
    "smoothing": (lce(x, w, labels, label_smoothing=1.5), ValueError, "label_smoothing is 1.5"),
    "soft cap": (lce(x, w, labels, logit_soft_cap=-1.0), tessera.InvalidArgumentError,
                 "logit_soft_cap is -1"),
    "implementation": (lce(x, w, labels, implementation="cuda"), tessera.InvalidArgumentError,
                       'unknown name "cuda"; known are'),
    "workspace": (lce(x, w, labels, workspace_bytes=-1), ValueError, "workspace_bytes is -1"),
    "a small workspace": (lce(x, w, labels, workspace_bytes=1, implementation="eigen"),
                          tessera.WorkspaceTooSmallError, "the minimum of eigen"),
    "teacher": (lambda: tt.linear_distillation(x, w, x[:5], w, labels), ValueError,
                "teacher_input has shape"),
    "no teacher": (lambda: tt.linear_distillation(x, w, target=labels), TypeError,
                   "teacher_input is a NoneType"),
    "two teachers": (lambda: tt.linear_distillation(x, w, x, w, labels, teacher_logits=x @ w.t()),
                     ValueError, "teacher_logits is given beside"),
    "no target": (lambda: tt.linear_distillation(x, w, x, w), ValueError, "target is left out"),
    "teacher that learns": (lambda: tt.linear_distillation(
        x, w, x, w.clone().requires_grad_(), labels), ValueError, "teacher_weight requires"),
    "freed weight": (lce(x, with_storage(w, 1 << 20), labels), tessera.InvalidArgumentError,
                     "w has elements up to byte 144 of its storage, and that has 0 bytes"),
    "freed input": (lce(with_storage(x, 1 << 20), w, labels, implementation="reference"),
                    tessera.InvalidArgumentError, "x has elements up to byte 96"),
    "freed labels": (lce(x, w, with_storage(labels, 1 << 20)), tessera.InvalidArgumentError,
                     "labels has elements up to byte 48"),
    "short teacher": (lambda: tt.linear_distillation(x, w, x, with_storage(w, 4), labels),
                      tessera.InvalidArgumentError, "byte 144 of its storage, and that has 140"),
    "freed norm": (lambda: tt.rms_norm(x, with_storage(w[0].clone(), 1 << 20)),
                   tessera.InvalidArgumentError, "scale has elements up to byte 16"),
    "norm": (lambda: tt.rms_norm(x, w[0, :3]), ValueError, r"weight has shape \[3\], not \[4\]"),
    "out_features": (lambda: tt.LinearCrossEntropyLoss(4, 9, out_features=(2,)), ValueError,
                     r"out_features is \(2,\)"),
}


@pytest.mark.filterwarnings("ignore:torch.quantize")  # that it will go
@pytest.mark.parametrize("case", CASES)
def test_refused(case):
    call, kind, message = CASES[case]
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda():
    with pytest.raises(TypeError, match=r"target lies on cuda:0, .*target\.cpu"):
        tt.linear_cross_entropy(x, w, labels.cuda())


def test_a_label_out_of_range_in_backward_is_impossible():
    """Labels are checked before anything runs, so that no gradient is half written."""
    p = Problem()
    p.labels[2] = 50
    with pytest.raises(tessera.LabelOutOfRangeError) as caught:
        tt.linear_cross_entropy(p.x, p.w, p.labels)
    assert caught.value.code == "label_out_of_range" and caught.value.__cause__ is None
    assert p.x.grad is None and p.w.grad is None


def test_options_warn():
    with pytest.warns(UserWarning, match="options='chunked' has no effect"):
        loss = tt.linear_cross_entropy(x, w, labels, options="chunked")
    assert torch.equal(loss, tt.linear_cross_entropy(x, w, labels))


def failure(program, *paths):
    paths = os.pathsep.join([*map(str, paths), os.environ["PYTHONPATH"]])
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True,
                          text=True, timeout=60, env={**os.environ, "PYTHONPATH": paths})
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


def test_an_old_torch_or_none(tmp_path):
    (tmp_path / "torch.py").write_text("__version__ = '2.9.1+cpu'\n")
    assert failure("import tessera.torch", tmp_path) == (
        "ImportError: tessera.torch needs PyTorch 2.10 or later, and this is 2.9.1+cpu: "
        "pip install -U torch")
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")
    assert failure("import tessera.torch", tmp_path) == (
        "ImportError: tessera.torch needs PyTorch 2.10 or later (no torch here): pip install torch")


def test_a_package_without_the_operators(tmp_path):
    package = pathlib.Path(tessera.__file__).parent
    (tmp_path / "tessera").mkdir()
    for file in package.iterdir():
        if file.name != "libtessera_torch.so":
            (tmp_path / "tessera" / file.name).symlink_to(file)
    message = failure("import tessera; import tessera.torch", tmp_path)
    assert message.startswith("ImportError: this tessera was built without its operators for")
    assert "TESSERA_TORCH_INCLUDE" in message


def test_only_c_functions_of_torch():
    """One binary for every torch from 2.10: no C++ symbol of PyTorch's may creep in."""
    library = pathlib.Path(tessera.__file__).parent / "libtessera_torch.so"
    listed = subprocess.run(["nm", "-D", "--undefined-only", library], check=True, text=True,
                            capture_output=True).stdout.split()
    foreign = [name for name in listed if "torch" in name or "c10" in name or "_ZN2at" in name]
    assert len(foreign) > 10 and all(name.startswith(("aoti_torch_", "torch_")) for name in foreign)
