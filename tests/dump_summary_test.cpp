// SPDX-License-Identifier: Apache-2.0
// What is read from disassemblies, and two dumps side by side.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "programs/code_summary.hpp"
#include "programs/dump.hpp"
#include "tessera/error.hpp"
#include "tests/support/expect_error.hpp"

namespace tessera::programs {
namespace {

namespace fs = std::filesystem;

// By objdump, cut short: a product whose sums stay in registers, behind a loop that packs, and
// PoCL's copy of the kernel for small grids, which is not what runs.
constexpr const char* plain = R"(
forward.1-1-1-goffs0-smallgrid.so:     file format elf64-x86-64


Disassembly of section .text:

0000000000001000 <multiply_strip>:
    1000:	push   %rbp
    1001:	mov    %rsp,%rbp
    1004:	vmovaps %zmm0,-0x40(%rbp)
    1008:	nopl   0x0(%rax,%rax,1)
    1010:	vmovups (%rcx),%zmm24
    1016:	vmovups 0x40(%rcx),%zmm25
    101d:	vbroadcastss (%rsi),%zmm28
    1023:	vfmadd231ps %zmm24,%zmm28,%zmm23
    1029:	vfmadd231ps %zmm25,%zmm28,%zmm22
    102f:	vfmadd231ps (%rsi,%rdx,4){1to16},%zmm24,%zmm21
    1036:	vdpbf16ps 0x80(%rcx,%rdx,8),%zmm28,%zmm20
    103e:	add    $0x20,%rsi
    1042:	cmp    %r8d,%r14d
    1045:	jl     1010 <multiply_strip+0x10>
    1047:	ret

0000000000001050 <_pocl_kernel_forward_workgroup>:
    1050:	mov    %rdi,0x8(%rsp)
    1055:	vmovups (%rsi,%rax,1),%ymm0
    105a:	vpermps %ymm0,%ymm1,%ymm0
    105f:	vmovups %ymm0,(%rdi,%rax,1)        # 4000 <table>
    1064:	mov    0x8(%rsp),%rdx
    1069:	lea    0x20(%rsp,%rax,1),%rax
    106e:	je     1064 <_pocl_kernel_forward_workgroup+0x14>
    1070:	jne    1055 <_pocl_kernel_forward_workgroup+0x5>
    1072:	jb     1055 <_pocl_kernel_forward_workgroup+0x5>

0000000000001080 <_pocl_kernel_forward_workgroup_fast>:
    1080:	vfmadd231ps 0x40(%rsp),%zmm1,%zmm2
    1088:	vfmadd231ps 0x80(%rsp),%zmm1,%zmm3
    1090:	vfmadd231ps 0xc0(%rsp),%zmm1,%zmm4
    1098:	vfmadd231ps 0x100(%rsp),%zmm1,%zmm4
    10a0:	vfmadd231ps 0x140(%rsp),%zmm1,%zmm4
    10a8:	jne    1080 <_pocl_kernel_forward_workgroup_fast>
)";

// By llvm-objdump: sums that have no registers go to the stack and come back.
constexpr const char* spilling = R"(
forward.64-1-1.so:	file format elf64-x86-64

Disassembly of section .text:

0000000000001000 <_pocl_kernel_forward_workgroup>:
    1000:      	movq	%rsp, %rbp
    1003:      	vmovups	(%rcx), %zmm24
    1009:      	vmovaps	384(%rsp), %zmm1
    1011:      	vfmadd231ps	%zmm24, %zmm28, %zmm1
    1017:      	vmovaps	%zmm1, 384(%rsp)
    101f:      	vmovaps	%zmm2, -128(%rbp)
    1027:      	vfmadd213ps	448(%rsp), %zmm24, %zmm28
    102f:      	movq	96(%rsp), %rax
    1034:      	jne	0x1003 <_pocl_kernel_forward_workgroup+0x3>
    103a:      	retq
)";

constexpr const char* ptx = R"(
.visible .entry forward(
	.param .u64 .ptr .global forward_param_0
)
{
	.reg .f32 	%f<9>;
	ld.param.u64 	%rd1, [forward_param_0];
$L__BB0_1:
	mul.wide.s32 	%rd2, %r1, 4;
	ld.global.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd2];
	ld.local.f32 	%f5, [%rd3];
	fma.rn.f32 	%f5, %f1, %f2, %f5;
	fma.rn.f32 	%f6, %f3, %f4, %f6;
	st.local.f32 	[%rd3], %f5;
	shfl.sync.bfly.b32 	%r2, %r3, 1, 31, -1;  // fma.rn.f32
	@%p1 bra 	$L__BB0_1;
	st.global.f32 	[%rd2], %f6;
	ret;
}
.visible .entry empty()
{
	ret;
}
)";

