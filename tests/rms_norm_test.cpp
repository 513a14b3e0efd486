// SPDX-License-Identifier: Apache-2.0
// rms_norm on every implementation against the textbook, which difference quotients judge.
#include "tessera/rms_norm.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "host/operators/call.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/logit_errors.hpp"
#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {

/// The numbers of a call, rounded to their types; b rows of h.
struct Numbers {
  std::size_t b, h;
  double epsilon, offset;
  std::vector<double> x, scale, dy;

  double factor(std::size_t i) const { return scale.empty() ? 1.0 : offset + scale[i]; }
  double mean_square(std::size_t row) const {
    double sum = 0.0;
    for (std::size_t i = 0; i < h; ++i) sum += x[row * h + i] * x[row * h + i];
    return sum / static_cast<double>(h);
  }
  double y(std::size_t row, std::size_t i) const {
    return x[row * h + i] / std::sqrt(mean_square(row) + epsilon) * factor(i);
  }
};

/// The chain rule, term by term: d y_j / d x_i = (j == i) s_j / n - s_j x_j x_i / (h n^3), where n
/// is the root.
std::vector<double> grad_x_of(const Numbers& p) {
  std::vector<double> gradient(p.b * p.h);
  for (std::size_t row = 0; row < p.b; ++row) {
    const double* x = p.x.data() + row * p.h;
    const double* dy = p.dy.data() + row * p.h;
    const double n = std::sqrt(p.mean_square(row) + p.epsilon);
    double along = 0.0;
    for (std::size_t j = 0; j < p.h; ++j) along += dy[j] * p.factor(j) * x[j];
    for (std::size_t i = 0; i < p.h; ++i) {
      gradient[row * p.h + i] =
          dy[i] * p.factor(i) / n - along * x[i] / (static_cast<double>(p.h) * n * n * n);
    }
  }
  return gradient;
}

std::vector<double> grad_scale_of(const Numbers& p) {
  std::vector<double> gradient(p.h);
  for (std::size_t row = 0; row < p.b; ++row) {
    const double n = std::sqrt(p.mean_square(row) + p.epsilon);
    for (std::size_t i = 0; i < p.h; ++i)
      gradient[i] += p.dy[row * p.h + i] * p.x[row * p.h + i] / n;
  }
  return gradient;
}

double objective(const Numbers& p) {
  double sum = 0.0;
  for (std::size_t row = 0; row < p.b; ++row) {
    for (std::size_t i = 0; i < p.h; ++i) sum += p.dy[row * p.h + i] * p.y(row, i);
  }
  return sum;
}

enum class Layout { dense, padded, last_axis_strided };
enum class Data { gaussian, outliers, large, tiny, zeros };

struct RmsCase {
  const char* name;
  Dims leading;
  std::int64_t h;
  DType x_type = DType::f32, other_type = DType::f32, out_type = DType::f32;
  bool scale = true;
  Layout layout = Layout::dense;
  Data data = Data::gaussian;
  bool in_place = false, accumulate = false;
  Place place = Place::host;
  float epsilon = 1e-6f;
  std::int64_t block = 0;
  std::int64_t group = 0;   ///< work-items of a row on opencl.simt; 0: its choice
  bool only_scale = false;  ///< of the gradients
  float offset = 0.0f;
};

