// SPDX-License-Identifier: Apache-2.0
#include "tessera/view.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "host/arguments/offsets.hpp"
#include "host/arguments/overlap.hpp"
#include "host/dispatch/host_views.hpp"

namespace tessera {
namespace {

/// The value of a half by its definition, in double.
double half_value(std::uint16_t bits) {
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  if (exponent == 31) {
    return mantissa ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

double bf16_value(std::uint16_t bits) {
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  const int exponent = (bits >> 7) & 255;
  const int mantissa = bits & 127;
  if (exponent == 255) {
    return mantissa ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, -133);
  return sign * std::ldexp(128 + mantissa, exponent - 134);
}

template <class T>
double value_of(std::uint16_t bits) {
  if constexpr (std::is_same_v<T, f16>) return half_value(bits);
  return bf16_value(bits);
}

template <class T>
class SixteenBits : public testing::Test {};
using Types = testing::Types<f16, bf16>;
TYPED_TEST_SUITE(SixteenBits, Types);

TYPED_TEST(SixteenBits, EveryPatternReadsAsDefinedAndComesBack) {
  for (int i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float value = static_cast<float>(TypeParam::from_bits(bits));
    const double expected = value_of<TypeParam>(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << i;
      EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(value)))) << i;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), expected) << i;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << i;
    ASSERT_EQ(TypeParam(value).bits, bits) << i;
  }
}

TYPED_TEST(SixteenBits, RoundsToNearestEvenBetweenAllNeighbours) {
  // Positive finite neighbours a < b: everything below the middle goes to a, above to b, the middle
  // itself to the even one. The last pair's upper neighbour is what infinity stands for.
  const int infinity = TypeParam(std::numeric_limits<float>::infinity()).bits;
  for (int i = 0; i < infinity; ++i) {
    const auto low = static_cast<std::uint16_t>(i);
    const double a = value_of<TypeParam>(low);
    const double step =
        i == 0 ? value_of<TypeParam>(1)
               : (i + 1 < infinity ? value_of<TypeParam>(static_cast<std::uint16_t>(i + 1)) - a
                                   : a - value_of<TypeParam>(static_cast<std::uint16_t>(i - 1)));
    const auto middle = static_cast<float>(a + step / 2);
    if (static_cast<double>(middle) != a + step / 2) continue;  // f32 itself has no such number
    const float below = std::nextafter(middle, 0.0f);
    const float above = std::nextafter(middle, std::numeric_limits<float>::infinity());
    const int even = i % 2 == 0 ? i : i + 1;
    ASSERT_EQ(TypeParam(middle).bits, even) << i;
    ASSERT_EQ(TypeParam(below).bits, i) << i;
    ASSERT_EQ(TypeParam(above).bits, i + 1) << i;
    ASSERT_EQ(TypeParam(-middle).bits, even | 0x8000) << i;
  }
}

TYPED_TEST(SixteenBits, ExtremesOfFloat) {
  const float inf = std::numeric_limits<float>::infinity();
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(static_cast<float>(TypeParam(inf)), inf);
  EXPECT_EQ(static_cast<float>(TypeParam(-inf)), -inf);
  EXPECT_EQ(static_cast<float>(TypeParam(largest)), inf);
  EXPECT_EQ(static_cast<float>(TypeParam(-largest)), -inf);
  EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(static_cast<float>(TypeParam(std::bit_cast<float>(0xffffffffu)))));
  EXPECT_EQ(TypeParam(-0.0f).bits, 0x8000);
}

