// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "host/linear/opencl/run.hpp"
#include "host/loss/targets.hpp"
#include "host/opencl/specialise.hpp"

// Each kernel of a call, with its arguments.
namespace tessera::linear {

using engines::ceil_div;
using opencl::Binding;
using opencl::Scratch;

namespace {

std::int64_t filter_tiles(std::int64_t columns) { return ceil_div(columns, filter_columns); }

}  // namespace

kernels::logit_sizes Run::logit_sizes() const {
  const auto& o = request_.loss.options;
  return {bias_stride_, rows_.class_stride(), o.logit_scale, o.logit_soft_cap};
}

/// w as operand A of logits, [V][H], or transposed. `readable`: rows that may be loaded.
kernels::matrix_sizes Run::w_sizes(const Binding& w, bool transposed, std::int64_t readable) {
  const auto h = w.strides[0];
  const auto v = w.strides[1];
  return {transposed ? h : v, transposed ? v : h, readable};
}

kernels::row_segment Run::row_segment(const engines::Segment& segment) {
  return {segment.geometry, segment.stride, segment.begin, segment.end};
}

void Run::pack(const Chunk& chunk, bool columns) {
  columns = columns && !packs_once(request_, engine_, schedule_);
  auto& packed = columns ? packed_columns_of_ : packed_rows_of_;
  if (packed == chunk.begin) return;
  if (schedule_.keeps_logits) packed_rows_of_ = packed_columns_of_ = -1;  // one region for both
  packed = chunk.begin;
  for (const auto& segment : x_segments_) {
    if (columns) {
      Binding x = segment.bound;
      x.offset += h_begin_ * segment.stride;
      call_.launch(
          programs_.pack_columns,
          engine_.columns_range(ceil_div(ceil_div(h_count_, tile_n_), panel_step), chunk.rows),
          kernels::pack_columns_memory{
              .x = x, .info = rows_.info(), .rows = rows_.rows(), .out = packed_columns_},
          {.x = row_segment(segment),
           .chunk_begin = chunk.begin,
           .h_count = h_count_,
           .row_count = chunk.rows});
    } else {
      call_.launch(
          programs_.pack_rows, engine_.pack_range(hidden(request_), chunk.panels),
          kernels::pack_rows_memory{
              .x = segment.bound, .info = rows_.info(), .rows = rows_.rows(), .out = packed_rows_},
          {.x = row_segment(segment),
           .chunk_begin = chunk.begin,
           .h_count = hidden(request_),
           .panels = chunk.panels});
    }
  }
}

void Run::coefficients(const Chunk& chunk) {
  if (coefficients_of_ == chunk.begin) return;
  coefficients_of_ = chunk.begin;
  rows_.coefficients(coefficients_, chunk.rows, chunk.begin);
  if (schedule_.dz.type != DType::f16) return;
  constexpr std::size_t items = 128;  // FIT_ITEMS
  call_.launch(
      programs_.fit_f16, {{items, 1, 1}, {items, 1, 1}},
      kernels::fit_f16_memory{.coefficients = coefficients_, .scale = scale_of(chunk)},
      {.logit_scale = std::abs(request_.loss.options.logit_scale), .ld = narrow(chunk.rows)});
}

Scratch Run::scale_of(const Chunk& chunk) const {
  if (schedule_.dz.type != DType::f16) return {};
  Scratch scale = coefficients_;
  scale.offset += 5 * schedule_.gradient_rows + chunk.begin / chunk.rows;
  return scale;
}

Run::Layer Run::own_layer(const opencl::Specialisation& program, const Piece& piece,
                          std::int64_t begin) const {
  Binding w = piece.w;
  w.offset += (begin - piece.begin) * w.strides[1];
  return {.program = program,
          .w = w,
          .bias = bias_,
          .packed = packed_rows_,
          .h = hidden(request_),
          .sizes = logit_sizes(),
          .cut = schedule_.logits_cut};
}

Run::Columns Run::even_slices(const Piece& piece, std::int64_t begin, std::int64_t count) const {
  return {.begin = begin,
          .count = count,
          .readable = piece.begin + piece.count - begin,
          .block = std::min(schedule_.blocks.v_block_size,
                            even_block(request_, engine_, schedule_, count))};
}

/// Logits of a chunk against columns of the vocabulary, and their statistics where the program
/// makes some.
void Run::form(const Layer& layer, const Chunk& chunk, const Columns& columns, const Kept& logits) {
  multiply(layer.program,
           kernels::forward_memory{.w = layer.w,
                                   .bias = layer.bias,
                                   .class_weight = rows_.class_weight(),
                                   .x = layer.packed,
                                   .labels = rows_.compact_labels(),
                                   .info = rows_.info(),
                                   .stats = stats_,
                                   .kept = logits.memory,
                                   .values = rows_.values(),
                                   .targets = rows_.targets(),
                                   .scratch = groups_},
           {.w = w_sizes(layer.w, false, columns.readable),
            .logit = layer.sizes,
            .kept = logits.sizes(),
            .chunk_begin = chunk.begin,
            .v_base = columns.begin,
            .v_count = columns.count,
            .v_block = columns.block,
            .h_count = narrow(layer.h),
            .panels = narrow(chunk.panels),
            .first_slice = narrow(columns.first_slice),
            .ld = narrow(chunk.rows),
            .targets = rows_.target_sizes()},
           layer.cut, ceil_div(columns.count, columns.block), chunk.panels);
}

/// The tiles of the range that count, where gradients are filtered.
void Run::mark(const Chunk& chunk, std::int64_t count, const Dz& dz) {
  if (!filters_gradients(request_)) return;
  const std::int64_t tiles = filter_tiles(count);
  const float eps =
      request_.execution.gradient_filter_eps * std::abs(request_.loss.options.logit_scale);
  call_.launch(
      programs_.filter, engine_.panel_range(tiles),
      kernels::mark_memory{.dz = dz.memory, .coefficients = coefficients_, .counts = filter_},
      {.dz_columns = dz.columns,
       .v_count = count,
       .panels = narrow(chunk.panels),
       .ld = narrow(chunk.rows),
       .eps = eps,
       .tiles = narrow(tiles)});
}

/// Parts of m rows of a sum that has `most` at most: not more than scratch was taken for.
std::int64_t Run::parts_of(const engines::Cut& cut, std::int64_t m, std::int64_t most) const {
  return std::min(engine_.parts(m, cut, schedule_.shrink),
                  engine_.parts(most, cut, schedule_.shrink));
}

void Run::accumulate_w(const Chunk& chunk, const Piece& piece, std::int64_t begin,
                       std::int64_t count, const Dz& dz) {
  const auto& cut = schedule_.grad_w_cut;
  const std::int64_t panels = ceil_div(h_count_, tile_n_);
  Binding out = piece.grad_w;
  std::int64_t h_stride = 1;
  std::int64_t v_stride = hidden(request_);
  bool add = chunk.begin > 0, streams = false;
  if (schedule_.grad_w == Schedule::GradW::direct) {
    h_stride = out.strides[0];
    v_stride = out.strides[1];
    out.offset += (begin - piece.begin) * v_stride + h_begin_ * h_stride;
    add = add || request_.gradients.accumulate.has(Accumulate::grad_w);
    streams = schedule_.streams_grad_w;
  } else {
    out = sums_w_;
    if (schedule_.grad_w == Schedule::GradW::full) out.offset += begin * hidden(request_);
  }
  multiply(programs_.grad_w,
           kernels::grad_w_memory{.dz = dz.memory,
                                  .x = packed_columns_,
                                  .info = rows_.info(),
                                  .out = out,
                                  .counts = filter_,
                                  .scale = scale_of(chunk),
                                  .scratch = groups_},
           {.dz_columns = dz.columns,
            .v_count = count,
            .chunk_begin = chunk.begin,
            .h_stride = h_stride,
            .v_stride = v_stride,
            .row_count = narrow(chunk.rows),
            .h_count = narrow(h_count_),
            .panels = narrow(panels),
            .store = add       ? STORE_ADD
                     : streams ? STORE_STREAMED
                               : STORE_NEW,
            .filter_tiles = narrow(filter_tiles(count)),
            .unused = 0},
           cut, parts_of(cut, count, schedule_.v_range), panels);
}

void Run::accumulate_x(const Chunk& chunk, const Piece& piece, std::int64_t begin,
                       std::int64_t count, const Dz& dz, bool first) {
  const auto& cut = schedule_.grad_x_cut;
  Binding w = piece.w;
  w.offset += (begin - piece.begin) * w.strides[1] + h_begin_ * w.strides[0];
  multiply(programs_.grad_x,
           kernels::grad_x_memory{.w = w,
                                  .dz = dz.memory,
                                  .info = rows_.info(),
                                  .sums = sums_x(chunk),
                                  .counts = filter_,
                                  .scratch = groups_},
           {.w = w_sizes(w, true, h_count_),
            .dz_columns = dz.columns,
            .chunk_begin = chunk.begin,
            .v_part = schedule_.x_part_columns(engine_, std::min(schedule_.v_range, piece.count)),
            .sums_part = sums_x_words(schedule_),
            .v_count = narrow(count),
            .h_count = narrow(h_count_),
            .h_padded = narrow(schedule_.h_padded),
            .panels = narrow(chunk.panels),
            .first = first,
            .filter_tiles = narrow(filter_tiles(count))},
           cut, parts_of(cut, h_count_, schedule_.h_range), chunk.panels, false, schedule_.x_parts);
}

void Run::sum_bias(const Chunk& chunk, std::int64_t begin, std::int64_t count, const Dz& dz) {
  Scratch sums = sums_bias_;
  sums.offset += begin;
  if (sums_bias_on_the_way(request_, schedule_)) {
    call_.launch(programs_.sum_bias, opencl::per_element(count),
                 kernels::sum_bias_lanes_memory{.bias_lanes = bias_lanes_, .sums = sums},
                 {.v_count = count, .first = chunk.begin == 0, .unused = 0});
    return;
  }
  const std::int64_t columns = engine_.panel_rows(count);
  call_.launch(programs_.sum_bias, engine_.panel_range(ceil_div(count, columns)),
               kernels::sum_bias_memory{.dz = dz.memory, .sums = sums},
               {.dz_columns = dz.columns,
                .v_count = count,
                .v_block = columns,
                .panels = narrow(chunk.panels),
                .first = chunk.begin == 0});
}

void Run::write_x(const Chunk& chunk) {
  const std::int32_t add = request_.gradients.accumulate.has(Accumulate::grad_x);
  // Targets in host memory are checked and counted before anything runs.
  const bool every_row_counts = loss::is_known(request_.loss) && schedule_.rows == request_.loss.b;
  for (const auto& segment : grad_x_segments_) {
    Binding out = segment.bound;
    out.offset += h_begin_ * segment.stride;
    call_.launch(programs_.write_x, engine_.copy_range(h_count_, chunk.rows),
                 kernels::write_rows_memory{.sums = sums_x(chunk),
                                            .info = rows_.info(),
                                            .rows = rows_.rows(),
                                            .scale = scale_of(chunk),
                                            .out = out},
                 {.out = row_segment(segment),
                  .chunk_begin = chunk.begin,
                  .h_count = h_count_,
                  .row_count = chunk.rows,
                  .sums_part = sums_x_words(schedule_),
                  .h_padded = narrow(schedule_.h_padded),
                  .add = add,
                  .parts = narrow(schedule_.x_parts),
                  .unused = 0});
    if (chunk.begin > 0 || segment.end == segment.begin || every_row_counts) continue;
    call_.launch(programs_.write_x, engine_.copy_range(h_count_, segment.end - segment.begin),
                 kernels::write_excluded_memory{.labels = rows_.labels(), .out = out},
                 {.out = row_segment(segment), .h_count = h_count_, .add = add, .unused = 0});
  }
}

void Run::write_w(const Piece& piece, std::int64_t begin, std::int64_t count, const Scratch& sums) {
  Binding out = piece.grad_w;
  out.offset += (begin - piece.begin) * out.strides[1];
  const bool v_inner = layout_of(request_.gradients.grad_w) == layout_hv;
  call_.launch(programs_.write_w,
               v_inner ? opencl::per_element(count, hidden(request_))
                       : opencl::per_element(hidden(request_), count),
               kernels::write_w_memory{.sums = sums, .out = out},
               {.sums_v_stride = hidden(request_),
                .h_stride = out.strides[0],
                .v_stride = out.strides[1],
                .h_count = hidden(request_),
                .v_count = count,
                .add = request_.gradients.accumulate.has(Accumulate::grad_w),
                .unused = 0});
}

void Run::write_bias() {
  const auto& g = request_.gradients;
  if (!g.grad_bias) return;
  call_.launch(programs_.write_bias, opencl::per_element(request_.loss.v, 1),
               kernels::write_w_memory{.sums = sums_bias_, .out = grad_bias_},
               {.sums_v_stride = 1,
                .h_stride = 0,
                .v_stride = grad_bias_.strides[0],
                .h_count = 1,
                .v_count = request_.loss.v,
                .add = g.accumulate.has(Accumulate::grad_bias),
                .unused = 0});
}

}  // namespace tessera::linear
