// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/catalog/operators.hpp"
#include "programs/output_set.hpp"
#include "programs/report.hpp"
#include "programs/score_options.hpp"

/// The folders that runs of tessera-score hand to each other: partial_<field>.npy, statistics.npy
/// and the record of how they came to be in report.json.
namespace tessera::programs {

/// partial_<field>.npy for every field of Partial, and with a teacher of DivergenceSums, each with
/// the leading axes of the tokens.
void add_partials(OutputSet& files, const linear_distillation::PartialResult& partial);
/// Throws `Error invalid_argument` for missing files and for fields that differ in shape.
linear_distillation::PartialResult read_partials(const std::string& folder, bool has_teacher);
/// Whether any of the folders has a teacher's sums.
bool have_teacher(const std::vector<std::string>& folders);

/// Columns of the whole vocabulary that a folder's partials cover.
struct ShardRange {
  std::int64_t offset = 0;
  std::int64_t size = 0;
  std::int64_t total = 0;
};

/// `options` of report.json: every loss option, and whether class weights were given.
Json options_to_json(const LossOptions& options, bool class_weight);
/// `shard` of report.json.
Json range_to_json(const ShardRange& range);

/// Holds the options of --combine against what the shards recorded: the ranges must tile the
/// vocabulary, and what changed the partial sums must be the same everywhere. Fills in from the
/// records what the command line left out (the total width, scale and soft cap). Folders without a
/// report.json, written by other programs, are taken as they are.
LossOptions reconcile_shards(const ScoreOptions& options, std::int64_t class_weight_size);

/// The same of a teacher's options, which are the same in every run: what the command line left out
/// is filled in.
ScoreOptions reconcile_teachers(const ScoreOptions& options);

/// Throws when --statistics names one shard's folder instead of a combined one, or one that was
/// made with other options.
void check_statistics_folder(const ScoreOptions& options);

}  // namespace tessera::programs
