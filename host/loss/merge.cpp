// SPDX-License-Identifier: Apache-2.0
#include "host/loss/merge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "host/arguments/offsets.hpp"
#include "host/dispatch/guarded.hpp"
#include "host/loss/results.hpp"
#include "host/loss/targets.hpp"
#include "host/loss/validate.hpp"

/// Shards of the vocabulary, merged on the host in double.
namespace tessera {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// A coefficient of exactly 0 removes its term, even beside an infinite one: a masked word of class
/// weight 0 does not spoil the smoothing.
double term(double coefficient, double value) {
  return coefficient == 0.0 ? 0.0 : coefficient * value;
}

/// The sums of one shard, relative to a larger maximum.
struct Sums {
  double sum;
  double class_logit;
  double exp_logit;
  double target_logit;
  double weighted_logit;
};

Sums rescale(const Partial& p, double max) {
  const double shift = static_cast<double>(p.max) - max;
  if (p.max == -infinity) {
    // All words of this shard are masked: they have no probability, and whoever smooths over them
    // pays an infinite loss. A NaN in the sums stays one.
    const double nan = p.sum != p.sum ? p.sum : 0.0;
    const auto masked = [&](double logit, double total) {
      return max == -infinity ? logit : term(total, -infinity);
    };
    return {nan, masked(p.class_logit, p.class_sum), nan, masked(p.target_logit, p.target_sum),
            masked(p.weighted_logit, p.weighted_sum)};
  }
  const double factor = std::exp(shift);
  return {factor * p.sum, p.class_logit + term(p.class_sum, shift),
          factor * (p.exp_logit + term(p.sum, shift)), p.target_logit + term(p.target_sum, shift),
          p.weighted_logit + term(p.weighted_sum, shift)};
}

bool wins(const Partial& a, const Partial& b) {
  if (b.argmax < 0 || a.argmax < 0) return b.argmax < 0;
  return a.argmax_value > b.argmax_value ||
         (a.argmax_value == b.argmax_value && a.argmax < b.argmax);
}

/// One row on its way to the outputs.
struct RowOutputs {
  double loss = 0.0;  ///< weighted
  double lse = 0.0;
  double label_logprob = 0.0;
  double entropy = 0.0;
  double z_loss = 0.0;
};

/// What a row's loss depends on besides its sums.
struct RowTerms {
  double weight = 1.0;
  std::optional<double> label_weight{};  ///< of the label's class, of a row that has one
  double besides = 0.0;                  ///< what the loss has besides nll and z-loss
};

RowOutputs finish(const Partial& p, const loss::LossRequest& request, const RowTerms& terms) {
  const LossOptions& options = request.options;
  // A logit of +Inf leaves no distribution, however its shard has counted it; nor does a NaN, which
  // a shard may have kept in its sum alone.
  const double sum = p.sum;
  const double max =
      p.max == infinity || sum != sum ? std::numeric_limits<double>::quiet_NaN() : p.max;
  const double eps = options.label_smoothing;
  const double log_sum = std::log(sum);
  RowOutputs row;
  row.lse = max == -infinity ? -infinity : max + log_sum;
  // Relative to max, so that a confident row does not cancel. A row without any word has no
  // distribution: -Inf - -Inf is NaN here.
  double nll = 0.0;
  if (terms.label_weight) {
    row.label_logprob = (p.label_logit - max) - log_sum;
    nll = term((1.0 - eps) * *terms.label_weight, -row.label_logprob);
  } else {
    // NaN where the row has no distribution, whatever its target.
    row.label_logprob = 0.0 * row.lse + p.target_logit - term(p.target_sum, log_sum);
    nll = term(1.0 - eps, term(p.weighted_sum, log_sum) - p.weighted_logit);
  }
  row.entropy = log_sum - p.exp_logit / sum;
  if (eps != 0.0) {
    nll += eps / static_cast<double>(request.v) * (term(p.class_sum, log_sum) - p.class_logit);
  }
  if (max == -infinity) {
    row.label_logprob = row.entropy = nll = std::numeric_limits<double>::quiet_NaN();
  }
  // A share of 0 drops even an infinite nll; a row without a distribution stays NaN.
  if (request.has_terms) {
    nll = (request.nll_weight != 0.0f ? request.nll_weight * nll : 0.0 * row.lse) + terms.besides;
  }
  row.z_loss = terms.weight * options.logsumexp_weight * row.lse * row.lse;
  row.loss = terms.weight * (nll + options.logsumexp_weight * row.lse * row.lse);
  return row;
}

void store(HostTensor& tensor, std::int64_t row, double value) {
  if (tensor) tensor.as<float>()[static_cast<std::size_t>(row)] = static_cast<float>(value);
}

/// `name` behind the names in `list`, once.
void add_name(std::string& list, const std::string& name) {
  if (name.empty() || (", " + list + ", ").find(", " + name + ", ") != std::string::npos) return;
  list += (list.empty() ? "" : ", ") + name;
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

std::string to_text(const ColumnRange& range) {
  return fmt::format("{} to {}", range.begin, range.end - 1);
}

/// Adds the ranges of a shard to those before it, in order, neighbours as one.
void add_ranges(const arguments::Checks& checks, const PartialResult& shard, std::size_t index,
                std::vector<ColumnRange>& ranges) {
  if (shard.vocab_size_total <= 0) return;
  for (const auto& range : shard.ranges) {
    if (range.begin < 0 || range.begin >= range.end || range.end > shard.vocab_size_total) {
      checks.fail(
          fmt::format("shards[{}] is said to have the columns from {} to before {} of {}; "
                      "give what forward_partial returned",
                      index, range.begin, range.end, shard.vocab_size_total));
    }
    const auto next = std::find_if(ranges.begin(), ranges.end(),
                                   [&](const auto& other) { return other.end > range.begin; });
    if (next != ranges.end() && next->begin < range.end) {
      const ColumnRange twice{std::max(range.begin, next->begin), std::min(range.end, next->end)};
      checks.fail(
          fmt::format("the columns {} are in shards[{}] and in a shard before it; give "
                      "every shard once",
                      to_text(twice), index));
    }
    const auto added = ranges.insert(next, range);
    const auto joins = [](const ColumnRange& a, const ColumnRange& b) { return a.end == b.begin; };
    const auto first = added != ranges.begin() && joins(added[-1], *added) ? added - 1 : added;
    const auto last = added + 1 != ranges.end() && joins(*added, added[1]) ? added + 1 : added;
    first->end = last->end;
    ranges.erase(first + 1, last + 1);
  }
}

/// The first columns that no range has; empty where they are the whole.
ColumnRange missing(const std::vector<ColumnRange>& ranges, std::int64_t total) {
  const bool at_begin = !ranges.empty() && ranges[0].begin == 0;
  const std::int64_t begin = at_begin ? ranges[0].end : 0;
  const std::size_t next = at_begin ? 1 : 0;
  return {begin, next < ranges.size() ? ranges[next].begin : total};
}

/// What ran for each shard, merged ones by their own, and what they have in common.
Dispatch merged_dispatch(std::span<const PartialResult> shards) {
  std::vector<Dispatch> each;
  for (const auto& shard : shards) {
    const auto& own = shard.dispatch;
    own.shards.empty() ? each.push_back(own) : append(each, own.shards);
  }
  Dispatch result = each[0];
  for (const auto& one : std::span(each).subspan(1)) {
    add_name(result.implementation, one.implementation);
    add_name(result.device, one.device);
    add_name(result.driver, one.driver);
    if (result.schedule != one.schedule) result.schedule.clear();
    if (result.block_sizes != one.block_sizes) result.block_sizes.clear();
    if (result.block_reason != one.block_reason) result.block_reason.clear();
    if (result.knobs != one.knobs) result.knobs.clear();
    append(result.refused, one.refused);
    append(result.warnings, one.warnings);
    append(result.notes, one.notes);
    result.workspace_bytes += one.workspace_bytes;
    result.staged_bytes += one.staged_bytes;
  }
  result.shards = std::move(each);
  return result;
}

}  // namespace

Partial merge(const Partial& a, const Partial& b) {
  // A NaN maximum fails the comparison either way and is kept by the addition.
  double max = a.max >= b.max ? a.max : b.max;
  if (a.max != a.max || b.max != b.max) max = static_cast<double>(a.max) + b.max;
  const Sums sa = rescale(a, max);
  const Sums sb = rescale(b, max);
  const Partial& best = wins(a, b) ? a : b;
  Partial result;
  result.max = static_cast<float>(max);
  result.sum = static_cast<float>(sa.sum + sb.sum);
  // -Inf: elsewhere. A NaN on either side shows.
  const bool nan = a.label_logit != a.label_logit || b.label_logit != b.label_logit;
  result.label_logit = nan ? a.label_logit + b.label_logit
                           : (a.label_logit > b.label_logit ? a.label_logit : b.label_logit);
  result.class_logit = static_cast<float>(sa.class_logit + sb.class_logit);
  result.class_sum = a.class_sum + b.class_sum;
  result.argmax_value = best.argmax_value;
  result.argmax = best.argmax;
  result.exp_logit = static_cast<float>(sa.exp_logit + sb.exp_logit);
  result.target_logit = static_cast<float>(sa.target_logit + sb.target_logit);
  result.target_sum = a.target_sum + b.target_sum;
  result.weighted_logit = static_cast<float>(sa.weighted_logit + sb.weighted_logit);
  result.weighted_sum = a.weighted_sum + b.weighted_sum;
  return result;
}

PartialResult merge(std::span<const PartialResult> shards) try {
  const arguments::Checks checks(nullptr, "merge", arguments::Form::owned);
  if (shards.empty()) checks.fail("no shard is given; give at least one");
  std::int64_t total = 0;  // of those that know it
  std::vector<ColumnRange> ranges;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const auto& shard = shards[i];
    const std::string name = "shards[" + std::to_string(i) + "]";
    const std::int64_t rows = checks.product(shard.extents, (name + "'s extents").c_str());
    if (rows != static_cast<std::int64_t>(shard.rows.size())) {
      checks.fail(name + " has " + std::to_string(shard.rows.size()) + " rows but extents " +
                  arguments::to_string(shard.extents));
    }
    if (shard.extents != shards[0].extents) {
      checks.fail(name + " has extents " + arguments::to_string(shard.extents) +
                  " but shards[0] has " + arguments::to_string(shards[0].extents) +
                  "; shards of one call have the same rows");
    }
    total = total > 0 ? total : shard.vocab_size_total;
    if (shard.vocab_size_total > 0 && shard.vocab_size_total != total) {
      checks.fail(name + " is of a vocabulary of " + std::to_string(shard.vocab_size_total) +
                  " columns, shards before it of " + std::to_string(total) +
                  "; shards of one call have the same vocab_size_total");
    }
    add_ranges(checks, shard, i, ranges);
  }
  PartialResult result = shards[0];
  result.dispatch = merged_dispatch(shards);
  for (const auto& shard : shards.subspan(1)) {
    if (shard.vocab_size_total == 0) result.vocab_size_total = 0;
    for (std::size_t row = 0; row < result.rows.size(); ++row) {
      result.rows[row] = merge(result.rows[row], shard.rows[row]);
    }
  }
  // What one shard does not know nobody knows of all.
  result.ranges = result.vocab_size_total > 0 ? std::move(ranges) : std::vector<ColumnRange>();
  return result;
} catch (const std::bad_alloc&) {
  dispatch::throw_no_memory("merge");
}

