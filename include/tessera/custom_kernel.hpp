// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/context.hpp"
#include "tessera/execution.hpp"
#include "tessera/view.hpp"

/// Anybody's OpenCL C as an operator: `custom_kernel` takes a source and a function of shapes, and
/// gives what is called like the library's own operators (docs/custom_kernels.md).
namespace tessera {

/// Extents and element type of an array.
class TensorSpec {
 public:
  TensorSpec(const Dims& extents, DType type) : extents_(extents), type_(type) {}
  const Dims& extents() const noexcept { return extents_; }
  DType dtype() const noexcept { return type_; }
  std::int64_t size() const noexcept { return extents_.product(); }
  friend bool operator==(const TensorSpec& a, const TensorSpec& b) noexcept {
    return a.extents_ == b.extents_ && a.type_ == b.type_;
  }

 private:
  Dims extents_;
  DType type_;
};

/// A number that a kernel is compiled with: the macro `name`. `standard` is its value where a call
/// gives none.
struct KernelNumber {
  std::string name{};
  std::int64_t standard = 1;
  std::int64_t least = 1;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};

/// The inputs of a call and its numbers, as the shape function sees them.
class KernelInputs {
 public:
  KernelInputs(std::vector<TensorSpec> inputs, std::vector<NamedValue> numbers)
      : inputs_(std::move(inputs)), numbers_(std::move(numbers)) {}
  std::size_t size() const noexcept { return inputs_.size(); }
  /// Throws std::out_of_range where the call has fewer inputs.
  const TensorSpec& operator[](std::size_t at) const { return inputs_.at(at); }
  auto begin() const noexcept { return inputs_.begin(); }
  auto end() const noexcept { return inputs_.end(); }
  /// The value of a parameter, a block size or a knob in this call. Throws Error invalid_argument
  /// for another name.
  TESSERA_API std::int64_t value(std::string_view name) const;

 private:
  std::vector<TensorSpec> inputs_;
  std::vector<NamedValue> numbers_;
};

/// An argument of a kernel that is passed by value; OpenCL C calls these int, long and float.
using KernelScalar = std::variant<std::int32_t, std::int64_t, float>;

/// What the other functions of a kernel see of a call.
struct KernelCall {
  KernelInputs inputs;
  std::vector<TensorSpec> outputs{};    ///< what the shape function says
  std::vector<KernelScalar> scalars{};  ///< CustomOptions::scalars
  /// Null where the call runs on the host, and in `check`, which is asked before it is known where
  /// the call runs.
  const DeviceInfo* device = nullptr;

  std::int64_t value(std::string_view name) const { return inputs.value(name); }
};

/// What an entry point is given in one place.
class KernelArgument {
 public:
  enum class Kind { input, output, scratch, local, scalar };

  /// The pointer to an array of the call, or of `CustomKernelSpec::scratch`.
  static KernelArgument input(std::size_t at) { return {Kind::input, at}; }
  static KernelArgument output(std::size_t at) { return {Kind::output, at}; }
  static KernelArgument scratch(std::size_t at) { return {Kind::scratch, at}; }
  /// A pointer to so many bytes of local memory.
  static KernelArgument local(std::size_t bytes) { return {Kind::local, bytes}; }
  KernelArgument(std::int32_t value) : KernelArgument(KernelScalar(value)) {}
  KernelArgument(std::int64_t value) : KernelArgument(KernelScalar(value)) {}
  KernelArgument(float value) : KernelArgument(KernelScalar(value)) {}
  KernelArgument(const KernelScalar& value) : kind_(Kind::scalar), scalar_(value) {}

  Kind kind() const noexcept { return kind_; }
  std::size_t at() const noexcept { return at_; }  ///< the place, or bytes of local memory
  const KernelScalar& scalar() const noexcept { return scalar_; }

 private:
  KernelArgument(Kind kind, std::size_t at) : kind_(kind), at_(at) {}

  Kind kind_;
  std::size_t at_ = 0;
  KernelScalar scalar_{};
};

/// One launch of an entry point.
struct KernelLaunch {
  std::string entry{};
  std::vector<std::int64_t> global{};  ///< work-items in each of one to three dimensions
  std::vector<std::int64_t> local{};   ///< those of a work-group; empty: the driver's choice
  /// In the order of the entry point's parameters. Nothing: all inputs, outputs, scratch arrays and
  /// scalars, in this order.
  std::optional<std::vector<KernelArgument>> arguments{};
};

struct CustomKernelSpec;

/// How a call runs, as ExecutionOptions of a built-in operator, and with which numbers.
struct CustomOptions {
  /// Which of "opencl", "host" and "tpu_tile" are tried, in order. Empty: those that the kernel
  /// has, in this order, but `tpu_tile` only where it has nothing else.
  ImplementationList implementation{};
  // Numbers that are not given have their standard value.
  std::vector<NamedValue> parameters{};
  std::vector<NamedValue> block_sizes{};
  std::vector<NamedValue> knobs{};
  std::vector<KernelScalar> scalars{};
  std::optional<std::size_t> workspace_bytes{};
  MutableView workspace{};
  cl_command_queue queue = nullptr;
  std::vector<cl_event> wait_for{};
};

/// What a call without output views returns.
struct CustomResult {
  std::vector<HostTensor> outputs{};
  Dispatch dispatch{};

