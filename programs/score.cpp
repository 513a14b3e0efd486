// SPDX-License-Identifier: Apache-2.0
#include "programs/score.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "programs/cli.hpp"
#include "programs/output_set.hpp"
#include "programs/score_shards.hpp"
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

Dispatch finish(Completion completion) {
  completion.wait();
  return completion.dispatch();
}

/// The arrays that one run writes.
struct Results {
  HostTensor loss, lse, argmax, label_logprob, entropy, z_loss, statistics;
  HostTensor grad_x, grad_w, grad_logits, grad_bias;
  bool grad_w_fortran = false;
  PartialResult partial;

  Outputs output_views() {
    return {.loss = loss.mutable_view(),
            .lse = lse.mutable_view(),
            .argmax = argmax.mutable_view(),
            .label_logprob = label_logprob.mutable_view(),
            .entropy = entropy.mutable_view(),
            .z_loss = z_loss.mutable_view(),
            .statistics = {}};
  }

  void add_to(OutputSet& files, bool bf16_bits) const {
    const auto add = [&](const char* name, const HostTensor& tensor) {
      if (tensor) files.add_tensor(fmt::format("{}.npy", name), tensor, bf16_bits);
    };
    add("loss", loss);
    add("lse", lse);
    add("argmax", argmax);
    add("label_logprob", label_logprob);
    add("entropy", entropy);
    add("z_loss", z_loss);
    add("statistics", statistics);
    add("grad_x", grad_x);
    add("grad_logits", grad_logits);
    add("grad_bias", grad_bias);
    if (grad_w) {
      files.add_array("grad_w.npy", grad_w.data(), grad_w.dtype(), grad_w.extents(), bf16_bits,
                      grad_w_fortran);
    }
    if (!partial.extents.empty() || !partial.rows.empty()) add_partials(files, partial);
  }
};

Results make_results(ScoreMode mode, Reduction reduction, const Dims& leading) {
  Results results;
  if (mode != ScoreMode::forward && mode != ScoreMode::value_and_grad) return results;
  results.loss = HostTensor(DType::f32, reduction == Reduction::none ? leading : Dims());
  results.lse = HostTensor(DType::f32, leading);
  results.argmax = HostTensor(DType::i32, leading);
  results.label_logprob = HostTensor(DType::f32, leading);
  results.entropy = HostTensor(DType::f32, leading);
  results.z_loss = HostTensor(DType::f32, leading);
  return results;
}

DType gradient_type(const ScoreOptions& options, DType same) {
  if (options.grad_dtype == "f32") return DType::f32;
  if (options.grad_dtype == "bf16") return DType::bf16;
  if (options.grad_dtype == "f16") return DType::f16;
  return same;
}

/// One call of either operator; the functions are found beside the type of `inputs`.
template <class Inputs, class Gradients, class Execution>
ScoreOutcome run_mode(ScoreMode mode, Context& context, const Inputs& inputs,
                      const Gradients& gradients, Results& results, const LossOptions& options,
                      const Execution& execution) {
  const Outputs outputs = results.output_views();
  return run_twice([&]() -> Dispatch {
    switch (mode) {
      case ScoreMode::value_and_grad:
        return finish(value_and_grad(context, inputs, outputs, gradients, options, execution));
      case ScoreMode::backward:
        return finish(backward(context, inputs, gradients, options, execution));
      case ScoreMode::shard:
        results.partial = forward_partial(context, inputs, options, execution);
        return results.partial.dispatch;
      default:
        return finish(forward(context, inputs, outputs, options, execution));
    }
  });
}

template <class Execution>
Execution execution_options(const ScoreOptions& options) {
  Execution execution;
  execution.implementation = ImplementationList(options.implementation);
  if (options.workspace_bytes) {
    execution.workspace_bytes = static_cast<std::size_t>(*options.workspace_bytes);
  }
  return execution;
}

