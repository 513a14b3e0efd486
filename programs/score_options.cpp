// SPDX-License-Identifier: Apache-2.0
#include "programs/score_options.hpp"

#include <fmt/format.h>

#include <initializer_list>

#include "programs/cli.hpp"

namespace tessera::programs {
namespace {

void require_absent(const CLI::App& app, std::initializer_list<const char*> names,
                    const std::string& reason) {
  for (const char* name : names) {
    if (app.count(name) > 0) fail_call(fmt::format("{}: {}", name, reason));
  }
}

void require_given(const CLI::App& app, std::initializer_list<const char*> names,
                   const std::string& reason) {
  for (const char* name : names) {
    if (app.count(name) == 0) fail_call(fmt::format("{} is missing: {}", name, reason));
  }
}

}  // namespace

ScoreMode ScoreOptions::mode() const {
  if (!combine.empty()) return ScoreMode::combine;
  if (!statistics.empty()) return ScoreMode::backward;
  if (grad) return ScoreMode::value_and_grad;
  return vocab_size_total ? ScoreMode::shard : ScoreMode::forward;
}

LossOptions ScoreOptions::loss_options() const {
  LossOptions result;
  result.logsumexp_weight = logsumexp_weight.value_or(result.logsumexp_weight);
  result.logit_scale = logit_scale.value_or(result.logit_scale);
  result.logit_soft_cap = logit_soft_cap.value_or(result.logit_soft_cap);
  result.label_smoothing = label_smoothing.value_or(result.label_smoothing);
  result.ignore_index = ignore_index.value_or(result.ignore_index);
  result.reduction = reduction;
  result.vocab_offset = vocab_offset.value_or(0);
  result.vocab_size_total = vocab_size_total.value_or(0);
  return result;
}

namespace {

CLI::Option* add_file(CLI::App& app, const char* name, std::string& target,
                      const char* description) {
  return app.add_option(name, target, description)->type_name("FILE.npy");
}

void add_array_options(CLI::App& app, ScoreOptions& o) {
  const std::string group = "Arrays";
  add_file(app, "--x", o.x, "hidden states [..., H]: f32, f16 or bf16")->group(group);
  add_file(app, "--w", o.w, "output weight, in the layout of --w-layout")->group(group);
  add_choice<std::optional<bool>>(app, "--w-layout", o.w_is_vh, {{"hv", false}, {"vh", true}},
                                  "[H, V] (default) or [V, H], as PyTorch keeps it")
      ->group(group);
  add_file(app, "--logits", o.logits, "logits [..., V] that already exist, instead of --x and --w")
      ->group(group);
  add_file(app, "--labels", o.labels, "[...], i32 or i64")->group(group);
  add_file(app, "--bias", o.bias, "[V]")->group(group);
  add_file(app, "--weight", o.weight, "per-token weights [...]")->group(group);
  add_file(app, "--class-weight", o.class_weight, "[V]; on a shard, of the whole vocabulary")
      ->group(group);
  app.add_flag("--bf16-bits", o.bf16_bits, "read <u2 as bf16, and write bf16 as <u2 instead of <V2")
      ->group(group);
  app.add_option("--out", o.out, "folder to write to; created where it is missing")
      ->type_name("DIR")
      ->group(group);
}

void add_loss_options(CLI::App& app, ScoreOptions& o) {
  const std::string group = "Loss";
  add_number(app, "--logsumexp-weight", o.logsumexp_weight, "weight of the z-loss, lse^2 (0)")
      ->group(group);
  add_number(app, "--logit-scale", o.logit_scale, "multiplies the logits (1)")->group(group);
  add_number(app, "--logit-soft-cap", o.logit_soft_cap, "cap * tanh(logit / cap); 0: off (0)")
      ->group(group);
  add_number(app, "--label-smoothing", o.label_smoothing, "in [0, 1] (0)")->group(group);
  add_integer(app, "--ignore-index", o.ignore_index, "rows with this label do not count (-100)")
      ->group(group);
  add_choice<Reduction>(
      app, "--reduction", o.reduction,
      {{"none", Reduction::none}, {"sum", Reduction::sum}, {"mean", Reduction::mean}},
      "how per-token losses become the loss (mean)")
      ->group(group);
}

void add_gradient_options(CLI::App& app, ScoreOptions& o) {
  const std::string group = "Gradients";
  app.add_flag("--grad", o.grad, "write gradients too")->group(group);
  add_file(app, "--dloss", o.dloss, "cotangent of the loss, in its shape (ones)")->group(group);
  add_file(app, "--dlse", o.dlse, "cotangent of lse, [...] (zeros)")->group(group);
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
  add_integer(app, "--vocab-size-total", o.vocab_size_total,
              "columns of the whole: this run is a shard of it and writes partial_<field>.npy")
      ->group(group);
  add_integer(app, "--vocab-offset", o.vocab_offset, "first column of this shard (0)")
      ->group(group);
  add_list(app, "--combine", o.combine,
           "folders of shards to merge into the ordinary outputs; takes --labels, --weight, "
           "--class-weight and the loss options of the whole")
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
}

}  // namespace

void add_score_options(CLI::App& app, ScoreOptions& o) {
  add_array_options(app, o);
  add_loss_options(app, o);
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
  require_given(app, {"--out"}, "give the folder to write to");
  require_given(app, {"--labels"}, "give the labels, i32 or i64");
  if (o.mode() == ScoreMode::combine) {
    require_absent(app,
                   {"--x", "--w", "--logits", "--bias", "--w-layout", "--grad", "--dloss", "--dlse",
                    "--grad-dtype", "--statistics", "--vocab-offset"},
                   "does not go with --combine, which merges what the shards wrote; leave it out");
  } else if (o.uses_logits()) {
    require_absent(app, {"--x", "--w", "--bias", "--w-layout"},
                   "does not go with --logits, which replaces x, w and bias; leave one out");
  } else {
    require_given(app, {"--x", "--w"}, "give --x and --w, or --logits");
  }
  if (!o.grad) {
    require_absent(app, {"--dloss", "--dlse", "--grad-dtype", "--statistics"},
                   "goes with --grad only; add --grad");
  }
  if (!o.vocab_size_total) {
    require_absent(app, {"--vocab-offset"},
                   "needs --vocab-size-total, the columns of the whole vocabulary");
  } else if (*o.vocab_size_total < 1) {
    fail_call(fmt::format("--vocab-size-total {} is below 1; give the columns of the whole",
                          *o.vocab_size_total));
  }
  if (o.vocab_offset && *o.vocab_offset < 0) {
    fail_call(fmt::format("--vocab-offset {} is negative; give the shard's first column",
                          *o.vocab_offset));
  }
  if (o.mode() == ScoreMode::value_and_grad && o.vocab_size_total) {
    fail_call(
        "--grad with --vocab-size-total needs --statistics: a shard does not know the other "
        "shards' sums; run all shards without --grad, --combine them, and pass the combined "
        "folder as --statistics");
  }
  if (o.workspace_bytes && *o.workspace_bytes < 0) {
    fail_call(fmt::format("--workspace-bytes {} is negative; give a number of bytes",
                          *o.workspace_bytes));
  }
  if (!o.block_sizes.empty() && o.block_sizes.size() != 3 &&
      !(o.uses_logits() && o.block_sizes.size() == 2)) {
    fail_call(fmt::format("--block-sizes takes {}, {} were given",
                          o.uses_logits() ? "two numbers, B,V (or three, of which H has no meaning "
                                            "for logits)"
                                          : "three numbers, B,H,V",
                          o.block_sizes.size()));
  }
}

}  // namespace tessera::programs
