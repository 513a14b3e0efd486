// SPDX-License-Identifier: Apache-2.0
#include "host/linear/opencl/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "host/dispatch/host_views.hpp"
#include "host/dispatch/knobs.hpp"
#include "host/linear/opencl/reasons.hpp"
#include "host/loss/opencl_rows.hpp"
#include "host/loss/targets.hpp"
#include "host/opencl/specialise.hpp"

namespace tessera::linear {
namespace {

using engines::ceil_div;
using engines::round_up;

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

/// Tokens whose logits fit where grad_w will be: H elements a column, f32 logits of every token.
/// Such memory costs nothing, is as large as the logits of H tokens, and is written over only when
/// they have been used.
std::int64_t tokens_in_grad_w(const Request& r, const engines::Engine& engine, const Schedule& s) {
  if (s.why_not_in_grad_w != nullptr) return 0;
  const auto size = static_cast<std::int64_t>(size_of(r.gradients.grad_w.dtype()));
  const std::int64_t tile = engine.tile_n();
  return hidden(r) * size / 4 / tile * tile / (s.teacher.given ? 2 : 1) / tile * tile;
}

BlockSizes clamp_to_problem(BlockSizes blocks, const Request& r, const engines::Engine& engine) {
  const auto rule = engine.rule();
  const auto limit = [](std::int64_t block, std::int64_t extent, std::int64_t multiple) {
    return std::min(block, round_up(std::max<std::int64_t>(extent, 1), multiple));
  };
  blocks.b_block_size =
      limit(blocks.b_block_size, r.loss.b, std::max(rule.n_multiple, engine.tile_n()));
  blocks.h_block_size = limit(blocks.h_block_size, hidden(r), rule.k_multiple);
  blocks.v_block_size = limit(blocks.v_block_size, r.loss.v, rule.m_multiple);
  return blocks;
}

/// The blocks given, or the memory model's, and what follows from the request alone.
Schedule base_schedule(const Request& r, const engines::Engine& engine,
                       const opencl::DeviceFacts& facts, const Teacher& teacher) {
  Schedule s;
  s.rows = loss::counted_rows(r.loss);
  s.v_piece = std::min(columns_per_binding(r.inputs.w, r.loss.v, facts, "w"),
                       columns_per_binding(r.gradients.grad_w, r.loss.v, facts, "grad_w"));
  if (teacher.given) {
    s.teacher = teacher;
    s.v_piece = std::min(s.v_piece, teacher.columns);
  }
  // A block of dz begins where another piece does.
  const engines::Stored dz{engine.stored_type(r.inputs.x.dtype(), r.inputs.w.dtype()), true};
  if (s.v_piece < r.loss.v && engine.operand_words(dz, s.v_piece) != s.v_piece) {
    throw Error(
        ErrorCode::out_of_memory,
        fmt::format("the device's maximum allocation of {} bytes holds {} columns of w or "
                    "grad_w, and opencl.{} takes multiples of {}; use another implementation",
                    facts.max_allocation_bytes, s.v_piece, engine.name(), engine.stored_block()));
  }
  s.h_range = hidden(r);
  s.why_not_in_grad_w = why_no_logits_in_grad_w(r, engine, facts, s.v_piece);
  s.tokens_in_grad_w = tokens_in_grad_w(r, engine, s);
  if (s.tokens_in_grad_w == 0 && s.why_not_in_grad_w == nullptr) {
    s.why_not_in_grad_w = "a column of grad_w has no room for a tile of tokens";
  }
  if (r.execution.block_sizes) {
    s.blocks = *r.execution.block_sizes;
    s.source = BlockSource::caller;
  } else {
    Schedule whole;
    whole.chunk_rows = r.loss.b;
    whole.blocks = {r.loss.b, 0, r.loss.v};
    const auto blocks = engine.heuristic(logits_product(r, whole));
    s.blocks = BlockSizes{blocks.n, blocks.k, blocks.m};
    s.source = BlockSource::heuristic;
  }
  s.blocks = clamp_to_problem(s.blocks, r, engine);
  if (teacher.is_layer) {
    s.teacher_h_block = r.execution.block_sizes ? r.execution.block_sizes->h_block_size
                                                : engine.heuristic(teacher_product(s)).k;
  }
  return s;
}

}  // namespace

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

std::array<std::int64_t, 16> Regions::all() const {
  return {packed_rows,    packed_columns, stats,        coefficients, dz,     sums_x,
          sums_w,         sums_bias,      bias_lanes,   groups,       filter, beyond,
          packed_teacher, teacher_logits, teacher_sums, teacher_rows};
}

std::int64_t Regions::total() const {
  std::int64_t sum = 0;
  for (const auto words : all()) {
    if (words > 0) sum += opencl::region_words(words);
  }
  return sum;
}

std::int64_t Regions::largest() const {
  const auto words = all();
  return *std::max_element(words.begin(), words.end());
}

std::int64_t sums_x_words(const Schedule& s) {
  return (s.v_outer ? s.chunks : 1) * s.gradient_rows * s.h_padded;
}

Regions regions_of(const Request& r, const engines::Engine& engine, const Schedule& s) {
  const auto& g = r.gradients;
  const bool grads = has_gradients(r.loss.pass);
  Regions w;
  w.packed_rows = s.chunk_rows * engine.operand_words(logits_product(r, s));
  if (r.loss.wants_values()) {
    w.stats = s.slices * loss::statistics_fields(r.loss) * s.chunk_rows;
  }
  // One region serves every launch that multiplies.
  const auto add_launch = [&](const engines::Cut& cut, std::int64_t parts, std::int64_t columns,
                              std::int64_t batch = 1) {
    const std::int64_t panels = ceil_div(columns, engine.tile_n());
    w.groups = std::max(w.groups, batch * engine.scratch_words(cut, parts, panels, s.shrink));
  };
  const std::int64_t parts_of_range = ceil_div(s.v_range, engine.strip());
  const bool in_scratch = s.keeps_logits && !s.logits_in_grad_w;
  add_launch(s.logits_cut, s.slices, s.chunk_rows);
  if (grads && !s.keeps_logits) add_launch(s.logits_cut, parts_of_range, s.chunk_rows);
  if (s.teacher.given) {
    if (s.teacher.is_layer) {
      w.packed_teacher = s.chunk_rows * engine.operand_words(teacher_product(s));
      add_launch(s.teacher_cut, std::max(s.slices, parts_of_range), s.chunk_rows);
    }
    const std::int64_t words = engine.operand_words(s.dz, in_scratch ? r.loss.v : s.v_range);
    if (!s.logits_in_grad_w) w.teacher_logits = s.chunk_rows * words;
    w.dz = s.chunk_rows * words;
    w.teacher_sums = s.slices * s.teacher.sum_words * s.chunk_rows;
    w.teacher_rows = all_rows(engine, s) * s.teacher.row_words;
  }
  if (!grads) return w;
  w.coefficients = 5 * s.gradient_rows + (s.dz.type == DType::f16 ? s.chunks : 0);
  w.beyond = s.rows_beyond * r.loss.v;
  w.dz = s.gradient_rows * engine.operand_words(s.dz, in_scratch ? r.loss.v : s.v_range);
  if (g.grad_w) {
    const std::int64_t columns =
        engine.operand_words(grad_w_product(r, s)) * round_up(s.h_range, engine.tile_n());
    // With stored logits x is packed for one product after the other.
    if (s.keeps_logits || packs_once(r, engine, s)) {
      w.packed_rows = std::max(w.packed_rows, columns);
    } else {
      w.packed_columns = columns;
    }
    if (s.grad_w == Schedule::GradW::range) w.sums_w = s.v_range * hidden(r);
    if (s.grad_w == Schedule::GradW::full) w.sums_w = r.loss.v * hidden(r);
    add_launch(s.grad_w_cut, engine.parts(s.v_range, s.grad_w_cut, s.shrink), s.h_range);
  }
  if (g.grad_x) {
    w.sums_x = s.x_parts * sums_x_words(s);
    add_launch(s.grad_x_cut, engine.parts(s.h_range, s.grad_x_cut, s.shrink), s.gradient_rows,
               s.x_parts);
  }
  if (g.grad_bias) {
    w.sums_bias = r.loss.v;
    if (sums_bias_on_the_way(r, s)) w.bias_lanes = s.v_range * engine.row_pass().lanes;
  }
  if (filters_gradients(r)) {
    w.filter = s.gradient_rows / engine.tile_n() * ceil_div(s.v_range, filter_columns);
  }
  return w;
}

std::int64_t least_words(const std::function<bool(std::int64_t)>& accepts) {
  std::int64_t high = 64;
  while (high < most_words && !accepts(high)) high *= 4;
  std::int64_t low = high / 4;
  while (high - low > 16) {  // 64 bytes are a region's granularity
    const std::int64_t middle = (low + high) / 2;
    (accepts(middle) ? high : low) = middle;
  }
  return high;
}

std::vector<Choice> candidates_of(const Request& r, const engines::EngineShapes& shapes,
                                  const opencl::DeviceFacts& facts, const Teacher& teacher) {
  std::vector<Choice> list;
  const auto& given = r.execution.block_sizes;
  for (const auto& engine : shapes) {
    if (given && engine != shapes.back() && given->b_block_size % engine->tile_n() != 0) continue;
    Choice& candidate = list.emplace_back();
    candidate.engine = engine;
    candidate.base = base_schedule(r, *engine, facts, teacher);
  }
  return list;
}

namespace {

std::optional<Choice> choose_any(const Request& r, const std::vector<Choice>& candidates,
                                 const Limits& limits) {
  // A narrower tile costs less than cores that do nothing.
  for (const Cores cores : {Cores::busy, Cores::idle}) {
    for (const Choice& c : candidates) {
      if (auto schedule = choose(r, *c.engine, c.base, limits, cores)) {
        return Choice{c.engine, *schedule, c.base, limits, cores};
      }
    }
  }
  return std::nullopt;
}

std::int64_t minimum_bytes(const Request& r, const std::vector<Choice>& candidates,
                           std::int64_t allocation) {
  return 4 * least_words([&](std::int64_t words) {
           return choose_any(r, candidates, {words, allocation}).has_value();
         });
}

/// Throws where it is the caller's knobs that no schedule has.
void check_schedule_knobs(const Request& r, const std::vector<Choice>& candidates,
                          const Limits& limits) {
  std::vector<NamedValue> others(r.execution.knobs.begin(), r.execution.knobs.end());
  std::erase_if(others, [](const NamedValue& knob) {
    return knob.name == "chunk_rows" || knob.name == "v_range";
  });
  if (others.size() == r.execution.knobs.size()) return;
  Request free = r;
  free.execution.knobs = others;
  // The default workspace is a wish.
  auto choice = choose_any(free, candidates, limits);
  if (!choice && !r.execution.workspace_bytes) {
    choice = choose_any(free, candidates, {most_words, limits.allocation});
  }
  if (!choice) return;
  const auto& engine = choice->engine;
  const Schedule& s = choice->schedule;
  for (const auto& [name, value] :
       {std::pair{"chunk_rows", s.chunk_rows}, {"v_range", s.v_range}}) {
    const auto given = dispatch::value_of(r.execution.knobs, name);
    if (!given || *given == value) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("knobs: {} = {} is not to be had on opencl.{} with these shapes, block "
                            "sizes, workspace and knobs: it is a multiple of {}, {} where the call "
                            "chooses; leave it out, or change those",
                            name, *given, engine->name(),
                            std::string_view(name) == "v_range" ? engine->rule().m_multiple
                                                                : engine->tile_n(),
                            value));
  }
}

/// The least maximum allocation with which there is a schedule.
std::int64_t least_allocation(const Request& r, const engines::EngineShapes& shapes,
                              opencl::DeviceFacts facts, const Teacher& teacher) {
  return 4 * least_words([&](std::int64_t words) {
           // Also how many pieces w comes in, each with slices of its own, depends on it.
           facts.max_allocation_bytes = 4 * words;
           try {
             return choose_any(r, candidates_of(r, shapes, facts, teacher), {most_words, words})
                 .has_value();
           } catch (const Error&) {
             return false;  // not even a column of w
           }
         });
}

}  // namespace

