// SPDX-License-Identifier: Apache-2.0
#include "host/dispatch/description.hpp"

#include "host/loss/results.hpp"
#include "host/softmax_cross_entropy/request.hpp"

namespace tessera::softmax_cross_entropy {

const dispatch::Description& description() {
  static const dispatch::Description text = {
      .name = "softmax_cross_entropy",
      .passes = {Pass::forward, Pass::backward, Pass::value_and_grad, Pass::forward_partial},
      .inputs = loss::input_arguments({{"logits", "[..., V]", loss::floating_types, false}}),
      .outputs = loss::output_arguments(),
      .gradients = {{"grad_logits", "[..., V]", loss::floating_types, true}},
      .default_block_sizes = to_named(BlockSizes::get_default()),
  };
  return text;
}

std::vector<dispatch::NamedView> input_views(const Request& r) {
  return loss::given({{"logits", r.logits}}, loss::input_views(r.loss));
}

std::vector<dispatch::NamedView> output_views(const Request& r) {
  return loss::given(loss::output_views(r.loss), {{"grad_logits", r.gradients.grad_logits}});
}

std::string Request::output_names() const { return loss::names(output_views(*this)); }

}  // namespace tessera::softmax_cross_entropy
