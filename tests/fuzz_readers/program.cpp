// SPDX-License-Identifier: Apache-2.0
// libFuzzer on the files of compiled programs: what is taken is what was written, to the last bit.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "host/opencl/binary_cache.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using tessera::opencl::BinaryCache;
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  for (const std::string_view key : {std::string_view("key"), std::string_view()}) {
    const auto binary = BinaryCache::unpack(file, key);
    if (binary && BinaryCache::pack(key, *binary) != file) std::abort();
  }
  return 0;
}