TEST(CodeSummary, CountsTheLoopThatMultipliesMost) {
  const auto kernels = read_disassembly(plain);
  ASSERT_EQ(kernels.size(), 1u);
  const auto& kernel = kernels[0];
  EXPECT_EQ(kernel.name, "forward");
  EXPECT_EQ(kernel.file, "forward.1-1-1-goffs0-smallgrid.so");
  EXPECT_EQ(kernel.bytes, 0x80);  // without the copy
  // Two jumps back to one place are one loop, which is not innermost here.
  EXPECT_EQ(kernel.loops, 2);
  const auto& loop = kernel.loop;
  EXPECT_EQ(loop.all, 10);
  EXPECT_EQ(loop.multiplications, 4);
  EXPECT_EQ(loop.loads, 2);
  EXPECT_EQ(loop.broadcasts, 2);
  EXPECT_EQ(loop.reads, 5);
  EXPECT_EQ(loop.other, 3);
  EXPECT_EQ(loop.vector_bits, 512);
  EXPECT_EQ(loop.spill_loads + loop.spill_stores + loop.stores + loop.shuffles, 0);
  // A pointer that comes from the stack is no spilled vector, an address of it no access.
  EXPECT_EQ(kernel.others.all, 3);
  EXPECT_EQ(kernel.others.reads, 1);
  EXPECT_EQ(kernel.others.spill_loads, 0);
  EXPECT_EQ(to_json(kernel)["spills"], false);
  EXPECT_EQ(to_json(kernel)["loop"]["loads_per_multiplication"], 1.25);
}

TEST(CodeSummary, NamesWhatSpills) {
  const auto kernels = read_disassembly(std::string(spilling) + plain);
  ASSERT_EQ(kernels.size(), 2u);
  const auto& loop = kernels[0].loop;
  EXPECT_EQ(loop.spill_stores, 2);
  EXPECT_EQ(loop.spill_loads, 2);  // one of them by the multiplication itself
  EXPECT_EQ(loop.multiplications, 2);
  EXPECT_EQ(loop.stores, 2);
  EXPECT_EQ(to_json(kernels[0])["spills"], true);
  EXPECT_EQ(to_json(kernels[1])["spills"], false);
}

TEST(CodeSummary, ReadsPtx) {
  const auto kernels = read_ptx(ptx);
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].name, "forward");
  EXPECT_EQ(kernels[1].name, "empty");
  const auto& loop = kernels[0].loop;
  EXPECT_EQ(loop.all, 8);
  EXPECT_EQ(loop.multiplications, 2);  // not that of an address
  EXPECT_EQ(loop.loads, 1);
  EXPECT_EQ(loop.reads, 2);
  EXPECT_EQ(loop.shuffles, 1);
  EXPECT_EQ(loop.stores, 0);
  EXPECT_EQ(loop.spill_stores, 1);
  EXPECT_EQ(loop.spill_loads, 1);
  EXPECT_EQ(loop.vector_bits, 128);
  EXPECT_EQ(kernels[1].loops, 0);
}

TEST(CodeSummary, SaysWhichInstructionsItDoesNotKnow) {
  const auto kernels = read_disassembly(
      "a.so: file format elf64-littleaarch64\n0000000000000000 <a>:\n   0:\tb\t0x0 <a>\n");
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_FALSE(kernels[0].is_known);
  EXPECT_TRUE(to_json(kernels[0]).contains("note"));
  EXPECT_TRUE(read_disassembly("").empty());
  EXPECT_TRUE(read_disassembly("no\tdisassembly\n<>:\n\t\n").empty());
  EXPECT_TRUE(read_ptx("@;\n$a:\n;").empty());
}

