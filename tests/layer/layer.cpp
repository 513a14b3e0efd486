// SPDX-License-Identifier: Apache-2.0
// An OpenCL layer between the library and the driver: it counts calls, bytes and live objects,
// fails the k-th call of a kind, and reports other device limits. The loader takes it from
// OPENCL_LAYERS; it is steered by the environment variables read in Control's constructor and by
// the tessera_layer_* functions below (layer_control.hpp).
#include <CL/cl_layer.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "commands.hpp"
#include "control.hpp"

using tessera_layer::control;
using tessera_layer::driver;
using tessera_layer::refuse;

namespace tessera_layer {
const cl_icd_dispatch* driver = nullptr;
}

namespace {

cl_icd_dispatch layer_table{};

/// Remembers an object that a driver made.
template <class T>
T made(const char* kind, T object) {
  control().born(kind, object);
  return object;
}

cl_context CL_API_CALL create_context(const cl_context_properties* properties, cl_uint count,
                                      const cl_device_id* devices,
                                      void(CL_CALLBACK* notify)(const char*, const void*,
                                                                std::size_t, void*),
                                      void* data, cl_int* status) {
  if (const cl_int code = control().enter("create_context"))
    return refuse<cl_context>(code, status);
  return made("context", driver->clCreateContext(properties, count, devices, notify, data, status));
}

cl_command_queue CL_API_CALL create_queue(cl_context context, cl_device_id device,
                                          cl_command_queue_properties properties, cl_int* status) {
  if (const cl_int code = control().enter("create_queue")) {
    return refuse<cl_command_queue>(code, status);
  }
  return made("queue", driver->clCreateCommandQueue(context, device, properties, status));
}

cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, std::size_t size,
                                 void* host, cl_int* status) {
  // Memory of the caller's is not an allocation.
  const std::size_t allocated = (flags & CL_MEM_USE_HOST_PTR) != 0 ? 0 : size;
  if (const cl_int code = control().enter("create_buffer", allocated)) {
    return refuse<cl_mem>(code, status);
  }
  const long long largest = control().limit("max_allocation");
  if (largest >= 0 && size > static_cast<std::size_t>(largest)) {
    return refuse<cl_mem>(CL_INVALID_BUFFER_SIZE, status);
  }
  return made("buffer", driver->clCreateBuffer(context, flags, size, host, status));
}

cl_program CL_API_CALL create_program(cl_context context, cl_uint count, const char** texts,
                                      const std::size_t* lengths, cl_int* status) {
  if (const cl_int code = control().enter("create_program"))
    return refuse<cl_program>(code, status);
  return made("program", driver->clCreateProgramWithSource(context, count, texts, lengths, status));
}

cl_int CL_API_CALL build_program(cl_program program, cl_uint count, const cl_device_id* devices,
                                 const char* options, void(CL_CALLBACK* notify)(cl_program, void*),
                                 void* data) {
  cl_int code = control().enter("build_program");
  if (code == CL_SUCCESS && control().fail_builds) code = CL_BUILD_PROGRAM_FAILURE;
  if (code != CL_SUCCESS) {
    std::lock_guard lock(control().mutex);
    control().unbuilt.insert(program);
    return code;
  }
  return driver->clBuildProgram(program, count, devices, options, notify, data);
}

cl_int CL_API_CALL get_program_build_info(cl_program program, cl_device_id device,
                                          cl_program_build_info what, std::size_t size, void* value,
                                          std::size_t* needed) {
  if (const cl_int code = control().enter("get_program_build_info")) return code;
  bool ours = false;
  {
    std::lock_guard lock(control().mutex);
    ours = control().unbuilt.count(program) > 0;
  }
  if (ours && what == CL_PROGRAM_BUILD_LOG) {
    constexpr char log[] = "error: this build was failed by the test layer";
    if (needed != nullptr) *needed = sizeof(log);
    if (value != nullptr) {
      if (size < sizeof(log)) return CL_INVALID_VALUE;
      std::memcpy(value, log, sizeof(log));
    }
    return CL_SUCCESS;
  }
  return driver->clGetProgramBuildInfo(program, device, what, size, value, needed);
}

cl_kernel CL_API_CALL create_kernel(cl_program program, const char* name, cl_int* status) {
  if (const cl_int code = control().enter("create_kernel")) return refuse<cl_kernel>(code, status);
  return made("kernel", driver->clCreateKernel(program, name, status));
}

cl_int CL_API_CALL set_kernel_arg(cl_kernel kernel, cl_uint index, std::size_t size,
                                  const void* value) {
  if (const cl_int code = control().enter("set_kernel_arg")) return code;
  return driver->clSetKernelArg(kernel, index, size, value);
}

cl_event CL_API_CALL create_user_event(cl_context context, cl_int* status) {
  return made("event", driver->clCreateUserEvent(context, status));
}

