// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "host/linear/opencl/run.hpp"
#include "host/operators/opencl_operator.hpp"
#include "linear_cross_entropy/arguments.h"

namespace tessera::linear_cross_entropy {

struct Programs {
  linear::Programs shared;
  opencl::Specialisation gradient;
  std::vector<opencl::Specialisation*> all();
};
Programs programs_of(const linear::Request& request, const engines::Engine& engine,
                     const linear::Schedule& schedule);
/// The kernels of `programs` that a call with this schedule launches, for `plan`.
std::vector<operators::Kernel> kernels_of(const linear::Request& request,
                                          const linear::Schedule& schedule,
                                          const Programs& programs);

/// dz is formed anew, with the logits, or from those that forward kept.
class Run final : public linear::Run {
 public:
  /// `programs`: of this request and schedule.
  Run(opencl::Call& call, const linear::Request& request, const engines::Engine& engine,
      const linear::Schedule& schedule, const Programs& programs);

 private:
  void forward(const Chunk& chunk) override;
  void gradient(const Chunk& chunk, Piece& piece, std::int64_t begin, std::int64_t count,
                const Dz& dz) override;
  void gradient_of_kept(const Chunk& chunk, const Piece& piece, std::int64_t begin,
                        std::int64_t count, const Dz& dz);

  const opencl::Specialisation& gradient_;
};

}  // namespace tessera::linear_cross_entropy