ScoreOutcome run_linear(const ScoreOptions& o, const ScoreArrays& a, Context& context,
                        Results& results) {
  namespace lce = linear_cross_entropy;
  const View& x = a.x.view();
  const lce::Inputs inputs{.x = x,
                           .labels = a.labels.view(),
                           .w = a.w_hv,
                           .bias = a.bias.view(),
                           .weight = a.weight.view(),
                           .class_weight = a.class_weight.view(),
                           .dloss = a.dloss.view(),
                           .dlse = a.dlse.view(),
                           .lse = {},
                           .statistics = a.statistics.view()};
  lce::Gradients gradients;
  if (o.grad) {
    const View& w = a.w.view();
    results.grad_x = HostTensor(gradient_type(o, x.dtype()), x.extents());
    results.grad_w = HostTensor(gradient_type(o, w.dtype()), w.extents());
    results.grad_w_fortran = a.w.fortran_order();
    gradients.grad_x = results.grad_x.mutable_view();
    // The strides of w_hv are those of a dense array of the file's layout, so grad_w has them too.
    gradients.grad_w = results.grad_w.mutable_view().reshaped(a.w_hv.extents(), a.w_hv.strides());
    if (a.bias) {
      results.grad_bias = HostTensor(gradient_type(o, DType::f32), a.bias.view().extents());
      gradients.grad_bias = results.grad_bias.mutable_view();
    }
  }
  auto execution = execution_options<lce::ExecutionOptions>(o);
  if (!o.block_sizes.empty()) {
    execution.block_sizes = {o.block_sizes[0], o.block_sizes[1], o.block_sizes[2]};
  }
  return run_mode(o.mode(), context, inputs, gradients, results, o.loss_options(), execution);
}

ScoreOutcome run_softmax(const ScoreOptions& o, const ScoreArrays& a, Context& context,
                         Results& results) {
  namespace sce = softmax_cross_entropy;
  const View& logits = a.logits.view();
  const sce::Inputs inputs{.logits = logits,
                           .labels = a.labels.view(),
                           .weight = a.weight.view(),
                           .class_weight = a.class_weight.view(),
                           .dloss = a.dloss.view(),
                           .dlse = a.dlse.view(),
                           .lse = {},
                           .statistics = a.statistics.view()};
  sce::Gradients gradients;
  if (o.grad) {
    results.grad_logits = HostTensor(gradient_type(o, logits.dtype()), logits.extents());
    gradients.grad_logits = results.grad_logits.mutable_view();
  }
  auto execution = execution_options<sce::ExecutionOptions>(o);
  if (!o.block_sizes.empty()) {
    execution.block_sizes = {o.block_sizes.front(), o.block_sizes.back()};
  }
  return run_mode(o.mode(), context, inputs, gradients, results, o.loss_options(), execution);
}

/// Merging is host arithmetic, but a name that no implementation has is an error all the same.
void check_implementation_names(const std::vector<std::string>& names) {
  for (const auto& name : names) {
    const auto known = linear_cross_entropy::implementations();
    if (std::none_of(known.begin(), known.end(), [&](const ImplementationInfo& info) {
          return info.name == name || info.name.starts_with(name + ".");
        })) {
      fail_call(fmt::format("--implementation {}: unknown; tessera-info lists the names", name));
    }
  }
}

ScoreOutcome run_combine(const ScoreOptions& o, const ScoreArrays& a, LossOptions& options,
                         Results& results) {
  check_implementation_names(o.implementation);
  options = reconcile_shards(o, a.class_weight ? a.class_weight.view().size() : 0);
  options.wants = {.lse = true,
                   .argmax = true,
                   .label_logprob = true,
                   .entropy = true,
                   .z_loss = true,
                   .statistics = true};
  std::vector<PartialResult> shards;
  for (const auto& folder : o.combine) shards.push_back(read_partials(folder));
  const CombineInputs inputs{
      .labels = a.labels.view(), .weight = a.weight.view(), .class_weight = a.class_weight.view()};
  auto outcome = run_twice([&] {
    LossResult merged = combine(shards, inputs, options);
    results.loss = std::move(merged.loss);
    results.lse = std::move(merged.lse);
    results.argmax = std::move(merged.argmax);
    results.label_logprob = std::move(merged.label_logprob);
    results.entropy = std::move(merged.entropy);
    results.z_loss = std::move(merged.z_loss);
    results.statistics = std::move(merged.statistics);
    return merged.dispatch;
  });
  results.partial = merge(shards);
  if (outcome.dispatch.implementation.empty()) outcome.dispatch.implementation = "combine";
  if (outcome.dispatch.device.empty()) outcome.dispatch.device = "host";
  return outcome;
}

/// Tokens whose label is not `ignore_index`. A file's array is dense, so that order does not
/// matter.
std::int64_t counted_tokens(const View& labels, std::int64_t ignore_index) {
  const auto count = [&](auto label) {
    const auto* data = static_cast<const std::byte*>(labels.host_data());
    std::int64_t counted = 0;
    for (std::int64_t i = 0; i < labels.size(); ++i) {
      std::memcpy(&label, data + i * static_cast<std::int64_t>(sizeof(label)), sizeof(label));
      counted += label != ignore_index;
    }
    return counted;
  };
  return labels.dtype() == DType::i64 ? count(std::int64_t{}) : count(std::int32_t{});
}

