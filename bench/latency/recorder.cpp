// SPDX-License-Identifier: Apache-2.0
#include "bench/latency/recorder.hpp"

#include <dlfcn.h>

#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>

namespace tessera::bench::latency {
namespace {

struct Argument {
  std::size_t size = 0;
  std::vector<char> value{};  ///< empty: local memory
};

struct State {
  bool follow = false;
  bool record = false;
  std::map<cl_kernel, std::map<cl_uint, Argument>> arguments;
  std::set<cl_mem> memories;  ///< tells which arguments are memory
  std::vector<Command> commands;
  std::map<std::string, long> driver_calls;
};

State& state() {
  static State instance;
  return instance;
}

void check(cl_int status, const char* what) {
  if (status != CL_SUCCESS) {
    throw std::runtime_error(std::string(what) + " failed with OpenCL error " +
                             std::to_string(status));
  }
}

/// The loader's function behind one of this file.
template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

void count(const char* name) {
  if (state().record) ++state().driver_calls[name];
}

/// While it lives nothing is remembered: the recorder itself calls the driver.
struct Pause {
  bool follow = std::exchange(state().follow, false);
  bool record = std::exchange(state().record, false);
  ~Pause() {
    state().follow = follow;
    state().record = record;
  }
};

Command transfer(Command::Kind kind, cl_mem memory, cl_bool blocking, std::size_t offset,
                 std::size_t bytes) {
  Command c;
  c.kind = kind;
  c.memory = memory;
  c.blocking = blocking;
  c.offset = offset;
  c.bytes = bytes;
  clRetainMemObject(memory);
  return c;
}

}  // namespace

Chain::Chain(Chain&& other) noexcept
    : commands_(std::exchange(other.commands_, {})), driver_calls_(other.driver_calls_) {}

Chain::~Chain() {
  for (const auto& c : commands_) {
    if (c.kernel != nullptr) clReleaseKernel(c.kernel);
    if (c.memory != nullptr) clReleaseMemObject(c.memory);
    for (auto memory : c.arguments) clReleaseMemObject(memory);
  }
}

void Chain::replay(cl_command_queue queue) {
  cl_event last = nullptr;
  void* mapped = nullptr;
  for (std::size_t i = 0; i < commands_.size(); ++i) {
    auto& c = commands_[i];
    if (c.kind == Command::Kind::flush) {
      check(clFlush(queue), "clFlush");
      continue;
    }
    if (c.kind == Command::Kind::wait) {
      if (last == nullptr) continue;
      check(clWaitForEvents(1, &last), "clWaitForEvents");
      clReleaseEvent(std::exchange(last, nullptr));
      continue;
    }
    // Only what is waited for needs an event of the program's.
    bool waited = false;
    for (std::size_t j = i + 1; j < commands_.size() && !waited; ++j) {
      waited = commands_[j].kind == Command::Kind::wait;
      if (!waited && commands_[j].kind != Command::Kind::flush) break;
    }
    cl_event* event = waited ? &last : nullptr;
    cl_int status = CL_SUCCESS;
    switch (c.kind) {
      case Command::Kind::kernel:
        status =
            clEnqueueNDRangeKernel(queue, c.kernel, c.dimensions, nullptr, c.global.data(),
                                   c.local.empty() ? nullptr : c.local.data(), 0, nullptr, event);
        break;
      case Command::Kind::map:
        mapped = clEnqueueMapBuffer(queue, c.memory, c.blocking, c.flags, c.offset, c.bytes, 0,
                                    nullptr, event, &status);
        break;
      case Command::Kind::unmap:
        status = clEnqueueUnmapMemObject(queue, c.memory, mapped, 0, nullptr, event);
        break;
      case Command::Kind::read:
        status = clEnqueueReadBuffer(queue, c.memory, c.blocking, c.offset, c.bytes, c.data.data(),
                                     0, nullptr, event);
        break;
      case Command::Kind::write:
        status = clEnqueueWriteBuffer(queue, c.memory, c.blocking, c.offset, c.bytes, c.data.data(),
                                      0, nullptr, event);
        break;
      case Command::Kind::wait:
      case Command::Kind::flush:
        break;
    }
    check(status, "a replayed command");
  }
}

std::string Chain::text() const {
  std::string text;
  for (const auto& c : commands_) {
    const char* name = nullptr;
    switch (c.kind) {
      case Command::Kind::kernel:
        name = c.name.c_str();
        break;
      case Command::Kind::map:
        name = "(map)";
        break;
      case Command::Kind::unmap:
        name = "(unmap)";
        break;
      case Command::Kind::read:
        name = "(read)";
        break;
      case Command::Kind::write:
        name = "(write)";
        break;
      case Command::Kind::wait:
      case Command::Kind::flush:
        continue;
    }
    if (!text.empty()) text += ' ';
    text += name;
  }
  return text;
}

int Chain::kernels() const {
  int kernels = 0;
  for (const auto& c : commands_) kernels += c.kind == Command::Kind::kernel ? 1 : 0;
  return kernels;
}

int Chain::commands() const {
  int commands = 0;
  for (const auto& c : commands_) {
    commands += c.kind != Command::Kind::wait && c.kind != Command::Kind::flush ? 1 : 0;
  }
  return commands;
}

void Recorder::follow_arguments(bool on) {
  auto& s = state();
  if (on && !s.follow) {  // handles of an earlier context may come back for other objects
    s.arguments.clear();
    s.memories.clear();
  }
  s.follow = on;
}

void Recorder::start() {
  auto& s = state();
  s.commands.clear();
  s.driver_calls.clear();
  s.record = true;
}

Chain Recorder::stop() {
  auto& s = state();
  s.record = false;
  Chain chain;
  chain.commands_ = std::exchange(s.commands, {});
  chain.driver_calls_ = std::exchange(s.driver_calls, {});
  bool waits = false;
  for (const auto& c : chain.commands_) waits |= c.kind == Command::Kind::wait;
  if (!waits) throw std::runtime_error("the call waited for nothing, so a replay cannot either");
  return chain;
}

namespace hooks {

/// A kernel object of the chain's own with the arguments that `kernel` has now.
void kernel_enqueued(cl_kernel kernel, cl_uint dimensions, const std::size_t* global,
                     const std::size_t* local) {
  Command c;
  {
    const Pause pause;
    char name[128] = "";
    cl_program program = nullptr;
    check(clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof(name), name, nullptr),
          "clGetKernelInfo");
    check(clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof(program), &program, nullptr),
          "clGetKernelInfo");
    c.name = name;
    cl_int status = CL_SUCCESS;
    c.kernel = clCreateKernel(program, name, &status);
    check(status, "clCreateKernel");
    for (const auto& [index, argument] : state().arguments[kernel]) {
      const bool local_memory = argument.value.empty();
      check(clSetKernelArg(c.kernel, index, argument.size,
                           local_memory ? nullptr : argument.value.data()),
            "clSetKernelArg");
      cl_mem memory = nullptr;
      if (argument.value.size() != sizeof(memory)) continue;
      std::memcpy(&memory, argument.value.data(), sizeof(memory));
      if (state().memories.count(memory) == 0) continue;
      clRetainMemObject(memory);
      c.arguments.push_back(memory);
    }
  }
  c.dimensions = dimensions;
  c.global.assign(global, global + dimensions);
  if (local != nullptr) c.local.assign(local, local + dimensions);
  state().commands.push_back(std::move(c));
}

