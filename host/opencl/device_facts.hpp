// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "host/opencl/device_select.hpp"

namespace tessera::opencl {

/// Whether a device's own instruction for products of bf16 pairs is used. All but `detected` are
/// for tests: its arithmetic in portable code, and its use without asking the processor.
enum class Bf16Products { detected, emulated, assumed };

/// What the engines and the memory model ask of a device, read once. A compute unit is what has
/// local memory of its own: a streaming multiprocessor, an AMD compute unit, a Xe core.
struct DeviceFacts {
  bool is_cpu = false;
  bool is_gpu = false;
  /// Host pointers are used in place (CPU devices). False: host memory is staged.
  bool zero_copy = false;
  bool shares_memory = false;  ///< CL_DEVICE_HOST_UNIFIED_MEMORY, also of integrated GPUs
  std::int64_t compute_units = 1;
  std::int64_t global_memory_bytes = 0;
  std::int64_t max_allocation_bytes = 0;
  std::int64_t local_memory_bytes = 0;  ///< that one work-group may have
  std::int64_t max_work_group_size = 1;
  /// Of the last level: CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, or more where the architecture has more.
  std::int64_t cache_bytes = 0;
  std::int64_t native_float_vector = 1;  ///< CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT
  /// At what multiples a sub-buffer may begin (CL_DEVICE_MEM_BASE_ADDR_ALIGN, in bytes).
  std::int64_t part_alignment_bytes = 128;
  std::string extensions{};
  Bf16Products bf16_products = Bf16Products::detected;

  // Of GPUs, as far as their driver or the table of architectures knows.
  std::string vendor{};                         ///< CL_DEVICE_VENDOR
  std::string architecture{};                   ///< "sm_90", "gfx942", "xe-hpc"; empty: unknown
  std::vector<std::int64_t> sub_group_sizes{};  ///< of warps, wavefronts; empty: unknown
  // Of each compute unit; 0: unknown.
  std::int64_t unit_registers = 0;    ///< 32-bit, of all lanes
  std::int64_t unit_local_bytes = 0;  ///< local memory, shared by its work-groups
  std::int64_t unit_groups = 0;       ///< work-groups of 64 that it runs at once, at most
  std::int64_t unit_gflops = 0;       ///< 10^9 FLOP/s of f32, at best
  std::int64_t memory_gbs = 0;        ///< of the whole device, 10^9 bytes a second; 0: unknown
  friend bool operator==(const DeviceFacts&, const DeviceFacts&) = default;
};

/// What a driver says of a device.
DeviceFacts read_facts(const FoundDevice& device);

/// The bytes that a driver answers to a question; empty: it does not.
using Answer = std::function<std::string(cl_device_info)>;
/// Adds to `facts`, whose extensions and compute units are read, what the vendor's own extension
/// says and what the table of architectures knows beside it. `name` is the device's.
void add_vendor_facts(DeviceFacts& facts, const std::string& name, const Answer& answer);
/// Fills in what the table knows of facts.architecture and the driver has not said, or has said
/// absurdly: less local memory than a work-group may have, no registers, the first cache for the
/// last.
void add_architecture_facts(DeviceFacts& facts);

}  // namespace tessera::opencl
