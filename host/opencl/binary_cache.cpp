// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/binary_cache.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "host/dispatch/files.hpp"
#include "host/opencl/hashing.hpp"
#include "tessera/error.hpp"

namespace tessera::opencl {
namespace {

namespace fs = std::filesystem;

/// The first bytes of a file; another format gets another number.
constexpr std::string_view magic = "tessera program 1\n";
constexpr const char* program_suffix = ".program";

/// Sizes of key and binary, and the hash of both.
using Header = std::array<std::uint64_t, 3>;

Header header_of(std::string_view key, std::string_view binary) {
  Hash hash;
  hash.add(key);
  hash.add(binary);
  return {key.size(), binary.size(), hash.value()};
}

void remove_unfinished(const fs::path& folder) {
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() != dispatch::unfinished_suffix) continue;
    const auto written = entry.last_write_time(ignored);
    if (!ignored && written < old) fs::remove(entry.path(), ignored);
  }
}

}  // namespace

BinaryCache::BinaryCache(const std::string& folder) {
  dispatch::make_folder(folder, 0700);
  if (auto why = dispatch::why_shared(folder); !why.empty()) {
    throw Error(ErrorCode::invalid_argument, why);
  }
  remove_unfinished(folder);
  folder_ = folder;
}

std::string BinaryCache::path_of(std::string_view key) const {
  Hash hash;
  hash.add(key);
  std::array<char, 17> name{};
  std::snprintf(name.data(), name.size(), "%016llx", static_cast<unsigned long long>(hash.value()));
  return folder_ + "/" + name.data() + program_suffix;
}

std::string BinaryCache::pack(std::string_view key, std::string_view binary) {
  const Header header = header_of(key, binary);
  std::string file(magic);
  file.append(reinterpret_cast<const char*>(header.data()), sizeof(header));
  file.append(key).append(binary);
  return file;
}

std::optional<std::string_view> BinaryCache::unpack(std::string_view file, std::string_view key) {
  constexpr std::size_t start = magic.size() + sizeof(Header);
  if (file.size() < start + key.size() || !file.starts_with(magic)) return std::nullopt;
  if (file.substr(start, key.size()) != key) return std::nullopt;
  const std::string_view binary = file.substr(start + key.size());
  // The sizes are those of this key and of the rest, or the file is cut or of a longer key.
  const Header expected = header_of(key, binary);
  if (std::memcmp(file.data() + magic.size(), expected.data(), sizeof(expected)) != 0) {
    return std::nullopt;
  }
  return binary;
}

std::optional<std::string> BinaryCache::find(std::string_view key) const {
  if (!is_on()) return std::nullopt;
  const auto file = dispatch::read_own_file(path_of(key));
  const auto binary = unpack(file.text, key);
  if (!binary) return std::nullopt;
  return std::string(*binary);
}

void BinaryCache::keep(std::string_view key, std::string_view binary) const noexcept {
  if (!is_on()) return;
  try {
    dispatch::NewFile file(path_of(key), 0600);
    file.write(pack(key, binary));
    file.put();
  } catch (...) {
    // A full disk, or no memory: the program is there, and the next process compiles it again.
  }
}

}  // namespace tessera::opencl
