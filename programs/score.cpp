// SPDX-License-Identifier: Apache-2.0
#include "programs/score.hpp"

#include <fmt/format.h>

#include <cctype>
#include <cstdio>
#include <optional>

#include "programs/cli.hpp"
#include "programs/dump.hpp"
#include "programs/output_set.hpp"
#include "programs/score_shards.hpp"
#include "programs/score_teacher.hpp"
#include "tessera/profile.hpp"

namespace tessera::programs {
namespace {

void add_to(OutputSet& files, const ScoreResults& results, bool bf16_bits) {
  // Gradients of weights come last.
  for (const bool keeps_layout : {false, true}) {
    for (const auto& array : results.arrays) {
      if (!array.tensor || array.keeps_layout != keeps_layout) continue;
      files.add_array(array.name + ".npy", array.tensor.data(), array.tensor.dtype(),
                      array.tensor.extents(), bf16_bits, array.fortran_order);
    }
  }
  const auto& partial = results.partial;
  if (!partial.extents.empty() || !partial.rows.empty()) add_partials(files, partial);
}

/// What shards have is all that a --combine may know of the tokens.
std::int64_t rows_of(const ScoreOptions& o, const ScoreArrays& arrays,
                     const ScoreResults& results) {
  const bool combines = o.mode() == ScoreMode::combine;
  return (combines ? results.partial.extents : arrays.leading()).product();
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

Json shape_to_json(const ScoreOptions& o, const ScoreArrays& arrays, const LossOptions& options,
                   std::int64_t rows) {
  Json shape = {{"b", rows}};
  if (o.mode() == ScoreMode::combine) {
    shape["v"] = options.vocab_size_total;
    return shape;
  }
  for (const auto& [letter, extent] : arrays.extents()) {
    shape[std::string(1, static_cast<char>(std::tolower(letter)))] = extent;
  }
  if (o.op().has_weights()) shape["w_layout"] = o.w_is_vh.value_or(false) ? "vh" : "hv";
  return shape;
}

Json make_report(const ScoreOptions& o, const ScoreArrays& a, const LossOptions& options,
                 const ScoreOutcome& outcome, std::int64_t rows, bool has_teacher) {
  Json report = {{"program", "tessera-score"},
                 {"mode", mode_name(o.mode())},
                 {"operator", o.mode() == ScoreMode::combine ? "combine" : o.op().name}};
  report.update(to_json(outcome.dispatch));
  report["seconds_first"] = outcome.seconds_first;
  report["seconds"] = outcome.seconds;
  if (outcome.seconds > 0) {
    report["tokens_per_second"] = static_cast<double>(rows) / outcome.seconds;
  }
  report["shape"] = shape_to_json(o, a, options, rows);
  report["types"] = a.types();
  report["options"] = options_to_json(options, static_cast<bool>(a["class_weight"]));
  if (has_teacher) report["options"].update(to_json(distillation_options(o)));
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

void score(const ScoreOptions& given) {
  ScoreOptions o = given;
  OutputSet files(o.out);
  std::optional<OutputFile> trace;
  if (!o.trace.empty()) trace.emplace(o.trace, "--trace");
  if (!o.dump.empty()) OutputSet(o.dump, "--dump");  // says whether it can be written
  if (o.mode() == ScoreMode::backward) check_statistics_folder(o);
  const ScoreArrays arrays(o);
  LossOptions options = o.loss_options();
  ScoreResults results;
  std::vector<std::string> warnings;
  ScoreOutcome outcome;
  if (o.mode() == ScoreMode::combine) {
    outcome = call_combine(o, arrays, options, results);
  } else {
    Context context = make_context(o.device, o.implementation, warnings, {}, o.dump);
    std::optional<Profile> profile;
    if (trace) profile.emplace(context);
    outcome = call_operator(o, arrays, context, results);
    if (trace) profile->write(o.trace);
  }
  add_distinct(outcome.dispatch.warnings, warnings);

  const bool is_soft = arrays["targets"] || arrays["target_indices"];
  // Where there is a loss; with a teacher the call has said its own, that of p.
  if (is_soft && results.find("loss") && !results.find("target_entropy")) {
    results.add("target_entropy", target_entropy(arrays, options.ignore_index));
  }
  add_to(files, results, o.bf16_bits);
  const bool has_teacher = o.has_teacher() || !results.partial.divergence_rows.empty();
  Json report = make_report(o, arrays, options, outcome, rows_of(o, arrays, results), has_teacher);
  report["files"] = files.file_names();
  files.add_text("report.json", dump(report));
  files.commit();
  if (!o.dump.empty()) summarise_dump(o.dump, "--dump");

  // Held back until now, so that a call that fails says one thing on stderr.
  for (const auto& warning : outcome.dispatch.warnings) {
    fmt::print(stderr, "tessera-score: warning: {}\n", warning);
  }
  const HostTensor* loss = results.find("loss");
  if (loss != nullptr && options.reduction != Reduction::none) {
    const std::int64_t rows = rows_of(o, arrays, results);
    const std::int64_t counted = counted_tokens(arrays, rows, options.ignore_index);
    fmt::print("loss {:.9g} ({})\n", loss->item(), tokens_text(options.reduction, counted, rows));
  }
  fmt::print("{}; {:.4g} s, first call {:.4g} s\n", to_string(outcome.dispatch), outcome.seconds,
             outcome.seconds_first);
}

}  // namespace tessera::programs
