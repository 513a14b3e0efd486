// SPDX-License-Identifier: Apache-2.0
// The gates before bf16 is multiplied by pairs, on any machine: where one is closed the call is
// served by the portable kernels, without a warning and with the reason in its notes.
#include <gtest/gtest.h>

#include "host/dispatch/knobs.hpp"
#include "host/engines/cpu.hpp"
#include "host/opencl/embedded_kernels.hpp"
#include "tests/support/runner.hpp"

namespace tessera::test {
namespace {

using engines::DotBf16;
using opencl::Bf16Products;

constexpr const char* kernel_file = "engines/cpu/dot_bf16.cl";
constexpr const char* mma_file = "engines/matrix/product.cl";
constexpr const char* pair_file = "engines/operand.cl";

std::string text_of(const char* file) {
  for (const auto& kernel : opencl::embedded_kernels()) {
    if (kernel.path == file) return std::string(kernel.text);
  }
  return std::string();
}

class Bf16PairsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!context_.has_device() || !runtime().facts().is_cpu) GTEST_SKIP() << "no OpenCL CPU";
  }
  void TearDown() override {
    opencl::override_embedded_kernel(kernel_file, original_);
    opencl::override_embedded_kernel(mma_file, mma_original_);
    opencl::override_embedded_kernel(pair_file, pair_original_);
  }

  opencl::Runtime& runtime() { return *opencl::runtime_of(context_.state()); }
  engines::DotBf16Verdict verdict(Bf16Products products) {
    runtime().facts_for_test().bf16_products = products;
    engines::Gates gates;
    return engines::dot_bf16_of(runtime(), gates);
  }
  /// The kernels' file with another text in place of one.
  void plant(const std::string& old_text, const std::string& new_text) {
    std::string text = original_;
    const auto at = text.find(old_text);
    ASSERT_NE(at, std::string::npos);
    opencl::override_embedded_kernel(kernel_file, text.replace(at, old_text.size(), new_text));
  }
  /// A forward in bf16 agrees with the oracle; its dispatch.
  void check_forward(const char* name) {
    Case c;
    c.name = std::string("bf16_pairs_gate_") + name;
    c.b = 21;
    c.h = 35;
    c.v = 67;
    c.x_type = c.w_type = DType::bf16;
    EXPECT_TRUE(run_case(context_, "opencl.cpu", Pass::value_and_grad, c));
  }
  Dispatch planned(DType x, DType w, Pass pass = Pass::forward,
                   std::optional<DType> dz_dtype = {}) {
    const auto shape = [](DType type, const Dims& extents) {
      return View::host(nullptr, type, extents);
    };
    linear_cross_entropy::ExecutionOptions execution;
    execution.implementation = "opencl.cpu";
    execution.dz_dtype = dz_dtype;
    const auto gradient = [](DType type, const Dims& extents) {
      return MutableView::host(nullptr, type, extents);
    };
    linear_cross_entropy::Gradients gradients;
    if (pass != Pass::forward) {
      gradients.grad_x = gradient(x, {21, 35});
      gradients.grad_w = gradient(w, {35, 67});
    }
    return linear_cross_entropy::plan(context_, pass,
                                      {.x = shape(x, {21, 35}),
                                       .labels = shape(DType::i32, {21}),
                                       .w = shape(w, {35, 67})},
                                      {}, gradients, {}, execution)
        .dispatch;
  }
  static bool by_pairs(const Dispatch& dispatch) {
    return dispatch::value_of(dispatch.knobs, "dot_bf16").has_value();
  }

  std::vector<std::string> warnings_;
  Context context_{
      {.warning_handler = [this](const std::string& text) { warnings_.push_back(text); }}};
  const std::string original_ = text_of(kernel_file), mma_original_ = text_of(mma_file),
                    pair_original_ = text_of(pair_file);
};

TEST_F(Bf16PairsTest, ThisProcessorIsAsked) {
  const auto found = verdict(Bf16Products::detected);
  EXPECT_NE(found.dot, DotBf16::emulated);
  EXPECT_EQ(found.dot == DotBf16::none, !found.reason.empty()) << found.reason;
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx512bf16")) {
    EXPECT_EQ(found.reason, "the processor has no bf16 dot product (avx512bf16)");
  }
