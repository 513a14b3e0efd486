# SPDX-License-Identifier: Apache-2.0
"""The library's operators for PyTorch on a CPU, with derivatives; docs/torch.md is the guide."""

try:
    import torch as _torch
except ImportError as _error:
    raise ImportError(f"tessera.torch needs PyTorch 2.10 or later ({_error}): pip install torch"
                      ) from _error

if tuple(int(part) for part in _torch.__version__.split(".")[:2]) < (2, 10):
    raise ImportError(f"tessera.torch needs PyTorch 2.10 or later, and this is "
                      f"{_torch.__version__}: pip install -U torch")

from .custom import custom_kernel
from .functional import (
    attention,
    linear_cross_entropy,
    linear_distillation,
    rms_norm,
    softmax_cross_entropy,
)
from .modules import LinearCrossEntropyLoss
from .ops import set_context

__all__ = ["LinearCrossEntropyLoss", "attention", "custom_kernel", "linear_cross_entropy",
           "linear_distillation", "rms_norm", "set_context", "softmax_cross_entropy"]
