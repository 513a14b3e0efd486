// SPDX-License-Identifier: Apache-2.0
// The mean over a batch that is computed in micro-batches (docs/maths.md, "Micro-batches"): loss
// and gradients are those of one call over the whole batch, and are compared with them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <string>

#include "tessera/eigen.hpp"
#include "tessera/tessera.hpp"

namespace {

namespace lce = tessera::linear_cross_entropy;
using Eigen::Index;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using tessera::mutable_view;
using tessera::MutableView;
using tessera::view;
using tessera::View;

struct Batch {
  Matrix x;  ///< [tokens, hidden]
  Eigen::VectorXi labels;
  Eigen::VectorXf weight;  ///< per token
  Matrix w;                ///< [hidden, vocabulary]
  Eigen::VectorXf bias;
};

struct Step {
  float loss = 0.0f;
  Matrix grad_x, grad_w;
  Eigen::VectorXf grad_bias;
};

Batch make_batch(Index tokens, Index hidden, Index vocabulary) {
  std::srand(1);  // Eigen's Random
  Batch batch{Matrix::Random(tokens, hidden), Eigen::VectorXi(tokens),
              Eigen::VectorXf::Random(tokens).array() + 1.5f, Matrix::Random(hidden, vocabulary),
              Eigen::VectorXf::Random(vocabulary)};
  for (Index i = 0; i < tokens; ++i) {
    // Padding at the end of sequences: micro-batches count different numbers of tokens.
    const bool padding = i % 16 > 15 - i / 16;
    batch.labels[i] = padding ? -100 : static_cast<int>(i * 37 % vocabulary);
  }
  return batch;
}

Step empty_step(const Batch& batch) {
  return {0.0f, Matrix::Zero(batch.x.rows(), batch.x.cols()),
          Matrix::Zero(batch.w.rows(), batch.w.cols()), Eigen::VectorXf::Zero(batch.bias.size())};
}

/// One call over all tokens.
Step whole(tessera::Context& context, const Batch& batch, const tessera::LossOptions& options,
           const lce::ExecutionOptions& execution) {
  Step step = empty_step(batch);
  lce::value_and_grad(context,
                      {.x = view(batch.x),
                       .labels = view(batch.labels),
                       .w = view(batch.w),
                       .bias = view(batch.bias),
                       .weight = view(batch.weight)},
                      {.loss = MutableView::host(&step.loss, {})},
                      {.grad_x = mutable_view(step.grad_x),
                       .grad_w = mutable_view(step.grad_w),
                       .grad_bias = mutable_view(step.grad_bias)},
                      options, execution)
      .wait();
  return step;
}

/// The same, `size` tokens at a time.
Step in_micro_batches(tessera::Context& context, const Batch& batch, Index size,
                      tessera::LossOptions options, const lce::ExecutionOptions& execution) {
  // What the mean divides by is known before the first call: the weights of the tokens that count,
  // of the whole batch (with class weights, each times that of its label).
  double denominator = 0.0;
  for (Index i = 0; i < batch.labels.size(); ++i) {
    const bool counts = batch.labels[i] != options.ignore_index;
    if (counts) denominator += static_cast<double>(batch.weight[i]);
  }
  const double scale = denominator == 0.0 ? 0.0 : 1.0 / denominator;
  const auto dloss = static_cast<float>(scale);
  options.reduction = tessera::Reduction::sum;

  Step step = empty_step(batch);  // grad_w and grad_bias begin at 0
  Matrix grad_x(size, batch.x.cols());
  double sum = 0.0;
  for (Index first = 0; first < batch.x.rows(); first += size) {
    const Index count = std::min(size, batch.x.rows() - first);
    float loss = 0.0f;
    lce::value_and_grad(context,
                        {.x = view(batch.x.middleRows(first, count)),
                         .labels = view(batch.labels.segment(first, count)),
                         .w = view(batch.w),
                         .bias = view(batch.bias),
                         .weight = view(batch.weight.segment(first, count)),
                         .dloss = View::host(&dloss, {})},
                        {.loss = MutableView::host(&loss, {})},
                        {.grad_x = mutable_view(grad_x.topRows(count)),
                         .grad_w = mutable_view(step.grad_w),
                         .grad_bias = mutable_view(step.grad_bias),
                         .accumulate = lce::Accumulate::grad_w | lce::Accumulate::grad_bias},
                        options, execution)
        .wait();
    sum += static_cast<double>(loss);
    // Here a model takes grad_x back through its layers; the next micro-batch overwrites it.
    step.grad_x.middleRows(first, count) = grad_x.topRows(count);
  }
  step.loss = static_cast<float>(sum * scale);
  return step;
}

/// The largest difference, relative to the largest element.
template <class A, class B>
double deviation(const A& actual, const B& expected) {
  return static_cast<double>((actual - expected).cwiseAbs().maxCoeff() /
                             expected.cwiseAbs().maxCoeff());
}

int run(Index size, const lce::ExecutionOptions& execution) {
  tessera::Context context;
  const Batch batch = make_batch(100, 48, 700);
  const tessera::LossOptions options{.logsumexp_weight = 1e-3f};
  const Step expected = whole(context, batch, options, execution);
  const Step actual = in_micro_batches(context, batch, size, options, execution);

  const double deviations[] = {std::abs(double{actual.loss} / double{expected.loss} - 1.0),
                               deviation(actual.grad_x, expected.grad_x),
                               deviation(actual.grad_w, expected.grad_w),
                               deviation(actual.grad_bias, expected.grad_bias)};
  fmt::print("loss {:.6f} of the whole batch, {:.6f} in micro-batches of {}\n", expected.loss,
             actual.loss, size);
  fmt::print("largest deviation: loss {:.1e}, grad_x {:.1e}, grad_w {:.1e}, grad_bias {:.1e}\n",
             deviations[0], deviations[1], deviations[2], deviations[3]);
  // Both are sums of some hundred f32 terms, in another order.
  const double limit = 100 * 0x1p-24;
  return *std::max_element(std::begin(deviations), std::end(deviations)) < limit ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One mean over a batch that is computed in micro-batches");
  std::string implementation;
  Index size = 16;
  app.add_option("--implementation", implementation, "default: the first that serves");
  app.add_option("--size", size, "tokens of a micro-batch")->check(CLI::PositiveNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    fmt::print(stderr, "micro_batches: {}\n", error.what());
    return 2;
  }
  try {
    lce::ExecutionOptions execution;
    if (!implementation.empty()) execution.implementation = implementation;
    return run(size, execution);
  } catch (const std::exception& error) {
    fmt::print(stderr, "micro_batches: {}\n", error.what());
    return 1;
  }
}
