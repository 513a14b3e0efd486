// SPDX-License-Identifier: Apache-2.0
#include "host/dispatch/files.hpp"

#include <atomic>
#include <cstdio>

#include "host/dispatch/process.hpp"

namespace tessera::dispatch {

std::string unfinished(const std::string& path) {
  static std::atomic<unsigned> count{0};
  return path + "." + std::to_string(this_process()) + "." + std::to_string(count++) +
         unfinished_suffix;
}

bool write_file(const std::string& path, std::string_view text) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return false;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  // Some file systems report a full disk only here.
  return std::fclose(file) == 0 && written;
}

}  // namespace tessera::dispatch
