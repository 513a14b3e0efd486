// SPDX-License-Identifier: Apache-2.0
#include "programs/score_teacher.hpp"

#include <fmt/format.h>

#include <CLI/App.hpp>

namespace tessera::programs {

std::span<const OptionArgument<linear_distillation::Options>> teacher_options() {
  constexpr auto& all = OperatorTraits<linear_distillation::Operator>::options;
  return std::span(all).first(all.size() - all_loss_options<LossOptions>.size());
}

void add_teacher_options(CLI::App& app, ScoreOptions& o) {
  const std::string group = "Teacher";
  add_described(app, o, teacher_options(), group);
  add_choice<std::optional<bool>>(app, "--teacher-w-layout", o.teacher_w_is_vh,
                                  {{"hv", false}, {"vh", true}},
                                  "[G, V] or [V, G] (that of --w-layout)")
      ->group(group);
}

void check_teacher_options(const CLI::App& app, const char* what_to_do) {
  std::vector<std::string> names = {"--teacher-w-layout"};
  for (const auto& option : teacher_options()) names.push_back(option_of(option.name));
  for (const auto& name : names) {
    if (app.count(name) == 0) continue;
    fail_call(fmt::format("{} says how a teacher is followed; {}", name, what_to_do));
  }
}

void check_beta(const ScoreOptions& o) {
  using linear_distillation::Divergence;
  const auto options = distillation_options(o);
  if (!o.values.contains("beta") || options.divergence == Divergence::jsd) return;
  fail_call(
      fmt::format("--beta is {} but --divergence is {}; beta is of jsd: give --divergence jsd or "
                  "leave it out",
                  options.beta, to_string(options.divergence)));
}

linear_distillation::Options distillation_options(const ScoreOptions& o) {
  linear_distillation::Options options;
  set_given(o, OperatorTraits<linear_distillation::Operator>::options, options);
  return options;
}

Json to_json(const linear_distillation::Options& options) {
  Json json = described_to_json(options, teacher_options());
  if (options.divergence != linear_distillation::Divergence::jsd) json.erase("beta");
  return json;
}

}  // namespace tessera::programs
