// SPDX-License-Identifier: Apache-2.0
#include "host/linear/opencl/shares.hpp"

#include <algorithm>

#include "host/engines/shares.hpp"

namespace tessera::linear {
namespace {

using engines::ceil_div;

/// A launch over `m` rows of A in parts, and panels of `n` columns.
struct Grid {
  std::int64_t m, n, k;
  std::int64_t parts, part_rows;  ///< of the longest part
};

ProductLaunches launches_of(const char* kernel, std::int64_t times, const Grid& g,
                            const engines::Engine& engine, std::int64_t shrink,
                            std::int64_t k_parts) {
  const std::int64_t panels = std::max<std::int64_t>(1, ceil_div(g.n, engine.tile_n()));
  const std::int64_t row_groups = engine.groups(g.parts, shrink);
  const std::int64_t each = engine.panels_per_group(row_groups, panels);
  const std::int64_t groups = row_groups * ceil_div(panels, each) * k_parts;
  const std::int64_t longest =
      ceil_div(g.parts, row_groups) * ceil_div(g.part_rows, engine.strip()) * each;
  const double tiles = static_cast<double>(ceil_div(g.m, engine.strip()) * panels * k_parts);
  return {.kernel = kernel,
          .times = times,
          .groups = groups,
          .share = tiles / engines::room_of(groups, engine.slots(), static_cast<double>(longest)),
          .flops = 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) *
                   static_cast<double>(g.k) * static_cast<double>(times)};
}

}  // namespace

std::vector<ProductLaunches> product_launches(const Request& r, const engines::Engine& engine,
                                              const Schedule& s) {
  std::vector<ProductLaunches> list;
  const std::int64_t piece = std::min(s.v_piece, r.loss.v);
  const std::int64_t pieces = ceil_div(r.loss.v, std::max<std::int64_t>(piece, 1));
  const auto slices = [&](const char* kernel, std::int64_t times, std::int64_t columns,
                          std::int64_t block) {
    const auto add = [&](const char* of, std::int64_t h) {
      list.push_back(launches_of(of, times,
                                 {columns, s.chunk_rows, h, ceil_div(columns, block), block},
                                 engine, s.shrink, 1));
    };
    add(kernel, hidden(r));
    if (s.teacher.is_layer) add("teacher", s.teacher.h);
  };
  const std::int64_t looked = std::max<std::int64_t>(s.teacher.given ? s.looked_at() : piece, 1);
  if (looks_first(r, s) || s.keeps_logits) {
    const std::int64_t block = s.teacher.given ? s.look_block : s.blocks.v_block_size;
    const std::int64_t looks = s.teacher.looks_twice && !s.keeps_logits ? 2 : 1;
    slices("forward", looks * s.chunks * pieces * ceil_div(piece, looked), looked,
           std::min(block, looked));
  }
  if (!has_gradients(r.loss.pass)) return list;
  const std::int64_t range = std::min(s.v_range, piece);
  const std::int64_t looks = s.logits_in_grad_w && !s.v_outer ? 1 : s.chunks;
  const std::int64_t times = looks * ceil_div(piece, range) * pieces;
  if (!s.keeps_logits) {
    slices("gradient", times, range,
           std::min(s.blocks.v_block_size, even_block(engine, range, s.shrink)));
  }
  const auto sums = [&](const char* kernel, const engines::Cut& cut, std::int64_t m, std::int64_t n,
                        std::int64_t k, std::int64_t k_parts) {
    const std::int64_t parts = engine.parts(m, cut, s.shrink);
    const std::int64_t strips = ceil_div(m, engine.strip());
    const std::int64_t depths = ceil_div(hidden(r), std::max<std::int64_t>(s.h_range, 1));
    list.push_back(launches_of(kernel, times * depths,
                               {m, n, k, parts, ceil_div(strips, parts) * engine.strip()}, engine,
                               s.shrink, k_parts));
  };
  if (r.gradients.grad_w) sums("grad_w", s.grad_w_cut, range, s.h_range, s.gradient_rows, 1);
  if (r.gradients.grad_x) {
    sums("grad_x", s.grad_x_cut, s.h_range, s.gradient_rows, range, s.x_parts);
  }
  return list;
}

}  // namespace tessera::linear
