// SPDX-License-Identifier: Apache-2.0
// What ContextOptions::dump_folder leaves of compiled programs.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/support/expect_error.hpp"
#include "tests/support/opencl_fixture.hpp"

namespace tessera::opencl {
namespace {

namespace fs = std::filesystem;

class Dump : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string made = (fs::temp_directory_path() / "tessera-dump-XXXXXX").string();
    ASSERT_NE(mkdtemp(made.data()), nullptr);
    root_ = made;
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string folder() const { return (root_ / "below" / "dump").string(); }
  static std::string read(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    EXPECT_TRUE(stream.good()) << path;
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  /// The only folder in the dump.
  fs::path program() const {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(folder())) all.push_back(entry.path());
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? fs::path() : all.front();
  }
  /// The options of a Context whose warnings are kept.
  ContextOptions options(std::string dump, std::string cache = {}) {
    return {.cache_folder = std::move(cache),
            .dump_folder = std::move(dump),
            .warning_handler = [this](const std::string& text) { warnings_.push_back(text); }};
  }
  /// Multiplies by a kernel of the tests; how often the compiler ran.
  static std::int64_t builds_of_a_call(const Context& context, const std::string& options = "") {
    register_test_kernel();
    auto& state = context.state();
    auto* runtime = runtime_of(state);
    std::vector<float> x = {1, 2, 3, 4}, y(4);
    dispatch::Attempt attempt;
    Call call(state.shared_from_this(), *runtime, {}, attempt);
    launch_scale(call, call.read(View(x), "x"), call.write(MutableView(y), "y", false), 2.0f, false,
                 options);
    call.finish()->wait_once();
    EXPECT_EQ(y[3], 8.0f);
    return runtime->programs().builds();
  }
  static bool has_device() {
    return Context({.warning_handler = [](const auto&) {}}).has_device();
  }

  fs::path root_;
  std::vector<std::string> warnings_{};
};

TEST_F(Dump, HasSourceOptionsLogAndCode) {
  if (!has_device()) GTEST_SKIP() << "no OpenCL device";
  {
    const Context context(options(folder()));
    EXPECT_EQ(builds_of_a_call(context, "-DUNUSED=7"), 1);
    // Before the end of the context, as after a crash.
    EXPECT_NE(read(program() / "source.cl").find("#line 1 \"test/scale.cl\""), std::string::npos);
    EXPECT_NE(read(program() / "source.cl").find("__kernel void scale("), std::string::npos);
  }
  const std::string name = program().filename().string();
  EXPECT_TRUE(name.starts_with("test-scale-") && name.size() == 19) << name;
  EXPECT_EQ(read(program() / "options.txt"), "-DUNUSED=7 -cl-std=CL1.2 -w");
  // Where the build succeeds, only some compilers have something to say.
  EXPECT_TRUE(fs::exists(program() / "log.txt"));
  int code = 0;
  for (const auto& entry : fs::directory_iterator(program())) {
    const std::string file = entry.path().filename().string();
    EXPECT_EQ(file.find(".unfinished"), std::string::npos) << file;
    EXPECT_EQ(file.find("0-0-0"), std::string::npos) << file;
    if (file.ends_with(".txt") || file == "source.cl") continue;
    ++code;
    if (!file.ends_with(".so")) continue;  // PoCL's
    EXPECT_TRUE(file.starts_with("scale.")) << file;
    const std::string bytes = read(entry.path());
    EXPECT_TRUE(bytes.starts_with("\177ELF")) << file;
    EXPECT_NE(bytes.find("_pocl_kernel_scale_workgroup"), std::string::npos) << file;
  }
  EXPECT_GE(code, 1);
  EXPECT_TRUE(warnings_.empty()) << warnings_.front();
}

TEST_F(Dump, HasTheLogOfWhatDoesNotCompile) {
  if (!has_device()) GTEST_SKIP() << "no OpenCL device";
  {
    const Context context(options(folder()));
    test::expect_error(ErrorCode::build_failed, {"test/scale.cl"},
                       [&] { builds_of_a_call(context, "-DBROKEN"); });
  }
  EXPECT_NE(read(program() / "log.txt").find("error"), std::string::npos);
  EXPECT_NE(read(program() / "source.cl").find("this does not compile"), std::string::npos);
}

TEST_F(Dump, CompilesWhatIsKept) {
  if (!has_device()) GTEST_SKIP() << "no OpenCL device";
  const std::string kept = (root_ / "kept").string();
  EXPECT_EQ(builds_of_a_call(Context(options({}, kept))), 1);
  EXPECT_EQ(builds_of_a_call(Context(options({}, kept))), 0);
  EXPECT_FALSE(fs::exists(folder()));
  EXPECT_EQ(builds_of_a_call(Context(options(folder(), kept))), 1);
  EXPECT_TRUE(fs::exists(program() / "log.txt"));
}

TEST_F(Dump, AFolderThatCannotBeWrittenIsAnError) {
  if (!has_device()) GTEST_SKIP() << "no OpenCL device";
  for (const std::string bad : {"/dev/null/dump", "/proc/dump", "/proc"}) {
    test::expect_error(ErrorCode::invalid_argument,
                       {"dump_folder \"" + bad + "\" cannot be written", "give a folder"},
                       [&] { const Context context(options(bad)); });
  }
  // Nothing is compiled there, so that nothing is written either.
  EXPECT_FALSE(Context({.dump_folder = "/proc", .host_only = true}).has_device());
}

TEST_F(Dump, ResultsStayWhereItFails) {
  if (!has_device()) GTEST_SKIP() << "no OpenCL device";
  {
    const Context context(options(folder()));
    fs::remove_all(folder());
    std::ofstream(folder()) << "no folder any more";
    builds_of_a_call(context);  // which looks at the result
  }
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("dump_folder \"" + folder() + "\""), std::string::npos);
  EXPECT_NE(warnings_[0].find("results are not touched"), std::string::npos) << warnings_[0];
}

