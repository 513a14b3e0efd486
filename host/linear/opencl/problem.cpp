// SPDX-License-Identifier: Apache-2.0
#include "host/linear/opencl/problem.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "host/dispatch/host_views.hpp"
#include "host/loss/opencl_rows.hpp"
#include "host/loss/targets.hpp"
#include "host/opencl/errors.hpp"

// The facts of a request on an engine and a device, from which schedules begin.
namespace tessera::linear {

using engines::round_up;

bool filters_gradients(const Request& r) {
  return r.execution.gradient_filter_eps > 0.0f && (r.gradients.grad_x || r.gradients.grad_w);
}

bool has_one_cotangent(const Request& r) {
  const auto& loss = r.loss;
  return loss.options.reduction != Reduction::none && loss.labels && !loss.weight &&
         !loss.class_weight && !loss.dlse;
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

std::int64_t kept_columns(const MutableView& grad_w, const engines::Engine& engine) {
  if (!grad_w || layout_of(grad_w) != layout_hv) return 1;
  return engine.tile_n() * 4 / static_cast<std::int64_t>(size_of(grad_w.dtype()));
}

std::int64_t columns_per_binding(const View& view, std::int64_t v, const opencl::DeviceFacts& facts,
                                 const char* name) {
  const std::int64_t all = std::max<std::int64_t>(v, 1);
  if (!view || view.is_device() || dispatch::footprint_bytes(view) <= facts.max_allocation_bytes) {
    return all;
  }
  const auto column_bytes = std::max<std::int64_t>(1, view.extents()[0]) *
                            static_cast<std::int64_t>(size_of(view.dtype()));
  const std::int64_t fit = facts.max_allocation_bytes / column_bytes;
  if (fit < 1) {
    throw Error(ErrorCode::out_of_memory,
                fmt::format("one column of {} has {} bytes, more than the device's maximum "
                            "allocation of {}; use another implementation",
                            name, column_bytes, facts.max_allocation_bytes));
  }
  return std::min(all, fit >= 64 ? fit / 64 * 64 : fit);
}

namespace {

engines::Blocks clamp_to_problem(engines::Blocks blocks, const Request& r,
                                 const engines::Engine& engine) {
  const auto rule = engine.rule();
  const auto limit = [](std::int64_t block, std::int64_t extent, std::int64_t multiple) {
    return std::min(block, round_up(std::max<std::int64_t>(extent, 1), multiple));
  };
  return {.m = limit(blocks.m, r.loss.v, rule.m_multiple),
          .n = limit(blocks.n, r.loss.b, std::max(rule.n_multiple, engine.tile_n())),
          .k = limit(blocks.k, hidden(r), rule.k_multiple)};
}

}  // namespace

Problem::Problem(const Request& request, std::shared_ptr<const engines::Engine> engine)
    : schedule::Problem(std::move(engine), request.execution.knobs), r_(request) {
  range_knob = "v_range";
  has_ranges = has_gradients(request.loss.pass);
  if (const auto& bytes = request.execution.workspace_bytes) {
    workspace_bytes = static_cast<std::int64_t>(*bytes);
  }
}

engines::Operands Problem::operands() const {
  const DType w = r_.inputs.w.dtype();
  engines::Operands operands{.a = w,
                             .b = r_.inputs.x.dtype(),
                             .filtered = filters_gradients(r_),
                             .line_bytes = line_bytes(r_.inputs.w)};
  const bool underflows = w == DType::f16 && !has_one_cotangent(r_);
  const bool stays_f32 =
      r_.execution.dz_dtype == DType::f32 || r_.gradients.grad_bias || underflows;
  if (has_gradients(r_.loss.pass) && stays_f32) operands.others.push_back(DType::f32);
  return operands;
}

std::optional<std::string> Problem::refuses(const opencl::DeviceFacts&) const {
  return engines::beyond_32_bits({{"B", r_.loss.b}, {"H", hidden(r_)}, {"V", r_.loss.v}});
}

std::int64_t Problem::bound_columns(const opencl::DeviceFacts& facts) const {
  return std::min(columns_per_binding(r_.inputs.w, r_.loss.v, facts, "w"),
                  columns_per_binding(r_.gradients.grad_w, r_.loss.v, facts, "grad_w"));
}

void Problem::plan_for(const opencl::DeviceFacts& facts) {
  base.all = {loss::counted_rows(r_.loss), r_.loss.v, hidden(r_)};
  base.at.depth = hidden(r_);
  base.piece = bound_columns(facts);
  // A block of dz begins where another piece does.
  const engines::Stored dz{engine().stored_type(r_.inputs.x.dtype(), r_.inputs.w.dtype()), true};
  if (base.piece < r_.loss.v && engine().operand_words(dz, base.piece) != base.piece) {
    throw Error(
        ErrorCode::out_of_memory,
        fmt::format("the device's maximum allocation of {} bytes holds {} columns of w or "
                    "grad_w, and opencl.{} takes multiples of {}; use another implementation",
                    facts.max_allocation_bytes, base.piece, engine().name(),
                    engine().stored_block()));
  }
  no_logits_in_grad_w_ = why_no_logits_in_grad_w(facts);
  if (const auto& given = r_.execution.block_sizes) {
    base.blocks = {given->v_block_size, given->b_block_size, given->h_block_size};
    base.source = BlockSource::caller;
  } else {
    Schedule whole;
    whole.at.rows = r_.loss.b;
    whole.blocks = {r_.loss.v, r_.loss.b, 0};
    base.blocks = engine().heuristic(logits_product(whole));
    base.source = BlockSource::heuristic;
  }
  base.blocks = clamp_to_problem(base.blocks, r_, engine());
}

std::int64_t Problem::other_words() const {
  return loss::loss_rows_words(r_.loss, engine().tile_n());
}

std::string Problem::extents() const {
  return fmt::format("B {}, H {}, V {}", r_.loss.b, hidden(r_), r_.loss.v);
}

engines::Rates Problem::rates() const { return engine().rates(logits_product(base)); }

std::vector<NamedValue> knobs_of(const Problem& p, const Schedule& s) {
  auto knobs = p.engine().knobs();
  knobs.push_back({"slices", s.steps.slices});
  knobs.push_back({"chunk_rows", s.at.rows});
  knobs.push_back({"v_range", s.at.columns});
  if (filters_gradients(p.request())) {
    // Knobs are whole numbers: billionths.
    const double eps = static_cast<double>(p.request().execution.gradient_filter_eps);
    knobs.push_back({"gradient_filter_eps_1e-9", std::llround(eps * 1e9)});
    knobs.push_back({"gradient_filter_tokens", p.engine().tile_n()});
  }
  return knobs;
}

namespace {

void check_blocks(const BlockSizes& blocks, const engines::Engine& engine) {
  const auto rule = engine.rule();
  const struct {
    const char* name;
    std::int64_t value, multiple;
  } checks[] = {{"b_block_size", blocks.b_block_size, rule.n_multiple},
                {"h_block_size", blocks.h_block_size, rule.k_multiple},
                {"v_block_size", blocks.v_block_size, rule.m_multiple}};
  for (const auto& check : checks) {
    if (check.value < 1 || check.value % check.multiple != 0) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("block_sizes: {} = {} is illegal for opencl.{}: it must be a positive "
                      "multiple of {}",
                      check.name, check.value, engine.name(), check.multiple));
    }
  }
}

}  // namespace

