// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "custom/arguments.h"
#include "host/arguments/bytes.hpp"
#include "host/custom/opencl_entries.hpp"
#include "host/custom/request.hpp"
#include "host/engines/segments.hpp"
#include "host/opencl/call.hpp"
#include "host/opencl/errors.hpp"
#include "host/opencl/specialise.hpp"

namespace tessera::custom {
namespace {

/// How a call is carried out on a device.
struct Work {
  KernelCall call;
  opencl::Specialisation program{};
  std::vector<TensorSpec> scratch{};
  std::vector<std::int64_t> scratch_words{};  ///< of each of them
  std::vector<KernelLaunch> launches{};
  std::vector<std::vector<KernelArgument>> arguments{};  ///< of each launch
  std::vector<bool> may_write{};  ///< whether a launch may write to this input, for each of them
  std::int64_t scratch_bytes = 0;
};

opencl::Specialisation program_of(const Request& r) {
  std::string options = r.kernel.spec.build_options;
  const auto define = [&](const std::string& name, const auto& value) {
    fmt::format_to(std::back_inserter(options), " -D{}={}", name, value);
  };
  const auto define_types = [&](const char* which, const auto& arrays) {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      fmt::format_to(std::back_inserter(options), " -D{}_{}_TYPE={}", which, i,
                     types_of(arrays[i].dtype()).front());
    }
  };
  const auto& spec = r.kernel.spec;
  for (const auto* numbers : {&spec.parameters, &spec.block_sizes, &spec.knobs}) {
    for (const auto& number : *numbers) define(number.name, r.call.value(number.name));
  }
  define_types("INPUT", r.inputs);
  define_types("OUTPUT", r.outputs);
  opencl::Specialisation program{.file = r.kernel.file,
                                 .options = options + " -cl-kernel-arg-info",
                                 .source = r.kernel.source};
  program.hash = opencl::hash_of(program);
  return program;
}

/// Words of scratch that an array takes, with the slack that lets it begin where a part of a lent
/// block may.
std::int64_t words_of(const Request& r, std::size_t at, const TensorSpec& array,
                      const opencl::DeviceFacts& facts) {
  const auto& extents = array.extents();
  if (std::any_of(extents.begin(), extents.end(), [](auto extent) { return extent < 0; })) {
    r.fail(fmt::format("its function `scratch` gives {} for scratch[{}]; the least extent is 0",
                       to_string(array), at));
  }
  if (std::find(extents.begin(), extents.end(), 0) != extents.end()) return 0;
  auto bytes = static_cast<std::int64_t>(size_of(array.dtype()));
  for (const auto extent : extents) bytes = arguments::saturating_product(bytes, extent);
  if (bytes > facts.max_allocation_bytes) {
    r.fail(fmt::format("its function `scratch` gives {} for scratch[{}]; the largest allocation on "
                       "the device is {} bytes, ask for less or cut it into several arrays",
                       to_string(array), at, facts.max_allocation_bytes),
           ErrorCode::out_of_memory);
  }
  return opencl::region_words((bytes + facts.part_alignment_bytes + 3) / 4);
}

std::vector<KernelArgument> all_arguments(const Request& r, const Work& work) {
  std::vector<KernelArgument> all;
  for (std::size_t i = 0; i < r.inputs.size(); ++i) all.push_back(KernelArgument::input(i));
  for (std::size_t i = 0; i < r.outputs.size(); ++i) all.push_back(KernelArgument::output(i));
  for (std::size_t i = 0; i < work.scratch.size(); ++i) all.push_back(KernelArgument::scratch(i));
  for (const auto& scalar : r.options.scalars) all.emplace_back(scalar);
  return all;
}

/// Error where an argument names an array that the call does not have.
void check_places(const Request& r, const Work& work, const KernelLaunch& launch,
                  const std::vector<KernelArgument>& arguments) {
  using Kind = KernelArgument::Kind;
  for (const auto& argument : arguments) {
    const auto check = [&](Kind kind, const char* what, std::size_t count) {
      if (argument.kind() != kind || argument.at() < count) return;
      r.fail(fmt::format("entry point {}: it is given {}({}), but the call has {}", launch.entry,
                         what, argument.at(), count));
    };
    check(Kind::input, "input", r.inputs.size());
    check(Kind::output, "output", r.outputs.size());
    check(Kind::scratch, "scratch", work.scratch.size());
    if (argument.kind() == Kind::local && argument.at() == 0) {
      r.fail("entry point " + launch.entry + ": it is given 0 bytes of local memory; give some");
    }
  }
}

/// Decides how the call runs, compiles for it and checks it against the device.
Work prepare(const Request& r, opencl::Runtime& runtime) {
  const auto& spec = r.kernel.spec;
  Work work{.call = r.call, .may_write = std::vector<bool>(r.inputs.size())};
  work.call.device = &runtime.info();
  if (spec.scratch) {
    work.scratch = r.ask("scratch", [&] { return spec.scratch(work.call); });
  }
  for (std::size_t i = 0; i < work.scratch.size(); ++i) {
    work.scratch_words.push_back(words_of(r, i, work.scratch[i], runtime.facts()));
    work.scratch_bytes =
        arguments::saturating_sum(work.scratch_bytes, work.scratch_words.back() * 4);
  }
  // The first begins at a whole region of a lent block, wherever that begins.
  if (work.scratch_bytes > 0) {
    work.scratch_bytes = arguments::saturating_sum(work.scratch_bytes, opencl::region_words(1) * 4);
  }
  if (r.workspace_limit && *r.workspace_limit < work.scratch_bytes) {
    r.fail(fmt::format("workspace_bytes (or the lent workspace) is {}, its scratch arrays need {}; "
                       "give that",
                       *r.workspace_limit, work.scratch_bytes),
           ErrorCode::workspace_too_small);
  }
  work.program = program_of(r);
  const bool is_empty = std::all_of(r.outputs.begin(), r.outputs.end(),
                                    [](const auto& output) { return output.size() == 0; });
  if (is_empty) return work;
  if (spec.launches) {
    work.launches = r.ask("launches", [&] { return spec.launches(work.call); });
    if (work.launches.empty()) {
      r.fail(
          "its function `launches` gives none, but its outputs have elements; give at least one");
    }
  } else {
    work.launches = {{.entry = spec.entry, .global = {r.outputs.front().size()}}};
  }
  for (const auto& launch : work.launches) {
    const auto& arguments =
        work.arguments.emplace_back(launch.arguments ? *launch.arguments : all_arguments(r, work));
    check_places(r, work, launch, arguments);
    const auto entry = runtime.keep<Entries>().find(work.program, launch.entry, runtime);
    check_launch(r, launch, arguments, work.scratch, *entry, runtime.facts());
    for (std::size_t at = 0; at < arguments.size(); ++at) {
      if (arguments[at].kind() != KernelArgument::Kind::input) continue;
      if (!entry->parameters[at].is_const) work.may_write[arguments[at].at()] = true;
    }
  }
  return work;
}

/// The arrays of a call as kernels find them: dense, from the buffer's start on.
class DenseArrays {
 public:
  DenseArrays(opencl::Call& call, Dispatch& dispatch) : call_(call), dispatch_(dispatch) {}

