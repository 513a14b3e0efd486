// SPDX-License-Identifier: Apache-2.0
// Included once by each kernels_<isa>.cpp, which defines TESSERA_ISA and is compiled with its
// flags.
//
// The linker merges inline functions of the same name whatever flags they were compiled with, so
// Eigen goes by another name in each unit, everything here has internal linkage, and nothing of the
// standard library that is not a plain C function is called.
#define TESSERA_ISA_JOIN_(a, b) a##b
#define TESSERA_ISA_JOIN(a, b) TESSERA_ISA_JOIN_(a, b)
#define Eigen TESSERA_ISA_JOIN(Eigen_tessera_, TESSERA_ISA)
#define EIGEN_DONT_PARALLELIZE
#define EIGEN_NO_DEBUG

#include <Eigen/Core>
#include <cstdint>
#include <cstring>

#include "reference/streaming/kernels.hpp"
#include "reference/streaming/kernels_types.hpp"

namespace tessera::streaming {
namespace {

namespace ei = Eigen::internal;
using Packet = ei::packet_traits<float>::type;
constexpr std::int64_t lanes = ei::unpacket_traits<Packet>::size;
static_assert(lane_quantum % (2 * lanes) == 0 || lane_quantum == lanes);

constexpr float infinity = __builtin_inff();

Packet splat(float value) { return ei::pset1<Packet>(value); }

// -- Matrix products ------------------------------------------------------------------------------

/// Eigen's blocking with packing buffers that the caller owns, so that a steady call allocates
/// nothing.
class Blocking : public ei::level3_blocking<float, float> {
 public:
  Blocking(Eigen::Index m, Eigen::Index n, Eigen::Index k) {
    m_mc = m;
    m_nc = n;
    m_kc = k;
    ei::computeProductBlockingSizes<float, float>(m_kc, m_mc, m_nc, Eigen::Index(1));
  }
  std::int64_t a_floats() const { return padded(m_mc * m_kc); }
  std::int64_t b_floats() const { return padded(m_kc * m_nc); }
  /// Shrinks the blocks to what fits.
  void lend(float* scratch, std::int64_t floats) {
    while (a_floats() + b_floats() > floats) {
      auto& largest = m_nc >= m_mc ? m_nc : m_mc;
      auto& shrunk = largest > smallest ? largest : m_kc;
      shrunk = shrunk / 2 / smallest * smallest + (shrunk / 2 < smallest ? smallest : 0);
      if (m_kc <= smallest && m_nc <= smallest && m_mc <= smallest) break;
    }
    m_blockA = scratch;
    m_blockB = scratch + a_floats();
  }

