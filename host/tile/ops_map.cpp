// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "host/tile/machine_state.hpp"
#include "host/tile/ops.hpp"
#include "host/tile/rows.hpp"
#include "host/tile/text.hpp"

namespace tessera::tile::detail {
namespace {

/// Chunks below which a second thread would take longer to wake than to compute.
constexpr std::int64_t min_chunks_per_thread = 128;

/// Elements that a register's lanes get from one lane: those of operands with one column.
double lane_broadcasts(const Chip& chip, const Shape& domain, Operands operands) {
  double elements = 0;
  for (const Operand& operand : operands) {
    if (operand.region == nullptr || domain.empty() || domain.back() == 1) continue;
    const Shape extents = extents_of(operand);
    if (!extents.empty() && extents.back() == 1) elements += padded_elements(chip, extents);
  }
  return elements;
}

/// out = function of the sources, a chunk of a row at a time.
void map_chunks(Compute& compute, const Plan& plan, ElementType out_type,
                const Function& function) {
  const Loops& loops = plan.loops;
  const std::size_t results = plan.sources.size();
  const std::size_t outer = loops.extents.empty() ? 0 : loops.extents.size() - 1;
  const std::int64_t columns = loops.extents.empty() ? 1 : loops.extents.back();
  std::int64_t rows = 1;
  for (std::size_t d = 0; d < outer; ++d) rows *= loops.extents[d];
  const std::int64_t per_row = (columns + chunk_elements - 1) / chunk_elements;
  std::vector<std::int64_t> strides(results + 1, 1);
  for (std::size_t i = 0; i <= results && !loops.extents.empty(); ++i) {
    strides[i] = loops.strides[i].back();
  }
  const auto body = [&](std::int64_t first, std::int64_t last) {
    Chunks chunks(plan.sources, function);
    std::vector<std::int64_t> row(results + 1), at(results + 1);
    for (std::int64_t unit = first; unit < last; ++unit) {
      const std::int64_t column = unit % per_row * chunk_elements;
      if (unit == first || column == 0) loops.locate(unit / per_row, outer, row.data());
      for (std::size_t i = 0; i <= results; ++i) at[i] = row[i] + column * strides[i];
      const auto count = static_cast<int>(std::min<std::int64_t>(columns - column, chunk_elements));
      const void* values = chunks.values(at.data(), strides.data(), count);
      auto* target = static_cast<std::byte*>(plan.out.target) + at[results] * bits_of(out_type) / 8;
      store_words(values, function.result, count, target, out_type, strides[results]);
    }
  };
  compute.run(rows * per_row, min_chunks_per_thread, std::ref(body));
}

}  // namespace

void map(const char* what, const Region& out, Operands operands, const Function& function,
         const MapCost& cost) {
  MachineState& machine = machine_of_core(what);
  const Chip& chip = machine.options.chip;
  const Shape extents = extents_of(out);
  Plan p = plan(what, extents, operands, out, true);
  const double elements = padded_elements(chip, extents);
  // The vector unit works on whole registers, whatever of them is data. One column is spread over
  // the lanes by the cross-lane unit.
  charge({.vpu_ops = cost.vpu * elements,
          .eup_ops = cost.eup * elements,
          .xlu_ops = lane_broadcasts(chip, extents, operands)});
  if (p.dry) return;
  p.loops.strides.push_back(p.out.strides);
  p.loops.simplify(true);
  map_chunks(*machine.compute, p, type_of(out), function);
}

void iota(const Region& out, int dimension) {
  MachineState& machine = machine_of_core("iota");
  const Shape extents = extents_of(out);
  const auto rank = static_cast<int>(extents.size());
  const int d = dimension < 0 ? dimension + rank : dimension;
  if (d < 0 || d >= rank) {
    refuse("iota", fmt::format("{} has no dimension {}", described(out), dimension), out);
  }
  Plan p = plan("iota", extents, {}, out, false);
  charge({.vpu_ops = padded_elements(machine.options.chip, extents)});
  if (p.dry) return;
  const auto i = static_cast<std::size_t>(d);
  std::vector<std::int32_t> indices(static_cast<std::size_t>(extents[i]));
  std::iota(indices.begin(), indices.end(), 0);
  p.sources.push_back(
      {reinterpret_cast<const std::byte*>(indices.data()), ElementType::i32, ElementType::i32});
  Shape strides(extents.size(), 0);
  strides[i] = 1;
  p.loops.strides = {strides, p.out.strides};
  p.loops.simplify(true);
  map_chunks(*machine.compute, p, type_of(out), {nullptr, nullptr, ElementType::i32});
}

void transpose(const Region& out, const Region& ref) {
  MachineState& machine = machine_of_core("transpose");
  const Chip& chip = machine.options.chip;
  const Shape from = extents_of(ref);
  const Shape to = extents_of(out);
  if (from.size() != 2 || to.size() != 2 || from[0] != to[1] || from[1] != to[0]) {
    refuse("transpose",
           fmt::format("{} is not the transpose of {}, of two dimensions", described(out),
                       described(ref)),
           out);
  }
  if (overlap(ref, out)) {
    refuse("transpose", fmt::format("'{}' overlaps its own transpose", name_of(ref)), out);
  }
  const Elements source = vector_access(ref, AccessKind::read);
  const Elements target = vector_access(out, AccessKind::write);
  // Whole registers go through the cross-lane unit, of the side that has more of them.
  charge({.xlu_ops = std::max(padded_elements(chip, from), padded_elements(chip, to))});
  if (source.data == nullptr || target.target == nullptr) return;
  const auto copy = [&]<class T>(T) {
    const auto* s = static_cast<const T*>(source.data);
    auto* t = static_cast<T*>(target.target);
    // Through a block of its own: the rows of either side may lie a power of two apart and would
    // drive each other out of the cache before a whole line of them is used. 32 rows of 32 elements
    // are whole lines of every type and take 4 KiB at most.
    constexpr std::int64_t block = 32;
    const auto body = [&](std::int64_t first, std::int64_t last) {
      T part[block][block];
      for (std::int64_t i0 = first * block; i0 < std::min(last * block, from[0]); i0 += block) {
        const std::int64_t rows = std::min(block, from[0] - i0);
        for (std::int64_t j0 = 0; j0 < from[1]; j0 += block) {
          const std::int64_t columns = std::min(block, from[1] - j0);
          for (std::int64_t i = 0; i < rows; ++i) {
            const T* row = s + (i0 + i) * source.strides[0] + j0 * source.strides[1];
            for (std::int64_t j = 0; j < columns; ++j) part[j][i] = row[j * source.strides[1]];
          }
          for (std::int64_t j = 0; j < columns; ++j) {
            T* row = t + (j0 + j) * target.strides[0] + i0 * target.strides[1];
            for (std::int64_t i = 0; i < rows; ++i) row[i * target.strides[1]] = part[j][i];
          }
        }
      }
    };
    const std::int64_t grain =
        min_chunks_per_thread * chunk_elements / std::max<std::int64_t>(from[1] * block, 1) + 1;
    machine.compute->run((from[0] + block - 1) / block, grain, std::ref(body));
  };
  switch (bits_of(type_of(ref))) {
    case 32:
      return copy(std::uint32_t{});
    case 16:
      return copy(std::uint16_t{});
    default:
      return copy(std::uint8_t{});
  }
}

}  // namespace tessera::tile::detail