namespace loss {

void check_combine(arguments::Checks& checks, LossRequest& request, const PartialResult& merged,
                   const CombineInputs& inputs, const LossOptions& options,
                   std::optional<float> nll_weight) {
  const std::int64_t given = options.vocab_size_total;
  const std::int64_t known = merged.vocab_size_total;
  if (given == 0 && known == 0) {
    checks.fail("vocab_size_total is " + std::to_string(given) +
                " and the shards do not say it; combine needs the width of the whole vocabulary");
  }
  if (given > 0 && known > 0 && given != known) {
    checks.fail("vocab_size_total is " + std::to_string(given) + " but the shards are of " +
                std::to_string(known) + " columns; give 0 or what forward_partial was given");
  }
  if (known > 0) {
    const ColumnRange gap = missing(merged.ranges, known);
    if (gap.begin < gap.end) {
      checks.fail(
          fmt::format("the columns {} of {} are in no shard; give every shard of the "
                      "vocabulary once",
                      to_text(gap), known));
    }
  }
  const std::int64_t total = known > 0 ? known : given;
  LossOptions whole = options;
  whole.vocab_offset = 0;
  whole.vocab_size_total = 0;
  const auto set = [&](LossInput input, const View& view) {
    if (view) request.call.inputs[request.places()[input]] = view;
  };
  set(LossInput::labels, inputs.labels);
  set(LossInput::weight, inputs.weight);
  set(LossInput::class_weight, inputs.class_weight);
  set(LossInput::target_indices, inputs.target_indices);
  set(LossInput::target_probs, inputs.target_probs);
  set(LossInput::targets, inputs.targets);
  check_loss(checks, request, whole, nll_weight, merged.extents, total,
             "the rows of the shards " + arguments::to_string(merged.extents));
  check_targets(checks, request, {});
  describe_outputs(request);
}

void combine_rows(const LossRequest& request, const PartialResult& merged,
                  const std::function<double(std::int64_t, bool)>& own, LossResult& result) {
  const Reduction reduction = request.options.reduction;
  const Targets targets(request);
  const arguments::RowOffsets weight_at =
      request.weight ? arguments::RowOffsets(request.weight, merged.extents.rank())
                     : arguments::RowOffsets();
  double total = 0.0;
  double denominator = 0.0;
  for (std::int64_t row = 0; row < request.b; ++row) {
    const auto target = targets.sums_of(row);
    const bool counted = !target.ignored;
    const auto& partial = merged.rows[static_cast<std::size_t>(row)];
    RowOutputs values;
    const double besides = own ? own(row, counted) : 0.0;
    if (counted) {
      RowTerms terms;
      terms.besides = besides;
      if (request.weight) {
        terms.weight =
            arguments::load_f32(request.weight.host_data(), request.weight.dtype(), weight_at(row));
      }
      if (request.labels) terms.label_weight = target.weighted;
      values = finish(partial, request, terms);
      total += values.loss;
      denominator += terms.weight * targets.share_of(target);
    }
    if (reduction == Reduction::none) store(result.loss, row, values.loss);
    store(result.lse, row, values.lse);
    store(result.label_logprob, row, values.label_logprob);
    store(result.entropy, row, values.entropy);
    store(result.z_loss, row, values.z_loss);
    if (result.argmax) {
      arguments::store_int(result.argmax.data(), result.argmax.dtype(), row,
                           counted ? partial.argmax : -1);
    }
    if (result.statistics) {
      // What backward would have been given by forward; an ignored row has seen no column.
      store(result.statistics, 2 * row, counted ? partial.max : -infinity);
      store(result.statistics, 2 * row + 1, counted ? partial.sum : 0.0);
    }
  }
  if (reduction == Reduction::sum) store(result.loss, 0, total);
  if (reduction == Reduction::mean) {
    store(result.loss, 0, denominator == 0.0 ? 0.0 : total / denominator);
  }
  result.dispatch = merged.dispatch;
}

}  // namespace loss

}  // namespace tessera
