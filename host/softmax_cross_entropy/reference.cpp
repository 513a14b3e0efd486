// SPDX-License-Identifier: Apache-2.0
#include "host/loss/reference.hpp"

#include "host/softmax_cross_entropy/request.hpp"

namespace tessera::softmax_cross_entropy {
namespace {

using loss::LossRequest;

class Textbook final : public loss::Reference {
 public:
  Textbook()
      : loss::Reference("textbook, in double; B * V up to 2^26",
                        {.gradients = {&oracle::Gradients::grad_logits}}) {}

 private:
  std::int64_t workspace_bytes(const LossRequest& request) const override {
    // The given and the final logits; dz and its copy; a probability of every word.
    const std::int64_t copies = (has_gradients(request.pass) ? 4 : 2) + (request.targets ? 1 : 0);
    return copies * request.b * request.v * static_cast<std::int64_t>(sizeof(double));
  }

  void read(const LossRequest& request, dispatch::HostViews& views,
            oracle::Problem& problem) const override {
    problem.h = -1;
    problem.logits = loss::read_matrix(views.read(request_of(request).inputs.logits), problem.b,
                                       problem.v, &problem);
  }

  CostEstimate cost(ContextState&, const dispatch::Request& request) const override {
    return softmax_cross_entropy::cost(request_of(request));
  }
};

}  // namespace

std::unique_ptr<dispatch::Implementation> reference_implementation() {
  return std::make_unique<Textbook>();
}

}  // namespace tessera::softmax_cross_entropy
