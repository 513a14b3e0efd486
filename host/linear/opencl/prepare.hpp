// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/dispatch/knobs.hpp"
#include "host/linear/opencl/cost.hpp"
#include "host/linear/opencl/plan.hpp"
#include "host/linear/opencl/reasons.hpp"
#include "host/loss/opencl_programs.hpp"
#include "host/loss/targets.hpp"
#include "host/operators/opencl_operator.hpp"

/// What the rows `opencl.*` of operators have in common whose logits are a product.
namespace tessera::linear {

inline engines::Operands operands_of(const Request& request) {
  const DType w = request.inputs.w.dtype();
  const bool underflows = w == DType::f16 && !has_one_cotangent(request);
  return {
      .a = w,
      .b = request.inputs.x.dtype(),
      .more_f32 = has_gradients(request.loss.pass) && (request.execution.dz_dtype == DType::f32 ||
                                                       request.gradients.grad_bias || underflows),
      .filtered = filters_gradients(request),
      .line_bytes = line_bytes(request.inputs.w)};
}

/// Engine and schedule of a request; `programs` are left to the operator. Throws Error
/// invalid_argument for illegal blocks and knobs, workspace_too_small, out_of_memory.
template <class Prepared>
std::shared_ptr<Prepared> prepare(const Request& request, const std::string& engine_name,
                                  opencl::Runtime& runtime, const Teacher& teacher = {}) {
  const auto result = std::make_shared<Prepared>();
  Prepared& made = *result;
  auto operands = operands_of(request);
  operands.n = loss::counted_rows(request.loss);
  const auto& given = request.loss.call.knobs;
  made.shapes = engines::shapes_with(engines::engine_entry(engine_name), runtime.facts(), operands,
                                     given, runtime.only_plans() ? nullptr : &runtime, made.notes);
  auto choice = make_schedule(request, made.shapes, runtime.facts(), teacher);
  made.engine = std::move(choice.engine);
  made.schedule = std::move(choice.schedule);
  settle_blocks(request, *made.engine, made.schedule, made.block_notes);
  dispatch::check_knobs(given, knobs_of(request, *made.engine, made.schedule),
                        "opencl." + engine_name);
  const auto stored = [&](const engines::Engine& engine) {
    return engine.stored_type(operands.a, operands.b);
  };
  if (stored(*made.shapes.front()) != stored(*made.engine)) {
    made.notes.push_back(
        "bf16 is widened to f32: blocks or memory have room for tiles of half a register only");
  }
  if (has_gradients(request.loss.pass) && stored(*made.engine) != DType::f32) {
    made.notes.push_back(
        made.schedule.dz.type == DType::bf16       ? "dz is rounded to bf16"
        : made.schedule.dz.type == DType::f16      ? "dz is rounded to f16, times a power of two"
        : request.execution.dz_dtype == DType::f32 ? "dz stays f32, as dz_dtype asks"
                                                   : "dz stays f32: grad_bias is summed of it");
  }
  return result;
}

/// The part of a request that these operators share. An operator with a Request of its own
/// overloads `layer_of` beside it.
inline const Request& layer_of(const Request& request) { return request; }

/// The implementations `opencl.*` of such an operator. `Own` is its Request, `Programs` is what it
/// compiles.
template <class Own, class Programs>
class Opencl : public operators::OpenclOperator {
 public:
  using Prepared = operators::PreparedOf<Schedule, Programs>;

