// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
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
  bool is_const = false;  ///< the driver says that the kernel only reads what it points to
};

struct Entry {
  std::string name{};
  std::vector<Parameter> parameters{};
  std::size_t max_group = 0;  ///< work-items of a work-group
  /// What its attribute reqd_work_group_size says; zeros: it has none.
  std::array<std::size_t, 3> required_local{};
  std::vector<std::size_t> max_local{};  ///< work-items of a work-group along each axis
  std::int64_t local_bytes = 0;          ///< of local arrays that it declares itself
};

/// The types through which a kernel may read an array's elements; the first is the one that a
/// macro of the call says.
std::vector<std::string_view> types_of(DType type);

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
