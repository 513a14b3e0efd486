// SPDX-License-Identifier: Apache-2.0
#include "host/engines/dot_bf16.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "host/opencl/errors.hpp"
#include "host/opencl/program_cache.hpp"
#include "tessera/dtype.hpp"

namespace tessera::engines {
namespace {

/// What the processor calls itself ("AMD EPYC 9R14"); empty where it does not say.
std::string processor_name() {
  std::string name;
#if defined(__x86_64__)
  std::array<unsigned, 4> part{};
  for (unsigned leaf = 0x80000002u; leaf <= 0x80000004u; ++leaf) {
    if (__get_cpuid(leaf, &part[0], &part[1], &part[2], &part[3]) == 0) return {};
    name.append(reinterpret_cast<const char*>(part.data()), sizeof(part));
  }
  name.resize(std::strlen(name.c_str()));
  const auto first = name.find_first_not_of(' ');
  if (first == std::string::npos) return {};
  name = name.substr(first, name.find_last_not_of(' ') + 1 - first);
#endif
  return name;
}

/// The first gate. An instruction that the processor does not have would end the process.
std::string why_not_reported(const opencl::DeviceFacts& facts, const DeviceInfo& info) {
  if (!facts.is_cpu || !facts.zero_copy) return "the device is not the host's processor";
  bool has_instruction = false;
#if defined(__x86_64__)
  // With what the operating system keeps of the registers: the compiler's runtime asks XGETBV.
  has_instruction = __builtin_cpu_supports("avx512bf16") != 0;
#endif
  if (!has_instruction) return "the processor has no bf16 dot product (avx512bf16)";
  const std::string name = processor_name();
  // Drivers put it into the device's name. A CPU elsewhere, behind a network, has another.
  if (name.empty() || info.name.find(name) == std::string::npos) {
    return fmt::format("the device does not name this processor (\"{}\")", name);
  }
  return {};
}

/// Numbers of the probe: rows of A with one element more than they have, and B in pairs.
struct Probe {
  static constexpr int depth = 37;  ///< odd, and more than the steps that are unrolled
  static constexpr int words = (depth + 1) / 2;
  int rows, columns;
  std::vector<bf16> a;
  std::vector<std::uint32_t> b;

