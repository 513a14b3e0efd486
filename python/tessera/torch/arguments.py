# SPDX-License-Identifier: Apache-2.0
"""What the functions take, checked before anything runs, by the names that the caller used."""

import torch

FLOATING = (torch.float32, torch.bfloat16, torch.float16)
INTEGER = (torch.int64, torch.int32)
TARGETS = INTEGER + FLOATING
MASKS = (torch.bool, *FLOATING)


def _shape(tensor):
    return list(tensor.shape)


def check_tensor(name, tensor, types=FLOATING):
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}; give a torch.Tensor")
    if not tensor.is_cpu:
        raise TypeError(f"{name} lies on {tensor.device}, and tessera.torch computes on the CPU; "
                        f"use {name}.cpu()")
    if type(tensor).__name__ == "DTensor":
        raise TypeError(f"{name} is a DTensor, which no operator here takes; give its "
                        "to_local() or full_tensor()")
    if tensor.is_nested:
        raise TypeError(f"{name} is a nested tensor; use {name}.to_padded_tensor(0.0), with the "
                        "lengths of its parts where the function takes them")
    if tensor.layout is not torch.strided:
        raise TypeError(f"{name} has the layout {tensor.layout}; use {name}.to_dense()")
    if tensor.dtype not in types:
        known = ", ".join(str(each).removeprefix("torch.") for each in types)
        raise TypeError(f"{name} has elements of {tensor.dtype}; convert it to one of {known}")


def check_constant(name, tensor):
    """That no gradient is expected of what has none."""
    if tensor is not None and tensor.requires_grad:
        raise ValueError(f"{name} requires a gradient, which tessera does not compute; give "
                         f"{name}.detach()")


def check_no_gradient(what, **tensors):
    """That no gradient is expected of a function that has none."""
    if not torch.is_grad_enabled():
        return
    for name, tensor in tensors.items():
        if tensor is not None and tensor.requires_grad:
            raise NotImplementedError(f"{name} requires a gradient, and {what} has none yet; call "
                                      f"it under torch.no_grad(), or give {name}.detach()")


def check_shape(name, tensor, shape, why):
    if tensor.shape != shape:
        raise ValueError(f"{name} has shape {_shape(tensor)}, not {list(shape)}: {why}")


def check_layer(names, x, w, bias):
    """Input (..., H), weight (V, H) and bias (V,) of a linear layer; returns V."""
    input_name, weight_name, bias_name = names
    check_tensor(input_name, x)
    check_tensor(weight_name, w)
    if w.dim() != 2:
        raise ValueError(f"{weight_name} has {w.dim()} axes and shape {_shape(w)}; give a matrix "
                         "(V, H), the weight of a torch.nn.Linear")
    if x.dim() == 0 or x.shape[-1] != w.shape[1]:
        raise ValueError(f"{input_name} has shape {_shape(x)} and {weight_name} {_shape(w)}: the "
                         "last axis of both is H and must have the same length")
    if bias is not None:
        check_tensor(bias_name, bias)
        check_shape(bias_name, bias, w.shape[:1], f"one number for each row of {weight_name}")
    return w.shape[0]


def take_target(tensors, target, leading, words, ignore_index):
    """Adds the operator's input that a target is: labels, or a probability of each word."""
    check_tensor("target", target, TARGETS)
    if target.dtype in INTEGER:
        check_shape("target", target, leading, "labels have one number for each row of input")
        tensors["labels"] = target
        return
    if target.shape == leading:
        raise TypeError(f"target has elements of {target.dtype} and the shape of labels; convert "
                        "it to int64, or give a probability of each class, (..., V)")
    check_shape("target", target, (*leading, words), "class probabilities have the shape of logits")
    check_constant("target", target)
    if ignore_index != -100:
        raise ValueError(f"ignore_index is {ignore_index}, and target has class probabilities, of "
                         "which none is ignored; leave it out")
    tensors["targets"] = target


def take_weights(tensors, token_weight, class_weight, leading, words):
    """Adds the factors of rows and of classes that are given."""
    if token_weight is not None:
        check_tensor("token_weight", token_weight)
        check_shape("token_weight", token_weight, leading, "one number for each row of input")
        check_constant("token_weight", token_weight)
        tensors["weight"] = token_weight
    if class_weight is not None:
        check_tensor("weight", class_weight)
        check_shape("weight", class_weight, (words,), "one number for each class")
        check_constant("weight", class_weight)
        tensors["class_weight"] = class_weight


