// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host/engines/cpu.hpp"
#include "host/opencl/runtime.hpp"

namespace tessera::engines {

/// Decides how a device multiplies pairs of bf16. The instruction (vdpbf16ps) is used after three
/// gates: the processor reports it and the device is this processor; the inner loop builds with it;
/// one tile that the device computed agrees with the host's. They are passed once per device, when
/// a call first has two bf16 operands. Thread-safe.
class DotBf16Gates {
 public:
  struct Verdict {
    DotBf16 dot = DotBf16::none;
    std::string reason{};  ///< why bf16 is widened to f32 instead; empty: it is not
  };
  Verdict verdict(opencl::Runtime& runtime);

 private:
  std::mutex mutex_;
  std::optional<Verdict> known_;
  opencl::DeviceFacts facts_;  ///< of the device that it is for
  /// Of the tile, a few KiB. Oclgrind takes what it knows of a released buffer for the next one.
  std::vector<cl::Buffer> buffers_;
};

}  // namespace tessera::engines