cl_int CL_API_CALL wait_for_events(cl_uint count, const cl_event* events) {
  if (const cl_int code = control().enter("wait_for_events")) return code;
  return driver->clWaitForEvents(count, events);
}

cl_int CL_API_CALL flush(cl_command_queue queue) {
  if (const cl_int code = control().enter("flush")) return code;
  return driver->clFlush(queue);
}

cl_int CL_API_CALL finish(cl_command_queue queue) {
  if (const cl_int code = control().enter("finish")) return code;
  return driver->clFinish(queue);
}

cl_int CL_API_CALL get_platform_ids(cl_uint count, cl_platform_id* ids, cl_uint* found) {
  if (const cl_int code = control().enter("get_platform_ids")) return code;
  return driver->clGetPlatformIDs(count, ids, found);
}

cl_int CL_API_CALL get_platform_info(cl_platform_id id, cl_platform_info what, std::size_t size,
                                     void* value, std::size_t* needed) {
  if (const cl_int code = control().enter("get_platform_info")) return code;
  return driver->clGetPlatformInfo(id, what, size, value, needed);
}

cl_int CL_API_CALL get_device_ids(cl_platform_id platform, cl_device_type type, cl_uint count,
                                  cl_device_id* ids, cl_uint* found) {
  if (const cl_int code = control().enter("get_device_ids")) return code;
  return driver->clGetDeviceIDs(platform, type, count, ids, found);
}

template <class T>
void replace(const char* name, std::size_t size, void* value) {
  const long long limit = control().limit(name);
  if (limit < 0 || value == nullptr || size < sizeof(T)) return;
  const T replacement = static_cast<T>(limit);
  std::memcpy(value, &replacement, sizeof(T));
}

/// A part of a device has the units that it was made with.
bool is_part(cl_device_id device) {
  cl_device_id parent = nullptr;
  return driver->clGetDeviceInfo(device, CL_DEVICE_PARENT_DEVICE, sizeof(parent), &parent,
                                 nullptr) == CL_SUCCESS &&
         parent != nullptr;
}

cl_int CL_API_CALL get_device_info(cl_device_id device, cl_device_info what, std::size_t size,
                                   void* value, std::size_t* needed) {
  if (const cl_int code = control().enter("get_device_info")) return code;
  const cl_int status = driver->clGetDeviceInfo(device, what, size, value, needed);
  if (status != CL_SUCCESS) return status;
  switch (what) {
    case CL_DEVICE_TYPE:
      replace<cl_device_type>("device_type", size, value);
      break;
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
      replace<cl_ulong>("max_allocation", size, value);
      break;
    case CL_DEVICE_GLOBAL_MEM_SIZE:
      replace<cl_ulong>("global_memory", size, value);
      break;
    case CL_DEVICE_LOCAL_MEM_SIZE:
      replace<cl_ulong>("local_memory", size, value);
      break;
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
      replace<std::size_t>("max_work_group", size, value);
      break;
    case CL_DEVICE_GLOBAL_MEM_CACHE_SIZE:
      replace<cl_ulong>("cache", size, value);
      break;
    case CL_DEVICE_MAX_COMPUTE_UNITS:
      if (!is_part(device)) replace<cl_uint>("compute_units", size, value);
      break;
    case CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT:
      replace<cl_uint>("native_float_vector", size, value);
      break;
    case CL_DEVICE_HOST_UNIFIED_MEMORY:
      replace<cl_bool>("host_unified", size, value);
      break;
    default:
      break;
  }
  return status;
}

cl_int CL_API_CALL get_work_group_info(cl_kernel kernel, cl_device_id device,
                                       cl_kernel_work_group_info what, std::size_t size,
                                       void* value, std::size_t* needed) {
  if (const cl_int code = control().enter("get_kernel_work_group_info")) return code;
  const cl_int status = driver->clGetKernelWorkGroupInfo(kernel, device, what, size, value, needed);
  const long long limit = control().limit("max_work_group");
  if (status == CL_SUCCESS && what == CL_KERNEL_WORK_GROUP_SIZE && limit >= 0 && value != nullptr) {
    auto* items = static_cast<std::size_t*>(value);
    *items = std::min(*items, static_cast<std::size_t>(limit));
  }
  return status;
}

// Queries that are only counted and failed, and reference counts: one line each.
#define TESSERA_QUERY(name, kind, function, object, what_type)                          \
  cl_int CL_API_CALL name(object handle, what_type what, std::size_t size, void* value, \
                          std::size_t* needed) {                                        \
    if (const cl_int code = control().enter(kind)) return code;                         \
    return driver->function(handle, what, size, value, needed);                         \
  }
TESSERA_QUERY(get_context_info, "get_context_info", clGetContextInfo, cl_context, cl_context_info)
TESSERA_QUERY(get_queue_info, "get_queue_info", clGetCommandQueueInfo, cl_command_queue,
              cl_command_queue_info)
