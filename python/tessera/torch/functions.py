# SPDX-License-Identifier: Apache-2.0
"""Nodes of autograd over the operators: which passes run when.

`torch.library.register_autograd` would do for `loss.backward()`, but what it makes has no
`setup_context`: `torch.func.grad` fails on it, and `torch.func.jvp` returns a tangent of zeros.
"""

import torch
from torch.autograd import forward_ad

from . import ops


class HandedOver(torch.autograd.Function):
    """Computes the gradients with the loss, and hands them over in backward.

    Of mean and sum, whose cotangent is 1 in nearly every call. One matrix product fewer than
    recomputing, and no copy.
    """

    @staticmethod
    def forward(ctx, operator, options, *tensors):
        ctx.operator, ctx.options = operator, options
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        loss, ctx.gradients = HandedOver.compute(operator, options, tensors, None,
                                                 ctx.needs_input_grad[2:])
        return loss

    @staticmethod
    def compute(operator, options, tensors, dloss, needs):
        places = operator.gradient_places()
        wants = {f"wants_{name}": needs[place]
                 for name, place in zip(operator.gradients, places, strict=True)}
        given = dict(zip(operator.inputs, tensors, strict=True))
        loss, *results = ops.call(operator.value_and_grad, dloss=dloss, **given, **options, **wants)
        gradients = [None] * len(tensors)
        for place, gradient in zip(places, results[-len(places):], strict=True):
            if needs[place]:
                gradients[place] = gradient
        return loss, gradients

    @staticmethod
    def backward(ctx, dloss):
        if dloss is None:
            return (None,) * (2 + len(ctx.operator.inputs))
        tensors = ctx.saved_tensors  # raises where one has been changed in place
        # Only the caller may hold them: a gradient that somebody else refers to would be copied.
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None or torch.is_grad_enabled():
            # A second time, or for second derivatives, which the operator refuses.
            _, gradients = HandedOver.compute(ctx.operator, ctx.options, tensors, dloss,
                                              ctx.needs_input_grad[2:])
        elif (factor := dloss.item()) != 1.0:
            for gradient in gradients:
                if gradient is not None:
                    gradient.mul_(factor)
        return None, None, *gradients


class Recomputed(torch.autograd.Function):
    """Keeps the statistics of the forward pass, from which backward computes the gradients."""

    @staticmethod
    def forward(name, options, *tensors):
        return ops.call(ops.operators[name].forward, *tensors, **options)

    @staticmethod
    def setup_context(ctx, inputs, output):
        name, options, *tensors = inputs
        ctx.name = name
        kept = ops.save(ctx, ops.operators[name], options, tensors, output)
        ctx.mark_non_differentiable(*kept)

    @staticmethod
    def backward(ctx, *cotangents):
        gradients = ops.derive(ctx, ops.operators[ctx.name], ctx.needs_input_grad[2:], cotangents)
        return None, None, *gradients


def apply(name, tensors, options, *, has_lse=True):
    """The outputs of an operator's forward pass, with derivatives where they are asked for.

    `tensors` by the names of its schema. Without `has_lse` nobody sees other outputs than the
    loss, and gradients may be computed with it.
    """
    operator = ops.operators[name]
    given = [tensors.get(each) for each in operator.inputs]
    if not torch.is_grad_enabled() or not any(
            each is not None and each.requires_grad for each in given):
        if not _has_transforms():
            return _as_tuple(ops.call(operator.forward, *given, **options))
    elif _can_hand_over(operator, given, options, has_lse):
        return (HandedOver.apply(operator, options, *given),)
    return _as_tuple(Recomputed.apply(name, options, *given))


def _as_tuple(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _has_transforms():
    """Whether torch.func is at work, or derivatives of forward mode, which nothing here has."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def _can_hand_over(operator, tensors, options, has_lse):
    return (not has_lse and operator.value_and_grad is not None
            and options.get("reduction", "mean") != "none"
            and not torch.compiler.is_compiling() and not _has_transforms()
            # A gradient of float16 that is small enough to vanish without the factor of a
            # torch.amp.GradScaler must be computed with it.
            and not any(each is not None and each.requires_grad and each.dtype == torch.float16
                        for each in tensors))
