// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/data.hpp"

namespace tessera::bench {

/// What a call reads and writes, by the names of its arguments.
struct Views {
  ByName<View> inputs{};
  ByName<MutableView> outputs{};  ///< gradients too
};

/// The views of a row without memory: enough for a question.
Views question_of(const Row& row);

/// Fills an output of the context, or of the host, with NaN; integers with -1.
void poison(Context& context, const MutableView& view);
/// An output as the last call left it.
HostTensor fetch(Context& context, const View& view);

/// The arrays of one call: one of several sets that take turns, so that no cache holds them.
class Arrays {
 public:
  /// `on_device`: in memory of the context's device, which must have one; else in host memory.
  /// `borrow`: read the inputs from `data` itself instead of a copy.
  Arrays(Context& context, const Data& data, const Row& row, bool on_device, bool borrow);
  ~Arrays();
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  const Views& views() const { return views_; }

  /// In place: the inputs as they were before a call wrote its gradients over them.
  void restore_inputs(const Data& data);
  /// Fills the outputs with NaN, but for what backward reads of a forward.
  void poison();
  /// An output as the last call left it.
  HostTensor fetch(const MutableView& view) const;

  /// Bytes of the targets, operands and gradients of one set.
  static std::int64_t bytes(const Row& row);

 private:
  /// A copy of `data`.
  MutableView place(const void* data, const ArrayOf& array);
  MutableView make(const ArrayOf& array);
  void write(const MutableView& view, const void* data);

  Context& context_;
  bool on_device_ = false;
  std::vector<ArrayOf> gradients_{};  ///< that the row forms
  bool in_place_ = false;
  Views views_{};
  MutableView result_{};  ///< what the operator is for
  std::vector<std::unique_ptr<HostTensor>> host_{};
  std::vector<cl_mem> device_{};
};

}  // namespace tessera::bench
