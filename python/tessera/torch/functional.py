# SPDX-License-Identifier: Apache-2.0
"""The functions of tessera.torch, by PyTorch's names."""

import warnings

from . import arguments
from .functions import apply


def _loss(name, tensors, options, return_lse):
    outputs = apply(name, tensors, options, has_lse=return_lse)
    return (outputs[0], outputs[1]) if return_lse else outputs[0]


def linear_cross_entropy(input, linear_weight, target, *, linear_bias=None, weight=None,
                         reduction="mean", ignore_index=-100, label_smoothing=0.0, options=None,
                         token_weight=None, logsumexp_weight=0.0, logit_scale=1.0,
                         logit_soft_cap=None, return_lse=False, implementation=None,
                         workspace_bytes=None):
    """Cross entropy of a linear layer's logits, which are never all in memory.

    In place of `torch.nn.functional.linear_cross_entropy`, whose arguments come first.

    Args:
        input: (..., H) or (H,), of float32, bfloat16 or float16, as the other floating tensors;
            types may differ, and a gradient has the type of its tensor.
        linear_weight: (V, H), the weight of a `torch.nn.Linear`.
        target: labels (...) of int64 or int32, or class probabilities (..., V).
        linear_bias: (V,).
        weight: (V,), a factor of each class.
        reduction: "mean" divides by the sum of token_weight times the weight of the label's class,
            over the rows that count; "sum"; or "none".
        ignore_index: the label of rows that do not count. None is -100.
        label_smoothing: in [0, 1].
        options: of PyTorch's function; anything but None warns and has no effect.
        token_weight: (...), a factor of each row.
        logsumexp_weight: weight of a z-loss, the square of lse.
        logit_scale, logit_soft_cap: logits are cap * tanh(scale * z / cap); without a cap,
            scale * z.
        return_lse: returns lse, too.
        implementation: a name, or names in order of preference; None chooses.
        workspace_bytes: bound of scratch memory.

    Returns:
        The loss in float32, () or (...). With `return_lse` also the logsumexp of each row's logits,
        (...) in float32, 0 where the row is ignored; both have derivatives.

    Raises TypeError for a type, device or layout that is not taken, ValueError for shapes and
    options, IndexError (tessera.LabelOutOfRangeError) for labels.
    """
    if options is not None:
        warnings.warn(f"options={options!r} has no effect: tessera never keeps all logits",
                      stacklevel=2)
    if ignore_index is None:
        ignore_index = -100
    names = ("input", "linear_weight", "linear_bias")
    words = arguments.check_layer(names, input, linear_weight, linear_bias)
    leading = input.shape[:-1]
    tensors = {"x": input, "w": linear_weight, "bias": linear_bias}
    arguments.take_target(tensors, target, leading, words, ignore_index)
    arguments.take_weights(tensors, token_weight, weight, leading, words)
    taken = arguments.take_loss_options(
        implementation, workspace_bytes, reduction, label_smoothing, ignore_index,
        logsumexp_weight, logit_scale, logit_soft_cap)
    return _loss("linear_cross_entropy", tensors, taken, return_lse)


def softmax_cross_entropy(input, target, *, weight=None, reduction="mean", ignore_index=-100,
                          label_smoothing=0.0, token_weight=None, logsumexp_weight=0.0,
                          logit_scale=1.0, logit_soft_cap=None, return_lse=False,
                          implementation=None, workspace_bytes=None):
    """Cross entropy of logits (..., V); the other arguments are those of `linear_cross_entropy`."""
    arguments.check_tensor("input", input)
    if input.dim() == 0:
        raise ValueError("input has no axes; give logits (..., V)")
    if ignore_index is None:
        ignore_index = -100
    leading, words = input.shape[:-1], input.shape[-1]
    tensors = {"logits": input}
    arguments.take_target(tensors, target, leading, words, ignore_index)
    arguments.take_weights(tensors, token_weight, weight, leading, words)
    taken = arguments.take_loss_options(
        implementation, workspace_bytes, reduction, label_smoothing, ignore_index,
        logsumexp_weight, logit_scale, logit_soft_cap)
    return _loss("softmax_cross_entropy", tensors, taken, return_lse)


