// SPDX-License-Identifier: Apache-2.0
#include "host/linear/opencl/run.hpp"

#include <algorithm>

// The order in which a call's kernels are enqueued.
namespace tessera::linear {

using engines::ceil_div;
using opencl::Scratch;

Run::Run(opencl::Call& call, const Request& request, const engines::Engine& engine,
         const Schedule& schedule, const Programs& programs)
    : call_(call),
      request_(request),
      engine_(engine),
      schedule_(schedule),
      rows_(call, request.loss, engine.tile_n()),
      programs_(programs),
      tile_n_(engine.tile_n()),
      h_count_(hidden(request)) {}

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

void Run::rows_outer() {
  auto parts = pieces();
  for (const auto& chunk : chunks()) {
    pack(chunk, false);
    if (looks_first(request_, schedule_)) forward(chunk);
    if (!has_gradients(request_.loss.pass)) continue;
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
    sums.offset += piece.begin * hidden(request_);
    write_w(piece, piece.begin, piece.count, sums);
  }
}

/// Logits of chunks of rows, then gradients of all rows at once, one part of H after the other. The
/// part that the logits lie in comes last.
void Run::depth_outer() {
  for (const auto& chunk : chunks()) {
    for (const auto& part : kept_parts(chunk)) {
      pack(part, false);
      forward(part);
    }
  }
  const Chunk all{0, schedule_.gradient_rows, schedule_.gradient_rows / tile_n_};
  Piece piece = pieces().front();  // grad_w keeps logits only where one binding reaches all of it
  bind_piece(piece, true);
  coefficients(all);
  const std::int64_t parts =
      std::max<std::int64_t>(1, ceil_div(hidden(request_), schedule_.h_range));
  for (std::int64_t part = parts - 1; part >= 0; --part) {
    h_begin_ = part * schedule_.h_range;
    h_count_ = std::min(schedule_.h_range, hidden(request_) - h_begin_);
    packed_columns_of_ = -1;
    if (request_.gradients.grad_w) pack(all, true);
    gradients_of(all, piece, true);
    if (request_.gradients.grad_x) write_x(all);
  }
}

void Run::vocabulary_outer() {
  const auto all = chunks();
  if (looks_first(request_, schedule_)) {
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
        if (!schedule_.keeps_logits) pack(chunk, false);
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

}  // namespace tessera::linear
