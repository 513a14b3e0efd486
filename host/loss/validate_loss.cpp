// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "host/loss/rows.hpp"
#include "host/loss/validate.hpp"

namespace tessera::loss {

namespace {

Dims with_axis(Dims dims, std::int64_t extent) {
  dims.push_back(extent);
  return dims;
}

/// Members that have a meaning in some passes only: silence would hide a mistake.
void check_passes(const Door& door, Pass pass, const LossInputs& in, const LossOptions& options) {
  const bool gradients = pass == Pass::backward || pass == Pass::value_and_grad;
  if (!gradients) {
    door.refuse("dloss", in.dloss, "only backward and value_and_grad read a cotangent");
    door.refuse("dlse", in.dlse, "only backward and value_and_grad read a cotangent");
  }
  if (pass == Pass::backward) {
    if (!in.statistics && !in.lse) {
      door.fail("neither statistics nor lse is given; backward needs what forward saved");
    }
  } else {
    door.refuse("lse", in.lse, "it is read by backward alone; the output is Outputs::lse");
    door.refuse("statistics", in.statistics,
                "they are read by backward alone; the output is Outputs::statistics");
  }
  if (options.vocab_size_total != 0 && pass == Pass::forward) {
    door.fail("vocab_size_total is " + std::to_string(options.vocab_size_total) +
              ", so that this call is one shard, whose loss nobody knows yet; call forward_partial "
              "on every shard and combine");
  }
  if (options.vocab_size_total != 0 && pass == Pass::value_and_grad) {
    door.fail("vocab_size_total is " + std::to_string(options.vocab_size_total) +
              ", so that this call is one shard; value_and_grad cannot know the other shards: call "
              "forward_partial on each, combine, then backward with the merged statistics");
  }
}

void check_shard(const Door& door, const LossOptions& o, std::int64_t v) {
  const auto number = [](std::int64_t n) { return std::to_string(n); };
  if (o.vocab_size_total < 0) {
    door.fail("vocab_size_total is " + number(o.vocab_size_total) + "; the least is 0 (no shard)");
  }
  if (o.vocab_offset < 0) {
    door.fail("vocab_offset is " + number(o.vocab_offset) + "; the least is 0");
  }
  if (o.vocab_offset > 0 && o.vocab_size_total == 0) {
    door.fail("vocab_offset is " + number(o.vocab_offset) +
              " without vocab_size_total; give the width of the whole vocabulary");
  }
  if (o.vocab_size_total > 0 &&
      (v > o.vocab_size_total || o.vocab_offset > o.vocab_size_total - v)) {
    door.fail("vocab_offset " + number(o.vocab_offset) + " and " + number(v) +
              " columns reach beyond vocab_size_total " + number(o.vocab_size_total));
  }
}

void finite(const Door& door, const char* name, float value) {
  if (!std::isfinite(value)) {
    door.fail(std::string(name) + " is " + std::to_string(value) + "; give a finite number");
  }
}

void check_outputs(Door& door, Pass pass, Outputs& out, const LossRequest& r,
                   const Source& source) {
  const std::pair<const char*, MutableView*> rows[] = {{"lse", &out.lse},
                                                       {"argmax", &out.argmax},
                                                       {"label_logprob", &out.label_logprob},
                                                       {"entropy", &out.entropy},
                                                       {"z_loss", &out.z_loss}};
  const bool values = pass == Pass::forward || pass == Pass::value_and_grad;
  if (!values) {
    const char* why = "this pass writes no loss outputs";
    door.refuse("loss", out.loss, why);
    for (const auto& [name, view] : rows) door.refuse(name, *view, why);
    door.refuse("statistics", out.statistics, why);
    return;
  }
  door.output("loss", out.loss, Types::f32);
  for (const auto& [name, view] : rows) {
    door.output(name, *view, view == &out.argmax ? Types::i32 : Types::f32);
  }
  // Backward refuses saved statistics in another type, and they would lose what they are for.
  door.output("statistics", out.statistics, Types::f32);

  if (r.options.reduction == Reduction::none) {
    door.shape("loss", out.loss, r.leading, source.with(" (reduction none)"));
  } else {
    door.shape("loss", out.loss, {},
               r.options.reduction == Reduction::mean ? "a single number (reduction mean)"
                                                      : "a single number (reduction sum)");
  }
  for (const auto& [name, view] : rows) door.shape(name, *view, r.leading, source);
  door.shape("statistics", out.statistics, with_axis(r.leading, 2),
             source.with(", then (max, sum)"));
}

}  // namespace

void check_options(const Door& door, const LossOptions& o) {
  finite(door, "logsumexp_weight", o.logsumexp_weight);
  finite(door, "logit_scale", o.logit_scale);
  finite(door, "logit_soft_cap", o.logit_soft_cap);
  if (o.logit_soft_cap < 0.0f) {
    door.fail("logit_soft_cap is " + std::to_string(o.logit_soft_cap) +
              "; the least is 0, which turns it off");
  }
  // Written so that a NaN fails.
  if (!(o.label_smoothing >= 0.0f && o.label_smoothing <= 1.0f)) {
    door.fail("label_smoothing is " + std::to_string(o.label_smoothing) + "; its range is 0 to 1");
  }
  if (o.reduction != Reduction::mean && o.reduction != Reduction::sum &&
      o.reduction != Reduction::none) {
    door.fail("reduction is " + std::to_string(static_cast<int>(o.reduction)) +
              "; give mean, sum or none");
  }
}

LossRequest check_loss(Door& door, Pass pass, const LossInputs& inputs, const Outputs& outputs,
                       const LossOptions& options, const Dims& leading, std::int64_t v,
                       const Source& source) {
  check_options(door, options);
  check_shard(door, options, v);
  check_passes(door, pass, inputs, options);

  LossRequest r;
  r.pass = pass;
  r.leading = leading;
  r.b = door.product(leading, "the leading axes");
  r.v = v;
  r.is_shard = options.vocab_size_total > 0;
  r.v_total = r.is_shard ? options.vocab_size_total : v;
  r.options = options;
  if (r.v == 0 && r.b > 0) {
    door.fail("the vocabulary has 0 columns but there are " + std::to_string(r.b) +
              " rows; a softmax needs at least one column");
  }
  door.product(r.b, r.v, "rows * columns");

  door.require("labels", inputs.labels, "every call needs them");
  LossInputs in = inputs;
  door.input("labels", in.labels, Types::integer);
  door.input("weight", in.weight, Types::floating);
  door.input("class_weight", in.class_weight, Types::floating);
  door.input("dloss", in.dloss, Types::floating);
  door.input("dlse", in.dlse, Types::floating);
  door.input("lse", in.lse, Types::f32);
  door.input("statistics", in.statistics, Types::f32);

  door.shape("labels", in.labels, leading, source);
  door.shape("weight", in.weight, leading, source);
  door.shape("class_weight", in.class_weight, {r.v_total},
             r.is_shard ? "one per word of the whole vocabulary (vocab_size_total)"
                        : "one per word of the vocabulary");
  if (options.reduction == Reduction::none) {
    door.shape("dloss", in.dloss, leading, source.with(" (reduction none)"));
  } else {
    door.shape("dloss", in.dloss, {},
               options.reduction == Reduction::mean
                   ? "the loss is a single number (reduction mean)"
                   : "the loss is a single number (reduction sum)");
  }
  door.shape("dlse", in.dlse, leading, source);
  door.shape("lse", in.lse, leading, source);
  door.shape("statistics", in.statistics, with_axis(leading, 2), source.with(", then (max, sum)"));

  r.labels = in.labels;
  r.weight = in.weight;
  r.class_weight = in.class_weight;
  r.dloss = in.dloss;
  r.dlse = in.dlse;
  r.statistics = in.statistics;
  if (!in.statistics) r.lse = in.lse;
  r.outputs = outputs;
  check_outputs(door, pass, r.outputs, r, source);
  return r;
}

std::string describe_row(std::int64_t row, const Dims& leading) {
  std::string text = std::to_string(row);
  if (leading.rank() < 2) return text;
  Dims index = leading;
  for (int axis = leading.rank() - 1; axis >= 0; --axis) {
    index[axis] = row % leading[axis];
    row /= leading[axis];
  }
  return text + " (index " + to_string(index) + ")";
}

void check_labels(const Door& door, const LossRequest& request,
                  const std::vector<cl_event>& wait_for) {
  const View& labels = request.labels;
  if (labels.is_device() || labels.host_data() == nullptr || request.b == 0) return;
  if (!wait_for.empty()) door.state()->device->wait_for(wait_for);
  const RowOffsets offsets(labels, labels.rank());
  for (std::int64_t row = 0; row < request.b; ++row) {
    const auto label = load_int(labels.host_data(), labels.dtype(), offsets(row));
    if (label == request.options.ignore_index || (label >= 0 && label < request.v_total)) continue;
    door.fail("labels: row " + describe_row(row, request.leading) + " is " + std::to_string(label) +
                  "; the vocabulary is 0 to " + std::to_string(request.v_total - 1) +
                  ", ignore_index is " + std::to_string(request.options.ignore_index),
              ErrorCode::label_out_of_range);
  }
}

}  // namespace tessera::loss