  Probe(int rows_of_tile, int columns_of_tile) : rows(rows_of_tile), columns(columns_of_tile) {
    std::uint32_t state = 1;
    const auto next = [&state] {
      state = state * 1664525u + 1013904223u;  // Numerical Recipes' generator: any spread will do
      const float mantissa = 1.0f + static_cast<float>(state >> 25) / 128.0f;
      const int exponent = static_cast<int>(state >> 20 & 15) - 8;
      return bf16(std::ldexp((state >> 16 & 1) != 0 ? -mantissa : mantissa, exponent));
    };
    for (int m = 0; m < rows; ++m) {
      for (int k = 0; k < depth; ++k) a.push_back(next());
      // The half of a word that is no longer of the row must not be multiplied, even by 0.
      a.emplace_back(std::numeric_limits<float>::quiet_NaN());
    }
    b.assign(static_cast<std::size_t>(words * columns), 0u);
    for (int k = 0; k < depth; ++k) {
      for (int n = 0; n < columns; ++n) {
        const auto bits = static_cast<std::uint32_t>(std::bit_cast<std::uint16_t>(next()));
        b[static_cast<std::size_t>(k / 2 * columns + n)] |= bits << (k % 2 * 16);
      }
    }
  }
  float element_of_b(int k, int n) const {
    const auto pair = b[static_cast<std::size_t>(k / 2 * columns + n)];
    return std::bit_cast<float>(pair >> (k % 2 * 16) << 16);
  }
  /// Whether c[rows][columns] is the product, up to one rounding of f32 for each addition.
  bool agrees(const std::vector<float>& c) const {
    for (int m = 0; m < rows; ++m) {
      for (int n = 0; n < columns; ++n) {
        double sum = 0.0, size = 0.0;
        for (int k = 0; k < depth; ++k) {
          const float left = static_cast<float>(a[static_cast<std::size_t>(m * 2 * words + k)]);
          const double product = static_cast<double>(left) * element_of_b(k, n);
          sum += product;
          size += std::abs(product);
        }
        // Not `>`: a NaN must not pass.
        const double deviation = std::abs(c[static_cast<std::size_t>(m * columns + n)] - sum);
        if (!(deviation <= (depth + 1) * 0x1p-24 * size)) return false;
      }
    }
    return true;
  }
};

/// One tile by the device, with the inner loop of `options`, and behind it whether that loop was
/// built as it was asked for.
std::vector<float> compute(opencl::Runtime& runtime, const std::string& options, const Probe& probe,
                           std::vector<cl::Buffer>& buffers) {
  auto kernel = runtime.programs().kernel({"engines/cpu/probe_bf16.cl", options, "cpu"}, "probe");
  const auto& context = runtime.context();
  const auto buffer = [&](const void* data, std::size_t bytes) {
    cl_int status = CL_SUCCESS;
    const cl_mem_flags flags = CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR;
    cl::Buffer made(clCreateBuffer(context(), flags, bytes, const_cast<void*>(data), &status),
                    false);
    opencl::check(status, "clCreateBuffer", runtime.info().name, "probing bf16 products");
    return made;
  };
  const cl::Buffer a = buffer(probe.a.data(), probe.a.size() * sizeof(bf16));
  const cl::Buffer b = buffer(probe.b.data(), probe.b.size() * sizeof(std::uint32_t));
  std::vector<float> result(static_cast<std::size_t>(probe.rows * probe.columns + 1),
                            std::numeric_limits<float>::quiet_NaN());
  const std::size_t bytes = result.size() * sizeof(float);
  const cl::Buffer c = buffer(result.data(), bytes);
  buffers = {a, b, c};
  const auto checked = [&](cl_int status, const char* function) {
    opencl::check(status, function, runtime.info().name, "probing bf16 products");
  };
  checked(kernel->set_memory(0, a(), 0), "clSetKernelArg");
  checked(kernel->set(1, cl_int{2 * Probe::words}), "clSetKernelArg");
  checked(kernel->set_memory(2, b(), 0), "clSetKernelArg");
  checked(kernel->set(3, cl_int{Probe::words}), "clSetKernelArg");
  checked(kernel->set(4, cl_int{1}), "clSetKernelArg");
  checked(kernel->set_memory(5, c(), 0), "clSetKernelArg");
  // A queue of its own: the context's may be the caller's, out of order or waiting for something.
  cl_int status = CL_SUCCESS;
  const cl::CommandQueue queue(clCreateCommandQueue(context(), runtime.device()(), 0, &status),
                               false);
  checked(status, "clCreateCommandQueue");
  const std::size_t one = 1;
  checked(clEnqueueNDRangeKernel(queue(), kernel->kernel()(), 1, nullptr, &one, &one, 0, nullptr,
                                 nullptr),
          "clEnqueueNDRangeKernel");
  checked(clEnqueueReadBuffer(queue(), c(), CL_TRUE, 0, bytes, result.data(), 0, nullptr, nullptr),
          "clEnqueueReadBuffer");
  return result;
}

DotBf16Gates::Verdict pass_gates(opencl::Runtime& runtime, std::vector<cl::Buffer>& buffers) {
  const auto& facts = runtime.facts();
  using opencl::Bf16Products;
  const bool emulated = facts.bf16_products == Bf16Products::emulated;
  if (facts.bf16_products == Bf16Products::detected) {
    auto reason = why_not_reported(facts, runtime.info());
    if (!reason.empty()) return {DotBf16::none, std::move(reason)};
  }
  // The instruction is used on whole registers; a driver that compiles for narrower ones may have
  // none of that width to give.
  if (!emulated && facts.native_float_vector < 16) {
    return {DotBf16::none, "the driver compiles for vectors of less than 16 floats"};
  }
  const DotBf16 dot = emulated ? DotBf16::emulated : DotBf16::instruction;
  try {
    const auto engine = make_cpu_engine(facts, std::int64_t{1} << 31, dot);
    const Probe probe(static_cast<int>(cpu_micro_m), static_cast<int>(engine->tile_n()));
    const auto options = engine->options() + engine->options({.a = DType::bf16, .b = DType::bf16});
    const auto tile = compute(runtime, options, probe, buffers);
    if (tile.back() == 0.0f) {
      return {DotBf16::none,
              "the driver does not take the instruction: its compiler does not target AVX-512"};
    }
    if (!probe.agrees(tile)) {
      return {DotBf16::none, "a tile that the device computed by pairs is wrong"};
    }
  } catch (const Error& error) {
    const std::string_view message = error.what();
    return {DotBf16::none, fmt::format("the driver does not take the instruction: {}",
                                       message.substr(0, message.find('\n')))};
  }
  return {dot, {}};
}

}  // namespace

DotBf16Gates::Verdict DotBf16Gates::verdict(opencl::Runtime& runtime) {
  const std::lock_guard lock(mutex_);
  // Facts change in tests alone, which pretend to have another device.
  if (!known_ || facts_ != runtime.facts()) {
    facts_ = runtime.facts();
    known_ = pass_gates(runtime, buffers_);
  }
  return *known_;
}

}  // namespace tessera::engines
