// SPDX-License-Identifier: Apache-2.0
#include "host/operators/request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace tessera::operators {
namespace {

/// "mean, sum or none"
std::string list_of(std::span<const char* const> names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + std::string(names[i]);
  }
  return text;
}

void check_option(const arguments::Checks& checks, const Option& option, const OptionValue& value) {
  const auto& range = option.range;
  const auto fail = [&](const std::string& what) {
    checks.fail(fmt::format("{} is {}; {}", option.name, to_string(value), what));
  };
  if (std::holds_alternative<Unset>(value)) {
    if (!option.may_be_unset) fail("it cannot be left unset; give a value");
    return;
  }
  const double number = std::holds_alternative<float>(value)
                            ? static_cast<double>(std::get<float>(value))
                            : static_cast<double>(std::get<std::int64_t>(value));
  if (!option.choices.empty()) {
    if (!(number >= 0 && number < static_cast<double>(option.choices.size()))) {
      fail("give " + list_of(option.choices));
    }
    return;
  }
  // Written so that a NaN fails.
  const bool within =
      number >= range.least && (range.below_most ? number < range.most : number <= range.most);
  if (within && std::isfinite(number)) return;
  if (std::isfinite(range.least) && std::isfinite(range.most)) {
    fail(fmt::format("its range is {:g} to {}{:g}{}", range.least, range.below_most ? "below " : "",
                     range.most, range.hint));
  }
  if (!std::isfinite(number)) fail("give a finite number");
  if (number < range.least) fail(fmt::format("the least is {:g}{}", range.least, range.hint));
  fail(fmt::format("the most is {:g}{}", range.most, range.hint));
}

template <class Views>
bool any_given(const Views& views) noexcept {
  return std::any_of(views.begin(), views.end(),
                     [](const auto& view) { return static_cast<bool>(view); });
}

}  // namespace

std::string Request::operation() const {
  // Piece by piece: g++ 12 takes a sum of them for an overflow under -fsanitize=thread.
  std::string text = call.op->name;
  text += '.';
  text += to_string(call.pass);
  return text;
}

std::string Request::output_names() const { return arguments::names(output_views()); }

bool Request::wants_any_output() const noexcept { return any_given(call.outputs); }
bool Request::wants_any_gradient() const noexcept { return any_given(call.gradients); }

std::vector<arguments::NamedView> Request::input_views() const {
  std::vector<arguments::NamedView> views;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.inputs[i]) views.push_back({call.op->inputs[i].name, call.inputs[i]});
  }
  return views;
}

std::vector<arguments::NamedView> Request::output_views() const {
  std::vector<arguments::NamedView> views;
  for_writes([&](const char* name, const MutableView& view) {
    if (view) views.push_back({name, view});
  });
  return views;
}

std::int64_t Request::ideal_bytes() const {
  std::int64_t bytes = arguments::ideal_bytes(input_views(), output_views());
  for (std::size_t i = 0; i < call.gradients.size(); ++i) {
    if (!call.accumulate[i]) continue;
    bytes = arguments::saturating_sum(bytes, arguments::distinct_bytes(call.gradients[i]));
  }
  return bytes;
}

void Request::drop_empty_gradients() noexcept {
  for (auto& view : call.gradients) {
    if (view.size() == 0) view = {};
  }
}

void Request::map_to_host(dispatch::HostViews& views) {
  std::vector<const View*> reads;
  for (const View& view : call.inputs) reads.push_back(&view);
  std::vector<const MutableView*> writes;
  for_writes([&](const char*, const MutableView& view) { writes.push_back(&view); });
  views.reserve(reads, writes);
  for (View& view : call.inputs) view = views.read(view);
  for_writes([&](const char*, MutableView& view) { view = views.write(view); });
}

std::pair<std::vector<NamedValue>, BlockSource> given_or_default_blocks(const Call& call) {
  if (!call.block_sizes) return {call.op->block_sizes, BlockSource::fallback};
  return {blocks_by_name(*call.op, *call.block_sizes), BlockSource::caller};
}

void check_inputs(arguments::Checks& checks, const Call& call, std::size_t begin, std::size_t end,
                  Symbols& symbols) {
  const auto& inputs = call.op->inputs;
  for (std::size_t i = begin; i < end; ++i) {
    const bool needed = inputs[i].reads == Reads::always ||
                        (inputs[i].reads == Reads::by_backward && call.pass == Pass::backward);
    if (needed && !call.inputs[i]) {
      checks.fail(std::string(inputs[i].name) + " is not given; it has shape " +
                  inputs[i].shape.text());
    }
  }
  for (std::size_t i = begin; i < end; ++i) {
    checks.input(inputs[i].name, call.inputs[i], inputs[i].types);
  }
  for (std::size_t i = begin; i < end; ++i) {
    symbols.take(checks, inputs[i].name, call.inputs[i], inputs[i].shape);
  }
}

