// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>

#include "python/src/calls.hpp"
#include "python/src/errors.hpp"
#include "python/src/reports.hpp"

namespace tessera::python {
namespace {

using operators::Description;

/// What every call takes, with its type and default, in the order of Signature::Kind.
constexpr std::array<std::pair<const char*, const char*>, 10> common_names = {{
    {"wants", "str | Iterable[str] | None = None"},
    {"out", "dict[str, Any] | None = None"},
    {"accumulate", "bool | str | Iterable[str] = False"},
    {"context", "Context | None = None"},
    {"implementation", "str | Iterable[str] | None = None"},
    {"block_sizes", "dict[str, int] | None = None"},
    {"knobs", "dict[str, int] | None = None"},
    {"workspace_bytes", "int | None = None"},
    {"workspace", "Any | None = None"},
    {"queue", "int | None = None"},
}};

bool has_place(Reads reads) {
  return reads == Reads::always || reads == Reads::usually || reads == Reads::by_backward;
}

/// The axes that another layout than the library's has exchanged.
Exchanged exchanged_axes(Layout layout, bool transposed, bool tokens_first, int rank) {
  if (layout == Layout::weight && transposed && rank == 2) return {0, 1};
  if (layout == Layout::heads && tokens_first && rank >= 3) return {rank - 3, rank - 2};
  return {0, 0};
}

std::string joined(std::span<const char* const> names) {
  std::string text;
  for (const char* name : names) text += (text.empty() ? "'" : ", '") + std::string(name) + "'";
  return text;
}

OptionValue parse_option(const operators::Option& option, nb::handle value) {
  if (option.kind == OptionKind::dtype) {
    return static_cast<std::int64_t>(parse_dtype(option.name, value));
  }
  if (option.kind == OptionKind::choice) {
    const std::string name = nb::isinstance<nb::str>(value) ? nb::cast<std::string>(value) : "";
    const auto found = std::find(option.choices.begin(), option.choices.end(), name);
    if (found == option.choices.end()) {
      raise(nb::isinstance<nb::str>(value) ? PyExc_ValueError : PyExc_TypeError,
            std::string(option.name) + " is " + nb::repr(value).c_str() + "; give one of " +
                joined(option.choices));
    }
    return static_cast<std::int64_t>(found - option.choices.begin());
  }
  if (PyBool_Check(value.ptr())) {
    raise(PyExc_TypeError, std::string(option.name) + " is a bool; give a number");
  }
  if (option.kind == OptionKind::integer) {
    std::int64_t number = 0;
    if (!PyIndex_Check(value.ptr()) || !nb::try_cast(value, number)) {
      raise(PyExc_TypeError, std::string(option.name) + " is " + nb::repr(value).c_str() +
                                 "; give an integer of 64 bits");
    }
    return number;
  }
  const double number = PyFloat_AsDouble(value.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    raise(PyExc_TypeError,
          std::string(option.name) + " is a " + type_text(value) + "; give a number");
  }
  return static_cast<float>(number);
}

std::string type_of(const operators::Option& option) {
  constexpr const char* types[] = {"float", "int", "str", "Any"};
  return std::string(types[static_cast<int>(option.kind)]) + (option.may_be_unset ? " | None" : "");
}

std::string default_text(const operators::Option& option) {
  if (std::holds_alternative<Unset>(option.standard)) return "None";
  if (const auto* number = std::get_if<float>(&option.standard)) {
    return nb::repr(nb::float_(static_cast<double>(*number))).c_str();
  }
  const auto integer = std::get<std::int64_t>(option.standard);
  if (option.kind == OptionKind::choice) {
    return "'" + std::string(option.choices[static_cast<std::size_t>(integer)]) + "'";
  }
  if (option.kind == OptionKind::dtype) {
    return "'" + std::string(to_string(static_cast<DType>(integer))) + "'";
  }
  return std::to_string(integer);
}

/// True for the layout that is not the library's; each has a name and its axes.
bool is_other(std::string_view name, nb::handle value,
              const std::array<std::pair<const char*, const char*>, 2>& layouts) {
  const auto& [own, other] = layouts;
  const std::string given = nb::isinstance<nb::str>(value) ? nb::cast<std::string>(value) : "";
  if (given != own.first && given != other.first) {
    raise(PyExc_ValueError, std::string(name) + " is " + nb::repr(value).c_str() + "; give '" +
                                own.first + "' for " + own.second + " or '" + other.first +
                                "' for " + other.second);
  }
  return given == other.first;
}

/// The elements of a str, or of an iterable of them.
std::vector<std::string> parse_names(const char* argument, nb::handle given) {
  if (nb::isinstance<nb::str>(given)) return {nb::cast<std::string>(given)};
  std::vector<std::string> names;
  const auto fail = [&](nb::handle what) {
    raise(PyExc_TypeError, std::string(argument) + " has " + nb::repr(what).c_str() +
                               "; give a name or a list of names");
  };
  PyObject* iterator = PyObject_GetIter(given.ptr());
  if (iterator == nullptr) {
    PyErr_Clear();
    fail(given);
  }
  const nb::object all = nb::steal(iterator);
  while (PyObject* next = PyIter_Next(all.ptr())) {
    const nb::object name = nb::steal(next);
    if (!nb::isinstance<nb::str>(name)) fail(name);
    names.push_back(nb::cast<std::string>(name));
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return names;
}

void check_type(const char* name, ElementTypes types, const View& view) {
  if (accepts(types, view.dtype())) return;
  constexpr const char* wanted[] = {"float32, bfloat16 or float16", "int32 or int64", "float32"};
  raise(PyExc_TypeError, std::string(name) + " has elements of type " + to_string(view.dtype()) +
                             "; give " + wanted[static_cast<int>(types)]);
}

template <class All>
std::optional<std::size_t> place_of(const All& all, std::string_view name) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].name == name) return i;
  }
  return std::nullopt;
}

}  // namespace

