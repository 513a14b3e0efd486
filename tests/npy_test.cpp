// SPDX-License-Identifier: Apache-2.0
#include "programs/npy.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "programs/output_set.hpp"
#include "tessera/error.hpp"
#include "tests/support/expect_error.hpp"

namespace {

namespace fs = std::filesystem;
using tessera::Dims;
using tessera::DType;
using tessera::Error;
using tessera::ErrorCode;
using tessera::programs::make_npy_header;
using tessera::programs::npy_descr;
using tessera::programs::NpyArray;
using tessera::programs::NpyRole;
using tessera::programs::OutputSet;
using tessera::programs::parse_npy_header;

class Npy : public testing::Test {
 protected:
  Npy() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() /
              ("tessera_npy_" + std::to_string(::getpid()) + "_" + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Npy() override { fs::remove_all(folder_); }

  std::string write(const std::string& bytes) const {
    const auto path = folder_ / "a.npy";
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }

  fs::path folder_;
};

/// A file with a header text of its own and `data_bytes` bytes of elements.
std::string file_of(const std::string& dictionary, std::size_t data_bytes, int major = 1) {
  std::string file("\x93NUMPY", 6);
  file += {static_cast<char>(major), '\0'};
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) {
    file += static_cast<char>((dictionary.size() >> (8 * i)) & 0xff);
  }
  file += dictionary;
  for (std::size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i + 1);
  return file;
}

void expect_error(const std::function<void()>& call, const std::string& part,
                  ErrorCode code = ErrorCode::invalid_argument) {
  tessera::test::expect_error(code, {part}, call);
}

TEST_F(Npy, every_type_comes_back_bit_by_bit) {
  struct Case {
    DType type;
    NpyRole role;
    bool bf16_bits;
  };
  for (const auto& c :
       {Case{DType::f32, NpyRole::floating, false}, Case{DType::f16, NpyRole::floating, false},
        Case{DType::bf16, NpyRole::floating, false}, Case{DType::bf16, NpyRole::floating, true},
        Case{DType::i32, NpyRole::integer, false}, Case{DType::i64, NpyRole::integer, false}}) {
    for (const Dims& extents :
         {Dims(), Dims{5}, Dims{2, 3}, Dims{2, 0, 3}, Dims{1, 2, 1, 3, 1, 2, 1, 2}}) {
      for (bool fortran : {false, true}) {
        const auto bytes = static_cast<std::size_t>(extents.product()) * size_of(c.type);
        std::string data(bytes, '\0');
        for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(37 * i + 11);
        OutputSet files(folder_);
        files.add_array("t.npy", data.data(), c.type, extents, c.bf16_bits, fortran);
        files.commit();
        const auto a = NpyArray::load("--x", (folder_ / "t.npy").string(), c.role, c.bf16_bits);
        ASSERT_EQ(a.view().dtype(), c.type);
        ASSERT_EQ(a.view().extents(), extents);
        ASSERT_EQ(a.view().strides(), fortran ? tessera::programs::fortran_strides(extents)
                                              : tessera::contiguous_strides(extents));
        ASSERT_EQ(std::memcmp(a.view().host_data(), data.data(), bytes), 0);
      }
    }
  }
}

TEST_F(Npy, elements_start_at_a_multiple_of_64) {
  for (std::int64_t n = 1; n < 1000000000000; n *= 7) {
    for (const Dims& extents : {Dims{n}, Dims{n, n}, Dims{n, n, n, n, n, n, n, n}}) {
      const auto header = make_npy_header("<f4", false, extents);
      EXPECT_EQ(header.size() % 64, 0u);
      EXPECT_EQ(header.back(), '\n');
      const auto parsed = parse_npy_header(std::as_bytes(std::span(header)), "a");
      EXPECT_EQ(parsed.data_offset, header.size());
      EXPECT_EQ(Dims(parsed.shape), extents);
    }
  }
}

TEST_F(Npy, headers_of_all_versions_and_spellings) {
  for (int major : {1, 2, 3}) {
    for (const char* text :
         {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n",
          "{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<f4\"}",
          " { 'descr' : '=f4' , 'shape' : ( 2L , 3L , ) , 'fortran_order' : False , } \n",
          "{'descr': '<f4', 'fortran_order': False,\n 'shape': (2, 3)}"}) {
      const auto path = write(file_of(text, 24, major));
      const auto a = NpyArray::load("--x", path, NpyRole::floating, false);
      EXPECT_EQ(a.view().extents(), (Dims{2, 3}));
      // Some of these headers leave the elements misaligned.
      const auto address = reinterpret_cast<std::uintptr_t>(a.view().host_data());
      EXPECT_EQ(address % 4, 0u);
      EXPECT_EQ(static_cast<const char*>(a.view().host_data())[23], 24);
    }
  }
}

TEST_F(Npy, fortran_order_is_strides) {
  const auto path =
      write(file_of("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3, 4), }", 96));
  const auto a = NpyArray::load("--w", path, NpyRole::floating, false);
  EXPECT_TRUE(a.fortran_order());
  EXPECT_EQ(a.view().strides(), (Dims{1, 2, 6}));
}

TEST_F(Npy, data_behind_the_array_is_refused) {
  const auto path = write(file_of("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }", 9));
  expect_error([&] { NpyArray::load("--labels", path, NpyRole::integer, false); }, "more follow");
}

TEST_F(Npy, a_pipe_is_read) {
  const auto path = (folder_ / "pipe").string();
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto content =
      file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (700000,), }", 2800000);
  std::thread writer([&] { std::ofstream(path, std::ios::binary) << content; });
  const auto a = NpyArray::load("--x", path, NpyRole::floating, false);
  writer.join();
  EXPECT_EQ(a.view().size(), 700000);
  EXPECT_EQ(std::memcmp(a.view().host_data(), content.data() + content.size() - 2800000, 2800000),
            0);
}

