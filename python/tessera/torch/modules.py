# SPDX-License-Identifier: Apache-2.0
"""The modules of tessera.torch."""

import torch

from .functional import linear_cross_entropy


class LinearCrossEntropyLoss(torch.nn.Module):
    """A linear layer and the cross entropy of its logits, as `torch.nn.LinearCrossEntropyLoss`.

    Its parameters are `linear.weight` (num_classes, in_features) and with `bias` `linear.bias`;
    `weight` is a buffer. Behind PyTorch's arguments: those of `linear_cross_entropy` that are no
    tensors.
    """

    def __init__(self, in_features, num_classes, *, out_features=(), bias=False, device=None,
                 dtype=None, reduction="mean", weight=None, ignore_index=None, label_smoothing=0.0,
                 options=None, logsumexp_weight=0.0, logit_scale=1.0, logit_soft_cap=None,
                 return_lse=False, implementation=None, workspace_bytes=None):
        super().__init__()
        if tuple(out_features):
            raise ValueError(f"out_features is {tuple(out_features)}; a loss of more dimensions is "
                             "not here, give ()")
        self.linear = torch.nn.Linear(in_features, num_classes, bias=bias, device=device,
                                      dtype=dtype)
        self.register_buffer("weight", weight)
        self.arguments = {
            "reduction": reduction, "ignore_index": ignore_index,
            "label_smoothing": label_smoothing, "options": options,
            "logsumexp_weight": logsumexp_weight, "logit_scale": logit_scale,
            "logit_soft_cap": logit_soft_cap, "return_lse": return_lse,
            "implementation": implementation, "workspace_bytes": workspace_bytes}

    def forward(self, input, target):
        return linear_cross_entropy(input, self.linear.weight, target,
                                    linear_bias=self.linear.bias, weight=self.weight,
                                    **self.arguments)

    def extra_repr(self):
        return (f"in_features={self.linear.in_features}, num_classes={self.linear.out_features}, "
                f"bias={self.linear.bias is not None}, "
                f"reduction={self.arguments['reduction']!r}")