Exchanged PythonCall::exchanged_of_input(std::size_t input, int rank) const {
  return exchanged_axes(op.inputs[input].layout, transposed[input], tokens_first, rank);
}

Exchanged PythonCall::exchanged_of_output(std::size_t output, int rank) const {
  return exchanged_axes(op.outputs[output].layout, false, tokens_first, rank);
}

/// What stays in Python's hands until all arguments are known.
struct Signature::Given {
  std::array<PyObject*, decltype(operators::Call::inputs)::max_count> inputs{};
  nb::handle wants{};
  nb::handle accumulate{};
};

Signature::Signature(const Description& op) : op_(&op), layouts_(op.inputs.size()) {
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (has_place(op.inputs[i].reads)) by_place_.push_back(i);
    if (op.inputs[i].is_weight()) layouts_[i] = std::string(op.inputs[i].name) + "_layout";
  }
  add_names();
}

void Signature::add_names() {
  const auto add = [&](std::string_view name, Kind kind, std::size_t at, const std::string& text) {
    slots_.emplace(name, Slot{kind, at});
    order_.push_back(text);
  };
  for (const std::size_t i : by_place_) {
    const auto& input = op_->inputs[i];
    // Labels may have something else in their place, and so may a teacher.
    const bool is_first = i == 0 || input.is_operand();
    add(input.name, Kind::input, i,
        input.name + std::string(is_first ? ": Any" : ": Any | None = None"));
  }
  order_.push_back("*");
  for (std::size_t i = 0; i < op_->inputs.size(); ++i) {
    if (std::find(by_place_.begin(), by_place_.end(), i) == by_place_.end()) {
      add(op_->inputs[i].name, Kind::input, i,
          op_->inputs[i].name + std::string(": Any | None = None"));
    }
  }
  for (std::size_t i = 0; i < layouts_.size(); ++i) {
    if (layouts_[i].empty()) continue;
    add(layouts_[i], Kind::weight_layout, i, layouts_[i] + ": str = 'hv'");
  }
  if (has_heads()) add("layout", Kind::heads_layout, 0, "layout: str = 'bhsd'");
  for (std::size_t i = 0; i < op_->options.size(); ++i) {
    const auto& option = op_->options[i];
    add(option.name, Kind::option, i,
        option.name + std::string(": ") + type_of(option) + " = " + default_text(option));
  }
  for (std::size_t i = 0; i < common_names.size(); ++i) {
    const auto& [name, standard] = common_names[i];
    add(name, static_cast<Kind>(static_cast<std::size_t>(Kind::wants) + i), 0,
        name + std::string(": ") + standard);
  }
}

