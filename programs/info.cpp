// SPDX-License-Identifier: Apache-2.0
#include "programs/info.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "peaks/peaks.hpp"
#include "programs/cli.hpp"
#include "tessera/tessera.hpp"

namespace tessera::programs {
namespace {

namespace lce = linear_cross_entropy;

/// A call without memory: shapes and types are all that a question needs.
struct Question {
  lce::Inputs inputs;
  Outputs outputs;
  lce::Gradients gradients;
  LossOptions options;
  lce::ExecutionOptions execution;
};

Question make_question(const InfoOptions& o) {
  const std::int64_t b = o.shape[0], h = o.shape[1], v = o.shape[2];
  const DType x_type = o.x_dtype.value_or(DType::f32);
  const DType w_type = o.w_dtype.value_or(x_type);
  const Dims w_strides = o.w_is_vh ? Dims{1, h} : Dims{v, 1};
  const auto absent = [](DType type, const Dims& extents, const Dims& strides = {}) {
    return MutableView::host(nullptr, type, extents, strides);
  };
  Question q;
  q.inputs.x = absent(x_type, {b, h});
  q.inputs.labels = absent(DType::i32, {b});
  q.inputs.w = absent(w_type, {h, v}, w_strides);
  if (o.pass == Pass::backward) q.inputs.statistics = absent(DType::f32, {b, 2});
  if (o.pass == Pass::forward || o.pass == Pass::value_and_grad) {
    q.outputs.loss = absent(DType::f32, {});
  }
  if (o.pass == Pass::backward || o.pass == Pass::value_and_grad) {
    q.gradients.grad_x = absent(x_type, {b, h});
    q.gradients.grad_w = absent(w_type, {h, v}, w_strides);
  }
  if (o.pass == Pass::forward_partial) q.options.vocab_size_total = v;
  q.execution.implementation = ImplementationList(o.implementation);
  if (!o.block_sizes.empty()) {
    q.execution.block_sizes = {o.block_sizes[0], o.block_sizes[1], o.block_sizes[2]};
  }
  if (o.workspace_bytes) {
    q.execution.workspace_bytes = static_cast<std::size_t>(*o.workspace_bytes);
  }
  return q;
}

/// Why an implementation that could run is not the one that does.
std::string why_not_chosen(const ImplementationInfo& info, const InfoOptions& o,
                           const std::string& chosen) {
  if (!o.implementation.empty()) return "supported; another was asked for with --implementation";
  if (!info.by_default) {
    return fmt::format("supported; runs only when named: --implementation {}", info.name);
  }
  return fmt::format("supported; comes after {}", chosen);
}

Json verdicts(Context& context, const InfoOptions& o, const Question& q,
              const std::string& chosen) {
  Json result = Json::array();
  for (const auto& info : lce::implementations()) {
    lce::ExecutionOptions execution = q.execution;
    execution.implementation = {};
    const auto refusal = lce::why_unsupported(context, info.name, o.pass, q.inputs, q.outputs,
                                              q.gradients, q.options, execution);
    const bool runs = !refusal && info.name == chosen;
    Json verdict = {{"implementation", info.name}, {"supported", !refusal}, {"runs", runs}};
    if (refusal) {
      verdict["reason"] = *refusal;
    } else {
      if (!runs) verdict["reason"] = why_not_chosen(info, o, chosen);
      const auto [blocks, source] =
          lce::infer_block_sizes(context, info.name, o.pass, o.shape[0], o.shape[1], o.shape[2],
                                 q.inputs.x.dtype(), q.inputs.w.dtype());
      // The plan says what the caller's own block sizes become; these are what it would infer.
      verdict["inferred_block_sizes"] = programs::to_json(blocks);
      verdict["inferred_block_source"] = to_string(source);
    }
    result.push_back(std::move(verdict));
  }
  return result;
}

/// One row per name, with the operators that have it.
Json implementations_to_json() {
  Json result = Json::array();
  const auto add = [&](const std::vector<ImplementationInfo>& rows, const char* operator_name) {
    for (const auto& row : rows) {
      auto at = std::find_if(result.begin(), result.end(),
                             [&](const Json& known) { return known.at("name") == row.name; });
      if (at == result.end()) {
        result.push_back({{"name", row.name},
                          {"description", row.description},
                          {"by_default", row.by_default},
                          {"operators", Json::array()}});
        at = result.end() - 1;
      }
      at->at("operators").push_back(operator_name);
    }
  };
  add(lce::implementations(), "linear_cross_entropy");
  add(softmax_cross_entropy::implementations(), "softmax_cross_entropy");
  return result;
}

void answer(Context& context, const InfoOptions& o, Json& info) {
  const Question q = make_question(o);
  info["request"] = {{"operator", "linear_cross_entropy"},
                     {"pass", to_string(o.pass)},
                     {"b", o.shape[0]},
                     {"h", o.shape[1]},
                     {"v", o.shape[2]},
                     {"x_dtype", to_string(q.inputs.x.dtype())},
                     {"w_dtype", to_string(q.inputs.w.dtype())},
                     {"w_layout", o.w_is_vh ? "vh" : "hv"}};
  std::string chosen;
  try {
    const Plan plan =
        lce::plan(context, o.pass, q.inputs, q.outputs, q.gradients, q.options, q.execution);
    chosen = plan.dispatch.implementation;
    Json json = to_json(plan.dispatch);
    json["workspace_bytes"] = plan.workspace_bytes;
    json["minimum_workspace_bytes"] = plan.minimum_workspace_bytes;
    info["plan"] = std::move(json);
    const CostEstimate cost = lce::cost_estimate(context, o.pass, q.inputs, q.outputs, q.gradients,
                                                 q.options, q.execution);
    info["cost"] = {{"flops", cost.flops},
                    {"executed_flops", cost.executed_flops},
                    {"transcendentals", cost.transcendentals},
                    {"bytes_ideal", cost.bytes_ideal},
                    {"bytes_moved", cost.bytes_moved}};
  } catch (const Error& error) {
    // That nothing would run is an answer, not a failure of this program.
    if (error.code() != ErrorCode::unsupported && error.code() != ErrorCode::build_failed) throw;
    info["plan"] = nullptr;
    info["plan_error"] = error.what();
  }
  info["verdicts"] = verdicts(context, o, q, chosen);
}

Json peaks_to_json(peaks::Meter& meter) {
  Json result = Json::array();
  for (const auto& peak : peaks::measure(meter)) {
    Json json = {{"kind", to_string(peak.kind)}, {"unit", unit(peak.kind)}};
    if (peak.samples > 0) {
      json["best"] = peak.best;
      json["median"] = peak.median;
      json["samples"] = peak.samples;
      json["code"] = peak.description;
    } else {
      json["best"] = nullptr;
      json["absent"] = peak.description;
    }
    result.push_back(std::move(json));
  }
  return result;
}

}  // namespace

void add_info_options(CLI::App& app, InfoOptions& o) {
  app.add_option("--device", o.device, "text in a platform's or device's name, P:D, or a TPU (v6e)")
      ->type_name("TEXT");
  app.add_flag("--json", o.json, "print one JSON object");
  app.add_flag("--peaks", o.peaks,
               "measure what the device and the host can do at best (some seconds)");
  const std::string shape = "What would run";
  add_triple(app, "--shape", o.shape, 'x', "tokens x hidden x vocabulary: 512x2048x32768",
             "tokens, hidden, vocabulary")
      ->type_name("BxHxV")
      ->group(shape);
  const std::vector<std::pair<std::string, std::optional<DType>>> types = {
      {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};
  add_choice(app, "--x-dtype", o.x_dtype, types, "type of x (f32)")->group(shape);
  add_choice(app, "--w-dtype", o.w_dtype, types, "type of w (that of x)")->group(shape);
  add_choice<bool>(app, "--w-layout", o.w_is_vh, {{"hv", false}, {"vh", true}},
                   "[H, V] (hv) or [V, H]")
      ->group(shape);
  add_choice<Pass>(app, "--pass", o.pass,
                   {{"forward", Pass::forward},
                    {"backward", Pass::backward},
                    {"value_and_grad", Pass::value_and_grad},
                    {"forward_partial", Pass::forward_partial}},
                   "(value_and_grad)")
      ->group(shape);
  add_list(app, "--implementation", o.implementation,
           "implementations to try, in this order (opencl,eigen)")
      ->group(shape);
  add_triple(app, "--block-sizes", o.block_sizes, ',', "B,H,V", "block sizes to plan with")
      ->type_name("B,H,V")
      ->group(shape);
  add_integer(app, "--workspace-bytes", o.workspace_bytes, "upper bound on scratch memory")
      ->group(shape);
}

void check_info_options(const CLI::App& app, const InfoOptions& o) {
  if (o.shape.empty()) {
    for (const char* name : {"--x-dtype", "--w-dtype", "--w-layout", "--pass", "--implementation",
                             "--block-sizes", "--workspace-bytes"}) {
      if (app.count(name) > 0) fail_call(fmt::format("{}: goes with --shape only", name));
    }
  }
  for (const auto extent : o.shape) {
    if (extent < 0) fail_call("--shape: an extent is negative");
  }
  if (o.workspace_bytes && *o.workspace_bytes < 0) {
    fail_call(fmt::format("--workspace-bytes {} is negative", *o.workspace_bytes));
  }
}

Json gather_info(const InfoOptions& o) {
  Json info = provenance();
  info["devices"] = Json::array();
  for (const auto& device : devices()) info["devices"].push_back(to_json(device));
  std::vector<std::string> warnings;
  Context context = make_context(o.device, {}, warnings);
  info["device"] = context.has_device() ? to_json(context.device_info()) : Json(nullptr);
  info["threads"] = context.threads();
  info["implementations"] = implementations_to_json();
  if (!o.shape.empty()) answer(context, o, info);
  if (o.peaks) {
    if (const auto meter = peaks::device_meter(context)) {
      info["peaks"]["device"] = peaks_to_json(*meter);
    }
    info["peaks"]["host"] = peaks_to_json(*peaks::host_meter(context.threads()));
  }
  info["warnings"] = warnings;
  return info;
}

}  // namespace tessera::programs
