// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "host/linear/opencl/prepare.hpp"
#include "host/linear_distillation/request.hpp"
#include "linear_distillation/arguments.h"

/// linear_distillation on OpenCL: products, schedules and the student's cross-entropy are those of
/// every operator of its kind (host/linear), and the kernels of cl_kernels/linear_distillation look
/// at the logits of both where they wait side by side.
namespace tessera::linear_distillation {

using linear::Schedule;

/// Kernels beside those of linear::Kernel.
enum Kernel : int {
  again = linear::own_kernels,  ///< the student's logits, without statistics
  teacher,                      ///< the teacher's, of its packed rows
  pack_teacher,
  take_logits,  ///< in place of both where the caller has them
  divergence_sums,
  mixture_sums,
  merge_divergence,
  merge_mixture,
  take_terms,
  excluded_divergence
};

namespace region {
inline constexpr char packed[] = "packed rows of teacher_x", logits[] = "logits of the teacher",
                      sums[] = "sums over both logits", terms[] = "terms of rows";
}  // namespace region

/// The student's problem, with the teacher's layer as steps beside its own.
class Problem final : public linear::Problem {
 public:
  Problem(const Request& request, std::shared_ptr<const engines::Engine> engine)
      : linear::Problem(request.student, std::move(engine)), own_(request) {}
  static Request asked(const operators::Request& request);
  void plan_for(const opencl::DeviceFacts& facts) override;
  std::pair<opencl::Specialisation, const char*> program(const schedule::Step& step,
                                                         const Schedule& s) const override;
  engines::Operands operands() const override;
  std::optional<std::string> refuses(const opencl::DeviceFacts& facts) const override;
  CostEstimate cost(const Schedule& s) const override;
  void enqueue(opencl::Call& call, const Schedule& s,
               const linear::Programs& programs) const override;
  int looks() const override;
  int layers() const override { return 2; }
  /// The statistics of the teacher's rows are given, so that gradients need no look.
  bool is_known() const { return static_cast<bool>(own_.inputs.divergence_statistics); }
  const Request& own() const { return own_; }

 private:
  const char* why_whole_rows() const override {
    return "the logits of a row and its teacher's lie side by side";
  }
  std::int64_t bound_columns(const opencl::DeviceFacts& facts) const override;
  std::int64_t sum_words() const override;
  engines::Product product(const Schedule& s) const;
  void add_products(schedule::Steps& steps, const Schedule& s) const override;
  void form_both(linear::StepList& list, int student, schedule::Phase phase,
                 const schedule::Steps::Kind& range, double stored) const;
  void add_pack(linear::StepList& list, schedule::Phase phase, unsigned loops) const override;
  void add_look(linear::StepList& list, const schedule::Steps::Kind& range) const override;
  void add_merge(linear::StepList& list) const override;
  void add_gradient(linear::StepList& list, const schedule::Steps::Kind& range,
                    double dz_bytes) const override;

  const Request own_;
  std::int64_t h_block_ = 0;  ///< of the teacher's layer
};

/// One call: both logits of a range of the vocabulary side by side, looked at once, or twice for
/// jsd, then gradients.
class Run final : public linear::Run {
 public:
  Run(opencl::Call& call, const Problem& problem, const Schedule& s,
      const linear::Programs& programs);

 private:
  void bind() override;
  void enter(const Turn& turn) override;
  void launch(const Step& step, const Turn& turn) override;

  /// Logits of both, from some column on.
  struct Both {
    Kept student{}, teacher{};
  };
  Both both(const Turn& turn) const;
  void form_teacher(const Step& step, const Turn& turn);
  void bring_logits(const Turn& turn);
  /// Sums of a look at the logits of a turn.
  template <class Pointers>
  void look(const Step& step, const Turn& turn);
  /// The sums of all slices, put together.
  template <class Pointers>
  void merge(const Step& step, const Turn& turn);
  void exclude();
  /// Terms of rows whose statistics were saved.
  void restore_terms();
  void gradient(const Turn& turn);
  kernels::own_rows own_rows() const;

  const Request& own_;
  std::int64_t term_ld_ = 0, piece_ = -1;
  std::vector<engines::Segment> teacher_x_;
  opencl::Binding teacher_w_{}, teacher_bias_{}, teacher_logits_given_{};
  opencl::Binding divergence_{}, target_entropy_{}, partial_{};
  opencl::Binding statistics_{};  ///< written by values, read by a backward that was given them
  opencl::Scratch teacher_logits_{}, sums_{}, terms_{};
};

}  // namespace tessera::linear_distillation
