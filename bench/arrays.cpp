// SPDX-License-Identifier: Apache-2.0
#include "bench/arrays.hpp"

#include <cstring>

#include "bench/device_memory.hpp"
#include "bench/operator.hpp"

namespace tessera::bench {
namespace {

std::size_t bytes_of(const View& view) {
  return static_cast<std::size_t>(view.size()) * size_of(view.dtype());
}

struct TargetArray {
  ArrayOf array;
  const void* (*data)(const Data&);
};

/// The labels, or what a row has in their place.
std::vector<TargetArray> targets_of(const ProblemKey& key) {
  if (!key.op->has_labels()) return {};
  if (key.dense_targets) {
    return {{{.name = "targets", .extents = {key.shape['B'], key.shape['V']}},
             [](const Data& data) -> const void* { return data.targets.data(); }}};
  }
  if (key.target_pairs == 0) {
    return {{{.name = "labels", .type = DType::i32, .extents = {key.shape['B']}},
             [](const Data& data) -> const void* { return data.labels.data(); }}};
  }
  const Dims pairs{key.shape['B'], key.target_pairs};
  return {{{.name = "target_indices", .type = DType::i32, .extents = pairs},
           [](const Data& data) -> const void* { return data.target_indices.data(); }},
          {{.name = "target_probs", .extents = pairs},
           [](const Data& data) -> const void* { return data.target_probs.data(); }}};
}

std::vector<ArrayOf> gradients_of(const Row& row) {
  auto gradients = row.problem.op->gradients(row.problem);
  std::erase_if(gradients, [&](const auto& gradient) { return !row.forms(gradient); });
  return gradients;
}

}  // namespace

Views question_of(const Row& row) {
  const auto& key = row.problem;
  Views views;
  const auto absent = [](const ArrayOf& array) {
    return MutableView::host(nullptr, array.type, array.extents, array.strides);
  };
  for (const auto& [array, data] : targets_of(key)) views.inputs.set(array.name, absent(array));
  for (const auto& array : key.op->operands(key)) views.inputs.set(array.name, absent(array));
  const ArrayOf result = key.op->result(key);
  views.outputs.set(result.name, absent(result));
  for (const auto& array : key.op->saved(key)) {
    views.inputs.set(array.name, views.outputs.set(array.name, absent(array)));
  }
  for (const auto& array : gradients_of(row)) views.outputs.set(array.name, absent(array));
  return views;
}

void poison(Context& context, const MutableView& view) {
  if (view.size() == 0) return;
  // Bits of all ones are a NaN in every floating type.
  if (view.is_device()) {
    fill_memory(context, view.device_memory(), 0xff, bytes_of(view));
  } else {
    std::memset(view.host_data(), 0xff, bytes_of(view));
  }
}

HostTensor fetch(Context& context, const View& view) {
  HostTensor result(view.dtype(), view.extents(), view.strides());
  if (view.size() == 0) return result;
  if (view.is_device()) {
    read_memory(context, view.device_memory(), result.data(), bytes_of(view));
  } else {
    std::memcpy(result.data(), view.host_data(), bytes_of(view));
  }
  return result;
}

Arrays::Arrays(Context& context, const Data& data, const Row& row, bool on_device, bool borrow)
    : context_(context),
      on_device_(on_device),
      gradients_(gradients_of(row)),
      in_place_(row.in_place) {
  const auto& key = row.problem;
  borrow = borrow && !on_device && !row.in_place;
  // What a call in place writes over, by the input's name.
  ByName<MutableView> own;
  const auto give = [&](const void* elements, const ArrayOf& array) {
    views_.inputs.set(array.name,
                      borrow ? View::host(elements, array.type, array.extents, array.strides)
                             : own.set(array.name, place(elements, array)));
  };
  try {
    for (const auto& [array, elements] : targets_of(key)) give(elements(data), array);
    for (const auto& array : key.op->operands(key)) give(data.arrays[array.name].data(), array);
    const ArrayOf result = key.op->result(key);
    result_ = views_.outputs.set(result.name, make(result));
    for (const auto& array : key.op->saved(key)) {
      views_.inputs.set(array.name, views_.outputs.set(array.name, make(array)));
    }
    for (const auto& array : gradients_) {
      views_.outputs.set(array.name, row.in_place ? own[array.of] : make(array));
    }
  } catch (...) {
    for (cl_mem memory : device_) release_memory(memory);
    throw;
  }
}

Arrays::~Arrays() {
  for (cl_mem memory : device_) release_memory(memory);
}

MutableView Arrays::place(const void* data, const ArrayOf& array) {
  const MutableView view = make(array);
  write(view, data);
  return view;
}

MutableView Arrays::make(const ArrayOf& array) {
  if (!on_device_) {
    host_.push_back(std::make_unique<HostTensor>(
        array.type, array.extents,
        array.strides.empty() ? contiguous_strides(array.extents) : array.strides));
    return host_.back()->mutable_view();
  }
  device_.push_back(create_memory(context_, static_cast<std::size_t>(array.bytes())));
  return MutableView::device(device_.back(), 0, array.type, array.extents, array.strides);
}

void Arrays::write(const MutableView& view, const void* data) {
  if (on_device_) {
    write_memory(context_, view.device_memory(), data, bytes_of(view));
  } else {
    std::memcpy(view.host_data(), data, bytes_of(view));
  }
}

void Arrays::restore_inputs(const Data& data) {
  if (!in_place_) return;
  for (const auto& gradient : gradients_) {
    write(views_.outputs[gradient.name], data.arrays[gradient.of].data());
  }
}

void Arrays::poison() {
  bench::poison(context_, result_);
  for (const auto& gradient : gradients_) bench::poison(context_, views_.outputs[gradient.name]);
}

HostTensor Arrays::fetch(const MutableView& view) const { return bench::fetch(context_, view); }

std::int64_t Arrays::bytes(const Row& row) {
  std::int64_t sum = 0;
  for (const auto& [array, data] : targets_of(row.problem)) sum += array.bytes();
  for (const auto& array : row.problem.op->operands(row.problem)) sum += array.bytes();
  if (row.in_place) return sum;
  for (const auto& array : gradients_of(row)) sum += array.bytes();
  return sum;
}

}  // namespace tessera::bench
