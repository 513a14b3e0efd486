// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "bench/session.hpp"

namespace tessera::bench {

/// Of each row that can run, how long its calls take part by part, and the share of the peak of
/// multiplication that they have with each: a table to standard output, and JSON for
/// scripts/plot_decomposition.py. Forward: the kernel `forward` without what it makes of the
/// logits, with their maximum, whole, and the call. Gradients: kernel by kernel. Throws Error
/// unsupported where no row is one of `opencl.cpu` with products.
std::string decompose(Session& session, const std::vector<Session::Planned>& rows,
                      const Options& options);

}  // namespace tessera::bench
