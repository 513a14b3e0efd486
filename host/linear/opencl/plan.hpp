// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host/engines/engine.hpp"
#include "host/linear/request.hpp"

namespace tessera::linear {

/// Gradient filtering: columns of the vocabulary in a tile of dz that counts or does not, by as
/// many tokens as the engine's tile has. Small, so that tiles without a large element are many;
/// deep enough for a product of it to run at speed.
constexpr std::int64_t filter_columns = 64;
bool filters_gradients(const Request& request);

/// Launches of less than this many columns are not worth their start.
constexpr std::int64_t fewest_columns = 256;

/// What else a schedule has room for where another operator is this one and a teacher: a second
/// layer over the same rows and columns, whose logits lie beside the request's own.
struct Teacher {
  bool given = false;
  bool is_layer = false;  ///< false: its logits are given
  std::int64_t h = 0;     ///< of its layer
  DType x = DType::f32, w = DType::f32;
  int w_layout = 0;            ///< layout_vh and so on
  std::int64_t columns = 0;    ///< that one binding reaches, of its w
  bool is_known = false;       ///< what its rows come to is given: no look before the gradients
  bool looks_twice = false;    ///< at all logits, before any gradient
  std::int64_t sum_words = 0;  ///< of a row in each slice: what is summed over both logits
  std::int64_t row_words = 0;  ///< of each row of the call
};

/// How one call is cut into launches, decided before anything runs.
struct Schedule {
  /// "streamed" (forward), "one_chunk", "chunked", "chunked_f32_grad_w", "v_outer", and
  /// "one_chunk_in_grad_w", "h_outer_in_grad_w", "v_outer_in_grad_w" with logits_in_grad_w, or
  /// "one_chunk_partly_in_grad_w" of more tokens than it has room for.
  std::string name{};
  BlockSizes blocks{};
  BlockSource source = BlockSource::fallback;

  std::int64_t rows = 0;           ///< upper bound of the rows that count
  std::int64_t chunk_rows = 0;     ///< rows treated together, a multiple of the engine's tile
  std::int64_t gradient_rows = 0;  ///< the same of gradients: all rows, or those of a chunk
  std::int64_t chunks = 0;
  std::int64_t v_piece = 0;            ///< columns of w (and grad_w) that one binding may reach
  std::int64_t v_range = 0;            ///< columns whose dz is held at a time
  std::int64_t h_range = 0;            ///< of H, whose gradients are formed at a time
  std::int64_t tokens_in_grad_w = 0;   ///< whose logits grad_w's memory can keep
  const char* why_not_in_grad_w = "";  ///< where that is 0
  bool keeps_logits = false;           ///< kept for gradients: no range forms them again
  bool logits_in_grad_w = false;  ///< in the memory of the caller's grad_w, until it is written
  std::int64_t rows_beyond = 0;   ///< of these not: the last ones, whose logits lie in scratch
  bool v_outer = false;           ///< ranges of the vocabulary outside, chunks of rows inside

  Teacher teacher{};
  std::int64_t teacher_h_block = 0;
  /// Both logits of a range wait beside each other, whatever pass they are for: a look at all of
  /// them goes range by range too.
  std::int64_t looked_at() const { return keeps_logits ? v_piece : std::min(v_range, v_piece); }
  std::int64_t look_block = 0;  ///< columns of a slice of that

  enum class GradW {
    direct,  ///< into the caller's view, chunk after chunk
    range,   ///< f32 scratch for one range, written when its rows are complete
    full,    ///< f32 scratch for all of it, written at the end
  };
  GradW grad_w = GradW::direct;
  bool streams_grad_w = false;  ///< past the caches, where it is written once and directly

