// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "host/linear/opencl/prepare.hpp"
#include "linear_cross_entropy/arguments.h"

namespace tessera::linear_cross_entropy {

/// dz is formed anew, with the logits, or from those that forward kept.
class Problem final : public linear::Problem {
 public:
  using linear::Problem::Problem;
  static linear::Request asked(const operators::Request& request);
  CostEstimate cost(const linear::Schedule& s) const override;
  void enqueue(opencl::Call& call, const linear::Schedule& s,
               const linear::Programs& programs) const override;
  std::pair<opencl::Specialisation, const char*> program(const schedule::Step& step,
                                                         const linear::Schedule& s) const override;

 private:
  void add_look(linear::StepList& list, const schedule::Steps::Kind& range) const override;
  void add_gradient(linear::StepList& list, const schedule::Steps::Kind& range,
                    double dz_bytes) const override;
};

class Run final : public linear::Run {
 public:
  using linear::Run::Run;

 private:
  void launch(const Step& step, const Turn& turn) override;
  void gradient(const Step& step, const Turn& turn);
  void gradient_of_kept(const Turn& turn);
};

}  // namespace tessera::linear_cross_entropy
