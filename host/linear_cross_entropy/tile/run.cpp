// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

#include "host/linear_cross_entropy/tile/setup.hpp"
#include "host/loss/streaming.hpp"
#include "reference/streaming/kernels.hpp"

/// From the caller's views to the machine's arrays, and back.
namespace tessera::linear_cross_entropy::tpu_tile {
namespace {

using loss::StreamingRows;
using streaming::round_up;

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinite = std::numeric_limits<float>::infinity();

/// A zeroed block of memory with a row-major view of it.
class Copied {
 public:
  Copied(DType type, std::int64_t rows, std::int64_t columns)
      : type_(type),
        columns_(columns),
        bytes_(rows * columns * static_cast<std::int64_t>(size_of(type))),
        memory_(std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes_))),
        view_(View::host(memory_.get(), type, {rows, columns})) {}
  const View& view() const { return view_; }
  std::int64_t bytes() const { return bytes_; }

  /// Row `row` from `count` elements `stride` apart, the first of them `offset` behind `data`.
  void read_row(std::int64_t row, const void* data, std::int64_t offset, std::int64_t stride,
                std::int64_t count) {
    const auto size = static_cast<std::int64_t>(size_of(type_));
    const auto* from = static_cast<const std::byte*>(data) + offset * size;
    std::byte* to = memory_.get() + row * columns_ * size;
    if (stride == 1) {
      std::memcpy(to, from, static_cast<std::size_t>(count * size));
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      std::memcpy(to + i * size, from + i * stride * size, static_cast<std::size_t>(size));
    }
  }

 private:
  DType type_;
  std::int64_t columns_;
  std::int64_t bytes_;
  std::unique_ptr<std::byte[]> memory_;
  View view_;
};

class TileCall {
 public:
  TileCall(ContextState& state, const Request& request, const loss::LossRequest& mapped,
           const StreamingRows& rows, const Setup& setup, dispatch::HostViews& views,
           streaming::Arena& arena, dispatch::Attempt& attempt)
      : request_(request),
        mapped_(mapped),
        rows_(rows),
        setup_(setup),
        views_(views),
        arena_(arena),
        attempt_(attempt),
        environment_(loss::environment(state)),
        machine_({.chip = *setup.chip, .threads = state.threads.size(), .model_time = false}),
        x_(views.read(request.inputs.x)),
        w_(views.read(request.inputs.w)),
        bias_(loss::dense_f32(views.read(request.inputs.bias), 0, mapped.v, arena)) {}

  void values() {
    if (rows_.counted() == 0) return;
    Kernel k = kernel_of(rows_.counted());
    const auto vector = [&](const char* name) { return machine_.empty_ref<float>(name, {k.b}); };
    const auto labels = labels_of(rows_.counted(), k.b);
    ForwardArrays a{matrix_x("x", rows_.counted(), k),
                    matrix_w(k),
                    integers("labels", labels),
                    row_vector("bias", bias_),
                    {},
                    vector("max"),
                    vector("sum"),
                    vector("label_logit"),
                    {},
                    {},
                    {}};
    if (rows_.class_terms()) {
      a.class_weight = row_vector("class_weight", rows_.class_weight());
      a.class_logit = vector("class_logit");
    }
    if (rows_.entropy()) a.exp_logit = vector("exp_logit");
    if (rows_.argmax()) a.argmax = machine_.empty_ref<std::int32_t>("argmax", {k.b});
    forward(machine_, k, a);
    take_statistics(a);
  }

