// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "host/linear_cross_entropy/opencl_run.hpp"

namespace tessera::linear_cross_entropy {
namespace {

std::string lanes_option(const engines::Engine& engine) {
  return fmt::format("-DLANES={}", engine.lanes());
}

}  // namespace

Programs programs_of(const Request& r, const engines::Engine& engine, const Schedule& s,
                     const std::string& statistics_options) {
  const auto& o = r.loss.options;
  const std::string& shape = engine.options();
  const std::string pairs = engine.pair_options();  // of x and w, not of dz
  const std::string w =
      fmt::format(" {} -DW_LAYOUT={}", engines::type_option("W_TYPE", r.w.dtype()), layout_of(r.w));
  const bool classes = static_cast<bool>(r.loss.class_weight);
  std::string columns =
      fmt::format(" -DSOFT_CAP={} -DHAS_BIAS={} -DHAS_CLASS_WEIGHT={}",
                  o.logit_soft_cap != 0.0f ? 1 : 0, r.bias ? 1 : 0, classes ? 1 : 0);
  if (r.bias) columns.append(" ").append(engines::type_option("BIAS_TYPE", r.bias.dtype()));
  if (classes) {
    columns.append(" ").append(engines::type_option("CLASS_TYPE", r.loss.class_weight.dtype()));
  }

  const std::string copy =
      fmt::format("-DTILE_N={} -DH_STEP={} ", engine.tile_n(), engine.h_step());
  const std::int64_t tokens = along_k(r, engine);
  const std::string along = tokens > 0 ? fmt::format(" -DALONG_K={}", tokens) : "";
  Programs p;
  const bool x_contiguous = r.x.strides()[r.x.rank() - 1] == 1;
  p.pack_x = {"linear_cross_entropy/pack_x.cl",
              fmt::format("{} -DTILE_N={} -DH_STEP={} -DPANEL_STEP={} {} -DX_CONTIGUOUS={}{}",
                          lanes_option(engine), engine.tile_n(), engine.h_step(), panel_step,
                          engines::type_option("X_TYPE", r.x.dtype()), x_contiguous ? 1 : 0,
                          engine.multiplies_pairs() ? " -DX_PAIRS=1" : along)};
  const auto& g = r.gradients;
  const std::string stored =
      s.logits_in_grad_w ? fmt::format(" -DSTORED_COLUMNS={} -DSTORED_HALVES={}",
                                       stored_columns(g.grad_w, engine),
                                       size_of(g.grad_w.dtype()) == 2 ? 1 : 0)
                         : "";
  p.forward = {"linear_cross_entropy/forward.cl",
               shape + pairs + along + w + columns + statistics_options +
                   fmt::format(" -DSTORE_LOGITS={} -DSTATISTICS={}", s.stored_logits ? 1 : 0,
                               r.loss.wants_values() ? 1 : 0) +
                   stored};
  p.gradient = {"linear_cross_entropy/gradient.cl",
                shape + pairs + along + w + columns +
                    fmt::format(" -DCLASS_GRADIENT={}", o.label_smoothing != 0.0f ? 1 : 0) +
                    stored};
  const std::string filter =
      filters_gradients(r) ? fmt::format(" -DFILTER={}", filter_columns) : std::string();
  // grad_w.cl reads dz and not w; its W_TYPE only satisfies the shared declarations.
  const std::string plain = shape + " -DW_TYPE=0";
  if (g.grad_w) {
    const std::string out =
        fmt::format(" {} -DOUT_LAYOUT={}", engines::type_option("OUT_TYPE", g.grad_w.dtype()),
                    layout_of(g.grad_w));
    const bool direct = s.grad_w == Schedule::GradW::direct;
    p.grad_w = {"linear_cross_entropy/grad_w.cl",
                plain + (direct ? out : " -DOUT_TYPE=0 -DOUT_LAYOUT=0") + filter};
    p.write_w = {"linear_cross_entropy/grad_w.cl", plain + out};
  }
  if (g.grad_bias) {
    p.write_bias = {"linear_cross_entropy/grad_w.cl",
                    fmt::format("{} {} -DOUT_LAYOUT=1", plain,
                                engines::type_option("OUT_TYPE", g.grad_bias.dtype()))};
  }
  p.grad_x = {"linear_cross_entropy/grad_x.cl", shape + w + filter};
  if (filters_gradients(r)) {
    p.filter = {"linear_cross_entropy/filter.cl",
                fmt::format("{} -DTILE_N={}{}", lanes_option(engine), engine.tile_n(), filter)};
  }
  if (g.grad_x) {
    p.write_x = {"linear_cross_entropy/write_x.cl",
                 copy + engines::type_option("OUT_TYPE", g.grad_x.dtype())};
  }
  return p;
}

std::vector<std::pair<opencl::Specialisation, std::string>> kernels_of(const Request& r,
                                                                       const Schedule& s,
                                                                       const Programs& p) {
  std::vector<std::pair<opencl::Specialisation, std::string>> list{{p.pack_x, "pack_rows"}};
  const auto& g = r.gradients;
  if (r.loss.wants_values() || s.stored_logits) list.emplace_back(p.forward, "forward");
  if (!r.loss.wants_gradients()) return list;
  list.emplace_back(p.gradient, s.stored_logits ? "gradient_of_stored" : "gradient");
  if (filters_gradients(r)) list.emplace_back(p.filter, "mark");
  if (g.grad_w) {
    list.emplace_back(p.pack_x, "pack_columns");
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
