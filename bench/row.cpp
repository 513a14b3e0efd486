// SPDX-License-Identifier: Apache-2.0
#include "bench/row.hpp"

#include <fmt/format.h>

#include "bench/operator.hpp"

namespace tessera::bench {

std::string Row::name() const {
  const auto& p = problem;
  std::string text = fmt::format("{}/{}/{}/{}", p.op->name(), tessera::to_string(pass),
                                 implementation, tessera::to_string(p.x));
  if (p.w != p.x) text += fmt::format(":{}", tessera::to_string(p.w));
  if (p.op->has_weights()) text += p.w_is_vh ? "/vh" : "/hv";
  text += "/" + p.op->text_of(p.shape);
  for (const auto& set : p.set) text += fmt::format("/{}={}", set.name, set.text);
  if (gradients() && !(grad_x && grad_w)) text += grad_x ? "/dx" : "/dw";
  if (in_place) text += "/in_place";
  if (p.target_pairs > 0) text += fmt::format("/pairs{}", p.target_pairs);
  if (p.dense_targets) text += "/dense";
  if (p.op->has_teacher()) text += fmt::format("/{}", to_string(p.divergence));
  if (p.trained) text += "/trained";
  if (gradient_filter_eps > 0.0f) text += fmt::format("/filter{:g}", gradient_filter_eps);
  if (p.ignored > 0.0) text += fmt::format("/ignored{:g}", 100.0 * p.ignored);
  if (names_blocks && !block_sizes.empty()) {
    text += "/blocks";
    for (const auto& size : block_sizes) {
      text += fmt::format("{}{}", &size == &block_sizes.front() ? "" : "x", size.value);
    }
  }
  return text;
}

}  // namespace tessera::bench
