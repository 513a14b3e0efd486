// SPDX-License-Identifier: Apache-2.0
// Files that are read whole or written beside their place: odd ones, links that wait.
#include "host/dispatch/files.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace tessera::dispatch {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string made = (fs::temp_directory_path() / "tessera-files-XXXXXX").string();
    ASSERT_NE(::mkdtemp(made.data()), nullptr);
    root_ = made;
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string at(const std::string& name) const { return (root_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(at(name), std::ios::binary) << text;
    return at(name);
  }
  std::size_t count() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(root_), {}));
  }

  fs::path root_;
};

TEST_F(Files, ThatAreRegularAreReadWhole) {
  for (const std::string& text :
       {std::string(), std::string("a\0b\n", 4), std::string(99999, 'x')}) {
    const auto path = write("file", text);
    fs::remove(at("link"));
    fs::create_symlink("file", at("link"));
    for (const auto& file : {read_file(path), read_file(at("link")), read_own_file(path)}) {
      EXPECT_EQ(file.problem, "");
      EXPECT_EQ(file.text, text);
    }
  }
}

/// None of these waits or goes on without end.
TEST_F(Files, ThatAreOddAreNotRead) {
  const auto expect_problem = [](const FileText& file, const std::string& words, bool is_missing) {
    EXPECT_NE(file.problem.find(words), std::string::npos) << words << ": " << file.problem;
    EXPECT_EQ(file.is_missing, is_missing) << words;
    EXPECT_EQ(file.text, "") << words;
  };
  const auto problem = [&](const std::string& path, const std::string& words) {
    expect_problem(read_file(path), words, false);
  };
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  problem(at("pipe"), "it is no regular file");
  problem("/dev/null", "it is no regular file");
  problem("/dev/zero", "it is no regular file");
  problem(root_.string(), "it is a folder");
  problem("/proc/version", "its size is not that of what it holds");
  problem(at(std::string(300, 'n')), "File name too long");
  fs::create_symlink("loop", at("loop"));
  problem(at("loop"), "Too many levels");
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  at("socket").copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  problem(at("socket"), "No such device");
  ::close(listener);
  // A terabyte of nothing, where the file system lets a file have it.
  if (::truncate(write("large", "").c_str(), off_t{1} << 40) == 0) problem(at("large"), "limit is");
  fs::create_symlink("nowhere", at("dangling"));
  expect_problem(read_file(at("none")), "No such file", true);
  expect_problem(read_file(at("dangling")), "No such file", true);
  expect_problem(read_file(write("file", "x") + "/below"), "Not a directory", true);
}

TEST_F(Files, OfOthersAreNotOwn) {
  const auto path = write("file", "text");
  fs::create_symlink("file", at("link"));
  EXPECT_NE(read_own_file(at("link")).problem, "");
  for (const mode_t mode : {0660, 0602, 0666}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_NE(read_own_file(path).problem.find("others than its owner may write"),
              std::string::npos);
  }
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  EXPECT_EQ(read_own_file(path).text, "text");
  if (::chown(path.c_str(), ::geteuid() + 1, ::getegid()) != 0) return;  // only root can
  EXPECT_NE(read_own_file(path).problem.find("it belongs to user"), std::string::npos);
  EXPECT_EQ(read_file(path).text, "text");
}

TEST_F(Files, AreWrittenWholeOrNotAtAll) {
  const auto path = write("file", "old");
  {
    NewFile file(path, 0600);
    file.write("new");
    EXPECT_EQ(count(), 2u);
  }
  EXPECT_EQ(count(), 1u);
  EXPECT_EQ(read_file(path).text, "old");
  NewFile file(path, 0600);
  file.write("new");
  file.put();
  EXPECT_EQ(count(), 1u);
  EXPECT_EQ(read_file(path).text, "new");
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  // A name as long as it may be leaves no room for more beside it.
  const auto longest = at(std::string(255, 'n'));
  NewFile other(longest, 0600);
  other.put();
  EXPECT_TRUE(fs::exists(longest));
  fs::create_directory(at("folder"));
  {
    NewFile of_a_folder(at("folder"), 0600);
    EXPECT_THROW(of_a_folder.put(), std::system_error);
  }
  EXPECT_EQ(count(), 3u);
}

TEST_F(Files, ThatAreNamedKeepTheirLinksAndPipes) {
  const auto put = [](NewFile file) {
    file.write("new");
    file.put();
  };
  const auto target = write("target", "old");
  fs::create_symlink("target", at("link"));
  put(NewFile::named(at("link")));
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_EQ(read_file(target).text, "new");
  // A path that no caller named is replaced itself.
  write("target", "old");
  put(NewFile(at("link"), 0600));
  EXPECT_FALSE(fs::is_symlink(at("link")));
  EXPECT_EQ(read_file(target).text, "old");
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  const int reader = ::open(at("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  put(NewFile::named(at("pipe")));
  char got[4] = {};
  EXPECT_EQ(::read(reader, got, sizeof(got)), 3);
  EXPECT_STREQ(got, "new");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(at("pipe")));
  EXPECT_EQ(count(), 3u);
  EXPECT_THROW(put(NewFile::named("/dev/full")), std::system_error);
}

TEST_F(Files, NeedAFolderOfTheirOwn) {
  make_folder(at("a/b/"), 0700);
  EXPECT_EQ(fs::status(at("a")).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(at("a/b")).permissions(), fs::perms::owner_all);
  EXPECT_TRUE(fs::is_empty(at("a/b")));
  make_folder(at("a/b"), 0700);
  EXPECT_EQ(why_shared(at("a/b")), "");
  fs::create_symlink("a/b", at("link"));
  EXPECT_EQ(why_shared(at("link")), "");
  ASSERT_EQ(::chmod(at("a/b").c_str(), 01777), 0);
  EXPECT_EQ(why_shared(at("link")), "others than its owner may write to it (mode 1777)");
  write("file", "");
  for (const auto& bad :
       {at("file"), at("file/below"), std::string("/proc/tessera"), std::string()}) {
    EXPECT_THROW(make_folder(bad, 0700), std::system_error) << bad;
  }
}

}  // namespace
}  // namespace tessera::dispatch
