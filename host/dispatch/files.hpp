// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

/// Files that are written beside their place and renamed.
namespace tessera::dispatch {

inline constexpr const char* unfinished_suffix = ".unfinished";

/// A name beside `path` that no other thread or process uses now; it ends with that suffix.
std::string unfinished(const std::string& path);

/// Makes the folder where it is missing, and tries whether files can be made in it. True: it was
/// missing. Throws std::system_error.
bool make_folder(const std::string& path);

/// True when all of it is on the disk; else errno says why.
bool write_file(const std::string& path, std::string_view text);

}  // namespace tessera::dispatch
