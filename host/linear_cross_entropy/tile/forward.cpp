// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/linear_cross_entropy/tile/steps.hpp"

namespace tessera::linear_cross_entropy::tpu_tile {
namespace {

/// e^(from - to) for sums that move from one maximum to another; 1 where both are -Inf.
float rescaled(float from, float to) { return tile::where(from == to, 1.0f, tile::exp(from - to)); }

/// The maximum so far as what sums are relative to: 0 where nothing finite was seen.
float base_of(float max) { return tile::where(max == -infinity, 0.0f, max); }

template <class X, class W>
void run(tile::Machine& machine, const Kernel& k, const ForwardArrays& a,
         const tile::Array<X>& x_array, const tile::Array<W>& w_array) {
  const std::int64_t b = k.blocks.b_block_size, h = k.blocks.h_block_size,
                     v = k.blocks.v_block_size;
  const Optional<float> bias(machine, a.bias, "bias");
  const Optional<float> class_weight(machine, a.class_weight, "class_weight");
  const Optional<float> class_logit(machine, a.class_logit, "class_logit");
  const Optional<float> exp_logit(machine, a.exp_logit, "exp_logit");
  const Optional<std::int32_t> argmax(machine, a.argmax, "argmax");
  tile::DotOptions product = k.product;
  product.transpose_b = k.w_is_vh;

  const auto body = [&](auto x, auto w, auto labels, auto bias_row, auto class_row, auto max,
                        auto sum, auto label_logit, auto class_sum, auto exp_sum, auto best,
                        auto logits, auto columns, auto part, auto next, auto best_here,
                        auto classes) {
    const std::int64_t j = tile::program_id(1);
    const std::int64_t step = tile::program_id(2);
    const std::int64_t valid = std::min(v, k.v - j * v);
    const auto first = static_cast<std::int32_t>(j * v);
    if (j == 0 && step == 0) {
      tile::iota(columns, 1);
      tile::fill(max, -infinity);
      tile::fill(sum, 0.0f);
      tile::fill(label_logit, -infinity);
      if (argmax) tile::fill(best, 0);
      if (exp_logit) tile::fill(exp_sum, 0.0f);
      if (class_logit) {
        tile::fill(class_sum, 0.0f);
        tile::fill(classes, 0.0f);
      }
    }
    auto options = product;
    options.accumulate = step > 0;
    tile::dot(x, w, logits, options);
    if (step + 1 < k.depth_blocks()) return;

    finish_logits(k, logits, bias ? &bias_row : nullptr, valid);
    // The label's logit, by comparing every column with the label.
    tile::reduce_sum(
        part, 1, {2, 0},
        [=](float z, std::int32_t c, std::int32_t label) {
          return tile::where(c + first == label, z, 0.0f);
        },
        logits, columns, column(labels));
    tile::map(
        label_logit, {3, 0},
        [=, last = first + static_cast<std::int32_t>(valid)](float seen, float here,
                                                             std::int32_t label) {
          return tile::where(label >= first && label < last, here, seen);
        },
        label_logit, part, labels);
    // Running maximum; what was summed so far moves to it.
    tile::reduce_max(part, logits, 1);
    if (argmax) {
      tile::argmax(best_here, logits, 1);
      tile::map(
          best, {2, 0},
          [=](std::int32_t seen, std::int32_t here, float top, float m) {
            return top > m ? here + first : seen;
          },
          best, best_here, part, max);
    }
    tile::map(
        next, {2, 0}, [](float m, float here) { return tile::maximum(m, here); }, max, part);
    if (exp_logit) {
      tile::map(
          exp_sum, {4, 1},
          [](float e, float s, float from, float to) {
            return tile::where(from == -infinity, e, rescaled(from, to) * (e + (from - to) * s));
          },
          exp_sum, sum, max, next);
    }
    if (class_logit) {
      tile::map(
          class_sum, {3, 0},
          [](float seen, float before, float from, float to) {
            return tile::where(from == -infinity || from == to, seen, seen + before * (from - to));
          },
          class_sum, classes, max, next);
    }
    tile::map(
        sum, {2, 1}, [](float s, float from, float to) { return s * rescaled(from, to); }, sum, max,
        next);
    tile::assign(max, next);
    // What this tile adds.
    tile::reduce_sum(
        part, 1, {2, 1}, [](float z, float m) { return tile::exp(z - base_of(m)); }, logits,
        column(max));
    const auto add = [&](const auto& total) {
      tile::map(
          total, [](float s, float here) { return s + here; }, total, part);
    };
    add(sum);
    if (exp_logit) {
      tile::reduce_sum(
          part, 1, {5, 1},
          [](float z, float m) {
            const float d = z - base_of(m);
            const float e = tile::exp(d);
            return tile::where(e == 0.0f, 0.0f, e * d);
          },
          logits, column(max));
      add(exp_sum);
    }
    if (class_logit) {
      const auto here = logits.at(all, ds(0, valid));
      const auto weighted = [&](const auto& c) {
        // A class of weight 0 is absent, whatever its logit.
        tile::reduce_sum(
            part, 1, {4, 0},
            [](float z, float m, float weight) {
              return tile::where(weight == 0.0f, 0.0f, weight * (z - base_of(m)));
            },
            here, column(max), c);
        add(class_sum);
      };
      if (class_weight) {
        const auto c = class_row.at(all, ds(0, valid));
        weighted(c);
        tile::reduce_sum(part.at(ds(0, 1)), c, 1);
        tile::map(
            classes, [](float s, float more) { return s + more; }, classes, part.at(ds(0, 1)));
      } else {
        weighted(1.0f);
        tile::fill(classes, static_cast<float>(first + valid));
      }
    }
  };

  const auto per_row = BlockSpec::blocks({b}, [](const auto& g) { return tile::ix(g[0]); });
  const auto per_column =
      BlockSpec::blocks({1, v}, [](const auto& g) { return tile::ix(0, g[1]); });
  using enum tile::Semantics;
  tile::call(
      machine, "linear_cross_entropy_forward",
      {.grid = {k.row_blocks(), k.column_blocks(), k.depth_blocks()},
       .in = {BlockSpec::blocks({b, h}, [](const auto& g) { return tile::ix(g[0], g[2]); }),
              k.w_is_vh
                  ? BlockSpec::blocks({v, h}, [](const auto& g) { return tile::ix(g[1], g[2]); })
                  : BlockSpec::blocks({h, v}, [](const auto& g) { return tile::ix(g[2], g[1]); }),
              per_row, bias.spec(per_column), class_weight.spec(per_column)},
       .out = {per_row, per_row, per_row, class_logit.spec(per_row), exp_logit.spec(per_row),
               argmax.spec(per_row)},
       .semantics = {parallel, arbitrary, arbitrary}},
      body, tile::Vmem<float>{{b, v}, "logits"}, tile::Vmem<std::int32_t>{{1, v}, "columns"},
      tile::Vmem<float>{{b}, "part"}, tile::Vmem<float>{{b}, "next max"},
      tile::Vmem<std::int32_t>{{b}, "argmax of the tile"}, tile::Vmem<float>{{1}, "classes"})(
      x_array, w_array, a.labels, bias.array(), class_weight.array(), a.max, a.sum, a.label_logit,
      class_logit.array(), exp_logit.array(), argmax.array());
}

}  // namespace

void forward(tile::Machine& machine, const Kernel& kernel, const ForwardArrays& arrays) {
  std::visit([&](const auto& x, const auto& w) { run(machine, kernel, arrays, x, w); }, arrays.x,
             arrays.w);
}

}  // namespace tessera::linear_cross_entropy::tpu_tile
