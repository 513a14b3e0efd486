// SPDX-License-Identifier: Apache-2.0
// Source to PTX, by clang as a child process.
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <sstream>

#include "driver.hpp"

namespace tessera_driver {
namespace {

/// A file without a name, which a child process reads or writes: unlike a pipe it never blocks.
class Unnamed {
 public:
  Unnamed() : file_(memfd_create("tessera_ptx", MFD_CLOEXEC)) {}
  ~Unnamed() { close(file_); }
  Unnamed(const Unnamed&) = delete;
  Unnamed& operator=(const Unnamed&) = delete;

  int file() const { return file_; }
  void fill(const std::string& text) const {
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t count = write(file_, text.data() + at, text.size() - at);
      if (count <= 0) break;
      at += static_cast<std::size_t>(count);
    }
    lseek(file_, 0, SEEK_SET);
  }
  std::string text() const {
    std::string all(static_cast<std::size_t>(lseek(file_, 0, SEEK_END)), '\0');
    const ssize_t count = pread(file_, all.data(), all.size(), 0);
    all.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    return all;
  }

 private:
  int file_;
};

/// The caller's options, parted at blanks outside of quotes; NVIDIA's own mean nothing to clang.
std::vector<std::string> parted(const std::string& options) {
  std::vector<std::string> all(1);
  bool quoted = false;
  for (const char letter : options) {
    if (letter == '"') {
      quoted = !quoted;
    } else if (!quoted && std::isspace(static_cast<unsigned char>(letter)) != 0) {
      all.emplace_back();
    } else {
      all.back() += letter;
    }
  }
  std::erase_if(all, [](const auto& one) { return one.empty() || one.starts_with("-cl-nv-"); });
  return all;
}

bool run_clang(const std::string& options, const Unnamed& input, const Unnamed& output,
               const Unnamed& errors) {
  // The last dump of a module shows what PTX does not: the attributes of kernels. A second process
  // that compiles the dumped module takes 40% longer.
  std::vector<std::string> words{
      TESSERA_CLANG_19,      "-x",  "cl", "-cl-std=CL1.2", "-target",
      "nvptx64-nvidia-nvcl", "-O3", "-S", "-nogpulib",     "-Wno-everything"};
  for (const char* word : {"-target-cpu", "sm_90", "-target-feature", "+ptx83",
                           "-mlink-builtin-bitcode", TESSERA_LIBCLC_NVPTX}) {
    words.insert(words.end(), {"-Xclang", word});
  }
  // Every call is inlined: the interpreter knows none, and NVIDIA's compiler leaves few.
  for (const char* word :
       {"-print-module-scope", "-print-before=constmerge", "-inline-threshold=100000"}) {
    words.insert(words.end(), {"-mllvm", word});
  }
  for (auto& option : parted(options)) words.push_back(std::move(option));
  words.insert(words.end(), {"-o", "-", "-"});
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.file(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output.file(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.file(), STDERR_FILENO);
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  return failed == 0 && waitpid(child, &status, 0) == child && status == 0;
}

/// `!{i32 32, i32 1}` or `!{!"float*", !"int"}` without types and quotes.
std::vector<std::string> items_of(const std::string& list) {
  std::vector<std::string> items;
  const auto end = list.rfind('}');
  for (auto at = list.find('{') + 1; at < end;) {
    if (list.compare(at, 2, "!\"") == 0) {
      const auto close = list.find('"', at + 2);
      items.push_back(list.substr(at + 2, close - at - 2));
      at = list.find(',', close);
    } else {
      const auto comma = std::min(list.find(',', at), end);
      const auto blank = list.rfind(' ', comma - 1);
      items.push_back(list.substr(blank + 1, comma - blank - 1));
      at = comma;
    }
    at = at >= end ? end : at + 2;  // ", "
  }
  return items;
}

std::vector<ArgumentInfo> arguments_of(const std::vector<std::string>& spaces,
                                       const std::vector<std::string>& types,
                                       const std::vector<std::string>& qualifiers,
                                       const std::vector<std::string>& names) {
  constexpr std::array<cl_kernel_arg_address_qualifier, 4> by_number{
      CL_KERNEL_ARG_ADDRESS_PRIVATE, CL_KERNEL_ARG_ADDRESS_GLOBAL, CL_KERNEL_ARG_ADDRESS_CONSTANT,
      CL_KERNEL_ARG_ADDRESS_LOCAL};
  std::vector<ArgumentInfo> all;
  for (std::size_t i = 0; i < names.size(); ++i) {
    cl_kernel_arg_type_qualifier bits = CL_KERNEL_ARG_TYPE_NONE;
    const auto has = [&](const char* word) {
      return qualifiers.at(i).find(word) != std::string::npos;
    };
    if (has("const")) bits |= CL_KERNEL_ARG_TYPE_CONST;
    if (has("restrict")) bits |= CL_KERNEL_ARG_TYPE_RESTRICT;
    if (has("volatile")) bits |= CL_KERNEL_ARG_TYPE_VOLATILE;
    all.push_back({by_number.at(std::stoul(spaces.at(i))), types.at(i), names[i], bits});
  }
  return all;
}

/// Adds what the dump of the module says of its kernels.
void add_attributes(Compiled& compiled, const std::string& dump) {
  std::map<std::string, std::string> lists;  // by "!5"
  std::vector<std::string> kernels;
  std::istringstream lines(dump);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("define ") && line.find(" spir_kernel ") != std::string::npos) {
      kernels.push_back(line);
    } else if (line.starts_with("!") && line.find(" = ") != std::string::npos) {
      lists[line.substr(0, line.find(' '))] = line;
    }
  }
  for (const auto& kernel : kernels) {
    const auto at = kernel.find('@') + 1;
    const std::string name = kernel.substr(at, kernel.find('(', at) - at);
    const auto attribute = [&](const std::string& what) {
      const auto found = kernel.find(" !" + what + " !");
      if (found == std::string::npos) return std::vector<std::string>();
      const auto number = found + what.size() + 3;
      return items_of(lists[kernel.substr(number, kernel.find(' ', number) - number)]);
    };
    compiled.arguments[name] =
        arguments_of(attribute("kernel_arg_addr_space"), attribute("kernel_arg_type"),
                     attribute("kernel_arg_type_qual"), attribute("kernel_arg_name"));
    const auto items = attribute("reqd_work_group_size");
    const auto entry = compiled.text.find(".entry " + name + "(");
    if (items.size() != 3 || entry == std::string::npos) continue;
    compiled.text.insert(compiled.text.find(')', entry) + 1,
                         "\n.reqntid " + items[0] + ", " + items[1] + ", " + items[2]);
  }
}

