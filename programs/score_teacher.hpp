// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "programs/report.hpp"
#include "programs/score_options.hpp"
#include "tessera/linear_distillation.hpp"

/// What tessera-score's command line says of a teacher.
namespace tessera::programs {

/// An option that is a number: its key in reports, whose option is option_of(key), and where the
/// command line and the call have it.
struct TeacherNumber {
  const char* key;
  std::optional<float> ScoreOptions::*given;
  float linear_distillation::Options::*value;
  const char* help;
};
const std::vector<TeacherNumber>& teacher_numbers();

void add_teacher_options(CLI::App& app, ScoreOptions& options);

/// For a call without a teacher: throws `Error invalid_argument` where an option of one was given.
void check_teacher_options(const CLI::App& app, const char* what_to_do);

/// Throws `Error invalid_argument` where --beta was given with a divergence that has none.
void check_beta(const std::optional<float>& beta, const std::string& divergence);

/// The options of the call, those of its loss included.
linear_distillation::Options distillation_options(const ScoreOptions& options);
Json to_json(const linear_distillation::Options& options);

}  // namespace tessera::programs
