// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "tests/support/cases.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/operator_calls.hpp"

namespace tessera::test {
namespace {

namespace ld = linear_distillation;
using ld::Divergence;

/// What a case's teacher is: by Case::teaching.
struct Teaching {
  ld::Options options{};
  bool from_logits = false;
  bool bias = false;
};

const std::array<Teaching, 9>& teachings() {
  static const std::array<Teaching, 9> all = {{
      {{.divergence = Divergence::forward_kl}, false, false},
      {{.divergence = Divergence::reverse_kl, .temperature = 2.0f, .alpha = 0.3f}, false, true},
      {{.divergence = Divergence::jsd, .beta = 1e-4f, .temperature = 1.5f, .alpha = 0.7f},
       true,
       false},
      {{.divergence = Divergence::forward_kl,
        .temperature = 3.0f,
        .alpha = 1.0f,
        .teacher_logit_scale = 0.75f,
        .teacher_logit_soft_cap = 4.0f},
       false,
       true},
      {{.divergence = Divergence::jsd, .beta = 0.8f}, false, false},
      {{.divergence = Divergence::reverse_kl, .temperature = 0.8f}, true, false},
      {{.divergence = Divergence::jsd, .beta = 1.0f, .temperature = 2.0f}, false, false},
      {{.divergence = Divergence::jsd,
        .beta = 0.0f,
        .temperature = 0.7f,
        .teacher_logit_scale = -0.5f,
        .teacher_logit_soft_cap = 3.0f},
       true,
       true},
      {{.divergence = Divergence::forward_kl, .alpha = 0.0f}, false, false},
  }};
  return all;
}

Teaching teaching_of(const Case& c) {
  Teaching teaching = teachings()[c.teaching % teachings().size()];
  if (c.targets == Targets::none) teaching.options.alpha = 1.0f;
  return teaching;
}

oracle::Distillation to_oracle(const ld::Options& o) {
  return {.given = true,
          .divergence = static_cast<oracle::Divergence>(o.divergence),
          .beta = static_cast<double>(o.beta),
          .temperature = static_cast<double>(o.temperature),
          .alpha = static_cast<double>(o.alpha),
          .logit_scale = static_cast<double>(o.teacher_logit_scale),
          .logit_soft_cap = static_cast<double>(o.teacher_logit_soft_cap)};
}

/// Each with another teaching, and without class weights, which the operator has not.
std::vector<Case> taught(std::vector<Case> cases) {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    cases[i].teaching = i;
    cases[i].class_weight = false;
  }
  return cases;
}

/// Every teaching under what tells one from another.
std::vector<Case> distilled() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, auto change) {
    for (std::size_t i = 0; i < teachings().size(); ++i) {
      Case c = base("distilled_" + name + "_" + std::to_string(i));
      c.teaching = i;
      change(c);
      cases.push_back(c);
    }
  };
  add("plain", [](Case& c) { c.options.logsumexp_weight = 0.0f; });
  add("everything", [](Case& c) {
    c.options.label_smoothing = 0.1f;
    c.options.logit_soft_cap = 5.0f;
    c.options.logit_scale = 1.25f;
    c.weight = Weights::signed_and_zero;
    c.dloss = c.dlse = Cotangent::given;
    c.labels = Labels::some_ignored;
  });
  add("pairs", [](Case& c) { c.targets = Targets::pairs; });
  add("dense", [](Case& c) { c.targets = Targets::dense; });
  // More rows than a tile of any engine has.
  add("no_target", [](Case& c) {
    c.targets = Targets::none;
    c.b = 45;
    c.weight = Weights::positive;
  });
  add("bf16", [](Case& c) {
    c.x_type = c.w_type = c.side_type = DType::bf16;
    c.w_layout = WLayout::hv;
  });
  add("small_workspace", [](Case& c) {
    c.b = 197;
    c.h = 40;
    c.v = 1501;
    c.workspace_bytes = 1 << 20;
  });
  add("blocks", [](Case& c) { c.block_sizes = {16, 64, 64}; });
  for (const auto& [data, name] :
       {std::pair{Data::dominating, "dominating"}, std::pair{Data::all_negative, "all_negative"},
        std::pair{Data::large_offset, "large_offset"}, std::pair{Data::masked, "masked"},
        std::pair{Data::nan_rows, "nan_rows"}}) {
    add(name, [data = data](Case& c) {
      c.data = data;
      if (data == Data::nan_rows) c.options.reduction = Reduction::none;
    });
  }
  return cases;
}

