// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "host/dispatch/files.hpp"
#include "tessera/view.hpp"

namespace tessera::programs {

/// The files of one run: all of them appear in the folder, or none.
///
/// Files are written under temporary names beside their places and renamed by `commit`, so that a
/// program that is killed leaves each as it was or whole. Whatever was not committed is removed
/// again, folders that were made for it included. A link stays one, and what is no file (a device,
/// a pipe) is written to as it is.
class OutputSet {
 public:
  /// Looks, but writes nothing: `Error invalid_argument`, which names `option`, when `folder` can
  /// never be written.
  explicit OutputSet(std::filesystem::path folder, std::string option = "--out");
  OutputSet(const OutputSet&) = delete;
  OutputSet& operator=(const OutputSet&) = delete;
  ~OutputSet();

  /// A dense array; `fortran_order` says that its first axis runs fastest. `Error
  /// execution_failed` when it cannot be written.
  void add_array(const std::string& file_name, const void* data, DType type, const Dims& extents,
                 bool bf16_bits = false, bool fortran_order = false);
  void add_tensor(const std::string& file_name, const HostTensor& tensor, bool bf16_bits = false);
  void add_text(const std::string& file_name, const std::string& text);

  /// Names of what was added, in order.
  std::vector<std::string> file_names() const;
  void commit();

 private:
  void add(const std::string& file_name, const std::string& head, const void* data,
           std::size_t bytes);
  void make_folder();

  std::filesystem::path folder_;
  std::string option_;
  std::vector<std::filesystem::path> made_folders_;
  std::vector<std::pair<std::string, dispatch::NewFile>> pending_;  ///< names and files
};

/// One file of a run, which an option names. It is made before the work, so that what can never
/// be written is an error then.
class OutputFile {
 public:
  OutputFile(const std::filesystem::path& file, const std::string& option);
  void write(const std::string& text);

 private:
  std::string name_;
  OutputSet files_;
};

}  // namespace tessera::programs