TEST(DimsTest, HoldsUpToEight) {
  Dims dims{1, 2, 3};
  EXPECT_EQ(dims.rank(), 3);
  EXPECT_EQ(dims.back(), 3);
  EXPECT_EQ(dims.product(), 6);
  EXPECT_EQ(dims.first(2), (Dims{1, 2}));
  EXPECT_EQ(Dims{}.product(), 1);
  EXPECT_FALSE(dims == (Dims{1, 2}));
  EXPECT_NO_THROW((Dims{1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_THROW((Dims{1, 1, 1, 1, 1, 1, 1, 1, 1}), Error);
  Dims full{1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_THROW(full.push_back(1), Error);
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Dims{12, 4, 1}));
}

TEST(ViewTest, EmptyIsNotTheSameAsWithoutElements) {
  const View none;
  EXPECT_FALSE(none);
  EXPECT_EQ(none.size(), 0);
  const View empty = View::host(static_cast<const float*>(nullptr), {0, 4});
  EXPECT_TRUE(empty);
  EXPECT_EQ(empty.size(), 0);
  EXPECT_THROW(View::host(static_cast<const float*>(nullptr), {2, 2}, {1}), Error);
}

TEST(ViewTest, FromRanges) {
  std::vector<bf16> values(5);
  const View view = values;
  EXPECT_EQ(view.dtype(), DType::bf16);
  EXPECT_EQ(view.extents(), (Dims{5}));
  const MutableView writable = std::span(values);
  EXPECT_EQ(writable.host_data(), values.data());
  EXPECT_FALSE(view.is_device());
}

TEST(ViewTest, TransposedExchangesTwoAxes) {
  float data[12];
  const View w = View::host(data, {4, 3}, {10, 2}).transposed();
  EXPECT_EQ(w.extents(), (Dims{3, 4}));
  EXPECT_EQ(w.strides(), (Dims{2, 10}));
  EXPECT_EQ(w.host_data(), data);
  const auto memory = reinterpret_cast<cl_mem>(data);
  const MutableView grad_w = MutableView::device(memory, 8, DType::bf16, {4, 3}).transposed();
  EXPECT_EQ(grad_w.extents(), (Dims{3, 4}));
  EXPECT_EQ(grad_w.strides(), (Dims{1, 3}));
  EXPECT_EQ(grad_w.device_memory(), memory);
  EXPECT_EQ(grad_w.byte_offset(), 8);
  EXPECT_EQ(grad_w.dtype(), DType::bf16);
  EXPECT_THROW(View::host(data, {12}).transposed(), Error);
  EXPECT_THROW(View().transposed(), Error);
}

TEST(HostTensorTest, ExtentsThatNoMemoryHolds) {
  const auto code = [](const Dims& extents, const char* part) {
    try {
      const HostTensor tensor(DType::f32, extents);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      return error.code();
    }
    ADD_FAILURE() << "nothing was thrown";
    return ErrorCode::execution_failed;
  };
  constexpr std::int64_t big = std::int64_t{1} << 32;
  // 2^64 elements would be none, and 2^62 of 4 bytes are too.
  EXPECT_EQ(code({big, big}, "[4294967296, 4294967296]"), ErrorCode::invalid_argument);
  EXPECT_EQ(code({big, big / 4}, "64 bits"), ErrorCode::invalid_argument);
  EXPECT_EQ(code({0, big, big}, "64 bits"), ErrorCode::invalid_argument);
  EXPECT_EQ(code({3, -1}, "[3, -1]"), ErrorCode::invalid_argument);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // A sanitizer's operator new ends the process instead.
  EXPECT_EQ(code({big, big / 16}, "[4294967296, 268435456]"), ErrorCode::out_of_memory);
#endif
  const HostTensor none(DType::f32, {0, 5});
  EXPECT_TRUE(static_cast<bool>(none));
  EXPECT_EQ(none.size(), 0);
}

TEST(HostTensorTest, TypesStridesAndErrors) {
  HostTensor tensor(DType::f32, {3, 2}, {1, 3});
  EXPECT_EQ(tensor.view().strides(), (Dims{1, 3}));
  EXPECT_EQ(tensor.as<float>().size(), 6u);
  EXPECT_THROW(tensor.as<bf16>(), Error);
  EXPECT_THROW(tensor.item(), Error);
  EXPECT_FALSE(HostTensor());
  const HostTensor nothing;
  EXPECT_FALSE(nothing.view());
  HostTensor scalar(DType::f32, {});
  scalar.as<float>()[0] = 2.5f;
  EXPECT_EQ(scalar.item(), 2.5f);
}

/// Three rounds, since memory that is new is zero anyway and what was freed is given out again.
TEST(HostTensorTest, ElementsAreZerosFromACacheLineOnAndCopied) {
  for (int round = 0; round < 3; ++round) {
    for (const std::int64_t extent : {1, 3, 17, 100, 100003}) {
      HostTensor tensor(DType::f32, {extent});
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64, 0u) << extent;
      const auto elements = tensor.as<float>();
      EXPECT_TRUE(std::ranges::all_of(elements, [](float x) { return x == 0.0f; })) << extent;
      std::iota(elements.begin(), elements.end(), 1.0f);
      const HostTensor copy = tensor;
      elements.front() = 5.0f;
      EXPECT_EQ(copy.as<float>().front(), 1.0f) << extent;
      EXPECT_EQ(copy.as<float>().back(), static_cast<float>(extent)) << extent;
    }
  }
}

/// Whether the kernel was asked for large pages at `address`: the flag `hg` of its mapping.
bool asked_for_large_pages(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  bool is_here = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx ", &begin, &end) == 2) {
      is_here = begin <= wanted && wanted < end;
    } else if (is_here && line.starts_with("VmFlags:")) {
      return line.find(" hg") != std::string::npos;
    }
  }
  return false;
}

