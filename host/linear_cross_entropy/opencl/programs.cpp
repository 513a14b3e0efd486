// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "host/linear_cross_entropy/opencl/run.hpp"
#include "host/opencl/specialise.hpp"

namespace tessera::linear_cross_entropy {
Programs programs_of(const Request& r, const engines::Engine& engine, const Schedule& s,
                     const std::string& statistics_options) {
  const auto& o = r.loss.options;
  const std::string shape = engine.options();
  const std::string logits = engine.options(logits_product(r, s));
  const std::string sums_w = engine.options(grad_w_product(r, s));
  const std::string sums_x = engine.options(grad_x_product(r, s));
  const std::string w =
      fmt::format(" {} -DW_LAYOUT={}", opencl::type_option("W_TYPE", r.inputs.w.dtype()),
                  layout_of(r.inputs.w));
  const bool classes = static_cast<bool>(r.loss.class_weight);
  std::string columns =
      fmt::format(" -DSOFT_CAP={} -DHAS_BIAS={} -DHAS_CLASS_WEIGHT={}",
                  o.logit_soft_cap != 0.0f ? 1 : 0, r.inputs.bias ? 1 : 0, classes ? 1 : 0);
  if (r.inputs.bias)
    columns.append(" ").append(opencl::type_option("BIAS_TYPE", r.inputs.bias.dtype()));
  if (classes) {
    columns.append(" ").append(opencl::type_option("CLASS_TYPE", r.loss.class_weight.dtype()));
  }

  Programs p;
  const bool x_contiguous = r.inputs.x.strides()[r.inputs.x.rank() - 1] == 1;
  const std::string x =
      fmt::format(" -DPANEL_STEP={} {} -DX_CONTIGUOUS={}", panel_step,
                  opencl::type_option("X_TYPE", r.inputs.x.dtype()), x_contiguous ? 1 : 0);
  const char* file = "linear_cross_entropy/pack_x.cl";
  p.pack_rows = {file, shape + logits + x};
  p.pack_columns = {file, shape + sums_w + x};
  const auto& g = r.gradients;
  const std::string kept = s.logits_in_grad_w ? fmt::format(" -DKEPT_COLUMNS={} -DKEPT_HALVES={}",
                                                            kept_columns(g.grad_w, engine),
                                                            size_of(g.grad_w.dtype()) == 2 ? 1 : 0)
                                              : "";
  p.forward = {"linear_cross_entropy/forward.cl",
               shape + logits + w + columns + statistics_options +
                   fmt::format(" -DKEEP_LOGITS={} -DSTATISTICS={}", s.keeps_logits ? 1 : 0,
                               r.loss.wants_values() ? 1 : 0) +
                   kept};
  p.gradient = {"linear_cross_entropy/gradient.cl",
                shape + logits + w + columns +
                    fmt::format(" -DCLASS_GRADIENT={}", o.label_smoothing != 0.0f ? 1 : 0) + kept};
  const std::string filter =
      filters_gradients(r) ? fmt::format(" -DFILTER={}", filter_columns) : std::string();
  if (g.grad_w) {
    const std::string out =
        fmt::format(" {} -DOUT_LAYOUT={}", opencl::type_option("OUT_TYPE", g.grad_w.dtype()),
                    layout_of(g.grad_w));
    const bool direct = s.grad_w == Schedule::GradW::direct;
    p.grad_w = {"linear_cross_entropy/grad_w.cl", shape + sums_w + (direct ? out : "") + filter};
    p.write_w = {"linear_cross_entropy/grad_w.cl", shape + sums_w + out};
  }
  if (g.grad_bias) {
    p.write_bias = {"linear_cross_entropy/grad_w.cl",
                    fmt::format("{}{} {} -DOUT_LAYOUT=1", shape, sums_w,
                                opencl::type_option("OUT_TYPE", g.grad_bias.dtype()))};
  }
  p.grad_x = {"linear_cross_entropy/grad_x.cl", shape + sums_x + w + filter};
  if (filters_gradients(r)) {
    p.filter = {"linear_cross_entropy/filter.cl", shape + filter};
  }
  if (g.grad_x) {
    p.write_x = {"linear_cross_entropy/write_x.cl",
                 shape + " " + opencl::type_option("OUT_TYPE", g.grad_x.dtype())};
  }
  for (auto* program : p.all()) program->engine = engine.name();
  return p;
}

std::vector<std::pair<opencl::Specialisation, std::string>> kernels_of(const Request& r,
                                                                       const Schedule& s,
                                                                       const Programs& p) {
  std::vector<std::pair<opencl::Specialisation, std::string>> list{{p.pack_rows, "pack_rows"}};
  const auto& g = r.gradients;
  if (r.loss.wants_values() || s.keeps_logits) list.emplace_back(p.forward, "forward");
  if (!has_gradients(r.loss.pass)) return list;
  list.emplace_back(p.gradient, s.keeps_logits ? "gradient_of_kept" : "gradient");
  if (filters_gradients(r)) list.emplace_back(p.filter, "mark");
  if (g.grad_w) {
    list.emplace_back(p.pack_columns, "pack_columns");
    list.emplace_back(p.grad_w, "grad_w");
    if (s.grad_w != Schedule::GradW::direct) list.emplace_back(p.write_w, "write_w");
  }
  if (g.grad_x) {
    list.emplace_back(p.grad_x, "grad_x");
    list.emplace_back(p.write_x, "write_rows");
    list.emplace_back(p.write_x, "write_excluded");
  }
  if (g.grad_bias) {
    list.emplace_back(p.gradient, "sum_bias");
    list.emplace_back(p.write_bias, "write_w");
  }
  return list;
}

}  // namespace tessera::linear_cross_entropy
