// SPDX-License-Identifier: Apache-2.0
#include "host/loss/reference.hpp"

#include "host/linear_cross_entropy/request.hpp"

namespace tessera::linear_cross_entropy {
namespace {

// x, w and their gradients are copied in double: 2^30 elements are 8 GiB a copy.
constexpr double max_elements = 1073741824.0;

std::optional<std::string> refuses(const Request& request) {
  const auto h = static_cast<double>(hidden(request));
  const auto b = static_cast<double>(request.loss.b);
  const auto v = static_cast<double>(request.loss.v);
  if (b * h > max_elements || h * v > max_elements) {
    return "it copies x and w in double, and B * H or H * V is beyond its limit of 2^30 (B = " +
           std::to_string(request.loss.b) + ", H = " + std::to_string(hidden(request)) +
           ", V = " + std::to_string(request.loss.v) + "); use eigen";
  }
  return std::nullopt;
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
  problem.x = loss::read_matrix(views.read(in.x), problem.b, problem.h, &problem);
  problem.w = loss::read_matrix(views.read(in.w), problem.h, problem.v);
  problem.bias = loss::read_vector(views.read(in.bias), problem.v);
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
