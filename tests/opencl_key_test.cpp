// SPDX-License-Identifier: Apache-2.0
// The key under which a prepared call is kept: of two calls that differ in anything described, one
// must not run the other's programs; two that differ in addresses alone share them.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "host/loss/opencl_operator.hpp"
#include "tests/support/small_call.hpp"

namespace tessera::test {
namespace {

template <class Operator>
class KeyTest : public testing::Test {
 protected:
  using Request = loss::OperatorRequest<Operator>;
  using Key = std::vector<std::int64_t>;

  /// Everything that can be given and asked for, as a validated call has it.
  KeyTest() {
    using Traits = OperatorTraits<Operator>;
    base_.loss.pass = Pass::value_and_grad;
    base_.inputs = call_.inputs(Pass::value_and_grad, Given::all);
    base_.execution.workspace_bytes = std::size_t{1} << 20;
    for (std::size_t i = 0; i < Traits::outputs.size(); ++i) {
      const auto& output = Traits::outputs[i];
      const DType type = output.types == ElementTypes::integer ? DType::i32 : DType::f32;
      loss::output_at<Operator>(base_, i) =
          MutableView::host(nullptr, type, call_.extents(output.shape));
    }
    for (const auto& gradient : Traits::gradients) {
      base_.gradients.*gradient.view =
          MutableView::host(nullptr, DType::f32, call_.extents(input_of(gradient).shape));
    }
  }

  /// The key of the base with a change, which no other change may have.
  template <class Change>
  void expect_own_key(const std::string& what, const Change& change) {
    Request changed = base_;
    change(changed);
    const auto [at, is_new] = seen_.emplace(loss::key_of(changed), what);
    EXPECT_TRUE(is_new) << what << " has the key of " << at->second;
  }

  template <class ViewOf>
  void expect_view_keys(const std::string& name, const ViewOf& view_of) {
    if (!view_of(base_)) return;
    expect_own_key(name + " left out", [&](Request& r) { view_of(r) = {}; });
    using Held = std::remove_reference_t<decltype(view_of(base_))>;
    const auto remade = [&](Request& r, DType type, const Dims& extents, const Dims& strides) {
      view_of(r) = Held::host(nullptr, type, extents, strides);
    };
    const Held& view = view_of(base_);
    const DType other = view.dtype() == DType::f16 ? DType::bf16 : DType::f16;
    expect_own_key(name + " of another type",
                   [&](Request& r) { remade(r, other, view.extents(), view.strides()); });
    for (int axis = 0; axis < view.rank(); ++axis) {
      Dims extents = view.extents(), strides = view.strides();
      ++extents[axis];
      strides[axis] += 64;
      const std::string of_axis = name + " axis " + std::to_string(axis);
      expect_own_key(of_axis + " longer",
                     [&](Request& r) { remade(r, view.dtype(), extents, view.strides()); });
      expect_own_key(of_axis + " wider",
                     [&](Request& r) { remade(r, view.dtype(), view.extents(), strides); });
    }
  }

  SmallCall<Operator> call_{{2, 3}, 4, 5, {0, 4, -100, 1, 2, 3}};
  Request base_{};
  std::map<Key, std::string> seen_{};
};

TYPED_TEST_SUITE(KeyTest, OperatorTypes, OperatorName);

TYPED_TEST(KeyTest, WhateverIsDescribedIsInIt) {
  using Traits = OperatorTraits<TypeParam>;
  this->expect_own_key("nothing", [](auto&) {});
  for (const auto& input : Traits::inputs) {
    this->expect_view_keys(input.name, [&](auto& r) -> View& { return r.inputs.*input.view; });
  }
  for (std::size_t i = 0; i < Traits::outputs.size(); ++i) {
    this->expect_view_keys(
        std::string("output ") + Traits::outputs[i].name,
        [&](auto& r) -> MutableView& { return loss::output_at<TypeParam>(r, i); });
  }
  for (const auto& gradient : Traits::gradients) {
    this->expect_view_keys(gradient.name,
                           [&](auto& r) -> MutableView& { return r.gradients.*gradient.view; });
  }
  for (unsigned bits = 1; bits < 1u << Traits::gradients.size(); ++bits) {
    this->expect_own_key("accumulate " + std::to_string(bits),
                         [&](auto& r) { set_accumulate(r.gradients.accumulate, bits); });
  }
  for (const auto& option : Traits::options) {
    this->expect_own_key(option.name, [&](auto& r) {
      option.set(r.options, other_value(option, option.value(r.options)));
    });
  }
  for (const auto& option : Traits::execution_options) {
    this->expect_own_key(option.name, [&](auto& r) {
      option.set(r.execution, other_value(option, option.value(r.execution)));
    });
  }
}

TYPED_TEST(KeyTest, HowACallRunsIsInIt) {
  using Blocks = typename TypeParam::BlockSizes;
  this->expect_own_key("nothing", [](auto&) {});
  for (const Pass pass : OperatorTraits<TypeParam>::passes) {
    if (pass == this->base_.loss.pass) continue;
    this->expect_own_key(to_string(pass), [&](auto& r) { r.loss.pass = pass; });
  }
  this->expect_own_key("a shard", [](auto& r) { r.loss.is_shard = true; });
  this->expect_own_key("the default blocks, given",
                       [](auto& r) { r.execution.block_sizes = Blocks::get_default(); });
  for (const auto& axis : Blocks::axes()) {
    this->expect_own_key(axis.name, [&](auto& r) {
      r.execution.block_sizes = Blocks::get_default();
      (*r.execution.block_sizes).*axis.value += 16;
    });
  }
  for (const auto& [name, value] : {NamedValue{"slices", 1}, {"slices", 2}, {"lanes", 1}}) {
    this->expect_own_key(name + "=" + std::to_string(value), [&](auto& r) {
      r.execution.knobs = {{name, value}};
    });
  }
  this->expect_own_key("no bound", [](auto& r) { r.execution.workspace_bytes.reset(); });
  this->expect_own_key("a bound of 0", [](auto& r) { r.execution.workspace_bytes = 0; });
}

/// A training loop has new arrays each step.
TYPED_TEST(KeyTest, AddressesAreNotInIt) {
  auto moved = this->base_;
  std::vector<std::vector<char>> memory;
  for (const auto& input : OperatorTraits<TypeParam>::inputs) {
    View& view = moved.inputs.*input.view;
    if (!view) continue;
    memory.emplace_back(static_cast<std::size_t>(view.size()) * size_of(view.dtype()));
    view = View::host(memory.back().data(), view.dtype(), view.extents(), view.strides());
  }
  EXPECT_EQ(loss::key_of(moved), loss::key_of(this->base_));
}

}  // namespace
}  // namespace tessera::test
