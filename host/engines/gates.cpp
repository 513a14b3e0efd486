// SPDX-License-Identifier: Apache-2.0
#include "host/engines/gates.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "host/opencl/errors.hpp"
#include "host/opencl/program_cache.hpp"
#include "tessera/dtype.hpp"

namespace tessera::engines {
namespace {

/// Both operands, rows contiguous along k.
struct Probe {
  static constexpr int depth = 37;  ///< odd, and more than the steps that main loops unroll
  static constexpr int row_step = depth + 1;
  static constexpr int rows = 13;  ///< odd and prime, so that strips of any height end in part
  int columns;
  std::vector<bf16> a, b;

  explicit Probe(int columns_of_tile) : columns(columns_of_tile) {
    std::uint32_t state = 1;
    const auto next = [&state] {
      state = state * 1664525u + 1013904223u;  // Numerical Recipes' generator: any spread will do
      const float mantissa = 1.0f + static_cast<float>(state >> 25) / 128.0f;
      const int exponent = static_cast<int>(state >> 20 & 15) - 8;
      return bf16(std::ldexp((state >> 16 & 1) != 0 ? -mantissa : mantissa, exponent));
    };
    for (auto& [operand, count] : {std::pair{&a, rows}, {&b, columns}}) {
      for (int row = 0; row < count; ++row) {
        for (int k = 0; k < depth; ++k) operand->push_back(next());
        // What lies between rows must not be multiplied, even by 0.
        operand->emplace_back(std::numeric_limits<float>::quiet_NaN());
      }
    }
  }
  static float at(const std::vector<bf16>& operand, int row, int k) {
    return static_cast<float>(operand[static_cast<std::size_t>(row * row_step + k)]);
  }
  /// Whether c[rows][columns] is the product, up to one rounding of f32 for each addition.
  bool agrees(const std::vector<float>& c) const {
    for (int m = 0; m < rows; ++m) {
      for (int n = 0; n < columns; ++n) {
        double sum = 0.0, size = 0.0;
        for (int k = 0; k < depth; ++k) {
          const double product = static_cast<double>(at(a, m, k)) * at(b, n, k);
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

Product product_of(const Engine& engine) {
  return {.m = Probe::rows,
          .n = engine.tile_n(),
          .k = Probe::depth,
          .a = DType::bf16,
          .b = DType::bf16,
          .a_layout = Layout::along_second};
}
std::string options_of(const Engine& engine) {
  const Product product = product_of(engine);
  return engine.options() + engine.options(product, "PROBE") + engine.options(product, "PACK");
}

/// What the device makes of it, and behind that whether the kernel was built as it was asked for.
std::vector<float> compute(opencl::Runtime& runtime, const Engine& engine, const Probe& probe,
                           std::vector<cl::Buffer>& buffers) {
  const auto checked = [&](cl_int status, const char* function) {
    opencl::check(status, function, runtime.info().name, "probing products");
  };
  const auto& context = runtime.context();
  const auto buffer = [&](const void* data, std::size_t bytes) {
    cl_int status = CL_SUCCESS;
    const cl_mem_flags flags = CL_MEM_READ_WRITE | (data != nullptr ? CL_MEM_COPY_HOST_PTR : 0);
    buffers.emplace_back(clCreateBuffer(context(), flags, bytes, const_cast<void*>(data), &status),
                         false);
    checked(status, "clCreateBuffer");
    return buffers.back();
  };
  const Product product = product_of(engine);
  const Cut cut = engine.cut(product, 1);
  const std::int64_t parts = engine.parts(product.m, cut, 1);
  const auto bytes_of = [](std::int64_t words) {
    return static_cast<std::size_t>(std::max<std::int64_t>(words, 1)) * sizeof(float);
  };
  std::vector<float> result(static_cast<std::size_t>(Probe::rows * probe.columns + 1),
                            std::numeric_limits<float>::quiet_NaN());
  const std::size_t bytes = result.size() * sizeof(float);
  const auto a = buffer(probe.a.data(), probe.a.size() * sizeof(bf16));
  const auto b = buffer(probe.b.data(), probe.b.size() * sizeof(bf16));
  const auto packed = buffer(nullptr, bytes_of(probe.columns * engine.operand_words(product)));
  const auto scratch = buffer(nullptr, bytes_of(engine.scratch_words(cut, parts, 1, 1)));
  const auto c = buffer(result.data(), bytes);

  const opencl::Specialisation program{"engines/probe.cl", options_of(engine), engine.name()};
  const auto pack = runtime.programs().kernel(program, "pack_probe");
  const auto multiply = runtime.programs().kernel(program, "probe");
  const auto set = [&](opencl::KernelObject& kernel, const auto&... arguments) {
    cl_uint index = 0;
    const auto one = [&](const auto& argument) {
      if constexpr (std::is_same_v<std::decay_t<decltype(argument)>, cl::Buffer>) {
        return kernel.set_memory(index++, argument(), 0);
      } else {
        return kernel.set(index++, argument);
      }
    };
    (checked(one(arguments), "clSetKernelArg"), ...);
  };
  set(*pack, b, cl_int{Probe::row_step}, packed, cl_int{Probe::depth});
  set(*multiply, a, cl_int{Probe::row_step}, cl_int{Probe::rows}, packed, cl_int{Probe::depth}, c,
      scratch, engine.call(cut, parts, 1, 1));
  // A queue of its own: the context's may be the caller's, out of order or waiting for something.
  cl_int status = CL_SUCCESS;
  const cl::CommandQueue queue(clCreateCommandQueue(context(), runtime.device()(), 0, &status),
                               false);
  checked(status, "clCreateCommandQueue");
  const auto launch = [&](const opencl::KernelObject& kernel, const opencl::Range& range) {
    checked(clEnqueueNDRangeKernel(queue(), kernel.kernel()(), 3, nullptr, range.global.data(),
                                   range.local.data(), 0, nullptr, nullptr),
            "clEnqueueNDRangeKernel");
  };
  launch(*pack, {{1, 1, 1}, {1, 1, 1}});
  launch(*multiply, engine.launch_range(parts, 1, 1));
  checked(clEnqueueReadBuffer(queue(), c(), CL_TRUE, 0, bytes, result.data(), 0, nullptr, nullptr),
          "clEnqueueReadBuffer");
  return result;
}

std::string why_probe_fails(opencl::Runtime& runtime, const Engine& engine,
                            std::vector<cl::Buffer>& buffers) {
  try {
    const Probe probe(static_cast<int>(engine.tile_n()));
    const auto found = compute(runtime, engine, probe, buffers);
    if (found.back() == 0.0f) return "the driver's compiler does not target what it needs";
    return probe.agrees(found) ? "" : "a tile that the device computed so is wrong";
  } catch (const Error& error) {
    const std::string_view message = error.what();
    return fmt::format("the driver does not take it: {}", message.substr(0, message.find('\n')));
  }
}

}  // namespace

std::string Gates::why_closed(opencl::Runtime& runtime, const Engine& engine,
                              const std::function<std::string()>& why_not_reported) {
  const std::lock_guard lock(mutex_);
  // Facts change in tests alone, which pretend to have another device.
  if (facts_ != runtime.facts()) known_.clear();
  facts_ = runtime.facts();
  const std::string shape = engine.name() + options_of(engine);
  if (const auto found = known_.find(shape); found != known_.end()) return found->second;
  std::string reason = why_not_reported();
  if (reason.empty()) reason = why_probe_fails(runtime, engine, buffers_);
  known_.emplace(shape, reason);
  return reason;
}

}  // namespace tessera::engines
