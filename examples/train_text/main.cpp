// SPDX-License-Identifier: Apache-2.0
// Trains a small word-level language model on English text; the output layer's loss and gradients
// come from tessera. `train_text --help` lists the options.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>

#include "command_line.hpp"
#include "model.hpp"
#include "progress.hpp"
#include "tessera/profile.hpp"

namespace train_text {
namespace {

struct Options {
  std::vector<std::string> text;
  std::vector<std::string> implementation;
  std::string device;
  std::string out;
  std::string trace;
  std::int64_t profile_start_step = 5;
  std::int64_t profile_steps = 20;
  std::string dtype = "f32";
  std::int64_t steps = 0;
  double seconds = 0.0;
  std::int64_t batch = 512;
  std::int64_t min_count = 2;
  std::int64_t max_vocab = 0;
  std::int64_t eval_tokens = 8192;
  std::int64_t workspace_bytes = 0;
  double learning_rate = 3e-3;
  double logsumexp_weight = 1e-4;
  ModelOptions model;
};

void declare(CLI::App& app, Options& o) {
  app.add_option("--text", o.text, "text files (default: Debian's licence texts and fortunes)")
      ->check(CLI::ExistingFile);
  app.add_option("--implementation", o.implementation, "names in order of preference")
      ->delimiter(',');
  app.add_option("--device", o.device, "text in a device's or platform's name, or p:d");
  app.add_option("--steps", o.steps, "stop after so many steps; alone, it makes a run repeatable")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--seconds", o.seconds,
                 "stop after so many seconds (default without --steps: 120)")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--batch", o.batch, "tokens per step")->check(CLI::PositiveNumber);
  app.add_option("--hidden", o.model.hidden, "width of the output layer")
      ->check(CLI::PositiveNumber);
  app.add_option("--embedding", o.model.embedding, "width of an embedding")
      ->check(CLI::PositiveNumber);
  app.add_option("--context", o.model.context, "words the prediction sees")
      ->check(CLI::Range(1, 500));
  app.add_option("--min-count", o.min_count, "rarer words become <unk>");
  app.add_option("--max-vocab", o.max_vocab, "keep the most frequent words only; 0: all")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
  app.add_option("--eval-tokens", o.eval_tokens, "held-out tokens that are evaluated")
      ->check(CLI::PositiveNumber);
  app.add_option("--learning-rate", o.learning_rate)->check(CLI::PositiveNumber);
  app.add_option("--logsumexp-weight", o.logsumexp_weight, "weight of the z-loss")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--dtype", o.dtype, "operands of the output layer")
      ->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--workspace-bytes", o.workspace_bytes)->check(CLI::PositiveNumber);
  app.add_option("--seed", o.model.seed);
  app.add_option("--out", o.out, "folder for curve.csv; made if missing");
  auto* trace = app.add_option(
      "--trace", o.trace, "file for a trace of some steps' calls, for https://ui.perfetto.dev");
  app.add_option("--profile-start-step", o.profile_start_step,
                 "steps before those of --trace: the first ones compile")
      ->check(CLI::NonNegativeNumber)
      ->needs(trace);
  app.add_option("--profile-steps", o.profile_steps, "steps of --trace")
      ->check(CLI::PositiveNumber)
      ->needs(trace);
  app.option_defaults()->always_capture_default();
}

/// Training in progress: the clock, the curve, and when to stop.
class Training {
 public:
  explicit Training(const Options& o)
      : o_(o),
        corpus_(o.text.empty() ? default_text() : o.text, o.min_count, o.max_vocab),
        held_out_(evenly(corpus_.held_out(), o.eval_tokens, o.model.context)),
        context_(tessera::ContextOptions{.device = o.device}) {
    o_.model.vocab = corpus_.vocab();
    o_.model.output_type = o.dtype == "bf16" ? tessera::DType::bf16 : tessera::DType::f32;
    model_.emplace(o_.model);
    loss_.logsumexp_weight = static_cast<float>(o.logsumexp_weight);
    execution_.implementation = tessera::ImplementationList(o.implementation);
    if (o.workspace_bytes > 0) {
      execution_.workspace_bytes = static_cast<std::size_t>(o.workspace_bytes);
    }
    if (!o.trace.empty()) {
      if (o.steps > 0 && o.steps <= o.profile_start_step) {
        throw std::invalid_argument(
            fmt::format("--profile-start-step {}: a run of {} steps ends before; give a lower one",
                        o.profile_start_step, o.steps));
      }
      // What cannot be written is an error now rather than after the training.
      tessera::Profile(context_).write(o.trace);
    }
    if (!o.out.empty()) {
      std::error_code ignored;  // the file shows it
      std::filesystem::create_directories(o.out, ignored);
      csv_.open(o.out + "/curve.csv");
      if (!csv_) throw std::invalid_argument("--out: cannot write " + o.out + "/curve.csv");
      csv_ << fmt::format("# unigram_perplexity {:.6g}\n",
                          corpus_.unigram_perplexity(held_out_.labels));
      csv_ << "step,seconds,tokens,loss,perplexity,held_out_perplexity,tokens_per_second\n";
    }
  }

