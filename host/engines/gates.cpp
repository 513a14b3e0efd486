// SPDX-License-Identifier: Apache-2.0
#include "host/engines/gates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "host/engines/probe.hpp"

namespace tessera::engines {
namespace {

constexpr int probe_depth = 37;     ///< odd, and more than the steps that main loops unroll
constexpr int probe_row_step = 40;  ///< lines begin at multiples of 16 bytes, as wgmma takes them
constexpr int probe_rows = 13;      ///< odd and prime, so that strips of any height end in part

Product product_of(const Engine& engine, DType type) {
  return {.m = probe_rows,
          .n = engine.tile_n(),
          .k = probe_depth,
          .a = {type, Layout::along_second},
          .b = {type}};
}
std::string options_of(const Engine& engine, DType type) {
  const Product product = product_of(engine, type);
  return engine.options() + engine.options(product, "PROBE") + engine.options(product, "PACK");
}

std::string probe(opencl::Runtime& runtime, const Engine& engine, DType type,
                  std::vector<cl::Buffer>& buffers) {
  const Product product = product_of(engine, type);
  const int columns = static_cast<int>(product.n);
  ProbeOperand a{probe_rows, probe_depth, true, probe_row_step, type};
  ProbeOperand b{columns, probe_depth, true, probe_row_step, type};
  std::uint32_t state = 1;
  a.fill(state);
  b.fill(state);
  const Cut cut = engine.cut(product, 1);
  const std::int64_t parts = engine.parts(product.m, cut, 1);
  const auto bytes_of = [](std::int64_t words) {
    return static_cast<std::size_t>(std::max<std::int64_t>(words, 1)) * sizeof(float);
  };
  // Behind the product is whether the kernel was built as it was asked for.
  std::vector<float> result(static_cast<std::size_t>(probe_rows * columns + 1),
                            std::numeric_limits<float>::quiet_NaN());
  ProbeQueue queue(runtime, buffers);
  const auto a_at = queue.buffer(a), b_at = queue.buffer(b);
  const auto packed = queue.buffer(nullptr, bytes_of(columns * engine.operand_words(product)));
  const auto scratch = queue.buffer(nullptr, bytes_of(engine.scratch_words(cut, parts, 1, 1)));
  const auto c = queue.buffer(result.data(), result.size() * sizeof(float));

  const opencl::Specialisation program{.file = "engines/probe.cl",
                                       .options = options_of(engine, type),
                                       .engine = engine.folder(),
                                       .patched_items = engine.patched_items()};
  const auto pack = runtime.programs().kernel(program, "pack_probe");
  const auto multiply = runtime.programs().kernel(program, "probe");
  queue.launch(*pack, {{1, 1, 1}, {1, 1, 1}}, b_at, cl_int{probe_row_step}, packed,
               cl_int{probe_depth});
  queue.launch(*multiply, engine.launch_range(parts, 1, 1), a_at, cl_int{probe_row_step},
               cl_int{probe_rows}, packed, cl_int{probe_depth}, c, scratch,
               engine.call(cut, parts, 1, 1));
  queue.read(c, result);
  if (result.back() == 0.0f) return "the driver's compiler does not target what it needs";
  // Matrix units cut sums off instead of rounding them.
  return is_product(a, b, result, 0x1p-23) ? "" : wrong_tile;
}

}  // namespace

int capability(const opencl::DeviceFacts& facts) {
  int number = 0;
  if (facts.architecture.starts_with("sm_")) {
    const char* const end = facts.architecture.data() + facts.architecture.size();
    std::from_chars(facts.architecture.data() + 3, end, number);
  }
  return number;
}

std::string register_option(const opencl::DeviceFacts& facts, std::int64_t most,
                            std::int64_t items) {
  // A description says nothing of extensions; PoCL's driver of NVIDIA's devices has not this one.
  const bool takes_option = facts.extensions.empty() ||
                            facts.extensions.find("cl_nv_compiler_options") != std::string::npos;
  if (capability(facts) == 0 || !takes_option) return {};
  constexpr std::int64_t of_item = 255, of_group = 65536;
  return fmt::format(" -cl-nv-maxrregcount={}", std::min({most, of_item, of_group / items}));
}

std::string Gates::why_closed(opencl::Runtime& runtime, const Engine& engine, DType type,
                              const std::function<std::string()>& why_not_reported) {
  const std::lock_guard lock(mutex_);
  // Facts change in tests alone, which pretend to have another device.
  if (facts_ != runtime.facts()) known_.clear();
  facts_ = runtime.facts();
  const std::string shape = engine.name() + options_of(engine, type);
  if (const auto found = known_.find(shape); found != known_.end()) return found->second;
  std::string reason = why_not_reported();
  if (reason.empty()) {
    reason = why_probe_fails([&] { return probe(runtime, engine, type, buffers_); });
  }
  known_.emplace(shape, reason);
  return reason;
}

}  // namespace tessera::engines
