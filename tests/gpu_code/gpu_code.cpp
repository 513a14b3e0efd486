// SPDX-License-Identifier: Apache-2.0
// Lists what a GPU that is not here is asked to compile, for scripts/gpu_code.py: writes
// FOLDER/ENGINE/FILE of every kernel file, its includes resolved, and a line for each program:
// engine, file, kernels, work-items of a program whose PTX is patched, options.
// usage: gpu_code MACHINE FOLDER [KERNELS]   (KERNELS: a folder like cl_kernels with changed files)
//        gpu_code --patch WORK_ITEMS         (PTX on stdin; for sm_90a on stdout)
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "host/engines/gates.hpp"
#include "host/engines/wgmma_probe.hpp"
#include "host/opencl/embedded_kernels.hpp"
#include "host/opencl/ptx.hpp"
#include "host/opencl/runtime.hpp"
#include "host/operators/bind.hpp"
#include "host/operators/opencl_operator.hpp"
#include "tessera/context.hpp"

namespace {

namespace fs = std::filesystem;
using namespace tessera;
using operators::Call;

constexpr std::array types = {DType::f32, DType::bf16, DType::f16};
/// Calls with options drawn at random, beside the plain ones. Twice as many find no other value of
/// an option but for a tile that an H100 takes with too little memory alone.
constexpr int calls_of_pass = 800;

/// Chooses among possibilities for each part of a call: the first throughout, or at random, and
/// then the first in half of all cases at least.
class Draw {
 public:
  Draw(std::uint32_t seed, bool is_plain) : state_(seed), is_plain_(is_plain) {}
  std::size_t of(std::size_t count) {
    if (is_plain_ || next() % 2 == 0) return 0;
    return next() % count;
  }
  bool one() { return of(2) == 1; }  ///< true in one case of four

 private:
  std::uint32_t next() {
    state_ = state_ * 1664525u + 1013904223u;  // Numerical Recipes' generator: any spread will do
    return state_ >> 16;
  }
  std::uint32_t state_;
  bool is_plain_;
};

/// Types, layout and rows decide over tiles and schedules.
struct Frame {
  DType x, w;
  bool w_is_vh;
  std::int64_t b;
};

class Maker {
 public:
  Maker(const operators::Description& op, Pass pass, const Frame& frame, Draw draw)
      : frame_(frame), draw_(draw), call_(op, pass), h_(draw_.one() ? 1001 : 4096) {}

  Call make() {
    set_options();
    take_inputs();
    take_results();
    if (draw_.one()) call_.workspace_bytes = std::size_t{1} << (draw_.one() ? 22 : 26);
    return call_;
  }

 private:
  static constexpr std::int64_t v = 32768, teacher_h = 2048, target_pairs = 4;

  Dims extents_of(const SymbolicShape& shape) const {
    return shape.extents({frame_.b}, reduced_, [&](char letter) -> std::int64_t {
      if (letter == 'V' || letter == 'T') return v;
      if (letter == 'G') return teacher_h;
      return letter == 'K' ? target_pairs : h_;
    });
  }
  DType type_of(const operators::Input& input) {
    if (input.types == ElementTypes::integer) return draw_.one() ? DType::i64 : DType::i32;
    if (input.types == ElementTypes::f32) return DType::f32;
    if (input.is_weight()) return frame_.w;
    const bool is_matrix = input.shape.has_leading() && input.shape.rank() > 0;
    return is_matrix ? frame_.x : types.at(draw_.of(types.size()));
  }
  /// Leaves gaps between elements in one array of eight.
  MutableView array(DType type, const Dims& extents, bool is_weight) {
    Dims strides = contiguous_strides(extents);
    if (is_weight && frame_.w_is_vh) strides = {1, extents[0]};
    if (draw_.of(4) == 1) {
      Dims wider;
      for (const auto stride : strides) wider.push_back(2 * stride);
      strides = wider;
    }
    return MutableView::host(nullptr, type, extents, strides);
  }

