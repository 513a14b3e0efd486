// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "host/arguments/workspace.hpp"
#include "host/linear_cross_entropy/tile/setup.hpp"
#include "host/loss/streaming_rows.hpp"
#include "host/operators/tile_machine.hpp"

/// The implementation `tpu_tile`: what the table asks of it.
namespace tessera::linear_cross_entropy {
namespace tpu_tile {
namespace {

/// True when a matrix [h, v] lies as [v, h], row after row.
bool nearer_to_vh(const View& matrix) { return matrix.strides()[0] < matrix.strides()[1]; }

bool is_dense(const View& matrix, bool as_vh) {
  const auto outer = as_vh ? 1 : 0;
  const auto inner = 1 - outer;
  const auto& extents = matrix.extents();
  return (extents[inner] <= 1 || matrix.strides()[inner] == 1) &&
         (extents[outer] <= 1 || matrix.strides()[outer] == extents[inner]);
}

const char* schedule_of(Pass pass) {
  if (pass == Pass::backward) return "two_stage_backward";
  // Each logit is formed twice: backward starts from the statistics that forward leaves.
  return pass == Pass::value_and_grad ? "forward_then_two_stage_backward" : "online_forward";
}

/// What the machine takes at most: both kernels' arrays, and one kernel's VMEM on every core.
std::int64_t machine_bytes(const Request& request, const Setup& setup) {
  const Kernel& k = setup.kernel;
  const Operands& o = setup.operands;
  constexpr std::int64_t word = 4;  // of f32 and i32, bytes
  std::int64_t vmem = 0;
  std::int64_t bytes = 0;
  if (request.loss.wants_values()) {
    vmem = tile::vmem_use(*setup.chip, allocations(Pass::forward, k, o)).declared;
    bytes += 7 * word * k.b;  // labels and statistics
  }
  if (has_gradients(request.loss.pass)) {
    const auto use = tile::vmem_use(*setup.chip, allocations(Pass::backward, k, o));
    vmem = std::max(vmem, use.declared);
    bytes += 5 * word * k.b;  // labels and coefficients
    if (o.grad_x && !setup.direct_grad_x) bytes += word * splits(*setup.chip, k) * k.b * k.h;
    if (o.grad_w && !setup.direct_grad_w) bytes += word * k.h * k.padded_v();
    if (o.grad_bias) bytes += word * std::max<std::int64_t>(k.row_blocks(), 1) * k.v;
  }
  return bytes + vmem * operators::cores_of_grid(*setup.chip);
}

void describe(const Request& request, const Setup& setup, Dispatch& dispatch) {
  operators::describe_tile_call(*setup.chip, dispatch);
  dispatch.schedule = schedule_of(request.loss.pass);
  dispatch.workspace_bytes = table_bytes(request) + machine_bytes(request, setup);
  dispatch.block_source = setup.source;
  dispatch.block_sizes = to_named(setup.kernel.blocks);
  arguments::check_fixed_workspace("tpu_tile, whose blocks fix it,",
                                   request.execution.workspace_bytes, request.execution.workspace,
                                   dispatch.workspace_bytes);
}

Setup legal_setup(const ContextState& state, const Request& request) {
  std::optional<std::string> reason;
  Setup setup = make_setup(state, request, reason);
  if (reason) throw Error(ErrorCode::unsupported, request.loss.operation() + ": " + *reason);
  return setup;
}

}  // namespace

std::int64_t table_bytes(const Request& request) {
  return loss::StreamingRows::bytes(request.loss) +
         3 * loss::StreamingRows::offsets_bytes(request.loss) +
         loss::dense_f32_bytes(request.inputs.bias, request.loss.v) + dispatch::workspace_slack;
}

Setup make_setup(const ContextState& state, const Request& request,
                 std::optional<std::string>& reason) {
  Setup s;
  s.chip = &operators::tile_chip(state);
  const auto& g = request.gradients;
  const bool gradients = has_gradients(request.loss.pass);
  Kernel& k = s.kernel;
  k.b = request.loss.b;
  k.h = hidden(request);
  k.v = request.loss.v;
  k.w_is_vh = nearer_to_vh(request.inputs.w);
  k.grad_w_is_vh = g.grad_w ? nearer_to_vh(g.grad_w) : k.w_is_vh;
  k.scale = request.loss.options.logit_scale;
  k.cap = request.loss.options.logit_soft_cap;
  Operands& o = s.operands;
  o.x_type = tile::element_type(request.inputs.x.dtype());
  o.w_type = tile::element_type(request.inputs.w.dtype());
  o.bias = static_cast<bool>(request.inputs.bias);
  o.class_weight = static_cast<bool>(request.loss.class_weight);
  o.class_terms = loss::StreamingRows::class_terms(request.loss);
  o.entropy = loss::StreamingRows::entropy(request.loss);
  o.argmax = loss::StreamingRows::argmax(request.loss);
  o.smooth = request.loss.options.label_smoothing != 0.0f;
  o.grad_x = gradients && static_cast<bool>(g.grad_x);
  o.grad_w = gradients && static_cast<bool>(g.grad_w);
  o.grad_bias = gradients && static_cast<bool>(g.grad_bias);

  if (request.loss.has_soft_targets()) {
    reason = "it takes labels, no soft targets; use eigen";
    return s;
  }
  if (k.v > std::numeric_limits<std::int32_t>::max()) {
    reason = "its columns are counted in 32 bits, V = " + std::to_string(k.v) + "; use eigen";
    return s;
  }
  const auto refuse = [&] {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      if (pass == Pass::forward ? !request.loss.wants_values() : !gradients) continue;
      const auto violations = check(*s.chip, pass, k, o);
      if (violations.empty()) continue;
      reason = operators::text_of(violations);
      return true;
    }
    return false;
  };
  if (request.execution.block_sizes) {
    k.blocks = *request.execution.block_sizes;
    s.source = BlockSource::caller;
    if (refuse()) return s;
  } else if (const auto chosen = own_blocks(*s.chip, request.loss.pass, k, o)) {
    k.blocks = chosen->first;
    s.source = chosen->second;
  } else {
    k.blocks = smallest_blocks(*s.chip, k.b);
    refuse();
    return s;
  }
  s.copies_x = !operators::rows_are_dense(request.inputs.x);
  s.copies_w = !is_dense(request.inputs.w, k.w_is_vh);
  if (gradients && k.h > 0) {
    s.direct_grad_x = o.grad_x && !g.accumulate.has(Accumulate::grad_x) &&
                      g.grad_x.dtype() == DType::f32 && operators::rows_are_dense(g.grad_x) &&
                      splits(*s.chip, k) == 1;
    s.direct_grad_w = o.grad_w && !g.accumulate.has(Accumulate::grad_w) &&
                      g.grad_w.dtype() == DType::f32 && is_dense(g.grad_w, k.grad_w_is_vh) &&
                      k.padded_v() == k.v;
  }
  return s;
}

namespace {

class TpuTile final : public dispatch::Implementation {
 public:
  TpuTile() : Implementation(operators::tile_info()) {}

