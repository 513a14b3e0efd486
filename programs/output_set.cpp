// SPDX-License-Identifier: Apache-2.0
#include "programs/output_set.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "programs/npy.hpp"
#include "tessera/error.hpp"

namespace tessera::programs {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_writing(const std::string& option, const fs::path& path,
                               const std::string& why) {
  throw Error(
      ErrorCode::execution_failed,
      fmt::format("{} {} cannot be written: {}; nothing was changed", option, path.string(), why));
}

}  // namespace

OutputSet::OutputSet(fs::path folder, std::string option)
    : folder_(std::move(folder)), option_(std::move(option)) {
  if (folder_.empty()) {
    throw Error(ErrorCode::invalid_argument, option_ + " is empty; give the folder to write to");
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
                fmt::format("{} {}: {} is not a folder; give another", option_, folder_.string(),
                            ancestor.string()));
  }
  if (::access(ancestor.c_str(), W_OK | X_OK) != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} {}: {}: {}; give a folder that can be written", option_,
                            folder_.string(), ancestor.string(), std::strerror(errno)));
  }
}

OutputSet::~OutputSet() {
  std::error_code ignored;
  pending_.clear();  // the folders are empty then
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
    if (error) fail_writing(option_, *it, error.message());
  }
}

void OutputSet::add(const std::string& file_name, const std::string& head, const void* data,
                    std::size_t bytes) {
  make_folder();
  const fs::path target = folder_ / file_name;
  try {
    auto& file = pending_.emplace_back(file_name, dispatch::NewFile::named(target.string())).second;
    file.write(head);
    file.write({static_cast<const char*>(data), bytes});
    file.close();
  } catch (const std::system_error& error) {
    fail_writing(option_, target, error.code().message());
  }
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
  for (const auto& file : pending_) names.push_back(file.first);
  return names;
}

void OutputSet::commit() {
  // Everything is on disk by now; a rename within one folder needs no space of its own.
  for (auto& [name, file] : pending_) {
    try {
      file.put();
    } catch (const std::system_error& error) {
      fail_writing(option_, folder_ / name, error.code().message());
    }
  }
  pending_.clear();
  made_folders_.clear();
}

OutputFile::OutputFile(const fs::path& file, const std::string& option)
    : name_(file.filename().string()),
      files_(file.has_parent_path() ? file.parent_path() : ".", option) {
  std::error_code ignored;
  const fs::path folder = file.has_parent_path() ? file.parent_path() : ".";
  const char* why = name_.empty() || fs::is_directory(file, ignored) ? "it is a folder"
                    : !fs::is_directory(folder, ignored)             ? "its folder is not there"
                                                                     : nullptr;
  if (why == nullptr) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: the file '{}' cannot be written: {}; give another", option,
                          file.string(), why));
}

void OutputFile::write(const std::string& text) {
  files_.add_text(name_, text);
  files_.commit();
}

}  // namespace tessera::programs
