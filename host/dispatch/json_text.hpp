// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tessera::dispatch {

/// A name that somebody else gave, as a JSON string; what is no UTF-8 becomes U+FFFD.
std::string quoted(std::string_view text);

}  // namespace tessera::dispatch
