// SPDX-License-Identifier: Apache-2.0
#include "host/linear_cross_entropy/tile.hpp"

/// The kernels without a caller: for dry runs and reports.
namespace tessera::linear_cross_entropy::tile_loss {
namespace {

Matrix matrix(tile::Machine& machine, const char* name, tile::ElementType type,
              const tile::Shape& extents) {
  if (type == tile::ElementType::bf16) return machine.empty<bf16>(name, extents);
  return machine.empty<float>(name, extents);
}

}  // namespace

void run_on_empty(tile::Machine& machine, Pass pass, const Kernel& k, const Operands& o) {
  tile::require(check(machine.options().chip, pass, k, o));
  const auto floats = [&](const char* name, const tile::Shape& extents) {
    return machine.empty<float>(name, extents);
  };
  const auto optional = [&](bool given, const char* name, const tile::Shape& extents) {
    return given ? std::optional(floats(name, extents)) : std::nullopt;
  };
  const auto transposed = [](bool is_vh, std::int64_t h, std::int64_t v) {
    return is_vh ? tile::Shape{v, h} : tile::Shape{h, v};
  };
  const Matrix x = matrix(machine, "x", o.x_type, {k.b, k.h});
  const Matrix w = matrix(machine, "w", o.w_type, transposed(k.w_is_vh, k.h, k.v));
  const auto labels = machine.empty<std::int32_t>("labels", {k.b});
  const auto bias = optional(o.bias, "bias", {1, k.v});
  const bool uses_classes = pass == Pass::forward ? o.class_terms : o.smooth;
  const auto class_weight = optional(o.class_weight && uses_classes, "class_weight", {1, k.v});
  if (pass == Pass::forward) {
    ForwardArrays a{.x = x,
                    .w = w,
                    .labels = labels,
                    .bias = bias,
                    .class_weight = class_weight,
                    .max = floats("max", {k.b}),
                    .sum = floats("sum", {k.b}),
                    .label_logit = floats("label_logit", {k.b}),
                    .class_logit = optional(o.class_terms, "class_logit", {k.b}),
                    .exp_logit = optional(o.entropy, "exp_logit", {k.b}),
                    .argmax = {}};
    if (o.argmax) a.argmax = machine.empty<std::int32_t>("argmax", {k.b});
    forward(machine, k, a);
    return;
  }
  backward(machine, k,
           {.x = x,
            .w = w,
            .labels = labels,
            .bias = bias,
            .class_weight = class_weight,
            .max = floats("max", {k.b}),
            .gain = floats("gain", {k.b}),
            .hit = floats("hit", {k.b}),
            .smooth = optional(o.smooth, "smooth", {k.b}),
            .grad_x = optional(o.grad_x, "grad_x", {splits(machine.options().chip, k), k.b, k.h}),
            .grad_w = optional(o.grad_w, "grad_w", transposed(k.grad_w_is_vh, k.h, k.padded_v())),
            .grad_bias = optional(o.grad_bias, "grad_bias", {k.row_blocks(), 1, k.v})});
}

}  // namespace tessera::linear_cross_entropy::tile_loss
