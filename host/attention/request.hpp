// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "host/attention/traits.hpp"
#include "host/operators/bind.hpp"

namespace tessera::attention {

/// A validated call by the names of the operator's structs. It refers to the call, which outlives
/// it.
struct Request {
  const View &q, &k, &v;
  View bias;  ///< [..., Q, S, T], repeated along axes of 1 by strides of 0
  const View &kv_lengths, &sinks, &alibi_slopes;
  const MutableView &y, &lse;
  Options options;
  float scale;                  ///< as given, else 1 / sqrt(D)
  std::int64_t b;               ///< sequences: the product of the leading axes
  std::int64_t q_heads, heads;  ///< of q; of k and v
  std::int64_t s, t, d, e;
  const operators::Request& base;
};

Request request_of(const dispatch::Request& request);

/// The place of query i among n keys: it may lie before the first, or behind the last.
inline std::int64_t place_of(const Request& request, std::int64_t i, std::int64_t n) {
  return request.options.causal == Causal::upper_left ? i : i + n - request.s;
}

/// The keys that a query sees by its place, [begin, end); none where end is not behind begin.
struct Keys {
  std::int64_t begin, end;
};
/// The keys of query i, in a sequence of n.
Keys keys_of(const Request& request, std::int64_t i, std::int64_t n);

/// By T where lengths are given: their values count for nothing.
CostEstimate cost(const Request& request);

/// Error naming the first length that is negative or beyond T. The lengths are in host memory.
void check_lengths(const arguments::Checks& checks, const operators::Call& call);
/// The same for a call whose views were mapped to host memory.
void check_values(const ContextState& state, const operators::Request& request);

// Each implementation's file defines one of these rows.
std::unique_ptr<dispatch::Implementation> eigen_implementation();      ///< eigen.cpp
std::unique_ptr<dispatch::Implementation> reference_implementation();  ///< reference.cpp

}  // namespace tessera::attention
