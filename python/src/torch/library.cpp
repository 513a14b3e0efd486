// SPDX-License-Identifier: Apache-2.0
// The operators of the namespace `tessera` of PyTorch, by its stable ABI: C functions of a torch
// from 2.10 on, and nothing of Python. What they compute is the library's; tessera/torch/ops.py has
// their shapes and derivatives.
#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "host/catalog/operators.hpp"
#include "python/src/torch/context.hpp"
#include "python/src/torch/operation.hpp"

namespace tessera::torch_operators {
namespace {

namespace stable = torch::stable::detail;
using Kind = Operation::Kind;

struct Free {
  void operator()(AtenTensorHandle tensor) const { aoti_torch_delete_tensor_object(tensor); }
};
using Tensor = std::unique_ptr<AtenTensorOpaque, Free>;

void check(AOTITorchError error, const char* doing) {
  if (error != TORCH_SUCCESS) throw std::runtime_error(std::string("torch failed at ") + doing);
}

/// PyTorch makes an IndexError of one standard exception and RuntimeErrors of most; so Python is
/// told what the library threw, and makes a tessera.Error of it.
[[noreturn]] void rethrow(const Error& error) {
  keep_error(error);
  if (error.code() == ErrorCode::label_out_of_range) throw std::out_of_range(error.what());
  throw std::runtime_error(error.what());
}

[[noreturn]] void fail(const std::string& message) {
  rethrow(Error(ErrorCode::invalid_argument, message));
}

std::int32_t torch_type(DType type) {
  switch (type) {
    case DType::f32:
      return aoti_torch_dtype_float32();
    case DType::bf16:
      return aoti_torch_dtype_bfloat16();
    case DType::f16:
      return aoti_torch_dtype_float16();
    case DType::i32:
      return aoti_torch_dtype_int32();
    case DType::i64:
      break;
  }
  return aoti_torch_dtype_int64();
}

DType type_of(const char* name, const Tensor& tensor) {
  std::int32_t type = 0;
  check(aoti_torch_get_dtype(tensor.get(), &type), "reading a type");
  for (const DType each : {DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32}) {
    if (torch_type(each) == type) return each;
  }
  fail(std::string(name) +
       " has elements of another type than float32, bfloat16, float16, "
       "int32 or int64; convert it first");
}

/// Fails where elements have no memory: FSDP frees the storage of a parameter that it has sharded
/// and leaves the tensor's shape.
void check_storage(const char* name, const Tensor& tensor, const void* data, DType type,
                   const Dims& extents, const Dims& strides) {
  std::int64_t offset = 0, bytes = 0;
  check(aoti_torch_get_storage_offset(tensor.get(), &offset), "reading a storage's offset");
  check(aoti_torch_get_storage_size(tensor.get(), &bytes), "reading a storage's size");
  std::int64_t last = offset;
  for (int axis = 0; axis < extents.rank(); ++axis) last += (extents[axis] - 1) * strides[axis];
  const std::int64_t needed = (last + 1) * static_cast<std::int64_t>(size_of(type));
  if (data != nullptr && needed <= bytes) return;
  fail(std::string(name) + " has elements up to byte " + std::to_string(needed) +
       " of its storage, and that has " + std::to_string(data != nullptr ? bytes : 0) +
       " bytes; give a tensor whose storage is allocated (a parameter that FSDP has sharded is "
       "gathered by unshard() or summon_full_params first)");
}

MutableView view_of(const char* name, const Tensor& tensor) {
  std::int64_t rank = 0;
  std::int64_t *sizes = nullptr, *strides = nullptr;
  void* data = nullptr;
  check(aoti_torch_get_dim(tensor.get(), &rank), "reading a rank");
  check(aoti_torch_get_sizes(tensor.get(), &sizes), "reading a shape");
  check(aoti_torch_get_strides(tensor.get(), &strides), "reading strides");
  check(aoti_torch_get_data_ptr(tensor.get(), &data), "reading an address");
  const auto count = static_cast<std::size_t>(rank);
  const Dims extents(std::span(sizes, count));
  const Dims steps(std::span(strides, count));
  const DType type = type_of(name, tensor);
  if (extents.product() > 0) {
    check_storage(name, tensor, data, type, extents, steps);
  } else {
    static float nothing;  // a tensor without elements has no address
    data = &nothing;
  }
  return MutableView::host(data, type, extents, steps);
}

Tensor new_tensor(DType type, const Dims& extents, const Dims& strides) {
  AtenTensorHandle made = nullptr;
  if (aoti_torch_empty_strided(extents.rank(), extents.begin(), strides.begin(), torch_type(type),
                               aoti_torch_device_type_cpu(), 0, &made) != TORCH_SUCCESS) {
    rethrow(Error(ErrorCode::out_of_memory, "PyTorch has no memory for a result"));
  }
  Tensor tensor(made);
  // PyTorch takes the memory of each large result from the system anew.
  const auto bytes = extents.product() * static_cast<std::int64_t>(size_of(type));
  void* data = nullptr;
  check(aoti_torch_get_data_ptr(tensor.get(), &data), "reading an address");
  use_large_pages(data, static_cast<std::size_t>(bytes));
  return tensor;
}

/// The names between commas.
std::vector<std::string> split(const std::string& names) {
  std::vector<std::string> all(1);
  for (const char letter : names) {
    if (letter == ',') {
      all.emplace_back();
    } else {
      all.back() += letter;
    }
  }
  return all;
}

/// What a call was given, and the tensors behind its views.
struct Bound {
  explicit Bound(const Operation& of) : operation(of), call(*of.op, of.pass) {}

