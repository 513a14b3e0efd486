// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "host/operators/call.hpp"
#include "python/src/arrays.hpp"

namespace tessera::python {

namespace nb = nanobind;

/// What a Python call was given, bound to a call of the library.
struct PythonCall {
  PythonCall(const operators::Description& of, Pass pass) : op(of), call(of, pass) {}

  const operators::Description& op;
  operators::Call call;
  Borrowed borrowed;
  nb::handle context;
  nb::handle out;
  /// True at the place of a weight that was given as [V, H].
  std::array<bool, decltype(operators::Call::inputs)::max_count> transposed{};
  bool tokens_first = false;  ///< of arrays with heads: given as [..., tokens, heads, depth]

  /// The axes that stand in the other order in Python's array of this rank.
  Exchanged exchanged_of_input(std::size_t input, int rank) const;
  Exchanged exchanged_of_output(std::size_t output, int rank) const;
};

/// The names of an operator's arguments in Python, made from its description: its inputs, the first
/// of which may be given by place, its options, and what every call takes.
class Signature {
 public:
  explicit Signature(const operators::Description& op);

  const operators::Description& op() const noexcept { return *op_; }
  /// Binds the arguments behind the first `skip`. Throws a Python exception.
  void bind(PythonCall& to, const nb::args& places, std::size_t skip,
            const nb::kwargs& names) const;
  /// "def forward(x: Any, w: Any, labels: Any | None = None, *, bias: Any | None = None, ...)"
  std::string text(const std::string& function, const char* first = "") const;
  std::string doc(Pass pass) const;

 private:
  enum class Kind {
    input,
    weight_layout,
    heads_layout,
    option,
    wants,
    out,
    accumulate,
    context,
    implementation,
    block_sizes,
    knobs,
    workspace_bytes,
    workspace,
    queue
  };
  struct Slot {
    Kind kind;
    std::size_t at;  ///< of the input or option
  };
  struct Given;

  void add_names();
  void take(Given& given, PythonCall& to, std::string_view name, const Slot& slot,
            nb::handle value) const;
  void bind_inputs(const Given& given, PythonCall& to) const;
  bool has_heads() const;
  void check_layout(const PythonCall& call, std::size_t weight) const;
  void bind_results(const Given& given, PythonCall& to) const;
  void bind_out(PythonCall& to) const;
  void bind_accumulate(nb::handle given, PythonCall& to) const;
  [[noreturn]] void fail_name(const PythonCall& to, const std::string& name) const;

  const operators::Description* op_;
  std::vector<std::size_t> by_place_;  ///< the inputs that may be given by place
  std::vector<std::string> layouts_;   ///< "w_layout" at the place of w
  std::vector<std::string> order_;     ///< all names, as a signature has them
  std::unordered_map<std::string_view, Slot> slots_;
};

/// Adds a module for each operator, with its passes and questions.
void bind_operators(nb::module_& m);

/// The pass of that name; throws ValueError with those that the operator has.
Pass parse_pass(const operators::Description& op, nb::handle name);

}  // namespace tessera::python
