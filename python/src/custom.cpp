// SPDX-License-Identifier: Apache-2.0
#include "python/src/custom.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "python/src/arrays.hpp"
#include "python/src/context.hpp"
#include "python/src/errors.hpp"
#include "python/src/reports.hpp"
#include "tessera/custom_kernel.hpp"

namespace tessera::python {
namespace {

/// A callable of Python that the library may keep, copy and drop without the GIL.
std::shared_ptr<nb::object> held(nb::handle callable) {
  return {new nb::object(nb::borrow(callable)), [](nb::object* object) {
            nb::gil_scoped_acquire gil;
            delete object;
          }};
}

/// Calls Python from within a call that has released the GIL. What Python throws becomes an Error,
/// since the library hands on what a kernel's functions throw by its text.
template <class Use>
auto with_gil(const Use& use) {
  nb::gil_scoped_acquire gil;
  try {
    return use();
  } catch (const nb::python_error& error) {
    throw Error(ErrorCode::invalid_argument,
                std::string(nb::str(error.type().attr("__name__")).c_str()) + ": " +
                    nb::str(error.value()).c_str());
  }
}

ArraySpec as_spec(const TensorSpec& spec) {
  return {MutableView::host(nullptr, spec.dtype(), spec.extents())};
}

/// An ArraySpec, or anything with a shape and a dtype.
TensorSpec parse_spec(const char* argument, nb::handle given) {
  if (const ArraySpec* spec = nullptr; nb::try_cast(given, spec) && spec != nullptr) {
    return {spec->view.extents(), spec->view.dtype()};
  }
  const nb::object shape = nb::getattr(given, "shape", nb::none());
  std::vector<std::int64_t> extents;
  if (shape.is_none() || !nb::try_cast(shape, extents)) {
    raise(PyExc_TypeError, std::string(argument) + " has a " + type_text(given) +
                               "; give tessera.ArraySpec(shape, dtype)");
  }
  return {extents, parse_dtype(argument, nb::getattr(given, "dtype", nb::none()))};
}

std::vector<TensorSpec> parse_specs(const char* argument, nb::handle given) {
  std::vector<TensorSpec> specs;
  // One output needs no list.
  if (!nb::isinstance<nb::list>(given) && !nb::isinstance<nb::tuple>(given)) {
    return {parse_spec(argument, given)};
  }
  for (nb::handle each : given) specs.push_back(parse_spec(argument, each));
  return specs;
}

std::vector<nb::object> items_of(const char* argument, nb::handle given) {
  std::vector<nb::object> items;
  if (given.is_none()) return items;
  if (!nb::isinstance<nb::list>(given) && !nb::isinstance<nb::tuple>(given)) {
    raise(PyExc_TypeError,
          std::string(argument) + " is a " + type_text(given) + "; give a list or a tuple");
  }
  for (nb::handle each : given) items.push_back(nb::borrow(each));
  return items;
}

/// {"name": standard} or {"name": (standard, least, most)}.
std::vector<KernelNumber> parse_numbers(const char* argument, nb::handle given) {
  std::vector<KernelNumber> numbers;
  if (given.is_none()) return numbers;
  nb::dict items;
  if (!nb::try_cast(given, items)) {
    raise(PyExc_TypeError, std::string(argument) + " is a " + type_text(given) +
                               "; give a dict of names and standard values");
  }
  for (const auto& [name, value] : items) {
    KernelNumber number{.name = nb::str(name).c_str()};
    std::vector<std::int64_t> limits;
    if (nb::try_cast(value, number.standard)) {
      number.least = std::min<std::int64_t>(1, number.standard);
    } else if (nb::try_cast(value, limits) && limits.size() == 3) {
      number.standard = limits[0];
      number.least = limits[1];
      number.most = limits[2];
    } else {
      raise(PyExc_TypeError, std::string(argument) + "['" + number.name + "'] is " +
                                 nb::repr(value).c_str() +
                                 "; give a standard value, or (standard, least, most)");
    }
    numbers.push_back(std::move(number));
  }
  return numbers;
}

/// A Python int is a kernel's long and a float its float; an int is told by numpy.int32.
KernelScalar parse_scalar(nb::handle given) {
  const nb::object dtype = nb::getattr(given, "dtype", nb::none());
  if (!dtype.is_none()) {
    switch (parse_dtype("scalars", dtype)) {
      case DType::i32:
        return nb::cast<std::int32_t>(nb::int_(nb::borrow(given)));
      case DType::i64:
        return nb::cast<std::int64_t>(nb::int_(nb::borrow(given)));
      default:
        return static_cast<float>(nb::cast<double>(nb::float_(nb::borrow(given))));
    }
  }
  if (PyFloat_Check(given.ptr())) return static_cast<float>(nb::cast<double>(given));
  std::int64_t integer = 0;
  if (PyBool_Check(given.ptr()) || !nb::try_cast(given, integer)) {
    raise(PyExc_TypeError, std::string("scalars has ") + nb::repr(given).c_str() +
                               "; give an int (long), numpy.int32 (int) or a float");
  }
  return integer;
}

KernelArgument parse_argument(nb::handle given) {
  if (const KernelArgument* argument = nullptr;
      nb::try_cast(given, argument) && argument != nullptr) {
    return *argument;
  }
  return parse_scalar(given);
}

std::vector<std::int64_t> parse_extent(const char* argument, nb::handle given) {
  std::int64_t one = 0;
  if (nb::try_cast(given, one)) return {one};
  std::vector<std::int64_t> many;
  if (!nb::try_cast(given, many)) {
    raise(PyExc_TypeError, std::string(argument) + " is " + nb::repr(given).c_str() +
                               "; give an integer or up to three");
  }
  return many;
}

std::vector<nb::object> specs_as_objects(const std::vector<TensorSpec>& specs) {
  std::vector<nb::object> objects;
  for (const auto& spec : specs) objects.push_back(nb::cast(as_spec(spec)));
  return objects;
}

/// A dense copy, which the library keeps.
HostTensor to_tensor(nb::handle array) {
  const nb::object dense = nb::module_::import_("numpy").attr("ascontiguousarray")(array);
  Borrowed borrowed;
  const View view = borrowed.input("host's result", dense.ptr());
  HostTensor tensor(view.dtype(), view.extents());
  if (tensor.size() > 0) {
    std::memcpy(tensor.data(), view.host_data(),
                static_cast<std::size_t>(tensor.size()) * size_of(view.dtype()));
  }
  return tensor;
}

/// A copy for a function of Python, which may keep it.
nb::object to_array(const View& view) {
  HostTensor tensor(view.dtype(), view.extents());
  if (tensor.size() > 0) {
    std::memcpy(tensor.data(), view.host_data(),
                static_cast<std::size_t>(tensor.size()) * size_of(view.dtype()));
  }
  return to_numpy(std::move(tensor));
}

void set_functions(CustomKernelSpec& spec, nb::handle check, nb::handle launches,
                   nb::handle scratch, nb::handle host) {
  if (!check.is_none()) {
    spec.check = [function = held(check)](const KernelCall& call) {
      return with_gil([&] {
        const nb::object why = (*function)(call);
        return why.is_none() ? std::string() : nb::cast<std::string>(why);
      });
    };
  }
  if (!launches.is_none()) {
    spec.launches = [function = held(launches)](const KernelCall& call) {
      return with_gil([&] {
        std::vector<KernelLaunch> all;
        for (const auto& each : items_of("launches", (*function)(call))) {
          const KernelLaunch* launch = nullptr;
          if (!nb::try_cast(each, launch) || launch == nullptr) {
            raise(PyExc_TypeError, "launches has a " + type_text(each) +
                                       "; give tessera.KernelLaunch(entry, global_size)");
          }
          all.push_back(*launch);
        }
        return all;
      });
    };
  }
  if (!scratch.is_none()) {
    spec.scratch = [function = held(scratch)](const KernelCall& call) {
      return with_gil([&] { return parse_specs("scratch", (*function)(call)); });
    };
  }
  if (!host.is_none()) {
    spec.host = [function = held(host)](const std::vector<View>& inputs, const KernelCall& call) {
      return with_gil([&] {
        nb::list arrays;
        for (const auto& view : inputs) arrays.append(to_array(view));
        const nb::object made = (*function)(arrays, call);
        std::vector<HostTensor> outputs;
        if (nb::isinstance<nb::list>(made) || nb::isinstance<nb::tuple>(made)) {
          for (nb::handle each : made) outputs.push_back(to_tensor(each));
        } else {
          outputs.push_back(to_tensor(made));
        }
        return outputs;
      });
    };
  }
}

CustomKernel make_kernel(const std::string& source, const std::string& entry, nb::handle shape,
                         const std::string& name, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs, nb::handle parameters,
                         nb::handle block_sizes, nb::handle knobs, nb::handle check,
                         nb::handle launches, nb::handle scratch, const std::string& build_options,
                         nb::handle host, const std::optional<CustomKernel>& backward) {
  CustomKernelSpec spec;
  spec.source = source;
  spec.entry = entry;
  spec.name = name;
  spec.inputs = inputs;
  spec.outputs = outputs;
  if (PyCallable_Check(shape.ptr()) == 0) {
    raise(PyExc_TypeError, "shape is a " + type_text(shape) +
                               "; give a function from the inputs' specs to the outputs'");
  }
  spec.shape = [function = held(shape)](const KernelInputs& given) {
    return with_gil([&] { return parse_specs("shape's result", (*function)(given)); });
  };
  spec.parameters = parse_numbers("parameters", parameters);
  spec.block_sizes = parse_numbers("block_sizes", block_sizes);
  spec.knobs = parse_numbers("knobs", knobs);
  spec.build_options = build_options;
  set_functions(spec, check, launches, scratch, host);
  if (backward) spec.backward = *backward;
  return CustomKernel(std::move(spec));
}

/// What a call of a kernel was given, beside its inputs.
struct KernelGiven {
  CustomOptions options;
  Borrowed borrowed;
  nb::object context = nb::none();
  nb::object out = nb::none();
  std::vector<nb::object> cotangents;

