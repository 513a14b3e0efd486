// SPDX-License-Identifier: Apache-2.0
#include "host/engines/wgmma_probe.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "host/engines/gates.hpp"
#include "host/engines/probe.hpp"

namespace tessera::engines {
namespace {

/// Sizes of cl_kernels/engines/wgmma/probe.cl.
constexpr std::size_t items = wgmma_items, map_items = 32, map_bytes = 128;
constexpr int tile = 128, step = 64;

/// An operand that ends in the midst of the tile and of the fifth step, the third of a stage. Lines
/// are multiples of 256 bytes, so that either unit of their stride makes a legal tensor map.
ProbeOperand operand_of(int rows, bool by_k, std::uint32_t& state) {
  constexpr int depth = 4 * step + 21;
  ProbeOperand operand{rows, depth, by_k, by_k ? 384 : 256};
  static_assert(depth <= 384 && tile <= 256);
  operand.fill(state);
  return operand;
}

/// True: a tile is right. One of its operands has k along its lines: each has both ways in two
/// programs.
bool computes(opencl::Runtime& runtime, std::vector<cl::Buffer>& buffers, bool a_by_k,
              bool stride_in_16_bytes) {
  const bool b_by_k = !a_by_k;
  std::uint32_t state = 1;
  const auto a = operand_of(107, a_by_k, state), b = operand_of(83, b_by_k, state);
  std::vector<float> result(static_cast<std::size_t>(a.rows * b.rows),
                            std::numeric_limits<float>::quiet_NaN());
  ProbeQueue queue(runtime, buffers);
  const auto maps = queue.buffer(nullptr, 2 * map_bytes);
  const auto c = queue.buffer(result.data(), result.size() * sizeof(float));

  const auto program = wgmma_probe(a_by_k);
  const auto make_map = runtime.programs().kernel(program, "make_map");
  const auto multiply = runtime.programs().kernel(program, "probe");
  cl_int index = 0;
  for (const auto* operand : {&a, &b}) {
    const auto [columns, rows] = operand->by_k ? std::pair(operand->depth, operand->rows)
                                               : std::pair(operand->rows, operand->depth);
    const std::size_t stride = static_cast<std::size_t>(operand->line_step) * sizeof(bf16);
    queue.launch(*make_map, {{map_items, 1, 1}, {map_items, 1, 1}}, maps, index++,
                 queue.buffer(*operand), static_cast<cl_uint>(columns), static_cast<cl_uint>(rows),
                 static_cast<cl_ulong>(stride_in_16_bytes ? stride / 16 : stride),
                 static_cast<cl_uint>(operand->by_k ? tile : step));
  }
  queue.launch(*multiply, {{items, 1, 1}, {items, 1, 1}}, maps, cl_int{a.rows}, cl_int{b.rows},
               cl_int{a.depth}, c);
  queue.read(c, result);
  // The unit cuts sums off instead of rounding them.
  return is_product(a, b, result, 0x1p-23);
}

}  // namespace

std::string why_no_wgmma(const opencl::DeviceFacts& facts) {
  if (capability(facts) != hopper) {
    return fmt::format("the device is not NVIDIA's sm_90: its architecture is {}",
                       facts.architecture.empty() ? "unknown" : facts.architecture);
  }
  if (facts.sub_group_sizes != std::vector<std::int64_t>{32}) {
    return fmt::format("it needs warps of 32, the device has {}",
                       fmt::join(facts.sub_group_sizes, ", "));
  }
  // NVIDIA's compiler takes 227 KiB there, whatever the driver reports.
  constexpr std::int64_t local_bytes = 48 * 1024;
  if (facts.local_memory_bytes < local_bytes) {
    return fmt::format("it needs {} bytes of local memory, the device reports {}", local_bytes,
                       facts.local_memory_bytes);
  }
  if (facts.max_work_group_size < wgmma_items) {
    return fmt::format("it needs work-groups of {}, the device takes {}", wgmma_items,
                       facts.max_work_group_size);
  }
  return {};
}

opencl::Specialisation wgmma_probe(bool a_by_k) {
  return {.file = "engines/wgmma/probe.cl",
          .options = fmt::format("-DPROBE_A_BY_K={:d} -DPROBE_B_BY_K={:d}", a_by_k, !a_by_k),
          .patched_items = wgmma_items};
}

WgmmaVerdict Wgmma::verdict(opencl::Runtime& runtime) {
  const std::lock_guard lock(mutex_);
  // Facts change in tests alone, which pretend to have another device.
  if (facts_ != runtime.facts()) known_.reset();
  facts_ = runtime.facts();
  if (known_) return *known_;
  WgmmaVerdict verdict{why_no_wgmma(facts_)};
  if (verdict.reason.empty()) {
    verdict.reason = why_probe_fails([&]() -> std::string {
      const auto is_right = [&](bool a_by_k) {
        return computes(runtime, buffers_, a_by_k, verdict.stride_in_16_bytes);
      };
      // NVIDIA's assembler took 16 bytes up to CUDA 12.6, and takes bytes in 13.0. What takes a
      // number of bytes for one of 16 bytes reads beyond the matrix, which may end the context: so
      // that comes last.
      verdict.stride_in_16_bytes = true;
      if (!is_right(true)) {
        verdict.stride_in_16_bytes = false;
        if (!is_right(true)) return wrong_tile;
      }
      return is_right(false) ? "" : wrong_tile;
    });
  }
  return known_.emplace(std::move(verdict));
}

}  // namespace tessera::engines
