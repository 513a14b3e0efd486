// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cctype>
#include <iterator>

#include "programs/info.hpp"
#include "programs/operators.hpp"

namespace tessera::programs {
namespace {

std::string text_of(const Json& json) { return json.get<std::string>(); }

std::string mebibytes(const Json& bytes) {
  return fmt::format("{:.1f} MiB", bytes.get<double>() / (1 << 20));
}

std::string values(const Json& object) {
  std::string result;
  for (const auto& [name, value] : object.items()) {
    result += fmt::format("{}{} {}", result.empty() ? "" : ", ", name, value.get<std::int64_t>());
  }
  return result;
}

using Out = std::back_insert_iterator<std::string>;

void devices_text(const Json& info, Out out) {
  if (info.at("devices").empty()) {
    fmt::format_to(out, "No OpenCL device was found; calls run on the host.\n");
  }
  for (const auto& device : info.at("devices")) {
    const bool used =
        !info.at("device").is_null() && info.at("device").at("selector") == device.at("selector");
    fmt::format_to(
        out,
        "{} {}  {} ({})\n"
        "      {}, {}, driver {}\n"
        "      {} compute units, {} memory, {} at once, {} bytes local{}\n",
        used ? "*" : " ", text_of(device.at("selector")), text_of(device.at("name")),
        text_of(device.at("type")), text_of(device.at("platform")), text_of(device.at("version")),
        text_of(device.at("driver")), device.at("compute_units").get<std::int64_t>(),
        mebibytes(device.at("global_memory_bytes")), mebibytes(device.at("max_allocation_bytes")),
        device.at("local_memory_bytes").get<std::int64_t>(),
        device.at("shares_host_memory").get<bool>() ? ", uses host memory as it is" : "");
  }
  if (info.contains("wgmma")) {
    fmt::format_to(out, "wgmma: {}\n", text_of(info.at("wgmma")));
  }
  fmt::format_to(out, "Host threads: {}\n", info.at("threads").get<int>());
}

std::string percent(const Json& share) { return fmt::format("{:.0f}%", 100 * share.get<double>()); }

std::string milliseconds(const Json& seconds) {
  return fmt::format("{:.3g} ms", 1e3 * seconds.get<double>());
}

void explain_text(const Json& plan, Out out) {
  if (plan.at("considered").empty()) {
    fmt::format_to(out, "  schedules    {} has no other\n", text_of(plan.at("implementation")));
    return;
  }
  fmt::format_to(out, "  schedules    looked at, best first (*: taken)\n");
  for (const auto& one : plan.at("considered")) {
    std::string figures;
    if (!one.at("launches").empty()) {
      figures = fmt::format("{} busy, {}, ", percent(one.at("predicted_share")),
                            mebibytes(one.at("workspace_bytes")));
      if (one.at("predicted_seconds").get<double>() > 0.0) {
        figures += milliseconds(one.at("predicted_seconds")) + ", ";
      }
    }
    const std::string logits = text_of(one.at("logits"));
    fmt::format_to(out, "  {} {}{}{}: {}{}\n", one.at("is_taken").get<bool>() ? "*" : " ",
                   text_of(one.at("name")), logits.empty() ? "" : ", logits ", logits, figures,
                   text_of(one.at("reason")));
    if (!one.at("is_taken").get<bool>()) continue;
    for (const auto& launch : one.at("launches")) {
      fmt::format_to(out, "      {:<14} {:>5} times {:>6} groups, {} busy\n",
                     text_of(launch.at("kernel")), launch.at("times").get<std::int64_t>(),
                     launch.at("groups").get<std::int64_t>(), percent(launch.at("share")));
    }
    if (one.at("predicted_seconds").get<double>() > 0.0) {
      fmt::format_to(out, "      of the time predicted multiply {}, memory {}, launches {}\n",
                     milliseconds(one.at("multiply_seconds")),
                     milliseconds(one.at("memory_seconds")),
                     milliseconds(one.at("launch_seconds")));
    }
  }
  if (!plan.at("bound").is_null()) {
    fmt::format_to(out, "  bound        {} of the peak of multiplication\n",
                   percent(plan.at("bound")));
  }
}

void plan_text(const Json& info, Out out) {
  const auto& request = info.at("request");
  fmt::format_to(out, "\n{} {}", text_of(request.at("operator")), text_of(request.at("pass")));
  for (const auto& [name, extent] : request.items()) {
    if (name.size() != 1) continue;
    fmt::format_to(out, " {} {}", static_cast<char>(std::toupper(name[0])),
                   extent.get<std::int64_t>());
  }
  if (request.contains("w_dtype")) {
    fmt::format_to(out, ", x {}, w {} {}:\n", text_of(request.at("x_dtype")),
                   text_of(request.at("w_dtype")), text_of(request.at("w_layout")));
  } else {
    fmt::format_to(out, ", {}:\n", text_of(request.at("x_dtype")));
  }
  const auto& plan = info.at("plan");
  if (plan.is_null()) {
    fmt::format_to(out, "  nothing would run: {}\n", text_of(info.at("plan_error")));
  } else {
    fmt::format_to(out,
                   "  runs on      {}, {}{}{}\n"
                   "  schedule     {}\n"
                   "  blocks       {} (from: {})\n",
                   text_of(plan.at("implementation")), text_of(plan.at("device")),
                   text_of(plan.at("driver")).empty() ? "" : ", driver ",
                   text_of(plan.at("driver")), text_of(plan.at("schedule")),
                   values(plan.at("block_sizes")), text_of(plan.at("block_source")));
    if (!text_of(plan.at("block_reason")).empty()) {
      fmt::format_to(out, "               {}\n", text_of(plan.at("block_reason")));
    }
    if (!plan.at("knobs").empty()) {
      fmt::format_to(out, "  knobs        {}\n", values(plan.at("knobs")));
    }
    for (const auto& note : plan.at("notes")) {
      fmt::format_to(out, "  note         {}\n", text_of(note));
    }
    fmt::format_to(out, "  workspace    {} (at least {})\n", mebibytes(plan.at("workspace_bytes")),
                   mebibytes(plan.at("minimum_workspace_bytes")));
    fmt::format_to(
        out, "  work         {:.4g} FLOP credited, {:.4g} executed; {} at least, {} moved\n",
        info.at("cost").at("flops").get<double>(),
        info.at("cost").at("executed_flops").get<double>(),
        mebibytes(info.at("cost").at("bytes_ideal")), mebibytes(info.at("cost").at("bytes_moved")));
    if (plan.contains("considered")) explain_text(plan, out);
  }
  for (const auto& verdict : info.at("verdicts")) {
    fmt::format_to(out, "  {:<12} {}", text_of(verdict.at("implementation")),
                   verdict.at("runs").get<bool>() ? "runs" : text_of(verdict.at("reason")));
    if (verdict.contains("inferred_block_sizes")) {
      fmt::format_to(out, "\n               would choose {} ({})",
                     values(verdict.at("inferred_block_sizes")),
                     text_of(verdict.at("inferred_block_source")));
    }
    fmt::format_to(out, "\n");
  }
}

void peaks_text(const Json& info, Out out) {
  for (const auto& [where, list] : info.at("peaks").items()) {
    fmt::format_to(out, "\nMeasured peaks of the {} (best, median)\n", where);
    for (const auto& peak : list) {
      if (peak.at("best").is_null()) {
        fmt::format_to(out, "  {:<18} absent: {}\n", text_of(peak.at("kind")),
                       text_of(peak.at("absent")));
        continue;
      }
      fmt::format_to(out, "  {:<18} {:>8.1f} {:>8.1f} G{:<8} {}\n", text_of(peak.at("kind")),
                     peak.at("best").get<double>() * 1e-9, peak.at("median").get<double>() * 1e-9,
                     text_of(peak.at("unit")), text_of(peak.at("code")));
    }
  }
}

}  // namespace

std::string info_text(const Json& info) {
  std::string text;
  const Out out = std::back_inserter(text);
  fmt::format_to(out, "tessera {} ({}; {})\n\n", text_of(info.at("version")),
                 text_of(info.at("revision")), text_of(info.at("build")));
  devices_text(info, out);
  fmt::format_to(out, "\nImplementations (+: tried by default)\n");
  for (const auto& row : info.at("implementations")) {
    std::string only;
    if (row.at("operators").size() < descriptions().size()) {
      for (const auto& name : row.at("operators"))
        only += (only.empty() ? " (" : ", ") + text_of(name);
      only += " only)";
    }
    fmt::format_to(out, "{} {:<12} {}{}\n", row.at("by_default").get<bool>() ? "+" : " ",
                   text_of(row.at("name")), text_of(row.at("description")), only);
  }
  if (info.contains("request")) plan_text(info, out);
  if (info.contains("peaks")) peaks_text(info, out);
  return text;
}

}  // namespace tessera::programs
