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
        needs = ctx.needs_input_grad[2:]
        given = dict(zip(operator.inputs, tensors, strict=True))
        loss, *results = ops.call_plain(operator.value_and_grad, **given, **options,
                                        **operator.wants(needs))
        ctx.operator, ctx.options = operator, options
        ctx.gradients = operator.placed(results[-len(operator.gradients):], needs)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        return loss

    @staticmethod
    def backward(ctx, dloss):
        if dloss is None:
            return (None,) * (2 + len(ctx.operator.inputs))
        tensors = ctx.saved_tensors  # raises where one has been changed in place
        # Only the caller may hold them: a gradient that somebody else refers to would be copied.
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None or torch.is_grad_enabled():
            # A second time, or for second derivatives, which `derive` refuses.
            with torch.no_grad():
                outputs = ops.call(ctx.operator.forward, *tensors, **ctx.options)
            gradients = ops.derive(ctx.operator, ctx.options, tensors,
                                   ops.saved_of(ctx.operator, outputs), ctx.needs_input_grad[2:],
                                   (dloss,))
        elif type(dloss) is not torch.Tensor or dloss.item() != 1.0:  # a FakeTensor has no value
            for gradient in gradients:
                if gradient is not None:
                    gradient.mul_(dloss)
        return None, None, *gradients


class Recomputed(torch.autograd.Function):
    """Keeps the statistics of the forward pass, from which backward computes the gradients."""

    @staticmethod
    def forward(name, options, *tensors):
        return ops.call(ops.operators[name].forward, *tensors, **options)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.name, ctx.options, *tensors = inputs
        saved = ops.saved_of(ops.operators[ctx.name], ops.as_tuple(output))
        ctx.save_for_backward(*tensors, *saved)
        ctx.set_materialize_grads(False)
        if saved:
            ctx.mark_non_differentiable(*saved)

    @staticmethod
    def backward(ctx, *cotangents):
        operator = ops.operators[ctx.name]
        count = len(operator.inputs)
        gradients = ops.derive(operator, ctx.options, ctx.saved_tensors[:count],
                               ctx.saved_tensors[count:], ctx.needs_input_grad[2:], cotangents)
        return None, None, *gradients


class Transformed(Recomputed):
    """The same where torch.func is at work, whose rules are these. torch.compile takes no function
    that has any."""

    @staticmethod
    def jvp(ctx, *tangents):
        raise NotImplementedError(f"{ctx.name} has no derivatives of forward mode (torch.func.jvp)")

    @staticmethod
    def vmap(info, in_dims, name, *others):
        raise NotImplementedError(f"torch.vmap has no rule for {name}; give what it would batch as "
                                  "leading axes")


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
            call = ops.call if torch.compiler.is_compiling() else ops.call_plain
            return ops.as_tuple(call(operator.forward, *given, **options))
    elif _can_hand_over(operator, given, options, has_lse):
        return (HandedOver.apply(operator, options, *given),)
    transformed = not torch.compiler.is_compiling() and _has_transforms()
    node = Transformed if transformed else Recomputed
    return ops.as_tuple(node.apply(name, options, *given))


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
