// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <functional>

#include "host/arguments/checks.hpp"
#include "host/arguments/owned.hpp"
#include "host/custom/request.hpp"
#include "host/dispatch/completion.hpp"
#include "host/dispatch/guarded.hpp"
#include "host/dispatch/host_views.hpp"
#include "host/dispatch/knobs.hpp"

namespace tessera {

std::int64_t KernelInputs::value(std::string_view name) const {
  if (const auto value = dispatch::value_of(numbers_, name)) return *value;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("there is no parameter, block size or knob \"{}\"", name));
}

class CustomKernel::Impl {
 public:
  custom::Kernel kernel{};
  dispatch::Table rows{};
};

namespace custom {
namespace {

/// The most inputs, and the most outputs, of a call: arguments::Checks has room for these and for
/// the workspace.
constexpr std::size_t most_arrays = 20;

using arguments::Form;

bool is_identifier(const std::string& name) {
  const auto is_letter = [](unsigned char letter) { return std::isalpha(letter) || letter == '_'; };
  return !name.empty() && is_letter(static_cast<unsigned char>(name.front())) &&
         std::all_of(name.begin(), name.end(), [&](unsigned char letter) {
           return is_letter(letter) || std::isdigit(letter);
         });
}

void check_spec(const Kernel& kernel) {
  const auto& spec = kernel.spec;
  const auto fail = [&](const std::string& message) {
    throw Error(ErrorCode::invalid_argument,
                (kernel.name.empty() ? "custom_kernel" : kernel.name) + ": " + message);
  };
  if (!spec.shape) fail("`shape` is not given; it returns the shapes of the outputs");
  if (spec.source.empty() && !spec.tile) fail("neither `source` nor `tile` is given; give one");
  if (!spec.source.empty() && spec.entry.empty() && !spec.launches) {
    fail("neither `entry` nor `launches` is given; say which kernel of the source is launched");
  }
  if (kernel.name.empty()) fail("`name` is not given, nor an `entry` that it could be");
  std::vector<std::string> names;
  for (const auto* numbers : {&spec.parameters, &spec.block_sizes, &spec.knobs}) {
    for (const auto& number : *numbers) {
      if (!is_identifier(number.name)) {
        fail("the number \"" + number.name + "\" cannot be a macro; give it letters and digits");
      }
      if (std::find(names.begin(), names.end(), number.name) != names.end()) {
        fail("there are two numbers \"" + number.name + "\"; their names are one list");
      }
      if (number.standard < number.least || number.standard > number.most) {
        fail(fmt::format("{} is {} by default, outside of its range, {} to {}", number.name,
                         number.standard, number.least, number.most));
      }
      names.push_back(number.name);
    }
  }
  if (spec.inputs.size() > most_arrays || spec.outputs.size() > most_arrays) {
    fail(fmt::format("it has {} inputs and {} outputs; the most of each is {}", spec.inputs.size(),
                     spec.outputs.size(), most_arrays));
  }
}

/// The numbers that a call uses, checked.
std::vector<NamedValue> numbers_of(const Kernel& kernel, const char* what,
                                   const std::vector<KernelNumber>& known,
                                   const std::vector<NamedValue>& given) {
  const auto fail = [&](const std::string& message) {
    throw Error(ErrorCode::invalid_argument, kernel.name + ": " + message);
  };
  for (const auto& value : given) {
    const auto is_it = [&](const auto& number) { return number.name == value.name; };
    if (std::none_of(known.begin(), known.end(), is_it)) {
      std::vector<std::string> names;
      for (const auto& number : known) names.push_back(number.name);
      if (names.empty()) names.push_back("none");
      fail(fmt::format("{} has no \"{}\"; the kernel has {}", what, value.name,
                       fmt::join(names, ", ")));
    }
    const auto first = *dispatch::value_of(given, value.name);
    if (first != value.value) {
      fail(fmt::format("{} has {} twice, as {} and as {}; give it once", what, value.name, first,
                       value.value));
    }
  }
  std::vector<NamedValue> all;
  for (const auto& number : known) {
    const auto value = dispatch::value_of(given, number.name).value_or(number.standard);
    if (value < number.least || value > number.most) {
      fail(fmt::format("{} is {}; its range is {} to {}", number.name, value, number.least,
                       number.most));
    }
    all.push_back({number.name, value});
  }
  return all;
}

std::string name_of(const std::vector<std::string>& names, const char* all, std::size_t at) {
  return at < names.size() ? names[at] : fmt::format("{}[{}]", all, at);
}

void check_count(const Request& r, const char* what, const std::vector<std::string>& names,
                 std::size_t count) {
  if (count > most_arrays) {
    r.fail(fmt::format("it is given {} {}; the most is {}", count, what, most_arrays));
  }
  if (names.empty() || names.size() == count) return;
  r.fail(fmt::format("it is given {} {}, it has {}: {}", count, what, names.size(),
                     fmt::join(names, ", ")));
}

/// Inputs and numbers of a call, and the shapes that follow from them.
Request describe_call(const Kernel& kernel, const std::vector<View>& inputs,
                      const CustomOptions& options) {
  const auto& spec = kernel.spec;
  auto numbers = numbers_of(kernel, "parameters", spec.parameters, options.parameters);
  auto blocks = numbers_of(kernel, "block_sizes", spec.block_sizes, options.block_sizes);
  auto knobs = numbers_of(kernel, "knobs", spec.knobs, options.knobs);
  numbers.insert(numbers.end(), blocks.begin(), blocks.end());
  numbers.insert(numbers.end(), knobs.begin(), knobs.end());
  std::vector<TensorSpec> shapes;
  for (const auto& view : inputs) shapes.emplace_back(view.extents(), view.dtype());
  Request r(kernel, options, KernelInputs(std::move(shapes), std::move(numbers)));
  r.inputs = inputs;
  r.block_sizes = std::move(blocks);
  r.knobs_used = std::move(knobs);
  r.call.scalars = options.scalars;
  check_count(r, "inputs", spec.inputs, inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) r.fail(r.input_name(i) + " is not given");
    for (const auto extent : inputs[i].extents()) {
      if (extent >= 0) continue;
      r.fail(r.input_name(i) + " has extents " + arguments::to_string(inputs[i].extents()) +
             "; the least is 0");
    }
  }
  r.call.outputs = r.ask("shape", [&] { return spec.shape(r.call.inputs); });
  if (r.call.outputs.empty()) r.fail("its shape function gives no output; give at least one");
  check_count(r, "outputs of the shape function", spec.outputs, r.call.outputs.size());
  for (std::size_t i = 0; i < r.call.outputs.size(); ++i) {
    for (const auto extent : r.call.outputs[i].extents()) {
      if (extent >= 0) continue;
      r.fail("its shape function gives " + to_string(r.call.outputs[i]) + " for " +
             r.output_name(i) + "; the least extent is 0");
    }
  }
  return r;
}

/// The options of a call of `forward.backward` for one of the two kernels: parameters that it does
/// not have are for the other. How it runs is for the backward kernel.
CustomOptions options_for(const Kernel& kernel, const Kernel& other, const CustomOptions& given) {
  const auto has = [](const Kernel& one, const NamedValue& value) {
    return std::any_of(one.spec.parameters.begin(), one.spec.parameters.end(),
                       [&](const auto& number) { return number.name == value.name; });
  };
  CustomOptions options = given;
  std::erase_if(options.parameters,
                [&](const auto& value) { return !has(kernel, value) && has(other, value); });
  return options;
}

/// Checks views and handles; `outputs` empty: the call owns them, without memory yet.
void check_arrays(Request& r, const ContextState& state, const std::vector<MutableView>& outputs,
                  Form form) {
  arguments::Checks checks(&state, r.kernel.name, form);
  std::vector<std::string> names;  // that outlive the checks
  names.reserve(r.inputs.size() + r.call.outputs.size());
  for (std::size_t i = 0; i < r.inputs.size(); ++i) {
    checks.input(names.emplace_back(r.input_name(i)).c_str(), r.inputs[i], ElementTypes::any);
  }
  const auto& expected = r.call.outputs;
  if (form == Form::views && outputs.size() != expected.size()) {
    r.fail(fmt::format("it is given {} outputs; its shape function says {}", outputs.size(),
                       expected.size()));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto name = names.emplace_back(r.output_name(i)).c_str();
    checks.product(expected[i].extents(), name, "'s extents");
    if (i >= outputs.size()) {
      r.outputs.push_back(MutableView::host(nullptr, expected[i].dtype(), expected[i].extents()));
      continue;
    }
    if (!outputs[i]) r.fail(std::string(name) + " is not given");
    checks.output(name, outputs[i], ElementTypes::any);
    const TensorSpec is(outputs[i].extents(), outputs[i].dtype());
    if (!(is == expected[i])) {
      r.fail(std::string(name) + " is " + to_string(is) + ", its shape function says " +
             to_string(expected[i]));
    }
    r.outputs.push_back(outputs[i]);
  }
  const auto& options = r.options;
  checks.handles(options.queue, options.wait_for, options.workspace);
  checks.overlaps();
  std::optional<std::size_t> bytes = options.workspace_bytes;
  if (options.workspace) {
    const auto lent = static_cast<std::size_t>(dispatch::footprint_bytes(options.workspace));
    bytes = std::min(bytes.value_or(lent), lent);
  }
  if (bytes) {
    r.workspace_limit = static_cast<std::int64_t>(std::min<std::size_t>(*bytes, INT64_MAX));
  }
  if (!r.kernel.spec.check) return;
  const auto reason = r.ask("check", [&] { return r.kernel.spec.check(r.call); });
  if (!reason.empty()) r.fail(reason);
}

const CustomKernel::Impl& known(const std::shared_ptr<const CustomKernel::Impl>& impl) {
  if (impl) return *impl;
  throw Error(ErrorCode::invalid_argument, "this CustomKernel is none; make it with custom_kernel");
}

/// What `use` returns for the checked call.
template <class Use>
auto with_checked(const CustomKernel::Impl& impl, Context& context, const std::vector<View>& inputs,
                  const std::vector<MutableView>& outputs, const CustomOptions& options, Form form,
                  const Use& use) {
  const auto& name = impl.kernel.name;
  return dispatch::guarded(name.c_str(), [&] {
    try {
      Request r = describe_call(impl.kernel, inputs, options);
      check_arrays(r, context.state(), outputs, form);
      return use(r);
    } catch (const Error& error) {
      const std::string message = error.what();
      if (message.rfind(name, 0) == 0) throw;
      throw Error(error.code(), name + ": " + message, error.build_log());
    }
  });
}

}  // namespace

