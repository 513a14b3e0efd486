// SPDX-License-Identifier: Apache-2.0
// The parts of a description that no loss needs: options that may be unset, axes of 1, layouts,
// more letters and gradients. By an operator that is invented here.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/operators/bind.hpp"
#include "host/operators/host_implementation.hpp"
#include "tests/support/expect_error.hpp"

namespace tessera::test::invented {

struct BlockSizes {
  std::int64_t a_block_size = 8;

  static BlockSizes get_default() { return {}; }
  static constexpr auto axes() {
    return std::array<BlockSizeAxis<BlockSizes>, 1>{{{"a_block_size", &BlockSizes::a_block_size}}};
  }
};

struct Operator {
  struct Inputs {
    View a{}, b{}, matrix{}, table{}, row{}, bias{};
  };
  struct Outputs {
    MutableView y{}, sums{};
  };
  struct Gradients {};
  struct Options {
    std::optional<float> scale{};
    std::optional<float> cap = 2.0f;
    std::optional<std::int64_t> width{};
    std::optional<DType> kept_dtype{};
    std::int64_t count = 3;
  };
  struct Result {
    HostTensor y{}, sums{};
    Dispatch dispatch{};
  };
  struct Wants {
    bool sums = true;
  };
  using BlockSizes = invented::BlockSizes;
  using ExecutionOptions = tessera::ExecutionOptions<BlockSizes>;
};

}  // namespace tessera::test::invented

template <>
struct tessera::OperatorTraits<tessera::test::invented::Operator>
    : tessera::test::invented::Operator {
  static constexpr const char* name = "invented";
  static constexpr std::array passes = {Pass::forward};
  // Nine letters.
  static constexpr std::array<InputArgument<Inputs>, 6> inputs = {{
      {"a", &Inputs::a, "[..., A, B, C]", ElementTypes::floating, Reads::always, Layout::heads},
      {"b", &Inputs::b, "[..., D, B, E]", ElementTypes::floating, Reads::always, Layout::heads},
      {"matrix", &Inputs::matrix, "[E, F]", ElementTypes::floating, Reads::where_given},
      {"table", &Inputs::table, "[G, I]", ElementTypes::integer, Reads::where_given},
      {"row", &Inputs::row, "[J]", ElementTypes::any, Reads::where_given},
      {"bias", &Inputs::bias, "[...|1, A|1, B|1, E|1]", ElementTypes::floating, Reads::where_given},
  }};
  static constexpr std::array<OutputArgument<Outputs, Result, Wants>, 2> outputs = {{
      {"y", &Outputs::y, "[..., A, B, E]", ElementTypes::floating, &Result::y, nullptr, nullptr,
       Layout::heads},
      {"sums", &Outputs::sums, "[G, J]", ElementTypes::f32, &Result::sums, &Wants::sums},
  }};
  static constexpr std::array<GradientArgument<Operator>, 0> gradients{};
  static constexpr auto options = std::to_array({
      option<Options, &Options::scale>("scale", "may be unset"),
      option<Options, &Options::cap>("cap", "may be unset, and is not",
                                     {.least = 0, .hint = ", which turns it off"}),
      option<Options, &Options::width>("width", "may be unset"),
      option<Options, &Options::kept_dtype>("kept_dtype", "may be unset"),
      option<Options, &Options::count>("count", "may not be unset"),
  });
  static constexpr std::array<OptionArgument<ExecutionOptions>, 0> execution_options{};
  static const Wants& wants(const Options&) {
    static const Wants all{};
    return all;
  }
  static bool accumulates(const Gradients&, std::size_t) { return false; }
  static const operators::AnyOperator& behind();
};

namespace tessera::test::invented {
namespace {

using Traits = OperatorTraits<Operator>;

Operator::Options seen;  ///< what the last call had

/// Keeps the options of a call.
class Only final : public operators::HostImplementation {
 public:
  Only() : HostImplementation({"only", "keeps the options", true}) {}
  CostEstimate cost(ContextState&, const dispatch::Request&) const override { return {}; }

