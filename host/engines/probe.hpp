// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "host/opencl/call.hpp"
#include "host/opencl/errors.hpp"
#include "tessera/dtype.hpp"

/// A product that a device is asked for before an engine trusts it (gates.cpp, wgmma_probe.cpp).
namespace tessera::engines {

/// An operand: `rows` of m or n, each with `depth` elements of k.
struct ProbeOperand {
  int rows, depth;
  bool by_k;                 ///< k is contiguous in memory, else m or n
  int line_step;             ///< elements from one contiguous line to the next, with NaNs between
  DType type = DType::bf16;  ///< or f16
  std::vector<std::uint16_t> elements{};  ///< their bits

  /// Fills it with values of all signs and of many exponents, subnormal f16 among them. `state`: of
  /// their generator.
  void fill(std::uint32_t& state);
  float at(int row, int k) const {
    const std::uint16_t bits =
        elements[static_cast<std::size_t>(by_k ? row * line_step + k : k * line_step + row)];
    return type == DType::f16 ? static_cast<float>(f16::from_bits(bits))
                              : static_cast<float>(bf16::from_bits(bits));
  }
};

/// True: c[a.rows][b.rows] is the product, up to `unit` of what is summed for each addition.
bool is_product(const ProbeOperand& a, const ProbeOperand& b, const std::vector<float>& c,
                double unit);

/// Commands that wait for nothing of the caller's: on a queue of their own, since the context's may
/// be the caller's, out of order or waiting for something. Whatever fails is an Error.
class ProbeQueue {
 public:
  /// Buffers are added to `buffers`, which is to outlive the probe.
  ProbeQueue(opencl::Runtime& runtime, std::vector<cl::Buffer>& buffers);
  /// null: of any content.
  cl::Buffer buffer(const void* data, std::size_t bytes);
  cl::Buffer buffer(const ProbeOperand& operand) {
    return buffer(operand.elements.data(), operand.elements.size() * sizeof(operand.elements[0]));
  }
  template <class... Arguments>
  void launch(opencl::KernelObject& kernel, const opencl::Range& range,
              const Arguments&... arguments) {
    cl_uint index = 0;
    const auto set = [&](const auto& argument) {
      if constexpr (std::is_same_v<std::decay_t<decltype(argument)>, cl::Buffer>) {
        return kernel.set_memory(index++, argument(), 0);
      } else {
        return kernel.set(index++, argument);
      }
    };
    (check(set(arguments), "clSetKernelArg"), ...);
    enqueue(kernel, range);
  }
  /// Behind all of them.
  void read(const cl::Buffer& buffer, std::vector<float>& to);

 private:
  void check(cl_int status, const char* function) const {
    opencl::check(status, function, runtime_.info().name, "probing products");
  }
  void enqueue(const opencl::KernelObject& kernel, const opencl::Range& range);

  opencl::Runtime& runtime_;
  std::vector<cl::Buffer>& buffers_;
  cl::CommandQueue queue_;
};

/// The answer of `probe`, or the first line of the Error that it ends with.
std::string why_probe_fails(const std::function<std::string()>& probe);
constexpr const char* wrong_tile = "a tile that the device computed so is wrong";

}  // namespace tessera::engines
