// SPDX-License-Identifier: Apache-2.0
#include "host/loss/results.hpp"

#include <exception>
#include <string>

#include "host/loss/partial.hpp"
#include "host/operators/bind.hpp"

namespace tessera::loss {

void describe_outputs(LossRequest& request) {
  auto& call = request.call;
  const DType index = request.v_total > most_i32_columns ? DType::i64 : DType::i32;
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    if (!call.wants[i]) continue;
    const auto& output = call.op->outputs[i];
    const DType type = output.types == ElementTypes::integer ? index : DType::f32;
    call.outputs[i] = MutableView::host(nullptr, type, extents_of(output.shape, request));
  }
}

void describe_partial(LossRequest& request, std::int64_t own_words) {
  constexpr std::int64_t words = sizeof(PartialWords) / sizeof(float);
  request.partial = MutableView::host(nullptr, DType::f32, {request.b, words});
  if (own_words > 0) {
    request.own_partial = MutableView::host(nullptr, DType::f32, {request.b, own_words});
  }
}

namespace {

/// New rows behind a view that is described.
template <class Row>
void allocate_rows(MutableView& view, std::int64_t count, std::vector<Row>& rows) {
  if (!view) return;
  try {
    rows.resize(static_cast<std::size_t>(count));
  } catch (const std::exception&) {
    throw Error(ErrorCode::out_of_memory, "partial: the host has no memory for " +
                                              std::to_string(view.extents()[0]) +
                                              " rows; split them");
  }
  view = MutableView::host(rows.data(), DType::f32, view.extents());
}

void read_partial(const LossRequest& request, const std::vector<PartialWords>& words,
                  PartialResult& result) {
  result.rows.resize(words.size());
  result.extents = request.leading;
  result.vocab_size_total = request.v_total;
  const std::int64_t begin = request.options.vocab_offset;
  if (request.v > 0) result.ranges = {{begin, begin + request.v}};
  for (std::size_t row = 0; row < words.size(); ++row) {
    const auto& from = words[row];
    result.rows[row] = {.max = from.max,
                        .sum = from.sum,
                        .label_logit = from.label_logit,
                        .class_logit = from.class_logit,
                        .class_sum = from.class_sum,
                        .argmax_value = from.argmax_value,
                        .argmax = from.argmax < 0 ? -1 : from.argmax + request.options.vocab_offset,
                        .exp_logit = from.exp_logit,
                        .target_logit = from.target_logit,
                        .target_sum = from.target_sum,
                        .weighted_logit = from.weighted_logit,
                        .weighted_sum = from.weighted_sum};
  }
}

}  // namespace

}  // namespace tessera::loss

namespace tessera::operators {

loss::CallPartial forward_partial(Context& context, Call call) {
  return with_checked(context, std::move(call), Form::owned, [&](Request& checked) {
    auto& request = static_cast<loss::LossRequest&>(checked);
    loss::CallPartial partial;
    std::vector<loss::PartialWords> words;
    loss::allocate_rows(request.partial, request.b, words);
    loss::allocate_rows(request.own_partial, request.own_partial.size(), partial.own);
    auto completion = run_checked(context, request);
    completion.wait();
    loss::read_partial(request, words, partial.result);
    partial.result.dispatch = completion.dispatch();
    return partial;
  });
}

}  // namespace tessera::operators
