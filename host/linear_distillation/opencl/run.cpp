// SPDX-License-Identifier: Apache-2.0
#include "host/linear_distillation/opencl/run.hpp"

#include "host/opencl/specialise.hpp"

namespace tessera::linear_distillation {

using engines::ceil_div;
using linear::narrow;
using opencl::Scratch;

Run::Run(opencl::Call& call, const Problem& problem, const Schedule& s,
         const linear::Programs& programs)
    : linear::Run(call, problem, s, programs), own_(problem.own()), term_ld_(problem.all_rows(s)) {}

void Problem::enqueue(opencl::Call& call, const Schedule& s,
                      const linear::Programs& programs) const {
  Run(call, *this, s, programs).enqueue();
}

void Run::bind() {
  linear::Run::bind();
  teacher_logits_ = arena_[region::logits];
  sums_ = arena_[region::sums];
  terms_ = arena_[region::terms];
  const auto& in = own_.inputs;
  if (in.teacher_logits) {
    teacher_logits_given_ = call_.read(in.teacher_logits, "teacher_logits");
  } else {
    teacher_x_ = engines::bind_segments(call_, in.teacher_x, own_.loss.b, "teacher_x",
                                        engines::Access::read);
    if (in.teacher_bias) teacher_bias_ = call_.read(in.teacher_bias, "teacher_bias");
    if (schedule_.piece >= own_.loss.v) teacher_w_ = call_.read(in.teacher_w, "teacher_w");
  }
  const auto& out = own_.outputs;
  if (out.divergence) divergence_ = call_.write(out.divergence, "divergence", false);
  if (out.target_entropy) {
    target_entropy_ = call_.write(out.target_entropy, "target_entropy", false);
  }
  if (out.divergence_statistics) {
    statistics_ = call_.write(out.divergence_statistics, "divergence_statistics", false);
  }
  if (in.divergence_statistics) {
    statistics_ = call_.read(in.divergence_statistics, "divergence_statistics");
  }
  if (own_.loss.own_partial) partial_ = call_.write(own_.loss.own_partial, "own_partial", false);
}

void Run::enter(const Turn& turn) {
  linear::Run::enter(turn);
  if (turn.piece.count == own_.loss.v || turn.piece.begin == piece_) return;
  piece_ = turn.piece.begin;
  teacher_w_ = {};  // released with the student's; bound where logits are formed
}

void Run::launch(const Step& step, const Turn& turn) {
  switch (step.kernel) {
    case linear::forward:
    case again:
      return form(step, turn, own_layer(turn), both(turn).student);
    case teacher:
      return form_teacher(step, turn);
    case pack_teacher:
      return pack(step, turn, teacher_x_, arena_[region::packed]);
    case take_logits:
      return bring_logits(turn);
    case divergence_sums:
      return look<kernels::divergence_sums_memory>(step, turn);
    case mixture_sums:
      return look<kernels::mixture_sums_memory>(step, turn);
    case merge_divergence:
      return merge<kernels::merge_divergence_memory>(step, turn);
    case merge_mixture:
      return merge<kernels::merge_mixture_memory>(step, turn);
    case take_terms:
      return restore_terms();
    case excluded_divergence:
      return exclude();
    case linear::gradient:
      return gradient(turn);
    default:
      return linear::Run::launch(step, turn);
  }
}

/// In grad_w the teacher's rows follow the student's; else each has a region.
Run::Both Run::both(const Turn& turn) const {
  if (schedule_.keeps_results()) {
    return {kept(turn.rows, turn, 0, dz_), kept(turn.rows, turn, term_ld_, teacher_logits_)};
  }
  const auto range = [&](Scratch memory) {
    memory.offset *= 4;
    return Kept{memory, 2 * engine_.operand_words(stored_, turn.columns.count) * tile_n_,
                2 * tile_n_};
  };
  return {range(dz_), range(teacher_logits_)};
}

void Run::form_teacher(const Step& step, const Turn& turn) {
  const auto& [phase, rows, piece, columns, depth] = turn;
  if (!teacher_w_.memory) {
    teacher_w_ = call_.read(linear::columns_of(own_.inputs.teacher_w, piece.begin, piece.count),
                            "teacher_w");
  }
  opencl::Binding w = teacher_w_;
  w.offset += (columns.begin - piece.begin) * w.strides[1];
  form(step, turn,
       {.w = w,
        .bias = teacher_bias_,
        .packed = arena_[region::packed],
        .sizes = {teacher_bias_.memory ? teacher_bias_.strides[0] : std::int64_t{1}, 1,
                  own_.options.teacher_logit_scale, own_.options.teacher_logit_soft_cap}},
       both(turn).teacher);
}

void Run::bring_logits(const Turn& turn) {
  const auto& given = teacher_logits_given_;
  const Kept to = both(turn).teacher;
  const std::int64_t panel_count = panels(turn.rows);
  call_.launch(
      programs_[take_logits], engine_.copy_range(turn.columns.count, panel_count),
      kernels::take_logits_memory{
          .logits = given, .info = rows_.info(), .rows = rows_.rows(), .teacher = to.memory},
      {.geometry = engines::geometry_of(given, given.extents.rank() - 1),
       .v_stride = given.strides.back(),
       .teacher = to.sizes(),
       .chunk_begin = turn.rows.begin,
       .v_base = turn.columns.begin,
       .v_count = turn.columns.count,
       .panels = panel_count,
       .scale = own_.options.teacher_logit_scale,
       .cap = own_.options.teacher_logit_soft_cap});
}

template <class Pointers>
void Run::look(const Step& step, const Turn& turn) {
  const Both logits = both(turn);
  const std::int64_t block = schedule_.steps.slice, count = turn.columns.count;
  call_.launch(programs_[step.kernel], engine_.panel_range(ceil_div(count, block)),
               Pointers{.info = rows_.info(),
                        .kept = logits.student.memory,
                        .teacher = logits.teacher.memory,
                        .terms = terms_,
                        .sums = sums_},
               {.kept = logits.student.sizes(),
                .teacher = logits.teacher.sizes(),
                .chunk_begin = turn.rows.begin,
                .v_count = count,
                .v_block = block,
                .term_ld = term_ld_,
                .panels = narrow(panels(turn.rows)),
                .first_slice = narrow(first_slice_),
                .ld = narrow(turn.rows.count),
                .inverse_temperature = 1.0f / own_.options.temperature,
                .beta = own_.options.beta,
                .unused = 0});
}

/// The places of the rows that are given.
kernels::own_rows Run::own_rows() const {
  const auto geometry = [](const opencl::Binding& array, int columns) {
    return array.memory ? engines::geometry_of(array, array.extents.rank() - columns)
                        : opencl::Geometry{};
  };
  return {.divergence = geometry(divergence_, 0),
          .entropy = geometry(target_entropy_, 0),
          .statistics = geometry(statistics_, 1),
          .statistics_column = statistics_.memory ? statistics_.strides.back() : 0};
}

template <class Pointers>
void Run::merge(const Step& step, const Turn& turn) {
  const Options& o = own_.options;
  call_.launch(programs_[step.kernel], opencl::per_element(turn.rows.count),
               Pointers{.sums = sums_,
                        .info = rows_.info(),
                        .rows = rows_.rows(),
                        .values = rows_.values(),
                        .terms = terms_,
                        .divergence = divergence_,
                        .target_entropy = target_entropy_,
                        .statistics = statistics_,
                        .partial = partial_},
               {.own = own_rows(),
                .loss = rows_.loss_sizes(),
                .cotangent = rows_.cotangent_sizes(),
                .chunk_begin = turn.rows.begin,
                .term_ld = term_ld_,
                .slices = narrow(slices_),
                .ld = narrow(turn.rows.count),
                .temperature = o.temperature,
                .alpha = o.alpha,
                .beta = o.beta,
                .unused = 0});
}

/// The own outputs of rows that do not count.
void Run::exclude() {
  call_.launch(programs_[excluded_divergence], opencl::per_element(own_.loss.b),
               kernels::excluded_divergence_memory{.labels = rows_.labels(),
                                                   .divergence = divergence_,
                                                   .target_entropy = target_entropy_,
                                                   .statistics = statistics_,
                                                   .partial = partial_},
               {.own = own_rows(), .rows = own_.loss.b});
}

void Run::restore_terms() {
  call_.launch(programs_[take_terms], opencl::per_element(term_ld_),
               kernels::take_terms_memory{.statistics = statistics_,
                                          .info = rows_.info(),
                                          .rows = rows_.rows(),
                                          .values = rows_.values(),
                                          .terms = terms_},
               {.own = own_rows(),
                .loss = rows_.loss_sizes(),
                .cotangent = rows_.cotangent_sizes(),
                .term_ld = term_ld_,
                .temperature = own_.options.temperature,
                .alpha = own_.options.alpha});
}

void Run::gradient(const Turn& turn) {
  const Both logits = both(turn);
  const Dz dz = dz_of(turn);
  const std::int64_t count = turn.columns.count;
  const std::int64_t columns = engine_.panel_rows(count);
  call_.launch(programs_[linear::gradient],
               engine_.panel_range(ceil_div(count, columns), panels(turn.rows)),
               kernels::distill_gradient_memory{.labels = rows_.compact_labels(),
                                                .info = rows_.info(),
                                                .kept = logits.student.memory,
                                                .teacher = logits.teacher.memory,
                                                .coefficients = coefficients_,
                                                .terms = terms_,
                                                .dz = dz.memory,
                                                .values = rows_.values(),
                                                .targets = rows_.targets(),
                                                .bias_lanes = bias_lanes_},
               {.logit = logit_sizes(),
                .kept = logits.student.sizes(),
                .teacher = logits.teacher.sizes(),
                .chunk_begin = turn.rows.begin,
                .v_base = turn.columns.begin,
                .v_count = count,
                .v_block = columns,
                .dz_columns = dz.columns,
                .term_ld = term_ld_,
                .panels = narrow(panels(turn.rows)),
                .ld = narrow(turn.rows.count),
                .inverse_temperature = 1.0f / own_.options.temperature,
                .beta = own_.options.beta,
                .targets = rows_.target_sizes()});
}

}  // namespace tessera::linear_distillation