bool Signature::has_heads() const {
  return std::any_of(op_->inputs.begin(), op_->inputs.end(),
                     [](const auto& input) { return input.layout == Layout::heads; });
}

std::string Signature::text(const std::string& function, const char* first) const {
  std::string text = "def " + function + "(" + first;
  for (const auto& each : order_) {
    if (text.back() != '(') text += ", ";
    text += each;
  }
  return text + ")";
}

void Signature::fail_name(const PythonCall& to, const std::string& name) const {
  std::string known;
  for (const auto& each : order_) {
    if (each != "*") known += (known.empty() ? "" : ", ") + each.substr(0, each.find(':'));
  }
  raise(PyExc_TypeError, std::string(op_->name) + "." + to_string(to.call.pass) +
                             "() has no argument '" + name + "'; it has " + known);
}

void Signature::take(Given& given, PythonCall& to, std::string_view name, const Slot& slot,
                     nb::handle value) const {
  auto& call = to.call;
  if (slot.kind == Kind::option) {
    const auto& option = op_->options[slot.at];
    if (!value.is_none()) {
      call.options[slot.at] = parse_option(option, value);
    } else if (option.may_be_unset) {
      call.options[slot.at] = Unset();
    }
    return;
  }
  if (value.is_none()) return;
  switch (slot.kind) {
    case Kind::input:
      if (given.inputs[slot.at] != nullptr) {
        raise(PyExc_TypeError, std::string(name) + " was given twice");
      }
      given.inputs[slot.at] = value.ptr();
      break;
    case Kind::weight_layout:
      to.transposed[slot.at] = is_other(name, value, {{{"hv", "[H, V]"}, {"vh", "[V, H]"}}});
      break;
    case Kind::heads_layout:
      to.tokens_first = is_other(
          name, value,
          {{{"bhsd", "[..., heads, tokens, depth]"}, {"bshd", "[..., tokens, heads, depth]"}}});
      break;
    case Kind::wants:
      given.wants = value;
      break;
    case Kind::out:
      to.out = value;
      break;
    case Kind::accumulate:
      given.accumulate = value;
      break;
    case Kind::context:
      to.context = value;
      break;
    case Kind::implementation:
      call.implementation = parse_names("implementation", value);
      break;
    case Kind::block_sizes: {
      const auto blocks = to_named("block_sizes", value);
      for (const auto& block : blocks) {
        if (!place_of(op_->block_sizes, block.name)) {
          std::string known;
          for (const auto& axis : op_->block_sizes) {
            known += (known.empty() ? "" : ", ") + axis.name;
          }
          raise(PyExc_ValueError, std::string(op_->name) + " has no block size '" + block.name +
                                      "'; it has " + known);
        }
      }
      call.set_block_sizes(blocks);
      break;
    }
    case Kind::knobs:
      call.knobs = to_named("knobs", value);
      break;
    case Kind::workspace_bytes: {
      std::int64_t bytes = 0;
      if (PyBool_Check(value.ptr()) || !nb::try_cast(value, bytes)) {
        raise(PyExc_TypeError,
              std::string("workspace_bytes is ") + nb::repr(value).c_str() + "; give an integer");
      }
      if (bytes < 0) {
        raise(PyExc_ValueError, "workspace_bytes is " + std::to_string(bytes) + "; give 0 or more");
      }
      call.workspace_bytes = static_cast<std::size_t>(bytes);
      break;
    }
    case Kind::workspace:
      call.workspace = to.borrowed.output("workspace", value.ptr());
      break;
    case Kind::queue: {
      std::uintptr_t queue = 0;
      if (!nb::try_cast(value, queue)) {
        raise(PyExc_TypeError, std::string("queue is a ") + type_text(value) +
                                   "; give the cl_command_queue as an integer");
      }
      call.queue = reinterpret_cast<cl_command_queue>(queue);
      break;
    }
    case Kind::option:
      break;
  }
}

