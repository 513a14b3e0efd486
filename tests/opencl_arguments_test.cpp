// SPDX-License-Identifier: Apache-2.0
// Host and device lay out the structs of kernel arguments alike: members one behind the other. The
// host's compiler refuses a gap (host/opencl/kernel_arguments.hpp); here a kernel says what the
// device's makes of each struct and member in every arguments.h.
#include <map>
#include <regex>

#include "loss/arguments.h"
#include "tests/support/opencl_fixture.hpp"

namespace tessera::opencl {
namespace {

/// A header's structs without gaps: what a kernel can say of them, and what that should be.
struct Layout {
  std::map<std::string, std::size_t> sizes{{"INT64", 8}, {"INT32", 4}, {"float", 4}};
  std::vector<std::pair<std::string, std::size_t>> numbers{};

  explicit Layout(std::string text) {
    // Neither comments nor directives.
    text = std::regex_replace(text, std::regex(R"(//[^\n]*|#(?:[^\n]*\\\n)*[^\n]*)"), "");
    // A struct, a second name, a kernel.
    const std::regex known(R"(typedef struct \{([^}]*)\} (\w+);|typedef (\w+) (\w+);|)"
                           R"(KERNEL_ARGUMENTS\((\w+),)");
    for (std::sregex_iterator it(text.begin(), text.end(), known), end; it != end; ++it) {
      const std::smatch& found = *it;
      if (found[2].matched) {
        add(found[2], found[1]);
      } else if (found[4].matched) {
        sizes[found[4]] = sizes.at(found[3]);
      } else {  // A launch hands over an offset for each pointer, then the sizes.
        const std::string name = found[5];
        numbers.emplace_back("sizeof(" + name + "_arguments) - sizeof(" + name + "_at)",
                             sizes.at(name + "_sizes"));
      }
    }
  }
  void add(const std::string& type, const std::string& members) {
    std::size_t offset = 0;
    const std::regex line(R"((\w+)\s+([^;]+);)"), name(R"((\w+)(?:\[(\d+)\])?)");
    for (std::sregex_iterator it(members.begin(), members.end(), line), end; it != end; ++it) {
      const std::string list = (*it)[2];
      for (std::sregex_iterator one(list.begin(), list.end(), name); one != end; ++one) {
        // OpenCL C has no offsetof.
        numbers.emplace_back("(ulong)&((global const " + type + "*)0)->" + one->str(1), offset);
        offset += sizes.at((*it)[1]) * ((*one)[2].matched ? std::stoul((*one)[2]) : 1);
      }
    }
    sizes[type] = offset;
    numbers.emplace_back("sizeof(" + type + ")", offset);
  }
};

class ArgumentsTest : public OpenclTest {
 protected:
  /// The device's values, with a header of cl_kernels included.
  void compare(const std::string& header, const Layout& layout) {
    const auto& numbers = layout.numbers;
    std::string source = "#include \"" + header + "\"\nkernel void tell(global ulong* out) {\n";
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      source += "  out[" + std::to_string(i) + "] = " + numbers[i].first + ";\n";
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
      EXPECT_EQ(device[i], numbers[i].second) << header << ": " << numbers[i].first;
    }
  }
};

TEST_F(ArgumentsTest, OfEveryHeader) {
  std::vector<std::string> headers{"test/scale_arguments.h"};
  for (const EmbeddedKernel& file : embedded_kernels()) {
    if (file.path.ends_with("/arguments.h")) headers.emplace_back(file.path);
  }
  EXPECT_GE(headers.size(), 8u);
  for (const std::string& header : headers) compare(header, Layout(assemble_source(header)));
}

// As the host's compiler has them.
TEST_F(ArgumentsTest, AreReadRight) {
  const Layout loss(assemble_source("loss/arguments.h"));
  EXPECT_EQ(loss.sizes.at("loss_sizes"), sizeof(kernels::loss_sizes));
  EXPECT_EQ(loss.sizes.at("row_output_strides"), sizeof(kernels::row_output_strides));
  EXPECT_EQ(loss.sizes.at("gather_pairs_sizes"), sizeof(kernels::gather_pairs_sizes));
  EXPECT_EQ(loss.sizes.at("sort_pairs_sizes"), sizeof(kernels::sort_pairs_sizes));
  EXPECT_GT(loss.numbers.size(), 100u);
}

}  // namespace
}  // namespace tessera::opencl
