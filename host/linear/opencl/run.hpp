// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "host/engines/segments.hpp"
#include "host/linear/opencl/plan.hpp"
#include "host/loss/opencl_rows.hpp"
#include "linear/arguments.h"

namespace tessera::linear {

/// What kernels count in 32 bits (engines::beyond_32_bits has refused more).
inline std::int32_t narrow(std::int64_t value) { return static_cast<std::int32_t>(value); }

/// Panels of x that one work-item of `pack_columns` copies: a few hundred elements of a row.
constexpr std::int64_t panel_step = 16;

/// What a request compiles: one specialisation per kernel file, chosen by types, layouts and flags.
struct Programs {
  opencl::Specialisation pack_rows, pack_columns, forward, grad_w, write_w, sum_bias, write_bias,
      grad_x, write_x, filter, fit_f16;
  std::vector<opencl::Specialisation*> all() {
    return {&pack_rows,  &pack_columns, &forward, &grad_w, &write_w, &sum_bias,
            &write_bias, &grad_x,       &write_x, &filter, &fit_f16};
  }
};
Programs programs_of(const Request& request, const engines::Engine& engine,
                     const Schedule& schedule, const std::string& statistics_options);
/// The kernels of `programs` that a call with this schedule launches, for `plan`.
std::vector<std::pair<opencl::Specialisation, std::string>> kernels_of(const Request& request,
                                                                       const Schedule& schedule,
                                                                       const Programs& programs);

/// `count` columns from `begin` of a matrix [H, V].
template <class AnyView>
AnyView columns_of(const AnyView& view, std::int64_t begin, std::int64_t count);

/// Options of kernels that form logits of a layer: types and layout of w and bias, whether a cap is
/// on them.
std::string layer_options(DType w, int w_layout, const View& bias, float cap);
/// Those of kernels that pack its x.
std::string pack_options(const View& x);
/// Those of kernels that reach logits kept in grad_w; none: they lie in scratch.
std::string kept_options(const Request& request, const engines::Engine& engine,
                         const Schedule& schedule);
/// Those of kernels that write or read dz.
std::string dz_options(const Request& request, const engines::Engine& engine,
                       const Schedule& schedule);
/// Those of kernels that know what a row is about.
std::string row_options(const Request& request);

/// One call: enqueues everything the schedule says, in order. What becomes of logits, statistics
/// and dz, is its operator's.
class Run {
 public:
  /// `programs`: of this request and schedule.
  Run(opencl::Call& call, const Request& request, const engines::Engine& engine,
      const Schedule& schedule, const Programs& programs);
  virtual ~Run() = default;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  void enqueue();

 protected:
  /// Columns [begin, begin + count) of the vocabulary with w and grad_w bound for them, and the w
  /// of a teacher where its operator has had need of it.
  struct Piece {
    std::int64_t begin = 0, count = 0;
    opencl::Binding w{}, grad_w{}, teacher_w{};
  };
  struct Chunk {
    std::int64_t begin = 0, rows = 0, panels = 0;
  };

  /// dz of a range of the vocabulary, `columns` words of each token a panel
  /// (Engine::operand_words), of which the range's are used.
  struct Dz {
    opencl::Scratch memory{};
    std::int64_t columns = 0;
  };

  /// Logits that forward keeps, from some panel and column on (KEPT_AT of operands.cl).
  struct Kept {
    opencl::Binding memory{};                     ///< offset in bytes
    std::int64_t panel_stride = 0, v_stride = 0;  ///< in 16 bits
    kernels::kept_logits_sizes sizes() const { return {panel_stride, v_stride}; }
  };
  /// `rows_before`: those whose logits against the same columns come first, of a teacher's all
  /// rows. In scratch they have `memory` of their own.
  Kept kept(const Chunk& chunk, const Piece& piece, std::int64_t begin, std::int64_t rows_before,
            const opencl::Scratch& memory) const;
  Kept kept(const Chunk& chunk, const Piece& piece, std::int64_t begin) const {
    return kept(chunk, piece, begin, 0, dz_);
  }

  /// A layer of which logits are formed.
  struct Layer {
    const opencl::Specialisation& program;
    opencl::Binding w{};  ///< of the first column that is formed
    opencl::Binding bias{};
    opencl::Scratch packed{};  ///< rows of x
    std::int64_t h = 0;
    kernels::logit_sizes sizes{};
    const engines::Cut& cut;
  };
  /// Columns of the vocabulary that one launch forms the logits of, in slices.
  struct Columns {
    std::int64_t begin = 0, count = 0;
    std::int64_t readable = 0;  ///< from `begin` on in what is bound of w
    std::int64_t block = 0;     ///< of a slice
    std::int64_t first_slice = 0;
  };
  void form(const Layer& layer, const Chunk& chunk, const Columns& columns, const Kept& logits);
  Layer own_layer(const opencl::Specialisation& program, const Piece& piece,
                  std::int64_t begin) const;
  /// Slices of columns [begin, begin + count) that give every group work, for kernels that keep
  /// nothing of a slice.
  Columns even_slices(const Piece& piece, std::int64_t begin, std::int64_t count) const;