std::string to_string(const TensorSpec& spec) {
  return std::string(tessera::to_string(spec.dtype())) + " " + arguments::to_string(spec.extents());
}

bool is_dense(const Dims& extents, const Dims& strides) {
  const auto dense = contiguous_strides(extents);
  for (int axis = 0; axis < extents.rank(); ++axis) {
    if (extents[axis] > 1 && strides[axis] != dense[axis]) return false;
  }
  return true;
}

void describe(const Request& request, Dispatch& dispatch) {
  dispatch.schedule = "custom";
  dispatch.block_sizes = request.block_sizes;
  dispatch.block_source =
      request.options.block_sizes.empty() ? BlockSource::fallback : BlockSource::caller;
  dispatch.knobs = request.knobs_used;
}

std::string Request::output_names() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < outputs.size(); ++i) names.push_back(output_name(i));
  return fmt::format("{}", fmt::join(names, ", "));
}
std::string Request::input_name(std::size_t at) const {
  return name_of(kernel.spec.inputs, "inputs", at);
}
std::string Request::output_name(std::size_t at) const {
  return name_of(kernel.spec.outputs, "outputs", at);
}
void Request::fail(const std::string& message, ErrorCode code) const {
  throw Error(code, kernel.name + ": " + message);
}

}  // namespace custom

