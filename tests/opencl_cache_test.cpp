// SPDX-License-Identifier: Apache-2.0
// Compiled programs that outlive a process: ContextOptions::cache_folder.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "host/opencl/binary_cache.hpp"
#include "tessera/custom_kernel.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/opencl_fixture.hpp"
#include "tests/support/operators.hpp"
#include "tests/support/runner.hpp"

namespace tessera::opencl {
namespace {

namespace fs = std::filesystem;
using test::run_case;

class ProgramFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string made = (fs::temp_directory_path() / "tessera-programs-XXXXXX").string();
    ASSERT_NE(mkdtemp(made.data()), nullptr);
    root_ = made;
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  std::string folder() const { return (root_ / "below" / "tessera").string(); }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder())) found.push_back(entry.path());
    return found;
  }
  static std::string read(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  static void write(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }

  /// Runs a small problem in a new context with the folder; how often the compiler ran.
  std::int64_t builds_of_a_call(std::int64_t v = 24) {
    Context context({.cache_folder = folder(), .warning_handler = [this](const std::string& text) {
                       warnings_.push_back(text);
                     }});
    auto* runtime = runtime_of(context.state());
    if (runtime == nullptr) return -1;
    test::Case c;
    c.name = "kept_programs";
    c.op = &test::test_operator<softmax_cross_entropy::Operator>();
    c.b = 3, c.v = v;
    EXPECT_TRUE(run_case(context, "opencl.simt", Pass::forward, c));
    return runtime->programs().builds();
  }
  static bool has_device() {
    return Context({.warning_handler = [](const auto&) {}}).has_device();
  }

  fs::path root_;
  std::vector<std::string> warnings_;
};

TEST(ProgramFile, IsTakenOnlyWholeAndForItsKey) {
  const std::string key = "device\noptions\nsource";
  const std::string binary("binary\0with zeros", 17);
  const std::string file = BinaryCache::pack(key, binary);
  EXPECT_EQ(BinaryCache::unpack(file, key), binary);
  EXPECT_EQ(BinaryCache::unpack(BinaryCache::pack(key, ""), key), "");
  EXPECT_FALSE(BinaryCache::unpack(file, "device\noptions\nsourcf"));
  // The same bytes, cut elsewhere.
  EXPECT_FALSE(BinaryCache::unpack(file, key + "b"));
  EXPECT_FALSE(BinaryCache::unpack(file, key.substr(0, key.size() - 1)));
  EXPECT_FALSE(BinaryCache::unpack(file, ""));
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(BinaryCache::unpack(file.substr(0, size), key)) << size;
  }
  for (std::size_t i = 0; i < 8 * file.size(); ++i) {
    std::string damaged = file;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1 << i % 8));
    EXPECT_FALSE(BinaryCache::unpack(damaged, key)) << "bit " << i;
  }
  EXPECT_FALSE(BinaryCache::unpack(file + "more", key));
}

TEST_F(ProgramFiles, ServeTheNextContext) {
  const std::int64_t compiled = builds_of_a_call();
  if (compiled < 0) GTEST_SKIP() << "no OpenCL device";
  EXPECT_GT(compiled, 0);
  EXPECT_EQ(static_cast<std::int64_t>(files().size()), compiled);
  EXPECT_EQ(builds_of_a_call(), 0);
  EXPECT_EQ(static_cast<std::int64_t>(files().size()), compiled);
  EXPECT_TRUE(warnings_.empty()) << warnings_.front();
  // Others than the user neither read nor add to it.
  EXPECT_EQ(fs::status(folder()).permissions(), fs::perms::owner_all);
}