TESSERA_QUERY(get_mem_info, "get_mem_info", clGetMemObjectInfo, cl_mem, cl_mem_info)
TESSERA_QUERY(get_event_info, "get_event_info", clGetEventInfo, cl_event, cl_event_info)
#undef TESSERA_QUERY

#define TESSERA_COUNTED(kind, type, retain, release, driver_retain, driver_release) \
  cl_int CL_API_CALL retain(type object) {                                          \
    const cl_int status = driver->driver_retain(object);                            \
    if (status == CL_SUCCESS) control().change(kind, object, 1);                    \
    return status;                                                                  \
  }                                                                                 \
  cl_int CL_API_CALL release(type object) {                                         \
    control().change(kind, object, -1);                                             \
    return driver->driver_release(object);                                          \
  }
TESSERA_COUNTED("context", cl_context, retain_context, release_context, clRetainContext,
                clReleaseContext)
TESSERA_COUNTED("queue", cl_command_queue, retain_queue, release_queue, clRetainCommandQueue,
                clReleaseCommandQueue)
TESSERA_COUNTED("buffer", cl_mem, retain_mem, release_mem, clRetainMemObject, clReleaseMemObject)
TESSERA_COUNTED("program", cl_program, retain_program, release_program_counted, clRetainProgram,
                clReleaseProgram)
TESSERA_COUNTED("kernel", cl_kernel, retain_kernel, release_kernel, clRetainKernel, clReleaseKernel)
TESSERA_COUNTED("event", cl_event, retain_event, release_event, clRetainEvent, clReleaseEvent)
#undef TESSERA_COUNTED

cl_int CL_API_CALL release_program(cl_program program) {
  {
    // The handle may be given out again for a program that does build.
    std::lock_guard lock(control().mutex);
    control().unbuilt.erase(program);
  }
  return release_program_counted(program);
}

/// What a device that is gone was doing has come to an end.
void finish_all() {
  std::vector<void*> queues;
  {
    std::lock_guard lock(control().mutex);
    for (const auto& [queue, count] : control().references["queue"]) queues.push_back(queue);
  }
  for (void* queue : queues) driver->clFinish(static_cast<cl_command_queue>(queue));
}

void install() {
  control().when_lost = finish_all;
  tessera_layer::install_commands(layer_table);
  layer_table.clCreateContext = create_context;
  layer_table.clCreateCommandQueue = create_queue;
  layer_table.clCreateBuffer = create_buffer;
  layer_table.clCreateProgramWithSource = create_program;
  layer_table.clBuildProgram = build_program;
  layer_table.clGetProgramBuildInfo = get_program_build_info;
  layer_table.clCreateKernel = create_kernel;
  layer_table.clSetKernelArg = set_kernel_arg;
  layer_table.clCreateUserEvent = create_user_event;
  layer_table.clWaitForEvents = wait_for_events;
  layer_table.clFlush = flush;
  layer_table.clFinish = finish;
  layer_table.clGetPlatformIDs = get_platform_ids;
  layer_table.clGetPlatformInfo = get_platform_info;
  layer_table.clGetDeviceIDs = get_device_ids;
  layer_table.clGetDeviceInfo = get_device_info;
  layer_table.clGetKernelWorkGroupInfo = get_work_group_info;
  layer_table.clGetContextInfo = get_context_info;
  layer_table.clGetCommandQueueInfo = get_queue_info;
  layer_table.clGetMemObjectInfo = get_mem_info;
  layer_table.clGetEventInfo = get_event_info;
  layer_table.clRetainContext = retain_context;
  layer_table.clReleaseContext = release_context;
  layer_table.clRetainCommandQueue = retain_queue;
  layer_table.clReleaseCommandQueue = release_queue;
  layer_table.clRetainMemObject = retain_mem;
  layer_table.clReleaseMemObject = release_mem;
  layer_table.clRetainProgram = retain_program;
  layer_table.clReleaseProgram = release_program;
  layer_table.clRetainKernel = retain_kernel;
  layer_table.clReleaseKernel = release_kernel;
  layer_table.clRetainEvent = retain_event;
  layer_table.clReleaseEvent = release_event;
}

}  // namespace

TESSERA_LAYER_EXPORT cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch* target,
                                                    cl_uint* entries_returned,
                                                    const cl_icd_dispatch** layer) {
  if (target == nullptr || layer == nullptr || entries_returned == nullptr) return CL_INVALID_VALUE;
  driver = target;
  std::memcpy(&layer_table, target,
              std::min(sizeof(layer_table), entries * sizeof(layer_table.clGetPlatformIDs)));
  install();
  *layer = &layer_table;
  *entries_returned =
      static_cast<cl_uint>(sizeof(layer_table) / sizeof(layer_table.clGetPlatformIDs));
  return CL_SUCCESS;
}
