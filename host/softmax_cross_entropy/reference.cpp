// SPDX-License-Identifier: Apache-2.0
#include "host/loss/reference.hpp"

#include "host/softmax_cross_entropy/request.hpp"

namespace tessera::softmax_cross_entropy {
namespace {

std::int64_t workspace_bytes(const Request& request) {
  // The given and the final logits; dz and its copy; a probability of every word.
  const std::int64_t copies =
      (has_gradients(request.loss.pass) ? 4 : 2) + (request.loss.targets ? 1 : 0);
  return copies * request.loss.b * request.loss.v * static_cast<std::int64_t>(sizeof(double));
}

void read(const Request& request, dispatch::HostViews& views, oracle::Problem& problem) {
  problem.h = -1;
  problem.logits =
      loss::read_matrix(views.read(request.inputs.logits), problem.b, problem.v, &problem);
}

}  // namespace

dispatch::Implementation<Request> reference_implementation() {
  return loss::reference_row<Operator>(
      {.description = "textbook, in double; B * V up to 2^26",
       .refuses = [](const Request&) { return std::optional<std::string>(); },
       .workspace_bytes = workspace_bytes,
       .read = read,
       .gradients = {&oracle::Gradients::grad_logits}});
}

}  // namespace tessera::softmax_cross_entropy
