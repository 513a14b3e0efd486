// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "host/linear/request.hpp"
#include "host/schedule/search.hpp"

namespace tessera::linear {

using schedule::Schedule;

/// Gradient filtering: columns of the vocabulary in a tile of dz that counts or does not, by as
/// many tokens as the engine's tile has. Small, so that tiles without a large element are many;
/// deep enough for a product of it to run at speed.
constexpr std::int64_t filter_columns = 64;
bool filters_gradients(const Request& request);

/// Columns of a matrix [H, V] that fit one allocation, densely or as they lie, of v. Throws Error
/// out_of_memory where not one does.
std::int64_t columns_per_binding(const View& view, std::int64_t v, const opencl::DeviceFacts& facts,
                                 const char* name);

/// True where an output is memory that kernels may also read.
bool kernels_can_read(const MutableView& view);
/// True where chunks of rows can add to grad_w in its own memory.
bool sums_in_place(const MutableView& grad_w);
/// True where all rows have one cotangent, so that one power of two keeps the dz of all of them
/// within f16 (cl_kernels/linear/fit_f16.cl).
bool has_one_cotangent(const Request& request);

/// W_VH, W_HV and W_STRIDED of cl_kernels/linear/operands.cl: which index of w [H, V]
/// is contiguous. An axis of extent 1 may have any stride.
constexpr int layout_vh = 0, layout_hv = 1, layout_strided = 2;
int layout_of(const View& w);
/// Operands::line_bytes of w [H, V] as kernels get it: device memory as it lies; host memory as it
/// is staged, since no device whose engine asks works on it in place.
std::int64_t line_bytes(const View& w);

/// Columns that share a row of logits kept in grad_w as [H, V]: where TILE_N f32 logits fit. 1 for
/// [V, H], where every column has its own. KEPT_COLUMNS of operands.cl.
std::int64_t kept_columns(const MutableView& grad_w, const engines::Engine& engine);

/// Kernels of the operators' steps; an operator's own begin at `own_kernels`.
enum Kernel : int {
  pack_rows,
  pack_columns,
  forward,
  merge,         ///< of host/loss
  coefficients,  ///< of host/loss
  fit_f16,
  gradient,
  mark,
  sum_bias,
  grad_w,
  grad_x,
  write_x,
  write_excluded,
  write_w,
  write_bias,
  own_kernels
};

/// The purposes of scratch regions.
namespace region {
inline constexpr char packed_rows[] = "packed rows of x", packed_columns[] = "packed columns of x",
                      stats[] = "statistics of slices", coefficients[] = "gradient coefficients",
                      dz[] = "dz", sums_x[] = "grad_x in f32", sums_w[] = "grad_w in f32",
                      sums_bias[] = "grad_bias in f32",
                      bias_lanes[] = "grad_bias in f32, lane by lane",
                      filter[] = "tiles of dz that count",
                      beyond[] = "logits that grad_w has no room for";
}  // namespace region

struct Programs;
class StepList;

/// Places in Steps::products; those of an operator come behind.
enum Products : std::int8_t { of_logits, of_grad_w, of_grad_x, own_products };

/// A call of an operator whose logits are a product, on one shape of an engine: its steps, and the
/// ways to nest its loops. Rows are tokens, columns words, the depth is H. logits [V][B] = w^T x^T
/// and grad_x [H][B] = w dz^T have tokens as n, so that an epilogue has a token's logits in one
/// column; grad_w [V][H] = dz^T x.
class Problem : public schedule::Problem {
 public:
  Problem(const Request& request, std::shared_ptr<const engines::Engine> engine);
  /// Makes the base of schedules on such a device. Throws Error out_of_memory where not a column of
  /// w fits an allocation, or no block of them.
  virtual void plan_for(const opencl::DeviceFacts& facts);

