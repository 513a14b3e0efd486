// SPDX-License-Identifier: Apache-2.0
#include "host/linear_distillation/opencl/run.hpp"

#include <algorithm>

#include "host/opencl/specialise.hpp"

namespace tessera::linear_distillation {

using engines::ceil_div;
using linear::narrow;
using opencl::Scratch;

Run::Run(opencl::Call& call, const Request& request, const Prepared& prepared)
    : linear::Run(call, request.student, *prepared.engine, prepared.schedule,
                  prepared.programs.student),
      own_(request),
      own_programs_(prepared.programs),
      term_ld_(linear::all_rows(*prepared.engine, prepared.schedule)) {}

void Run::bind() {
  linear::Run::bind();
  const auto regions = linear::regions_of(request_, engine_, schedule_);
  const auto take = [&](std::int64_t words, const char* purpose) {
    return words > 0 ? call_.scratch(words, purpose) : Scratch{};
  };
  packed_teacher_ = take(regions.packed_teacher, "packed rows of teacher_x");
  teacher_logits_ = take(regions.teacher_logits, "logits of the teacher");
  sums_ = take(regions.teacher_sums, "sums over both logits");
  terms_ = take(regions.teacher_rows, "terms of rows");

  const auto& in = own_.inputs;
  if (in.teacher_logits) {
    teacher_logits_given_ = call_.read(in.teacher_logits, "teacher_logits");
  } else {
    teacher_x_ = engines::bind_segments(call_, in.teacher_x, own_.loss.b, "teacher_x",
                                        engines::Access::read);
    if (in.teacher_bias) teacher_bias_ = call_.read(in.teacher_bias, "teacher_bias");
    if (schedule_.v_piece >= own_.loss.v) teacher_w_ = call_.read(in.teacher_w, "teacher_w");
  }
  const auto& out = own_.outputs;
  if (out.divergence) divergence_ = call_.write(out.divergence, "divergence", false);
  if (out.target_entropy) {
    target_entropy_ = call_.write(out.target_entropy, "target_entropy", false);
  }
  if (out.divergence_statistics) {
    statistics_ = call_.write(out.divergence_statistics, "divergence_statistics", false);
  }
  if (schedule_.teacher.is_known) {
    statistics_ = call_.read(in.divergence_statistics, "divergence_statistics");
  }
  if (own_.loss.own_partial) partial_ = call_.write(own_.loss.own_partial, "own_partial", false);
}

const opencl::Binding& Run::teacher_w(Piece& piece) {
  if (teacher_w_.memory) return teacher_w_;  // all of it
  if (!piece.teacher_w.memory) {
    piece.teacher_w = call_.read(
        linear::columns_of(own_.inputs.teacher_w, piece.begin, piece.count), "teacher_w");
  }
  return piece.teacher_w;
}

/// In grad_w the teacher's rows follow the student's; else each has a region.
Run::Both Run::both(const Chunk& chunk, const Piece& piece, std::int64_t begin,
                    std::int64_t count) const {
  if (schedule_.keeps_logits) {
    return {kept(chunk, piece, begin), kept(chunk, piece, begin, term_ld_, teacher_logits_)};
  }
  const auto range = [&](Scratch memory) {
    memory.offset *= 4;
    return Kept{memory, 2 * engine_.operand_words(schedule_.dz, count) * tile_n_, 2 * tile_n_};
  };
  return {range(dz_), range(teacher_logits_)};
}

void Run::pack_teacher(const Chunk& chunk) {
  if (own_.inputs.teacher_logits || packed_teacher_of_ == chunk.begin) return;
  packed_teacher_of_ = chunk.begin;
  const std::int64_t h = schedule_.teacher.h;
  for (const auto& segment : teacher_x_) {
    call_.launch(
        own_programs_.pack_teacher, engine_.pack_range(h, chunk.panels),
        kernels::pack_rows_memory{
            .x = segment.bound, .info = rows_.info(), .rows = rows_.rows(), .out = packed_teacher_},
        {.x = row_segment(segment),
         .chunk_begin = chunk.begin,
         .h_count = h,
         .panels = chunk.panels});
  }
}

void Run::form_both(const Chunk& chunk, Piece& piece, const Columns& columns,
                    const opencl::Specialisation& student, const Both& logits) {
  const Options& o = own_.options;
  if (own_.inputs.teacher_logits) {
    const auto& given = teacher_logits_given_;
    call_.launch(own_programs_.take_logits, engine_.copy_range(columns.count, chunk.panels),
                 kernels::take_logits_memory{.logits = given,
                                             .info = rows_.info(),
                                             .rows = rows_.rows(),
                                             .teacher = logits.teacher.memory},
                 {.geometry = engines::geometry_of(given, given.extents.rank() - 1),
                  .v_stride = given.strides.back(),
                  .teacher = logits.teacher.sizes(),
                  .chunk_begin = chunk.begin,
                  .v_base = columns.begin,
                  .v_count = columns.count,
                  .panels = chunk.panels,
                  .scale = o.teacher_logit_scale,
                  .cap = o.teacher_logit_soft_cap});
  } else {
    pack_teacher(chunk);
    opencl::Binding w = teacher_w(piece);
    w.offset += (columns.begin - piece.begin) * w.strides[1];
    form({.program = own_programs_.teacher,
          .w = w,
          .bias = teacher_bias_,
          .packed = packed_teacher_,
          .h = schedule_.teacher.h,
          .sizes = {teacher_bias_.memory ? teacher_bias_.strides[0] : std::int64_t{1}, 1,
                    o.teacher_logit_scale, o.teacher_logit_soft_cap},
          .cut = schedule_.teacher_cut},
         chunk, columns, logits.teacher);
  }
  form(own_layer(student, piece, columns.begin), chunk, columns, logits.student);
}

template <class Use>
std::int64_t Run::for_ranges(const Chunk& chunk, const Use& use) {
  const std::int64_t block = schedule_.look_block;
  const std::int64_t range = std::max<std::int64_t>(schedule_.looked_at(), 1);
  std::int64_t first_slice = 0;
  for (auto& piece : pieces()) {
    bind_piece(piece, schedule_.logits_in_grad_w);
    const std::int64_t end = piece.begin + piece.count;
    for (std::int64_t begin = piece.begin; begin < end; begin += range) {
      const std::int64_t count = std::min(range, end - begin);
      use(piece, Columns{begin, count, end - begin, block, first_slice},
          both(chunk, piece, begin, count));
      first_slice += ceil_div(count, block);
    }
  }
  return first_slice;
}

template <class Pointers>
void Run::look(const Chunk& chunk, const Columns& columns, const Both& logits) {
  call_.launch(own_programs_.sums, engine_.panel_range(ceil_div(columns.count, columns.block)),
               Pointers{.info = rows_.info(),
                        .kept = logits.student.memory,
                        .teacher = logits.teacher.memory,
                        .terms = terms_,
                        .sums = sums_},
               {.kept = logits.student.sizes(),
                .teacher = logits.teacher.sizes(),
                .chunk_begin = chunk.begin,
                .v_count = columns.count,
                .v_block = columns.block,
                .term_ld = term_ld_,
                .panels = narrow(chunk.panels),
                .first_slice = narrow(columns.first_slice),
                .ld = narrow(chunk.rows),
                .inverse_temperature = 1.0f / own_.options.temperature,
                .beta = own_.options.beta,
                .unused = 0});
}

/// Where the rows of those lie that are given.
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
void Run::merge(const Chunk& chunk, std::int64_t slices) {
  const Options& o = own_.options;
  call_.launch(own_programs_.rows, opencl::per_element(chunk.rows),
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
                .chunk_begin = chunk.begin,
                .term_ld = term_ld_,
                .slices = narrow(slices),
                .ld = narrow(chunk.rows),
                .temperature = o.temperature,
                .alpha = o.alpha,
                .beta = o.beta,
                .unused = 0});
}

