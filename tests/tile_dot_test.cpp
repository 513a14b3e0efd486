// SPDX-License-Identifier: Apache-2.0
// Products on the tile machine against plain loops in double.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/support/tile_values.hpp"

namespace tessera::tile {
namespace {

using namespace test;

double rounded(double x) { return as_double(bf16(static_cast<float>(x))); }

/// What a transposed operand is.
struct Operand {
  Values values;
  bool transposed;
  double operator()(std::int64_t i, std::int64_t j) const {
    return transposed ? values(j, i) : values(i, j);
  }
};

/// By element: the sum in double of `of(a, b)`, within `relative` of the sum of the magnitudes.
template <class F>
auto product(const Operand& a, const Operand& b, double relative, F of, const Values& before = {}) {
  return [=](std::int64_t i, std::int64_t j) {
    double sum = before.rows > 0 ? before(i, j) : 0;
    double scale = std::abs(sum);
    for (std::int64_t p = 0; p < (a.transposed ? a.values.rows : a.values.columns); ++p) {
      const double term = of(a(i, p), b(p, j));
      sum += term;
      scale += std::abs(term);
    }
    return Near{sum, relative * scale};
  };
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
    in_kernel(without_races(), Vmem<A>{{ea[0] + 4, ea[1] + 7}, "a"},
              Vmem<B>{{eb[0] + 4, eb[1] + 7}, "b"}, Vmem<Out>{{s.m + 5, s.n + 5}, "out"},
              [&](Ref<A> whole_a, Ref<B> whole_b, Ref<Out> whole_out) {
                const auto a = whole_a.at(ds(2, ea[0]), ds(3, ea[1]));
                const auto b = whole_b.at(ds(1, eb[0]), ds(5, eb[1]));
                const auto out = whole_out.at(ds(3, s.m), ds(2, s.n));
                set(a, Pattern{1, outliers});
                set(b, Pattern{2, outliers});
                set(whole_out, Pattern{3});
                const auto expected =
                    product({get(a), options.transpose_a}, {get(b), options.transpose_b}, relative,
                            of, options.accumulate ? get(out) : Values());
                const Values around = get(whole_out);
                dot(a, b, out, options);
                expect_values(get(whole_out), [&](std::int64_t i, std::int64_t j) {
                  const bool inside = i >= 3 && i < 3 + s.m && j >= 2 && j < 2 + s.n;
                  return inside ? expected(i - 3, j - 2) : Near{around(i, j)};
                });
              });
  }
}

// Sums of up to 257 f32 terms: half a unit in the last place each, at worst.
constexpr double f32_sum = 300 * 0x1p-24;
constexpr std::multiplies<double> times{};

TEST(TileDot, Bf16OperandsAreExact) {
  for (const unsigned bits : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u}) {
    check<bf16, bf16, float>({(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0}, f32_sum, times);
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
  check<float, float, float>({.passes = F32Passes::six}, f32_sum, times);
  check<float, float, float>({.accumulate = true, .exact_f32 = true}, f32_sum, times);
  check<float, bf16, float>({.passes = F32Passes::six}, f32_sum, times);
}

/// How far each precision is from the product: what they are for. One element, so that nothing
/// averages out.
TEST(TileDot, EveryPassCounts) {
  const float a = 1.00390625f + 0x1p-12f + 0x1p-20f, b = 1.01171875f + 0x1p-13f + 0x1p-21f;
  in_kernel(Machine(), Vmem<float>{{1, 1}}, Vmem<float>{{1, 1}}, Vmem<float>{{1, 1}},
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
            });
}

TEST(TileDot, Int8) {
  for (const DotOptions& options :
       {DotOptions{}, DotOptions{true, false, true}, DotOptions{false, true}}) {
    check<std::int8_t, std::int8_t, std::int32_t>(options, 0, times, false);
  }
  check<std::uint8_t, std::int8_t, std::int32_t>({}, 0, times, false);
  // Sums beyond what f32 counts in.
  in_kernel(Machine(), Vmem<std::int8_t>{{1, 2048}}, Vmem<std::int8_t>{{2048, 1}},
            Vmem<std::uint8_t>{{1, 2048}}, Vmem<std::int32_t>{{1, 1}},
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
            });
}