def take_heads(query, key, value, enable_gqa, layout):
    """query, key and value as views (..., heads, tokens, depth)."""
    if layout not in ("bhsd", "bshd"):
        raise ValueError(f"layout is {layout!r}; give 'bhsd' for (..., heads, tokens, depth) or "
                         "'bshd' for (..., tokens, heads, depth)")
    check_tensor("query", query)
    check_tensor("key", key)
    check_tensor("value", value)
    rank = query.dim()
    if rank < 2 or key.dim() != rank or value.dim() != rank or (rank == 2 and layout == "bshd"):
        raise ValueError(f"query has shape {_shape(query)}, key {_shape(key)} and value "
                         f"{_shape(value)}; give three tensors of batch, heads, tokens and depth, "
                         "or in layout 'bhsd' of tokens and depth alone")
    given = query, key, value
    if rank == 2:
        given = [each.unsqueeze(0) for each in given]
    elif layout == "bshd":
        given = [each.transpose(-3, -2) for each in given]
    q, k, v = (each.shape for each in given)
    if k[:-1] != v[:-1]:
        raise ValueError(f"key has shape {_shape(key)} and value {_shape(value)}: batch, heads and "
                         "tokens must be the same; use value.expand where an axis is 1")
    if q[:-3] != k[:-3] or q[-1] != k[-1]:
        raise ValueError(f"query has shape {_shape(query)} and key {_shape(key)}: batch and depth "
                         "must be the same; use key.expand and value.expand where the batch is 1")
    heads, shared = q[-3], k[-3]
    if heads != shared and not (enable_gqa and shared and heads % shared == 0):
        raise ValueError(f"query has {heads} heads and key {shared}; " + (
            "give a multiple of key's heads" if enable_gqa else
            "give enable_gqa=True, with which groups of query's heads share one of key's"))
    return given


def take_mask(mask, shape):
    """The bias that a mask is, of the mask's own axes and leading ones of 1; `shape` is that of the
    logits."""
    check_tensor("attn_mask", mask, MASKS)
    missing = len(shape) - mask.dim()
    if missing < 0 or any(have not in (1, whole) for have, whole in
                          zip(mask.shape, shape[missing:], strict=True)):
        raise ValueError(f"attn_mask has shape {_shape(mask)}; give one that broadcasts to "
                         f"{list(shape)}: (..., heads, queries, keys)")
    if mask.dtype is torch.bool:
        if 0 in mask.stride():  # an expanded view, whose bias has its elements once
            mask = mask[tuple(slice(None if step else 1) for step in mask.stride())]
        mask = mask.new_full(mask.shape, float("-inf"), dtype=torch.float32).masked_fill_(mask, 0.0)
    return mask.view((1,) * missing + mask.shape) if missing else mask


def take_causal(causal, is_causal, attn_mask):
    """The operator's option `causal`."""
    if is_causal:
        if attn_mask is not None or causal is not None:
            beside = "attn_mask" if causal is None else f"causal={causal!r}"
            raise ValueError(f"is_causal is {is_causal} beside {beside}; give causal='upper_left' "
                             "(PyTorch's is_causal) or 'lower_right' in its place")
        return "upper_left"
    if causal not in (None, "no", "lower_right", "upper_left"):
        raise ValueError(f"causal is {causal!r}; give None, 'no', 'lower_right' or 'upper_left'")
    return causal or "no"


def take_options(implementation, workspace_bytes, reduction="mean", label_smoothing=0.0,
                 **numbers):
    """The options of an operator, without those at their defaults."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}; give 'none', 'mean' or 'sum'")
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"label_smoothing is {label_smoothing}; give a number from 0 to 1")
    options = {name: value for name, (value, default) in numbers.items() if value != default}
    if reduction != "mean":
        options["reduction"] = reduction
    if label_smoothing:
        options["label_smoothing"] = label_smoothing
    if implementation is not None:
        options["implementation"] = (implementation if isinstance(implementation, str)
                                     else ",".join(implementation))
    if workspace_bytes is not None:
        if workspace_bytes < 0:
            raise ValueError(f"workspace_bytes is {workspace_bytes}; give 0 or more")
        options["workspace_bytes"] = workspace_bytes
    return options


def take_loss_options(implementation, workspace_bytes, reduction, label_smoothing, ignore_index,
                      logsumexp_weight, logit_scale, logit_soft_cap, **numbers):
    """`take_options` with those that every loss has."""
    return take_options(
        implementation, workspace_bytes, reduction, label_smoothing,
        ignore_index=(ignore_index, -100), logsumexp_weight=(logsumexp_weight, 0.0),
        logit_scale=(logit_scale, 1.0), logit_soft_cap=(logit_soft_cap or 0.0, 0.0), **numbers)
