// SPDX-License-Identifier: Apache-2.0
// Devices and platforms, as the driver of an H100 shows them.
#include <array>

#include "driver.hpp"

namespace tessera_driver {
namespace {

// Driver 580.159.04 gave these on an H200.
constexpr const char* extensions =
    "cl_khr_global_int32_base_atomics cl_khr_global_int32_extended_atomics "
    "cl_khr_local_int32_base_atomics cl_khr_local_int32_extended_atomics cl_khr_fp64 "
    "cl_khr_3d_image_writes cl_khr_byte_addressable_store cl_khr_icd cl_nv_compiler_options "
    "cl_nv_device_attribute_query cl_nv_pragma_unroll cl_nv_copy_opts cl_khr_gl_event "
    "cl_nv_create_buffer cl_khr_int64_base_atomics cl_khr_int64_extended_atomics "
    "cl_nv_kernel_attribute cl_khr_device_uuid cl_khr_pci_bus_info cl_khr_external_semaphore "
    "cl_khr_external_memory cl_khr_external_semaphore_opaque_fd "
    "cl_khr_external_memory_opaque_fd cl_khr_semaphore";

/// The number that a test has the devices report, or an H100's.
cl_uint fact(const char* name, cl_uint usual) {
  return with_control([&](const Control& control) {
    const auto found = control.facts.find(name);
    const bool is_other = found != control.facts.end() && found->second >= 0;
    return is_other ? static_cast<cl_uint>(found->second) : usual;
  });
}

bool is_played_platform(cl_platform_id platform) {
  cl_device_id device = nullptr;
  return below->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr) == CL_SUCCESS &&
         is_played(device);
}

cl_int CL_API_CALL get_platform_info(cl_platform_id platform, cl_platform_info what,
                                     std::size_t size, void* value, std::size_t* needed) {
  const auto text = [&](const char* words) {
    return answer(std::string(words), size, value, needed);
  };
  if (is_played_platform(platform)) {
    if (what == CL_PLATFORM_NAME) return text("NVIDIA CUDA");
    if (what == CL_PLATFORM_VENDOR) return text("NVIDIA Corporation");
    if (what == CL_PLATFORM_VERSION) return text("OpenCL 3.0 CUDA (interpreted)");
  }
  return below->clGetPlatformInfo(platform, what, size, value, needed);
}

cl_int CL_API_CALL get_device_ids(cl_platform_id platform, cl_device_type type, cl_uint count,
                                  cl_device_id* ids, cl_uint* found) {
  if (is_played_platform(platform)) {
    if ((type & (CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_DEFAULT)) == 0) return CL_DEVICE_NOT_FOUND;
    type = CL_DEVICE_TYPE_ALL;
  }
  return below->clGetDeviceIDs(platform, type, count, ids, found);
}

cl_int CL_API_CALL get_device_info(cl_device_id device, cl_device_info what, std::size_t size,
                                   void* value, std::size_t* needed) {
  const auto give = [&](const auto& data) { return answer(data, size, value, needed); };
  const auto text = [&](const char* words) { return give(std::string(words)); };
  if (!is_played(device)) return below->clGetDeviceInfo(device, what, size, value, needed);
  switch (what) {
    case CL_DEVICE_TYPE:
      return give(cl_device_type{CL_DEVICE_TYPE_GPU});
    case CL_DEVICE_NAME:
      return text("NVIDIA H100 (interpreted)");
    case CL_DEVICE_VENDOR:
      return text("NVIDIA Corporation");
    case CL_DEVICE_VENDOR_ID:
      return give(cl_uint{0x10de});
    case CL_DEVICE_VERSION:
      return text("OpenCL 3.0 CUDA");
    case CL_DRIVER_VERSION:
      return text("580.159.04 (interpreted)");
    case CL_DEVICE_OPENCL_C_VERSION:
      return text("OpenCL C 1.2");
    case CL_DEVICE_EXTENSIONS:
      return text(extensions);
    case CL_DEVICE_EXECUTION_CAPABILITIES:
      return give(cl_device_exec_capabilities{CL_EXEC_KERNEL});
    case CL_DEVICE_MAX_COMPUTE_UNITS:
      return give(fact("compute_units", 132));
    case CL_DEVICE_LOCAL_MEM_TYPE:
      return give(cl_device_local_mem_type{CL_LOCAL});
    case CL_DEVICE_LOCAL_MEM_SIZE:
      return give(cl_ulong{fact("local_memory", 48 * 1024)});
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
      return give(std::size_t{1024});
    case CL_DEVICE_MAX_WORK_ITEM_SIZES:
      return give(std::array<std::size_t, 3>{1024, 1024, 64});
    case CL_DEVICE_HOST_UNIFIED_MEMORY:
      return give(cl_bool{CL_FALSE});
    case CL_DEVICE_MEM_BASE_ADDR_ALIGN:
      return give(cl_uint{4096});
    case CL_DEVICE_GLOBAL_MEM_CACHE_SIZE:
      return give(cl_ulong{132 * 32 * 1024});
    case CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE:
      return give(cl_uint{128});
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_CHAR:
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_SHORT:
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_INT:
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_LONG:
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT:
    case CL_DEVICE_PREFERRED_VECTOR_WIDTH_DOUBLE:
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_CHAR:
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_SHORT:
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_INT:
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_LONG:
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT:
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_DOUBLE:
      return give(cl_uint{1});
    case CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV:
      return give(fact("capability_major", 9));
    case CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV:
      return give(fact("capability_minor", 0));
    case CL_DEVICE_REGISTERS_PER_BLOCK_NV:
      return give(cl_uint{65536});
    case CL_DEVICE_WARP_SIZE_NV:
      return give(fact("warp_size", 32));
    default:
      return below->clGetDeviceInfo(device, what, size, value, needed);
  }
}

}  // namespace

bool is_played(cl_device_id device) {
  cl_device_exec_capabilities runs = 0;
  const cl_int status = below->clGetDeviceInfo(device, CL_DEVICE_EXECUTION_CAPABILITIES,
                                               sizeof(runs), &runs, nullptr);
  return status == CL_SUCCESS && (runs & CL_EXEC_NATIVE_KERNEL) != 0;
}

std::vector<cl_device_id> devices_of(cl_context context) {
  std::size_t bytes = 0;
  if (below->clGetContextInfo(context, CL_CONTEXT_DEVICES, 0, nullptr, &bytes) != CL_SUCCESS) {
    return {};
  }
  std::vector<cl_device_id> devices(bytes / sizeof(cl_device_id));
  below->clGetContextInfo(context, CL_CONTEXT_DEVICES, bytes, devices.data(), nullptr);
  return devices;
}

void install_facts(cl_icd_dispatch& table) {
  table.clGetPlatformInfo = get_platform_info;
  table.clGetDeviceIDs = get_device_ids;
  table.clGetDeviceInfo = get_device_info;
}

}  // namespace tessera_driver
