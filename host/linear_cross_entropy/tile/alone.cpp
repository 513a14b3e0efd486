// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "host/linear_cross_entropy/tile/kernel.hpp"
#include "tessera/dtype.hpp"

/// The kernels without a caller: for dry runs, which have no data, and for reports of real ones.
namespace tessera::linear_cross_entropy::tpu_tile {
namespace {

/// Arrays of one run. In a dry run they have no values, else those that `next` gives.
class Operand {
 public:
  explicit Operand(tile::Machine& machine) : machine_(machine) {}

  template <class T, class Next>
  tile::Array<T> make(const char* name, const tile::Shape& extents, Next next) {
    if (machine_.options().dry_run) return machine_.empty_ref<T>(name, extents);
    std::size_t count = 1;
    for (const auto extent : extents) count *= static_cast<std::size_t>(extent);
    std::vector<T> values(count);
    for (T& value : values) value = static_cast<T>(next());
    return machine_.new_ref<T>(name, View::host(values.data(), dtype_of<T>::value, extents));
  }
  /// Mostly small, some far out, as activations are.
  Matrix matrix(const char* name, tile::ElementType type, const tile::Shape& extents, float scale) {
    const auto next = [&] {
      const float value = scale * (uniform() + uniform() + uniform() - 1.5f);
      return random_() % 512 == 0 ? 8 * value : value;
    };
    if (type == tile::ElementType::bf16) return make<bf16>(name, extents, next);
    return make<float>(name, extents, next);
  }
  tile::Array<float> floats(const char* name, const tile::Shape& extents, float scale) {
    return make<float>(name, extents, [&] { return scale * uniform(); });
  }
  std::optional<tile::Array<float>> optional(bool given, const char* name,
                                             const tile::Shape& extents, float scale = 1.0f) {
    if (!given) return std::nullopt;
    return floats(name, extents, scale);
  }
  tile::Array<std::int32_t> labels(std::int64_t b, std::int64_t v) {
    return make<std::int32_t>("labels", {b},
                              [&] { return random_() % static_cast<std::uint64_t>(v); });
  }

 private:
  float uniform() { return static_cast<float>(random_() >> 40) / static_cast<float>(1 << 24); }

  tile::Machine& machine_;
  std::mt19937_64 random_{1};
};

}  // namespace

void run_alone(tile::Machine& machine, Pass pass, const Kernel& k, const Operands& o) {
  tile::require(check(machine.options().chip, pass, k, o));
  Operand operand(machine);
  const auto transposed = [](bool is_vh, std::int64_t h, std::int64_t v) {
    return is_vh ? tile::Shape{v, h} : tile::Shape{h, v};
  };
  const auto result = [&](const char* name, const tile::Shape& extents) {
    return machine.empty_ref<float>(name, extents);
  };
  const auto optional_result = [&](bool given, const char* name, const tile::Shape& extents) {
    return given ? std::optional(result(name, extents)) : std::nullopt;
  };
  const Matrix x = operand.matrix("x", o.x_type, {k.b, k.h}, 1.0f);
  const Matrix w = operand.matrix("w", o.w_type, transposed(k.w_is_vh, k.h, k.v), 0.1f);
  const auto labels = operand.labels(k.b, k.v);
  const auto bias = operand.optional(o.bias, "bias", {1, k.v});
  const bool uses_classes = pass == Pass::forward ? o.class_terms : o.smooth;
  const auto class_weight =
      operand.optional(o.class_weight && uses_classes, "class_weight", {1, k.v});
  if (pass == Pass::forward) {
    ForwardArrays a{.x = x,
                    .w = w,
                    .labels = labels,
                    .bias = bias,
                    .class_weight = class_weight,
                    .max = result("max", {k.b}),
                    .sum = result("sum", {k.b}),
                    .label_logit = result("label_logit", {k.b}),
                    .class_logit = optional_result(o.class_terms, "class_logit", {k.b}),
                    .exp_logit = optional_result(o.entropy, "exp_logit", {k.b}),
                    .argmax = {}};
    if (o.argmax) a.argmax = machine.empty_ref<std::int32_t>("argmax", {k.b});
    forward(machine, k, a);
    return;
  }
  // Statistics of no particular row: what matters is that every number is one.
  backward(
      machine, k,
      {.x = x,
       .w = w,
       .labels = labels,
       .bias = bias,
       .class_weight = class_weight,
       .max = operand.floats("max", {k.b}, 8.0f),
       .gain = operand.floats("gain", {k.b}, 1e-6f),
       .hit = operand.floats("hit", {k.b}, 1e-3f),
       .smooth = operand.optional(o.smooth, "smooth", {k.b}, 1e-6f),
       .grad_x = optional_result(o.grad_x, "grad_x", {splits(machine.options().chip, k), k.b, k.h}),
       .grad_w = optional_result(o.grad_w, "grad_w", transposed(k.grad_w_is_vh, k.h, k.padded_v())),
       .grad_bias = optional_result(o.grad_bias, "grad_bias", {k.row_blocks(), 1, k.v})});
}

}  // namespace tessera::linear_cross_entropy::tpu_tile