 private:
  // Eigen packs and multiplies what is left over of a register tile (mr 8 to 48, nr 4) too; two
  // blocks of this edge pack into min_gemm_scratch.
  static constexpr Eigen::Index smallest = 16;
  static_assert(2 * (smallest * smallest + 2 * lane_quantum) <= min_gemm_scratch);
  // A line of slack: the packed panels are rounded up to whole registers.
  static std::int64_t padded(std::int64_t floats) {
    return (floats / lane_quantum + 2) * lane_quantum;
  }
};

template <int a_order, int b_order>
void product(const Gemm& g, Blocking& blocking) {
  ei::general_matrix_matrix_product<Eigen::Index, float, a_order, false, float, b_order, false,
                                    Eigen::ColMajor, 1>::run(g.m, g.n, g.k, g.a, g.lda, g.b, g.ldb,
                                                             g.c, 1, g.ldc, 1.0f, blocking,
                                                             nullptr);
}

using Column = Eigen::Map<Eigen::VectorXf>;
using ConstColumn = Eigen::Map<const Eigen::VectorXf>;
using ColumnMajor = Eigen::Map<const Eigen::MatrixXf, 0, Eigen::OuterStride<>>;
using RowMajor =
    Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, 0,
               Eigen::OuterStride<>>;

/// One column: packing all of A for it would cost more than the product.
void matrix_vector(const Gemm& g) {
  Column c(g.c, g.m);
  const ConstColumn b(g.b, g.k);
  if (g.a_row_major) {
    c.noalias() += RowMajor(g.a, g.m, g.k, Eigen::OuterStride<>(g.lda)) * b;
  } else {
    c.noalias() += ColumnMajor(g.a, g.m, g.k, Eigen::OuterStride<>(g.lda)) * b;
  }
}

void gemm(const Gemm& g) {
  if (g.m == 0 || g.n == 0) return;
  if (!g.accumulate) {
    for (std::int64_t j = 0; j < g.n; ++j) {
      std::memset(g.c + j * g.ldc, 0, static_cast<std::size_t>(g.m) * sizeof(float));
    }
  }
  if (g.k == 0) return;
  // A column of a row-major B is not contiguous unless it is B's only one with ldb 1.
  if (g.n == 1 && (!g.b_row_major || g.ldb == 1)) return matrix_vector(g);
  Blocking blocking(g.m, g.n, g.k);
  blocking.lend(g.scratch, g.scratch_floats);
  constexpr int row = Eigen::RowMajor;
  constexpr int column = Eigen::ColMajor;
  if (g.a_row_major) {
    g.b_row_major ? product<row, row>(g, blocking) : product<row, column>(g, blocking);
  } else {
    g.b_row_major ? product<column, row>(g, blocking) : product<column, column>(g, blocking);
  }
}

std::int64_t gemm_scratch(std::int64_t m, std::int64_t n, std::int64_t k) {
  if (m == 0 || n == 0 || k == 0) return 0;
  const Blocking blocking(m, n, k);
  const std::int64_t floats = blocking.a_floats() + blocking.b_floats();
  return floats > min_gemm_scratch ? floats : min_gemm_scratch;
}

// -- Rows of logits -------------------------------------------------------------------------------

/// Below this exp is taken as 0: less than the smallest normal float, where Eigen's packet exp is
/// clamped. -Inf must give exactly 0.
constexpr float exp_cut = -87.3f;
/// Keeps exp(d) * d finite at d = -Inf; any value below exp_cut serves.
constexpr float exp_floor = -128.0f;

/// exp of d in [exp_floor, 0].
Packet exp_packet(const Packet& d) {
  return ei::pandnot(ei::pexp(d), ei::pcmp_lt(d, splat(exp_cut)));
}

/// A logit's difference d to the maximum that another pass found. Where that pass added products up
/// in another order, the maximum may lie below the logit by their rounding, which exp would blow
/// up.
Packet at_most_0(const Packet& d) { return ei::pmin(d, splat(0.0f)); }

std::int64_t padded(std::int64_t n) { return (n + lane_quantum - 1) / lane_quantum * lane_quantum; }

void finish(float* row, std::int64_t n, const float* bias, float scale, float cap) {
  const std::int64_t end = n / lanes * lanes;
  const bool capped = cap != 0.0f;
  const float inverse = capped ? 1.0f / cap : 0.0f;
  if (bias != nullptr || scale != 1.0f || capped) {
    const auto one = [&](Packet z, const float* b) {
      if (bias != nullptr) z = ei::padd(z, ei::ploadu<Packet>(b));
      z = ei::pmul(z, splat(scale));
      if (capped) z = ei::pmul(splat(cap), ei::ptanh(ei::pmul(z, splat(inverse))));
      return z;
    };
    for (std::int64_t i = 0; i < end; i += lanes) {
      ei::pstore(row + i, one(ei::pload<Packet>(row + i), bias + i));
    }
    if (end < n) {
      // The tail goes through the same packet code: a column's value must not depend on where a
      // block ends.
      alignas(64) float tail[lane_quantum] = {};
      std::memcpy(tail, row + end, static_cast<std::size_t>(n - end) * sizeof(float));
      float tail_bias[lane_quantum] = {};
      if (bias != nullptr) {
        std::memcpy(tail_bias, bias + end, static_cast<std::size_t>(n - end) * sizeof(float));
      }
      ei::pstore(tail, one(ei::pload<Packet>(tail), tail_bias));
      std::memcpy(row + end, tail, static_cast<std::size_t>(n - end) * sizeof(float));
    }
  }
  for (std::int64_t i = n; i < padded(n); ++i) row[i] = -infinity;
}

/// NaN when any is NaN.
float max_of(const float* row, std::int64_t n) {
  Packet a = ei::pload<Packet>(row);
  Packet b = a;
  // x - x is 0 for finite x, and NaN for NaN and infinities; the sign of an infinity tells -Inf
  // apart, so NaN is looked for by comparing each value with itself.
  Packet unordered = ei::pzero(a);
  for (std::int64_t i = 0; i < n; i += lane_quantum) {
    for (std::int64_t j = 0; j < lane_quantum; j += lanes) {
      const Packet z = ei::pload<Packet>(row + i + j);
      unordered = ei::por(unordered, ei::pandnot(splat(1.0f), ei::pcmp_eq(z, z)));
      if ((j / lanes) % 2 == 0) {
        a = ei::pmax(a, z);
      } else {
        b = ei::pmax(b, z);
      }
    }
  }
  if (ei::predux(unordered) != 0.0f) return __builtin_nanf("");
  return ei::predux_max(ei::pmax(a, b));
}

/// sum of c * (logit - base) over n columns; c of 0 leaves a masked word out.
float class_sum_of(const float* row, std::int64_t n, float base, const float* class_weight) {
  Packet total = splat(0.0f);
  const std::int64_t end = n / lanes * lanes;
  float tail = 0.0f;
  if (class_weight == nullptr) {
    for (std::int64_t i = 0; i < end; i += lanes) {
      total = ei::padd(total, ei::psub(ei::pload<Packet>(row + i), splat(base)));
    }
    for (std::int64_t i = end; i < n; ++i) tail += row[i] - base;
  } else {
    for (std::int64_t i = 0; i < end; i += lanes) {
      const Packet c = ei::ploadu<Packet>(class_weight + i);
      const Packet d = ei::psub(ei::pload<Packet>(row + i), splat(base));
      const Packet absent = ei::pcmp_eq(c, splat(0.0f));
      total = ei::padd(total, ei::pandnot(ei::pmul(c, d), absent));
    }
    for (std::int64_t i = end; i < n; ++i) {
      if (class_weight[i] != 0.0f) tail += class_weight[i] * (row[i] - base);
    }
  }
  return ei::predux(total) + tail;
}

Weighed weigh(const float* q, std::int64_t n, float keep, float smooth, const float* c,
              float* target) {
  Packet sum[2] = {splat(0.0f), splat(0.0f)};
  Packet bad = splat(0.0f);
  const auto add = [&](Packet& total, std::int64_t i) {
    const Packet probability = ei::ploadu<Packet>(q + i);
    // A NaN compares false.
    bad = ei::por(bad, ei::pandnot(splat(1.0f), ei::pcmp_le(splat(0.0f), probability)));
    Packet value = ei::pmadd(splat(keep), probability, splat(smooth));
    if (c != nullptr) value = ei::pmul(value, ei::ploadu<Packet>(c + i));
    if (target != nullptr) ei::pstoreu(target + i, value);
    total = ei::padd(total, value);
  };
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    add(sum[0], i);
    add(sum[1], i + lanes);
  }
  Weighed result = {ei::predux(ei::padd(sum[0], sum[1])), ei::predux(bad) != 0.0f};
  for (; i < n; ++i) {
    const float value = (keep * q[i] + smooth) * (c != nullptr ? c[i] : 1.0f);
    result.bad = result.bad || !(q[i] >= 0.0f);
    if (target != nullptr) target[i] = value;
    result.sum += value;
  }
  return result;
}

Stretch reduce(const float* row, std::int64_t n, float running_max, const float* class_weight,
               bool class_terms, bool entropy) {
  const std::int64_t end = padded(n);
  Stretch s = {max_of(row, end), 0.0f, 0.0f, 0.0f, 0.0f};
  if (!(s.max < infinity)) {
    s.max = __builtin_nanf("");
    return s;
  }
  s.base = s.max > running_max ? s.max : running_max;
  if (class_terms) {
    // All -Inf so far: each term is -Inf whatever it is relative to.
    s.class_logit = class_sum_of(row, n, s.base == -infinity ? 0.0f : s.base, class_weight);
  }
  if (s.base == -infinity) return s;

  const Packet base = splat(s.base);
  const Packet floor = splat(exp_floor);
  Packet sum[2] = {splat(0.0f), splat(0.0f)};
  Packet weighted[2] = {splat(0.0f), splat(0.0f)};
  for (std::int64_t i = 0; i < end; i += lane_quantum) {
    for (std::int64_t j = 0; j < lane_quantum; j += lanes) {
      const Packet d = ei::pmax(ei::psub(ei::pload<Packet>(row + i + j), base), floor);
      const Packet e = exp_packet(d);
      const std::int64_t lane = (j / lanes) % 2;
      sum[lane] = ei::padd(sum[lane], e);
      if (entropy) weighted[lane] = ei::pmadd(e, d, weighted[lane]);
    }
  }
  s.sum = ei::predux(ei::padd(sum[0], sum[1]));
  s.exp_logit = ei::predux(ei::padd(weighted[0], weighted[1]));
  return s;
}

void gradient(float* row, std::int64_t n, const RowGradient& g, const float* class_weight,
              const Hits& hits, float scale, float cap) {
  if (g.poisoned) {
    for (std::int64_t i = 0; i < n; ++i) row[i] = __builtin_nanf("");
    return;
  }
  for (std::int64_t i = 0; i < hits.count; ++i) {
    const std::int64_t column = hits.columns[i] - hits.first;
    if (column >= 0 && column < n) hits.scratch[i] = row[column];
  }
  const Packet max = splat(g.max);
  const Packet gain = splat(g.gain);
  const bool capped = cap != 0.0f;
  const float inverse = capped ? 1.0f / cap : 0.0f;
  const auto slope = [&](const Packet& logit) {
    const Packet t = ei::pmul(logit, splat(inverse));
    return ei::pmul(splat(scale), ei::psub(splat(1.0f), ei::pmul(t, t)));
  };
  const auto one = [&](const Packet& logit, const float* c) {
    const Packet d = ei::pmax(at_most_0(ei::psub(logit, max)), splat(exp_floor));
    Packet dz = ei::pmul(gain, exp_packet(d));
    if (g.smooth != 0.0f) {
      const Packet weight = c != nullptr ? ei::ploadu<Packet>(c) : splat(1.0f);
      dz = ei::psub(dz, ei::pmul(splat(g.smooth), weight));
    }
    return ei::pmul(dz, capped ? slope(logit) : splat(scale));
  };
  alignas(64) float one_logit[lane_quantum] = {};
  float one_weight[lane_quantum] = {};
  const std::int64_t end = n / lanes * lanes;
  for (std::int64_t i = 0; i < end; i += lanes) {
    ei::pstore(row + i, one(ei::pload<Packet>(row + i),
                            class_weight != nullptr ? class_weight + i : nullptr));
  }
  if (end < n) {
    // A block's row is padded to whole packets; only the class weights are not.
    if (class_weight != nullptr) {
      std::memcpy(one_weight, class_weight + end,
                  static_cast<std::size_t>(n - end) * sizeof(float));
    }
    ei::pstore(row + end,
               one(ei::pload<Packet>(row + end), class_weight != nullptr ? one_weight : nullptr));
  }
  for (std::int64_t i = 0; i < hits.count; ++i) {
    const std::int64_t column = hits.columns[i] - hits.first;
    if (column < 0 || column >= n) continue;
    float factor = scale;
    if (capped) {
      one_logit[0] = hits.scratch[i];
      ei::pstore(one_logit, slope(ei::pload<Packet>(one_logit)));
      factor = one_logit[0];
    }
    row[column] -= hits.values[i] * factor;
  }
}

void add(const float* source, std::int64_t n, float* target) {
  for (std::int64_t i = 0; i < n; ++i) target[i] += source[i];
}

}  // namespace
}  // namespace tessera::streaming

#include "reference/streaming/kernels_attention.hpp"
#include "reference/streaming/kernels_distill.hpp"

namespace tessera::streaming {

extern const Kernels TESSERA_ISA_JOIN(kernels_, TESSERA_ISA);
const Kernels TESSERA_ISA_JOIN(kernels_, TESSERA_ISA) = {
    TESSERA_ISA_NAME,
    lanes,
    gemm,
    gemm_scratch,
    load,
    store,
    load_block,
    store_block,
    finish,
    reduce,
    class_sum_of,
    weigh,
    gradient,
    add,
    distill,
    distill_mix,
    distill_gradient,
    attend,
    scale,
    add_scaled,
    all_finite,
};

}  // namespace tessera::streaming
