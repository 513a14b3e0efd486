// SPDX-License-Identifier: Apache-2.0
#include "host/loss/validate.hpp"

#include "host/loss/results.hpp"
#include "host/softmax_cross_entropy/request.hpp"

namespace tessera::softmax_cross_entropy {

namespace {

using loss::Form;
using loss::Types;

bool any(const Outputs& o) {
  return o.loss || o.lse || o.argmax || o.label_logprob || o.entropy || o.z_loss || o.statistics;
}

bool same_memory(const View& a, const View& b) {
  return a.host_data() == b.host_data() && a.device_memory() == b.device_memory() &&
         a.byte_offset() == b.byte_offset() && (a.host_data() != nullptr || a.is_device());
}

}  // namespace

Request make_request(const ContextState& state, Pass pass, const Inputs& in, const Outputs& outputs,
                     const Gradients& gradients, const LossOptions& options,
                     const ExecutionOptions& execution, Form form) {
  Request r;
  r.logits = in.logits;
  r.gradients = gradients;
  r.execution = execution;
  loss::Door door(&state, std::string("softmax_cross_entropy.") + to_string(pass), form);

  door.require("logits", in.logits, "they have shape [..., V]");
  door.input("logits", in.logits, Types::floating);
  if (in.logits.rank() < 1) {
    door.fail("logits have no axes; they have shape [..., V], the last axis is V");
  }
  const Dims leading = in.logits.extents().first(in.logits.rank() - 1);
  r.loss = loss::check_loss(
      door, pass, {in.labels, in.weight, in.class_weight, in.dloss, in.dlse, in.lse, in.statistics},
      outputs, options, leading, in.logits.extents().back(),
      "the leading axes of logits " + loss::to_string(in.logits.extents()));

  auto& grad = r.gradients.grad_logits;
  if (r.loss.wants_gradients()) {
    door.output("grad_logits", grad, Types::floating);
    door.shape("grad_logits", grad, in.logits.extents(), "the shape of logits");
  } else {
    door.refuse("grad_logits", grad, "this pass computes no gradients");
    if (gradients.accumulate) door.fail("accumulate is set, but this pass computes no gradients");
  }
  if (gradients.accumulate && same_memory(grad, in.logits)) {
    door.fail(
        "accumulate is set and grad_logits is the view logits; a gradient cannot be added to the "
        "logits it comes from, give it memory of its own");
  }
  door.execution(r.execution);

  if (form == Form::owned || (form == Form::question && !any(outputs) && !gradients.grad_logits)) {
    if (pass == Pass::forward || pass == Pass::value_and_grad) loss::describe_outputs(r.loss);
    if (r.loss.wants_gradients()) {
      grad = MutableView::host(nullptr, in.logits.dtype(), in.logits.extents());
    }
  }
  if (pass == Pass::forward_partial) loss::describe_partial(r.loss);
  if (r.loss.wants_gradients() && !grad) {
    door.fail("no gradient is asked for; give a view for grad_logits, or call forward");
  }
  if (pass == Pass::forward && !any(r.loss.outputs)) {
    door.fail("no output is asked for; give at least one view");
  }
  door.overlaps("grad_logits", "logits");
  if (form != Form::question) loss::check_labels(door, r.loss, r.execution.wait_for);
  return r;
}

}  // namespace tessera::softmax_cross_entropy
