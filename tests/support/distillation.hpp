// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/catalog/operators.hpp"
#include "tessera/context.hpp"
#include "tessera/linear_distillation.hpp"

/// Calls of linear_distillation, and how what `eigen` says of them is held against `reference`,
/// which is the oracle in double.
namespace tessera::distillation {

namespace ld = linear_distillation;
using ld::Divergence;

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr Divergence divergences[] = {Divergence::forward_kl, Divergence::reverse_kl,
                                             Divergence::jsd};

/// A student and its teacher with everything that a call may be given.
struct Problem {
  std::int64_t b = 13, h = 37, v = 203, g = 29;
  DType x_type = DType::f32, w_type = DType::f32, teacher_type = DType::f32;
  bool w_is_vh = true, teacher_w_is_vh = false;
  bool from_logits = false, has_labels = true, has_bias = true;
  bool is_saved = false;  ///< backward gets divergence_statistics
  ld::Options options{};
  ld::ExecutionOptions execution{};
  std::function<void(std::vector<float>& x, std::vector<float>& bias, std::vector<float>& teacher)>
      spoil = [](auto&, auto&, auto&) {};
};

/// An array of numbers, each rounded to its type.
class Array {
 public:
  Array(DType type, const Dims& extents, const Dims& strides, const std::vector<float>& values)
      : tensor_(type, extents, strides.empty() ? contiguous_strides(extents) : strides) {
    const Dims s = tensor_.strides();
    for (std::int64_t i = 0; i < extents.product(); ++i) {
      const std::int64_t at =
          extents.rank() == 2 ? i / extents[1] * s[0] + i % extents[1] * s[1] : i * s[0];
      const float value = values[static_cast<std::size_t>(i)];
      if (type == DType::bf16) {
        static_cast<bf16*>(tensor_.data())[at] = bf16(value);
      } else if (type == DType::f16) {
        static_cast<f16*>(tensor_.data())[at] = f16(value);
      } else {
        static_cast<float*>(tensor_.data())[at] = value;
      }
    }
  }
  View view() const { return tensor_.view(); }

 private:
  HostTensor tensor_;
};

class Arrays {
 public:
  explicit Arrays(const Problem& p) : p_(p) {
    std::mt19937 random(17);
    std::normal_distribution<float> normal;
    const auto numbers = [&](std::int64_t count, float scale) {
      std::vector<float> values(static_cast<std::size_t>(count));
      // Outliers too: Gaussian numbers alone miss what a softmax gets wrong.
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = scale * normal(random) * (i % 61 == 7 ? 6.0f : 1.0f);
      }
      return values;
    };
    auto x =
        numbers(p.b * p.h, 2.0f / std::sqrt(static_cast<float>(std::max<std::int64_t>(p.h, 1))));
    auto bias = numbers(p.v, 0.5f);
    auto teacher = p.from_logits ? numbers(p.b * p.v, 2.0f)
                                 : numbers(p.b * p.g, 2.0f / std::sqrt(static_cast<float>(p.g)));
    p.spoil(x, bias, teacher);
    add("x", p.x_type, {p.b, p.h}, {}, x);
    add("w", p.w_type, {p.h, p.v}, p.w_is_vh ? Dims{1, p.h} : Dims{p.v, 1}, numbers(p.h * p.v, 1));
    add("bias", DType::f32, {p.v}, {}, bias);
    if (p.from_logits) {
      add("teacher_logits", p.teacher_type, {p.b, p.v}, {}, teacher);
    } else {
      add("teacher_x", p.teacher_type, {p.b, p.g}, {}, teacher);
      add("teacher_w", p.teacher_type, {p.g, p.v}, p.teacher_w_is_vh ? Dims{1, p.g} : Dims{p.v, 1},
          numbers(p.g * p.v, 1));
      add("teacher_bias", DType::f32, {p.v}, {}, numbers(p.v, 0.5f));
    }
    add("weight", DType::f32, {p.b}, {}, numbers(p.b, 1));
    add("dlse", DType::f32, {p.b}, {}, numbers(p.b, 1));
    for (std::int64_t row = 0; row < p.b; ++row) {
      labels_.push_back(row % 5 == 3 ? -100 : static_cast<std::int32_t>(row * 31 % p.v));
    }
  }

  ld::Inputs inputs(Pass pass) const {
    ld::Inputs in;
    for (const auto& input : OperatorTraits<ld::Operator>::inputs) {
      if (!p_.has_bias && std::string_view(input.name).ends_with("bias")) continue;
      for (const auto& [name, array] : arrays_) {
        if (name == input.name && reads_in(pass, input.reads)) in.*input.view = array.view();
      }
    }
    if (p_.has_labels) in.labels = labels_;
    return in;
  }

 private:
  void add(const char* name, DType type, const Dims& extents, const Dims& strides,
           const std::vector<float>& values) {
    arrays_.emplace_back(name, Array(type, extents, strides, values));
  }

