// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/runner.hpp"

namespace tessera::test {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

const char* name_of(WLayout layout) {
  switch (layout) {
    case WLayout::hv:
      return "hv";
    case WLayout::vh:
      return "vh";
    case WLayout::hv_padded:
      return "hv_padded";
    case WLayout::vh_padded:
      return "vh_padded";
    case WLayout::strided:
      return "strided";
  }
  return "?";
}

/// Strides of twice a dense array's: only every other element is the view's.
Dims spread(const Dims& extents) {
  Dims strides = contiguous_strides(extents);
  for (int axis = 0; axis < strides.rank(); ++axis) strides[axis] *= 2;
  return strides;
}

/// Numbers for a gradient to add to, of the size of gradients.
std::vector<double> fill_base(const Argument& argument) {
  std::vector<double> base(index(argument.size()));
  for (std::int64_t i = 0; i < argument.size(); ++i) {
    argument.storage->set(argument.at(i), 0.01 * static_cast<double>((i * 37) % 101 - 50));
    base[index(i)] = argument.get(i);
  }
  return base;
}

double norm_of(const std::vector<double>& a, std::int64_t first, std::int64_t n,
               std::int64_t step) {
  double squares = 0.0;
  for (std::int64_t i = 0; i < n && !a.empty(); ++i) {
    squares += a[index(first + i * step)] * a[index(first + i * step)];
  }
  return std::sqrt(squares);
}

double at(const std::vector<double>& a, std::int64_t i) { return a.empty() ? 0.0 : a[index(i)]; }

}  // namespace

Results::Results(Context& context, const Case& c, const Expected& expected, Pass pass,
                 const std::string& implementation)
    : case_(c), expected_(expected), pass_(pass), implementation_(implementation) {
  const auto& p = expected.problem;
  const RowLayout rows = row_layout(c.x_layout, p.b, p.softmax() ? p.v : p.h);
  const Dims& leading = rows.leading;
  auto make = [&](DType type, const Dims& extents) {
    return make_argument(context, c.place, type, extents,
                         c.strided_outputs ? spread(extents) : Dims{});
  };
  if (pass != Pass::backward) {
    loss = make(DType::f32, c.options.reduction == Reduction::none ? leading : Dims{});
    auto optional = [&](OutputBit bit, DType type, const Dims& extents) {
      return (c.outputs & bit) != 0 ? make(type, extents) : Argument();
    };
    lse = optional(lse_bit, DType::f32, leading);
    argmax = optional(argmax_bit, DType::i32, leading);
    label_logprob = optional(label_logprob_bit, DType::f32, leading);
    entropy = optional(entropy_bit, DType::f32, leading);
    z_loss = optional(z_loss_bit, DType::f32, leading);
    Dims pairs = leading;
    pairs.push_back(2);
    statistics = optional(statistics_bit, DType::f32, pairs);
  }
  if (wants_gradients()) {
    const DType x_type = c.grad_x_type.value_or(c.x_type);
    // A gradient must not overlap itself, so a broadcast row has a dense one.
    const bool dense = c.x_layout == XLayout::broadcast;
    Dims extents = leading;
    extents.push_back(p.softmax() ? p.v : p.h);
    const Dims strides = dense ? Dims{} : rows.x_strides;
    if (p.softmax()) {
      if (!c.in_place) grad_logits = make_argument(context, c.place, x_type, extents, strides);
    } else {
      auto wanted = [&](GradientBit bit) { return (c.gradients & bit) != 0; };
      if (wanted(grad_x_bit)) {
        grad_x = make_argument(context, c.place, x_type, extents, strides);
      }
      if (wanted(grad_w_bit)) {
        const auto layout = matrix_layout(c.grad_w_layout.value_or(c.w_layout), p.h, p.v);
        grad_w = make_argument(context, c.place, c.grad_w_type.value_or(c.w_type), {p.h, p.v},
                               layout.strides);
      }
      if (c.bias && wanted(grad_bias_bit)) {
        grad_bias = make_argument(context, c.place, c.grad_bias_type, {p.v},
                                  c.strided_outputs ? Dims{2} : Dims{});
      }
    }
    // What is overwritten stays poisoned.
    using linear_cross_entropy::Accumulate;
    const auto adds = [&](Accumulate gradient) { return c.accumulate.has(gradient); };
    if (grad_x && adds(Accumulate::grad_x)) base_x_ = fill_base(grad_x);
    if (grad_w && adds(Accumulate::grad_w)) base_w_ = fill_base(grad_w);
    if (grad_bias && adds(Accumulate::grad_bias)) base_bias_ = fill_base(grad_bias);
    if (grad_logits && c.accumulate != Accumulate::none) base_logits_ = fill_base(grad_logits);
  }
  for (auto& [name, argument] : all()) {
    if (*argument) argument->storage->upload();
  }
}

