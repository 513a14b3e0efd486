// SPDX-License-Identifier: Apache-2.0
#include "tests/plans/planner.hpp"

#include "host/linear/opencl/cost.hpp"
#include "host/linear/opencl/prepare.hpp"
#include "host/linear_cross_entropy/opencl/run.hpp"
#include "host/linear_cross_entropy/request.hpp"
#include "host/linear_distillation/opencl/run.hpp"

namespace tessera::test {
namespace lce = linear_cross_entropy;
namespace distillation = linear_distillation;

Planner::Planner(const dispatch::Request& checked, bool distills, const std::string& engine,
                 const opencl::DeviceFacts& facts)
    : own_(distills ? std::optional(distillation::request_of(checked)) : std::nullopt),
      request_(distills ? own_->student : lce::request_of(checked)),
      facts_(facts) {
  if (own_) teacher_ = distillation::teacher_of(*own_, facts_);
  auto operands = linear::operands_of(request_);
  operands.n = loss::counted_rows(request_.loss);
  std::vector<std::string> notes;
  shapes_ = engines::shapes_with(engines::engine_entry(engine), facts_, operands,
                                 request_.loss.call.knobs, nullptr, notes);
}

// This file and the header are the adapter: all that the dumps know of the planner.

std::int64_t Planner::minimum_workspace_bytes() const {
  return linear::minimum_workspace_bytes(request_, shapes_, facts_, teacher_);
}
void Planner::plan() { choice_ = linear::make_schedule(request_, shapes_, facts_, teacher_); }

Planned Planner::planned() const {
  const auto& engine = *choice_.engine;
  linear::Schedule schedule = choice_.schedule;
  std::vector<std::string> notes;
  linear::settle_blocks(request_, engine, schedule, notes);
  const auto cost = linear::cost_of(request_, engine, schedule);
  return {.schedule = schedule.name,
          .blocks = schedule.blocks,
          .source = schedule.source,
          .knobs = linear::knobs_of(request_, engine, schedule),
          .engine = engine.name(),
          .tile_n = engine.tile_n(),
          .regions = regions(schedule),
          .scratch_words = schedule.scratch_words,
          .row_words = loss::loss_rows_words(request_.loss, engine.tile_n()),
          .kernels = kernels(schedule),
          .launches = cost.products,
          .seconds = {cost.multiply, cost.memory, cost.launches}};
}

std::vector<NamedValue> Planner::regions(const linear::Schedule& schedule) const {
  const auto of = linear::regions_of(request_, *choice_.engine, schedule);
  std::vector<NamedValue> list = {{"packed rows of x", of.packed_rows},
                                  {"packed columns of x", of.packed_columns},
                                  {"statistics of slices", of.stats},
                                  {"gradient coefficients", of.coefficients},
                                  {"dz", of.dz},
                                  {"grad_x in f32", of.sums_x},
                                  {"grad_w in f32", of.sums_w},
                                  {"grad_bias in f32", of.sums_bias},
                                  {"grad_bias in f32, lane by lane", of.bias_lanes},
                                  {"packed operands and tiles of work-groups", of.groups},
                                  {"tiles of dz that count", of.filter},
                                  {"logits that grad_w has no room for", of.beyond},
                                  {"packed rows of teacher_x", of.packed_teacher},
                                  {"logits of the teacher", of.teacher_logits},
                                  {"sums over both logits", of.teacher_sums},
                                  {"terms of rows", of.teacher_rows}};
  std::erase_if(list, [](const NamedValue& region) { return region.value <= 0; });
  return list;
}

std::vector<operators::Kernel> Planner::kernels(const linear::Schedule& schedule) const {
  const auto& engine = *choice_.engine;
  std::vector<operators::Kernel> list;
  if (own_) {
    distillation::Prepared prepared;
    prepared.engine = choice_.engine;
    prepared.schedule = schedule;
    prepared.programs = distillation::programs_of(*own_, engine, schedule);
    list = distillation::kernels_of(*own_, prepared);
  } else {
    list = lce::kernels_of(request_, schedule, lce::programs_of(request_, engine, schedule));
  }
  for (auto& one : loss::loss_kernels_of(request_.loss, schedule.chunk_rows)) {
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace tessera::test
