// SPDX-License-Identifier: Apache-2.0
#include "host/operators/symbols.hpp"

#include <fmt/format.h>

namespace tessera::operators {

namespace {

/// "the last axis", as messages count the axes behind the leading ones.
std::string place(int axis, int rank) {
  if (axis + 1 == rank) return "the last axis";
  return rank == 2 ? "the first axis" : fmt::format("axis {}", axis - rank);
}

/// Whether an axis is no symbol: it is as long as the digit says.
bool is_number(char axis) { return axis <= '9'; }

}  // namespace

const Symbols::Bound* Symbols::find(char letter) const {
  for (std::size_t i = 0; i < count_; ++i) {
    if (bound_[i].letter == letter) return &bound_[i];
  }
  return nullptr;
}

std::int64_t Symbols::extent(char letter) const {
  const Bound* bound = find(letter);
  return bound != nullptr ? bound->extent : 0;
}

arguments::Source Symbols::leading_source() const {
  return {"the leading axes of ", leading_name_, leading_view_->extents()};
}

Dims Symbols::expected(const SymbolicShape& shape) const {
  return shape.extents(leading_, false, [&](char letter) { return extent(letter); });
}

void Symbols::check_rank(const arguments::Checks& checks, const char* name, const View& view,
                         const SymbolicShape& shape) const {
  if (shape.has_leading() ? view.rank() >= shape.rank() : view.rank() == shape.rank()) return;
  if (view.rank() == 0) {
    checks.fail(fmt::format("{} has no axes; it has shape {}, the last axis is {}", name,
                            shape.text(), shape.axis(shape.rank() - 1)));
  }
  checks.fail(fmt::format("{} has shape {}, expected {}", name,
                          arguments::to_string(view.extents()), shape.text()));
}

void Symbols::disagree(const arguments::Checks& checks, const char* name, const View& view,
                       const SymbolicShape& shape, int axis, const Bound& bound) const {
  std::string text = fmt::format(
      "{} has shape {} but {} has shape {}: {} of {} must be {}, {} of {}", name,
      arguments::to_string(view.extents()), bound.name, arguments::to_string(bound.view->extents()),
      place(axis, shape.rank()), name, bound.letter, place(bound.axis, bound.rank), bound.name);
  // PyTorch stores a weight [out, in].
  if (!shape.has_leading() && shape.rank() == 2 && view.extents()[1 - axis] == bound.extent) {
    text += fmt::format(
        "; a weight stored [{1}, {0}] is passed as extents {{{0}, {1}}}, strides "
        "{{1, {0}}}",
        shape.axis(0), shape.axis(1));
  }
  checks.fail(text);
}

void Symbols::fail_leading(const arguments::Checks& checks, const char* name, const View& view,
                           const Dims& wanted) const {
  const auto text = [](const View& of) { return arguments::to_string(of.extents()); };
  const bool are_rows = leading_view_->rank() == leading_.rank() + 1;
  const std::string source =
      are_rows ? leading_source().text() + "; give both the same rows"
               : fmt::format("the leading axes are {}, those of {} {}; give both the same",
                             arguments::to_string(leading_), leading_name_, text(*leading_view_));
  checks.fail(fmt::format("{} has shape {}, expected {}: {}", name, text(view),
                          arguments::to_string(wanted), source));
}

void Symbols::check_repeated(const arguments::Checks& checks, const char* name, const View& view,
                             const SymbolicShape& shape) const {
  const Dims wanted = expected(shape);
  const Dims& given = view.extents();
  int axis = 0;
  if (given.rank() == wanted.rank()) {
    while (axis < given.rank() && (given[axis] == wanted[axis] || given[axis] == 1)) ++axis;
    if (axis == given.rank()) return;
  }
  checks.fail(fmt::format("{} has shape {}, expected {}, or 1 in the place of any of its axes ({})",
                          name, arguments::to_string(given), arguments::to_string(wanted),
                          shape.text()));
}

void Symbols::take(const arguments::Checks& checks, const char* name, const View& view,
                   const SymbolicShape& shape) {
  if (!view) return;
  if (shape.repeats()) return check_repeated(checks, name, view, shape);
  bool known = !shape.has_leading() || leading_view_ != nullptr;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    known = known && (is_number(shape.axis(axis)) || find(shape.axis(axis)));
  }
  if (known) {  // nothing new in it
    const Dims wanted = expected(shape);
    if (view.extents() == wanted) return;
    if (shape.rank() == 0) fail_leading(checks, name, view, wanted);
    int axis = shape.rank() - 1;  // the last that differs
    if (view.rank() == wanted.rank()) {
      const auto differs = [&](int at) {
        const int behind = view.rank() - shape.rank() + at;
        return view.extents()[behind] != wanted[behind];
      };
      while (axis >= 0 && !differs(axis)) --axis;
      if (axis < 0) fail_leading(checks, name, view, wanted);
    }
    if (is_number(shape.axis(axis))) {
      checks.fail(fmt::format("{} has shape {}, expected {}: {} behind {}", name,
                              arguments::to_string(view.extents()), arguments::to_string(wanted),
                              shape.axis(axis), leading_source().text()));
    }
    const Bound& bound = *find(shape.axis(axis));
    checks.fail(fmt::format("{} has shape {}, expected {}: {}, where {} is {} of {} {}", name,
                            arguments::to_string(view.extents()), arguments::to_string(wanted),
                            shape.text(), bound.letter, place(bound.axis, bound.rank), bound.name,
                            arguments::to_string(bound.view->extents())));
  }
  check_rank(checks, name, view, shape);
  const int first = view.rank() - shape.rank();
  if (shape.has_leading()) {
    const Dims leading = view.extents().first(first);
    if (leading_view_ == nullptr) {
      leading_ = leading;
      leading_name_ = name;
      leading_view_ = &view;
    } else if (!(leading == leading_)) {
      Dims wanted = leading_;
      for (int axis = first; axis < view.rank(); ++axis) wanted.push_back(view.extents()[axis]);
      fail_leading(checks, name, view, wanted);
    }
  }
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::int64_t extent = view.extents()[first + axis];
    const char letter = shape.axis(axis);
    if (const Bound* bound = find(letter)) {
      if (bound->extent != extent) disagree(checks, name, view, shape, axis, *bound);
    } else {
      bound_[count_++] = {letter, extent, name, &view, axis, shape.rank()};
    }
  }
}

}  // namespace tessera::operators
