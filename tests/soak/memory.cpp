// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/memory.hpp"

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#ifdef TESSERA_OPENCL
#include "tests/layer/layer_control.hpp"
#endif

namespace tessera::test::soak {
namespace {

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0;
  std::int64_t resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::int64_t open_descriptors() {
  std::int64_t count = -1;  // the folder itself is open while it is read
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    (void)entry;
    ++count;
  }
  return count;
}

}  // namespace

Sample sample_now() {
  Sample now;
  const auto heap = mallinfo2();
  now.heap_bytes = static_cast<std::int64_t>(heap.uordblks + heap.hblkhd);
  now.rss_bytes = resident_bytes();
  now.descriptors = open_descriptors();
#ifdef TESSERA_OPENCL
  if (Layer& layer = Layer::get(TESSERA_TEST_LAYER); layer.loaded()) now.objects = layer.live();
#endif
  return now;
}

bool write_curve(const std::string& path, const std::vector<std::string>& comments,
                 const std::vector<Sample>& samples) {
  std::string text;
  for (const auto& comment : comments) text += "# " + comment + "\n";
  text += "seconds,calls,rss_bytes,heap_bytes,descriptors,events,buffers\n";
  for (const auto& s : samples) {
    const auto live = [&](const char* kind) {
      const auto found = s.objects.find(kind);
      return found == s.objects.end() ? 0 : found->second;
    };
    text += fmt::format("{:.1f},{},{},{},{},{},{}\n", s.seconds, s.calls, s.rss_bytes, s.heap_bytes,
                        s.descriptors, live("event"), live("buffer"));
  }
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) fmt::print(stderr, "soak: {} cannot be written\n", path);
  return static_cast<bool>(file);
}

std::string growth(const std::vector<Sample>& samples, double warm, double rss_share) {
  std::string text;
  const Sample* base = nullptr;
  for (const auto& s : samples) {
    if (base == nullptr || s.seconds <= warm) {
      base = &s;
      continue;
    }
    const auto more = s.rss_bytes - base->rss_bytes;
    if (static_cast<double>(more) > rss_share * static_cast<double>(base->rss_bytes)) {
      text += fmt::format("{:.1f} s: {} bytes resident, {} more than after {:.1f} s\n", s.seconds,
                          s.rss_bytes, more, base->seconds);
    }
    if (s.descriptors > base->descriptors) {
      text += fmt::format("{:.1f} s: {} open descriptors, {} after {:.1f} s\n", s.seconds,
                          s.descriptors, base->descriptors, base->seconds);
    }
  }
  // No call runs: an event that lives is one that nobody will release.
  for (const auto& s : samples) {
    const auto found = s.objects.find("event");
    if (found == s.objects.end() || found->second <= samples.front().objects.at("event")) continue;
    text += fmt::format("{:.1f} s: {} events live while no call runs\n", s.seconds, found->second);
  }
  return text;
}

}  // namespace tessera::test::soak
