// SPDX-License-Identifier: Apache-2.0
#include "host/custom/opencl_entries.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "host/opencl/errors.hpp"

namespace tessera::custom {
namespace {

/// Text that the driver has of a parameter; empty where it keeps none.
std::string text_of(cl_kernel kernel, cl_uint at, cl_kernel_arg_info what) {
  std::size_t size = 0;
  if (clGetKernelArgInfo(kernel, at, what, 0, nullptr, &size) != CL_SUCCESS || size <= 1) return {};
  std::string text(size, '\0');
  if (clGetKernelArgInfo(kernel, at, what, size, text.data(), nullptr) != CL_SUCCESS) return {};
  text.resize(text.find('\0') == std::string::npos ? size : text.find('\0'));
  return text;
}

Entry entry_of(cl_kernel kernel, const std::string& name, opencl::Runtime& runtime) {
  Entry entry{.name = name};
  cl_uint count = 0;
  const auto& device = runtime.info().name;
  opencl::check(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(count), &count, nullptr),
                "clGetKernelInfo", device, "counting the parameters of " + name);
  const auto ask = [&](cl_kernel_work_group_info what, auto& value) {
    opencl::check(
        clGetKernelWorkGroupInfo(kernel, runtime.device()(), what, sizeof(value), &value, nullptr),
        "clGetKernelWorkGroupInfo", device, "asking for the work-group limits of " + name);
  };
  ask(CL_KERNEL_WORK_GROUP_SIZE, entry.max_group);
  ask(CL_KERNEL_COMPILE_WORK_GROUP_SIZE, entry.required_local);
  cl_ulong local_bytes = 0;
  ask(CL_KERNEL_LOCAL_MEM_SIZE, local_bytes);
  entry.local_bytes = static_cast<std::int64_t>(local_bytes);
  entry.max_local = runtime.device().getInfo<CL_DEVICE_MAX_WORK_ITEM_SIZES>();
  for (cl_uint at = 0; at < count; ++at) {
    Parameter parameter{text_of(kernel, at, CL_KERNEL_ARG_NAME),
                        text_of(kernel, at, CL_KERNEL_ARG_TYPE_NAME)};
    cl_kernel_arg_address_qualifier space = CL_KERNEL_ARG_ADDRESS_PRIVATE;
    if (clGetKernelArgInfo(kernel, at, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof(space), &space,
                           nullptr) != CL_SUCCESS) {
      parameter.type.clear();
    }
    parameter.is_local = space == CL_KERNEL_ARG_ADDRESS_LOCAL;
    cl_kernel_arg_type_qualifier qualifiers = CL_KERNEL_ARG_TYPE_NONE;
    parameter.is_const =
        space == CL_KERNEL_ARG_ADDRESS_CONSTANT ||
        (clGetKernelArgInfo(kernel, at, CL_KERNEL_ARG_TYPE_QUALIFIER, sizeof(qualifiers),
                            &qualifiers, nullptr) == CL_SUCCESS &&
         (qualifiers & CL_KERNEL_ARG_TYPE_CONST) != 0);
    entry.parameters.push_back(std::move(parameter));
  }
  return entry;
}

/// What a parameter's type says: "float" of "float4*". Empty: nothing that could be checked.
std::string_view element_of(std::string_view type) {
  const auto end = type.find_first_of("*0123456789 ");
  const auto element = type.substr(0, end);
  constexpr std::array<std::string_view, 11> known = {"char", "uchar", "short", "ushort",
                                                      "int",  "uint",  "long",  "ulong",
                                                      "half", "float", "double"};
  return std::find(known.begin(), known.end(), element) != known.end() ? element : "";
}

bool is_pointer(const Parameter& parameter) {
  return parameter.type.find('*') != std::string::npos;
}

std::vector<std::string_view> types_of_scalar(const KernelScalar& scalar) {
  if (std::holds_alternative<float>(scalar)) return {"float"};
  if (std::holds_alternative<std::int32_t>(scalar)) return {"int", "uint"};
  return {"long", "ulong"};
}

/// Error where local arrays take more than the device has.
template <class Fail>
void check_local_memory(const std::vector<KernelArgument>& arguments, const Entry& entry,
                        const opencl::DeviceFacts& facts, const Fail& fail) {
  auto bytes = entry.local_bytes;
  for (const auto& argument : arguments) {
    if (argument.kind() != KernelArgument::Kind::local) continue;
    const auto most = static_cast<std::size_t>(facts.local_memory_bytes) + 1;
    bytes += static_cast<std::int64_t>(std::min(argument.at(), most));
  }
  if (bytes <= facts.local_memory_bytes) return;
  fail(fmt::format("it takes {} bytes of local memory or more, the device has {}; take less", bytes,
                   facts.local_memory_bytes));
}

bool has(const std::vector<std::string_view>& types, std::string_view type) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

/// What is wrong with an argument for its parameter, in words; empty: nothing.
std::string disagreement(const Request& request, const KernelArgument& argument,
                         const std::vector<TensorSpec>& scratch, const Parameter& parameter) {
  using Kind = KernelArgument::Kind;
  if (parameter.type.empty()) return {};
  const auto element = element_of(parameter.type);
  const auto array = [&](const std::string& name, DType type) -> std::string {
    if (parameter.is_local || !is_pointer(parameter)) {
      return fmt::format("it is given the array {}; declare it a global pointer", name);
    }
    if (element.empty() || has(types_of(type), element)) return {};
    return fmt::format(
        "it is given {} of {}; declare it global {}*, or global void* to read it "
        "otherwise",
        name, tessera::to_string(type), types_of(type).front());
  };
  switch (argument.kind()) {
    case Kind::input:
      return array(request.input_name(argument.at()), request.inputs[argument.at()].dtype());
    case Kind::output:
      return array(request.output_name(argument.at()), request.outputs[argument.at()].dtype());
    case Kind::scratch:
      return array(fmt::format("scratch[{}]", argument.at()), scratch[argument.at()].dtype());
    case Kind::local:
      return parameter.is_local ? "" : "it is given local memory; declare it a local pointer";
    case Kind::scalar:
      break;
  }
  const auto types = types_of_scalar(argument.scalar());
  const bool is_whole = element.size() == parameter.type.size();  // no vector
  if (!is_pointer(parameter) && (element.empty() || (is_whole && has(types, element)))) return {};
  return fmt::format("it is given a scalar; declare it {}, or give what it is", types.front());
}

}  // namespace

