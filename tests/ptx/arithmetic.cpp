// SPDX-License-Identifier: Apache-2.0
// Instructions that work on each lane by itself.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "builder.hpp"
#include "layouts.hpp"
#include "tessera/dtype.hpp"

namespace tessera_ptx {
namespace {

/// result = F(values...), lane by lane.
template <class R, class... A, class F>
Op::Run lanewise(F) {
  return [](Machine&, Warp& w, const Op& op, Lanes lanes) {
    const auto all = [&]<std::size_t... I>(std::index_sequence<I...>) {
      R* const to = w.at<R>(op.at[0]);
      if (lanes == all_lanes) {
        for (int l = 0; l < warp_size; ++l) to[l] = F{}(w.at<A>(op.at[I + 1])[l]...);
      } else {
        for_lanes(lanes, [&](int l) { to[l] = F{}(w.at<A>(op.at[I + 1])[l]...); });
      }
    };
    all(std::index_sequence_for<A...>{});
  };
}

/// f(T()) for the C++ type.
template <class F>
Op::Run for_type(Type type, F f) {
  switch (type) {
    case Type::u8:
    case Type::b8:
      return f(std::uint8_t{});
    case Type::s8:
      return f(std::int8_t{});
    case Type::u16:
    case Type::b16:
      return f(std::uint16_t{});
    case Type::s16:
      return f(std::int16_t{});
    case Type::u32:
    case Type::b32:
      return f(std::uint32_t{});
    case Type::s32:
      return f(std::int32_t{});
    case Type::u64:
    case Type::b64:
      return f(std::uint64_t{});
    case Type::s64:
      return f(std::int64_t{});
    case Type::f32:
      return f(float{});
    case Type::f64:
      return f(double{});
    case Type::pred:
      break;
  }
  return nullptr;
}
template <class F>
Op::Run for_integer(Type type, F f) {
  return for_type(type, [&]<class T>(T) -> Op::Run {
    if constexpr (std::is_integral_v<T> && sizeof(T) > 1)
      return f(T{});
    else
      return nullptr;
  });
}
template <class F>
Op::Run for_float(Type type, F f) {
  return for_type(type, [&]<class T>(T) -> Op::Run {
    if constexpr (std::is_floating_point_v<T>)
      return f(T{});
    else
      return nullptr;
  });
}

/// Wraps round, as the hardware's integers do.
template <class T>
using Bits = std::make_unsigned_t<T>;

template <class T>
using Wide = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>,
    std::conditional_t<sizeof(T) == 4,
                       std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

template <class T>
constexpr auto times =
    [](T a, T b) { return static_cast<T>(Bits<T>(a) * std::uint64_t{Bits<T>(b)}); };
template <class T>
constexpr auto times_high =
    [](T a, T b) { return static_cast<T>((Wide<T>(a) * Wide<T>(b)) >> (8 * sizeof(T))); };

/// `add.s32 d, a, b` and its like.
void build_sum(Builder& b) {
  const bool is_add = b.head() == "add";
  b.take("rn");
  const Type type = b.type();
  b.end_of_words();
  b.output(0, type);
  b.input(1, type);
  b.input(2, type);
  b.op.run = for_type(type, [&]<class T>(T) -> Op::Run {
    if constexpr (std::is_floating_point_v<T>) {
      return is_add ? lanewise<T, T, T>([](T x, T y) { return x + y; })
                    : lanewise<T, T, T>([](T x, T y) { return x - y; });
    } else {
      using U = Bits<T>;
      return is_add ? lanewise<U, U, U>([](U x, U y) { return static_cast<U>(x + y); })
                    : lanewise<U, U, U>([](U x, U y) { return static_cast<U>(x - y); });
    }
  });
}

/// mul and mad: .lo, .hi, .wide; of floats mul.rn, fma.rn.
void build_product(Builder& b) {
  const bool adds = b.head() != "mul";
  if (b.take("rn")) {
    const Type type = b.type();
    b.end_of_words();
    b.output(0, type);
    for (std::size_t i = 1; i < (adds ? 4u : 3u); ++i) b.input(i, type);
    b.op.run = for_float(type, [&]<class T>(T) {
      return adds ? lanewise<T, T, T, T>([](T x, T y, T z) { return std::fma(x, y, z); })
                  : lanewise<T, T, T>([](T x, T y) { return x * y; });
    });
    return;
  }
  if (b.head() == "fma") b.unknown();
  const auto which = b.word();
  const Type type = b.type();
  b.end_of_words();
  const std::size_t wide = 2 * size_of(type);
  if (which == "wide")
    b.output(b.operand(0), wide);
  else
    b.output(0, type);
  b.input(1, type);
  b.input(2, type);
  if (adds && which == "wide")
    b.input(b.operand(3), wide);
  else if (adds)
    b.input(3, type);
  b.op.run = for_integer(type, [&]<class T>(T) -> Op::Run {
    using W = Wide<T>;
    if (which == "lo") {
      return adds ? lanewise<T, T, T, T>([](T x, T y, T z) {
        return static_cast<T>(Bits<T>(times<T>(x, y)) + Bits<T>(z));
      })
                  : lanewise<T, T, T>(times<T>);
    }
    if (which == "hi") {
      return adds ? lanewise<T, T, T, T>([](T x, T y, T z) {
        return static_cast<T>(Bits<T>(times_high<T>(x, y)) + Bits<T>(z));
      })
                  : lanewise<T, T, T>(times_high<T>);
    }
    if constexpr (sizeof(T) < 8) {
      if (which == "wide") {
        return adds ? lanewise<W, T, T, W>([](T x, T y, W z) {
          return static_cast<W>(Bits<W>(W(x) * W(y)) + Bits<W>(z));
        })
                    : lanewise<W, T, T>([](T x, T y) { return static_cast<W>(W(x) * W(y)); });
      }
    }
    return nullptr;
  });
}

void build_division(Builder& b) {
  const bool is_division = b.head() == "div";
  // The approximations are within 2 units in the last place; this one is right.
  const bool is_float = b.take("rn") || b.take("full") || b.take("approx");
  const Type type = b.type();
  b.end_of_words();
  b.output(0, type);
  b.input(1, type);
  b.input(2, type);
  if (is_float) {
    b.op.run = for_float(type, [&]<class T>(T) -> Op::Run {
      return is_division ? lanewise<T, T, T>([](T x, T y) { return x / y; }) : nullptr;
    });
    return;
  }
  b.op.run = for_integer(type, [&]<class T>(T) {
    // The hardware does not stop at a division by 0; its result is not specified.
    return is_division ? lanewise<T, T, T>([](T x, T y) {
      if (y == 0) return static_cast<T>(~T{0});
      if (std::is_signed_v<T> && y == static_cast<T>(~T{0})) return static_cast<T>(0 - Bits<T>(x));
      return static_cast<T>(x / y);
    })
                       : lanewise<T, T, T>([](T x, T y) {
                           if (y == 0) return x;
                           if (std::is_signed_v<T> && y == static_cast<T>(~T{0})) return T{0};
                           return static_cast<T>(x % y);
                         });
  });
}

void build_extreme(Builder& b) {
  const bool is_max = b.head() == "max";
  const Type type = b.type();
  b.end_of_words();
  b.output(0, type);
  b.input(1, type);
  b.input(2, type);
  b.op.run = for_type(type, [&]<class T>(T) -> Op::Run {
    if constexpr (std::is_floating_point_v<T>) {
      return is_max ? lanewise<T, T, T>([](T x, T y) { return std::fmax(x, y); })
                    : lanewise<T, T, T>([](T x, T y) { return std::fmin(x, y); });
    } else {
      return is_max ? lanewise<T, T, T>([](T x, T y) { return std::max(x, y); })
                    : lanewise<T, T, T>([](T x, T y) { return std::min(x, y); });
    }
  });
}

/// neg, abs, not and the functions of floats.
void build_unary(Builder& b) {
  const auto head = b.head();
  const bool approximates = b.take("approx");
  const bool flushes = b.take("ftz");
  if (!approximates) b.take("rn");
  const Type type = b.type();
  b.end_of_words();
  if (flushes && !approximates) b.unknown();
  b.output(0, type);
  b.input(1, type);
  if (type == Type::pred && head == "not") {
    b.op.run = [](Machine&, Warp& w, const Op& op, Lanes lanes) {
      Lanes& to = w.predicate(op.at[0]);
      to = (to & ~lanes) | (~w.predicate(op.at[1]) & lanes);
    };
    return;
  }
  b.op.run = for_type(type, [&]<class T>(T) -> Op::Run {
    if constexpr (std::is_floating_point_v<T>) {
      if (head == "neg") return lanewise<T, T>([](T x) { return -x; });
      if (head == "abs") return lanewise<T, T>([](T x) { return std::abs(x); });
      if (head == "sqrt") return lanewise<T, T>([](T x) { return std::sqrt(x); });
      if (head == "rcp") return lanewise<T, T>([](T x) { return 1 / x; });
      if (!approximates) return nullptr;
      if (head == "rsqrt") return lanewise<T, T>([](T x) { return 1 / std::sqrt(x); });
      if (head == "lg2") return lanewise<T, T>([](T x) { return std::log2(x); });
      if (head == "sin") return lanewise<T, T>([](T x) { return std::sin(x); });
      if (head == "cos") return lanewise<T, T>([](T x) { return std::cos(x); });
      if (head == "tanh") return lanewise<T, T>([](T x) { return std::tanh(x); });
      if (head == "ex2") {
        return flushes ? lanewise<T, T>([](T x) {
          const T y = std::exp2(x);
          return y < std::numeric_limits<T>::min() ? T{0} : y;
        })
                       : lanewise<T, T>([](T x) { return std::exp2(x); });
      }
      return nullptr;
    } else {
      using U = Bits<T>;
      if (head == "neg") return lanewise<U, U>([](U x) { return static_cast<U>(0 - x); });
      if (head == "not") return lanewise<U, U>([](U x) { return static_cast<U>(~x); });
      if (head == "abs")
        return lanewise<T, T>([](T x) { return x < 0 ? static_cast<T>(0 - Bits<T>(x)) : x; });
      if constexpr (sizeof(T) == 4 || sizeof(T) == 8) {
        if (head == "brev") {
          return lanewise<U, U>([](U x) {
            U y = 0;
            for (std::size_t i = 0; i < 8 * sizeof(U); ++i) y = y << 1 | (x >> i & 1);
            return y;
          });
        }
      }
      return nullptr;
    }
  });
}

/// clz and popc: the result has 32 bits.
void build_count(Builder& b) {
  const bool is_clz = b.head() == "clz";
  const Type type = b.type();
  b.end_of_words();
  b.output(0, Type::b32);
  b.input(1, type);
  b.op.run = for_integer(type, [&]<class T>(T) {
    using U = Bits<T>;
    using R = std::uint32_t;
    return is_clz ? lanewise<R, U>([](U x) { return static_cast<R>(std::countl_zero(x)); })
                  : lanewise<R, U>([](U x) { return static_cast<R>(std::popcount(x)); });
  });
}

void build_logic(Builder& b) {
  const auto head = b.head();
  const Type type = b.type();
  b.end_of_words();
  b.output(0, type);
  b.input(1, type);
  b.input(2, type);
  if (type == Type::pred) {
    b.op.number = {head == "and" ? 0 : head == "or" ? 1 : 2};
    b.op.run = [](Machine&, Warp& w, const Op& op, Lanes lanes) {
      const Lanes x = w.predicate(op.at[1]), y = w.predicate(op.at[2]);
      const Lanes z = op.number[0] == 0 ? x & y : op.number[0] == 1 ? x | y : x ^ y;
      Lanes& to = w.predicate(op.at[0]);
      to = (to & ~lanes) | (z & lanes);
    };
    return;
  }
  b.op.run = for_integer(type, [&]<class T>(T) {
    using U = Bits<T>;
    if (head == "and") return lanewise<U, U, U>([](U x, U y) { return static_cast<U>(x & y); });
    if (head == "or") return lanewise<U, U, U>([](U x, U y) { return static_cast<U>(x | y); });
    return lanewise<U, U, U>([](U x, U y) { return static_cast<U>(x ^ y); });
  });
}

void build_shift(Builder& b) {
  const bool is_left = b.head() == "shl";
  const Type type = b.type();
  b.end_of_words();
  b.output(0, type);
  b.input(1, type);
  b.input(2, Type::u32);
  b.op.run = for_integer(type, [&]<class T>(T) {
    using S = std::uint32_t;
    constexpr S width = 8 * sizeof(T);
    return is_left ? lanewise<T, T, S>([](T x, S n) {
      return n >= width ? T{0} : static_cast<T>(Bits<T>(x) << n);
    })
                   : lanewise<T, T, S>([](T x, S n) {
                       return static_cast<T>(n < width ? x >> n : x < 0 ? -1 : 0);
                     });
  });
}

/// shf.l.wrap d, low, high, n and its like.
void build_funnel(Builder& b) {
  const bool is_left = b.take("l");
  if (!is_left) b.expect("r");
  const bool wraps = b.take("wrap");
  if (!wraps) b.expect("clamp");
  b.expect("b32");
  b.end_of_words();
  b.output(0, Type::b32);
  for (std::size_t i = 1; i < 4; ++i) b.input(i, Type::b32);
  using U = std::uint32_t;
  const auto run = [](auto left, auto wrap) {
    return lanewise<U, U, U, U>([](U low, U high, U n) {
      n = decltype(wrap)::value ? n & 31 : std::min<U>(n, 32);
      const std::uint64_t both = std::uint64_t{high} << 32 | low;
      return static_cast<U>(decltype(left)::value ? both << n >> 32 : both >> n);
    });
  };
  using Yes = std::true_type;
  using No = std::false_type;
  b.op.run = is_left ? (wraps ? run(Yes{}, Yes{}) : run(Yes{}, No{}))
                     : (wraps ? run(No{}, Yes{}) : run(No{}, No{}));
}

void build_prmt(Builder& b) {
  b.expect("b32");
  b.end_of_words();
  b.output(0, Type::b32);
  for (std::size_t i = 1; i < 4; ++i) b.input(i, Type::b32);
  using U = std::uint32_t;
  b.op.run = lanewise<U, U, U, U>([](U low, U high, U which) {
    const std::uint64_t both = std::uint64_t{high} << 32 | low;
    U result = 0;
    for (int i = 0; i < 4; ++i) {
      const U selector = which >> (4 * i);
      U byte = both >> (8 * (selector & 7)) & 0xFF;
      if ((selector & 8) != 0) byte = (byte & 0x80) != 0 ? 0xFF : 0;  // its sign
      result |= byte << (8 * i);
    }
    return result;
  });
}

/// lop3.b32 d, a, b, c, table.
void build_lop3(Builder& b) {
  b.expect("b32");
  b.end_of_words();
  b.output(0, Type::b32);
  for (std::size_t i = 1; i < 5; ++i) b.input(i, Type::b32);
  using U = std::uint32_t;
  b.op.run = lanewise<U, U, U, U, U>([](U x, U y, U z, U table) {
    U result = 0;
    for (int i = 0; i < 8; ++i) {
      if ((table >> i & 1) == 0) continue;
      result |= ((i & 4) != 0 ? x : ~x) & ((i & 2) != 0 ? y : ~y) & ((i & 1) != 0 ? z : ~z);
    }
    return result;
  });
}

/// bfe takes a field of bits; bfi d, a, b, at, length puts the low bits of a into b.
void build_field(Builder& b) {
  const bool takes = b.head() == "bfe";
  const Type type = b.type();
  b.end_of_words();
  b.output(0, type);
  b.input(1, type);
  if (!takes) b.input(2, type);
  b.input(takes ? 2 : 3, Type::u32);
  b.input(takes ? 3 : 4, Type::u32);
  using S = std::uint32_t;
  b.op.run = for_integer(type, [&]<class T>(T) {
    constexpr int width = 8 * sizeof(T);
    using U = Bits<T>;
    return takes ? lanewise<T, T, S, S>([](T x, S at, S length) {
      const int first = at & 0xFF, count = length & 0xFF;
      U result = 0;
      // Beyond the field stands its last bit, of signed ones.
      for (int i = 0; i < width; ++i) {
        const int from = std::min(first + std::min(i, count - 1), width - 1);
        const bool counts = count > 0 && (i < count ? first + i < width || std::is_signed_v<T>
                                                    : std::is_signed_v<T>);
        if (counts) result |= (static_cast<U>(x) >> from & 1) << i;
      }
      return static_cast<T>(result);
    })
                 : lanewise<T, T, T, S, S>([](T x, T y, S at, S length) {
                     const int first = at & 0xFF, count = length & 0xFF;
                     auto result = static_cast<U>(y);
                     for (int i = 0; i < count && first + i < width; ++i) {
                       const U bit = U{1} << (first + i);
                       result = (static_cast<U>(x) >> i & 1) != 0 ? result | bit : result & ~bit;
                     }
                     return static_cast<T>(result);
                   });
  });
}

template <class T>
bool holds(std::string_view how, T x, T y) {
  const bool is_unordered = x != x || y != y;
  if (how == "num") return !is_unordered;
  if (how == "nan") return is_unordered;
  if constexpr (std::is_floating_point_v<T>) {
    if (how.ends_with('u') && is_unordered) return true;
  }
  const auto is = [&](std::string_view name, std::string_view of_unsigned = "-") {
    return how == of_unsigned || (how.starts_with(name) && how.size() <= 3);
  };
  if (is("eq")) return x == y;
  if (is("ne")) return !is_unordered && x != y;
  if (is("lt", "lo")) return x < y;
  if (is("le", "ls")) return x <= y;
  if (is("gt", "hi")) return x > y;
  return x >= y;
}
constexpr std::string_view comparisons[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",
                                            "lo",  "ls",  "hi",  "hs",  "equ", "neu",
                                            "ltu", "leu", "gtu", "geu", "num", "nan"};

/// Compares registers of type T as values of type C.
template <class T, class C>
void compare_lanes(Machine&, Warp& w, const Op& op, Lanes lanes) {
  const std::size_t first = op.outputs;
  const T* const x = w.at<T>(op.at[first]);
  const T* const y = w.at<T>(op.at[first + 1]);
  Lanes result = 0;
  const auto compare = [&](auto test) {
    for (int l = 0; l < warp_size; ++l) {
      result |= Lanes{test(static_cast<C>(x[l]), static_cast<C>(y[l]))} << l;
    }
  };
  switch (op.number[0]) {
    case 0:
      compare([](C s, C t) { return s == t; });
      break;
    case 2:
      compare([](C s, C t) { return s < t; });
      break;
    case 4:
      compare([](C s, C t) { return s > t; });
      break;
    default:
      compare([how = comparisons[op.number[0]]](C s, C t) { return holds(how, s, t); });
  }
  Lanes other = ~result;
  if (op.number[1] != 0) {
    Lanes with = w.predicate(op.at[first + 2]);
    if (op.number[3] != 0) with = ~with;
    const auto join = [&](Lanes a) {
      return op.number[1] == 1 ? a & with : op.number[1] == 2 ? a | with : a ^ with;
    };
    result = join(result);
    other = join(other);
  }
  Lanes& d = w.predicate(op.at[0]);
  d = (d & ~lanes) | (result & lanes);
  if (op.number[2] == 0) return;
  Lanes& e = w.predicate(op.at[1]);
  e = (e & ~lanes) | (other & lanes);
}

/// setp.lt.s32 p, a, b; setp.lt.and.s32 p|q, a, b, c.
void build_setp(Builder& b) {
  const auto how = b.word();
  const auto* const found = std::find(std::begin(comparisons), std::end(comparisons), how);
  if (found == std::end(comparisons)) b.unknown();
  const std::int64_t comparison = found - std::begin(comparisons);
  const int joins = b.take("and") ? 1 : b.take("or") ? 2 : b.take("xor") ? 3 : 0;
  const bool is_half = b.take("f16");
  const Type type = is_half ? Type::b16 : b.type();
  b.end_of_words();
  const Operand& to = b.operand(0);
  const bool has_two = to.kind == Operand::Kind::list;
  if (has_two) {
    for (const auto& one : to.list) b.output(one, 0);
  } else {
    b.output(to, 0);
  }
  b.input(1, type);
  b.input(2, type);
  if (joins != 0) b.input(b.operand(3), 0);
  const bool is_not = joins != 0 && b.operand(3).is_not;
  b.op.number = {comparison, joins, has_two, is_not};
  b.op.run = is_half ? compare_lanes<tessera::f16, float>
                     : for_type(type, []<class T>(T) -> Op::Run { return compare_lanes<T, T>; });
}

void build_selp(Builder& b) {
  const Type type = b.type();
  b.end_of_words();
  b.output(0, type);
  b.input(1, type);
  b.input(2, type);
  b.input(b.operand(3), 0);
  b.op.run = for_type(type, []<class T>(T) -> Op::Run {
    return [](Machine&, Warp& w, const Op& op, Lanes lanes) {
      T* const to = w.at<T>(op.at[0]);
      const T *const x = w.at<T>(op.at[1]), *const y = w.at<T>(op.at[2]);
      const Lanes which = w.predicate(op.at[3]);
      for_lanes(lanes, [&](int l) { to[l] = (which >> l & 1) != 0 ? x[l] : y[l]; });
    };
  });
}

/// mov, also of a register's parts: mov.b64 %rd, {%r1, %r2}.
void build_mov(Builder& b) {
  const Type type = b.type();
  b.end_of_words();
  const Operand &to = b.operand(0), &from = b.operand(1);
  if (type == Type::pred) {
    b.output(to, 0);
    b.input(from, 0);
    b.op.number = {from.is_not};
    b.op.run = [](Machine&, Warp& w, const Op& op, Lanes lanes) {
      Lanes& d = w.predicate(op.at[0]);
      const Lanes x = w.predicate(op.at[1]);
      d = (d & ~lanes) | ((op.number[0] != 0 ? ~x : x) & lanes);
    };
    return;
  }
  const bool splits = to.kind == Operand::Kind::list, joins = from.kind == Operand::Kind::list;
  if (splits == joins) {
    if (splits) b.unknown();
    b.output(0, type);
    b.input(1, type);
    b.op.run = for_type(type, []<class T>(T) { return lanewise<T, T>([](T x) { return x; }); });
    return;
  }
  const auto& parts = splits ? to.list : from.list;
  const std::size_t bytes = size_of(type) / parts.size();
  for (const auto& part : parts) {
    if (!splits) break;
    if (part.kind == Operand::Kind::sink) b.unknown();
    b.output(part, bytes);
  }
  if (!splits) b.output(0, type);
  if (splits) b.input(1, type);
  for (const auto& part : parts) {
    if (!splits) b.input(part, bytes);
  }
  b.op.number = {static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(size_of(type))};
  b.op.run = [](Machine&, Warp& w, const Op& op, Lanes lanes) {
    const auto part = static_cast<std::size_t>(op.number[0]);
    const auto whole = static_cast<std::size_t>(op.number[1]);
    for_lanes(lanes, [&](int l) {
      if (op.outputs > 1) {
        const auto bits = w.value(op.at.back(), whole, l);
        for (std::size_t i = 0; i < op.outputs; ++i) {
          w.set_value(op.at[i], part, l, bits >> (8 * part * i));
        }
      } else {
        std::uint64_t bits = 0;
        for (std::size_t i = 1; i < op.at.size(); ++i) {
          bits |= w.value(op.at[i], part, l) << (8 * part * (i - 1));
        }
        w.set_value(op.at[0], whole, l, bits);
      }
    });
  };
}

template <class R, class A>
R converted(A x, std::int64_t rounding) {
  if constexpr (std::is_integral_v<A> || std::is_floating_point_v<R>) {
    if constexpr (std::is_floating_point_v<A>) {
      if (rounding == 1) return static_cast<R>(std::nearbyint(x));
      if (rounding == 2) return static_cast<R>(std::trunc(x));
      if (rounding == 3) return static_cast<R>(std::floor(x));
      if (rounding == 4) return static_cast<R>(std::ceil(x));
    }
    return static_cast<R>(x);
  } else {
    if (x != x) return R{0};
    const double y = rounding == 1   ? std::nearbyint(double{x})
                     : rounding == 3 ? std::floor(double{x})
                     : rounding == 4 ? std::ceil(double{x})
                                     : std::trunc(double{x});
    if (y <= static_cast<double>(std::numeric_limits<R>::min()))
      return std::numeric_limits<R>::min();
    if (y >= static_cast<double>(std::numeric_limits<R>::max()))
      return std::numeric_limits<R>::max();
    return static_cast<R>(y);
  }
}

/// cvt.rn.bf16x2.f32 d, high, low, and of f16.
void build_cvt_pair(Builder& b) {
  const bool is_half = b.take("f16x2");
  if (!is_half) b.expect("bf16x2");
  b.expect("f32");
  b.end_of_words();
  b.output(0, Type::b32);
  b.input(1, Type::f32);
  b.input(2, Type::f32);
  b.op.run = is_half ? lanewise<std::uint32_t, float, float>([](float high, float low) {
    return std::uint32_t{tessera::f16(high).bits} << 16 | tessera::f16(low).bits;
  })
                     : lanewise<std::uint32_t, float, float>([](float high, float low) {
                         return std::uint32_t{to_bf16(high)} << 16 | to_bf16(low);
                       });
}

void build_cvt(Builder& b) {
  // 0: to the nearest, or exact; the others give whole numbers.
  const std::int64_t rounding = b.take("rni")   ? 1
                                : b.take("rzi") ? 2
                                : b.take("rmi") ? 3
                                : b.take("rpi") ? 4
                                                : 0;
  if (rounding == 0) b.take("rn");
  if (b.next() == "bf16x2" || b.next() == "f16x2") return build_cvt_pair(b);
  if (b.take("bf16")) {
    b.expect("f32");
    b.end_of_words();
    b.output(0, Type::b16);
    b.input(1, Type::f32);
    b.op.run = lanewise<std::uint16_t, float>([](float x) { return to_bf16(x); });
    return;
  }
  if (b.take("f16")) {
    b.expect("f32");
    b.end_of_words();
    b.output(0, Type::b16);
    b.input(1, Type::f32);
    b.op.run = lanewise<tessera::f16, float>([](float x) { return tessera::f16(x); });
    return;
  }
  if (b.has("f16")) {
    b.expect("f32");
    b.expect("f16");
    b.end_of_words();
    b.output(0, Type::f32);
    b.input(1, Type::b16);
    b.op.run = lanewise<float, tessera::f16>([](tessera::f16 x) { return static_cast<float>(x); });
    return;
  }
  const Type to = b.type(), from = b.type();
  b.end_of_words();
  const auto bytes = [&](std::size_t i) {
    const Operand& operand = b.operand(i);
    return operand.kind == Operand::Kind::reg ? std::size_t{operand.bytes} : size_of(from);
  };
  const std::size_t to_bytes = bytes(0), from_bytes = bytes(1);
  if (to_bytes < size_of(to) || from_bytes < size_of(from)) b.unknown();
  b.output(b.operand(0), to_bytes);
  b.input(b.operand(1), from_bytes);
  b.op.number = {rounding, static_cast<std::int64_t>(to_bytes),
                 static_cast<std::int64_t>(from_bytes)};
  const bool is_plain = to_bytes == size_of(to) && from_bytes == size_of(from) && rounding == 0;
  b.op.run = for_type(to, [&]<class R>(R) {
    return for_type(from, [&]<class A>(A) -> Op::Run {
      if (is_plain && (std::is_integral_v<A> || std::is_floating_point_v<R>)) {
        return lanewise<R, A>([](A x) { return converted<R, A>(x, 0); });
      }
      return [](Machine&, Warp& w, const Op& op, Lanes lanes) {
        for_lanes(lanes, [&](int l) {
          const auto bits = w.value(op.at[1], static_cast<std::size_t>(op.number[2]), l);
          A x;
          std::memcpy(&x, &bits, sizeof(A));
          const R y = converted<R, A>(x, op.number[0]);
          std::uint64_t result = 0;
          // A narrow result in a wide register is extended by its sign.
          if constexpr (std::is_signed_v<R> && std::is_integral_v<R>) {
            result = static_cast<std::uint64_t>(std::int64_t{y});
          } else {
            std::memcpy(&result, &y, sizeof(R));
          }
          w.set_value(op.at[0], static_cast<std::size_t>(op.number[1]), l, result);
        });
      };
    });
  });
}

/// Addresses in one space for all: of local and shared memory with a mark (layouts.hpp).
void build_cvta(Builder& b) {
  const bool is_back = b.take("to");
  const auto space = b.word();
  const Type type = b.type();
  b.end_of_words();
  b.output(0, type);
  b.input(1, type);
  if (size_of(type) != 8) b.unknown();
  using U = std::uint64_t;
  if (space == "global" || space == "const") {
    b.op.run = lanewise<U, U>([](U x) { return x; });
  } else if (space == "shared") {
    b.op.run = is_back ? lanewise<U, U>([](U x) { return x - shared_mark; })
                       : lanewise<U, U>([](U x) { return x + shared_mark; });
  } else if (space == "local") {
    b.op.run = is_back ? lanewise<U, U>([](U x) { return x - local_mark; })
                       : lanewise<U, U>([](U x) { return x + local_mark; });
  } else {
    b.unknown();
  }
}

}  // namespace

bool build_arithmetic(Builder& b) {
  static const std::map<std::string_view, void (*)(Builder&)> all = {
      {"add", build_sum},      {"sub", build_sum},     {"mul", build_product},
      {"mad", build_product},  {"fma", build_product}, {"div", build_division},
      {"rem", build_division}, {"min", build_extreme}, {"max", build_extreme},
      {"neg", build_unary},    {"abs", build_unary},   {"not", build_unary},
      {"sqrt", build_unary},   {"rsqrt", build_unary}, {"rcp", build_unary},
      {"ex2", build_unary},    {"lg2", build_unary},   {"sin", build_unary},
      {"cos", build_unary},    {"tanh", build_unary},  {"brev", build_unary},
      {"clz", build_count},    {"popc", build_count},  {"and", build_logic},
      {"or", build_logic},     {"xor", build_logic},   {"shl", build_shift},
      {"shr", build_shift},    {"shf", build_funnel},  {"prmt", build_prmt},
      {"lop3", build_lop3},    {"bfe", build_field},   {"bfi", build_field},
      {"setp", build_setp},    {"selp", build_selp},   {"mov", build_mov},
      {"cvt", build_cvt},      {"cvta", build_cvta}};
  const auto found = all.find(b.head());
  if (found == all.end()) return false;
  found->second(b);
  return true;
}

}  // namespace tessera_ptx
