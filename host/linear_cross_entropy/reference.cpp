// SPDX-License-Identifier: Apache-2.0
#include "host/loss/reference.hpp"

#include "host/linear_cross_entropy/request.hpp"

namespace tessera::linear_cross_entropy {
namespace {

std::optional<std::string> refuses(const Request& request) {
  return loss::layer_refusal(request.loss, hidden(request));
}

std::int64_t workspace_bytes(const Request& request) {
  const std::int64_t b = request.loss.b, h = hidden(request), v = request.loss.v;
  // x twice (rows that do not count are cleared in a copy), w and the final logits.
  std::int64_t elements = 2 * b * h + h * v + b * v;
  // dz and the gradients.
  if (has_gradients(request.loss.pass)) elements += b * v + b * h + h * v + v;
  if (request.loss.targets) elements += b * v;
  return elements * static_cast<std::int64_t>(sizeof(double));
}

void read(const Request& request, dispatch::HostViews& views, oracle::Problem& problem) {
  const Inputs& in = request.inputs;
  problem.h = hidden(request);
  loss::read_layer(views, in.x, in.w, in.bias, problem.h, problem,
                   {problem.x, problem.w, problem.bias});
}

}  // namespace

dispatch::Implementation<Request> reference_implementation() {
  return loss::reference_row<Operator>(
      {.description = "textbook, in double, with the logits materialised; B * V up to 2^26",
       .refuses = refuses,
       .workspace_bytes = workspace_bytes,
       .read = read,
       .gradients = {&oracle::Gradients::grad_x, &oracle::Gradients::grad_w,
                     &oracle::Gradients::grad_bias}});
}

}  // namespace tessera::linear_cross_entropy