void Signature::bind(PythonCall& to, const nb::args& places, std::size_t skip,
                     const nb::kwargs& names) const {
  Given given;
  const std::size_t count = places.size() - skip;
  if (count > by_place_.size()) {
    raise(PyExc_TypeError, std::string(op_->name) + "." + to_string(to.call.pass) + "() takes " +
                               std::to_string(by_place_.size()) + " arguments by place, not " +
                               std::to_string(count) + "; give the others by name");
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!places[skip + i].is_none())
      given.inputs[by_place_[i]] = nb::handle(places[skip + i]).ptr();
  }
  for (const auto& [key, value] : names) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(key.ptr(), &size);
    if (text == nullptr) throw nb::python_error();
    const std::string_view name(text, static_cast<std::size_t>(size));
    const auto slot = slots_.find(name);
    if (slot == slots_.end()) fail_name(to, std::string(name));
    take(given, to, name, slot->second, value);
  }
  bind_inputs(given, to);
  bind_results(given, to);
}

void Signature::bind_inputs(const Given& given, PythonCall& to) const {
  for (std::size_t i = 0; i < op_->inputs.size(); ++i) {
    if (given.inputs[i] == nullptr) continue;
    const auto& input = op_->inputs[i];
    auto& view = to.call.inputs[i];
    view = input.shape.is_reducible() ? to.borrowed.input_or_number(input.name, given.inputs[i])
                                      : to.borrowed.input(input.name, given.inputs[i]);
    check_type(input.name, input.types, view);
    view = exchanged(view, to.exchanged_of_input(i, view.rank()));
  }
  for (std::size_t i = 0; i < op_->inputs.size(); ++i) {
    if (!layouts_[i].empty()) check_layout(to, i);
  }
}

/// The library's message about extents, which has w as [H, V], would mislead where the other layout
/// alone would fit, and of a w that was given as [V, H].
void Signature::check_layout(const PythonCall& to, std::size_t weight) const {
  const View& w = to.call.inputs[weight];
  const SymbolicShape& shape = op_->inputs[weight].shape;
  if (!w || w.rank() != 2) return;
  for (std::size_t i = 0; i < op_->inputs.size(); ++i) {
    const SymbolicShape& other = op_->inputs[i].shape;
    const View& x = to.call.inputs[i];
    if (!x || x.rank() == 0 || !other.has_leading() || other.rank() != 1 ||
        other.axis(0) != shape.axis(0)) {
      continue;
    }
    const std::int64_t h = x.extents().back();
    const bool vh = to.transposed[weight], other_fits = w.extents()[1] == h;
    if (w.extents()[0] == h) return;
    const std::string rows = std::to_string(w.extents()[vh ? 1 : 0]);
    const std::string columns = std::to_string(w.extents()[vh ? 0 : 1]);
    const std::string alone = std::string(vh ? "hv" : "vh") + "' alone, not '" + (vh ? "vh" : "hv");
    raise(PyExc_ValueError, std::string(op_->inputs[weight].name) + " is [" + rows + ", " +
                                columns + "] and the last axis of " + op_->inputs[i].name + " is " +
                                std::to_string(h) + ", which fits " +
                                (other_fits ? "" : "neither ") + layouts_[weight] + "='" +
                                (other_fits ? alone : "vh' nor 'hv") + "'");
  }
}

