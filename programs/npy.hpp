// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/view.hpp"

/// numpy's .npy files, versions 1.0 to 3.0, as views.
namespace tessera::programs {

/// The header of a .npy file as it is written there; nothing about the type has been judged yet.
struct NpyHeader {
  std::string descr{};  ///< "<f4"; "[...]" for a structured type
  bool fortran_order = false;
  std::vector<std::int64_t> shape{};
  std::size_t data_offset = 0;  ///< bytes from the start of the file to element 0
};

/// Bytes before element 0, as the first bytes of a file say (the first `npy_preamble` at most).
/// Throws `Error invalid_argument`: no .npy file, another version, a header beyond 64 KiB.
std::size_t npy_data_offset(std::span<const std::byte> file, const std::string& name);
inline constexpr std::size_t npy_preamble = 12;

/// Parses the header at the start of `file`, which may be the whole file or any prefix that holds
/// it. Throws `Error invalid_argument`; `name` begins the message.
NpyHeader parse_npy_header(std::span<const std::byte> file, const std::string& name);

/// Magic, version and header, padded so that element 0 is aligned to 64 bytes as numpy does.
std::string make_npy_header(const std::string& descr, bool fortran_order, const Dims& extents);

/// The descr that an array of this type is written with. bf16 is "<V2", what numpy saves for
/// ml_dtypes, or "<u2" with `bf16_bits`.
std::string npy_descr(DType type, bool bf16_bits);

/// What an argument may hold.
enum class NpyRole {
  floating,  ///< f32, f16, bf16
  integer,   ///< i32, i64
};

/// A .npy file in memory: mapped where its elements are aligned, else read.
class NpyArray {
 public:
  NpyArray() = default;
  /// Reads `path`. `argument` ("--x") begins each message. With `bf16_bits`, <u2 is read as bf16.
  /// Throws `Error invalid_argument` when the file is missing, truncated, no .npy file, big-endian,
  /// of a type that `role` does not allow, or longer than its header says. Of a pipe or a device no
  /// more is read than that.
  static NpyArray load(const std::string& argument, const std::string& path, NpyRole role,
                       bool bf16_bits);

  explicit operator bool() const noexcept { return static_cast<bool>(view_); }
  /// The array with the shape of the file; Fortran order shows in the strides.
  const View& view() const noexcept { return view_; }
  bool fortran_order() const noexcept { return fortran_order_; }

 private:
  std::shared_ptr<const void> memory_;
  View view_;
  bool fortran_order_ = false;
};

/// Strides, in elements, of a dense array whose first axis runs fastest.
Dims fortran_strides(const Dims& extents);

}  // namespace tessera::programs
