// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host/custom/request.hpp"
#include "host/opencl/program_cache.hpp"
#include "host/opencl/runtime.hpp"

/// Entry points of callers' programs, and whether launches agree with them.
namespace tessera::custom {

/// A parameter, as far as the driver says what it is.
struct Parameter {
  std::string name{};  ///< empty: unknown
  std::string type{};  ///< "float*"; empty: unknown
  bool is_local = false;
};

struct Entry {
  std::string name{};
  std::vector<Parameter> parameters{};
  std::size_t max_group = 0;  ///< work-items of a work-group
};

/// Entry points that were looked at, of one device. Thread-safe.
class Entries {
 public:
  /// Compiles the program where it was not yet.
  std::shared_ptr<const Entry> find(const opencl::Specialisation& program, const std::string& name,
                                    opencl::Runtime& runtime);

 private:
  struct Known {
    opencl::Specialisation program;
    std::shared_ptr<const Entry> entry;
  };
  std::mutex mutex_;
  std::vector<Known> known_;
};

/// Error where a launch disagrees with its entry point or the device. `scratch`: the scratch
/// arrays.
void check_launch(const Request& request, const KernelLaunch& launch,
                  const std::vector<KernelArgument>& arguments,
                  const std::vector<TensorSpec>& scratch, const Entry& entry,
                  const opencl::DeviceFacts& facts);

}  // namespace tessera::custom
