// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tessera::opencl {

/// Of texts, one after the other, for tables and to notice damage; no proof against an adversary.
class Hash {
 public:
  void add(std::uint64_t word) noexcept {
    // The multiplier is 2^64 / phi, odd; the rotation brings the high bits back down.
    value_ = std::rotl((value_ ^ word) * 0x9e3779b97f4a7c15u, 32);
  }
  /// Eight bytes at a time: each launch looks its program up.
  void add(std::string_view text) noexcept {
    const char* data = text.data();
    std::size_t left = text.size();
    add(static_cast<std::uint64_t>(left));
    for (std::uint64_t word = 0; left >= sizeof(word); left -= sizeof(word), data += sizeof(word)) {
      std::memcpy(&word, data, sizeof(word));
      add(word);
    }
    for (; left > 0; --left) add(static_cast<std::uint64_t>(static_cast<unsigned char>(*data++)));
  }
  std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0;
};

}  // namespace tessera::opencl
