// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/latency/problem.hpp"

namespace tessera::bench::latency {

/// What a fresh process sees: seconds to make a Context, of the first call and of the second.
/// `cache_folder` as ContextOptions has it.
nlohmann::json first_call(const std::string& device, const std::string& cache_folder,
                          const Case& wanted);

/// Runs `first_call` in new processes of this program: once with an empty cache of the driver
/// (POCL_CACHE_DIR) and `warm` times with the cache which that left behind ("cold", "warm"), and
/// the same with a cache_folder of the library's beside it ("filling", "kept"). `child` is the
/// command line that makes this program do so.
nlohmann::json first_calls(const std::string& child, int warm);

}  // namespace tessera::bench::latency
