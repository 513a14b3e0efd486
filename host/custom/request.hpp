// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/dispatch/table.hpp"
#include "tessera/custom_kernel.hpp"

/// Kernels of callers: what every implementation of one is given.
namespace tessera::custom {

/// A kernel: its description and what follows from it once for all calls.
struct Kernel {
  CustomKernelSpec spec{};
  std::string name{};
  /// The source for the cache of programs, and what tells its programs from those of another
  /// source: its name and a hash of the text.
  std::shared_ptr<const std::string> source{};
  std::string file{};
};

/// What a function of the kernel returns; `what` names it. What it throws becomes an Error.
template <class Function>
auto ask(const Kernel& kernel, const char* what, const Function& function) {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(ErrorCode::invalid_argument,
                kernel.name + ": its function `" + what + "` threw: " + error.what());
  }
}

/// A checked call: its shapes are those of the kernel, its numbers within their ranges.
struct Request final : dispatch::Request {
  Request(const Kernel& of, const CustomOptions& given, KernelInputs inputs_and_numbers)
      : kernel(of), options(given), call{std::move(inputs_and_numbers)} {}

  const Kernel& kernel;
  const CustomOptions& options;
  KernelCall call;
  std::vector<View> inputs{};
  std::vector<MutableView> outputs{};
  std::vector<NamedValue> block_sizes{}, knobs_used{};
  std::optional<std::int64_t> workspace_limit{};

  std::string operation() const override { return kernel.name; }
  std::string output_names() const override;
  const std::vector<std::string>& implementation_names() const override {
    return options.implementation.names();
  }
  /// They are checked with the other numbers.
  const std::vector<NamedValue>& knobs() const override {
    static const std::vector<NamedValue> none;
    return none;
  }

  std::string input_name(std::size_t at) const;
  std::string output_name(std::size_t at) const;
  [[noreturn]] void fail(const std::string& message,
                         ErrorCode code = ErrorCode::invalid_argument) const;
  template <class Ask>
  auto ask(const char* what, const Ask& function) const {
    return custom::ask(kernel, what, function);
  }
};

inline const Request& request_of(const dispatch::Request& request) {
  return static_cast<const Request&>(request);
}

/// "f32 [2, 3]"
std::string to_string(const TensorSpec& spec);
/// Whether elements lie as kernels find them: row-major, without gaps.
bool is_dense(const Dims& extents, const Dims& strides);
/// Fills in what every implementation reports alike.
void describe(const Request& request, Dispatch& dispatch);

/// What the implementations have in common.
class Row : public dispatch::Implementation {
 public:
  using Implementation::Implementation;
  std::pair<std::vector<NamedValue>, BlockSource> infer(
      ContextState&, const dispatch::Request& request) const final {
    return {request_of(request).block_sizes, BlockSource::fallback};
  }
  /// Nobody knows what a caller's kernel costs.
  CostEstimate cost(ContextState&, const dispatch::Request&) const final { return {}; }
};

std::unique_ptr<const dispatch::Implementation> opencl_implementation();
std::unique_ptr<const dispatch::Implementation> host_implementation();
/// `by_default`: the kernel has nothing else.
std::unique_ptr<const dispatch::Implementation> tile_implementation(bool by_default);

}  // namespace tessera::custom
