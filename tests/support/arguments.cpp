// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <stdexcept>

#include "tests/support/problem.hpp"

namespace tessera::test {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Elements from the start of the memory to the last one that the view reaches, plus `offset`.
std::int64_t reach(const Dims& extents, const Dims& strides, std::int64_t offset) {
  std::int64_t last = offset;
  for (int axis = 0; axis < extents.rank(); ++axis) {
    if (extents[axis] == 0) return offset;
    last += (extents[axis] - 1) * strides[axis];
  }
  return last + 1;
}

void fill(const Argument& argument, const std::vector<double>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    argument.storage->set(argument.at(static_cast<std::int64_t>(i)), values[i]);
  }
  argument.storage->upload();
}

}  // namespace

std::int64_t row_offset(const Dims& leading, const Dims& strides, std::int64_t row) {
  std::int64_t offset = 0;
  for (int axis = leading.rank() - 1; axis >= 0; --axis) {
    offset += row % leading[axis] * strides[axis];
    row /= leading[axis];
  }
  return offset;
}

RowLayout row_layout(XLayout layout, std::int64_t b, std::int64_t h) {
  RowLayout r;
  r.leading = {b};
  r.x_strides = {h, 1};
  r.label_strides = {1};
  r.label_elements = b;
  switch (layout) {
    case XLayout::dense:
      break;
    case XLayout::padded:
      r.x_strides = {h + 3, 1};
      break;
    case XLayout::column:
      r.x_strides = {1, b + 1};
      break;
    case XLayout::shifted: {
      // [n, t + 1, h] without its last position, and labels without their first.
      const std::int64_t n = b % 3 == 0 ? 3 : b % 2 == 0 ? 2 : 1;
      const std::int64_t t = b / n;
      r.leading = {n, t};
      r.x_strides = {(t + 1) * h, h, 1};
      r.label_strides = {t + 1, 1};
      r.label_offset = 1;
      r.label_elements = n * (t + 1);
      break;
    }
    case XLayout::leading3: {
      if (b % 6 != 0) throw std::logic_error("leading3 needs a multiple of six rows");
      const std::int64_t n = b / 6;
      r.leading = {2, 3, n};
      r.x_strides = {4 * (n + 1) * h, (n + 1) * h, h, 1};
      r.label_strides = {3 * (n + 2), n + 2, 1};
      r.label_elements = 6 * (n + 2);
      break;
    }
    case XLayout::vector:
      if (b != 1) throw std::logic_error("vector is a single row");
      r.leading = {};
      r.x_strides = {1};
      r.label_strides = {};
      break;
    case XLayout::broadcast:
      r.x_strides = {0, 1};
      break;
  }
  Dims extents = r.leading;
  extents.push_back(h);
  r.x_elements = reach(extents, r.x_strides, 0);
  return r;
}

MatrixLayout matrix_layout(WLayout layout, std::int64_t h, std::int64_t v) {
  MatrixLayout m;
  switch (layout) {
    case WLayout::hv:
      m.strides = {v, 1};
      break;
    case WLayout::vh:
      m.strides = {1, h};
      break;
    case WLayout::hv_padded:
      m.strides = {v + 5, 1};
      break;
    case WLayout::vh_padded:
      m.strides = {1, h + 3};
      break;
    case WLayout::strided:
      m.strides = {2 * v + 3, 2};
      break;
  }
  m.elements = reach({h, v}, m.strides, 0);
  return m;
}

Argument make_argument(Context& context, Place place, DType type, const Dims& extents,
                       const Dims& strides, std::int64_t offset, std::int64_t elements) {
  Argument a;
  a.extents = extents;
  a.strides = strides.empty() ? contiguous_strides(extents) : strides;
  a.offset = offset;
  if (elements < 0) elements = reach(a.extents, a.strides, offset);
  a.storage = std::make_unique<Storage>(context, place, type, elements);
  a.storage->poison();
  return a;
}

