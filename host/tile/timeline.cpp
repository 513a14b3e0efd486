// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <string_view>

#include "host/dispatch/json_text.hpp"
#include "host/tile/machine_state.hpp"
#include "tessera/tile/error.hpp"

// The timeline as Chrome's trace event format: complete events ("X") in microseconds, a process per
// device, a thread per track.
namespace tessera::tile {
namespace {

using dispatch::quoted;
using Track = Span::Track;

constexpr int tracks_per_core = 8;      ///< of them used: one per Track that belongs to a core
constexpr int link_tracks = 1'000'000;  ///< behind those of all cores

/// Whole picoseconds, so that what ends when another begins does not overlap it by rounding.
std::int64_t picoseconds(double seconds) { return std::llround(seconds * 1e12); }

class Writer {
 public:
  explicit Writer(const detail::MachineState& machine) : machine_(machine) {}

  std::string write() {
    const auto& options = machine_.options;
    int cores = 1;
    for (const Timeline& kernel : machine_.timelines) {
      for (const Span& span : kernel.spans) {
        if (span.track != Track::ici) cores = std::max(cores, span.core + 1);
      }
    }
    out_ = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
    for (int device = 0; device < options.devices; ++device) {
      name("process_name", device, 0, fmt::format("{} device {}", options.chip.name, device));
      name("thread_name", device, 0, "kernels");
      for (int core = 0; core < cores; ++core) {
        constexpr const char* titles[] = {"steps",     "work",       "waits",
                                          "copies in", "copies out", "copies on chip"};
        for (int track = 0; track < static_cast<int>(std::size(titles)); ++track) {
          name("thread_name", device, 1 + core * tracks_per_core + track,
               fmt::format("core {} {}", core, titles[track]));
        }
      }
      for (int other = 0; other < options.devices; ++other) {
        if (other == device) continue;
        name("thread_name", device, link_tracks + other, fmt::format("link to device {}", other));
      }
    }
    for (const Timeline& kernel : machine_.timelines) {
      for (int device = 0; device < options.devices; ++device) {
        event(device, 0, kernel.name, kernel.start, kernel.start + kernel.seconds, "");
      }
      for (const Span& span : kernel.spans) write(kernel, span);
    }
    return out_ + "\n]}\n";
  }

 private:
  void separate() {
    out_ += first_ ? "\n" : ",\n";
    first_ = false;
  }

  void name(const char* what, int process, int thread, const std::string& text) {
    separate();
    fmt::format_to(std::back_inserter(out_),
                   R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", what,
                   process, thread, quoted(text));
    if (thread == 0) return;
    separate();
    fmt::format_to(
        std::back_inserter(out_),
        R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
        process, thread, thread);
  }

  /// `arguments`: members of a JSON object.
  void event(int process, int thread, std::string_view title, double start, double end,
             std::string_view arguments) {
    const std::int64_t from = picoseconds(start);
    const std::int64_t length = picoseconds(end) - from;
    constexpr std::int64_t in_microsecond = 1'000'000;
    separate();
    fmt::format_to(
        std::back_inserter(out_),
        R"({{"ph":"X","pid":{},"tid":{},"ts":{}.{:06},"dur":{}.{:06},"name":{},"args":{{{}}}}})",
        process, thread, from / in_microsecond, from % in_microsecond, length / in_microsecond,
        length % in_microsecond, quoted(title), arguments);
  }

  const std::string& buffer(std::size_t index) const { return machine_.report.buffers[index].name; }

  /// The array that a copy is of.
  const std::string& array(const Span& span) const {
    const bool from = machine_.report.buffers[span.from_buffer].space == MemorySpace::hbm;
    const bool to = machine_.report.buffers[span.to_buffer].space == MemorySpace::hbm;
    return buffer(from || !to ? span.from_buffer : span.to_buffer);
  }

  static std::string grid_point(const Span& span) {
    return span.place == nullptr
               ? ""
               : fmt::format("\"grid_point\":[{}]", fmt::join(span.place->grid_point, ","));
  }

  std::string copy(const Span& span) const {
    return fmt::format("\"from\":{},\"to\":{},\"bytes\":{}", quoted(buffer(span.from_buffer)),
                       quoted(buffer(span.to_buffer)), span.bytes);
  }

  void write(const Timeline& kernel, const Span& span) {
    const int thread = span.track == Track::ici
                           ? link_tracks + span.core
                           : 1 + span.core * tracks_per_core + static_cast<int>(span.track);
    std::string title;
    std::string arguments = grid_point(span);
    const auto add = [&](const std::string& members) {
      if (!arguments.empty() && !members.empty()) arguments += ',';
      arguments += members;
    };
    switch (span.track) {
      case Track::steps:
        title = fmt::format("({})", fmt::join(span.place->grid_point, ", "));
        break;
      case Track::work:
        title = "work";
        add(fmt::format("\"mxu_us\":{},\"vpu_us\":{},\"eup_us\":{},\"xlu_us\":{}",
                        span.units.mxu * 1e6, span.units.vpu * 1e6, span.units.eup * 1e6,
                        span.units.xlu * 1e6));
        break;
      case Track::waits:
        title = span.wait == Span::Wait::copy     ? array(span)
                : span.wait == Span::Wait::signal ? "a signal"
                                                  : "a barrier";
        if (span.wait == Span::Wait::copy) add(copy(span));
        break;
      default:
        title = array(span);
        add(copy(span));
    }
    event(span.device, thread, title, kernel.start + span.start, kernel.start + span.end,
          arguments);
  }

  const detail::MachineState& machine_;
  std::string out_{};
  bool first_ = true;
};

}  // namespace

std::string perfetto_json(const Machine& machine) {
  if (!machine.options().trace) {
    throw TileError(ErrorKind::usage, "a timeline is kept only where MachineOptions::trace is set");
  }
  return Writer(machine.state()).write();
}

}  // namespace tessera::tile