  void set_options() {
    const auto& op = *call_.op;
    for (std::size_t i = 0; i < op.options.size(); ++i) {
      const auto& option = op.options[i];
      auto& value = call_.options[i];
      if (option.kind == OptionKind::number && draw_.one()) value = 0.5f;
      if (option.kind == OptionKind::choice) {
        const auto place = static_cast<std::int64_t>(draw_.of(option.choices.size()));
        if (place != 0) value = place;
        const bool is_reduction = std::string_view(option.name) == "reduction";
        if (is_reduction) reduced_ = option.choices[place_of(value)] != std::string_view("none");
      }
      if (option.kind == OptionKind::dtype && draw_.one()) {
        value = static_cast<std::int64_t>(types.at(draw_.of(2)));
      }
    }
    if (call_.pass == Pass::forward_partial) call_.set("vocab_size_total", v);
  }
  static std::size_t place_of(const OptionValue& value) {
    return static_cast<std::size_t>(std::get<std::int64_t>(value));
  }

  /// Takes one of several that stand for each other: labels or soft targets, a teacher or its
  /// logits, statistics or the lse.
  void take_inputs() {
    const std::size_t targets = draw_.of(3);
    const bool usual = !draw_.one(), lse = draw_.one();
    for (std::size_t i = 0; i < call_.inputs.size(); ++i) {
      const auto& input = call_.op->inputs[i];
      const std::string_view name = input.name;
      const auto is_taken = [&] {
        switch (input.reads) {
          case Reads::always:
            return name != "labels" || targets == 0;
          case Reads::usually:
            return usual;
          case Reads::in_place_of_usual:
            return !usual;
          case Reads::in_place_of_labels:
            return name == "targets" ? targets == 1 : targets == 2;
          case Reads::by_backward:
            return true;
          case Reads::in_backward:
            return lse == (name == "lse");
          case Reads::where_given:
          case Reads::with_gradients:
          case Reads::saved_besides:
            return draw_.one();
        }
        return false;
      };
      if (!reads_in(call_.pass, input.reads) || !is_taken()) continue;
      call_.inputs[i] = array(type_of(input), extents_of(input.shape), input.is_weight());
    }
  }

  void take_results() {
    const auto& op = *call_.op;
    const bool has_values = call_.pass == Pass::forward || call_.pass == Pass::value_and_grad;
    for (std::size_t i = 0; has_values && i < op.outputs.size(); ++i) {
      if (i > 0 && !draw_.one()) continue;
      const auto& output = op.outputs[i];
      DType type = i == 0 && output.types == ElementTypes::floating ? frame_.x : DType::f32;
      if (output.types == ElementTypes::integer) type = DType::i32;
      call_.outputs[i] = array(type, extents_of(output.shape), false);
    }
    const bool add = draw_.one();
    for (std::size_t i = 0; has_gradients(call_.pass) && i < op.gradients.size(); ++i) {
      const auto& of = call_.inputs[op.gradients[i].of];
      if (!of || draw_.of(4) == 1) continue;
      const DType type =
          draw_.one() ? types.at(draw_.of(3)) : op.gradients[i].type.value_or(of.dtype());
      call_.gradients[i] = array(type, of.extents(), op.inputs[op.gradients[i].of].is_weight());
      call_.accumulate[i] = add;
    }
  }

  Frame frame_;
  Draw draw_;
  Call call_;
  std::int64_t h_;
  bool reduced_ = true;
};

struct Program {
  std::string engine, file, options;
  std::int64_t patched_items;
  auto operator<=>(const Program&) const = default;
};

class Lister {
 public:
  explicit Lister(const std::string& machine)
      : context_({.plan_for = machine, .warning_handler = [](const std::string&) {}}) {}

  std::map<Program, std::set<std::string>> all() {
    for (const auto& op : operators::descriptions()) {
      for (const Pass pass : op.passes) add_calls(op, pass);
    }
    add_probe();
    fmt::print(stderr, "{} calls, {} of them served\n", calls_, served_);
    return std::move(programs_);
  }

