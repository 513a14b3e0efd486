// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numeric>

#include "host/linear/opencl/plan.hpp"
#include "host/opencl/errors.hpp"

// What follows from a request by itself: how its arrays lie, and the products it comes to.
namespace tessera::linear {

bool filters_gradients(const Request& r) {
  return r.execution.gradient_filter_eps > 0.0f && (r.gradients.grad_x || r.gradients.grad_w);
}

bool sums_bias_itself(const engines::Engine& engine) { return engine.panel_items() == 1; }

engines::Stored stored_dz(const Request& r, const engines::Engine& engine, const Schedule& s) {
  const bool stays_f32 =
      r.execution.dz_dtype == DType::f32 || (r.gradients.grad_bias && !sums_bias_itself(engine));
  return {
      .type = stays_f32 ? DType::f32 : engine.stored_type(r.inputs.x.dtype(), r.inputs.w.dtype()),
      .in_place = s.teacher.given || (s.keeps_logits && !s.logits_in_grad_w)};
}

bool has_one_cotangent(const Request& r) {
  const auto& loss = r.loss;
  return loss.options.reduction != Reduction::none && loss.labels && !loss.weight &&
         !loss.class_weight && !loss.dlse;
}

bool sums_bias_on_the_way(const Request& r, const Schedule& s) {
  return r.gradients.grad_bias && s.dz.type != DType::f32;
}

bool kernels_can_read(const MutableView& view) {
  if (!view) return false;
  if (!view.is_device()) return true;
  cl_mem_flags flags = 0;
  opencl::check(
      clGetMemObjectInfo(view.device_memory(), CL_MEM_FLAGS, sizeof(flags), &flags, nullptr),
      "clGetMemObjectInfo", "the device of grad_w");
  return (flags & CL_MEM_WRITE_ONLY) == 0;
}

int layout_of(const View& w) {
  if (w.strides()[0] == 1 || w.extents()[0] == 1) return layout_vh;
  if (w.strides()[1] == 1 || w.extents()[1] == 1) return layout_hv;
  return layout_strided;
}

std::int64_t line_bytes(const View& w) {
  const int layout = layout_of(w);
  if (layout == layout_strided || w.size() == 0) return 0;
  const int along = layout == layout_vh ? 0 : 1, across = 1 - along;
  std::int64_t step = w.strides()[across];
  // NVIDIA's tensor maps take strides below 2^40 bytes.
  constexpr std::int64_t most = std::int64_t{1} << 32;
  if (step < w.extents()[along] || step > most) return 0;
  // Staged lines lie one behind the other, in whole or in pieces of a multiple of 64 columns.
  if (!w.is_device() && w.extents()[across] > 1) step = w.extents()[along];
  const std::int64_t begin = w.is_device() ? w.byte_offset() : 0;
  const auto size = static_cast<std::int64_t>(size_of(w.dtype()));
  return std::gcd(std::gcd(step * size, begin), std::int64_t{16});
}

std::vector<NamedValue> knobs_of(const Request& r, const engines::Engine& engine,
                                 const Schedule& s) {
  auto knobs = engine.knobs();
  knobs.push_back({"slices", s.slices});
  knobs.push_back({"chunk_rows", s.chunk_rows});
  knobs.push_back({"v_range", s.v_range});
  if (filters_gradients(r)) {
    // Knobs are whole numbers: billionths.
    const double eps = static_cast<double>(r.execution.gradient_filter_eps);
    knobs.push_back({"gradient_filter_eps_1e-9", std::llround(eps * 1e9)});
    knobs.push_back({"gradient_filter_tokens", engine.tile_n()});
  }
  return knobs;
}

engines::Product logits_product(const Request& r, const Schedule& s) {
  return {.use = engines::Use::visit,
          .m = s.blocks.v_block_size,
          .n = s.chunk_rows,
          .k = hidden(r),
          .a = r.inputs.w.dtype(),
          .b = r.inputs.x.dtype(),
          .a_layout = static_cast<engines::Layout>(layout_of(r.inputs.w)),
          .k_block = s.blocks.h_block_size};
}

engines::Product teacher_product(const Schedule& s) {
  return {.use = engines::Use::visit,
          .m = s.blocks.v_block_size,
          .n = s.chunk_rows,
          .k = s.teacher.h,
          .a = s.teacher.w,
          .b = s.teacher.x,
          .a_layout = static_cast<engines::Layout>(s.teacher.w_layout),
          .k_block = s.teacher_h_block};
}

bool looks_first(const Request& r, const Schedule& s) {
  return r.loss.wants_values() || (s.teacher.given && !s.teacher.is_known);
}

std::int64_t all_rows(const engines::Engine& engine, const Schedule& s) {
  return engines::round_up(std::max<std::int64_t>(s.rows, 1), engine.tile_n());
}

std::int64_t even_block(const Request& r, const engines::Engine& engine, const Schedule& s,
                        std::int64_t columns) {
  engines::Product product = logits_product(r, s);
  product.m = columns;
  const std::int64_t parts = engine.even_parts(product, s.shrink);
  return engines::round_up(engines::ceil_div(columns, parts), engine.strip());
}

engines::Product grad_w_product(const Request& r, const Schedule& s) {
  // Few rows of dz at a time where it is filtered: all of them are multiplied where one counts.
  constexpr std::int64_t most_filtered = 96;
  return {.use = engines::Use::store,
          .m = s.v_range,
          .n = s.h_range,
          .k = s.gradient_rows,
          .a = s.dz.type,
          .b = r.inputs.x.dtype(),
          .a_operand = true,
          .most_m = filters_gradients(r) ? most_filtered : 0};
}

engines::Product grad_x_product(const Request& r, const Schedule& s) {
  constexpr engines::Layout transposed[] = {
      engines::Layout::along_first, engines::Layout::along_second, engines::Layout::strided};
  return {.use = engines::Use::accumulate,
          .m = s.h_range,
          .n = s.gradient_rows,
          .k = s.v_range,
          .a = r.inputs.w.dtype(),
          .b = s.dz.type,
          .a_layout = transposed[layout_of(r.inputs.w)],
          .k_multiple = filters_gradients(r) ? filter_columns : 1};
}

bool packs_once(const Request& r, const engines::Engine& engine, const Schedule& s) {
  return engine.packs_alike() && s.h_range >= hidden(r);
}

std::int64_t kept_columns(const MutableView& grad_w, const engines::Engine& engine) {
  if (!grad_w || layout_of(grad_w) != layout_hv) return 1;
  return engine.tile_n() * 4 / static_cast<std::int64_t>(size_of(grad_w.dtype()));
}

}  // namespace tessera::linear
