// SPDX-License-Identifier: Apache-2.0
#include "host/softmax_cross_entropy/opencl_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "host/dispatch/knobs.hpp"
#include "host/engines/shares.hpp"
#include "host/loss/opencl_rows.hpp"
#include "host/opencl/specialise.hpp"

// docs/performance.md, "Operators that read rows".
namespace tessera::softmax_cross_entropy {
namespace {

using engines::ceil_div;
using engines::round_up;
using engines::RowPass;

/// Rows of a chunk, at most: enough for any machine, while statistics of its slices stay few.
constexpr std::int64_t most_rows = 4096;
/// What a slice takes beside its columns, counted in them: its group starts, and merging reads its
/// statistics, one row's one after the other.
constexpr double slice_cost = 128;
/// Of a CPU: groups for each core, where rows can be cut into slices that are this long.
constexpr std::int64_t groups_of_slot = 8, worthwhile_slice = 1024;

std::int64_t at_least_one(std::int64_t extent) { return std::max<std::int64_t>(extent, 1); }

/// As many rows as the other chunks have, at most `most`.
std::int64_t even_chunk(std::int64_t rows, std::int64_t most) {
  return ceil_div(rows, ceil_div(rows, most));
}

std::int64_t slice_columns(const Request& r, const RowPass& pass, std::int64_t slices) {
  return round_up(ceil_div(at_least_one(r.loss.v), slices), pass.step());
}

/// What a pass over so many rows in slices takes, in columns that one group passes over meanwhile.
double pass_time(const Request& r, const RowPass& pass, std::int64_t rows, std::int64_t slices) {
  const auto columns = static_cast<double>(slice_columns(r, pass, slices));
  return static_cast<double>(engines::rounds_of(rows * slices, pass.slots)) *
             (columns + slice_cost) +
         static_cast<double>(slices) * slice_cost;
}

std::int64_t best_slices(const Request& r, const RowPass& pass, std::int64_t rows) {
  const std::int64_t v = at_least_one(r.loss.v);
  std::int64_t least = ceil_div(v, pass.longest);
  // A core that something else slows down leaves groups to the others.
  if (pass.items == 1) {
    least = std::max(least,
                     std::min(ceil_div(groups_of_slot * pass.slots, rows), v / worthwhile_slice));
  }
  // More rounds than 16 leave little to gain.
  const std::int64_t most = std::min(ceil_div(v, pass.step()),
                                     least + std::min<std::int64_t>(16 * pass.slots / rows, 4096));
  return engines::cheapest(
      least, least + 1, 1, [&](std::int64_t slices) { return slices <= most; },
      [&](std::int64_t slices) { return pass_time(r, pass, rows, slices); });
}

bool wants_both(const Request& r) { return r.loss.wants_values() && r.gradients.grad_logits; }

/// Whether each work-item has whole rows, one after the other, which saves a look at the logits:
/// with fewer than eight for each core those that are done first wait too long.
bool takes_whole_rows(const Request& r, const RowPass& pass, std::int64_t rows) {
  return wants_both(r) && pass.items == 1 && r.loss.v <= pass.longest &&
         rows >= groups_of_slot * pass.slots;
}

/// The caller's blocks, or those that fill the machine.
void choose_blocks(const Request& r, const engines::Engine& engine, Schedule& s) {
  const auto pass = engine.row_pass();
  const std::int64_t rows = at_least_one(r.loss.b), columns = at_least_one(r.loss.v);
  if (r.execution.block_sizes) {
    s.blocks = *r.execution.block_sizes;
    s.source = BlockSource::caller;
    // The same for every shape of the engine.
    const std::int64_t multiple = engine.rule().m_multiple;
    if (s.blocks.v_block_size % multiple != 0) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("block_sizes: v_block_size = {} is illegal for opencl.{}: it must be a "
                      "positive multiple of {}",
                      s.blocks.v_block_size, engine.name(), multiple));
    }
    s.blocks.b_block_size = std::min(s.blocks.b_block_size, rows);
    s.blocks.v_block_size = std::min(s.blocks.v_block_size, round_up(columns, pass.step()));
  } else {
    s.source = BlockSource::heuristic;
    s.blocks.b_block_size = even_chunk(rows, most_rows);
    const bool whole = takes_whole_rows(r, pass, s.blocks.b_block_size);
    const std::int64_t slices = whole ? 1 : best_slices(r, pass, s.blocks.b_block_size);
    s.blocks.v_block_size = slice_columns(r, pass, slices);
  }
  s.slices = ceil_div(columns, s.blocks.v_block_size);
  s.fused = s.slices == 1 && pass.items == 1 && wants_both(r);
  s.name = s.fused ? "row_by_row" : "streamed";
}

/// Of B rows in chunks.
PlannedLaunches launches_of(const char* kernel, const Request& r, const RowPass& pass,
                            const Schedule& s, double flops_per_logit) {
  const std::int64_t b = r.loss.b;
  const auto room = [&](std::int64_t rows) {
    return engines::room_of(rows * s.slices, pass.slots,
                            static_cast<double>(std::min(s.blocks.v_block_size, r.loss.v)));
  };
  const double logits = static_cast<double>(b) * static_cast<double>(r.loss.v);
  const double all =
      static_cast<double>(b / s.chunk_rows) * room(s.chunk_rows) + room(b % s.chunk_rows);
  return {.kernel = kernel,
          .times = ceil_div(b, s.chunk_rows),
          .groups = std::min(s.chunk_rows, b) * s.slices,
          .share = all > 0.0 ? logits / all : 0.0,
          .flops = flops_per_logit * logits};
}

