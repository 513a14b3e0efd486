// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tessera::test::soak {

/// What the process holds at a moment at which no call runs.
struct Sample {
  double seconds = 0.0;
  std::int64_t calls = 0;
  std::int64_t rss_bytes = 0;
  std::int64_t heap_bytes = 0;  ///< that malloc has given out
  std::int64_t descriptors = 0;
  std::map<std::string, long> objects{};  ///< live OpenCL objects; empty without the layer
};
Sample sample_now();

/// Writes the samples as CSV, under lines of comment; false, and a line on stderr: it cannot be.
bool write_curve(const std::string& path, const std::vector<std::string>& comments,
                 const std::vector<Sample>& samples);

/// What the samples after the first `warm` seconds have more than the last one of those; empty:
/// nothing. Memory is allowed to grow by `rss_share` of itself.
std::string growth(const std::vector<Sample>& samples, double warm, double rss_share);

}  // namespace tessera::test::soak
