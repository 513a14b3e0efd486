// SPDX-License-Identifier: Apache-2.0
#include "host/loss/reference.hpp"

#include "host/linear_cross_entropy/request.hpp"

namespace tessera::linear_cross_entropy {
namespace {

using loss::LossRequest;

class Textbook final : public loss::Reference {
 public:
  Textbook()
      : loss::Reference("textbook, in double, with the logits materialised; B * V up to 2^26",
                        {.gradients = {&oracle::Gradients::grad_x, &oracle::Gradients::grad_w,
                                       &oracle::Gradients::grad_bias}}) {}

 private:
  std::optional<std::string> refuses(const LossRequest& request) const override {
    return loss::layer_refusal(request, hidden(request_of(request)));
  }

  std::int64_t workspace_bytes(const LossRequest& request) const override {
    const std::int64_t b = request.b, h = hidden(request_of(request)), v = request.v;
    // x twice (rows that do not count are cleared in a copy), w and the final logits.
    std::int64_t elements = 2 * b * h + h * v + b * v;
    // dz and the gradients.
    if (has_gradients(request.pass)) elements += b * v + b * h + h * v + v;
    if (request.targets) elements += b * v;
    return elements * static_cast<std::int64_t>(sizeof(double));
  }

  void read(const LossRequest& request, dispatch::HostViews& views,
            oracle::Problem& problem) const override {
    const auto r = request_of(request);
    problem.h = hidden(r);
    loss::read_layer(views, r.inputs.x, r.inputs.w, r.inputs.bias, problem.h, problem,
                     {problem.x, problem.w, problem.bias});
  }

  CostEstimate cost(ContextState&, const dispatch::Request& request) const override {
    const auto r = request_of(request);
    return linear_cross_entropy::cost(
        r, r.execution.block_sizes.value_or(BlockSizes::get_default()), 1);
  }
};

}  // namespace

std::unique_ptr<dispatch::Implementation> reference_implementation() {
  return std::make_unique<Textbook>();
}

}  // namespace tessera::linear_cross_entropy