/// Where the logits of both wait: in scratch, in grad_w, in chunks of rows, in ranges of the
/// vocabulary, or nowhere until they are formed again.
std::vector<Case> schedules() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, auto change) {
    for (const std::size_t teaching : {0, 2, 4}) {  // a KL; jsd from logits, and from a layer
      Case c = base("schedules_" + name + "_" + std::to_string(teaching));
      c.teaching = teaching;
      c.labels = Labels::some_ignored;
      change(c);
      cases.push_back(c);
    }
  };
  const auto large = [](Case& c) {
    c.b = 120;
    c.h = 530;  // room for the logits of both, of as many tokens, in 16 bits
    c.v = 1001;
  };
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::string suffix = std::string("_") + to_string(type);
    const auto of_type = [type](Case& c) { c.x_type = c.w_type = c.side_type = type; };
    add("in_grad_w" + suffix, [&](Case& c) {
      large(c);
      of_type(c);
    });
    add("in_grad_w_in_chunks" + suffix, [&](Case& c) {
      large(c);
      of_type(c);
      c.workspace_bytes = std::size_t{3} << 18;
    });
    add("in_grad_w_hv" + suffix, [&](Case& c) {
      large(c);
      of_type(c);
      c.v = 1024;
      c.w_layout = WLayout::hv_padded;
    });
    add("small_workspace" + suffix, [&](Case& c) {
      of_type(c);
      c.b = 400;
      c.h = 40;
      c.v = 1001;
      c.workspace_bytes = std::size_t{2} << 20;
    });
    add("few_tokens" + suffix, [&](Case& c) {
      of_type(c);
      c.b = 3;
      c.h = 1061;
      c.v = 301;
    });
  }
  add("accumulate", [](Case& c) {
    c.accumulate = true;
    c.b = 197;
    c.workspace_bytes = std::size_t{1} << 20;
  });
  return cases;
}

class LinearDistillation final : public TestOperatorOf<ld::Operator> {
 public:
  std::vector<CaseGroup> groups() const override {
    return {
        {"sizes", taught(sizes())},
        {"types", taught(kept(types(), is_told_apart))},
        {"options", taught(kept(options(*this), [](const Case& c) { return !c.class_weight; }))},
        {"data", taught(kept(data(), is_finite))},
        {"views", taught(views())},
        {"distilled", distilled()},
        {"schedules", schedules()}};
  }
  std::vector<Case> interpreted() const override {
    // A teacher of each kind for each divergence; their numbers are the same code.
    return shrunk(kept(distilled(), [](const Case& c) {
      for (const char* name : {"plain_0", "plain_1", "plain_2", "plain_4", "everything_2"}) {
        if (c.name == std::string("distilled_") + name) return true;
      }
      return false;
    }));
  }

  oracle::Problem make_problem(const Case& c) const override {
    oracle::Problem p = student().make_problem(c);
    const Teaching teaching = teaching_of(c);
    p.distillation = to_oracle(teaching.options);
    Numbers numbers(c.seed + 1000);
    const auto fill = [&](std::vector<double>& to, std::int64_t count, double scale) {
      for (std::int64_t i = 0; i < count; ++i) {
        to.push_back(round_to(c.side_type, scale * numbers.with_outliers()));
      }
    };
    if (teaching.from_logits) {
      fill(p.teacher_logits, p.b * p.v, 2.0);
      spoil_ignored(p, p.teacher_logits, p.v);
      return p;
    }
    p.teacher_h = extent(c, 'G');
    fill(p.teacher_x, p.b * p.teacher_h, 2.0 / std::sqrt(static_cast<double>(p.teacher_h)));
    fill(p.teacher_w, p.teacher_h * p.v, 1.0);
    if (teaching.bias) fill(p.teacher_bias, p.v, 0.5);
    spoil_ignored(p, p.teacher_x, p.teacher_h);
    return p;
  }

