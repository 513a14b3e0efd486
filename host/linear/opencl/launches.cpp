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

void Run::launch(const Step& step, const Turn& turn) {
  switch (step.kernel) {
    case linear::pack_rows:
      return pack(step, turn, x_segments_, packed_rows_);
    case linear::pack_columns:
      return pack_columns(turn);
    case linear::merge:
      if (!request_.loss.wants_values()) return;
      return rows_.merge(stats_, slices_, turn.rows.count, turn.rows.begin);
    case linear::coefficients:
      return rows_.coefficients(coefficients_, turn.rows.count, turn.rows.begin);
    case linear::fit_f16:
      return fit_f16(turn);
    case linear::mark:
      return mark(turn);
    case linear::sum_bias:
      return sum_bias(turn);
    case linear::grad_w:
      return accumulate_w(step, turn);
    case linear::grad_x:
      return accumulate_x(step, turn);
    case linear::write_x:
      return write_x(step, turn);
    case linear::write_excluded:
      return write_excluded(turn);
    case linear::write_w:
      return write_w(turn);
    case linear::write_bias:
      return write_bias();
    default:
      return;
  }
}

kernels::logit_sizes Run::logit_sizes() const {
  const auto& o = request_.loss.options;
  return {bias_.memory ? bias_.strides[0] : std::int64_t{1}, rows_.class_stride(), o.logit_scale,
          o.logit_soft_cap};
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

void Run::pack(const Step& step, const Turn& turn, const std::vector<engines::Segment>& x,
               const Scratch& packed) {
  const std::int64_t depth = product(step).product.k;
  for (const auto& segment : x) {
    call_.launch(programs_[step.kernel], engine_.pack_range(depth, panels(turn.rows)),
                 kernels::pack_rows_memory{
                     .x = segment.bound, .info = rows_.info(), .rows = rows_.rows(), .out = packed},
                 {.x = row_segment(segment),
                  .chunk_begin = turn.rows.begin,
                  .h_count = depth,
                  .panels = panels(turn.rows)});
  }
}

void Run::pack_columns(const Turn& turn) {
  const auto& [phase, rows, piece, columns, depth] = turn;
  const std::int64_t steps = ceil_div(ceil_div(depth.count, tile_n_), panel_step);
  for (const auto& segment : x_segments_) {
    Binding x = segment.bound;
    x.offset += depth.begin * segment.stride;
    call_.launch(programs_[linear::pack_columns], engine_.columns_range(steps, rows.count),
                 kernels::pack_columns_memory{
                     .x = x, .info = rows_.info(), .rows = rows_.rows(), .out = packed_columns_},
                 {.x = row_segment(segment),
                  .chunk_begin = rows.begin,
                  .h_count = depth.count,
                  .row_count = rows.count});
  }
}

void Run::fit_f16(const Turn& turn) {
  constexpr std::size_t items = 128;  // FIT_ITEMS
  call_.launch(
      programs_[linear::fit_f16], {{items, 1, 1}, {items, 1, 1}},
      kernels::fit_f16_memory{.coefficients = coefficients_, .scale = scale()},
      {.logit_scale = std::abs(request_.loss.options.logit_scale), .ld = narrow(turn.rows.count)});
}

Scratch Run::scale() const {
  if (stored_.type != DType::f16) return {};
  Scratch scale = coefficients_;
  scale.offset += 5 * problem_.held_rows(schedule_);
  return scale;
}

Run::Layer Run::own_layer(const Turn& turn) const {
  Binding w = w_;
  w.offset += (turn.columns.begin - turn.piece.begin) * w.strides[1];
  return {.w = w, .bias = bias_, .packed = packed_rows_, .sizes = logit_sizes()};
}

/// Logits of a chunk against columns of the vocabulary, and their statistics where the program
/// makes some.
void Run::form(const Step& step, const Turn& turn, const Layer& layer, const Kept& logits) {
  const auto& [phase, rows, piece, columns, depth] = turn;
  const bool looks = phase != schedule::Phase::main;
  multiply(step,
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
           {.w = w_sizes(layer.w, false, readable(turn)),
            .logit = layer.sizes,
            .kept = logits.sizes(),
            .chunk_begin = rows.begin,
            .v_base = columns.begin,
            .v_count = columns.count,
            .v_block = step.order.slice,
            .h_count = narrow(product(step).product.k),
            .panels = narrow(panels(rows)),
            .first_slice = looks ? narrow(first_slice_) : 0,
            .ld = narrow(rows.count),
            .targets = rows_.target_sizes()},
           step.grid.parts, panels(rows));
}

/// The tiles of the range that count, where gradients are filtered.
void Run::mark(const Turn& turn) {
  const std::int64_t tiles = filter_tiles(turn.columns.count);
  const Dz dz = dz_of(turn);
  const float eps =
      request_.execution.gradient_filter_eps * std::abs(request_.loss.options.logit_scale);
  call_.launch(
      programs_[linear::mark], engine_.panel_range(tiles),
      kernels::mark_memory{.dz = dz.memory, .coefficients = coefficients_, .counts = filter_},
      {.dz_columns = dz.columns,
       .v_count = turn.columns.count,
       .panels = narrow(panels(turn.rows)),
       .ld = narrow(turn.rows.count),
       .eps = eps,
       .tiles = narrow(tiles)});
}

std::int64_t Run::parts_of(const Step& step, std::int64_t m) const {
  return std::min(engine_.parts(m, product(step).cut, schedule_.shrink), step.scratch_parts[0]);
}

void Run::accumulate_w(const Step& step, const Turn& turn) {
  const auto& [phase, rows, piece, columns, depth] = turn;
  const Dz dz = dz_of(turn);
  Binding out = grad_w_;
  std::int64_t h_stride = 1;
  std::int64_t v_stride = hidden(request_);
  bool add = rows.begin > 0, streams = false;
  if (schedule_.sums == schedule::Sums::direct) {
    h_stride = out.strides[0];
    v_stride = out.strides[1];
    out.offset += (columns.begin - piece.begin) * v_stride + depth.begin * h_stride;
    add = add || request_.gradients.accumulate.has(Accumulate::grad_w);
    streams = problem_.streams_grad_w(schedule_);
  } else {
    out = arena_[region::sums_w];
    if (schedule_.sums == schedule::Sums::all) out.offset += columns.begin * v_stride;
  }
  const std::int64_t h_panels = ceil_div(depth.count, tile_n_);
  multiply(step,
           kernels::grad_w_memory{.dz = dz.memory,
                                  .x = packed_columns_,
                                  .info = rows_.info(),
                                  .out = out,
                                  .counts = filter_,
                                  .scale = scale(),
                                  .scratch = groups_},
           {.dz_columns = dz.columns,
            .v_count = columns.count,
            .chunk_begin = rows.begin,
            .h_stride = h_stride,
            .v_stride = v_stride,
            .row_count = narrow(rows.count),
            .h_count = narrow(depth.count),
            .panels = narrow(h_panels),
            .store = add       ? STORE_ADD
                     : streams ? STORE_STREAMED
                               : STORE_NEW,
            .filter_tiles = narrow(filter_tiles(columns.count)),
            .unused = 0},
           parts_of(step, columns.count), h_panels);
}

void Run::accumulate_x(const Step& step, const Turn& turn) {
  const auto& [phase, rows, piece, columns, depth] = turn;
  const Dz dz = dz_of(turn);
  Binding w = w_;
  w.offset += (columns.begin - piece.begin) * w.strides[1] + depth.begin * w.strides[0];
  const std::int64_t range = std::min(schedule_.at.columns, piece.count);
  multiply(step,
           kernels::grad_x_memory{.w = w,
                                  .dz = dz.memory,
                                  .info = rows_.info(),
                                  .sums = sums_x(rows),
                                  .counts = filter_,
                                  .scratch = groups_},
           {.w = w_sizes(w, true, depth.count),
            .dz_columns = dz.columns,
            .chunk_begin = rows.begin,
            .v_part = problem_.x_part_columns(step, range),
            .sums_part = problem_.sums_x_words(schedule_),
            .v_count = narrow(columns.count),
            .h_count = narrow(depth.count),
            .h_padded = narrow(engine_.sums_rows(schedule_.at.depth)),
            .panels = narrow(panels(rows)),
            .first = turn.is_first(),
            .filter_tiles = narrow(filter_tiles(columns.count))},
           parts_of(step, depth.count), panels(rows));
}

void Run::sum_bias(const Turn& turn) {
  const auto& [phase, rows, piece, columns, depth] = turn;
  const Dz dz = dz_of(turn);
  Scratch sums = arena_[region::sums_bias];
  sums.offset += columns.begin;
  if (problem_.sums_bias_on_the_way(schedule_)) {
    call_.launch(programs_[linear::sum_bias], opencl::per_element(columns.count),
                 kernels::sum_bias_lanes_memory{.bias_lanes = bias_lanes_, .sums = sums},
                 {.v_count = columns.count, .first = rows.begin == 0, .unused = 0});
    return;
  }
  const std::int64_t block = engine_.panel_rows(columns.count);
  call_.launch(programs_[linear::sum_bias], engine_.panel_range(ceil_div(columns.count, block)),
               kernels::sum_bias_memory{.dz = dz.memory, .sums = sums},
               {.dz_columns = dz.columns,
                .v_count = columns.count,
                .v_block = block,
                .panels = narrow(panels(rows)),
                .first = rows.begin == 0});
}

void Run::write_x(const Step& step, const Turn& turn) {
  const auto& [phase, rows, piece, columns, depth] = turn;
  for (const auto& segment : grad_x_segments_) {
    Binding out = segment.bound;
    out.offset += depth.begin * segment.stride;
    call_.launch(programs_[linear::write_x], engine_.copy_range(depth.count, rows.count),
                 kernels::write_rows_memory{.sums = sums_x(rows),
                                            .info = rows_.info(),
                                            .rows = rows_.rows(),
                                            .scale = scale(),
                                            .out = out},
                 {.out = row_segment(segment),
                  .chunk_begin = rows.begin,
                  .h_count = depth.count,
                  .row_count = rows.count,
                  .sums_part = problem_.sums_x_words(schedule_),
                  .h_padded = narrow(engine_.sums_rows(schedule_.at.depth)),
                  .add = request_.gradients.accumulate.has(Accumulate::grad_x),
                  .parts = narrow(step.order.k_parts),
                  .unused = 0});
  }
}

void Run::write_excluded(const Turn& turn) {
  // Targets in host memory are checked and counted before anything runs.
  if (loss::is_known(request_.loss) && schedule_.all.rows == request_.loss.b) return;
  for (const auto& segment : grad_x_segments_) {
    if (segment.end == segment.begin) continue;
    Binding out = segment.bound;
    out.offset += turn.depth.begin * segment.stride;
    call_.launch(programs_[linear::write_excluded],
                 engine_.copy_range(turn.depth.count, segment.end - segment.begin),
                 kernels::write_excluded_memory{.labels = rows_.labels(), .out = out},
                 {.out = row_segment(segment),
                  .h_count = turn.depth.count,
                  .add = request_.gradients.accumulate.has(Accumulate::grad_x),
                  .unused = 0});
  }
}

/// Writes the f32 sums of a range, or of the whole piece, to grad_w.
void Run::write_w(const Turn& turn) {
  const bool is_all = schedule_.sums == schedule::Sums::all;
  const Span& columns = is_all ? turn.piece : turn.columns;
  Scratch sums = arena_[region::sums_w];
  if (is_all) sums.offset += columns.begin * hidden(request_);
  Binding out = grad_w_;
  out.offset += (columns.begin - turn.piece.begin) * out.strides[1];
  const bool v_inner = layout_of(request_.gradients.grad_w) == layout_hv;
  call_.launch(programs_[linear::write_w],
               v_inner ? opencl::per_element(columns.count, hidden(request_))
                       : opencl::per_element(hidden(request_), columns.count),
               kernels::write_w_memory{.sums = sums, .out = out},
               {.sums_v_stride = hidden(request_),
                .h_stride = out.strides[0],
                .v_stride = out.strides[1],
                .h_count = hidden(request_),
                .v_count = columns.count,
                .add = request_.gradients.accumulate.has(Accumulate::grad_w),
                .unused = 0});
}

void Run::write_bias() {
  call_.launch(programs_[linear::write_bias], opencl::per_element(request_.loss.v, 1),
               kernels::write_w_memory{.sums = arena_[region::sums_bias], .out = grad_bias_},
               {.sums_v_stride = 1,
                .h_stride = 0,
                .v_stride = grad_bias_.strides[0],
                .h_count = 1,
                .v_count = request_.loss.v,
                .add = request_.gradients.accumulate.has(Accumulate::grad_bias),
                .unused = 0});
}

}  // namespace tessera::linear