  const Request& request() const { return r_; }
  /// The types that the call multiplies. Needs no engine, as the next two.
  virtual engines::Operands operands() const;
  /// Why the operator has no kernels for the call on such a device.
  virtual std::optional<std::string> refuses(const opencl::DeviceFacts& facts) const;
  /// FLOPs and bytes that a call takes at least; those that it moves follow from its steps.
  virtual CostEstimate cost(const Schedule& schedule) const = 0;
  /// Enqueues a call.
  virtual void enqueue(opencl::Call& call, const Schedule& schedule,
                       const Programs& programs) const = 0;
  /// The operator's passes over all logits before the first gradient.
  virtual int looks() const { return r_.loss.wants_values() ? 1 : 0; }
  /// Logits of a token and a word that wait side by side.
  virtual int layers() const { return 1; }

  std::int64_t held_rows(const Schedule& s) const final;
  /// The first of those, whose logits fit into grad_w; 0: all do, or none lie there.
  std::int64_t rows_within(const Schedule& s) const;
  engines::Stored dz(const Schedule& s) const;
  /// True: grad_bias is summed as dz is formed, before that is rounded.
  bool sums_bias_on_the_way(const Schedule& s) const;
  /// True: x is packed once for both products with it.
  bool packs_once(const Schedule& s) const;
  /// Words of the sums of grad_x of one part of k.
  std::int64_t sums_x_words(const Schedule& s) const;

  /// Columns of a part of k of grad_x, of a range.
  std::int64_t x_part_columns(const schedule::Step& step, std::int64_t range) const {
    return engines::round_up(engines::ceil_div(range, step.order.k_parts),
                             engine().rule().m_multiple);
  }
  /// True: grad_w is stored past the caches, since it is written once, directly, and is large.
  bool streams_grad_w(const Schedule& s) const;

  /// The program of a step, and the name of its kernel; no file: another module launches it.
  virtual std::pair<opencl::Specialisation, const char*> program(const schedule::Step& step,
                                                                 const Schedule& s) const;

  // The questions of schedule::Problem.
  schedule::Steps steps(const Schedule& s) const final;
  void settle(Schedule& s) const final;
  std::int64_t other_words() const final;
  std::int64_t range_unit(const Schedule& s) const final;
  std::int64_t range_step() const final { return filters_gradients(r_) ? filter_columns : 1; }
  std::string extents() const final;
  engines::Rates rates() const final;
  std::span<const schedule::Way> ways() const final;
  const char* why_not(std::size_t way) const final;
  std::optional<Schedule> make(std::size_t way, const schedule::Search& search,
                               const Schedule& from) const final;
  std::vector<std::pair<std::size_t, std::size_t>> groups() const final;

 protected:
  engines::Product logits_product(const Schedule& s) const;
  /// Adds the products of the operator's own layers.
  virtual void add_products(schedule::Steps&, const Schedule&) const {}
  /// Steps that pack a chunk's rows for logits.
  virtual void add_pack(StepList& list, schedule::Phase phase, unsigned loops) const;
  /// Steps of a look at the logits of a range, and of the gradients of one; `dz_bytes` that a
  /// launch moves of dz.
  virtual void add_look(StepList& list, const schedule::Steps::Kind& range) const = 0;
  virtual void add_gradient(StepList& list, const schedule::Steps::Kind& range,
                            double dz_bytes) const = 0;
  /// Steps at the end of a chunk's looks; `add_statistics` merges those of the slices.
  virtual void add_merge(StepList& list) const;
  void add_statistics(StepList& list, schedule::Phase phase) const;
  /// Why the logits of a row may not lie apart; nullptr: they may.
  virtual const char* why_whole_rows() const { return nullptr; }
  /// Columns that one binding of each matrix reaches.
  virtual std::int64_t bound_columns(const opencl::DeviceFacts& facts) const;
  /// Words of a row that each slice of a look sums beside the statistics.
  virtual std::int64_t sum_words() const { return 0; }