TEST_F(Npy, types_that_are_not_accepted) {
  const auto load = [&](const std::string& descr, NpyRole role, bool bits = false) {
    return [this, descr, role, bits] {
      const auto quoted = descr[0] == '[' ? descr : "'" + descr + "'";
      const auto path =
          write(file_of("{'descr': " + quoted + ", 'fortran_order': False, 'shape': (1,), }", 16));
      NpyArray::load("--x", path, role, bits);
    };
  };
  expect_error(load("<f8", NpyRole::floating), "astype(numpy.float32)");
  expect_error(load(">f4", NpyRole::floating), "big-endian");
  expect_error(load(">f4", NpyRole::floating), "astype('<f4')");
  expect_error(load(">i8", NpyRole::integer), "big-endian");
  expect_error(load("<u2", NpyRole::floating), "--bf16-bits");
  expect_error(load("<u2", NpyRole::integer, true), "'<i4' and '<i8'");
  expect_error(load("<i2", NpyRole::integer), "'<i2'");
  expect_error(load("|b1", NpyRole::integer), "'|b1'");
  expect_error(load("|u1", NpyRole::integer), "'|u1'");
  expect_error(load("<f4", NpyRole::integer), "'<f4'");
  expect_error(load("<i4", NpyRole::floating), "'<i4'");
  expect_error(load("<c8", NpyRole::floating), "'<c8'");
  expect_error(load("|V4", NpyRole::floating), "'|V4'");
  expect_error(load("|O", NpyRole::floating), "'|O'");
  expect_error(load("f", NpyRole::floating), "'f'");
  expect_error(load("", NpyRole::floating), "''");
  expect_error(load("[('a', '<f4'), ('b', [('c', '<f4')])]", NpyRole::floating), "[...]");
  // Their type is none of the reasons.
  expect_error(load("|V2", NpyRole::floating), "more follow");
  expect_error(load("<V2", NpyRole::floating, true), "more follow");
  expect_error(load("<u2", NpyRole::floating, true), "more follow");
}

