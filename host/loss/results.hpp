// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "host/loss/request.hpp"
#include "tessera/operator.hpp"

/// Results that the library owns.
namespace tessera::loss {

/// What an output of a request is, without memory. Columns that an i32 cannot number make it i64.
template <class Output>
MutableView described(const Output& output, const LossRequest& request) {
  const DType index = request.v_total > most_i32_columns ? DType::i64 : DType::i32;
  return MutableView::host(nullptr, output.types == ElementTypes::integer ? index : DType::f32,
                           output.shape.extents(request.leading, request.options.reduction,
                                                [&](char) { return request.v; }));
}

/// Fills the request's outputs with views without memory for what `wants` names, so that they can
/// be described (plan) or allocated (calls that own their results). The loss always is among them.
void describe_outputs(LossRequest& request);
/// The view without memory of forward_partial's rows.
void describe_partial(LossRequest& request);

/// Gives the request's outputs the memory of new tensors of `result`. Throws Error out_of_memory.
void allocate_outputs(LossRequest& request, LossResult& result);
/// The rows of forward_partial, and `words` for the implementation to write.
void allocate_partial(LossRequest& request, PartialResult& result,
                      std::vector<PartialWords>& words);
/// Those rows, from what has been written.
void read_partial(const LossRequest& request, const std::vector<PartialWords>& words,
                  PartialResult& result);

/// Rows of 4-byte words as [b, words].
template <class Row>
MutableView view_of(Row* rows, std::int64_t b) {
  static_assert(sizeof(Row) % sizeof(float) == 0 && alignof(Row) == alignof(float),
                "words without gaps");
  return MutableView::host(rows, DType::f32, {b, sizeof(Row) / sizeof(float)});
}

/// One row for each of the request's. Throws Error out_of_memory.
template <class Row>
void resize_rows(const LossRequest& request, std::vector<Row>& rows) {
  try {
    rows.resize(static_cast<std::size_t>(request.b));
  } catch (const std::exception&) {
    throw Error(ErrorCode::out_of_memory, "partial: the host has no memory for " +
                                              std::to_string(request.b) + " rows; split them");
  }
}

/// The same, as a view of words.
template <class Row>
MutableView allocate_rows(const LossRequest& request, std::vector<Row>& rows) {
  resize_rows(request, rows);
  return view_of(rows.data(), request.b);
}

}  // namespace tessera::loss