schedule::MakeProblems problems_of(const MakeProblem& make, const engines::EngineShapes& shapes) {
  return [=](const opencl::DeviceFacts& facts) {
    schedule::Problems list;
    for (const auto& engine : shapes) {
      auto problem = make(engine);
      if (const auto& given = problem->request().execution.block_sizes) {
        if (engine == shapes.front()) check_blocks(*given, *engine);
        if (engine != shapes.back() && given->b_block_size % engine->tile_n() != 0) continue;
      }
      problem->plan_for(facts);
      list.push_back(std::move(problem));
    }
    return list;
  };
}

void settle_blocks(const Problem& p, Schedule& s, std::vector<std::string>& notes) {
  const auto& engine = p.engine();
  const auto rule = engine.rule();
  const auto settle = [&](const char* name, std::int64_t& block, std::int64_t used,
                          std::int64_t multiple, const std::string& why) {
    used = round_up(std::max<std::int64_t>(used, 1), multiple);
    if (s.source == BlockSource::caller && block != used) {
      notes.push_back(fmt::format("{} = {} has no effect: {}", name, block, why));
    }
    block = used;
  };
  if (s.steps.product(*s.steps.visited()).cut.k_step == engines::all_of_k) {
    settle("h_block_size", s.blocks.k, s.all.depth, rule.k_multiple,
           fmt::format("opencl.{} sums all of H at once", engine.name()));
  }
  // A block of fewer rows is reported where memory has room for no more; a caller's still bounds
  // them.
  const bool fewer = p.has_ranges && s.source != BlockSource::caller;
  if (s.keeps_results() || fewer || s.at.rows > s.blocks.n) {
    settle("b_block_size", s.blocks.n, s.at.rows, rule.n_multiple,
           fmt::format("the schedule {} takes {} rows at a time", s.name, s.at.rows));
  }
}

}  // namespace tessera::linear