  /// With `may_write` a copy, since what kernels write to an input is the call's own.
  opencl::Memory read(const View& view, const std::string& name, bool may_write) {
    const auto bound = call_.read(view, name.c_str());
    const auto memory = as_it_is(bound);
    if (memory && (!may_write || memory->memory == nullptr)) return *memory;
    const auto dense = copy_of(bound, name, memory ? not_const_ : not_dense_);
    copy(bound, dense);
    return dense;
  }
  opencl::Memory write(const MutableView& view, const std::string& name) {
    const auto bound = call_.write(view, name.c_str(), false);
    if (auto memory = as_it_is(bound)) return *memory;
    const auto dense = copy_of(bound, name, not_dense_);
    outputs_.emplace_back(dense, bound);
    return dense;
  }
  /// Of the pool, or a part of the lent block, which has room for the alignment.
  opencl::Memory scratch(std::int64_t words, std::int64_t alignment) {
    auto region = call_.scratch(words, "scratch");
    if (region.offset == 0) return region;
    const std::int64_t step = std::max<std::int64_t>(alignment / 4, 1);
    const std::int64_t begin = (region.offset + step - 1) / step * step;
    region.extents = Dims{words - (begin - region.offset)};
    region.offset = begin;
    const auto part = part_of(region);
    // The lent block may be a part of a buffer itself, which has no parts.
    return part ? *part : opencl::Memory(call_.staging(words * 4, "scratch"));
  }
  /// Copies what kernels wrote to outputs of another layout.
  void finish() {
    for (const auto& [dense, bound] : outputs_) copy(dense, bound);
    const auto note = [&](const std::vector<std::string>& names, const char* why) {
      if (names.empty()) return;
      dispatch_.notes.push_back(
          fmt::format("copied in every such call, because {}: {}", why, fmt::join(names, ", ")));
    };
    note(not_dense_, "they are not dense from an aligned address on");
    note(not_const_,
         "the kernel may write to them (declare what it only reads so, as `global const float*`)");
  }

