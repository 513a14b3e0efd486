// SPDX-License-Identifier: Apache-2.0
#include "programs/score_teacher.hpp"

#include <fmt/format.h>

#include <CLI/App.hpp>

namespace tessera::programs {

const std::vector<TeacherNumber>& teacher_numbers() {
  using linear_distillation::Options;
  static const std::vector<TeacherNumber> all = {
      {"beta", &ScoreOptions::beta, &Options::beta, "of jsd, in [0, 1] (0.5)"},
      {"temperature", &ScoreOptions::temperature, &Options::temperature,
       "divides the logits of both (1)"},
      {"alpha", &ScoreOptions::alpha, &Options::alpha, "share of the divergence, in [0, 1] (0.5)"},
      {"teacher_logit_scale", &ScoreOptions::teacher_logit_scale, &Options::teacher_logit_scale,
       "multiplies the teacher's logits (1)"},
      {"teacher_logit_soft_cap", &ScoreOptions::teacher_logit_soft_cap,
       &Options::teacher_logit_soft_cap, "of the teacher's; 0: off (0)"}};
  return all;
}

void add_teacher_options(CLI::App& app, ScoreOptions& o) {
  const std::string group = "Teacher";
  add_choice<std::string>(
      app, "--divergence", o.divergence,
      {{"forward_kl", "forward_kl"}, {"reverse_kl", "reverse_kl"}, {"jsd", "jsd"}},
      "of the student's distribution from the teacher's (forward_kl)")
      ->group(group);
  for (const auto& number : teacher_numbers()) {
    add_number(app, option_of(number.key), o.*number.given, number.help)->group(group);
  }
  add_choice<std::optional<bool>>(app, "--teacher-w-layout", o.teacher_w_is_vh,
                                  {{"hv", false}, {"vh", true}},
                                  "[G, V] or [V, G] (that of --w-layout)")
      ->group(group);
}

void check_teacher_options(const CLI::App& app, const char* what_to_do) {
  std::vector<std::string> names = {"--divergence"};
  for (const auto& number : teacher_numbers()) names.push_back(option_of(number.key));
  names.push_back("--teacher-w-layout");
  for (const auto& name : names) {
    if (app.count(name) == 0) continue;
    fail_call(fmt::format("{} says how a teacher is followed; {}", name, what_to_do));
  }
}

void check_beta(const std::optional<float>& beta, const std::string& divergence) {
  if (!beta || divergence == "jsd") return;
  fail_call(
      fmt::format("--beta is {} but --divergence is {}; beta is of jsd: give --divergence jsd or "
                  "leave it out",
                  *beta, divergence.empty() ? "forward_kl" : divergence));
}

linear_distillation::Options distillation_options(const ScoreOptions& o) {
  using linear_distillation::Divergence;
  linear_distillation::Options options;
  for (const auto divergence : {Divergence::forward_kl, Divergence::reverse_kl, Divergence::jsd}) {
    if (o.divergence == to_string(divergence)) options.divergence = divergence;
  }
  for (const auto& number : teacher_numbers()) {
    options.*number.value = (o.*number.given).value_or(options.*number.value);
  }
  options.loss = o.loss_options();
  return options;
}

Json to_json(const linear_distillation::Options& options) {
  Json json = {{"divergence", to_string(options.divergence)}};
  for (const auto& number : teacher_numbers()) json[number.key] = options.*number.value;
  if (options.divergence != linear_distillation::Divergence::jsd) json.erase("beta");
  return json;
}

}  // namespace tessera::programs
