// SPDX-License-Identifier: Apache-2.0
// Products on the tile machine against plain loops in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/tile_values.hpp"

namespace tessera::tile {
namespace {

using test::expect_error;
using test::get;
using test::identical;
using test::in_kernel;
using test::Pattern;
using test::set;
using test::Values;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

double rounded(double x) { return test::as_double(bf16(static_cast<float>(x))); }

/// What a transposed operand is.
struct Operand {
  Values values;
  bool transposed;
  double operator()(std::int64_t i, std::int64_t j) const {
    return transposed ? values(j, i) : values(i, j);
  }
};

/// out against the sum in double of `of(a, b)`, within `relative` of the sum of the magnitudes.
template <class F>
void expect_product(const Values& out, const Operand& a, const Operand& b, std::int64_t k,
                    double relative, F of, const Values* before = nullptr) {
  int wrong = 0;
  for (std::int64_t i = 0; i < out.rows; ++i) {
    for (std::int64_t j = 0; j < out.columns; ++j) {
      double sum = before != nullptr ? (*before)(i, j) : 0;
      double scale = std::abs(sum);
      for (std::int64_t p = 0; p < k; ++p) {
        const double term = of(a(i, p), b(p, j));
        sum += term;
        scale += std::abs(term);
      }
      const bool good = std::isfinite(sum) ? std::abs(out(i, j) - sum) <= relative * scale
                                           : identical(out(i, j), sum);
      if (!good && ++wrong <= 3) {
        ADD_FAILURE() << "(" << i << ", " << j << "): " << out(i, j) << ", expected " << sum;
      }
    }
  }
  EXPECT_EQ(wrong, 0);
}

struct Size {
  std::int64_t m, n, k;
};
const Size sizes[] = {{8, 128, 128},  {5, 7, 3},   {1, 1, 1},
                      {33, 130, 257}, {1, 300, 5}, {65, 1, 40}};

/// dot of slices in the middle of larger refs, whose other elements stay what they are.
template <class A, class B, class Out, class F>
void check(const DotOptions& options, double relative, F of, bool outliers = true) {
  for (const Size& s : sizes) {
    SCOPED_TRACE(testing::Message()
                 << s.m << " x " << s.n << " x " << s.k << ", transposed " << options.transpose_a
                 << options.transpose_b << ", accumulate " << options.accumulate);
    const Shape ea = options.transpose_a ? Shape{s.k, s.m} : Shape{s.m, s.k};
    const Shape eb = options.transpose_b ? Shape{s.n, s.k} : Shape{s.k, s.n};
    Machine machine = test::without_races();
    in_kernel(
        machine,
        [&](Ref<A> whole_a, Ref<B> whole_b, Ref<Out> whole_out) {
          const auto a = whole_a.at(ds(2, ea[0]), ds(3, ea[1]));
          const auto b = whole_b.at(ds(1, eb[0]), ds(5, eb[1]));
          const auto out = whole_out.at(ds(3, s.m), ds(2, s.n));
          set(a, Pattern{1, outliers});
          set(b, Pattern{2, outliers});
          set(whole_out, Pattern{3});
          const Values before = get(out);
          const Values around = get(whole_out);
          dot(a, b, out, options);
          expect_product(get(out), {get(a), options.transpose_a}, {get(b), options.transpose_b},
                         s.k, relative, of, options.accumulate ? &before : nullptr);
          const Values after = get(whole_out);
          for (std::int64_t i = 0; i < after.rows; ++i) {
            for (std::int64_t j = 0; j < after.columns; ++j) {
              const bool inside = i >= 3 && i < 3 + s.m && j >= 2 && j < 2 + s.n;
              ASSERT_TRUE(inside || after(i, j) == around(i, j));
            }
          }
        },
        Vmem<A>{{ea[0] + 4, ea[1] + 7}, "a"}, Vmem<B>{{eb[0] + 4, eb[1] + 7}, "b"},
        Vmem<Out>{{s.m + 5, s.n + 5}, "out"});
  }
}

// Sums of up to 257 f32 terms: half a unit in the last place each, at worst.
constexpr double f32_sum = 300 * 0x1p-24;

TEST(TileDot, Bf16OperandsAreExact) {
  const auto product = [](double a, double b) { return a * b; };
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const bool accumulate : {false, true}) {
        check<bf16, bf16, float>({ta, tb, accumulate}, f32_sum, product);
      }
    }
  }
}

