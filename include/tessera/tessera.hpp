// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Everything: one line per header, one per operator.
#include "tessera/context.hpp"
#include "tessera/cost_estimate.hpp"
#include "tessera/dtype.hpp"
#include "tessera/error.hpp"
#include "tessera/execution.hpp"
#include "tessera/linear_cross_entropy.hpp"
#include "tessera/loss.hpp"
#include "tessera/operator.hpp"
#include "tessera/operators.hpp"
#include "tessera/softmax_cross_entropy.hpp"
#include "tessera/version.hpp"
#include "tessera/view.hpp"
