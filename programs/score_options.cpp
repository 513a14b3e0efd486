// SPDX-License-Identifier: Apache-2.0
#include "programs/score_options.hpp"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <iterator>
#include <string_view>

#include "programs/dump.hpp"
#include "programs/score_shards.hpp"
#include "programs/score_teacher.hpp"

namespace tessera::programs {

std::string option_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

namespace {

void require_absent(const CLI::App& app, const std::vector<std::string>& names,
                    const std::string& reason) {
  for (const auto& name : names) {
    if (app.count(name) > 0) fail_call(fmt::format("{}: {}", name, reason));
  }
}

void require_given(const CLI::App& app, const char* name, const std::string& reason) {
  if (app.count(name) == 0) fail_call(fmt::format("{} is missing: {}", name, reason));
}

/// Options of the arrays that --combine has no use for.
std::vector<std::string> of_calls_alone() {
  std::vector<std::string> options;
  for (const auto& array : array_options()) {
    constexpr std::string_view merged[] = {"labels",         "weight",       "class_weight",
                                           "target_indices", "target_probs", "targets"};
    if (std::find(std::begin(merged), std::end(merged), array.name) == std::end(merged)) {
      options.push_back(array.option);
    }
  }
  return options;
}

std::vector<const operators::Input*> operands_of(const Description& op) {
  std::vector<const operators::Input*> operands;
  for (const auto& input : op.inputs) {
    if (input.is_operand()) operands.push_back(&input);
  }
  return operands;
}

/// An operand that was not given, or nullptr.
const operators::Input* missing_of(const Description& op, const ScoreOptions& o) {
  for (const auto* operand : operands_of(op)) {
    if (!o.given(operand->name)) return operand;
  }
  return nullptr;
}

/// An array that was given and is none of the operator's, or nullptr.
const ArrayOption* foreign_to(const Description& op, const ScoreOptions& o) {
  for (const auto& array : array_options()) {
    if (o.given(array.name) && op.input(array.name) == nullptr) return &array;
  }
  return nullptr;
}

}  // namespace

const std::vector<ArrayOption>& array_options() {
  static const std::vector<ArrayOption> all = [] {
    // The order of the help and of reports; what is not here comes after it, as its traits say.
    std::vector<ArrayOption> options = {
        {"x", "", "hidden states [..., H]: f32, f16 or bf16"},
        {"w", "", "output weight, in the layout of --w-layout"},
        {"logits", "", "logits [..., V] that already exist, instead of --x and --w"},
        {"labels", "", "[...], i32 or i64"},
        {"target_indices", "", "words of soft targets [..., K], i32 or i64, instead of --labels"},
        {"target_probs", "", "their probabilities [..., K]"},
        {"targets", "", "a probability of every word [..., V], instead of --labels"},
        {"bias", "", "[V]"},
        {"weight", "", "per-token weights [...]"},
        {"class_weight", "", "[V]; on a shard, of the whole vocabulary"},
        {"dloss", "", "cotangent of the loss, in its shape (ones)"},
        {"dlse", "", "cotangent of lse, [...] (zeros)"}};
    for (const auto& op : losses()) {
      for (const auto& input : op.inputs) {
        // Those of backward alone are read from the folder of --statistics.
        if (!reads_in(Pass::value_and_grad, input.reads)) continue;
        auto at = std::find_if(options.begin(), options.end(),
                               [&](const auto& each) { return each.name == input.name; });
        if (at == options.end()) {
          at = options.insert(
              at, {input.name, "", fmt::format("{} of {}", input.shape.text(), op.name)});
        }
        at->option = option_of(input.name);
        at->integer = input.types == ElementTypes::integer;
        at->with_gradients = input.reads == Reads::with_gradients;
      }
    }
    return options;
  }();
  return all;
}

const Description& ScoreOptions::op() const {
  const auto& all = losses();
  const auto first_of = [&](const auto& fits) {
    return std::find_if(all.begin(), all.end(), fits);
  };
  auto found =
      first_of([&](const auto& op) { return !missing_of(op, *this) && !foreign_to(op, *this); });
  // None: what is wrong is said of the operator that could take everything given, or of the one
  // that needs the least, which has it all.
  if (found == all.end()) found = first_of([&](const auto& op) { return !foreign_to(op, *this); });
  if (found == all.end()) {
    for (auto op = all.begin(); op != all.end(); ++op) {
      if (missing_of(*op, *this)) continue;
      if (found == all.end() || operands_of(*op).size() < operands_of(*found).size()) found = op;
    }
  }
  return found == all.end() ? all.front() : *found;
}

ScoreMode ScoreOptions::mode() const {
  if (!combine.empty()) return ScoreMode::combine;
  if (!statistics.empty()) return ScoreMode::backward;
  if (grad) return ScoreMode::value_and_grad;
  return values.contains("vocab_size_total") ? ScoreMode::shard : ScoreMode::forward;
}

LossOptions ScoreOptions::loss_options() const {
  LossOptions result;
  set_given(*this, all_loss_options<LossOptions>, result);
  return result;
}

std::string text_of(const OptionValue& value, std::span<const char* const> choices) {
  if (!choices.empty()) return choices[static_cast<std::size_t>(std::get<std::int64_t>(value))];
  return to_string(value);
}

CLI::Option* add_value(CLI::App& app, const std::string& name, const std::string& help,
                       const OptionValue& standard, std::span<const char* const> choices,
                       std::map<std::string, OptionValue>& values) {
  const std::string option = option_of(name);
  const std::string text = fmt::format("{} ({})", help, text_of(standard, choices));
  if (!choices.empty()) {
    return add_choice(
        app, option, {choices.begin(), choices.end()},
        [&values, name](std::size_t at) { values[name] = static_cast<std::int64_t>(at); }, text);
  }
  if (std::holds_alternative<float>(standard)) {
    return add_number(
        app, option, [&values, name](float given) { values[name] = given; }, text);
  }
  return add_integer(
      app, option, [&values, name](std::int64_t given) { values[name] = given; }, text);
}

namespace {

void add_files(CLI::App& app, ScoreOptions& o, bool with_gradients, const std::string& group) {
  for (const auto& array : array_options()) {
    if (array.with_gradients != with_gradients) continue;
    app.add_option(array.option, o.files[array.name], array.description)
        ->type_name("FILE.npy")
        ->group(group);
  }
}

void add_array_options(CLI::App& app, ScoreOptions& o) {
  const std::string group = "Arrays";
  add_files(app, o, false, group);
  add_choice<std::optional<bool>>(app, "--w-layout", o.w_is_vh, {{"hv", false}, {"vh", true}},
                                  "[H, V] (default) or [V, H], as PyTorch keeps it")
      ->group(group);
  app.add_flag("--bf16-bits", o.bf16_bits, "read <u2 as bf16, and write bf16 as <u2 instead of <V2")
      ->group(group);
  app.add_option("--out", o.out, "folder to write to; created where it is missing")
      ->type_name("DIR")
      ->group(group);
}

/// Options of every loss that are of shards, or are not.
std::vector<OptionArgument<LossOptions>> loss_options_of(bool shards) {
  std::vector<OptionArgument<LossOptions>> result;
  for (const auto& option : all_loss_options<LossOptions>) {
    if (std::string_view(option.name).starts_with("vocab_") == shards) result.push_back(option);
  }
  return result;
}

void add_gradient_options(CLI::App& app, ScoreOptions& o) {
  const std::string group = "Gradients";
  app.add_flag("--grad", o.grad, "write gradients too")->group(group);
  add_files(app, o, true, group);
  app.add_option_function<std::string>(
         "--grad-dtype",
         [&o](const std::string& text) {
           for (const char* name : {"f32", "bf16", "f16", "same"}) {
             if (text == name) {
               o.grad_dtype = text;
               return;
             }
           }
           fail_choice("--grad-dtype", text, {"f32", "bf16", "f16", "same"});
         },
         "type of the gradients; same (default): that of x, of w, of the logits, and f32 for "
         "the bias")
      ->type_name("f32|bf16|f16|same")
      ->group(group);
}

void add_shard_options(CLI::App& app, ScoreOptions& o) {
  const std::string group = "Shards of the vocabulary";
  add_described(app, o, loss_options_of(true), group);
  app.get_option("--vocab-size-total")
      ->description(
          "columns of the whole: this run is a shard of it and writes partial_<field>.npy");
  add_list(
      app, "--combine", o.combine,
      "folders of shards to merge into the ordinary outputs; takes --labels (or soft targets), "
      "--weight, --class-weight and the loss options of the whole")
      ->type_name("DIR1[,DIR2...]")
      ->group(group);
  app.add_option("--statistics", o.statistics,
                 "the --out of a --combine: write only gradients, from its merged statistics")
      ->type_name("DIR")
      ->group(group);
}

void add_execution_options(CLI::App& app, ScoreOptions& o) {
  const std::string group = "Execution (no effect on results beyond rounding)";
  add_list(app, "--implementation", o.implementation,
           "implementations to try, in this order (opencl,eigen)")
      ->group(group);
  app.add_option("--device", o.device, "text in a platform's or device's name, P:D, or a TPU (v6e)")
      ->type_name("TEXT")
      ->group(group);
  app.add_option_function<std::string>(
         "--block-sizes",
         [&o](const std::string& text) {
           o.block_sizes = parse_integers("--block-sizes", text, ',');
         },
         "rows, depth and columns of a block; with --logits B,V")
      ->type_name("B,H,V")
      ->group(group);
  add_integer(app, "--workspace-bytes", o.workspace_bytes, "upper bound on scratch memory")
      ->group(group);
  app.add_option("--trace", o.trace,
                 "file for a trace of both calls, the first of which compiles: kernels, copies, "
                 "waits, for ui.perfetto.dev")
      ->type_name("FILE")
      ->group(group);
  add_dump(app, o.dump)->group(group);
}

/// "x, w and bias"
std::string join_names(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  }
  return text;
}

/// An operator's calls take `option` instead of which `op` has its own operands.
[[noreturn]] void fail_foreign(const Description& op, const Description& owner,
                               const std::string& option) {
  std::vector<std::string> replaced;
  for (const auto& input : owner.inputs) {
    if (op.input(input.name) == nullptr) replaced.push_back(input.name);
  }
  fail_call(fmt::format("{}: does not go with {}, which replaces {}; leave one out", option,
                        option_of(operands_of(op).front()->name), join_names(replaced)));
}

/// That the arrays are those of one operator, and all of those that it has to have.
void check_arrays(const ScoreOptions& o) {
  const auto& all = losses();
  if (o.has_teacher() && o.given("class_weight")) {
    fail_call("--class-weight is not taken with a teacher; leave it out");
  }
  const Description& op = o.op();
  if (const auto* missing = missing_of(op, o)) {
    std::string alternatives;
    for (const auto& each : all) {
      std::vector<std::string> options;
      for (const auto* operand : operands_of(each)) options.push_back(option_of(operand->name));
      const std::string names = join_names(options);
      if (alternatives.find(names) != std::string::npos) continue;  // another operator has these
      alternatives += (alternatives.empty() ? "give " : ", or ") + names;
    }
    fail_call(fmt::format("{} is missing: {}", option_of(missing->name), alternatives));
  }
  if (const auto* foreign = foreign_to(op, o)) {
    for (const auto& owner : all) {
      if (owner.input(foreign->name) != nullptr) fail_foreign(op, owner, foreign->option);
    }
  }
  if (o.w_is_vh && !op.has_weights()) {
    for (const auto& owner : all) {
      if (owner.has_weights()) fail_foreign(op, owner, "--w-layout");
    }
  }
}

}  // namespace

