// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "bench/arrays.hpp"

namespace tessera::bench {

/// One call of the library for one row; blocks until the outputs are there.
Dispatch call(Context& context, const Row& row, const Options& options, const Arrays& arrays);
/// What a backward needs first: the statistics, into `arrays`.
void call_forward(Context& context, const Row& row, const Options& options, const Arrays& arrays);
CostEstimate cost_of(Context& context, const Row& row, const Options& options);
/// Why the row cannot run; nothing: it can. Throws for names that do not exist.
std::optional<std::string> why_not(Context& context, const Row& row, const Options& options);

/// The implementations of an operator, in the order of the table.
std::vector<ImplementationInfo> implementations_of(Operator op);

}  // namespace tessera::bench