#endif
  check_forward("detected");
}

TEST_F(Bf16PairsTest, ADeviceElsewhereIsNotThisProcessor) {
  runtime().facts_for_test().zero_copy = false;
  EXPECT_EQ(verdict(Bf16Products::detected).reason, "the device is not the host's processor");
}

TEST_F(Bf16PairsTest, ACompilerWithoutTheInstructionClosesTheSecondGate) {
  // Whatever the processor: the text that the instruction needs is taken away.
  plant("__asm__(\"vdpbf16ps", "there_is_no_such(\"vdpbf16ps");
  runtime().facts_for_test().native_float_vector = 16;
  const auto found = verdict(Bf16Products::assumed);
  EXPECT_EQ(found.dot, DotBf16::none);
  // One that does not target AVX-512 says so before it comes to the text.
  EXPECT_TRUE(found.reason.starts_with("the driver")) << found.reason;
  EXPECT_EQ(found.reason.find('\n'), std::string::npos);
  check_forward("refused");
}

TEST_F(Bf16PairsTest, AnotherTargetClosesTheSecondGate) {
  // The kernel says that it was built without, whatever its numbers.
  plant("defined(__AVX512F__) && LANES == 16", "0");
  runtime().facts_for_test().native_float_vector = 16;
  const auto found = verdict(Bf16Products::assumed);
  EXPECT_EQ(found.dot, DotBf16::none);
  EXPECT_EQ(found.reason, "the driver's compiler does not target what it needs");
}

TEST_F(Bf16PairsTest, ShortVectorsCloseTheSecondGate) {
  runtime().facts_for_test().native_float_vector = 8;
  EXPECT_EQ(verdict(Bf16Products::assumed).dot, DotBf16::none);
}

TEST_F(Bf16PairsTest, AWrongTileClosesTheThirdGate) {
  plant("AS_LANE_F(b << 16)", "AS_LANE_F(b & high)");
  const auto found = verdict(Bf16Products::emulated);
  EXPECT_EQ(found.dot, DotBf16::none);
  EXPECT_EQ(found.reason, "a tile that the device computed so is wrong");
  check_forward("wrong");
  EXPECT_FALSE(by_pairs(planned(DType::bf16, DType::bf16)));
}

