// SPDX-License-Identifier: Apache-2.0
#include "host/catalog/operators.hpp"

#include <array>

#include "bench/operator.hpp"

namespace tessera::bench {

// The descriptions, each in the file of its name: one line here and one below.
const BenchOperator& linear_cross_entropy_in_bench();
const BenchOperator& softmax_cross_entropy_in_bench();
const BenchOperator& linear_distillation_in_bench();
const BenchOperator& rms_norm_in_bench();
const BenchOperator& attention_in_bench();

std::span<const BenchOperator* const> bench_operators() {
  static const std::array all = {
      &linear_cross_entropy_in_bench(),
      &softmax_cross_entropy_in_bench(),
      &linear_distillation_in_bench(),
      &rms_norm_in_bench(),
      &attention_in_bench(),
  };
  static_assert(all.size() == std::tuple_size_v<LossOperators> + std::tuple_size_v<OtherOperators>,
                "an operator has no rows in the bench");
  return all;
}

}  // namespace tessera::bench
