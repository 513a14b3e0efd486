// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

/// Block sizes that others have published for devices that are not at hand.
namespace tessera::tuning {

/// A range of shapes of linear_cross_entropy, ends included, and its blocks.
struct PublishedBlocks {
  std::string_view device;  ///< as tessera::tile names chips
  std::int64_t b_min, b_max, h_min, h_max, v_min, v_max;
  std::int64_t b_block_size, h_block_size, v_block_size;
};

/// For TPUs, the same for f32 and bf16.
std::span<const PublishedBlocks> published_tpu_blocks();

/// The first range that holds the shape; nullptr where none does.
const PublishedBlocks* find_published(std::string_view device, std::int64_t b, std::int64_t h,
                                      std::int64_t v);

}  // namespace tessera::tuning
