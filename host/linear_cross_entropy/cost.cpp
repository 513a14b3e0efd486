// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/arguments/bytes.hpp"
#include "host/linear_cross_entropy/request.hpp"

namespace tessera::linear_cross_entropy {

namespace {

using arguments::distinct_bytes;
using arguments::saturating_product;
using arguments::saturating_sum;

std::int64_t blocks_of(std::int64_t extent, std::int64_t block) {
  return extent == 0 ? 0 : (extent - 1) / std::max<std::int64_t>(block, 1) + 1;
}

/// `bytes` once more for each repetition beyond the first.
std::int64_t again(std::int64_t bytes, std::int64_t times) {
  return saturating_product(bytes, std::max<std::int64_t>(times - 1, 0));
}

}  // namespace

CostEstimate cost(const Request& r, const BlockSizes& blocks, std::int64_t formed) {
  const auto& g = r.gradients;
  const std::int64_t b = r.loss.b;
  const std::int64_t v = r.loss.v;
  const bool cap = r.loss.options.logit_soft_cap != 0.0f;
  const std::int64_t logits = saturating_product(b, v);
  const std::int64_t product = saturating_product(saturating_product(2, logits), hidden(r));

  CostEstimate c;
  c.flops = saturating_product(product, 1 + (g.grad_x ? 1 : 0) + (g.grad_w ? 1 : 0));
  c.executed_flops = saturating_sum(c.flops, again(product, formed));

  // One exp (and tanh) per logit formed, one log per row; value_and_grad takes the exp a second
  // time, of logit - lse, once lse is known.
  const std::int64_t exps =
      std::max<std::int64_t>(r.loss.pass == Pass::value_and_grad ? 2 : 1, formed);
  c.transcendentals = saturating_product(logits, exps + (cap ? formed : 0));
  if (r.loss.wants_values()) c.transcendentals = saturating_sum(c.transcendentals, b);

  c.bytes_ideal = r.loss.ideal_bytes();

  // b_block_size rows share one pass over w; each slice of v_block_size columns reads x once.
  const std::int64_t row_blocks = blocks_of(b, blocks.b_block_size);
  const std::int64_t slices = blocks_of(v, blocks.v_block_size);
  const std::int64_t x = distinct_bytes(r.inputs.x);
  const std::int64_t w = distinct_bytes(r.inputs.w);
  std::int64_t moved = c.bytes_ideal;
  const auto add = [&](std::int64_t bytes) { moved = saturating_sum(moved, bytes); };
  const auto product_pass = [&](bool first) {
    add(first ? again(x, slices) : saturating_product(x, slices));
    add(first ? again(w, row_blocks) : saturating_product(w, row_blocks));
  };
  product_pass(true);
  for (std::int64_t i = 1; i < formed; ++i) product_pass(false);
  if (g.grad_x || g.grad_w) {
    // dz, in f32, is written once and read by each product that needs it.
    add(saturating_product(saturating_product(4, logits),
                           1 + (g.grad_x ? 1 : 0) + (g.grad_w ? 1 : 0)));
  }
  if (g.grad_x) {  // w again, and f32 sums carried from slice to slice
    add(saturating_product(w, row_blocks));
    add(saturating_product(again(saturating_product(saturating_product(4, b), hidden(r)), slices),
                           2));
  }
  if (g.grad_w) {  // x again, and f32 sums carried from one block of rows to the next
    add(saturating_product(x, slices));
    add(saturating_product(
        again(saturating_product(saturating_product(4, v), hidden(r)), row_blocks), 2));
  }
  c.bytes_moved = moved;
  return c;
}

}  // namespace tessera::linear_cross_entropy
