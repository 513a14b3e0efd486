// SPDX-License-Identifier: Apache-2.0
#include "host/dispatch/description.hpp"

#include "host/linear_cross_entropy/request.hpp"
#include "host/loss/results.hpp"

namespace tessera::linear_cross_entropy {

const dispatch::Description& description() {
  static const dispatch::Description text = {
      .name = "linear_cross_entropy",
      .passes = {Pass::forward, Pass::backward, Pass::value_and_grad, Pass::forward_partial},
      .inputs = loss::input_arguments({{"x", "[..., H]", loss::floating_types, false},
                                       {"w", "[H, V]", loss::floating_types, false},
                                       {"bias", "[V]", loss::floating_types, true}}),
      .outputs = loss::output_arguments(),
      .gradients = {{"grad_x", "[..., H]", loss::floating_types, true},
                    {"grad_w", "[H, V]", loss::floating_types, true},
                    {"grad_bias", "[V]", loss::floating_types, true}},
      .default_block_sizes = to_named(BlockSizes::get_default()),
  };
  return text;
}

std::vector<dispatch::NamedView> input_views(const Request& r) {
  return loss::given({{"x", r.x}, {"w", r.w}, {"bias", r.bias}}, loss::input_views(r.loss));
}

std::vector<dispatch::NamedView> output_views(const Request& r) {
  return loss::given(loss::output_views(r.loss), {{"grad_x", r.gradients.grad_x},
                                                  {"grad_w", r.gradients.grad_w},
                                                  {"grad_bias", r.gradients.grad_bias}});
}

std::string Request::output_names() const { return loss::names(output_views(*this)); }

}  // namespace tessera::linear_cross_entropy
