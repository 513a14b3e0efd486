// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace train_text {
namespace {

using tessera::MutableView;
using tessera::View;
using Matrix = Model::Matrix;

/// Uniform in [-limit, limit), the same on every standard library.
void fill(Parameter& parameter, float limit, std::mt19937_64& random) {
  for (Eigen::Index i = 0; i < parameter.value.size(); ++i) {
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    parameter.value.data()[i] = limit * static_cast<float>(2.0 * unit - 1.0);
  }
}

/// The range that keeps the variance of activations through a layer with `inputs` inputs.
float unit_variance(std::int64_t inputs) { return std::sqrt(3.0f / static_cast<float>(inputs)); }

Matrix silu(const Matrix& z) { return (z.array() / (1.0f + (-z.array()).exp())).matrix(); }

/// d silu(z) / dz = s (1 + z (1 - s)), s = sigmoid(z); multiplied by `grad`.
Matrix silu_backward(const Matrix& z, const Matrix& grad) {
  const auto s = (1.0f / (1.0f + (-z.array()).exp())).eval();
  return (grad.array() * s * (1.0f + z.array() * (1.0f - s))).matrix();
}

void to_bf16(const Matrix& from, std::vector<tessera::bf16>& to) {
  to.resize(static_cast<std::size_t>(from.size()));
  std::transform(from.data(), from.data() + from.size(), to.begin(),
                 [](float value) { return tessera::bf16(value); });
}

}  // namespace

Model::Model(const ModelOptions& options)
    : options_(options),
      embedding_(options.vocab, options.embedding, false),
      w1_(options.context * options.embedding, options.hidden, true),
      b1_(1, options.hidden, false),
      w2_(options.hidden, options.hidden, true),
      b2_(1, options.hidden, false),
      output_(options.vocab, options.hidden, true),
      bias_(1, options.vocab, false) {
  std::mt19937_64 random(options.seed);
  fill(embedding_, 1.0f, random);
  fill(w1_, unit_variance(options.context * options.embedding), random);
  fill(w2_, unit_variance(options.hidden), random);
  // Small, so that the first prediction is near uniform: loss log V.
  fill(output_, 0.1f * unit_variance(options.hidden), random);
}

std::vector<Parameter*> Model::all() {
  return {&embedding_, &w1_, &b1_, &w2_, &b2_, &output_, &bias_};
}

std::int64_t Model::parameters() const {
  return embedding_.value.size() + w1_.value.size() + b1_.value.size() + w2_.value.size() +
         b2_.value.size() + output_.value.size() + bias_.value.size();
}

void Model::mix(const Examples& examples) {
  const auto n = static_cast<Eigen::Index>(examples.labels.size());
  const Eigen::Index width = options_.embedding;
  e_.resize(n, options_.context * width);
  for (Eigen::Index row = 0; row < n; ++row) {
    for (Eigen::Index k = 0; k < options_.context; ++k) {
      const auto word = examples.contexts[static_cast<std::size_t>(row * options_.context + k)];
      e_.row(row).segment(k * width, width) = embedding_.value.row(word);
    }
  }
  z1_.noalias() = e_ * w1_.value;
  z1_.rowwise() += b1_.value.row(0);
  u_ = silu(z1_);
  z2_.noalias() = u_ * w2_.value;
  z2_.rowwise() += b2_.value.row(0);
  x_ = u_ + silu(z2_);
}

void Model::mix_backward(const Examples& examples) {
  const Matrix grad_z2 = silu_backward(z2_, grad_x_);
  w2_.grad.noalias() = u_.transpose() * grad_z2;
  b2_.grad = grad_z2.colwise().sum();
  Matrix grad_u = grad_x_;
  grad_u.noalias() += grad_z2 * w2_.value.transpose();

  const Matrix grad_z1 = silu_backward(z1_, grad_u);
  w1_.grad.noalias() = e_.transpose() * grad_z1;
  b1_.grad = grad_z1.colwise().sum();
  Matrix grad_e(e_.rows(), e_.cols());
  grad_e.noalias() = grad_z1 * w1_.value.transpose();

  embedding_.grad.setZero();
  const Eigen::Index width = options_.embedding;
  for (Eigen::Index row = 0; row < grad_e.rows(); ++row) {
    for (Eigen::Index k = 0; k < options_.context; ++k) {
      const auto word = examples.contexts[static_cast<std::size_t>(row * options_.context + k)];
      embedding_.grad.row(word) += grad_e.row(row).segment(k * width, width);
    }
  }
}