  explicit KernelGiven(const nb::kwargs& names) {
    for (const auto& [key, value] : names) take(nb::str(key).c_str(), nb::borrow(value));
  }
  std::vector<View> views(const char* what, const std::vector<nb::object>& arrays) {
    std::vector<View> all;
    for (const auto& each : arrays) all.push_back(borrowed.input(what, each.ptr()));
    return all;
  }

 private:
  void take(const std::string& name, nb::object value) {
    if (value.is_none()) return;
    if (name == "context") {
      context = value;
    } else if (name == "out") {
      out = value;
    } else if (name == "cotangents") {
      cotangents = items_of("cotangents", value);
    } else if (name == "scalars") {
      for (const auto& each : items_of("scalars", value)) {
        options.scalars.push_back(parse_scalar(each));
      }
    } else if (name == "parameters") {
      options.parameters = to_named("parameters", value);
    } else if (name == "block_sizes") {
      options.block_sizes = to_named("block_sizes", value);
    } else if (name == "knobs") {
      options.knobs = to_named("knobs", value);
    } else if (name == "implementation") {
      if (nb::isinstance<nb::str>(value)) {
        options.implementation = nb::cast<std::string>(value);
      } else {
        options.implementation = nb::cast<std::vector<std::string>>(value);
      }
    } else if (name == "workspace_bytes") {
      options.workspace_bytes = nb::cast<std::size_t>(value);
    } else {
      raise(PyExc_TypeError, "a kernel's call has no argument '" + name +
                                 "'; it has context, out, cotangents (of backward), scalars, "
                                 "parameters, block_sizes, knobs, implementation, "
                                 "workspace_bytes");
    }
  }
};

/// The outputs of a kernel, by their places.
struct KernelResult {
  std::vector<nb::object> outputs;
  Dispatch dispatch;
};

KernelResult owned(CustomResult&& result) {
  KernelResult made{{}, std::move(result.dispatch)};
  for (auto& tensor : result.outputs) made.outputs.push_back(to_numpy(std::move(tensor)));
  return made;
}

std::vector<nb::object> to_vector(const nb::args& places) {
  std::vector<nb::object> all;
  for (nb::handle each : places) all.push_back(nb::borrow(each));
  return all;
}

KernelResult call_kernel(const CustomKernel& kernel, const nb::args& places,
                         const nb::kwargs& names) {
  KernelGiven given(names);
  if (!given.cotangents.empty()) raise(PyExc_TypeError, "cotangents are for backward alone");
  const auto inputs = given.views("an input", to_vector(places));
  Context context = context_of(given.context);
  if (given.out.is_none()) {
    return owned(without_gil([&] { return kernel(context, inputs, given.options); }));
  }
  const auto out = items_of("out", given.out);
  std::vector<MutableView> outputs;
  for (const auto& each : out) outputs.push_back(given.borrowed.output("out", each.ptr()));
  return {out, without_gil([&] {
            auto completion = kernel.run(context, inputs, outputs, given.options);
            completion.wait();
            return completion.dispatch();
          })};
}

KernelResult call_backward(const CustomKernel& kernel, const nb::args& places,
                           const nb::kwargs& names) {
  KernelGiven given(names);
  if (!given.out.is_none()) raise(PyExc_TypeError, "backward has no out; it returns arrays");
  const auto inputs = given.views("an input", to_vector(places));
  const auto cotangents = given.views("a cotangent", given.cotangents);
  Context context = context_of(given.context);
  return owned(
      without_gil([&] { return kernel.backward(context, inputs, cotangents, given.options); }));
}

void bind_views_of_calls(nb::module_& m) {
  nb::class_<KernelInputs>(m, "KernelInputs", "The inputs of a call as a shape function sees them.")
      .def("__len__", &KernelInputs::size)
      .def("__getitem__",
           [](const KernelInputs& inputs, std::size_t at) {
             if (at >= inputs.size()) raise(PyExc_IndexError, "the call has fewer inputs");
             return as_spec(inputs[at]);
           })
      .def("value", &KernelInputs::value, nb::arg("name"),
           "The value of a parameter, block size or knob.");
  nb::class_<KernelCall>(m, "KernelCall", "What a kernel's functions see of a call.")
      .def_prop_ro("inputs", [](const KernelCall& call) { return call.inputs; })
      .def_prop_ro("outputs", [](const KernelCall& call) { return specs_as_objects(call.outputs); })
      .def_prop_ro("scalars",
                   [](const KernelCall& call) {
                     nb::list all;
                     for (const auto& each : call.scalars) {
                       std::visit([&](auto value) { all.append(value); }, each);
                     }
                     return all;
                   })
      .def_prop_ro("device",
                   [](const KernelCall& call) {
                     return call.device ? std::optional(*call.device) : std::nullopt;
                   })
      .def("value", &KernelCall::value, nb::arg("name"));
  nb::class_<KernelArgument>(m, "KernelArgument", "An entry point's argument.")
      .def_static("input", &KernelArgument::input, nb::arg("at"))
      .def_static("output", &KernelArgument::output, nb::arg("at"))
      .def_static("scratch", &KernelArgument::scratch, nb::arg("at"))
      .def_static("local", &KernelArgument::local, nb::arg("bytes"));
  nb::class_<KernelLaunch>(m, "KernelLaunch", "One launch of an entry point.")
      .def(
          "__init__",
          [](KernelLaunch* self, const std::string& entry, nb::handle global_size,
             nb::handle local_size, nb::handle arguments) {
            KernelLaunch launch{.entry = entry, .global = parse_extent("global_size", global_size)};
            if (!local_size.is_none()) launch.local = parse_extent("local_size", local_size);
            if (!arguments.is_none()) {
              auto& all = launch.arguments.emplace();
              for (const auto& each : items_of("arguments", arguments)) {
                all.push_back(parse_argument(each));
              }
            }
            new (self) KernelLaunch(std::move(launch));
          },
          nb::arg("entry"), nb::arg("global_size"), nb::arg("local_size") = nb::none(),
          nb::arg("arguments") = nb::none(),
          "`arguments`: KernelArguments and numbers in the order of the entry point's parameters; "
          "None: all inputs, outputs, scratch arrays and scalars.");
  nb::class_<KernelResult>(m, "KernelResult", "The outputs of a kernel, and how it ran.")
      .def_ro("outputs", &KernelResult::outputs)
      .def_ro("dispatch", &KernelResult::dispatch)
      .def("__len__", [](const KernelResult& result) { return result.outputs.size(); })
      .def("__getitem__", [](const KernelResult& result, std::size_t at) {
        if (at >= result.outputs.size()) raise(PyExc_IndexError, "the kernel has fewer outputs");
        return result.outputs[at];
      });
}

}  // namespace

void bind_custom(nb::module_& m) {
  bind_views_of_calls(m);
  nb::class_<CustomKernel>(m, "CustomKernel", "An operator made of somebody's kernel.")
      .def("__call__", &call_kernel,
           "Runs on the inputs, given by place, and returns the outputs, or writes `out`.")
      .def("backward", &call_backward,
           "The gradients of the floating inputs, from a cotangent of each output.")
      .def(
          "plan",
          [](const CustomKernel& kernel, const nb::args& places, const nb::kwargs& names) {
            KernelGiven given(names);
            const auto inputs = given.views("an input", to_vector(places));
            Context context = context_of(given.context);
            return without_gil([&] { return kernel.plan(context, inputs, {}, given.options); });
          },
          "What the call would use; compiles it.")
      .def(
          "shapes",
          [](const CustomKernel& kernel, const nb::args& places, const nb::kwargs& names) {
            KernelGiven given(names);
            return specs_as_objects(
                kernel.shapes(given.views("an input", to_vector(places)), given.options));
          },
          "Shapes of the outputs.")
      .def_prop_ro("name", &CustomKernel::name);
  m.def("custom_kernel", &make_kernel, nb::kw_only(), nb::arg("source"), nb::arg("entry") = "",
        nb::arg("shape"), nb::arg("name") = "", nb::arg("inputs") = std::vector<std::string>(),
        nb::arg("outputs") = std::vector<std::string>(), nb::arg("parameters") = nb::none(),
        nb::arg("block_sizes") = nb::none(), nb::arg("knobs") = nb::none(),
        nb::arg("check") = nb::none(), nb::arg("launches") = nb::none(),
        nb::arg("scratch") = nb::none(), nb::arg("build_options") = "",
        nb::arg("host") = nb::none(), nb::arg("backward") = nb::none(),
        "An operator made of OpenCL C of one's own (docs/custom_kernels.md). `shape` maps the "
        "inputs' ArraySpecs to those of the outputs; `check`, `launches` and `scratch` see the "
        "call as a KernelCall; `host(inputs, call)` computes the outputs where there is no "
        "device. Numbers are {'NAME': standard} or {'NAME': (standard, least, most)}.");
}

}  // namespace tessera::python
