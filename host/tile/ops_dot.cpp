// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "host/tile/buffer.hpp"
#include "host/tile/core.hpp"
#include "host/tile/machine_state.hpp"
#include "host/tile/ops.hpp"
#include "host/tile/text.hpp"
#include "reference/streaming/kernels.hpp"

namespace tessera::tile::detail {
namespace {

using streaming::kernels;

/// Products are cut into pieces that depend on the extents alone, so that results do not depend on
/// the number of threads: the order in which a product sums is one of the piece's extents.
/// A piece is at least 256 wide, so that its operands are used often enough; 16 of them serve hosts
/// of as many threads.
constexpr std::int64_t min_piece = 256;
constexpr std::int64_t max_pieces = 16;
/// Whole register blocks of every instruction set (8 to 48 wide).
constexpr std::int64_t piece_quantum = 48;
/// Below this a second thread would take as long to wake as to multiply (some 50 us).
constexpr double min_flops_to_cut = 8e6;

bool is_8bit(ElementType type) { return type == ElementType::i8 || type == ElementType::u8; }

/// What the chip multiplies, of the types that refs hold.
std::string products_of(const Chip& chip) {
  using enum ElementType;
  std::string list;
  for (const ElementType a : {f32, bf16, f16, i8, u8}) {
    for (const ElementType b : {f32, bf16, f16, i8, u8}) {
      if (!is_matmul_supported(chip, a, b)) continue;
      list += fmt::format("{}{} x {}", list.empty() ? "" : ", ", to_string(a), to_string(b));
    }
  }
  return list;
}

struct Extents {
  std::int64_t m = 0, n = 0, k = 0;
};

Extents judge(const Chip& chip, const Region& a, const Region& b, const Region& out,
              const DotOptions& options) {
  const ElementType ta = type_of(a), tb = type_of(b), to = type_of(out);
  if (!is_matmul_supported(chip, ta, tb)) {
    refuse("dot",
           fmt::format("the MXU of {} multiplies {}; cast {} or {} first", chip.name,
                       products_of(chip), described(a), described(b)),
           a);
  }
  const ElementType wanted = is_8bit(ta) && is_8bit(tb) ? ElementType::i32 : ElementType::f32;
  if (to != wanted) {
    refuse("dot",
           fmt::format("expected the accumulator to be 32-bit, {} for {} x {}, and got {}",
                       to_string(wanted), to_string(ta), to_string(tb), described(out)),
           out);
  }
  const Shape ea = extents_of(a), eb = extents_of(b), eo = extents_of(out);
  const auto mismatch = [&] {
    refuse("dot",
           fmt::format("{}{} . {}{} = {}: extents are [m, k] . [k, n] = [m, n]", described(a),
                       options.transpose_a ? " transposed" : "", described(b),
                       options.transpose_b ? " transposed" : "", described(out)),
           out);
  };
  if (ea.size() != 2 || eb.size() != 2 || eo.size() != 2) mismatch();
  const Extents e{ea[options.transpose_a ? 1 : 0], eb[options.transpose_b ? 0 : 1],
                  ea[options.transpose_a ? 0 : 1]};
  if (eb[options.transpose_b ? 1 : 0] != e.k || eo[0] != e.m || eo[1] != e.n) mismatch();
  for (const Region* operand : {&a, &b}) {
    if (overlap(*operand, out)) {
      refuse("dot",
             fmt::format("out overlaps operand '{}'; give it a ref of its own", name_of(*operand)),
             out);
    }
  }
  return e;
}

Work work_of(const Chip& chip, const Extents& e, int passes, ElementType a, ElementType b) {
  const auto d = [](std::int64_t x) { return static_cast<double>(x); };
  // The weights of an MXU are side x side; rows stream through it in registers of 8 sublanes (8
  // cycles a register in the JAX scaling book).
  const double padded = 2 * d(align_to(e.m, chip.sublanes)) * d(align_to(e.k, chip.mxu_side)) *
                        d(align_to(e.n, chip.mxu_side));
  const double peak =
      core_peak(chip, is_8bit(a) && is_8bit(b) ? ElementType::i8 : ElementType::bf16);
  const double mxu_flops = passes * padded;
  return {.flops = 2 * d(e.m) * d(e.n) * d(e.k),
          .padded_flops = padded,
          .mxu_flops = mxu_flops,
          .mxu_seconds = mxu_flops / peak};
}

/// An operand as it is stored: rows `ld` floats apart.
struct Matrix {
  const float* data = nullptr;
  std::int64_t ld = 0;
};

/// The parts whose sum an operand is, highest first, each dense or where it is in VMEM.
struct Parts {
  std::vector<Matrix> parts{};
  std::vector<Compute::Floats> memory{};
};

Parts split(Compute& compute, const Elements& elements, ElementType type, int count,
            bool as_it_is) {
  const std::int64_t rows = elements.extents[0], columns = elements.extents[1];
  const bool contiguous = elements.strides[1] == 1 || columns == 1;
  Parts result;
  if (type == ElementType::f32 && as_it_is && contiguous) {
    result.parts.push_back({static_cast<const float*>(elements.data), elements.strides[0]});
    return result;
  }
  const bool rounded = type == ElementType::f32 && !as_it_is;
  if (!rounded) count = 1;  // exact
  for (int i = 0; i < count; ++i) {
    result.memory.push_back(compute.floats(rows * columns));
    result.parts.push_back({result.memory.back().data(), columns});
  }
  const auto body = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      float* row = result.memory[0].data() + r * columns;
      const auto* from = static_cast<const std::byte*>(elements.data) +
                         r * elements.strides[0] * bits_of(type) / 8;
      load_words(from, type, elements.strides[1], columns, row);
      if (is_8bit(type)) {
        // Words of 8-bit integers are small; as floats they are exact.
        for (std::int64_t i = 0; i < columns; ++i) {
          row[i] = static_cast<float>(std::bit_cast<std::int32_t>(row[i]));
        }
      }
      for (int part = 0; rounded && part < count; ++part) {
        float* high = result.memory[static_cast<std::size_t>(part)].data() + r * columns;
        const bool more = part + 1 < count;
        float* low =
            more ? result.memory[static_cast<std::size_t>(part) + 1].data() + r * columns : nullptr;
        for (std::int64_t i = 0; i < columns; ++i) {
          const float x = high[i];
          const auto bf16_part = static_cast<float>(bf16(x));
          high[i] = bf16_part;
          if (more) low[i] = x - bf16_part;  // exact
        }
      }
    }
  };
  // Below this a second thread takes longer to wake (some 50 us) than to widen them.
  constexpr std::int64_t elements_per_thread = 65536;
  compute.run(rows, elements_per_thread / std::max<std::int64_t>(columns, 1) + 1, std::ref(body));
  return result;
}

