// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "host/linear/opencl/plan.hpp"

/// Why a way to nest the passes is none for a request, however much memory there is, and why a
/// block size is without effect.
namespace tessera::linear {

/// nullptr: it is one.
using Why = const char*;

/// Why the logits cannot wait where grad_w will be, whose columns (or rows, as [H, V], in whole
/// blocks of columns) must lie apart, be readable, and hold nothing that the call still needs.
Why why_no_logits_in_grad_w(const Request& request, const engines::Engine& engine,
                            const opencl::DeviceFacts& facts, std::int64_t v_piece);

/// Whether chunks of rows can add to grad_w where it is.
bool sums_in_place(const MutableView& grad_w);

// Way::why_not: of logits that are kept; in grad_w, all of them or a range at a time or those that
// it has room for; of rows outside.
Why why_not_kept(const Request& request, const engines::Engine& engine, const Schedule& base);
Why why_not_in_grad_w(const Request& request, const engines::Engine& engine, const Schedule& base);
Why why_not_by_range(const Request& request, const engines::Engine& engine, const Schedule& base);
Why why_not_partly(const Request& request, const engines::Engine& engine, const Schedule& base);
Why why_not_rows_outer(const Request& request, const engines::Engine& engine, const Schedule& base);

/// Makes the blocks of a schedule those that it uses, to report. A caller's that is without effect
/// is added to `notes`.
void settle_blocks(const Request& request, const engines::Engine& engine, Schedule& schedule,
                   std::vector<std::string>& notes);

}  // namespace tessera::linear