void argument_set(cl_kernel kernel, cl_uint index, std::size_t size, const void* value) {
  Argument argument{size, {}};
  if (value != nullptr) {
    const auto* bytes = static_cast<const char*>(value);
    argument.value.assign(bytes, bytes + size);
  }
  state().arguments[kernel][index] = std::move(argument);
}

}  // namespace hooks
}  // namespace tessera::bench::latency

// The driver's functions, as this program and the library it links see them.
using namespace tessera::bench::latency;

#define TESSERA_HOOK extern "C" __attribute__((visibility("default")))
#define TESSERA_NEXT(name)                                  \
  static auto* const forward = next<decltype(name)>(#name); \
  count(#name)

TESSERA_HOOK cl_int CL_API_CALL clSetKernelArg(cl_kernel kernel, cl_uint index, std::size_t size,
                                               const void* value) {
  TESSERA_NEXT(clSetKernelArg);
  if (state().follow) hooks::argument_set(kernel, index, size, value);
  return forward(kernel, index, size, value);
}

TESSERA_HOOK cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel,
                                                       cl_uint dimensions,
                                                       const std::size_t* offset,
                                                       const std::size_t* global,
                                                       const std::size_t* local, cl_uint waits,
                                                       const cl_event* list, cl_event* event) {
  TESSERA_NEXT(clEnqueueNDRangeKernel);
  if (state().record) hooks::kernel_enqueued(kernel, dimensions, global, local);
  return forward(queue, kernel, dimensions, offset, global, local, waits, list, event);
}

TESSERA_HOOK void* CL_API_CALL clEnqueueMapBuffer(cl_command_queue queue, cl_mem memory,
                                                  cl_bool blocking, cl_map_flags flags,
                                                  std::size_t offset, std::size_t size,
                                                  cl_uint waits, const cl_event* list,
                                                  cl_event* event, cl_int* status) {
  TESSERA_NEXT(clEnqueueMapBuffer);
  if (state().record) {
    auto c = transfer(Command::Kind::map, memory, blocking, offset, size);
    c.flags = flags;
    state().commands.push_back(std::move(c));
  }
  return forward(queue, memory, blocking, flags, offset, size, waits, list, event, status);
}

TESSERA_HOOK cl_int CL_API_CALL clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem memory,
                                                        void* pointer, cl_uint waits,
                                                        const cl_event* list, cl_event* event) {
  TESSERA_NEXT(clEnqueueUnmapMemObject);
  if (state().record) {
    state().commands.push_back(transfer(Command::Kind::unmap, memory, CL_FALSE, 0, 0));
  }
  return forward(queue, memory, pointer, waits, list, event);
}

