// SPDX-License-Identifier: Apache-2.0
#include "tests/support/attention_case.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "tests/support/compare.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/tolerance.hpp"

namespace tessera::test {
namespace {

Dims shape_of(const Dims& batch, const Dims& own) {
  Dims extents = batch;
  for (const std::int64_t extent : own) extents.push_back(extent);
  return extents;
}

/// Every length that may matter, by turns.
std::int64_t length_of(std::int64_t batch, std::int64_t t) {
  const std::int64_t all[] = {t - t / 3, 0, t, t / 2, std::min<std::int64_t>(t, 1)};
  return all[batch % 5];
}

}  // namespace

Context& attention_context(int threads) {
  static std::map<int, Context> all;
  const auto found = all.find(threads);
  if (found != all.end()) return found->second;
  return all.emplace(threads, Context({.threads = threads, .host_only = true})).first->second;
}

Argument AttentionCall::make(DType type, const Dims& extents, bool of_kv, bool is_output) const {
  Dims strides = contiguous_strides(extents);
  const int batch = c_.batch.rank(), own = extents.rank() - batch;
  const auto layout = c_.layout;
  if (layout == AttentionLayout::tokens_first && own == 3) {
    strides[batch + 1] = extents[batch] * extents[batch + 2];
    strides[batch] = extents[batch + 2];
  } else if (layout == AttentionLayout::padded) {
    std::int64_t step = 1;
    for (int axis = extents.rank() - 1; axis >= 0; --axis) {
      strides[axis] = step;
      step = step * extents[axis] + 3;
    }
  } else if (layout == AttentionLayout::spread) {
    for (int axis = 0; axis < extents.rank(); ++axis) strides[axis] *= 2;
  } else if (layout == AttentionLayout::one_batch && !is_output) {
    for (int axis = 0; axis < batch; ++axis) strides[axis] = 0;
  } else if (layout == AttentionLayout::one_head && of_kv) {
    strides[batch] = 0;
  }
  return make_argument(attention_context(), Place::host, type, extents, strides);
}

AttentionCall::AttentionCall(const AttentionCase& c, std::uint64_t seed) : c_(c) {
  Numbers numbers(seed);
  if (c_.e == 0) c_.e = c_.d;
  const auto fill = [&](Argument& argument, auto value) {
    for (std::int64_t i = 0; i < argument.size(); ++i) {
      argument.storage->set(argument.at(i), value(i));
    }
  };
  const auto normal = [&](std::int64_t) { return numbers.normal(); };
  q = make(c.q_type, shape_of(c.batch, {c.q_heads, c.s, c.d}), false);
  k = make(c.k_type, shape_of(c.batch, {c.kv_heads, c.t, c.d}), true);
  v = make(c.v_type, shape_of(c.batch, {c.kv_heads, c.t, c_.e}), true);
  fill(q, [&](std::int64_t) { return c.size * numbers.with_outliers(); });
  fill(k, normal);
  fill(v, normal);
  if (c.bias.rank() > 0) {
    const Dims whole = shape_of(c.batch, {c.q_heads, c.s, c.t});
    Dims extents = c.bias;
    for (int axis = 0; axis < extents.rank(); ++axis) {
      if (extents[axis] == 0) extents[axis] = whole[axis];
    }
    bias = make(c.bias_type, extents, false);
    fill(bias, [&](std::int64_t) {
      const double value = 2.0 * numbers.normal();
      return c.masks && numbers.below(3) == 0 ? -std::numeric_limits<double>::infinity() : value;
    });
  }
  if (c.sinks) {
    sinks = make_argument(attention_context(), Place::host, *c.sinks, {c.q_heads});
    fill(sinks, [&](std::int64_t h) { return h % 5 == 4 ? -INFINITY : 2.0 * numbers.normal(); });
  }
  if (c.slopes) {
    slopes = make_argument(attention_context(), Place::host, *c.slopes, {c.q_heads});
    fill(slopes, [&](std::int64_t) { return 0.25 * numbers.uniform(); });
  }
  if (!c.lengths) return;
  lengths = make_argument(attention_context(), Place::host, *c.lengths, c.batch);
  const bool shared =
      c.layout == AttentionLayout::one_batch || c.layout == AttentionLayout::one_head;
  for (std::int64_t b = 0; b < lengths.size(); ++b) {
    const std::int64_t n = length_of(b, c.t);
    lengths.storage->set_integer(lengths.at(b), n);
    // Keys beyond a length are never read.
    for (Argument* argument : {&k, &v}) {
      const std::int64_t depth = argument->extents.back();
      for (std::int64_t h = 0; h < c.kv_heads && !shared; ++h) {
        for (std::int64_t i = n * depth; i < c.t * depth; ++i) {
          argument->storage->set(argument->at((b * c.kv_heads + h) * c.t * depth + i),
                                 i % 2 == 0 ? NAN : INFINITY);
        }
      }
    }
  }
}

void AttentionCall::set(Argument& argument, const Dims& at, double value) {
  std::int64_t flat = 0;
  for (int axis = 0; axis < at.rank(); ++axis) flat = flat * argument.extents[axis] + at[axis];
  argument.storage->set(argument.at(flat), value);
}

attention::Inputs AttentionCall::inputs() const {
  return {.q = q.view(),
          .k = k.view(),
          .v = v.view(),
          .bias = bias.view(),
          .kv_lengths = lengths.view(),
          .sinks = sinks.view(),
          .alibi_slopes = slopes.view()};
}

attention::ExecutionOptions AttentionCall::on(const std::string& implementation) const {
  attention::ExecutionOptions execution;
  execution.implementation = implementation;
  execution.block_sizes = c_.blocks;
  return execution;
}

std::optional<std::string> AttentionCall::refusal(const std::string& implementation) const {
  return attention::why_unsupported(attention_context(), implementation, Pass::forward, inputs(),
                                    {}, {}, c_.options, on(implementation));
}

std::vector<std::byte> AttentionCall::run(Context& context, const std::string& implementation) {
  y_ = {};
  lse_ = {};
  if (c_.y) y_ = make(c_.y_type, shape_of(c_.batch, {c_.q_heads, c_.s, c_.e}), false, true);
  if (c_.lse) lse_ = make(DType::f32, shape_of(c_.batch, {c_.q_heads, c_.s}), false, true);
  for (Argument* input : {&q, &k, &v, &bias, &lengths, &sinks, &slopes}) {
    if (*input) input->storage->upload();
  }
  attention::forward(context, inputs(), {.y = y_.mutable_view(), .lse = lse_.mutable_view()},
                     c_.options, on(implementation))
      .wait();
  for (Argument* input : {&q, &k, &v, &bias, &lengths, &sinks, &slopes}) {
    if (!*input) continue;
    EXPECT_EQ(input->storage->download(), "");
    EXPECT_FALSE(input->storage->changed()) << "an input was written to";
  }
  std::vector<std::byte> bits;
  for (const Argument* output : {&y_, &lse_}) {
    if (!*output) continue;
    EXPECT_EQ(output->storage->download(), "");
    const auto bytes = index(output->storage->elements()) * size_of(output->storage->type());
    bits.insert(bits.end(), output->storage->bytes(), output->storage->bytes() + bytes);
  }
  return bits;
}

void AttentionCall::expect_surroundings(const Argument& argument, const std::string& what) const {
  if (!argument) return;
  std::vector<bool> reached(index(argument.storage->elements()));
  std::int64_t missing = 0, beside = 0;
  for (std::int64_t i = 0; i < argument.size(); ++i) {
    const std::int64_t at = argument.at(i);
    reached[index(at)] = true;
    missing += argument.storage->is_poison(at) ? 1 : 0;
  }
  for (std::int64_t at = 0; at < argument.storage->elements(); ++at) {
    beside += !reached[index(at)] && !argument.storage->is_poison(at) ? 1 : 0;
  }
  EXPECT_EQ(missing, 0) << "elements of " << what << " were not written";
  EXPECT_EQ(beside, 0) << "elements beside " << what << " were written";
}

void AttentionCall::check(const std::string& implementation, std::int64_t most_work) {
  const SummaryKey key{implementation, "attention", "forward",
                       std::string(to_string(c_.q_type)) + " " + to_string(c_.k_type) + " " +
                           to_string(c_.v_type) + " -> " + to_string(c_.y_type),
                       "any"};
  Summary::instance().set_case(c_.name);
  Summary::instance().add_case(key, false);
  run(attention_context(), implementation);
  expect_surroundings(y_, "y");
  expect_surroundings(lse_, "lse");
  const AttentionText text(inputs(), c_.options, c_.exact_logits);
  Comparison of_y(key, "y"), of_lse(key, "lse");
  const std::int64_t rows = text.rows();
  const std::int64_t of_a_row = c_.t * (c_.d + c_.e) + 1;
  // An odd step meets rows at every place of blocks of even sizes; the last row is a corner.
  const std::int64_t step = std::max<std::int64_t>(1, rows * of_a_row / most_work) | 1;
  const auto judge = [&](std::int64_t row) {
    const AttentionRow expected = text.row(row);
    if (lse_) of_lse.number(row, lse_.get(row), expected.lse, expected.lse_tolerance);
    for (std::int64_t e = 0; y_ && e < c_.e; ++e) {
      const double value = expected.y[index(e)];
      of_y.number(
          row * c_.e + e, y_.get(row * c_.e + e), value,
          expected.y_tolerance[index(e)] + smallest_step(c_.y_type) +
              unit_roundoff(c_.y_type) * (std::abs(value) + expected.y_tolerance[index(e)]));
    }
  };
  for (std::int64_t row = 0; row < rows; row += step) judge(row);
  if (rows > 0 && step > 1) judge(rows - 1);
}

}  // namespace tessera::test