  void go() {
    fmt::print("text: {} training and {} held-out words, vocabulary {}\n", corpus_.train().size(),
               corpus_.held_out().size(), corpus_.vocab());
    fmt::print("model: {} parameters, context {}, embedding {}, hidden {}, output {} [{}, {}]\n",
               model_->parameters(), o_.model.context, o_.model.embedding, o_.model.hidden,
               o_.dtype, o_.model.hidden, corpus_.vocab());
    const double unigram = corpus_.unigram_perplexity(held_out_.labels);

    start_ = std::chrono::steady_clock::now();
    const double before = evaluate();
    fmt::print("held-out perplexity before training: {:.1f} (unigram baseline {:.1f})\n", before,
               unigram);
    std::mt19937_64 random(o_.model.seed + 1);
    Examples batch;
    double next_evaluation = evaluation_interval;
    Loss last;
    while (done() < 1.0) {
      sample(corpus_.train(), o_.batch, o_.model.context, random, batch);
      profile_steps();
      const double began = seconds();
      last = model_->value_and_grad(context_, batch, loss_, execution_);
      if (!std::isfinite(last.total)) {
        throw std::runtime_error("the loss is not finite; lower --learning-rate");
      }
      if (step_ == 0) first_loss_ = last.total;
      AdamWStep adam;
      adam.learning_rate = static_cast<float>(learning_rate(o_.learning_rate, done()));
      adam.step = ++step_;
      model_->update(adam, 1.0f);
      smooth_rate(seconds() - began);

      std::optional<double> held_out;
      if (done() >= next_evaluation && done() < 1.0) {
        held_out = evaluate();
        next_evaluation += evaluation_interval;
      }
      record(last, held_out);
      show(last);
    }
    write_trace();
    const double trained = seconds();
    const double after = evaluate();
    if (csv_.is_open()) {
      csv_ << fmt::format("{},{:.3f},{},,,{:.6g},\n", step_, trained, step_ * o_.batch, after);
      flush_curve();
    }
    progress_.line(fmt::format("{} steps, {} tokens in {}: loss {:.4f} -> {:.4f}", step_,
                               step_ * o_.batch, clock(trained), first_loss_, last.total));
    progress_.line(fmt::format("held-out perplexity: {:.1f} -> {:.1f}; unigram baseline: {:.1f}",
                               before, after, unigram));
    progress_.line("ran: " + tessera::to_string(model_->dispatch()));
  }

 private:
  static constexpr double evaluation_interval = 0.1;  // of the run: ten points of a curve

  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  /// The part of the run that lies behind, by steps or by the clock, whichever is further.
  double done() const {
    double part = 0.0;
    if (o_.steps > 0) part = static_cast<double>(step_) / static_cast<double>(o_.steps);
    if (o_.seconds > 0.0) part = std::max(part, seconds() / o_.seconds);
    return part;
  }
  void smooth_rate(double step_seconds) {
    seconds_per_step_ = step_ == 1 ? step_seconds : 0.95 * seconds_per_step_ + 0.05 * step_seconds;
  }
  /// Before each step.
  void profile_steps() {
    if (o_.trace.empty()) return;
    if (step_ == o_.profile_start_step) profile_.emplace(context_);
    if (step_ == o_.profile_start_step + o_.profile_steps) write_trace();
  }
  void write_trace() {
    if (!profile_) return;
    profile_->write(o_.trace);
    const auto times = profile_->times();
    progress_.line(
        fmt::format("{}: {:.4g} s of calls, of which kernels {:.4g}, copies {:.4g}, waits {:.4g}",
                    o_.trace, times.total(), times.kernels, times.copies, times.waits));
    profile_.reset();
  }
  double evaluate() { return model_->perplexity(context_, held_out_, o_.batch, loss_, execution_); }
  void record(const Loss& loss, std::optional<double> held_out) {
    if (!csv_.is_open()) return;
    csv_ << fmt::format("{},{:.3f},{},{:.8g},{:.6g},{},{:.0f}\n", step_, seconds(),
                        step_ * o_.batch, loss.total, std::exp(loss.nll),
                        held_out ? fmt::format("{:.6g}", *held_out) : std::string(),
                        static_cast<double>(o_.batch) / seconds_per_step_);
  }
  void flush_curve() {
    if (!csv_.flush()) throw std::runtime_error("cannot write " + o_.out + "/curve.csv");
  }
  void show(const Loss& loss) {
    const double part = done();
    const double left = part > 0.0 ? seconds() * (1.0 - part) / part : 0.0;
    progress_.show(fmt::format("step {}  loss {:.4f}  perplexity {:.1f}  {:.0f} tokens/s  {} left",
                               step_, loss.total, std::exp(loss.nll),
                               static_cast<double>(o_.batch) / seconds_per_step_, clock(left)),
                   seconds());
  }

  Options o_;
  Corpus corpus_;
  Examples held_out_;
  tessera::Context context_;
  std::optional<Model> model_;
  std::optional<tessera::Profile> profile_;  ///< open from its first step to its last
  tessera::LossOptions loss_;
  tessera::linear_cross_entropy::ExecutionOptions execution_;
  std::ofstream csv_;
  Progress progress_;
  std::chrono::steady_clock::time_point start_;
  std::int64_t step_ = 0;
  double first_loss_ = 0.0;
  double seconds_per_step_ = 1.0;
};

}  // namespace
}  // namespace train_text

int main(int argc, char** argv) {
  CLI::App app("Trains a small language model on English text with tessera's output layer.");
  train_text::Options options;
  train_text::declare(app, options);
  return train_text::run(app, "train_text", argc, argv, [&] {
    if (options.steps == 0 && options.seconds == 0.0) options.seconds = 120.0;
    train_text::Training(options).go();
  });
}
