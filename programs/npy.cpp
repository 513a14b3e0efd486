// SPDX-License-Identifier: Apache-2.0
#include "programs/npy.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string_view>

#include "host/dispatch/files.hpp"
#include "tessera/error.hpp"

namespace tessera::programs {
namespace {

// Elements are used as they lie in the file.
static_assert(std::endian::native == std::endian::little, "the files are little-endian");

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", name, what));
}

/// The bytes of a file and what keeps them alive.
struct Bytes {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> data;
};

Bytes map_file(int fd, std::size_t size, const std::string& name) {
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) fail(name, fmt::format("cannot be mapped: {}", std::strerror(errno)));
  std::shared_ptr<const void> owner(address,
                                    [address, size](const void*) { ::munmap(address, size); });
  return {owner, {static_cast<const std::byte*>(address), size}};
}

/// Pipes and the like, which have no size, may not end and cannot be mapped.
class Stream {
 public:
  Stream(int fd, const std::string& name) : fd_(fd), name_(name) {}

  /// Reads until `size` bytes are there, or the end.
  void read_to(std::size_t size) {
    // Sixteen pipes full: a call of read costs nothing beside its bytes.
    constexpr std::size_t piece = std::size_t{1} << 20;
    std::size_t used = buffer_->size();
    while (used < size) {
      // Piece by piece: a header may promise more than ever comes.
      buffer_->resize(used + std::min(piece, size - used));
      const ssize_t got = ::read(fd_, buffer_->data() + used, buffer_->size() - used);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(name_, fmt::format("cannot be read: {}", std::strerror(errno)));
      used += static_cast<std::size_t>(got);
      if (got == 0) break;
    }
    buffer_->resize(used);
  }
  Bytes bytes() const { return {buffer_, {buffer_->data(), buffer_->size()}}; }

 private:
  int fd_;
  const std::string& name_;
  std::shared_ptr<std::vector<std::byte>> buffer_ = std::make_shared<std::vector<std::byte>>();
};

/// What the header says, in elements and in bytes.
struct Extent {
  NpyHeader header;
  DType type;
  std::size_t bytes;
};

Extent extent_of(std::span<const std::byte> file, const std::string& name, NpyRole role,
                 bool bf16_bits);

/// All of a file, of which `extent` says what it ought to be.
Bytes open_bytes(const std::string& path, const std::string& name, NpyRole role, bool bf16_bits,
                 Extent& extent) {
  const dispatch::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail(name, fmt::format("cannot be opened: {}", std::strerror(errno)));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) {
    fail(name, fmt::format("cannot be read: {}", std::strerror(errno)));
  }
  if (S_ISDIR(status.st_mode)) fail(name, "is a folder, not a .npy file");
  if (S_ISREG(status.st_mode)) {
    if (status.st_size == 0) fail(name, "is empty, not a .npy file");
    Bytes bytes = map_file(file.get(), static_cast<std::size_t>(status.st_size), name);
    extent = extent_of(bytes.data, name, role, bf16_bits);
    return bytes;
  }
  Stream stream(file.get(), name);
  stream.read_to(npy_preamble);
  stream.read_to(npy_data_offset(stream.bytes().data, name));
  extent = extent_of(stream.bytes().data, name, role, bf16_bits);
  // And one byte, which ought not to be there.
  stream.read_to(extent.header.data_offset + extent.bytes + 1);
  return stream.bytes();
}

