// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/cl.h>
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <map>
#include <string>

namespace tessera::test {

/// Steers tests/layer/layer.cpp from inside the process it was loaded into.
class Layer {
 public:
  /// Kinds of calls that can be counted and failed: the function behind each, and the code that a
  /// driver would most likely give.
  struct Kind {
    const char* name;
    const char* function;
    int code;
  };
  static constexpr std::array<Kind, 26> kinds{
      {{"get_platform_ids", "clGetPlatformIDs", CL_OUT_OF_HOST_MEMORY},
       {"get_platform_info", "clGetPlatformInfo", CL_OUT_OF_HOST_MEMORY},
       {"get_device_ids", "clGetDeviceIDs", CL_OUT_OF_RESOURCES},
       {"get_device_info", "clGetDeviceInfo", CL_OUT_OF_HOST_MEMORY},
       {"get_context_info", "clGetContextInfo", CL_OUT_OF_HOST_MEMORY},
       {"get_queue_info", "clGetCommandQueueInfo", CL_OUT_OF_HOST_MEMORY},
       {"get_mem_info", "clGetMemObjectInfo", CL_OUT_OF_HOST_MEMORY},
       {"get_event_info", "clGetEventInfo", CL_OUT_OF_HOST_MEMORY},
       {"get_program_build_info", "clGetProgramBuildInfo", CL_OUT_OF_HOST_MEMORY},
       {"get_kernel_work_group_info", "clGetKernelWorkGroupInfo", CL_OUT_OF_RESOURCES},
       {"create_context", "clCreateContext", CL_DEVICE_NOT_AVAILABLE},
       {"create_queue", "clCreateCommandQueue", CL_OUT_OF_RESOURCES},
       {"create_buffer", "clCreateBuffer", CL_MEM_OBJECT_ALLOCATION_FAILURE},
       {"create_program", "clCreateProgramWithSource", CL_OUT_OF_HOST_MEMORY},
       {"build_program", "clBuildProgram", CL_BUILD_PROGRAM_FAILURE},
       {"create_kernel", "clCreateKernel", CL_OUT_OF_RESOURCES},
       {"set_kernel_arg", "clSetKernelArg", CL_INVALID_ARG_VALUE},
       {"enqueue_kernel", "clEnqueueNDRangeKernel", CL_OUT_OF_RESOURCES},
       {"enqueue_read", "clEnqueueReadBuffer", CL_OUT_OF_RESOURCES},
       {"enqueue_write", "clEnqueueWriteBuffer", CL_OUT_OF_RESOURCES},
       {"enqueue_map", "clEnqueueMapBuffer", CL_MAP_FAILURE},
       {"enqueue_unmap", "clEnqueueUnmapMemObject", CL_OUT_OF_RESOURCES},
       {"enqueue_marker", "clEnqueueMarkerWithWaitList", CL_OUT_OF_RESOURCES},
       {"wait_for_events", "clWaitForEvents", CL_OUT_OF_RESOURCES},
       {"flush", "clFlush", CL_OUT_OF_RESOURCES},
       {"finish", "clFinish", CL_OUT_OF_RESOURCES}}};
  static constexpr std::array<const char*, 6> objects{"context", "queue",  "buffer",
                                                      "program", "kernel", "event"};

  /// The layer of this process. `path` is given to the loader unless OPENCL_LAYERS is set already;
  /// call it before anything else touches OpenCL. Check `loaded()`.
  static Layer& get(const char* path) {
    static Layer layer(path);
    return layer;
  }

  bool loaded() const noexcept { return handle_ != nullptr; }
  /// Forgets calls, bytes, limits and what was to fail; live objects stay counted, and the limits
  /// of TESSERA_LAYER_LIMITS stay.
  void reset() { function<void (*)()>("tessera_layer_reset")(); }
  /// The k-th call of `kind` from now on, counted from 1, fails with `code`.
  void fail(const char* kind, long k, int code) {
    function<void (*)(const char*, long, int)>("tessera_layer_fail")(kind, k, code);
  }
  /// Calls that failed because of `fail` since the last reset.
  long failed() { return function<long (*)()>("tessera_layer_failed")(); }
  /// Each call of `kind` from now on comes so much later.
  void delay(const char* kind, long microseconds) {
    function<void (*)(const char*, long)>("tessera_layer_delay")(kind, microseconds);
  }
  /// The k-th call of any kind from now on, and all after it, fail with CL_DEVICE_NOT_AVAILABLE;
  /// what was enqueued has run by then. 0: the device is back.
  void lose(long k) { function<void (*)(long)>("tessera_layer_lose")(k); }
  /// Calls of all kinds since the last reset.
  long entered() { return function<long (*)()>("tessera_layer_entered")(); }
  /// Holds each command for a random while, besides what it waits for: on an out-of-order queue
  /// commands that do not wait for one another then run in any order. 0: no longer.
  void shuffle(unsigned long long seed) {
    function<void (*)(unsigned long long)>("tessera_layer_shuffle")(seed);
  }
  void fail_builds(bool on) { function<void (*)(int)>("tessera_layer_fail_builds")(on ? 1 : 0); }
  /// What devices report and what is enforced: "max_allocation", "local_memory", "global_memory",
  /// "max_work_group", "compute_units", "native_float_vector", "cache", "device_type"
  /// (CL_DEVICE_TYPE_*), "host_unified" (0 or 1).
  void limit(const char* name, long long value) {
    function<void (*)(const char*, long long)>("tessera_layer_limit")(name, value);
  }
  long calls(const char* kind) {
    return function<long (*)(const char*)>("tessera_layer_calls")(kind);
  }
  /// Bytes moved by "enqueue_read", "enqueue_write" and "enqueue_map", and allocated (not wrapped)
  /// by "create_buffer".
  long long bytes(const char* kind) {
    return function<long long (*)(const char*)>("tessera_layer_bytes")(kind);
  }
  long live(const char* object) {
    return function<long (*)(const char*)>("tessera_layer_live")(object);
  }
  /// Live objects by kind, for comparing before and after.
  std::map<std::string, long> live() {
    std::map<std::string, long> counts;
    for (const char* object : objects) counts[object] = live(object);
    return counts;
  }

 private:
  explicit Layer(const char* path) {
    setenv("OPENCL_LAYERS", path, 0);
    cl_uint count = 0;
    clGetPlatformIDs(0, nullptr, &count);  // makes the loader read the variable
    // The loader has it open; this only finds it again. Another library there is not ours.
    const char* actual = std::getenv("OPENCL_LAYERS");
    handle_ = dlopen(actual, RTLD_LAZY | RTLD_NOLOAD);
    if (handle_ != nullptr && dlsym(handle_, "tessera_layer_reset") == nullptr) handle_ = nullptr;
  }
  template <class F>
  F function(const char* name) {
    return reinterpret_cast<F>(dlsym(handle_, name));
  }

  void* handle_ = nullptr;
};

}  // namespace tessera::test
