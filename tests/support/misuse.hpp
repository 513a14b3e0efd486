// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/small_call.hpp"

/// Calls that are wrong: each is refused before anything runs, with a message that names the
/// argument, its value and the limit, before any output is touched.
namespace tessera::misuse {

inline constexpr std::int64_t B = 4;
inline constexpr std::int64_t H = 3;
inline constexpr std::int64_t V = 5;
inline constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();
inline constexpr unsigned char poison = 0xa5;
/// Where memory for outputs begins that no correct call has.
inline constexpr std::size_t spare = 512;

/// Everything that a call of an operator takes, correct; a case breaks one thing. Outputs are views
/// of poison: loss, then lse, then a gradient at every 64th byte.
template <class Operator>
struct Call {
  using Op = Operator;
  using Traits = OperatorTraits<Operator>;

  test::SmallCall<Operator> small{{B}, H, V, {0, 1, 2, 4}};
  std::vector<std::int32_t>& labels = small.labels;
  std::vector<float> per_row = std::vector<float>(B * 2, 1.0f);
  std::vector<float> per_word = std::vector<float>(V * 4, 1.0f);
  std::vector<unsigned char> outputs = std::vector<unsigned char>(2 * spare, poison);

  Pass pass = Pass::value_and_grad;
  typename Operator::Inputs in{};
  typename Operator::Outputs out{};
  typename Operator::Gradients grad{};
  LossOptions options{};
  typename Operator::Options all_options() const { return options_with<Operator>(options); }
  typename Operator::ExecutionOptions execution{};

  Call() { set_leading({B}); }
  Call(const Call&) = delete;

  /// All views, with other leading axes of B rows.
  void set_leading(const Dims& leading) {
    small.leading = leading;
    in = small.inputs(Pass::forward, test::Given::required);
    out.loss = out_view(0, {});
    out.lse = out_view(16, leading);
    for (std::size_t i = 0; i < Traits::gradients.size(); ++i) {
      const auto& gradient = Traits::gradients[i];
      const auto& of = input_of(gradient);
      if (is_needed(of.reads)) grad.*gradient.view = gradient_view(i, extents(of.shape));
    }
  }
  void to_backward() {
    pass = Pass::backward;
    out = {};
    in.lse = View::host(per_row.data(), small.leading);
  }
  void to_forward() {
    pass = Pass::forward;
    grad = {};
  }
  /// The pass that reads an input, without what it stands in the place of.
  void to_reader_of(const InputArgument<typename Operator::Inputs>& input) {
    if (!reads_in(Pass::value_and_grad, input.reads)) to_backward();
    if (input.reads == Reads::in_place_of_labels) small.soften(in, input);
    if (input.reads == Reads::in_place_of_usual) small.leave_out_usual(in);
  }

  Dims extents(const SymbolicShape& shape) const { return small.extents(shape); }
  /// Of an input, by name.
  float* data(const char* input) { return small.numbers.at(input).data(); }

  template <class T = float>
  T* at(std::size_t byte) {
    return reinterpret_cast<T*>(outputs.data() + byte);
  }
  MutableView out_view(std::size_t byte, const Dims& dims, DType type = DType::f32) {
    return MutableView::host(static_cast<void*>(outputs.data() + byte), type, dims);
  }
  MutableView gradient_view(std::size_t i, const Dims& dims, DType type = DType::f32) {
    return out_view(64 * (i + 1), dims, type);
  }
  bool untouched() const {
    for (const auto byte : outputs) {
      if (byte != poison) return false;
    }
    return true;
  }

  void run(Context& context) {
    if (pass == Pass::forward_partial) {
      forward_partial(context, in, all_options(), execution);
    } else {
      test::run_views<Operator>(context, pass, in, out, grad, all_options(), execution).wait();
    }
  }
};

/// What is broken, and what the message says.
template <class Operator>
struct Case {
  std::string name;
  std::function<void(Call<Operator>&)> breaks;
  std::vector<std::string> says;
  ErrorCode code = ErrorCode::invalid_argument;
};

template <class Operator>
void expect_refused(const Case<Operator>& c) {
  // Host only: the checks come before any implementation is chosen.
  Context context(ContextOptions{.host_only = true, .warning_handler = [](const auto&) {}});
  Call<Operator> call;
  c.breaks(call);
  const auto labels = call.labels;
  try {
    call.run(context);
    FAIL() << c.name << ": nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), std::string(to_string(c.code))) << error.what();
    for (const auto& part : c.says) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "\"" << part << "\" in \"" << error.what() << "\"";
    }
  }
  EXPECT_TRUE(call.untouched());
  EXPECT_EQ(call.labels, labels);
}

/// One case of one operator, for GoogleTest.
struct Refused {
  std::string name;
  std::function<void()> expect;
};

inline void PrintTo(const Refused& refused, std::ostream* stream) { *stream << refused.name; }

inline std::string refused_name(const testing::TestParamInfo<Refused>& info) {
  return info.param.name;
}

template <class Operator>
void add_cases(std::vector<Refused>& all, const std::vector<Case<Operator>>& cases) {
  for (const auto& c : cases) {
    all.push_back(
        {OperatorTraits<Operator>::name + ("_" + c.name), [c] { expect_refused<Operator>(c); }});
  }
}

template <class T>
T* misaligned(T* pointer) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) + 1);
}

/// A cl_mem that is never looked at: the context has no device.
inline cl_mem some_memory() {
  static int token;
  return reinterpret_cast<cl_mem>(&token);
}

}  // namespace tessera::misuse
