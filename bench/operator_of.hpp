// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "bench/operator.hpp"
#include "programs/operators.hpp"
#include "tessera/operators.hpp"

namespace tessera::bench {

/// What the bench needs of an operator and its OperatorTraits say. A description derives from it.
template <class Op>
class OperatorOf : public BenchOperator {
 public:
  using Traits = OperatorTraits<Op>;

  const char* name() const override { return Traits::name; }
  std::vector<ImplementationInfo> implementations() const override {
    return Traits::implementations();
  }
  bool has_weights() const override { return programs::operator_info(Traits::name).has_weights(); }
  bool has_hidden() const override { return programs::operator_info(Traits::name).has_hidden(); }
  bool filters_gradients() const override {
    return requires(typename Op::ExecutionOptions e) { e.gradient_filter_eps; };
  }

  std::vector<ArrayOf> operands(const ProblemKey& key) const override {
    std::vector<ArrayOf> arrays;
    for (const auto& input : Traits::inputs) {
      if (is_operand(input)) arrays.push_back(array_of(key, input));
    }
    return arrays;
  }
  std::vector<ArrayOf> gradients(const ProblemKey& key) const override {
    std::vector<ArrayOf> arrays;
    for (const auto& gradient : Traits::gradients) {
      const auto& input = input_of(gradient);
      if (!is_operand(input)) continue;
      ArrayOf array = array_of(key, input);
      array.of = array.name;
      array.name = gradient.name;
      array.type = gradient.type.value_or(array.type);
      arrays.push_back(array);
    }
    return arrays;
  }
  std::vector<ArrayOf> saved(const ProblemKey& key) const override {
    std::vector<ArrayOf> arrays;
    for (const auto& output : Traits::outputs) {
      if (!is_saved(output.name)) continue;
      arrays.push_back({.name = output.name, .extents = extents_of(key, output.shape)});
    }
    return arrays;
  }

  Dispatch call(Context& context, const Row& row, const Options& options,
                const Views& views) const override {
    const Arguments a = arguments_of(row, views);
    Completion completion = run<Op>(context, row.pass, a.inputs, a.outputs, a.gradients,
                                    options_of(row.problem), execution_of(row, options));
    completion.wait();
    return completion.dispatch();
  }
  CostEstimate cost_of(Context& context, const Row& row, const Options& options) const override {
    const Arguments a = arguments_of(row, question_of(row));
    return cost_estimate(context, row.pass, a.inputs, a.outputs, a.gradients,
                         options_of(row.problem), execution_of(row, options));
  }
  std::optional<std::string> why_not(Context& context, const Row& row,
                                     const Options& options) const override {
    const Arguments a = arguments_of(row, question_of(row));
    auto execution = execution_of(row, options);
    execution.implementation = {};
    return why_unsupported(context, row.implementation, row.pass, a.inputs, a.outputs, a.gradients,
                           options_of(row.problem), execution);
  }

  void add_streamed(Data& data, int threads) const override {
    Context context(ContextOptions{.threads = threads, .host_only = true});
    const auto [b, h, v] = data.key.shape;
    const bool dense = data.key.dense_targets;
    std::vector<float> lse(static_cast<std::size_t>(b)), logprob(dense ? lse.size() : 0);
    Views views;
    if (dense) {
      views.inputs.set("targets", View::host(data.targets.data(), {b, v}));
    } else {
      views.inputs.set("labels", View::host(data.labels.data(), {b}));
    }
    for (const auto& [name, tensor] : data.arrays) views.inputs.set(name, tensor.view());
    typename Op::Outputs outputs;
    for (const auto& output : Traits::outputs) {
      if (output.name == std::string_view("lse")) outputs.*output.view = lse;
      if (dense && output.name == std::string_view("label_logprob")) {
        outputs.*output.view = logprob;
      }
    }
    typename Op::ExecutionOptions execution;
    execution.implementation = "eigen";
    run<Op>(context, Pass::forward, inputs_of(Pass::forward, views), outputs, {}, {}, execution)
        .wait();
    data.lse.assign(lse.begin(), lse.end());
    data.label_logprob.assign(logprob.begin(), logprob.end());
  }

 protected:
  /// The extent that a letter of the traits' shapes stands for: columns, or else H.
  virtual std::int64_t extent_of(const Shape& shape, char letter) const {
    return letter == 'V' || letter == 'T' ? shape.v : shape.h;
  }
  /// What a problem says beside its arrays.
  virtual typename Op::Options options_of(const ProblemKey&) const { return {}; }
  /// Whether calls of the bench are given this input, which they need not have.
  virtual bool gives(std::string_view /*input*/) const { return false; }

 private:
  using Input = InputArgument<typename Op::Inputs>;

  struct Arguments {
    typename Op::Inputs inputs{};
    typename Op::Outputs outputs{};
    typename Op::Gradients gradients{};
  };

  bool is_operand(const Input& input) const {
    return input.types == ElementTypes::floating && (is_needed(input.reads) || gives(input.name));
  }
  static bool is_weight(const Input& input) { return !input.shape.has_leading(); }
  /// What backward reads instead of forming it again; merged statistics are more exact than lse.
  static bool is_saved(std::string_view name) {
    for (const auto& input : Traits::inputs) {
      const bool saved = !reads_in(Pass::value_and_grad, input.reads);
      if (saved && input.name == name) return name != "lse";
    }
    return false;
  }

  Dims extents_of(const ProblemKey& key, const SymbolicShape& shape) const {
    return shape.extents({key.shape.b}, Reduction::mean,
                         [&](char letter) { return extent_of(key.shape, letter); });
  }
  ArrayOf array_of(const ProblemKey& key, const Input& input) const {
    const Dims extents = extents_of(key, input.shape);
    if (!is_weight(input)) return {input.name, key.x, extents, contiguous_strides(extents), true};
    const Dims strides =
        extents.rank() == 2 && key.w_is_vh ? Dims{1, extents[0]} : contiguous_strides(extents);
    return {input.name, key.w, extents, strides, false};
  }

  static typename Op::Inputs inputs_of(Pass pass, const Views& views) {
    typename Op::Inputs inputs;
    for (const auto& input : Traits::inputs) {
      if (reads_in(pass, input.reads)) inputs.*input.view = views.inputs[input.name];
    }
    return inputs;
  }
  static Arguments arguments_of(const Row& row, const Views& views) {
    Arguments a;
    a.inputs = inputs_of(row.pass, views);
    for (const auto& output : Traits::outputs) {
      const bool writes = is_saved(output.name) ? row.pass == Pass::forward : row.values();
      if (writes) a.outputs.*output.view = views.outputs[output.name];
    }
    for (const auto& gradient : Traits::gradients) {
      a.gradients.*gradient.view = views.outputs[gradient.name];
    }
    return a;
  }
  static typename Op::ExecutionOptions execution_of(const Row& row, const Options& options) {
    typename Op::ExecutionOptions e;
    e.implementation = row.implementation;
    if (!options.block_sizes.empty()) from_named(options.block_sizes, e.block_sizes.emplace());
    e.knobs = options.knobs;
    if (options.workspace_bytes) {
      e.workspace_bytes = static_cast<std::size_t>(*options.workspace_bytes);
    }
    if constexpr (requires { e.gradient_filter_eps; }) {
      e.gradient_filter_eps = row.gradient_filter_eps;
    }
    return e;
  }
};

}  // namespace tessera::bench