/// The FLOPs are those of `cost`.
std::vector<PlannedLaunches> all_launches(const Request& r, const RowPass& pass,
                                          const Schedule& s) {
  if (s.fused) return {launches_of("value_and_grad", r, pass, s, 8)};
  std::vector<PlannedLaunches> list;
  if (r.loss.wants_values()) list.push_back(launches_of("forward", r, pass, s, 3));
  if (r.gradients.grad_logits) list.push_back(launches_of("gradient", r, pass, s, 5));
  return list;
}

ConsideredSchedule considered(const Request& r, const RowPass& pass, const Schedule& s,
                              const std::string& reason) {
  ConsideredSchedule one{
      .name = s.name,
      .logits = s.fused ? "in the cache" : (wants_both(r) ? "read again" : "read once"),
      .reason = reason};
  one.workspace_bytes = 4 * s.scratch_words;
  one.launches = all_launches(r, pass, s);
  one.predicted_share = engines::machine_share(one.launches);
  if (one.predicted_share < 0.9 && !s.fused && s.source == BlockSource::heuristic) {
    one.reason += "; more slices would take longer to merge";
  }
  return one;
}

/// The same call in slices, or in whole rows.
Schedule cut_otherwise(const Request& r, const engines::Engine& engine, const Schedule& taken) {
  const auto pass = engine.row_pass();
  Schedule s = taken;
  s.fused = !taken.fused;
  s.name = s.fused ? "row_by_row" : "streamed";
  if (s.source != BlockSource::caller) {
    s.slices = s.fused ? 1 : best_slices(r, pass, std::min(at_least_one(r.loss.b), most_rows));
    s.blocks.v_block_size = slice_columns(r, pass, s.slices);
    s.slices = ceil_div(at_least_one(r.loss.v), s.blocks.v_block_size);
  }
  s.scratch_words = scratch_words(r, engine, s.chunk_rows, s.slices);
  return s;
}

}  // namespace

std::int64_t scratch_words(const Request& r, const engines::Engine& engine, std::int64_t chunk_rows,
                           std::int64_t slices) {
  std::int64_t words = loss::loss_rows_words(r.loss, engine.tile_n());
  if (r.loss.wants_values())
    words += opencl::region_words(loss::statistics_fields(r.loss) * slices * chunk_rows);
  if (has_gradients(r.loss.pass)) words += opencl::region_words(5 * chunk_rows);
  return words;
}

Schedule make_schedule(const Request& r, const engines::Engine& engine,
                       const opencl::DeviceFacts& facts) {
  Schedule s;
  choose_blocks(r, engine, s);
  s.chunk_rows = s.blocks.b_block_size;
  std::int64_t bytes = engines::default_workspace_bytes(facts, r.loss.v);
  if (r.execution.workspace_bytes) bytes = static_cast<std::int64_t>(*r.execution.workspace_bytes);
  const auto allowed = [&](std::int64_t chunk) {
    return scratch_words(r, engine, chunk, s.slices) * 4 <= bytes &&
           loss::statistics_fields(r.loss) * s.slices * chunk * 4 <= facts.max_allocation_bytes;
  };
  // The caller's, where it can be had; check_knobs compares.
  const auto given = dispatch::value_of(r.execution.knobs, "chunk_rows").value_or(0);
  if (given > 0 && given <= s.chunk_rows && allowed(given)) s.chunk_rows = given;
  while (s.chunk_rows > 1 && !allowed(s.chunk_rows)) s.chunk_rows = ceil_div(s.chunk_rows, 2);
  if (!allowed(s.chunk_rows) && r.execution.workspace_bytes) {
    throw Error(
        ErrorCode::workspace_too_small,
        fmt::format("workspace_bytes (or the lent workspace) is {}, too small for B {}, V {} on "
                    "opencl.{}; it needs at least {}",
                    bytes, r.loss.b, r.loss.v, engine.name(),
                    scratch_words(r, engine, 1, s.slices) * 4));
  }
  s.scratch_words = scratch_words(r, engine, s.chunk_rows, s.slices);
  return s;
}

std::vector<ConsideredSchedule> explain(const Request& r, const engines::Engine& engine,
                                        const Schedule& taken) {
  const auto pass = engine.row_pass();
  if (!wants_both(r)) {
    auto only = considered(r, pass, taken, "one pass has no other");
    only.is_taken = true;
    return {only};
  }
  ConsideredSchedule whole{.name = "row_by_row", .logits = "in the cache"};
  const Schedule other = cut_otherwise(r, engine, taken);
  if (taken.fused) {
    whole = considered(r, pass, taken, "takes logits from memory once");
    const auto streamed = considered(r, pass, other, "reads logits once more");
    whole.is_taken = true;
    return {whole, streamed};
  }
  if (pass.items > 1) {
    whole.reason = fmt::format("a row is {} work-items', and it takes one", pass.items);
  } else if (taken.source == BlockSource::caller || r.loss.v > pass.longest) {
    whole.reason = fmt::format("rows are cut into slices of {}", taken.blocks.v_block_size);
  } else {
    whole = considered(r, pass, other, "fewer rows than eight for each core");
  }
  auto streamed =
      considered(r, pass, taken,
                 whole.launches.empty() ? "the first that is possible"
                                        : "slices of rows keep more of the machine busy");
  streamed.is_taken = true;
  return {whole, streamed};
}

}  // namespace tessera::softmax_cross_entropy
