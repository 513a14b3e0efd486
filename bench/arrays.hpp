// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/row.hpp"

namespace tessera::bench {

/// What every row of a problem reads, made once on the host. Random, never zeros: x is normal with
/// a few strong channels, as hidden states of language models have them; the logits have a spread
/// of about two; labels follow Zipf's law, as words do.
struct Data {
  ProblemKey key{};
  HostTensor x{};       ///< [B, H]; empty for the softmax
  HostTensor w{};       ///< [H, V] in the key's layout; empty for the softmax
  HostTensor logits{};  ///< [B, V]; the softmax only
  std::vector<std::int32_t> labels{};
  std::vector<std::int64_t> counted{};  ///< the rows whose label is not ignored
  /// lse of each row by the streaming implementation, in f32; what `judge` compares the loss with,
  /// after checking some of its rows.
  std::vector<double> lse{};
};
Data make_data(const ProblemKey& key, int threads);

/// Strides of w and of its gradient.
Dims w_strides(const ProblemKey& key);
/// Element `index` of an array of f32, bf16 or f16, widened.
double element(const void* data, DType type, std::int64_t index);

/// The arrays of one call: one of several sets that take turns, so that no cache holds them.
class Arrays {
 public:
  /// `on_device`: in memory of the context's device, which must have one; else in host memory.
  /// `borrow`: read the inputs from `data` itself instead of a copy.
  Arrays(Context& context, const Data& data, const Row& row, bool on_device, bool borrow);
  ~Arrays();
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  View x{}, w{}, logits{}, labels{};
  MutableView loss{};        ///< ()
  MutableView statistics{};  ///< [B, 2]: forward writes it, backward reads it
  MutableView grad_x{}, grad_w{}, grad_logits{};

  /// In place: the logits as they were before a call wrote its gradient over them.
  void restore_logits(const Data& data);
  /// Fills every output with NaN.
  void poison();
  /// An output as the last call left it.
  HostTensor fetch(const MutableView& view) const;

  /// Bytes of the arrays of one set.
  static std::int64_t bytes(const Row& row);

 private:
  View place(const void* data, DType type, const Dims& extents, const Dims& strides, bool borrow);
  MutableView make(DType type, const Dims& extents, const Dims& strides = {});

  Context& context_;
  bool on_device_ = false;
  std::vector<std::unique_ptr<HostTensor>> host_{};
  std::vector<cl_mem> device_{};
};

}  // namespace tessera::bench