/// The own outputs of rows that do not count.
void Run::exclude() {
  if (!writes_own_rows(own_)) return;
  call_.launch(own_programs_.rows, opencl::per_element(own_.loss.b),
               kernels::excluded_divergence_memory{.labels = rows_.labels(),
                                                   .divergence = divergence_,
                                                   .target_entropy = target_entropy_,
                                                   .statistics = statistics_,
                                                   .partial = partial_},
               {.own = own_rows(), .rows = own_.loss.b});
}

void Run::take_terms() {
  if (has_terms_ || !schedule_.teacher.is_known) return;
  has_terms_ = true;
  call_.launch(own_programs_.rows, opencl::per_element(term_ld_),
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

void Run::forward(const Chunk& chunk) {
  const auto& student = own_.loss.wants_values() ? programs_.forward : own_programs_.again;
  const std::int64_t slices =
      for_ranges(chunk, [&](Piece& piece, const Columns& columns, const Both& logits) {
        form_both(chunk, piece, columns, student, logits);
        if (!schedule_.teacher.is_known) {
          look<kernels::divergence_sums_memory>(chunk, columns, logits);
        }
      });
  if (schedule_.teacher.is_known) return;
  merge<kernels::merge_divergence_memory>(chunk, slices);
  if (schedule_.teacher.looks_twice) {
    for_ranges(chunk, [&](Piece& piece, const Columns& columns, const Both& logits) {
      if (!schedule_.keeps_logits) {
        form_both(chunk, piece, columns, own_programs_.again, logits);
      }
      look<kernels::mixture_sums_memory>(chunk, columns, logits);
    });
    merge<kernels::merge_mixture_memory>(chunk, slices);
  }
  if (chunk.begin == 0) exclude();
  if (own_.loss.wants_values()) rows_.merge(stats_, slices, chunk.rows, chunk.begin);
}

void Run::gradient(const Chunk& chunk, Piece& piece, std::int64_t begin, std::int64_t count,
                   const Dz& dz) {
  take_terms();
  const Both logits = both(chunk, piece, begin, count);
  if (!schedule_.keeps_logits) {
    form_both(chunk, piece, even_slices(piece, begin, count), own_programs_.again, logits);
  }
  const std::int64_t columns = engine_.panel_rows(count);
  call_.launch(own_programs_.gradient, engine_.panel_range(ceil_div(count, columns), chunk.panels),
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
                .chunk_begin = chunk.begin,
                .v_base = begin,
                .v_count = count,
                .v_block = columns,
                .dz_columns = dz.columns,
                .term_ld = term_ld_,
                .panels = narrow(chunk.panels),
                .ld = narrow(chunk.rows),
                .inverse_temperature = 1.0f / own_.options.temperature,
                .beta = own_.options.beta,
                .targets = rows_.target_sizes()});
}

}  // namespace tessera::linear_distillation