void Signature::bind_results(const Given& given, PythonCall& to) const {
  auto& call = to.call;
  if (to.out.is_valid()) {
    if (given.wants.is_valid()) {
      raise(PyExc_ValueError, "out and wants are both given; out alone says what is computed");
    }
    bind_out(to);
  } else if (given.wants.is_valid()) {
    bool names_gradient = false;
    Pass pass = call.pass;
    for (const auto& name : parse_names("wants", given.wants)) {
      if (const auto output = place_of(op_->outputs, name);
          output && pass != Pass::backward && pass != Pass::forward_partial) {
        call.wants[*output] = true;
        continue;
      }
      const auto gradient = place_of(op_->gradients, name);
      if (!gradient || !has_gradients(pass)) {
        raise(PyExc_ValueError, std::string("wants has '") + name + "', which " + op_->name + "." +
                                    to_string(pass) + " does not compute");
      }
      if (!names_gradient) {
        for (bool& wanted : call.wants_gradients) wanted = false;
      }
      names_gradient = true;
      call.wants_gradients[*gradient] = true;
    }
  }
  if (given.accumulate.is_valid()) bind_accumulate(given.accumulate, to);
}

void Signature::bind_out(PythonCall& to) const {
  nb::dict arrays;
  if (!nb::try_cast(to.out, arrays)) {
    raise(PyExc_TypeError,
          "out is a " + type_text(to.out) + "; give a dict of names and writable arrays");
  }
  auto& call = to.call;
  for (const auto& [key, array] : arrays) {
    const std::string name = nb::isinstance<nb::str>(key) ? nb::cast<std::string>(key) : "";
    const auto output = place_of(op_->outputs, name);
    const auto gradient = place_of(op_->gradients, name);
    if (output && call.pass != Pass::backward) {
      auto& view = call.outputs[*output];
      view = to.borrowed.output(op_->outputs[*output].name, array.ptr());
      check_type(op_->outputs[*output].name, op_->outputs[*output].types, view);
      view = exchanged(view, to.exchanged_of_output(*output, view.rank()));
    } else if (gradient && has_gradients(call.pass)) {
      auto& view = call.gradients[*gradient];
      view = to.borrowed.output(op_->gradients[*gradient].name, array.ptr());
      check_type(op_->gradients[*gradient].name, ElementTypes::floating, view);
      view = exchanged(view, to.exchanged_of_input(op_->gradients[*gradient].of, view.rank()));
    } else {
      raise(PyExc_ValueError, std::string("out has ") + nb::repr(key).c_str() + ", which " +
                                  op_->name + "." + to_string(call.pass) + " does not write");
    }
  }
}

void Signature::bind_accumulate(nb::handle given, PythonCall& to) const {
  auto& accumulate = to.call.accumulate;
  if (PyBool_Check(given.ptr())) {
    for (bool& each : accumulate) each = given.ptr() == Py_True;
  } else {
    for (const auto& name : parse_names("accumulate", given)) {
      const auto gradient = place_of(op_->gradients, name);
      if (!gradient) {
        raise(PyExc_ValueError,
              "accumulate has '" + name + "', which is no gradient of " + op_->name);
      }
      accumulate[*gradient] = true;
    }
  }
  if (!to.out.is_valid() &&
      std::find(accumulate.begin(), accumulate.end(), true) != accumulate.end()) {
    raise(PyExc_ValueError, "accumulate adds to what out holds; give out");
  }
}

Pass parse_pass(const Description& op, nb::handle name) {
  std::string known;
  for (const Pass pass : op.passes) {
    if (nb::isinstance<nb::str>(name) && nb::cast<std::string>(name) == to_string(pass))
      return pass;
    known += (known.empty() ? "'" : ", '") + std::string(to_string(pass)) + "'";
  }
  raise(PyExc_ValueError,
        std::string("pass_name is ") + nb::repr(name).c_str() + "; " + op.name + " has " + known);
}

}  // namespace tessera::python
