// SPDX-License-Identifier: Apache-2.0
#include "host/linear/opencl/reasons.hpp"

#include <fmt/format.h>

namespace tessera::linear {

Why why_no_logits_in_grad_w(const Request& r, const engines::Engine& engine,
                            const opencl::DeviceFacts& facts, std::int64_t v_piece) {
  const auto& out = r.gradients.grad_w;
  if (!out) return "grad_w is not asked for";
  if (r.gradients.accumulate.has(Accumulate::grad_w)) return "grad_w is added to";
  if (!facts.zero_copy) return "the device does not work on host memory";
  if (v_piece < r.loss.v) return "the device's largest allocation does not hold w or grad_w";
  const int layout = layout_of(out);
  if (layout == layout_strided || hidden(r) < 2) return "grad_w has no contiguous axis";
  const bool by_columns = layout == layout_vh;
  const std::int64_t apart = out.strides()[by_columns ? 1 : 0];
  if (apart < (by_columns ? hidden(r) : r.loss.v)) return "rows of grad_w overlap";
  if (!kernels_can_read(out)) return "kernels cannot read grad_w";
  if (r.loss.v % kept_columns(out, engine) != 0) return "V is no multiple of grad_w's blocks";
  return nullptr;
}

bool sums_in_place(const MutableView& grad_w) { return !grad_w || grad_w.dtype() == DType::f32; }

Why why_not_kept(const Request& r, const engines::Engine&, const Schedule& s) {
  return looks_first(r, s) ? nullptr : "no pass over all logits comes before the gradients";
}

Why why_not_in_grad_w(const Request&, const engines::Engine& engine, const Schedule& s) {
  if (s.tokens_in_grad_w == 0) return s.why_not_in_grad_w;
  return all_rows(engine, s) <= s.tokens_in_grad_w
             ? nullptr
             : "grad_w has no room for the logits of all rows that count";
}

Why why_not_by_range(const Request& r, const engines::Engine& engine, const Schedule& s) {
  const Why reason = why_not_kept(r, engine, s);
  return reason != nullptr ? reason : why_not_in_grad_w(r, engine, s);
}

Why why_not_partly(const Request& r, const engines::Engine& engine, const Schedule& s) {
  if (const Why reason = why_not_kept(r, engine, s)) return reason;
  if (s.tokens_in_grad_w == 0) return s.why_not_in_grad_w;
  if (all_rows(engine, s) <= s.tokens_in_grad_w) return "grad_w has room for all logits";
  return s.teacher.given ? "the logits of a row and its teacher's lie side by side" : nullptr;
}

Why why_not_rows_outer(const Request& r, const engines::Engine&, const Schedule& s) {
  // A row-outer order would need a second pass anyway.
  if (looks_first(r, s)) return "values come first for all rows";
  return sums_in_place(r.gradients.grad_w) ? nullptr : "chunks cannot add to a grad_w of 16 bits";
}

void settle_blocks(const Request& r, const engines::Engine& engine, Schedule& s,
                   std::vector<std::string>& notes) {
  const auto rule = engine.rule();
  const auto settle = [&](const char* name, std::int64_t& block, std::int64_t used,
                          std::int64_t multiple, const std::string& why) {
    used = engines::round_up(std::max<std::int64_t>(used, 1), multiple);
    if (r.execution.block_sizes && block != used) {
      notes.push_back(fmt::format("{} = {} has no effect: {}", name, block, why));
    }
    block = used;
  };
  if (s.logits_cut.k_step == engines::all_of_k) {
    settle("h_block_size", s.blocks.h_block_size, hidden(r), rule.k_multiple,
           fmt::format("opencl.{} sums all of H at once", engine.name()));
  }
  // Where memory has room for fewer rows, those are reported; a caller's block still bounds them.
  const bool fewer = has_gradients(r.loss.pass) && s.source != BlockSource::caller;
  if (s.keeps_logits || fewer || s.chunk_rows > s.blocks.b_block_size) {
    settle("b_block_size", s.blocks.b_block_size, s.chunk_rows, rule.n_multiple,
           fmt::format("the schedule {} takes {} rows at a time", s.name, s.chunk_rows));
  }
}

}  // namespace tessera::linear
