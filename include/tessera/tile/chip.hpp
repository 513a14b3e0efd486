// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tile/element_type.hpp"
#include "tessera/version.hpp"

namespace tessera::tile {

/// Published dense matrix peaks of a whole chip, operations per second; 0: not published, or the
/// MXU does not take the type.
struct Peaks {
  double bf16 = 0;
  double int8 = 0;
  double int4 = 0;
  double fp8 = 0;
};

/// The SparseCores that belong to one TensorCore's logical device.
struct SparseCores {
  int cores = 0;
  int subcores = 0;             ///< vector subcores per core
  int lanes = 0;                ///< 32-bit lanes of a vector subcore
  std::int64_t vmem_bytes = 0;  ///< per vector subcore
  std::int64_t dma_granule_bytes = 0;
};

/// A TPU as data. "Per chip" figures are divided by `cores` for one TensorCore. The sources, figure
/// by figure, are in host/tile/chips.cpp and docs/tile_reference.md.
struct Chip {
  std::string name{};                  ///< what find_chip and the programs take
  std::vector<std::string> aliases{};  ///< JAX's device kinds and other names in use
  int generation = 0;
  int cores = 1;          ///< TensorCores per chip
  bool megacore = false;  ///< the cores are one logical device that shares a grid
  int mxus = 0;           ///< per core
  int mxu_side = 0;       ///< rows and columns of an MXU; weights are padded to it
  int accumulators = 0;   ///< (sublanes, mxu_side) buffers per MXU; 0: none, or not published
  int lanes = 128;
  int sublanes = 8;
  Peaks peaks{};                  ///< per chip
  std::int64_t hbm_bytes = 0;     ///< per chip, decimal bytes as published
  double hbm_bandwidth = 0;       ///< bytes/s, per chip
  std::int64_t cmem_bytes = 0;    ///< per chip
  std::int64_t vmem_bytes = 0;    ///< per core
  std::int64_t smem_bytes = 0;    ///< per core
  double ici_link_bandwidth = 0;  ///< bytes/s of one link, one way
  std::optional<SparseCores> sparse_cores{};
  /// The compiler's own limit of scoped VMEM per kernel, without flags.
  std::int64_t scoped_vmem_compiler_bytes = 0;
  /// The limit that people set by hand for kernels like the fused loss.
  std::int64_t scoped_vmem_raised_bytes = 0;
  /// The limit in force (R13): the raised one, until the user sets another.
  std::int64_t scoped_vmem_bytes = 0;
  /// XLA lays 32-bit vectors out in tiles of 1024 from 1024 elements on, so that a kernel's blocks
  /// of labels must be multiples of 1024 (R9).
  bool labels_in_tiles_of_1024 = false;
  /// Copies to another device reach only those whose distance in the ring is a power of two.
  bool power_of_two_routes = false;
  /// The time model was fitted to measurements of this chip.
  bool calibrated = false;

  /// The clock that peaks.bf16 implies through the MXUs, Hz; empty from generation 6 on, where
  /// MXUs x side^2 does not explain the published peak and only the peak may be used.
  TESSERA_API std::optional<double> implied_clock() const;
};

/// v3, v4, v5e, v5p, v6e, v7, in this order.
TESSERA_API const std::vector<Chip>& chips();

/// The chip of that name, alias or JAX device kind; nullptr where there is none.
TESSERA_API const Chip* known_chip(std::string_view name) noexcept;
/// The chip of that name, alias or JAX device kind ("TPU v5 lite", "TPU7x"); letter case does not
/// matter. Throws TileError (usage) that names the known ones.
TESSERA_API const Chip& find_chip(std::string_view name);

/// How many bf16 passes an f32 multiplication takes: XLA's default precision 1, HIGH 3, HIGHEST 6.
enum class F32Passes { one = 1, three = 3, six = 6 };

/// Peak of one TensorCore for products of this type, operations per second; 0 where there is none.
/// f32 is bf16 divided by the passes: the MXU has no f32 multipliers.
TESSERA_API double core_peak(const Chip& chip, ElementType type, F32Passes passes = F32Passes::one);

/// True when the MXU multiplies these operands without a cast first.
TESSERA_API bool is_matmul_supported(const Chip& chip, ElementType lhs, ElementType rhs);

}  // namespace tessera::tile
