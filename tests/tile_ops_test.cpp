// SPDX-License-Identifier: Apache-2.0
// Elementwise operations on the tile machine against plain loops in double.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/tile_values.hpp"

namespace tessera::tile {
namespace {

using namespace test;

/// Distance in units in the last place of the float nearest to `exact`.
double ulps(float got, double exact) {
  const auto want = static_cast<float>(exact);
  if (std::isnan(exact) || std::isinf(want)) return identical(got, want) ? 0 : 1e9;
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::abs(got - exact) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

TEST(TileMath, WithinTwoUnitsInTheLastPlace) {
  double worst[3] = {};
  // Every 4099th of all floats: infinities and NaN aside, of both signs and with denormals.
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 4099) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    const double d = x;
    worst[0] = std::max(worst[0], ulps(exp(x), std::exp(d)));
    worst[1] = std::max(worst[1], ulps(log(x), std::log(d)));
    worst[2] = std::max(worst[2], ulps(tanh(x), std::tanh(d)));
  }
  EXPECT_LT(worst[0], 1.0);
  EXPECT_LT(worst[1], 1.0);
  EXPECT_LT(worst[2], 2.0);
  EXPECT_EQ(exp(-infinity), 0.0f);
  EXPECT_EQ(exp(infinity), infinity);
  EXPECT_EQ(exp(88.8f), infinity);
  EXPECT_EQ(exp(0.0f), 1.0f);
  EXPECT_GT(exp(-103.0f), 0.0f);
  EXPECT_TRUE(std::isnan(exp(nan)) && std::isnan(log(nan)) && std::isnan(tanh(nan)));
  EXPECT_EQ(log(0.0f), -infinity);
  EXPECT_EQ(log(infinity), infinity);
  EXPECT_EQ(log(1.0f), 0.0f);
  EXPECT_TRUE(std::isnan(log(-1.0f)));
  EXPECT_EQ(tanh(infinity), 1.0f);
  EXPECT_EQ(tanh(-infinity), -1.0f);
  EXPECT_TRUE(std::signbit(tanh(-0.0f)));
}

TEST(TileMath, MaximumAndMinimumKeepNaN) {
  EXPECT_TRUE(std::isnan(maximum(nan, 1)) && std::isnan(maximum(1, nan)));
  EXPECT_TRUE(std::isnan(minimum(nan, 1)) && std::isnan(minimum(1, nan)));
  EXPECT_EQ(maximum(-infinity, 2), 2.0f);
  EXPECT_EQ(minimum(-infinity, 2), -infinity);
}

const Shape sizes[] = {{8, 128}, {5, 7}, {1, 1}, {1, 600}, {600, 1}, {33, 515}};

TEST(TileMap, SlicesOfLargerRefs) {
  for (const Shape& size : sizes) {
    in_kernel(without_races(), Vmem<float>{{size[0] + 2, size[1] + 3}},
              Vmem<bf16>{{size[0] + 2, size[1] + 3}}, Vmem<bf16>{{size[0] + 2, size[1] + 3}},
              [&](Ref<float> whole_a, Ref<bf16> whole_b, Ref<bf16> whole_out) {
                const auto a = whole_a.at(ds(1, size[0]), ds(2, size[1]));
                const auto b = whole_b.at(ds(2, size[0]), ds(0, size[1]));
                const auto out = whole_out.at(ds(0, size[0]), ds(3, size[1]));
                set(a, Pattern{1, true});
                set(b, Pattern{2, true});
                if (size[0] > 3) a.store(nan, 3, 0), a.store(-infinity, 2, 0);
                map(
                    out, [](float x, float y) { return 3 * x - y; }, a, b);
                const Values x = get(a), y = get(b);
                expect_values(get(out), [&](auto i, auto j) {
                  const auto sum = static_cast<float>(3 * static_cast<float>(x(i, j)) - y(i, j));
                  return as_double(bf16(sum));
                });
                // What lies around is as it was: nothing.
                const auto is_nan = [](auto, auto) { return nan; };
                expect_values(get(whole_out.at(ds(size[0], 2))), is_nan);
                expect_values(get(whole_out.at(all, ds(0, 3))), is_nan);
              });
  }
}

TEST(TileMap, BroadcastsAsNumpy) {
  for (const Shape& size : {Shape{8, 128}, Shape{5, 7}, Shape{19, 700}}) {
    in_kernel(
        without_races(), Vmem<float>{{1, size[1]}}, Vmem<float>{{size[0], 1}},
        Vmem<std::int32_t>{{size[1]}}, Vmem<float>{size},
        [&](Ref<float> row, Ref<float> column, Ref<std::int32_t> vector, Ref<float> out) {
          set(row, Pattern{1});
          set(column, Pattern{2});
          for (std::int64_t j = 0; j < size[1]; ++j) vector.store(static_cast<int>(3 * j), j);
          map(
              out, {4, 0},
              [](float r, float c, int v, float s) { return r + c * s + static_cast<float>(v); },
              row, column, vector, 2);
          const Values r = get(row), c = get(column);
          expect_values(get(out), [&](auto i, auto j) {
            return static_cast<float>(static_cast<float>(r(0, j)) +
                                      static_cast<float>(c(i, 0)) * 2) +
                   static_cast<float>(3 * j);
          });
          // One element for all, one row of the tile itself, squeezed and not.
          assign(out.at(ds(1, size[0] - 1)), out.at(0));
          assign(out.at(all, ds(1, size[1] - 1)), out.at(all, ds(0, 1)));
          const float first = out.load(0, 0);
          expect_values(get(out), [&](auto, auto) { return first; });
        });
  }
}

TEST(TileMap, InPlaceAndOverlapping) {
  in_kernel(without_races(), Vmem<float>{{9, 600}}, [](Ref<float> x) {
    iota(x, 1);
    map(
        x, [](float a, float b) { return a + b; }, x, x);
    expect_values(get(x), [](auto, auto j) { return 2 * j; });
    // Everything is read before anything is written.
    iota(x, 1);
    map(
        x.at(all, ds(1, 599)), [](float a) { return a; }, x.at(all, ds(0, 599)));
    expect_values(get(x), [](auto, auto j) { return j == 0 ? 0 : j - 1; });
    iota(x, 0);
    map(
        x.at(ds(1, 8)), [](float a, float b) { return a + b; }, x.at(ds(0, 8)), x.at(ds(1, 1)));
    expect_values(get(x), [](auto i, auto) { return i; });
    iota(x, 1);
    map(
        x, [](float a, float last) { return a - last; }, x, x.at(all, ds(599, 1)));
    expect_values(get(x), [](auto, auto j) { return j - 599; });
  });
}

TEST(TileMap, MoreDimensionsAndSqueezedOnes) {
  in_kernel(without_races(), Vmem<float>{{2, 3, 5}}, Vmem<float>{{3, 2, 5}},
            [](Ref<float> x, Ref<float> y) {
              iota(x, 2);
              fill(y, -1.0f);
              map(
                  y.at(all, 1, all), [](float a, float b) { return 10 * a + b; }, x.at(1, all, all),
                  x.at(0, 0));
              expect_values(get(y.at(all, 1, all)), [](auto, auto j) { return 11 * j; });
              expect_values(get(y.at(all, 0, all)), [](auto, auto) { return -1; });
              assign(y.at(all, 0, 2), x.at(1, all, 4));  // neither side contiguous
              EXPECT_EQ(y.load(2, 0, 2), 4.0f);
              EXPECT_EQ(y.load(2, 0, 3), -1.0f);
              iota(x, -3);
              EXPECT_EQ(x.load(1, 2, 4), 1.0f);
              map(
                  x.at(1, 1, 1), [](float a) { return a + 1; },
                  x.at(1, 1, 1));  // no dimension left
              EXPECT_EQ(x.load(1, 1, 1), 2.0f);
            });
}

TEST(TileMap, Casts) {
  in_kernel(Machine(), Vmem<float>{{1, 8}}, Vmem<std::int32_t>{{1, 8}}, Vmem<std::int8_t>{{1, 8}},
            Vmem<std::uint8_t>{{1, 8}}, Vmem<std::uint32_t>{{1, 8}}, Vmem<bf16>{{1, 8}},
            Vmem<f16>{{1, 8}},
            [](Ref<float> f, Ref<std::int32_t> i, Ref<std::int8_t> b, Ref<std::uint8_t> u,
               Ref<std::uint32_t> w, Ref<bf16> h, Ref<f16> q) {
              const float from[] = {1.9f, -1.9f, 300.0f, -300.0f, 3e9f, -3e9f, nan, 0x1.01p8f};
              for (int k = 0; k < 8; ++k) f.store(from[k], 0, k);
              const auto row = [](const auto& ref) { return get(ref).data; };
              using Row = std::vector<double>;
              assign(i, f);
              EXPECT_EQ(row(i), (Row{1, -1, 300, -300, 2147483647, -2147483648.0, 0, 257}));
              assign(b, f);
              EXPECT_EQ(row(b), (Row{1, -1, 127, -128, 127, -128, 0, 127}));
              assign(u, f);
              EXPECT_EQ(row(u), (Row{1, 0, 255, 0, 255, 0, 0, 255}));
              assign(w, f);
              EXPECT_EQ(row(w), (Row{1, 0, 300, 0, 3e9, 0, 0, 257}));
              assign(b, i);  // integers wrap around
              EXPECT_EQ(row(b), (Row{1, -1, 44, -44, -1, 0, 0, 1}));
              assign(f, b);
              EXPECT_EQ(row(f), (Row{1, -1, 44, -44, -1, 0, 0, 1}));
              fill(f, 1.0f + 0x1p-8f);  // half way between two bf16: to even
              assign(h, f);
              EXPECT_EQ(static_cast<float>(h.load(0, 5)), 1.0f);
              map(
                  h, [](float x) { return x + 0x1p-7f + 0x1p-8f; }, h);
              EXPECT_EQ(static_cast<float>(h.load(0, 5)), 1.0f + 0x1p-6f);
              fill(f, 1e6f);
              assign(q, f);
              EXPECT_EQ(static_cast<float>(q.load(0, 0)), infinity);
              assign(h, w);
              EXPECT_EQ(static_cast<float>(h.load(0, 2)), 300.0f);
              fill(i, 7);
              fill(b, true);
              EXPECT_EQ(i.load(0, 3), 7);
              EXPECT_EQ(b.load(0, 3), 1);
            });
}

TEST(TileMap, SelectIotaTranspose) {
  for (const Shape& size : sizes) {
    in_kernel(without_races(), Vmem<std::int32_t>{size}, Vmem<float>{size}, Vmem<float>{size},
              Vmem<bf16>{size}, Vmem<bf16>{{size[1], size[0] + 2}},
              [&](Ref<std::int32_t> index, Ref<float> x, Ref<float> y, Ref<bf16> z, Ref<bf16> zt) {
                iota(index, 1);
                set(x, Pattern{1});
                if (size[1] > 2) x.store(nan, 0, 2);
                map(
                    index, [](int j) { return j == 2; }, index);
                select(y, index, -infinity, x);
                const Values before = get(x);
                expect_values(get(y),
                              [&](auto i, auto j) { return j == 2 ? -infinity : before(i, j); });
                select(y, index, x, 0.5f);
                expect_values(get(y), [&](auto i, auto j) { return j == 2 ? before(i, j) : 0.5; });
                select(index, index, 4, index);
                EXPECT_EQ(index.load(size[0] - 1, size[1] - 1), size[1] == 3 ? 4 : 0);
                set(z, Pattern{5});
                transpose(zt.at(all, ds(1, size[0])), z);
                const Values plain = get(z);
                expect_values(get(zt.at(all, ds(1, size[0]))),
                              [&](auto i, auto j) { return plain(j, i); });
              });
  }
}

TEST(TileMap, ThreadsDoNotChangeABit) {
  same_on_threads([](Machine& machine, Values& result) {
    in_kernel(machine, Vmem<float>{{300, 700}}, Vmem<float>{{300, 700}},
              [&](Ref<float> x, Ref<float> y) {
                set(x, Pattern{1});
                map(
                    y, {1, 1}, [](float a, float b) { return exp(a) * b; }, x, x.at(all, ds(7, 1)));
                result = get(y);
              });
  });
}

TEST(TileMap, Charges) {
  for (const bool dry : {false, true}) {
    Machine machine({.dry_run = dry});
    const auto work = [&](auto body) {
      machine.reset_report();
      in_kernel(machine, Vmem<float>{{9, 130}}, Vmem<float>{{9, 1}}, Vmem<bf16>{{1100}},
                Vmem<float>{{130, 9}}, body);
      return machine.report().work;
    };
    const double padded = 16 * 256;
    Work done = work([](auto x, auto column, auto, auto) {
      map(
          x, {3, 2}, [](float a, float b) { return exp(a - b); }, x, column);
    });
    EXPECT_EQ(done.vpu_ops, 3 * padded);
    EXPECT_EQ(done.eup_ops, 2 * padded);
    EXPECT_EQ(done.xlu_ops, 16 * 128);  // one column to all lanes
    done = work([](auto x, auto, auto vector, auto) {
      map(vector, [] { return 1.0f; });
      fill(x.at(1, all), 0);
    });
    EXPECT_EQ(done.vpu_ops, 2048 + 1024);
    EXPECT_EQ(done.xlu_ops + done.eup_ops + done.mxu_flops, 0);
    done = work([](auto x, auto, auto, auto y) { transpose(y, x); });
    EXPECT_EQ(done.xlu_ops, 136 * 128);
    done = work([](auto x, auto, auto, auto) {
      iota(x, 1);
      select(x, x, x, 0.0f);
      assign(x, x);
    });
    EXPECT_EQ(done.vpu_ops, 3 * padded);
  }
}

TEST(TileMap, Refused) {
  const auto refuse = [](ErrorKind kind, std::initializer_list<const char*> parts, auto body) {
    Machine machine;
    auto hbm = machine.empty_ref<float>("far", {8, 128});
    expect_error(kind, parts, [&] {
      on_core(machine, "wrong", Vmem<float>{{8, 128}, "x"}, Vmem<float>{{4, 128}, "y"},
              Smem<float>{{8}, "scalars"}, body)(hbm);
    });
  };
  const auto copy = [](float a) { return a; };
  refuse(ErrorKind::usage, {"map", "'y' [4, 128] f32 does not broadcast", "[8, 128]", "core 0"},
         [=](auto, auto x, auto y, auto) { map(x, copy, y); });
  refuse(ErrorKind::usage, {"assign", "'x' [8, 128]", "'x' [128]"},
         [=](auto, auto x, auto, auto) { assign(x.at(0), x); });
  refuse(ErrorKind::space, {"'far'", "hbm"},
         [=](auto far, auto x, auto, auto) { map(x, copy, far); });
  refuse(ErrorKind::space, {"'scalars'", "SMEM", "load"},
         [=](auto, auto x, auto, auto s) { map(x.at(all, 0), copy, s); });
  refuse(ErrorKind::space, {"'scalars'"}, [](auto, auto, auto, auto s) { fill(s, 0.0f); });
  refuse(ErrorKind::usage, {"iota", "no dimension 2"},
         [](auto, auto x, auto, auto) { iota(x, 2); });
  refuse(ErrorKind::usage, {"transpose", "'y'"},
         [](auto, auto x, auto y, auto) { transpose(y, x); });
  refuse(ErrorKind::usage, {"transpose", "overlaps"},
         [](auto, auto x, auto, auto) { transpose(x.at(all, ds(0, 8)), x.at(all, ds(0, 8))); });
  refuse(ErrorKind::usage, {"functions that operations take"}, [](auto, auto x, auto, auto s) {
    map(
        x, [&](float a) { return a * s.load(0); }, x);
  });
  refuse(ErrorKind::race, {"'x'"}, [=](auto far, auto x, auto y, auto) {
    run_scoped(
        [&](auto arrived) {
          auto moving = async_copy(far, x, arrived);
          map(y, copy, x.at(ds(0, 4)));
          moving.wait();
        },
        DmaSem{});
  });
  // Nothing to do is fine.
  in_kernel(Machine(), Vmem<float>{{8, 128}},
            [=](Ref<float> x) { map(x.at(ds(0, 0)), copy, x.at(ds(3, 0))); });
}

}  // namespace
}  // namespace tessera::tile
