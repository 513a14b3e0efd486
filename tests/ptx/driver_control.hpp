// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/cl.h>
#include <dlfcn.h>

#include <cstdlib>
#include <string>

namespace tessera::test {

/// Steers tests/ptx/driver.cpp from inside the process it was loaded into.
class PtxDriver {
 public:
  /// The driver of this process. `path` is given to the loader unless OPENCL_LAYERS is set already,
  /// which then must name it; call it before anything else touches OpenCL. Check `loaded()`.
  static PtxDriver& get(const char* path) {
    static PtxDriver driver(path);
    return driver;
  }

  bool loaded() const noexcept { return handle_ != nullptr; }
  /// Everything as it was when the process began.
  void reset() { function<void (*)()>("tessera_ptx_reset")(); }
  /// Numbers that devices report: "warp_size", "local_memory", "capability_major",
  /// "capability_minor", "compute_units"; -1: as it is.
  void fact(const char* name, long long value) {
    function<void (*)(const char*, long long)>("tessera_ptx_fact")(name, value);
  }
  /// The first broken rule since the last call; empty: none. Until it is taken, waits, reads and
  /// maps fail, and no kernel runs.
  std::string fault() { return function<const char* (*)()>("tessera_ptx_fault")(); }
  /// Seeds the order in which the launches that follow run; each adds its number, from 0.
  void seed(unsigned long long value) {
    function<void (*)(unsigned long long)>("tessera_ptx_seed")(value);
  }
  /// Sources built since the last reset.
  long builds() { return function<long (*)()>("tessera_ptx_builds")(); }
  /// PTX that clang makes from now on has the first `from` replaced; null: none has.
  void edit(const char* from, const char* to) {
    function<void (*)(const char*, const char*)>("tessera_ptx_edit")(from, to);
  }
  /// Another driver: one that hands out "no text", a "cubin", a text that is "cut off", with "no
  /// target", "two targets", "other target" or "old version", or that "drops comments"; that
  /// "refuses binaries" as it builds them, the same with an "empty log", or as they are made
  /// ("refuses loading"). "": a good one.
  void play(const char* what) { function<void (*)(const char*)>("tessera_ptx_play")(what); }

 private:
  explicit PtxDriver(const char* path) {
    setenv("OPENCL_LAYERS", path, 0);
    cl_uint count = 0;
    clGetPlatformIDs(0, nullptr, &count);  // makes the loader read the variable
    handle_ = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  }
  template <class F>
  F function(const char* name) {
    return reinterpret_cast<F>(dlsym(handle_, name));
  }

  void* handle_ = nullptr;
};

}  // namespace tessera::test
