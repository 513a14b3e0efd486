// SPDX-License-Identifier: Apache-2.0
#include "tessera/tile/pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "host/tile/launch.hpp"
#include "host/tile/machine_state.hpp"
#include "host/tile/text.hpp"
#include "host/tile/window.hpp"

namespace tessera::tile {
namespace detail {
namespace {

/// The grid that runs, for program_id and messages, as long as it lives.
class RunningGrid {
 public:
  RunningGrid(CoreState& core, const Shape& extents) : core_(core), outer_(core.place) {
    core.grids.push_back({extents, Shape(extents.size(), 0)});
  }
  ~RunningGrid() {
    core_.grids.pop_back();
    core_.place = outer_;
  }
  RunningGrid(const RunningGrid&) = delete;
  RunningGrid& operator=(const RunningGrid&) = delete;
  void go_to(Shape point) {
    core_.place = std::make_shared<Place>(Place{outer_->core, point});
    core_.grids.back().point = std::move(point);
    core_.machine->scheduler->advance();  // a grid comes to its end
    core_.record(ScheduleEvent::Kind::step, nullptr, nullptr);
    core_.note(StepEvent{core_.place});
  }

 private:
  CoreState& core_;
  std::shared_ptr<const Place> outer_;
};

}  // namespace

void run_pipeline(const PipelineSpec& spec, std::span<const Region> arrays,
                  std::span<const Region> prefetched, Issuer issuer,
                  const std::function<void(const std::vector<Region>&)>& body) {
  CoreState& core = current_core("emit_pipeline");
  const std::string& kernel = core.launch->name;
  if (arrays.size() != spec.in.size() + spec.out.size()) {
    throw TileError(ErrorKind::usage,
                    fmt::format("kernel '{}': a pipeline of {} operands for {} inputs and {} "
                                "outputs",
                                kernel, arrays.size(), spec.in.size(), spec.out.size()));
  }
  for (const Region& array : arrays) core.own(array);
  require(check_semantics(kernel, spec.grid, spec.semantics, issuer));
  CoreGrid share{spec.grid, Shape(spec.grid.size(), 0)};
  if (spec.over_cores) {
    try {
      share = partition_grid(spec.grid, spec.semantics, core.shares(), core.share());
    } catch (const TileError& error) {
      throw TileError(error.kind(), located(core, error.what() + std::string(" (grid")) + ")",
                      error.rule());
    }
  }
  const Walk walk(std::move(share), prefetched);
  if (walk.steps() == 0) return;

  Scope scope;
  std::deque<Window> windows;
  int stages = 1;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const bool output = i >= spec.in.size();
    windows.emplace_back(core, scope, walk, output ? spec.out[i - spec.in.size()] : spec.in[i],
                         arrays[i], output, issuer);
    stages = std::max(stages, windows.back().buffers());
  }

  RunningGrid grid(core, spec.grid);
  for (Window& window : windows) window.fetch_whole();
  // All of the first step's blocks before any of the second's.
  for (int stage = 0; stage + 1 < stages; ++stage) {
    for (Window& window : windows) window.fetch_ahead(stage);
  }
  std::vector<Region> views(windows.size());
  for (std::int64_t step = 0; step < walk.steps(); ++step) {
    grid.go_to(walk.point(step));
    for (Window& window : windows) window.copy_in(step);
    for (Window& window : windows) window.wait_in(step);
    for (std::size_t i = 0; i < views.size(); ++i) views[i] = windows[i].view(step);
    body(views);
    for (Window& window : windows) window.copy_out(step);
    for (Window& window : windows) window.wait_out(step);
    for (Window& window : windows) window.advance(step);
  }
  for (Window& window : windows) window.finish();
  scope.check();
}

}  // namespace detail

BlockIndex BlockIndex::zeros(std::size_t rank) {
  if (rank > max_rank) {
    throw TileError(ErrorKind::block_rule,
                    fmt::format("R1: blocks have at most {} dimensions, not {}", max_rank, rank),
                    "R1");
  }
  BlockIndex index;
  index.rank_ = rank;
  return index;
}

std::int64_t GridPoint::operator[](std::size_t dimension) const {
  if (dimension < point_.size()) return point_[dimension];
  throw TileError(
      ErrorKind::bounds,
      fmt::format("an index map asks for dimension {} of a grid of {}", dimension, point_.size()),
      "R1");
}

const detail::Region& GridPoint::prefetch_operand(std::size_t operand) const {
  if (operand < prefetched_.size()) return prefetched_[operand];
  throw TileError(ErrorKind::bounds,
                  fmt::format("an index map asks for scalar-prefetch operand {} of {}; set "
                              "CallSpec::num_scalar_prefetch",
                              operand, prefetched_.size()));
}

namespace {

std::int64_t of_grid(const char* what, int dimension, bool index) {
  const auto& core = detail::current_core(what);
  if (core.grids.empty()) {
    throw TileError(ErrorKind::usage,
                    fmt::format("{}: {} is for a step of a grid", core.place->text(), what));
  }
  const auto& grid = core.grids.back();
  if (dimension < 0 || static_cast<std::size_t>(dimension) >= grid.extents.size()) {
    throw TileError(ErrorKind::bounds,
                    fmt::format("{}: {}({}) of a grid of {} dimensions", core.place->text(), what,
                                dimension, grid.extents.size()));
  }
  return (index ? grid.point : grid.extents)[static_cast<std::size_t>(dimension)];
}

}  // namespace

std::int64_t program_id(int dimension) { return of_grid("program_id", dimension, true); }
std::int64_t num_programs(int dimension) { return of_grid("num_programs", dimension, false); }

}  // namespace tessera::tile
