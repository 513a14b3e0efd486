// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/view.hpp"

/// Products of a few rows in double, plainly: what judging needs besides the oracle. x is [B, H],
/// row-major; w is [H, V] by its strides.
namespace tessera::bench {

/// x_r . w_v for each given row, [rows, V].
std::vector<double> products(const HostTensor& x, const HostTensor& w,
                             const std::vector<std::int64_t>& rows);
/// x_row . w_column.
double product(const HostTensor& x, const HostTensor& w, std::int64_t row, std::int64_t column);
/// dz w^T, [rows, H], for dz [rows, V].
std::vector<double> products_with_w(const HostTensor& w, const std::vector<double>& dz,
                                    std::int64_t rows);
std::vector<double> row_norms(const HostTensor& x);     ///< [B]
std::vector<double> column_norms(const HostTensor& w);  ///< [V]

}  // namespace tessera::bench
