// SPDX-License-Identifier: Apache-2.0
#include "python/src/arrays.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <string_view>
#include <utility>

#include "python/src/errors.hpp"

namespace tessera::python {
namespace {

constexpr const char* known_types = "float32, float16, ml_dtypes.bfloat16, int32 or int64";

/// The type of what the buffer protocol calls `format`, of so many bytes.
std::optional<DType> type_of_format(const char* format, Py_ssize_t bytes) {
  if (format == nullptr) return std::nullopt;
  if (*format == '<' || *format == '=' || *format == '@') ++format;
  if (*format == '\0' || format[1] != '\0') return std::nullopt;
  switch (*format) {
    case 'f':
      return DType::f32;
    case 'e':
      return DType::f16;
    case 'i':
    case 'l':
    case 'q':
      return bytes == 4   ? std::optional(DType::i32)
             : bytes == 8 ? std::optional(DType::i64)
                          : std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<DType> type_of(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  if (type.lanes != 1) return std::nullopt;
  const auto is = [&](Code code, int bits) {
    return type.code == static_cast<std::uint8_t>(code) && type.bits == bits;
  };
  if (is(Code::Float, 32)) return DType::f32;
  if (is(Code::Float, 16)) return DType::f16;
  if (is(Code::Bfloat, 16)) return DType::bf16;
  if (is(Code::Int, 32)) return DType::i32;
  if (is(Code::Int, 64)) return DType::i64;
  return std::nullopt;
}

/// What the array's own library calls its type.
std::string type_name(PyObject* object) {
  const nb::object dtype = nb::getattr(nb::handle(object), "dtype", nb::none());
  return dtype.is_none() ? type_text(object) : nb::str(dtype).c_str();
}

[[noreturn]] void raise_type(const char* name, PyObject* object) {
  raise(PyExc_TypeError, std::string(name) + " has elements of type " + type_name(object) +
                             "; give native " + known_types);
}

[[noreturn]] void raise_no_array(const char* name, PyObject* object) {
  raise(PyExc_TypeError,
        std::string(name) + " is a " + type_text(object) +
            "; give a numpy array, anything with __dlpack__ on the CPU, or tessera.from_cl_mem");
}

[[noreturn]] void raise_read_only(const char* name, PyObject* object) {
  raise(PyExc_TypeError, std::string(name) + " is a " + type_text(object) +
                             " that may not be written; give a writable numpy array or a "
                             "torch.Tensor");
}

bool is_bfloat16(PyObject* object) {
  const nb::object dtype = nb::getattr(nb::handle(object), "dtype", nb::none());
  const nb::object name = nb::getattr(dtype, "name", nb::none());
  return nb::isinstance<nb::str>(name) && std::string_view(nb::str(name).c_str()) == "bfloat16";
}

/// The name of the module that the type is of begins with `package`.
bool is_of(PyObject* object, std::string_view package) {
  const nb::object module = nb::getattr(nb::handle(object).type(), "__module__", nb::none());
  return nb::isinstance<nb::str>(module) &&
         std::string_view(nb::str(module).c_str()).starts_with(package);
}

/// numpy's dtype for bf16; nothing where ml_dtypes is not installed.
nb::object bfloat16_type() {
  try {
    return nb::module_::import_("ml_dtypes").attr("bfloat16");
  } catch (const nb::python_error&) {
    return nb::none();
  }
}

nb::dlpack::dtype dlpack_of(DType type) {
  switch (type) {
    case DType::f32:
      return nb::dtype<float>();
    case DType::i32:
      return nb::dtype<std::int32_t>();
    case DType::i64:
      return nb::dtype<std::int64_t>();
    case DType::f16:
      return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    case DType::bf16:  // numpy has no such type
      break;
  }
  return nb::dtype<std::uint16_t>();
}

std::vector<std::int64_t> as_vector(const Dims& dims) { return {dims.begin(), dims.end()}; }

}  // namespace

Borrowed::~Borrowed() {
  for (std::size_t i = 0; i < count_; ++i) PyBuffer_Release(&buffers_[i]);
}

MutableView Borrowed::take_buffer(const char* name, PyObject* object, bool writable) {
  if (count_ == buffers_.size()) raise(PyExc_ValueError, "a call has at most 40 arrays");
  Py_buffer& buffer = buffers_[count_];
  const int flags = PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
  std::optional<DType> type;
  if (PyObject_GetBuffer(object, &buffer, flags) == 0) {
    ++count_;
    type = type_of_format(buffer.format, buffer.itemsize);
  } else {
    PyErr_Clear();
    // numpy has no word for ml_dtypes' bfloat16 in a buffer's format.
    if (is_bfloat16(object)) {
      kept_.push_back(nb::handle(object).attr("view")("uint16"));
      if (PyObject_GetBuffer(kept_.back().ptr(), &buffer, flags) == 0) {
        ++count_;
        type = DType::bf16;
      } else {
        PyErr_Clear();
      }
    }
    if (!type && writable) raise_read_only(name, object);
  }
  if (!type) raise_type(name, object);
  const auto rank = static_cast<std::size_t>(buffer.ndim);
  if (rank > static_cast<std::size_t>(Dims::max_rank)) {
    raise(PyExc_ValueError,
          std::string(name) + " has " + std::to_string(rank) + " axes, the limit is 8; reshape it");
  }
  Dims extents, strides;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    extents.push_back(buffer.shape[axis]);
    if (buffer.strides[axis] % buffer.itemsize != 0) {
      raise(PyExc_ValueError, std::string(name) + " has a stride of " +
                                  std::to_string(buffer.strides[axis]) +
                                  " bytes between elements "
                                  "of " +
                                  std::to_string(buffer.itemsize) + "; copy it first");
    }
    strides.push_back(buffer.strides[axis] / buffer.itemsize);
  }
  return MutableView::host(buffer.buf, *type, extents, strides);
}

template <class Array>
MutableView Borrowed::take_dlpack(const char* name, PyObject* object) {
  const nb::handle handle(object);
  if (nb::hasattr(handle, "__dlpack_device__")) {
    const auto device = nb::cast<nb::tuple>(handle.attr("__dlpack_device__")());
    constexpr int dlpack_cpu = 1;
    if (nb::cast<int>(device[0]) != dlpack_cpu) {
      const nb::object where = nb::getattr(handle, "device", nb::str("another device"));
      raise(PyExc_TypeError, std::string(name) + " lies on " + nb::str(where).c_str() +
                                 "; copy it to the CPU first");
    }
  }
  Array array;
  if (!nb::try_cast(handle, array)) {
    handle.attr("__dlpack__")();  // throws its own words where it refuses
    raise_type(name, object);
  }
  const auto type = type_of(array.dtype());
  if (!type) raise_type(name, object);
  if (array.ndim() > static_cast<std::size_t>(Dims::max_rank)) {
    raise(PyExc_ValueError, std::string(name) + " has " + std::to_string(array.ndim()) +
                                " axes, the limit is 8; reshape it");
  }
  Dims extents, strides;
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
    extents.push_back(static_cast<std::int64_t>(array.shape(axis)));
    strides.push_back(array.stride(axis));
  }
  imported_.emplace_back(array);
  return MutableView::host(const_cast<void*>(static_cast<const void*>(array.data())), *type,
                           extents, strides);
}

View Borrowed::input(const char* name, PyObject* object) {
  if (PyObject_CheckBuffer(object)) return take_buffer(name, object, false);
  if (ArraySpec* spec = nullptr; nb::try_cast(nb::handle(object), spec) && spec != nullptr) {
    return spec->view;
  }
  if (nb::hasattr(nb::handle(object), "__dlpack__")) {
    return take_dlpack<nb::ndarray<nb::ro>>(name, object);
  }
  raise_no_array(name, object);
}

View Borrowed::input_or_number(const char* name, PyObject* object) {
  if (!PyFloat_CheckExact(object) && !PyLong_CheckExact(object)) return input(name, object);
  const double value = PyFloat_AsDouble(object);
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  float& kept = numbers_.at(number_count_++);
  kept = static_cast<float>(value);
  return View::host(&kept, Dims());
}

MutableView Borrowed::output(const char* name, PyObject* object) {
  if (PyObject_CheckBuffer(object)) return take_buffer(name, object, true);
  if (ArraySpec* spec = nullptr; nb::try_cast(nb::handle(object), spec) && spec != nullptr) {
    return spec->view;
  }
  // DLPack cannot say that JAX's arrays are immutable, so writing goes by the type.
  if (is_of(object, "torch")) return take_dlpack<nb::ndarray<>>(name, object);
  if (nb::hasattr(nb::handle(object), "__dlpack__")) raise_read_only(name, object);
  raise_no_array(name, object);
}

DType parse_dtype(const char* argument, nb::handle given) {
  nb::object named = nb::borrow(given);
  if (!nb::isinstance<nb::str>(named)) {
    named = nb::getattr(named, "name", nb::getattr(named, "__name__", nb::str(named)));
  }
  const std::string_view name = nb::str(named).c_str();
  constexpr std::array<std::pair<const char*, DType>, 5> long_names = {{{"float32", DType::f32},
                                                                        {"bfloat16", DType::bf16},
                                                                        {"float16", DType::f16},
                                                                        {"int32", DType::i32},
                                                                        {"int64", DType::i64}}};
  for (const auto& [known, type] : long_names) {
    if (name == known || name == to_string(type)) return type;
  }
  raise(PyExc_TypeError, std::string(argument) + " is " + std::string(name) + "; give " +
                             "float32, bfloat16, float16, int32 or int64");
}

nb::object to_numpy(HostTensor&& tensor, Exchanged axes) {
  auto* owned = new HostTensor(std::move(tensor));
  const nb::capsule owner(owned,
                          [](void* held) noexcept { delete static_cast<HostTensor*>(held); });
  const auto rank = static_cast<std::size_t>(owned->extents().rank());
  std::array<std::size_t, Dims::max_rank> shape{};
  std::array<std::int64_t, Dims::max_rank> strides{};
  for (std::size_t axis = 0; axis < rank; ++axis) {
    shape[axis] = static_cast<std::size_t>(owned->extents()[static_cast<int>(axis)]);
    strides[axis] = owned->strides()[static_cast<int>(axis)];
  }
  const auto [a, b] = axes;
  std::swap(shape[static_cast<std::size_t>(a)], shape[static_cast<std::size_t>(b)]);
  std::swap(strides[static_cast<std::size_t>(a)], strides[static_cast<std::size_t>(b)]);
  const DType type = owned->dtype();
  // An array without elements has a pointer all the same.
  static float nothing;
  void* data = owned->size() > 0 ? owned->data() : &nothing;
  nb::object array = nb::cast(
      nb::ndarray<nb::numpy>(data, rank, shape.data(), owner, strides.data(), dlpack_of(type)));
  if (type == DType::bf16) {
    if (const nb::object bfloat16 = bfloat16_type(); !bfloat16.is_none()) {
      return array.attr("view")(bfloat16);
    }
  }
  return array;
}

void bind_arrays(nb::module_& m) {
  nb::class_<ArraySpec>(m, "ArraySpec",
                        "A shape and type without memory, for questions such as `plan`, or OpenCL "
                        "memory (`from_cl_mem`).")
      .def(
          "__init__",
          [](ArraySpec* self, const std::vector<std::int64_t>& shape, nb::handle dtype,
             const std::optional<std::vector<std::int64_t>>& strides) {
            new (self) ArraySpec{MutableView::host(nullptr, parse_dtype("dtype", dtype), shape,
                                                   strides ? Dims(*strides) : Dims())};
          },
          nb::arg("shape"), nb::arg("dtype") = "float32", nb::arg("strides") = nb::none(),
          "An array of this shape, dense or with strides in elements; it has no memory.")
      .def_prop_ro("shape", [](const ArraySpec& a) { return as_vector(a.view.extents()); })
      .def_prop_ro(
          "strides", [](const ArraySpec& a) { return as_vector(a.view.strides()); }, "In elements.")
      .def_prop_ro("dtype", [](const ArraySpec& a) { return to_string(a.view.dtype()); })
      .def("__repr__", [](const ArraySpec& a) {
        std::string text = "tessera.ArraySpec([";
        for (int i = 0; i < a.view.rank(); ++i) {
          text += (i == 0 ? "" : ", ") + std::to_string(a.view.extents()[i]);
        }
        return text + "], " + to_string(a.view.dtype()) + (a.view.is_device() ? ", cl_mem)" : ")");
      });
  m.def(
      "from_cl_mem",
      [](std::uintptr_t handle, const std::vector<std::int64_t>& shape, nb::handle dtype,
         std::int64_t offset, const std::optional<std::vector<std::int64_t>>& strides) {
        return ArraySpec{MutableView::device(reinterpret_cast<cl_mem>(handle), offset,
                                             parse_dtype("dtype", dtype), shape,
                                             strides ? Dims(*strides) : Dims())};
      },
      nb::arg("handle"), nb::arg("shape"), nb::arg("dtype") = "float32", nb::arg("offset") = 0,
      nb::arg("strides") = nb::none(),
      "An array in OpenCL memory: `handle` is the cl_mem as an integer (pyopencl: "
      "`buffer.int_ptr`), `offset` is in bytes, strides are in elements. The caller keeps the "
      "memory alive. For calls of a Context on the same cl_context (`Context.from_queue`).");
}

}  // namespace tessera::python
