// SPDX-License-Identifier: Apache-2.0
#include "host/loss/results.hpp"

#include <new>
#include <stdexcept>
#include <utility>

namespace tessera::loss {

namespace {

MutableView without_memory(DType type, const Dims& extents) {
  return MutableView::host(nullptr, type, extents);
}

}  // namespace

void describe_outputs(LossRequest& request) {
  const auto& wants = request.options.wants;
  auto& out = request.outputs;
  const auto per_row = [&](bool wanted, MutableView& view, DType type = DType::f32) {
    if (wanted) view = without_memory(type, request.leading);
  };
  out.loss = without_memory(
      DType::f32, request.options.reduction == Reduction::none ? request.leading : Dims{});
  per_row(wants.lse, out.lse);
  per_row(wants.argmax, out.argmax, DType::i32);
  per_row(wants.label_logprob, out.label_logprob);
  per_row(wants.entropy, out.entropy);
  per_row(wants.z_loss, out.z_loss);
  if (wants.statistics) {
    Dims extents = request.leading;
    extents.push_back(2);
    out.statistics = without_memory(DType::f32, extents);
  }
}

void describe_partial(LossRequest& request) {
  static_assert(sizeof(Partial) == 32, "a Partial is eight words, as LossRequest::partial says");
  request.partial = without_memory(DType::f32, {request.b, 8});
}

void allocate(MutableView& view, HostTensor& tensor, const char* name) {
  if (!view) return;
  try {
    tensor = HostTensor(view.dtype(), view.extents(), view.strides());
  } catch (const std::exception&) {  // bad_alloc, or length_error beyond what a vector may hold
    throw Error(ErrorCode::out_of_memory,
                std::string(name) + ": the host has no room for " + std::to_string(view.size()) +
                    " elements of " + to_string(view.dtype()) + "; give a view, or ask for less");
  }
  view = tensor.mutable_view();
}

void allocate_outputs(LossRequest& request, LossResult& result) {
  auto& out = request.outputs;
  allocate(out.loss, result.loss, "loss");
  allocate(out.lse, result.lse, "lse");
  allocate(out.argmax, result.argmax, "argmax");
  allocate(out.label_logprob, result.label_logprob, "label_logprob");
  allocate(out.entropy, result.entropy, "entropy");
  allocate(out.z_loss, result.z_loss, "z_loss");
  allocate(out.statistics, result.statistics, "statistics");
}

void allocate_partial(LossRequest& request, PartialResult& result) {
  try {
    result.rows.resize(static_cast<std::size_t>(request.b));
  } catch (const std::exception&) {
    throw Error(ErrorCode::out_of_memory, "partial: the host has no room for " +
                                              std::to_string(request.b) + " rows; split them");
  }
  result.extents = request.leading;
  result.vocab_size_total = request.v_total;
  result.columns = request.v;
  request.partial = MutableView::host(result.rows.data(), DType::f32, request.partial.extents());
}

std::vector<dispatch::NamedView> input_views(const LossRequest& r) {
  return given({{"labels", r.labels},
                {"weight", r.weight},
                {"class_weight", r.class_weight},
                {"dloss", r.dloss},
                {"dlse", r.dlse},
                {"lse", r.lse},
                {"statistics", r.statistics}},
               {});
}

std::vector<dispatch::NamedView> output_views(const LossRequest& r) {
  const auto& out = r.outputs;
  return given({{"loss", out.loss},
                {"lse", out.lse},
                {"argmax", out.argmax},
                {"label_logprob", out.label_logprob},
                {"entropy", out.entropy},
                {"z_loss", out.z_loss},
                {"statistics", out.statistics},
                {"partial", r.partial}},
               {});
}

std::vector<dispatch::NamedView> given(std::vector<dispatch::NamedView> first,
                                       const std::vector<dispatch::NamedView>& second) {
  first.insert(first.end(), second.begin(), second.end());
  std::erase_if(first, [](const auto& named) { return !named.view; });
  return first;
}

std::string names(const std::vector<dispatch::NamedView>& views) {
  std::string text;
  for (const auto& named : views) text += (text.empty() ? "" : ", ") + std::string(named.name);
  return text;
}

std::vector<dispatch::Argument> input_arguments(std::vector<dispatch::Argument> own) {
  const std::vector<dispatch::Argument> shared = {
      {"labels", "[...]", "i32, i64", false},
      {"weight", "[...]", floating_types, true},
      {"class_weight", "[V] or [vocab_size_total]", floating_types, true},
      {"dloss", "() or [...]", floating_types, true},
      {"dlse", "[...]", floating_types, true},
      {"lse", "[...]", "f32", true},
      {"statistics", "[..., 2]", "f32", true}};
  own.insert(own.end(), shared.begin(), shared.end());
  return own;
}

std::vector<dispatch::Argument> output_arguments() {
  return {{"loss", "() or [...]", "f32", true},   {"lse", "[...]", "f32", true},
          {"argmax", "[...]", "i32", true},       {"label_logprob", "[...]", "f32", true},
          {"entropy", "[...]", "f32", true},      {"z_loss", "[...]", "f32", true},
          {"statistics", "[..., 2]", "f32", true}};
}

}  // namespace tessera::loss