def linear_distillation(input, linear_weight, teacher_input=None, teacher_weight=None, target=None,
                        *, linear_bias=None, teacher_bias=None, teacher_logits=None,
                        divergence="forward_kl", beta=0.5, temperature=1.0, alpha=0.5,
                        teacher_logit_scale=1.0, teacher_logit_soft_cap=None, reduction="mean",
                        ignore_index=-100, label_smoothing=0.0, token_weight=None,
                        logsumexp_weight=0.0, logit_scale=1.0, logit_soft_cap=None,
                        return_lse=False, implementation=None, workspace_bytes=None):
    """(1 - alpha) of the cross entropy and alpha of the divergence from a teacher's distribution.

    Args:
        input, linear_weight, linear_bias: the student's layer, as in `linear_cross_entropy`, which
            also has what is not named here.
        teacher_input, teacher_weight, teacher_bias: the teacher's, (..., G), (V, G) and (V,).
        teacher_logits: (..., V), in their place. A teacher gets no gradient.
        target: may be left out where alpha is 1.
        divergence: "forward_kl", "reverse_kl" or "jsd", whose share of the teacher is `beta`.
        temperature: divides the logits of both in the divergence.
    """
    if ignore_index is None:
        ignore_index = -100
    names = ("input", "linear_weight", "linear_bias")
    words = arguments.check_layer(names, input, linear_weight, linear_bias)
    leading = input.shape[:-1]
    if teacher_logits is not None:
        if teacher_input is not None or teacher_weight is not None or teacher_bias is not None:
            raise ValueError("teacher_logits is given beside teacher_input, teacher_weight or "
                             "teacher_bias; give one or the other")
        arguments.check_tensor("teacher_logits", teacher_logits)
        arguments.check_shape("teacher_logits", teacher_logits, (*leading, words), "(..., V)")
    else:
        names = ("teacher_input", "teacher_weight", "teacher_bias")
        theirs = arguments.check_layer(names, teacher_input, teacher_weight, teacher_bias)
        if theirs != words or teacher_input.shape[:-1] != leading:
            raise ValueError(f"teacher_input has shape {list(teacher_input.shape)} and "
                             f"teacher_weight {list(teacher_weight.shape)}: rows and words must be "
                             f"those of input {list(input.shape)} and linear_weight "
                             f"{list(linear_weight.shape)}")
    teacher = {"teacher_x": teacher_input, "teacher_w": teacher_weight,
               "teacher_bias": teacher_bias, "teacher_logits": teacher_logits}
    for name, tensor in zip(("teacher_input", "teacher_weight", "teacher_bias", "teacher_logits"),
                            teacher.values(), strict=True):
        arguments.check_constant(name, tensor)
    tensors = {"x": input, "w": linear_weight, "bias": linear_bias, **teacher}
    arguments.take_weights(tensors, token_weight, None, leading, words)
    if target is not None:
        arguments.take_target(tensors, target, leading, words, ignore_index)
    elif alpha != 1.0:
        raise ValueError(f"target is left out and alpha is {alpha}; give labels, or alpha=1")
    taken = arguments.take_loss_options(
        implementation, workspace_bytes, reduction, label_smoothing, ignore_index,
        logsumexp_weight, logit_scale, logit_soft_cap,
        divergence=(divergence, "forward_kl"), beta=(beta, 0.5), temperature=(temperature, 1.0),
        alpha=(alpha, 0.5), teacher_logit_scale=(teacher_logit_scale, 1.0),
        teacher_logit_soft_cap=(teacher_logit_soft_cap or 0.0, 0.0))
    return _loss("linear_distillation", tensors, taken, return_lse)


