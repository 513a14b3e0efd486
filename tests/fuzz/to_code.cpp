// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <type_traits>

#include "tests/fuzz/random_case.hpp"
#include "tests/support/test_operator.hpp"

namespace tessera::test::fuzz {
namespace {

template <class T>
std::string value_of(const T& value) {
  if constexpr (std::is_same_v<T, DType>) {
    return fmt::format("DType::{}", to_string(value));
  } else if constexpr (std::is_same_v<T, Reduction>) {
    return fmt::format("Reduction::{}", to_string(value));
  } else if constexpr (std::is_enum_v<T>) {
    return fmt::format("{{{}}}", static_cast<int>(value));  // in the order of problem.hpp
  } else if constexpr (std::is_same_v<T, GradientSet>) {
    return fmt::format("{}u", unsigned{value});
  } else if constexpr (std::is_same_v<T, float>) {
    return fmt::format("{:a}f", value);
  } else {
    return fmt::format("{}", value);
  }
}

class Writer {
 public:
  template <class T>
  void add(const char* name, const T& value, const T& usual) {
    if constexpr (requires { value.has_value(); }) {
      if (value) text_ += fmt::format("  c.{} = {};\n", name, value_of(*value));
    } else if (!(value == usual)) {
      text_ += fmt::format("  c.{} = {};\n", name, value_of(value));
    }
  }
  void line(const std::string& text) { text_ += "  " + text + "\n"; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

std::string to_code(const Case& c) {
  const Case usual;
  Writer code;
  code.line("Case c;");
  code.line(fmt::format("c.op = &test_operator<{}::Operator>();", c.op->name()));
  code.line(fmt::format("c.b = {}, c.h = {}, c.v = {};", c.b, c.h, c.v));
#define FIELD(name) code.add(#name, c.name, usual.name)
  FIELD(x_type);
  FIELD(w_type);
  FIELD(side_type);
  FIELD(label_type);
  FIELD(w_layout);
  FIELD(x_layout);
  FIELD(data);
  FIELD(labels);
  FIELD(targets);
  FIELD(pairs);
  FIELD(options.reduction);
  FIELD(options.logsumexp_weight);
  FIELD(options.logit_scale);
  FIELD(options.logit_soft_cap);
  FIELD(options.label_smoothing);
  FIELD(bias);
  FIELD(class_weight);
  FIELD(weight);
  FIELD(dloss);
  FIELD(dlse);
  FIELD(grad_x_type);
  FIELD(grad_w_type);
  FIELD(grad_bias_type);
  FIELD(accumulate);
  FIELD(strided_outputs);
  FIELD(from_lse);
  FIELD(outputs);
  FIELD(gradients);
  FIELD(in_place);
  FIELD(place);
  FIELD(workspace_bytes);
  FIELD(gradient_filter_eps);
  FIELD(dz_dtype);
  FIELD(teaching);
  FIELD(seed);
#undef FIELD
  if (c.block_sizes) {
    const auto& b = *c.block_sizes;
    code.line(fmt::format("c.block_sizes = {{{}, {}, {}}};", b.b_block_size, b.h_block_size,
                          b.v_block_size));
  }
  for (const auto& knob : c.knobs) {
    code.line(fmt::format("c.knobs.push_back({{\"{}\", {}}});", knob.name, knob.value));
  }
  return code.text();
}

}  // namespace tessera::test::fuzz