DType element_type(const std::string& descr, NpyRole role, bool bf16_bits,
                   const std::string& name) {
  if (descr.size() > 1 && descr[0] == '>') {
    fail(name, fmt::format("holds big-endian elements ('{0}'); save it as a.astype('<{1}')", descr,
                           descr.substr(1)));
  }
  // '=' is the writer's own order, which numpy replaces by '<' on every machine this runs on.
  const bool ordered = !descr.empty() && std::strchr("<|=", descr[0]) != nullptr;
  const std::string_view kind = ordered ? std::string_view(descr).substr(1) : "";
  if (role == NpyRole::floating) {
    if (kind == "f4") return DType::f32;
    if (kind == "f2") return DType::f16;
    if (kind == "V2" || (kind == "u2" && bf16_bits)) return DType::bf16;
    const char* hint = kind == "f8"   ? "convert it with a.astype(numpy.float32)"
                       : kind == "u2" ? "if these are the bits of bf16, pass --bf16-bits"
                                      : "convert it";
    fail(name, fmt::format("holds '{}'; accepted are '<f4' (f32), '<f2' (f16), 'V2' (bf16 as "
                           "numpy saves it){}: {}",
                           descr, bf16_bits ? " and '<u2' (bf16)" : "", hint));
  }
  if (kind == "i4") return DType::i32;
  if (kind == "i8") return DType::i64;
  fail(name, fmt::format("holds '{}'; accepted are '<i4' and '<i8': convert it with "
                         "a.astype(numpy.int64)",
                         descr));
}

Extent extent_of(std::span<const std::byte> file, const std::string& name, NpyRole role,
                 bool bf16_bits) {
  Extent extent{.header = parse_npy_header(file, name), .type = {}, .bytes = 0};
  extent.type = element_type(extent.header.descr, role, bf16_bits, name);
  const auto& shape = extent.header.shape;
  if (shape.size() > static_cast<std::size_t>(Dims::max_rank)) {
    fail(name, fmt::format("has {} axes, the limit is {}; merge leading axes with reshape",
                           shape.size(), Dims::max_rank));
  }
  // Strides are products of extents, so they are bounded here even where one extent is 0.
  const auto limit = std::numeric_limits<std::int64_t>::max() / 16;
  std::int64_t count = 1, nonzero = 1;
  for (auto one : shape) {
    if (one > 0 && nonzero > limit / one) fail(name, "its shape overflows 64 bits");
    nonzero *= one > 0 ? one : 1;
    count *= one;
  }
  extent.bytes = static_cast<std::size_t>(count) * size_of(extent.type);
  return extent;
}

}  // namespace

Dims fortran_strides(const Dims& extents) {
  Dims strides = extents;
  std::int64_t step = 1;
  for (int axis = 0; axis < extents.rank(); ++axis) {
    strides[axis] = step;
    step *= extents[axis];
  }
  return strides;
}

NpyArray NpyArray::load(const std::string& argument, const std::string& path, NpyRole role,
                        bool bf16_bits) {
  const std::string name = argument + " " + path;
  Extent extent{};
  const Bytes bytes = open_bytes(path, name, role, bf16_bits, extent);
  const auto& [header, type, needed] = extent;
  const std::size_t present = bytes.data.size() - header.data_offset;
  if (present < needed) {
    fail(name, fmt::format("truncated: its shape needs {} bytes of elements, {} are there", needed,
                           present));
  }
  if (present > needed) {
    fail(name, fmt::format("its shape needs {} bytes of elements, and more follow; save one array "
                           "per file with numpy.save",
                           needed));
  }

  NpyArray array;
  array.fortran_order_ = header.fortran_order;
  const std::byte* elements = bytes.data.data() + header.data_offset;
  array.memory_ = bytes.owner;
  if (reinterpret_cast<std::uintptr_t>(elements) % size_of(type) != 0) {
    // Writers other than numpy need not pad the header; views need aligned elements.
    auto copy = std::make_shared<std::vector<std::uint64_t>>(needed / 8 + 1);
    if (needed > 0) std::memcpy(copy->data(), elements, needed);
    elements = reinterpret_cast<const std::byte*>(copy->data());
    array.memory_ = copy;
  }
  const Dims extents(header.shape);
  array.view_ =
      View::host(elements, type, extents,
                 header.fortran_order ? fortran_strides(extents) : contiguous_strides(extents));
  return array;
}

}  // namespace tessera::programs