TEST_F(Dump, IsNotWrittenElsewhere) {
  if (!has_device()) GTEST_SKIP() << "no OpenCL device";
  builds_of_a_call(Context(options(folder())));
  const fs::path link = program(), elsewhere = root_ / "elsewhere";
  fs::remove_all(link);
  fs::create_directory(elsewhere);
  fs::create_directory_symlink(elsewhere, link);
  builds_of_a_call(Context(options(folder())));
  EXPECT_TRUE(fs::is_empty(elsewhere));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("Not a directory"), std::string::npos) << warnings_[0];
}

TEST(ProgramDump, NamesFolders) {
  const auto name = [](const std::string& file, const std::string& options) {
    return ProgramDump::name_of(file, "source", options);
  };
  EXPECT_TRUE(name("linear/forward.cl", "").starts_with("linear-forward-"));
  EXPECT_TRUE(name("../my kernel", "").starts_with("..-my-kernel-"));
  EXPECT_EQ(name("a", "-DA=1"), name("a", "-DA=1"));
  EXPECT_NE(name("a", "-DA=1"), name("a", "-DA=2"));
  EXPECT_NE(name("a", ""), ProgramDump::name_of("a", "other", ""));
}

/// A file as PoCL's binary holds it.
std::string packed(const std::string& path, const std::string& bytes) {
  const auto word = [](std::size_t value) {
    const auto small = static_cast<std::uint32_t>(value);
    return std::string(reinterpret_cast<const char*>(&small), sizeof(small));
  };
  return word(path.size()) + path + word(bytes.size()) + bytes;
}

TEST(ProgramDump, FindsTheCode) {
  const auto found = [](const std::string& binary) {
    std::vector<std::pair<std::string, std::string>> files;
    for (const auto& [name, code] : ProgramDump::code_in(binary)) files.emplace_back(name, code);
    return files;
  };
  using Files = std::vector<std::pair<std::string, std::string>>;
  const std::string own = packed("/f/8-1-1/f.so", "\177ELF of f"),
                    general = packed("/g/0-0-0/g.so", "\177ELF of g");
  EXPECT_EQ(found("poclbin" + packed("/program.bc", "BC \177ELF") + own + general),
            (Files{{"f.8-1-1.so", "\177ELF of f"}}));
  EXPECT_EQ(found("poclbin" + general + "rest"), (Files{{"g.0-0-0.so", "\177ELF of g"}}));
  // What is not as expected is kept whole.
  for (const std::string odd : {"poclbin of another kind", "poclbin\177ELF", "\177ELF", ""}) {
    EXPECT_EQ(found(odd), (Files{{"program.bin", odd}}));
  }
  const std::string ptx = "//\n.version 8.0\n.target sm_90\n.visible .entry f(";
  EXPECT_EQ(found(ptx), (Files{{"program.ptx", ptx}}));
}

}  // namespace
}  // namespace tessera::opencl
