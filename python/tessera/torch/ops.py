# SPDX-License-Identifier: Apache-2.0
"""The operators `torch.ops.tessera.*`: loading them, their shapes, and their derivatives.

For each operator of the library there are `NAME_forward`, `NAME_backward` and, of the losses,
`NAME_value_and_grad`. What they take and return is their schema, which libtessera_torch makes from
the library's descriptions; nothing here names an operator.
"""

import ctypes
import pathlib

import torch

from tessera import _core


def _load():
    path = pathlib.Path(__file__).parent.parent / "libtessera_torch.so"
    if not path.exists():
        raise ImportError(
            f"this tessera was built without its operators for PyTorch ({path} is missing): build "
            "it where PyTorch's headers are, with TESSERA_TORCH_INCLUDE=.../torch/include")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"PyTorch {torch.__version__} does not load tessera's operators, which "
                          f"need 2.10 or later: {error}") from error
    library.tessera_torch_connect(*map(ctypes.c_void_p, _core._from_outside()))
    return library


_library = _load()


def set_context(context):
    """Has all operators use this `tessera.Context`.

    None: one of their own, which the next call makes, with as many threads as
    `torch.get_num_threads()` then says. That is also what happens where nothing is set.
    """
    if context is None:
        _library.tessera_torch_set_context(None)
    elif isinstance(context, _core.Context):
        _library.tessera_torch_set_context(ctypes.c_void_p(_core._address_of(context)))
    else:
        raise TypeError(f"context is a {type(context).__name__}; give a tessera.Context or None")


def call(op, *args, **options):
    """Calls an operator; what the library refuses is a tessera.Error."""
    try:
        return op(*args, **options)
    except (RuntimeError, IndexError) as error:
        failure = error
    _core._throw_kept_error(str(failure))
    raise failure


def call_plain(op, *args, **options):
    """The same in eager mode for results without derivatives: autograd's half is passed by."""
    with torch._C._AutoDispatchBelowAutograd():
        return call(op, *args, **options)


class Operator:
    """An operator of the library, as its schemas have it."""

    def __init__(self, name):
        self.name = name
        self.forward = self._overload("forward")
        self.backward = self._overload("backward")
        self.value_and_grad = self._overload("value_and_grad")
        #: What forward takes, in order.
        self.inputs = [a.name for a in self.forward._schema.arguments if not a.kwarg_only]
        self.outputs = [r.name for r in self.forward._schema.returns]
        #: Backward is None, and there are no gradients, where the library has none.
        backward = [a.name for a in self.backward._schema.arguments] if self.backward else []
        #: Outputs that backward is given again. It takes the statistics in place of lse.
        self.saved = [name for name in self.outputs if name in backward and name != "lse"]
        #: The cotangent of an output, where it has one.
        self.cotangents = {name: f"d{name}" for name in self.outputs if f"d{name}" in backward}
        self.gradients = [r.name for r in self.backward._schema.returns] if self.backward else []
        #: For each gradient the place of the input that it is of.
        self.places = [self.inputs.index(name.removeprefix("grad_")) for name in self.gradients]

    def _overload(self, pass_name):
        packet = getattr(torch.ops.tessera, f"{self.name}_{pass_name}", None)
        return None if packet is None else packet.default

    def wants(self, needs):
        """The options that ask for the gradients of those inputs that need one."""
        return {f"wants_{name}": needs[place]
                for name, place in zip(self.gradients, self.places, strict=True)}

    def placed(self, gradients, needs):
        """The gradients at the places of the inputs that need them; None elsewhere."""
        result = [None] * len(self.inputs)
        for place, gradient in zip(self.places, gradients, strict=True):
            if needs[place]:
                result[place] = gradient
        return result