Outputs Results::outputs() const {
  Outputs o;
  o.loss = loss.mutable_view();
  o.lse = lse.mutable_view();
  o.argmax = argmax.mutable_view();
  o.label_logprob = label_logprob.mutable_view();
  o.entropy = entropy.mutable_view();
  o.z_loss = z_loss.mutable_view();
  o.statistics = statistics.mutable_view();
  return o;
}

linear_cross_entropy::Gradients Results::linear_gradients() const {
  linear_cross_entropy::Gradients g;
  g.grad_x = grad_x.mutable_view();
  g.grad_w = grad_w.mutable_view();
  g.grad_bias = grad_bias.mutable_view();
  if (wants_gradients()) g.accumulate = case_.accumulate;
  return g;
}

softmax_cross_entropy::Gradients Results::softmax_gradients(const Arguments& arguments) const {
  softmax_cross_entropy::Gradients g;
  if (wants_gradients()) {
    g.grad_logits = case_.in_place ? arguments.x.mutable_view() : grad_logits.mutable_view();
    g.accumulate = case_.accumulate != linear_cross_entropy::Accumulate::none;
  }
  return g;
}

SummaryKey Results::key() const {
  const bool linear = !case_.softmax;
  return {implementation_, linear ? "linear_cross_entropy" : "softmax_cross_entropy",
          to_string(pass_),
          linear ? std::string(to_string(case_.x_type)) + ":" + to_string(case_.w_type)
                 : to_string(case_.x_type),
          linear ? name_of(case_.w_layout) : "rows"};
}

std::vector<std::pair<const char*, Argument*>> Results::all() {
  return {{"loss", &loss},
          {"lse", &lse},
          {"argmax", &argmax},
          {"label_logprob", &label_logprob},
          {"entropy", &entropy},
          {"z_loss", &z_loss},
          {"statistics", &statistics},
          {"grad_x", &grad_x},
          {"grad_w", &grad_w},
          {"grad_bias", &grad_bias},
          {"grad_logits", &grad_logits}};
}

void Results::check(Arguments& arguments) {
  const std::string damage = arguments.damage();
  EXPECT_TRUE(damage.empty()) << "input " << damage;
  check_surroundings();
  if (pass_ != Pass::backward) {
    check_values();
    if (argmax) check_argmax();
    if (statistics) check_statistics();
  }
  if (wants_gradients()) check_gradients(arguments);
}

void Results::check_surroundings() {
  for (auto& [name, argument] : all()) {
    if (!*argument) continue;
    const std::string damage = argument->storage->download();
    EXPECT_TRUE(damage.empty()) << name << ": " << damage;
    std::vector<bool> reached(index(argument->storage->elements()), false);
    std::int64_t unwritten = 0;
    for (std::int64_t i = 0; i < argument->size(); ++i) {
      reached[index(argument->at(i))] = true;
      unwritten += argument->storage->is_poison(argument->at(i)) ? 1 : 0;
    }
    EXPECT_EQ(unwritten, 0) << "elements of " << name << " were never written";
    std::int64_t overwritten = 0;
    for (std::int64_t i = 0; i < argument->storage->elements(); ++i) {
      if (!reached[index(i)] && !argument->storage->is_poison(i)) ++overwritten;
    }
    EXPECT_EQ(overwritten, 0) << "elements between the rows of " << name << " were overwritten";
  }
}

void Results::check_values() {
  const auto& v = expected_.values;
  const auto& t = expected_.tolerance;
  auto compare = [&](const char* name, const Argument& actual, const std::vector<double>& expected,
                     const std::vector<double>& tolerance) {
    if (!actual) return;
    ASSERT_EQ(index(actual.size()), expected.size()) << name;
    Comparison comparison(key(), name);
    for (std::int64_t i = 0; i < actual.size(); ++i) {
      comparison.number(i, actual.get(i), expected[index(i)], tolerance[index(i)]);
    }
  };
  compare("loss", loss, v.loss, t.loss);
  compare("lse", lse, v.lse, t.lse);
  compare("label_logprob", label_logprob, v.label_logprob, t.label_logprob);
  compare("entropy", entropy, v.entropy, t.entropy);
  compare("z_loss", z_loss, v.z_loss, t.z_loss);
}