CustomKernel::CustomKernel(CustomKernelSpec spec) {
  dispatch::guarded("custom_kernel", [&] {
    const auto impl = std::make_shared<Impl>();
    auto& kernel = impl->kernel;
    kernel.spec = std::move(spec);
    kernel.name = kernel.spec.name.empty() ? kernel.spec.entry : kernel.spec.name;
    custom::check_spec(kernel);
    const bool is_tile_alone = kernel.spec.source.empty() && !kernel.spec.host;
    kernel.source = std::make_shared<const std::string>(std::move(kernel.spec.source));
    const auto& text = *kernel.source;
    kernel.file = fmt::format("{} (source {:016x})", kernel.name, std::hash<std::string>()(text));
    if (!text.empty()) {
#ifdef TESSERA_OPENCL
      impl->rows.push_back(custom::opencl_implementation());
#else
      impl->rows.push_back(dispatch::left_out(
          "opencl", "this library was built without OpenCL (TESSERA_OPENCL=OFF)", true));
#endif
    }
    if (kernel.spec.host) impl->rows.push_back(custom::host_implementation());
    if (kernel.spec.tile) impl->rows.push_back(custom::tile_implementation(is_tile_alone));
    impl_ = impl;
  });
}

CustomResult CustomKernel::operator()(Context& context, const std::vector<View>& inputs,
                                      const CustomOptions& options) const {
  const auto& impl = custom::known(impl_);
  return custom::with_checked(
      impl, context, inputs, {}, options, arguments::Form::owned, [&](custom::Request& request) {
        CustomResult result;
        result.outputs.resize(request.outputs.size());
        for (std::size_t i = 0; i < request.outputs.size(); ++i) {
          arguments::allocate(request.outputs[i], result.outputs[i],
                              request.output_name(i).c_str());
        }
        Completion completion(
            dispatch::run(impl.rows, context.state().shared_from_this(), request));
        completion.wait();
        result.dispatch = completion.dispatch();
        return result;
      });
}

