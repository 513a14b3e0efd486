// SPDX-License-Identifier: Apache-2.0
#include "host/dispatch/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace tessera::dispatch {
namespace {

namespace fs = std::filesystem;

constexpr off_t most_bytes = off_t{1} << 28;  // far beyond any program, table or source

[[noreturn]] void fail(const std::string& path) {
  throw std::system_error(errno, std::generic_category(), path);
}

std::string why_shared(const struct stat& status) {
  if (status.st_uid != ::geteuid()) {
    return fmt::format("it belongs to user {}, not to {}", status.st_uid, ::geteuid());
  }
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
  return fmt::format("others than its owner may write to it (mode {:o})", status.st_mode & 07777);
}

/// Why an open file is not read; empty: it can be.
std::string why_not(const struct stat& status, bool own) {
  if (S_ISDIR(status.st_mode)) return "it is a folder";
  if (!S_ISREG(status.st_mode)) return "it is no regular file";
  if (status.st_size > most_bytes) {
    return fmt::format("it has {} bytes, the limit is {}", status.st_size, most_bytes);
  }
  return own ? why_shared(status) : std::string();
}

FileText read(const std::string& path, bool own) {
  const auto failed = [] { return FileText{.problem = std::strerror(errno)}; };
  // O_NONBLOCK: a pipe without a writer is opened at once, and then refused.
  const FileDescriptor file(
      ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (own ? O_NOFOLLOW : 0)));
  if (file.get() < 0) {
    const bool is_missing = errno == ENOENT || errno == ENOTDIR;
    return {.problem = std::strerror(errno), .is_missing = is_missing};
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return failed();
  if (auto why = why_not(status, own); !why.empty()) return {.problem = std::move(why)};
  const auto size = static_cast<std::size_t>(status.st_size);
  std::string text(size + 1, '\0');  // one more byte, which ought not to be there
  std::size_t used = 0;
  while (used < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + used, text.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed();
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
  }
  if (used != size) return {.problem = "its size is not that of what it holds"};
  text.pop_back();
  return {.text = std::move(text)};
}

}  // namespace

NewFile::NewFile(const std::string& path, mode_t mode) : target_(path) {
  std::uint64_t number = 0;
  if (::getentropy(&number, sizeof(number)) != 0) fail(path);
  temporary_ =
      (fs::path(path).parent_path() / fmt::format(".tessera-{:016x}{}", number, unfinished_suffix))
          .string();
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  if (fd_ < 0) fail(path);
}

NewFile NewFile::named(const std::string& path) {
  std::error_code ignored;
  const auto there = fs::status(path, ignored);
  if (fs::is_regular_file(there)) return NewFile(fs::canonical(path).string(), 0666);
  if (!fs::exists(there)) return NewFile(path, 0666);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) fail(path);
  return NewFile(fd, path);
}

NewFile::NewFile(NewFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})) {}

NewFile::~NewFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void NewFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    // One write moves at most 2 GiB on Linux.
    const ssize_t written =
        ::write(fd_, bytes.data(), std::min(bytes.size(), std::size_t{1} << 30));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(target_);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void NewFile::close() {
  // Some file systems report a full disk only here.
  if (fd_ >= 0 && ::close(std::exchange(fd_, -1)) != 0) fail(target_);
}

void NewFile::put() {
  close();
  if (temporary_.empty()) return;
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) fail(target_);
  temporary_.clear();
}

FileText read_file(const std::string& path) { return read(path, false); }
FileText read_own_file(const std::string& path) { return read(path, true); }

void make_folder(const std::string& path, mode_t mode) {
  int failed = ::mkdir(path.c_str(), mode);
  if (failed != 0 && errno == ENOENT) {
    const fs::path above = fs::path(path).parent_path();
    if (above.empty() || above == path) fail(path);
    make_folder(above.string(), mode);
    failed = ::mkdir(path.c_str(), mode);
  }
  if (failed != 0 && errno != EEXIST) fail(path);
  NewFile probe(path + "/probe", 0600);
  probe.write("a file\n");
  probe.close();
}

std::string why_shared(const std::string& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) fail(folder);
  return why_shared(status);
}

}  // namespace tessera::dispatch
