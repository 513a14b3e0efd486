// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "host/engines/segments.hpp"
#include "host/linear/opencl/problem.hpp"
#include "host/loss/opencl_rows.hpp"
#include "host/operators/opencl_operator.hpp"
#include "host/schedule/walk.hpp"
#include "linear/arguments.h"

namespace tessera::linear {

/// What kernels count in 32 bits (engines::beyond_32_bits has refused more).
inline std::int32_t narrow(std::int64_t value) { return static_cast<std::int32_t>(value); }

/// Panels of x that one work-item of `pack_columns` copies: a few hundred elements of a row.
constexpr std::int64_t panel_step = 16;

/// The programs of a call, and the names of their kernels, by the numbers of its steps' kernels.
struct Programs {
  std::vector<operators::Kernel> kernels{};
  const opencl::Specialisation& operator[](int kernel) const {
    return kernels[static_cast<std::size_t>(kernel)].first;
  }
};
Programs programs_of(const Problem& problem, const Schedule& schedule);
/// The kernels that the steps launch, for `plan`.
std::vector<operators::Kernel> kernels_of(const Programs& programs);

/// `count` columns from `begin` of a matrix [H, V].
template <class AnyView>
AnyView columns_of(const AnyView& view, std::int64_t begin, std::int64_t count);

/// Options of kernels that form logits of a layer: types and layout of w and bias, whether a cap is
/// on them.
std::string layer_options(const View& w, const View& bias, float cap);
/// Those of kernels that pack its x.
std::string pack_options(const View& x);
/// Those of kernels that reach logits kept in grad_w; none: they lie in scratch.
std::string kept_options(const Problem& problem, const Schedule& schedule);
/// Those of kernels that write or read dz.
std::string dz_options(const Problem& problem, const Schedule& schedule);
/// Those of kernels that know what a row is about.
std::string row_options(const Request& request);

/// One call: enqueues the steps of its schedule in the order of the loops.
class Run {
 public:
  /// `programs`: of this problem and schedule.
  Run(opencl::Call& call, const Problem& problem, const Schedule& schedule,
      const Programs& programs);
  virtual ~Run() = default;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  void enqueue();

 protected:
  using Span = schedule::Span;
  using Step = schedule::Step;
  using Turn = schedule::Turn;

  /// Takes scratch and binds the caller's views, all but those of pieces.
  virtual void bind();
  /// Binds w and grad_w of the turn's piece where another is bound.
  virtual void enter(const Turn& turn);
  virtual void launch(const Step& step, const Turn& turn);

  /// dz of a range of the vocabulary, `columns` words of each token a panel
  /// (Engine::operand_words), of which the range's are used.
  struct Dz {
    opencl::Scratch memory{};
    std::int64_t columns = 0;
  };
  Dz dz_of(const Turn& turn) const;

  /// Logits that forward keeps, from some panel and column on (KEPT_AT of operands.cl).
  struct Kept {
    opencl::Binding memory{};                     ///< offset in bytes
    std::int64_t panel_stride = 0, v_stride = 0;  ///< in 16 bits
    kernels::kept_logits_sizes sizes() const { return {panel_stride, v_stride}; }
  };
  /// The logits of `rows` against the turn's columns. `rows_before`: those whose logits against the
  /// same columns come first, of a second layer all rows. In scratch they have `memory` of their
  /// own.
  Kept kept(const Span& rows, const Turn& turn, std::int64_t rows_before,
            const opencl::Scratch& memory) const;

  /// A layer of which logits are formed.
  struct Layer {
    opencl::Binding w{};  ///< of the first column that is formed
    opencl::Binding bias{};
    opencl::Scratch packed{};  ///< rows of x
    kernels::logit_sizes sizes{};
  };
  Layer own_layer(const Turn& turn) const;
  void form(const Step& step, const Turn& turn, const Layer& layer, const Kept& logits);
  void pack(const Step& step, const Turn& turn, const std::vector<engines::Segment>& x,
            const opencl::Scratch& packed);

  const schedule::Product& product(const Step& step) const { return schedule_.steps.product(step); }
  std::int64_t panels(const Span& rows) const { return rows.count / tile_n_; }
  kernels::logit_sizes logit_sizes() const;
  static kernels::matrix_sizes w_sizes(const opencl::Binding& w, bool transposed,
                                       std::int64_t readable);
  static kernels::row_segment row_segment(const engines::Segment& segment);
  /// Columns from the turn's first on in what is bound of w.
  static std::int64_t readable(const Turn& turn) {
    return turn.piece.begin + turn.piece.count - turn.columns.begin;
  }
  /// A kernel that multiplies. `all_panels`: a group takes all of them, whatever the engine says.
  template <class Pointers>
  void multiply(const Step& step, const Pointers& pointers, const typename Pointers::Sizes& sizes,
                std::int64_t parts, std::int64_t panels, bool all_panels = false) {
    const std::int64_t batch = step.order.k_parts;
    auto range = engine_.launch_range(parts, panels, schedule_.shrink);
    const auto& cut = product(step).cut;
    auto call = engine_.call(cut, parts, panels, schedule_.shrink);
    // The last range may have fewer parts than scratch was taken for, and divide columns more.
    const std::int64_t words = batch * engine_.scratch_words(cut, parts, panels, schedule_.shrink);
    range.global[2] = static_cast<std::size_t>(batch);
    call.k_step = narrow(step.order.k_step);
    if (all_panels || words > arena_.words(schedule::Arena::groups)) {
      range.global[1] = 1;
      call.panels_per_group = narrow(std::max<std::int64_t>(panels, 1));
    }
    call_.launch(programs_[step.kernel], range, pointers, sizes, call);
  }

  opencl::Call& call_;
  const Problem& problem_;
  const Request& request_;
  const engines::Engine& engine_;
  const Schedule& schedule_;
  const Programs& programs_;
  loss::LossRows rows_;
  schedule::Arena arena_;
  std::int64_t tile_n_;
  engines::Stored stored_;                     ///< dz
  std::int64_t first_slice_ = 0, slices_ = 0;  ///< of a look's turn, and those up to its end
  opencl::Binding bias_{}, w_{}, grad_w_{};
  opencl::Scratch bias_lanes_{};  ///< where gradients sum grad_bias on the way; else nothing
  opencl::Scratch packed_rows_{}, stats_{}, coefficients_{}, dz_{}, groups_{};

 private:
  void pack_columns(const Turn& turn);
  void fit_f16(const Turn& turn);
  /// The factor that a chunk's dz of f16 still needs in its sums; of another dz nothing.
  opencl::Scratch scale() const;
  void mark(const Turn& turn);
  void sum_bias(const Turn& turn);
  /// Parts of m rows of a sum: not more than scratch was taken for.
  std::int64_t parts_of(const Step& step, std::int64_t m) const;
  void accumulate_w(const Step& step, const Turn& turn);
  void accumulate_x(const Step& step, const Turn& turn);
  void write_x(const Step& step, const Turn& turn);
  void write_excluded(const Turn& turn);
  void write_w(const Turn& turn);
  void write_bias();
  opencl::Scratch sums_x(const Span& rows) const;

  std::int64_t piece_ = -1;  ///< begin of the one that is bound
  std::vector<engines::Segment> x_segments_, grad_x_segments_;
  opencl::Binding grad_bias_{};
  opencl::Scratch packed_columns_{}, filter_{};
};

}  // namespace tessera::linear
