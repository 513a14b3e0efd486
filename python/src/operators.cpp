// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <string>

#include "python/src/calls.hpp"
#include "python/src/context.hpp"
#include "python/src/errors.hpp"
#include "python/src/partial.hpp"
#include "python/src/reports.hpp"
#include "python/src/result.hpp"

namespace tessera::python {
namespace {

using operators::Description;

/// Texts that modules keep pointers to.
const char* kept(std::string text) { return (new std::string(std::move(text)))->c_str(); }

/// Calls `work` without the GIL. An error about shapes says which order of axes it writes.
template <class Work>
auto run(const PythonCall& bound, const Work& work) {
  try {
    return without_gil(work);
  } catch (const Error& error) {
    const std::string text = error.what();
    if (!bound.tokens_first || text.find(" shape ") == std::string::npos) throw;
    throw Error(error.code(),
                text + " (shapes are written with heads before tokens, also with layout='bshd')");
  }
}

Result run_owned(Context& context, PythonCall& bound) {
  const Description& op = bound.op;
  auto owned = run(bound, [&] { return operators::run_owned(context, std::move(bound.call)); });
  const auto array = [](HostTensor& tensor, Exchanged axes) {
    return tensor ? to_numpy(std::move(tensor), axes) : nb::none();
  };
  Result result(std::move(owned.dispatch));
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    auto& tensor = owned.outputs[i];
    result.add(op.outputs[i].name,
               array(tensor, bound.exchanged_of_output(i, tensor.extents().rank())));
  }
  for (std::size_t i = 0; i < op.gradients.size(); ++i) {
    auto& tensor = owned.gradients[i];
    const std::size_t of = op.gradients[i].of;
    result.add(op.gradients[i].name,
               array(tensor, bound.exchanged_of_input(of, tensor.extents().rank())));
  }
  return result;
}

Result run_into(Context& context, PythonCall& bound) {
  const Description& op = bound.op;
  Result result(run(bound, [&] {
    auto completion = operators::run(context, std::move(bound.call));
    completion.wait();
    return completion.dispatch();
  }));
  const auto given = nb::cast<nb::dict>(bound.out);
  const auto add = [&](const char* name) {
    result.add(name, given.contains(name) ? nb::object(given[name]) : nb::none());
  };
  for (const auto& output : op.outputs) add(output.name);
  for (const auto& gradient : op.gradients) add(gradient.name);
  return result;
}

void bind_pass(nb::module_& m, const Signature& signature, Pass pass) {
  const char* name = to_string(pass);
  m.def(
      name,
      [&signature, pass](const nb::args& places, const nb::kwargs& names) {
        PythonCall bound(signature.op(), pass);
        signature.bind(bound, places, 0, names);
        Context context = context_of(bound.context);
        return bound.out.is_valid() ? run_into(context, bound) : run_owned(context, bound);
      },
      nb::sig(kept(signature.text(name) + " -> Result")), kept(signature.doc(pass)));
}

/// Binds a question: a function of a pass and of what the pass would be given.
template <class Ask>
void bind_question(nb::module_& m, const Signature& signature, const char* name, const char* first,
                   const char* returns, const char* doc, const Ask& ask) {
  const std::size_t own = std::string_view(first).find(',') == std::string_view::npos ? 1 : 2;
  m.def(
      name,
      [&signature, ask, own, name](const nb::args& places, const nb::kwargs& names) {
        if (places.size() < own) {
          raise(PyExc_TypeError, std::string(signature.op().name) + "." + name +
                                     (own == 1 ? " takes the name of a pass first"
                                               : " takes the names of an implementation and of a "
                                                 "pass first"));
        }
        PythonCall bound(signature.op(), parse_pass(signature.op(), places[own - 1]));
        signature.bind(bound, places, own, names);
        Context context = context_of(bound.context);
        std::string implementation;
        if (own == 2) {
          if (!nb::isinstance<nb::str>(places[0])) {
            raise(PyExc_TypeError, std::string("implementation is ") + nb::repr(places[0]).c_str() +
                                       "; give a name");
          }
          implementation = nb::cast<std::string>(nb::object(places[0]));
        }
        return run(bound, [&] { return ask(context, implementation, std::move(bound.call)); });
      },
      nb::sig(kept(signature.text(name, first) + " -> " + returns)), doc);
}

void bind_questions(nb::module_& m, const Signature& signature) {
  bind_question(m, signature, "plan", "pass_name: str", "Plan",
                "What the call would use, with which blocks, and why; compiles what it needs. "
                "Arrays may be `ArraySpec`s.",
                [](Context& context, const std::string&, operators::Call&& call) {
                  return operators::plan(context, std::move(call));
                });
  bind_question(m, signature, "cost_estimate", "pass_name: str", "CostEstimate",
                "What the call costs by its shapes and types; runs and compiles nothing. Arrays "
                "may be `ArraySpec`s.",
                [](Context& context, const std::string&, operators::Call&& call) {
                  return operators::cost_estimate(context, std::move(call));
                });
  bind_question(m, signature, "why_unsupported", "implementation: str, pass_name: str",
                "str | None",
                "Why the implementation would not serve the call; None: it would. Compiles "
                "nothing. Arrays may be `ArraySpec`s.",
                [](Context& context, const std::string& implementation, operators::Call&& call) {
                  return operators::why_unsupported(context, implementation, std::move(call));
                });
  m.def(
      "infer_block_sizes",
      [&signature](const std::string& implementation, nb::handle pass_name, const nb::args& places,
                   const nb::kwargs& names) {
        PythonCall bound(signature.op(), parse_pass(signature.op(), pass_name));
        signature.bind(bound, places, 0, names);
        Context context = context_of(bound.context);
        const auto [blocks, source] = run(bound, [&] {
          return operators::infer_block_sizes(context, implementation, std::move(bound.call));
        });
        return nb::make_tuple(to_dict(blocks), to_string(source));
      },
      nb::sig(kept(signature.text("infer_block_sizes", "implementation: str, pass_name: str") +
                   " -> tuple[dict[str, int], str]")),
      "Block sizes that the implementation would choose, and where they come from.");
  m.def(
      "implementations",
      [&signature] {
        nb::list all;
        for (const auto& info : signature.op().implementations()) {
          nb::dict each;
          each["name"] = info.name;
          each["description"] = info.description;
          each["by_default"] = info.by_default;
          all.append(each);
        }
        return all;
      },
      nb::sig("def implementations() -> list[dict]"),
      "What is compiled in, in the order in which it is tried.");
}

/// For tessera.torch: of each operator the shapes of its inputs by name, without weights, which
/// PyTorch has turned, and of its outputs, with whether they have the type of the first input, and
/// whether they lie in memory as that does.
nb::dict shapes() {
  nb::dict all;
  for (const auto& op : operators::descriptions()) {
    nb::dict inputs, outputs;
    for (const auto& input : op.inputs) {
      if (!input.is_weight()) inputs[input.name] = input.shape.text();
    }
    for (const auto& output : op.outputs) {
      outputs[output.name] =
          nb::make_tuple(output.shape.text(), output.types == ElementTypes::floating,
                         output.layout == Layout::heads);
    }
    all[op.name] = nb::make_tuple(inputs, outputs);
  }
  return all;
}

const char* or_tokens_first(Layout layout) {
  return layout == Layout::heads ? ", or its axes -3 and -2 exchanged with layout='bshd'" : "";
}

std::string listed(std::string text, const std::string& name, const char* shape) {
  return std::move(text) + "\n    " + name + ": " + shape;
}

}  // namespace

