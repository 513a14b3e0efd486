// SPDX-License-Identifier: Apache-2.0
#include "host/dispatch/files.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "host/dispatch/process.hpp"

namespace tessera::dispatch {

std::string unfinished(const std::string& path) {
  static std::atomic<unsigned> count{0};
  return path + "." + std::to_string(this_process()) + "." + std::to_string(count++) +
         unfinished_suffix;
}

bool make_folder(const std::string& path) {
  const bool is_missing = !std::filesystem::is_directory(path);
  if (is_missing) std::filesystem::create_directories(path);
  const std::string probe = unfinished(path + "/probe");
  errno = 0;
  const bool can_write = write_file(probe, "a file\n");
  const int reason = errno;
  ::unlink(probe.c_str());
  if (!can_write) throw std::system_error(reason, std::generic_category(), path);
  return is_missing;
}

bool write_file(const std::string& path, std::string_view text) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return false;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  // Some file systems report a full disk only here.
  return std::fclose(file) == 0 && written;
}

}  // namespace tessera::dispatch
