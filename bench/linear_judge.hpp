// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "bench/judge.hpp"

/// What judging operators with an output projection has in common.
namespace tessera::bench {

/// x and w of a problem, and what their products may be off by.
struct Factors {
  Factors(const HostTensor& of_rows, const HostTensor& of_words);
  double error(std::int64_t row, std::int64_t column) const;
  const HostTensor &x, &w;
  std::vector<double> x_norms, w_norms;
};

/// Their products; the factors must outlive it.
Logits logits_of(const Factors& factors);

/// What dz of row number `i` of the judge's rows may be off by beyond LossJudge::dz_error.
using MoreDzError = std::function<double(std::size_t i, std::int64_t column)>;

/// grad_x of the judge's rows, and of a row that is ignored. `dz` is what those rows should have,
/// [rows, V].
void judge_grad_x(LossJudge& judge, const Factors& factors, const std::vector<double>& dz,
                  const HostTensor& grad_x, const MoreDzError& more = {});

}  // namespace tessera::bench