 private:
  void describe(const ContextState&, const operators::Request& request,
                Dispatch& dispatch) const override {
    dispatch.block_sizes = operators::given_or_default_blocks(request.call).first;
  }
  void compute(ContextState&, const operators::Request& request, Dispatch&, void*) const override {
    seen = operators::options_of<Operator>(request.call);
  }
};

const operators::Description& invented() {
  static const auto op = operators::describe<Operator>();
  return op;
}

class Vocabulary : public testing::Test {
 protected:
  /// Leading axes of 2, and A to E of 3 to 7.
  Vocabulary() {
    call_.inputs[0] = array({2, 3, 4, 5});
    call_.inputs[1] = array({2, 6, 4, 7});
  }
  View array(const Dims& extents, const Dims& strides = {}) {
    return View::host(memory_.data(), extents, strides);
  }
  void give(const char* name, const View& view) {
    call_.inputs[static_cast<std::size_t>(invented().input(name) - invented().inputs.data())] =
        view;
  }
  /// The message about the call; empty: it is right.
  std::string why() { return operators::why_unsupported(context_, "only", call_).value_or(""); }
  void expect(const std::string& part) {
    EXPECT_NE(why().find(part), std::string::npos) << "no \"" << part << "\" in: " << why();
  }

  std::vector<float> memory_ = std::vector<float>(1000, 1.0f);
  std::vector<std::int32_t> integers_ = std::vector<std::int32_t>(100, 1);
  Context context_{ContextOptions{.host_only = true, .warning_handler = [](const auto&) {}}};
  operators::Call call_{invented(), Pass::forward};
};

TEST_F(Vocabulary, DescribesOptionsThatMayBeUnset) {
  const auto& options = invented().options;
  const OptionKind kinds[] = {OptionKind::number, OptionKind::number, OptionKind::integer,
                              OptionKind::dtype, OptionKind::integer};
  const OptionValue standards[] = {Unset(), 2.0f, Unset(), Unset(), std::int64_t{3}};
  for (std::size_t i = 0; i < options.size(); ++i) {
    EXPECT_EQ(options[i].kind, kinds[i]) << options[i].name;
    EXPECT_EQ(options[i].may_be_unset, i != 4) << options[i].name;
    EXPECT_EQ(options[i].standard, standards[i]) << options[i].name;
  }
}

/// The option as a struct, as a value of a call, and as the implementation reads it.
TEST_F(Vocabulary, AnOptionIsWhatWasGiven) {
  const Operator::Options all[] = {
      {},
      {.scale = 0.125f, .cap = {}, .width = 0, .kept_dtype = DType::f32, .count = 0},
      {.scale = 0.0f, .cap = 1.5f, .width = 1, .kept_dtype = DType::bf16, .count = -1},
      {.scale = -2.0f, .cap = 0.0f, .width = -7, .kept_dtype = DType::i64, .count = 9}};
  for (const auto& given : all) {
    for (std::size_t i = 0; i < call_.options.size(); ++i) {
      call_.options[i] = Traits::options[i].value(given);
    }
    seen = {.scale = 77.0f, .cap = 77.0f, .width = 77, .kept_dtype = DType::f16, .count = 77};
    operators::run_owned(context_, call_);
    EXPECT_EQ(seen.scale, given.scale);
    EXPECT_EQ(seen.cap, given.cap);
    EXPECT_EQ(seen.width, given.width);
    EXPECT_EQ(seen.kept_dtype, given.kept_dtype);
    EXPECT_EQ(seen.count, given.count);
  }
  EXPECT_EQ(Traits::options[0].value({.scale = 0.125f}), OptionValue(0.125f));
  EXPECT_EQ(to_string(OptionValue(0.125f)) + " " + to_string(OptionValue(Unset())), "0.125 unset");
}

TEST_F(Vocabulary, AnOptionOutOfRange) {
  const auto expect_of = [&](const char* name, const OptionValue& value, const char* part) {
    const auto before = call_.options;
    ASSERT_TRUE(call_.set(name, value));
    expect(part);
    call_.options = before;
  };
  expect_of("scale", std::nanf(""), "scale is nan; give a finite number");
  expect_of("scale", std::numeric_limits<float>::infinity(), "scale is inf; give a finite number");
  expect_of("cap", -0.5f, "cap is -0.5; the least is 0, which turns it off");
  expect_of("count", Unset(), "count is unset; it cannot be left unset; give a value");
  EXPECT_EQ(why(), "");
}

TEST_F(Vocabulary, NineLettersOfSixInputs) {
  give("matrix", array({7, 8}));
  give("table", View::host(integers_.data(), {9, 10}));
  give("row", array({11}));
  EXPECT_EQ(why(), "");
  EXPECT_EQ(operators::output_extents(call_, 0), (Dims{2, 3, 4, 7}));
  EXPECT_EQ(operators::output_extents(call_, 1), (Dims{9, 11}));
  const auto owned = operators::run_owned(context_, call_);
  EXPECT_EQ(owned.outputs[0].extents(), (Dims{2, 3, 4, 7}));
  EXPECT_EQ(owned.outputs[1].extents(), (Dims{9, 11}));
  EXPECT_EQ(operators::letter_count(Traits::inputs), 9u);
}

TEST_F(Vocabulary, ALetterThatNoInputGives) {
  EXPECT_EQ(operators::output_extents(call_, 1), (Dims{0, 0}));
  call_.inputs[1] = {};
  EXPECT_EQ(operators::output_extents(call_, 0), (Dims{2, 3, 4, 0}));
  call_.inputs[0] = {};  // as a caller may ask before anything was checked
  EXPECT_EQ(operators::output_extents(call_, 0), (Dims{0, 0, 0}));
  EXPECT_EQ(operators::output_strides(call_, 0, {2, 3, 4}), (Dims{12, 4, 1}));
}

TEST_F(Vocabulary, MessagesNameAMiddleAxis) {
  give("b", array({2, 6, 3, 7}));
  expect(
      "b has shape [2, 6, 3, 7] but a has shape [2, 3, 4, 5]: axis -2 of b must be B, axis -2 of "
      "a");
  give("b", array({2, 6, 4, 7}));
  give("matrix", array({6, 8}));
  expect("the first axis of matrix must be E, the last axis of b");
  give("matrix", {});
  give("b", array({4, 7}));
  expect("b has shape [4, 7], expected [..., D, B, E]");
}

TEST_F(Vocabulary, AxesOfOneAreRepeated) {
  for (unsigned bits = 0; bits < 16; ++bits) {
    Dims extents = {2, 3, 4, 7};
    for (int axis = 0; axis < 4; ++axis) {
      if ((bits >> axis & 1u) != 0) extents[axis] = 1;
    }
    give("bias", array(extents));
    EXPECT_EQ(why(), "") << bits;
  }
  for (const Dims& wrong : {Dims{2, 3, 4, 6}, Dims{3, 4, 7}, Dims{2, 1, 5, 1}, Dims{0, 1, 1, 1}}) {
    give("bias", array(wrong));
    expect("bias has shape [" + std::to_string(wrong[0]) + ", ");
    expect("expected [2, 3, 4, 7], or 1 in the place of any of its axes ([...|1, A|1, B|1, E|1])");
  }
}

TEST_F(Vocabulary, AMatrixIsAWeightWhereTheDescriptionSaysSo) {
  EXPECT_FALSE(invented().has_weights());
  EXPECT_FALSE(invented().input("table")->is_weight());
  EXPECT_FALSE(invented().input("matrix")->is_weight());
  EXPECT_TRUE(operators::description("linear_cross_entropy").input("w")->is_weight());
}

/// Results lie in memory as the first input does.
TEST_F(Vocabulary, HeadsBeforeTokensOrBehind) {
  const auto strides_of_y = [&] {
    return operators::run_owned(context_, call_).outputs[0].strides();
  };
  EXPECT_EQ(strides_of_y(), contiguous_strides({2, 3, 4, 7}));
  give("a", array({2, 3, 4, 5}, {60, 5, 15, 1}));
  EXPECT_EQ(strides_of_y(), (Dims{84, 7, 21, 1}));
}

}  // namespace
}  // namespace tessera::test::invented

const tessera::operators::AnyOperator&
tessera::OperatorTraits<tessera::test::invented::Operator>::behind() {
  static const operators::PlainOperator all([] {
    dispatch::Table rows;
    rows.push_back(std::make_unique<test::invented::Only>());
    return rows;
  }());
  return all;
}
