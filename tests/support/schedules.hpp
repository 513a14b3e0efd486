// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "host/linear/opencl/problem.hpp"

/// The planner of the linear operators for tests that ask about one call. `Problem` is an
/// operator's, of its Request, which outlives the answers.
namespace tessera::test {

template <class Problem, class Request>
schedule::MakeProblems problems_of(const Request& request, const engines::EngineShapes& shapes) {
  return linear::problems_of(
      [&request](std::shared_ptr<const engines::Engine> engine) {
        return std::make_shared<Problem>(request, std::move(engine));
      },
      shapes);
}

template <class Problem, class Request>
schedule::Choice schedule_of(const Request& request, const engines::EngineShapes& shapes,
                             const opencl::DeviceFacts& facts) {
  return schedule::make_schedule(problems_of<Problem>(request, shapes), facts,
                                 engines::default_workspace_bytes(facts, request.loss.v));
}

inline schedule::Cost cost_of(const schedule::Choice& choice) {
  const auto& s = choice.schedule;
  return schedule::cost_of(s.steps, s.shrink, choice.problem->engine());
}

}  // namespace tessera::test
