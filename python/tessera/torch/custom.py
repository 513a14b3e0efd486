# SPDX-License-Identifier: Apache-2.0
"""`custom_kernel`: OpenCL C of one's own as an operator of PyTorch."""

import ast
import itertools
from collections.abc import Sequence

import torch

import tessera

_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32,
           "i64": torch.int64}
_names = {}  # how many operators have one


def custom_kernel(*, name="", entry="", backward=None, **kernel):
    """`tessera.custom_kernel` for tensors on the CPU, which are neither copied nor converted.

    Takes the same arguments, and returns a function of the inputs (tensors, by place) and, by name,
    of `scalars`, `parameters`, `block_sizes`, `knobs`, `implementation` and `workspace_bytes`. That
    returns a new tensor, or a tuple of them where the kernel has more than one output. It works in
    `torch.compile` and `torch.export` as an opaque operator, which runs on OpenCL's device of
    `tessera.default_context()`.

    backward: a `tessera.custom_kernel` of the inputs and a cotangent for each output, which makes
        the gradients of the floating inputs, in order. Without it, differentiating is an error.

    Raises what `tessera.custom_kernel` raises, and so do calls; a tensor that is not on the CPU is
    a NotImplementedError.
    """
    made = tessera.custom_kernel(name=name, entry=entry, backward=backward, **kernel)
    return _Operator(made, backward is not None)


class _Operator:
    def __init__(self, kernel, has_backward):
        self.kernel, self.has_backward = kernel, has_backward
        # A name is an operator's for good, and two kernels may have the same.
        plain = "".join(each if each.isalnum() else "_" for each in kernel.name)
        number = _names.setdefault(plain, itertools.count())
        self.__name__ = f"{plain}_{next(number)}"
        self.forward = torch.library.custom_op(
            f"tessera_custom::{self.__name__}", self._forward, mutates_args=(), device_types="cpu")
        self.backward = torch.library.custom_op(
            f"tessera_custom::{self.__name__}_backward", self._backward, mutates_args=(),
            device_types="cpu")
        self.forward.register_fake(self._fake)
        self.backward.register_fake(
            lambda inputs, cotangents, scalars, how: [torch.empty_like(
                each, memory_format=torch.contiguous_format) for each in _floating(inputs)])
        self.forward.register_autograd(self._gradients, setup_context=_keep)

    def __call__(self, *inputs, scalars=(), parameters=None, block_sizes=None, knobs=None,
                 implementation=None, workspace_bytes=None):
        # Strings and plain numbers are what an operator may have beside tensors.
        how = {"parameters": parameters, "block_sizes": block_sizes, "knobs": knobs,
               "implementation": implementation, "workspace_bytes": workspace_bytes}
        how = {key: value for key, value in how.items() if value is not None}
        narrow = [at for at, each in enumerate(scalars)
                  if getattr(each, "dtype", None) is not None and each.dtype == "int32"]
        if narrow:
            how["int32"] = narrow
        scalars = [each.item() if hasattr(each, "item") else each for each in scalars]
        outputs = _Node.apply(self, scalars, str(how), *inputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def _forward(self, inputs: Sequence[torch.Tensor], scalars: Sequence[torch.types.Number],
                 how: str) -> list[torch.Tensor]:
        call = _call(scalars, how)
        inputs = [_held(at, each) for at, each in enumerate(inputs)]
        outputs = [torch.empty(spec.shape, dtype=_DTYPES[spec.dtype])
                   for spec in self.kernel.shapes(*inputs, **call)]
        self.kernel(*inputs, out=outputs, **call)
        return outputs

    def _fake(self, inputs, scalars, how):
        # Sizes become plain numbers: the shape function may do anything with them.
        specs = [tessera.ArraySpec([int(size) for size in each.shape],
                                   str(each.dtype).removeprefix("torch.")) for each in inputs]
        return [inputs[0].new_empty(spec.shape, dtype=_DTYPES[spec.dtype])
                for spec in self.kernel.shapes(*specs, **_call(scalars, how))]

    def _backward(self, inputs: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor],
                  scalars: Sequence[torch.types.Number], how: str) -> list[torch.Tensor]:
        made = self.kernel.backward(*(_held(at, each) for at, each in enumerate(inputs)),
                                    **_call(scalars, how),
                                    cotangents=[each.detach() for each in cotangents])
        return [_tensor(array, like)
                for array, like in zip(made.outputs, _floating(inputs), strict=True)]

    def _gradients(self, ctx, cotangents):
        """Of each input, None for those that have none."""
        if not self.has_backward:
            raise NotImplementedError(f"the kernel {self.kernel.name} has no backward; give "
                                      "custom_kernel another kernel as `backward`")
        inputs = ctx.saved_tensors
        gradients = iter(_Gradients.apply(self, ctx.scalars, ctx.how, len(inputs), *inputs,
                                          *cotangents))
        return ([next(gradients) if each.is_floating_point() else None for each in inputs],
                None, None)


def _held(at, tensor):
    """A tensor to hand over, whose elements all have memory: what FSDP has sharded has none."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in steps)
    needed = (tensor.storage_offset() + last + 1) * tensor.element_size() if tensor.numel() else 0
    held = tensor.untyped_storage().nbytes()
    if needed > held:
        raise ValueError(f"input {at} has elements up to byte {needed} of its storage, and that "
                         f"has {held} bytes; give a tensor whose storage is allocated")
    return tensor.detach()


class _Node(torch.autograd.Function):
    """Above the operator: with what `register_autograd` makes, `torch.func.grad` fails and
    `torch.func.jvp` is zero."""

    @staticmethod
    def forward(operator, scalars, how, *inputs):
        return tuple(operator.forward(inputs, scalars, how))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.operator, scalars, how, *tensors = inputs
        _keep(ctx, (tensors, scalars, how), output)

    @staticmethod
    def backward(ctx, *cotangents):
        gradients, _, _ = ctx.operator._gradients(ctx, cotangents)
        return None, None, None, *gradients


class _Gradients(torch.autograd.Function):
    """So that `torch.func.grad` works, and second derivatives are an error."""

    @staticmethod
    def forward(operator, scalars, how, count, *tensors):
        return tuple(operator.backward(tensors[:count], tensors[count:], scalars, how))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.operator = inputs[0]

    @staticmethod
    def backward(ctx, *cotangents):
        raise NotImplementedError(f"the kernel {ctx.operator.kernel.name} has no second "
                                  "derivatives")


def _keep(ctx, inputs, output):
    tensors, ctx.scalars, ctx.how = inputs
    ctx.save_for_backward(*tensors)


def _floating(tensors):
    return [each for each in tensors if each.is_floating_point()]


def _call(scalars, how):
    call = ast.literal_eval(how)
    narrow = call.pop("int32", ())
    if narrow:
        import numpy as np
        scalars = [np.int32(each) if at in narrow else each for at, each in enumerate(scalars)]
    return {**call, "scalars": list(scalars)}


def _tensor(array, like):
    """Over the memory of a numpy array; bfloat16 is nothing that PyTorch takes from numpy."""
    if like.dtype == torch.bfloat16:
        return torch.from_numpy(array.view("uint16")).view(torch.bfloat16)
    return torch.from_numpy(array)
