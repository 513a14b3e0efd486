// SPDX-License-Identifier: Apache-2.0
#include "tessera/version.hpp"

#define TESSERA_TEXT_(x) #x
#define TESSERA_TEXT(x) TESSERA_TEXT_(x)

namespace tessera {

const char* version() noexcept {
  return TESSERA_TEXT(TESSERA_VERSION_MAJOR) "." TESSERA_TEXT(
      TESSERA_VERSION_MINOR) "." TESSERA_TEXT(TESSERA_VERSION_PATCH);
}

const char* revision() noexcept { return TESSERA_REVISION; }

const char* build_description() noexcept { return TESSERA_BUILD_DESCRIPTION; }

}  // namespace tessera