// Every type, layout and way to ask in some case; lengths below, at and beyond whole vectors of 16,
// and one that no work-group has at once.
const RmsCase cases[] = {
    {.name = "one_row", .leading = {}, .h = 7},
    {.name = "one_column", .leading = {5}, .h = 1},
    {.name = "whole_vectors", .leading = {3, 4}, .h = 64},
    {.name = "odd", .leading = {9}, .h = 67, .other_type = DType::bf16, .layout = Layout::padded},
    {.name = "long", .leading = {3}, .h = 5000, .out_type = DType::bf16, .data = Data::outliers},
    {.name = "bf16",
     .leading = {6},
     .h = 129,
     .x_type = DType::bf16,
     .out_type = DType::bf16,
     .layout = Layout::last_axis_strided},
    {.name = "f16",
     .leading = {2, 3},
     .h = 96,
     .x_type = DType::f16,
     .other_type = DType::f16,
     .out_type = DType::f16,
     .scale = false,
     .layout = Layout::padded},
    {.name = "in_place", .leading = {17}, .h = 40, .data = Data::outliers, .in_place = true},
    {.name = "in_place_bf16",
     .leading = {17},
     .h = 48,
     .x_type = DType::bf16,
     .other_type = DType::bf16,
     .out_type = DType::bf16,
     .layout = Layout::padded,
     .in_place = true,
     .place = Place::device},
    {.name = "accumulate",
     .leading = {33},
     .h = 50,
     .out_type = DType::bf16,
     .layout = Layout::padded,
     .accumulate = true},
    {.name = "accumulate_f16",
     .leading = {4},
     .h = 32,
     .other_type = DType::bf16,
     .out_type = DType::f16,
     .accumulate = true,
     .place = Place::device,
     .epsilon = 1e-5f,
     .block = 3},
    {.name = "blocks", .leading = {23}, .h = 33, .block = 5},
    // Sums of more groups than are added up at once, and of a row by more work-items than are.
    {.name = "many_groups", .leading = {70}, .h = 300, .block = 1, .group = 128},
    {.name = "large", .leading = {4}, .h = 31, .data = Data::large},
    {.name = "tiny", .leading = {4}, .h = 31, .data = Data::tiny},
    {.name = "zeros", .leading = {3}, .h = 20, .data = Data::zeros},
    {.name = "zeros_without_epsilon",
     .leading = {3},
     .h = 20,
     .data = Data::zeros,
     .epsilon = 0.0f},
    {.name = "only_scale", .leading = {70}, .h = 24, .only_scale = true},
    {.name = "offset", .leading = {7}, .h = 45, .x_type = DType::bf16, .offset = 1.0f},
    {.name = "no_rows", .leading = {0}, .h = 6},
    {.name = "ragged_rows", .leading = {37}, .h = 300, .block = 8},
    {.name = "ragged_rows_in_place",
     .leading = {2, 21},
     .h = 130,
     .x_type = DType::bf16,
     .other_type = DType::bf16,
     .out_type = DType::bf16,
     .in_place = true,
     .block = 16},
};

Numbers numbers_of(const RmsCase& c) {
  std::mt19937 random(17);
  std::normal_distribution<double> normal;
  Numbers p{static_cast<std::size_t>(c.leading.product()),
            static_cast<std::size_t>(c.h),
            static_cast<double>(c.epsilon),
            static_cast<double>(c.offset),
            {},
            {},
            {}};
  const double size = c.data == Data::large ? 1e15 : c.data == Data::tiny ? 1e-15 : 1.0;
  for (std::size_t i = 0; i < p.b * p.h; ++i) {
    double value = c.data == Data::zeros ? 0.0 : size * normal(random);
    if (c.data == Data::outliers && i % 61 == 3) value *= 100.0;
    p.x.push_back(round_to(c.x_type, value));
    p.dy.push_back(round_to(c.other_type, normal(random)));
  }
  for (std::size_t i = 0; c.scale && i < p.h; ++i) {
    p.scale.push_back(round_to(c.other_type, 1.0 + 0.3 * normal(random)));
  }
  return p;
}

/// An array [leading, h] in the layout of the case, or [h] where `leading` is null.
Argument make(Context& context, const RmsCase& c, DType type, const Dims* leading) {
  Dims extents = leading != nullptr ? *leading : Dims();
  extents.push_back(c.h);
  Dims strides = contiguous_strides(extents);
  if (c.layout == Layout::last_axis_strided) {
    for (int axis = 0; axis < strides.rank(); ++axis) strides[axis] *= 2;
  } else if (c.layout == Layout::padded && leading != nullptr) {
    for (int axis = 0; axis + 1 < strides.rank(); ++axis)
      strides[axis] = strides[axis] / c.h * (c.h + 3);
  }
  return make_argument(context, c.place, type, extents, strides);
}

