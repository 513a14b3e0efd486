// SPDX-License-Identifier: Apache-2.0
// Sources, unless a line says otherwise: JAX 0.10.2, jax/_src/pallas/mosaic/tpu_info.py. "Book" is
// the JAX scaling book, "Cloud" the vendor's TPU pages. Where sources conflict, one figure is used
// and the other stands beside it; none is averaged.
#include <cctype>

#include "tessera/tile/chip.hpp"
#include "tessera/tile/error.hpp"

namespace tessera::tile {
namespace {

constexpr std::int64_t kib = 1024;
constexpr std::int64_t mib = 1024 * kib;

Chip v3() {
  Chip c;
  c.name = "v3";
  c.aliases = {"TPU v3", "tpu_v3"};
  c.generation = 3;
  c.cores = 2;
  c.mxus = 2;
  c.mxu_side = 128;
  c.peaks.bf16 = 1.40e14;  // Cloud: 1.23e14
  c.hbm_bytes = 34'400'000'000;
  c.hbm_bandwidth = 8.25e11;
  c.vmem_bytes = 16 * mib;
  c.smem_bytes = 16 * kib;
  c.ici_link_bandwidth = 1e11;  // Book
  // No source gives a limit for v3: all of VMEM, which is what v4 with the same VMEM has.
  c.scoped_vmem_compiler_bytes = 16 * mib;
  c.scoped_vmem_raised_bytes = 16 * mib;
  return c;
}

Chip v4() {
  Chip c;
  c.name = "v4";
  c.aliases = {"TPU v4", "tpu_v4"};
  c.generation = 4;
  c.cores = 2;
  c.megacore = true;
  c.mxus = 4;
  c.mxu_side = 128;
  c.peaks.bf16 = 2.75e14;
  c.peaks.int8 = 2.75e14;  // Cloud; not in JAX's table
  c.hbm_bytes = 34'400'000'000;
  c.hbm_bandwidth = 1.23e12;
  c.cmem_bytes = 134'000'000;
  c.vmem_bytes = 16 * mib;
  c.smem_bytes = 1 * mib;
  c.ici_link_bandwidth = 4.5e10;  // Book
  // Marin tuned v4 without the flag, at 16 MiB, which is all the VMEM there is.
  c.scoped_vmem_compiler_bytes = 16 * mib;
  c.scoped_vmem_raised_bytes = 16 * mib;
  c.labels_in_tiles_of_1024 = true;  // Marin, _validate_inputs
  return c;
}

Chip v5e() {
  Chip c;
  c.name = "v5e";
  c.aliases = {"TPU v5e", "TPU v5 lite", "tpu_v5e"};
  c.generation = 5;
  c.mxus = 4;
  c.mxu_side = 128;
  c.peaks = {.bf16 = 1.97e14, .int8 = 3.94e14, .int4 = 7.88e14};
  c.hbm_bytes = 17'200'000'000;
  c.hbm_bandwidth = 8.20e11;
  c.vmem_bytes = 128 * mib;  // the Book too; MaxText's documents say 64 MiB
  c.smem_bytes = 1 * mib;
  c.ici_link_bandwidth = 4.5e10;              // Book
  c.scoped_vmem_compiler_bytes = 16 * mib;    // seen in pytorch/xla issues 6611 and 9524
  c.scoped_vmem_raised_bytes = 50'000 * kib;  // Marin, xla_tpu_scoped_vmem_limit_kib
  c.labels_in_tiles_of_1024 = true;           // Marin names v5*
  c.power_of_two_routes = true;               // JAX, docs/pallas/tpu/distributed.md, "Routing"
  return c;
}

Chip v5p() {
  Chip c;
  c.name = "v5p";
  c.aliases = {"TPU v5p", "TPU v5", "tpu_v5p", "tpu_v5"};
  c.generation = 5;
  c.cores = 2;
  c.megacore = true;
  c.mxus = 4;
  c.mxu_side = 128;
  c.peaks = {.bf16 = 4.59e14, .int8 = 9.18e14, .int4 = 1.84e15};
  c.hbm_bytes = 103'000'000'000;
  c.hbm_bandwidth = 2.46e12;  // Cloud: 2765 GB/s (= 2575 GiB/s)
  c.vmem_bytes = 64 * mib;
  c.smem_bytes = 1 * mib;
  // Book. Cloud's new page: 1200 GB/s both ways per chip; its old one: 4800 Gbps.
  c.ici_link_bandwidth = 9e10;
  c.sparse_cores = {
      .cores = 4, .subcores = 16, .lanes = 8, .vmem_bytes = 512 * kib, .dma_granule_bytes = 32};
  c.scoped_vmem_compiler_bytes = 16 * mib;    // not seen on v5p itself: v5e's, same generation
  c.scoped_vmem_raised_bytes = 50'000 * kib;  // Marin
  c.labels_in_tiles_of_1024 = true;           // Marin names v5*
  return c;
}

Chip v6e() {
  Chip c;
  c.name = "v6e";
  c.aliases = {"TPU v6e", "TPU v6 lite", "tpu_v6e", "tpu_v6", "v6"};
  c.generation = 6;
  c.mxus = 2;
  c.mxu_side = 256;
  // bf16: Cloud 9.18e14.
  c.peaks = {.bf16 = 9.20e14, .int8 = 1.84e15, .int4 = 3.68e15, .fp8 = 9.20e14};
  c.hbm_bytes = 34'400'000'000;
  c.hbm_bandwidth = 1.64e12;
  c.vmem_bytes = 128 * mib;
  c.smem_bytes = 1 * mib;
  c.ici_link_bandwidth = 9e10;  // Book
  c.sparse_cores = {
      .cores = 2, .subcores = 16, .lanes = 8, .vmem_bytes = 256 * kib, .dma_granule_bytes = 32};
  c.scoped_vmem_compiler_bytes = 32 * mib;    // seen in tpu-inference issues 3194 and 3407
  c.scoped_vmem_raised_bytes = 98'304 * kib;  // Marin; MaxText: 98304 dense, 81920 MoE
  return c;
}

Chip v7() {
  Chip c;
  c.name = "v7";
  c.aliases = {"TPU7x", "TPU7", "TPU v7", "TPU v7x", "tpu7x", "tpu_v7", "v7x", "ironwood"};
  c.generation = 7;
  c.cores = 2;
  c.mxus = 2;
  c.mxu_side = 256;
  c.accumulators = 128;
  c.peaks = {.bf16 = 2.31e15, .fp8 = 4.60e15};  // no integer multiplication
  c.hbm_bytes = 206'000'000'000;
  c.hbm_bandwidth = 7.40e12;
  // MaxText too. jax issue 38988 compiled and ran with a limit of 128 MB, and ragged paged
  // attention asks for 100 MiB.
  c.vmem_bytes = 64 * mib;
  c.smem_bytes = 1 * mib;
  // Book: 9e10 to 1.8e11 per axis; Cloud: 9.6 Tb/s per chip; MaxText implies about 1.8e11 per axis.
  c.ici_link_bandwidth = 9e10;
  // JAX's documents print a granule of 64; its table has 32.
  c.sparse_cores = {
      .cores = 2, .subcores = 16, .lanes = 16, .vmem_bytes = 512 * kib, .dma_granule_bytes = 32};
  c.scoped_vmem_compiler_bytes = 32 * mib;    // seen in tpu-inference issues 3194 and 3407
  c.scoped_vmem_raised_bytes = 65'536 * kib;  // MaxText
  c.labels_in_tiles_of_1024 = true;           // Marin names v7*
  c.calibrated = true;                        // the only chip with published timings of the loss
  return c;
}

std::vector<Chip> make_chips() {
  std::vector<Chip> table = {v3(), v4(), v5e(), v5p(), v6e(), v7()};
  for (Chip& chip : table) chip.scoped_vmem_bytes = chip.scoped_vmem_raised_bytes;
  return table;
}

bool same_name(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(a[i])) !=
        std::tolower(static_cast<unsigned char>(b[i])))
      return false;
  }
  return true;
}

