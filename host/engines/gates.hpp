// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "host/engines/engine.hpp"

namespace tessera::engines {

/// "sm_90" as 90; 0: not one of NVIDIA's.
int capability(const opencl::DeviceFacts& facts);

/// An option of NVIDIA's compiler, with a blank before it; empty for other compilers: each of the
/// `items` work-items of a group has at most so many registers, or as many as there are. Left alone
/// the compiler takes fewer than a kernel needs where more groups would then run at once, and keeps
/// the rest in memory.
std::string register_option(const opencl::DeviceFacts& facts, std::int64_t most,
                            std::int64_t items);

/// Decides whether an engine multiplies 16-bit operands by what not every device has: an
/// instruction, a matrix unit. It does after three gates: the device reports it, which the engine
/// knows how to ask; kernels build with it (cl_kernels/engines/probe.cl); and what the device
/// computed agrees with sums in double. They are passed once per device and shape of an engine,
/// whose options name the type. Thread-safe.
class Gates {
 public:
  /// Why `engine` is not to be used as it is shaped for products of `type`, bf16 or f16; empty: it
  /// may be. `why_not_reported` is the first gate, empty where that is open.
  std::string why_closed(opencl::Runtime& runtime, const Engine& engine, DType type,
                         const std::function<std::string()>& why_not_reported);

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::string> known_;  ///< by the engine's name and options
  opencl::DeviceFacts facts_;                           ///< of the device that they are for
  /// Of the probes, a few KiB. Oclgrind takes what it knows of a released buffer for the next one.
  std::vector<cl::Buffer> buffers_;
};

}  // namespace tessera::engines
