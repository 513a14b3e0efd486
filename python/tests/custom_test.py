# SPDX-License-Identifier: Apache-2.0
"""Kernels of callers, described in Python."""

import numpy as np
import pytest

import tessera
from conftest import needs_device

SOURCE = """
kernel void scaled_sum(global const float* x, global const float* y, global float* out, float a) {
  const size_t i = get_global_id(0);
  out[i] = a * x[i] + y[i];
}
kernel void gradients(global const float* x, global const float* y, global const float* dout,
                      global float* dx, global float* dy, float a) {
  const size_t i = get_global_id(0);
  dx[i] = a * dout[i];
  dy[i] = dout[i];
}
kernel void row_sums(global const float* x, global float* out, local float* part, int columns) {
  const int row = (int)get_group_id(0), lane = (int)get_local_id(0);
  float sum = 0.0f;
  for (int i = lane; i < columns; i += GROUP) sum += x[row * columns + i];
  part[lane] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (lane == 0) {
    for (int i = 1; i < GROUP; ++i) sum += part[i];
    out[row] = sum;
  }
}
"""


@pytest.fixture(scope="module")
def scaled_sum():
    backward = tessera.custom_kernel(source=SOURCE, entry="gradients", knobs={"GROUP": 1},
                                     shape=lambda inputs: [inputs[0], inputs[1]])
    return tessera.custom_kernel(
        source=SOURCE, entry="scaled_sum", shape=lambda inputs: inputs[0], inputs=["x", "y"],
        knobs={"GROUP": 1}, backward=backward,
        host=lambda inputs, call: np.float32(call.scalars[0]) * inputs[0] + inputs[1])


def arrays(count=2):
    rng = np.random.default_rng(3)
    return [rng.standard_normal((6, 50)).astype(np.float32) for _ in range(count)]


@needs_device
def test_call_out_and_backward(scaled_sum):
    x, y = arrays()
    result = scaled_sum(x, y.T.copy().T, scalars=[2.0])
    assert result.dispatch.implementation == "opencl" and len(result) == 1
    np.testing.assert_allclose(result[0], 2 * x + y, rtol=1e-6, atol=1e-6)
    out = np.full_like(x, np.nan)
    assert scaled_sum(x, y, scalars=[2.0], out=[out])[0] is out
    np.testing.assert_array_equal(out, result[0])
    dx, dy = scaled_sum.backward(x, y, cotangents=[y], scalars=[2.0]).outputs
    np.testing.assert_array_equal(dx, 2 * y)
    np.testing.assert_array_equal(dy, y)


def test_host_fallback(scaled_sum):
    x, y = arrays()
    result = scaled_sum(x, y, scalars=[2.0], implementation="host")
    np.testing.assert_array_equal(result[0], np.float32(2) * x + y)


@needs_device
def test_launches_local_memory_and_numbers():
    x, = arrays(1)

    def launches(call):
        rows, columns = call.inputs[0].shape
        group = call.value("GROUP")
        argument = tessera.KernelArgument
        return [tessera.KernelLaunch("row_sums", rows * group, group, [
            argument.input(0), argument.output(0), argument.local(4 * group), np.int32(columns)])]

    kernel = tessera.custom_kernel(
        source=SOURCE, entry="row_sums", launches=launches, block_sizes={"GROUP": (8, 1, 64)},
        shape=lambda inputs: tessera.ArraySpec(inputs[0].shape[:1], inputs[0].dtype),
        check=lambda call: "x has no columns" if call.inputs[0].shape[1] == 0 else "")
    assert [spec.shape for spec in kernel.shapes(x)] == [[6]]
    for group in (8, 3):
        result = kernel(x, block_sizes={"GROUP": group})
        np.testing.assert_allclose(result[0], x.sum(axis=1), rtol=1e-5, atol=1e-5)
        assert result.dispatch.block_sizes == {"GROUP": group}
    with pytest.raises(ValueError, match="x has no columns"):
        kernel(x[:, :0])
    with pytest.raises(ValueError, match="GROUP.*64"):
        kernel(x, block_sizes={"GROUP": 65})


@needs_device
def test_inputs_stay_as_they_are(tmp_path):
    """Arrays that cannot be written, too: a mapped file would end the process."""
    kernel = tessera.custom_kernel(
        source="kernel void next(global float* x, global float* y) {"
               "  const size_t i = get_global_id(0);"
               "  x[i] += 1;"
               "  y[i] = x[i];"
               "}", entry="next", shape=lambda inputs: inputs[0])
    x, = arrays(1)
    x.tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.float32, "r", shape=x.shape)
    before = x.copy()
    x.flags.writeable = False
    for each in (x, mapped):
        result = kernel(each)
        np.testing.assert_array_equal(result[0], before + 1)
        np.testing.assert_array_equal(each, before)
        assert "const" in result.dispatch.notes[0]


@needs_device
def test_refused(scaled_sum):
    x, y = arrays()
    with pytest.raises(ValueError, match="ZeroDivisionError: division by zero"):
        tessera.custom_kernel(source=SOURCE, entry="scaled_sum", knobs={"GROUP": 1},
                              shape=lambda inputs: 1 / 0)(x, y, scalars=[1.0])
    with pytest.raises(tessera.BuildFailedError) as caught:
        tessera.custom_kernel(source="kernel void f(global float* x) { nonsense }", entry="f",
                              shape=lambda inputs: inputs[0])(x)
    assert "nonsense" in caught.value.build_log
    with pytest.raises(TypeError, match="shape is a .*; give a function"):
        tessera.custom_kernel(source=SOURCE, entry="scaled_sum", shape=3)
    with pytest.raises(TypeError, match="no argument 'scale'"):
        scaled_sum(x, y, scale=2.0)
    with pytest.raises(TypeError, match="scalars has '2'"):
        scaled_sum(x, y, scalars=["2"])
    with pytest.raises(ValueError, match="inputs|input"):
        scaled_sum(x, scalars=[2.0])
