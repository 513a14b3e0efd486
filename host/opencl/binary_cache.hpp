// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera::opencl {

/// Compiled programs in files of a folder, one each. A file holds all that decided what was
/// compiled (its key), so that a stale one is never taken for another, and a checksum; one that is
/// damaged, of another key, or that another user may have written counts as missing. Files are
/// written beside their place and renamed, so that processes may share the folder and be killed at
/// any time. Thread-safe.
class BinaryCache {
 public:
  /// Off.
  BinaryCache() = default;
  /// Makes the folder where it is missing, and removes what killed processes left half written an
  /// hour ago or before. Throws std::system_error where no file can be made in it, and Error where
  /// others may write to it, because what lies there is run.
  explicit BinaryCache(const std::string& folder);

  bool is_on() const noexcept { return !folder_.empty(); }
  std::optional<std::string> find(std::string_view key) const;
  /// Does nothing where the disk is full or the folder has gone: programs are compiled again.
  void keep(std::string_view key, std::string_view binary) const noexcept;

  /// The text of a file, and the binary in it where it is whole and of this key.
  static std::string pack(std::string_view key, std::string_view binary);
  static std::optional<std::string_view> unpack(std::string_view file, std::string_view key);

 private:
  std::string path_of(std::string_view key) const;
  std::string folder_;
};

}  // namespace tessera::opencl
