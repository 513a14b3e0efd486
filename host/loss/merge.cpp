// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <utility>

#include "host/arguments/offsets.hpp"
#include "host/loss/results.hpp"
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
};

Sums rescale(const Partial& p, double max) {
  const double shift = static_cast<double>(p.max) - max;
  if (p.max == -infinity) {
    // All words of this shard are masked: they have no probability, and whoever smooths over them
    // pays an infinite loss. A NaN in the sums stays one.
    const double nan = p.sum != p.sum ? p.sum : 0.0;
    return {nan, max == -infinity ? p.class_logit : term(p.class_sum, -infinity), nan};
  }
  const double factor = std::exp(shift);
  return {factor * p.sum, p.class_logit + term(p.class_sum, shift),
          factor * (p.exp_logit + term(p.sum, shift))};
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

RowOutputs finish(const Partial& p, const LossOptions& options, std::int64_t columns, double weight,
                  double label_weight) {
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
  row.label_logprob = (p.label_logit - max) - log_sum;
  row.entropy = log_sum - p.exp_logit / sum;
  double nll = term((1.0 - eps) * label_weight, -row.label_logprob);
  if (eps != 0.0) {
    nll += eps / static_cast<double>(columns) * (term(p.class_sum, log_sum) - p.class_logit);
  }
  if (max == -infinity) {
    row.label_logprob = row.entropy = nll = std::numeric_limits<double>::quiet_NaN();
  }
  row.z_loss = weight * options.logsumexp_weight * row.lse * row.lse;
  row.loss = weight * (nll + options.logsumexp_weight * row.lse * row.lse);
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

/// The checks of `combine`: the whole, as an ordinary forward would see it. Returns the request in
/// its normal form, with the results it wants described.
loss::LossRequest check_combine(const PartialResult& merged, const CombineInputs& inputs,
                                const LossOptions& options) {
  arguments::Checks checks(nullptr, "combine", arguments::Form::owned);
  const std::int64_t given = options.vocab_size_total;
  const std::int64_t known = merged.vocab_size_total;
  if (given < 0 || (given == 0 && known == 0)) {
    checks.fail("vocab_size_total is " + std::to_string(given) +
                " and the shards do not say it; combine needs the width of the whole vocabulary");
  }
  if (given > 0 && known > 0 && given != known) {
    checks.fail("vocab_size_total is " + std::to_string(given) + " but the shards are of " +
                std::to_string(known) + " columns; give 0 or what forward_partial was given");
  }
  if (known > 0 && merged.columns != known) {
    checks.fail("the shards cover " + std::to_string(merged.columns) + " of " +
                std::to_string(known) + " columns; give every shard of the vocabulary once");
  }
  const std::int64_t total = known > 0 ? known : given;
  LossOptions whole = options;
  whole.vocab_offset = 0;
  whole.vocab_size_total = 0;
  const loss::LossInputs in{
      .labels = inputs.labels, .weight = inputs.weight, .class_weight = inputs.class_weight};
  auto request = loss::check_loss(checks, Pass::forward, in, {}, whole, merged.extents, total,
                                  "the rows of the shards " + arguments::to_string(merged.extents));
  loss::check_targets(checks, request, {});
  loss::describe_outputs(request);
  return request;
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
  return result;
}

PartialResult merge(std::span<const PartialResult> shards) {
  const arguments::Checks checks(nullptr, "merge", arguments::Form::owned);
  if (shards.empty()) checks.fail("no shard is given; give at least one");
  std::int64_t total = 0;  // of those that know it
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
  }
  PartialResult result = shards[0];
  result.dispatch = merged_dispatch(shards);
  for (const auto& shard : shards.subspan(1)) {
    if (shard.vocab_size_total == 0) result.vocab_size_total = 0;
    result.columns += shard.columns;
    for (std::size_t row = 0; row < result.rows.size(); ++row) {
      result.rows[row] = merge(result.rows[row], shard.rows[row]);
    }
  }
  return result;
}

LossResult combine(std::span<const PartialResult> shards, const CombineInputs& inputs,
                   const LossOptions& options) {
  const auto merged = merge(shards);
  auto request = check_combine(merged, inputs, options);
  LossResult result;
  loss::allocate_outputs(request, result);

  const auto rank = merged.extents.rank();
  const arguments::RowOffsets label_at(request.labels, rank);
  const arguments::RowOffsets weight_at =
      request.weight ? arguments::RowOffsets(request.weight, rank) : arguments::RowOffsets();
  double total = 0.0;
  double denominator = 0.0;
  for (std::int64_t row = 0; row < request.b; ++row) {
    const auto label =
        arguments::load_int(request.labels.host_data(), request.labels.dtype(), label_at(row));
    const bool counted = label != options.ignore_index;
    const auto& partial = merged.rows[static_cast<std::size_t>(row)];
    RowOutputs values;
    if (counted) {
      double weight = 1.0;
      double label_weight = 1.0;
      if (request.weight) {
        weight =
            arguments::load_f32(request.weight.host_data(), request.weight.dtype(), weight_at(row));
      }
      if (request.class_weight) {
        label_weight =
            arguments::load_f32(request.class_weight.host_data(), request.class_weight.dtype(),
                                label * request.class_weight.strides()[0]);
      }
      values = finish(partial, options, request.v, weight, label_weight);
      total += values.loss;
      denominator += weight * label_weight;
    }
    if (options.reduction == Reduction::none) store(result.loss, row, values.loss);
    store(result.lse, row, values.lse);
    store(result.label_logprob, row, values.label_logprob);
    store(result.entropy, row, values.entropy);
    store(result.z_loss, row, values.z_loss);
    if (result.argmax) {
      result.argmax.as<std::int32_t>()[static_cast<std::size_t>(row)] =
          counted ? partial.argmax : -1;
    }
    if (result.statistics) {
      // What backward would have been given by forward; an ignored row has seen no column.
      store(result.statistics, 2 * row, counted ? partial.max : -infinity);
      store(result.statistics, 2 * row + 1, counted ? partial.sum : 0.0);
    }
  }
  if (options.reduction == Reduction::sum) store(result.loss, 0, total);
  if (options.reduction == Reduction::mean) {
    store(result.loss, 0, denominator == 0.0 ? 0.0 : total / denominator);
  }
  result.dispatch = merged.dispatch;
  return result;
}

}  // namespace tessera
