// SPDX-License-Identifier: Apache-2.0
// Counts and offsets beyond 2^31 on shapes that cost little: rows that lie gigabytes apart in
// memory that is never touched, repeated rows, and rows that are nearly all ignored.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <new>

#include "tests/support/matrix.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;
namespace sce = softmax_cross_entropy;

class Sizes : public ImplementationTest {
 protected:
  void SetUp() override {
    if (tiny()) GTEST_SKIP() << "too large for an interpreter";
    ImplementationTest::SetUp();
  }
  lce::ExecutionOptions on() const {
    lce::ExecutionOptions execution;
    execution.implementation = GetParam();
    return execution;
  }
};
class StreamedSizes : public Sizes {};

/// Address space of which only the pages that are touched exist; read as zeros before.
class Sparse {
 public:
  explicit Sparse(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Sparse() { munmap(data_, bytes_); }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  bf16* data() const { return static_cast<bf16*>(data_); }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

double number(std::int64_t i) {
  return static_cast<float>(bf16(static_cast<float>((i * 7919) % 1009 - 504) / 300.0f));
}

void fill(std::vector<float>& to, float scale = 1.0f) {
  std::int64_t i = 0;
  for (float& value : to) value = scale * static_cast<float>(number(i++));
}

/// The whole problem in double, three rows at most.
struct Small {
  oracle::Problem p;
  oracle::Values values;
  oracle::Gradients gradients;
  ValueTolerance tolerance;
  GradientTolerance gradient;

  Small(std::int64_t b, std::int64_t h, std::int64_t v, DType dz) {
    p.b = b;
    p.h = h;
    p.v = v;
    for (std::int64_t i = 0; i < b * h; ++i) p.x.push_back(number(i));
    for (std::int64_t i = 0; i < h * v; ++i) p.w.push_back(number(i + 100));
    for (std::int64_t row = 0; row < b; ++row) p.labels.push_back(row * 5 % v);
    values = oracle::forward(p);
    gradients = oracle::backward(p);
    tolerance = value_tolerance(p, values);
    gradient = gradient_tolerance(p, values, gradients, tolerance,
                                  {.dz = dz, .grad_x = DType::bf16, .grad_w = DType::bf16});
  }
};

/// x[3, 5] and w[5, 9] (or its gradient) at these strides, the rest of the memory untouched.
void check_sparse(const std::string& implementation, const Dims& x_strides, const Dims& w_strides) {
  const Small s(3, 5, 9, implementation.starts_with("opencl") ? DType::bf16 : DType::f32);
  auto bytes_of = [](const Dims& extents, const Dims& strides) {
    std::int64_t last = 0;
    for (int axis = 0; axis < 2; ++axis) last += (extents[axis] - 1) * strides[axis];
    return static_cast<std::size_t>(last + 1) * sizeof(bf16);
  };
  const Dims x_extents{s.p.b, s.p.h}, w_extents{s.p.h, s.p.v};
  const Sparse x(bytes_of(x_extents, x_strides)), w(bytes_of(w_extents, w_strides));
  const Sparse grad_x(bytes_of(x_extents, x_strides)), grad_w(bytes_of(w_extents, w_strides));
  auto at = [](const Dims& extents, const Dims& strides, std::int64_t i) {
    return i / extents[1] * strides[0] + i % extents[1] * strides[1];
  };
  for (std::int64_t i = 0; i < x_extents.product(); ++i) {
    x.data()[at(x_extents, x_strides, i)] =
        bf16(static_cast<float>(s.p.x[static_cast<std::size_t>(i)]));
  }
  for (std::int64_t i = 0; i < w_extents.product(); ++i) {
    w.data()[at(w_extents, w_strides, i)] =
        bf16(static_cast<float>(s.p.w[static_cast<std::size_t>(i)]));
  }
  float loss = std::nanf("");
  Outputs outputs;
  outputs.loss = MutableView::host(&loss, {});
  lce::Gradients gradients;
  gradients.grad_x = MutableView::host(grad_x.data(), x_extents, x_strides);
  gradients.grad_w = MutableView::host(grad_w.data(), w_extents, w_strides);
  lce::ExecutionOptions execution;
  execution.implementation = implementation;
  lce::value_and_grad(shared_context(),
                      {.x = View::host(x.data(), x_extents, x_strides),
                       .labels = s.p.labels,
                       .w = View::host(w.data(), w_extents, w_strides)},
                      outputs, gradients, {}, execution)
      .wait();
  EXPECT_NEAR(loss, s.values.loss[0], s.tolerance.loss[0]);
  for (std::int64_t i = 0; i < x_extents.product(); ++i) {
    const auto actual = static_cast<float>(grad_x.data()[at(x_extents, x_strides, i)]);
    EXPECT_NEAR(actual, s.gradients.grad_x[static_cast<std::size_t>(i)],
                s.gradient.grad_x[static_cast<std::size_t>(i / s.p.h)])
        << "grad_x " << i;
  }
  for (std::int64_t i = 0; i < w_extents.product(); ++i) {
    const auto actual = static_cast<float>(grad_w.data()[at(w_extents, w_strides, i)]);
    EXPECT_NEAR(actual, s.gradients.grad_w[static_cast<std::size_t>(i)],
                s.gradient.grad_w[static_cast<std::size_t>(i % s.p.v)])
        << "grad_w " << i;
  }
}

// With these row strides the last row lies beyond element 2^31.
constexpr std::int64_t far = (std::int64_t{1} << 30) + 7;

TEST_P(Sizes, RowsOfXGigabytesApart) { check_sparse(GetParam(), {far, 1}, {9, 1}); }
TEST_P(Sizes, RowsOfWGigabytesApart) {
  check_sparse(GetParam(), {5, 1}, {(std::int64_t{1} << 29) + 7, 1});
}
TEST_P(Sizes, ColumnsOfWGigabytesApart) {
  check_sparse(GetParam(), {5, 1}, {1, (std::int64_t{1} << 28) + 5});
}

/// 2.1e9 logits of which 66 rows count: an index b * V + v, or b * V alone, passes 2^31.
TEST_P(StreamedSizes, TokensTimesVocabulary) {
  constexpr std::int64_t b = 131'072, v = 16'400, h = 2;
  std::vector<float> x(b * h), w(h * v);
  fill(x);
  fill(w);
  std::vector<std::int32_t> labels(b, -100);
  for (std::int64_t row = 0; row < b; row += 2000) {
    labels[static_cast<std::size_t>(row)] = static_cast<std::int32_t>(row % v);
  }
  labels[b - 1] = v - 1;
  std::vector<float> loss(b, std::nanf("")), grad_x(b * h, std::nanf(""));
  Outputs outputs;
  outputs.loss = loss;
  lce::Gradients gradients;
  gradients.grad_x = MutableView::host(grad_x.data(), {b, h});
  LossOptions options;
  options.reduction = Reduction::none;
  lce::value_and_grad(
      shared_context(),
      {.x = View::host(x.data(), {b, h}), .labels = labels, .w = View::host(w.data(), {h, v})},
      outputs, gradients, options, on())
      .wait();
  for (std::int64_t row = 0; row < b; ++row) {
    const auto i = static_cast<std::size_t>(row);
    if (labels[i] < 0) {
      ASSERT_EQ(loss[i], 0.0f) << row;
      ASSERT_EQ(grad_x[2 * i], 0.0f) << row;
      continue;
    }
    oracle::Problem p;
    p.b = 1;
    p.h = h;
    p.v = v;
    p.x.assign(x.begin() + row * h, x.begin() + (row + 1) * h);
    p.w.assign(w.begin(), w.end());
    p.labels = {labels[i]};
    const auto values = oracle::forward(p);
    const auto expected = oracle::backward(p);
    const auto tolerance = value_tolerance(p, values);
    const auto gradient = gradient_tolerance(p, values, expected, tolerance, {});
    EXPECT_NEAR(loss[i], values.loss[0], tolerance.loss[0]) << row;
    for (std::size_t k = 0; k < h; ++k) {
      EXPECT_NEAR(grad_x[h * i + k], expected.grad_x[k], gradient.grad_x[0]) << row;
    }
  }
}

/// One row of x repeated 2^21 times by stride 0, nearly all of them ignored.
TEST_P(StreamedSizes, TokensTimesHidden) {
  constexpr std::int64_t b = 2'097'152, h = 1'040, v = 7;
  std::vector<float> x(h), w(h * v);
  fill(x, 0.05f);
  fill(w);
  std::vector<std::int32_t> labels(b, -100);
  labels[5] = 1;
  labels[b / 2] = 3;
  labels[b - 1] = 6;
  std::vector<float> loss(b, std::nanf("")), grad_w(h * v, std::nanf(""));
  Outputs outputs;
  outputs.loss = loss;
  lce::Gradients gradients;
  gradients.grad_w = MutableView::host(grad_w.data(), {h, v});
  LossOptions options;
  options.reduction = Reduction::none;
  lce::value_and_grad(shared_context(),
                      {.x = View::host(x.data(), {b, h}, {0, 1}),
                       .labels = labels,
                       .w = View::host(w.data(), {h, v})},
                      outputs, gradients, options, on())
      .wait();
  oracle::Problem p;
  p.b = 3;
  p.h = h;
  p.v = v;
  for (int row = 0; row < 3; ++row) p.x.insert(p.x.end(), x.begin(), x.end());
  p.w.assign(w.begin(), w.end());
  p.labels = {1, 3, 6};
  p.options.reduction = Reduction::none;
  const auto values = oracle::forward(p);
  const auto expected = oracle::backward(p);
  const auto tolerance = value_tolerance(p, values);
  const auto gradient = gradient_tolerance(p, values, expected, tolerance, {});
  EXPECT_NEAR(loss[5], values.loss[0], tolerance.loss[0]);
  EXPECT_NEAR(loss[b / 2], values.loss[1], tolerance.loss[1]);
  EXPECT_NEAR(loss[b - 1], values.loss[2], tolerance.loss[2]);
  EXPECT_EQ(loss[b - 2], 0.0f);
  for (std::size_t i = 0; i < grad_w.size(); ++i) {
    ASSERT_NEAR(grad_w[i], expected.grad_w[i], gradient.grad_w[i % v]) << i;
  }
}

/// The softmax operator's rows are the logits themselves: the last of three begins beyond 2^31.
TEST_P(Sizes, LogitsGigabytesApart) {
  constexpr std::int64_t b = 3, v = 37;
  const Sparse logits((2 * far + v) * sizeof(bf16));
  oracle::Problem p;
  p.b = b;
  p.h = -1;
  p.v = v;
  p.labels = {1, 36, 0};
  for (std::int64_t i = 0; i < b * v; ++i) {
    p.logits.push_back(number(i));
    logits.data()[i / v * far + i % v] = bf16(static_cast<float>(p.logits.back()));
  }
  const auto values = oracle::forward(p);
  const auto expected = oracle::backward(p);
  const auto tolerance = value_tolerance(p, values);
  const auto gradient = gradient_tolerance(p, values, expected, tolerance, {.grad_x = DType::bf16});
  float loss = std::nanf("");
  Outputs outputs;
  outputs.loss = MutableView::host(&loss, {});
  sce::ExecutionOptions execution;
  execution.implementation = GetParam();
  sce::value_and_grad(
      shared_context(), {.logits = View::host(logits.data(), {b, v}, {far, 1}), .labels = p.labels},
      outputs, {.grad_logits = MutableView::host(logits.data(), {b, v}, {far, 1})}, {}, execution)
      .wait();
  EXPECT_NEAR(loss, values.loss[0], tolerance.loss[0]);
  for (std::int64_t i = 0; i < b * v; ++i) {
    EXPECT_NEAR(static_cast<float>(logits.data()[i / v * far + i % v]),
                expected.grad_logits[static_cast<std::size_t>(i)],
                gradient.grad_logits[static_cast<std::size_t>(i)])
        << i;
  }
}

/// A shard that begins at column 3e9 of 5e9: labels and their compares are 64-bit.
TEST_P(Sizes, LabelsBeyondTwoToTheThirtyFirst) {
  constexpr std::int64_t b = 4, h = 3, v = 50, offset = 3'000'000'000, total = 5'000'000'000;
  std::vector<float> x(b * h), w(h * v);
  fill(x);
  fill(w);
  // Row 1 is elsewhere, by a distance whose low 31 bits are 0; row 2 is ignored.
  const std::vector<std::int64_t> labels{offset + 7, offset + 7 - (std::int64_t{1} << 31), -100,
                                         offset + v - 1};
  LossOptions options;
  options.reduction = Reduction::sum;
  options.vocab_offset = offset;
  options.vocab_size_total = total;
  lce::Inputs in{
      .x = View::host(x.data(), {b, h}), .labels = labels, .w = View::host(w.data(), {h, v})};
  const auto partial = lce::forward_partial(shared_context(), in, options, on());
  ASSERT_EQ(partial.rows.size(), static_cast<std::size_t>(b));
  std::vector<float> statistics(2 * b);
  std::vector<double> p(b * v, 0.0);
  for (std::int64_t row = 0; row < b; ++row) {
    const auto i = static_cast<std::size_t>(row);
    std::vector<double> logits(v, 0.0);
    for (std::int64_t j = 0; j < v; ++j) {
      for (std::int64_t k = 0; k < h; ++k) {
        logits[static_cast<std::size_t>(j)] +=
            static_cast<double>(x[static_cast<std::size_t>(row * h + k)]) *
            w[static_cast<std::size_t>(k * v + j)];
      }
    }
    statistics[2 * i] = partial.rows[i].max;
    statistics[2 * i + 1] = partial.rows[i].sum;
    if (row == 2) {
      EXPECT_EQ(partial.rows[i].argmax, -1);
      continue;
    }
    const double max = *std::max_element(logits.begin(), logits.end());
    double sum = 0.0;
    for (const double logit : logits) sum += std::exp(logit - max);
    for (std::int64_t j = 0; j < v; ++j) {
      p[static_cast<std::size_t>(row * v + j)] =
          std::exp(logits[static_cast<std::size_t>(j)] - max) / sum;
    }
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    EXPECT_EQ(partial.rows[i].argmax, offset + best) << row;
    EXPECT_NEAR(partial.rows[i].max, max, 1e-5);
    EXPECT_NEAR(partial.rows[i].sum, sum, 1e-4);
    if (row == 1) {
      EXPECT_EQ(partial.rows[i].label_logit, -INFINITY) << "the label is in another shard";
    } else {
      EXPECT_NEAR(partial.rows[i].label_logit, logits[static_cast<std::size_t>(labels[i] - offset)],
                  1e-5);
    }
  }
  in.statistics = View::host(statistics.data(), {b, 2});
  std::vector<float> grad_w(h * v, std::nanf(""));
  lce::Gradients gradients;
  gradients.grad_w = MutableView::host(grad_w.data(), {h, v});
  lce::backward(shared_context(), in, gradients, options, on()).wait();
  for (std::int64_t j = 0; j < v; ++j) {
    for (std::int64_t k = 0; k < h; ++k) {
      double expected = 0.0;
      for (std::int64_t row = 0; row < b; ++row) {
        if (row == 2) continue;
        const bool label = row != 1 && j == labels[static_cast<std::size_t>(row)] - offset;
        expected += x[static_cast<std::size_t>(row * h + k)] *
                    (p[static_cast<std::size_t>(row * v + j)] - (label ? 1.0 : 0.0));
      }
      EXPECT_NEAR(grad_w[static_cast<std::size_t>(k * v + j)], expected, 2e-5) << k << "," << j;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Sizes,
                         testing::ValuesIn(implementations_of<lce::Operator>(takes_any_shape)),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Sizes);
INSTANTIATE_TEST_SUITE_P(All, StreamedSizes,
                         testing::ValuesIn(implementations_of<lce::Operator>(streams)),
                         implementation_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StreamedSizes);

}  // namespace
}  // namespace tessera::test
