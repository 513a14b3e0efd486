// SPDX-License-Identifier: Apache-2.0
// Launches, and what fails after one of them broke a rule.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "driver.hpp"

namespace tessera_driver {
namespace {

template <class T>
cl_int ask(cl_mem memory, cl_mem_info what, T& value) {
  return below->clGetMemObjectInfo(memory, what, sizeof(value), &value, nullptr);
}

/// Buffers that callers hold, and where they are.
struct Buffers {
  struct Buffer {
    cl_context context;
    long references;
    tessera_ptx::Span span;
  };
  std::mutex mutex;
  std::map<cl_mem, Buffer> live;
  std::map<cl_context, cl_command_queue> queues;  // left behind with their contexts
};
Buffers& buffers() {
  static auto& all = *new Buffers;
  return all;
}

/// The address, by a native kernel for this buffer alone: PoCL 3.1 gives those of a list in the
/// order in which the buffers were made, each once, and of a part its parent's.
std::byte* address_of(cl_context context, cl_mem memory) {
  cl_command_queue& queue = buffers().queues[context];
  if (queue == nullptr) {
    queue = below->clCreateCommandQueue(context, devices_of(context).front(), 0, nullptr);
  }
  struct Question {
    std::byte** answer;
    std::byte* address;
  };
  std::byte* address = nullptr;
  Question question{&address, nullptr};
  const void* place = &question.address;
  const auto tell = [](void* block) {
    const auto* asked = static_cast<const Question*>(block);
    *asked->answer = asked->address;
  };
  below->clEnqueueNativeKernel(queue, tell, &question, sizeof(question), 1, &memory, &place, 0,
                               nullptr, nullptr);
  below->clFinish(queue);
  return address;
}

cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, std::size_t size,
                                 void* host, cl_int* status) {
  const cl_mem memory = below->clCreateBuffer(context, flags, size, host, status);
  if (memory == nullptr || !is_played(devices_of(context).front())) return memory;
  std::lock_guard lock(buffers().mutex);
  std::byte* const address = address_of(context, memory);
  // Memory has NaNs until it is written.
  if (host == nullptr) std::memset(address, 0xFF, size);
  buffers().live[memory] = {context, 1, {address, size}};
  return memory;
}
void count(cl_mem memory, long by) {
  std::lock_guard lock(buffers().mutex);
  const auto found = buffers().live.find(memory);
  if (found == buffers().live.end()) return;
  if ((found->second.references += by) == 0) buffers().live.erase(found);
}
cl_int CL_API_CALL retain_memory(cl_mem memory) {
  count(memory, 1);
  return below->clRetainMemObject(memory);
}
cl_int CL_API_CALL release_memory(cl_mem memory) {
  count(memory, -1);
  return below->clReleaseMemObject(memory);
}

/// A launch, until the driver below comes to it.
struct Pending {
  std::shared_ptr<const tessera_ptx::Module> module;
  std::string kernel;
  tessera_ptx::Launch launch;
};

void CL_CALLBACK run(void* block) {
  const std::unique_ptr<Pending> pending(*static_cast<Pending**>(block));
  if (has_fault()) return;  // a device that faulted runs nothing more
  const auto start = std::chrono::steady_clock::now();
  try {
    const auto report = pending->module->run(pending->kernel, pending->launch);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    with_control([&](Control& control) {
      control.instructions += report.instructions;
      control.seconds += took.count();
    });
  } catch (const std::exception& error) {
    add_fault(error.what());
  }
}

/// Puts addresses into a launch's arguments, and what it may touch beside them: tensor maps may be
/// of any buffer. False: an argument is no buffer. `used`: those to be kept until it has run.
bool add_buffers(const Kernel& kernel, tessera_ptx::Launch& launch, std::vector<cl_mem>& used) {
  std::lock_guard lock(buffers().mutex);
  const auto& live = buffers().live;
  for (std::size_t i = 0; i < kernel.memory.size(); ++i) {
    if (kernel.memory[i] == nullptr) continue;
    cl_mem part = kernel.memory[i], whole = nullptr;
    std::size_t bytes = 0, offset = 0;
    if (ask(part, CL_MEM_SIZE, bytes) != CL_SUCCESS) return false;
    ask(part, CL_MEM_ASSOCIATED_MEMOBJECT, whole);
    if (whole != nullptr) ask(part, CL_MEM_OFFSET, offset);
    const auto found = live.find(whole != nullptr ? whole : part);
    if (found == live.end()) return false;
    std::byte* const data = found->second.span.data + offset;
    std::memcpy(launch.arguments[i].value.data(), &data, sizeof(data));
    launch.memory.push_back({data, bytes});
    used.push_back(found->first);
  }
  for (const auto& [memory, buffer] : live) {
    if (kernel.module->target() != "sm_90a") break;
    if (buffer.context != kernel.program->context) continue;
    launch.mapped.push_back(buffer.span);
    used.push_back(memory);
  }
  return true;
}

/// The sizes of a launch; the code that the driver refuses it with, or CL_SUCCESS.
cl_int set_sizes(const Kernel& kernel, cl_uint dimensions, const std::size_t* offset,
                 const std::size_t* global, const std::size_t* local, tessera_ptx::Launch& launch) {
  if (dimensions < 1 || dimensions > 3) return CL_INVALID_WORK_DIMENSION;
  if (global == nullptr) return CL_INVALID_GLOBAL_WORK_SIZE;
  constexpr std::array<std::size_t, 3> most_items{1024, 1024, 64};
  const auto& required = kernel.signature->required_items;
  std::size_t product = 1;
  for (cl_uint i = 0; i < dimensions; ++i) {
    // libclc's nvptx knows no offset, of which the library makes no use.
    if (offset != nullptr && offset[i] != 0) return CL_INVALID_GLOBAL_OFFSET;
    if (global[i] == 0) return CL_INVALID_GLOBAL_WORK_SIZE;
    std::size_t items = i == 0 ? 256 : 1;
    while (global[i] % items != 0) items /= 2;
    launch.items[i] = local != nullptr ? local[i] : items;
    if (launch.items[i] == 0 || global[i] % launch.items[i] != 0) {
      return CL_INVALID_WORK_GROUP_SIZE;
    }
    if (launch.items[i] > most_items[i]) return CL_INVALID_WORK_ITEM_SIZE;
    product *= launch.items[i];
    launch.groups[i] = global[i] / launch.items[i];
    if (launch.groups[i] > (i == 0 ? 0x7fffffffu : 65535u)) return CL_INVALID_GLOBAL_WORK_SIZE;
  }
  if (product > 1024) return CL_INVALID_WORK_GROUP_SIZE;
  if (required[0] != 0 && (local == nullptr || required != launch.items)) {
    return CL_INVALID_WORK_GROUP_SIZE;
  }
  return CL_SUCCESS;
}

cl_int CL_API_CALL enqueue_kernel(cl_command_queue queue, cl_kernel handle, cl_uint dimensions,
                                  const std::size_t* offset, const std::size_t* global,
                                  const std::size_t* local, cl_uint waits, const cl_event* list,
                                  cl_event* event) {
  const auto kernel = kernels().find(handle);
  if (kernel == nullptr) {
    return below->clEnqueueNDRangeKernel(queue, handle, dimensions, offset, global, local, waits,
                                         list, event);
  }
  const auto& is_set = kernel->is_set;
  if (std::find(is_set.begin(), is_set.end(), false) != is_set.end()) {
    return CL_INVALID_KERNEL_ARGS;
  }
  auto pending = std::make_unique<Pending>();
  auto& launch = pending->launch;
  if (const cl_int code = set_sizes(*kernel, dimensions, offset, global, local, launch)) {
    return code;
  }
  const std::size_t local_bytes = kernel->local_bytes();
  if (local_bytes > 48 * 1024 ||
      local_bytes + kernel->signature->shared_bytes > most_shared_bytes) {
    return CL_OUT_OF_RESOURCES;
  }
  pending->module = kernel->module;
  pending->kernel = kernel->signature->name;
  launch.arguments = kernel->arguments;
  std::vector<cl_mem> used;
  if (!add_buffers(*kernel, launch, used)) return CL_INVALID_MEM_OBJECT;
  with_control(
      [&](Control& control) { launch.seed = control.seed * 1000003 + control.launches++; });
  std::vector<void*> block(1 + used.size());
  std::vector<const void*> places;
  for (std::size_t i = 0; i < used.size(); ++i) places.push_back(&block[1 + i]);
  block[0] = pending.get();
  const cl_int status = below->clEnqueueNativeKernel(
      queue, run, block.data(), block.size() * sizeof(void*), static_cast<cl_uint>(used.size()),
      used.empty() ? nullptr : used.data(), used.empty() ? nullptr : places.data(), waits, list,
      event);
  if (status == CL_SUCCESS) static_cast<void>(pending.release());  // `run` ends it
  return status;
}

cl_int or_fault(cl_int status) {
  return status == CL_SUCCESS && has_fault() ? CL_OUT_OF_RESOURCES : status;
}

cl_int CL_API_CALL wait_for_events(cl_uint count, const cl_event* events) {
  return or_fault(below->clWaitForEvents(count, events));
}

cl_int CL_API_CALL finish(cl_command_queue queue) { return or_fault(below->clFinish(queue)); }

/// Takes the event of a command that is said to have failed back.
void take_back(cl_event* event) {
  if (event == nullptr) return;
  below->clReleaseEvent(*event);
  *event = nullptr;
}

cl_int CL_API_CALL enqueue_read(cl_command_queue queue, cl_mem memory, cl_bool blocking,
                                std::size_t offset, std::size_t size, void* to, cl_uint waits,
                                const cl_event* list, cl_event* event) {
  if (has_fault()) return CL_OUT_OF_RESOURCES;
  const cl_int status =
      below->clEnqueueReadBuffer(queue, memory, blocking, offset, size, to, waits, list, event);
  if (blocking == CL_FALSE || or_fault(status) == status) return status;
  take_back(event);
  return CL_OUT_OF_RESOURCES;
}

void* CL_API_CALL enqueue_map(cl_command_queue queue, cl_mem memory, cl_bool blocking,
                              cl_map_flags flags, std::size_t offset, std::size_t size,
                              cl_uint waits, const cl_event* list, cl_event* event,
                              cl_int* status) {
  if (has_fault()) return give(CL_OUT_OF_RESOURCES, status), nullptr;
  void* const pointer = below->clEnqueueMapBuffer(queue, memory, blocking, flags, offset, size,
                                                  waits, list, event, status);
  if (pointer == nullptr || blocking == CL_FALSE || !has_fault()) return pointer;
  below->clEnqueueUnmapMemObject(queue, memory, pointer, 0, nullptr, nullptr);
  take_back(event);
  give(CL_OUT_OF_RESOURCES, status);
  return nullptr;
}

}  // namespace

void install_commands(cl_icd_dispatch& table) {
  table.clCreateBuffer = create_buffer;
  table.clRetainMemObject = retain_memory;
  table.clReleaseMemObject = release_memory;
  table.clEnqueueNDRangeKernel = enqueue_kernel;
  table.clWaitForEvents = wait_for_events;
  table.clFinish = finish;
  table.clEnqueueReadBuffer = enqueue_read;
  table.clEnqueueMapBuffer = enqueue_map;
}

}  // namespace tessera_driver
