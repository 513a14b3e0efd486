// SPDX-License-Identifier: Apache-2.0
#include "bench/operator.hpp"

namespace tessera::bench {

using operators::Call;

bool BenchOperator::is_operand(const operators::Input& input) const {
  return input.types == ElementTypes::floating && (is_needed(input.reads) || gives(input.name));
}

/// What backward reads instead of forming it again; merged statistics are more exact than lse.
bool BenchOperator::is_saved(std::string_view output) const {
  const auto* input = op_.input(output);
  return input != nullptr && !reads_in(Pass::value_and_grad, input->reads) && output != "lse";
}

std::optional<ProblemExtents> BenchOperator::shape_of(const GivenShape& given,
                                                      std::int64_t tokens) const {
  const std::string letters = programs::letters_of(op_);
  ProblemExtents shape = given.extents;
  const auto is_given = [&](char letter) { return letter != 'B' && shape.has(letter); };
  if (std::none_of(letters.begin(), letters.end(), is_given)) return std::nullopt;
  const char of_tokens = op_.has_letter('S') ? 'S' : 'B';
  if (given.lacks_tokens && !shape.has(of_tokens)) shape[of_tokens] = tokens;
  return programs::completed(op_, shape);
}

std::int64_t BenchOperator::tokens_of(const ProblemExtents& shape) const {
  return shape['B'] * (op_.has_letter('S') ? shape['S'] : 1);
}

OptionValue BenchOperator::option_of(const ProblemKey& key, std::string_view option) const {
  for (const auto& set : key.set) {
    if (set.name == option) return set.value;
  }
  return op_.option(option)->standard;
}

Dims BenchOperator::extents_of(const ProblemKey& key, const SymbolicShape& shape) const {
  return shape.extents({key.shape['B']}, true, [&](char letter) { return key.shape[letter]; });
}

ArrayOf BenchOperator::array_of(const ProblemKey& key, const operators::Input& input) const {
  const Dims extents = extents_of(key, input.shape);
  if (input.shape.has_leading()) {
    return {input.name, key.x, extents, contiguous_strides(extents), true};
  }
  const Dims strides =
      extents.rank() == 2 && key.w_is_vh ? Dims{1, extents[0]} : contiguous_strides(extents);
  return {input.name, key.w, extents, strides, false};
}

std::vector<ArrayOf> BenchOperator::operands(const ProblemKey& key) const {
  std::vector<ArrayOf> arrays;
  for (const auto& input : op_.inputs) {
    if (is_operand(input)) arrays.push_back(array_of(key, input));
  }
  return arrays;
}

std::vector<ArrayOf> BenchOperator::gradients(const ProblemKey& key) const {
  std::vector<ArrayOf> arrays;
  for (const auto& gradient : op_.gradients) {
    const auto& input = op_.inputs[gradient.of];
    if (!is_operand(input)) continue;
    ArrayOf array = array_of(key, input);
    array.of = array.name;
    array.name = gradient.name;
    array.type = gradient.type.value_or(array.type);
    arrays.push_back(array);
  }
  return arrays;
}

std::vector<ArrayOf> BenchOperator::saved(const ProblemKey& key) const {
  std::vector<ArrayOf> arrays;
  for (const auto& output : op_.outputs) {
    if (!is_saved(output.name)) continue;
    arrays.push_back({.name = output.name, .extents = extents_of(key, output.shape)});
  }
  return arrays;
}

ArrayOf BenchOperator::result(const ProblemKey& key) const {
  const auto& output = op_.outputs[0];
  return {.name = output.name,
          .type = output.types == ElementTypes::floating ? key.x : DType::f32,
          .extents = extents_of(key, output.shape)};
}

std::vector<NamedValue> BenchOperator::own_blocks(const std::vector<std::int64_t>& sizes) const {
  return programs::named_blocks(op_, sizes).value_or(std::vector<NamedValue>());
}

Call BenchOperator::call_of(const Row& row, const Options& options, const Views& views) const {
  Call call(op_, row.pass);
  for (std::size_t i = 0; i < op_.inputs.size(); ++i) {
    const auto& input = op_.inputs[i];
    if (reads_in(row.pass, input.reads)) call.inputs[i] = views.inputs[input.name];
  }
  for (std::size_t i = 0; i < op_.outputs.size(); ++i) {
    const char* output = op_.outputs[i].name;
    const bool writes = is_saved(output) ? row.pass == Pass::forward : row.values();
    if (writes) call.outputs[i] = views.outputs[output];
  }
  for (std::size_t i = 0; i < op_.gradients.size() && has_gradients(row.pass); ++i) {
    call.gradients[i] = views.outputs[op_.gradients[i].name];
  }
  call.set("divergence", static_cast<std::int64_t>(row.problem.divergence));
  call.set("gradient_filter_eps", row.gradient_filter_eps);
  for (const auto& set : row.problem.set) call.set(set.name, set.value);
  call.implementation = row.implementation;
  if (!row.block_sizes.empty()) call.set_block_sizes(row.block_sizes);
  call.knobs = options.knobs;
  if (options.workspace_bytes) {
    call.workspace_bytes = static_cast<std::size_t>(*options.workspace_bytes);
  }
  return call;
}

Dispatch BenchOperator::call(Context& context, const Row& row, const Options& options,
                             const Views& views) const {
  Completion completion = run(context, call_of(row, options, views));
  completion.wait();
  return completion.dispatch();
}

Plan BenchOperator::compile(Context& context, const Row& row, const Options& options,
                            const Views& views) const {
  return operators::plan(context, call_of(row, options, views));
}

CostEstimate BenchOperator::cost_of(Context& context, const Row& row,
                                    const Options& options) const {
  return cost_estimate(context, call_of(row, options, question_of(row)));
}

std::vector<dispatch::Choice> BenchOperator::choices(Context& context, const Row& row,
                                                     const Options& options) const {
  return operators::choices(context, call_of(row, options, question_of(row)));
}

Dispatch BenchOperator::foresee(Context& context, const Row& row, const Options& options) const {
  return operators::foresee(context, call_of(row, options, question_of(row)));
}

std::optional<std::string> BenchOperator::why_not(Context& context, const Row& row,
                                                  const Options& options) const {
  Call call = call_of(row, options, question_of(row));
  call.implementation = {};
  return why_unsupported(context, row.implementation, call);
}

void BenchOperator::add_streamed(Data& data, int threads) const {
  if (!has_labels()) return;
  Context context(ContextOptions{.threads = threads, .host_only = true});
  const auto [b, h, v] = data.key.layer();
  const bool dense = data.key.dense_targets;
  std::vector<float> lse(static_cast<std::size_t>(b)), logprob(dense ? lse.size() : 0);
  Call call(op_, Pass::forward);
  for (std::size_t i = 0; i < op_.inputs.size(); ++i) {
    const std::string_view input = op_.inputs[i].name;
    if (input == "targets" && dense) call.inputs[i] = View::host(data.targets.data(), {b, v});
    if (input == "labels" && !dense) call.inputs[i] = View::host(data.labels.data(), {b});
    for (const auto& [name, tensor] : data.arrays) {
      if (input == name) call.inputs[i] = tensor.view();
    }
  }
  for (std::size_t i = 0; i < op_.outputs.size(); ++i) {
    const std::string_view output = op_.outputs[i].name;
    if (output == "lse") call.outputs[i] = lse;
    if (output == "label_logprob" && dense) call.outputs[i] = logprob;
  }
  call.implementation = "eigen";
  run(context, call).wait();
  data.lse.assign(lse.begin(), lse.end());
  data.label_logprob.assign(logprob.begin(), logprob.end());
}

}  // namespace tessera::bench
