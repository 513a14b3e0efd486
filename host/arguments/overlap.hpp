// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/view.hpp"

namespace tessera::arguments {

/// True when some byte belongs to both views. Exact: views that interleave in one allocation
/// without touching are apart. Only where the search would take too long does it answer true
/// without a proof. Extents and strides must be valid (non-negative, reach below 2^63).
bool overlap(const View& a, const View& b);

/// True when no two elements of the view may share memory, as every layout that nests its axes
/// guarantees (dense, transposed, padded, sliced; not stride 0 with an extent above 1).
bool elements_are_apart(const View& view);

}  // namespace tessera::arguments