TEST(TileDot, F32OperandsGoThroughBf16) {
  check<float, float, float>({}, f32_sum,
                             [](double a, double b) { return rounded(a) * rounded(b); });
  check<float, float, float>({.transpose_b = true, .accumulate = true}, f32_sum,
                             [](double a, double b) { return rounded(a) * rounded(b); });
  // Only the f32 operand is rounded.
  check<float, bf16, float>({}, f32_sum, [](double a, double b) { return rounded(a) * b; });
  check<bf16, float, float>({}, f32_sum, [](double a, double b) { return a * rounded(b); });
  // The products that each number of passes has.
  const auto passes = [](double a, double b, int parts) {
    double sum = 0, rest_a = a;
    for (int i = 0; i < parts; ++i) {
      double rest_b = b;
      const double x = rounded(rest_a);
      for (int j = 0; i + j < parts; ++j) {
        sum += x * rounded(rest_b);
        rest_b -= rounded(rest_b);
      }
      rest_a -= x;
    }
    return sum;
  };
  check<float, float, float>({.passes = F32Passes::three}, f32_sum,
                             [&](double a, double b) { return passes(a, b, 2); });
  check<float, float, float>({.passes = F32Passes::six}, f32_sum,
                             [](double a, double b) { return a * b; });
  check<float, float, float>({.accumulate = true, .exact_f32 = true}, f32_sum,
                             [](double a, double b) { return a * b; });
  check<float, bf16, float>({.passes = F32Passes::six}, f32_sum,
                            [](double a, double b) { return a * b; });
}

/// How far each precision is from the product: what they are for. One element, so that nothing
/// averages out.
TEST(TileDot, EveryPassCounts) {
  const float a = 1.00390625f + 0x1p-12f + 0x1p-20f, b = 1.01171875f + 0x1p-13f + 0x1p-21f;
  Machine machine;
  in_kernel(
      machine,
      [&](Ref<float> x, Ref<float> y, Ref<float> out) {
        x.store(a, 0, 0);
        y.store(b, 0, 0);
        const double exact = static_cast<double>(a) * static_cast<double>(b);
        const auto error = [&](const DotOptions& options) {
          dot(x, y, out, options);
          return std::abs(out.load(0, 0) - exact);
        };
        EXPECT_GT(error({.passes = F32Passes::one}), 0x1p-10);
        EXPECT_LT(error({.passes = F32Passes::three}), 0x1p-15);
        EXPECT_GT(error({.passes = F32Passes::three}), 0x1p-22);
        EXPECT_LE(error({.passes = F32Passes::six}), 0x1p-22);
        EXPECT_LE(error({.exact_f32 = true}), 0x1p-23);
        // Both halves are large and their product small: hi * lo and lo * hi both count.
        x.store(256.0f + 0x1p-9f, 0, 0);
        y.store(1.0f, 0, 0);
        dot(x, y, out, {.passes = F32Passes::three});
        EXPECT_EQ(out.load(0, 0), 256.0f + 0x1p-9f);
        dot(y, x, out, {.passes = F32Passes::three});
        EXPECT_EQ(out.load(0, 0), 256.0f + 0x1p-9f);
      },
      Vmem<float>{{1, 1}}, Vmem<float>{{1, 1}}, Vmem<float>{{1, 1}});
}

TEST(TileDot, Int8) {
  const auto product = [](double a, double b) { return a * b; };
  for (const auto& [ta, tb, accumulate] :
       {std::array{false, false, false}, std::array{true, false, true},
        std::array{false, true, false}}) {
    check<std::int8_t, std::int8_t, std::int32_t>({ta, tb, accumulate}, 0, product, false);
  }
  check<std::uint8_t, std::int8_t, std::int32_t>({}, 0, product, false);
  // Sums beyond what f32 counts in.
  Machine machine;
  in_kernel(
      machine,
      [](Ref<std::int8_t> a, Ref<std::int8_t> b, Ref<std::uint8_t> c, Ref<std::int32_t> out) {
        fill(a, -128);
        fill(b, -128);
        a.store(1, 0, 2047);
        b.store(1, 2047, 0);
        dot(a, b, out);
        EXPECT_EQ(out.load(0, 0), 2047 * 16384 + 1);
        fill(c, 255);
        c.store(1, 0, 3);
        dot(c, c, out, {.transpose_b = true, .accumulate = true});
        EXPECT_EQ(out.load(0, 0), 2047 * 16384 + 1 + 2047 * 65025 + 1);
      },
      Vmem<std::int8_t>{{1, 2048}}, Vmem<std::int8_t>{{2048, 1}}, Vmem<std::uint8_t>{{1, 2048}},
      Vmem<std::int32_t>{{1, 1}});
}