def rms_norm(input, weight=None, *, eps=1e-6, offset=0.0, implementation=None,
             workspace_bytes=None):
    """input (..., H) over the root of the mean of its squares, times (offset + weight).

    weight: (H,); without one, as if it were 1 and `offset` 0. Returns (..., H) of input's type.
    """
    arguments.check_tensor("input", input)
    if input.dim() == 0:
        raise ValueError("input has no axes; give (..., H)")
    if weight is not None:
        arguments.check_tensor("weight", weight)
        arguments.check_shape("weight", weight, input.shape[-1:], "the last axis of input")
    taken = arguments.take_options(implementation, workspace_bytes, epsilon=(eps, None),
                                   offset=(offset, 0.0))
    return apply("rms_norm", {"x": input, "scale": weight}, taken)[0]


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
              enable_gqa=False, *, causal=None, window_left=-1, window_right=-1,
              logit_soft_cap=None, sinks=None, alibi_slopes=None, kv_lengths=None, layout="bhsd",
              return_lse=False, implementation=None, workspace_bytes=None):
    """softmax(scale query key^T + mask) value, without the logits in memory.

    In place of `torch.nn.functional.scaled_dot_product_attention`, whose arguments come first. It
    has no gradients yet: a tensor that requires one is a NotImplementedError in grad mode.

    Args:
        query, key, value: (..., Hq, S, D), (..., H, T, D) and (..., H, T, E), or without heads
            (S, D), (T, D) and (T, E); of float32, bfloat16 or float16, and types may differ.
        attn_mask: broadcasts to (..., Hq, S, T) and is not expanded: boolean (True is seen), or
            added to the logits.
        dropout_p: 0.
        is_causal: query i sees the keys up to the i-th: upper left, where S and T differ. Newer
            parts of PyTorch, such as `varlen_attn`, mean what `causal="lower_right"` is here.
        scale: of the logits; None is 1 / sqrt(D).
        enable_gqa: Hq may be a multiple of H; head h reads head h // (Hq // H).
        causal: "no", "lower_right" (the last query sees all keys) or "upper_left", in the place of
            `is_causal` and also beside a mask.
        window_left, window_right: keys before and behind its own that a query sees; -1 is all.
        logit_soft_cap: logits are cap * tanh(z / cap), before the mask.
        sinks: (Hq,), a logit without a value in each row.
        alibi_slopes: (Hq,), times the distance of query and key, is taken off the logits.
        kv_lengths: (...) of int32 or int64: keys from there on are never read.
        layout: "bshd" for query, key, value and the result with tokens before heads, as views. A
            mask and lse keep heads first.
        return_lse: returns lse, too.
        implementation, workspace_bytes: as in `linear_cross_entropy`.

    Returns:
        (..., Hq, S, E) of query's type, with tokens before heads in memory where query has them so.
        Where a query sees no key it is 0. With `return_lse` also the logsumexp of each row's
        logits, (..., Hq, S) in float32.

    Raises TypeError for a type, device or layout that is not taken, ValueError for shapes and
    options.
    """
    q, k, v = arguments.take_heads(query, key, value, enable_gqa, layout)
    if dropout_p:
        raise ValueError(f"dropout_p is {dropout_p}, and tessera drops nothing; give 0.0")
    causal = arguments.take_causal(causal, is_causal, attn_mask)
    tensors = {"q": q, "k": k, "v": v, "sinks": sinks, "alibi_slopes": alibi_slopes,
               "kv_lengths": kv_lengths}
    if attn_mask is not None:
        tensors["bias"] = arguments.take_mask(attn_mask, (*q.shape[:-1], k.shape[-2]))
    for name in ("sinks", "alibi_slopes"):
        if tensors[name] is not None:
            arguments.check_tensor(name, tensors[name])
            arguments.check_shape(name, tensors[name], q.shape[-3:-2], "one number for each head")
    if kv_lengths is not None:
        arguments.check_tensor("kv_lengths", kv_lengths, arguments.INTEGER)
        arguments.check_shape("kv_lengths", kv_lengths, q.shape[:-3], "one number for each batch")
    arguments.check_no_gradient("attention", query=query, key=key, value=value, attn_mask=attn_mask,
                                sinks=sinks, alibi_slopes=alibi_slopes)
    taken = arguments.take_options(
        implementation, workspace_bytes, scale=(scale, None), causal=(causal, "no"),
        window_left=(window_left, -1), window_right=(window_right, -1),
        logit_soft_cap=(logit_soft_cap or 0.0, 0.0))
    y, lse = apply("attention", tensors, taken)
    if query.dim() == 2:
        y, lse = y.squeeze(0), lse.squeeze(0)
    elif layout == "bshd":
        y = y.transpose(-3, -2)
    return (y, lse) if return_lse else y
