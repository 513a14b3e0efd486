// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/device_facts.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace tessera::opencl {
namespace {

constexpr std::int64_t kib = 1024, mib = 1024 * kib;

/// What data sheets say of the compute units of an architecture, and of its largest product.
struct Architecture {
  std::string_view name;
  std::vector<std::int64_t> sub_group_sizes;
  std::int64_t cache_bytes;
  std::int64_t unit_registers, unit_local_bytes, unit_groups;
  std::int64_t unit_gflops, memory_gbs;
};

/// NVIDIA: the table of compute capabilities in the CUDA C++ Programming Guide; the second-level
/// cache of H100, A100 and RTX 4090. AMD: "GPU specifications" of ROCm's documentation; the last
/// level of MI300X is its Infinity Cache, a half of an MI250 is a device, and of RDNA 3 drivers
/// count pairs of compute units. Intel: the GPU Occupancy Calculator of oneAPI and the product
/// pages of Arc A770 and Max 1550; a group of 64 takes 4 or 8 of a core's 64 or 128 threads. FLOPs
/// of f32 and bandwidth are those of A100 80GB, RTX 4090, H100 SXM, a half of MI250, MI300X, RX
/// 7900 XTX, A770, and a half of Max 1550.
const std::vector<Architecture>& architectures() {
  static const auto& all = *new std::vector<Architecture>{
      {"sm_80", {32}, 40 * mib, 65536, 164 * kib, 32, 181, 2039},
      {"sm_89", {32}, 72 * mib, 65536, 100 * kib, 24, 645, 1008},
      {"sm_90", {32}, 50 * mib, 65536, 228 * kib, 32, 507, 3350},
      {"gfx90a", {64}, 8 * mib, 131072, 64 * kib, 32, 217, 1638},
      {"gfx942", {64}, 256 * mib, 131072, 64 * kib, 32, 537, 5300},
      {"gfx1100", {32, 64}, 96 * mib, 196608, 128 * kib, 32, 1279, 960},
      {"xe-hpg", {8, 16, 32}, 16 * mib, 131072, 128 * kib, 16, 614, 560},
      {"xe-hpc", {16, 32}, 204 * mib, 131072, 128 * kib, 16, 410, 1638},
  };
  return all;
}

// Of the vendors' extensions: not every version of OpenCL's headers has their names.
constexpr cl_device_info nv_capability_major = 0x4000, nv_capability_minor = 0x4001,
                         nv_registers_per_block = 0x4002, nv_warp_size = 0x4003,
                         amd_wavefront_width = 0x4043, amd_local_bytes_per_unit = 0x4047,
                         intel_ip_version = 0x4250, intel_eus_per_core = 0x4254,
                         intel_sub_group_sizes = 0x4108;

/// An unsigned number of 32 or 64 bits; 0: no answer, or one that no device has.
std::int64_t number(const Answer& answer, cl_device_info what) {
  const std::string bytes = answer(what);
  std::uint64_t value = 0;
  if (bytes.size() != 4 && bytes.size() != 8) return 0;
  std::memcpy(&value, bytes.data(), bytes.size());
  return value < std::uint64_t{1} << 31 ? static_cast<std::int64_t>(value) : 0;
}

std::vector<std::int64_t> sizes(const Answer& answer, cl_device_info what) {
  const std::string bytes = answer(what);
  std::vector<std::int64_t> list;
  for (std::size_t at = 0; at + sizeof(std::size_t) <= bytes.size(); at += sizeof(std::size_t)) {
    std::size_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    list.push_back(static_cast<std::int64_t>(value));
  }
  return list;
}

/// The generation of a Xe graphics core by its IP version: 10 bits of architecture, 8 of release.
std::string xe_name(std::int64_t ip_version) {
  const std::int64_t architecture = ip_version >> 22, release = ip_version >> 14 & 0xff;
  if (architecture == 12 && release >= 55 && release <= 59) return "xe-hpg";
  if (architecture == 12 && release >= 60 && release <= 69) return "xe-hpc";
  return {};
}

bool has(const DeviceFacts& facts, std::string_view extension) {
  return facts.extensions.find(extension) != std::string::npos;
}

}  // namespace

