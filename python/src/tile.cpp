// SPDX-License-Identifier: Apache-2.0
#include "python/src/tile.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "python/src/errors.hpp"
#include "python/src/reports.hpp"
#include "tessera/linear_cross_entropy_tile.hpp"

namespace tessera::python {
namespace {

namespace tpu_tile = linear_cross_entropy::tpu_tile;
using Blocks = linear_cross_entropy::BlockSizes;

tile::ElementType parse_element_type(const char* argument, const std::string& name) {
  using tile::ElementType;
  std::string known;
  for (const auto type : {ElementType::f32, ElementType::bf16, ElementType::f16,
                          ElementType::f8e5m2, ElementType::f8e4m3fn, ElementType::i8}) {
    if (name == to_string(type)) return type;
    known += std::string(known.empty() ? "'" : ", '") + to_string(type) + "'";
  }
  raise(PyExc_ValueError, std::string(argument) + " is '" + name + "'; give one of " + known);
}

/// The kernel that is asked about, and the machine.
struct Question {
  tile::MachineOptions options;
  tpu_tile::Problem problem;
};

Question question(const std::string& chip, const std::vector<std::int64_t>& shape,
                  const std::string& pass_name, const std::string& x_dtype,
                  const std::optional<std::string>& w_dtype, const std::string& w_layout,
                  int f32_passes, const std::optional<std::int64_t>& vmem_limit_bytes) {
  Question asked;
  asked.options.chip = tile::find_chip(chip);
  if (vmem_limit_bytes) asked.options.chip.scoped_vmem_bytes = *vmem_limit_bytes;
  asked.options.dry_run = true;
  if (shape.size() != 3) {
    raise(PyExc_ValueError, "shape has " + std::to_string(shape.size()) +
                                " extents; give tokens, hidden, vocabulary");
  }
  if (pass_name != "forward" && pass_name != "backward") {
    raise(PyExc_ValueError, "pass_name is '" + pass_name + "'; give 'forward' or 'backward'");
  }
  if (w_layout != "hv" && w_layout != "vh") {
    raise(PyExc_ValueError, "w_layout is '" + w_layout + "'; give 'hv' or 'vh'");
  }
  if (f32_passes != 1 && f32_passes != 3 && f32_passes != 6) {
    raise(PyExc_ValueError, "f32_passes is " + std::to_string(f32_passes) + "; give 1, 3 or 6");
  }
  const auto x_type = parse_element_type("x_dtype", x_dtype);
  asked.problem.shape = {shape[0], shape[1], shape[2], x_type,
                         w_dtype ? parse_element_type("w_dtype", *w_dtype) : x_type};
  asked.problem.pass = pass_name == "forward" ? Pass::forward : Pass::backward;
  asked.problem.w_is_vh = w_layout == "vh";
  asked.problem.f32_passes = static_cast<tile::F32Passes>(f32_passes);
  return asked;
}

nb::list rules_of(const std::vector<tile::Violation>& violations) {
  nb::list rules;
  for (const auto& violation : violations) rules.append(violation.message);
  return rules;
}

nb::dict model(Question asked, nb::handle block_sizes, bool dry_run, const std::string& trace) {
  asked.options.dry_run = dry_run;
  asked.options.trace = !trace.empty();
  if (!block_sizes.is_none()) {
    asked.problem.blocks.emplace();
    from_named(to_named("block_sizes", block_sizes), *asked.problem.blocks);
  }
  const auto report = without_gil([&] { return tpu_tile::model(asked.options, asked.problem); });
  if (asked.options.trace) {
    const nb::object file = nb::module_::import_("builtins").attr("open")(trace, "w");
    file.attr("write")(report.trace);
    file.attr("close")();
  }
  const tile::TimeReport& time = report.report.time;
  nb::dict busy;
  busy["mxu"] = time.busy.mxu;
  busy["vpu"] = time.busy.vpu;
  busy["eup"] = time.busy.eup;
  busy["xlu"] = time.busy.xlu;
  busy["hbm"] = time.busy.hbm;
  busy["vmem"] = time.busy.vmem;
  busy["ici"] = time.busy.ici;
  nb::dict result;
  result["chip"] = asked.options.chip.name;
  result["calibrated"] = asked.options.chip.calibrated;
  result["block_sizes"] = to_dict(tessera::to_named(report.blocks));
  result["block_source"] = to_string(report.source);
  result["modelled_seconds"] = time.modelled_seconds;
  result["lower_bound_seconds"] = time.lower_bound_seconds;
  result["upper_bound_seconds"] = time.upper_bound_seconds;
  result["bound"] = time.bound;
  result["busy_seconds"] = busy;
  result["waiting_seconds"] = time.waiting_seconds;
  result["mxu_utilisation"] = time.mxu_utilisation;
  result["padding_waste"] = time.padding_waste;
  result["mxu_flops"] = report.report.work.mxu_flops;
  result["dma_bytes"] = report.report.bytes_copied;
  result["vmem_high_water_bytes"] = report.report.vmem_high_water_bytes;
  result["vmem_declared_bytes"] = report.vmem_declared_bytes;
  result["vmem_with_temporaries_bytes"] = report.vmem_with_temporaries_bytes;
  return result;
}

/// A column for each quantity, which pandas.DataFrame takes as it is.
nb::dict sweep(const Question& asked) {
  const auto candidates =
      without_gil([&] { return tpu_tile::sweep(asked.options, asked.problem); });
  nb::dict columns;
  const auto add = [&](const char* name, const auto& value) {
    nb::list column;
    for (const auto& candidate : candidates) column.append(value(candidate));
    columns[name] = column;
  };
  using Candidate = tpu_tile::Candidate;
  for (const auto& axis : Blocks::axes()) {
    add(axis.name, [&](const Candidate& c) { return c.blocks.*axis.value; });
  }
  // Of refused blocks nothing is known but why: None, which pandas reads as missing.
  const auto add_known = [&](const char* name, auto Candidate::*member) {
    add(name, [&](const Candidate& c) -> nb::object {
      return c.refused.empty() ? nb::cast(c.*member) : nb::none();
    });
  };
  add_known("modelled_seconds", &Candidate::modelled_seconds);
  add_known("bound", &Candidate::bound);
  add_known("mxu_utilisation", &Candidate::mxu_utilisation);
  add_known("dma_bytes", &Candidate::dma_bytes);
  add_known("vmem_declared_bytes", &Candidate::vmem_declared_bytes);
  add_known("extrapolated", &Candidate::extrapolated);
  add("vmem_with_temporaries_bytes",
      [](const Candidate& c) { return c.vmem_with_temporaries_bytes; });
  add("refused", [](const Candidate& c) { return rules_of(c.refused); });
  return columns;
}

}  // namespace

void bind_tile(nb::module_& parent) {
  nb::module_ m = parent.def_submodule(
      "tile",
      "How long linear_cross_entropy would take on a TPU, with which blocks, and which "
      "blocks a TPU refuses: a model, on this machine (docs/tile_machine.md).");
  m.def(
      "chips",
      [] {
        std::vector<std::string> names;
        for (const auto& chip : tile::chips()) names.push_back(chip.name);
        return names;
      },
      "Names of the chips.");
  m.def(
      "model",
      [](const std::string& chip, const std::vector<std::int64_t>& shape,
         const std::string& pass_name, const std::string& x_dtype,
         const std::optional<std::string>& w_dtype, const std::string& w_layout, int f32_passes,
         const std::optional<std::int64_t>& vmem_limit_bytes, nb::handle block_sizes, bool dry_run,
         const std::string& trace) {
        return model(question(chip, shape, pass_name, x_dtype, w_dtype, w_layout, f32_passes,
                              vmem_limit_bytes),
                     block_sizes, dry_run, trace);
      },
      nb::arg("chip"), nb::arg("shape"), nb::arg("pass_name") = "forward", nb::kw_only(),
      nb::arg("x_dtype") = "f32", nb::arg("w_dtype") = nb::none(), nb::arg("w_layout") = "hv",
      nb::arg("f32_passes") = 1, nb::arg("vmem_limit_bytes") = nb::none(),
      nb::arg("block_sizes") = nb::none(), nb::arg("dry_run") = true, nb::arg("trace") = "",
      "Runs the kernel on the tile machine, in a dry run without data or on random operands, and "
      "returns what it would take as a dict. `shape`: tokens, hidden, vocabulary. `trace`: where "
      "to write a timeline for Perfetto. Error: every rule that the blocks break.");
  m.def(
      "sweep",
      [](const std::string& chip, const std::vector<std::int64_t>& shape,
         const std::string& pass_name, const std::string& x_dtype,
         const std::optional<std::string>& w_dtype, const std::string& w_layout, int f32_passes,
         const std::optional<std::int64_t>& vmem_limit_bytes) {
        return sweep(question(chip, shape, pass_name, x_dtype, w_dtype, w_layout, f32_passes,
                              vmem_limit_bytes));
      },
      nb::arg("chip"), nb::arg("shape"), nb::arg("pass_name") = "forward", nb::kw_only(),
      nb::arg("x_dtype") = "f32", nb::arg("w_dtype") = nb::none(), nb::arg("w_layout") = "hv",
      nb::arg("f32_passes") = 1, nb::arg("vmem_limit_bytes") = nb::none(),
      "Every candidate of block sizes in a dry run, as a dict of columns: legal ones first, by "
      "modelled time; `refused` has the rules that the others break.");
}

}  // namespace tessera::python