void add_score_options(CLI::App& app, ScoreOptions& o) {
  add_array_options(app, o);
  add_described(app, o, loss_options_of(false), "Loss");
  add_teacher_options(app, o);
  add_gradient_options(app, o);
  add_shard_options(app, o);
  add_execution_options(app, o);
}

void check_score_options(const CLI::App& app, const ScoreOptions& o) {
  // An empty text is what an unset shell variable leaves behind.
  for (const auto* option : app.get_options()) {
    if (option->count() > 0 && option->get_expected_max() > 0 && option->results().at(0).empty()) {
      fail_call(
          fmt::format("{} is empty; give a value or leave the option out", option->get_name()));
    }
  }
  require_given(app, "--out", "give the folder to write to");
  const bool soft = o.given("targets") || o.given("target_indices") || o.given("target_probs");
  // A teacher may be all that a student follows; whether it is, the call checks.
  const bool had_teacher = !o.combine.empty() && have_teacher(o.combine);
  if (!soft && !o.has_teacher() && !had_teacher) {
    require_given(app, "--labels", "give the labels, i32 or i64");
  }
  if (o.mode() == ScoreMode::combine) {
    std::vector<std::string> others = of_calls_alone();
    others.insert(others.end(), {"--w-layout", "--grad", "--grad-dtype", "--statistics",
                                 "--vocab-offset", "--trace", "--dump"});
    others.push_back("--teacher-w-layout");
    require_absent(app, others,
                   "does not go with --combine, which merges what the shards wrote; leave it out");
    if (!had_teacher) check_teacher_options(app, "the shards had none");
  } else {
    check_arrays(o);
    if (!o.has_teacher()) {
      check_teacher_options(app, "give --teacher-x and --teacher-w, or --teacher-logits");
    }
    check_beta(o);
    if (o.teacher_w_is_vh && !o.given("teacher_w")) {
      fail_call("--teacher-w-layout is of --teacher-w, which is not given; leave it out");
    }
  }
  if (!o.grad) {
    std::vector<std::string> gradients;
    for (const auto& array : array_options()) {
      if (array.with_gradients) gradients.push_back(array.option);
    }
    gradients.insert(gradients.end(), {"--grad-dtype", "--statistics"});
    require_absent(app, gradients, "goes with --grad only; add --grad");
  }
  const LossOptions loss = o.loss_options();
  const bool is_shard = o.values.contains("vocab_size_total");
  if (!is_shard) {
    require_absent(app, {"--vocab-offset"},
                   "needs --vocab-size-total, the columns of the whole vocabulary");
  } else if (loss.vocab_size_total < 1) {
    fail_call(fmt::format("--vocab-size-total {} is below 1; give the columns of the whole",
                          loss.vocab_size_total));
  }
  if (loss.vocab_offset < 0) {
    fail_call(fmt::format("--vocab-offset {} is negative; give the shard's first column",
                          loss.vocab_offset));
  }
  if (o.mode() == ScoreMode::value_and_grad && is_shard) {
    fail_call(
        "--grad with --vocab-size-total needs --statistics: a shard does not know the other "
        "shards' sums; run all shards without --grad, --combine them, and pass the combined "
        "folder as --statistics");
  }
  if (o.workspace_bytes && *o.workspace_bytes < 0) {
    fail_call(fmt::format("--workspace-bytes {} is negative; give a number of bytes",
                          *o.workspace_bytes));
  }
  if (!o.block_sizes.empty() && !named_blocks(o.op(), o.block_sizes)) {
    const Description& op = o.op();
    fail_call(fmt::format("--block-sizes takes {} numbers, {}{}, {} were given",
                          op.block_sizes.size() == 2 ? "two" : "three", block_sizes_text(op),
                          op.has_letter('H') ? ""
                                             : fmt::format(" (or three, of which H has no meaning "
                                                           "for {})",
                                                           operands_of(op).front()->name),
                          o.block_sizes.size()));
  }
}

}  // namespace tessera::programs
