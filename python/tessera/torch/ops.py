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
    _core._throw_kept_error()
    raise failure


class Operator:
    """An operator of the library, as its schemas have it."""

    def __init__(self, name):
        self.name = name
        self.forward = self._overload("forward")
        self.backward = self._overload("backward")
        self.value_and_grad = self._overload("value_and_grad")
        #: What forward takes, in order; all may have gradients that backward returns.
        self.inputs = [a.name for a in self.forward._schema.arguments if not a.kwarg_only]
        self.outputs = [r.name for r in self.forward._schema.returns]
        backward = [a.name for a in self.backward._schema.arguments]
        #: Outputs that backward is given again. It takes the statistics in place of lse.
        self.saved = [name for name in self.outputs if name in backward and name != "lse"]
        #: The cotangent of an output, where it has one.
        self.cotangents = {name: f"d{name}" for name in self.outputs if f"d{name}" in backward}
        self.gradients = [r.name for r in self.backward._schema.returns]

    def _overload(self, pass_name):
        packet = getattr(torch.ops.tessera, f"{self.name}_{pass_name}", None)
        return None if packet is None else packet.default

    def gradient_places(self):
        """For each gradient the place of the input that it is of."""
        return [self.inputs.index(name.removeprefix("grad_")) for name in self.gradients]


def _arguments(op, args, options):
    """All arguments by name, those left out with their defaults."""
    declared = op._schema.arguments
    named = {a.name: a.default_value for a in declared if a.has_default_value()}
    named.update(zip((a.name for a in declared), args, strict=False))
    return {**named, **options}


_LAST_AXES = {"lse": (), "statistics": (2,), "divergence_statistics": (5,)}


def _register_fake(op):
    def fake(*args, **options):
        given = _arguments(op, args, options)
        x = args[0]
        leading = x.shape[:-1]

        def result(name):
            if name == "loss":
                return x.new_empty(leading if given["reduction"] == "none" else (),
                                   dtype=torch.float32)
            if name in _LAST_AXES:
                return x.new_empty((*leading, *_LAST_AXES[name]), dtype=torch.float32)
            if not name.startswith("grad_"):
                return x.new_empty(x.shape)
            of = given[name.removeprefix("grad_")]
            if of is None or not given[f"wants_{name}"]:
                return x.new_empty((0,))
            return of.new_empty(of.shape)

        results = tuple(result(each.name) for each in op._schema.returns)
        return results if len(results) > 1 else results[0]

    torch.library.register_fake(op.name().split(".")[0], fake)


def save(ctx, operator, options, tensors, outputs):
    """Keeps what `derive` needs in the context of a node of autograd."""
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    kept = [each for name, each in zip(operator.outputs, outputs, strict=False)
            if name in operator.saved]
    ctx.save_for_backward(*tensors, *kept)
    ctx.set_materialize_grads(False)
    ctx.options = options
    return kept


def _backward_op(name, options, names, *tensors):
    gradients = call(operators[name].backward, **dict(zip(names, tensors, strict=True)), **options)
    return gradients if isinstance(gradients, tuple) else (gradients,)


class _Gradients(torch.autograd.Function):
    """The gradients where autograd records what computes them: they have no derivatives."""

    forward = staticmethod(_backward_op)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx, *cotangents):
        raise NotImplementedError(f"{ctx.name} has no second derivatives in tessera")


def derive(ctx, operator, needs, cotangents):
    """The gradients of the inputs by what `save` has kept; `needs` says of which inputs."""
    count = len(operator.inputs)
    tensors, kept = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
    given = dict(zip(operator.inputs, tensors, strict=True))
    given.update(zip(operator.saved, kept, strict=True))
    by_name = dict(zip(operator.outputs, cotangents, strict=False))
    result = [None] * count
    if all(each is None for each in by_name.values()):
        return result
    for output, cotangent in operator.cotangents.items():
        given[cotangent] = by_name[output]
    if "loss" in by_name and by_name["loss"] is None:  # none given would mean 1
        shape = tensors[0].shape[:-1] if ctx.options.get("reduction") == "none" else ()
        given["dloss"] = tensors[0].new_zeros(shape, dtype=torch.float32)
    places = operator.gradient_places()
    wants = {f"wants_{name}": needs[place]
             for name, place in zip(operator.gradients, places, strict=True)}
    backward = _backward_op if not torch.is_grad_enabled() else _Gradients.apply
    gradients = backward(operator.name, {**ctx.options, **wants}, tuple(given), *given.values())
    for place, gradient in zip(places, gradients, strict=True):
        if needs[place]:
            result[place] = gradient
    return result


def _register_autograd(operator, op):
    """For calls of the operators themselves, and of exported graphs."""
    names = [a.name for a in op._schema.arguments if not a.kwarg_only]
    outputs = [r.name for r in op._schema.returns]

    def setup_context(ctx, inputs, keyword_only_inputs, output):
        given = dict(zip(names, inputs, strict=True))
        options = {key: value for key, value in keyword_only_inputs.items()
                   if not key.startswith("wants_")}
        save(ctx, operator, options, [given[name] for name in operator.inputs], output)

    def backward(ctx, *cotangents):
        for name, cotangent in zip(outputs, cotangents, strict=True):
            if cotangent is not None and name not in operator.cotangents:
                raise NotImplementedError(
                    f"{op} has no derivative of {name}: tessera computes first derivatives only")
        needs = dict(zip(names, ctx.needs_input_grad, strict=False))
        result = derive(ctx, operator, [needs[name] for name in operator.inputs], cotangents)
        by_name = dict(zip(operator.inputs, result, strict=True))
        return tuple(by_name.get(name) for name in names)

    def no_derivative(ctx, *cotangents):
        raise NotImplementedError(f"{op} has no derivative: tessera computes first derivatives "
                                  "only")

    name = op.name().split(".")[0]
    if op is operator.backward:
        torch.library.register_autograd(name, no_derivative)
    else:
        torch.library.register_autograd(name, backward, setup_context=setup_context)


operators = {name: Operator(name) for name in _core.operators}
for _operator in operators.values():
    for _op in (_operator.forward, _operator.backward, _operator.value_and_grad):
        if _op is not None:
            _register_fake(_op)
            _register_autograd(_operator, _op)
