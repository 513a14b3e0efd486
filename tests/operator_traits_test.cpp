// SPDX-License-Identifier: Apache-2.0
// What every operator says of itself in its OperatorTraits is what its calls do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/support/small_call.hpp"

namespace tessera::test {
namespace {

template <class Operator>
class OperatorTraitsTest : public testing::Test {
 protected:
  OperatorTraitsTest() { execution_.implementation = "reference"; }

  /// Leading axes of 2 x 3, 5 columns; one label is ignored.
  SmallCall<Operator> call_{{2, 3}, 4, 5, {0, 4, -100, 1, 2, 3}};
  Context context_{ContextOptions{.host_only = true, .warning_handler = [](const auto&) {}}};
  typename Operator::ExecutionOptions execution_{};

  /// A call with everything that can be given and asked for.
  typename Operator::Result everything(const typename Operator::Inputs& inputs) {
    auto options = call_.all_options();
    loss_options(options).wants = every_output<Operator>();
    return value_and_grad(context_, inputs, options, execution_);
  }
};

TYPED_TEST_SUITE(OperatorTraitsTest, OperatorTypes, OperatorName);

template <class Arguments>
void expect_each_once(const Arguments& arguments) {
  std::set<std::string> names;
  for (const auto& argument : arguments) {
    EXPECT_TRUE(names.insert(argument.name).second) << argument.name << " is there twice";
    const auto of_view = std::count_if(arguments.begin(), arguments.end(), [&](const auto& other) {
      return other.view == argument.view;
    });
    EXPECT_EQ(of_view, 1) << argument.name << " shares its member with another";
  }
}

TYPED_TEST(OperatorTraitsTest, EveryArgumentIsThereOnce) {
  using Traits = OperatorTraits<TypeParam>;
  expect_each_once(Traits::inputs);
  expect_each_once(Traits::outputs);
  expect_each_once(Traits::gradients);
  // The structs have views and nothing else, Gradients what is added to besides.
  static_assert(sizeof(typename TypeParam::Inputs) == Traits::inputs.size() * sizeof(View));
  static_assert(sizeof(typename TypeParam::Outputs) ==
                Traits::outputs.size() * sizeof(MutableView));
  constexpr std::size_t gradients = Traits::gradients.size() * sizeof(MutableView);
  static_assert(sizeof(typename TypeParam::Gradients) > gradients);
  static_assert(sizeof(typename TypeParam::Gradients) < gradients + sizeof(MutableView));
  constexpr std::size_t owned =
      Traits::gradients.size() + Traits::outputs.size() - loss_outputs.size();
  static_assert(sizeof(typename TypeParam::Result) ==
                sizeof(LossResult) + owned * sizeof(HostTensor));
  for (const auto& gradient : Traits::gradients) {
    EXPECT_EQ(std::string("grad_") + input_of(gradient).name, gradient.name);
  }
}

TYPED_TEST(OperatorTraitsTest, BlockSizesByName) {
  using Blocks = typename TypeParam::BlockSizes;
  static_assert(sizeof(Blocks) == Blocks::axes().size() * sizeof(std::int64_t));
  Blocks blocks, copy;
  std::int64_t value = 11;
  for (const auto& axis : Blocks::axes()) blocks.*axis.value = value++;
  EXPECT_FALSE(blocks == copy);
  const auto named = to_named(blocks);
  ASSERT_EQ(named.size(), Blocks::axes().size());
  for (std::size_t i = 0; i < named.size(); ++i) {
    EXPECT_EQ(named[i].name, Blocks::axes()[i].name);
    EXPECT_EQ(named[i].value, 11 + static_cast<std::int64_t>(i));
  }
  from_named(named, copy);
  EXPECT_TRUE(blocks == copy);
}

TYPED_TEST(OperatorTraitsTest, ImplementationsAreNamedOnce) {
  std::set<std::string> names;
  for (const auto& info :
       operators::description(OperatorTraits<TypeParam>::name).implementations()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
  }
  EXPECT_TRUE(names.contains("reference"));
}

TYPED_TEST(OperatorTraitsTest, ShapesAndTypesAreThoseOfACall) {
  using Traits = OperatorTraits<TypeParam>;
  for (const auto reduction : {Reduction::mean, Reduction::none}) {
    auto& call = this->call_;
    call.options.reduction = reduction;
    // Every shape is taken at the door; floating inputs in bf16 tell types that follow them.
    auto inputs = call.inputs(Pass::value_and_grad, Given::all);
    std::vector<std::vector<bf16>> narrow;
    for (const auto& input : Traits::inputs) {
      if (input.types != ElementTypes::floating || !(inputs.*input.view)) continue;
      const auto& from = call.numbers.at(input.name);
      narrow.emplace_back(from.begin(), from.end());
      inputs.*input.view = View::host(narrow.back().data(), call.extents(input.shape));
    }
    const auto result = this->everything(inputs);
    for (const auto& output : Traits::outputs) {
      const HostTensor& owned = result.*output.owned;
      ASSERT_TRUE(owned) << output.name;
      EXPECT_EQ(owned.extents(), call.extents(output.shape)) << output.name;
      EXPECT_EQ(owned.dtype(), output.types == ElementTypes::integer ? DType::i32 : DType::f32)
          << output.name;
    }
    for (const auto& gradient : Traits::gradients) {
      const HostTensor& owned = result.*gradient.owned;
      ASSERT_TRUE(owned) << gradient.name;
      EXPECT_EQ(owned.extents(), call.extents(input_of(gradient).shape)) << gradient.name;
      EXPECT_EQ(owned.dtype(), gradient.type.value_or(DType::bf16)) << gradient.name;
    }
  }
}

/// What a call leaves in `owned` is what it writes to `view`.
TYPED_TEST(OperatorTraitsTest, OwnedResultsLieWhereTheViewsWrite) {
  using Traits = OperatorTraits<TypeParam>;
  const auto& call = this->call_;
  const auto inputs = call.inputs(Pass::value_and_grad, Given::all);
  const auto result = this->everything(inputs);
  std::vector<std::vector<float>> memory;  // of f32 and i32 alike
  std::vector<const HostTensor*> owned;
  std::vector<const char*> names;
  const auto room = [&](const char* name, const HostTensor& tensor, DType type) {
    memory.emplace_back(static_cast<std::size_t>(tensor.size()), -77.0f);
    owned.push_back(&tensor);
    names.push_back(name);
    return MutableView::host(static_cast<void*>(memory.back().data()), type, tensor.extents());
  };
  typename TypeParam::Outputs outputs;
  for (const auto& output : Traits::outputs) {
    const HostTensor& tensor = result.*output.owned;
    outputs.*output.view = room(output.name, tensor, tensor.dtype());
  }
  typename TypeParam::Gradients gradients;
  for (const auto& gradient : Traits::gradients) {
    const HostTensor& tensor = result.*gradient.owned;
    gradients.*gradient.view = room(gradient.name, tensor, DType::f32);
  }
  run_views<TypeParam>(this->context_, Pass::value_and_grad, inputs, outputs, gradients,
                       call.all_options(), this->execution_)
      .wait();
  for (std::size_t i = 0; i < owned.size(); ++i) {
    ASSERT_EQ(owned[i]->strides(), contiguous_strides(owned[i]->extents())) << names[i];
    const auto* bytes = reinterpret_cast<const std::byte*>(memory[i].data());
    const auto same = owned[i]->dtype() == DType::i32
                          ? std::as_bytes(owned[i]->template as<std::int32_t>())
                          : std::as_bytes(owned[i]->template as<float>());
    EXPECT_TRUE(std::equal(same.begin(), same.end(), bytes)) << names[i];
  }
}

TYPED_TEST(OperatorTraitsTest, WhatIsWantedComesBackAndNothingElse) {
  using Traits = OperatorTraits<TypeParam>;
  const auto inputs = this->call_.inputs(Pass::value_and_grad, Given::all);
  const auto check = [&](const Wants& wants) {
    auto options = this->call_.all_options();
    loss_options(options).wants = wants;
    const auto result = value_and_grad(this->context_, inputs, options, this->execution_);
    const auto expect = [&](const auto& argument) {
      const bool wanted = argument.wanted == nullptr || wants.*argument.wanted;
      EXPECT_EQ(static_cast<bool>(result.*argument.owned), wanted) << argument.name;
    };
    for (const auto& output : Traits::outputs) expect(output);
    for (const auto& gradient : Traits::gradients) expect(gradient);
  };
  Wants none;
  none.grad_x = none.grad_w = none.grad_bias = false;
  for (const auto& gradient : Traits::gradients) {
    Wants one = none;
    if (gradient.wanted != nullptr) one.*gradient.wanted = true;
    check(one);
    for (const auto& output : Traits::outputs) {
      Wants two = one;
      if (output.wanted != nullptr) two.*output.wanted = true;
      check(two);
    }
  }
}

TYPED_TEST(OperatorTraitsTest, AnInputIsTakenByThePassesThatReadIt) {
  using Traits = OperatorTraits<TypeParam>;
  for (const Pass pass : Traits::passes) {
    for (const auto& input : Traits::inputs) {
      if (is_needed(input.reads)) continue;
      auto inputs = this->call_.inputs(pass, Given::required);
      inputs.*input.view = this->call_.view(input);
      if (input.reads == Reads::in_place_of_labels) this->call_.soften(inputs, input);
      if (input.reads == Reads::in_place_of_usual) this->call_.leave_out_usual(inputs);
      if (input.reads == Reads::in_place_of_usual) inputs.*input.view = this->call_.view(input);
      const auto why = why_unsupported(this->context_, "reference", pass, inputs, {}, {},
                                       this->call_.all_options());
      EXPECT_EQ(!why, reads_in(pass, input.reads)) << to_string(pass) << " " << input.name;
      if (!why) continue;
      EXPECT_NE(why->find(std::string(input.name) + " is given"), std::string::npos) << *why;
    }
  }
}

/// One gradient is added to, and the traits say which.
TYPED_TEST(OperatorTraitsTest, AccumulatesSaysWhatIsAddedTo) {
  using Traits = OperatorTraits<TypeParam>;
  const auto& call = this->call_;
  const auto inputs = call.inputs(Pass::value_and_grad, Given::all);
  const auto fresh = this->everything(inputs);
  for (unsigned bits = 0; bits < 1u << Traits::gradients.size(); ++bits) {
    std::vector<std::vector<float>> memory;
    typename TypeParam::Gradients gradients;
    set_accumulate(gradients.accumulate, bits);
    for (const auto& gradient : Traits::gradients) {
      const HostTensor& tensor = fresh.*gradient.owned;
      memory.emplace_back(static_cast<std::size_t>(tensor.size()), 8.0f);
      gradients.*gradient.view = MutableView::host(memory.back().data(), tensor.extents());
    }
    run_views<TypeParam>(this->context_, Pass::value_and_grad, inputs, {}, gradients,
                         call.all_options(), this->execution_)
        .wait();
    for (std::size_t i = 0; i < Traits::gradients.size(); ++i) {
      const bool adds = Traits::accumulates(gradients, i);
      EXPECT_EQ(adds, (bits >> i & 1u) != 0) << Traits::gradients[i].name;
      const auto alone = (fresh.*Traits::gradients[i].owned).template as<float>();
      for (std::size_t k = 0; k < alone.size(); ++k) {
        EXPECT_NEAR(memory[i][k], alone[k] + (adds ? 8.0f : 0.0f), 1e-5f)
            << Traits::gradients[i].name << " " << k;
      }
    }
  }
}

TYPED_TEST(OperatorTraitsTest, EveryOptionIsAMemberOfItsOwn) {
  const auto check = [](const auto& all, const auto& defaults) {
    std::set<std::string> names;
    for (const auto& option : all) {
      EXPECT_TRUE(names.insert(option.name).second) << option.name << " is there twice";
      auto options = defaults;
      const auto other = other_value(option, option.value(defaults));
      option.set(options, other);
      for (const auto& each : all) {
        const bool changed = each.value(options) != each.value(defaults);
        EXPECT_EQ(changed, &each == &option) << each.name << " as " << option.name << " is set";
      }
      EXPECT_EQ(option.value(options), other) << option.name;
    }
  };
  check(OperatorTraits<TypeParam>::options, typename TypeParam::Options());
  check(OperatorTraits<TypeParam>::execution_options, typename TypeParam::ExecutionOptions());
}

/// Becomes a member of any type but std::optional, which may be made of it in several ways.
struct AnyMember {
  template <class Member>
  operator Member() const;
};

/// How many members an aggregate has: the most values that it can be made of.
template <class Aggregate, class... Given>
consteval std::size_t member_count() {
  if constexpr (requires { Aggregate{std::declval<Given>()..., AnyMember()}; }) {
    return member_count<Aggregate, Given..., AnyMember>();
  } else if constexpr (requires { Aggregate{std::declval<Given>()..., std::nullopt}; }) {
    return member_count<Aggregate, Given..., std::nullopt_t>();
  } else {
    return sizeof...(Given);
  }
}

/// What is added to the structs without a description is out of reach for bindings and programs.
TYPED_TEST(OperatorTraitsTest, EveryMemberOfOptionsHasALine) {
  using Traits = OperatorTraits<TypeParam>;
  using Options = typename TypeParam::Options;
  // They choose what a call returns: the outputs and gradients that are described as such.
  const std::set<std::string> chooses_results = {"wants"};
  std::size_t members = member_count<LossOptions>();
  if constexpr (!std::is_same_v<Options, LossOptions>) {
    members += member_count<Options>() - 1;  // the member `loss` holds those counted before
  }
  EXPECT_EQ(members, Traits::options.size() + chooses_results.size());
  // Every operator has these, so operators::Call has each as a member; but block_size is the older
  // way to give one of the block_sizes.
  const std::set<std::string> of_every_call = {"implementation", "block_sizes",     "knobs",
                                               "block_size",     "workspace_bytes", "workspace",
                                               "queue",          "wait_for"};
  EXPECT_EQ(member_count<typename TypeParam::ExecutionOptions>(),
            Traits::execution_options.size() + of_every_call.size());
}

/// A value beyond each limit is one error, which names the option, the value and the limit.
TYPED_TEST(OperatorTraitsTest, AnOptionKeepsToItsRange) {
  const auto inputs = this->call_.inputs(Pass::forward, Given::required);
  const auto why = [&](const auto& option, auto options, auto execution, OptionValue value) {
    if constexpr (requires { option.set(options, value); }) {
      option.set(options, value);
    } else {
      option.set(execution, value);
    }
    execution.implementation = "reference";
    return why_unsupported(this->context_, "reference", Pass::forward, inputs, {}, {}, options,
                           execution)
        .value_or("");
  };
  const auto expect = [&](const auto& option, OptionValue value, const std::string& text) {
    const auto got = why(option, this->call_.all_options(), this->execution_, value);
    EXPECT_NE(got.find(option.name + std::string(" is ")), std::string::npos) << got;
    EXPECT_NE(got.find(text), std::string::npos) << got;
  };
  const auto check = [&](const auto& all) {
    for (const auto& option : all) {
      const OptionRange& range = option.range;
      const bool number = std::holds_alternative<float>(option.value({}));
      const std::string limits = std::isfinite(range.most) ? "its range is " : "the least is ";
      if (!option.choices.empty()) {
        expect(option, static_cast<std::int64_t>(option.choices.size()), option.choices.front());
        expect(option, std::int64_t{-1}, option.choices.back());
      } else if (number) {
        expect(option, std::numeric_limits<float>::quiet_NaN(),
               std::isfinite(range.most) ? limits : "give a finite number");
        if (std::isfinite(range.least)) {
          expect(option, static_cast<float>(range.least) - 1.0f, limits);
        }
        if (std::isfinite(range.most)) {
          expect(option, static_cast<float>(range.most) + (range.below_most ? 0.0f : 1.0f), limits);
        }
      } else if (std::isfinite(range.least)) {
        expect(option, static_cast<std::int64_t>(range.least) - 1, limits);
      }
    }
  };
  check(OperatorTraits<TypeParam>::options);
  check(OperatorTraits<TypeParam>::execution_options);
}

TEST(SymbolicShape, ReadsItsText) {
  constexpr SymbolicShape rows("[..., H]"), pairs("[..., 2]"), matrix("[H, V]"), leading("[...]"),
      of_loss("() or [...]");
  static_assert(rows.has_leading() && rows.rank() == 1 && rows.axis(0) == 'H');
  static_assert(!matrix.has_leading() && matrix.rank() == 2 && matrix.axis(1) == 'V');
  static_assert(leading.has_leading() && leading.rank() == 0 && !leading.is_reducible());
  static_assert(of_loss.is_reducible());
  const auto extent = [](char letter) { return letter == 'H' ? std::int64_t{7} : 9; };
  const Dims axes{4, 3};
  EXPECT_EQ(rows.extents(axes, true, extent), (Dims{4, 3, 7}));
  EXPECT_EQ(pairs.extents(axes, true, extent), (Dims{4, 3, 2}));
  EXPECT_EQ(matrix.extents(axes, false, extent), (Dims{7, 9}));
  EXPECT_EQ(leading.extents(axes, true, extent), axes);
  EXPECT_EQ(of_loss.extents(axes, true, extent), Dims{});
  EXPECT_EQ(of_loss.extents(axes, false, extent), axes);
}

}  // namespace
}  // namespace tessera::test