void fill(Argument& argument, const std::vector<double>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    argument.storage->set(argument.at(static_cast<std::int64_t>(i)), values[i]);
  }
}

std::string unequal(double actual, double expected, double tolerance) {
  if (std::isnan(expected)) return std::isnan(actual) ? "" : "is a number";
  if (actual == expected || std::abs(actual - expected) <= tolerance) return "";
  return std::to_string(actual) + " is not " + std::to_string(expected) + " within " +
         std::to_string(tolerance);
}

/// Compares what was written, elements beside it and canaries.
void check(Argument& argument, const std::vector<double>& expected,
           const std::vector<double>& tolerance, const std::string& what) {
  EXPECT_EQ(argument.storage->download(), "") << what;
  std::vector<bool> reached(static_cast<std::size_t>(argument.storage->elements()));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::int64_t at = argument.at(static_cast<std::int64_t>(i));
    reached[static_cast<std::size_t>(at)] = true;
    EXPECT_FALSE(argument.storage->is_poison(at)) << what << "[" << i << "] was never written";
    EXPECT_EQ(unequal(argument.storage->get(at), expected[i], tolerance[i]), "")
        << what << "[" << i << "]";
  }
  for (std::int64_t at = 0; at < argument.storage->elements(); ++at) {
    if (!reached[static_cast<std::size_t>(at)]) {
      EXPECT_TRUE(argument.storage->is_poison(at)) << what << ": beside the array";
    }
  }
}

/// Forward and backward of one case, with everything it takes.
class Call {
 public:
  explicit Call(const RmsCase& c, Context& context = shared_context())
      : c_(c), context_(context), p_(numbers_of(c)) {
    x_ = make(context, c, c.x_type, &c.leading);
    dy_ = make(context, c, c.other_type, &c.leading);
    fill(x_, p_.x);
    fill(dy_, p_.dy);
    if (c.scale) {
      scale_ = make(context, c, c.other_type, nullptr);
      fill(scale_, p_.scale);
      scale_.storage->upload();
    }
    x_.storage->upload();
    dy_.storage->upload();
  }

  rms_norm::ExecutionOptions on(const std::string& implementation) const {
    rms_norm::ExecutionOptions execution;
    execution.implementation = implementation;
    if (c_.block > 0) execution.block_sizes = rms_norm::BlockSizes{c_.block};
    if (c_.group > 0 && implementation == "opencl.simt") {
      execution.knobs = {{"group", c_.group}};
    }
    return execution;
  }

  /// Why the implementation does not take the case's shape and blocks.
  std::optional<std::string> refusal(const std::string& implementation, Pass pass) const {
    rms_norm::Inputs in{.x = x_.view(), .scale = scale_.view()};
    if (pass == Pass::backward) in.dy = dy_.view();
    return rms_norm::why_unsupported(context_, implementation, pass, in, {}, {}, options(),
                                     on(implementation));
  }

  void forward(const std::string& implementation) {
    Argument out;
    if (!c_.in_place) {
      out = make(context_, c_, c_.out_type, &c_.leading);
      out.storage->upload();
    }
    Argument& y = c_.in_place ? x_ : out;
    rms_norm::forward(context_, {.x = x_.view(), .scale = scale_.view()}, {.y = y.mutable_view()},
                      options(), on(implementation))
        .wait();
    std::vector<double> expected, tolerance;
    for (std::size_t row = 0; row < p_.b; ++row) {
      for (std::size_t i = 0; i < p_.h; ++i) {
        expected.push_back(p_.y(row, i));
        tolerance.push_back(rounded(y, expected.back(), root_error() + 3 * u));
      }
    }
    check(y, expected, tolerance, "y");
  }

  Plan plan_backward(const rms_norm::ExecutionOptions& execution) const {
    return rms_norm::plan(context_, Pass::backward,
                          {.x = x_.view(), .scale = scale_.view(), .dy = dy_.view()}, {}, {},
                          options(), execution);
  }