TEST(HostTensorTest, LargeOnesAskForLargePages) {
  std::ifstream maps("/proc/self/smaps");
  const std::string all(std::istreambuf_iterator<char>(maps), {});
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled") ||
      all.find("VmFlags:") == std::string::npos) {
    GTEST_SKIP() << "the system has no large pages, or does not show them";
  }
  constexpr std::int64_t floats = std::int64_t{8} << 20;
  const HostTensor tensor(DType::f32, {floats});
  EXPECT_TRUE(asked_for_large_pages(tensor.as<float>().data() + floats / 2));
  std::vector<float> own(floats);
  EXPECT_FALSE(asked_for_large_pages(own.data() + floats / 2));
  use_large_pages(own.data() + 1, 4 * (floats - 1));
  EXPECT_TRUE(asked_for_large_pages(own.data() + floats / 2));
}

TEST(Footprint, ReachesTheLastElement) {
  float data[64];
  EXPECT_EQ(dispatch::footprint_bytes(View()), 0);
  EXPECT_EQ(dispatch::footprint_bytes(View::host(data, {0, 3})), 0);
  EXPECT_EQ(dispatch::footprint_bytes(View::host(data, {})), 4);
  EXPECT_EQ(dispatch::footprint_bytes(View::host(data, {3, 4}, {10, 2})), (20 + 6 + 1) * 4);
  EXPECT_EQ(dispatch::footprint_bytes(View::host(data, {1000}, {0})), 4);
}

TEST(RowOffsetsTest, MergesAxesThatContinueEachOther) {
  float data[1];
  using arguments::RowOffsets;
  EXPECT_EQ(RowOffsets(View::host(data, {4, 5, 6}), 2).rank(), 1);
  EXPECT_EQ(RowOffsets(View::host(data, {4, 5, 6}, {36, 6, 1}), 2).rank(), 2);  // x[:, :-1]
  EXPECT_EQ(RowOffsets(View::host(data, {4, 5}, {0, 0}), 2).rank(), 1);
  EXPECT_EQ(RowOffsets(View::host(data, {1, 5, 1}, {99, 2, 77}), 3).rank(), 1);
  EXPECT_EQ(RowOffsets(View::host(data, {}), 0).rank(), 0);
  EXPECT_EQ(RowOffsets(View::host(data, {}), 0)(0), 0);
}

TEST(RowOffsetsTest, AgreesWithCountingOnRandomStrides) {
  float data[1];
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    const int rank = 1 + static_cast<int>(random() % 4);
    Dims extents;
    Dims strides;
    for (int axis = 0; axis < rank; ++axis) {
      extents.push_back(1 + static_cast<std::int64_t>(random() % 4));
      strides.push_back(static_cast<std::int64_t>(random() % 7));
    }
    if (round % 2) strides = contiguous_strides(extents);
    const arguments::RowOffsets offsets(View::host(data, extents, strides), rank);
    for (std::int64_t row = 0; row < extents.product(); ++row) {
      std::int64_t expected = 0;
      std::int64_t rest = row;
      for (int axis = rank - 1; axis >= 0; --axis) {
        expected += rest % extents[axis] * strides[axis];
        rest /= extents[axis];
      }
      ASSERT_EQ(offsets(row), expected);
    }
  }
}

