// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include "host/linear_cross_entropy/tile/steps.hpp"

namespace tessera::linear_cross_entropy::tpu_tile {
namespace {

/// What a step works on beside x and w, in the order of the call: inputs, outputs, scratch. grad_x
/// and grad_w are in HBM, their blocks in VMEM.
struct BackwardRefs {
  Ref<std::int32_t> labels;
  Ref<float> bias, class_weight, max, gain, hit, smooth;
  Ref<float> grad_x, grad_w, grad_bias;
  Ref<float> logits;
  Ref<std::int32_t> columns;  ///< 0, 1, 2, ... along a row
  Ref<float> grad_x_block, grad_w_block;
  tile::DmaSemaphore x_reads, w_reads, x_writes, w_writes;
};

/// Which of the optional terms and gradients the kernel has.
struct BackwardTerms {
  bool bias = false, class_weight = false, smooth = false;
  bool grad_x = false, grad_w = false, grad_bias = false;
};

/// Where a step is in the grid (shares, blocks of rows, blocks of columns of a share, 2 stages,
/// blocks of depth).
struct Position {
  std::int64_t share = 0;
  std::int64_t i = 0;      ///< block of rows
  std::int64_t local = 0;  ///< block of columns, counted in its share
  std::int64_t j = 0;      ///< and in the vocabulary
  bool forms_dz = false;   ///< the second stage; the first one sums up the logits
  std::int64_t depth = 0;
  std::int64_t valid = 0;  ///< columns of the block that are of the vocabulary
  bool is_last = false;    ///< of its share
};

/// Blocks of columns of each share, of the last one at most.
std::int64_t share_of(const tile::Chip& chip, const Kernel& k) {
  return (k.column_blocks() - 1) / splits(chip, k) + 1;
}

Position position_of(const Kernel& k, std::int64_t per_share) {
  Position p;
  p.share = tile::program_id(0);
  p.i = tile::program_id(1);
  p.local = tile::program_id(2);
  p.j = p.share * per_share + p.local;
  p.forms_dz = tile::program_id(3) == 1;
  p.depth = tile::program_id(4);
  p.valid = std::min(k.blocks.v_block_size, k.v - p.j * k.blocks.v_block_size);
  p.is_last = p.i + 1 == k.row_blocks() && p.depth + 1 == k.depth_blocks() &&
              (p.local + 1 == per_share || p.j + 1 == k.column_blocks());
  return p;
}

/// A block of grad_x or grad_w, to which several steps add: in HBM, in VMEM, and on the way.
struct GradientBlock {
  bool given = false;
  bool adds = false;  ///< a step before this one has written it
  Ref<float> hbm, vmem;
  tile::DmaSemaphore reads, writes;

