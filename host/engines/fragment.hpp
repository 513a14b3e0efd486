// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engines/matrix/fragment.h"

namespace tessera::engines {

/// The place in its matrix of element i of a lane.
struct Places {
  int (*row)(int i, int lane);
  int (*column)(int i, int lane);
};

/// A row of cl_kernels/engines/matrix/fragment.h.
struct Fragment {
  const char* name;
  int m, n, k, lanes;
  Places a, b, c;
};

inline constexpr Fragment mma_sync = {"mma.sync.m16n8k16",
                                      MMA_SYNC_M,
                                      MMA_SYNC_N,
                                      MMA_SYNC_K,
                                      MMA_SYNC_LANES,
                                      {kernels::mma_sync_a_row, kernels::mma_sync_a_column},
                                      {kernels::mma_sync_b_row, kernels::mma_sync_b_column},
                                      {kernels::mma_sync_c_row, kernels::mma_sync_c_column}};
inline constexpr Fragment mfma = {"v_mfma_f32_32x32x8_bf16_1k",
                                  MFMA_M,
                                  MFMA_N,
                                  MFMA_K,
                                  MFMA_LANES,
                                  {kernels::mfma_a_row, kernels::mfma_a_column},
                                  {kernels::mfma_b_row, kernels::mfma_b_column},
                                  {kernels::mfma_c_row, kernels::mfma_c_column}};
inline constexpr std::array all_fragments = {mma_sync, mfma};

/// Why no engine may multiply by such a unit on a device with these sub-groups (empty: unknown):
/// the lanes have not each element of a matrix once, or are not a sub-group. Nothing: it may.
std::optional<std::string> why_unusable(const Fragment& unit,
                                        const std::vector<std::int64_t>& sub_group_sizes);

}  // namespace tessera::engines
