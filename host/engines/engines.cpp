// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "host/arguments/workspace.hpp"
#include "host/dispatch/knobs.hpp"
#include "host/engines/cpu.hpp"
#include "host/engines/engine.hpp"
#include "host/opencl/specialise.hpp"
#include "tessera/error.hpp"

namespace tessera::engines {
namespace {

/// The list: a line an engine, best first. Never destroyed, like the tables made of it.
std::vector<EngineEntry>& list() {
  static auto& all = *new std::vector<EngineEntry>{
      cpu_engine(),
      wgmma_engine(),
      mma_engine(),
      simt_engine(),
  };
  return all;
}

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

const std::vector<EngineEntry>& all_engines() { return list(); }

const EngineEntry& engine_entry(const std::string& name) {
  for (const auto& entry : list()) {
    if (entry.name == name) return entry;
  }
  throw Error(ErrorCode::invalid_argument, "there is no engine \"" + name + "\"");
}

std::vector<NamedValue> row_knobs(const Engine& engine) {
  return {{"lanes", engine.row_pass().lanes}, {"group", engine.row_pass().items}};
}

EngineShapes shapes_with(const EngineEntry& entry, const opencl::DeviceFacts& facts,
                         const Operands& operands, const std::vector<NamedValue>& given,
                         opencl::Runtime* runtime, std::vector<std::string>& notes) {
  auto shapes = entry.shapes(facts, operands, runtime, notes);
  const auto knobs_of = [&](const Engine& engine) {
    return operands.rows ? row_knobs(engine) : engine.knobs();
  };
  EngineShapes all;
  for (const auto& knob : given) {
    const auto has = [&](const auto& shape) {
      return dispatch::value_of(knobs_of(*shape), knob.name).has_value();
    };
    if (all.empty()) {
      std::vector<std::string> unused;
      all = entry.variants(facts, operands, runtime, unused);
    }
    if (std::none_of(all.begin(), all.end(), has)) continue;  // the operator's, or nobody's
    std::vector<std::int64_t> legal;
    EngineShapes matching;
    for (const auto& shape : all) {
      const auto value = dispatch::value_of(knobs_of(*shape), knob.name).value_or(0);
      legal.push_back(value);
      if (value == knob.value) matching.push_back(shape);
    }
    if (matching.empty()) dispatch::throw_illegal_knob(knob, legal, "opencl." + entry.name);
    shapes = all = std::move(matching);
  }
  return shapes;
}

void add_engine(EngineEntry entry) { list().push_back(std::move(entry)); }

Rates Engine::rates(const Product&) const {
  const double groups = static_cast<double>(slots());
  return {.flops = 7e9 * groups,
          .bytes = 1e9 * groups,
          .launch = 5e-6,
          .cached_bytes = 4.0 * static_cast<double>(cached_words())};
}

// The format of cl_kernels/engines/panels.cl: 16 bits by pairs, in place a row in every second.
std::string Engine::options(const Stored& stored) const {
  return stored.type == DType::f32 ? ""
         : stored.in_place         ? " -DSTORED_PAIRS=2"
                                   : " -DSTORED_PAIRS=1";
}

std::string Engine::options(const Product& product, std::string_view name) const {
  std::string options;
  for (const auto& option : product_options(product)) {
    options += fmt::format(" -D{}_{}={}", name, option.name, option.value);
  }
  return options;
}

std::int64_t Engine::operand_words(const Stored& stored, std::int64_t depth) const {
  return stored.type == DType::f32 || stored.in_place ? depth : ceil_div(depth, 2);
}

opencl::Range Engine::launch_range(std::int64_t part_count, std::int64_t panels,
                                   std::int64_t shrink) const {
  panels = std::max<std::int64_t>(panels, 1);
  const std::int64_t of_parts = groups(part_count, shrink);
  return {{size(of_parts) * group_size(),
           size(ceil_div(panels, panels_per_group(of_parts, panels))), 1},
          {group_size(), 1, 1}};
}

kernels::engine_call Engine::call(const Cut& cut, std::int64_t part_count, std::int64_t panels,
                                  std::int64_t shrink) const {
  panels = std::max<std::int64_t>(panels, 1);
  const auto narrow = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  return {.group_words = cut.group_words,
          .own = {cut.own[0], cut.own[1]},
          .tile_m = narrow(cut.tile_m),
          .k_step = narrow(cut.k_step),
          .panels_per_group = narrow(panels_per_group(groups(part_count, shrink), panels)),
          .parts = narrow(part_count)};
}

std::int64_t Engine::launch_groups(std::int64_t part_count, std::int64_t panels,
                                   std::int64_t shrink) const {
  panels = std::max<std::int64_t>(panels, 1);
  const std::int64_t of_parts = groups(part_count, shrink);
  return of_parts * ceil_div(panels, panels_per_group(of_parts, panels));
}

std::int64_t Engine::scratch_words(const Cut& cut, std::int64_t part_count, std::int64_t panels,
                                   std::int64_t shrink) const {
  return launch_groups(part_count, panels, shrink) * cut.group_words;
}

std::int64_t Engine::panel_rows(std::int64_t count) const {
  const std::int64_t most = panel_items() > 1 ? 16 : 32;
  count = std::max<std::int64_t>(count, 1);
  const std::int64_t block = stored_block();
  const std::int64_t least = round_up(ceil_div(count, opencl::max_second_groups), block);
  return std::max(least,
                  std::min(round_up(ceil_div(count, 2 * slots()), block), round_up(most, block)));
}

opencl::Range Engine::copy_range(std::int64_t elements, std::int64_t rows) const {
  // A work-group of a GPU fills its lanes; on a CPU a work-item is a loop of its own.
  const std::int64_t group = panel_items() > 1 ? 64 : 1;
  const std::int64_t steps = std::max<std::int64_t>(1, ceil_div(elements, pack_step()));
  return opencl::with_second({{size(round_up(steps, group)), 1, 1}, {size(group), 1, 1}}, rows);
}

opencl::Range Engine::pack_range(std::int64_t elements, std::int64_t panels) const {
  if (panel_items() == 1) return copy_range(elements, panels);
  const std::int64_t steps = std::max<std::int64_t>(1, ceil_div(elements, PACK_EDGE * pack_step()));
  return opencl::with_second({{size(steps * PACK_GROUP), 1, 1}, {PACK_GROUP, 1, 1}},
                             panels * ceil_div(tile_n(), PACK_EDGE));
}

opencl::Range Engine::panel_range(std::int64_t second, std::int64_t panels) const {
  constexpr std::int64_t most = 64;  // enough for any device, and allowed along the third axis
  const std::int64_t third = panel_items() > 1 ? std::clamp<std::int64_t>(panels, 1, most) : 1;
  return {{size(panel_items()), size(second), size(third)}, {size(panel_items()), 1, 1}};
}

opencl::Range Engine::columns_range(std::int64_t groups, std::int64_t words) const {
  if (panel_items() == 1) return opencl::per_element(words, groups);
  constexpr std::int64_t group = 64;
  return opencl::with_second({{size(groups * group), 1, 1}, {size(group), 1, 1}}, words);
}

std::int64_t default_workspace_bytes(const opencl::DeviceFacts& facts, std::int64_t columns) {
  return facts.is_gpu && facts.global_memory_bytes > 0
             ? facts.global_memory_bytes / 16
             : arguments::default_workspace_bytes(columns, facts.compute_units);
}

std::int64_t units_of(const opencl::DeviceFacts& facts) {
  return std::clamp<std::int64_t>(facts.compute_units, 1, std::int64_t{1} << 20);
}

std::string device_class(const opencl::DeviceFacts& facts) {
  if (facts.is_cpu) return fmt::format("cpu-{}-lanes", cpu_lanes(facts));
  if (!facts.is_gpu) return "accelerator";
  // The first word, but for one vendor that nobody calls by it.
  std::string vendor;
  for (const char letter : facts.vendor) {
    if (std::isalpha(static_cast<unsigned char>(letter)) == 0) break;
    vendor += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return "gpu-" + (vendor == "advanced" ? "amd" : vendor);
}

std::optional<std::string> beyond_32_bits(
    std::initializer_list<std::pair<const char*, std::int64_t>> extents) {
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 4096;  // room to round up to tiles
  for (const auto& [name, extent] : extents) {
    if (extent > most) return fmt::format("{} is {}, beyond {}", name, extent, most);
  }
  return std::nullopt;
}

}  // namespace tessera::engines