 private:
  std::optional<opencl::Memory> as_it_is(const opencl::Binding& bound) {
    if (bound.memory == nullptr) return bound;
    if (!is_dense(bound.extents, bound.strides)) return std::nullopt;
    return bound.offset == 0 ? bound : part_of(bound);
  }

  /// The part of a buffer from the offset on; nothing where the device cannot form it.
  std::optional<opencl::Memory> part_of(const opencl::Binding& bound) {
    const auto size = static_cast<std::int64_t>(size_of(bound.dtype));
    const cl_buffer_region region{static_cast<std::size_t>(bound.offset * size),
                                  static_cast<std::size_t>(bound.extents.product() * size)};
    cl_int status = CL_SUCCESS;
    const cl_mem part =
        clCreateSubBuffer(bound.memory, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
    // Misaligned, or a part of a part.
    if (status != CL_SUCCESS) return std::nullopt;
    const cl::Memory owner(part, false);
    call_.keep(part);
    return opencl::Memory{part, 0, 0, bound.writes_caller};
  }

  opencl::Binding copy_of(const opencl::Binding& bound, const std::string& name,
                          std::vector<std::string>& copied) {
    copied.push_back(name);
    // Axes of stride 0 may make more elements than bytes can be counted.
    auto dense =
        call_.staging(arguments::saturating_product(
                          bound.extents.product(), static_cast<std::int64_t>(size_of(bound.dtype))),
                      name.c_str());
    dense.dtype = bound.dtype;
    dense.extents = bound.extents;
    dense.strides = contiguous_strides(bound.extents);
    return dense;
  }

  void copy(const opencl::Binding& from, const opencl::Binding& to) {
    const char* word = "uint";
    if (size_of(from.dtype) != 4) word = size_of(from.dtype) == 2 ? "ushort" : "ulong";
    call_.launch({"custom/copy.cl", std::string("-DWORD=") + word},
                 opencl::per_element(from.extents.product()),
                 kernels::copy_elements_memory{.from = from, .to = to},
                 {.from_layout = engines::geometry_of(from, from.extents.rank()),
                  .to_layout = engines::geometry_of(to, to.extents.rank()),
                  .count = from.extents.product()});
  }

  opencl::Call& call_;
  Dispatch& dispatch_;
  std::vector<std::pair<opencl::Binding, opencl::Binding>> outputs_;
  std::vector<std::string> not_dense_, not_const_;  ///< names of what is copied
};

class Opencl final : public Row {
 public:
  Opencl() : Row({"opencl", "the kernel's source on the context's device", true}) {}

  std::optional<std::string> why_unsupported(ContextState& state,
                                             const dispatch::Request&) const override {
    if (auto reason = opencl::Runtime::why_no_kernels()) return reason;
    const auto* runtime = opencl::runtime_of(state);
    if (runtime == nullptr) return "the context has no OpenCL device";
    // A kernel of the caller's is asked what it takes once it is compiled.
    if (runtime->only_plans()) return "the context's device is not here to compile it";
    return std::nullopt;
  }

