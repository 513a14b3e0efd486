// SPDX-License-Identifier: Apache-2.0
#include "host/loss/results.hpp"

#include "host/arguments/owned.hpp"

namespace tessera::loss {

void describe_outputs(LossRequest& request) {
  const auto& options = request.options;
  for (const auto& output : loss_outputs) {
    if (output.wanted != nullptr && !(options.wants.*output.wanted)) continue;
    request.outputs.*output.view = described(output, request);
  }
}

void describe_partial(LossRequest& request) {
  request.partial = view_of<PartialWords>(nullptr, request.b);
}

void allocate_outputs(LossRequest& request, LossResult& result) {
  for (const auto& output : loss_outputs) {
    arguments::allocate(request.outputs.*output.view, result.*output.owned, output.name);
  }
}

void allocate_partial(LossRequest& request, PartialResult& result,
                      std::vector<PartialWords>& words) {
  request.partial = allocate_rows(request, words);
  resize_rows(request, result.rows);
  result.extents = request.leading;
  result.vocab_size_total = request.v_total;
  const std::int64_t begin = request.options.vocab_offset;
  if (request.v > 0) result.ranges = {{begin, begin + request.v}};
}

void read_partial(const LossRequest& request, const std::vector<PartialWords>& words,
                  PartialResult& result) {
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

}  // namespace tessera::loss
