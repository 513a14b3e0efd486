// SPDX-License-Identifier: Apache-2.0
#include "tests/plans/planner.hpp"

#include <algorithm>

#include "host/linear_cross_entropy/opencl/run.hpp"
#include "host/linear_cross_entropy/request.hpp"
#include "host/linear_distillation/opencl/run.hpp"
#include "host/loss/targets.hpp"

namespace tessera::test {

Planner::Planner(const dispatch::Request& checked, bool distills, const std::string& engine,
                 const opencl::DeviceFacts& facts)
    : checked_(checked), distills_(distills), facts_(facts) {
  const auto& loss = loss::loss_request(checked);
  auto operands = problem(nullptr)->operands();
  operands.n = loss::counted_rows(loss);
  std::vector<std::string> notes;
  problems_ = linear::problems_of(
      [this](std::shared_ptr<const engines::Engine> shape) { return problem(std::move(shape)); },
      engines::shapes_with(engines::engine_entry(engine), facts_, operands, loss.call.knobs,
                           nullptr, notes));
}

std::shared_ptr<linear::Problem> Planner::problem(
    std::shared_ptr<const engines::Engine> engine) const {
  if (distills_) {
    return std::make_shared<linear_distillation::Problem>(linear_distillation::request_of(checked_),
                                                          std::move(engine));
  }
  return std::make_shared<linear_cross_entropy::Problem>(linear_cross_entropy::request_of(checked_),
                                                         std::move(engine));
}

std::int64_t Planner::minimum_workspace_bytes() const {
  return schedule::minimum_workspace_bytes(problems_, facts_);
}
void Planner::plan() {
  const std::int64_t v = loss::loss_request(checked_).v;
  choice_ = schedule::make_schedule(problems_, facts_, engines::default_workspace_bytes(facts_, v));
}

Planned Planner::planned() const {
  const auto& found = static_cast<const linear::Problem&>(*choice_.problem);
  const auto& engine = found.engine();
  linear::Schedule schedule = choice_.schedule;
  std::vector<std::string> notes;
  linear::settle_blocks(found, schedule, notes);
  const auto cost = schedule::cost_of(schedule.steps, schedule.shrink, engine);
  const auto& loss = loss::loss_request(checked_);
  Planned planned{.schedule = schedule.name,
                  .blocks = {schedule.blocks.n, schedule.blocks.k, schedule.blocks.m},
                  .source = schedule.source,
                  .knobs = linear::knobs_of(found, schedule),
                  .engine = engine.name(),
                  .tile_n = engine.tile_n(),
                  .scratch_words = schedule.scratch_words,
                  .row_words = loss::loss_rows_words(loss, engine.tile_n()),
                  .kernels = linear::kernels_of(linear::programs_of(found, schedule)),
                  .launches = cost.products,
                  .seconds = {cost.multiply, cost.memory, cost.launches}};
  const schedule::Arena arena(schedule.steps, schedule.shrink, engine);
  for (const auto& region : arena.regions()) {
    planned.regions.push_back({region.name, region.words});
  }
  std::ranges::sort(planned.regions, {}, &NamedValue::name);
  for (auto& one : loss::loss_kernels_of(loss, schedule.at.rows)) {
    planned.kernels.push_back(std::move(one));
  }
  std::ranges::sort(planned.kernels, {}, [](const operators::Kernel& kernel) {
    return std::pair(kernel.first.file, kernel.second);
  });
  return planned;
}

}  // namespace tessera::test