bool is_wide_float(ElementType t) { return t == ElementType::f32 || t == ElementType::bf16; }
bool is_int8(ElementType t) { return t == ElementType::i8 || t == ElementType::u8; }
bool is_int4(ElementType t) { return t == ElementType::i4 || t == ElementType::u4; }

}  // namespace

const std::vector<Chip>& chips() {
  // Never destroyed: a machine may be made while static objects end.
  static const auto& table = *new std::vector<Chip>(make_chips());
  return table;
}

const Chip* known_chip(std::string_view name) noexcept {
  for (const Chip& chip : chips()) {
    if (same_name(name, chip.name)) return &chip;
    for (const std::string& alias : chip.aliases) {
      if (same_name(name, alias)) return &chip;
    }
  }
  return nullptr;
}

const Chip& find_chip(std::string_view name) {
  if (const Chip* chip = known_chip(name)) return *chip;
  std::string known;
  for (const Chip& chip : chips()) known += (known.empty() ? "" : ", ") + chip.name;
  throw TileError(ErrorKind::usage, "chip: '" + std::string(name) + "' is not known; there are " +
                                        known + " and JAX's device kinds of these");
}

std::optional<double> Chip::implied_clock() const {
  // 3.5 and 4.4 GHz would follow for v6e and v7, which no TPU runs at.
  if (generation >= 6) return std::nullopt;
  const double per_cycle = 2.0 * mxus * mxu_side * mxu_side;
  return peaks.bf16 / cores / per_cycle;
}

double core_peak(const Chip& chip, ElementType type, F32Passes passes) {
  switch (type) {
    case ElementType::f32:
      return chip.peaks.bf16 / chip.cores / static_cast<int>(passes);
    case ElementType::bf16:
      return chip.peaks.bf16 / chip.cores;
    case ElementType::i8:
    case ElementType::u8:
      return chip.peaks.int8 / chip.cores;
    case ElementType::i4:
    case ElementType::u4:
      return chip.peaks.int4 / chip.cores;
    case ElementType::f8e5m2:
      return chip.peaks.fp8 / chip.cores;
    case ElementType::f8e4m3fn:
      return chip.generation >= 7 ? chip.peaks.fp8 / chip.cores : 0;
    case ElementType::f8e4m3b11fnuz:
      return chip.generation < 7 ? chip.peaks.fp8 / chip.cores : 0;
    default:
      return 0;
  }
}

bool is_matmul_supported(const Chip& chip, ElementType lhs, ElementType rhs) {
  using enum ElementType;
  if (chip.generation <= 3) return lhs == f32 && rhs == f32;
  if (chip.generation == 4) return is_wide_float(lhs) && (is_wide_float(rhs) || rhs == i8);
  if (chip.generation <= 6) {
    const auto is_float = [](ElementType t) {
      return is_wide_float(t) || t == f8e5m2 || t == f8e4m3b11fnuz;
    };
    return (is_float(lhs) && is_float(rhs)) || (is_int8(lhs) && is_int8(rhs)) ||
           (is_int4(lhs) && is_int4(rhs));
  }
  const auto is_fp8 = [](ElementType t) { return t == f8e5m2 || t == f8e4m3fn; };
  return (is_wide_float(lhs) && is_wide_float(rhs)) ||
         ((is_wide_float(lhs) || is_fp8(lhs)) && is_fp8(rhs));
}

}  // namespace tessera::tile