Completion CustomKernel::run(Context& context, const std::vector<View>& inputs,
                             const std::vector<MutableView>& outputs,
                             const CustomOptions& options) const {
  const auto& impl = custom::known(impl_);
  return custom::with_checked(
      impl, context, inputs, outputs, options, arguments::Form::views,
      [&](const custom::Request& request) {
        return Completion(dispatch::run(impl.rows, context.state().shared_from_this(), request));
      });
}

CustomResult CustomKernel::backward(Context& context, const std::vector<View>& inputs,
                                    const std::vector<View>& cotangents,
                                    const CustomOptions& options) const {
  const auto& impl = custom::known(impl_);
  const auto fail = [&](const std::string& message) {
    throw Error(ErrorCode::invalid_argument, impl.kernel.name + ".backward: " + message);
  };
  const auto& kernel = impl.kernel.spec.backward;
  if (!kernel) fail("the kernel has none; give CustomKernelSpec::backward");
  const auto& other = custom::known(kernel.impl_);
  auto forward_options = custom::options_for(impl.kernel, other.kernel, options);
  forward_options.block_sizes.clear();
  forward_options.knobs.clear();
  const auto backward_options = custom::options_for(other.kernel, impl.kernel, options);
  const auto outputs = shapes(inputs, forward_options);
  if (cotangents.size() != outputs.size()) {
    fail(fmt::format("it is given {} cotangents, the kernel has {} outputs", cotangents.size(),
                     outputs.size()));
  }
  auto all = inputs;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto name = custom::name_of(impl.kernel.spec.outputs, "outputs", i);
    if (cotangents[i].extents() != outputs[i].extents()) {
      fail(fmt::format("the cotangent of {} is {}, the output has {}", name,
                       arguments::to_string(cotangents[i].extents()),
                       arguments::to_string(outputs[i].extents())));
    }
    all.push_back(cotangents[i]);
  }
  const auto gradients = kernel.shapes(all, backward_options);
  std::size_t next = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_floating(inputs[i].dtype())) continue;
    if (next >= gradients.size() || gradients[next].extents() != inputs[i].extents() ||
        !is_floating(gradients[next].dtype())) {
      fail(
          fmt::format("the shape function of its kernel, {}, has to give {} of a floating type for "
                      "gradient {}, that of {}",
                      kernel.name(), arguments::to_string(inputs[i].extents()), next,
                      custom::name_of(impl.kernel.spec.inputs, "inputs", i)));
    }
    ++next;
  }
  if (next != gradients.size()) {
    fail(
        fmt::format("the shape function of its kernel, {}, gives {} gradients; the floating "
                    "inputs are {}",
                    kernel.name(), gradients.size(), next));
  }
  return kernel(context, all, backward_options);
}

Plan CustomKernel::plan(Context& context, const std::vector<View>& inputs,
                        const std::vector<MutableView>& outputs,
                        const CustomOptions& options) const {
  const auto& impl = custom::known(impl_);
  return custom::with_checked(
      impl, context, inputs, outputs, options, arguments::Form::question,
      [&](const custom::Request& r) { return dispatch::plan(impl.rows, context.state(), r); });
}

std::optional<std::string> CustomKernel::why_unsupported(Context& context,
                                                         const std::string& implementation,
                                                         const std::vector<View>& inputs,
                                                         const CustomOptions& options) const {
  const auto& impl = custom::known(impl_);
  auto& state = context.state();  // throws where it was moved from
  dispatch::select_rows(impl.rows, {implementation});
  try {
    return custom::with_checked(impl, context, inputs, {}, options, arguments::Form::question,
                                [&](const custom::Request& r) {
                                  return dispatch::why_unsupported(impl.rows, state, r,
                                                                   implementation);
                                });
  } catch (const Error& error) {
    return error.what();  // a call that is wrong in itself is served by none
  }
}

std::vector<TensorSpec> CustomKernel::shapes(const std::vector<View>& inputs,
                                             const CustomOptions& options) const {
  const auto& impl = custom::known(impl_);
  return dispatch::guarded(impl.kernel.name.c_str(), [&] {
    return custom::describe_call(impl.kernel, inputs, options).call.outputs;
  });
}

std::vector<ImplementationInfo> CustomKernel::implementations() const {
  return dispatch::list(custom::known(impl_).rows);
}

const std::string& CustomKernel::name() const { return custom::known(impl_).kernel.name; }

}  // namespace tessera