TEST_F(Npy, files_that_are_not_whole) {
  const auto load = [](const std::string& path) {
    return [path] { NpyArray::load("--x", path, NpyRole::floating, false); };
  };
  expect_error(load((folder_ / "none.npy").string()), "--x " + (folder_ / "none.npy").string());
  expect_error(load((folder_ / "none.npy").string()), "No such file");
  expect_error(load(folder_.string()), "folder");
  expect_error(load(write("")), "empty");
  expect_error(load(write("PK\x03\x04 a zip")), "numpy.save");
  const auto whole = file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24);
  for (std::size_t length = 1; length < whole.size(); ++length) {
    expect_error(load(write(whole.substr(0, length))), "truncated");
  }
  EXPECT_NO_THROW(load(write(whole))());
}

/// Of a pipe no more is read, and no more memory taken, than its header asks for.
TEST_F(Npy, streams) {
  const auto whole = file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24);
  const auto load = [&](const std::string& text, bool ends) {
    const std::string path = (folder_ / "pipe").string();
    std::filesystem::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    const auto handler = std::signal(SIGPIPE, SIG_IGN);
    std::thread writer([&] {
      const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
      std::string rest = text;
      // Where it does not end: until nobody reads any more.
      while (::write(fd, rest.data(), rest.size()) >= 0 && !ends) rest.assign(65536, '\0');
      ::close(fd);
    });
    const auto join = [&] {
      writer.join();
      std::signal(SIGPIPE, handler);
    };
    try {
      const auto array = NpyArray::load("--x", path, NpyRole::floating, false);
      join();
      EXPECT_EQ(array.view().size(), 6);
    } catch (...) {
      join();
      throw;
    }
  };
  EXPECT_NO_THROW(load(whole, true));
  expect_error([&] { load(whole, false); }, "more follow");
  expect_error([&] { load(whole.substr(0, 20), true); }, "truncated");
  expect_error([&] { load(std::string(64, '\0'), false); }, "numpy.save");
  expect_error(
      [&] {
        load(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }", 64),
             true);
      },
      "truncated");
}

TEST_F(Npy, bad_headers) {
  const auto load = [&](const std::string& text, int major = 1) {
    return [this, text, major] {
      NpyArray::load("--x", write(file_of(text, 64, major)), NpyRole::floating, false);
    };
  };
  const std::string d = "'descr': '<f4'", f = "'fortran_order': False", s = "'shape': (2,)";
  for (const auto& text :
       std::vector<std::string>{"",
                                "{",
                                "}",
                                "{}",
                                "()",
                                "{" + d + ", " + f + "}",
                                "{" + d + ", " + s + "}",
                                "{" + f + ", " + s + "}",
                                "{" + d + ", " + f + ", " + s + ", 'x': 1}",
                                "{" + d + ", " + d + ", " + f + ", " + s + "}",
                                "{" + d + " " + f + ", " + s + "}",
                                "{" + d + ", " + f + ", " + s + "} x",
                                "{" + d + ", " + f + ", 'shape': 2}",
                                "{" + d + ", " + f + ", 'shape': (2)}",
                                "{" + d + ", " + f + ", 'shape': [2,]}",
                                "{" + d + ", " + f + ", 'shape': (-2,)}",
                                "{" + d + ", " + f + ", 'shape': (2.0,)}",
                                "{" + d + ", " + f + ", 'shape': (2,,)}",
                                "{" + d + ", " + f + ", 'shape': (,)}",
                                "{" + d + ", " + f + ", 'shape': (99999999999999999999,)}",
                                "{" + d + ", 'fortran_order': 0, " + s + "}",
                                "{'descr': <f4, " + f + ", " + s + "}",
                                "{'descr': '<f4, " + f + ", " + s,
                                "{'descr': [('a', " + f + ", " + s}) {
    expect_error(load(text), "bad .npy header");
  }
  expect_error(load("{" + d + ", " + f + ", " + s + "}", 4), "version 4.0");
  expect_error(load("{" + d + ", " + f + ", " + s + "}", 0), "version 0.0");
  expect_error(load("{" + d + ", " + f + ", 'shape': (1,1,1,1,1,1,1,1,1)}"), "9 axes");
  expect_error(load("{" + d + ", " + f + ", 'shape': (4294967296,4294967296)}"), "overflows");
  expect_error(load("{" + d + ", " + f + ", 'shape': (0,4294967296,4294967296)}"), "overflows");
  expect_error(load("{" + d + ", " + f + ", 'shape': (4294967296,)}"), "truncated");
}

