// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host/opencl/program_cache.hpp"
#include "host/opencl/runtime.hpp"

namespace tessera::engines {

constexpr int hopper = 90;  ///< capability(facts) of the devices that have it
/// Work-items of a group: one warpgroup brings operands, two multiply.
constexpr std::int64_t wgmma_items = 384;
/// Why a device is none of those by what it reports; empty: it is one.
std::string why_no_wgmma(const opencl::DeviceFacts& facts);

/// The program of the gates' tile; `a_by_k`: k lies along the lines of A, and across those of B.
opencl::Specialisation wgmma_probe(bool a_by_k);

struct WgmmaVerdict {
  std::string reason{};  ///< why it is closed; empty: it is open
  /// The unit in which the driver's assembler takes the strides of tensor maps; else bytes.
  bool stride_in_16_bytes = false;
};

/// The gates before the matrix unit of NVIDIA's Hopper, which instructions of sm_90a drive: the
/// device says that it is one; kernels with them build (cl_kernels/engines/wgmma/probe.cl); tiles
/// that the device computes are right. Passed once per device. Thread-safe.
class Wgmma {
 public:
  WgmmaVerdict verdict(opencl::Runtime& runtime);

 private:
  std::mutex mutex_;
  std::optional<WgmmaVerdict> known_;
  opencl::DeviceFacts facts_;  ///< of the device that it is for
  std::vector<cl::Buffer> buffers_;
};

}  // namespace tessera::engines
