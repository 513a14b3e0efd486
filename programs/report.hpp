// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/context.hpp"
#include "tessera/execution.hpp"

namespace tessera::programs {

/// Keeps the order in which the fields are written.
using Json = nlohmann::ordered_json;

/// `implementation`, `schedule`, `device`, `driver`, `block_sizes`, `knobs`, `block_source`,
/// `block_reason`, `refused` (objects with `implementation` and `reason`), `warnings` and
/// `extra_bytes_peak`: the call's scratch memory plus the copies of the caller's arrays that the
/// device needed, as the dispatcher counts them.
Json to_json(const Dispatch& dispatch);

Json to_json(const DeviceInfo& device);

/// An object, name to value.
Json to_json(const std::vector<NamedValue>& values);

/// By name: `b_block_size`, ...
template <HasAxes BlockSizes>
Json to_json(const BlockSizes& blocks) {
  return to_json(to_named(blocks));
}

/// `version`, `revision`, `build` and `environment`, the variables that steer drivers.
Json provenance();

/// The text of a file: indented, with a line end. Bytes that are no UTF-8 (driver and file names)
/// are replaced.
std::string dump(const Json& json);

/// Adds to `list` what is not in it yet.
void add_distinct(std::vector<std::string>& list, const std::vector<std::string>& more);

}  // namespace tessera::programs