/// A rectangle of the result.
struct Piece {
  std::int64_t row, rows, column, columns;
};

std::vector<Piece> pieces_of(const Extents& e) {
  const double flops =
      2.0 * static_cast<double>(e.m) * static_cast<double>(e.n) * static_cast<double>(e.k);
  const std::int64_t longer = std::max(e.m, e.n);
  std::int64_t size = longer;
  if (flops >= min_flops_to_cut) {
    const auto count = std::clamp<std::int64_t>(longer / min_piece, 1, max_pieces);
    size = align_to((longer + count - 1) / count, piece_quantum);
  }
  std::vector<Piece> pieces;
  for (std::int64_t at = 0; at < longer; at += size) {
    const std::int64_t length = std::min(size, longer - at);
    pieces.push_back(e.n >= e.m ? Piece{0, e.m, at, length} : Piece{at, length, 0, e.n});
  }
  return pieces;
}

/// piece of out (dense rows ld apart) = or += rows of a . columns of b, summed over k from `from`.
struct Product {
  const DotOptions& options;
  Compute& compute;

  void operator()(const Matrix& a, const Matrix& b, const Piece& piece, std::int64_t from,
                  std::int64_t k, float* out, std::int64_t ld, bool accumulate) const {
    // Column by column the result is the transposed product, b' . a'.
    streaming::Gemm g{};
    g.m = piece.columns;
    g.n = piece.rows;
    g.k = k;
    g.a_row_major = options.transpose_b;
    g.lda = b.ld;
    g.a = b.data + (options.transpose_b ? piece.column * b.ld + from : from * b.ld + piece.column);
    g.b_row_major = options.transpose_a;
    g.ldb = a.ld;
    g.b = a.data + (options.transpose_a ? from * a.ld + piece.row : piece.row * a.ld + from);
    g.c = out;
    g.ldc = ld;
    g.accumulate = accumulate;
    const auto scratch = compute.floats(kernels().gemm_scratch(g.m, g.n, g.k));
    g.scratch = scratch.data();
    g.scratch_floats = scratch.count();
    kernels().gemm(g);
  }
};

/// The result's own elements, of any strides.
template <class T>
struct Target {
  T* data;
  Shape strides;
  T& at(std::int64_t row, std::int64_t column) const {
    return data[row * strides[0] + column * strides[1]];
  }
};

/// Sums of 8-bit products are exact in f32 as long as they stay below 2^24.
void integer_piece(const Product& product, const Matrix& a, const Matrix& b, const Piece& piece,
                   std::int64_t k, bool is_signed, const Target<std::int32_t>& out,
                   bool accumulate) {
  const std::int64_t exact = is_signed ? 1024 : 256;  // 2^24 / 128^2, and less than 2^24 / 255^2
  const auto sum = product.compute.floats(piece.rows * piece.columns);
  for (std::int64_t from = 0; from == 0 || from < k; from += exact) {
    product(a, b, piece, from, std::min(exact, k - from), sum.data(), piece.columns, false);
    for (std::int64_t r = 0; r < piece.rows; ++r) {
      for (std::int64_t c = 0; c < piece.columns; ++c) {
        std::int32_t& to = out.at(piece.row + r, piece.column + c);
        const auto add = static_cast<std::int32_t>(sum.data()[r * piece.columns + c]);
        const bool adds = accumulate || from > 0;
        to = static_cast<std::int32_t>((adds ? static_cast<std::uint32_t>(to) : 0u) +
                                       static_cast<std::uint32_t>(add));
      }
    }
  }
}