void check_options(const arguments::Checks& checks, const Call& call) {
  for (std::size_t i = 0; i < call.options.size(); ++i) {
    check_option(checks, call.op->options[i], call.options[i]);
  }
}

void check_gradients(arguments::Checks& checks, Call& call) {
  const auto& op = *call.op;
  const auto& gradients = op.gradients;
  if (!has_gradients(call.pass)) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      checks.refuse(gradients[i].name, call.gradients[i], "this pass computes no gradients");
      if (call.accumulate[i]) {
        checks.fail("accumulate is set, but this pass computes no gradients");
      }
    }
    return;
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto& gradient = gradients[i];
    if (call.gradients[i] && !call.inputs[gradient.of]) {
      const std::string input = op.inputs[gradient.of].name;
      checks.fail(std::string(gradient.name) + " is asked for but no " + input +
                  " is given; give the " + input + " or drop the gradient");
    }
    // One that may lie in its input's place is written once; others are sums, formed in place.
    checks.output(gradient.name, call.gradients[i], ElementTypes::floating,
                  call.accumulate[i] || !gradient.in_place);
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const View& of = call.inputs[gradients[i].of];
    if (!of) continue;
    checks.shape(gradients[i].name, call.gradients[i], of.extents(),
                 {"the shape of ", nullptr, op.inputs[gradients[i].of].name});
  }
}

void check_execution(arguments::Checks& checks, Call& call) {
  checks.handles(call.queue, call.wait_for, call.workspace);
  const auto& axes = call.op->block_sizes;
  if (call.block_size) {
    // The last axis, as the older name has always meant.
    const std::size_t last = axes.size() - 1;
    checks.positive_block("block_size", *call.block_size);
    if (call.block_sizes && (*call.block_sizes)[last] != *call.block_size) {
      checks.fail("block_size is " + std::to_string(*call.block_size) + " but block_sizes." +
                  axes[last].name + " is " + std::to_string((*call.block_sizes)[last]) +
                  "; they are the same thing, give one of them");
    }
    if (!call.block_sizes) call.set_block_sizes({{axes[last].name, *call.block_size}});
  }
  if (call.block_sizes) {
    for (std::size_t i = 0; i < axes.size(); ++i) {
      checks.positive_block(axes[i].name.c_str(), (*call.block_sizes)[i]);
    }
  }
  auto& bound = call.workspace_bytes;
  if (call.workspace) {
    const auto bytes = static_cast<std::size_t>(dispatch::footprint_bytes(call.workspace));
    bound = std::min(bound.value_or(bytes), bytes);
  }
  // Sizes are signed from here on; what is beyond them bounds nothing.
  if (bound) bound = std::min(*bound, static_cast<std::size_t>(INT64_MAX));
}

void describe_gradients(Call& call) {
  const auto& gradients = call.op->gradients;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const View& of = call.inputs[gradients[i].of];
    if (!of || !call.wants_gradients[i]) continue;
    const auto& shape = call.op->inputs[gradients[i].of].shape;
    Dims strides;
    if (!shape.has_leading() && of.rank() == 2 && of.strides()[0] < of.strides()[1]) {
      strides = {1, of.extents()[0]};
    }
    call.gradients[i] =
        MutableView::host(nullptr, gradients[i].type.value_or(of.dtype()), of.extents(), strides);
  }
}

void require_results(const arguments::Checks& checks, const Request& request, Form form) {
  const Call& call = request.call;
  if (call.pass == Pass::forward && form == Form::views && !request.wants_any_output()) {
    checks.fail("no output is asked for; give at least one view");
  }
  if (!has_gradients(call.pass) || request.wants_any_gradient()) return;
  std::string names;
  for (const auto& gradient : call.op->gradients) {
    names += (names.empty() ? "" : ", ") + std::string(gradient.name);
  }
  checks.fail("no gradient is asked for; give a view or a want for " + names + ", or call forward");
}

void check_overlaps(const arguments::Checks& checks, const Call& call) {
  const char* in_place = nullptr;
  const char* in_place_of = nullptr;
  const auto& gradients = call.op->gradients;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].in_place) continue;
    in_place = gradients[i].name;
    in_place_of = call.op->inputs[gradients[i].of].name;
    if (call.accumulate[i] &&
        arguments::same_memory(call.gradients[i], call.inputs[gradients[i].of])) {
      checks.fail(std::string("accumulate is set and ") + in_place + " is the view " + in_place_of +
                  "; a gradient cannot be added to the values it comes from, give it memory of its "
                  "own");
    }
  }
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    const auto& output = call.op->outputs[i];
    if (output.in_place == nullptr || !call.outputs[i]) continue;
    in_place = output.name;
    in_place_of = output.in_place;
  }
  checks.overlaps(in_place, in_place_of);
}

}  // namespace tessera::operators
