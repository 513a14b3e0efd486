// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
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
  std::vector<TensorSpec> outputs{};
  CustomOptions options{};

  std::string shape{};     ///< "row 0: f32[8,64] -> f32[8,64]"
  std::string revision{};  ///< changes with the source, and with what the file says of the row
  /// The row with other numbers and launch sizes, as its "tune" lists them.
  std::vector<CustomRow> candidates{};
  std::string config{};  ///< in what a candidate differs from the row: "width=4 local=64"
  /// The row with whose results those of this one are compared; null: they are not judged.
  std::shared_ptr<const CustomRow> own{};
};

/// Throws Error invalid_argument, with the file's name and the row, for what it does not say or
/// says wrong (docs/custom_kernels.md has the format).
std::vector<CustomRow> read_custom_rows(const std::string& file);

/// The candidate that "REVISION:CONFIG" names, or with an empty CONFIG the row itself, to be
/// compared with the row's own results. Throws Error invalid_argument where there is none.
CustomRow find_candidate(const std::vector<CustomRow>& rows, const std::string& name);

/// Makes the first call of a row. What it returns makes one more and tells its seconds.
std::function<double()> prepare_custom(const CustomRow& row, Context context,
                                       const Options& options);

/// Measures a row and reports it to `state`: bytes against those of the device's copy. Throws
/// WrongResults.
void measure_custom(benchmark::State& state, const CustomRow& row, Context context, Peaks& peaks,
                    const Options& options, double min_seconds);

}  // namespace tessera::bench
