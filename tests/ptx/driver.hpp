// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CL/cl_icd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "interpreter.hpp"

/// An OpenCL layer over a driver for CPUs that plays NVIDIA's: memory, queues and events are that
/// driver's; programs are PTX that clang makes, and kernels run in the interpreter.
namespace tessera_driver {

/// The driver that the layer stands before.
extern const cl_icd_dispatch* below;

/// From there on NVIDIA's compiler refuses a kernel for sm_90.
constexpr std::size_t most_shared_bytes = 227 * 1024;

/// A text to be found and its replacement; an empty `from`: none.
struct Edit {
  std::string from, to;

  bool apply(std::string& text) const {
    const auto at = from.empty() ? std::string::npos : text.find(from);
    if (at == std::string::npos) return false;
    text.replace(at, from.size(), to);
    return true;
  }
};

/// The things that tests steer and read (driver_control.hpp). Hold the mutex.
struct Control {
  std::map<std::string, long long> facts;
  Edit edit;
  long builds = 0;
  std::string play, fault;
  std::uint64_t seed = 1, launches = 0, instructions = 0;
  double seconds = 0;  ///< of launches

  static std::mutex& mutex();
  static Control& instance();
};

/// Calls `use` with the one Control, locked.
template <class F>
auto with_control(const F& use) {
  std::lock_guard lock(Control::mutex());
  return use(Control::instance());
}

bool plays(const char* what);
bool has_fault();
/// Keeps the text, unless a fault before it waits to be taken.
void add_fault(const std::string& text);

/// A parameter, as clGetKernelArgInfo gives it.
struct ArgumentInfo {
  cl_kernel_arg_address_qualifier space = CL_KERNEL_ARG_ADDRESS_PRIVATE;
  std::string type, name;
  cl_kernel_arg_type_qualifier qualifiers = CL_KERNEL_ARG_TYPE_NONE;
};

struct Compiled {
  std::string text;  ///< empty: the log says why
  std::string log;
  std::map<std::string, std::vector<ArgumentInfo>> arguments;  ///< with -cl-kernel-arg-info
};

/// Clang's PTX of a source; a source that this process had compiled has the same again.
std::shared_ptr<const Compiled> compile(const std::string& source, const std::string& options);

struct Program {
  Program(cl_context owner, std::vector<cl_device_id> of) : context(owner), devices(std::move(of)) {
    below->clRetainContext(context);
  }
  ~Program() { below->clReleaseContext(context); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  cl_context context;
  std::vector<cl_device_id> devices;
  bool is_binary = false;
  std::string source, options, log;
  std::string text;  ///< PTX
  cl_build_status status = CL_BUILD_NONE;
  std::shared_ptr<const Compiled> compiled;           ///< null: from a binary
  std::shared_ptr<const tessera_ptx::Module> module;  ///< null: not built
};

struct Kernel {
  cl_program handle;  ///< retained
  std::shared_ptr<const Program> program;
  std::shared_ptr<const tessera_ptx::Module> module;
  const tessera_ptx::Signature* signature;
  std::vector<tessera_ptx::Argument> arguments;
  std::vector<cl_mem> memory;  ///< of each argument
  std::vector<bool> is_set;

  std::size_t local_bytes() const {
    std::size_t bytes = 0;
    for (const auto& argument : arguments) bytes += argument.local_bytes;
    return bytes;
  }
};

/// The layer's own objects by handle; handles that are not among them are the driver's.
template <class T>
class Objects {
 public:
  void* add(std::shared_ptr<T> object) {
    std::lock_guard lock(mutex_);
    void* const handle = object.get();
    live_[handle] = {std::move(object), 1};
    return handle;
  }
  std::shared_ptr<T> find(void* handle) {
    std::lock_guard lock(mutex_);
    const auto found = live_.find(handle);
    return found == live_.end() ? nullptr : found->second.first;
  }
  cl_uint count(void* handle) {
    std::lock_guard lock(mutex_);
    return static_cast<cl_uint>(live_.at(handle).second);
  }
  /// The object where this was its last reference.
  std::shared_ptr<T> change(void* handle, long by) {
    std::lock_guard lock(mutex_);
    const auto found = live_.find(handle);
    if (found == live_.end() || (found->second.second += by) > 0) return nullptr;
    auto last = std::move(found->second.first);
    live_.erase(found);
    return last;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, std::pair<std::shared_ptr<T>, long>> live_;
};

/// Left behind at exit, where threads of the driver below may still use them.
inline Objects<Program>& programs() {
  static auto& all = *new Objects<Program>;
  return all;
}
inline Objects<Kernel>& kernels() {
  static auto& all = *new Objects<Kernel>;
  return all;
}

inline cl_int answer(const void* data, std::size_t length, std::size_t size, void* value,
                     std::size_t* needed) {
  if (needed != nullptr) *needed = length;
  if (value == nullptr) return CL_SUCCESS;
  if (size < length) return CL_INVALID_VALUE;
  if (length > 0) std::memcpy(value, data, length);
  return CL_SUCCESS;
}
template <class T>
cl_int answer(const T& data, std::size_t size, void* value, std::size_t* needed) {
  return answer(&data, sizeof(T), size, value, needed);
}
inline cl_int answer(const std::string& text, std::size_t size, void* value, std::size_t* needed) {
  return answer(text.c_str(), text.size() + 1, size, value, needed);
}
template <class T>
cl_int answer(const std::vector<T>& list, std::size_t size, void* value, std::size_t* needed) {
  return answer(list.data(), list.size() * sizeof(T), size, value, needed);
}

inline void give(cl_int code, cl_int* status) {
  if (status != nullptr) *status = code;
}

/// True: a device that the layer shows as NVIDIA's.
bool is_played(cl_device_id device);
std::vector<cl_device_id> devices_of(cl_context context);

// Each puts its functions into the layer's table.
void install_facts(cl_icd_dispatch& table);
void install_programs(cl_icd_dispatch& table);
void install_kernels(cl_icd_dispatch& table);
void install_commands(cl_icd_dispatch& table);

}  // namespace tessera_driver
