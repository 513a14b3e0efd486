// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>

#include "host/arguments/checks.hpp"
#include "host/arguments/offsets.hpp"
#include "host/custom/request.hpp"
#include "host/dispatch/completion.hpp"
#include "host/dispatch/host_views.hpp"

/// Implementations that compute with the kernel's functions on the host, from dense arrays to
/// tensors that are copied to the outputs once they are complete.
namespace tessera::custom {
namespace {

/// Copies the elements of host views of the same extents and type.
void copy(const View& from, const MutableView& to) {
  if (from.size() == 0) return;
  const int last = from.rank() - 1;
  const std::int64_t columns = last < 0 ? 1 : from.extents()[last];
  const std::int64_t from_step = last < 0 ? 1 : from.strides()[last];
  const std::int64_t to_step = last < 0 ? 1 : to.strides()[last];
  const arguments::RowOffsets from_rows(from, std::max(last, 0)), to_rows(to, std::max(last, 0));
  const auto bytes = static_cast<std::int64_t>(size_of(from.dtype()));
  const auto size = static_cast<std::size_t>(bytes);
  for (std::int64_t row = 0; row < from.size() / columns; ++row) {
    const auto* source = static_cast<const std::byte*>(from.host_data()) + from_rows(row) * bytes;
    auto* target = static_cast<std::byte*>(to.host_data()) + to_rows(row) * bytes;
    if (from_step == 1 && to_step == 1) {
      std::memcpy(target, source, static_cast<std::size_t>(columns) * size);
      continue;
    }
    for (std::int64_t i = 0; i < columns; ++i) {
      std::memcpy(target + i * to_step * bytes, source + i * from_step * bytes, size);
    }
  }
}

/// Runs `compute(dense inputs)`, which returns a tensor for each output.
class OnHost : public Row {
 public:
  using Row::Row;

  std::unique_ptr<Completion::State> run(const std::shared_ptr<ContextState>& state,
                                         const dispatch::Request& request,
                                         dispatch::Attempt& attempt) const override {
    const auto& r = request_of(request);
    report(*state, r, attempt.dispatch);
    if (state->device) state->device->wait_for(r.options.wait_for);
    dispatch::HostViews views(*state, r.options.queue);
    std::vector<const View*> reads;
    std::vector<const MutableView*> writes;
    for (const auto& view : r.inputs) reads.push_back(&view);
    for (const auto& view : r.outputs) writes.push_back(&view);
    views.reserve(reads, writes);
    std::vector<HostTensor> copies;
    copies.reserve(r.inputs.size());
    std::vector<View> inputs;
    for (const auto& given : r.inputs) {
      View view = views.read(given);
      if (view.size() > 0 && !is_dense(view.extents(), view.strides())) {
        copies.emplace_back(view.dtype(), view.extents());
        copy(view, copies.back().mutable_view());
        view = copies.back().view();
      }
      inputs.push_back(view.reshaped(view.extents(), contiguous_strides(view.extents())));
    }
    const auto results = compute(*state, r, inputs, attempt.dispatch);
    std::vector<MutableView> outputs;
    for (const auto& given : r.outputs) outputs.push_back(views.write(given));
    attempt.outputs_touched = true;
    for (std::size_t i = 0; i < outputs.size(); ++i) copy(results[i].view(), outputs[i]);
    views.finish();
    return std::make_unique<Completion::State>();
  }

  Plan plan(ContextState& state, const dispatch::Request& request) const override {
    Plan plan;
    report(state, request_of(request), plan.dispatch);
    return plan;
  }

 private:
  virtual std::vector<HostTensor> compute(const ContextState& state, const Request& request,
                                          const std::vector<View>& inputs,
                                          Dispatch& dispatch) const = 0;
  virtual std::string device(const ContextState& state) const = 0;

  void report(const ContextState& state, const Request& request, Dispatch& dispatch) const {
    describe(request, dispatch);
    dispatch.implementation = name();
    dispatch.device = device(state);
  }
};

class Host final : public OnHost {
 public:
  Host() : OnHost({"host", "the kernel's own function for the host", true}) {}

 private:
  std::string device(const ContextState&) const override { return "host"; }

  std::vector<HostTensor> compute(const ContextState&, const Request& r,
                                  const std::vector<View>& inputs, Dispatch&) const override {
    auto results = r.ask("host", [&] { return r.kernel.spec.host(inputs, r.call); });
    const auto& expected = r.call.outputs;
    if (results.size() != expected.size()) {
      r.fail(fmt::format("its function `host` returned {} tensors; its shape function says {}",
                         results.size(), expected.size()));
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      const TensorSpec is(results[i].extents(), results[i].dtype());
      const bool is_row_major = is_dense(results[i].extents(), results[i].strides());
      if (results[i] && is == expected[i] && is_row_major) continue;
      r.fail(fmt::format("its function `host` returned {}{} for {}; its shape function says {}",
                         results[i] ? to_string(is) : "an empty tensor",
                         is_row_major ? "" : " that is not row-major", r.output_name(i),
                         to_string(expected[i])));
    }
    return results;
  }
};

class Tile final : public OnHost {
 public:
  explicit Tile(bool by_default)
      : OnHost({"tpu_tile", "the kernel's body on the tile machine", by_default}) {}

 private:
  std::string device(const ContextState& state) const override {
    return (state.tile_chip.empty() ? "" : state.tile_chip + " on ") + "the tile machine";
  }

  std::vector<HostTensor> compute(const ContextState& state, const Request& r,
                                  const std::vector<View>& inputs,
                                  Dispatch& dispatch) const override {
    std::vector<HostTensor> results;
    std::vector<MutableView> outputs;
    for (const auto& output : r.call.outputs) {
      results.emplace_back(output.dtype(), output.extents());
    }
    for (auto& result : results) outputs.push_back(result.mutable_view());
    dispatch.notes =
        r.ask("tile", [&] { return r.kernel.spec.tile(state.tile_chip, inputs, outputs, r.call); });
    return results;
  }
};

}  // namespace

std::unique_ptr<const dispatch::Implementation> host_implementation() {
  return std::make_unique<Host>();
}

std::unique_ptr<const dispatch::Implementation> tile_implementation(bool by_default) {
  return std::make_unique<Tile>(by_default);
}

}  // namespace tessera::custom
