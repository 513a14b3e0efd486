// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host/linear_cross_entropy/opencl_run.hpp"

namespace tessera::linear_cross_entropy {

/// What calls that are alike share: how they are cut, and what they compile.
struct Prepared {
  engines::EngineShapes shapes;  ///< of which `engine` is one
  std::shared_ptr<const engines::Engine> engine;
  Schedule schedule;
  Programs programs;
  std::vector<std::string> notes;  ///< of Dispatch
};

/// Engine, schedule and programs of a request.
Prepared prepare(const Request& request, const std::string& engine_name, opencl::Runtime& runtime);

/// The operands of a request's products.
engines::Operands operands_of(const Request& request);

/// Compiles all that a call launches, before any output is touched: a driver that refuses one
/// kernel of them leaves the call to another implementation.
void build_kernels(const Request& request, const Prepared& prepared, opencl::Runtime& runtime);

/// Remembers what calls on one device have in common, because a tiny call would spend longer on
/// putting it together than on its kernels. Thread-safe.
class PreparedCalls {
 public:
  /// Why the engine of that name cannot serve this device, for operands like the request's.
  std::optional<std::string> why_unsupported(const Request& request, const std::string& engine_name,
                                             const opencl::Runtime& runtime);

  /// `prepare` above with its kernels built, remembered by all that they look at: views
  /// without their addresses, how many rows count, options, blocks and bounds. (The tuned tables do
  /// not change.)
  std::shared_ptr<const Prepared> prepare(const Request& request, const std::string& engine_name,
                                          opencl::Runtime& runtime);

 private:
  using Words = std::vector<std::int64_t>;
  struct KnownVerdict {
    std::string engine_name;
    DType a, b;  ///< of the operands
    std::optional<std::string> reason;
  };
  struct KnownCall {
    std::string engine_name;
    Words key;
    std::shared_ptr<const Prepared> prepared;
  };
  void check_facts(const opencl::Runtime& runtime);
  static Words key_of(const Request& request);

  std::mutex mutex_;
  opencl::DeviceFacts facts_;  ///< of the device that everything below is for
  std::vector<KnownVerdict> verdicts_;
  std::vector<KnownCall> calls_;
  std::size_t next_ = 0;  ///< of calls_, replaced next when it is full
};

}  // namespace tessera::linear_cross_entropy