  /// Takes the arguments off the stack; all of them, since they are owned from there on.
  void take(StableIValue* stack);
  /// Makes the results, in order.
  void make_results();
  void set_option(std::size_t at, StableIValue value);

  const Operation& operation;
  operators::Call call;
  std::array<Tensor, decltype(operators::Call::inputs)::max_count> inputs;
  std::array<Tensor, decltype(operators::Call::outputs)::max_count + operators::Call::max_gradients>
      results;
  std::size_t result_count = 0;
  std::string wrong_option;  ///< why the first option that is none of its choices is not
};

/// Nothing: the option is left unset.
template <class T>
std::optional<T> taken(const operators::Option& option, StableIValue value) {
  if (option.may_be_unset) return stable::to<std::optional<T>>(value);
  return stable::to<T>(value);
}

void Bound::set_option(std::size_t at, StableIValue value) {
  const auto& option = operation.op->options[at];
  auto& to = call.options[at];
  if (option.kind == OptionKind::number) {
    const auto given = taken<double>(option, value);
    to = given ? OptionValue(static_cast<float>(*given)) : Unset();
  } else if (option.kind == OptionKind::integer) {
    const auto given = taken<std::int64_t>(option, value);
    to = given ? OptionValue(*given) : Unset();
  } else if (const auto name = taken<std::string>(option, value); !name) {
    to = Unset();
  } else {
    const auto found = std::find(option.choices.begin(), option.choices.end(), *name);
    if (found == option.choices.end()) {
      wrong_option = std::string(option.name) + " is '" + *name + "'; give one of";
      for (const char* each : option.choices) wrong_option += std::string(" '") + each + "'";
      return;
    }
    to = static_cast<std::int64_t>(found - option.choices.begin());
  }
}

void Bound::take(StableIValue* stack) {
  for (const auto& [kind, at, is_optional] : operation.arguments) {
    const StableIValue value = *stack++;
    switch (kind) {
      case Kind::input: {
        const auto handle = is_optional ? stable::to<std::optional<AtenTensorHandle>>(value)
                                        : stable::to<AtenTensorHandle>(value);
        inputs[at].reset(handle.value_or(nullptr));
        break;
      }
      case Kind::option:
        set_option(at, value);
        break;
      case Kind::wants_gradient:
        call.wants_gradients[at] = stable::to<bool>(value);
        break;
      case Kind::implementation: {
        const auto names = stable::to<std::string>(value);
        if (!names.empty()) call.implementation = split(names);
        break;
      }
      case Kind::workspace_bytes:
        if (const auto bytes = stable::to<std::optional<std::int64_t>>(value)) {
          call.workspace_bytes = static_cast<std::size_t>(*bytes);
        }
        break;
    }
  }
  if (!wrong_option.empty()) fail(wrong_option);
  for (std::size_t at = 0; at < operation.op->inputs.size(); ++at) {
    if (!inputs[at]) continue;
    const auto& input = operation.op->inputs[at];
    View& view = call.inputs[at];
    view = view_of(input.name, inputs[at]);
    if (input.is_weight() && view.rank() == 2) view = view.transposed();
  }
}

void Bound::make_results() {
  const auto& op = *operation.op;
  for (const std::size_t at : operation.outputs) {
    const DType type =
        op.outputs[at].types == ElementTypes::floating ? call.inputs[0].dtype() : DType::f32;
    const Dims extents = operators::output_extents(call, at);
    auto& made = results[result_count++] =
        new_tensor(type, extents, operators::output_strides(call, at, extents));
    call.outputs[at] = view_of(op.outputs[at].name, made);
  }
  if (!operation.has_gradients()) return;
  for (std::size_t at = 0; at < op.gradients.size(); ++at) {
    const std::size_t of = op.gradients[at].of;
    const View& input = call.inputs[of];
    auto& made = results[result_count++];
    if (!input || !call.wants_gradients[at]) {  // a schema has no results that may be None
      made = new_tensor(call.inputs[0].dtype(), {0}, {1});
      continue;
    }
    const bool is_turned = op.inputs[of].is_weight() && input.rank() == 2;
    const Dims extents = is_turned ? input.transposed().extents() : input.extents();
    made = new_tensor(input.dtype(), extents, contiguous_strides(extents));
    auto& view = call.gradients[at];
    view = view_of(op.gradients[at].name, made);
    if (is_turned) view = view.transposed();
  }
}

void run(const Operation& operation, StableIValue* stack) {
  Bound bound(operation);
  try {
    bound.take(stack);
    bound.make_results();
    Context with = context();
    operators::run(with, std::move(bound.call)).wait();
  } catch (const Error& error) {
    hand_over_warnings();
    rethrow(error);
  }
  hand_over_warnings();
  for (std::size_t i = 0; i < bound.result_count; ++i) {
    stack[i] = stable::from(bound.results[i].release());
  }
}

template <class Op>
constexpr bool has_pass(Pass pass) {
  const auto& passes = OperatorTraits<Op>::passes;
  return std::find(passes.begin(), passes.end(), pass) != passes.end();
}

template <class Op, Pass pass>
const Operation& operation_of() {
  static const Operation operation(operators::description(OperatorTraits<Op>::name), pass);
  return operation;
}

/// Calls `use(operation, kernel)` for every operator and pass.
template <class Use>
void for_each_operation(const Use& use) {
  for_each_operator([&]<class Op>(std::type_identity<Op>) {
    const auto add = [&]<Pass pass>(std::integral_constant<Pass, pass>) {
      if constexpr (has_pass<Op>(pass)) {
        use(operation_of<Op, pass>(), [](StableIValue* stack, std::uint64_t, std::uint64_t) {
          run(operation_of<Op, pass>(), stack);
        });
      }
    };
    add(std::integral_constant<Pass, Pass::forward>());
    add(std::integral_constant<Pass, Pass::backward>());
    add(std::integral_constant<Pass, Pass::value_and_grad>());
  });
}

STABLE_TORCH_LIBRARY(tessera, library) {
  for_each_operation(
      [&](const Operation& operation, auto) { library.def(operation.schema().c_str()); });
}

STABLE_TORCH_LIBRARY_IMPL(tessera, CPU, library) {
  for_each_operation([&](const Operation& operation, auto kernel) {
    const std::string schema = operation.schema();
    library.impl(schema.substr(0, schema.find('(')).c_str(), kernel);
  });
}

}  // namespace
}  // namespace tessera::torch_operators
