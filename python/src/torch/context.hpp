// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/context.hpp"

namespace tessera::torch_operators {

/// The Context of every operator: the one that Python has set, else one that is made at the first
/// call, with as many threads as PyTorch then has.
Context context();

/// Hands what the calling thread was warned of to Python, which issues it when it can.
void hand_over_warnings() noexcept;

/// Tells Python what the calling thread's call is about to fail with.
void keep_error(const Error& error) noexcept;

}  // namespace tessera::torch_operators

// What tessera/torch/ops.py calls with what _core has: the functions, and every Context of Python.
extern "C" {
/// `keep` keeps a warning for the calling thread, `hand_over` gives Python those of that thread,
/// and `fail` keeps a tessera::Error for it.
__attribute__((visibility("default"))) void tessera_torch_connect(void (*keep)(const char*),
                                                                  void (*hand_over)(),
                                                                  void (*fail)(const void*));
/// A tessera::Context, which is copied; nullptr: the next call makes one of its own.
__attribute__((visibility("default"))) void tessera_torch_set_context(const void* context);
}