  std::vector<double> oracle::Problem::*own_values(std::string_view input) const override {
    if (input == "teacher_x") return &oracle::Problem::teacher_x;
    if (input == "teacher_w") return &oracle::Problem::teacher_w;
    if (input == "teacher_bias") return &oracle::Problem::teacher_bias;
    if (input == "teacher_logits") return &oracle::Problem::teacher_logits;
    if (input == "divergence_statistics") return nullptr;  // saved: Arguments::add_statistics
    return student().own_values(input);
  }
  ArrayMemory own_memory(const Case& c, const RowLayout& rows,
                         std::string_view input) const override {
    if (!input.starts_with("teacher_")) return student().own_memory(c, rows, input);
    if (input == "teacher_w") {
      return {c.side_type, matrix_layout(c.w_layout, extent(c, 'G'), c.v).strides};
    }
    return {c.side_type};
  }
  ArrayMemory gradient_memory(const Case& c, const RowLayout& rows,
                              std::string_view gradient) const override {
    return student().gradient_memory(c, rows, gradient);
  }
  std::vector<JudgedGradient> judged() const override { return student().judged(); }
  bool takes_the_usual(const oracle::Problem& p) const override { return p.teacher_h > 0; }
  std::int64_t extent(const Case& c, char letter) const override {
    // Lines of the teacher's w are of whole 16 bytes where the student's are.
    return letter == 'G' ? c.h + (c.h % 8 == 0 ? 8 : 5) : TestOperator::extent(c, letter);
  }

  std::vector<std::string> own_features(const Case& c) const override {
    const Teaching t = teaching_of(c);
    const bool has_cap = t.options.teacher_logit_soft_cap != 0.0f;
    const char* given = t.from_logits ? "logits" : t.bias ? "layer with bias" : "layer";
    return {fmt::format("divergence {}", static_cast<int>(to_oracle(t.options).effective())),
            fmt::format("teacher's {}{}", given, has_cap ? " and cap" : "")};
  }
  bool has_shards(const Case& c) const override {
    return to_oracle(teaching_of(c).options).effective() != oracle::Divergence::jsd;
  }
  /// Each with another teaching of those that have shards.
  std::vector<Case> as_shards(std::vector<Case> cases) const override {
    std::size_t teaching = 0;
    for (Case& c : cases) {
      for (c.teaching = teaching; !has_shards(c);) c.teaching = ++teaching;
      c.class_weight = false;
      ++teaching;
    }
    for (const Labels labels : {Labels::uniform, Labels::some_ignored}) {
      // Rows that a label would leave out are no numbers, and count.
      Case none = cases.front();
      none.name += labels == Labels::uniform ? "_no_target" : "_no_target_nan_rows";
      none.targets = Targets::none;
      none.labels = labels;
      cases.push_back(none);
    }
    return cases;
  }

  bool multiplies(const Case& c, DType type) const override {
    return c.x_type == type && c.w_type == type;
  }
  bool multiplies_alone(const Case& c, DType type) const override {
    return multiplies(c, type) && c.side_type == type;  // the teacher's
  }
  std::string types_of(const Case& c) const override { return student().types_of(c); }
  std::string layout_of(const Case& c) const override { return student().layout_of(c); }

 protected:
  void set_own_options(const Case& c, ld::Options& options) const override {
    const LossOptions loss = options.loss;
    options = teaching_of(c).options;
    options.loss = loss;
  }

 private:
  static const TestOperator& student() { return test_operator<linear_cross_entropy::Operator>(); }
  /// Data whose student has a distribution in every row.
  static bool is_finite(const Case& c) {
    return c.data != Data::masked_row && c.data != Data::masked_label;
  }
  /// Where types are mixed, one layout: a product knows no operator.
  static bool is_told_apart(const Case& c) {
    return c.x_type == c.w_type || c.w_layout == WLayout::vh;
  }
  /// What rows that do not count hold is not read.
  static void spoil_ignored(const oracle::Problem& p, std::vector<double>& values,
                            std::int64_t width) {
    for (std::int64_t row = 0; row < p.b; ++row) {
      if (!oracle::is_ignored(p, row)) continue;
      for (std::int64_t i = 0; i < width; ++i) values[index(row * width + i)] = std::nan("");
    }
  }
};

}  // namespace

template <>
const TestOperator& test_operator<ld::Operator>() {
  static const LinearDistillation op;
  return op;
}

}  // namespace tessera::test
