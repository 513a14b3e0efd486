// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "host/operators/call.hpp"

/// What command lines need of the operators besides their descriptions.
namespace tessera::programs {

using operators::Call;
using operators::Description;
using operators::description;
using operators::descriptions;

/// The operators that score something: those with labels.
const std::vector<Description>& losses();

/// "B,H,V"
std::string block_sizes_text(const Description& op);
/// Block sizes given in their order by name. Three numbers may be B, H and V where the operator has
/// fewer of these axes, too. Nothing: not this many.
std::optional<std::vector<NamedValue>> named_blocks(const Description& op,
                                                    const std::vector<std::int64_t>& values);

}  // namespace tessera::programs
