// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "host/opencl/machines.hpp"
#include "host/operators/call.hpp"
#include "tessera/linear_distillation.hpp"
#include "tests/support/problem.hpp"

/// Questions for the planner of the linear operators, drawn by a generator.
namespace tessera::test {

struct Question {
  const opencl::Machine* machine = nullptr;
  std::int64_t allocation = 0;  ///< largest of the machine; 0: its own
  bool distills = false;
  Pass pass{};
  std::int64_t b = 0, h = 0, v = 0;
  DType x{}, w{}, grad_w{};
  WLayout w_layout{}, grad_w_layout{};
  bool has_bias = false, wants_x = false, wants_w = false, wants_bias = false, adds = false;
  float eps = 0.0f;
  bool dz_f32 = false;
  Targets targets{};
  Reduction reduction{};
  float smoothing = 0.0f, cap = 0.0f;
  std::optional<linear_cross_entropy::BlockSizes> blocks{};
  std::vector<NamedValue> knobs{};
  std::int64_t quarters = 0;   ///< of the least workspace; 0: none is asked for
  std::uint64_t engine = 0;    ///< which of those that serve, modulo their number
  std::int64_t teacher_h = 0;  ///< 0: its logits are given
  DType teacher{};
  WLayout teacher_layout{};
  linear_distillation::Divergence divergence{};
  float alpha = 0.0f;
  bool has_terms = false;  ///< divergence_statistics of a forward
};

/// Random numbers that are the same with every standard library.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : numbers_(seed) {}
  std::uint64_t number() { return numbers_(); }
  bool happens(std::uint64_t percent) { return number() % 100 < percent; }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[number() % list.size()];
  }

 private:
  std::mt19937_64 numbers_;
};

Question draw_question(Draw& draw);

/// The call, with a bound on memory where bytes are given.
operators::Call call_of(const Question& question, std::int64_t workspace_bytes);

/// Fields "name=value", divided by bars.
std::string text(const Question& question);
std::string text(const std::vector<NamedValue>& list);

}  // namespace tessera::test
