// SPDX-License-Identifier: Apache-2.0
#include "host/operators/symbols.hpp"

#include <fmt/format.h>

namespace tessera::operators {

namespace {

/// "first" or "last" of the axes of `shape`, as messages count them.
const char* place(const SymbolicShape& shape, int axis) {
  return axis + 1 == shape.rank() ? "last" : "first";
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
      "{} has shape {} but {} has shape {}: the {} axis of {} must be {}, the {} axis of {}", name,
      arguments::to_string(view.extents()), bound.name, arguments::to_string(bound.view->extents()),
      place(shape, axis), name, bound.letter, bound.last ? "last" : "first", bound.name);
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
  checks.fail(fmt::format("{} has shape {}, expected {}: {}; give both the same rows", name,
                          arguments::to_string(view.extents()), arguments::to_string(wanted),
                          leading_source().text()));
}

void Symbols::take(const arguments::Checks& checks, const char* name, const View& view,
                   const SymbolicShape& shape) {
  if (!view) return;
  bool known = !shape.has_leading() || leading_view_ != nullptr;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    known = known && (is_number(shape.axis(axis)) || find(shape.axis(axis)));
  }
  if (known) {  // nothing new in it
    const Dims wanted = expected(shape);
    if (view.extents() == wanted) return;
    const char last = shape.axis(shape.rank() - 1);
    if (is_number(last)) {
      checks.fail(fmt::format("{} has shape {}, expected {}: {} behind {}", name,
                              arguments::to_string(view.extents()), arguments::to_string(wanted),
                              last, leading_source().text()));
    }
    if (shape.has_leading() && view.rank() == wanted.rank() &&
        view.extents().back() == wanted.back()) {
      fail_leading(checks, name, view, wanted);
    }
    const Bound& bound = *find(last);
    checks.fail(fmt::format("{} has shape {}, expected {}: {}, where {} is the {} axis of {} {}",
                            name, arguments::to_string(view.extents()),
                            arguments::to_string(wanted), shape.text(), bound.letter,
                            bound.last ? "last" : "first", bound.name,
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
      bound_.at(count_++) = {letter, extent, name, &view, axis + 1 == shape.rank()};
    }
  }
}

}  // namespace tessera::operators