TEST_F(Bf16PairsTest, TheReasonIsInTheNotes) {
  plant("typedef int product_word;", "#error \"a reason\"");
  runtime().facts_for_test().bf16_products = Bf16Products::emulated;
  const Dispatch dispatch = planned(DType::bf16, DType::bf16);
  ASSERT_EQ(dispatch.notes.size(), 1u);
  EXPECT_TRUE(dispatch.notes[0].starts_with("bf16 is widened to f32: ")) << dispatch.notes[0];
  EXPECT_TRUE(dispatch.warnings.empty());
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(Bf16PairsTest, TwoOperandsInBf16AndNoOthers) {
  ASSERT_EQ(verdict(Bf16Products::emulated).reason, "");
  EXPECT_TRUE(by_pairs(planned(DType::bf16, DType::bf16)));
  EXPECT_TRUE(planned(DType::bf16, DType::bf16).notes.empty());
  // An f32 operand is never rounded.
  for (const DType other : {DType::f32, DType::f16}) {
    EXPECT_FALSE(by_pairs(planned(other, DType::bf16)));
    EXPECT_FALSE(by_pairs(planned(DType::bf16, other)));
    EXPECT_FALSE(by_pairs(planned(other, other)));
    EXPECT_TRUE(planned(other, DType::bf16).notes.empty());
  }
  check_forward("emulated");
}

/// The matrix units have gates of the same kind; behind a closed one another engine serves.
class MatrixUnitsTest : public Bf16PairsTest {
 protected:
  /// Why opencl.mma does not serve a forward, and opencl.simt does; "": it does. A new context, so
  /// that nothing is known.
  static std::string refusal(DType x, DType w) {
    Context context({.warning_handler = [](const std::string&) {}});
    opencl::runtime_of(context.state())->facts_for_test().bf16_products = Bf16Products::emulated;
    const auto shape = [](DType type, const Dims& extents) {
      return View::host(nullptr, type, extents);
    };
    const Dispatch dispatch =
        linear_cross_entropy::plan(
            context, Pass::forward,
            {.x = shape(x, {21, 35}), .labels = shape(DType::i32, {21}), .w = shape(w, {35, 67})},
            {}, {}, {}, {.implementation = {"opencl.mma", "opencl.simt"}})
            .dispatch;
    if (dispatch.implementation == "opencl.mma") return "";
    EXPECT_EQ(dispatch.implementation, "opencl.simt");
    EXPECT_EQ(dispatch.refused.size(), 1u);
    return dispatch.refused.empty() ? "?" : dispatch.refused[0].reason;
  }
};

TEST_F(MatrixUnitsTest, AClosedGateLetsTheNextEngineServe) {
  opencl::override_embedded_kernel(mma_file, "#error \"a reason\"\nint product_x;\n");
  for (const DType type : {DType::bf16, DType::f16}) {
    const auto reason = refusal(type, type);
    EXPECT_TRUE(reason.starts_with("mma.sync is not to be used: the driver ")) << reason;
  }
}

/// Two mistakes that only numbers of f16 show: bf16 read for f16, and subnormal ones read as 0.
TEST_F(MatrixUnitsTest, F16HasGatesOfItsOwn) {
  const std::string right = "return vload_half(0, (const half*)&bits);";
  const auto at = pair_original_.find(right);
  ASSERT_NE(at, std::string::npos);
  for (const char* wrong : {"return bf16_to_float(bits);",
                            "return bits & 0x7c00 ? vload_half(0, (const half*)&bits) : 0.0f;"}) {
    opencl::override_embedded_kernel(pair_file,
                                     std::string(pair_original_).replace(at, right.size(), wrong));
    EXPECT_EQ(refusal(DType::f16, DType::f16),
              "mma.sync is not to be used: a tile that the device computed so is wrong");
    EXPECT_EQ(refusal(DType::bf16, DType::bf16), "");
  }
}

TEST_F(MatrixUnitsTest, BothOperandsAreOfOneType) {
  EXPECT_EQ(refusal(DType::f16, DType::f16), "");
  EXPECT_EQ(refusal(DType::f16, DType::bf16),
            "it multiplies bf16 by bf16 and f16 by f16; a product of the call has bf16 by f16; "
            "opencl.simt serves");
  EXPECT_NE(refusal(DType::bf16, DType::f16), "");
  EXPECT_NE(refusal(DType::f32, DType::f16), "");
}

TEST_F(Bf16PairsTest, GradientsSayWhetherDzWasRounded) {
  ASSERT_EQ(verdict(Bf16Products::emulated).reason, "");
  const auto notes = [&](DType x, std::optional<DType> dz_dtype) {
    return planned(x, DType::bf16, Pass::value_and_grad, dz_dtype).notes;
  };
  using Notes = std::vector<std::string>;
  const Notes rounded = {"dz is rounded to bf16"};
  EXPECT_EQ(notes(DType::bf16, std::nullopt), rounded);
  EXPECT_EQ(notes(DType::bf16, DType::bf16), rounded);
  EXPECT_EQ(notes(DType::bf16, DType::f32), Notes{"dz stays f32, as dz_dtype asks"});
  EXPECT_EQ(notes(DType::f32, DType::bf16), Notes{});
  // One call after the other: neither takes the other's programs.
  Case c;
  c.name = "bf16_pairs_dz";
  c.b = 21;
  c.h = 35;
  c.v = 67;
  c.x_type = c.w_type = DType::bf16;
  c.grad_x_type = c.grad_w_type = DType::f32;  // whose own rounding hides none of dz's
  for (const std::optional<DType> dz_dtype :
       {std::optional<DType>(), std::optional(DType::f32), std::optional<DType>()}) {
    c.dz_dtype = dz_dtype;
    EXPECT_TRUE(run_case(context_, "opencl.cpu", Pass::value_and_grad, c));
  }
}

}  // namespace
}  // namespace tessera::test