def as_tuple(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _arguments(op, args, options):
    """All arguments by name, those left out with their defaults."""
    declared = op._schema.arguments
    named = {a.name: a.default_value for a in declared if a.has_default_value()}
    named.update(zip((a.name for a in declared), args, strict=False))
    return {**named, **options}


def _axes(shape):
    """What stands behind the leading axes: "[..., Q, S]" has Q and S."""
    return [axis for axis in shape.strip("[]").split(", ") if axis and not axis.startswith("...")]


def _output_shape(shape, inputs, given):
    """An output's shape, by those of the inputs that are given; `inputs` has theirs in letters."""
    letters = {}
    for name, each in inputs.items():
        # An axis that may be 1 says nothing of its letter.
        if given.get(name) is None or "|" in each or each.startswith("("):
            continue
        axes = _axes(each)
        extents = given[name].shape[given[name].dim() - len(axes):]
        letters = {**dict(zip(axes, extents, strict=True)), **letters}
    first = next(iter(inputs))
    leading = given[first].shape[:given[first].dim() - len(_axes(inputs[first]))]
    if shape.startswith("("):
        return leading if given["reduction"] == "none" else ()
    own = [int(axis) if axis.isdigit() else letters[axis] for axis in _axes(shape)]
    return (*leading, *own) if "..." in shape else tuple(own)


def _register_fake(operator, op):
    inputs, outputs = _core._shapes()[operator.name]

    def fake(*args, **options):
        given = _arguments(op, args, options)
        x = args[0]

        def result(name):
            if name in outputs:
                shape, has_first_type, lies_as_first = outputs[name]
                extents = _output_shape(shape, inputs, given)
                dtype = x.dtype if has_first_type else torch.float32
                if lies_as_first and x.stride(-3) < x.stride(-2):  # tokens before heads
                    *batch, heads, tokens, depth = extents
                    *steps, at_tokens, at_heads, last = x.new_empty(
                        (*batch, tokens, heads, depth)).stride()
                    return x.new_empty_strided(extents, (*steps, at_heads, at_tokens, last),
                                               dtype=dtype)
                return x.new_empty(extents, dtype=dtype)
            of = given[name.removeprefix("grad_")]
            if of is None or not given[f"wants_{name}"]:
                return x.new_empty((0,))
            return of.new_empty(of.shape)

        results = tuple(result(each.name) for each in op._schema.returns)
        return results if len(results) > 1 else results[0]

    torch.library.register_fake(op.name().split(".")[0], fake)


def saved_of(operator, outputs):
    """Those of the outputs of forward that `derive` takes."""
    return [each for name, each in zip(operator.outputs, outputs, strict=False)
            if name in operator.saved]


def _backward_op(name, options, names, *tensors):
    return as_tuple(call(operators[name].backward, **dict(zip(names, tensors, strict=True)),
                         **options))


class _Gradients(torch.autograd.Function):
    """The gradients where autograd records what computes them: they have no derivatives."""

    forward = staticmethod(_backward_op)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx, *cotangents):
        raise NotImplementedError(f"{ctx.name} has no second derivatives in tessera")


def _no_gradients(operator):
    return f"tessera computes no gradients of {operator.name}"


def derive(operator, options, tensors, saved, needs, cotangents):
    """The gradients of the inputs.

    `tensors` are forward's inputs, `needs` says which of them has a gradient to be computed,
    `saved` is as `saved_of` has it, and `cotangents` are those of forward's outputs, in order.
    """
    result = [None] * len(tensors)
    by_name = dict(zip(operator.outputs, cotangents, strict=False))
    if all(each is None for each in by_name.values()):
        return result
    if operator.backward is None:
        raise NotImplementedError(_no_gradients(operator))
    given = dict(zip(operator.inputs, tensors, strict=True))
    given.update(zip(operator.saved, saved, strict=True))
    for output, cotangent in operator.cotangents.items():
        given[cotangent] = by_name.get(output)
    if "loss" in operator.outputs and by_name["loss"] is None:  # none given would mean 1
        shape = tensors[0].shape[:-1] if options.get("reduction") == "none" else ()
        given["dloss"] = tensors[0].new_zeros(shape, dtype=torch.float32)
    backward = _backward_op if not torch.is_grad_enabled() else _Gradients.apply
    gradients = backward(operator.name, {**options, **operator.wants(needs)}, tuple(given),
                         *given.values())
    return operator.placed(gradients, needs)


def _register_autograd(operator, op):
    """For calls of the operators themselves, and of exported graphs."""
    names = [a.name for a in op._schema.arguments if not a.kwarg_only]

    def setup_context(ctx, inputs, keyword_only_inputs, output):
        given = dict(zip(names, inputs, strict=True))
        ctx.options = {key: value for key, value in keyword_only_inputs.items()
                       if not key.startswith("wants_")}
        outputs = as_tuple(output)
        ctx.save_for_backward(*(given[name] for name in operator.inputs),
                              *saved_of(operator, outputs))
        ctx.mark_non_differentiable(*(
            each for name, each in zip([r.name for r in op._schema.returns], outputs, strict=True)
            if name not in operator.cotangents))
        ctx.set_materialize_grads(False)

    def backward(ctx, *cotangents):
        count = len(operator.inputs)
        needs = dict(zip(names, ctx.needs_input_grad, strict=False))  # of those that were given
        result = derive(operator, ctx.options, ctx.saved_tensors[:count], ctx.saved_tensors[count:],
                        [needs.get(name, False) for name in operator.inputs], cotangents)
        by_name = dict(zip(operator.inputs, result, strict=True))
        return tuple(by_name.get(name) for name in names)

    def no_derivative(ctx, *cotangents):
        raise NotImplementedError(f"{op} has no derivative: tessera computes first derivatives "
                                  "only" if operator.backward else _no_gradients(operator))

    name = op.name().split(".")[0]
    if op is operator.backward or operator.backward is None:
        torch.library.register_autograd(name, no_derivative)
    else:
        torch.library.register_autograd(name, backward, setup_context=setup_context)


operators = {name: Operator(name) for name in _core.operators}
for _operator in operators.values():
    for _op in (_operator.forward, _operator.backward, _operator.value_and_grad):
        if _op is not None:
            _register_fake(_operator, _op)
            _register_autograd(_operator, _op)