  std::unique_ptr<Completion::State> run(const std::shared_ptr<ContextState>& state,
                                         const dispatch::Request& request,
                                         dispatch::Attempt& attempt) const override {
    const auto& r = request_of(request);
    auto& runtime = *opencl::runtime_of(*state);
    const Work work = prepare(r, runtime);
    opencl::Call call(state, runtime, {r.options.queue, r.options.wait_for, r.options.workspace},
                      attempt);
    describe_work(r, work, runtime, attempt.dispatch);
    enqueue(call, r, work, attempt.dispatch);
    return call.finish();
  }

  Plan plan(ContextState& state, const dispatch::Request& request) const override {
    auto& runtime = *opencl::runtime_of(state);
    const Work work = prepare(request_of(request), runtime);
    Plan plan;
    describe_work(request_of(request), work, runtime, plan.dispatch);
    plan.workspace_bytes = plan.minimum_workspace_bytes = work.scratch_bytes;
    return plan;
  }

 private:
  static void describe_work(const Request& r, const Work& work, const opencl::Runtime& runtime,
                            Dispatch& dispatch) {
    describe(r, dispatch);
    dispatch.implementation = "opencl";
    dispatch.device = runtime.info().name;
    dispatch.driver = runtime.info().driver;
    dispatch.workspace_bytes = work.scratch_bytes;
  }

  static void enqueue(opencl::Call& call, const Request& r, const Work& work, Dispatch& dispatch) {
    if (work.launches.empty()) return;
    DenseArrays arrays(call, dispatch);
    std::vector<opencl::Memory> inputs, outputs, scratch;
    for (std::size_t i = 0; i < r.inputs.size(); ++i) {
      inputs.push_back(arrays.read(r.inputs[i], r.input_name(i), work.may_write[i]));
    }
    for (std::size_t i = 0; i < r.outputs.size(); ++i) {
      outputs.push_back(arrays.write(r.outputs[i], r.output_name(i)));
    }
    for (const auto words : work.scratch_words) {
      scratch.push_back(arrays.scratch(words, call.runtime().facts().part_alignment_bytes));
    }
    for (std::size_t i = 0; i < work.launches.size(); ++i) {
      std::vector<opencl::Call::Argument> arguments;
      for (const auto& argument : work.arguments[i]) {
        arguments.push_back(bound(argument, inputs, outputs, scratch));
      }
      call.launch(work.program, work.launches[i].entry, range_of(work.launches[i]), arguments);
    }
    arrays.finish();
  }

  static opencl::Call::Argument bound(const KernelArgument& argument,
                                      const std::vector<opencl::Memory>& inputs,
                                      const std::vector<opencl::Memory>& outputs,
                                      const std::vector<opencl::Memory>& scratch) {
    using Kind = KernelArgument::Kind;
    switch (argument.kind()) {
      case Kind::input:
        return {.memory = inputs[argument.at()]};
      case Kind::output:
        return {.memory = outputs[argument.at()]};
      case Kind::scratch:
        return {.memory = scratch[argument.at()]};
      case Kind::local:
        return {.size = argument.at()};
      case Kind::scalar:
        break;
    }
    return std::visit(
        [](const auto& value) {
          return opencl::Call::Argument{.value = &value, .size = sizeof(value)};
        },
        argument.scalar());
  }

  static opencl::Range range_of(const KernelLaunch& launch) {
    opencl::Range range;
    for (std::size_t axis = 0; axis < launch.global.size(); ++axis) {
      range.global[axis] = static_cast<std::size_t>(launch.global[axis]);
    }
    if (launch.local.empty()) return range;
    range.local = {1, 1, 1};
    for (std::size_t axis = 0; axis < launch.local.size(); ++axis) {
      range.local[axis] = static_cast<std::size_t>(launch.local[axis]);
    }
    return range;
  }
};

}  // namespace

std::unique_ptr<const dispatch::Implementation> opencl_implementation() {
  return std::make_unique<Opencl>();
}

}  // namespace tessera::custom
