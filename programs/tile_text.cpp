// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "programs/tile.hpp"

namespace tessera::programs {
namespace {

std::string mebibytes(const Json& bytes) {
  return fmt::format("{:.1f} MiB", bytes.get<double>() / (1024 * 1024));
}

std::string blocks_text(const Json& blocks) {
  return fmt::format("{},{},{}", blocks.at("b_block_size").get<std::int64_t>(),
                     blocks.at("h_block_size").get<std::int64_t>(),
                     blocks.at("v_block_size").get<std::int64_t>());
}

std::string heading(const Json& report) {
  const auto& shape = report.at("shape");
  return fmt::format(
      "{} {} on {}, B {} H {} V {}, x {}, w {} {}{}\n", report.at("kernel").get<std::string>(),
      report.at("pass").get<std::string>(), report.at("chip").get<std::string>(),
      shape[0].get<std::int64_t>(), shape[1].get<std::int64_t>(), shape[2].get<std::int64_t>(),
      report.at("x_dtype").get<std::string>(), report.at("w_dtype").get<std::string>(),
      report.at("w_layout").get<std::string>(),
      report.at("calibrated").get<bool>()
          ? ""
          : "\ncalibrated: false (no measurements of this chip: trust the order of "
            "the times more than the times)");
}

std::string reasons(const Json& refused) {
  std::string text;
  for (const auto& one : refused) {
    text += fmt::format("  {}\n", one.at("reason").get<std::string>());
  }
  return text;
}

/// Milliseconds by b and v, at the h of the best: darker signs are slower.
std::string heat_map(const Json& candidates) {
  const auto& best = candidates.front();
  const auto h = best.at("block_sizes").at("h_block_size").get<std::int64_t>();
  const double least = best.at("modelled_seconds").get<double>();
  std::set<std::int64_t> rows, columns;
  std::map<std::pair<std::int64_t, std::int64_t>, double> seconds;
  for (const auto& candidate : candidates) {
    const auto& blocks = candidate.at("block_sizes");
    if (blocks.at("h_block_size").get<std::int64_t>() != h) continue;
    const auto b = blocks.at("b_block_size").get<std::int64_t>();
    const auto v = blocks.at("v_block_size").get<std::int64_t>();
    if (!candidate.at("refused").empty()) continue;
    rows.insert(b);
    columns.insert(v);
    seconds[{b, v}] = candidate.at("modelled_seconds").get<double>();
  }
  std::string text = fmt::format(
      "milliseconds, h_block_size {} ('-': illegal; * within 5% of the best, + within 25%)\n"
      "  b \\ v",
      h);
  for (const auto v : columns) text += fmt::format("{:>10}", v);
  for (const auto b : rows) {
    text += fmt::format("\n{:>7}", b);
    for (const auto v : columns) {
      const auto found = seconds.find({b, v});
      if (found == seconds.end()) {
        text += fmt::format("{:>10}", "-");
        continue;
      }
      const char* sign = found->second <= 1.05 * least   ? "*"
                         : found->second <= 1.25 * least ? "+"
                                                         : " ";
      text += fmt::format("{:>9.2f}{}", 1e3 * found->second, sign);
    }
  }
  return text + "\n";
}

}  // namespace

std::string tile_text(const Json& report) {
  std::string text = heading(report);
  if (report.at("block_sizes").is_null()) {
    return text + "no block sizes are legal:\n" + reasons(report.at("refused"));
  }
  const std::string blocks = blocks_text(report.at("block_sizes"));
  if (!report.at("refused").empty()) {
    return text + fmt::format("block sizes {} are refused:\n", blocks) +
           reasons(report.at("refused"));
  }
  text +=
      fmt::format("block sizes {} ({})\n", blocks, report.at("block_source").get<std::string>());
  text += fmt::format("modelled {:.3f} ms, bound by {}; {:.3g} tokens/s\n",
                      1e3 * report.at("modelled_seconds").get<double>(),
                      report.at("bound").get<std::string>(),
                      report.at("tokens_per_second").get<double>());
  text += "busy, ms:";
  for (const auto& [unit, seconds] : report.at("busy_seconds").items()) {
    text += fmt::format(" {} {:.3f}", unit, 1e3 * seconds.get<double>());
  }
  text += fmt::format("; waiting {:.3f}", 1e3 * report.at("waiting_seconds").get<double>());
  if (const auto waits = report.at("waits_for").get<std::string>(); !waits.empty()) {
    text += " (most for " + waits + ")";
  }
  text += fmt::format("\nMXU: {:.1f}% of its peak, padding {:.3f}x, {:.4g} flops\n",
                      100 * report.at("mxu_utilisation").get<double>(),
                      report.at("padding_waste").get<double>(), report.at("flops").get<double>());
  text += fmt::format("DMA: {} in {} copies\n", mebibytes(report.at("dma_bytes")),
                      report.at("dma_copies").get<std::int64_t>());
  for (const auto& buffer : report.at("dma_bytes_by_buffer")) {
    text +=
        fmt::format("  {:<14} read {:>12} written {:>12}\n", buffer.at("name").get<std::string>(),
                    mebibytes(buffer.at("bytes_read")), mebibytes(buffer.at("bytes_written")));
  }
  text += fmt::format("VMEM: {} of {}; with the compiler's temporaries about {}\n",
                      mebibytes(report.at("vmem_high_water_bytes")),
                      mebibytes(report.at("vmem_limit_bytes")),
                      mebibytes(report.at("vmem_with_temporaries_bytes")));
  return text;
}

std::string sweep_text(const Json& sweep) {
  // With heading and rules, what a terminal of 24 lines holds.
  constexpr std::size_t shown = 12;
  std::string text = heading(sweep);
  const auto& candidates = sweep.at("candidates");
  std::size_t legal = 0;
  std::map<std::string, std::pair<std::size_t, std::string>> rules;  // how often, and an example
  for (const auto& candidate : candidates) {
    legal += candidate.at("refused").empty() ? 1 : 0;
    std::set<std::string> broken;  // one rule may be broken by b and by h
    for (const auto& refused : candidate.at("refused")) {
      const auto name = refused.at("rule").get<std::string>();
      if (!broken.insert(name).second) continue;
      auto& rule = rules[name];
      if (rule.first++ == 0) rule.second = refused.at("reason").get<std::string>();
    }
  }
  text += fmt::format("{} of {} block sizes are legal\n", legal, candidates.size());
  for (std::size_t i = 0; i < std::min(shown, legal); ++i) {
    const auto& c = candidates[i];
    text +=
        fmt::format("  {:<16} {:>9.3f} ms  {:<8} MXU {:>5.1f}%  DMA {:>12}  VMEM {:>10}{}\n",
                    blocks_text(c.at("block_sizes")), 1e3 * c.at("modelled_seconds").get<double>(),
                    c.at("bound").get<std::string>(), 100 * c.at("mxu_utilisation").get<double>(),
                    mebibytes(c.at("dma_bytes")), mebibytes(c.at("vmem_declared_bytes")),
                    c.at("extrapolated").get<bool>() ? "  (extrapolated)" : "");
  }
  if (legal > 0) text += heat_map(candidates);
  for (const auto& [rule, found] : rules) {
    text += fmt::format("refused by {}: {}, for example: {}\n", rule, found.first, found.second);
  }
  return text;
}

}  // namespace tessera::programs