std::int64_t minimum_workspace_bytes(const Request& request, const engines::EngineShapes& shapes,
                                     const opencl::DeviceFacts& facts, const Teacher& teacher) {
  return minimum_bytes(request, candidates_of(request, shapes, facts, teacher),
                       facts.max_allocation_bytes / 4);
}

Choice make_schedule(const Request& r, const engines::EngineShapes& shapes,
                     const opencl::DeviceFacts& facts, const Teacher& teacher) {
  const auto& first = *shapes.front();
  if (r.execution.block_sizes) check_blocks(*r.execution.block_sizes, first);
  const auto candidates = candidates_of(r, shapes, facts, teacher);
  std::int64_t bytes = 0;
  if (r.execution.workspace_bytes) {
    bytes = static_cast<std::int64_t>(*r.execution.workspace_bytes);
  } else {
    bytes = engines::default_workspace_bytes(facts, r.loss.v);
  }
  const std::int64_t allocation = facts.max_allocation_bytes / 4;
  if (r.execution.workspace_bytes) {
    if (auto choice = choose_any(r, candidates, {bytes / 4, allocation})) return *choice;
  } else {
    // The default is a wish, not a bound: the fastest shape that can run at all gets what it needs.
    for (const Cores cores : {Cores::busy, Cores::idle}) {
      for (const Choice& c : candidates) {
        const auto& engine = c.engine;
        if (!choose(r, *engine, c.base, {most_words, allocation}, cores)) continue;
        for (std::int64_t words = bytes / 4;; words += words / 4) {
          Limits limits{words, allocation};
          auto schedule = choose(r, *engine, c.base, limits, cores);
          if (!schedule) continue;
          // Where sums of gradients take most of it, what fits just so has ranges of a few columns:
          // the wish is for all else then.
          if (has_gradients(r.loss.pass) && is_narrow(r, *engine, *schedule)) {
            limits.words += bytes / 4;
            if (auto wider = choose(r, *engine, c.base, limits, cores)) schedule = std::move(wider);
          }
          return {engine, *schedule, c.base, limits, cores};
        }
      }
    }
  }
  check_schedule_knobs(r, candidates, {bytes / 4, allocation});
  if (!choose_any(r, candidates, {most_words, allocation})) {
    throw Error(ErrorCode::out_of_memory,
                fmt::format("no schedule of opencl.{} for B {}, H {}, V {} keeps each piece of "
                            "scratch within the device's maximum allocation of {} bytes; the least "
                            "that any needs is {}{}, or use another implementation",
                            first.name(), r.loss.b, hidden(r), r.loss.v, facts.max_allocation_bytes,
                            least_allocation(r, shapes, facts, teacher),
                            r.execution.block_sizes ? "; give smaller block_sizes or none" : ""));
  }
  throw Error(ErrorCode::workspace_too_small,
              fmt::format("workspace_bytes (or the lent workspace) is {}, too small for B {}, H "
                          "{}, V {} on opencl.{}; it "
                          "needs at least {}",
                          bytes, r.loss.b, hidden(r), r.loss.v, first.name(),
                          minimum_bytes(r, candidates, allocation)));
}

}  // namespace tessera::linear
