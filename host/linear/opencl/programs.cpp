// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "host/linear/opencl/run.hpp"
#include "host/opencl/specialise.hpp"

namespace tessera::linear {

namespace {

std::string scaled_options(const Schedule& s) {
  return s.dz.type == DType::f16 ? " -DDZ_SCALED=1" : "";
}

std::string w_options(DType w, int layout) {
  return fmt::format(" {} -DW_LAYOUT={}", opencl::type_option("W_TYPE", w), layout);
}

}  // namespace

std::string layer_options(DType w, int w_layout, const View& bias, float cap) {
  std::string options = w_options(w, w_layout) + fmt::format(" -DSOFT_CAP={} -DHAS_BIAS={}",
                                                             cap != 0.0f ? 1 : 0, bias ? 1 : 0);
  if (bias) options.append(" ").append(opencl::type_option("BIAS_TYPE", bias.dtype()));
  return options;
}

std::string pack_options(const View& x) {
  return fmt::format(" -DPANEL_STEP={} {} -DX_CONTIGUOUS={}", panel_step,
                     opencl::type_option("X_TYPE", x.dtype()), x.strides().back() == 1 ? 1 : 0);
}

std::string kept_options(const Request& r, const engines::Engine& engine, const Schedule& s) {
  if (!s.logits_in_grad_w) return {};
  const MutableView& grad_w = r.gradients.grad_w;
  return fmt::format(" -DKEPT_COLUMNS={} -DKEPT_HALVES={}", kept_columns(grad_w, engine),
                     size_of(grad_w.dtype()) == 2 ? 1 : 0);
}

std::string dz_options(const Request& r, const engines::Engine& engine, const Schedule& s) {
  return engine.options(s.dz) + (sums_bias_on_the_way(r, s) ? " -DBIAS_LANES=1" : "") +
         scaled_options(s);
}

std::string row_options(const Request& r) {
  const View& classes = r.loss.class_weight;
  std::string options = fmt::format(" -DHAS_CLASS_WEIGHT={}", classes ? 1 : 0);
  if (classes) options.append(" ").append(opencl::type_option("CLASS_TYPE", classes.dtype()));
  const bool every_class = r.loss.options.label_smoothing != 0.0f || r.loss.targets;
  return options + fmt::format(" -DCLASS_GRADIENT={}", every_class ? 1 : 0) +
         loss::target_options(r.loss);
}

Programs programs_of(const Request& r, const engines::Engine& engine, const Schedule& s,
                     const std::string& statistics_options) {
  const std::string shape = engine.options();
  const std::string dw = engine.options(grad_w_product(r, s), "DW");
  const DType w_type = r.inputs.w.dtype();
  const int w_layout = layout_of(r.inputs.w);
  const std::string columns =
      layer_options(w_type, w_layout, r.inputs.bias, r.loss.options.logit_soft_cap) +
      row_options(r);

  Programs p;
  const std::string x = pack_options(r.inputs.x);
  const char* file = "linear/pack_x.cl";
  p.pack_rows = {file, shape + engine.options(logits_product(r, s), "PACK") + x};
  if (!packs_once(r, engine, s)) {
    p.pack_columns = {file, shape + engine.options(grad_w_product(r, s), "PACK") + x};
  }
  const auto& g = r.gradients;
  const std::string kept = kept_options(r, engine, s);
  p.forward = {
      "linear/forward.cl",
      shape + engine.options(logits_product(r, s), "LOGITS") + columns + statistics_options +
          fmt::format(" -DKEEP_LOGITS={} -DSTATISTICS={}",
                      s.keeps_logits || s.teacher.given ? 1 : 0, r.loss.wants_values() ? 1 : 0) +
          kept};
  const std::string dz =
      (filters_gradients(r) ? fmt::format(" -DFILTER={}", filter_columns) : std::string()) +
      dz_options(r, engine, s);
  if (g.grad_w) {
    const std::string out =
        fmt::format(" {} -DOUT_LAYOUT={}", opencl::type_option("OUT_TYPE", g.grad_w.dtype()),
                    layout_of(g.grad_w));
    const bool direct = s.grad_w == Schedule::GradW::direct;
    p.grad_w = {"linear/grad_w.cl", shape + dw + (direct ? out : "") + dz};
    p.write_w = {"linear/grad_w.cl", shape + dw + out};
  }
  if (g.grad_bias) {
    p.sum_bias = {"linear/sum_bias.cl", shape};
    p.write_bias = {"linear/grad_w.cl",
                    fmt::format("{}{} {} -DOUT_LAYOUT=1", shape, dw,
                                opencl::type_option("OUT_TYPE", g.grad_bias.dtype()))};
  }
  p.grad_x = {"linear/grad_x.cl", shape + engine.options(grad_x_product(r, s), "DX") +
                                      w_options(w_type, w_layout) + dz};
  if (filters_gradients(r)) {
    p.filter = {"linear/filter.cl", shape + dz};
  }
  if (g.grad_x) {
    p.write_x = {
        "linear/write_x.cl",
        shape + " " + opencl::type_option("OUT_TYPE", g.grad_x.dtype()) + scaled_options(s)};
  }
  if (s.dz.type == DType::f16) p.fit_f16 = {"linear/fit_f16.cl", ""};
  // The file of write_w has grad_w, too.
  for (auto* program : {&p.forward, &p.grad_w, &p.write_w, &p.grad_x}) {
    program->patched_items = engine.patched_items();
  }
  for (auto* program : p.all()) program->engine = engine.folder();
  return p;
}

std::vector<std::pair<opencl::Specialisation, std::string>> kernels_of(const Request& r,
                                                                       const Schedule& s,
                                                                       const Programs& p) {
  std::vector<std::pair<opencl::Specialisation, std::string>> list{{p.pack_rows, "pack_rows"}};
  const auto& g = r.gradients;
  // Beside a teacher's, logits that nothing is merged of are formed by the operator's own program.
  if (r.loss.wants_values() || (s.keeps_logits && !s.teacher.given)) {
    list.emplace_back(p.forward, "forward");
  }
  if (!has_gradients(r.loss.pass)) return list;
  if (s.dz.type == DType::f16) list.emplace_back(p.fit_f16, "fit_f16");
  if (filters_gradients(r)) list.emplace_back(p.filter, "mark");
  if (g.grad_w) {
    if (!p.pack_columns.file.empty()) list.emplace_back(p.pack_columns, "pack_columns");
    list.emplace_back(p.grad_w, "grad_w");
    if (s.grad_w != Schedule::GradW::direct) list.emplace_back(p.write_w, "write_w");
  }
  if (g.grad_x) {
    list.emplace_back(p.grad_x, "grad_x");
    list.emplace_back(p.write_x, "write_rows");
    list.emplace_back(p.write_x, "write_excluded");
  }
  if (g.grad_bias) {
    list.emplace_back(p.sum_bias, sums_bias_on_the_way(r, s) ? "sum_bias_lanes" : "sum_bias");
    list.emplace_back(p.write_bias, "write_w");
  }
  return list;
}

}  // namespace tessera::linear
