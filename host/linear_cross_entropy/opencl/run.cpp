// SPDX-License-Identifier: Apache-2.0
#include "host/linear_cross_entropy/opencl/run.hpp"

#include "host/linear_cross_entropy/request.hpp"

namespace tessera::linear_cross_entropy {

using engines::ceil_div;
using linear::narrow;
using opencl::Scratch;
using schedule::Phase;

std::pair<opencl::Specialisation, const char*> Problem::program(const schedule::Step& step,
                                                                const linear::Schedule& s) const {
  if (step.kernel != linear::gradient) return linear::Problem::program(step, s);
  const bool keeps = s.keeps_results();
  opencl::Specialisation made{
      keeps ? "linear_cross_entropy/gradient_of_kept.cl" : "linear_cross_entropy/gradient.cl",
      engine().options() + engine().options(logits_product(s), "LOGITS") +
          linear::layer_options(r_.inputs.w, r_.inputs.bias, r_.loss.options.logit_soft_cap) +
          linear::row_options(r_) + linear::kept_options(*this, s) + linear::dz_options(*this, s),
      engine().folder()};
  if (!keeps) made.patched_items = engine().patched_items();
  return {std::move(made), keeps ? "gradient_of_kept" : "gradient"};
}

void Problem::add_look(linear::StepList& list, const schedule::Steps::Kind& range) const {
  const double kept = list.s.keeps_results() ? list.logits_bytes(range, list.s.at.rows) : 0.0;
  list.form(linear::forward, "forward", Phase::look, range, linear::of_logits, kept);
}

void Problem::add_gradient(linear::StepList& list, const schedule::Steps::Kind& range,
                           double dz_bytes) const {
  if (list.s.keeps_results()) {
    list.copy(linear::gradient, Phase::main,
              schedule::of_rows | schedule::of_columns | schedule::of_depth,
              list.logits_bytes(range, held_rows(list.s)) + dz_bytes, range);
  } else {
    list.form(linear::gradient, "gradient", Phase::main, range, linear::of_logits, dz_bytes);
  }
}

CostEstimate Problem::cost(const linear::Schedule& s) const {
  // With the vocabulary outside, the values of all rows are known before the first gradient.
  const bool twice = s.order == schedule::Order::columns && !s.keeps_results();
  return linear_cross_entropy::cost(r_, {s.blocks.n, s.blocks.k, s.blocks.m},
                                    twice && r_.loss.pass == Pass::value_and_grad ? 2 : 1);
}

void Problem::enqueue(opencl::Call& call, const linear::Schedule& s,
                      const linear::Programs& programs) const {
  Run(call, *this, s, programs).enqueue();
}

linear::Request Problem::asked(const operators::Request& request) { return request_of(request); }

dispatch::Table opencl_implementations() {
  return operators::opencl_rows(std::make_shared<linear::OpenclOf<Problem>>());
}

void Run::launch(const Step& step, const Turn& turn) {
  switch (step.kernel) {
    case linear::forward:
      return form(step, turn, own_layer(turn), kept(turn.rows, turn, 0, dz_));
    case linear::gradient:
      return schedule_.keeps_results() ? gradient_of_kept(turn) : gradient(step, turn);
    default:
      return linear::Run::launch(step, turn);
  }
}

void Run::gradient(const Step& step, const Turn& turn) {
  const Layer layer = own_layer(turn);
  const Dz dz = dz_of(turn);
  // dz does not depend on slices: as many as there are groups.
  multiply(step,
           kernels::gradient_memory{.w = layer.w,
                                    .bias = bias_,
                                    .class_weight = rows_.class_weight(),
                                    .x = packed_rows_,
                                    .labels = rows_.compact_labels(),
                                    .info = rows_.info(),
                                    .coefficients = coefficients_,
                                    .dz = dz.memory,
                                    .values = rows_.values(),
                                    .targets = rows_.targets(),
                                    .bias_lanes = bias_lanes_,
                                    .scratch = groups_},
           {.w = w_sizes(layer.w, false, readable(turn)),
            .logit = logit_sizes(),
            .chunk_begin = turn.rows.begin,
            .v_base = turn.columns.begin,
            .v_count = turn.columns.count,
            .v_block = step.order.slice,
            .dz_columns = dz.columns,
            .h_count = narrow(hidden(request_)),
            .panels = narrow(panels(turn.rows)),
            .ld = narrow(turn.rows.count),
            .unused = 0,
            .targets = rows_.target_sizes()},
           step.grid.parts, panels(turn.rows), problem_.sums_bias_on_the_way(schedule_));
}

void Run::gradient_of_kept(const Turn& turn) {
  const std::int64_t count = turn.columns.count, columns = engine_.panel_rows(count);
  const Dz dz = dz_of(turn);
  for (const Span& part : schedule::divided(turn.rows, problem_.rows_within(schedule_))) {
    const Kept logits = kept(part, turn, 0, dz_);
    const std::int64_t first = part.begin - turn.rows.begin;
    Scratch coefficients = coefficients_;
    coefficients.offset += first;
    Scratch out = dz.memory;
    out.offset += first * dz.columns;
    call_.launch(programs_[linear::gradient],
                 engine_.panel_range(ceil_div(count, columns), panels(part)),
                 kernels::gradient_of_kept_memory{.class_weight = rows_.class_weight(),
                                                  .labels = rows_.compact_labels(),
                                                  .info = rows_.info(),
                                                  .kept = logits.memory,
                                                  .coefficients = coefficients,
                                                  .dz = out,
                                                  .values = rows_.values(),
                                                  .targets = rows_.targets(),
                                                  .bias_lanes = bias_lanes_},
                 {.logit = logit_sizes(),
                  .kept = logits.sizes(),
                  .chunk_begin = part.begin,
                  .v_base = turn.columns.begin,
                  .v_count = count,
                  .v_block = columns,
                  .dz_columns = dz.columns,
                  .panels = narrow(panels(part)),
                  .ld = narrow(turn.rows.count),
                  .first = first == 0,
                  .unused = 0,
                  .targets = rows_.target_sizes()});
  }
}

}  // namespace tessera::linear_cross_entropy
