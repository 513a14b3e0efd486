// SPDX-License-Identifier: Apache-2.0
// The key under which a prepared call is kept: of two calls that differ in anything described, one
// must not run the other's programs; two that differ in addresses alone share them.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "host/operators/bind.hpp"
#include "host/operators/opencl_operator.hpp"
#include "tests/support/small_call.hpp"

namespace tessera::test {
namespace {

using operators::Call;

template <class Operator>
class KeyTest : public testing::Test {
 protected:
  /// Everything that can be given and asked for.
  KeyTest() {
    const SmallCall<Operator> small{{2, 3}, 4, 5, {0, 4, -100, 1, 2, 3}};
    base_ = operators::bind<Operator>(Pass::value_and_grad,
                                      small.inputs(Pass::value_and_grad, Given::all), {}, {}, {},
                                      {.workspace_bytes = std::size_t{1} << 20});
    for (std::size_t i = 0; i < base_.outputs.size(); ++i) {
      const auto& output = base_.op->outputs[i];
      const DType type = output.types == ElementTypes::integer ? DType::i32 : DType::f32;
      base_.outputs[i] = MutableView::host(nullptr, type, small.extents(output.shape));
    }
    for (std::size_t i = 0; i < base_.gradients.size(); ++i) {
      const auto& of = base_.op->inputs[base_.op->gradients[i].of];
      base_.gradients[i] = MutableView::host(nullptr, DType::f32, small.extents(of.shape));
    }
  }

  /// The key of the base with a change, which no other change may have.
  template <class Change>
  void expect_own_key(const std::string& what, const Change& change) {
    Call changed = base_;
    change(changed);
    const auto [at, is_new] = seen_.emplace(operators::key_of(changed), what);
    EXPECT_TRUE(is_new) << what << " has the key of " << at->second;
  }

  template <class ViewOf>
  void expect_view_keys(const std::string& name, const ViewOf& view_of) {
    if (!view_of(base_)) return;
    expect_own_key(name + " left out", [&](Call& call) { view_of(call) = {}; });
    using Held = std::remove_reference_t<decltype(view_of(base_))>;
    const auto remade = [&](Call& call, DType type, const Dims& extents, const Dims& strides) {
      view_of(call) = Held::host(nullptr, type, extents, strides);
    };
    const Held& view = view_of(base_);
    const DType other = view.dtype() == DType::f16 ? DType::bf16 : DType::f16;
    expect_own_key(name + " of another type",
                   [&](Call& call) { remade(call, other, view.extents(), view.strides()); });
    for (int axis = 0; axis < view.rank(); ++axis) {
      Dims extents = view.extents(), strides = view.strides();
      ++extents[axis];
      strides[axis] += 64;
      const std::string of_axis = name + " axis " + std::to_string(axis);
      expect_own_key(of_axis + " longer",
                     [&](Call& call) { remade(call, view.dtype(), extents, view.strides()); });
      expect_own_key(of_axis + " wider",
                     [&](Call& call) { remade(call, view.dtype(), view.extents(), strides); });
    }
  }

  Call base_{operators::description_of<Operator>(), Pass::value_and_grad};
  std::map<std::vector<std::int64_t>, std::string> seen_{};
};

TYPED_TEST_SUITE(KeyTest, OperatorTypes, OperatorName);

TYPED_TEST(KeyTest, WhateverIsDescribedIsInIt) {
  const auto& op = *this->base_.op;
  this->expect_own_key("nothing", [](auto&) {});
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    this->expect_view_keys(op.inputs[i].name, [=](Call& call) -> View& { return call.inputs[i]; });
  }
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    this->expect_view_keys(std::string("output ") + op.outputs[i].name,
                           [=](Call& call) -> MutableView& { return call.outputs[i]; });
  }
  for (std::size_t i = 0; i < op.gradients.size(); ++i) {
    this->expect_view_keys(op.gradients[i].name,
                           [=](Call& call) -> MutableView& { return call.gradients[i]; });
    this->expect_own_key("accumulate " + std::to_string(i),
                         [=](Call& call) { call.accumulate[i] = true; });
  }
  for (std::size_t i = 0; i < op.options.size(); ++i) {
    this->expect_own_key(op.options[i].name, [&](Call& call) {
      call.options[i] = other_value(op.options[i], call.options[i]);
    });
  }
}

TYPED_TEST(KeyTest, HowACallRunsIsInIt) {
  const auto& op = *this->base_.op;
  this->expect_own_key("nothing", [](auto&) {});
  for (const Pass pass : op.passes) {
    if (pass == this->base_.pass) continue;
    this->expect_own_key(to_string(pass), [=](Call& call) { call.pass = pass; });
  }
  this->expect_own_key("the default blocks, given", [](Call& call) { call.set_block_sizes({}); });
  for (const auto& [name, value] : op.block_sizes) {
    this->expect_own_key(name, [&](Call& call) { call.set_block_sizes({{name, value + 16}}); });
  }
  for (const auto& [name, value] : {NamedValue{"slices", 1}, {"slices", 2}, {"lanes", 1}}) {
    this->expect_own_key(name + "=" + std::to_string(value), [&](Call& call) {
      call.knobs = {{name, value}};
    });
  }
  this->expect_own_key("no bound", [](Call& call) { call.workspace_bytes.reset(); });
  this->expect_own_key("a bound of 0", [](Call& call) { call.workspace_bytes = 0; });
}

/// A training loop has new arrays each step.
TYPED_TEST(KeyTest, AddressesAreNotInIt) {
  Call moved = this->base_;
  std::vector<std::vector<char>> memory;
  for (View& view : moved.inputs) {
    if (!view) continue;
    memory.emplace_back(static_cast<std::size_t>(view.size()) * size_of(view.dtype()));
    view = View::host(memory.back().data(), view.dtype(), view.extents(), view.strides());
  }
  EXPECT_EQ(operators::key_of(moved), operators::key_of(this->base_));
}

}  // namespace
}  // namespace tessera::test
