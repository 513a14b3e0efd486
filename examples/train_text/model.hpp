// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "adamw.hpp"
#include "tessera/tessera.hpp"
#include "text.hpp"

namespace train_text {

struct ModelOptions {
  std::int64_t vocab = 0;
  std::int64_t context = 8;     ///< words that predict the next one
  std::int64_t embedding = 64;  ///< numbers per word
  std::int64_t hidden = 192;    ///< H of the output layer
  /// Type of the operands of the output layer; the master copy of its weight stays f32.
  tessera::DType output_type = tessera::DType::f32;
  std::uint64_t seed = 1;
};

/// The sums of one call on the output layer, as means over its tokens.
struct Loss {
  double total = 0.0;  ///< nll + z-loss
  double nll = 0.0;    ///< exp of it is the perplexity
};

/// A feed-forward word model: the embeddings of the last `context` words side by side, a SiLU
/// layer, a second one around which a residual goes, and tessera's output layer.
///
///     e = [E(w_1) .. E(w_c)]   u = silu(e W1 + b1)   x = u + silu(u W2 + b2)   logits = x W + bias
class Model {
 public:
  using Matrix = Parameter::RowMajor;

  explicit Model(const ModelOptions& options);

  /// Mean loss and the gradients of every parameter. Throws tessera::Error.
  Loss value_and_grad(tessera::Context& context, const Examples& examples,
                      const tessera::LossOptions& loss,
                      const tessera::linear_cross_entropy::ExecutionOptions& execution);
  /// The same where a teacher with as many words has seen the same examples; its parameters stay.
  Loss follow(Model& teacher, tessera::Context& context, const Examples& examples,
              const tessera::linear_distillation::Options& options,
              const tessera::linear_distillation::ExecutionOptions& execution);
  /// Mean negative log-likelihood alone.
  double nll(tessera::Context& context, const Examples& examples, const tessera::LossOptions& loss,
             const tessera::linear_cross_entropy::ExecutionOptions& execution);

  /// exp of the mean over all of `held_out`, `batch` at a time.
  double perplexity(tessera::Context& context, const Examples& held_out, std::int64_t batch,
                    const tessera::LossOptions& loss,
                    const tessera::linear_cross_entropy::ExecutionOptions& execution);

  /// Steps every parameter, with the gradients' common norm limited to `max_norm`.
  void update(const AdamWStep& step, float max_norm);

  /// Embedding, both mixing layers with their biases, output layer and its bias.
  std::vector<Parameter*> all();
  std::int64_t parameters() const;
  /// What the last value_and_grad ran on.
  const tessera::Dispatch& dispatch() const { return dispatch_; }

 private:
  void mix(const Examples& examples);           ///< contexts -> x_
  void mix_backward(const Examples& examples);  ///< grad_x_ -> gradients
  tessera::linear_cross_entropy::Inputs output_inputs(const Examples& examples);
  /// Makes room for the output layer's results, which go where both kinds of loss want them.
  template <class Outputs>
  Outputs loss_outputs(float& mean);
  template <class Gradients>
  Gradients output_gradients();
  /// From what a call has left.
  Loss finish(const Examples& examples, float mean);
  double mean_nll() const;

  ModelOptions options_;
  Parameter embedding_;  ///< [V, E]
  Parameter w1_;         ///< [context * E, H]
  Parameter b1_;         ///< [1, H]
  Parameter w2_;         ///< [H, H]
  Parameter b2_;         ///< [1, H]
  Parameter output_;     ///< [V, H], the layout PyTorch has; tessera sees it as [H, V] by strides
  Parameter bias_;       ///< [1, V]

  // Activations of the last mix, [n, ...].
  Matrix e_, z1_, u_, z2_, x_, grad_x_;
  std::vector<float> label_logprob_;
  std::vector<tessera::bf16> x16_, output16_;
  tessera::Dispatch dispatch_;
};

}  // namespace train_text
