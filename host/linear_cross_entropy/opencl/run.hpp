// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "host/engines/segments.hpp"
#include "host/linear_cross_entropy/opencl/plan.hpp"
#include "host/loss/opencl_rows.hpp"
#include "linear_cross_entropy/arguments.h"

namespace tessera::linear_cross_entropy {

/// Panels of x that one work-item of `pack_columns` copies: a few hundred elements of a row.
constexpr std::int64_t panel_step = 16;

/// What a request compiles: one specialisation per kernel file, chosen by types, layouts and flags.
struct Programs {
  opencl::Specialisation pack_rows, pack_columns, forward, gradient, grad_w, write_w, write_bias,
      grad_x, write_x, filter;
  std::vector<opencl::Specialisation*> all() {
    return {&pack_rows, &pack_columns, &forward, &gradient, &grad_w,
            &write_w,   &write_bias,   &grad_x,  &write_x,  &filter};
  }
};
Programs programs_of(const Request& request, const engines::Engine& engine,
                     const Schedule& schedule, const std::string& statistics_options);
/// The kernels of `programs` that a call with this schedule launches, for `plan`.
std::vector<std::pair<opencl::Specialisation, std::string>> kernels_of(const Request& request,
                                                                       const Schedule& schedule,
                                                                       const Programs& programs);

/// One call: enqueues everything the schedule says, in order.
class Run {
 public:
  /// `programs`: of this request and schedule.
  Run(opencl::Call& call, const Request& request, const engines::Engine& engine,
      const Schedule& schedule, const Programs& programs);
  void enqueue();

 private:
  /// Columns [begin, begin + count) of the vocabulary with w and grad_w bound for them.
  struct Piece {
    std::int64_t begin = 0, count = 0;
    opencl::Binding w{}, grad_w{};
  };
  struct Chunk {
    std::int64_t begin = 0, rows = 0, panels = 0;
  };

  /// dz of a range of the vocabulary: [panel][columns][tile_n], of which the range's are used.
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
  Kept kept(const Chunk& chunk, const Piece& piece, std::int64_t begin) const;

  void bind();
  std::vector<Piece> pieces() const;
  void bind_piece(Piece& piece, bool needs_grad_w);
  std::vector<Chunk> chunks() const;
  std::vector<Chunk> kept_parts(const Chunk& chunk) const;

  void pack(const Chunk& chunk, bool columns);
  void coefficients(const Chunk& chunk);
  void forward(const Chunk& chunk);
  void gradient(const Chunk& chunk, const Piece& piece, std::int64_t begin, std::int64_t count,
                const Dz& dz);
  Dz dz_of(const Chunk& chunk, const Piece& piece, std::int64_t begin, std::int64_t count) const;
  void gradient_of_kept(const Chunk& chunk, const Piece& piece, std::int64_t begin,
                        std::int64_t count, const Dz& dz);
  void mark(const Chunk& chunk, std::int64_t count, const Dz& dz);
  void sum_bias(const Chunk& chunk, std::int64_t begin, std::int64_t count, const Dz& dz);
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
  kernels::logit_sizes logit_sizes() const;
  kernels::matrix_sizes w_sizes(const Piece& piece, bool transposed, std::int64_t readable) const;
  static kernels::row_segment row_segment(const engines::Segment& segment);
  /// A kernel that multiplies.
  template <class Pointers>
  void multiply(const opencl::Specialisation& program, const Pointers& pointers,
                const typename Pointers::Sizes& sizes, const engines::Cut& cut, std::int64_t parts,
                std::int64_t panels) {
    call_.launch(program, engine_.launch_range(parts, panels, schedule_.shrink), pointers, sizes,
                 engine_.call(cut, parts, panels));
  }

  opencl::Call& call_;
  const Request& request_;
  const engines::Engine& engine_;
  const Schedule& schedule_;
  loss::LossRows rows_;
  const Programs& programs_;
  std::int64_t tile_n_;
  /// Where the chunks begin whose data is in place now; -1: none.
  std::int64_t packed_rows_of_ = -1, packed_columns_of_ = -1, coefficients_of_ = -1;
  std::int64_t h_begin_ = 0, h_count_;  ///< the part of H whose gradients are being formed
  std::vector<engines::Segment> x_segments_, grad_x_segments_;
  opencl::Binding bias_{}, grad_bias_{};
  std::int64_t bias_stride_ = 1;
  opencl::Scratch packed_rows_{}, packed_columns_{}, stats_{}, coefficients_{}, dz_{};
  opencl::Scratch sums_x_{}, sums_w_{}, sums_bias_{}, groups_{}, filter_{}, beyond_{};
};

}  // namespace tessera::linear_cross_entropy
