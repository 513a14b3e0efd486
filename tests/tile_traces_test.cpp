// SPDX-License-Identifier: Apache-2.0
// The order of copies, waits and bodies of pipelines, event by event as JAX's emit_pipeline has it
// (tests/tile_goldens/make_pipeline_traces.py, whose jax_trace.py says what the events mean).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tessera/tile/pipeline.hpp"

namespace tessera::tile {
namespace {

using Json = nlohmann::json;

/// One operand's index map: per dimension a number, a grid dimension, or a table by step.
IndexMap index_map(const Json& parts, const Shape& grid) {
  return [&parts, &grid](const GridPoint& point) {
    std::int64_t step = 0;
    for (std::size_t d = 0; d < grid.size(); ++d) step = step * grid[d] + point[d];
    const auto part = [&](std::size_t d) -> std::int64_t {
      if (parts[d].is_number()) return parts[d];
      if (parts[d].is_array()) return parts[d][static_cast<std::size_t>(step)];
      return point[static_cast<std::size_t>(std::stoi(parts[d].get<std::string>().substr(1)))];
    };
    switch (parts.size()) {
      case 1:
        return ix(part(0));
      case 2:
        return ix(part(0), part(1));
      default:
        return ix(part(0), part(1), part(2));
    }
  };
}

BlockSpec block_spec(const Json& operand, const Shape& grid) {
  BlockDims dims;
  for (const Json& dim : operand["block"])
    dims.push_back(dim.is_null() ? squeezed() : BlockDim(dim.get<std::int64_t>()));
  const int buffers = operand["buffers"].is_null() ? 2 : operand["buffers"].get<int>();
  return BlockSpec::blocks(std::move(dims), index_map(operand["index"], grid), buffers,
                           operand.value("lookahead", false));
}

/// What the recorder sees, in the goldens' words.
class Traces {
 public:
  explicit Traces(const Json& operands) : operands_(operands) {}

  void record(const ScheduleEvent& event) {
    using Kind = ScheduleEvent::Kind;
    if (event.kind == Kind::step) return;
    const auto key = std::pair(event.core, event.semaphore);
    if (event.kind == Kind::wait) {
      add(event.core, latest_.at(key));
      return;
    }
    const bool out = is_array(event.to);
    // A pipeline's semaphores are named by slot; a synchronous copy has one of its own.
    const auto at = event.semaphore.rfind("slot ");
    const std::string slot = at == std::string::npos ? "0" : event.semaphore.substr(at + 5);
    const std::string& name = out ? event.to : event.from;
    std::string place;
    for (const std::int64_t start : out ? event.to_start : event.from_start)
      place.append(place.empty() ? "" : ",").append(std::to_string(start));
    latest_[key] = std::string(out ? "=" : "?").append(name).append(slot);
    add(event.core,
        std::string(out ? "-" : "+").append(name).append(place).append(":").append(slot));
  }
  void add(int core, const std::string& event) {
    std::string& trace = traces_[core];
    trace.append(trace.empty() ? "" : " ").append(event);
  }
  const std::string& of(int core) { return traces_[core]; }

 private:
  bool is_array(const std::string& name) const {
    for (const Json& operand : operands_) {
      if (operand["name"] == name) return true;
    }
    return false;
  }
  const Json& operands_;
  std::map<std::pair<int, std::string>, std::string> latest_;
  std::map<int, std::string> traces_;
};

template <std::size_t... I>
void launch(Machine& machine, int cores, const PipelineSpec& spec, Traces& traces,
            const std::vector<Array<float>>& arrays, std::index_sequence<I...>) {
  kernel(machine, "trace", tensorcore_mesh(machine, cores), [&](const auto&... refs) {
    emit_pipeline(
        spec, [&](const auto&...) { traces.add(core_index(), "!"); }, refs...);
  })(arrays[I]...);
}

void expect_trace(const Json& vector, DmaMode dma) {
  const auto grid = vector["grid"].get<Shape>();
  const Json& operands = vector["operands"];
  const int cores = static_cast<int>(vector["trace"].size());
  PipelineSpec spec{.grid = grid, .over_cores = cores > 1};
  for (const Json& semantics : vector["semantics"])
    spec.semantics.push_back(semantics == "parallel" ? Semantics::parallel : Semantics::arbitrary);
  Traces traces(operands);
  Machine machine(
      {.dma = dma, .recorder = [&](const ScheduleEvent& event) { traces.record(event); }});
  std::vector<Array<float>> arrays;
  for (const Json& operand : operands) {
    arrays.push_back(machine.empty_ref<float>(operand["name"], operand["array"].get<Shape>()));
    (operand.value("out", false) ? spec.out : spec.in).push_back(block_spec(operand, grid));
  }
  switch (arrays.size()) {
    case 2:
      launch(machine, cores, spec, traces, arrays, std::make_index_sequence<2>());
      break;
    case 3:
      launch(machine, cores, spec, traces, arrays, std::make_index_sequence<3>());
      break;
    default:
      launch(machine, cores, spec, traces, arrays, std::make_index_sequence<4>());
  }
  for (int core = 0; core < cores; ++core)
    EXPECT_EQ(traces.of(core), vector["trace"][static_cast<std::size_t>(core)]) << "core " << core;
  for (const auto& [name, copies] : vector["copies"].items())
    EXPECT_EQ(machine.report().buffer(name).copies, copies.get<int>()) << name;
}

TEST(TileTraces, AsJaxHasThem) {
  std::ifstream stream(TESSERA_GOLDENS "/pipeline_traces.json");
  const auto golden = Json::parse(stream);
  EXPECT_GE(golden["vectors"].size(), 140u);
  for (const Json& vector : golden["vectors"]) {
    SCOPED_TRACE(vector["name"].get<std::string>() + " " + vector["operands"].dump());
    for (const DmaMode dma : {DmaMode::eager, DmaMode::on_wait}) {
      try {
        expect_trace(vector, dma);
      } catch (const TileError& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace tessera::tile