/// Every byte a view touches, by enumeration.
std::vector<bool> bytes_of(const View& view, const char* base, std::size_t size) {
  std::vector<bool> touched(size, false);
  const auto start = static_cast<const char*>(view.host_data()) - base;
  for (std::int64_t i = 0; i < view.size(); ++i) {
    std::int64_t rest = i;
    std::int64_t offset = 0;
    for (int axis = view.rank() - 1; axis >= 0; --axis) {
      offset += rest % view.extents()[axis] * view.strides()[axis];
      rest /= view.extents()[axis];
    }
    const auto bytes = static_cast<std::int64_t>(size_of(view.dtype()));
    for (std::int64_t k = 0; k < bytes; ++k) {
      touched[static_cast<std::size_t>(start + offset * bytes + k)] = true;
    }
  }
  return touched;
}

TEST(Overlap, AgreesWithEnumerationOnRandomViews) {
  std::vector<char> memory(4096);
  std::mt19937 random(11);
  int together = 0;
  constexpr int rounds = 20000;
  for (int round = 0; round < rounds; ++round) {
    const auto make = [&] {
      const DType type = random() % 2 ? DType::f32 : DType::bf16;
      const int rank = static_cast<int>(random() % 4);
      Dims extents;
      Dims strides;
      for (int axis = 0; axis < rank; ++axis) {
        extents.push_back(random() % 16 ? 1 + static_cast<std::int64_t>(random() % 4) : 0);
        strides.push_back(static_cast<std::int64_t>(random() % 12) * (random() % 3 ? 1 : 5));
      }
      const auto offset = (random() % 60) * 4;
      return View::host(memory.data() + offset, type, extents, strides);
    };
    const View a = make();
    const View b = make();
    const auto ta = bytes_of(a, memory.data(), memory.size());
    const auto tb = bytes_of(b, memory.data(), memory.size());
    bool expected = false;
    for (std::size_t i = 0; i < ta.size(); ++i) expected = expected || (ta[i] && tb[i]);
    together += expected;
    ASSERT_EQ(arguments::overlap(a, b), expected) << "round " << round;
    ASSERT_EQ(arguments::overlap(b, a), expected) << "round " << round;
    // Never claims that elements are apart when they are not.
    if (arguments::elements_are_apart(a)) {
      const auto count = std::count(ta.begin(), ta.end(), true);
      ASSERT_EQ(count, a.size() * static_cast<std::int64_t>(size_of(a.dtype())));
    }
  }
  EXPECT_GT(together, rounds / 20);
  EXPECT_LT(together, rounds / 2);
}

TEST(Overlap, InterleavedRowsOfLargeArraysAreApart) {
  std::vector<float> memory(1 << 20);
  const View even = View::host(memory.data(), {512, 1000}, {2048, 1});
  const View odd = View::host(memory.data() + 1024, {511, 1000}, {2048, 1});
  EXPECT_FALSE(arguments::overlap(even, odd));
  EXPECT_TRUE(arguments::overlap(even, View::host(memory.data() + 999, {4, 2}, {2048, 1})));
  EXPECT_FALSE(arguments::overlap(even, View::host(memory.data() + 1000, {4, 2}, {2048, 1})));
}

TEST(Overlap, CommonLayoutsHaveTheirElementsApart) {
  float data[1];
  EXPECT_TRUE(arguments::elements_are_apart(View::host(data, {3, 4})));
  EXPECT_TRUE(arguments::elements_are_apart(View::host(data, {3, 4}, {1, 3})));
  EXPECT_TRUE(arguments::elements_are_apart(View::host(data, {2, 3, 4}, {100, 4, 1})));
  EXPECT_TRUE(arguments::elements_are_apart(View::host(data, {1, 4}, {0, 1})));
  EXPECT_FALSE(arguments::elements_are_apart(View::host(data, {3, 4}, {0, 1})));
  EXPECT_FALSE(arguments::elements_are_apart(View::host(data, {3, 4}, {3, 1})));
}

}  // namespace
}  // namespace tessera