TEST(TileDot, InfinitiesAndNaN) {
  Machine machine;
  for (const DotOptions& options :
       {DotOptions{}, DotOptions{.passes = F32Passes::three}, DotOptions{.passes = F32Passes::six},
        DotOptions{.exact_f32 = true}}) {
    in_kernel(
        machine,
        [&](Ref<float> a, Ref<float> b, Ref<float> out) {
          set(a, [](std::int64_t i, std::int64_t j) {
            if (j == 3 && i < 4)
              return std::array{infinity, -infinity, nan, 3e38}[static_cast<std::size_t>(i)];
            return Pattern{1}(i, j);
          });
          set(b, [](std::int64_t i, std::int64_t j) {
            return i == 3 && j == 0 ? 0.0 : 1 + Pattern{2}(i, j) / 8;
          });
          dot(a, b, out, options);
          EXPECT_EQ(out.load(0, 1), infinity);
          EXPECT_EQ(out.load(1, 1), -infinity);
          EXPECT_TRUE(std::isnan(out.load(2, 1)));
          EXPECT_TRUE(std::isnan(out.load(0, 0)));  // infinity times 0
          EXPECT_NEAR(out.load(3, 1), a.load(3, 3) * b.load(3, 1), 2e36);
          EXPECT_TRUE(std::isfinite(out.load(4, 0)));
        },
        Vmem<float>{{5, 8}}, Vmem<float>{{8, 2}}, Vmem<float>{{5, 2}});
  }
}

TEST(TileDot, NothingToSumIsZero) {
  Machine machine;
  in_kernel(
      machine,
      [](Ref<float> a, Ref<float> out) {
        fill(out, 3.0f);
        dot(a.at(all, ds(0, 0)), a.at(ds(0, 0), all), out, {.accumulate = true});
        EXPECT_EQ(out.load(7, 7), 3.0f);
        dot(a.at(all, ds(0, 0)), a.at(ds(0, 0), all), out);
        EXPECT_EQ(out.load(7, 7), 0.0f);
        // A column of a ref, which is not contiguous; scratch that was never written is NaN.
        dot(a.at(all, ds(0, 1)), a.at(ds(0, 1), all), out);
        EXPECT_TRUE(std::isnan(out.load(0, 0)));
      },
      Vmem<float>{{8, 8}}, Vmem<float>{{8, 8}});
}

TEST(TileDot, OfColumnsThatAreNotContiguous) {
  Machine machine;
  in_kernel(
      machine,
      [](Ref<float> a, Ref<bf16> b, Ref<float> out) {
        for (std::int64_t i = 0; i < 6; ++i) {
          for (std::int64_t j = 0; j < 5; ++j) {
            for (std::int64_t l = 0; l < 3; ++l) {
              a.store(static_cast<float>(Pattern{1}(i * 5 + j, l)), i, j, l);
              b.store(bf16(static_cast<float>(Pattern{2}(i * 5 + j, l))), i, j, l);
            }
          }
        }
        const auto x = a.at(all, all, 1);
        const auto y = b.at(all, all, 2);
        const auto z = out.at(all, 1, all, 0);
        dot(x, y, z, {.transpose_b = true, .exact_f32 = true});
        expect_product(get(z), {get(x), false}, {get(y), true}, 5, 1e-6,
                       [](double p, double q) { return p * q; });
      },
      Vmem<float>{{6, 5, 3}}, Vmem<bf16>{{6, 5, 3}}, Vmem<float>{{6, 2, 6, 4}});
}

/// Large enough to be cut, on one thread and on several.
TEST(TileDot, ThreadsDoNotChangeABit) {
  for (const auto& [m, n] : {std::array{40, 1100}, std::array{1100, 40}, std::array{530, 530}}) {
    std::vector<Values> results;
    for (const int threads : {1, 2, 3}) {
      Machine machine = test::without_races(threads);
      in_kernel(
          machine,
          [&](Ref<float> a, Ref<bf16> b, Ref<float> out) {
            map(
                a, [](float x) { return tanh(x * 0.001f); }, 777.0f);
            set(b, Pattern{2});
            set(a, Pattern{1, true});
            dot(a, b, out, {.passes = F32Passes::three});
            results.push_back(get(out));
            if (threads == 1) {
              expect_product(results[0], {get(a), false}, {get(b), false}, 130, 1e-4,
                             [](double p, double q) { return p * q; });
            }
          },
          Vmem<float>{{m, 130}}, Vmem<bf16>{{130, n}}, Vmem<float>{{m, n}});
    }
    EXPECT_EQ(results[0].data, results[1].data);
    EXPECT_EQ(results[0].data, results[2].data);
  }
}

