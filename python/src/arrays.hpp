// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/view.hpp"

namespace tessera::python {

namespace nb = nanobind;

/// An array that Python has no object of: OpenCL memory, or a shape without memory for questions.
struct ArraySpec {
  MutableView view;
};

/// Adds the classes of arrays.
void bind_arrays(nb::module_& m);

/// Views of Python's arrays, which stay where they are and alive as long as this object.
class Borrowed {
 public:
  Borrowed() = default;
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed();

  /// `name` is for messages. Throws TypeError for what is no array of a type that a View has.
  View input(const char* name, PyObject* object);
  /// Also a Python number, as an f32 without axes.
  View input_or_number(const char* name, PyObject* object);
  /// A writable array; throws TypeError for one that is not, such as JAX's.
  MutableView output(const char* name, PyObject* object);

 private:
  MutableView take_buffer(const char* name, PyObject* object, bool writable);
  template <class Array>
  MutableView take_dlpack(const char* name, PyObject* object);

  std::array<Py_buffer, 40> buffers_;  ///< more than a call has arrays
  std::size_t count_ = 0;
  std::array<float, 4> numbers_{};
  std::size_t number_count_ = 0;
  std::vector<nb::object> kept_;
  std::vector<nb::ndarray<>> imported_;
};

/// The type of that name: "f32", "float32", "bf16" ...; or what numpy's dtype of it is called.
/// Throws TypeError, which names `argument`.
DType parse_dtype(const char* argument, nb::handle given);

/// Two axes of an array that Python has in the other order than the library; the same: none.
using Exchanged = std::pair<int, int>;

template <class AnyView>
AnyView exchanged(const AnyView& view, Exchanged axes) {
  if (axes.first == axes.second) return view;
  Dims extents = view.extents(), strides = view.strides();
  std::swap(extents[axes.first], extents[axes.second]);
  std::swap(strides[axes.first], strides[axes.second]);
  return view.reshaped(extents, strides);
}

/// A numpy array that owns the tensor; bf16 as ml_dtypes.bfloat16, or where that is not installed
/// as uint16.
nb::object to_numpy(HostTensor&& tensor, Exchanged axes = {});

}  // namespace tessera::python
