// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Everything; the operators are those of tessera/operators.hpp.
#include "tessera/context.hpp"
#include "tessera/cost_estimate.hpp"
#include "tessera/dtype.hpp"
#include "tessera/error.hpp"
#include "tessera/execution.hpp"
#include "tessera/loss.hpp"
#include "tessera/operator.hpp"
#include "tessera/operators.hpp"
#include "tessera/version.hpp"
#include "tessera/view.hpp"