  void backward(const std::string& implementation) { backward(on(implementation)); }
  void backward(const rms_norm::ExecutionOptions& execution) {
    const bool wants_x = !c_.only_scale;
    Argument own, grad_scale;
    if (wants_x && !c_.in_place) own = make(context_, c_, c_.out_type, &c_.leading);
    Argument& grad_x = c_.in_place ? x_ : own;
    if (c_.scale) grad_scale = make(context_, c_, c_.out_type, nullptr);
    const std::vector<double> base = {0.5, -2.0, 3.25};
    const auto before = [&](std::size_t i) { return c_.accumulate ? base[i % base.size()] : 0.0; };
    for (Argument* argument : {&own, &grad_scale}) {
      if (!*argument) continue;
      for (std::int64_t i = 0; c_.accumulate && i < argument->size(); ++i) {
        argument->storage->set(argument->at(i), before(static_cast<std::size_t>(i)));
      }
      argument->storage->upload();
    }
    rms_norm::backward(context_, {.x = x_.view(), .scale = scale_.view(), .dy = dy_.view()},
                       {.grad_x = wants_x ? grad_x.mutable_view() : MutableView(),
                        .grad_scale = grad_scale.mutable_view(),
                        .accumulate = c_.accumulate},
                       options(), execution)
        .wait();
    if (wants_x) {
      auto expected = grad_x_of(p_);
      const auto tolerance = grad_x_tolerance(grad_x, expected, before);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before(i);
      check(grad_x, expected, tolerance, "grad_x");
    }
    if (!c_.scale) return;
    auto expected = grad_scale_of(p_);
    std::vector<double> tolerance;
    for (std::size_t i = 0; i < p_.h; ++i) {
      double magnitude = 0.0;
      for (std::size_t row = 0; row < p_.b; ++row) {
        magnitude += std::abs(p_.dy[row * p_.h + i] * p_.x[row * p_.h + i]) /
                     std::sqrt(p_.mean_square(row) + p_.epsilon);
      }
      expected[i] += before(i);
      const double relative =
          root_error() + 3 * u + lambda * root(static_cast<std::int64_t>(p_.b)) * u;
      tolerance.push_back(rounded(grad_scale, expected[i], u) + relative * magnitude);
    }
    check(grad_scale, expected, tolerance, "grad_scale");
  }

 private:
  rms_norm::Options options() const { return {.epsilon = c_.epsilon, .offset = c_.offset}; }
  /// Of 1 / root, relative: a sum of squares in f32, of which the root takes half; four more
  /// roundings.
  double root_error() const {
    return (0.5 * lambda * root(static_cast<std::int64_t>(p_.h)) + 4) * u;
  }
  static double rounded(const Argument& to, double value, double relative) {
    const DType type = to.storage->type();
    return (relative + unit_roundoff(type)) * std::abs(value) + smallest_step(type);
  }
  template <class Before>
  std::vector<double> grad_x_tolerance(const Argument& to, const std::vector<double>& expected,
                                       const Before& before) const {
    std::vector<double> tolerance;
    for (std::size_t row = 0; row < p_.b; ++row) {
      const double n = std::sqrt(p_.mean_square(row) + p_.epsilon);
      double along = 0.0;
      for (std::size_t j = 0; j < p_.h; ++j) {
        along += std::abs(p_.dy[row * p_.h + j] * p_.factor(j) * p_.x[row * p_.h + j]);
      }
      for (std::size_t i = 0; i < p_.h; ++i) {
        const std::size_t at = row * p_.h + i;
        // Both terms, each with its roundings; the sum along the row, and 1 / n three times.
        const double direct = std::abs(p_.dy[at] * p_.factor(i)) / n;
        const double projected =
            along * std::abs(p_.x[at]) / (static_cast<double>(p_.h) * n * n * n);
        const double sum = lambda * root(static_cast<std::int64_t>(p_.h)) * u;
        tolerance.push_back((root_error() + 4 * u) * direct +
                            (3 * root_error() + sum + 8 * u) * projected +
                            rounded(to, expected[at] + before(at), u) + u * std::abs(before(at)));
      }
    }
    return tolerance;
  }

  const RmsCase& c_;
  Context& context_;
  Numbers p_;
  Argument x_, scale_, dy_;
};

