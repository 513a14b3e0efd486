// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "host/dispatch/json_text.hpp"
#include "host/dispatch/recorder.hpp"

// Chrome's trace event format, as the timeline of the tile machine: complete events ("X") in
// microseconds, a "thread" for each row.
namespace tessera::dispatch {
namespace {

/// Rows in the order in which a viewer shows them.
enum class Lane { call, device, copy, wait, task };

Lane lane_of(const RecordedSpan& span) {
  if (span.on_device) return Lane::device;
  switch (span.kind) {
    case ProfileKind::copy:
      return Lane::copy;
    case ProfileKind::wait:
      return Lane::wait;
    case ProfileKind::call:
      return Lane::call;
    default:
      return Lane::task;
  }
}

std::string title_of(Lane lane, int number) {
  switch (lane) {
    case Lane::call:
      return fmt::format("calls of thread {}", number);
    case Lane::device:
      return number == 0 ? "device queue" : fmt::format("device queue, beside it {}", number);
    case Lane::copy:
      return fmt::format("staging of thread {}", number);
    case Lane::wait:
      return fmt::format("waits of thread {}", number);
    case Lane::task:
      return fmt::format("tasks of thread {}", number);
  }
  return "?";
}

std::string object_of(const std::vector<NamedValue>& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", quoted(name), value);
  }
  return fmt::format("{{{}}}", text);
}

std::string arguments_of(const RecordedSpan& span, const RecordedCall& call) {
  std::string text = fmt::format("\"call\":{}", span.call);
  if (span.kind == ProfileKind::kernel) text += fmt::format(",\"work_groups\":{}", span.groups);
  if (span.kind != ProfileKind::call) return text;
  return text + fmt::format(R"(,"implementation":{},"schedule":{},"block_sizes":{},"knobs":{})",
                            quoted(call.implementation), quoted(call.schedule),
                            object_of(call.block_sizes), object_of(call.knobs));
}

/// On an in-order queue commands follow each other, while their times, moved to the host's clock
/// call by call, may overlap by as much as that is uncertain: the later begins later.
constexpr std::int64_t clock_slack_ns = 100'000;

/// Numbers of the rows that a device's commands go to, which a viewer wants without overlaps: the
/// first for all, unless a caller's queues run several at once.
std::vector<int> rows_of_device(std::vector<RecordedSpan*>& spans) {
  std::sort(spans.begin(), spans.end(), [](const auto* a, const auto* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end > b->end;
  });
  std::vector<int> rows;
  std::vector<std::int64_t> ends;
  for (auto* span : spans) {
    const auto free = std::find_if(ends.begin(), ends.end(), [&](std::int64_t end) {
      return end - clock_slack_ns <= span->begin;
    });
    rows.push_back(static_cast<int>(free - ends.begin()));
    if (free == ends.end()) {
      ends.push_back(span->end);
      continue;
    }
    span->begin = std::max(span->begin, *free);
    span->end = std::max(span->end, span->begin);
    *free = span->end;
  }
  return rows;
}

class Writer {
 public:
  explicit Writer(std::int64_t begin) : begin_(begin) {}

  void event(Lane lane, int number, const RecordedSpan& span, const RecordedCall& call) {
    const int row = row_of(lane, number);
    const std::int64_t from = std::max<std::int64_t>(span.begin - begin_, 0);
    const std::int64_t length = std::max<std::int64_t>(span.end - begin_ - from, 0);
    const bool is_call = span.kind == ProfileKind::call;
    const auto& name =
        is_call && !call.pass.empty() ? call.operation + "." + call.pass : name_of(span, call);
    separate();
    fmt::format_to(std::back_inserter(out_),
                   R"({{"ph":"X","pid":0,"tid":{},"ts":{}.{:03},"dur":{}.{:03},)"
                   R"("cat":"{}","name":{},"args":{{{}}}}})",
                   row, from / 1000, from % 1000, length / 1000, length % 1000,
                   to_string(span.kind), quoted(name), arguments_of(span, call));
  }

  std::string finish(const std::vector<std::string>& notes) {
    for (const auto& [row, number] : rows_) {
      const int id = id_of(row.first, number);
      separate();
      fmt::format_to(std::back_inserter(out_),
                     R"({{"ph":"M","name":"thread_name","pid":0,"tid":{},"args":{{"name":{}}}}})",
                     id, quoted(title_of(row.first, number)));
      separate();
      fmt::format_to(
          std::back_inserter(out_),
          R"({{"ph":"M","name":"thread_sort_index","pid":0,"tid":{},"args":{{"sort_index":{}}}}})",
          id, id);
    }
    std::string texts;
    for (const auto& note : notes) {
      if (!texts.empty()) texts += ',';
      texts += quoted(note);
    }
    return fmt::format(
        R"({{"displayTimeUnit":"ns","otherData":{{"notes":[{}]}},"traceEvents":[{}{}]}})"
        "\n",
        texts, out_, '\n');
  }

 private:
  static int id_of(Lane lane, int number) { return static_cast<int>(lane) * 100'000 + number; }

  /// Threads are numbered by their first span in a kind of rows.
  int row_of(Lane lane, int thread) {
    const auto [at, is_new] = rows_.try_emplace({lane, thread}, counts_[lane]);
    if (is_new) ++counts_[lane];
    return id_of(lane, at->second);
  }

  void separate() { out_ += out_.empty() ? "\n" : ",\n"; }

  const std::int64_t begin_;
  std::string out_;
  std::map<std::pair<Lane, int>, int> rows_;
  std::map<Lane, int> counts_;
};

}  // namespace

std::string trace_of(Recorded recorded, std::int64_t begin, const std::vector<std::string>& notes) {
  Writer writer(begin);
  std::vector<RecordedSpan*> device;
  for (auto& span : recorded.spans) {
    if (!span.is_timed) continue;
    if (span.on_device) {
      device.push_back(&span);
    } else {
      writer.event(lane_of(span), span.thread, span, recorded.calls[span.call]);
    }
  }
  const auto rows = rows_of_device(device);
  for (std::size_t i = 0; i < device.size(); ++i) {
    writer.event(Lane::device, rows[i], *device[i], recorded.calls[device[i]->call]);
  }
  return writer.finish(notes);
}

}  // namespace tessera::dispatch
