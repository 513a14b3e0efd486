// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "host/catalog/operators.hpp"
#include "programs/report.hpp"
#include "programs/score_options.hpp"

/// What tessera-score's command line says of a teacher.
namespace tessera::programs {

/// The options that linear_distillation has besides those of every loss.
std::span<const OptionArgument<linear_distillation::Options>> teacher_options();

void add_teacher_options(CLI::App& app, ScoreOptions& options);

/// For a call without a teacher: throws `Error invalid_argument` where an option of one was given.
void check_teacher_options(const CLI::App& app, const char* what_to_do);

/// Throws `Error invalid_argument` where --beta was given with a divergence that has none.
void check_beta(const ScoreOptions& options);

/// The options of the call, those of its loss included.
linear_distillation::Options distillation_options(const ScoreOptions& options);
Json to_json(const linear_distillation::Options& options);

/// The values of described options, by name.
template <class Options, class Described>
Json described_to_json(const Options& options, const Described& described) {
  Json json = Json::object();
  for (const auto& option : described) {
    const OptionValue value = option.value(options);
    if (!option.choices.empty()) {
      json[option.name] = text_of(value, option.choices);
    } else if (const auto* number = std::get_if<float>(&value)) {
      json[option.name] = *number;
    } else {
      json[option.name] = std::get<std::int64_t>(value);
    }
  }
  return json;
}

}  // namespace tessera::programs
