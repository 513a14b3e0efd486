// SPDX-License-Identifier: Apache-2.0
#include "programs/info.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <cctype>
#include <string_view>

#include "host/operators/matrix_unit.hpp"
#include "peaks/peaks.hpp"
#include "programs/dump.hpp"
#include "programs/operators.hpp"
#include "tessera/tessera.hpp"

namespace tessera::programs {
namespace {

DType x_type_of(const InfoOptions& o) { return o.x_dtype.value_or(DType::f32); }
DType w_type_of(const InfoOptions& o) { return o.w_dtype.value_or(x_type_of(o)); }

/// The extents that --shape says, by letter or as numbers in the order of the operator's letters.
ProblemExtents extents_of(const std::string& text, const Description& op) {
  if (has_letters(text)) {
    const ProblemExtents given = parse_letters("--shape", text);
    check_letters("--shape", given, {&op});
    return completed(op, given);
  }
  const auto numbers = parse_integers("--shape", text, 'x');
  // The H of an operator that has none says nothing.
  const std::string letters = numbers.size() == 3 && op.has_letter('V') ? "BHV" : letters_of(op);
  if (numbers.size() != letters.size()) {
    throw CLI::ValidationError(
        "--shape", fmt::format("'{}' is neither {} nor extents by letter, such as {}", text,
                               fmt::join(letters_of(op), "x"), text_of(op, completed(op, {}))));
  }
  ProblemExtents given;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    if (numbers[i] < 0) fail_call("--shape: an extent is negative");
    given[letters[i]] = numbers[i];
  }
  return completed(op, given);
}

/// An array of this shape in the types and the layout that the command line names.
MutableView absent_array(const InfoOptions& o, const SymbolicShape& shape, ElementTypes types) {
  const Dims extents =
      shape.extents({o.extents['B']}, true, [&](char letter) { return o.extents[letter]; });
  Dims strides = contiguous_strides(extents);
  DType type = types == ElementTypes::floating ? x_type_of(o) : DType::f32;
  if (types == ElementTypes::integer) type = DType::i32;
  if (types == ElementTypes::floating && !shape.has_leading()) {
    type = w_type_of(o);
    if (o.w_is_vh && extents.rank() == 2) strides = {1, extents[0]};
  }
  return MutableView::host(nullptr, type, extents, strides);
}

/// A call without memory, since shapes and types are all that a question needs: with what a call
/// has to have, its loss, and all gradients of that.
Call make_question(const InfoOptions& o) {
  Call call(description(o.operator_name), o.pass);
  const Description& op = *call.op;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const auto& input = op.inputs[i];
    const bool saved = o.pass == Pass::backward && std::string_view(input.name) == "statistics";
    const bool cotangent = o.pass == Pass::backward && input.reads == Reads::by_backward;
    if (!is_needed(input.reads) && !saved && !cotangent) continue;
    const MutableView array = absent_array(o, input.shape, input.types);
    call.inputs[i] = array;
    if (!has_gradients(o.pass)) continue;
    for (std::size_t k = 0; k < op.gradients.size(); ++k) {
      if (op.gradients[k].of == i) call.gradients[k] = array;
    }
  }
  if (o.pass == Pass::forward_partial) call.set("vocab_size_total", o.extents['V']);
  for (const auto& set : o.set) call.set(set.name, set.value);
  if (o.pass == Pass::forward || o.pass == Pass::value_and_grad) {
    // The first output is what the operator is for: the loss, or y.
    const DType type = op.outputs[0].types == ElementTypes::floating ? x_type_of(o) : DType::f32;
    call.outputs[0] = MutableView::host(nullptr, type, operators::output_extents(call, 0));
  }
  call.implementation = ImplementationList(o.implementation);
  if (!o.block_sizes.empty()) call.set_block_sizes(*named_blocks(op, o.block_sizes));
  if (o.workspace_bytes) call.workspace_bytes = static_cast<std::size_t>(*o.workspace_bytes);
  return call;
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

Json verdicts(Context& context, const InfoOptions& o, Call call, const std::string& chosen) {
  Json result = Json::array();
  call.implementation = {};
  for (const auto& info : call.op->implementations()) {
    const auto refusal = why_unsupported(context, info.name, call);
    const bool runs = !refusal && info.name == chosen;
    Json verdict = {{"implementation", info.name}, {"supported", !refusal}, {"runs", runs}};
    if (refusal) {
      verdict["reason"] = *refusal;
    } else {
      if (!runs) verdict["reason"] = why_not_chosen(info, o, chosen);
      const auto [blocks, source] = infer_block_sizes(context, info.name, call);
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
  for (const auto& op : descriptions()) add(op.implementations(), op.name);
  return result;
}

Json considered_to_json(const Plan& plan) {
  Json result = Json::array();
  for (const auto& schedule : plan.considered) {
    Json launches = Json::array();
    for (const auto& launch : schedule.launches) {
      launches.push_back({{"kernel", launch.kernel},
                          {"times", launch.times},
                          {"groups", launch.groups},
                          {"share", launch.share},
                          {"flops", launch.flops},
                          {"bytes", launch.bytes}});
    }
    result.push_back({{"name", schedule.name},
                      {"logits", schedule.logits},
                      {"is_taken", schedule.is_taken},
                      {"reason", schedule.reason},
                      {"predicted_share", schedule.predicted_share},
                      {"predicted_seconds", schedule.predicted_seconds()},
                      {"multiply_seconds", schedule.multiply_seconds},
                      {"memory_seconds", schedule.memory_seconds},
                      {"launch_seconds", schedule.launch_seconds},
                      {"workspace_bytes", schedule.workspace_bytes},
                      {"launches", std::move(launches)}});
  }
  return result;
}

/// Of the machine's peak, what the schedule that was taken can reach at most: the FLOPs credited,
/// over those that its products have time for. null: it has none, or nothing is known of them.
Json bound_of(const Plan& plan, const CostEstimate& cost) {
  for (const auto& schedule : plan.considered) {
    if (!schedule.is_taken) continue;
    double time = 0.0;
    for (const auto& launch : schedule.launches) {
      if (launch.share > 0.0) time += launch.flops / launch.share;
    }
    if (time > 0.0) return static_cast<double>(cost.flops) / time;
  }
  return nullptr;
}

/// Without what the operator has not.
Json request_to_json(const InfoOptions& o) {
  const Description& op = description(o.operator_name);
  Json request = {{"operator", op.name}, {"pass", to_string(o.pass)}};
  for (const char letter : telling_letters(op, o.extents)) {
    request[std::string(1, static_cast<char>(std::tolower(letter)))] = o.extents[letter];
  }
  request["x_dtype"] = to_string(x_type_of(o));
  if (op.has_weights()) {
    request["w_dtype"] = to_string(w_type_of(o));
    request["w_layout"] = o.w_is_vh ? "vh" : "hv";
  }
  for (const auto& set : o.set) request["options"][set.name] = set.text;
  return request;
}

void answer(Context& context, const InfoOptions& o, Json& info) {
  const Call call = make_question(o);
  info["request"] = request_to_json(o);
  std::string chosen;
  try {
    const Plan made = plan(context, call);
    chosen = made.dispatch.implementation;
    Json json = to_json(made.dispatch);
    json["workspace_bytes"] = made.workspace_bytes;
    json["minimum_workspace_bytes"] = made.minimum_workspace_bytes;
    const CostEstimate cost = cost_estimate(context, call);
    if (o.explain) {
      json["considered"] = considered_to_json(made);
      json["bound"] = call.op->has_weights() ? bound_of(made, cost) : Json();
    }
    info["plan"] = std::move(json);
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
  info["verdicts"] = verdicts(context, o, call, chosen);
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
  add_dump(app, o.dump);
  const std::string shape = "What would run";
  std::vector<std::pair<std::string, std::string>> operators;
  for (const auto& op : descriptions()) operators.emplace_back(op.name, op.name);
  o.operator_name = operators.front().first;
  add_choice<std::string>(app, "--operator", o.operator_name, operators,
                          fmt::format("({})", o.operator_name))
      ->group(shape);
  const auto add_integers = [&](const char* name, std::vector<std::int64_t>& target, char separator,
                                const char* description) {
    return app.add_option_function<std::string>(
        name,
        [=, &target](const std::string& text) { target = parse_integers(name, text, separator); },
        description);
  };
  app.add_option("--shape", o.shape,
                 "tokens, hidden and vocabulary, as far as the operator has them (512x2048x32768); "
                 "or extents by letter (Q8/S2048/D128): B is the leading axes, and one left out is "
                 "1, or that of S (T), Q (K), D (E), H (G)")
      ->type_name("BxHxV|LETTERS")
      ->group(shape);
  add_set(app, o.set, "an option of the operator, such as causal=lower_right; may be repeated")
      ->group(shape);
  const std::vector<std::pair<std::string, std::optional<DType>>> types = {
      {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};
  add_choice(app, "--x-dtype", o.x_dtype, types, "type of x, or of the logits (f32)")->group(shape);
  add_choice(app, "--w-dtype", o.w_dtype, types, "type of w (that of x)")->group(shape);
  add_choice<bool>(app, "--w-layout", o.w_is_vh, {{"hv", false}, {"vh", true}},
                   "[H, V] (hv) or [V, H]")
      ->group(shape);
  add_choice<Pass>(app, "--pass", o.pass,
                   {{"forward", Pass::forward},
                    {"backward", Pass::backward},
                    {"value_and_grad", Pass::value_and_grad},
                    {"forward_partial", Pass::forward_partial}},
                   "(value_and_grad, or forward)")
      ->group(shape);
  add_list(app, "--implementation", o.implementation,
           "implementations to try, in this order (opencl,eigen)")
      ->group(shape);
  add_integers("--block-sizes", o.block_sizes, ',', "block sizes to plan with")
      ->type_name("B,H,V")
      ->group(shape);
  add_integer(app, "--workspace-bytes", o.workspace_bytes, "upper bound on scratch memory")
      ->group(shape);
  app.add_flag("--explain", o.explain, "why this schedule, and which launches it comes to")
      ->group(shape);
  app.add_option("--facts", o.facts, "plan for a machine that is not here: h100, mi300x, cpu-64")
      ->type_name("NAME")
      ->group(shape);
}

void check_info_options(const CLI::App& app, InfoOptions& o) {
  if (o.shape.empty()) {
    for (const char* name :
         {"--operator", "--set", "--x-dtype", "--w-dtype", "--w-layout", "--pass",
          "--implementation", "--block-sizes", "--workspace-bytes", "--explain", "--facts"}) {
      if (app.count(name) > 0) fail_call(fmt::format("{}: goes with --shape only", name));
    }
  }
  if (!o.facts.empty() && (o.peaks || !o.device.empty() || !o.dump.empty())) {
    fail_call("--facts: the machine is not here; goes with none of --device, --peaks and --dump");
  }
  const Description& op = description(o.operator_name);
  if (!o.shape.empty()) o.extents = extents_of(o.shape, op);
  for (auto& set : o.set) set.value = value_of(op, set);
  if (app.count("--pass") == 0 && !op.has(o.pass)) o.pass = Pass::forward;
  if (!o.shape.empty() && !op.has(o.pass)) {
    fail_call(fmt::format("--pass: {} has no {}", op.name, to_string(o.pass)));
  }
  if (!o.block_sizes.empty() && !named_blocks(op, o.block_sizes)) {
    throw CLI::ValidationError("--block-sizes", fmt::format("takes {} numbers, {}",
                                                            op.block_sizes.size() == 3   ? "three"
                                                            : op.block_sizes.size() == 2 ? "two"
                                                                                         : "other",
                                                            block_sizes_text(op)));
  }
  if (!op.has_weights()) {
    for (const char* name : {"--w-dtype", "--w-layout"}) {
      if (app.count(name) > 0) fail_call(fmt::format("{}: {} has no w", name, op.name));
    }
  }
  if (o.workspace_bytes && *o.workspace_bytes < 0) {
    fail_call(fmt::format("--workspace-bytes {} is negative", *o.workspace_bytes));
  }
}

Json gather_info(const InfoOptions& o) {
  Json info = provenance();
  info["devices"] = Json::array();
  std::vector<std::string> warnings;
  Context context = make_context(o.device, {}, warnings, o.facts, o.dump);
  const auto found = o.facts.empty() ? devices() : std::vector{context.device_info()};
  for (const auto& device : found) info["devices"].push_back(to_json(device));
  info["device"] = context.has_device() ? to_json(context.device_info()) : Json(nullptr);
  if (const auto state = operators::wgmma_state(context)) info["wgmma"] = *state;
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
