// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/dispatch/warnings.hpp"

namespace tessera::opencl {

/// What a compiler made of programs, in a folder for each, for people and tools to read.
/// Thread-safe.
class ProgramDump {
 public:
  /// Off.
  ProgramDump() = default;
  /// Makes the folder where it is missing. `warnings` is told, once, of what cannot be written
  /// later. Throws std::system_error where no file can be made in it.
  ProgramDump(const std::string& folder, std::shared_ptr<dispatch::WarningLog> warnings);

  bool is_on() const noexcept { return !folder_.empty(); }
  /// Names a program's folder: its file, "linear/forward.cl", and a hash of source and options.
  static std::string name_of(const std::string& file, std::string_view source,
                             std::string_view options);
  /// source.cl, options.txt and log.txt.
  void compiled(const std::string& name, std::string_view source, std::string_view options,
                std::string_view log) const noexcept;
  /// The code in a driver's binary, once its kernels have run.
  void ran(const std::string& name, std::string_view binary) const noexcept;

  /// Names of files and what is in them: of PoCL's binary the libraries that its kernels ran from,
  /// "forward.1-1-1-goffs0-smallgrid.so"; of NVIDIA's "program.ptx"; of others "program.bin".
  static std::vector<std::pair<std::string, std::string_view>> code_in(std::string_view binary);

 private:
  using Files = std::vector<std::pair<std::string, std::string_view>>;
  void write(const std::string& name, const Files& files) const;

  std::string folder_;
  std::shared_ptr<dispatch::WarningLog> warnings_;
};

}  // namespace tessera::opencl