class RmsNorm : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto shape = [](const Dims& extents) { return View::host(nullptr, DType::f32, extents); };
    if (const auto why = rms_norm::why_unsupported(shared_context(), GetParam(), Pass::forward,
                                                   {.x = shape({2, 4})}, {}, {})) {
      GTEST_SKIP() << *why;
    }
  }
  /// Cases that this implementation can be given; interpreters get one.
  template <class Run>
  void for_each_case(Pass pass, const Run& run) {
    for (const RmsCase& c : cases) {
      // Of Oclgrind a process gets one call, and no array that is copied by rectangles.
      if (!is_wanted(c.name) || (tiny() && c.name != std::string("blocks"))) continue;
      RmsCase here = c;
      if (!shared_context().has_device()) here.place = Place::host;
      SCOPED_TRACE(c.name);
      Call call(here);
      const auto why = call.refusal(GetParam(), pass);
      // A TPU's blocks are whole registers of 8 rows.
      EXPECT_EQ(why.has_value(), GetParam() == "tpu_tile" && c.block % 8 != 0) << why.value_or("");
      if (!why) run(call);
    }
  }
};

TEST_P(RmsNorm, ForwardIsTheTextbooks) {
  for_each_case(Pass::forward, [&](Call& call) { call.forward(GetParam()); });
}

TEST_P(RmsNorm, BackwardIsTheTextbooks) {
  for_each_case(Pass::backward, [&](Call& call) { call.backward(GetParam()); });
}

/// Chips of one core and of two that share the blocks, with tiles and VMEM of their own.
TEST(RmsNormTile, IsTheTextbooksOnEveryChip) {
  for (const std::string chip : {"v3", "v4", "v5e", "v6e", "v7"}) {
    Context context({.device = chip, .warning_handler = [](const std::string&) {}});
    for (RmsCase c : cases) {
      if (c.block % 8 != 0) continue;
      c.place = Place::host;
      SCOPED_TRACE(chip + " " + c.name);
      Call(c, context).forward("tpu_tile");
      Call(c, context).backward("tpu_tile");
    }
  }
}

TEST_P(RmsNorm, OwnedResultsHaveTheTypesOfTheirInputs) {
  const std::vector<bf16> x(12, bf16(2.0f)), dy(12, bf16(1.0f));
  const std::vector<float> scale(6, 3.0f);
  const rms_norm::Inputs in{.x = View::host(x.data(), {2, 6}), .scale = scale};
  rms_norm::ExecutionOptions execution;
  execution.implementation = GetParam();
  const auto forward =
      rms_norm::forward(shared_context(), in, rms_norm::Options{.epsilon = 0.0f}, execution);
  ASSERT_EQ(forward.y.dtype(), DType::bf16);
  EXPECT_EQ(forward.y.extents(), (Dims{2, 6}));
  EXPECT_EQ(static_cast<float>(forward.y.as<bf16>()[11]), 3.0f);
  EXPECT_FALSE(forward.grad_x);
  rms_norm::Inputs with_dy = in;
  with_dy.dy = View::host(dy.data(), {2, 6});
  const auto backward =
      rms_norm::backward(shared_context(), with_dy, rms_norm::Options{.epsilon = 0.0f}, execution);
  EXPECT_FALSE(backward.y);
  EXPECT_EQ(backward.grad_x.dtype(), DType::bf16);
  ASSERT_EQ(backward.grad_scale.dtype(), DType::f32);
  EXPECT_EQ(backward.grad_scale.extents(), Dims{6});
  EXPECT_NEAR(backward.grad_scale.as<float>()[5], 2.0f, 1e-6f);
  EXPECT_EQ(backward.dispatch.implementation, GetParam());
}

