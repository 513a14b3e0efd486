// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <stdexcept>

#include "tests/support/problem.hpp"
#include "tests/support/test_operator.hpp"

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

Argument& NamedArguments::operator[](std::string_view name) {
  for (auto& [known, argument] : all_) {
    if (known == name) return argument;
  }
  throw std::logic_error("no argument is called " + std::string(name));
}

const Argument& NamedArguments::operator[](std::string_view name) const {
  return const_cast<NamedArguments&>(*this)[name];
}

Argument Arguments::make_labels(Context& context, const oracle::Problem& p) const {
  Argument labels = make_argument(context, case_.place, case_.label_type, rows_.leading,
                                  rows_.label_strides, rows_.label_offset, rows_.label_elements);
  // What lies beside the view is an error if it is read; a rank-0 view has no strides to give.
  labels.strides = rows_.label_strides;
  for (std::int64_t row = 0; row < p.b; ++row) {
    labels.storage->set_integer(labels.at(row), p.labels[index(row)]);
  }
  labels.storage->upload();
  return labels;
}

Argument Arguments::make_indices(Context& context, const oracle::Problem& p) const {
  Dims extents = rows_.leading;
  extents.push_back(p.k);
  Argument indices = make_argument(context, case_.place, case_.label_type, extents);
  for (std::int64_t i = 0; i < p.b * p.k; ++i) {
    indices.storage->set_integer(indices.at(i), p.target_indices[index(i)]);
  }
  indices.storage->upload();
  return indices;
}

Arguments::Arguments(Context& context, const Case& c, const oracle::Problem& p)
    : case_(c), rows_(c.op->rows(c)) {
  for (const operators::Input& input : c.op->inputs()) {
    Argument& argument = memory_.add(input.name);
    const auto values = c.op->values(input.name);
    if (!c.op->is_given(input, p)) continue;
    if (input.types == ElementTypes::integer) {
      argument = input.shape.rank() > 0 ? make_indices(context, p) : make_labels(context, p);
    }
    if (values == nullptr) continue;
    const Dims extents = c.op->extents(c, input.shape);
    ArrayMemory memory{c.side_type};
    const std::string_view name = input.name;
    if ((name == "dloss" && c.dloss == Cotangent::stride0) ||
        (name == "dlse" && c.dlse == Cotangent::stride0)) {
      // One element of memory behind all.
      memory.strides = extents;
      for (int axis = 0; axis < extents.rank(); ++axis) memory.strides[axis] = 0;
    } else if (name == "targets" && c.x_layout == XLayout::column) {
      memory.strides = {1, c.b};
    } else if (!is_of_every_loss(name)) {
      memory = c.op->own_memory(c, rows_, name);
    }
    argument = make_argument(context, c.place, memory.type, extents, memory.strides);
    fill(argument, p.*values);
  }
}

void Arguments::add_statistics(Context& context, const oracle::Values& values) {
  const Dims& leading = rows_.leading;
  // Optional: every other teacher's rows come without it.
  if (!values.divergence.empty() && case_.teaching % 2 == 1) {
    Dims extents = leading;
    extents.push_back(5);
    memory_["divergence_statistics"] = make_argument(context, case_.place, DType::f32, extents);
    fill(memory_["divergence_statistics"], values.divergence_statistics);
  }
  if (case_.from_lse) {
    memory_["lse"] = make_argument(context, case_.place, DType::f32, leading);
    fill(memory_["lse"], values.lse);
    return;
  }
  Dims extents = leading;
  extents.push_back(2);
  memory_["statistics"] = make_argument(context, case_.place, DType::f32, extents);
  std::vector<double> pairs;
  for (std::size_t row = 0; row < values.max.size(); ++row) {
    // The sum that belongs to the maximum as f32 holds it.
    const auto max = static_cast<double>(static_cast<float>(values.max[row]));
    const double shift = std::isfinite(max) ? std::exp(values.max[row] - max) : 1.0;
    pairs.push_back(max);
    pairs.push_back(values.sum[row] * shift);
  }
  fill(memory_["statistics"], pairs);
}

std::string Arguments::damage() {
  const std::string first = case_.op->inputs().front().name;
  for (auto& [name, argument] : memory_) {
    if (!argument) continue;
    const std::string around = argument.storage->download();
    if (!around.empty()) return name + ": " + around;
    const bool in_place = case_.in_place && name == first;
    if (!in_place && argument.storage->changed()) return name + " was written to";
  }
  return {};
}

}  // namespace tessera::test