TESSERA_HOOK cl_int CL_API_CALL clEnqueueReadBuffer(cl_command_queue queue, cl_mem memory,
                                                    cl_bool blocking, std::size_t offset,
                                                    std::size_t size, void* to, cl_uint waits,
                                                    const cl_event* list, cl_event* event) {
  TESSERA_NEXT(clEnqueueReadBuffer);
  if (state().record) {
    auto c = transfer(Command::Kind::read, memory, blocking, offset, size);
    c.data.resize(size);
    state().commands.push_back(std::move(c));
  }
  return forward(queue, memory, blocking, offset, size, to, waits, list, event);
}

TESSERA_HOOK cl_int CL_API_CALL clEnqueueWriteBuffer(cl_command_queue queue, cl_mem memory,
                                                     cl_bool blocking, std::size_t offset,
                                                     std::size_t size, const void* from,
                                                     cl_uint waits, const cl_event* list,
                                                     cl_event* event) {
  TESSERA_NEXT(clEnqueueWriteBuffer);
  if (state().record) {
    auto c = transfer(Command::Kind::write, memory, blocking, offset, size);
    const auto* bytes = static_cast<const char*>(from);
    c.data.assign(bytes, bytes + size);
    state().commands.push_back(std::move(c));
  }
  return forward(queue, memory, blocking, offset, size, from, waits, list, event);
}

TESSERA_HOOK cl_int CL_API_CALL clWaitForEvents(cl_uint number, const cl_event* events) {
  TESSERA_NEXT(clWaitForEvents);
  if (state().record) {
    Command c;
    c.kind = Command::Kind::wait;
    state().commands.push_back(std::move(c));
  }
  return forward(number, events);
}

TESSERA_HOOK cl_int CL_API_CALL clFlush(cl_command_queue queue) {
  TESSERA_NEXT(clFlush);
  if (state().record) {
    Command c;
    c.kind = Command::Kind::flush;
    state().commands.push_back(std::move(c));
  }
  return forward(queue);
}

TESSERA_HOOK cl_mem CL_API_CALL clCreateBuffer(cl_context context, cl_mem_flags flags,
                                               std::size_t size, void* host, cl_int* status) {
  TESSERA_NEXT(clCreateBuffer);
  const cl_mem made = forward(context, flags, size, host, status);
  if (state().follow) state().memories.insert(made);
  return made;
}

// Only counted.
TESSERA_HOOK cl_int CL_API_CALL clGetEventInfo(cl_event event, cl_event_info what, std::size_t size,
                                               void* value, std::size_t* needed) {
  TESSERA_NEXT(clGetEventInfo);
  return forward(event, what, size, value, needed);
}

TESSERA_HOOK cl_int CL_API_CALL clGetMemObjectInfo(cl_mem memory, cl_mem_info what,
                                                   std::size_t size, void* value,
                                                   std::size_t* needed) {
  TESSERA_NEXT(clGetMemObjectInfo);
  return forward(memory, what, size, value, needed);
}
