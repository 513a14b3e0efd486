// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/linear/opencl/run.hpp"

// Where the arrays of one call lie: scratch, the caller's views, pieces of w, stored logits, dz.
namespace tessera::linear {

using opencl::Scratch;

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

void Run::bind() {
  const auto regions = regions_of(request_, engine_, schedule_);
  const auto take = [&](std::int64_t words, const char* purpose) {
    return words > 0 ? call_.scratch(words, purpose) : Scratch{};
  };
  packed_rows_ = take(regions.packed_rows, "packed rows of x");
  packed_columns_ = regions.packed_columns == 0
                        ? packed_rows_
                        : take(regions.packed_columns, "packed columns of x");
  stats_ = take(regions.stats, "statistics of slices");
  coefficients_ = take(regions.coefficients, "gradient coefficients");
  dz_ = take(regions.dz, "dz");
  sums_x_ = take(regions.sums_x, "grad_x in f32");
  sums_w_ = take(regions.sums_w, "grad_w in f32");
  sums_bias_ = take(regions.sums_bias, "grad_bias in f32");
  bias_lanes_ = take(regions.bias_lanes, "grad_bias in f32, lane by lane");
  groups_ = take(regions.groups, "packed operands and tiles of work-groups");
  group_words_ = regions.groups;
  filter_ = take(regions.filter, "tiles of dz that count");
  beyond_ = take(regions.beyond, "logits that grad_w has no room for");

  x_segments_ =
      engines::bind_segments(call_, request_.inputs.x, request_.loss.b, "x", engines::Access::read);
  const auto& g = request_.gradients;
  if (g.grad_x) {
    const bool add = g.accumulate.has(Accumulate::grad_x);
    grad_x_segments_ =
        engines::bind_segments(call_, g.grad_x, request_.loss.b, "grad_x",
                               add ? engines::Access::update : engines::Access::write);
  }
  if (request_.inputs.bias) {
    bias_ = call_.read(request_.inputs.bias, "bias");
    bias_stride_ = bias_.strides[0];
  }
  if (g.grad_bias) {
    grad_bias_ = call_.write(g.grad_bias, "grad_bias", g.accumulate.has(Accumulate::grad_bias));
  }
}

std::vector<Run::Piece> Run::pieces() const {
  std::vector<Piece> list;
  const std::int64_t v = request_.loss.v;
  for (std::int64_t begin = 0; begin < v; begin += schedule_.v_piece) {
    list.push_back({begin, std::min(schedule_.v_piece, v - begin), {}, {}});
  }
  return list;
}

void Run::bind_piece(Piece& piece, bool needs_grad_w) {
  const bool whole = piece.count == request_.loss.v;
  if (!piece.w.memory) {
    if (!whole) call_.release_staging();
    piece.w = call_.read(columns_of(request_.inputs.w, piece.begin, piece.count), "w");
    piece.teacher_w = {};  // what was bound of it is released too
  }
  const auto& g = request_.gradients;
  if (needs_grad_w && g.grad_w && !piece.grad_w.memory) {
    // Later chunks add to what the first wrote.
    const bool keep = g.accumulate.has(Accumulate::grad_w) || (!whole && schedule_.chunks > 1);
    piece.grad_w = call_.write(columns_of(g.grad_w, piece.begin, piece.count), "grad_w", keep);
  }
}

std::vector<Run::Chunk> Run::chunks() const {
  std::vector<Chunk> list;
  for (std::int64_t i = 0; i < schedule_.chunks; ++i) {
    list.push_back(
        {i * schedule_.chunk_rows, schedule_.chunk_rows, schedule_.chunk_rows / tile_n_});
  }
  return list;
}

/// A chunk, or two, of which the logits of one lie in grad_w and of the other beyond.
std::vector<Run::Chunk> Run::kept_parts(const Chunk& chunk) const {
  const std::int64_t within = schedule_.gradient_rows - schedule_.rows_beyond - chunk.begin;
  if (schedule_.rows_beyond == 0 || within <= 0 || within >= chunk.rows) return {chunk};
  const std::int64_t rest = chunk.rows - within;
  return {{chunk.begin, within, within / tile_n_}, {chunk.begin + within, rest, rest / tile_n_}};
}

Run::Kept Run::kept(const Chunk& chunk, const Piece& piece, std::int64_t begin,
                    std::int64_t rows_before, const Scratch& memory) const {
  Kept result;
  if (!schedule_.keeps_logits) return result;
  if (schedule_.logits_in_grad_w) {
    // Column v of grad_w, which is written last of all, keeps the logits of all rows against it. As
    // [H, V], a block of columns does, whose rows are as long as a panel of tokens.
    const auto size = static_cast<std::int64_t>(size_of(piece.grad_w.dtype));
    const std::int64_t columns = kept_columns(request_.gradients.grad_w, engine_);
    result.memory = piece.grad_w;
    result.v_stride = piece.grad_w.strides[columns > 1 ? 0 : 1] * size / 2;
    result.panel_stride = columns > 1 ? columns * result.v_stride : 2 * tile_n_;
    result.memory.offset = (piece.grad_w.offset + begin * piece.grad_w.strides[1]) * size +
                           (rows_before + chunk.begin) / tile_n_ * result.panel_stride * 2;
    const std::int64_t within = schedule_.gradient_rows - schedule_.rows_beyond;
    if (schedule_.rows_beyond == 0 || chunk.begin < within) return result;
    // What it has no room for lies in the same order, densely.
    const std::int64_t v = request_.loss.v;
    result.memory = beyond_;
    result.v_stride = columns > 1 ? v * size / 2 : 2 * tile_n_;
    result.panel_stride = 2 * tile_n_ * v;
    result.memory.offset = beyond_.offset * 4 + begin * (columns > 1 ? size : 4 * tile_n_) +
                           (chunk.begin - within) / tile_n_ * result.panel_stride * 2;
    return result;
  }
  result.memory = memory;
  result.v_stride = 2 * tile_n_;
  result.panel_stride = 2 * engine_.operand_words(schedule_.dz, piece.count) * tile_n_;
  result.memory.offset =
      (memory.offset + chunk.rows * piece.begin + (begin - piece.begin) * tile_n_) * 4;
  return result;
}

Run::Dz Run::dz_of(const Chunk& chunk, const Piece& piece, std::int64_t begin,
                   std::int64_t count) const {
  if (!schedule_.keeps_logits || schedule_.logits_in_grad_w) {
    return {dz_, engine_.operand_words(schedule_.dz, count)};
  }
  Scratch logits = dz_;
  logits.offset += chunk.rows * piece.begin + (begin - piece.begin) * tile_n_;
  return {logits, engine_.operand_words(schedule_.dz, piece.count)};
}

Scratch Run::sums_x(const Chunk& chunk) const {
  Scratch sums = sums_x_;
  if (schedule_.v_outer) sums.offset += chunk.begin * schedule_.h_padded;
  return sums;
}

}  // namespace tessera::linear
