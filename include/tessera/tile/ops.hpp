// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <span>
#include <type_traits>
#include <utility>

#include "tessera/tile/math.hpp"
#include "tessera/tile/ref.hpp"

// What a kernel computes on refs in VMEM: any slices of them, with any strides. Each operation is
// judged (memory space, races, extents) once per ref, and charges the core's units as
// docs/tile_reference.md says; in a dry run that is all it does. Where refs overlap, the result is
// that of reading everything before the first element is written. An operation has ended when its
// function returns. All of them throw TileError (usage) outside of a kernel, for extents that do
// not fit, (space) for a ref that is not in VMEM, (race) where nothing orders them after what
// another core or copy did to the elements; what else an operation throws is beside it.

// Loops over a user's function are compiled a second time for AVX2, which what they are built for
// need not have, and chosen where they run. Without fused multiply-add: every bit is the same.
#if defined(__GNUC__) && defined(__x86_64__) && !defined(__AVX2__)
#define TESSERA_TILE_AVX2 __attribute__((target("avx2"), flatten))
#endif
#if defined(__GNUC__)
#define TESSERA_TILE_INLINE __attribute__((always_inline)) inline
#else
#define TESSERA_TILE_INLINE inline
#endif

namespace tessera::tile {

struct DotOptions {
  bool transpose_a = false;  ///< a is [k, m]
  bool transpose_b = false;  ///< b is [n, k]
  bool accumulate = false;   ///< out += a . b
  /// Of f32 operands: into how many bf16 parts they are split. The default rounds them to bf16, as
  /// a TPU's default precision does.
  F32Passes passes = F32Passes::one;
  /// f32 operands are multiplied in f32 at once and charged as F32Passes::six, from which the
  /// result differs by no more than f32's rounding: six costs the host six products.
  bool exact_f32 = false;
};

/// What a function asks of the vector unit, per element of the result.
struct MapCost {
  double vpu = 1;  ///< 32-bit arithmetic, comparisons, selections
  double eup = 0;  ///< exp, log, tanh, division and the like
};

/// A ref's last dimension is followed by one of a single element: `ref[:, None]`. Of a vector, what
/// broadcasts along rows.
template <class T>
struct Column {
  Ref<T> ref{};
};
template <class T>
Column<T> column(const Ref<T>& ref) {
  return {ref};
}

namespace detail {

/// Operands are read, and results written, as 32-bit words: floats as float, integers as
/// std::int32_t or std::uint32_t.
template <class T>
using Word = std::conditional_t<
    std::is_floating_point_v<T> || std::is_same_v<T, bf16> || std::is_same_v<T, f16>, float,
    std::conditional_t<std::is_unsigned_v<T> && !std::is_same_v<T, bool>, std::uint32_t,
                       std::int32_t>>;

/// Elements of a ref, or one value for all.
struct Operand {
  const Region* region = nullptr;  ///< null: `value`
  ElementType word = ElementType::f32;
  std::uint32_t value = 0;
  bool column = false;  ///< one more dimension, of one element
};

template <class T>
struct OperandOf {
  using type = Word<T>;
  static Operand get(const T& value) {
    return {nullptr, element_of<type>::value,
            std::bit_cast<std::uint32_t>(static_cast<type>(value))};
  }
};
template <class T>
struct OperandOf<Ref<T>> {
  using type = Word<T>;
  static Operand get(const Ref<T>& ref) { return {&ref.region(), element_of<type>::value, 0}; }
};
template <class T>
struct OperandOf<Column<T>> {
  using type = Word<T>;
  static Operand get(const Column<T>& column) {
    return {&column.ref.region(), element_of<type>::value, 0, true};
  }
};

/// Elements that a function takes at a time: a loop of constant length, which compilers vectorise
/// at -O2 too, over buffers that stay in the first-level cache.
inline constexpr int chunk_elements = 256;

/// Of words, a chunk at a time; null: the first operand as it is.
struct Function {
  const void* object = nullptr;
  void (*run)(const void* object, const void* const* in, void* out, int count) = nullptr;
  ElementType result = ElementType::f32;
};

template <class F, class Result, class... Words, std::size_t... I>
TESSERA_TILE_INLINE void loop_over(const void* object, const void* const* in, void* out, int count,
                                   std::index_sequence<I...>) {
  const F& f = *static_cast<const F*>(object);
  auto* __restrict results = static_cast<Result*>(out);
  if (count == chunk_elements) {
    for (int i = 0; i < chunk_elements; ++i) {
      results[i] = static_cast<Result>(f(static_cast<const Words*>(in[I])[i]...));
    }
  } else {
    for (int i = 0; i < count; ++i) {
      results[i] = static_cast<Result>(f(static_cast<const Words*>(in[I])[i]...));
    }
  }
}

template <class F, class Result, class... Words>
void run_function(const void* object, const void* const* in, void* out, int count) {
  loop_over<F, Result, Words...>(object, in, out, count, std::index_sequence_for<Words...>{});
}
#if defined(TESSERA_TILE_AVX2)
template <class F, class Result, class... Words>
TESSERA_TILE_AVX2 void run_function_avx2(const void* object, const void* const* in, void* out,
                                         int count) {
  loop_over<F, Result, Words...>(object, in, out, count, std::index_sequence_for<Words...>{});
}
#endif

template <class F, class... Words>
Function function_of(const F& f) {
  using Result = Word<std::remove_cvref_t<std::invoke_result_t<const F&, Words...>>>;
  auto run = run_function<F, Result, Words...>;
#if defined(TESSERA_TILE_AVX2)
  if (__builtin_cpu_supports("avx2")) run = run_function_avx2<F, Result, Words...>;
#endif
  return {&f, run, element_of<Result>::value};
}

inline constexpr std::size_t max_operands = 8;
using Operands = std::span<const Operand>;

enum class Reduction { sum, max, min, argmax, argmin };

/// `what` is the operation's name in messages.
TESSERA_API void map(const char* what, const Region& out, Operands operands,
                     const Function& function, const MapCost& cost);
TESSERA_API void reduce(Reduction reduction, const Region& out, int axis, Operands operands,
                        const Function& function, const MapCost& cost);
TESSERA_API void dot(const Region& a, const Region& b, const Region& out,
                     const DotOptions& options);
TESSERA_API void iota(const Region& out, int dimension);
TESSERA_API void transpose(const Region& out, const Region& ref);

template <class F, class... Args>
void reduce_of(Reduction reduction, const Region& out, int axis, const MapCost& cost, const F& f,
               const Args&... args) {
  static_assert(sizeof...(Args) <= max_operands);
  const std::array<Operand, sizeof...(Args)> operands = {OperandOf<Args>::get(args)...};
  reduce(reduction, out, axis, operands, function_of<F, typename OperandOf<Args>::type...>(f),
         cost);
}
inline void reduce_ref(Reduction reduction, const Region& out, int axis, const Operand& operand) {
  reduce(reduction, out, axis, Operands(&operand, 1), {nullptr, nullptr, operand.word}, {0, 0});
}

}  // namespace detail

/// out = a . b, or out += a . b, of two dimensions: [m, k] . [k, n]. Products of bf16 are exact and
/// summed in f32; bf16 with f32 splits the f32 operand alone; integers of 8 bits give i32. Throws
/// TileError (usage) for types that the chip's MXU does not multiply, an out that is not 32 bits
/// wide or overlaps an operand, and extents that do not fit.
template <class A, class B, class Out>
void dot(const Ref<A>& a, const Ref<B>& b, const Ref<Out>& out, const DotOptions& options = {}) {
  detail::dot(a.region(), b.region(), out.region(), options);
}

/// out[i] = f(a[i], b[i], ...); `args` are refs, which are broadcast to out as numpy does it, and
/// plain values. f gets float for floats of any type and std::int32_t or std::uint32_t for
/// integers, and its result is rounded once. It must do nothing but compute: it is called in any
/// order, on several threads, and refs cannot be loaded from within.
template <class Out, class F, class... Args>
void map(const Ref<Out>& out, const MapCost& cost, const F& f, const Args&... args) {
  static_assert(sizeof...(Args) <= detail::max_operands);
  const std::array<detail::Operand, sizeof...(Args)> operands = {
      detail::OperandOf<Args>::get(args)...};
  detail::map("map", out.region(), operands,
              detail::function_of<F, typename detail::OperandOf<Args>::type...>(f), cost);
}
template <class Out, class F, class... Args>
requires(!std::is_same_v<F, MapCost>) void map(const Ref<Out>& out, const F& f,
                                               const Args&... args) {
  map(out, MapCost{}, f, args...);
}

/// out[i] = value, rounded or cut off to out's type.
template <class Out, class T>
void fill(const Ref<Out>& out, const T& value) {
  const auto operand = detail::OperandOf<T>::get(value);
  detail::map("fill", out.region(), {&operand, 1}, {nullptr, nullptr, operand.word}, {});
}
/// out[i] = ref[i], broadcast and cast: floats are rounded to nearest even; to an integer they are
/// cut off towards zero, at the type's limits, NaN to 0; integers wrap around.
template <class Out, class T>
void assign(const Ref<Out>& out, const Ref<T>& ref) {
  const auto operand = detail::OperandOf<Ref<T>>::get(ref);
  detail::map("assign", out.region(), {&operand, 1}, {nullptr, nullptr, operand.word}, {});
}
/// out[i] = condition[i] != 0 ? a[i] : b[i]; a and b are refs or values.
template <class Out, class C, class A, class B>
void select(const Ref<Out>& out, const Ref<C>& condition, const A& a, const B& b) {
  const auto f = [](auto c, auto x, auto y) {
    if constexpr (std::is_same_v<decltype(x), float> && std::is_same_v<decltype(y), float>) {
      return where(c != 0, x, y);
    } else {
      return c != 0 ? x : y;
    }
  };
  const std::array<detail::Operand, 3> operands = {detail::OperandOf<Ref<C>>::get(condition),
                                                   detail::OperandOf<A>::get(a),
                                                   detail::OperandOf<B>::get(b)};
  detail::map("select", out.region(), operands,
              detail::function_of<decltype(f), detail::Word<C>, typename detail::OperandOf<A>::type,
                                  typename detail::OperandOf<B>::type>(f),
              {});
}
/// out[i] = the index of i in this dimension (jax.lax.broadcasted_iota); -1: the last.
template <class Out>
void iota(const Ref<Out>& out, int dimension) {
  detail::iota(out.region(), dimension);
}
/// out[j, i] = ref[i, j]: two dimensions, and the two do not overlap (usage).
template <class T>
void transpose(const Ref<T>& out, const Ref<T>& ref) {
  detail::transpose(out.region(), ref.region());
}

/// Along `axis` (-1: the last); out has 1 there, or no such dimension. Sums of floats are formed in
/// f32 in an order that depends on the extents alone, and rounded once; without elements the sum is
/// 0. These and the reductions below throw TileError (usage) for an axis that the ref has not.
template <class Out, class T>
void reduce_sum(const Ref<Out>& out, const Ref<T>& ref, int axis) {
  detail::reduce_ref(detail::Reduction::sum, out.region(), axis,
                     detail::OperandOf<Ref<T>>::get(ref));
}
/// The largest and the smallest element along the axis; NaN where there is one. Throw TileError
/// (usage) for an axis without elements.
template <class Out, class T>
void reduce_max(const Ref<Out>& out, const Ref<T>& ref, int axis) {
  detail::reduce_ref(detail::Reduction::max, out.region(), axis,
                     detail::OperandOf<Ref<T>>::get(ref));
}
template <class Out, class T>
void reduce_min(const Ref<Out>& out, const Ref<T>& ref, int axis) {
  detail::reduce_ref(detail::Reduction::min, out.region(), axis,
                     detail::OperandOf<Ref<T>>::get(ref));
}
/// Of map's function, whose values are kept nowhere: reduce_sum(total, 1, {2, 1},
/// [](float z, float max) { return exp(z - max); }, logits, row_max). The domain is what the refs
/// among `args` broadcast to.
template <class Out, class F, class... Args>
void reduce_sum(const Ref<Out>& out, int axis, const MapCost& cost, const F& f,
                const Args&... args) {
  detail::reduce_of(detail::Reduction::sum, out.region(), axis, cost, f, args...);
}
template <class Out, class F, class... Args>
void reduce_max(const Ref<Out>& out, int axis, const MapCost& cost, const F& f,
                const Args&... args) {
  detail::reduce_of(detail::Reduction::max, out.region(), axis, cost, f, args...);
}
template <class Out, class F, class... Args>
void reduce_min(const Ref<Out>& out, int axis, const MapCost& cost, const F& f,
                const Args&... args) {
  detail::reduce_of(detail::Reduction::min, out.region(), axis, cost, f, args...);
}
/// The index of the largest and of the smallest element along the axis, in integers: of the first
/// NaN where there is one, of the first of several. Throw TileError (usage) for an axis without
/// elements.
template <class Out, class T>
void argmax(const Ref<Out>& out, const Ref<T>& ref, int axis) {
  detail::reduce_ref(detail::Reduction::argmax, out.region(), axis,
                     detail::OperandOf<Ref<T>>::get(ref));
}
template <class Out, class T>
void argmin(const Ref<Out>& out, const Ref<T>& ref, int axis) {
  detail::reduce_ref(detail::Reduction::argmin, out.region(), axis,
                     detail::OperandOf<Ref<T>>::get(ref));
}

}  // namespace tessera::tile
