// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

/// Folders that ContextOptions::dump_folder fills: one for each compiled program.
namespace tessera::programs {

/// Declares --dump.
CLI::Option* add_dump(CLI::App& app, std::string& target);

/// Adds disassembly.txt, where objdump or llvm-objdump is on the PATH and knows the code, and
/// summary.json to each folder below. Throws Error execution_failed, which names `option`, where
/// that cannot be written.
void summarise_dump(const std::filesystem::path& folder, const std::string& option);

/// Two such folders, or two of one program each, side by side: programs and kernels of the same
/// name whose options differ least, and the rows of each rows.json. Summaries that are not there
/// are made. Throws Error invalid_argument for what is no such folder.
std::string compare_dumps(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace tessera::programs
