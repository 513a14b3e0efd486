// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace tessera::tuning {

/// Reads raw results and writes the table: a row for each operator, pass, implementation, device,
/// types, layout and bucket in them, where one candidate beats the heuristic on each of the
/// bucket's shapes, the 95% interval of the ratio wholly below 1. Where none does, a row of before
/// is taken out. Rows that the raw results say nothing of, and lines that cannot be read, stay as
/// they are. Prints what changed and by how much. The file appears whole, or stays as it was.
/// Custom kernels look up no table: of these it prints what to give the row of their file. `table`
/// is empty where the raw results have nothing else.
void derive_table(const std::vector<std::string>& raw_files, const std::string& table);

}  // namespace tessera::tuning