  engines::Stored dz{};
  engines::Cut logits_cut{}, teacher_cut{}, grad_w_cut{}, grad_x_cut{};
  std::int64_t shrink = 1;    ///< of Engine::cut and groups
  std::int64_t slices = 0;    ///< of the whole vocabulary of this call
  std::int64_t h_padded = 0;  ///< rows of h in a panel of grad_x sums
  std::int64_t x_parts = 1;   ///< of a range of the vocabulary, with sums of grad_x of their own
  std::int64_t x_part_columns(const engines::Engine& engine, std::int64_t columns) const {
    return engines::round_up(engines::ceil_div(columns, x_parts), engine.rule().m_multiple);
  }
  std::int64_t scratch_words = 0;
};

/// What a call reports of itself as knobs: the engine's, and what the schedule came to.
std::vector<NamedValue> knobs_of(const Request& request, const engines::Engine& engine,
                                 const Schedule& schedule);

/// Whether a pass over all logits comes before the first gradient: for values, or for what a
/// teacher's gradient needs.
bool looks_first(const Request& request, const Schedule& schedule);

/// All rows that count, in whole tiles of tokens.
std::int64_t all_rows(const engines::Engine& engine, const Schedule& schedule);

/// Whether one work-item of the engine forms dz of all tokens against a column of the vocabulary,
/// so that it can sum grad_bias as it does (add_to_bias).
bool sums_bias_itself(const engines::Engine& engine);
/// What Schedule::dz is of one that is otherwise complete.
engines::Stored stored_dz(const Request& request, const engines::Engine& engine,
                          const Schedule& schedule);
/// True where all rows have one cotangent, so that one power of two keeps the dz of all of them
/// within f16 (cl_kernels/linear/fit_f16.cl).
bool has_one_cotangent(const Request& request);
/// Whether grad_bias is summed as dz is formed, before that is rounded.
bool sums_bias_on_the_way(const Request& request, const Schedule& schedule);

/// Columns of a slice with which every work-group has as many of a launch over so many.
std::int64_t even_block(const Request& request, const engines::Engine& engine,
                        const Schedule& schedule, std::int64_t columns);

/// Columns of a matrix [H, V] that fit one allocation, densely or as they lie, of v. Throws Error
/// out_of_memory where not one does.
std::int64_t columns_per_binding(const View& view, std::int64_t v, const opencl::DeviceFacts& facts,
                                 const char* name);

/// Whether an output is memory that kernels may also read.
bool kernels_can_read(const MutableView& view);

/// W_VH, W_HV and W_STRIDED of cl_kernels/linear/operands.cl: which index of w [H, V]
/// is contiguous. An axis of extent 1 may have any stride.
constexpr int layout_vh = 0, layout_hv = 1, layout_strided = 2;
int layout_of(const View& w);
/// Operands::line_bytes of w [H, V] as kernels get it: device memory as it lies; host memory as it
/// is staged, since no device whose engine asks works on it in place.
std::int64_t line_bytes(const View& w);

/// The products of a schedule: those of logits and grad_x have tokens as n, so that an epilogue has
/// a token's logits in one column. logits [V][B] = w^T x^T, grad_w [V][H] = dz^T x, grad_x [H][B] =
/// w dz^T.
engines::Product logits_product(const Request& request, const Schedule& schedule);
engines::Product teacher_product(const Schedule& schedule);  ///< its logits, [V][B] too
engines::Product grad_w_product(const Request& request, const Schedule& schedule);
engines::Product grad_x_product(const Request& request, const Schedule& schedule);

/// True: x is packed once for both products with it.
bool packs_once(const Request& request, const engines::Engine& engine, const Schedule& schedule);

/// Columns that share a row of logits kept in grad_w as [H, V]: where TILE_N f32 logits fit. 1 for
/// [V, H], where every column has its own. KEPT_COLUMNS of operands.cl.
std::int64_t kept_columns(const MutableView& grad_w, const engines::Engine& engine);

/// What a schedule may take.
struct Limits {
  std::int64_t words = 0;       ///< of all scratch
  std::int64_t allocation = 0;  ///< words of one region
};
constexpr std::int64_t most_words = std::int64_t{1} << 44;  ///< of scratch: beyond any device
/// The least `words` up to most_words that `accepts` takes, which takes all that are more; more
/// than most_words: none.
std::int64_t least_words(const std::function<bool(std::int64_t words)>& accepts);

/// Whether every core must have work, or some may idle for lack of memory: fewer work-groups, and
/// fewer, longer slices than the heuristic's.
enum class Cores { busy, idle };

/// A way to nest the passes: a schedule of which kind a call may have.
struct Way {
  const char* name;    ///< of its schedules, or of the usual ones
  const char* logits;  ///< ConsideredSchedule::logits
  /// Why no memory would do; nullptr: some would. May be nullptr itself.
  const char* (*why_not)(const Request&, const engines::Engine&, const Schedule& base);
  /// Within the limits, with tiles of base.shrink.
  std::optional<Schedule> (*make)(const Request&, const engines::Engine&, const Schedule& base,
                                  const Limits&);
};
/// All ways of a request's pass, best first.
std::span<const Way> ways_of(const Request& request);

/// The best schedule within the limits, from one with blocks, rows and v_piece; nothing: there is
/// none.
std::optional<Schedule> choose(const Request& request, const engines::Engine& engine,
                               const Schedule& base, const Limits& limits, Cores cores);

/// Whether scratch was short: a range has fewer columns than are worth a launch, a chunk fewer rows
/// than the caller's blocks ask for, or a range as wide as is best would save 5% of the call.
bool is_narrow(const Request& request, const engines::Engine& engine, const Schedule& schedule);

/// A schedule, the shape of the engine that it is for, and what it was chosen from.
struct Choice {
  std::shared_ptr<const engines::Engine> engine{};
  Schedule schedule{};
  Schedule base{};
  Limits limits{};
  Cores cores = Cores::busy;
};

/// The shapes whose tiles the caller's blocks decompose into, each with the base of its schedules.
/// Throws Error out_of_memory where not a column of w fits an allocation.
std::vector<Choice> candidates_of(const Request& request, const engines::EngineShapes& shapes,
                                  const opencl::DeviceFacts& facts, const Teacher& teacher);

/// The first of the shapes (fastest first) that has a schedule within what the request and the
/// device allow. Throws Error invalid_argument for illegal block sizes, workspace_too_small, with
/// the minimum, and out_of_memory where no piece of scratch fits the device's largest allocation,
/// with what would.
Choice make_schedule(const Request& request, const engines::EngineShapes& shapes,
                     const opencl::DeviceFacts& facts, const Teacher& teacher = {});

/// Every way of the request's pass: the one that make_schedule takes, and why not the others.
/// Throws as make_schedule does.
std::vector<ConsideredSchedule> explain(const Request& request, const engines::EngineShapes& shapes,
                                        const opencl::DeviceFacts& facts,
                                        const Teacher& teacher = {});

/// The least workspace_bytes for which make_schedule succeeds.
std::int64_t minimum_workspace_bytes(const Request& request, const engines::EngineShapes& shapes,
                                     const opencl::DeviceFacts& facts, const Teacher& teacher = {});

/// Words of the regions that depend on chunk_rows and v_range, in the order they are allocated.
struct Regions {
  std::int64_t packed_rows = 0, packed_columns = 0, stats = 0, coefficients = 0, dz = 0;
  std::int64_t sums_x = 0, sums_w = 0, sums_bias = 0, bias_lanes = 0, groups = 0;
  std::int64_t filter = 0, beyond = 0;
  std::int64_t packed_teacher = 0, teacher_logits = 0, teacher_sums = 0, teacher_rows = 0;
  std::array<std::int64_t, 16> all() const;
  std::int64_t total() const;
  std::int64_t largest() const;
};
/// Of the sums of grad_x of one part.
std::int64_t sums_x_words(const Schedule& schedule);
Regions regions_of(const Request& request, const engines::Engine& engine, const Schedule& schedule);

}  // namespace tessera::linear