void Results::check_argmax() {
  const auto& p = expected_.problem;
  const auto& v = expected_.values;
  Comparison comparison(key(), "argmax");
  for (std::int64_t row = 0; row < p.b; ++row) {
    const std::int64_t actual = argmax.storage->get_integer(argmax.at(row));
    const bool ignored = p.labels[index(row)] == p.options.ignore_index;
    if (ignored || case_.data == Data::equal) {
      comparison.number(row, static_cast<double>(actual), static_cast<double>(v.argmax[index(row)]),
                        0.0);
      continue;
    }
    if (std::isnan(v.lse[index(row)])) continue;  // unspecified
    if (actual < 0 || actual >= p.v) {
      comparison.wrong(row, std::to_string(actual) + " is no column");
      continue;
    }
    // Two logits closer than their errors may change places.
    const std::int64_t best = row * p.v + v.argmax[index(row)];
    const std::int64_t taken = row * p.v + actual;
    if (best == taken || v.logits[index(best)] == v.logits[index(taken)]) continue;
    comparison.number(
        row, v.logits[index(taken)], v.logits[index(best)],
        expected_.tolerance.logit[index(best)] + expected_.tolerance.logit[index(taken)]);
  }
}

void Results::check_statistics() {
  const auto& p = expected_.problem;
  const auto& v = expected_.values;
  Comparison comparison(key(), "statistics");
  for (std::int64_t row = 0; row < p.b; ++row) {
    if (p.labels[index(row)] == p.options.ignore_index) continue;
    const double max = statistics.get(2 * row);
    const double sum = statistics.get(2 * row + 1);
    const double tolerance = expected_.tolerance.max[index(row)];
    if (std::isfinite(v.lse[index(row)])) {
      comparison.number(2 * row, max, v.max[index(row)], tolerance);
    }
    // Wholly masked: log(0) is that -Inf already. All NaN: whatever the maximum, the sum is NaN.
    const double actual = max + std::log(sum);
    comparison.number(2 * row + 1, actual, v.lse[index(row)],
                      expected_.tolerance.lse[index(row)] + tolerance);
  }
}

void Results::check_gradients(Arguments& arguments) {
  const auto& p = expected_.problem;
  const auto& g = expected_.gradients;
  Precision precision;
  precision.from_lse = pass_ == Pass::backward && case_.from_lse;
  precision.dz_bf16 = rounds_dz(implementation_, case_);
  precision.grad_x = case_.grad_x_type.value_or(case_.x_type);
  precision.grad_w = case_.grad_w_type.value_or(case_.w_type);
  precision.grad_bias = case_.grad_bias_type;
  precision.gradient_filter_eps = static_cast<double>(case_.gradient_filter_eps);
  const GradientTolerance t =
      gradient_tolerance(p, expected_.values, g, expected_.tolerance, precision);
  // With accumulate the sum is formed in f32 and rounded once: rounding in proportion to the base.
  auto extra = [](double base, DType type) {
    return base == 0.0 ? 0.0 : (unit_roundoff(type) + 0x1p-23) * base;
  };
  if (p.softmax()) {
    const Argument& actual = case_.in_place ? arguments.x : grad_logits;
    Comparison comparison(key(), "grad_logits");
    for (std::int64_t i = 0; i < actual.size(); ++i) {
      const double base = at(base_logits_, i);
      comparison.number(i, actual.get(i), g.grad_logits[index(i)] + base,
                        t.grad_logits[index(i)] + extra(std::abs(base), precision.grad_x));
    }
    return;
  }
  if (grad_x) {
    Comparison comparison(key(), "grad_x");
    for (std::int64_t row = 0; row < p.b; ++row) {
      const std::int64_t first = row * p.h;
      comparison.norm(
          row, p.h, [&](std::int64_t i) { return grad_x.get(first + i); },
          [&](std::int64_t i) { return g.grad_x[index(first + i)] + at(base_x_, first + i); },
          t.grad_x[index(row)] + extra(norm_of(base_x_, first, p.h, 1), precision.grad_x));
    }
  }
  if (grad_w) {
    Comparison comparison(key(), "grad_w");
    for (std::int64_t j = 0; j < p.v; ++j) {
      comparison.norm(
          j, p.h, [&](std::int64_t i) { return grad_w.get(i * p.v + j); },
          [&](std::int64_t i) { return g.grad_w[index(i * p.v + j)] + at(base_w_, i * p.v + j); },
          t.grad_w[index(j)] + extra(norm_of(base_w_, j, p.h, p.v), precision.grad_w));
    }
  }
  if (grad_bias) {
    Comparison comparison(key(), "grad_bias");
    for (std::int64_t j = 0; j < p.v; ++j) {
      const double base = at(base_bias_, j);
      comparison.number(j, grad_bias.get(j), g.grad_bias[index(j)] + base,
                        t.grad_bias[index(j)] + extra(std::abs(base), precision.grad_bias));
    }
  }
}

}  // namespace tessera::test
