// SPDX-License-Identifier: Apache-2.0
#include "bench/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

#include "bench/operator.hpp"
#include "host/dispatch/files.hpp"
#include "programs/dump.hpp"

namespace tessera::bench {

using programs::fail_call;

namespace {

/// True for a text that is to be read as a shape, digits and 'x' or letters with extents; "H100/a"
/// is a file.
bool is_shape(const std::string& text) {
  if (text.find_first_not_of("0123456789x") == std::string::npos) return true;
  std::istringstream items(text);
  bool all = true;
  for (std::string item; std::getline(items, item, '/');) all = all && programs::has_letters(item);
  return all;
}

GivenShape parse_shape(const std::string& text) {
  GivenShape shape{.text = text};
  if (programs::has_letters(text)) {
    shape.extents = programs::parse_letters("--shapes", text);
  } else {
    const auto extents = programs::parse_integers("--shapes", text, 'x');
    shape.lacks_tokens = extents.size() == 2;
    const std::string_view letters = shape.lacks_tokens ? "HV" : "BHV";
    if (extents.size() != letters.size()) {
      fail_call(
          fmt::format("--shapes: '{}' is neither BxHxV (512x2048x32768) nor HxV, nor extents "
                      "by letter (Q8/S2048/D128)",
                      text));
    }
    for (std::size_t i = 0; i < letters.size(); ++i) shape.extents[letters[i]] = extents[i];
  }
  for (char letter = 'A'; letter <= 'Z'; ++letter) {
    if (shape.extents[letter] >= 1 || !shape.extents.has(letter)) continue;
    fail_call(fmt::format("--shapes: '{}' has an extent below 1", text));
  }
  return shape;
}

std::vector<GivenShape> read_shapes(const std::string& path) {
  const auto file = dispatch::read_file(path);
  if (!file.problem.empty()) {
    fail_call(
        fmt::format("--shapes: the file '{}' cannot be read: {} (a shape is such as "
                    "512x2048x32768 or Q8/S2048/D128)",
                    path, file.problem));
  }
  std::istringstream lines(file.text);
  std::vector<GivenShape> shapes;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word, last;
    while (words >> word) last = word;
    if (last.empty()) continue;
    try {
      shapes.push_back(parse_shape(last));
    } catch (const std::exception& error) {
      fail_call(fmt::format("{}:{}: {}", path, number, error.what()));
    }
    shapes.back().lacks_tokens = true;
    shapes.back().is_of_many = true;
  }
  if (shapes.empty()) fail_call(fmt::format("--shapes: the file '{}' holds no shape", path));
  return shapes;
}

template <class T>
void add_choices(CLI::App& app, const std::string& name, std::vector<T>& target,
                 const std::map<std::string, T>& choices, const std::string& description) {
  std::vector<std::string> names;
  for (const auto& [key, value] : choices) names.push_back(key);
  app.add_option_function<std::string>(
         name,
         [name, &target, choices, names](const std::string& text) {
           target.clear();
           for (const auto& item : programs::split(name, text, ',')) {
             const auto at = choices.find(item);
             if (at == choices.end()) programs::fail_choice(name, item, names);
             if (std::find(target.begin(), target.end(), at->second) == target.end()) {
               target.push_back(at->second);
             }
           }
         },
         description)
      ->type_name("NAME[,NAME...]");
}

void add_dtypes(CLI::App& app, Options& o) {
  app.add_option_function<std::string>(
         "--dtypes",
         [&o](const std::string& text) {
           const auto type = [](const std::string& word) {
             for (const DType t : {DType::f32, DType::bf16, DType::f16}) {
               if (word == tessera::to_string(t)) return t;
             }
             programs::fail_choice("--dtypes", word, {"f32", "bf16", "f16"});
           };
           o.dtypes.clear();
           for (const auto& item : programs::split("--dtypes", text, ',')) {
             const auto pair = programs::split("--dtypes", item, ':');
             if (pair.size() > 2) {
               throw CLI::ValidationError("--dtypes",
                                          fmt::format("'{}' is neither TYPE nor X:W", item));
             }
             o.dtypes.emplace_back(type(pair.front()), type(pair.back()));
           }
         },
         "types of x and w, f32:bf16 for x f32 and w bf16 (f32)")
      ->type_name("TYPE[,TYPE...]");
}

}  // namespace

std::vector<GivenShape> parse_shapes(const std::string& text) {
  const auto items = programs::split("--shapes", text, ',');
  if (!std::all_of(items.begin(), items.end(), is_shape)) return read_shapes(text);
  std::vector<GivenShape> shapes;
  for (const auto& item : items) shapes.push_back(parse_shape(item));
  return shapes;
}