TEST_F(ProgramFiles, AreOfOneSourceAndItsOptions) {
  const auto builds = [&](const std::string& options, float factor) -> std::int64_t {
    auto runtime = Runtime::open({});
    if (runtime == nullptr) return -1;
    runtime->keep_programs(folder());
    const auto state = make_state(runtime);
    auto x = iota(8);
    std::vector<float> y(8);
    dispatch::Attempt attempt;
    Call call(state, *runtime, {}, attempt);
    launch_scale(call, call.read(View(x), "x"), call.write(MutableView(y), "y", false), factor,
                 false, options);
    call.finish()->wait_once();
    EXPECT_EQ(y[7], factor * 8.0f);
    return runtime->programs().builds();
  };
  if (builds("", 2.0f) < 0) GTEST_SKIP() << "no OpenCL device";
  EXPECT_EQ(builds("", 3.0f), 0);
  EXPECT_EQ(builds("-DUNUSED=1", 2.0f), 1);
  EXPECT_EQ(builds("-DUNUSED=1", 2.0f), 0);
  override_embedded_kernel(test_kernel_file, std::string("// another\n") + test_kernel_source);
  register_test_kernel();
  EXPECT_EQ(builds("", 2.0f), 0);
  EXPECT_EQ(files().size(), 2u);
}

/// The driver's binary is no PTX: only a program that is not patched can be loaded.
TEST_F(ProgramFiles, ThatAreNotPatchedServeNoPatchedProgram) {
  const auto builds = [&](std::int64_t patched_items) -> std::int64_t {
    auto runtime = Runtime::open({});
    if (runtime == nullptr) return -1;
    runtime->keep_programs(folder());
    register_test_kernel();
    auto program = scale_specialisation();
    program.patched_items = patched_items;
    if (patched_items == 0) {
      runtime->programs().kernel(program, "scale");
    } else {
      test::expect_error(ErrorCode::build_failed, {"cannot be patched"},
                         [&] { runtime->programs().kernel(program, "scale"); });
    }
    return runtime->programs().builds();
  };
  if (builds(0) < 0) GTEST_SKIP() << "no OpenCL device";
  EXPECT_EQ(builds(384), 1);
  EXPECT_EQ(builds(0), 0);
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(ProgramFiles, ServeNoKernelWhoseIncludedFileHasChanged) {
  if (!has_device()) GTEST_SKIP() << "no OpenCL device";
  const fs::path header = root_ / "value.h";
  const auto kernel =
      custom_kernel({.source = "# include \"" + header.string() +
                               "\"\nkernel void put(global float* y) { *y = VALUE; }",
                     .entry = "put",
                     .shape = [](const auto&) {
                       return std::vector<TensorSpec>{{{}, DType::f32}};
                     }});
  for (const char* value : {"1", "2"}) {
    write(header, std::string("#define VALUE ") + value);
    Context context({.cache_folder = folder()});
    EXPECT_EQ(kernel(context, {})[0].item(), std::stof(value));
  }
}

TEST_F(ProgramFiles, AreKeptOnlyWhereTheTextAloneDecides) {
  const auto runtime = Runtime::open({});
  if (runtime == nullptr) GTEST_SKIP() << "no OpenCL device";
  runtime->keep_programs(folder());
  const auto files_after = [&](const std::string& text, const std::string& options = {}) {
    const auto source = std::make_shared<const std::string>(text + "\nkernel void k() {}");
    runtime->programs().kernel({.file = text, .options = options, .source = source}, "k");
    return files().size();
  };
  const fs::path header = root_ / "empty.h";
  write(header, "");
  const std::string name = " \"" + header.string() + '"';
  for (const char* spelling :
       {"# include", "#inc\\\nlude", "#inc\\ \t\r\nlude", "#inc?\?/\nlude", "#import", "%:\timport",
        "#/**/import", "?\?= im\\\nport", "// #embed", "// __has_embed", "// .incbin",
        "// __DATE__", "// __TIMESTAMP__"}) {
    EXPECT_EQ(files_after(spelling + name), 0u) << spelling;
  }
  EXPECT_EQ(files_after("", "-DUNUSED=include"), 0u);
  EXPECT_EQ(files_after("// an important embedding = 1 / 2"), 1u);
}

TEST_F(ProgramFiles, ThatAreDamagedAreMadeAgain) {
  const std::int64_t compiled = builds_of_a_call();
  if (compiled < 0) GTEST_SKIP() << "no OpenCL device";
  const fs::path one = files().front();
  const std::string whole = read(one);
  std::string flipped = whole;
  flipped[whole.size() - 7] ^= 1;
  for (const std::string& damaged :
       {std::string(), whole.substr(0, whole.size() / 2), flipped, std::string(64, '\xff')}) {
    write(one, damaged);
    EXPECT_EQ(builds_of_a_call(), 1);
    EXPECT_EQ(builds_of_a_call(), 0);
  }
  // Whole, and of this key, but nothing that the driver takes.
  const std::size_t header = whole.find('\n') + 1;
  std::uint64_t key_size = 0;
  whole.copy(reinterpret_cast<char*>(&key_size), sizeof(key_size), header);
  const std::string key = whole.substr(header + 3 * sizeof(key_size), key_size);
  for (const char* nonsense : {"", "no program of this driver"}) {
    write(one, BinaryCache::pack(key, nonsense));
    EXPECT_EQ(builds_of_a_call(), 1) << nonsense;
    EXPECT_EQ(builds_of_a_call(), 0) << nonsense;
  }
  EXPECT_EQ(static_cast<std::int64_t>(files().size()), compiled);
}

TEST_F(ProgramFiles, OnlyWhatIsOldIsRemovedUnfinished) {
  fs::create_directories(folder());
  fs::permissions(folder(), fs::perms::owner_all);
  const fs::path old = fs::path(folder()) / "a.program.1.0.unfinished";
  const fs::path fresh = fs::path(folder()) / "b.program.2.0.unfinished";
  const fs::path foreign = fs::path(folder()) / "notes";
  for (const auto& path : {old, fresh, foreign}) {
    write(path, "x");
    if (path != fresh) {
      fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(2));
    }
  }
  const BinaryCache cache(folder());
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh));
  EXPECT_TRUE(fs::exists(foreign));
}

