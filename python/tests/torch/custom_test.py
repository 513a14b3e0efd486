# SPDX-License-Identifier: Apache-2.0
"""Kernels of one's own as operators of PyTorch."""

import numpy as np
import pytest
import torch

import tessera
from conftest import needs_device
from tessera.torch import custom_kernel

pytestmark = needs_device

SOURCE = """
kernel void scaled_sum(global const INPUT_0_TYPE* x, global const INPUT_0_TYPE* y,
                       global OUTPUT_0_TYPE* out, float a) {
  const size_t i = get_global_id(0);
  out[i] = a * x[i] * y[i];
}
kernel void gradients(global const float* x, global const float* y, global const float* dout,
                      global float* dx, global float* dy, float a) {
  const size_t i = get_global_id(0);
  dx[i] = a * y[i] * dout[i];
  dy[i] = a * x[i] * dout[i];
}
kernel void pick(global const float* x, global const int* at, global float* out,
                 global float* twice, int columns) {
  const size_t i = get_global_id(0);
  out[i] = x[i * columns + at[i]];
  twice[i] = 2 * out[i];
}
kernel void pick_gradient(global const float* x, global const int* at, global const float* dout,
                          global const float* dtwice, global float* dx, int columns) {
  const size_t row = get_global_id(0) / columns, i = get_global_id(0) % columns;
  dx[get_global_id(0)] = i == at[row] ? dout[row] + 2 * dtwice[row] : 0;
}
kernel void bits(global const ushort* x, global ushort* out) {
  out[get_global_id(0)] = x[get_global_id(0)] ^ 0x8000;
}
"""


@pytest.fixture(scope="module")
def product():
    backward = tessera.custom_kernel(source=SOURCE, entry="gradients",
                                     shape=lambda inputs: [inputs[0], inputs[1]])
    return custom_kernel(source=SOURCE, entry="scaled_sum", name="product",
                         shape=lambda inputs: inputs[0], backward=backward)


@pytest.fixture(scope="module")
def pick():
    backward = tessera.custom_kernel(source=SOURCE, entry="pick_gradient",
                                     shape=lambda inputs: inputs[0])

    def rows(inputs):
        return [tessera.ArraySpec(inputs[1].shape, inputs[0].dtype)] * 2

    return custom_kernel(source=SOURCE, entry="pick", shape=rows, backward=backward)


def operands(seed=1):
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(6, 50, generator=random).requires_grad_() for _ in range(2)]


def test_values_and_gradients(product, pick):
    x, y = operands()
    out = product(x, y.t().contiguous().t(), scalars=[3.0])  # strides are the library's matter
    assert torch.equal(out, 3 * x * y) or torch.allclose(out, 3 * x * y, rtol=2**-22)
    out.backward(y.detach())
    torch.testing.assert_close(x.grad, 3 * y * y, rtol=2**-21, atol=0)
    torch.testing.assert_close(y.grad, 3 * x * y, rtol=2**-21, atol=0)
    x.grad = None
    at = torch.arange(6, dtype=torch.int32) * 7
    out, twice = pick(x, at, scalars=[np.int32(50)])
    assert torch.equal(out, x[torch.arange(6), at.long()]) and torch.equal(twice, 2 * out)
    twice.sum().backward()
    assert torch.equal(x.grad.sum(1), torch.full((6,), 2.0))
    assert torch.equal(x.grad[torch.arange(6), at.long()], torch.full((6,), 2.0))


def test_bf16_without_a_copy():
    def neither(inputs):
        return inputs[0]

    flip = custom_kernel(source=SOURCE, entry="bits", shape=neither, backward=tessera.custom_kernel(
        source=SOURCE.replace("bits(global const ushort* x,",
                              "bits(global const ushort* x, global const ushort* d,"),
        entry="bits", shape=neither))
    x = torch.randn(4, 8).bfloat16().requires_grad_()
    out = flip(x)
    assert out.dtype == torch.bfloat16 and torch.equal(out, -x)
    out.backward(torch.ones_like(out))
    assert x.grad.dtype == torch.bfloat16 and torch.equal(x.grad, -x)


def test_opcheck(product, pick):
    at = torch.arange(6, dtype=torch.int32)
    torch.library.opcheck(product.forward, (operands(), [2.0], "{}"))
    torch.library.opcheck(pick.forward, ([operands()[0], at], [50], "{'int32': [0]}"))


def test_compiled(product):
    x, y = operands()

    def loss(x, y):
        return (product(x + 1, y, scalars=[2.0]) * y).sum()

    loss(x, y).backward()
    wanted = x.grad.clone(), y.grad.clone()
    for dynamic in (False, True):
        x.grad = y.grad = None
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=dynamic)
        compiled(x, y).backward()
        for got, each in zip((x.grad, y.grad), wanted, strict=True):
            torch.testing.assert_close(got, each)
    exported = torch.export.export(Product(product), (x, y))
    assert torch.equal(exported.module()(x, y), product(x, y, scalars=[2.0]))


class Product(torch.nn.Module):
    def __init__(self, product):
        super().__init__()
        self.product = product

    def forward(self, x, y):
        return self.product(x, y, scalars=[2.0])


def test_func(product):
    x, y = (each.detach() for each in operands())
    got = torch.func.grad(lambda x: product(x, y, scalars=[2.0]).sum())(x)
    torch.testing.assert_close(got, 2 * y)
    with pytest.raises((NotImplementedError, RuntimeError), match="jvp|forward"):
        torch.func.jvp(lambda x: product(x, y, scalars=[2.0]), (x,), (x,))


def test_refused(product):
    x, y = operands()
    plain = custom_kernel(source=SOURCE, entry="scaled_sum", shape=lambda inputs: inputs[0])
    with pytest.raises(NotImplementedError, match="scaled_sum has no backward"):
        plain(x, y, scalars=[2.0]).sum().backward()
    out = product(x, y, scalars=[2.0]).sum()
    first, = torch.autograd.grad(out, [x], create_graph=True)
    with pytest.raises(NotImplementedError, match="product has no second derivatives"):
        first.sum().backward()
    with pytest.raises(TypeError, match="float64"):
        product(x.double(), y, scalars=[2.0])
    freed = y.detach().clone()
    freed.untyped_storage().resize_(4)
    with pytest.raises(ValueError, match="input 1 has elements up to byte .* that has 4 bytes"):
        plain(x, freed, scalars=[2.0])
    with pytest.raises(ValueError, match="no_such"):
        product(x, y, scalars=[2.0], knobs={"no_such": 1})
    with pytest.raises(tessera.BuildFailedError, match="f"):
        custom_kernel(source="kernel void f(global float* x) { nonsense }", entry="f",
                      shape=lambda inputs: inputs[0])(x)
    with pytest.raises(TypeError, match="shape is a .*; give a function"):
        custom_kernel(source=SOURCE, entry="scaled_sum", shape=3)
