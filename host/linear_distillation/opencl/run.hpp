// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "host/linear/opencl/prepare.hpp"
#include "host/linear/opencl/run.hpp"
#include "host/linear_distillation/request.hpp"
#include "linear_distillation/arguments.h"

/// linear_distillation on OpenCL: products, schedules and the student's cross-entropy are those of
/// every operator of its kind (host/linear), and the kernels of cl_kernels/linear_distillation look
/// at the logits of both where they wait side by side.
namespace tessera::linear_distillation {

/// What a request compiles.
struct Programs {
  linear::Programs student;
  opencl::Specialisation again;    ///< the student's logits, without statistics
  opencl::Specialisation teacher;  ///< the teacher's, and its rows packed
  opencl::Specialisation pack_teacher;
  opencl::Specialisation take_logits;  ///< in place of both where the caller has them
  opencl::Specialisation sums, gradient, rows;
  std::vector<opencl::Specialisation*> all();
};
Programs programs_of(const Request& request, const engines::Engine& engine,
                     const linear::Schedule& schedule);

/// What the student's schedule has to know of the teacher.
linear::Teacher teacher_of(const Request& request, const opencl::DeviceFacts& facts);

using Prepared = operators::PreparedOf<linear::Schedule, Programs>;

/// The kernels that a call launches, for `plan`.
std::vector<operators::Kernel> kernels_of(const Request& request, const Prepared& prepared);

/// Whether rows have outputs that are this operator's own.
bool writes_own_rows(const Request& request);

/// One call: both logits of a range of the vocabulary side by side, looked at once, or twice for
/// jsd, then gradients.
class Run final : public linear::Run {
 public:
  /// `prepared`: of this request.
  Run(opencl::Call& call, const Request& request, const Prepared& prepared);

 private:
  void bind() override;
  void forward(const Chunk& chunk) override;
  void gradient(const Chunk& chunk, Piece& piece, std::int64_t begin, std::int64_t count,
                const Dz& dz) override;

  /// Where the logits of both wait, from some column on.
  struct Both {
    Kept student{}, teacher{};
  };
  Both both(const Chunk& chunk, const Piece& piece, std::int64_t begin, std::int64_t count) const;
  void pack_teacher(const Chunk& chunk);
  /// The teacher's w of a piece.
  const opencl::Binding& teacher_w(Piece& piece);
  void form_both(const Chunk& chunk, Piece& piece, const Columns& columns,
                 const opencl::Specialisation& student, const Both& logits);
  /// Sums of a look at the logits of `columns`.
  template <class Pointers>
  void look(const Chunk& chunk, const Columns& columns, const Both& logits);
  /// What the slices of a look come to.
  template <class Pointers>
  void merge(const Chunk& chunk, std::int64_t slices);
  void exclude();
  kernels::own_rows own_rows() const;
  /// What gradients need of rows that were saved.
  void take_terms();
  /// Calls `use(piece, columns, logits)` for every range that is looked at in one go.
  template <class Use>
  std::int64_t for_ranges(const Chunk& chunk, const Use& use);

  const Request& own_;
  const Programs& own_programs_;
  std::int64_t packed_teacher_of_ = -1;
  bool has_terms_ = false;  ///< those that were saved are taken
  std::int64_t term_ld_ = 0;
  std::vector<engines::Segment> teacher_x_;
  opencl::Binding teacher_w_{}, teacher_bias_{}, teacher_logits_given_{};
  opencl::Binding divergence_{}, target_entropy_{}, partial_{};
  opencl::Binding statistics_{};  ///< written by values, read by a backward that was given them
  opencl::Scratch packed_teacher_{}, teacher_logits_{}, sums_{}, terms_{};
};

}  // namespace tessera::linear_distillation