 private:
  /// Plain calls of all types and layouts, of many tokens and of few, and others.
  void add_calls(const operators::Description& op, Pass pass) {
    for (const std::int64_t b : {8192, 64, 16}) {
      for (const DType type : types) {
        for (const bool vh : {true, false}) add({op, pass, {type, type, vh, b}, Draw(0, true)});
      }
    }
    for (int i = 0; i < calls_of_pass; ++i) {
      Draw draw(static_cast<std::uint32_t>(i), false);
      constexpr std::array<std::int64_t, 4> rows = {8192, 64, 16, 512};
      const auto place = static_cast<std::size_t>(i);
      const DType x = types[place % 3], w = draw.of(4) == 1 ? types.at(draw.of(3)) : x;
      add({op, pass, {x, w, !draw.one(), rows[place / 3 % 4]}, draw});
    }
  }

  void add(Maker maker) {
    ++calls_;
    try {
      operators::with_checked(context_, maker.make(), operators::Form::question,
                              [&](operators::Request& request) { return add(request); });
    } catch (const Error& error) {
      // Options that do not go together, or no room for what they need.
      constexpr std::array expected = {ErrorCode::invalid_argument, ErrorCode::unsupported,
                                       ErrorCode::workspace_too_small, ErrorCode::out_of_memory};
      if (std::find(expected.begin(), expected.end(), error.code()) == expected.end()) throw;
    }
  }
  bool add(operators::Request& request) {
    for (const auto& row : request.call.op->behind().table()) {
      if (!row->name().starts_with("opencl.") || row->why_unsupported(context_.state(), request)) {
        continue;
      }
      for (const auto& [program, kernel] : operators::kernels_of(*row, context_.state(), request)) {
        programs_[{program.engine, program.file, program.options, program.patched_items}].insert(
            kernel);
      }
      ++served_;
    }
    return true;
  }

  void add_probe() {
    if (engines::capability(opencl::runtime_of(context_.state())->facts()) != engines::hopper)
      return;
    for (const bool a_by_k : {false, true}) {
      const auto program = engines::wgmma_probe(a_by_k);
      programs_[{program.engine, program.file, program.options, program.patched_items}] = {
          "make_map", "probe"};
    }
  }

  Context context_;
  std::map<Program, std::set<std::string>> programs_;
  int calls_ = 0, served_ = 0;
};

void override_kernels(const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream stream(entry.path());
    opencl::override_embedded_kernel(fs::relative(entry.path(), folder).generic_string(),
                                     std::string(std::istreambuf_iterator<char>(stream), {}));
  }
}

void list(const std::string& machine, const fs::path& folder) {
  std::set<std::pair<std::string, std::string>> written;
  for (const auto& [program, kernels] : Lister(machine).all()) {
    const auto& [engine, file, options, patched_items] = program;
    if (written.emplace(engine, file).second) {
      const auto to = folder / engine / file;
      fs::create_directories(to.parent_path());
      std::ofstream stream(to);
      stream << opencl::assemble_source(file, engine);
      if (!stream.flush()) throw fs::filesystem_error("cannot write", to, {});
    }
    fmt::print("{}\t{}\t{}\t{}\t{}\n", engine, file, fmt::join(kernels, " "), patched_items,
               options);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string first = argc > 1 ? argv[1] : "";
    if (first == "--patch" && argc == 3) {
      const std::string text(std::istreambuf_iterator<char>(std::cin), {});
      std::cout << opencl::to_sm_90a(text, std::stoll(argv[2])).text;
    } else if (argc == 3 || argc == 4) {
      if (argc == 4) override_kernels(argv[3]);
      list(first, argv[2]);
    } else {
      std::fprintf(stderr, "usage: gpu_code MACHINE FOLDER [KERNELS] | --patch WORK_ITEMS\n");
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_code: %s\n", error.what());
    return 1;
  }
  return 0;
}