std::vector<std::string_view> types_of(DType type) {
  switch (type) {
    case DType::f32:
      return {"float"};
    case DType::bf16:
      return {"ushort", "short"};
    case DType::f16:
      return {"half", "ushort", "short"};
    case DType::i32:
      return {"int", "uint"};
    case DType::i64:
      return {"long", "ulong"};
  }
  return {};
}

std::shared_ptr<const Entry> Entries::find(const opencl::Specialisation& program,
                                           const std::string& name, opencl::Runtime& runtime) {
  const auto is_known = [&](const Known& known) {
    return known.entry->name == name && known.program == program;
  };
  {
    std::lock_guard lock(mutex_);
    const auto found = std::find_if(known_.begin(), known_.end(), is_known);
    if (found != known_.end()) return found->entry;
  }
  const auto lease = runtime.programs().kernel(program, name);
  const auto entry = std::make_shared<const Entry>(entry_of(lease->kernel()(), name, runtime));
  std::lock_guard lock(mutex_);
  known_.push_back({program, entry});
  return entry;
}

void check_launch(const Request& request, const KernelLaunch& launch,
                  const std::vector<KernelArgument>& arguments,
                  const std::vector<TensorSpec>& scratch, const Entry& entry,
                  const opencl::DeviceFacts& facts) {
  const auto fail = [&](const std::string& message) {
    request.fail("entry point " + launch.entry + ": " + message);
  };
  if (arguments.size() != entry.parameters.size()) {
    fail(
        fmt::format("it has {} parameters and is given {} arguments; without "
                    "KernelLaunch::arguments these are all inputs, outputs, scratch arrays and "
                    "scalars",
                    entry.parameters.size(), arguments.size()));
  }
  for (std::size_t at = 0; at < arguments.size(); ++at) {
    const auto& parameter = entry.parameters[at];
    const auto wrong = disagreement(request, arguments[at], scratch, parameter);
    if (wrong.empty()) continue;
    fail(fmt::format("parameter {}, {} {}: {}", at, parameter.type, parameter.name, wrong));
  }
  const auto text = [](const std::vector<std::int64_t>& sizes) {
    return fmt::format("[{}]", fmt::join(sizes, ", "));
  };
  const auto& global = launch.global;
  const auto& local = launch.local;
  const auto are_sizes = [](const std::vector<std::int64_t>& sizes) {
    return sizes.size() <= 3 &&
           std::all_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size >= 1; });
  };
  if (global.empty() || !are_sizes(global)) {
    fail("its global size is " + text(global) + "; give one to three sizes of at least 1");
  }
  check_local_memory(arguments, entry, facts, fail);
  const auto& required = entry.required_local;
  if (required[0] > 0 && (local.empty() || !std::equal(local.begin(), local.end(), required.begin(),
                                                       [](std::int64_t is, std::size_t size) {
                                                         return is ==
                                                                static_cast<std::int64_t>(size);
                                                       }))) {
    fail(
        fmt::format("its local size is {}, its attribute reqd_work_group_size says [{}]; give that",
                    text(local), fmt::join(required, ", ")));
  }
  if (local.empty()) return;
  if (local.size() != global.size() || !are_sizes(local)) {
    fail(
        fmt::format("its local size is {} for a global size of {}; give as many sizes, each at "
                    "least 1, or none",
                    text(local), text(global)));
  }
  std::int64_t items = 1;
  for (std::size_t axis = 0; axis < local.size(); ++axis) {
    const auto most = axis < entry.max_local.size()
                          ? static_cast<std::int64_t>(entry.max_local[axis])
                          : facts.max_work_group_size;
    if (local[axis] > most) {
      fail(
          fmt::format("its local size is {}, the most on this device in dimension {} is {}; take "
                      "smaller work-groups",
                      text(local), axis, most));
    }
    if (global[axis] % local[axis] != 0) {
      fail(
          fmt::format("its global size {} is no multiple of its local size {}; round it up and "
                      "let the kernel compare get_global_id with its extents",
                      text(global), text(local)));
    }
    // The first that is beyond the limit ends the product, so that it cannot overflow.
    if (items <= facts.max_work_group_size) items *= std::min(local[axis], std::int64_t{1} << 31);
  }
  const auto most = std::min(facts.max_work_group_size, static_cast<std::int64_t>(entry.max_group));
  if (items > most) {
    fail(
        fmt::format("its local size {} makes work-groups of {} work-items, the most on this "
                    "device is {}; take smaller ones",
                    text(local), items, most));
  }
}

}  // namespace tessera::custom
