// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Everything.
#include "tessera/attention.hpp"
#include "tessera/context.hpp"
#include "tessera/cost_estimate.hpp"
#include "tessera/custom_kernel.hpp"
#include "tessera/dtype.hpp"
#include "tessera/error.hpp"
#include "tessera/execution.hpp"
#include "tessera/linear_cross_entropy.hpp"
#include "tessera/linear_distillation.hpp"
#include "tessera/loss.hpp"
#include "tessera/profile.hpp"
#include "tessera/rms_norm.hpp"
#include "tessera/softmax_cross_entropy.hpp"
#include "tessera/version.hpp"
#include "tessera/view.hpp"