  void start_read() const {
    if (adds) tile::async_copy(hbm, vmem, reads);
  }
  void wait_for_read() const {
    if (adds) tile::make_async_copy(hbm, vmem, reads).wait();
  }
  void start_write() const { tile::async_copy(vmem, hbm, writes); }
  void wait_for_write() const {
    if (given) tile::make_async_copy(vmem, hbm, writes).wait();
  }
};

GradientBlock grad_x_block(const Kernel& k, const BackwardTerms& terms, const BackwardRefs& r,
                           const Position& p) {
  const std::int64_t b = k.blocks.b_block_size, h = k.blocks.h_block_size;
  return {.given = terms.grad_x,
          .adds = terms.grad_x && p.local > 0,
          .hbm = terms.grad_x ? r.grad_x.at(p.share, ds(p.i * b, b), ds(p.depth * h, h)) : r.grad_x,
          .vmem = r.grad_x_block,
          .reads = r.x_reads,
          .writes = r.x_writes};
}

GradientBlock grad_w_block(const Kernel& k, const BackwardTerms& terms, const BackwardRefs& r,
                           const Position& p) {
  const std::int64_t h = k.blocks.h_block_size, v = k.blocks.v_block_size;
  return {.given = terms.grad_w,
          .adds = terms.grad_w && p.i > 0,
          .hbm = !terms.grad_w    ? r.grad_w
                 : k.grad_w_is_vh ? r.grad_w.at(ds(p.j * v, v), ds(p.depth * h, h))
                                  : r.grad_w.at(ds(p.depth * h, h), ds(p.j * v, v)),
          .vmem = r.grad_w_block,
          .reads = r.w_reads,
          .writes = r.w_writes};
}

/// In place: final logits become dz; the block's columns begin with `first`. `smooth` and `weight`
/// are refs, or 0 and 1.
template <class Slope, class Smooth, class Weight>
void form_dz(const BackwardRefs& r, std::int32_t first, const Slope& slope, const Smooth& smooth,
             const Weight& weight) {
  if constexpr (std::is_same_v<Smooth, float>) {
    tile::map(
        r.logits, {8, 1},
        [=](float z, float m, float g, float y, std::int32_t label, std::int32_t c) {
          const float one_hot = tile::where(c + first == label, y, 0.0f);
          return (g * tile::exp(tile::minimum(z - m, 0.0f)) - one_hot) * slope(z);
        },
        r.logits, column(r.max), column(r.gain), column(r.hit), column(r.labels), r.columns);
  } else {
    tile::map(
        r.logits, {10, 1},
        [=](float z, float m, float g, float y, std::int32_t label, std::int32_t c, float s,
            float q) {
          const float one_hot = tile::where(c + first == label, y, 0.0f);
          return (g * tile::exp(tile::minimum(z - m, 0.0f)) - s * q - one_hot) * slope(z);
        },
        r.logits, column(r.max), column(r.gain), column(r.hit), column(r.labels), r.columns, smooth,
        weight);
  }
}

template <class Slope>
void form_dz(const BackwardTerms& terms, const BackwardRefs& r, std::int32_t first,
             const Slope& slope) {
  if (!terms.smooth) {
    form_dz(r, first, slope, 0.0f, 1.0f);
  } else if (terms.class_weight) {
    form_dz(r, first, slope, column(r.smooth), r.class_weight);
  } else {
    form_dz(r, first, slope, column(r.smooth), 1.0f);
  }
}

/// The summed products become dz, and its columns grad_bias.
void logits_to_dz(const Kernel& k, const BackwardTerms& terms, const BackwardRefs& r,
                  const Position& p) {
  const std::int64_t v = k.blocks.v_block_size;
  if (p.i == 0 && p.local == 0) tile::iota(r.columns, 1);
  finish_logits(k, r.logits, terms.bias ? &r.bias : nullptr, p.valid);
  const auto first = static_cast<std::int32_t>(p.j * v);
  if (k.cap != 0.0f) {
    form_dz(terms, r, first, [scale = k.scale, inverse = 1.0f / k.cap](float z) {
      const float t = z * inverse;
      return scale * (1.0f - t * t);
    });
  } else {
    form_dz(terms, r, first, [scale = k.scale](float) { return scale; });
  }
  if (p.valid < v) tile::fill(r.logits.at(all, ds(p.valid, v - p.valid)), 0.0f);
  if (terms.grad_bias) tile::reduce_sum(r.grad_bias, r.logits, 0);
}

template <class W>
void add_grad_x(const Kernel& k, const Ref<float>& dz, const Ref<W>& w, const Position& p,
                const GradientBlock& grad_x) {
  // Columns behind the vocabulary are NaN, and 0 times NaN is one.
  if (const std::int64_t behind = k.blocks.v_block_size - p.valid; behind > 0) {
    tile::fill(k.w_is_vh ? w.at(ds(p.valid, behind)) : w.at(all, ds(p.valid, behind)), 0.0f);
  }
  grad_x.wait_for_read();
  auto product = k.product;
  product.transpose_b = !k.w_is_vh;
  product.accumulate = grad_x.adds;
  tile::dot(dz, w, grad_x.vmem, product);
  grad_x.start_write();
}

template <class X>
void add_grad_w(const Kernel& k, const Ref<X>& x, const Ref<float>& dz,
                const GradientBlock& grad_w) {
  grad_w.wait_for_read();
  auto product = k.product;
  product.transpose_a = true;
  product.accumulate = grad_w.adds;
  if (k.grad_w_is_vh) {
    tile::dot(dz, x, grad_w.vmem, product);
  } else {
    tile::dot(x, dz, grad_w.vmem, product);
  }
  grad_w.start_write();
}

/// One point of the grid. In the first stage a block of logits is summed up over the depth; in the
/// second it becomes dz, whose products with each block of w and of x are added to the gradients.
template <class X, class W>
void step(const Kernel& k, const BackwardTerms& terms, std::int64_t per_share, const Ref<X>& x,
          const Ref<W>& w, const BackwardRefs& r) {
  const Position p = position_of(k, per_share);
  // The last share may have a block less; its index map stays where it was.
  if (p.j >= k.column_blocks()) return;
  if (!p.forms_dz) {
    auto product = k.product;
    product.transpose_b = k.w_is_vh;
    product.accumulate = p.depth > 0;
    tile::dot(x, w, r.logits, product);
    return;
  }
  const GradientBlock grad_x = grad_x_block(k, terms, r, p);
  const GradientBlock grad_w = grad_w_block(k, terms, r, p);
  const auto wait_for_writes = [&] {
    grad_x.wait_for_write();
    grad_w.wait_for_write();
  };
  if (p.i > 0 || p.local > 0 || p.depth > 0) wait_for_writes();
  // What is there comes while dz is formed.
  grad_x.start_read();
  grad_w.start_read();
  if (p.depth == 0) logits_to_dz(k, terms, r, p);
  if (terms.grad_x) add_grad_x(k, r.logits, w, p, grad_x);
  if (terms.grad_w) add_grad_w(k, x, r.logits, grad_w);
  if (p.is_last) wait_for_writes();
}

template <class X, class W>
void call_backward(tile::Machine& machine, const Kernel& k, const BackwardArrays& a,
                   const tile::Array<X>& x_array, const tile::Array<W>& w_array) {
  const std::int64_t b = k.blocks.b_block_size, h = k.blocks.h_block_size,
                     v = k.blocks.v_block_size;
  const std::int64_t shares = splits(machine.options().chip, k);
  const std::int64_t per_share = share_of(machine.options().chip, k);
  const Optional<float> bias(machine, a.bias, "bias");
  const Optional<float> class_weight(machine, a.class_weight, "class_weight");
  const Optional<float> smooth(machine, a.smooth, "smooth");
  const Optional<float> grad_x(machine, a.grad_x, "grad_x");
  const Optional<float> grad_w(machine, a.grad_w, "grad_w");
  const Optional<float> grad_bias(machine, a.grad_bias, "grad_bias");
  const BackwardTerms terms{bias.given(),   class_weight.given(), smooth.given(),
                            grad_x.given(), grad_w.given(),       grad_bias.given()};

  const auto column_block = [per_share, blocks = k.column_blocks()](const auto& g) {
    return std::min(g[0] * per_share + g[2], blocks - 1);
  };
  const auto per_row = BlockSpec::blocks({b}, [](const auto& g) { return tile::ix(g[1]); });
  const auto per_column =
      BlockSpec::blocks({1, v}, [=](const auto& g) { return tile::ix(0, column_block(g)); });
  // Without a gradient its block is not needed.
  const tile::Shape none{1};
  using enum tile::Semantics;
  tile::call(
      machine, "linear_cross_entropy_backward",
      {.grid = {shares, k.row_blocks(), per_share, 2, k.depth_blocks()},
       .in = {BlockSpec::blocks({b, h}, [](const auto& g) { return tile::ix(g[1], g[4]); }),
              k.w_is_vh
                  ? BlockSpec::blocks(
                        {v, h}, [=](const auto& g) { return tile::ix(column_block(g), g[4]); })
                  : BlockSpec::blocks(
                        {h, v}, [=](const auto& g) { return tile::ix(g[4], column_block(g)); }),
              per_row, bias.spec(per_column), class_weight.spec(per_column), per_row, per_row,
              per_row, smooth.spec(per_row)},
       .out = {BlockSpec::in_hbm(), BlockSpec::in_hbm(),
               grad_bias.spec(BlockSpec::blocks(
                   {tile::squeezed(), 1, v},
                   [=](const auto& g) { return tile::ix(g[1], 0, column_block(g)); }))},
       .semantics = {parallel, arbitrary, arbitrary, arbitrary, arbitrary}},
      [&](const Ref<X>& x, const Ref<W>& w, const auto&... refs) {
        step(k, terms, per_share, x, w, BackwardRefs{refs...});
      },
      tile::Vmem<float>{{b, v}, "logits"}, tile::Vmem<std::int32_t>{{1, v}, "columns"},
      tile::Vmem<float>{terms.grad_x ? tile::Shape{b, h} : none, "grad_x block"},
      tile::Vmem<float>{!terms.grad_w    ? none
                        : k.grad_w_is_vh ? tile::Shape{v, h}
                                         : tile::Shape{h, v},
                        "grad_w block"},
      tile::DmaSem{"reads of grad_x"}, tile::DmaSem{"reads of grad_w"},
      tile::DmaSem{"writes of grad_x"}, tile::DmaSem{"writes of grad_w"})(
      x_array, w_array, a.labels, bias.array(), class_weight.array(), a.max, a.gain, a.hit,
      smooth.array(), grad_x.array(), grad_w.array(), grad_bias.array());
}

}  // namespace

std::int64_t splits(const tile::Chip& chip, const Kernel& kernel) {
  const std::int64_t cores = chip.megacore ? chip.cores : 1;
  return std::min(cores, kernel.column_blocks());
}

void backward(tile::Machine& machine, const Kernel& kernel, const BackwardArrays& arrays) {
  std::visit([&](const auto& x, const auto& w) { call_backward(machine, kernel, arrays, x, w); },
             arrays.x, arrays.w);
}

}  // namespace tessera::linear_cross_entropy::tpu_tile
