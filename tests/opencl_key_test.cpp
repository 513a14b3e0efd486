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

  KeyTest() {
    auto options = call_.all_options();
    loss_options(options).wants = every_output<Operator>();
    base_ = loss::make_request<Operator>(
        context_.state(), Pass::value_and_grad, call_.inputs(Pass::value_and_grad, Given::all), {},
        {}, options, {.workspace_bytes = std::size_t{1} << 20}, loss::Form::owned);
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
  Context context_{ContextOptions{.host_only = true, .warning_handler = [](const auto&) {}}};
  Request base_{};
  std::map<Key, std::string> seen_{};
};

template <class Tuple>
struct TypesOf;
template <class... Operator>
struct TypesOf<std::tuple<Operator...>> {
  using type = testing::Types<Operator...>;
};

struct OperatorName {
  template <class Operator>
  static std::string GetName(int) {
    return OperatorTraits<Operator>::name;
  }
};

TYPED_TEST_SUITE(KeyTest, typename TypesOf<Operators>::type, OperatorName);

TYPED_TEST(KeyTest, WhateverIsDescribedIsInIt) {
  using Traits = OperatorTraits<TypeParam>;
  using Request = typename TestFixture::Request;
  this->expect_own_key("nothing", [](Request&) {});
  for (const auto& input : Traits::inputs) {
    this->expect_view_keys(input.name, [&](Request& r) -> View& { return r.inputs.*input.view; });
  }
  for (std::size_t i = 0; i < Traits::outputs.size(); ++i) {
    this->expect_view_keys(
        std::string("output ") + Traits::outputs[i].name,
        [&](Request& r) -> MutableView& { return loss::output_at<TypeParam>(r, i); });
  }
  for (const auto& gradient : Traits::gradients) {
    this->expect_view_keys(gradient.name,
                           [&](Request& r) -> MutableView& { return r.gradients.*gradient.view; });
  }
  for (unsigned bits = 1; bits < 1u << Traits::gradients.size(); ++bits) {
    this->expect_own_key("accumulate " + std::to_string(bits),
                         [&](Request& r) { set_accumulate(r.gradients.accumulate, bits); });
  }
  for (const auto& option : Traits::options) {
    this->expect_own_key(option.name, [&](Request& r) {
      option.set(r.options, other_value(option, option.value(r.options)));
    });
  }
  for (const auto& option : Traits::execution_options) {
    this->expect_own_key(option.name, [&](Request& r) {
      option.set(r.execution, other_value(option, option.value(r.execution)));
    });
  }
}

TYPED_TEST(KeyTest, HowACallRunsIsInIt) {
  using Request = typename TestFixture::Request;
  using Blocks = typename TypeParam::BlockSizes;
  this->expect_own_key("nothing", [](Request&) {});
  for (const Pass pass : OperatorTraits<TypeParam>::passes) {
    if (pass == this->base_.loss.pass) continue;
    this->expect_own_key(to_string(pass), [&](Request& r) { r.loss.pass = pass; });
  }
  this->expect_own_key("a shard", [](Request& r) { r.loss.is_shard = true; });
  this->expect_own_key("the default blocks, given",
                       [](Request& r) { r.execution.block_sizes = Blocks::get_default(); });
  for (const auto& axis : Blocks::axes()) {
    this->expect_own_key(axis.name, [&](Request& r) {
      r.execution.block_sizes = Blocks::get_default();
      (*r.execution.block_sizes).*axis.value += 16;
    });
  }
  for (const auto& [name, value] : {NamedValue{"slices", 1}, {"slices", 2}, {"lanes", 1}}) {
    this->expect_own_key(name + "=" + std::to_string(value), [&](Request& r) {
      r.execution.knobs = {{name, value}};
    });
  }
  this->expect_own_key("no bound", [](Request& r) { r.execution.workspace_bytes.reset(); });
  this->expect_own_key("a bound of 0", [](Request& r) { r.execution.workspace_bytes = 0; });
}

/// A training loop has new arrays each step.
TYPED_TEST(KeyTest, AddressesAreNotInIt) {
  using Request = typename TestFixture::Request;
  Request moved = this->base_;
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
