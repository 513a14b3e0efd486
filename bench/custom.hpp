// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "bench/session.hpp"

/// tessera-bench --custom: rows of a kernel of the caller's, as a JSON file lists them.
namespace tessera::bench {

/// A kernel with the arrays and numbers of its calls.
struct CustomRow {
  /// Of an array; integers are random from 0 to below `below`.
  struct Array {
    TensorSpec spec;
    std::int64_t below = 2;
  };
  std::string name{};
  CustomKernel kernel{};
  std::vector<Array> inputs{};
  CustomOptions options{};
};

/// Throws Error invalid_argument, with the file's name and the row, for what it does not say or
/// says wrong (docs/custom_kernels.md has the format).
std::vector<CustomRow> read_custom_rows(const std::string& file);

/// Measures a row and reports it to `state`: bytes against those of the device's copy.
void measure_custom(benchmark::State& state, const CustomRow& row, Context context, Peaks& peaks,
                    const Options& options, double min_seconds);

}  // namespace tessera::bench