void add_vendor_facts(DeviceFacts& facts, const std::string& name, const Answer& answer) {
  if (has(facts, "cl_nv_device_attribute_query")) {
    const std::int64_t major = number(answer, nv_capability_major);
    if (major > 0) {
      facts.architecture =
          "sm_" + std::to_string(major) + std::to_string(number(answer, nv_capability_minor));
    }
    facts.sub_group_sizes = {number(answer, nv_warp_size)};
    // A block may have all registers of its multiprocessor, in every capability from 5.0 on.
    facts.unit_registers = number(answer, nv_registers_per_block);
  } else if (has(facts, "cl_amd_device_attribute_query")) {
    // "gfx90a:sramecc+:xnack-"
    if (name.starts_with("gfx")) facts.architecture = name.substr(0, name.find(':'));
    facts.sub_group_sizes = {number(answer, amd_wavefront_width)};
    facts.unit_local_bytes = number(answer, amd_local_bytes_per_unit);
  } else if (has(facts, "cl_intel_device_attribute_query") && facts.is_gpu) {
    facts.architecture = xe_name(number(answer, intel_ip_version));
    // The driver's compute units are vector engines, of which a core has several.
    const std::int64_t engines = number(answer, intel_eus_per_core);
    if (engines > 0) facts.compute_units = std::max<std::int64_t>(1, facts.compute_units / engines);
  }
  if (has(facts, "cl_intel_required_subgroup_size")) {
    facts.sub_group_sizes = sizes(answer, intel_sub_group_sizes);
  }
  add_architecture_facts(facts);
}

void add_architecture_facts(DeviceFacts& facts) {
  std::erase_if(facts.sub_group_sizes, [](std::int64_t size) { return size < 1 || size > 1024; });
  if (facts.unit_local_bytes < facts.local_memory_bytes) facts.unit_local_bytes = 0;
  const auto& all = architectures();
  const auto known = std::find_if(all.begin(), all.end(), [&](const Architecture& one) {
    return one.name == facts.architecture;
  });
  if (known == all.end()) return;
  const auto fill = [](std::int64_t& fact, std::int64_t value) {
    if (fact <= 0) fact = value;
  };
  if (facts.sub_group_sizes.empty()) facts.sub_group_sizes = known->sub_group_sizes;
  fill(facts.unit_registers, known->unit_registers);
  fill(facts.unit_local_bytes, known->unit_local_bytes);
  fill(facts.unit_gflops, known->unit_gflops);
  fill(facts.memory_gbs, known->memory_gbs);
  fill(facts.unit_groups, known->unit_groups);
  // Drivers report the caches of multiprocessors or of one die for the last level.
  facts.cache_bytes = std::max(facts.cache_bytes, known->cache_bytes);
}

DeviceFacts read_facts(const FoundDevice& device) {
  DeviceFacts facts;
  facts.is_cpu = (device.type & CL_DEVICE_TYPE_CPU) != 0;
  facts.is_gpu = (device.type & CL_DEVICE_TYPE_GPU) != 0;
  facts.zero_copy = device.info.shares_host_memory;
  facts.shares_memory =
      device_value<cl_bool>(device.id, CL_DEVICE_HOST_UNIFIED_MEMORY, CL_FALSE) != CL_FALSE;
  facts.compute_units = std::max<std::int64_t>(device.info.compute_units, 1);
  facts.global_memory_bytes = device.info.global_memory_bytes;
  facts.max_allocation_bytes = device.info.max_allocation_bytes;
  facts.local_memory_bytes = device.info.local_memory_bytes;
  facts.max_work_group_size = std::max<std::int64_t>(device.info.max_work_group_size, 1);
  facts.cache_bytes = static_cast<std::int64_t>(
      device_value<cl_ulong>(device.id, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, 0));
  facts.native_float_vector = std::max<std::int64_t>(
      device_value<cl_uint>(device.id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, 1), 1);
  facts.part_alignment_bytes = std::max<std::int64_t>(
      device_value<cl_uint>(device.id, CL_DEVICE_MEM_BASE_ADDR_ALIGN, 1024) / 8, 1);
  facts.extensions = device_text(device.id, CL_DEVICE_EXTENSIONS);
  facts.vendor = device.info.vendor;
  add_vendor_facts(facts, device.info.name, [&](cl_device_info what) {
    std::size_t size = 0;
    if (clGetDeviceInfo(device.id, what, 0, nullptr, &size) != CL_SUCCESS) return std::string();
    std::string bytes(size, '\0');
    const cl_int status = clGetDeviceInfo(device.id, what, size, bytes.data(), nullptr);
    return status == CL_SUCCESS ? bytes : std::string();
  });
  return facts;
}

}  // namespace tessera::opencl