TEST(TileDot, Charges) {
  struct Case {
    const char* chip;
    DotOptions options;
    double passes;
    int side;
  };
  for (const Case& c :
       {Case{"v5p", {}, 1, 128}, Case{"v5p", {.passes = F32Passes::three}, 3, 128},
        Case{"v6e", {.passes = F32Passes::six}, 6, 256}, Case{"v7", {.exact_f32 = true}, 6, 256}}) {
    for (const bool dry : {false, true}) {
      Machine machine({.chip = find_chip(c.chip), .dry_run = dry});
      in_kernel(
          machine, [&](Ref<float> a, Ref<float> b, Ref<float> out) { dot(a, b, out, c.options); },
          Vmem<float>{{9, 100}}, Vmem<float>{{100, 300}}, Vmem<float>{{9, 300}});
      const Work& work = machine.report().work;
      EXPECT_EQ(work.flops, 2.0 * 9 * 300 * 100);
      const double padded = c.side == 128 ? 2.0 * 16 * 128 * 384 : 2.0 * 16 * 256 * 512;
      EXPECT_EQ(work.padded_flops, padded);
      EXPECT_EQ(work.mxu_flops, c.passes * padded);
      EXPECT_DOUBLE_EQ(work.mxu_seconds,
                       c.passes * padded / core_peak(machine.options().chip, ElementType::bf16));
      EXPECT_EQ(work.vpu_ops + work.eup_ops + work.xlu_ops, 0);
    }
  }
  // One exact operand: as many products as the other has parts. Integers at their own peak.
  Machine machine;
  in_kernel(
      machine,
      [&](Ref<float> a, Ref<bf16> b, Ref<float> out) {
        dot(a, b, out, {.passes = F32Passes::six});
      },
      Vmem<float>{{8, 128}}, Vmem<bf16>{{128, 128}}, Vmem<float>{{8, 128}});
  EXPECT_EQ(machine.report().work.mxu_flops, 3.0 * 2 * 8 * 128 * 128);
  machine.reset_report();
  in_kernel(
      machine,
      [&](Ref<std::int8_t> a, Ref<std::int8_t> b, Ref<std::int32_t> out) { dot(a, b, out); },
      Vmem<std::int8_t>{{8, 128}}, Vmem<std::int8_t>{{128, 128}}, Vmem<std::int32_t>{{8, 128}});
  EXPECT_DOUBLE_EQ(machine.report().work.mxu_seconds,
                   2.0 * 8 * 128 * 128 / core_peak(machine.options().chip, ElementType::i8));
}

TEST(TileDot, Refused) {
  const auto refuse = [](const char* chip, std::initializer_list<const char*> parts, auto body) {
    Machine machine({.chip = find_chip(chip)});
    expect_error(ErrorKind::usage, parts, [&] {
      in_kernel(machine, body, Vmem<float>{{8, 8}, "x"}, Vmem<bf16>{{8, 8}, "y"},
                Vmem<f16>{{8, 8}, "half"}, Vmem<std::int8_t>{{8, 8}, "bytes"});
    });
  };
  refuse("v5p", {"half", "f16", "v5p multiplies", "bf16 x bf16", "cast"},
         [](auto x, auto, auto half, auto) { dot(half, half, x); });
  refuse("v3", {"v3 multiplies f32 x f32;"}, [](auto x, auto y, auto, auto) { dot(y, y, x); });
  refuse("v7", {"bytes", "v7"}, [](auto x, auto, auto, auto bytes) { dot(bytes, bytes, x); });
  refuse("v5p", {"expected the accumulator to be 32-bit", "'y'", "bf16"},
         [](auto x, auto y, auto, auto) { dot(x.at(ds(0, 4)), x, y.at(ds(0, 4))); });
  refuse("v5p", {"32-bit, i32"}, [](auto x, auto, auto, auto bytes) { dot(bytes, bytes, x); });
  refuse("v5p", {"'x' [4, 8] f32 . 'y' [8, 8] bf16 = 'x' [3, 8] f32", "[m, k]"},
         [](auto x, auto y, auto, auto) { dot(x.at(ds(4, 4)), y, x.at(ds(0, 3))); });
  refuse("v5p", {"[m, k] . [k, n]", "transposed"}, [](auto x, auto y, auto, auto) {
    dot(x.at(ds(0, 4)), y, x.at(ds(4, 4)), {.transpose_a = true});
  });
  refuse("v5p", {"out overlaps operand 'x'"},
         [](auto x, auto y, auto, auto) { dot(x.at(ds(0, 4)), y, x.at(ds(3, 4))); });
  Machine machine;
  expect_error(ErrorKind::space, {"SMEM", "'scalars'", "load"}, [&] {
    in_kernel(
        machine,
        [](Ref<float> s, Ref<float> x) { dot(s, x.at(all, ds(0, 4)), x.at(ds(0, 1), ds(4, 4))); },
        Smem<float>{{1, 8}, "scalars"}, Vmem<float>{{8, 8}, "x"});
  });
  expect_error(ErrorKind::usage, {"threads"}, [] { Machine({.threads = -1}); });
}

}  // namespace
}  // namespace tessera::tile