  void gradients() {
    const auto& g = request_.gradients;
    const std::int64_t count = rows_.labelled();
    const MutableView grad_x = views_.write(g.grad_x);
    const MutableView grad_w = views_.write(g.grad_w);
    const MutableView grad_bias = views_.write(g.grad_bias);
    if (count == 0) {
      write_w(grad_w, nullptr);
      write_bias(grad_bias, {});
    } else {
      const Kernel k = kernel_of(count);
      const bool direct_x = setup_.direct_grad_x && count == request_.loss.b;
      attempt_.outputs_touched = true;
      const Coefficients c = coefficients(k.b);
      const auto labels = labels_of(count, k.b);
      BackwardArrays a{matrix_x("x", count, k),
                       matrix_w(k),
                       integers("labels", labels),
                       row_vector("bias", bias_),
                       {},
                       floats("max", c.max),
                       floats("gain", c.gain),
                       floats("hit", c.hit),
                       {},
                       {},
                       {},
                       {}};
      if (setup_.operands.smooth) {
        a.smooth = floats("smooth", c.smooth);
        a.class_weight = row_vector("class_weight", rows_.class_weight());
      }
      const std::int64_t shares = splits(*setup_.chip, k);
      if (grad_x) {
        a.grad_x = direct_x ? machine_.array<float>(
                                  "grad_x", grad_x.reshaped({1, k.b, k.h}, {k.b * k.h, k.h, 1}))
                            : machine_.empty_ref<float>("grad_x", {shares, k.b, k.h});
      }
      if (grad_w) {
        const Dims shape = k.grad_w_is_vh ? Dims{k.padded_v(), k.h} : Dims{k.h, k.padded_v()};
        a.grad_w =
            setup_.direct_grad_w
                ? machine_.array<float>("grad_w", grad_w.reshaped(shape, contiguous_strides(shape)))
                : machine_.empty_ref<float>("grad_w", {shape[0], shape[1]});
      }
      if (grad_bias) {
        a.grad_bias = machine_.empty_ref<float>("grad_bias", {k.row_blocks(), 1, k.v});
      }
      backward(machine_, k, a);
      if (grad_x && !direct_x) write_x(grad_x, machine_.values(*a.grad_x), shares, k.b);
      if (grad_w && !setup_.direct_grad_w) write_w(grad_w, machine_.values(*a.grad_w).data());
      if (grad_bias) write_bias(grad_bias, machine_.values(*a.grad_bias));
    }
    attempt_.outputs_touched = true;
    if (grad_x) rows_.fill_other_rows(grad_x, adds(Accumulate::grad_x), environment_);
  }

 private:
  struct Coefficients {
    std::vector<float> max, gain, hit, smooth;
  };

  /// Whole blocks of those rows that take part; no depth at all becomes a block of zeros.
  Kernel kernel_of(std::int64_t rows) const {
    Kernel k = setup_.kernel;
    k.b = round_up(rows, k.blocks.b_block_size);
    if (k.h == 0) k.h = k.blocks.h_block_size;
    return k;
  }

  Floats floats(const char* name, const std::vector<float>& values) {
    return machine_.array<float>(name, View(values));
  }
  Integers integers(const char* name, const std::vector<std::int32_t>& values) {
    return machine_.array<std::int32_t>(name, View(values));
  }
  std::optional<Floats> row_vector(const char* name, const float* values) {
    if (values == nullptr) return std::nullopt;
    return machine_.array<float>(name, View::host(values, {1, mapped_.v}));
  }
  Matrix matrix(const char* name, const View& view) {
    if (view.dtype() == DType::bf16) return machine_.array<bf16>(name, view);
    return machine_.array<float>(name, view);
  }

  std::vector<std::int32_t> labels_of(std::int64_t count, std::int64_t padded) const {
    std::vector<std::int32_t> labels(static_cast<std::size_t>(padded), -1);
    std::transform(rows_.labels(), rows_.labels() + count, labels.begin(),
                   [](std::int64_t label) { return static_cast<std::int32_t>(label); });
    return labels;
  }

