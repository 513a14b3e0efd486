// SPDX-License-Identifier: Apache-2.0
#include "host/attention/request.hpp"

#include <algorithm>
#include <cmath>

namespace tessera::attention {
namespace {

/// The same memory with the extents of `to`; axes of 1 are repeated.
View repeated(const View& view, const Dims& to) {
  if (!view) return view;
  Dims strides = view.strides();
  for (int axis = 0; axis < to.rank(); ++axis) {
    if (view.extents()[axis] == 1) strides[axis] = 0;
  }
  return view.reshaped(to, strides);
}

/// The sum of i + shift over the queries i, each kept to 0 to n.
std::int64_t sum_of_places(std::int64_t queries, std::int64_t shift, std::int64_t n) {
  const std::int64_t from = std::clamp<std::int64_t>(-shift, 0, queries);
  const std::int64_t to = std::clamp<std::int64_t>(n - shift, from, queries);
  return (to - from) * (from + to - 1 + 2 * shift) / 2 + (queries - to) * n;
}

/// The number of keys that the queries of a head see together, by their places; at most the
/// largest integer.
std::int64_t pairs_of(const Request& r) {
  const std::int64_t all = arguments::saturating_product(r.s, r.t);
  const auto& o = r.options;
  if (all > INT64_MAX / 4) return all;
  const std::int64_t first = place_of(r, 0, r.t);
  // A window that is longer than all keys bounds nothing.
  const std::int64_t widest = r.s + r.t;
  std::int64_t ahead = o.window_right < 0 ? widest : std::min(o.window_right, widest);
  if (o.causal != Causal::no) ahead = 0;
  const std::int64_t behind = o.window_left < 0 ? widest : std::min(o.window_left, widest);
  return sum_of_places(r.s, first + ahead + 1, r.t) - sum_of_places(r.s, first - behind, r.t);
}

}  // namespace

Request request_of(const dispatch::Request& request) {
  using operators::input;
  const auto& base = static_cast<const operators::Request&>(request);
  const auto& call = base.call;
  const View& q = input<Operator, &Inputs::q>(call);
  const View& k = input<Operator, &Inputs::k>(call);
  const View& v = input<Operator, &Inputs::v>(call);
  const int leading = q.rank() - 3;
  Dims logits = q.extents();
  logits[leading + 2] = k.extents()[leading + 1];
  const Options options = operators::options_of<Operator>(call);
  const std::int64_t d = q.extents().back();
  return {.q = q,
          .k = k,
          .v = v,
          .bias = repeated(input<Operator, &Inputs::bias>(call), logits),
          .kv_lengths = input<Operator, &Inputs::kv_lengths>(call),
          .sinks = input<Operator, &Inputs::sinks>(call),
          .alibi_slopes = input<Operator, &Inputs::alibi_slopes>(call),
          .y = call.outputs[0],
          .lse = call.outputs[1],
          .options = options,
          .scale = options.scale.value_or(1.0f / std::sqrt(static_cast<float>(d))),
          .b = q.extents().first(leading).product(),
          .q_heads = q.extents()[leading],
          .heads = k.extents()[leading],
          .s = q.extents()[leading + 1],
          .t = k.extents()[leading + 1],
          .d = d,
          .e = v.extents().back(),
          .base = base};
}

Keys keys_of(const Request& r, std::int64_t i, std::int64_t n) {
  const auto& o = r.options;
  const std::int64_t place = place_of(r, i, n);
  Keys keys{0, n};
  if (o.causal != Causal::no) keys.end = std::min(keys.end, place + 1);
  // Differences rather than sums: a window may be as large as an integer.
  if (o.window_right >= 0 && o.window_right < n - 1 - place)
    keys.end = std::min(keys.end, place + o.window_right + 1);
  if (o.window_left >= 0 && o.window_left < place) keys.begin = place - o.window_left;
  return keys;
}

CostEstimate cost(const Request& r) {
  using arguments::saturating_product;
  const std::int64_t pairs = saturating_product(pairs_of(r), saturating_product(r.b, r.q_heads));
  CostEstimate c;
  // A product and a sum for each element of k and v.
  c.flops = c.executed_flops = saturating_product(pairs, 2 * (r.d + r.e));
  c.transcendentals = saturating_product(pairs, r.options.logit_soft_cap != 0.0f ? 2 : 1);
  c.bytes_ideal = c.bytes_moved = r.base.ideal_bytes();
  return c;
}

}  // namespace tessera::attention