  const Problem& p_;
  std::vector<std::pair<std::string, Array>> arrays_;
  std::vector<std::int32_t> labels_;
};

inline ld::Result run_on(const char* implementation, const Problem& p, const Arrays& arrays,
                         Pass pass, int threads = 3) {
  Context context({.threads = threads, .host_only = true, .warning_handler = [](const auto&) {}});
  ld::Options options = p.options;
  options.loss.wants = every_output<ld::Operator>();
  auto execution = p.execution;
  execution.implementation = implementation;
  if (implementation == std::string("reference")) execution.workspace_bytes.reset();
  auto inputs = arrays.inputs(pass);
  if (pass == Pass::forward) return forward(context, inputs, options, execution);
  if (pass == Pass::value_and_grad) return value_and_grad(context, inputs, options, execution);
  auto plain = execution;
  plain.implementation = "reference";
  plain.workspace_bytes.reset();
  const auto before = forward(context, arrays.inputs(Pass::forward), options, plain);
  inputs.statistics = before.statistics.view();
  if (p.is_saved) inputs.divergence_statistics = before.divergence_statistics.view();
  return backward(context, inputs, options, execution);
}

inline std::vector<double> numbers_of(const HostTensor& tensor) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    if (tensor.dtype() == DType::bf16) {
      values.push_back(static_cast<float>(tensor.as<bf16>()[static_cast<std::size_t>(i)]));
    } else if (tensor.dtype() == DType::f16) {
      values.push_back(static_cast<float>(tensor.as<f16>()[static_cast<std::size_t>(i)]));
    } else if (tensor.dtype() == DType::f32) {
      values.push_back(tensor.as<float>()[static_cast<std::size_t>(i)]);
    }
  }
  return values;
}

inline double norm_of(const std::vector<double>& values) {
  double squares = 0.0;
  for (const double value : values) squares += std::isfinite(value) ? value * value : 0.0;
  return std::sqrt(squares);
}

/// Non-finite numbers of the same class, finite ones within `tolerance` of the norm of all, or of
/// `least` where that is larger.
inline void expect_close(const char* name, const HostTensor& actual, const HostTensor& expected,
                         double tolerance, double least) {
  ASSERT_EQ(static_cast<bool>(actual), static_cast<bool>(expected)) << name;
  if (!actual || actual.dtype() == DType::i32) return;
  ASSERT_EQ(actual.extents(), expected.extents()) << name;
  const auto a = numbers_of(actual), e = numbers_of(expected);
  const double scale = std::max(least, norm_of(e));
  int wrong = 0;
  for (std::size_t i = 0; i < a.size() && wrong < 3; ++i) {
    if (std::isnan(e[i]) ? std::isnan(a[i]) : a[i] == e[i]) continue;
    if (std::abs(a[i] - e[i]) <= tolerance * scale) continue;
    ++wrong;
    ADD_FAILURE() << name << "[" << i << "] is " << a[i] << ", expected " << e[i] << " within "
                  << tolerance * scale;
  }
}

/// f32 sums of a few hundred terms of numbers up to some tens: 2^-24 times their size, and some
/// more for exponentials of differences of logits that are each off by that. What is stored in 16
/// bits is rounded once.
inline constexpr double f32_tolerance = 4e-6;
/// Values are sums of logarithms of probabilities, which are of this size and more; gradients of
/// the mean of a few rows are of this size and more.
inline constexpr double least_value = 1.0, least_gradient = 1e-3;

inline void expect_agrees(const Problem& p,
                          const std::vector<Pass>& passes = {Pass::forward, Pass::backward,
                                                             Pass::value_and_grad}) {
  const Arrays arrays(p);
  for (const Pass pass : passes) {
    SCOPED_TRACE(to_string(pass));
    const auto expected = run_on("reference", p, arrays, pass);
    const auto actual = run_on("eigen", p, arrays, pass);
    EXPECT_EQ(actual.dispatch.implementation, "eigen");
    for (const auto& output : OperatorTraits<ld::Operator>::outputs) {
      // Of another maximum's rounding.
      if (std::string_view(output.name).ends_with("statistics")) continue;
      expect_close(output.name, actual.*output.owned, expected.*output.owned, f32_tolerance,
                   least_value);
    }
    for (const auto& gradient : OperatorTraits<ld::Operator>::gradients) {
      const HostTensor& tensor = actual.*gradient.owned;
      const double rounding = !tensor || tensor.dtype() == DType::f32 ? 0.0
                              : tensor.dtype() == DType::bf16         ? 0x1p-8
                                                                      : 0x1p-11;
      expect_close(gradient.name, tensor, expected.*gradient.owned, f32_tolerance + rounding,
                   least_gradient);
    }
  }
}

}  // namespace tessera::distillation
