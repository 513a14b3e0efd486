// SPDX-License-Identifier: Apache-2.0
#include "host/engines/probe.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string_view>

namespace tessera::engines {

void ProbeOperand::fill(std::uint32_t& state) {
  const bool is_f16 = type == DType::f16;
  const auto bits_of = [is_f16](float value) {
    return is_f16 ? f16(value).bits : bf16(value).bits;
  };
  // f16 begins at 2^-17 here, so that its first three exponents are subnormal.
  const int least = is_f16 ? -17 : -8;
  const auto next = [&] {
    state = state * 1664525u + 1013904223u;  // Numerical Recipes' generator: any spread will do
    const float mantissa = is_f16 ? 1.0f + static_cast<float>(state >> 22) / 1024.0f
                                  : 1.0f + static_cast<float>(state >> 25) / 128.0f;
    const int exponent = least + static_cast<int>(state >> 18 & 15);
    return bits_of(std::ldexp((state >> 16 & 1) != 0 ? -mantissa : mantissa, exponent));
  };
  const int lines = by_k ? rows : depth, in_line = by_k ? depth : rows;
  elements.clear();
  for (int line = 0; line < lines; ++line) {
    for (int i = 0; i < in_line; ++i) elements.push_back(next());
    // A NaN between lines shows where it is multiplied, even by 0.
    elements.resize(static_cast<std::size_t>((line + 1) * line_step),
                    bits_of(std::numeric_limits<float>::quiet_NaN()));
  }
}

bool is_product(const ProbeOperand& a, const ProbeOperand& b, const std::vector<float>& c,
                double unit) {
  for (int m = 0; m < a.rows; ++m) {
    for (int n = 0; n < b.rows; ++n) {
      double sum = 0.0, size = 0.0;
      for (int k = 0; k < a.depth; ++k) {
        const double product = static_cast<double>(a.at(m, k)) * b.at(n, k);
        sum += product;
        size += std::abs(product);
      }
      // Not `>`: a NaN must not pass.
      const double deviation = std::abs(c[static_cast<std::size_t>(m * b.rows + n)] - sum);
      if (!(deviation <= (a.depth + 1) * unit * size)) return false;
    }
  }
  return true;
}

ProbeQueue::ProbeQueue(opencl::Runtime& runtime, std::vector<cl::Buffer>& buffers)
    : runtime_(runtime), buffers_(buffers) {
  cl_int status = CL_SUCCESS;
  queue_ = cl::CommandQueue(
      clCreateCommandQueue(runtime.context()(), runtime.device()(), 0, &status), false);
  check(status, "clCreateCommandQueue");
}

cl::Buffer ProbeQueue::buffer(const void* data, std::size_t bytes) {
  cl_int status = CL_SUCCESS;
  const cl_mem_flags flags = CL_MEM_READ_WRITE | (data != nullptr ? CL_MEM_COPY_HOST_PTR : 0);
  buffers_.emplace_back(
      clCreateBuffer(runtime_.context()(), flags, bytes, const_cast<void*>(data), &status), false);
  check(status, "clCreateBuffer");
  return buffers_.back();
}

void ProbeQueue::enqueue(const opencl::KernelObject& kernel, const opencl::Range& range) {
  check(clEnqueueNDRangeKernel(queue_(), kernel.kernel()(), 3, nullptr, range.global.data(),
                               range.local.data(), 0, nullptr, nullptr),
        "clEnqueueNDRangeKernel");
}

void ProbeQueue::read(const cl::Buffer& buffer, std::vector<float>& to) {
  check(clEnqueueReadBuffer(queue_(), buffer(), CL_TRUE, 0, to.size() * sizeof(float), to.data(), 0,
                            nullptr, nullptr),
        "clEnqueueReadBuffer");
}

std::string why_probe_fails(const std::function<std::string()>& probe) {
  try {
    return probe();
  } catch (const Error& error) {
    const std::string_view message = error.what();
    return fmt::format("the driver does not take it: {}", message.substr(0, message.find('\n')));
  }
}

}  // namespace tessera::engines