Arguments::Arguments(Context& context, const Case& c, const oracle::Problem& p)
    : case_(c), rows_(row_layout(c.x_layout, p.b, p.softmax() ? p.v : p.h)) {
  const Dims& leading = rows_.leading;
  Dims x_extents = leading;
  x_extents.push_back(p.softmax() ? p.v : p.h);
  x = make_argument(context, c.place, c.x_type, x_extents, rows_.x_strides);
  fill(x, p.softmax() ? p.logits : p.x);

  labels = make_argument(context, c.place, c.label_type, leading, rows_.label_strides,
                         rows_.label_offset, rows_.label_elements);
  // What lies beside the view is an error if it is read; a rank-0 view has no strides to give.
  labels.strides = rows_.label_strides;
  for (std::int64_t row = 0; row < p.b; ++row) {
    labels.storage->set_integer(labels.at(row), p.labels[index(row)]);
  }
  labels.storage->upload();

  if (!p.softmax()) {
    const MatrixLayout layout = matrix_layout(c.w_layout, p.h, p.v);
    w = make_argument(context, c.place, c.w_type, {p.h, p.v}, layout.strides);
    fill(w, p.w);
  }
  auto side = [&](Argument& argument, const Dims& extents, const std::vector<double>& values,
                  const Dims& strides = {}) {
    if (values.empty() && extents.product() != 0) return;
    argument = make_argument(context, c.place, c.side_type, extents, strides);
    if (values.empty()) return;
    // Stride 0: one element of memory behind all.
    fill(argument, values);
  };
  if (!p.bias.empty()) side(bias, {p.v}, p.bias);
  if (!p.weight.empty()) side(weight, leading, p.weight);
  if (!p.class_weight.empty()) side(class_weight, {p.v_total()}, p.class_weight);
  Dims zero = leading;
  for (int axis = 0; axis < zero.rank(); ++axis) zero[axis] = 0;
  if (!p.dloss.empty()) {
    const bool none = p.options.reduction == Reduction::none;
    side(dloss, none ? leading : Dims{}, p.dloss,
         none && c.dloss == Cotangent::stride0 ? zero : Dims{});
  }
  if (!p.dlse.empty()) {
    side(dlse, leading, p.dlse, c.dlse == Cotangent::stride0 ? zero : Dims{});
  }
}

void Arguments::add_statistics(Context& context, const oracle::Values& values) {
  const Dims& leading = rows_.leading;
  if (case_.from_lse) {
    lse = make_argument(context, case_.place, DType::f32, leading);
    fill(lse, values.lse);
    return;
  }
  Dims extents = leading;
  extents.push_back(2);
  statistics = make_argument(context, case_.place, DType::f32, extents);
  std::vector<double> pairs;
  for (std::size_t row = 0; row < values.max.size(); ++row) {
    // The sum that belongs to the maximum as f32 holds it.
    const auto max = static_cast<double>(static_cast<float>(values.max[row]));
    const double shift = std::isfinite(max) ? std::exp(values.max[row] - max) : 1.0;
    pairs.push_back(max);
    pairs.push_back(values.sum[row] * shift);
  }
  fill(statistics, pairs);
}

template <class Inputs>
Inputs Arguments::with_loss_inputs(Inputs in, Pass pass) const {
  in.labels = labels.view();
  in.weight = weight.view();
  in.class_weight = class_weight.view();
  if (pass == Pass::backward || pass == Pass::value_and_grad) {
    in.dloss = dloss.view();
    in.dlse = dlse.view();
  }
  if (pass == Pass::backward) {
    in.lse = lse.view();
    in.statistics = statistics.view();
  }
  return in;
}

linear_cross_entropy::Inputs Arguments::linear(Pass pass) const {
  linear_cross_entropy::Inputs in;
  in.x = x.view();
  in.w = w.view();
  in.bias = bias.view();
  return with_loss_inputs(in, pass);
}

softmax_cross_entropy::Inputs Arguments::softmax(Pass pass) const {
  softmax_cross_entropy::Inputs in;
  in.logits = x.view();
  return with_loss_inputs(in, pass);
}

std::vector<std::pair<const char*, Argument*>> Arguments::all() {
  return {{"x", &x},           {"labels", &labels},
          {"w", &w},           {"bias", &bias},
          {"weight", &weight}, {"class_weight", &class_weight},
          {"dloss", &dloss},   {"dlse", &dlse},
          {"lse", &lse},       {"statistics", &statistics}};
}

std::string Arguments::damage() {
  for (auto& [name, argument] : all()) {
    if (!*argument) continue;
    const std::string around = argument->storage->download();
    if (!around.empty()) return std::string(name) + ": " + around;
    const bool in_place = case_.in_place && argument == &x;
    if (!in_place && argument->storage->changed()) return std::string(name) + " was written to";
  }
  return {};
}

}  // namespace tessera::test