TEST_F(ProgramFiles, OfAFullDiskAreLeftOut) {
  const BinaryCache cache(folder());
  // Every write beyond 64 bytes fails, as on a full disk.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit tiny = before;
  tiny.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tiny), 0);
  cache.keep("key", std::string(5000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(cache.find("key"));
  EXPECT_TRUE(files().empty()) << files().front();
  cache.keep("key", "binary");
  EXPECT_EQ(cache.find("key"), "binary");
}

TEST_F(ProgramFiles, AreNeverWrittenThroughALink) {
  const BinaryCache cache(folder());
  cache.keep("key", "binary");
  const std::string path = files().front();
  write(root_ / "elsewhere", "text");
  // The names that unfinished files had once.
  for (int i = 0; i < 200; ++i) {
    fs::create_symlink(root_ / "elsewhere", path + "." + std::to_string(::getpid()) + "." +
                                                std::to_string(i) + ".unfinished");
  }
  for (const bool is_link : {false, true}) {
    fs::remove(path);
    if (is_link) fs::create_symlink(root_ / "elsewhere", path);
    cache.keep("key", "binary");
    EXPECT_EQ(read(root_ / "elsewhere"), "text");
    EXPECT_EQ(cache.find("key"), "binary");
    EXPECT_EQ(fs::symlink_status(path).permissions(),
              fs::perms::owner_read | fs::perms::owner_write);
  }
}

TEST_F(ProgramFiles, ThatAreOddAreMadeAgain) {
  const BinaryCache cache(folder());
  cache.keep("key", "binary");
  const std::string path = files().front();
  const std::string copy = (root_ / "copy").string();
  fs::copy_file(path, copy);
  const std::pair<const char*, std::function<bool()>> kinds[] = {
      {"a pipe", [&] { return ::mkfifo(path.c_str(), 0600) == 0; }},
      {"a link", [&] { return ::symlink(copy.c_str(), path.c_str()) == 0; }},
      {"a link to nothing", [&] { return ::symlink("nothing", path.c_str()) == 0; }},
      {"a link to itself", [&] { return ::symlink(path.c_str(), path.c_str()) == 0; }},
      {"a device", [&] { return ::symlink("/dev/zero", path.c_str()) == 0; }},
      {"that others may write to",
       [&] { return fs::copy_file(copy, path) && ::chmod(path.c_str(), 0620) == 0; }},
      {"another user's",  // where this is root
       [&] { return fs::copy_file(copy, path) && ::chown(path.c_str(), 1, 1) == 0; }},
      {"a terabyte of zeros",  // where the file system lets a file have it
       [&] { return fs::copy_file(copy, path) && ::truncate(path.c_str(), off_t{1} << 40) == 0; }},
      {"a folder", [&] { return fs::create_directory(path); }},
  };
  for (const auto& [kind, make] : kinds) {
    SCOPED_TRACE(kind);
    fs::remove(path);
    if (!make()) continue;
    EXPECT_FALSE(cache.find("key"));
    cache.keep("key", "binary");
    if (fs::is_directory(path)) continue;  // every process compiles
    EXPECT_EQ(cache.find("key"), "binary");
  }
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(ProgramFiles, AFolderOfOthersIsNotUsed) {
  const auto compiled = builds_of_a_call();
  if (compiled < 0) GTEST_SKIP() << "no OpenCL device";
  const auto expect_refused = [&](const std::string& why) {
    warnings_.clear();
    EXPECT_EQ(builds_of_a_call(), compiled);
    ASSERT_EQ(warnings_.size(), 1u) << why;
    const std::string words = "cache_folder \"" + folder() + "\" is not used, because " + why;
    EXPECT_NE(warnings_[0].find(words), std::string::npos) << warnings_[0];
    EXPECT_NE(warnings_[0].find("chmod 700"), std::string::npos) << warnings_[0];
  };
  for (const auto& [mode, digits] : {std::pair{0770, "770"}, {0702, "702"}, {01777, "1777"}}) {
    ASSERT_EQ(::chmod(folder().c_str(), mode), 0);
    expect_refused(std::string("others than its owner may write to it (mode ") + digits + ")");
  }
  ASSERT_EQ(::chmod(folder().c_str(), 0755), 0);
  EXPECT_EQ(builds_of_a_call(), 0);
  if (::chown(folder().c_str(), 1, 1) != 0) return;  // only root can
  expect_refused("it belongs to user 1, not to 0");
}

TEST_F(ProgramFiles, AFolderThatCannotBeWrittenIsAWarning) {
  if (!has_device()) GTEST_SKIP() << "no OpenCL device";
  for (const std::string bad : {"/dev/null/tessera", "/proc/tessera", "/proc"}) {
    warnings_.clear();
    Context context({.cache_folder = bad, .warning_handler = [this](const std::string& text) {
                       warnings_.push_back(text);
                     }});
    ASSERT_EQ(warnings_.size(), 1u) << bad;
    EXPECT_NE(warnings_[0].find("cache_folder \"" + bad + "\" cannot be written"),
              std::string::npos)
        << warnings_[0];
    EXPECT_TRUE(context.has_device());
  }
}

TEST(DefaultCacheFolder, IsOfTheEnvironment) {
  const auto folder = [](const char* cache, const char* home) {
    cache != nullptr ? setenv("XDG_CACHE_HOME", cache, 1) : unsetenv("XDG_CACHE_HOME");
    home != nullptr ? setenv("HOME", home, 1) : unsetenv("HOME");
    return default_cache_folder();
  };
  const char* set = std::getenv("HOME");
  const std::string home = set != nullptr ? set : "";
  EXPECT_EQ(folder("/caches", "/home/a"), "/caches/tessera");
  EXPECT_EQ(folder(nullptr, "/home/a"), "/home/a/.cache/tessera");
  EXPECT_EQ(folder("", "/home/a"), "/home/a/.cache/tessera");
  EXPECT_EQ(folder("relative", "/home/a"), "/home/a/.cache/tessera");
  EXPECT_EQ(folder(nullptr, nullptr), "");
  EXPECT_EQ(folder("relative", "too"), "");
  if (set != nullptr) setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace tessera::opencl
