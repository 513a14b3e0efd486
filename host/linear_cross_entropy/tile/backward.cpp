// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include "host/linear_cross_entropy/tile/steps.hpp"

namespace tessera::linear_cross_entropy::tpu_tile {
namespace {

/// In place: final logits become dz. `smooth` and `weight` are refs, or 0 and 1.
template <class Slope, class Smooth, class Weight>
void form_dz(const Ref<float>& logits, const Ref<float>& max, const Ref<float>& gain,
             const Ref<float>& hit, const Ref<std::int32_t>& labels,
             const Ref<std::int32_t>& columns, std::int32_t first, const Slope& slope,
             const Smooth& smooth, const Weight& weight) {
  if constexpr (std::is_same_v<Smooth, float>) {
    tile::map(
        logits, {7, 1},
        [=](float z, float m, float g, float y, std::int32_t label, std::int32_t c) {
          const float one_hot = tile::where(c + first == label, y, 0.0f);
          return (g * tile::exp(z - m) - one_hot) * slope(z);
        },
        logits, column(max), column(gain), column(hit), column(labels), columns);
  } else {
    tile::map(
        logits, {9, 1},
        [=](float z, float m, float g, float y, std::int32_t label, std::int32_t c, float s,
            float q) {
          const float one_hot = tile::where(c + first == label, y, 0.0f);
          return (g * tile::exp(z - m) - s * q - one_hot) * slope(z);
        },
        logits, column(max), column(gain), column(hit), column(labels), columns, smooth, weight);
  }
}

template <class X, class W>
void run(tile::Machine& machine, const Kernel& k, const BackwardArrays& a,
         const tile::Array<X>& x_array, const tile::Array<W>& w_array) {
  const std::int64_t b = k.blocks.b_block_size, h = k.blocks.h_block_size,
                     v = k.blocks.v_block_size;
  const std::int64_t shares = splits(machine.options().chip, k);
  const std::int64_t blocks = k.column_blocks();
  const std::int64_t per_share = (blocks - 1) / shares + 1;
  const Optional<float> bias(machine, a.bias, "bias");
  const Optional<float> class_weight(machine, a.class_weight, "class_weight");
  const Optional<float> smooth(machine, a.smooth, "smooth");
  const Optional<float> grad_x(machine, a.grad_x, "grad_x");
  const Optional<float> grad_w(machine, a.grad_w, "grad_w");
  const Optional<float> grad_bias(machine, a.grad_bias, "grad_bias");
  tile::DotOptions logits_product = k.product, x_product = k.product, w_product = k.product;
  logits_product.transpose_b = k.w_is_vh;
  x_product.transpose_b = !k.w_is_vh;
  w_product.transpose_a = true;

  const auto body = [&](auto x, auto w, auto labels, auto bias_row, auto class_row, auto max,
                        auto gain, auto hit, auto smooth_row, auto dx, auto dw, auto dbias,
                        auto logits, auto columns, auto dx_tile, auto dw_tile, auto read_x,
                        auto read_w, auto write_x, auto write_w) {
    const std::int64_t core = tile::program_id(0);
    const std::int64_t i = tile::program_id(1);
    const std::int64_t local = tile::program_id(2);
    const std::int64_t j = core * per_share + local;
    const bool forms_dz = tile::program_id(3) == 1;
    const std::int64_t step = tile::program_id(4);
    // The last share may have a block less; its index map stays where it was.
    if (j >= blocks) return;
    const std::int64_t valid = std::min(v, k.v - j * v);
    if (!forms_dz) {
      auto options = logits_product;
      options.accumulate = step > 0;
      tile::dot(x, w, logits, options);
      return;
    }

    // The tiles of grad_x and grad_w in HBM, which several steps add to.
    const auto x_tile = grad_x ? dx.at(core, ds(i * b, b), ds(step * h, h)) : dx;
    const auto w_tile = !grad_w          ? dw
                        : k.grad_w_is_vh ? dw.at(ds(j * v, v), ds(step * h, h))
                                         : dw.at(ds(step * h, h), ds(j * v, v));
    const bool adds_x = grad_x && local > 0;
    const bool adds_w = grad_w && i > 0;
    const auto wait_for_writes = [&] {
      if (grad_x) tile::make_async_copy(dx_tile, x_tile, write_x).wait();
      if (grad_w) tile::make_async_copy(dw_tile, w_tile, write_w).wait();
    };
    if (i > 0 || local > 0 || step > 0) wait_for_writes();
    // What is there comes while dz is formed.
    if (adds_x) tile::async_copy(x_tile, dx_tile, read_x);
    if (adds_w) tile::async_copy(w_tile, dw_tile, read_w);
    if (step == 0) {
      const auto first = static_cast<std::int32_t>(j * v);
      if (i == 0 && local == 0) tile::iota(columns, 1);
      finish_logits(k, logits, bias ? &bias_row : nullptr, valid);
      const auto with_slope = [&](const auto& slope) {
        const auto form = [&](const auto& s, const auto& weight) {
          form_dz(logits, max, gain, hit, labels, columns, first, slope, s, weight);
        };
        if (!smooth) {
          form(0.0f, 1.0f);
        } else if (class_weight) {
          form(column(smooth_row), class_row);
        } else {
          form(column(smooth_row), 1.0f);
        }
      };
      if (k.cap != 0.0f) {
        with_slope([scale = k.scale, inverse = 1.0f / k.cap](float z) {
          const float t = z * inverse;
          return scale * (1.0f - t * t);
        });
      } else {
        with_slope([scale = k.scale](float) { return scale; });
      }
      if (valid < v) tile::fill(logits.at(all, ds(valid, v - valid)), 0.0f);
      if (grad_bias) tile::reduce_sum(dbias, logits, 0);
    }
    if (grad_x) {
      // Columns behind the vocabulary are NaN, and 0 times NaN is one.
      if (valid < v) {
        tile::fill(k.w_is_vh ? w.at(ds(valid, v - valid)) : w.at(all, ds(valid, v - valid)), 0.0f);
      }
      if (adds_x) tile::make_async_copy(x_tile, dx_tile, read_x).wait();
      auto options = x_product;
      options.accumulate = adds_x;
      tile::dot(logits, w, dx_tile, options);
      tile::async_copy(dx_tile, x_tile, write_x);
    }
    if (grad_w) {
      if (adds_w) tile::make_async_copy(w_tile, dw_tile, read_w).wait();
      auto options = w_product;
      options.accumulate = adds_w;
      if (k.grad_w_is_vh) {
        tile::dot(logits, x, dw_tile, options);
      } else {
        tile::dot(x, logits, dw_tile, options);
      }
      tile::async_copy(dw_tile, w_tile, write_w);
    }
    const bool last_column = local + 1 == per_share || j + 1 == blocks;
    if (i + 1 == k.row_blocks() && last_column && step + 1 == k.depth_blocks()) wait_for_writes();
  };

  const auto column_block = [=](const auto& g) {
    return std::min(g[0] * per_share + g[2], blocks - 1);
  };
  const auto per_row = BlockSpec::blocks({b}, [](const auto& g) { return tile::ix(g[1]); });
  const auto per_column =
      BlockSpec::blocks({1, v}, [=](const auto& g) { return tile::ix(0, column_block(g)); });
  // Without a gradient its tile is not needed.
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
      body, tile::Vmem<float>{{b, v}, "logits"}, tile::Vmem<std::int32_t>{{1, v}, "columns"},
      tile::Vmem<float>{grad_x ? tile::Shape{b, h} : none, "grad_x tile"},
      tile::Vmem<float>{!grad_w          ? none
                        : k.grad_w_is_vh ? tile::Shape{v, h}
                                         : tile::Shape{h, v},
                        "grad_w tile"},
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
  std::visit([&](const auto& x, const auto& w) { run(machine, kernel, arrays, x, w); }, arrays.x,
             arrays.w);
}

}  // namespace tessera::linear_cross_entropy::tpu_tile
