// SPDX-License-Identifier: Apache-2.0
// Every kernel builds on the device with no options but an engine's own: macros have defaults. The
// same for other targets, without a driver: kernels_alone_test.py.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "host/catalog/operators.hpp"
#include "host/engines/engine.hpp"
#include "host/opencl/embedded_kernels.hpp"
#include "host/opencl/program_cache.hpp"
#include "host/opencl/runtime.hpp"
#include "tessera/error.hpp"
#include "tests/support/test_operator.hpp"

namespace tessera::opencl {
namespace {

/// Most arguments of a kernel: more than a reader can tell apart, and OpenCL 1.2 promises 1024
/// bytes of them.
constexpr cl_uint most_arguments = 15;

/// Names of the kernels that a file defines: `kernel`, attributes, `void name(`, over one line or
/// two.
std::vector<std::string> kernels_in(std::string_view text) {
  constexpr std::string_view keyword = "\nkernel ";
  constexpr std::string_view result = "void ";
  std::vector<std::string> names;
  for (auto at = text.find(keyword); at != text.npos; at = text.find(keyword, at + 1)) {
    const auto name = text.find(result, at) + result.size();
    names.emplace_back(text.substr(name, text.find('(', name) - name));
  }
  return names;
}

/// An engine's own kernels are its alone.
bool is_for(std::string_view path, const std::string& engine) {
  return !path.starts_with("engines/") || path.starts_with("engines/" + engine + "/");
}

class KernelsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    runtime_ = Runtime::open({});
    if (runtime_ == nullptr) GTEST_SKIP() << "no OpenCL device";
  }

  void build(const Specialisation& program, const std::string& entry) {
    SCOPED_TRACE(program.file + ", " + entry + ", " + program.engine + " " + program.options);
    try {
      const auto lease = runtime_->programs().kernel(program, entry);
      const auto arguments = lease->kernel().getInfo<CL_KERNEL_NUM_ARGS>();
      EXPECT_LE(arguments, most_arguments);
      ++built_;
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }

  std::shared_ptr<Runtime> runtime_;
  int built_ = 0;
};

TEST_F(KernelsTest, BuildWithAnEnginesOptionsAlone) {
  int expected = 0;
  for (const auto& entry : engines::all_engines()) {
    if (entry.why_unsupported(runtime_->facts(), {})) continue;
    std::vector<std::string> notes;
    const auto engine = entry.shapes(runtime_->facts(), {}, nullptr, notes).front();
    std::set<std::string_view> folders;
    for (const auto& file : embedded_kernels()) {
      if (!file.path.ends_with(".cl") || !is_for(file.path, engine->folder())) continue;
      const auto entries = kernels_in(file.text);
      // A kernel that the pattern above does not know would go untested.
      EXPECT_EQ(entries.empty(), file.text.find("\nkernel ") == std::string_view::npos)
          << file.path;
      for (const auto& name : entries) {
        ++expected;
        build({std::string(file.path), engine->options(), engine->folder()}, name);
        folders.insert(file.path.substr(0, file.path.find('/')));
      }
    }
    EXPECT_TRUE(folders.contains("loss"));
    for_each_loss([&]<class Operator>(std::type_identity<Operator>) {
      const char* name = OperatorTraits<Operator>::name;
      EXPECT_EQ(folders.contains(name), test::runs_on_opencl(test::test_operator<Operator>()))
          << name;
    });
  }
  EXPECT_GT(expected, 0) << "no engine runs on this device";
  EXPECT_EQ(built_, expected);
}

TEST_F(KernelsTest, NamesOfKernelsAreFound) {
  EXPECT_EQ(kernels_in("// a\nkernel void one(global int* a) {\n}\n// kernel\nkernel "
                       "__attribute__((x(G, 1))) void two(\n    int b) {\n  f();\n}\n"),
            (std::vector<std::string>{"one", "two"}));
  EXPECT_TRUE(kernels_in("// a kernel void\nstatic inline void helper(int a) {}\n").empty());
}

}  // namespace
}  // namespace tessera::opencl
