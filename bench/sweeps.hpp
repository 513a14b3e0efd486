// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "bench/arrays.hpp"

/// Products of a few rows in double, plainly: what the judge needs besides the oracle.
namespace tessera::bench {

/// x_r . w_v for each given row, [rows, V].
std::vector<double> logits_of(const Data& data, const std::vector<std::int64_t>& rows);
/// dz w^T, [rows, H], for dz [rows, V].
std::vector<double> products_with_w(const Data& data, const std::vector<double>& dz,
                                    std::int64_t rows);
/// One logit: of the softmax, or of x_row . w_column.
double logit(const Data& data, std::int64_t row, std::int64_t column);
std::vector<double> row_norms(const Data& data);     ///< [B] of x
std::vector<double> column_norms(const Data& data);  ///< [V] of w

}  // namespace tessera::bench
