// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "host/arguments/owned.hpp"
#include "host/dispatch/guarded.hpp"
#include "host/linear_distillation/request.hpp"
#include "host/linear_distillation/streaming.hpp"
#include "host/loss/merge.hpp"
#include "host/operators/bind.hpp"

/// Shards of the vocabulary, merged on the host in double: what a row has of the student is every
/// loss's, what it has of the divergence is added here.
namespace tessera::linear_distillation {
namespace {

/// The rows of a shard's divergence must be there, and of one kind.
void check_rows(const arguments::Checks& checks, std::span<const PartialResult> shards) {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const auto& shard = shards[i];
    if (shard.divergence_rows.size() != shard.rows.size()) {
      checks.fail(fmt::format(
          "shards[{}] has {} rows but {} of its divergence; give what forward_partial returned", i,
          shard.rows.size(), shard.divergence_rows.size()));
    }
    if (shard.divergence != shards[0].divergence) {
      checks.fail(
          fmt::format("shards[{}] is of {} but shards[0] of {}; shards of one call have the "
                      "same divergence",
                      i, to_string(shard.divergence), to_string(shards[0].divergence)));
    }
  }
}

void check_divergence(const arguments::Checks& checks, const PartialResult& whole,
                      const Options& options) {
  if (whole.divergence == effective_divergence(options)) return;
  checks.fail(
      fmt::format("divergence is {} but the shards are of {}; give what forward_partial was "
                  "given",
                  to_string(effective_divergence(options)), to_string(whole.divergence)));
}

void store(HostTensor& tensor, std::int64_t at, double value) {
  if (tensor) tensor.as<float>()[static_cast<std::size_t>(at)] = static_cast<float>(value);
}

/// The outputs of a row that are this operator's own; nullptr: of one that does not count, which
/// has seen no column.
void write_row(const streaming::DistillTerms& terms, const streaming::DistillSums* sums,
               std::int64_t row, Result& result) {
  store(result.divergence, row, sums ? streaming::divergence_of(terms, *sums) : 0.0);
  store(result.target_entropy, row, sums ? streaming::target_entropy_of(*sums) : 0.0);
  if (!result.divergence_statistics) return;
  const auto statistics = sums ? statistics_of(terms, *sums) : no_statistics;
  const auto words = static_cast<std::int64_t>(statistics.size());
  for (std::int64_t i = 0; i < words; ++i) {
    store(result.divergence_statistics, words * row + i,
          static_cast<double>(statistics[static_cast<std::size_t>(i)]));
  }
}

}  // namespace

PartialResult merge(std::span<const PartialResult> shards) try {
  const std::vector<tessera::PartialResult> students(shards.begin(), shards.end());
  PartialResult result;
  static_cast<tessera::PartialResult&>(result) = tessera::merge(students);
  check_rows(arguments::Checks(nullptr, "merge", arguments::Form::owned), shards);
  result.divergence = shards[0].divergence;
  result.divergence_rows = shards[0].divergence_rows;
  const streaming::DistillTerms terms{.divergence = of(result.divergence)};
  for (std::size_t row = 0; row < result.rows.size(); ++row) {
    auto sums = read(shards[0].divergence_rows[row]);
    for (const auto& shard : shards.subspan(1)) {
      streaming::merge_into(terms, read(shard.divergence_rows[row]), sums);
    }
    if (shards.size() > 1) result.divergence_rows[row] = partial_of(sums);
  }
  return result;
} catch (const std::bad_alloc&) {
  dispatch::throw_no_memory("merge");
}

Result combine(std::span<const PartialResult> shards, const CombineInputs& inputs,
               const Options& options) try {
  const PartialResult merged = merge(shards);
  arguments::Checks checks(nullptr, "combine", arguments::Form::owned);
  auto call = operators::bind<Operator>(Pass::forward, {}, {}, {}, options, {});
  operators::check_options(checks, call);
  check_divergence(checks, merged, options);
  checks.refuse("class_weight", inputs.class_weight,
                "a loss with a teacher has no class weights; leave it out");
  const loss::LossPlaces places(*call.op);
  loss::LossRequest request(places, std::move(call));
  loss::check_combine(checks, request, merged, inputs, options.loss, 1.0f - options.alpha);
  Result result;
  std::size_t at = 0;
  for (const auto& each : OperatorTraits<Operator>::outputs) {
    arguments::allocate(request.call.outputs[at++], result.*each.owned, each.name);
  }

  const auto terms = terms_of(options);
  const double t = static_cast<double>(options.temperature);
  const double share = static_cast<double>(options.alpha) * t * t;
  const auto own = [&](std::int64_t row, bool counts) {
    const auto sums = read(merged.divergence_rows[static_cast<std::size_t>(row)]);
    write_row(terms, counts ? &sums : nullptr, row, result);
    // A share of 0 is absent, however far the teacher is.
    return share == 0.0 ? 0.0 : share * streaming::divergence_of(terms, sums);
  };
  loss::combine_rows(request, merged, own, result);
  return result;
} catch (const std::bad_alloc&) {
  dispatch::throw_no_memory("combine");
}

}  // namespace tessera::linear_distillation