std::string Signature::doc(Pass pass) const {
  std::string text = std::string(op_->name) + ", " + to_string(pass) + ".\n\n";
  text +=
      "Arrays are numpy's (float32, float16, ml_dtypes.bfloat16; int32 or int64 where indices "
      "are meant) or anything with __dlpack__ on the CPU. Nothing is copied, and strides are "
      "taken as they are.\n\nInputs:";
  for (std::size_t i = 0; i < op_->inputs.size(); ++i) {
    if (!reads_in(pass, op_->inputs[i].reads)) continue;
    const std::string or_turned =
        layouts_[i].empty() ? "" : ", or turned with " + layouts_[i] + "='vh'";
    text = listed(std::move(text), op_->inputs[i].name, op_->inputs[i].shape.text()) + or_turned +
           or_tokens_first(op_->inputs[i].layout);
  }
  if (pass != Pass::forward_partial) {
    text +=
        "\n\nResults (`wants` names those beside the usual ones, or `out` maps names to "
        "writable arrays; `accumulate` names gradients that are added to theirs):";
    for (const auto& output : op_->outputs) {
      if (pass == Pass::backward) continue;
      text = listed(std::move(text), output.name, output.shape.text()) +
             or_tokens_first(output.layout);
    }
    for (const auto& gradient : op_->gradients) {
      if (has_gradients(pass)) {
        text = listed(std::move(text), gradient.name,
                      kept(std::string("the shape of ") + op_->inputs[gradient.of].name));
      }
    }
  }
  text += "\n\nOptions:";
  for (const auto& option : op_->options) {
    text = listed(std::move(text), option.name, option.help);
  }
  return text;
}

void bind_operators(nb::module_& m) {
  nb::list names;
  for (const auto& op : operators::descriptions()) {
    // Functions keep it as long as the process lives.
    const auto& signature = *new Signature(op);
    nb::module_ of = m.def_submodule(op.name);
    for (const Pass pass : op.passes) {
      if (pass == Pass::forward_partial) {
        bind_partial(of, signature);
      } else {
        bind_pass(of, signature, pass);
      }
    }
    bind_questions(of, signature);
    names.append(op.name);
  }
  m.attr("operators") = nb::tuple(names);
  m.def("_shapes", &shapes);
}

}  // namespace tessera::python
