// SPDX-License-Identifier: Apache-2.0
#include "programs/dump.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <iterator>
#include <optional>
#include <sstream>
#include <vector>

#include "host/dispatch/files.hpp"
#include "programs/cli.hpp"
#include "programs/code_summary.hpp"
#include "programs/output_set.hpp"

extern char** environ;

namespace tessera::programs {
namespace {

namespace fs = std::filesystem;

/// Empty where there is no file.
std::string read_text(const fs::path& path) {
  const auto file = dispatch::read_file(path.string());
  if (!file.problem.empty() && !file.is_missing) {
    fail_call(fmt::format("{} cannot be read: {}; remove it", path.string(), file.problem));
  }
  return file.text;
}

/// What a program prints in this folder; nothing where it is not there or fails.
std::optional<std::string> output_of(std::vector<std::string> words, const fs::path& folder) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addchdir_np(&files, folder.c_str());
  posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = posix_spawnp(&child, arguments[0], &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  std::string text;
  char part[1 << 16];
  for (ssize_t size = 0; error == 0 && (size = read(ends[0], part, sizeof(part))) > 0;) {
    text.append(part, static_cast<std::size_t>(size));
  }
  close(ends[0]);
  int status = 0;
  if (error != 0 || waitpid(child, &status, 0) != child || status != 0) return std::nullopt;
  return text;
}

/// "linear-forward" of "linear-forward-1fb04572".
std::string program_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name.substr(0, name.rfind('-'));
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// What ptxas says of a kernel's registers, where the log has it.
void add_ptxas(const std::string& log, Json& kernel) {
  std::istringstream lines(log);
  bool is_of_kernel = false;
  const std::string name = kernel.at("kernel");
  for (std::string line; std::getline(lines, line);) {
    const auto of = line.find("Function properties for ");
    if (of != std::string::npos) is_of_kernel = words_of(line.substr(of)).back() == name;
    const auto words = words_of(line);
    for (std::size_t i = 0; is_of_kernel && i + 3 < words.size(); ++i) {
      const auto number = [&] { return parse_integer("log.txt", words[i]); };
      const bool is_spill = words[i + 1] == "bytes" && words[i + 2] == "spill";
      if (is_spill && words[i + 3].starts_with("stores")) kernel["spill_store_bytes"] = number();
      if (is_spill && words[i + 3].starts_with("loads")) kernel["spill_load_bytes"] = number();
      if (is_spill && number() > 0) kernel["spills"] = true;
      if (words[i + 1].starts_with("registers")) kernel["registers"] = number();
    }
  }
}

void summarise(const fs::path& folder, const std::string& option) {
  OutputSet files(folder, option);
  std::vector<std::string> code;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto extension = entry.path().extension();
    if (extension == ".so" || extension == ".bin") code.push_back(entry.path().filename().string());
  }
  std::sort(code.begin(), code.end());
  Json summary{{"program", program_of(folder)},
               {"options", words_of(read_text(folder / "options.txt"))},
               {"kernels", Json::array()}};
  std::vector<KernelCode> kernels;
  if (fs::exists(folder / "program.ptx")) {
    const std::string ptx = read_text(folder / "program.ptx");
    kernels = read_ptx(ptx);
  } else if (code.empty()) {
    summary["note"] = "no code: the compiler failed, or the program did not end by itself";
  } else {
    std::vector<std::string> words = {"objdump", "-d", "--no-show-raw-insn"};
    words.insert(words.end(), code.begin(), code.end());
    auto text = output_of(words, folder);
    if (!text) text = output_of((words[0] = "llvm-objdump", words), folder);
    if (text) {
      kernels = read_disassembly(*text);
      files.add_text("disassembly.txt", *text);
    } else {
      summary["note"] = "neither objdump nor llvm-objdump reads the code, or none is on the PATH";
    }
  }
  const std::string log = read_text(folder / "log.txt");
  for (const auto& kernel : kernels) {
    summary["kernels"].push_back(to_json(kernel));
    add_ptxas(log, summary["kernels"].back());
  }
  files.add_text("summary.json", dump(summary));
  files.commit();
}

/// The folders of programs: `folder` itself, or those below it, in the order of their names.
std::vector<fs::path> programs_in(const fs::path& folder) {
  std::error_code failed;
  if (fs::exists(folder / "options.txt", failed)) return {folder};
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    if (fs::exists(entry.path() / "options.txt", failed)) all.push_back(entry.path());
  }
  std::sort(all.begin(), all.end());
  return all;
}

