// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "reference/streaming/rows.hpp"

/// attention on the host: tiles of logits of a few hundred rows and keys, with an online softmax.
/// A row is a query of one head; rows of the heads that share a head of k and v are interleaved, so
/// that they share what is read of it.
namespace tessera::streaming {

/// An array with a batch, heads, tokens and a depth. Strides in elements; 0: broadcast.
template <class Pointer>
struct HeadsOf {
  Pointer data = nullptr;
  Type type = Type::f32;
  const std::int64_t* offsets = nullptr;  ///< [batch], elements
  std::int64_t head_stride = 0, token_stride = 0, depth_stride = 0;
};
using Heads = HeadsOf<void*>;
using ConstHeads = HeadsOf<const void*>;

/// Everything that fixes the plan: no data, no masks.
struct AttentionShape {
  std::int64_t batch = 0, q_heads = 0, kv_heads = 0;
  std::int64_t queries = 0, keys = 0;  ///< S, T
  std::int64_t d = 0, e = 0;           ///< depths of q and k, and of v and y
};

struct AttentionProblem : AttentionShape {
  ConstHeads q{}, k{}, v{};
  ConstHeads bias{};                      ///< depth: keys; without data: none
  const std::int64_t* lengths = nullptr;  ///< [batch], in [0, keys]; nullptr: `keys`
  const float* sinks = nullptr;           ///< [q_heads]
  const float* slopes = nullptr;          ///< [q_heads]
  Heads y{}, lse{};                       ///< without data: not wanted; lse is f32, without depth
  float scale = 1.0f, cap = 0.0f;
  bool causal = false;
  bool upper_left = false;  ///< query i stands at key i; else the last query at the last key
  std::int64_t window_left = -1, window_right = -1;  ///< -1: unbounded
};

struct AttentionPlan {
  const char* schedule = "";
  std::int64_t q_block = 0;   ///< rows of a task
  std::int64_t kv_block = 0;  ///< keys of a tile
  std::int64_t parts = 1;     ///< of the keys, tasks that share rows; merged in order
  std::int64_t gemm_floats = 0;
  int threads = 1;  ///< that work on it: each has scratch of its own
  std::int64_t workspace_bytes = 0;
};

/// The best plan whose scratch stays within `limit` and, where blocks are chosen here, within
/// 1 MiB a thread, else the one that takes least. Block sizes of 0 are chosen here.
AttentionPlan plan_attention(const AttentionShape& shape, std::int64_t q_block,
                             std::int64_t kv_block, int threads, std::int64_t limit,
                             const Kernels& kernels);

/// Runs `plan`, made for the problem's shape, in `workspace` (plan.workspace_bytes bytes, aligned
/// to 64).
void run_attention(const AttentionProblem& problem, const AttentionPlan& plan,
                   const Environment& environment, void* workspace);

}  // namespace tessera::streaming