  /// The caller's x where all its rows are there, else a copy of those that take part.
  Matrix matrix_x(const char* name, std::int64_t count, const Kernel& k) {
    const std::int64_t h = hidden(request_);
    if (count == request_.loss.b && !setup_.copies_x && h > 0) {
      return matrix(name, x_.reshaped({count, h}, {h, 1}));
    }
    if (!copied_x_ || copied_rows_ != count) {
      Copied& copy = copied_x_.emplace(x_.dtype(), k.b, k.h);
      copied_rows_ = count;
      const std::int64_t* offsets = rows_.offsets(x_, arena_);
      environment_.parallel_for("rows of x", count, [&](std::int64_t i, int) {
        copy.read_row(i, x_.host_data(), offsets[i], x_.strides().back(), h);
      });
      attempt_.dispatch.staged_bytes += copy.bytes();
    }
    return matrix(name, copied_x_->view());
  }

  Matrix matrix_w(const Kernel& k) {
    const std::int64_t v = mapped_.v;
    const bool vh = k.w_is_vh;
    const Dims shape = vh ? Dims{v, k.h} : Dims{k.h, v};
    if (!setup_.copies_w && hidden(request_) > 0) {
      return matrix("w", w_.reshaped(shape, contiguous_strides(shape)));
    }
    if (!copied_w_) {
      Copied& copy = copied_w_.emplace(w_.dtype(), shape[0], shape[1]);
      const auto outer = w_.strides()[vh ? 1 : 0];
      const auto inner = w_.strides()[vh ? 0 : 1];
      const std::int64_t count = vh ? hidden(request_) : v;
      environment_.parallel_for("rows of w", vh ? v : hidden(request_), [&](std::int64_t row, int) {
        copy.read_row(row, w_.host_data(), row * outer, inner, count);
      });
      attempt_.dispatch.staged_bytes += copy.bytes();
    }
    return matrix("w", copied_w_->view());
  }

