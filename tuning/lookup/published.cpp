// SPDX-License-Identifier: Apache-2.0
#include "tuning/lookup/published.hpp"

namespace tessera::tuning {
namespace {

// Source: tuned_block_sizes of marin-community/marin, 2026, which has the same blocks for bf16 and
// f32. Tuned with scoped VMEM limits of 50000 KiB on v5e and v5p, 98304 KiB on v6e.
constexpr PublishedBlocks rows[] = {
    {"v4", 512, 2048, 256, 1024, 4096, 16384, 1024, 256, 512},
    {"v4", 4096, 16384, 4096, 4096, 120000, 131072, 8192, 512, 1024},
    {"v4", 4096, 32768, 768, 1536, 120000, 131072, 1024, 1024, 256},
    {"v4", 131073, 1048576, 256, 1024, 120000, 131072, 1024, 1024, 256},
    {"v4", 32768, 131072, 256, 1024, 120000, 131072, 1024, 512, 512},
    {"v4", 8192, 32767, 1536, 3072, 120000, 131072, 1024, 512, 1024},
    {"v5e", 512, 2048, 256, 1024, 4096, 16384, 1024, 256, 1024},
    {"v5e", 4096, 16384, 4096, 4096, 120000, 131072, 1024, 512, 512},
    {"v5e", 4096, 32768, 768, 1536, 120000, 131072, 8192, 256, 1024},
    {"v5e", 131073, 1048576, 256, 1024, 120000, 131072, 8192, 256, 1024},
    {"v5e", 32768, 131072, 256, 1024, 120000, 131072, 4096, 512, 2048},
    {"v5e", 8192, 32767, 1536, 3072, 120000, 131072, 1024, 256, 512},
    {"v6e", 512, 2048, 256, 1024, 4096, 16384, 1024, 256, 2048},
    {"v6e", 4096, 16384, 4096, 4096, 120000, 131072, 1024, 512, 512},
    {"v6e", 4096, 32768, 768, 1536, 120000, 131072, 8192, 1024, 1024},
    {"v6e", 131073, 1048576, 256, 1024, 120000, 131072, 8192, 256, 1024},
    {"v6e", 32768, 131072, 256, 1024, 120000, 131072, 4096, 512, 2048},
    {"v6e", 8192, 32767, 1536, 3072, 120000, 131072, 1024, 256, 512},
    {"v5p", 512, 2048, 256, 1024, 4096, 16384, 1024, 256, 1024},
    {"v5p", 4096, 16384, 4096, 4096, 120000, 131072, 1024, 512, 512},
    {"v5p", 65536, 1048576, 4096, 4096, 120000, 131072, 1024, 512, 256},
    {"v5p", 32768, 131072, 256, 1024, 120000, 131072, 1024, 512, 2048},
    {"v5p", 32768, 131072, 1536, 3072, 120000, 131072, 1024, 1024, 768},
    {"v5p", 8192, 32767, 1536, 3072, 120000, 131072, 1024, 256, 512},
};

bool within(std::int64_t value, std::int64_t least, std::int64_t most) {
  return least <= value && value <= most;
}

}  // namespace

std::span<const PublishedBlocks> published_tpu_blocks() { return rows; }

const PublishedBlocks* find_published(std::string_view device, std::int64_t b, std::int64_t h,
                                      std::int64_t v) {
  for (const PublishedBlocks& row : rows) {
    if (row.device == device && within(b, row.b_min, row.b_max) &&
        within(h, row.h_min, row.h_max) && within(v, row.v_min, row.v_max)) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace tessera::tuning