  engines::Operands operands(const operators::Request& request) const override {
    return operands_of(layer_of(own(request)));
  }
  std::vector<std::int64_t> multiples(const engines::Engine& engine) const final {
    const auto rule = engine.rule();
    return {rule.n_multiple, rule.k_multiple, rule.m_multiple};
  }
  std::optional<std::string> refuses(const operators::Request& request, const std::string&,
                                     const opencl::DeviceFacts& facts) const final {
    auto reason = loss::why_unsupported(loss::loss_request(request), facts);
    return reason ? reason : own_refuses(own(request), facts);
  }
  std::vector<NamedValue> knobs(const operators::Request& request,
                                const operators::Prepared& prepared) const final {
    return knobs_of(layer_of(own(request)), *prepared.engine, own(prepared).schedule);
  }
  std::vector<operators::Kernel> kernels(const operators::Request& request,
                                         const operators::Prepared& prepared) const final {
    auto all = own_kernels(own(request), own(prepared));
    for (auto& kernel :
         loss::loss_kernels_of(loss::loss_request(request), own(prepared).schedule.chunk_rows)) {
      all.push_back(std::move(kernel));
    }
    return all;
  }
  std::int64_t minimum_workspace_bytes(const operators::Request& request,
                                       const operators::Prepared& prepared,
                                       const opencl::Runtime& runtime) const final {
    const auto r = own(request);
    return linear::minimum_workspace_bytes(layer_of(r), prepared.shapes, runtime.facts(),
                                           teacher(r, runtime.facts()));
  }
  std::vector<ConsideredSchedule> considered(const operators::Request& request,
                                             const operators::Prepared& prepared,
                                             const opencl::Runtime& runtime) const final {
    const auto r = own(request);
    return explain(layer_of(r), prepared.shapes, runtime.facts(), teacher(r, runtime.facts()));
  }
  std::shared_ptr<operators::Prepared> prepare(const operators::Request& request,
                                               const std::string& engine_name,
                                               opencl::Runtime& runtime) const final {
    const auto r = own(request);
    auto made =
        linear::prepare<Prepared>(layer_of(r), engine_name, runtime, teacher(r, runtime.facts()));
    made->programs = own_programs(r, *made->engine, made->schedule);
    return made;
  }
  void enqueue(opencl::Call& call, const operators::Request& request,
               const operators::Prepared& prepared) const final {
    own_enqueue(call, own(request), own(prepared));
  }
  CostEstimate cost(const operators::Request& request,
                    const operators::Prepared& prepared) const final {
    const auto r = own(request);
    CostEstimate cost = own_cost(r, own(prepared));
    const double moved = cost_of(layer_of(r), *prepared.engine, own(prepared).schedule).bytes;
    cost.bytes_moved = std::max(cost.bytes_ideal, static_cast<std::int64_t>(std::min(moved, 9e18)));
    return cost;
  }
  void add_to_key(const operators::Request& request, std::vector<std::int64_t>& key) const final {
    key.push_back(loss::counted_rows(loss::loss_request(request)));
    key.push_back(kernels_can_read(layer_of(own(request)).gradients.grad_w));
    // By which engines serve: a device buffer may begin anywhere.
    key.push_back(operands(request).line_bytes);
  }

 protected:
  virtual Own own(const operators::Request& request) const = 0;
  virtual std::optional<std::string> own_refuses(const Own& request,
                                                 const opencl::DeviceFacts& facts) const = 0;
  virtual Programs own_programs(const Own& request, const engines::Engine& engine,
                                const Schedule& schedule) const = 0;
  /// The kernels that it launches itself, besides those of the rows.
  virtual std::vector<operators::Kernel> own_kernels(const Own& request,
                                                     const Prepared& prepared) const = 0;
  virtual void own_enqueue(opencl::Call& call, const Own& request,
                           const Prepared& prepared) const = 0;
  /// What a call multiplies and reads at least; what it moves follows from its schedule.
  virtual CostEstimate own_cost(const Own& request, const Prepared& prepared) const = 0;
  /// What the schedule has to know of a teacher.
  virtual Teacher teacher(const Own&, const opencl::DeviceFacts&) const { return {}; }

 private:
  static const Prepared& own(const operators::Prepared& prepared) {
    return static_cast<const Prepared&>(prepared);
  }
};

}  // namespace tessera::linear