struct Program {
  std::string folder;
  Json summary;
  std::vector<std::string> options;  ///< sorted
};

std::vector<Program> read_programs(const fs::path& folder) {
  std::vector<Program> all;
  for (const auto& path : programs_in(folder)) {
    if (!fs::exists(path / "summary.json")) summarise(path, "--compare-dumps");
    try {
      Program program{path.filename().string(), Json::parse(read_text(path / "summary.json")), {}};
      program.summary.at("program").get<std::string>();
      program.options = program.summary.at("options").get<std::vector<std::string>>();
      std::sort(program.options.begin(), program.options.end());
      all.push_back(std::move(program));
    } catch (const Json::exception&) {
      fail_call(fmt::format("--compare-dumps: {} is no summary; remove it, and it is made again",
                            (path / "summary.json").string()));
    }
  }
  if (!all.empty()) return all;
  fail_call(fmt::format("--compare-dumps: {} holds no programs; give a folder that --dump wrote",
                        folder.string()));
}

std::vector<std::string> only_in(const Program& a, const Program& b) {
  std::vector<std::string> only;
  std::set_difference(a.options.begin(), a.options.end(), b.options.begin(), b.options.end(),
                      std::back_inserter(only));
  return only;
}

/// Pairs of the same program, those first whose options differ least; each is in one at most.
std::vector<std::pair<const Program*, const Program*>> matched(const std::vector<Program>& a,
                                                               const std::vector<Program>& b) {
  struct Pair {
    std::size_t differ;
    const Program *a, *b;
  };
  std::vector<Pair> possible;
  for (const auto& x : a) {
    for (const auto& y : b) {
      if (x.summary["program"] != y.summary["program"]) continue;
      possible.push_back({only_in(x, y).size() + only_in(y, x).size(), &x, &y});
    }
  }
  std::stable_sort(possible.begin(), possible.end(),
                   [](const Pair& x, const Pair& y) { return x.differ < y.differ; });
  std::vector<std::pair<const Program*, const Program*>> pairs;
  for (const auto& each : possible) {
    if (std::none_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
          return pair.first == each.a || pair.second == each.b;
        })) {
      pairs.emplace_back(each.a, each.b);
    }
  }
  std::sort(pairs.begin(), pairs.end());  // as in A
  return pairs;
}

std::string cell(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_float()) return fmt::format("{:.2f}", value.get<double>());
  return value.dump();
}

/// The kernels of both, figure by figure.
void add_kernels(const Program& a, const Program& b, std::string& text) {
  static constexpr std::pair<const char*, const char*> lines[] = {
      {"", "spills"},
      {"loop", "spill_stores"},
      {"loop", "spill_loads"},
      {"", "spill_store_bytes"},
      {"", "spill_load_bytes"},
      {"", "registers"},
      {"loop", "vector_bits"},
      {"loop", "instructions"},
      {"loop", "multiplications"},
      {"loop", "loads_per_multiplication"},
      {"loop", "loads"},
      {"loop", "broadcasts"},
      {"loop", "shuffles"},
      {"loop", "stores"},
      {"loop", "other"},
      {"other_loops", "spill_stores"},
      {"other_loops", "spill_loads"},
      {"", "innermost_loops"},
      {"", "code_bytes"}};
  const Json& others = b.summary.at("kernels");
  for (const auto& mine : a.summary.at("kernels")) {
    // PoCL has several of a kernel, for work-groups of several sizes.
    const Json* other = nullptr;
    for (const auto& each : others) {
      if (each["kernel"] != mine["kernel"]) continue;
      if (other == nullptr || each.value("file", "") == mine.value("file", "")) other = &each;
    }
    if (other == nullptr) continue;
    const std::string name = mine["kernel"];
    if (*other == mine) {
      text += fmt::format("  {}: the same\n", name);
      continue;
    }
    text += fmt::format("  {:<40} {:>10} {:>10}\n", name, "A", "B");
    for (const auto& [group, field] : lines) {
      const auto at = Json::json_pointer(*group == '\0' ? "" : std::string("/") + group) / field;
      const Json in_a = mine.value(at, Json()), in_b = other->value(at, Json());
      if (in_a.is_null() && in_b.is_null()) continue;
      text += fmt::format("    {:<38} {:>10} {:>10}\n",
                          std::string(group) + (*group == '\0' ? "" : ": ") + field, cell(in_a),
                          cell(in_b));
    }
  }
}