  /// Looks at the logits of a chunk of rows against all of the vocabulary: merges their statistics,
  /// where the call wants values, and keeps the logits where the schedule does.
  virtual void forward(const Chunk& chunk) = 0;
  /// dz of a chunk and columns [begin, begin + count) of a piece.
  virtual void gradient(const Chunk& chunk, Piece& piece, std::int64_t begin, std::int64_t count,
                        const Dz& dz) = 0;
  /// Takes scratch and binds the caller's views, all but those of pieces.
  virtual void bind();

  std::vector<Piece> pieces() const;
  void bind_piece(Piece& piece, bool needs_grad_w);
  std::vector<Chunk> kept_parts(const Chunk& chunk) const;
  kernels::logit_sizes logit_sizes() const;
  static kernels::matrix_sizes w_sizes(const opencl::Binding& w, bool transposed,
                                       std::int64_t readable);
  static kernels::row_segment row_segment(const engines::Segment& segment);
  /// A kernel that multiplies. `all_panels`: a group takes all of them, whatever the engine says;
  /// `batch`: products of one shape, BATCH_INDEX.
  template <class Pointers>
  void multiply(const opencl::Specialisation& program, const Pointers& pointers,
                const typename Pointers::Sizes& sizes, const engines::Cut& cut, std::int64_t parts,
                std::int64_t panels, bool all_panels = false, std::int64_t batch = 1) {
    auto range = engine_.launch_range(parts, panels, schedule_.shrink);
    auto call = engine_.call(cut, parts, panels, schedule_.shrink);
    // The last range may have fewer parts than scratch was taken for, and divide columns more.
    const std::int64_t words = batch * engine_.scratch_words(cut, parts, panels, schedule_.shrink);
    range.global[2] = static_cast<std::size_t>(batch);
    if (all_panels || words > group_words_) {
      range.global[1] = 1;
      call.panels_per_group = narrow(std::max<std::int64_t>(panels, 1));
    }
    call_.launch(program, range, pointers, sizes, call);
  }

  opencl::Call& call_;
  const Request& request_;
  const engines::Engine& engine_;
  const Schedule& schedule_;
  loss::LossRows rows_;
  const Programs& programs_;
  std::int64_t tile_n_;
  std::int64_t group_words_ = 0;  ///< of groups_
  opencl::Binding bias_{};
  opencl::Scratch bias_lanes_{};  ///< where gradients sum grad_bias on the way; else nothing
  opencl::Scratch packed_rows_{}, stats_{}, coefficients_{}, dz_{}, groups_{};

 private:
  std::vector<Chunk> chunks() const;
  void pack(const Chunk& chunk, bool columns);
  void coefficients(const Chunk& chunk);
  /// The factor that a chunk's dz of f16 still needs in its sums; of another dz nothing.
  opencl::Scratch scale_of(const Chunk& chunk) const;
  Dz dz_of(const Chunk& chunk, const Piece& piece, std::int64_t begin, std::int64_t count) const;
  void mark(const Chunk& chunk, std::int64_t count, const Dz& dz);
  void sum_bias(const Chunk& chunk, std::int64_t begin, std::int64_t count, const Dz& dz);
  std::int64_t parts_of(const engines::Cut& cut, std::int64_t m, std::int64_t most) const;
  void accumulate_w(const Chunk& chunk, const Piece& piece, std::int64_t begin, std::int64_t count,
                    const Dz& dz);
  void accumulate_x(const Chunk& chunk, const Piece& piece, std::int64_t begin, std::int64_t count,
                    const Dz& dz, bool first);
  void gradients_of(const Chunk& chunk, Piece& piece, bool first_piece);
  void write_x(const Chunk& chunk);
  void write_w(const Piece& piece, std::int64_t begin, std::int64_t count,
               const opencl::Scratch& sums);
  void write_bias();
  void rows_outer();
  void vocabulary_outer();
  void depth_outer();
  opencl::Scratch sums_x(const Chunk& chunk) const;

  /// Where the chunks begin whose data is in place now; -1: none.
  std::int64_t packed_rows_of_ = -1, packed_columns_of_ = -1, coefficients_of_ = -1;
  std::int64_t h_begin_ = 0, h_count_;  ///< the part of H whose gradients are being formed
  std::vector<engines::Segment> x_segments_, grad_x_segments_;
  opencl::Binding grad_bias_{};
  std::int64_t bias_stride_ = 1;
  opencl::Scratch packed_columns_{}, sums_x_{}, sums_w_{}, sums_bias_{}, filter_{}, beyond_{};
};

}  // namespace tessera::linear
