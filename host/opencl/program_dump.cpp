// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/program_dump.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "host/dispatch/files.hpp"
#include "host/opencl/hashing.hpp"

namespace tessera::opencl {
namespace {

namespace fs = std::filesystem;

/// Of a path in PoCL's cache, "/forward/1-1-1-goffs0-smallgrid/forward.so", the name of a file.
std::string file_of(std::string_view path) {
  const fs::path whole(path);
  return fmt::format("{}.{}.so", whole.stem().string(), whole.parent_path().filename().string());
}

std::uint32_t word_at(std::string_view bytes, std::size_t at) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof(word));
  return word;
}

/// PoCL's binary is its cache of the program, file by file: the length of a path, the path, the
/// size of the file, the file. Any number of other things are between them.
std::vector<std::pair<std::string, std::string_view>> libraries_in(std::string_view binary) {
  constexpr std::string_view suffix = ".so", elf = "\177ELF";
  std::vector<std::pair<std::string, std::string_view>> all;
  for (auto at = binary.find(elf); at != std::string_view::npos; at = binary.find(elf, at + 1)) {
    const auto end = at - sizeof(std::uint32_t);  // of the path
    if (at < 8 || !binary.substr(0, end).ends_with(suffix)) continue;
    std::size_t length = suffix.size();
    while (length + 4 < end && word_at(binary, end - length - 4) != length) ++length;
    const auto path = binary.substr(end - length, length);
    if (path.find('/') == std::string_view::npos) continue;
    all.emplace_back(file_of(path), binary.substr(at, word_at(binary, end)));
  }
  // Code for any size of a work-group is made for this binary, and has not run.
  const auto is_general = [](const auto& file) {
    return file.first.find(".0-0-0") != std::string::npos;
  };
  if (!std::all_of(all.begin(), all.end(), is_general)) std::erase_if(all, is_general);
  return all;
}

}  // namespace

ProgramDump::ProgramDump(const std::string& folder, std::shared_ptr<dispatch::WarningLog> warnings)
    : warnings_(std::move(warnings)) {
  dispatch::make_folder(folder, 0777);
  folder_ = folder;
}

std::string ProgramDump::name_of(const std::string& file, std::string_view source,
                                 std::string_view options) {
  std::string name = file.ends_with(".cl") ? file.substr(0, file.size() - 3) : file;
  for (char& c : name) {
    if (std::strchr("._-", c) == nullptr && std::isalnum(static_cast<unsigned char>(c)) == 0)
      c = '-';
  }
  Hash hash;
  hash.add(source);
  hash.add(options);
  return fmt::format("{}-{:08x}", name, static_cast<std::uint32_t>(hash.value()));
}

std::vector<std::pair<std::string, std::string_view>> ProgramDump::code_in(
    std::string_view binary) {
  if (binary.starts_with("poclbin")) {
    auto libraries = libraries_in(binary);
    if (!libraries.empty()) return libraries;
  }
  const bool is_ptx = binary.find("\n.target sm_") != std::string_view::npos;
  return {{is_ptx ? "program.ptx" : "program.bin", binary}};
}

void ProgramDump::write(const std::string& name, const Files& files) const {
  const std::string folder = folder_ + "/" + name;
  try {
    fs::create_directories(folder);
    // Somebody else made a link, to a folder elsewhere.
    if (fs::is_symlink(folder))
      throw std::system_error(make_error_code(std::errc::not_a_directory));
    for (const auto& [file, text] : files) {
      dispatch::NewFile made(folder + "/" + file, 0666);
      made.write(text);
      made.put();
    }
  } catch (const std::system_error& error) {
    warnings_->warn("tessera: ContextOptions::dump_folder \"" + folder_ +
                    "\" cannot be written any more (" + error.code().message() +
                    "); the dump is incomplete, results are not touched: give a folder on a disk "
                    "with room and run again");
  }
}

void ProgramDump::compiled(const std::string& name, std::string_view source,
                           std::string_view options, std::string_view log) const noexcept {
  try {
    write(name, {{"source.cl", source}, {"options.txt", options}, {"log.txt", log}});
  } catch (...) {
    // Out of memory: the call goes on.
  }
}

void ProgramDump::ran(const std::string& name, std::string_view binary) const noexcept {
  try {
    write(name, code_in(binary));
  } catch (...) {
    // Out of memory, with all else done.
  }
}

}  // namespace tessera::opencl
