// SPDX-License-Identifier: Apache-2.0
// libFuzzer on the .npy reader: any bytes are an array or an Error.
#include "programs/npy.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tessera/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  static const int file = ::memfd_create("npy", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (file < 0 || ::ftruncate(file, 0) != 0 ||
      ::pwrite(file, data, size, 0) != static_cast<::ssize_t>(size)) {
    std::abort();
  }
  for (const auto role : {programs::NpyRole::floating, programs::NpyRole::integer}) {
    try {
      const auto array = programs::NpyArray::load("--x", path, role, true);
      // Every element is there: the sanitizer looks.
      const View& view = array.view();
      const auto* bytes = static_cast<const volatile unsigned char*>(view.host_data());
      const std::int64_t count = view.size() * static_cast<std::int64_t>(size_of(view.dtype()));
      if (count < 0 || count > static_cast<std::int64_t>(size)) std::abort();
      for (std::int64_t i = 0; i < count; ++i) static_cast<void>(bytes[i]);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument) std::abort();
      if (std::string(error.what()).rfind("--x /proc/self/fd/", 0) != 0) std::abort();
    }
  }
  return 0;
}