/// "mean of 5 tokens; 1 of 6 is ignored"
std::string tokens_text(Reduction reduction, std::int64_t counted, std::int64_t all) {
  const std::int64_t ignored = all - counted;
  std::string text =
      fmt::format("{} of {} token{}", to_string(reduction), counted, counted == 1 ? "" : "s");
  if (ignored > 0) {
    text += fmt::format("; {} of {} {} ignored", ignored, all, ignored == 1 ? "is" : "are");
  }
  return text;
}

const char* mode_name(ScoreMode mode) {
  switch (mode) {
    case ScoreMode::forward:
      return "forward";
    case ScoreMode::value_and_grad:
      return "value_and_grad";
    case ScoreMode::backward:
      return "backward";
    case ScoreMode::shard:
      return "shard";
    case ScoreMode::combine:
      return "combine";
  }
  return "";
}

Json shape_to_json(const ScoreOptions& o, const ScoreArrays& a, const LossOptions& options) {
  Json shape = {{"b", a.labels.view().size()}};
  if (a.x) shape["h"] = a.x.view().extents().back();
  shape["v"] = a.w        ? a.w_hv.extents()[1]
               : a.logits ? a.logits.view().extents().back()
                          : options.vocab_size_total;
  if (a.w) shape["w_layout"] = o.w_is_vh.value_or(false) ? "vh" : "hv";
  return shape;
}

Json make_report(const ScoreOptions& o, const ScoreArrays& a, const LossOptions& options,
                 const ScoreOutcome& outcome) {
  Json report = {{"program", "tessera-score"},
                 {"mode", mode_name(o.mode())},
                 {"operator", o.mode() == ScoreMode::combine ? "combine"
                              : o.uses_logits()              ? "softmax_cross_entropy"
                                                             : "linear_cross_entropy"}};
  report.update(to_json(outcome.dispatch));
  report["seconds_first"] = outcome.seconds_first;
  report["seconds"] = outcome.seconds;
  if (outcome.seconds > 0) {
    report["tokens_per_second"] = static_cast<double>(a.labels.view().size()) / outcome.seconds;
  }
  report["shape"] = shape_to_json(o, a, options);
  report["types"] = a.types();
  report["options"] = options_to_json(options, static_cast<bool>(a.class_weight));
  if (o.mode() == ScoreMode::combine) {
    report["shard"] = range_to_json({0, options.vocab_size_total, options.vocab_size_total});
  } else if (o.mode() == ScoreMode::shard) {
    report["shard"] = range_to_json(
        {options.vocab_offset, report["shape"]["v"].get<std::int64_t>(), options.vocab_size_total});
  }
  report.update(provenance());
  return report;
}

}  // namespace

void score(const ScoreOptions& o) {
  OutputSet files(o.out);
  if (o.mode() == ScoreMode::backward) check_statistics_folder(o.statistics, o.loss_options());
  const ScoreArrays arrays = load_arrays(o);
  LossOptions options = o.loss_options();
  Results results = make_results(o.mode(), o.reduction, arrays.labels.view().extents());
  std::vector<std::string> warnings;
  ScoreOutcome outcome;
  if (o.mode() == ScoreMode::combine) {
    outcome = run_combine(o, arrays, options, results);
  } else {
    Context context = make_context(o.device, o.implementation, warnings);
    outcome = o.uses_logits() ? run_softmax(o, arrays, context, results)
                              : run_linear(o, arrays, context, results);
  }
  add_distinct(outcome.dispatch.warnings, warnings);

  results.add_to(files, o.bf16_bits);
  Json report = make_report(o, arrays, options, outcome);
  report["files"] = files.file_names();
  files.add_text("report.json", dump(report));
  files.commit();

  // Held back until now, so that a call that fails says one thing on stderr.
  for (const auto& warning : outcome.dispatch.warnings) {
    fmt::print(stderr, "tessera-score: warning: {}\n", warning);
  }
  if (results.loss && o.reduction != Reduction::none) {
    const View& labels = arrays.labels.view();
    const std::int64_t counted = counted_tokens(labels, options.ignore_index);
    fmt::print("loss {:.9g} ({})\n", results.loss.item(),
               tokens_text(o.reduction, counted, labels.size()));
  }
  fmt::print("{}; {:.4g} s, first call {:.4g} s\n", to_string(outcome.dispatch), outcome.seconds,
             outcome.seconds_first);
}

}  // namespace tessera::programs