TEST_P(RmsNorm, RunsInTheWorkspaceThatItPlans) {
  for (const std::int64_t rows : {50, 0}) {
    SCOPED_TRACE(rows);
    const RmsCase c{.name = "workspace", .leading = {rows}, .h = 64};
    Call call(c);
    auto execution = call.on(GetParam());
    const std::int64_t least = call.plan_backward(execution).minimum_workspace_bytes;
    execution.workspace_bytes = static_cast<std::size_t>(least);
    EXPECT_LE(call.plan_backward(execution).workspace_bytes, least);
    call.backward(execution);
    for (const std::int64_t bytes : {std::int64_t{1}, least - 1}) {
      if (bytes < 0 || bytes >= least) continue;
      execution.workspace_bytes = static_cast<std::size_t>(bytes);
      expect_error(ErrorCode::workspace_too_small, {std::to_string(least)},
                   [&] { call.plan_backward(execution); });
    }
    if (rows == 0 || !GetParam().starts_with("opencl.")) continue;
    // A sum for each row, which the caller insists on.
    execution.workspace_bytes = static_cast<std::size_t>(least);
    execution.block_sizes = rms_norm::BlockSizes{1};
    expect_error(
        ErrorCode::workspace_too_small,
        {"B 50, H 64 and b_block_size 1 take", "with 50 they take " + std::to_string(least)},
        [&] { call.plan_backward(execution); });
  }
}

INSTANTIATE_TEST_SUITE_P(Implementations, RmsNorm,
                         testing::ValuesIn(wanted_of(rms_norm::implementations())),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RmsNorm);

TEST(RmsNormOracle, GradientsAreDifferenceQuotients) {
  const RmsCase c{.name = "quotients", .leading = {3}, .h = 9};
  Numbers p = numbers_of(c);
  const auto grad_x = grad_x_of(p);
  const auto grad_scale = grad_scale_of(p);
  // As tests/oracle_test.cpp: truncation and rounding are well below 1e-8, a wrong term far above.
  const double step = 1e-5;
  const auto expect = [&](double& parameter, double gradient, const char* what) {
    const double kept = parameter;
    parameter = kept + step;
    const double above = objective(p);
    parameter = kept - step;
    const double below = objective(p);
    parameter = kept;
    EXPECT_NEAR(gradient, (above - below) / (2 * step), 1e-8) << what;
  };
  for (std::size_t i = 0; i < p.x.size(); ++i) expect(p.x[i], grad_x[i], "x");
  for (std::size_t i = 0; i < p.scale.size(); ++i) expect(p.scale[i], grad_scale[i], "scale");
}

/// torch.nn.functional.rms_norm(x, (4,), scale, eps=0.5) in float64, PyTorch 2.15, and its
/// gradients at dy.
TEST_P(RmsNorm, IsPyTorchs) {
  const std::vector<float> x = {0.5f, -1.25f, 3.0f, 0.125f, 2.0f, -0.75f, -0.5f, 1.5f};
  const std::vector<float> scale = {1.0f, -0.5f, 0.25f, 2.0f};
  const std::vector<float> dy = {1.0f, 0.5f, -2.0f, 0.25f, -1.0f, 3.0f, 0.75f, -0.5f};
  const rms_norm::Options options{.epsilon = 0.5f};
  rms_norm::ExecutionOptions execution;
  execution.implementation = GetParam();
  rms_norm::Inputs in{.x = View::host(x.data(), {2, 4}), .scale = scale};
  const auto forward = rms_norm::forward(shared_context(), in, options, execution);
  in.dy = View::host(dy.data(), {2, 4});
  const auto backward = rms_norm::backward(shared_context(), in, options, execution);
  const auto expect = [](const HostTensor& tensor, const std::vector<double>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(tensor.as<float>()[i]), expected[i], 1e-6) << i;
    }
  };
  expect(forward.y,
         {0.2792019251039104, 0.349002406379888, 0.4188028876558656, 0.1396009625519552,
          1.3287276776598396, 0.24913643956121992, -0.08304547985373997, 1.9930915164897594});
  expect(backward.grad_x,
         {0.5720068672652586, -0.17360850519554966, -0.1975838227592837, 0.2826026793682698,
          -0.3024000921570669, -1.1322821632471995, 0.034077283112396745, -0.39289102882528015});
  expect(backward.grad_scale,
         {-1.0495257525559292, -1.8438210437472076, -3.5995595408081447, -0.48082275880344544});
}

}  // namespace
}  // namespace tessera::test