std::vector<GivenShape> default_shapes() {
  auto shapes = parse_shapes("512x2048x32768,Q8/S2048/D128");
  for (auto& shape : shapes) shape.is_of_many = true;
  return shapes;
}

void add_row_options(CLI::App& app, Options& o) {
  std::map<std::string, const BenchOperator*> operators;
  for (const auto* op : bench_operators()) operators.emplace(op->name(), op);
  o.operators = {bench_operators().front()};
  add_choices<const BenchOperator*>(app, "--operators", o.operators, operators,
                                    fmt::format("({})", o.operators.front()->name()));
  add_choices<Pass>(app, "--passes", o.passes,
                    {{"forward", Pass::forward},
                     {"backward", Pass::backward},
                     {"value_and_grad", Pass::value_and_grad}},
                    "(all three)");
  programs::add_list(app, "--implementations", o.implementations,
                     "implementations, or a family's first that runs; eigen.gemm: bare Eigen "
                     "products of the same shape (opencl,eigen)");
  add_dtypes(app, o);
  add_choices<bool>(app, "--w-layout", o.layouts, {{"hv", false}, {"vh", true}},
                    "w as [H, V] (hv) or [V, H] (vh)");
  app.add_option("--device", o.device, "text in a platform's or device's name, or P:D")
      ->type_name("TEXT");
  programs::add_integer(app, "--threads", o.threads,
                        "threads, of a CPU device too (one per hardware thread)");
  app.add_option("--samples", o.samples, "timed samples of a row at least (9)")->type_name("N");
  app.add_option("--max-seconds", o.max_seconds,
                 "after this a row ends, as noisy if too few samples count (12)")
      ->type_name("SECONDS");
}

namespace {

/// Which rows there are.
void add_problem_options(CLI::App& app, Options& o) {
  std::string in_place;
  for (const auto* op : bench_operators()) {
    if (op->runs_in_place()) in_place += (in_place.empty() ? "" : ", ") + std::string(op->name());
  }
  app.add_option_function<std::string>(
         "--target-pairs",
         [&o](const std::string& text) {
           o.target_pairs = programs::parse_integers("--target-pairs", text, ',');
         },
         "pairs of word and probability that a row has in place of its label; 0: the label (0)")
      ->type_name("K[,K...]");
  add_choices<bool>(app, "--targets", o.dense_targets, {{"labels", false}, {"dense", true}},
                    "the labels (or --target-pairs), or a probability for every word (labels)");
  using linear_distillation::Divergence;
  add_choices<Divergence>(app, "--divergence", o.divergences,
                          {{"forward_kl", Divergence::forward_kl},
                           {"reverse_kl", Divergence::reverse_kl},
                           {"jsd", Divergence::jsd}},
                          "of operators with a teacher (forward_kl)");
  app.add_option_function<std::int64_t>(
         "--tokens",
         [&o](std::int64_t value) {
           if (value < 1) fail_call(fmt::format("--tokens {} is below 1", value));
           o.tokens = value;
         },
         "B of shapes HxV, and B, or S, of those of a file that say no tokens (512)")
      ->type_name("N");
  app.add_option_function<std::string>(
         "--shapes", [&o](const std::string& text) { o.shapes = parse_shapes(text); },
         "shapes, or a file of them such as bench/shapes/models.txt: numbers, or extents by letter "
         "such as Q8/S2048/D128, where B is the leading axes; one left out is 1, or that of S (T), "
         "Q (K), D (E), H (G) (512x2048x32768,Q8/S2048/D128)")
      ->type_name("BxHxV|LETTERS[,...]|FILE");
  programs::add_set(app, o.set,
                    "an option of operators whose rows may have it, such as causal=lower_right; "
                    "may be repeated");
  app.add_option("--ignored", o.ignored,
                 "share of the rows that do not count, spread evenly, from 0 to below 1 (0)")
      ->type_name("SHARE");
  app.add_option_function<std::string>(
         "--gradients",
         [&o](const std::string& text) {
           if (text != "both" && text != "x" && text != "w") {
             programs::fail_choice("--gradients", text, {"both", "x", "w"});
           }
           o.grad_x = text != "w";
           o.grad_w = text != "x";
         },
         "which gradients of x and w to form (both)")
      ->type_name("both|x|w");
  app.add_option_function<std::string>(
         "--data",
         [&o](const std::string& text) {
           if (text != "random" && text != "trained") {
             programs::fail_choice("--data", text, {"random", "trained"});
           }
           o.trained = text == "trained";
         },
         "of x and w: random, or trained: words by Zipf's law in order of their frequency, labels "
         "predicted with confidence (random)")
      ->type_name("random|trained");
  app.add_option("--gradient-filter-eps", o.gradient_filter_eps,
                 "ExecutionOptions::gradient_filter_eps, from 0 to below 1; the row then tells how "
                 "far its gradients are from those without (0)")
      ->type_name("EPS");
  app.add_flag("--in-place", o.in_place, in_place + " writes its gradient over its input");
}

/// How a row runs, and for how long.
void add_execution_options(CLI::App& app, Options& o) {
  app.add_option_function<std::vector<std::string>>(
         "--block-sizes",
         [&o](const std::vector<std::string>& given) {
           for (const auto& text : given) {
             for (const auto& item : programs::split("--block-sizes", text, ';')) {
               o.block_sizes.push_back(programs::parse_integers("--block-sizes", item, ','));
             }
           }
         },
         "block sizes instead of the implementation's own; may be repeated, for rows with each")
      ->allow_extra_args(false)
      ->type_name("B,H,V|Q,K[;...]");
  app.add_flag("--include-inferred", o.include_inferred,
               "beside the rows of --block-sizes one with the implementation's own");
  app.add_option_function<std::string>(
         "--knobs",
         [&o](const std::string& text) {
           std::istringstream list(text);
           for (std::string each; std::getline(list, each, ',');) {
             const auto equals = each.find('=');
             if (equals == std::string::npos || equals == 0) {
               throw CLI::ValidationError("--knobs", "\"" + each + "\" is not name=number");
             }
             o.knobs.push_back({each.substr(0, equals),
                                programs::parse_integer("--knobs", each.substr(equals + 1))});
           }
         },
         "knobs instead of the implementation's own, as a row's label has them")
      ->type_name("NAME=NUMBER,...");
  programs::add_integer(app, "--workspace-bytes", o.workspace_bytes,
                        "upper bound on scratch memory");
  programs::add_integer(app, "--rotate-bytes", o.rotate_bytes,
                        "arrays in turn add up to this at least, so that no cache holds them "
                        "(268435456)");
}

}  // namespace

