// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "host/linear/opencl/run.hpp"
#include "host/opencl/specialise.hpp"

namespace tessera::linear {
namespace {

std::string w_options(const View& w) {
  return fmt::format(" {} -DW_LAYOUT={}", opencl::type_option("W_TYPE", w.dtype()), layout_of(w));
}

}  // namespace

std::string layer_options(const View& w, const View& bias, float cap) {
  std::string options =
      w_options(w) + fmt::format(" -DSOFT_CAP={} -DHAS_BIAS={}", cap != 0.0f ? 1 : 0, bias ? 1 : 0);
  if (bias) options.append(" ").append(opencl::type_option("BIAS_TYPE", bias.dtype()));
  return options;
}

std::string pack_options(const View& x) {
  return fmt::format(" -DPANEL_STEP={} {} -DX_CONTIGUOUS={}", panel_step,
                     opencl::type_option("X_TYPE", x.dtype()), x.strides().back() == 1 ? 1 : 0);
}

std::string kept_options(const Problem& p, const Schedule& s) {
  if (s.results != schedule::Results::output) return {};
  const MutableView& grad_w = p.request().gradients.grad_w;
  return fmt::format(" -DKEPT_COLUMNS={} -DKEPT_HALVES={}", kept_columns(grad_w, p.engine()),
                     size_of(grad_w.dtype()) == 2 ? 1 : 0);
}

std::string dz_options(const Problem& p, const Schedule& s) {
  const auto dz = p.dz(s);
  return p.engine().options(dz) + (p.sums_bias_on_the_way(s) ? " -DBIAS_LANES=1" : "") +
         (dz.type == DType::f16 ? " -DDZ_SCALED=1" : "");
}

std::string row_options(const Request& r) {
  const View& classes = r.loss.class_weight;
  std::string options = fmt::format(" -DHAS_CLASS_WEIGHT={}", classes ? 1 : 0);
  if (classes) options.append(" ").append(opencl::type_option("CLASS_TYPE", classes.dtype()));
  const bool every_class = r.loss.options.label_smoothing != 0.0f || r.loss.targets;
  return options + fmt::format(" -DCLASS_GRADIENT={}", every_class ? 1 : 0) +
         loss::target_options(r.loss);
}

std::pair<opencl::Specialisation, const char*> Problem::program(const schedule::Step& step,
                                                                const Schedule& s) const {
  const auto& g = r_.gradients;
  const auto made = [&](const char* file, const char* name, const std::string& options) {
    return std::pair{opencl::Specialisation{file, engine().options() + options, engine().folder()},
                     name};
  };
  const auto multiplies = [&](const char* file, const char* name, const std::string& options) {
    auto program = made(file, name, options);
    program.first.patched_items = engine().patched_items();
    return program;
  };
  const auto product = [&](const char* name) {
    return engine().options(s.steps.product(step).product, name);
  };
  const auto out = [](const MutableView& view, int layout) {
    return fmt::format(" {} -DOUT_LAYOUT={}", opencl::type_option("OUT_TYPE", view.dtype()),
                       layout);
  };
  const auto out_w = [&] { return out(g.grad_w, layout_of(g.grad_w)); };
  const std::string dz =
      (filters_gradients(r_) ? fmt::format(" -DFILTER={}", filter_columns) : "") +
      dz_options(*this, s);
  switch (step.kernel) {
    case linear::pack_rows:
    case linear::pack_columns:
      return made("linear/pack_x.cl",
                  step.kernel == linear::pack_rows ? "pack_rows" : "pack_columns",
                  product("PACK") + pack_options(r_.inputs.x));
    case linear::forward:
      return multiplies(
          "linear/forward.cl", "forward",
          product("LOGITS") +
              layer_options(r_.inputs.w, r_.inputs.bias, r_.loss.options.logit_soft_cap) +
              row_options(r_) + loss::statistics_options(r_.loss) +
              fmt::format(" -DKEEP_LOGITS={} -DSTATISTICS={}",
                          s.keeps_results() || layers() > 1 ? 1 : 0,
                          r_.loss.wants_values() ? 1 : 0) +
              kept_options(*this, s));
    case linear::fit_f16:
      return {{"linear/fit_f16.cl", "", engine().folder()}, "fit_f16"};
    case linear::mark:
      return made("linear/filter.cl", "mark", dz);
    case linear::sum_bias:
      return made("linear/sum_bias.cl", sums_bias_on_the_way(s) ? "sum_bias_lanes" : "sum_bias",
                  "");
    case linear::grad_w:
      return multiplies(
          "linear/grad_w.cl", "grad_w",
          product("DW") + (s.sums == schedule::Sums::direct ? out_w() : std::string()) + dz);
    case linear::write_w:  // of a file that has grad_w too
      return multiplies("linear/grad_w.cl", "write_w", product("DW") + out_w());
    case linear::write_bias:
      return made("linear/grad_w.cl", "write_w", product("DW") + out(g.grad_bias, 1));
    case linear::grad_x:
      return multiplies("linear/grad_x.cl", "grad_x", product("DX") + w_options(r_.inputs.w) + dz);
    case linear::write_x:
    case linear::write_excluded:
      return made("linear/write_x.cl",
                  step.kernel == linear::write_x ? "write_rows" : "write_excluded",
                  fmt::format(" {}{}", opencl::type_option("OUT_TYPE", g.grad_x.dtype()),
                              this->dz(s).type == DType::f16 ? " -DDZ_SCALED=1" : ""));
    default:
      return {};
  }
}

Programs programs_of(const Problem& problem, const Schedule& s) {
  Programs programs;
  for (const auto& step : s.steps.list) {
    const auto at = static_cast<std::size_t>(step.kernel);
    if (programs.kernels.size() <= at) programs.kernels.resize(at + 1);
    if (!programs.kernels[at].second.empty()) continue;
    auto [program, name] = problem.program(step, s);
    programs.kernels[at] = {std::move(program), name == nullptr ? "" : name};
  }
  return programs;
}

std::vector<operators::Kernel> kernels_of(const Programs& programs) {
  auto list = programs.kernels;
  std::erase_if(list, [](const operators::Kernel& kernel) { return kernel.second.empty(); });
  return list;
}

}  // namespace tessera::linear