  /// Throws std::out_of_range where there are fewer outputs.
  const HostTensor& operator[](std::size_t at) const { return outputs.at(at); }
};

/// An operator made of somebody's kernel. A handle: copies are the same kernel, and one may be used
/// from several threads. A default-constructed one holds no kernel; calling it throws Error
/// invalid_argument.
class TESSERA_API CustomKernel {
 public:
  CustomKernel() = default;
  /// Touches no driver; the first call compiles. Throws Error invalid_argument for a description
  /// that can never be right.
  explicit CustomKernel(CustomKernelSpec spec);
  explicit operator bool() const noexcept { return impl_ != nullptr; }

  /// Returns the outputs when they are there.
  ///
  /// Throws Error, which begins with the kernel's name, before any output is touched:
  /// invalid_argument for inputs, numbers, launches and arguments that disagree with the kernel or
  /// the device, and for what the kernel's own functions throw; build_failed, whose build_log() is
  /// the device's; workspace_too_small; unsupported.
  CustomResult operator()(Context& context, const std::vector<View>& inputs,
                          const CustomOptions& options = {}) const;
  /// Writes the outputs, which have the shapes that the shape function says. Returns when the work
  /// is enqueued where every view is device memory, else when it is done.
  Completion run(Context& context, const std::vector<View>& inputs,
                 const std::vector<MutableView>& outputs, const CustomOptions& options = {}) const;

  /// The gradients of the floating inputs, in their order: calls `CustomKernelSpec::backward` with
  /// the inputs and then a cotangent of each output, of its shape.
  CustomResult backward(Context& context, const std::vector<View>& inputs,
                        const std::vector<View>& cotangents,
                        const CustomOptions& options = {}) const;

  // Questions. Views may have null host pointers; no outputs: as a call that owns them.

  Plan plan(Context& context, const std::vector<View>& inputs,
            const std::vector<MutableView>& outputs = {}, const CustomOptions& options = {}) const;
  std::optional<std::string> why_unsupported(Context& context, const std::string& implementation,
                                             const std::vector<View>& inputs,
                                             const CustomOptions& options = {}) const;
  /// Shapes of the outputs.
  std::vector<TensorSpec> shapes(const std::vector<View>& inputs,
                                 const CustomOptions& options = {}) const;
  std::vector<ImplementationInfo> implementations() const;
  const std::string& name() const;

  class Impl;

 private:
  std::shared_ptr<const Impl> impl_;
};

/// What a kernel is. `source` or `tile`, and `shape`, have to be given.
///
/// Kernels find every array dense and row-major from the pointer on. A view that is not is copied
/// for the call, and so is an input whose parameter is no pointer to const, which the kernel may
/// write to; on a device Dispatch::notes says so. bf16 arrives as `ushort`, f16 as `half`, i32 as
/// `int`, i64 as `long`. Macros say the types of a call, `INPUT_0_TYPE` and `OUTPUT_0_TYPE`, and
/// the numbers by their names. Every element of an output is the kernel's to write.
struct CustomKernelSpec {
  std::string source{};  ///< OpenCL C, 1.2 where `build_options` ask for no other
  /// The entry point that is launched where `launches` is not given: with a work-item for each
  /// element of the first output.
  std::string entry{};
  std::string name{};  ///< for messages and reports; empty: `entry`
  /// Names of the arguments, for messages. Where given, a call has as many.
  std::vector<std::string> inputs{};
  std::vector<std::string> outputs{};
  /// Shapes of the outputs. Throws, where inputs disagree, any std::exception.
  std::function<std::vector<TensorSpec>(const KernelInputs&)> shape{};
  std::vector<KernelNumber> parameters{};   ///< what is computed depends on
  std::vector<KernelNumber> block_sizes{};  ///< how it is cut
  std::vector<KernelNumber> knobs{};        ///< how it is done
  /// Why a call cannot be right; empty: it can.
  std::function<std::string(const KernelCall&)> check{};
  /// The launches, in order. Each sees what those before it wrote.
  std::function<std::vector<KernelLaunch>(const KernelCall&)> launches{};
  /// Arrays for the time of the call, with anything in them.
  std::function<std::vector<TensorSpec>(const KernelCall&)> scratch{};
  std::string build_options{};
  /// The fallback: computes the outputs on the host, from dense arrays.
  std::function<std::vector<HostTensor>(const std::vector<View>& inputs, const KernelCall&)> host{};
  /// A body for the tile machine, as `tile::body` (tessera/tile_body.hpp) makes it. Computes the
  /// outputs on the chip of that name and returns what Dispatch::notes shall say.
  std::function<std::vector<std::string>(const std::string& chip, const std::vector<View>& inputs,
                                         const std::vector<MutableView>& outputs,
                                         const KernelCall&)>
      tile{};
  CustomKernel backward{};
};

/// The operator that `spec` describes.
inline CustomKernel custom_kernel(CustomKernelSpec spec) { return CustomKernel(std::move(spec)); }

}  // namespace tessera
