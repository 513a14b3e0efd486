// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/mappings.hpp"

#include <mutex>
#include <utility>

#include "host/opencl/completion.hpp"
#include "host/opencl/errors.hpp"

namespace tessera::opencl {
namespace {

constexpr const char* mapping = "mapping a caller's cl_mem";
constexpr const char* unmapping = "unmapping a caller's cl_mem";

std::mutex one_at_a_time;

}  // namespace

Mappings::Mappings(const cl::Context& context, const cl::Device& device, std::string name)
    : context_(context), device_(device), name_(std::move(name)) {}

void Mappings::wait_for(cl_command_queue queue) {
  cl_event reached = nullptr;
  check(clEnqueueMarkerWithWaitList(queue, 0, nullptr, &reached), "clEnqueueMarkerWithWaitList",
        name_, mapping);
  const cl::Event owner(reached, false);
  const cl_int status = clWaitForEvents(1, &reached);
  // A command that failed there is its own caller's affair.
  if (status == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) return;
  check(status, "clWaitForEvents", name_, mapping);
}

void* Mappings::map(cl_command_queue after, cl_mem memory, std::int64_t byte_offset,
                    std::int64_t bytes, bool write) {
  if (after != nullptr) wait_for(after);
  const std::lock_guard lock(one_at_a_time);
  cl_int status = CL_SUCCESS;
  if (queue_() == nullptr) {
    const cl_command_queue made = clCreateCommandQueue(context_(), device_(), 0, &status);
    check(status, "clCreateCommandQueue", name_, mapping);
    queue_ = cl::CommandQueue(made, false);
  }
  void* pointer = clEnqueueMapBuffer(queue_(), memory, CL_TRUE,
                                     write ? CL_MAP_READ | CL_MAP_WRITE : CL_MAP_READ,
                                     static_cast<std::size_t>(byte_offset),
                                     static_cast<std::size_t>(bytes), 0, nullptr, nullptr, &status);
  check(status, "clEnqueueMapBuffer", name_, mapping);
  return pointer;
}

void Mappings::unmap(cl_mem memory, void* pointer) {
  const std::lock_guard lock(one_at_a_time);
  cl_event done = nullptr;
  const cl_int status = enqueue_unmap(queue_(), memory, pointer, 0, nullptr, &done);
  const cl::Event owner(done, false);
  if (status != CL_SUCCESS && done != nullptr) clWaitForEvents(1, &done);
  check(status, "clEnqueueUnmapMemObject", name_, unmapping);
  check(clWaitForEvents(1, &done), "clWaitForEvents", name_, unmapping);
}

}  // namespace tessera::opencl