void add_options(CLI::App& app, Options& o) {
  app.add_option("--compare", o.compare,
                 "another build's tessera-bench: each row's calls take turns with its, in "
                 "--samples pairs of "
                 "processes, and the ratio of the times is told with its 95% interval")
      ->type_name("PROGRAM");
  app.add_option(
         "--custom", o.custom,
         "rows of a kernel of one's own, from a JSON file (docs/custom_kernels.md), instead "
         "of the library's operators")
      ->type_name("FILE");
  app.add_option("--profile", o.profile,
                 "after a row's samples three more calls in a profile: which kernels ran how long, "
                 "with the share of their bound, behind all rows, and a trace for Perfetto in this "
                 "file (of a second row in NAME.2.EXTENSION)")
      ->type_name("FILE");
  programs::add_dump(app, o.dump);
  app.add_flag("--decompose", o.decompose,
               "instead of rows, the time of each call by its parts, from the products alone to "
               "all of it, with their share of the peak; --benchmark_out=FILE takes the figures "
               "for scripts/plot_decomposition.py");
  app.add_option("--compare-dumps", o.compare_dumps,
                 "two folders that --dump wrote, or one program's of each, side by side with their "
                 "rows; nothing is measured")
      ->expected(2)
      ->type_name("A B");
  app.add_flag("!--no-peak-list", o.lists_peaks,
               "measure only the peak beside the samples, and tell no bound: for a process that "
               "measures one short row")
      ->group("");
  app.add_option("--turns", o.turns, "what --compare starts: one call for each line on stdin")
      ->type_name("ROW")
      ->group("");
  app.add_option("--candidate", o.candidate,
                 "what tessera-tune --custom starts: one row with the numbers and launch sizes of "
                 "a candidate, held against the row's own results")
      ->type_name("REVISION:CONFIG")
      ->group("");
  add_row_options(app, o);
  add_problem_options(app, o);
  add_execution_options(app, o);
}

