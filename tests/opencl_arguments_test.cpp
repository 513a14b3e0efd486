// SPDX-License-Identifier: Apache-2.0
// Host and device give the structs of kernel arguments the same size, and their members the same
// places: a kernel says how the device's compiler lays them out.
#include <cstddef>
#include <string>
#include <vector>

#include "host/opencl/embedded_kernels.hpp"
#include "linear/arguments.h"
#include "linear_cross_entropy/arguments.h"
#include "linear_distillation/arguments.h"
// The three headers name some pointers alike; each is used alone but here.
#undef FORWARD_MEMORY
#undef GRADIENT_MEMORY
#include "loss/arguments.h"
#include "softmax_cross_entropy/arguments.h"
#include "tests/support/opencl_fixture.hpp"

namespace tessera::opencl {
namespace {

/// A number of the host's, and what gives it on the device.
struct Number {
  std::string text;
  std::size_t host;
};

#define SIZE(folder, type) \
  Number { "sizeof(" #type ")", sizeof(kernels::folder::type) }
// OpenCL C has no offsetof.
#define PLACE(folder, type, member)                                                                \
  Number {                                                                                         \
    "((ulong)&((global const " #type "*)0)->" #member ")", offsetof(kernels::folder::type, member) \
  }
// What a launch hands over: an offset for each pointer, then the sizes.
template <class Pointers>
Number arguments_of() {
  std::size_t pointers = 0;
  Pointers{}.each([&](const Memory&) { ++pointers; });
  return {"sizeof(" + std::string(Pointers::entry) + "_arguments)",
          pointers * sizeof(std::int64_t) + sizeof(typename Pointers::Sizes)};
}
#define ARGUMENTS(folder, name) arguments_of<kernels::folder::name##_memory>()

class ArgumentsTest : public OpenclTest {
 protected:
  /// The device's values of these, with a header of cl_kernels included.
  void compare(const std::string& header, const std::vector<Number>& numbers) {
    std::string source = "#include \"" + header + "\"\nkernel void tell(global ulong* out) {\n";
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      source += "  out[" + std::to_string(i) + "] = " + numbers[i].text + ";\n";
    }
    const std::string file = "test/tell/" + header + ".cl";
    override_embedded_kernel(file, source + "}\n");
    const std::vector<float> nothing(2 * numbers.size());
    const cl_mem memory = make_buffer(nothing);
    const auto kernel = runtime_->programs().kernel({file, ""}, "tell");
    ASSERT_EQ(kernel->set_memory(0, memory, 0), CL_SUCCESS);
    const std::size_t one = 1;
    ASSERT_EQ(clEnqueueNDRangeKernel(runtime_->native_queue(), kernel->kernel()(), 1, nullptr, &one,
                                     nullptr, 0, nullptr, nullptr),
              CL_SUCCESS);
    std::vector<cl_ulong> device(numbers.size());
    ASSERT_EQ(
        clEnqueueReadBuffer(runtime_->native_queue(), memory, CL_TRUE, 0,
                            device.size() * sizeof(cl_ulong), device.data(), 0, nullptr, nullptr),
        CL_SUCCESS);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      EXPECT_EQ(device[i], numbers[i].host) << header << ": " << numbers[i].text;
    }
  }
};

TEST_F(ArgumentsTest, OfEngines) {
  compare("engines/arguments.h",
          {SIZE(common, row_geometry), PLACE(common, row_geometry, stride),
           SIZE(engines, engine_call), PLACE(engines, engine_call, own),
           PLACE(engines, engine_call, tile_m), PLACE(engines, engine_call, parts),
           SIZE(engines, matrix_sizes), PLACE(engines, matrix_sizes, m_readable)});
}

TEST_F(ArgumentsTest, OfLosses) {
  compare("loss/arguments.h", {SIZE(common, loss_sizes),
                               PLACE(common, loss_sizes, mean),
                               SIZE(common, cotangent_sizes),
                               PLACE(common, cotangent_sizes, dlse),
                               SIZE(common, row_statistics),
                               SIZE(loss, call_rows),
                               PLACE(loss, call_rows, padding),
                               SIZE(loss, row_output_strides),
                               SIZE(loss, row_copy),
                               PLACE(loss, gather_labels_sizes, call),
                               ARGUMENTS(loss, gather_labels),
                               ARGUMENTS(loss, gather_values),
                               ARGUMENTS(loss, scatter_rows),
                               PLACE(loss, compact_sizes, needs_class_total),
                               ARGUMENTS(loss, compact),
                               PLACE(loss, reduce_loss_sizes, mean),
                               ARGUMENTS(loss, reduce_loss),
                               PLACE(loss, fill_excluded_sizes, rows),
                               ARGUMENTS(loss, fill_excluded),
                               PLACE(loss, merge_sizes, slices),
                               ARGUMENTS(loss, merge),
                               PLACE(loss, coefficients_sizes, ld),
                               ARGUMENTS(loss, coefficients),
                               PLACE(loss, prepare_small_sizes, wants_values),
                               ARGUMENTS(loss, prepare_small),
                               PLACE(loss, finish_small_sizes, merged),
                               PLACE(loss, finish_small_sizes, ld),
                               ARGUMENTS(loss, finish_small)});
}

TEST_F(ArgumentsTest, OfSoftmaxCrossEntropy) {
  compare(
      "softmax_cross_entropy/arguments.h",
      {SIZE(softmax_cross_entropy, logits_segment),
       PLACE(softmax_cross_entropy, logits_segment, end), SIZE(softmax_cross_entropy, read_sizes),
       PLACE(softmax_cross_entropy, read_sizes, cap),
       PLACE(softmax_cross_entropy, forward_sizes, ld), ARGUMENTS(softmax_cross_entropy, forward),
       PLACE(softmax_cross_entropy, gradient_sizes, add),
       ARGUMENTS(softmax_cross_entropy, gradient),
       PLACE(softmax_cross_entropy, value_and_grad_sizes, cotangent),
       PLACE(softmax_cross_entropy, value_and_grad_sizes, add),
       ARGUMENTS(softmax_cross_entropy, value_and_grad),
       PLACE(softmax_cross_entropy, gradient_excluded_sizes, add),
       ARGUMENTS(softmax_cross_entropy, gradient_excluded)});
}

TEST_F(ArgumentsTest, OfProducts) {
  compare("linear/arguments.h", {SIZE(linear, row_segment),
                                 PLACE(linear, row_segment, end),
                                 SIZE(linear, logit_sizes),
                                 PLACE(linear, logit_sizes, cap),
                                 SIZE(linear, kept_logits_sizes),
                                 PLACE(linear, pack_rows_sizes, h_count),
                                 ARGUMENTS(linear, pack_rows),
                                 ARGUMENTS(linear, pack_columns),
                                 PLACE(linear, forward_sizes, v_block),
                                 PLACE(linear, forward_sizes, ld),
                                 ARGUMENTS(linear, forward),
                                 ARGUMENTS(linear, sum_bias),
                                 PLACE(linear, mark_sizes, eps),
                                 ARGUMENTS(linear, mark),
                                 PLACE(linear, grad_w_sizes, filter_tiles),
                                 ARGUMENTS(linear, grad_w),
                                 ARGUMENTS(linear, write_w),
                                 PLACE(linear, grad_x_sizes, filter_tiles),
                                 ARGUMENTS(linear, grad_x),
                                 PLACE(linear, write_rows_sizes, add),
                                 ARGUMENTS(linear, write_rows),
                                 ARGUMENTS(linear, write_excluded)});
}

TEST_F(ArgumentsTest, OfLinearCrossEntropy) {
  compare("linear_cross_entropy/arguments.h", {PLACE(linear_cross_entropy, gradient_sizes, ld),
                                               ARGUMENTS(linear_cross_entropy, gradient),
                                               ARGUMENTS(linear_cross_entropy, gradient_of_kept)});
}

TEST_F(ArgumentsTest, OfLinearDistillation) {
  compare("linear_distillation/arguments.h",
          {PLACE(linear_distillation, take_logits_sizes, scale),
           ARGUMENTS(linear_distillation, take_logits),
           PLACE(linear_distillation, divergence_sums_sizes, beta),
           ARGUMENTS(linear_distillation, divergence_sums),
           ARGUMENTS(linear_distillation, mixture_sums),
           PLACE(linear_distillation, merge_divergence_sizes, alpha),
           ARGUMENTS(linear_distillation, merge_divergence),
           ARGUMENTS(linear_distillation, merge_mixture),
           ARGUMENTS(linear_distillation, excluded_divergence),
           PLACE(linear_distillation, distill_gradient_sizes, term_ld),
           ARGUMENTS(linear_distillation, distill_gradient)});
}

TEST_F(ArgumentsTest, OfTheTests) {
  compare("test/scale_arguments.h", {PLACE(test, scale_sizes, add), ARGUMENTS(test, scale)});
}

}  // namespace
}  // namespace tessera::opencl
