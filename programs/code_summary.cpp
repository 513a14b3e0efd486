// SPDX-License-Identifier: Apache-2.0
#include "programs/code_summary.hpp"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <map>
#include <optional>

namespace tessera::programs {
namespace {

struct Instruction {
  std::int64_t address = 0;  ///< of PTX, the number of the instruction
  std::string_view name{}, operands{};
  std::int64_t target = -1;  ///< where it may jump to
};

struct Function {
  std::string_view name;
  std::int64_t begin = 0, end = 0;
  std::vector<Instruction> code{};
};

bool begins_with(std::string_view text, std::initializer_list<std::string_view> with) {
  return std::any_of(with.begin(), with.end(), [&](auto each) { return text.starts_with(each); });
}

bool contains(std::string_view text, std::initializer_list<std::string_view> any) {
  return std::any_of(any.begin(), any.end(),
                     [&](auto each) { return text.find(each) != std::string_view::npos; });
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// Calls `body` with each line, without its end.
template <class Body>
void each_line(std::string_view text, const Body& body) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    body(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// The hexadecimal number that a text begins with; -1: none.
std::int64_t hexadecimal(std::string_view text) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  std::int64_t value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

// -- x86, as AT&T writes it: the last operand is written.

/// Splits "0x40(%rsi,%rax,4),%zmm1" into its two operands.
std::vector<std::string_view> operands_of(std::string_view text) {
  std::vector<std::string_view> all;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      all.push_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    } else if (text[i] == '(') {
      ++depth;
    } else if (text[i] == ')') {
      --depth;
    }
  }
  return all;
}

void count_x86(const Instruction& each, bool has_frame, InstructionMix& mix) {
  std::string_view name = each.name;
  const auto operands = operands_of(each.operands);
  const auto in_memory = [](std::string_view operand) {
    return operand.find('(') != std::string_view::npos;
  };
  const bool touches = !begins_with(name, {"lea", "nop", "prefetch", "j", "call"});
  const bool writes = touches && in_memory(operands.back()) &&
                      !begins_with(name, {"cmp", "test", "vcomis", "vucomis", "bt"});
  const bool reads =
      touches && std::any_of(operands.begin(), operands.end() - (writes ? 1 : 0), in_memory);
  ++mix.all;
  if (reads) ++mix.reads;
  for (const auto& [register_name, bits] : std::initializer_list<std::pair<std::string_view, int>>{
           {"%zmm", 512}, {"%ymm", 256}, {"%xmm", 128}}) {
    if (!contains(each.operands, {register_name})) continue;
    mix.vector_bits = std::max(mix.vector_bits, bits);
    const bool on_stack =
        contains(each.operands, {"(%rsp"}) || (has_frame && contains(each.operands, {"(%rbp"}));
    if (on_stack && writes) ++mix.spill_stores;
    if (on_stack && reads) ++mix.spill_loads;
    break;
  }
  const bool is_vex = name.starts_with('v');
  if (is_vex) name.remove_prefix(1);
  // "Scalar" ones (..ss) too: a loop that was not vectorised multiplies so.
  if (begins_with(name, {"fm", "fnm", "dp", "pdp", "mulps", "mulss", "mulpd", "mulsd"})) {
    ++mix.multiplications;
    if (contains(each.operands, {"{1to"})) ++mix.broadcasts;
  } else if (begins_with(name, {"broadcast", "pbroadcast"})) {
    ++mix.broadcasts;
  } else if (begins_with(name, {"perm", "pshuf", "shuf", "unpck", "punpck", "insert", "extract",
                                "pinsr", "pextr", "palign", "align", "movsldup", "movshdup",
                                "movddup", "movhlps", "movlhps", "pack"})) {
    ++mix.shuffles;
  } else if (writes) {
    ++mix.stores;
  } else if (reads && begins_with(name, {"mov", "pmov", "lddqu"})) {
    ++mix.loads;
  } else {
    ++mix.other;
  }
}

// -- PTX

void count_ptx(const Instruction& each, InstructionMix& mix) {
  const std::string_view name = each.name;
  ++mix.all;
  if (name.starts_with("ld.") || name.starts_with("ldmatrix")) ++mix.reads;
  // Addresses and indices are multiplied, too.
  const bool of_integers = contains(name, {".s32", ".u32", ".s64", ".u64", ".lo", ".wide"});
  if (!of_integers && begins_with(name, {"fma", "mad", "mul", "mma", "wmma.mma", "wgmma.mma"})) {
    ++mix.multiplications;
  } else if (name.starts_with("ld.local")) {
    ++mix.spill_loads;
  } else if (name.starts_with("st.local")) {
    ++mix.spill_stores;
  } else if (begins_with(name, {"ld.", "ldmatrix"})) {
    ++mix.loads;
  } else if (begins_with(name, {"shfl", "prmt"})) {
    ++mix.shuffles;
  } else if (name.starts_with("st.")) {
    ++mix.stores;
  } else {
    ++mix.other;
  }
  if (!begins_with(name, {"ld.", "st."})) return;
  const int width = contains(name, {".v4"}) ? 4 : contains(name, {".v2"}) ? 2 : 0;
  const int bits = contains(name, {"64"}) ? 64 : contains(name, {"32"}) ? 32 : 16;
  mix.vector_bits = std::max(mix.vector_bits, width * bits);
}

// -- Loops

struct Loop {
  std::int64_t begin, end;  ///< addresses of the first instruction and of the jump back
  bool contains(const Loop& other) const {
    return begin <= other.begin && other.end <= end && !(begin == other.begin && end == other.end);
  }
};

/// A jump back makes a loop; with those to the same place, one.
std::vector<Loop> innermost_loops(const Function& function) {
  std::map<std::int64_t, std::int64_t> ends;
  for (const auto& each : function.code) {
    if (each.target < function.begin || each.target > each.address) continue;
    auto& end = ends[each.target];
    end = std::max(end, each.address);
  }
  std::vector<Loop> loops, innermost;
  for (const auto& [begin, end] : ends) loops.push_back({begin, end});
  for (const auto& loop : loops) {
    const bool is_outer = std::any_of(loops.begin(), loops.end(),
                                      [&](const auto& other) { return loop.contains(other); });
    if (!is_outer) innermost.push_back(loop);
  }
  return innermost;
}

void add(InstructionMix& to, const InstructionMix& more) {
  to.all += more.all;
  to.multiplications += more.multiplications;
  to.loads += more.loads;
  to.broadcasts += more.broadcasts;
  to.shuffles += more.shuffles;
  to.stores += more.stores;
  to.other += more.other;
  to.reads += more.reads;
  to.spill_stores += more.spill_stores;
  to.spill_loads += more.spill_loads;
  to.vector_bits = std::max(to.vector_bits, more.vector_bits);
}

/// `count(instruction, function, mix)` counts an instruction.
template <class Count>
void add_loops(const Function& function, KernelCode& kernel, const Count& count) {
  for (const auto& loop : innermost_loops(function)) {
    InstructionMix mix;
    for (const auto& each : function.code) {
      if (each.address >= loop.begin && each.address <= loop.end) count(each, mix);
    }
    ++kernel.loops;
    const auto size = [](const InstructionMix& m) { return std::pair(m.multiplications, m.all); };
    if (size(mix) > size(kernel.loop)) std::swap(mix, kernel.loop);
    add(kernel.others, mix);
  }
}

/// Of PoCL's copies of a kernel the one that runs; other compilers have one.
bool is_copy(std::string_view function) {
  return function.starts_with("_pocl_kernel_") && !function.ends_with("_workgroup");
}

void add_function(const Function& function, KernelCode& kernel) {
  if (is_copy(function.name)) return;
  kernel.bytes += function.end - function.begin;
  const bool has_frame =
      std::any_of(function.code.begin(), function.code.end(), [](const auto& each) {
        return each.name.starts_with("mov") &&
               begins_with(each.operands, {"%rsp,%rbp", "%rsp, %rbp"});
      });
  add_loops(function, kernel,
            [&](const Instruction& each, InstructionMix& mix) { count_x86(each, has_frame, mix); });
}

Json to_json(const InstructionMix& mix) {
  Json json{{"instructions", mix.all},
            {"multiplications", mix.multiplications},
            {"loads", mix.loads},
            {"broadcasts", mix.broadcasts},
            {"shuffles", mix.shuffles},
            {"stores", mix.stores},
            {"other", mix.other},
            {"memory_reads", mix.reads},
            {"spill_stores", mix.spill_stores},
            {"spill_loads", mix.spill_loads},
            {"vector_bits", mix.vector_bits}};
  if (mix.multiplications > 0) {
    json["loads_per_multiplication"] =
        static_cast<double>(mix.reads) / static_cast<double>(mix.multiplications);
  }
  return json;
}

}  // namespace

std::vector<KernelCode> read_disassembly(std::string_view text) {
  std::vector<KernelCode> kernels;
  Function function;
  const auto end_function = [&](std::int64_t end) {
    if (kernels.empty() || function.code.empty()) return;
    function.end = end >= function.begin ? end : function.code.back().address + 1;
    if (kernels.back().is_known) add_function(function, kernels.back());
    function = {};
  };
  constexpr std::string_view header = "file format ";
  each_line(text, [&](std::string_view line) {
    const auto format = line.find(header);
    if (format != std::string_view::npos) {
      end_function(-1);
      const auto file = trimmed(line.substr(0, line.find(':')));
      kernels.push_back({.name = std::string(file.substr(0, file.find('.'))),
                         .file = std::string(file),
                         .is_known = contains(line.substr(format), {"x86-64"})});
    } else if (line.ends_with(">:")) {
      const auto begin = hexadecimal(line);
      end_function(begin);
      const auto name = line.find('<') + 1;
      function = {.name = line.substr(name, line.size() - name - 2), .begin = begin};
    } else if (const auto tab = line.find('\t'); tab != std::string_view::npos) {
      line = line.substr(0, line.find('#'));  // what objdump says of an address
      Instruction each{.address = hexadecimal(trimmed(line))};
      auto rest = trimmed(line.substr(tab));
      const auto name_end = std::min(rest.find_first_of(" \t"), rest.size());
      each.name = rest.substr(0, name_end);
      each.operands = trimmed(rest.substr(name_end));
      if (each.name.starts_with('j')) each.target = hexadecimal(each.operands);
      if (!each.name.empty()) function.code.push_back(each);
    }
  });
  end_function(-1);
  return kernels;
}

std::vector<KernelCode> read_ptx(std::string_view text) {
  std::vector<KernelCode> kernels;
  Function function;
  std::map<std::string_view, std::int64_t> labels;
  const auto end_function = [&] {
    if (kernels.empty() || function.code.empty()) return;
    for (auto& each : function.code) {
      if (!each.name.starts_with("bra")) continue;
      const auto label = labels.find(each.operands);
      if (label != labels.end()) each.target = label->second;
    }
    add_loops(function, kernels.back(),
              [](const Instruction& each, InstructionMix& mix) { count_ptx(each, mix); });
    function = {};
    labels.clear();
  };
  each_line(text, [&](std::string_view line) {
    line = trimmed(line.substr(0, line.find("//")));
    const auto entry = line.find(".entry ");
    if (entry != std::string_view::npos) {
      end_function();
      const auto name = trimmed(line.substr(entry + 7));
      kernels.push_back({.name = std::string(name.substr(0, name.find('(')))});
    } else if (line.starts_with('$') && line.ends_with(':')) {
      labels[line.substr(0, line.size() - 1)] = static_cast<std::int64_t>(function.code.size());
    } else if (line.ends_with(';') && !line.starts_with('.')) {
      line.remove_suffix(1);
      if (line.starts_with('@')) line = trimmed(line.substr(std::min(line.find(' '), line.size())));
      const auto name_end = std::min(line.find_first_of(" \t"), line.size());
      function.code.push_back({.address = static_cast<std::int64_t>(function.code.size()),
                               .name = line.substr(0, name_end),
                               .operands = trimmed(line.substr(name_end))});
    }
  });
  end_function();
  return kernels;
}

Json to_json(const KernelCode& code) {
  Json json{{"kernel", code.name}};
  if (!code.file.empty()) json["file"] = code.file;
  if (!code.is_known) {
    json["note"] = "instructions of x86 and PTX alone are known here; read disassembly.txt";
    return json;
  }
  json["spills"] = code.loop.spill_stores + code.loop.spill_loads > 0;
  if (code.bytes > 0) json["code_bytes"] = code.bytes;
  json["innermost_loops"] = code.loops;
  json["loop"] = to_json(code.loop);
  json["other_loops"] = to_json(code.others);
  return json;
}

}  // namespace tessera::programs