void float_piece(const Product& product, const Parts& a, const Parts& b, int count,
                 const Piece& piece, std::int64_t k, const Target<float>& out, bool accumulate) {
  const bool one = a.parts.size() == 1 && b.parts.size() == 1;
  if (one && (out.strides[1] == 1 || piece.columns == 1)) {
    product(a.parts[0], b.parts[0], piece, 0, k, &out.at(piece.row, piece.column), out.strides[0],
            accumulate);
    return;
  }
  const auto high = product.compute.floats(piece.rows * piece.columns);
  product(a.parts[0], b.parts[0], piece, 0, k, high.data(), piece.columns, false);
  // The corrections have a sum of their own, the smallest first.
  const auto low = product.compute.floats(one ? 1 : piece.rows * piece.columns);
  bool begun = false;
  for (int order = count - 1; order > 0; --order) {
    for (int i = 0; i <= order; ++i) {
      const auto pa = static_cast<std::size_t>(i), pb = static_cast<std::size_t>(order - i);
      if (pa >= a.parts.size() || pb >= b.parts.size()) continue;  // of an exact operand
      product(a.parts[pa], b.parts[pb], piece, 0, k, low.data(), piece.columns, begun);
      begun = true;
    }
  }
  for (std::int64_t r = 0; r < piece.rows; ++r) {
    for (std::int64_t c = 0; c < piece.columns; ++c) {
      const float h = high.data()[r * piece.columns + c];
      // An infinity has no low part: what its corrections give (infinity less infinity) does not
      // count, as in XLA's products of several passes.
      const float sum = begun && std::isfinite(h) ? h + low.data()[r * piece.columns + c] : h;
      float& to = out.at(piece.row + r, piece.column + c);
      to = accumulate ? to + sum : sum;
    }
  }
}

}  // namespace

void dot(const Region& a, const Region& b, const Region& out, const DotOptions& options) {
  MachineState& machine = machine_of_core("dot");
  if (current_core("dot").kind != CoreKind::tensor_core) {
    refuse("dot", "a SparseCore's subcore has no MXU; multiply on a TensorCore", out);
  }
  const Chip& chip = machine.options.chip;
  const ElementType ta = type_of(a), tb = type_of(b);
  const Extents e = judge(chip, a, b, out, options);
  const Elements elements_a = vector_access(a, AccessKind::read);
  const Elements elements_b = vector_access(b, AccessKind::read);
  const Elements elements_out = vector_access(out, AccessKind::write);

  // 1, 2 or 3 parts of an f32 operand give 1, 3 or 6 products with another one, and 1, 2 or 3 with
  // a bf16 operand, which is its own and only part.
  const F32Passes asked = options.exact_f32 ? F32Passes::six : options.passes;
  const int parts = asked == F32Passes::one ? 1 : asked == F32Passes::three ? 2 : 3;
  const int wide = (ta == ElementType::f32 ? 1 : 0) + (tb == ElementType::f32 ? 1 : 0);
  const int passes = wide == 2 ? static_cast<int>(asked) : wide == 1 ? parts : 1;
  charge(work_of(chip, e, passes, ta, tb));
  if (elements_a.data == nullptr || elements_b.data == nullptr || elements_out.target == nullptr) {
    return;
  }
  if (e.m == 0 || e.n == 0) return;

  Compute& compute = *machine.compute;
  const Parts split_a = split(compute, elements_a, ta, parts, options.exact_f32);
  const Parts split_b = split(compute, elements_b, tb, parts, options.exact_f32);
  const Product product{options, compute};
  const auto pieces = pieces_of(e);
  const auto body = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const Piece& piece = pieces[static_cast<std::size_t>(i)];
      if (is_8bit(ta) && is_8bit(tb)) {
        integer_piece(product, split_a.parts[0], split_b.parts[0], piece, e.k,
                      ta == ElementType::i8 && tb == ElementType::i8,
                      {static_cast<std::int32_t*>(elements_out.target), elements_out.strides},
                      options.accumulate);
      } else {
        float_piece(product, split_a, split_b, parts, piece, e.k,
                    {static_cast<float*>(elements_out.target), elements_out.strides},
                    options.accumulate);
      }
    }
  };
  // A product that is not worth cutting is not worth a turn of another core either.
  const auto count = static_cast<std::int64_t>(pieces.size());
  compute.run(count, count > 1 ? 1 : 2, std::ref(body));
}

}  // namespace tessera::tile::detail
