// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <bit>
#include <limits>

#include "host/arguments/offsets.hpp"
#include "host/linear/walk.hpp"
#include "host/linear_distillation/streaming.hpp"

namespace tessera::linear_distillation {
namespace {

using loss::streaming_type;
using loss::StreamingRows;

streaming::LinearShape shape_of(const Request& request, int threads) {
  auto shape = linear::walk_shape(request.student, threads);
  // Without what was saved of the divergence its sums are taken again.
  const bool known = static_cast<bool>(request.inputs.divergence_statistics);
  shape.values = !known;
  shape.teacher.given = true;
  shape.teacher.h = teacher_hidden(request);
  shape.teacher.mixes = !known && effective_divergence(request.options) == Divergence::jsd;
  return shape;
}

std::int64_t table_bytes(const Request& request) {
  streaming::Arena sums(nullptr);
  sums.take<streaming::DistillSums>(request.loss.b);
  const auto& in = request.inputs;
  return StreamingRows::bytes(request.loss) + 4 * StreamingRows::offsets_bytes(request.loss) +
         sums.used() + loss::dense_f32_bytes(in.bias, request.loss.v) +
         loss::dense_f32_bytes(in.teacher_bias, request.loss.v) + dispatch::workspace_slack;
}

/// The rows that were saved, in place of a look at all logits.
void read_saved(const loss::StreamingCall& call, const View& view, streaming::DistillSums* sums) {
  const std::int64_t* offsets = call.rows.offsets(view, call.arena);
  const auto* words = static_cast<const float*>(view.host_data());
  for (std::int64_t i = 0; i < call.rows.counted(); ++i) {
    Statistics row{};
    for (std::size_t field = 0; field < row.size(); ++field) {
      row[field] = words[offsets[i] + static_cast<std::int64_t>(field) * view.strides().back()];
    }
    sums[i] = saved(row);
  }
}

streaming::Teacher teacher_of(const loss::StreamingCall& call, const Request& request) {
  const auto& in = request.inputs;
  const Options& o = request.options;
  streaming::Teacher t;
  if (in.teacher_logits) {
    t.logits = in.teacher_logits.host_data();
    t.logits_type = streaming_type(in.teacher_logits.dtype());
    t.logits_offsets = call.rows.offsets(in.teacher_logits, call.arena);
    t.logits_stride = in.teacher_logits.strides().back();
  } else {
    linear::set_layer(t, in.teacher_x, in.teacher_w, in.teacher_bias, call);
  }
  t.scale = o.teacher_logit_scale;
  t.cap = o.teacher_logit_soft_cap;
  t.terms = terms_of(o);
  t.sums = call.arena.take<streaming::DistillSums>(call.request.b);
  if (in.divergence_statistics) read_saved(call, in.divergence_statistics, t.sums);
  return t;
}

/// Rows of f32 words: those that count, NaN where the target is none, and the others as if they had
/// seen no column.
template <std::size_t words, class Row>
void write_rows(const loss::StreamingCall& call, const MutableView& view,
                const std::array<float, words>& none, const Row& row) {
  if (!view) return;
  const arguments::RowOffsets offsets(view, view.rank() - 1);
  auto* data = static_cast<float*>(view.host_data());
  const auto put = [&](std::int64_t at, const std::array<float, words>& fields) {
    for (std::size_t i = 0; i < words; ++i) {
      data[offsets(at) + static_cast<std::int64_t>(i) * view.strides().back()] = fields[i];
    }
  };
  for (std::int64_t i = 0; i < call.request.b; ++i) put(i, none);
  std::array<float, words> bad;
  bad.fill(std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t i = 0; i < call.rows.counted(); ++i) {
    put(call.rows.rows()[i], i < call.rows.labelled() ? row(i) : bad);
  }
}

/// What the teacher adds to each row's loss, and the outputs that are its own.
void write_values(const loss::StreamingCall& call, const Request& request,
                  const streaming::Teacher& teacher) {
  const auto& terms = teacher.terms;
  const double t = static_cast<double>(terms.temperature);
  const double share = terms.alpha * t * t;
  const auto divergence = [&](std::int64_t i) {
    return streaming::divergence_of(terms, teacher.sums[i]);
  };
  for (std::int64_t i = 0; i < call.rows.counted(); ++i) {
    // A share of 0 is absent, however far the teacher is.
    call.rows.terms()[i] = share == 0.0 ? 0.0 : share * divergence(i);
  }
  write_rows<6>(call, request.loss.own_partial, {no_maximum, no_maximum}, [&](std::int64_t i) {
    return std::bit_cast<std::array<float, 6>>(partial_of(teacher.sums[i]));
  });
  const auto& out = request.outputs;
  write_rows<5>(call, out.divergence_statistics, no_statistics,
                [&](std::int64_t i) { return statistics_of(terms, teacher.sums[i]); });
  call.rows.write_rows(out.divergence, divergence);
  call.rows.write_rows(out.target_entropy, [&](std::int64_t i) {
    return streaming::target_entropy_of(teacher.sums[i]);
  });
}

class EigenWalk final : public linear::Walk {
  streaming::LinearShape shape(const loss::LossRequest& request, int threads) const override {
    return shape_of(request_of(request), threads);
  }

  std::int64_t table_bytes(const loss::LossRequest& request) const override {
    return linear_distillation::table_bytes(request_of(request));
  }

  void walk(const loss::StreamingCall& call, const Plan& plan) const override {
    const auto r = request_of(call.request);
    streaming::LinearProblem p;
    call.rows.describe(p);
    linear::set_layer(p, r.inputs.x, r.inputs.w, r.inputs.bias, call);
    if (has_gradients(r.loss.pass)) linear::set_gradients(p, r.student, call);
    const streaming::Teacher teacher = teacher_of(call, r);
    p.teacher = &teacher;
    p.keeps_sums = !r.loss.wants_values();
    streaming::run_linear(p, plan, call.environment, call.scratch());
    if (r.loss.wants_values()) write_values(call, r, teacher);
  }

  /// Each sweep over the vocabulary forms the logits anew.
  CostEstimate cost_of(const loss::LossRequest& request, const Plan& plan) const override {
    return linear_distillation::cost(request_of(request), plan.sweep_count);
  }
};

}  // namespace

std::unique_ptr<dispatch::Implementation> eigen_implementation() {
  return std::make_unique<EigenWalk>();
}

}  // namespace tessera::linear_distillation
