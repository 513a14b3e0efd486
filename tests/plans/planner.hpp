// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host/linear/opencl/problem.hpp"
#include "host/operators/opencl_operator.hpp"

/// The planner of the linear operators as a test sees it: nothing else of tests/plans knows its
/// types.
namespace tessera::test {

/// The plan of one call.
struct Planned {
  std::string schedule{};
  linear_cross_entropy::BlockSizes blocks{};
  BlockSource source{};
  std::vector<NamedValue> knobs{};
  std::string engine{};
  std::int64_t tile_n = 0;
  std::vector<NamedValue> regions{};  ///< words, by name
  std::int64_t scratch_words = 0, row_words = 0;
  std::vector<operators::Kernel> kernels{};
  std::vector<PlannedLaunches> launches{};
  double seconds[3] = {};  ///< of multiplying, of memory, of waiting for launches
};

/// One call's plan, step by step.
class Planner {
 public:
  /// `checked`: of linear_distillation where `distills`. It outlives this.
  Planner(const dispatch::Request& checked, bool distills, const std::string& engine,
          const opencl::DeviceFacts& facts);

  std::int64_t minimum_workspace_bytes() const;
  /// Finds a schedule.
  void plan();
  /// Tells all about the one that was found.
  Planned planned() const;

 private:
  std::shared_ptr<linear::Problem> problem(std::shared_ptr<const engines::Engine> engine) const;

  const dispatch::Request& checked_;
  bool distills_;
  opencl::DeviceFacts facts_;
  schedule::MakeProblems problems_{};
  schedule::Choice choice_{};
};

}  // namespace tessera::test
