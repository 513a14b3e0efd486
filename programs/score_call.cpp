// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include "host/catalog/operators.hpp"
#include "host/loss/partial.hpp"
#include "programs/cli.hpp"
#include "programs/score.hpp"
#include "programs/score_shards.hpp"
#include "programs/score_teacher.hpp"
#include "tessera/tessera.hpp"

namespace tessera::programs {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Calls twice: the first pays for compiling, the second is what a steady call takes.
template <class Call>
ScoreOutcome run_twice(Call&& call) {
  ScoreOutcome outcome;
  const auto first = Clock::now();
  const Dispatch compiled = call();
  outcome.seconds_first = seconds_since(first);
  const auto second = Clock::now();
  outcome.dispatch = call();
  outcome.seconds = seconds_since(second);
  add_distinct(outcome.dispatch.warnings, compiled.warnings);
  return outcome;
}

DType gradient_type(const ScoreOptions& options, DType same) {
  if (options.grad_dtype == "f32") return DType::f32;
  if (options.grad_dtype == "bf16") return DType::bf16;
  if (options.grad_dtype == "f16") return DType::f16;
  return same;
}

/// All outputs but statistics, which only shards hand on.
void add_outputs(Call& call, const ScoreOptions& o, const ScoreArrays& arrays,
                 ScoreResults& results) {
  if (o.mode() != ScoreMode::forward && o.mode() != ScoreMode::value_and_grad) return;
  const Dims leading = arrays.leading();
  const bool reduced = o.loss_options().reduction != Reduction::none;
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    const auto& output = call.op->outputs[i];
    if (std::string_view(output.name).ends_with("statistics")) continue;
    const DType type = output.types == ElementTypes::integer ? DType::i32 : DType::f32;
    const Dims extents = output.shape.extents(
        leading, reduced, [&](char letter) { return arrays.extent_of(letter); });
    call.outputs[i] = results.add(output.name, HostTensor(type, extents)).mutable_view();
  }
}

/// Of every input that was given and has one.
void add_gradients(Call& call, const ScoreOptions& o, const ScoreArrays& arrays,
                   ScoreResults& results) {
  if (!o.grad) return;
  for (std::size_t i = 0; i < call.gradients.size(); ++i) {
    const auto& gradient = call.op->gradients[i];
    const auto& input = call.op->inputs[gradient.of];
    const NpyArray& array = arrays[input.name];
    if (!array) continue;
    const DType type = gradient_type(o, gradient.type.value_or(array.view().dtype()));
    HostTensor& tensor = results.add(gradient.name, HostTensor(type, array.view().extents()));
    call.gradients[i] = arrays.gradient_view(input.name, tensor);
    results.arrays.back().keeps_layout = input.is_weight();
    results.arrays.back().fortran_order = input.is_weight() && array.fortran_order();
  }
}

Pass pass_of(ScoreMode mode) {
  if (mode == ScoreMode::value_and_grad) return Pass::value_and_grad;
  if (mode == ScoreMode::shard) return Pass::forward_partial;
  return mode == ScoreMode::backward ? Pass::backward : Pass::forward;
}

/// The rows of a shard; with a teacher, of both distributions.
void run_partial(Context& context, const Call& call, ScoreResults& results) {
  auto partial = operators::forward_partial(context, call);
  static_cast<PartialResult&>(results.partial) = std::move(partial.result);
  results.partial.divergence_rows = loss::rows_of<linear_distillation::DivergenceSums>(partial.own);
}

/// Merging is host arithmetic, but a name that no implementation has is an error all the same.
void check_implementation_names(const std::vector<std::string>& names) {
  const auto& all = losses();
  for (const auto& name : names) {
    const auto has = [&](const Description& op) {
      const auto rows = op.implementations();
      return std::any_of(rows.begin(), rows.end(), [&](const auto& info) {
        return info.name == name || info.name.starts_with(name + ".");
      });
    };
    if (std::none_of(all.begin(), all.end(), has)) {
      fail_call(fmt::format("--implementation {}: unknown; tessera-info lists the names", name));
    }
  }
}

}  // namespace