tessera::linear_cross_entropy::Inputs Model::output_inputs(const Examples& examples) {
  const std::int64_t n = x_.rows(), h = options_.hidden, v = options_.vocab;
  tessera::linear_cross_entropy::Inputs inputs;
  if (options_.output_type == tessera::DType::bf16) {
    to_bf16(x_, x16_);
    to_bf16(output_.value, output16_);
    inputs.x = View::host(x16_.data(), {n, h});
    inputs.w = View::host(output16_.data(), {h, v}, {1, h});
  } else {
    inputs.x = View::host(x_.data(), {n, h});
    inputs.w = View::host(output_.value.data(), {h, v}, {1, h});
  }
  inputs.labels = View::host(examples.labels.data(), {n});
  inputs.bias = View::host(bias_.value.data(), {v});
  return inputs;
}

template <class Outputs>
Outputs Model::loss_outputs(float& mean) {
  const std::int64_t n = x_.rows();
  label_logprob_.resize(static_cast<std::size_t>(n));
  Outputs outputs;
  outputs.loss = MutableView::host(&mean, {});
  outputs.label_logprob = MutableView::host(label_logprob_.data(), {n});
  return outputs;
}

template <class Gradients>
Gradients Model::output_gradients() {
  const std::int64_t n = x_.rows(), h = options_.hidden, v = options_.vocab;
  grad_x_.resize(n, h);
  // The gradients are f32 whatever the operands are, as the master copies want them.
  Gradients gradients;
  gradients.grad_x = MutableView::host(grad_x_.data(), {n, h});
  gradients.grad_w = MutableView::host(output_.grad.data(), {h, v}, {1, h});
  gradients.grad_bias = MutableView::host(bias_.grad.data(), {v});
  return gradients;
}

Loss Model::finish(const Examples& examples, float mean) {
  mix_backward(examples);
  return {mean, mean_nll()};
}

Loss Model::value_and_grad(tessera::Context& context, const Examples& examples,
                           const tessera::LossOptions& loss,
                           const tessera::linear_cross_entropy::ExecutionOptions& execution) {
  namespace lce = tessera::linear_cross_entropy;
  mix(examples);
  float mean = 0.0f;
  auto done =
      lce::value_and_grad(context, output_inputs(examples), loss_outputs<tessera::Outputs>(mean),
                          output_gradients<lce::Gradients>(), loss, execution);
  done.wait();
  dispatch_ = done.dispatch();
  return finish(examples, mean);
}

Loss Model::follow(Model& teacher, tessera::Context& context, const Examples& examples,
                   const tessera::linear_distillation::Options& options,
                   const tessera::linear_distillation::ExecutionOptions& execution) {
  namespace ld = tessera::linear_distillation;
  mix(examples);
  teacher.mix(examples);
  const auto own = output_inputs(examples);
  const auto others = teacher.output_inputs(examples);
  ld::Inputs inputs;
  inputs.x = own.x;
  inputs.w = own.w;
  inputs.bias = own.bias;
  inputs.labels = own.labels;
  inputs.teacher_x = others.x;
  inputs.teacher_w = others.w;
  inputs.teacher_bias = others.bias;
  float mean = 0.0f;
  auto done = ld::value_and_grad(context, inputs, loss_outputs<ld::Outputs>(mean),
                                 output_gradients<ld::Gradients>(), options, execution);
  done.wait();
  dispatch_ = done.dispatch();
  return finish(examples, mean);
}

double Model::nll(tessera::Context& context, const Examples& examples,
                  const tessera::LossOptions& loss,
                  const tessera::linear_cross_entropy::ExecutionOptions& execution) {
  mix(examples);
  label_logprob_.resize(examples.labels.size());
  tessera::linear_cross_entropy::Outputs outputs;
  outputs.label_logprob = MutableView::host(label_logprob_.data(), {x_.rows()});
  tessera::linear_cross_entropy::forward(context, output_inputs(examples), outputs, loss, execution)
      .wait();
  return mean_nll();
}

double Model::mean_nll() const {
  double logprob = 0.0;
  for (float value : label_logprob_) logprob += value;
  return -logprob / static_cast<double>(label_logprob_.size());
}

double Model::perplexity(tessera::Context& context, const Examples& held_out, std::int64_t batch,
                         const tessera::LossOptions& loss,
                         const tessera::linear_cross_entropy::ExecutionOptions& execution) {
  const auto n = static_cast<std::int64_t>(held_out.labels.size());
  double total = 0.0;
  for (std::int64_t first = 0; first < n; first += batch) {
    const std::int64_t count = std::min(batch, n - first);
    const auto part = slice(held_out, first, count, options_.context);
    total += nll(context, part, loss, execution) * static_cast<double>(count);
  }
  return std::exp(total / static_cast<double>(n));
}

void Model::update(const AdamWStep& step, float max_norm) {
  double squares = 0.0;
  for (auto* parameter : all()) squares += static_cast<double>(parameter->grad.squaredNorm());
  const double norm = std::sqrt(squares);
  const float scale = norm > max_norm ? static_cast<float>(max_norm / norm) : 1.0f;
  for (auto* parameter : all()) parameter->update(step, scale);
}

}  // namespace train_text
