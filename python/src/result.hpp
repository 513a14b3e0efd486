// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>
#include <utility>
#include <vector>

#include "tessera/execution.hpp"

namespace tessera::python {

namespace nb = nanobind;

/// What a call returned: arrays by name, as attributes, and how it ran. A name that was not asked
/// for is None.
class Result {
 public:
  explicit Result(Dispatch dispatch) : dispatch_(std::move(dispatch)) {}
  /// `name` must live as long as the library.
  void add(const char* name, nb::object array) { arrays_.emplace_back(name, std::move(array)); }

  const Dispatch& dispatch() const noexcept { return dispatch_; }
  const std::vector<std::pair<const char*, nb::object>>& arrays() const noexcept { return arrays_; }
  /// Throws AttributeError for a name that the operator has no array of.
  nb::object get(std::string_view name) const;

 private:
  std::vector<std::pair<const char*, nb::object>> arrays_;
  Dispatch dispatch_;
};

void bind_result(nb::module_& m);

}  // namespace tessera::python