/// The rows with results that a run left in the folder, or in the one that the program lies in.
std::vector<Json> rows_of(const fs::path& folder) {
  const auto file =
      fs::exists(folder / "rows.json") ? folder / "rows.json" : folder / ".." / "rows.json";
  const Json all = Json::parse(read_text(file), nullptr, false);
  std::vector<Json> rows;
  if (all.is_discarded() || !all.contains("benchmarks")) return rows;
  for (const auto& row : all.at("benchmarks")) {
    if (row.contains("median_seconds")) rows.push_back(row);
  }
  return rows;
}

void add_rows(const fs::path& a, const fs::path& b, std::string& text) {
  const auto in_a = rows_of(a), in_b = rows_of(b);
  fmt::format_to(std::back_inserter(text), "{:<72} {:>10} {:>10} {:>7} {:>8} {:>8}\n", "row",
                 "A ms", "B ms", "B / A", "A, peak", "B, peak");
  for (const auto& mine : in_a) {
    for (const auto& other : in_b) {
      // One row each is what is to be compared, whatever it is.
      if (mine["name"] != other["name"] && in_a.size() + in_b.size() > 2) continue;
      const auto ms = [](const Json& row) { return 1e3 * row.value("median_seconds", 0.0); };
      const auto share = [](const Json& row) { return 100.0 * row.value("fraction_of_peak", 0.0); };
      fmt::format_to(std::back_inserter(text),
                     "{:<72} {:>10.3f} {:>10.3f} {:>7.3f} {:>7.1f}% {:>7.1f}%\n",
                     mine["name"].get<std::string>(), ms(mine), ms(other), ms(other) / ms(mine),
                     share(mine), share(other));
    }
  }
}

}  // namespace

CLI::Option* add_dump(CLI::App& app, std::string& target) {
  return app
      .add_option("--dump", target,
                  "folder for what the compiler made of each program: source, options, log, code "
                  "with its disassembly, and a summary.json of its innermost loops")
      ->type_name("DIR");
}

void summarise_dump(const fs::path& folder, const std::string& option) {
  for (const auto& path : programs_in(folder)) summarise(path, option);
}

std::string compare_dumps(const fs::path& a, const fs::path& b) {
  const auto in_a = read_programs(a), in_b = read_programs(b);
  std::string text = fmt::format("A: {}\nB: {}\n", a.string(), b.string());
  for (const auto& [mine, other] : matched(in_a, in_b)) {
    const bool is_same = mine->summary == other->summary;
    fmt::format_to(std::back_inserter(text), "{}, {}{}\n", mine->folder, other->folder,
                   is_same ? ": the same" : "");
    if (is_same) continue;
    const auto add_options = [&](const char* where, const std::vector<std::string>& only) {
      if (only.empty()) return;
      text += fmt::format("  options only in {}:", where);
      for (const auto& option : only) text += " " + option;
      text += "\n";
    };
    add_options("A", only_in(*mine, *other));
    add_options("B", only_in(*other, *mine));
    add_kernels(*mine, *other, text);
  }
  const auto pairs = matched(in_a, in_b);
  const auto add_rest = [&](const char* where, const std::vector<Program>& programs) {
    for (const auto& program : programs) {
      if (std::any_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
            return pair.first == &program || pair.second == &program;
          })) {
        continue;
      }
      text += fmt::format("only in {}: {}\n", where, program.folder);
    }
  };
  add_rest("A", in_a);
  add_rest("B", in_b);
  add_rows(a, b, text);
  return text;
}

}  // namespace tessera::programs