namespace {

/// Throws where a shape, an option or block sizes are those of no operator asked for.
void check_problems(const Options& o) {
  std::vector<const operators::Description*> ops;
  for (const auto* op : o.operators) ops.push_back(&op->description());
  const auto any = [&](const auto& takes) {
    return std::any_of(o.operators.begin(), o.operators.end(), takes);
  };
  const auto is_taken = [&](const auto& shape) {
    return any([&](const auto* op) { return op->shape_of(shape, o.tokens).has_value(); });
  };
  const bool any_taken = std::any_of(o.shapes.begin(), o.shapes.end(), is_taken);
  for (const auto& shape : o.shapes) {
    if (!shape.is_of_many && programs::has_letters(shape.text)) {
      programs::check_letters("--shapes", shape.extents, ops);
    }
    if (shape.is_of_many ? any_taken : is_taken(shape)) continue;
    const auto& first = *ops.front();
    fail_call(fmt::format("--shapes: '{}' says nothing of {}; its extents are {}, such as {}",
                          shape.text, first.name, fmt::join(programs::letters_of(first), " "),
                          programs::text_of(first, programs::completed(first, {}))));
  }
  for (const auto& set : o.set) {
    std::string names;
    for (const auto* op : o.operators) {
      names += (names.empty() ? "" : ", ") + std::string(op->name());
      if (op->sets(set.name)) programs::value_of(op->description(), set);
    }
    if (any([&](const auto* op) { return op->sets(set.name); })) continue;
    fail_call(fmt::format("--set: rows of {} have no option '{}'", names, set.name));
  }
  for (const auto& sizes : o.block_sizes) {
    if (any([&](const auto* op) { return !op->own_blocks(sizes).empty(); })) continue;
    fail_call(fmt::format("--block-sizes: '{}' has {} numbers; {} takes {}", fmt::join(sizes, ","),
                          sizes.size(), ops.front()->name,
                          programs::block_sizes_text(*ops.front())));
  }
}

}  // namespace

void check_options(const Options& o) {
  check_problems(o);
  if (!o.custom.empty() && !o.compare.empty()) {
    fail_call("--compare takes no rows of --custom; leave one of them out");
  }
  if (!o.profile.empty() && !(o.compare.empty() && o.custom.empty())) {
    fail_call(
        "--profile is of the library's operators in this build; leave --compare and --custom out");
  }
  if (!o.dump.empty() && !(o.compare.empty() && o.turns.empty())) {
    fail_call("--dump is of this build's rows; leave --compare out");
  }
  if (o.decompose &&
      !(o.compare.empty() && o.custom.empty() && o.profile.empty() && o.dump.empty())) {
    fail_call("--decompose measures no rows; leave --compare, --custom, --profile and --dump out");
  }
  if (o.samples < 1) fail_call(fmt::format("--samples {} is below 1", o.samples));
  if (!(o.max_seconds > 0.0))
    fail_call(fmt::format("--max-seconds {} is not positive", o.max_seconds));
  if (!(o.ignored >= 0.0 && o.ignored < 1.0)) {
    fail_call(fmt::format("--ignored {} is outside 0 to below 1", o.ignored));
  }
  if (o.ignored > 0.0 && std::count(o.dense_targets.begin(), o.dense_targets.end(), true) > 0) {
    fail_call(fmt::format("--ignored {} does not go with --targets dense: such a row always counts",
                          o.ignored));
  }
  for (const auto pairs : o.target_pairs) {
    if (pairs < 0) fail_call(fmt::format("--target-pairs {} is negative", pairs));
    for (const auto& shape : o.shapes) {
      const auto words = shape.extents['V'];
      if (pairs <= words || !shape.extents.has('V')) continue;
      fail_call(
          fmt::format("--target-pairs {} is more than the {} words of a shape", pairs, words));
    }
  }
  if (!(o.gradient_filter_eps >= 0.0f && o.gradient_filter_eps < 1.0f)) {
    fail_call(
        fmt::format("--gradient-filter-eps {} is outside 0 to below 1", o.gradient_filter_eps));
  }
  if (o.include_inferred && o.block_sizes.empty()) {
    fail_call(
        "--include-inferred goes with --block-sizes; without it every row has the "
        "implementation's own block sizes");
  }
  if (o.workspace_bytes && *o.workspace_bytes < 0) {
    fail_call(fmt::format("--workspace-bytes {} is negative", *o.workspace_bytes));
  }
  if (o.rotate_bytes && *o.rotate_bytes < 0) {
    fail_call(fmt::format("--rotate-bytes {} is negative", *o.rotate_bytes));
  }
  if (o.threads && (*o.threads < 1 || *o.threads > 4096)) {
    fail_call(fmt::format("--threads {} is outside 1 to 4096", *o.threads));
  }
  std::vector<std::string> known = {"opencl", eigen_gemm};
  for (const auto* op : o.operators) {
    for (const auto& row : op->implementations()) {
      if (std::find(known.begin(), known.end(), row.name) == known.end()) known.push_back(row.name);
    }
  }
  for (const auto& name : o.implementations) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    fail_call(
        fmt::format("--implementations: '{}' is not one of {}", name, fmt::join(known, ", ")));
  }
}

}  // namespace tessera::bench