  /// From the kernel's f32 to the statistics that finish every host implementation's outputs.
  void take_statistics(const ForwardArrays& a) {
    const auto get = [&](const std::optional<Floats>& array, std::size_t i) {
      return array ? machine_.values(*array)[i] : 0.0f;
    };
    const auto max = machine_.values(a.max);
    const auto sum = machine_.values(a.sum);
    const auto label_logit = machine_.values(a.label_logit);
    const double class_sum = streaming::sum_of(rows_.class_weight(), mapped_.v);
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows_.counted()); ++i) {
      auto& s = rows_.sums()[i];
      // A NaN or +Inf among the logits makes a NaN of everything but the label's.
      const bool ordinary = max[i] < infinite;
      s.max = ordinary ? max[i] : not_a_number;
      s.label_logit = label_logit[i];
      s.sum = static_cast<double>(ordinary ? sum[i] : not_a_number);
      s.exp_logit = static_cast<double>(ordinary ? get(a.exp_logit, i) : not_a_number);
      s.class_logit = static_cast<double>(ordinary ? get(a.class_logit, i) : not_a_number);
      s.class_sum = class_sum;
      s.argmax = a.argmax ? machine_.values(*a.argmax)[i] : -1;
    }
  }

  Coefficients coefficients(std::int64_t padded) const {
    const auto size = static_cast<std::size_t>(padded);
    // Rows that fill a block up: exp(logit - Inf) is 0 for every logit but a NaN or +Inf, which is
    // in every row alike.
    Coefficients c{std::vector<float>(size, infinite), std::vector<float>(size, 0.0f),
                   std::vector<float>(size, 0.0f), std::vector<float>(size, 0.0f)};
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows_.labelled()); ++i) {
      const auto& s = rows_.sums()[i];
      const auto g =
          streaming::row_gradient(rows_.cotangents()[i], static_cast<double>(s.max), s.sum,
                                  static_cast<double>(mapped_.options.logsumexp_weight));
      c.max[i] = g.poisoned ? 0.0f : g.max;
      c.gain[i] = g.poisoned ? not_a_number : g.gain;
      c.hit[i] = g.hit;
      c.smooth[i] = g.smooth;
    }
    return c;
  }

  bool adds(Accumulate gradient) const { return request_.gradients.accumulate.has(gradient); }

  /// target(row, i) = values[i], i in [0, count), or +=.
  void store(const MutableView& target, std::int64_t offset, std::int64_t stride,
             const float* values, std::int64_t count, bool add) const {
    auto* data = static_cast<std::byte*>(target.host_data()) +
                 offset * static_cast<std::int64_t>(size_of(target.dtype()));
    streaming::kernels().store(values, count, data, loss::streaming_type(target.dtype()), stride,
                               add);
  }

  void write_x(const MutableView& target, std::span<const float> values, std::int64_t shares,
               std::int64_t padded) {
    const std::int64_t h = hidden(request_);
    if (h == 0) return;
    const std::int64_t* offsets = rows_.offsets(target, arena_);
    environment_.parallel_for("rows of grad_x", rows_.labelled(), [&](std::int64_t i, int) {
      const float* row = values.data() + i * h;
      std::vector<float> total(row, row + h);
      for (std::int64_t share = 1; share < shares; ++share) {
        streaming::kernels().add(row + share * padded * h, h, total.data());
      }
      store(target, offsets[i], target.strides().back(), total.data(), h, adds(Accumulate::grad_x));
    });
  }

  /// `values` as the kernel leaves them; null: zeros.
  void write_w(const MutableView& target, const float* values) {
    if (!target || hidden(request_) == 0) return;
    const Kernel& k = setup_.kernel;
    const bool vh = k.grad_w_is_vh;
    const std::int64_t count = vh ? k.h : k.v;
    const std::int64_t ld = vh ? k.h : k.padded_v();
    const std::vector<float> zeros(values == nullptr ? static_cast<std::size_t>(count) : 0, 0.0f);
    environment_.parallel_for("rows of grad_w", vh ? k.v : k.h, [&](std::int64_t row, int) {
      store(target, row * target.strides()[vh ? 1 : 0], target.strides()[vh ? 0 : 1],
            values == nullptr ? zeros.data() : values + row * ld, count, adds(Accumulate::grad_w));
    });
  }

  /// The sum of [row blocks, v]; none: zeros.
  void write_bias(const MutableView& target, std::span<const float> values) {
    if (!target) return;
    const auto v = static_cast<std::size_t>(mapped_.v);
    std::vector<double> sums(v, 0.0);
    for (std::size_t i = 0; i < values.size(); ++i) sums[i % v] += static_cast<double>(values[i]);
    const std::vector<float> rounded(sums.begin(), sums.end());
    store(target, 0, target.strides()[0], rounded.data(), mapped_.v, adds(Accumulate::grad_bias));
  }

  const Request& request_;
  const loss::LossRequest& mapped_;
  const StreamingRows& rows_;
  const Setup& setup_;
  dispatch::HostViews& views_;
  streaming::Arena& arena_;
  dispatch::Attempt& attempt_;
  streaming::Environment environment_;
  tile::Machine machine_;
  View x_, w_;
  const float* bias_;
  std::optional<Copied> copied_x_, copied_w_;
  std::int64_t copied_rows_ = 0;
};

}  // namespace

std::unique_ptr<Completion::State> run(const std::shared_ptr<ContextState>& state,
                                       const Request& request, const Setup& setup,
                                       dispatch::Attempt& attempt) {
  const auto& given = request.loss.call;
  if (state->device) state->device->wait_for(given.wait_for);
  dispatch::HostViews views(*state, given.queue);
  loss::LossRequest mapped = request.loss;
  mapped.map_to_host(views);
  const dispatch::HostWorkspace workspace(*state, views, given.workspace, table_bytes(request));
  streaming::Arena arena(workspace.data());
  const StreamingRows rows(mapped, arena);
  TileCall call(*state, request, mapped, rows, setup, views, arena, attempt);
  {
    const dispatch::Timed timed(dispatch::current_call(), ProfileKind::task, "tile machine");
    if (mapped.wants_values()) call.values();
    if (has_gradients(mapped.pass)) call.gradients();
  }
  attempt.outputs_touched = true;
  if (mapped.wants_values()) rows.write_values();
  auto completion = rows.completion();
  views.finish();
  return completion;
}

}  // namespace tessera::linear_cross_entropy::tpu_tile
