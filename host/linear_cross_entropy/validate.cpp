// SPDX-License-Identifier: Apache-2.0
#include "host/loss/validate.hpp"

#include "host/linear_cross_entropy/request.hpp"
#include "host/loss/results.hpp"

namespace tessera::linear_cross_entropy {

namespace {

using loss::Door;
using loss::Form;
using loss::Types;

bool any(const Outputs& o) {
  return o.loss || o.lse || o.argmax || o.label_logprob || o.entropy || o.z_loss || o.statistics;
}

bool any(const Gradients& g) { return g.grad_x || g.grad_w || g.grad_bias; }

/// The gradients a call that owns its results returns, without memory yet.
Gradients describe_gradients(const Request& r) {
  const auto& wants = r.loss.options.wants;
  Gradients g{.accumulate = r.gradients.accumulate};
  if (wants.grad_x) g.grad_x = MutableView::host(nullptr, r.x.dtype(), r.x.extents());
  if (wants.grad_w) {
    // As w lies in memory: the axis with the smaller stride is the inner one.
    const bool transposed = r.w.strides()[0] < r.w.strides()[1];
    g.grad_w = MutableView::host(nullptr, r.w.dtype(), r.w.extents(),
                                 transposed ? Dims{1, r.h} : Dims{r.loss.v, 1});
  }
  if (wants.grad_bias && r.bias) {
    g.grad_bias = MutableView::host(nullptr, DType::f32, r.bias.extents());
  }
  return g;
}

void check_gradients(Door& door, Request& r, const View& bias) {
  auto& g = r.gradients;
  if (!r.loss.wants_gradients()) {
    const char* why = "this pass computes no gradients";
    door.refuse("grad_x", g.grad_x, why);
    door.refuse("grad_w", g.grad_w, why);
    door.refuse("grad_bias", g.grad_bias, why);
    return;
  }
  if (g.grad_bias && !bias) {
    door.fail("grad_bias is asked for but no bias is given; give the bias or drop the gradient");
  }
  door.output("grad_x", g.grad_x, Types::floating);
  door.output("grad_w", g.grad_w, Types::floating);
  door.output("grad_bias", g.grad_bias, Types::floating);
  door.shape("grad_x", g.grad_x, r.x.extents(), "the shape of x");
  door.shape("grad_w", g.grad_w, r.w.extents(), "[H, V], the shape of w");
  door.shape("grad_bias", g.grad_bias, {r.loss.v}, "[V], one per column of w");
}

void check_gradient_filter(const Door& door, float eps) {
  if (!(eps >= 0.0f && eps < 1.0f)) {
    door.fail("gradient_filter_eps is " + std::to_string(eps) +
              "; it is a probability below which gradients may be left out, from 0 (exact, the "
              "default) to below 1, such as 2^-12");
  }
}

}  // namespace

Request make_request(const ContextState& state, Pass pass, const Inputs& in, const Outputs& outputs,
                     const Gradients& gradients, const LossOptions& options,
                     const ExecutionOptions& execution, Form form) {
  Request r;
  r.x = in.x;
  r.w = in.w;
  r.bias = in.bias;
  r.gradients = gradients;
  r.execution = execution;
  Door door(&state, std::string("linear_cross_entropy.") + to_string(pass), form);

  door.require("x", in.x, "it has shape [..., H]");
  door.require("w", in.w, "it has shape [H, V]");
  door.input("x", in.x, Types::floating);
  door.input("w", in.w, Types::floating);
  door.input("bias", in.bias, Types::floating);
  if (in.x.rank() < 1) door.fail("x has no axes; it has shape [..., H], the last axis is H");
  if (in.w.rank() != 2) {
    door.fail("w has shape " + loss::to_string(in.w.extents()) + ", expected [H, V]");
  }
  r.h = in.x.extents().back();
  const std::int64_t v = in.w.extents()[1];
  if (in.w.extents()[0] != r.h) {
    std::string hint;
    if (v == r.h) hint = "; a weight stored [V, H] is passed as extents {H, V}, strides {1, H}";
    door.fail("w has shape " + loss::to_string(in.w.extents()) + " but x has shape " +
              loss::to_string(in.x.extents()) +
              ": the first axis of w must be H, the last axis of x" + hint);
  }
  const Dims leading = in.x.extents().first(in.x.rank() - 1);
  r.loss = loss::check_loss(
      door, pass, {in.labels, in.weight, in.class_weight, in.dloss, in.dlse, in.lse, in.statistics},
      outputs, options, leading, v, {"the leading axes of x ", &in.x.extents()});
  door.shape("bias", r.bias, {v}, {"[V], one per column of w ", &in.w.extents()});
  check_gradients(door, r, in.bias);
  door.execution(r.execution);
  check_gradient_filter(door, r.execution.gradient_filter_eps);

  const bool describe =
      form == Form::owned || (form == Form::question && !any(outputs) && !any(gradients));
  if (describe) {
    if (pass == Pass::forward || pass == Pass::value_and_grad) loss::describe_outputs(r.loss);
    if (r.loss.wants_gradients()) r.gradients = describe_gradients(r);
  }
  if (pass == Pass::forward_partial) loss::describe_partial(r.loss);
  if (r.loss.wants_gradients() && !any(r.gradients)) {
    door.fail(
        "no gradient is asked for; give a view or a want for grad_x, grad_w or grad_bias, or call "
        "forward");
  }
  if (pass == Pass::forward && !any(r.loss.outputs)) {
    door.fail("no output is asked for; give at least one view");
  }
  if (r.gradients.accumulate != Accumulate::none && !r.loss.wants_gradients()) {
    door.fail("accumulate is set, but this pass computes no gradients");
  }
  door.overlaps();
  if (form != Form::question) loss::check_labels(door, r.loss, r.execution.wait_for);
  return r;
}

}  // namespace tessera::linear_cross_entropy
