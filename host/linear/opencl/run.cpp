// SPDX-License-Identifier: Apache-2.0
#include "host/linear/opencl/run.hpp"

#include <algorithm>

// The arrays of one call: scratch, the caller's views, pieces of w, stored logits, dz.
namespace tessera::linear {

using engines::ceil_div;
using opencl::Scratch;
using schedule::Phase;
using schedule::Results;

template <class AnyView>
AnyView columns_of(const AnyView& view, std::int64_t begin, std::int64_t count) {
  const auto bytes = begin * view.strides()[1] * static_cast<std::int64_t>(size_of(view.dtype()));
  const Dims extents{view.extents()[0], count};
  if (view.is_device()) {
    return AnyView::device(view.device_memory(), view.byte_offset() + bytes, view.dtype(), extents,
                           view.strides());
  }
  auto* data = static_cast<char*>(const_cast<void*>(view.View::host_data())) + bytes;
  return AnyView::host(static_cast<void*>(data), view.dtype(), extents, view.strides());
}
template View columns_of(const View&, std::int64_t, std::int64_t);

Run::Run(opencl::Call& call, const Problem& problem, const Schedule& schedule,
         const Programs& programs)
    : call_(call),
      problem_(problem),
      request_(problem.request()),
      engine_(problem.engine()),
      schedule_(schedule),
      programs_(programs),
      rows_(call, request_.loss, engine_.tile_n()),
      arena_(schedule.steps, schedule.shrink, engine_),
      tile_n_(engine_.tile_n()),
      stored_(problem.dz(schedule)) {}

void Run::enqueue() {
  // Everything is bound before the first launch: a worker that waits for the second goes to sleep.
  bind();
  rows_.prepare();
  call_.keep_staging();  // pieces of w and grad_w come and go, all this stays
  schedule::walk(
      schedule_, problem_.rows_within(schedule_), [&](const Turn& turn) { enter(turn); },
      [&](const Step& step, const Turn& turn) { launch(step, turn); });
  rows_.finish();
}

void Run::bind() {
  arena_.take(call_);
  packed_rows_ = arena_[region::packed_rows];
  packed_columns_ = arena_[region::packed_columns];
  if (!packed_columns_.memory) packed_columns_ = packed_rows_;
  stats_ = arena_[region::stats];
  coefficients_ = arena_[region::coefficients];
  dz_ = arena_[region::dz];
  bias_lanes_ = arena_[region::bias_lanes];
  groups_ = arena_[schedule::Arena::groups];
  filter_ = arena_[region::filter];

  x_segments_ =
      engines::bind_segments(call_, request_.inputs.x, request_.loss.b, "x", engines::Access::read);
  const auto& g = request_.gradients;
  if (g.grad_x) {
    const bool add = g.accumulate.has(Accumulate::grad_x);
    grad_x_segments_ =
        engines::bind_segments(call_, g.grad_x, request_.loss.b, "grad_x",
                               add ? engines::Access::update : engines::Access::write);
  }
  if (request_.inputs.bias) bias_ = call_.read(request_.inputs.bias, "bias");
  if (g.grad_bias) {
    grad_bias_ = call_.write(g.grad_bias, "grad_bias", g.accumulate.has(Accumulate::grad_bias));
  }
}

void Run::enter(const Turn& turn) {
  const auto& piece = turn.piece;
  const bool whole = piece.count == request_.loss.v;
  if (piece.begin != piece_) {
    if (!whole) call_.release_staging();
    piece_ = piece.begin;
    w_ = call_.read(columns_of(request_.inputs.w, piece.begin, piece.count), "w");
    grad_w_ = {};
  }
  const auto& g = request_.gradients;
  const bool needs_grad_w = turn.phase == Phase::main || schedule_.results == Results::output;
  if (needs_grad_w && g.grad_w && !grad_w_.memory) {
    // Later chunks add to what the first wrote.
    const bool keep = g.accumulate.has(Accumulate::grad_w) || (!whole && schedule_.chunks() > 1);
    grad_w_ = call_.write(columns_of(g.grad_w, piece.begin, piece.count), "grad_w", keep);
  }
  if (turn.phase == Phase::main) return;
  first_slice_ = turn.is_first() ? 0 : slices_;
  slices_ = first_slice_ + ceil_div(turn.columns.count, schedule_.steps.slice);
}

Run::Kept Run::kept(const Span& rows, const Turn& turn, std::int64_t rows_before,
                    const Scratch& memory) const {
  Kept result;
  if (!schedule_.keeps_results()) return result;
  const auto& piece = turn.piece;
  const std::int64_t begin = turn.columns.begin;
  if (schedule_.results == Results::output) {
    // Column v of grad_w, which is written last of all, keeps the logits of all rows against it. As
    // [H, V], a block of columns does, whose rows are as long as a panel of tokens.
    const auto size = static_cast<std::int64_t>(size_of(grad_w_.dtype));
    const std::int64_t columns = kept_columns(request_.gradients.grad_w, engine_);
    result.memory = grad_w_;
    result.v_stride = grad_w_.strides[columns > 1 ? 0 : 1] * size / 2;
    result.panel_stride = columns > 1 ? columns * result.v_stride : 2 * tile_n_;
    result.memory.offset = (grad_w_.offset + begin * grad_w_.strides[1]) * size +
                           (rows_before + rows.begin) / tile_n_ * result.panel_stride * 2;
    const std::int64_t within = problem_.rows_within(schedule_);
    if (within == 0 || rows.begin < within) return result;
    // The logits that it has no room for lie in the same order, densely.
    const std::int64_t v = request_.loss.v;
    result.memory = arena_[region::beyond];
    result.v_stride = columns > 1 ? v * size / 2 : 2 * tile_n_;
    result.panel_stride = 2 * tile_n_ * v;
    result.memory.offset = result.memory.offset * 4 + begin * (columns > 1 ? size : 4 * tile_n_) +
                           (rows.begin - within) / tile_n_ * result.panel_stride * 2;
    return result;
  }
  result.memory = memory;
  result.v_stride = 2 * tile_n_;
  result.panel_stride = 2 * engine_.operand_words(stored_, piece.count) * tile_n_;
  result.memory.offset =
      (memory.offset + rows.count * piece.begin + (begin - piece.begin) * tile_n_) * 4;
  return result;
}

Run::Dz Run::dz_of(const Turn& turn) const {
  const auto& [phase, rows, piece, columns, depth] = turn;
  if (schedule_.results != Results::scratch) {
    return {dz_, engine_.operand_words(stored_, columns.count)};
  }
  Scratch logits = dz_;
  logits.offset += rows.count * piece.begin + (columns.begin - piece.begin) * tile_n_;
  return {logits, engine_.operand_words(stored_, piece.count)};
}

Scratch Run::sums_x(const Span& rows) const {
  Scratch sums = arena_[region::sums_x];
  if (schedule_.order == schedule::Order::columns) {
    sums.offset += rows.begin * engine_.sums_rows(schedule_.at.depth);
  }
  return sums;
}

}  // namespace tessera::linear