TEST_F(Npy, damaged_headers_never_crash) {
  // Fixed seed: the same files on every run.
  std::mt19937 random(20240607);
  const auto whole = file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24);
  const std::string alphabet = "{}()[]':,<>|=f48V2iu0193TrueFalse \n\xff\x80";
  int accepted = 0;
  for (int round = 0; round < 200000; ++round) {
    std::string file = whole;
    for (int edits = 1 + static_cast<int>(random() % 4); edits > 0; --edits) {
      const auto at = random() % file.size();
      switch (random() % 4) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file[at] = alphabet[random() % alphabet.size()];
          break;
        case 2:
          file.erase(at, random() % 3);
          break;
        default:
          file.insert(at, 1, alphabet[random() % alphabet.size()]);
      }
      if (file.empty()) file.push_back('x');
    }
    // An exact allocation, so that a sanitizer sees any read beyond the end.
    const std::vector<char> exact(file.begin(), file.end());
    try {
      const auto header = parse_npy_header(std::as_bytes(std::span(exact)), "a");
      EXPECT_LE(header.data_offset, exact.size());
      ++accepted;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    }
    if (round % 100 == 0) {
      try {
        NpyArray::load("--x", write(file), NpyRole::floating, true);
      } catch (const Error&) {
      }
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST_F(Npy, nothing_is_written_without_commit) {
  const float value = 1;
  {
    OutputSet files(folder_ / "a" / "b");
    EXPECT_FALSE(fs::exists(folder_ / "a"));
    files.add_array("loss.npy", &value, DType::f32, {});
    EXPECT_FALSE(fs::exists(folder_ / "a" / "b" / "loss.npy"));
  }
  EXPECT_FALSE(fs::exists(folder_ / "a"));
  {
    OutputSet files(folder_ / "a" / "b");
    files.add_array("loss.npy", &value, DType::f32, {});
    files.add_text("report.json", "{}\n");
    files.commit();
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "a" / "b"), {}), 2);
  // A failure leaves what an earlier run wrote.
  fs::create_directory(folder_ / "a" / "b" / "lse.npy");
  {
    OutputSet files(folder_ / "a" / "b");
    files.add_text("report.json", "new");
    expect_error([&] { files.add_array("lse.npy", &value, DType::f32, {}); }, "lse.npy",
                 ErrorCode::execution_failed);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "a" / "b"), {}), 3);
  std::string text;
  std::getline(std::ifstream(folder_ / "a" / "b" / "report.json"), text);
  EXPECT_EQ(text, "{}");
}

TEST_F(Npy, nothing_is_written_through_a_link_that_waits) {
  const auto elsewhere = write("text");
  // The name that an unfinished file had once.
  fs::create_symlink(elsewhere, folder_ / (".report.json." + std::to_string(::getpid()) + ".tmp"));
  OutputSet files(folder_);
  files.add_text("report.json", "new");
  files.commit();
  std::string text;
  std::getline(std::ifstream(elsewhere), text);
  EXPECT_EQ(text, "text");
}

TEST_F(Npy, a_place_that_cannot_be_a_folder) {
  const auto file = write("x");
  expect_error([&] { OutputSet files(file); }, "not a folder");
  expect_error([&] { OutputSet files(file + "/sub/sub"); }, "not a folder");
  expect_error([&] { OutputSet files(""); }, "--out is empty");
}

}  // namespace
