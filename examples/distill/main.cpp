// SPDX-License-Identifier: Apache-2.0
// A student of half the width learns from a trained model and from the text, beside the same
// student that learns from the text alone, for the same time. `distill --help` lists the options.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>

#include "command_line.hpp"
#include "model.hpp"

namespace train_text {
namespace {

namespace ld = tessera::linear_distillation;

struct Options {
  std::vector<std::string> text;
  std::string out;
  std::string divergence = "forward_kl";
  double teacher_seconds = 120.0, seconds = 120.0;
  std::int64_t teacher_steps = 0, steps = 0;
  std::int64_t batch = 512;
  std::int64_t min_count = 2;
  std::int64_t max_vocab = 0;
  std::int64_t eval_tokens = 8192;
  double learning_rate = 3e-3;
  float beta = 0.5f;
  float temperature = 1.0f;
  float alpha = 0.5f;
  ModelOptions teacher;
};

void declare(CLI::App& app, Options& o) {
  app.add_option("--text", o.text, "text files (default: Debian's licence texts and fortunes)")
      ->check(CLI::ExistingFile);
  app.add_option("--teacher-seconds", o.teacher_seconds, "of the teacher's training")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--seconds", o.seconds, "of training, for each of the two students")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--teacher-steps", o.teacher_steps, "stop the teacher after so many steps instead")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--steps", o.steps, "stop each student after so many steps instead")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--batch", o.batch, "tokens per step")->check(CLI::PositiveNumber);
  app.add_option("--hidden", o.teacher.hidden, "width of the teacher; the students have half")
      ->check(CLI::Range(2.0, 1e6));
  app.add_option("--embedding", o.teacher.embedding, "of the teacher; the students have half")
      ->check(CLI::Range(2.0, 1e6));
  app.add_option("--min-count", o.min_count, "rarer words become <unk>");
  app.add_option("--max-vocab", o.max_vocab, "keep the most frequent words only; 0: all")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
  app.add_option("--eval-tokens", o.eval_tokens, "held-out tokens that are evaluated")
      ->check(CLI::PositiveNumber);
  app.add_option("--learning-rate", o.learning_rate)->check(CLI::PositiveNumber);
  app.add_option("--divergence", o.divergence, "of the student from its teacher")
      ->check(CLI::IsMember({"forward_kl", "reverse_kl", "jsd"}));
  app.add_option("--beta", o.beta, "of jsd: the teacher's share of the mixture")
      ->check(CLI::Range(0.0, 1.0));
  app.callback([&] {
    if (app.count("--beta") > 0 && o.divergence != "jsd") {
      throw CLI::ValidationError(
          "--beta", fmt::format("{} but --divergence is {}; beta is of jsd: give --divergence jsd "
                                "or leave it out",
                                o.beta, o.divergence));
    }
  });
  app.add_option("--temperature", o.temperature)->check(CLI::PositiveNumber);
  app.add_option("--alpha", o.alpha, "share of the divergence")->check(CLI::Range(0.0, 1.0));
  app.add_option("--out", o.out, "folder for curve.csv; made if missing");
  app.option_defaults()->always_capture_default();
}

/// Trains one model after the other on the same text, in the same way.
class Trainer {
 public:
  using Step = std::function<void(Model&, const Examples&)>;

  explicit Trainer(const Options& o)
      : o_(o),
        corpus_(o.text.empty() ? default_text() : o.text, o.min_count, o.max_vocab),
        held_out_(evenly(corpus_.held_out(), o.eval_tokens, o.teacher.context)) {
    o_.teacher.vocab = corpus_.vocab();
    loss_.logsumexp_weight = 1e-4f;
    if (o.out.empty()) return;
    std::error_code ignored;  // the file shows it
    std::filesystem::create_directories(o.out, ignored);
    csv_.open(o.out + "/curve.csv");
    if (!csv_) throw std::invalid_argument("--out: cannot write " + o.out + "/curve.csv");
    csv_ << "model,step,seconds,tokens,held_out_perplexity\n";
  }

