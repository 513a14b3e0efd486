// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <regex>
#include <string>

/// Results are committed and read elsewhere: where a machine keeps its files is no part of them.
namespace tessera::bench {

/// The last part of a path, in the same memory.
inline char* last_part(char* path) {
  char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

/// `text` with the last part of every absolute path in it instead of the path: "cuda" for
/// "/usr/local/cuda". Paths may stand in a list ("/a/b:/c/d") or behind "name=".
inline std::string without_folders(const std::string& text) {
  static const std::regex path(R"((^|[:,;= ])(/+[^/:,;= ]+)*/+([^/:,;= ]+)/*)");
  return std::regex_replace(text, path, "$1$3");
}

}  // namespace tessera::bench
