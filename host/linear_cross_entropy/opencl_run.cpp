// SPDX-License-Identifier: Apache-2.0
#include "host/linear_cross_entropy/opencl_run.hpp"

#include <algorithm>
#include <cmath>

namespace tessera::linear_cross_entropy {

using engines::ceil_div;
using opencl::Binding;
using opencl::Range;
using opencl::Scratch;

namespace {

std::int32_t narrow(std::int64_t value) { return static_cast<std::int32_t>(value); }

}  // namespace

Run::Run(opencl::Call& call, const Request& request, const engines::Engine& engine,
         const Schedule& schedule, const Programs& programs)
    : call_(call),
      request_(request),
      engine_(engine),
      schedule_(schedule),
      rows_(call, request.loss, engine.tile_n()),
      programs_(programs),
      tile_n_(engine.tile_n()),
      h_count_(request.h) {}

void Run::enqueue() {
  // Everything is bound before the first launch: a worker that waits for the second goes to sleep.
  bind();
  rows_.prepare();
  call_.keep_staging();  // pieces of w and grad_w come and go, all this stays
  if (schedule_.v_outer) {
    vocabulary_outer();
  } else if (schedule_.logits_in_grad_w) {
    depth_outer();
  } else {
    rows_outer();
  }
  write_bias();
  rows_.finish();
}

std::int32_t Run::panels_per_group(std::int64_t panels) const {
  return engine_.group_walks_panels() ? narrow(std::max<std::int64_t>(panels, 1)) : 1;
}

Range Run::tiles(std::int64_t steps, std::int64_t panels) const {
  const auto group = engine_.group_size();
  const auto second = engine_.group_walks_panels() ? 1 : std::max<std::int64_t>(panels, 1);
  return {{static_cast<std::size_t>(engine_.groups(steps, schedule_.thrift)) * group,
           static_cast<std::size_t>(second), 1},
          {group, 1, 1}};
}

void Run::pack(const Chunk& chunk, bool columns) {
  auto& packed = columns ? packed_columns_of_ : packed_rows_of_;
  if (packed == chunk.begin) return;
  if (schedule_.stored_logits) packed_rows_of_ = packed_columns_of_ = -1;  // one region for both
  packed = chunk.begin;
  for (const auto& segment : x_segments_) {
    if (columns) {
      Binding x = segment.bound;
      x.offset += h_begin_ * segment.stride;
      call_.launch(
          programs_.pack_x, "pack_columns",
          engines::per_element(chunk.rows, ceil_div(ceil_div(h_count_, tile_n_), panel_step)), x,
          segment.geometry, segment.stride, rows_.info(), rows_.rows(), chunk.begin, segment.begin,
          segment.end, packed_columns_, h_count_, chunk.rows);
    } else {
      const std::int64_t h = request_.h;
      const auto steps =
          static_cast<std::size_t>(std::max<std::int64_t>(1, ceil_div(h, engine_.h_step())));
      const std::size_t group = engine_.lanes() == 1 ? 64 : 1;
      call_.launch(
          programs_.pack_x, "pack_rows",
          Range{{(steps + group - 1) / group * group, static_cast<std::size_t>(chunk.panels), 1},
                {group, 1, 1}},
          segment.bound, segment.geometry, segment.stride, rows_.info(), rows_.rows(), chunk.begin,
          segment.begin, segment.end, packed_rows_, h);
    }
  }
}

void Run::coefficients(const Chunk& chunk) {
  if (coefficients_of_ == chunk.begin) return;
  coefficients_of_ = chunk.begin;
  rows_.coefficients(coefficients_, chunk.rows, chunk.begin);
}

void Run::forward(const Chunk& chunk) {
  const auto& o = request_.loss.options;
  const std::int64_t block = schedule_.blocks.v_block_size;
  std::int64_t first_slice = 0;
  for (auto& piece : pieces()) {
    bind_piece(piece, schedule_.logits_in_grad_w);
    const std::int64_t slices = ceil_div(piece.count, block);
    const Stored logits = stored(chunk, piece, piece.begin);
    call_.launch(
        programs_.forward, "forward", tiles(slices, chunk.panels), piece.w, piece.w.strides[0],
        piece.w.strides[1], bias_, bias_stride_, rows_.class_weight(), rows_.class_stride(),
        packed_rows_, rows_.compact_labels(), rows_.info(), chunk.begin, narrow(chunk.panels),
        panels_per_group(chunk.panels), narrow(request_.h), piece.begin, piece.count, piece.count,
        block, narrow(slices), stats_, narrow(first_slice), narrow(chunk.rows), logits.memory,
        logits.panel_stride, logits.v_stride, o.logit_scale, o.logit_soft_cap,
        narrow(o.vocab_offset + piece.begin), pack_, schedule_.forward_steps.pack_words, tile_,
        narrow(schedule_.forward_steps.tile_m), narrow(schedule_.blocks.h_block_size));
    first_slice += slices;
  }
  if (request_.loss.wants_values()) rows_.merge(stats_, first_slice, chunk.rows, chunk.begin);
}

void Run::gradient(const Chunk& chunk, const Piece& piece, std::int64_t begin, std::int64_t count,
                   const Dz& dz) {
  const auto& o = request_.loss.options;
  if (schedule_.stored_logits) {
    // Where a work-item is a lane, a group has the lanes of a panel; else it takes all of them.
    const std::int64_t step = engine_.lanes() == 1 ? 16 : 32;
    const auto lanes = static_cast<std::size_t>(engine_.lanes() == 1 ? tile_n_ : 1);
    for (const Chunk& part : stored_parts(chunk)) {
      const Stored logits = stored(part, piece, begin);
      const std::int64_t first = part.begin - chunk.begin;
      Scratch coefficients = coefficients_;
      coefficients.offset += first;
      Scratch out = dz.memory;
      out.offset += first * dz.columns;
      call_.launch(
          programs_.gradient, "gradient_of_stored",
          Range{{lanes, static_cast<std::size_t>(ceil_div(count, step)), 1}, {lanes, 1, 1}}, bias_,
          bias_stride_, rows_.class_weight(), rows_.class_stride(), rows_.compact_labels(),
          rows_.info(), part.begin, narrow(part.panels), begin, count, step, logits.memory,
          logits.panel_stride, logits.v_stride, coefficients, narrow(chunk.rows), out, dz.columns,
          o.logit_scale, o.logit_soft_cap);
    }
    return;
  }
  Binding w = piece.w;
  w.offset += (begin - piece.begin) * w.strides[1];
  // dz does not depend on slices: as many as there are groups.
  const std::int64_t groups =
      engine_.groups(ceil_div(count, engine_.rule().v_multiple), schedule_.thrift);
  const std::int64_t block =
      std::min(schedule_.blocks.v_block_size,
               engines::round_up(ceil_div(count, groups), engine_.rule().v_multiple));
  const std::int64_t slices = ceil_div(count, block);
  call_.launch(programs_.gradient, "gradient", tiles(slices, chunk.panels), w, w.strides[0],
               w.strides[1], bias_, bias_stride_, rows_.class_weight(), rows_.class_stride(),
               packed_rows_, rows_.compact_labels(), rows_.info(), chunk.begin,
               narrow(chunk.panels), panels_per_group(chunk.panels), narrow(request_.h), begin,
               count, piece.begin + piece.count - begin, block, narrow(slices), coefficients_,
               narrow(chunk.rows), dz.memory, o.logit_scale, o.logit_soft_cap, pack_,
               schedule_.forward_steps.pack_words, tile_, narrow(schedule_.forward_steps.tile_m),
               narrow(schedule_.blocks.h_block_size));
}

/// The tiles of the range that count, where gradients are filtered.
void Run::mark(const Chunk& chunk, std::int64_t count, const Dz& dz) {
  if (!filters_gradients(request_)) return;
  const auto lanes = static_cast<std::size_t>(engine_.lanes() == 1 ? tile_n_ : 1);
  const std::int64_t tiles = ceil_div(count, filter_columns);
  const float eps =
      request_.execution.gradient_filter_eps * std::abs(request_.loss.options.logit_scale);
  call_.launch(programs_.filter, "mark",
               Range{{lanes, static_cast<std::size_t>(tiles), 1}, {lanes, 1, 1}}, dz.memory,
               dz.columns, narrow(chunk.panels), count, coefficients_, narrow(chunk.rows), eps,
               kept_, narrow(tiles));
}

void Run::accumulate_w(const Chunk& chunk, const Piece& piece, std::int64_t begin,
                       std::int64_t count, const Dz& dz) {
  const auto& steps = schedule_.grad_w_steps;
  const std::int64_t panels = ceil_div(h_count_, tile_n_);
  const std::int64_t step_count = engine_.step_count(count, steps.tile_m, schedule_.thrift);
  Binding out = piece.grad_w;
  std::int64_t h_stride = 1;
  std::int64_t v_stride = request_.h;
  bool add = chunk.begin > 0;
  if (schedule_.grad_w == Schedule::GradW::direct) {
    h_stride = out.strides[0];
    v_stride = out.strides[1];
    out.offset += (begin - piece.begin) * v_stride + h_begin_ * h_stride;
    add = add || request_.gradients.accumulate.has(Accumulate::grad_w);
  } else {
    out = sums_w_;
    if (schedule_.grad_w == Schedule::GradW::full) out.offset += begin * request_.h;
  }
  with_kept(count, [&](auto... kept) {
    call_.launch(programs_.grad_w, "grad_w", tiles(step_count, panels), dz.memory, dz.columns,
                 count, narrow(chunk.rows), packed_columns_, narrow(h_count_), narrow(panels),
                 panels_per_group(panels), rows_.info(), chunk.begin, out, h_stride, v_stride,
                 std::int32_t{add}, narrow(step_count), pack_, steps.pack_words, tile_,
                 narrow(steps.tile_m), narrow(schedule_.blocks.h_block_size), kept...);
  });
}

void Run::accumulate_x(const Chunk& chunk, const Piece& piece, std::int64_t begin,
                       std::int64_t count, const Dz& dz, bool first) {
  const auto& steps = schedule_.grad_x_steps;
  const std::int64_t step_count = engine_.step_count(h_count_, steps.tile_m, schedule_.thrift);
  Binding w = piece.w;
  w.offset += (begin - piece.begin) * w.strides[1] + h_begin_ * w.strides[0];
  with_kept(count, [&](auto... kept) {
    call_.launch(programs_.grad_x, "grad_x", tiles(step_count, chunk.panels), w, w.strides[0],
                 w.strides[1], dz.memory, dz.columns, count, narrow(schedule_.v_panel),
                 narrow(h_count_), narrow(schedule_.h_padded), narrow(chunk.panels),
                 panels_per_group(chunk.panels), rows_.info(), chunk.begin, sums_x(chunk),
                 std::int32_t{first}, narrow(step_count), pack_, steps.pack_words, tile_,
                 narrow(steps.tile_m), narrow(schedule_.blocks.h_block_size), kept...);
  });
}

void Run::gradients_of(const Chunk& chunk, Piece& piece, bool first_piece) {
  const auto& g = request_.gradients;
  const std::int64_t range = schedule_.v_range;
  const std::int64_t end = piece.begin + piece.count;
  for (std::int64_t begin = piece.begin; begin < end; begin += range) {
    const std::int64_t count = std::min(range, end - begin);
    const Dz dz = dz_of(chunk, piece, begin, count);
    gradient(chunk, piece, begin, count, dz);
    mark(chunk, count, dz);
    if (g.grad_bias && h_begin_ == 0) sum_bias(chunk, begin, count, dz);
    if (g.grad_w) accumulate_w(chunk, piece, begin, count, dz);
    if (g.grad_x) accumulate_x(chunk, piece, begin, count, dz, first_piece && begin == piece.begin);
  }
}

void Run::sum_bias(const Chunk& chunk, std::int64_t begin, std::int64_t count, const Dz& dz) {
  Scratch sums = sums_bias_;
  sums.offset += begin;
  call_.launch(programs_.gradient, "sum_bias", engines::per_element(count), dz.memory, dz.columns,
               narrow(chunk.panels), count, sums, std::int32_t{chunk.begin == 0});
}

void Run::write_x(const Chunk& chunk) {
  const std::int32_t add{request_.gradients.accumulate.has(Accumulate::grad_x)};
  const auto h_steps =
      static_cast<std::size_t>(std::max<std::int64_t>(1, ceil_div(h_count_, engine_.h_step())));
  const std::size_t group = engine_.lanes() == 1 ? 64 : 1;
  const std::size_t first = (h_steps + group - 1) / group * group;
  // Known for labels in host memory, which are checked and counted before anything runs.
  const bool every_row_counts =
      !request_.loss.labels.is_device() && schedule_.rows == request_.loss.b;
  for (const auto& segment : grad_x_segments_) {
    Binding out = segment.bound;
    out.offset += h_begin_ * segment.stride;
    call_.launch(programs_.write_x, "write_rows",
                 Range{{first, static_cast<std::size_t>(chunk.rows), 1}, {group, 1, 1}},
                 sums_x(chunk), narrow(schedule_.h_padded), h_count_, chunk.rows, rows_.info(),
                 rows_.rows(), chunk.begin, out, segment.geometry, segment.stride, segment.begin,
                 segment.end, add);
    if (chunk.begin > 0 || segment.end == segment.begin || every_row_counts) continue;
    call_.launch(
        programs_.write_x, "write_excluded",
        Range{{first, static_cast<std::size_t>(segment.end - segment.begin), 1}, {group, 1, 1}},
        rows_.labels(), h_count_, out, segment.geometry, segment.stride, segment.begin, segment.end,
        add);
  }
}

void Run::write_w(const Piece& piece, std::int64_t begin, std::int64_t count, const Scratch& sums) {
  Binding out = piece.grad_w;
  out.offset += (begin - piece.begin) * out.strides[1];
  const bool v_inner = programs_.write_w.options.find("-DOUT_LAYOUT=1") != std::string::npos;
  call_.launch(
      programs_.write_w, "write_w",
      v_inner ? engines::per_element(count, request_.h) : engines::per_element(request_.h, count),
      sums, request_.h, out, out.strides[0], out.strides[1], request_.h, count,
      std::int32_t{request_.gradients.accumulate.has(Accumulate::grad_w)});
}

void Run::write_bias() {
  const auto& g = request_.gradients;
  if (!g.grad_bias) return;
  call_.launch(programs_.write_bias, "write_w", engines::per_element(request_.loss.v, 1),
               sums_bias_, std::int64_t{1}, grad_bias_, std::int64_t{0}, grad_bias_.strides[0],
               std::int64_t{1}, request_.loss.v,
               std::int32_t{g.accumulate.has(Accumulate::grad_bias)});
}

void Run::rows_outer() {
  auto parts = pieces();
  for (const auto& chunk : chunks()) {
    pack(chunk, false);
    if (request_.loss.wants_values()) forward(chunk);
    if (!request_.loss.wants_gradients()) continue;
    coefficients(chunk);
    if (request_.gradients.grad_w) pack(chunk, true);
    for (auto& piece : parts) {
      if (parts.size() > 1) piece.w = piece.grad_w = {};
      bind_piece(piece, true);
      gradients_of(chunk, piece, &piece == &parts.front());
    }
    if (request_.gradients.grad_x) write_x(chunk);
  }
  if (schedule_.grad_w != Schedule::GradW::full) return;
  for (auto& piece : parts) {
    if (parts.size() > 1) piece.w = piece.grad_w = {};
    bind_piece(piece, true);
    Scratch sums = sums_w_;
    sums.offset += piece.begin * request_.h;
    write_w(piece, piece.begin, piece.count, sums);
  }
}

/// Logits of chunks of rows, then gradients of all rows at once, one part of H after the other. The
/// part that the logits lie in comes last.
void Run::depth_outer() {
  for (const auto& chunk : chunks()) {
    for (const auto& part : stored_parts(chunk)) {
      pack(part, false);
      forward(part);
    }
  }
  const Chunk all{0, schedule_.gradient_rows, schedule_.gradient_rows / tile_n_};
  Piece piece = pieces().front();  // grad_w keeps logits only where one binding reaches all of it
  bind_piece(piece, true);
  coefficients(all);
  const std::int64_t parts = std::max<std::int64_t>(1, ceil_div(request_.h, schedule_.h_range));
  for (std::int64_t part = parts - 1; part >= 0; --part) {
    h_begin_ = part * schedule_.h_range;
    h_count_ = std::min(schedule_.h_range, request_.h - h_begin_);
    packed_columns_of_ = -1;
    if (request_.gradients.grad_w) pack(all, true);
    gradients_of(all, piece, true);
    if (request_.gradients.grad_x) write_x(all);
  }
}

void Run::vocabulary_outer() {
  const auto all = chunks();
  if (request_.loss.wants_values()) {
    for (const auto& chunk : all) {
      pack(chunk, false);
      forward(chunk);
    }
  }
  auto parts = pieces();
  for (auto& piece : parts) {
    bind_piece(piece, true);
    const std::int64_t end = piece.begin + piece.count;
    for (std::int64_t begin = piece.begin; begin < end; begin += schedule_.v_range) {
      const std::int64_t count = std::min(schedule_.v_range, end - begin);
      for (const auto& chunk : all) {
        if (!schedule_.stored_logits) pack(chunk, false);
        coefficients(chunk);
        const Dz dz = dz_of(chunk, piece, begin, count);
        gradient(chunk, piece, begin, count, dz);
        mark(chunk, count, dz);
        if (request_.gradients.grad_bias) sum_bias(chunk, begin, count, dz);
        if (request_.gradients.grad_w) {
          pack(chunk, true);
          accumulate_w(chunk, piece, begin, count, dz);
        }
        if (request_.gradients.grad_x) accumulate_x(chunk, piece, begin, count, dz, begin == 0);
      }
      if (request_.gradients.grad_w && schedule_.grad_w == Schedule::GradW::range) {
        write_w(piece, begin, count, sums_w_);
      }
    }
    if (parts.size() > 1) call_.release_staging();
  }
  if (request_.gradients.grad_x) {
    for (const auto& chunk : all) write_x(chunk);
  }
}

}  // namespace tessera::linear_cross_entropy