  /// All three; the perplexities that are left.
  void go() {
    fmt::print(
        "text: {} training and {} held-out words, vocabulary {}, unigram perplexity {:.1f}\n",
        corpus_.train().size(), corpus_.held_out().size(), corpus_.vocab(),
        corpus_.unigram_perplexity(held_out_.labels));
    const Step by_text = [&](Model& model, const Examples& batch) {
      model.value_and_grad(context_, batch, loss_, {});
    };
    Model teacher(o_.teacher);
    train("teacher", {o_.teacher_seconds, o_.teacher_steps}, teacher, by_text);

    ModelOptions half = o_.teacher;
    half.hidden /= 2;
    half.embedding /= 2;
    Model untaught(half);
    train("untaught student", {o_.seconds, o_.steps}, untaught, by_text);

    ld::Options options{
        .beta = o_.beta, .temperature = o_.temperature, .alpha = o_.alpha, .loss = loss_};
    for (const auto each : {ld::Divergence::reverse_kl, ld::Divergence::jsd}) {
      if (o_.divergence == ld::to_string(each)) options.divergence = each;
    }
    Model taught(half);
    train("taught student", {o_.seconds, o_.steps}, taught,
          [&](Model& model, const Examples& batch) {
            model.follow(teacher, context_, batch, options, {});
          });
    fmt::print("the teacher was followed on: {}\n", tessera::to_string(taught.dispatch()));
  }

 private:
  /// When to stop; with `steps` above 0 these alone, which makes a run repeatable.
  struct Limit {
    double seconds;
    std::int64_t steps;
  };
  static constexpr double evaluation_interval = 0.1;  // of the run: ten points of a curve

  void train(const char* name, const Limit& limit, Model& model, const Step& step) {
    std::mt19937_64 random(o_.teacher.seed + 1);
    Examples batch;
    double seconds = 0.0;  // of training alone
    double next_evaluation = evaluation_interval;
    std::int64_t steps = 0;
    const auto done = [&] {
      if (limit.steps > 0) return static_cast<double>(steps) / static_cast<double>(limit.steps);
      return seconds / limit.seconds;
    };
    while (done() < 1.0) {
      const auto began = std::chrono::steady_clock::now();
      sample(corpus_.train(), o_.batch, o_.teacher.context, random, batch);
      step(model, batch);
      AdamWStep adam;
      adam.learning_rate = static_cast<float>(learning_rate(o_.learning_rate, done()));
      adam.step = ++steps;
      model.update(adam, 1.0f);
      seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
      if (done() < next_evaluation && done() < 1.0) continue;
      next_evaluation += evaluation_interval;
      const double held_out = perplexity(model);
      if (!std::isfinite(held_out)) {
        throw std::runtime_error(std::string(name) + ": the loss is not finite; lower " +
                                 "--learning-rate");
      }
      if (csv_.is_open()) {
        csv_ << fmt::format("{},{},{:.3f},{},{:.6g}\n", name, steps, seconds, steps * o_.batch,
                            held_out);
        if (!csv_.flush()) throw std::runtime_error("cannot write " + o_.out + "/curve.csv");
      }
    }
    fmt::print("{:17} {:8} parameters, {:6} tokens in {:5.1f} s: held-out perplexity {:.1f}\n",
               name, model.parameters(), steps * o_.batch, seconds, perplexity(model));
    std::fflush(stdout);
  }

  double perplexity(Model& model) {
    return model.perplexity(context_, held_out_, o_.batch, loss_, {});
  }

  Options o_;
  Corpus corpus_;
  Examples held_out_;
  tessera::Context context_;
  tessera::LossOptions loss_;
  std::ofstream csv_;
};

}  // namespace
}  // namespace train_text

int main(int argc, char** argv) {
  CLI::App app("Trains a model, and two of half its width: one taught by it, one not.");
  train_text::Options options;
  train_text::declare(app, options);
  return train_text::run(app, "distill", argc, argv, [&] { train_text::Trainer(options).go(); });
}
