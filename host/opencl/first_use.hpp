// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace tessera::opencl {

/// Runs `use`, in which `driver` may be used for the first time in this process, and puts back
/// what it changed of the process: a driver's compiler takes over the handlers of signals once, as
/// its library starts (PoCL as its devices are listed, Intel's as a context is made). Later uses
/// run as they are, so that a handler which another thread sets meanwhile stays.
///
/// SIGFPE stays the driver's where nobody handled it before: a kernel may divide an integer by
/// zero, and PoCL goes on by that handler.
void first_use(const void* driver, const std::function<void()>& use);

}  // namespace tessera::opencl