  const Request r_;

 private:
  friend class StepList;
  friend struct Ways;
  std::int64_t room_in_grad_w() const;
  const char* why_no_logits_in_grad_w(const opencl::DeviceFacts& facts) const;
  const char* why_not_kept() const;
  const char* why_not_in_grad_w() const;
  const char* why_not_by_range() const;
  const char* why_not_partly() const;
  const char* why_not_rows_outer() const;

  const char* no_logits_in_grad_w_ = nullptr;  ///< why; nullptr: grad_w has room for some
};

/// A schedule's steps while they are put together, and the numbers that they share.
class StepList {
 public:
  StepList(const Problem& problem, const Schedule& schedule);

  /// A kernel that copies or reduces: `bytes` each launch.
  schedule::Step& copy(int kernel, schedule::Phase phase, unsigned loops, double bytes,
                       const schedule::Steps::Kind& range = {0, 1});
  /// A kernel of a few words, whose time does not count.
  schedule::Step& small(int kernel, schedule::Phase phase, unsigned loops);
  /// Logits of a chunk of rows against a range, in slices; each launch moves `stored` bytes too.
  schedule::Step& form(int kernel, const char* name, schedule::Phase phase,
                       const schedule::Steps::Kind& range, std::int8_t product, double stored);
  /// Rows of B of a product that visits, packed into a region.
  schedule::Step& pack(int kernel, schedule::Phase phase, unsigned loops, const char* name,
                       std::int8_t product);
  const engines::Product& product(std::int8_t place) const {
    return steps.products[static_cast<std::size_t>(place)].product;
  }
  const engines::Cut& cut(std::int8_t place) const {
    return steps.products[static_cast<std::size_t>(place)].cut;
  }
  bool has(int kernel) const;
  /// Columns of a slice: a launch over so many columns has as many slices as keep every work-group
  /// busy.
  std::int64_t even_block(std::int64_t columns) const;
  /// Bytes of the f32 logits of a turn against so many columns, of all layers.
  double logits_bytes(const schedule::Steps::Kind& range, std::int64_t rows) const;

  const Problem& p;
  const Schedule& s;
  const engines::Engine& engine;
  schedule::Caches caches;
  engines::Stored dz;
  schedule::Steps steps{};
  std::int64_t dz_words = 0;  ///< of the region that logits wait in, or dz

 private:
  friend class Problem;
  void gradients();
  void of_range(const schedule::Steps::Kind& range, std::int64_t ranges);
  /// A product that sums over a range or over rows.
  schedule::Step& sum(int kernel, const char* name, const schedule::Steps::Kind& range,
                      std::int8_t product, schedule::Grid grid, double bytes);
  /// The one place that decides in which order a product's sums are formed.
  schedule::SumOrder order_of(std::int8_t place, std::int64_t slice) const;
  double written_w(double elements) const;
  double shared_lines(std::int64_t columns) const;

  bool keeps_, packs_again_;
  std::int64_t rows_;       ///< whose gradients are formed at a time
  std::int64_t row_turns_;  ///< of the main phase
  std::int64_t x_parts_ = 1, packed_columns_ = 0;
};

/// The problem of each shape whose tiles the caller's blocks decompose into. Throws Error
/// invalid_argument for illegal block sizes.
using MakeProblem = std::function<std::shared_ptr<Problem>(std::shared_ptr<const engines::Engine>)>;
schedule::MakeProblems problems_of(const MakeProblem& make, const engines::EngineShapes& shapes);

/// A call's knobs in its report: the engine's, and those that the schedule came to.
std::vector<NamedValue> knobs_of(const Problem& problem, const Schedule& schedule);

/// Makes the blocks of a schedule those that it uses, to report. A caller's that is without effect
/// is added to `notes`.
void settle_blocks(const Problem& problem, Schedule& schedule, std::vector<std::string>& notes);

}  // namespace tessera::linear