class Dumps : public testing::Test {
 protected:
  void SetUp() override {
    std::string made = (fs::temp_directory_path() / "tessera-dumps-XXXXXX").string();
    ASSERT_NE(mkdtemp(made.data()), nullptr);
    root_ = made;
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  /// One program of a dump.
  void program(const std::string& folder, const std::string& name, const std::string& options,
               const std::vector<KernelCode>& kernels) const {
    Json summary{{"program", name.substr(0, name.rfind('-'))}, {"kernels", Json::array()}};
    summary["options"] = std::vector<std::string>{"-w", options};
    for (const auto& kernel : kernels) summary["kernels"].push_back(to_json(kernel));
    write(folder + "/" + name + "/options.txt", "-w " + options);
    write(folder + "/" + name + "/summary.json", dump(summary));
  }
  void rows(const std::string& folder, double seconds) const {
    write(folder + "/rows.json",
          dump({{"benchmarks",
                 {{{"name", "a/b"}, {"median_seconds", seconds}, {"fraction_of_peak", 0.5}},
                  {{"name", "refused"}, {"error_occurred", true}}}}}));
  }
  fs::path root_;
};

TEST_F(Dumps, StandSideBySide) {
  program("a", "linear-forward-11111111", "-DITEM=4", read_disassembly(plain));
  program("a", "linear-forward-22222222", "-DITEM=8", read_disassembly(plain));
  program("a", "loss-33333333", "-DA=1", read_disassembly(plain));
  program("b", "linear-forward-22222222", "-DITEM=8", read_disassembly(plain));
  program("b", "linear-forward-44444444", "-DITEM=16", read_disassembly(spilling));
  rows("a", 0.002);
  rows("b", 0.003);
  const std::string text = compare_dumps(root_ / "a", root_ / "b");
  const auto expect = [&](const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  };
  // What has the same options goes together, though the other comes first.
  expect("linear-forward-22222222, linear-forward-22222222: the same\n");
  expect("linear-forward-11111111, linear-forward-44444444\n");
  expect("options only in A: -DITEM=4\n");
  expect("options only in B: -DITEM=16\n");
  const auto line = [](const std::string& name, const std::string& a, const std::string& b) {
    return "    " + name + std::string(49 - name.size() - a.size(), ' ') + a +
           std::string(11 - b.size(), ' ') + b + "\n";
  };
  expect(line("spills", "no", "yes"));
  expect(line("loop: spill_stores", "0", "2"));
  expect(line("loop: loads_per_multiplication", "1.25", "2.00"));
  expect("only in A: loss-33333333\n");
  EXPECT_EQ(text.find("only in B: l"), std::string::npos) << text;
  EXPECT_EQ(text.find("refused"), std::string::npos) << text;
  const std::string row = text.substr(text.rfind("a/b"));
  EXPECT_NE(row.find("2.000      3.000   1.500    50.0%    50.0%"), std::string::npos) << row;
  // Of two variants alone, too, whose rows lie a folder above.
  const std::string two =
      compare_dumps(root_ / "a/linear-forward-22222222", root_ / "b/linear-forward-44444444");
  EXPECT_NE(two.find("options only in B: -DITEM=16"), std::string::npos) << two;
  EXPECT_NE(two.find("a/b"), std::string::npos) << two;
}

TEST_F(Dumps, AreMadeWholeFirst) {
  // As the library leaves them, without a summary: of NVIDIA's program with its log.
  write("a/k-1/options.txt", "-DA=1 -w");
  write("a/k-1/program.ptx", ptx);
  write("a/k-1/log.txt",
        "ptxas info    : Function properties for other\n"
        "    8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\n"
        "ptxas info    : Function properties for empty\n"
        "    0 bytes stack frame, 0 bytes spill stores, 24 bytes spill loads\n"
        "ptxas info    : Used 168 registers, 380 bytes cmem[0]\n");
  write("b/k-2/options.txt", "-w");
  write("b/k-2/program.bin", "no code that objdump knows");
  compare_dumps(root_ / "a", root_ / "b");
  std::ifstream stream(root_ / "a/k-1/summary.json");
  const Json summary = Json::parse(stream);
  EXPECT_EQ(summary["options"], Json({"-DA=1", "-w"}));
  EXPECT_EQ(summary["kernels"][0].contains("spill_load_bytes"), false);
  const Json& kernel = summary["kernels"][1];
  EXPECT_EQ(kernel["kernel"], "empty");
  EXPECT_EQ(kernel["spill_store_bytes"], 0);
  EXPECT_EQ(kernel["spill_load_bytes"], 24);
  EXPECT_EQ(kernel["registers"], 168);
  EXPECT_EQ(kernel["spills"], true);
  std::ifstream other(root_ / "b/k-2/summary.json");
  EXPECT_TRUE(Json::parse(other).contains("note"));
}

TEST_F(Dumps, RefuseWhatIsNone) {
  program("a", "k-1", "", {});
  test::expect_error(ErrorCode::invalid_argument, {"holds no programs", "--dump"},
                     [&] { compare_dumps(root_ / "a", root_ / "absent"); });
  write("b/k-1/options.txt", "");
  write("b/k-1/summary.json", "{");
  test::expect_error(ErrorCode::invalid_argument, {"summary.json", "remove it"},
                     [&] { compare_dumps(root_ / "b", root_ / "a"); });
  fs::remove(root_ / "b/k-1/summary.json");
  fs::create_directory(root_ / "b/k-1/summary.json");
  test::expect_error(ErrorCode::invalid_argument, {"summary.json", "it is a folder; remove it"},
                     [&] { compare_dumps(root_ / "b", root_ / "a"); });
}

}  // namespace
}  // namespace tessera::programs