Compiled compile_anew(const std::string& source, const std::string& options) {
  const Unnamed input, output, errors;
  input.fill(source);
  const bool works = run_clang(options, input, output, errors);
  Compiled compiled;
  compiled.log = errors.text();
  const auto dump = compiled.log.find("; *** IR Dump");
  if (works) {
    compiled.text = output.text();
    if (dump != std::string::npos) add_attributes(compiled, compiled.log.substr(dump));
  }
  // A backend's error stands behind the dump, of which the last lines begin with "!".
  if (dump != std::string::npos) {
    const auto last = compiled.log.rfind("\n!");
    const auto end = compiled.log.find('\n', last == std::string::npos ? dump : last + 1);
    compiled.log.erase(dump, end == std::string::npos ? end : end + 1 - dump);
  }
  if (!works && compiled.log.empty()) compiled.log = TESSERA_CLANG_19 " did not run";
  return compiled;
}

}  // namespace

std::shared_ptr<const Compiled> compile(const std::string& source, const std::string& options) {
  static auto& mutex = *new std::mutex;
  static auto& known = *new std::map<std::string, std::shared_ptr<const Compiled>>;
  const std::string key = options + '\n' + source;
  {
    std::lock_guard lock(mutex);
    const auto found = known.find(key);
    if (found != known.end()) return found->second;
  }
  auto compiled = std::make_shared<const Compiled>(compile_anew(source, options));
  // Files that it may include do not change while tests run.
  std::lock_guard lock(mutex);
  known[key] = compiled;
  return compiled;
}

}  // namespace tessera_driver
