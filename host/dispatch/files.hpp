// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

/// The one way to write a file, and to read a whole one.
namespace tessera::dispatch {

inline constexpr const char* unfinished_suffix = ".unfinished";

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { ::close(fd_); }
  int get() const { return fd_; }

 private:
  int fd_;
};

/// A file that is written beside its place and then takes it, so that a file is the old one or the
/// new one, whole, at any time. The unfinished one is made under a name that cannot be guessed, and
/// never through a link. What is not put is removed. Throws std::system_error.
class NewFile {
 public:
  /// Takes the place of whatever has the name, a link too. `mode` as open(2) has it.
  NewFile(const std::string& path, mode_t mode);
  /// For a path that a caller names: a link stays one, and what is no file (a pipe, a device) is
  /// written to as it is.
  static NewFile named(const std::string& path);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  void write(std::string_view bytes);
  /// Afterwards all of it is on the disk. `put` does it where the caller has not.
  void close();
  void put();

 private:
  NewFile(int fd, std::string target) : fd_(fd), target_(std::move(target)) {}

  int fd_ = -1;
  std::string target_, temporary_{};  ///< empty: it is put, or was written in its place
};

/// The text of a file, or why it was not read.
struct FileText {
  std::string text{};
  std::string problem{};    ///< "it is a folder"; empty: it was read
  bool is_missing = false;  ///< the problem is that it is not there
};

/// Reads a regular file of at most 256 MiB, and so never waits for a pipe, nor reads without end.
FileText read_file(const std::string& path);
/// The same of a file that no other user can have written, never through a link.
FileText read_own_file(const std::string& path);

/// Makes the folder, and those above it, where they are missing, and tries whether files can be
/// made in it. `mode` as mkdir(2) has it. Throws std::system_error.
void make_folder(const std::string& path, mode_t mode);

/// The reason why other users may have written to the folder: "it belongs to user 1000". Empty:
/// they may not. Throws std::system_error.
std::string why_shared(const std::string& folder);

}  // namespace tessera::dispatch