HostTensor& ScoreResults::add(const std::string& name, HostTensor tensor) {
  arrays.push_back({name, std::move(tensor)});
  return arrays.back().tensor;
}

const HostTensor* ScoreResults::find(const std::string& name) const {
  for (const auto& array : arrays) {
    if (array.name == name) return &array.tensor;
  }
  return nullptr;
}

ScoreOutcome call_operator(const ScoreOptions& o, const ScoreArrays& arrays, Context& context,
                           ScoreResults& results) {
  Call call(o.op(), pass_of(o.mode()));
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    call.inputs[i] = arrays.view(call.op->inputs[i].name);
  }
  add_outputs(call, o, arrays, results);
  add_gradients(call, o, arrays, results);
  for (const auto& [name, value] : o.values) call.set(name, value);
  call.implementation = ImplementationList(o.implementation);
  if (!o.block_sizes.empty()) call.set_block_sizes(*named_blocks(o.op(), o.block_sizes));
  if (o.workspace_bytes) call.workspace_bytes = static_cast<std::size_t>(*o.workspace_bytes);
  return run_twice([&]() -> Dispatch {
    if (o.mode() == ScoreMode::shard) {
      run_partial(context, call, results);
      return results.partial.dispatch;
    }
    Completion completion = run(context, call);
    completion.wait();
    return completion.dispatch();
  });
}

namespace {

/// Combines and merges shards of an operator's PartialResult.
template <class Shards, class Options>
ScoreOutcome combine_shards(const Shards& shards, const CombineInputs& inputs,
                            const Options& options, ScoreResults& results) {
  decltype(combine(shards, inputs, options)) merged;
  auto outcome = run_twice([&] {
    merged = combine(shards, inputs, options);
    return merged.dispatch;
  });
  for (const auto& output : loss_outputs) {
    results.add(output.name, std::move(merged.*output.owned));
  }
  if constexpr (std::is_same_v<decltype(merged), linear_distillation::Result>) {
    const auto& outputs = OperatorTraits<linear_distillation::Operator>::outputs;
    for (std::size_t i = loss_output_count; i < outputs.size(); ++i) {
      results.add(outputs[i].name, std::move(merged.*outputs[i].owned));
    }
    results.partial = merge(shards);
  } else {
    static_cast<PartialResult&>(results.partial) = merge(shards);
  }
  return outcome;
}

}  // namespace

ScoreOutcome call_combine(ScoreOptions& o, const ScoreArrays& arrays, LossOptions& options,
                          ScoreResults& results) {
  check_implementation_names(o.implementation);
  options = reconcile_shards(o, arrays["class_weight"].view().size());
  const CombineInputs inputs{.labels = arrays["labels"].view(),
                             .weight = arrays["weight"].view(),
                             .class_weight = arrays["class_weight"].view(),
                             .target_indices = arrays["target_indices"].view(),
                             .target_probs = arrays["target_probs"].view(),
                             .targets = arrays["targets"].view()};
  using linear_distillation::Operator;
  const bool has_teacher = have_teacher(o.combine);
  std::vector<linear_distillation::PartialResult> shards;
  for (const auto& folder : o.combine) shards.push_back(read_partials(folder, has_teacher));
  ScoreOutcome outcome;
  if (has_teacher) {
    o = reconcile_teachers(o);
    auto of_teacher = distillation_options(o);
    of_teacher.loss = options;
    of_teacher.loss.wants = every_output<Operator>();
    for (auto& shard : shards) shard.divergence = effective_divergence(of_teacher);
    outcome = combine_shards(shards, inputs, of_teacher, results);
  } else {
    options.wants = every_output();
    const std::vector<PartialResult> plain(shards.begin(), shards.end());
    outcome = combine_shards(plain, inputs, options, results);
  }
  outcome.dispatch.shards.clear();  // files do not say what ran; the shards' reports do
  if (outcome.dispatch.implementation.empty()) outcome.dispatch.implementation = "combine";
  if (outcome.dispatch.device.empty()) outcome.dispatch.device = "host";
  return outcome;
}

}  // namespace tessera::programs