TEST(TileDot, InfinitiesAndNaN) {
  Machine machine;
  using Options = DotOptions;
  for (const auto& options : {Options{}, Options{.passes = F32Passes::three},
                              Options{.passes = F32Passes::six}, Options{.exact_f32 = true}}) {
    in_kernel(machine, Vmem<float>{{5, 8}}, Vmem<float>{{8, 2}}, Vmem<float>{{5, 2}},
              [&](Ref<float> a, Ref<float> b, Ref<float> out) {
                set(a, [](std::int64_t i, std::int64_t j) {
                  const double large[] = {infinity, -infinity, nan, 3e38};
                  return j == 3 && i < 4 ? large[i] : Pattern{1}(i, j);
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
              });
  }
}

TEST(TileDot, NothingToSumIsZero) {
  in_kernel(Machine(), Vmem<float>{{8, 8}}, Vmem<float>{{8, 8}}, [](Ref<float> a, Ref<float> out) {
    fill(out, 3.0f);
    dot(a.at(all, ds(0, 0)), a.at(ds(0, 0), all), out, {.accumulate = true});
    EXPECT_EQ(out.load(7, 7), 3.0f);
    dot(a.at(all, ds(0, 0)), a.at(ds(0, 0), all), out);
    EXPECT_EQ(out.load(7, 7), 0.0f);
    // A column of a ref, which is not contiguous; scratch that was never written is NaN.
    dot(a.at(all, ds(0, 1)), a.at(ds(0, 1), all), out);
    EXPECT_TRUE(std::isnan(out.load(0, 0)));
  });
}

TEST(TileDot, OfColumnsThatAreNotContiguous) {
  in_kernel(Machine(), Vmem<float>{{6, 5, 3}}, Vmem<bf16>{{6, 5, 3}}, Vmem<float>{{6, 2, 6, 4}},
            [](Ref<float> a, Ref<bf16> b, Ref<float> out) {
              for (const int layer : {0, 1, 2}) {
                set(a.at(all, all, layer), Pattern{1u + layer});
                set(b.at(all, all, layer), Pattern{5u + layer});
              }
              const auto x = a.at(all, all, 1);
              const auto y = b.at(all, all, 2);
              const auto z = out.at(all, 1, all, 0);
              dot(x, y, z, {.transpose_b = true, .exact_f32 = true});
              expect_values(get(z), product({get(x), false}, {get(y), true}, 1e-6, times));
            });
}

/// Large enough to be cut, on one thread and on several.
TEST(TileDot, ThreadsDoNotChangeABit) {
  for (const auto& [m, n] : {std::array{40, 1100}, std::array{1100, 40}, std::array{530, 530}}) {
    same_on_threads([&, m = m, n = n](Machine& machine, Values& result) {
      in_kernel(machine, Vmem<float>{{m, 130}}, Vmem<bf16>{{130, n}}, Vmem<float>{{m, n}},
                [&](Ref<float> a, Ref<bf16> b, Ref<float> out) {
                  map(
                      a, [](float x) { return tanh(x * 0.001f); }, 777.0f);
                  set(b, Pattern{2});
                  set(a, Pattern{1, true});
                  dot(a, b, out, {.passes = F32Passes::three});
                  result = get(out);
                  if (machine.options().threads > 1) return;
                  expect_values(result, product({get(a), false}, {get(b), false}, 1e-4, times));
                });
    });
  }
}

TEST(TileDot, Charges) {
  const struct {
    const char* chip;
    DotOptions options;
    double passes;
    int side;
  } cases[] = {{"v5p", {}, 1, 128},
               {"v5p", {.passes = F32Passes::three}, 3, 128},
               {"v6e", {.passes = F32Passes::six}, 6, 256},
               {"v7", {.exact_f32 = true}, 6, 256}};
  for (const auto& c : cases) {
    for (const bool dry : {false, true}) {
      Machine machine({.chip = find_chip(c.chip), .dry_run = dry});
      in_kernel(machine, Vmem<float>{{9, 100}}, Vmem<float>{{100, 300}}, Vmem<float>{{9, 300}},
                [&](Ref<float> a, Ref<float> b, Ref<float> out) { dot(a, b, out, c.options); });
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
  in_kernel(machine, Vmem<float>{{8, 128}}, Vmem<bf16>{{128, 128}}, Vmem<float>{{8, 128}},
            [&](Ref<float> a, Ref<bf16> b, Ref<float> out) {
              dot(a, b, out, {.passes = F32Passes::six});
            });
  EXPECT_EQ(machine.report().work.mxu_flops, 3.0 * 2 * 8 * 128 * 128);
  machine.reset_report();
  in_kernel(machine, Vmem<std::int8_t>{{8, 128}}, Vmem<std::int8_t>{{128, 128}},
            Vmem<std::int32_t>{{8, 128}},
            [&](Ref<std::int8_t> a, Ref<std::int8_t> b, Ref<std::int32_t> out) { dot(a, b, out); });
  EXPECT_DOUBLE_EQ(machine.report().work.mxu_seconds,
                   2.0 * 8 * 128 * 128 / core_peak(machine.options().chip, ElementType::i8));
}

TEST(TileDot, Refused) {
  const auto refuse = [](const char* chip, std::initializer_list<const char*> parts, auto body) {
    Machine machine({.chip = find_chip(chip)});
    expect_error(ErrorKind::usage, parts, [&] {
      in_kernel(machine, Vmem<float>{{8, 8}, "x"}, Vmem<bf16>{{8, 8}, "y"},
                Vmem<f16>{{8, 8}, "half"}, Vmem<std::int8_t>{{8, 8}, "bytes"}, body);
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
        machine, Smem<float>{{1, 8}, "scalars"}, Vmem<float>{{8, 8}, "x"},
        [](Ref<float> s, Ref<float> x) { dot(s, x.at(all, ds(0, 4)), x.at(ds(0, 1), ds(4, 4))); });
  });
  expect_error(ErrorKind::usage, {"threads"}, [] { Machine({.threads = -1}); });
}

}  // namespace
}  // namespace tessera::tile
