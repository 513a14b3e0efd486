// SPDX-License-Identifier: Apache-2.0
#include "host/linear_cross_entropy/opencl/run.hpp"

#include "host/loss/opencl_programs.hpp"

namespace tessera::linear_cross_entropy {

using engines::ceil_div;
using linear::narrow;
using opencl::Scratch;

std::vector<opencl::Specialisation*> Programs::all() {
  auto list = shared.all();
  list.push_back(&gradient);
  return list;
}

Programs programs_of(const linear::Request& r, const engines::Engine& engine,
                     const linear::Schedule& s) {
  Programs p;
  p.shared = linear::programs_of(r, engine, s, loss::statistics_options(r.loss));
  p.gradient = {s.keeps_logits ? "linear_cross_entropy/gradient_of_kept.cl"
                               : "linear_cross_entropy/gradient.cl",
                engine.options() + engine.options(linear::logits_product(r, s), "LOGITS") +
                    linear::layer_options(r.inputs.w.dtype(), linear::layout_of(r.inputs.w),
                                          r.inputs.bias, r.loss.options.logit_soft_cap) +
                    linear::row_options(r) + linear::kept_options(r, engine, s) +
                    linear::dz_options(r, engine, s)};
  p.gradient.engine = engine.folder();
  p.gradient.patched_items = s.keeps_logits ? 0 : engine.patched_items();
  return p;
}

std::vector<operators::Kernel> kernels_of(const linear::Request& r, const linear::Schedule& s,
                                          const Programs& p) {
  auto list = linear::kernels_of(r, s, p.shared);
  if (has_gradients(r.loss.pass)) {
    list.emplace_back(p.gradient, s.keeps_logits ? "gradient_of_kept" : "gradient");
  }
  return list;
}

Run::Run(opencl::Call& call, const linear::Request& request, const engines::Engine& engine,
         const linear::Schedule& schedule, const Programs& programs)
    : linear::Run(call, request, engine, schedule, programs.shared), gradient_(programs.gradient) {}

void Run::forward(const Chunk& chunk) {
  const std::int64_t block = schedule_.blocks.v_block_size;
  std::int64_t first_slice = 0;
  for (auto& piece : pieces()) {
    bind_piece(piece, schedule_.logits_in_grad_w);
    form(own_layer(programs_.forward, piece, piece.begin), chunk,
         {piece.begin, piece.count, piece.count, block, first_slice},
         kept(chunk, piece, piece.begin));
    first_slice += ceil_div(piece.count, block);
  }
  if (request_.loss.wants_values()) rows_.merge(stats_, first_slice, chunk.rows, chunk.begin);
}

void Run::gradient(const Chunk& chunk, Piece& piece, std::int64_t begin, std::int64_t count,
                   const Dz& dz) {
  if (schedule_.keeps_logits) return gradient_of_kept(chunk, piece, begin, count, dz);
  const Layer layer = own_layer(gradient_, piece, begin);
  // dz does not depend on slices: as many as there are groups.
  const Columns columns = even_slices(piece, begin, count);
  multiply(gradient_,
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
           {.w = w_sizes(layer.w, false, columns.readable),
            .logit = logit_sizes(),
            .chunk_begin = chunk.begin,
            .v_base = begin,
            .v_count = count,
            .v_block = columns.block,
            .dz_columns = dz.columns,
            .h_count = narrow(hidden(request_)),
            .panels = narrow(chunk.panels),
            .ld = narrow(chunk.rows),
            .unused = 0,
            .targets = rows_.target_sizes()},
           schedule_.logits_cut, ceil_div(count, columns.block), chunk.panels,
           linear::sums_bias_on_the_way(request_, schedule_));
}

void Run::gradient_of_kept(const Chunk& chunk, const Piece& piece, std::int64_t begin,
                           std::int64_t count, const Dz& dz) {
  const std::int64_t columns = engine_.panel_rows(count);
  for (const Chunk& part : kept_parts(chunk)) {
    const Kept logits = kept(part, piece, begin);
    const std::int64_t first = part.begin - chunk.begin;
    Scratch coefficients = coefficients_;
    coefficients.offset += first;
    Scratch out = dz.memory;
    out.offset += first * dz.columns;
    call_.launch(gradient_, engine_.panel_range(ceil_div(count, columns), part.panels),
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
                  .v_base = begin,
                  .v_count = count,
                  .v_block = columns,
                  .dz_columns = dz.columns,
                  .panels = narrow(part.panels),
                  .ld = narrow(chunk.rows),
                  .first = first == 0,
                  .unused = 0,
                  .targets = rows_.target_sizes()});
  }
}

}  // namespace tessera::linear_cross_entropy
