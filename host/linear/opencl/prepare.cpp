// SPDX-License-Identifier: Apache-2.0
#include "host/linear/opencl/prepare.hpp"

#include <algorithm>
#include <utility>

#include "host/dispatch/knobs.hpp"
#include "host/loss/opencl_programs.hpp"
#include "host/loss/targets.hpp"

namespace tessera::linear {
namespace {

const Prepared& own(const operators::Prepared& prepared) {
  return static_cast<const Prepared&>(prepared);
}

std::int64_t default_bytes(const operators::Request& request, const opencl::DeviceFacts& facts) {
  return engines::default_workspace_bytes(facts, loss::loss_request(request).v);
}

}  // namespace

void Prepared::describe(Dispatch& dispatch) const {
  const auto& blocks = schedule.blocks;
  dispatch.schedule = schedule.name;
  dispatch.block_sizes = to_named(BlockSizes{blocks.n, blocks.k, blocks.m});
  dispatch.block_source = schedule.source;
  dispatch.workspace_bytes = schedule.scratch_words * 4;
}

std::vector<opencl::Specialisation*> Prepared::all_programs() {
  std::vector<opencl::Specialisation*> list;
  for (auto& [program, name] : programs.kernels) {
    if (!name.empty()) list.push_back(&program);
  }
  return list;
}

schedule::MakeProblems Opencl::problems(const operators::Request& request,
                                        const engines::EngineShapes& shapes) const {
  return problems_of(
      [this, &request](std::shared_ptr<const engines::Engine> engine) {
        return problem(request, std::move(engine));
      },
      shapes);
}

engines::Operands Opencl::operands(const operators::Request& request) const {
  engines::Operands operands;
  ask(request, nullptr, [&](const Problem& problem) { operands = problem.operands(); });
  return operands;
}

std::vector<std::int64_t> Opencl::multiples(const engines::Engine& engine) const {
  const auto rule = engine.rule();
  return {rule.n_multiple, rule.k_multiple, rule.m_multiple};
}

std::optional<std::string> Opencl::refuses(const operators::Request& request, const std::string&,
                                           const opencl::DeviceFacts& facts) const {
  auto reason = loss::why_unsupported(loss::loss_request(request), facts);
  if (!reason) ask(request, nullptr, [&](const Problem& p) { reason = p.refuses(facts); });
  return reason;
}

std::vector<NamedValue> Opencl::knobs(const operators::Request& request,
                                      const operators::Prepared& prepared) const {
  std::vector<NamedValue> knobs;
  ask(request, prepared.engine,
      [&](const Problem& problem) { knobs = knobs_of(problem, own(prepared).schedule); });
  return knobs;
}

std::vector<operators::Kernel> Opencl::kernels(const operators::Request& request,
                                               const operators::Prepared& prepared) const {
  auto all = kernels_of(own(prepared).programs);
  for (auto& kernel :
       loss::loss_kernels_of(loss::loss_request(request), own(prepared).schedule.at.rows)) {
    all.push_back(std::move(kernel));
  }
  return all;
}

std::int64_t Opencl::minimum_workspace_bytes(const operators::Request& request,
                                             const operators::Prepared& prepared,
                                             const opencl::Runtime& runtime) const {
  return schedule::minimum_workspace_bytes(problems(request, prepared.shapes), runtime.facts());
}

std::vector<ConsideredSchedule> Opencl::considered(const operators::Request& request,
                                                   const operators::Prepared& prepared,
                                                   const opencl::Runtime& runtime) const {
  return schedule::explain(problems(request, prepared.shapes), runtime.facts(),
                           default_bytes(request, runtime.facts()));
}

std::shared_ptr<operators::Prepared> Opencl::prepare(const operators::Request& request,
                                                     const std::string& engine_name,
                                                     opencl::Runtime& runtime) const {
  const auto& facts = runtime.facts();
  const auto result = std::make_shared<Prepared>();
  Prepared& made = *result;
  const auto& loss = loss::loss_request(request);
  auto operands = this->operands(request);
  operands.n = loss::counted_rows(loss);
  const auto& given = loss.call.knobs;
  made.shapes = engines::shapes_with(engines::engine_entry(engine_name), facts, operands, given,
                                     runtime.only_plans() ? nullptr : &runtime, made.notes);
  auto choice =
      schedule::make_schedule(problems(request, made.shapes), facts, default_bytes(request, facts));
  const auto& chosen = static_cast<const linear::Problem&>(*choice.problem);
  made.engine = chosen.shared_engine();
  made.schedule = std::move(choice.schedule);
  made.programs = programs_of(chosen, made.schedule);
  settle_blocks(chosen, made.schedule, made.block_notes);
  dispatch::check_knobs(given, knobs_of(chosen, made.schedule), "opencl." + engine_name);
  const auto stored = [&](const engines::Engine& engine) {
    return engine.stored_type(operands.a, operands.b);
  };
  if (stored(*made.shapes.front()) != stored(*made.engine)) {
    made.notes.push_back(
        "bf16 is widened to f32: blocks or memory have room for tiles of half a register only");
  }
  if (has_gradients(loss.pass) && stored(*made.engine) != DType::f32) {
    const DType dz = chosen.dz(made.schedule).type;
    made.notes.push_back(dz == DType::bf16  ? "dz is rounded to bf16"
                         : dz == DType::f16 ? "dz is rounded to f16, times a power of two"
                         : chosen.request().execution.dz_dtype == DType::f32
                             ? "dz stays f32, as dz_dtype asks"
                             : "dz stays f32: grad_bias is summed of it");
  }
  return result;
}

void Opencl::enqueue(opencl::Call& call, const operators::Request& request,
                     const operators::Prepared& prepared) const {
  const Prepared& made = own(prepared);
  ask(request, prepared.engine,
      [&](const Problem& problem) { problem.enqueue(call, made.schedule, made.programs); });
}

CostEstimate Opencl::cost(const operators::Request& request,
                          const operators::Prepared& prepared) const {
  const auto& schedule = own(prepared).schedule;
  CostEstimate cost;
  ask(request, prepared.engine, [&](const Problem& problem) { cost = problem.cost(schedule); });
  const double moved = schedule::cost_of(schedule.steps, schedule.shrink, *prepared.engine).bytes;
  cost.bytes_moved = std::max(cost.bytes_ideal, static_cast<std::int64_t>(std::min(moved, 9e18)));
  return cost;
}

void Opencl::add_to_key(const operators::Request& request, std::vector<std::int64_t>& key) const {
  key.push_back(loss::counted_rows(loss::loss_request(request)));
  ask(request, nullptr, [&](const Problem& problem) {
    key.push_back(kernels_can_read(problem.request().gradients.grad_w));
    // By which engines serve: a device buffer may begin anywhere.
    key.push_back(problem.operands().line_bytes);
  });
}

}  // namespace tessera::linear
