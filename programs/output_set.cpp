// SPDX-License-Identifier: Apache-2.0
#include "programs/output_set.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "programs/npy.hpp"
#include "tessera/error.hpp"

namespace tessera::programs {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_writing(const fs::path& path, const std::string& why) {
  throw Error(ErrorCode::execution_failed,
              fmt::format("{} cannot be written: {}; nothing was changed", path.string(), why));
}

void write_all(int fd, const void* data, std::size_t bytes, const fs::path& path) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    // One write moves at most 2 GiB on Linux.
    const ssize_t written = ::write(fd, at, std::min(bytes, std::size_t{1} << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_writing(path, std::strerror(errno));
    at += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

}  // namespace

OutputSet::OutputSet(fs::path folder) : folder_(std::move(folder)) {
  if (folder_.empty()) {
    throw Error(ErrorCode::invalid_argument, "--out is empty; give the folder to write to");
  }
  // Told now rather than after the work.
  std::error_code ignored;
  fs::path ancestor = fs::absolute(folder_, ignored);
  while (!fs::exists(ancestor, ignored) && ancestor.has_parent_path() &&
         ancestor != ancestor.parent_path()) {
    ancestor = ancestor.parent_path();
  }
  if (!fs::is_directory(ancestor, ignored)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--out {}: {} is not a folder; give another", folder_.string(),
                            ancestor.string()));
  }
  if (::access(ancestor.c_str(), W_OK | X_OK) != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--out {}: {}: {}; give a folder that can be written", folder_.string(),
                            ancestor.string(), std::strerror(errno)));
  }
}

OutputSet::~OutputSet() {
  std::error_code ignored;
  for (const auto& file : pending_) fs::remove(file.temporary, ignored);
  // Deepest first; a folder that somebody else uses by now is not empty and stays.
  for (auto it = made_folders_.rbegin(); it != made_folders_.rend(); ++it) fs::remove(*it, ignored);
}

void OutputSet::make_folder() {
  std::vector<fs::path> missing;
  for (fs::path path = fs::absolute(folder_).lexically_normal(); !path.empty() && !fs::exists(path);
       path = path.parent_path()) {
    missing.push_back(path);
  }
  std::error_code error;
  for (auto it = missing.rbegin(); it != missing.rend(); ++it) {
    if (fs::create_directory(*it, error)) made_folders_.push_back(*it);
    if (error) fail_writing(*it, error.message());
  }
}

void OutputSet::add(const std::string& file_name, const std::string& head, const void* data,
                    std::size_t bytes) {
  make_folder();
  const fs::path target = folder_ / file_name;
  std::error_code ignored;
  if (fs::is_directory(target, ignored)) fail_writing(target, "a folder has this name");
  const fs::path temporary = folder_ / fmt::format(".{}.{}.tmp", file_name, ::getpid());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) fail_writing(target, std::strerror(errno));
  pending_.push_back({file_name, temporary});
  try {
    write_all(fd, head.data(), head.size(), target);
    write_all(fd, data, bytes, target);
  } catch (...) {
    ::close(fd);
    throw;
  }
  // Some file systems report a full disk only here.
  if (::close(fd) != 0) fail_writing(target, std::strerror(errno));
}

void OutputSet::add_array(const std::string& file_name, const void* data, DType type,
                          const Dims& extents, bool bf16_bits, bool fortran_order) {
  add(file_name, make_npy_header(npy_descr(type, bf16_bits), fortran_order, extents), data,
      static_cast<std::size_t>(extents.product()) * size_of(type));
}

void OutputSet::add_tensor(const std::string& file_name, const HostTensor& tensor, bool bf16_bits) {
  add_array(file_name, tensor.data(), tensor.dtype(), tensor.extents(), bf16_bits);
}

void OutputSet::add_text(const std::string& file_name, const std::string& text) {
  add(file_name, text, nullptr, 0);
}

std::vector<std::string> OutputSet::file_names() const {
  std::vector<std::string> names;
  for (const auto& file : pending_) names.push_back(file.name);
  return names;
}

void OutputSet::commit() {
  // Everything is on disk by now; a rename within one folder needs no space of its own.
  for (const auto& file : pending_) {
    std::error_code error;
    fs::rename(file.temporary, folder_ / file.name, error);
    if (error) fail_writing(folder_ / file.name, error.message());
  }
  pending_.clear();
  made_folders_.clear();
}

}  // namespace tessera::programs