  std::optional<std::string> why_unsupported(ContextState& state,
                                             const dispatch::Request& request) const override {
    std::optional<std::string> reason;
    make_setup(state, request_of(request), reason);
    return reason;
  }
  std::unique_ptr<Completion::State> run(const std::shared_ptr<ContextState>& state,
                                         const dispatch::Request& request,
                                         dispatch::Attempt& attempt) const override {
    const auto r = request_of(request);
    const Setup setup = legal_setup(*state, r);
    describe(r, setup, attempt.dispatch);
    return tpu_tile::run(state, r, setup, attempt);
  }
  Plan plan(ContextState& state, const dispatch::Request& request) const override {
    const auto r = request_of(request);
    Plan plan;
    describe(r, legal_setup(state, r), plan.dispatch);
    plan.workspace_bytes = plan.minimum_workspace_bytes = plan.dispatch.workspace_bytes;
    return plan;
  }
  std::pair<std::vector<NamedValue>, BlockSource> infer(
      ContextState& state, const dispatch::Request& request) const override {
    const Setup setup = legal_setup(state, request_of(request));
    return {to_named(setup.kernel.blocks), setup.source};
  }
  /// value_and_grad forms every logit once in each of its two kernels.
  CostEstimate cost(ContextState& state, const dispatch::Request& request) const override {
    const auto r = request_of(request);
    return linear_cross_entropy::cost(r, legal_setup(state, r).kernel.blocks,
                                      r.loss.pass == Pass::value_and_grad ? 2 : 1);
  }
  std::pair<std::string, std::string> tuned_names(const ContextState& state) const override {
    return operators::tuned_names_of_chip(state);
  }
  std::vector<NamedValue> fitted(const ContextState& state, const dispatch::Request& request,
                                 std::vector<NamedValue> blocks,
                                 std::string& changes) const override {
    const auto r = request_of(request);
    auto wanted = BlockSizes::get_default();
    from_named(blocks, wanted);
    const Kernel shape{.b = r.loss.b, .h = hidden(r), .v = r.loss.v};
    return to_named(tpu_tile::fitted(operators::tile_chip(state), wanted, shape, changes));
  }
};

}  // namespace
}  // namespace tpu_tile

std::unique_ptr<dispatch::Implementation> tile_implementation() {
  return std::make_unique<tpu_tile::TpuTile>();
}

}  // namespace tessera::linear_cross_entropy
