// SPDX-License-Identifier: Apache-2.0
// What enqueues commands.
#include "commands.hpp"

#include "control.hpp"
#include "held.hpp"

namespace tessera_layer {
namespace {

cl_int with_event(cl_int status, cl_event* event) {
  if (status == CL_SUCCESS && event != nullptr) control().born("event", *event);
  return status;
}

/// What a device with the reported limits would say to this launch.
cl_int over_limits(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                   const std::size_t* local) {
  const long long items = control().limit("max_work_group");
  if (items >= 0 && local != nullptr) {
    std::size_t product = 1;
    for (cl_uint i = 0; i < dimensions; ++i) product *= local[i];
    if (product > static_cast<std::size_t>(items)) return CL_INVALID_WORK_GROUP_SIZE;
  }
  const long long memory = control().limit("local_memory");
  if (memory >= 0) {
    cl_device_id device = nullptr;
    cl_ulong used = 0;
    driver->clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof(device), &device, nullptr);
    driver->clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof(used), &used,
                                     nullptr);
    if (used > static_cast<cl_ulong>(memory)) return CL_OUT_OF_RESOURCES;
  }
  return CL_SUCCESS;
}

cl_int CL_API_CALL enqueue_kernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                  const std::size_t* offset, const std::size_t* global,
                                  const std::size_t* local, cl_uint waits, const cl_event* list,
                                  cl_event* event) {
  if (const cl_int code = control().enter("enqueue_kernel")) return code;
  if (const cl_int code = over_limits(queue, kernel, dimensions, local)) return code;
  // As CUDA's devices do.
  for (cl_uint i = 1; i < dimensions; ++i) {
    if (global[i] / (local != nullptr ? local[i] : 1) > 65535) return CL_INVALID_GLOBAL_WORK_SIZE;
  }
  const Held held(queue, waits, list);
  return with_event(driver->clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local,
                                                   held.count(), held.list(), event),
                    event);
}

cl_int CL_API_CALL enqueue_read(cl_command_queue queue, cl_mem memory, cl_bool blocking,
                                std::size_t offset, std::size_t size, void* to, cl_uint waits,
                                const cl_event* list, cl_event* event) {
  if (const cl_int code = control().enter("enqueue_read", size)) return code;
  const Held held(queue, waits, list);
  return with_event(driver->clEnqueueReadBuffer(queue, memory, blocking, offset, size, to,
                                                held.count(), held.list(), event),
                    event);
}

cl_int CL_API_CALL enqueue_write(cl_command_queue queue, cl_mem memory, cl_bool blocking,
                                 std::size_t offset, std::size_t size, const void* from,
                                 cl_uint waits, const cl_event* list, cl_event* event) {
  if (const cl_int code = control().enter("enqueue_write", size)) return code;
  const Held held(queue, waits, list);
  return with_event(driver->clEnqueueWriteBuffer(queue, memory, blocking, offset, size, from,
                                                 held.count(), held.list(), event),
                    event);
}

void* CL_API_CALL enqueue_map(cl_command_queue queue, cl_mem memory, cl_bool blocking,
                              cl_map_flags flags, std::size_t offset, std::size_t size,
                              cl_uint waits, const cl_event* list, cl_event* event,
                              cl_int* status) {
  if (const cl_int code = control().enter("enqueue_map", size)) return refuse<void*>(code, status);
  const Held held(queue, waits, list);
  void* pointer = driver->clEnqueueMapBuffer(queue, memory, blocking, flags, offset, size,
                                             held.count(), held.list(), event, status);
  if (pointer != nullptr) with_event(CL_SUCCESS, event);
  return pointer;
}

cl_int CL_API_CALL enqueue_unmap(cl_command_queue queue, cl_mem memory, void* pointer,
                                 cl_uint waits, const cl_event* list, cl_event* event) {
  if (const cl_int code = control().enter("enqueue_unmap")) return code;
  const Held held(queue, waits, list);
  return with_event(
      driver->clEnqueueUnmapMemObject(queue, memory, pointer, held.count(), held.list(), event),
      event);
}

cl_int CL_API_CALL enqueue_marker(cl_command_queue queue, cl_uint waits, const cl_event* list,
                                  cl_event* event) {
  if (const cl_int code = control().enter("enqueue_marker")) return code;
  // It is not held: with a list it would wait for that alone.
  return with_event(driver->clEnqueueMarkerWithWaitList(queue, waits, list, event), event);
}

}  // namespace

void install_commands(cl_icd_dispatch& table) {
  table.clEnqueueNDRangeKernel = enqueue_kernel;
  table.clEnqueueReadBuffer = enqueue_read;
  table.clEnqueueWriteBuffer = enqueue_write;
  table.clEnqueueMapBuffer = enqueue_map;
  table.clEnqueueUnmapMemObject = enqueue_unmap;
  table.clEnqueueMarkerWithWaitList = enqueue_marker;
}

}  // namespace tessera_layer
