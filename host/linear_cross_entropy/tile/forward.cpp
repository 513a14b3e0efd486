// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/linear_cross_entropy/tile/steps.hpp"

namespace tessera::linear_cross_entropy::tpu_tile {
namespace {

/// What a step works on beside x and w, in the order of the call: inputs, outputs, scratch.
struct ForwardRefs {
  Ref<std::int32_t> labels;
  Ref<float> bias, class_weight;
  Ref<float> max, sum, label_logit, class_logit, exp_logit;
  Ref<std::int32_t> argmax;
  Ref<float> logits;
  Ref<std::int32_t> columns;       ///< 0, 1, 2, ... along a row
  Ref<float> partial, next_max;    ///< per row, of this block of logits
  Ref<std::int32_t> block_argmax;  ///< within this block
  Ref<float> classes;              ///< one number: the class weights of the columns so far
};

/// Which of the optional terms the kernel has.
struct ForwardTerms {
  bool bias = false, class_weight = false, class_logit = false, exp_logit = false, argmax = false;
};

/// e^(from - to) for sums that move from one maximum to another; 1 where both are -Inf.
float rescaled(float from, float to) { return tile::where(from == to, 1.0f, tile::exp(from - to)); }

/// The maximum so far as what sums are relative to: 0 where nothing finite was seen.
float base_of(float max) { return tile::where(max == -infinity, 0.0f, max); }

/// At the first block of columns: nothing was seen.
void begin_rows(const ForwardTerms& terms, const ForwardRefs& r) {
  tile::iota(r.columns, 1);
  tile::fill(r.max, -infinity);
  tile::fill(r.sum, 0.0f);
  tile::fill(r.label_logit, -infinity);
  if (terms.argmax) tile::fill(r.argmax, 0);
  if (terms.exp_logit) tile::fill(r.exp_logit, 0.0f);
  if (terms.class_logit) {
    tile::fill(r.class_logit, 0.0f);
    tile::fill(r.classes, 0.0f);
  }
}

/// The label's logit, by comparing every column with the label; the block's columns begin with
/// `first`, `valid` of them are of the vocabulary.
void find_label(const ForwardRefs& r, std::int32_t first, std::int64_t valid) {
  tile::reduce_sum(
      r.partial, 1, {2, 0},
      [=](float z, std::int32_t c, std::int32_t label) {
        return tile::where(c + first == label, z, 0.0f);
      },
      r.logits, r.columns, column(r.labels));
  tile::map(
      r.label_logit, {3, 0},
      [=, last = first + static_cast<std::int32_t>(valid)](float seen, float here,
                                                           std::int32_t label) {
        return tile::where(label >= first && label < last, here, seen);
      },
      r.label_logit, r.partial, r.labels);
}

/// The running maximum, and the first column that has it.
void find_max(const ForwardTerms& terms, const ForwardRefs& r, std::int32_t first) {
  tile::reduce_max(r.partial, r.logits, 1);
  if (terms.argmax) {
    tile::argmax(r.block_argmax, r.logits, 1);
    tile::map(
        r.argmax, {2, 0},
        [=](std::int32_t seen, std::int32_t here, float top, float m) {
          return top > m ? here + first : seen;
        },
        r.argmax, r.block_argmax, r.partial, r.max);
  }
  tile::map(
      r.next_max, {2, 0}, [](float m, float here) { return tile::maximum(m, here); }, r.max,
      r.partial);
}

/// What was summed so far moves to the next maximum, which becomes the maximum.
void move_sums(const ForwardTerms& terms, const ForwardRefs& r) {
  if (terms.exp_logit) {
    tile::map(
        r.exp_logit, {4, 1},
        [](float e, float s, float from, float to) {
          return tile::where(from == -infinity, e, rescaled(from, to) * (e + (from - to) * s));
        },
        r.exp_logit, r.sum, r.max, r.next_max);
  }
  if (terms.class_logit) {
    tile::map(
        r.class_logit, {3, 0},
        [](float seen, float before, float from, float to) {
          return tile::where(from == -infinity || from == to, seen, seen + before * (from - to));
        },
        r.class_logit, r.classes, r.max, r.next_max);
  }
  tile::map(
      r.sum, {2, 1}, [](float s, float from, float to) { return s * rescaled(from, to); }, r.sum,
      r.max, r.next_max);
  tile::assign(r.max, r.next_max);
}

void add_partial(const Ref<float>& total, const Ref<float>& partial) {
  tile::map(
      total, [](float s, float here) { return s + here; }, total, partial);
}

/// What this block adds to the sums of exponentials.
void add_exponentials(const ForwardTerms& terms, const ForwardRefs& r) {
  tile::reduce_sum(
      r.partial, 1, {2, 1}, [](float z, float m) { return tile::exp(z - base_of(m)); }, r.logits,
      column(r.max));
  add_partial(r.sum, r.partial);
  if (!terms.exp_logit) return;
  tile::reduce_sum(
      r.partial, 1, {5, 1},
      [](float z, float m) {
        const float d = z - base_of(m);
        const float e = tile::exp(d);
        return tile::where(e == 0.0f, 0.0f, e * d);
      },
      r.logits, column(r.max));
  add_partial(r.exp_logit, r.partial);
}

/// What this block adds to the sum of c * (logit - max), and to that of c.
void add_classes(const ForwardTerms& terms, const ForwardRefs& r, std::int32_t first,
                 std::int64_t valid) {
  const auto logits = r.logits.at(all, ds(0, valid));
  const auto add_weighted = [&](const auto& c) {
    // A class of weight 0 is absent, whatever its logit.
    tile::reduce_sum(
        r.partial, 1, {4, 0},
        [](float z, float m, float weight) {
          return tile::where(weight == 0.0f, 0.0f, weight * (z - base_of(m)));
        },
        logits, column(r.max), c);
    add_partial(r.class_logit, r.partial);
  };
  if (terms.class_weight) {
    const auto c = r.class_weight.at(all, ds(0, valid));
    add_weighted(c);
    const auto block_classes = r.partial.at(ds(0, 1));
    tile::reduce_sum(block_classes, c, 1);
    add_partial(r.classes, block_classes);
  } else {
    add_weighted(1.0f);
    tile::fill(r.classes, static_cast<float>(first + valid));
  }
}

/// One point of the grid (blocks of rows, of columns, of depth). A block of logits is summed up
/// over the depth; behind its last product it joins the statistics of its rows.
template <class X, class W>
void step(const Kernel& k, const ForwardTerms& terms, const Ref<X>& x, const Ref<W>& w,
          const ForwardRefs& r) {
  const std::int64_t v = k.blocks.v_block_size;
  const std::int64_t j = tile::program_id(1);
  const std::int64_t depth = tile::program_id(2);
  const std::int64_t valid = std::min(v, k.v - j * v);
  const auto first = static_cast<std::int32_t>(j * v);
  if (j == 0 && depth == 0) begin_rows(terms, r);
  auto product = k.product;
  product.transpose_b = k.w_is_vh;
  product.accumulate = depth > 0;
  tile::dot(x, w, r.logits, product);
  if (depth + 1 < k.depth_blocks()) return;

  finish_logits(k, r.logits, terms.bias ? &r.bias : nullptr, valid);
  find_label(r, first, valid);
  find_max(terms, r, first);
  move_sums(terms, r);
  add_exponentials(terms, r);
  if (terms.class_logit) add_classes(terms, r, first, valid);
}

template <class X, class W>
void call_forward(tile::Machine& machine, const Kernel& k, const ForwardArrays& a,
                  const tile::Array<X>& x_array, const tile::Array<W>& w_array) {
  const std::int64_t b = k.blocks.b_block_size, h = k.blocks.h_block_size,
                     v = k.blocks.v_block_size;
  const Optional<float> bias(machine, a.bias, "bias");
  const Optional<float> class_weight(machine, a.class_weight, "class_weight");
  const Optional<float> class_logit(machine, a.class_logit, "class_logit");
  const Optional<float> exp_logit(machine, a.exp_logit, "exp_logit");
  const Optional<std::int32_t> argmax(machine, a.argmax, "argmax");
  const ForwardTerms terms{bias.given(), class_weight.given(), class_logit.given(),
                           exp_logit.given(), argmax.given()};

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
      [&](const Ref<X>& x, const Ref<W>& w, const auto&... refs) {
        step(k, terms, x, w, ForwardRefs{refs...});
      },
      tile::Vmem<float>{{b, v}, "logits"}, tile::Vmem<std::int32_t>{{1, v}, "columns"},
      tile::Vmem<float>{{b}, "partial"}, tile::Vmem<float>{{b}, "next max"},
      tile::Vmem<std::int32_t>{{b}, "argmax of the block"}, tile::Vmem<float>{{1}, "classes"})(
      x_array, w_array, a.labels, bias.array(), class_weight.array(), a.max, a.sum, a.label_logit,
      class_logit.array(), exp_logit.array(), argmax.array());
}

}  // namespace

void forward(tile::Machine& machine, const Kernel& kernel, const ForwardArrays& arrays) {
  std::visit([&](const auto& x, const auto& w) { call_forward(machine, kernel, arrays, x, w); },
             arrays.x, arrays.w);
}

}  // namespace tessera::linear_cross_entropy::tpu_tile
