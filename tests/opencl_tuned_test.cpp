// SPDX-License-Identifier: Apache-2.0
// Which row of the tables answers, for every shape of a model: infer_block_sizes, plan,
// cost_estimate and the call agree. Then calls with rows, and with rows that fail.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "host/catalog/operators.hpp"
#include "host/engines/engine.hpp"
#include "host/opencl/machines.hpp"
#include "host/opencl/runtime.hpp"
#include "host/operators/call.hpp"
#include "tests/support/pairs.hpp"
#include "tests/support/question.hpp"
#include "tests/support/tuned_file.hpp"

namespace tessera::test {
namespace {
namespace lce = linear_cross_entropy;

constexpr Pass passes[] = {Pass::forward, Pass::backward, Pass::value_and_grad};

/// Name, H and V of the models' last layers.
std::vector<std::pair<std::int64_t, std::int64_t>> models() {
  std::vector<std::pair<std::int64_t, std::int64_t>> all;
  std::ifstream file(std::string(TESSERA_TEST_SUPPORT) + "/../../bench/shapes/models.txt");
  for (std::string line; std::getline(file, line);) {
    std::int64_t h = 0, v = 0;
    char name[64];
    if (std::sscanf(line.c_str(), "%63[^ #] %ldx%ld", name, &h, &v) == 3) all.emplace_back(h, v);
  }
  return all;
}

/// Checks what is said of one call; counts who answered.
class Planner {
 public:
  /// `plan_at`: of so many questions one is asked of `plan` too, which looks for the least
  /// workspace besides and takes up to a second.
  Planner(const char* machine, std::int64_t plan_at)
      : context_({.plan_for = machine}), plan_at_(plan_at) {}

  void ask(const Question& q, const std::string& implementation) {
    const auto call = call_of(q, implementation);
    const auto text =
        fmt::format("{} {} {} {} {} B {} H {} V {}", q.operation, implementation, to_string(q.pass),
                    to_string(q.type), q.vh ? "vh" : "hv", q.b, q.h, q.v);
    ++asked_;
    if (const auto rule = why_unsupported(context_, implementation, call)) {
      ++answered_["refused"];
      EXPECT_FALSE(rule->empty()) << text;
      return;
    }
    const auto [blocks, source] = infer_block_sizes(context_, implementation, call);
    ++answered_[to_string(source)];
    if (implementation == "tpu_tile" || asked_ % plan_at_ == 0) {
      ++planned_;
      const auto dispatch = plan(context_, call).dispatch;
      EXPECT_EQ(blocks, dispatch.block_sizes) << text;
      EXPECT_EQ(source, dispatch.block_source) << text;
      if (source == BlockSource::tuned_table || source == BlockSource::device_class) {
        EXPECT_NE(dispatch.block_reason.find(", bucket "), std::string::npos) << text;
      } else if (!dispatch.block_reason.empty()) {
        EXPECT_NE(dispatch.block_reason.find("; not used: "), std::string::npos) << text;
      }
    }
    // The cost of the same call with what was reported is that of the call.
    auto given = call;
    given.set_block_sizes(blocks);
    const auto cost = cost_estimate(context_, call), again = cost_estimate(context_, given);
    EXPECT_EQ(cost.bytes_moved, again.bytes_moved) << text;
    EXPECT_EQ(cost.executed_flops, again.executed_flops) << text;
  }

  std::int64_t asked_ = 0, planned_ = 0;
  std::map<std::string, std::int64_t> answered_;

 private:
  Context context_;
  std::int64_t plan_at_;
};

TEST(TunedPlans, EveryModelHasARowOrAModelAndAllQuestionsAgree) {
  const auto shapes = models();
  ASSERT_EQ(shapes.size(), 9u);
  const std::string operation = "linear_cross_entropy";
  const std::int64_t plan_at = wants_product() ? 7 : 197;
  Planner cpu("cpu-8", plan_at), gpu("h100", plan_at);
  const auto ask = [&](const Question& q) {
    if (!operators::description(q.operation).has(q.pass)) return;
    for (const char* name : {"opencl.cpu", "eigen"}) cpu.ask(q, name);
    gpu.ask(q, "opencl.simt");
  };
  for (const auto& [h, v] : shapes) {
    for (std::int64_t b = 1; b <= 131072; b *= 2) {
      for (const Pass pass : passes) {
        for (const DType type : {DType::f32, DType::bf16}) {
          for (const bool vh : {true, false}) {
            const Question q{pass, type, vh, b, h, v};
            ask(q);
            cpu.ask(q, "tpu_tile");
          }
          for (const auto& op : operators::descriptions()) {
            const bool of_models = op.has_letter('H') || op.has_letter('V');
            if (op.name != operation && of_models) ask({pass, type, true, b, h, v, op.name});
          }
        }
      }
    }
  }
  std::printf("%ld questions, %ld of them of plan:", static_cast<long>(cpu.asked_ + gpu.asked_),
              static_cast<long>(cpu.planned_ + gpu.planned_));
  for (auto& [answer, count] : gpu.answered_) cpu.answered_[answer] += count;
  for (const auto& [answer, count] : cpu.answered_) {
    std::printf(" %s %ld", answer.c_str(), static_cast<long>(count));
  }
  std::printf("\n");
  EXPECT_GT(cpu.answered_["tuned_table"], 0);
}

/// Memory for one small call of linear_cross_entropy, and what it reports.
struct Small {
  std::int64_t b, h, v;
  DType type;
  bool vh;
  HostTensor x{type, {b, h}}, w{type, {v, h}};
  std::vector<std::int32_t> labels = std::vector<std::int32_t>(static_cast<std::size_t>(b), 1);
  HostTensor statistics{DType::f32, {b, 2}}, grad_x{type, {b, h}}, grad_w{type, {v, h}};
  std::vector<float> loss = std::vector<float>(1);

  operators::Call call(Pass pass, const std::string& implementation) {
    auto made = call_of({pass, type, vh, b, h, v}, implementation);
    const auto weights = [&](auto view) {
      return view.reshaped({h, v}, vh ? Dims{1, h} : Dims{v, 1});
    };
    const auto place = [&](const char* name) { return place_of(*made.op, name); };
    made.inputs[place("x")] = x.view();
    made.inputs[place("w")] = weights(w.view());
    made.inputs[place("labels")] = View(labels);
    if (pass == Pass::backward) made.inputs[place("statistics")] = statistics.view();
    if (pass != Pass::backward) made.outputs[0] = MutableView::host(loss.data(), DType::f32, {});
    if (has_gradients(pass)) {
      made.gradients[0] = grad_x.mutable_view();
      made.gradients[1] = weights(grad_w.mutable_view());
    }
    return made;
  }
};

std::vector<std::string> serving(Context& context) {
  std::vector<std::string> names;
  for (const auto& info : lce::implementations()) {
    if (info.name == "reference") continue;
    const Question q{Pass::forward, DType::f32, true, 128, 128, 256};
    if (!why_unsupported(context, info.name, call_of(q, info.name))) names.push_back(info.name);
  }
  return names;
}

class TunedCalls : public testing::Test {
 protected:
  std::vector<std::string> heard_;
  Context context_{{.warning_handler = [this](const std::string& m) { heard_.push_back(m); }}};
  TunedFile file_;

  /// A row for the context's device, or the host, and this implementation.
  std::string row(const std::string& implementation, const std::string& blocks,
                  const std::string& knobs = {}) const {
    const bool on_device = implementation.starts_with("opencl");
    const auto device = on_device                      ? context_.device_info().name
                        : implementation == "tpu_tile" ? "v5p"
                                                       : "host";
    return TunedFile::row("linear_cross_entropy", implementation, device, "", "", blocks, knobs);
  }
  Dispatch run(Small& small, Pass pass, const std::string& implementation) {
    auto completion = operators::run(context_, small.call(pass, implementation));
    completion.wait();
    return completion.dispatch();
  }
};

TEST_F(TunedCalls, PlanAndCallAgree) {
  constexpr std::int64_t tokens[] = {1, 16, 64};
  // Every pair of pass, number of tokens, type and layout.
  constexpr bool is_bf16[3][3] = {{false, true, false}, {true, false, true}, {false, true, false}};
  constexpr bool is_vh[3][3] = {{true, true, false}, {false, true, true}, {true, false, false}};
  int asked = 0;
  for (const auto& name : serving(context_)) {
    const auto ask = [&](std::size_t i, std::size_t j) {
      SCOPED_TRACE(name + " " + to_string(passes[i]) + " " + std::to_string(tokens[j]));
      // A block of the tile machine has 128 rows at least.
      Small small{.b = name == "tpu_tile" ? 128 : tokens[j],
                  .h = 128,
                  .v = 640,
                  .type = is_bf16[i][j] ? DType::bf16 : DType::f32,
                  .vh = is_vh[i][j]};
      const auto call = small.call(passes[i], name);
      const auto planned = plan(context_, call).dispatch;
      const auto ran = run(small, passes[i], name);
      const auto [blocks, source] = infer_block_sizes(context_, name, call);
      EXPECT_EQ(planned.block_sizes, ran.block_sizes);
      EXPECT_EQ(planned.knobs, ran.knobs);
      EXPECT_EQ(planned.schedule, ran.schedule);
      EXPECT_EQ(planned.block_source, ran.block_source);
      EXPECT_EQ(planned.block_reason, ran.block_reason);
      EXPECT_EQ(planned.workspace_bytes, ran.workspace_bytes);
      EXPECT_EQ(blocks, ran.block_sizes);
      EXPECT_EQ(source, ran.block_source);
      ++asked;
      return ran.block_source;
    };
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; j < 3; ++j) EXPECT_EQ(ask(i, j), BlockSource::heuristic);
    }
    file_.write_rows({row(name, "b_block_size=128 h_block_size=64 v_block_size=128")});
    if (name == "tpu_tile") {
      file_.write_rows({row(name, "b_block_size=128 h_block_size=128 v_block_size=128")});
    }
    EXPECT_EQ(ask(2, 2), BlockSource::tuned_file);
    file_.write_rows({});
  }
  // 40 where a device serves.
  EXPECT_GE(asked, 20);
}

TEST_F(TunedCalls, ARowIsUsedByTheNextCallAndAnIllegalOneGivesWay) {
  struct Rows {
    std::string implementation, blocks, knobs, illegal, rule;
  };
  const Rows rows[] = {
      {"opencl.cpu", "b_block_size=8 h_block_size=64 v_block_size=128", "lanes=4 micro_vectors=2",
       "b_block_size=8 h_block_size=64 v_block_size=100",
       "v_block_size = 100 is illegal for opencl.cpu: it must be a positive multiple of 8"},
      {"opencl.simt", "b_block_size=64 h_block_size=128 v_block_size=64", "tile=32 item=16",
       "b_block_size=48", "b_block_size = 48 is illegal for opencl.simt"},
      {"eigen", "b_block_size=16 h_block_size=64 v_block_size=96", "",
       "b_block_size=16 x_block_size=1", "has no \"x_block_size\""},
      {"tpu_tile", "b_block_size=128 h_block_size=128 v_block_size=128", "", "v_block_size=100",
       "R7"}};
  const auto names = serving(context_);
  Small small{.b = 128, .h = 128, .v = 256, .type = DType::f32, .vh = true};
  for (const auto& one : rows) {
    if (std::find(names.begin(), names.end(), one.implementation) == names.end()) continue;
    SCOPED_TRACE(one.implementation);
    file_.write_rows({});
    const auto before = run(small, Pass::forward, one.implementation);
    EXPECT_EQ(before.block_source, BlockSource::heuristic);
    file_.write_rows({row(one.implementation, one.blocks, one.knobs)});
    const auto tuned = run(small, Pass::forward, one.implementation);
    EXPECT_EQ(tuned.block_source, BlockSource::tuned_file);
    expect_contains(tuned.block_reason, file_.path() + ":3: ");
    expect_contains(tuned.block_reason, ", any shape, measured");
    EXPECT_NE(tuned.block_sizes, before.block_sizes);
    for (const auto& knob : {"lanes", "micro_vectors", "tile", "item"}) {
      if (one.knobs.find(std::string(knob) + "=") == std::string::npos) continue;
      for (const auto& [name, value] : tuned.knobs) {
        if (name == knob) expect_contains(one.knobs, name + "=" + std::to_string(value));
      }
    }
    heard_.clear();
    file_.write_rows({row(one.implementation, one.illegal)});
    const auto illegal = run(small, Pass::forward, one.implementation);
    EXPECT_EQ(illegal.block_source, BlockSource::heuristic);
    EXPECT_EQ(illegal.block_sizes, before.block_sizes);
    expect_contains(illegal.block_reason, "; not used: ");
    expect_contains(illegal.block_reason, one.rule);
    if (one.implementation == "tpu_tile") continue;  // another chip may take them
    ASSERT_EQ(heard_.size(), 1u);
    expect_contains(heard_[0], one.rule);
    EXPECT_EQ(illegal.warnings, heard_);
  }
}

/// Rows of this device, and of the host, answer unless the environment leaves them out.
TEST(MeasuredRows, AnswerOnTheirDevice) {
  const bool left_out = std::string_view(std::getenv("TESSERA_MEASURED_ROWS")) == "0";
  Context context({.warning_handler = [](const std::string& text) { ADD_FAILURE() << text; }});
  int asked = 0;
  for (const auto& row : measured_rows().rows) {
    const bool on_device = row.implementation.starts_with("opencl");
    if (row.device != (on_device ? context.device_info().name : "host")) continue;
    SCOPED_TRACE(row.where);
    const ProblemExtents shape = shape_of(row);
    const auto pass = std::find_if(std::begin(passes), std::end(passes),
                                   [&](Pass each) { return to_string(each) == row.pass; });
    ASSERT_NE(pass, std::end(passes));
    const Question q{*pass,
                     row.dtype == "bf16" ? DType::bf16 : DType::f32,
                     row.layout == "vh",
                     shape['B'],
                     shape['H'],
                     shape['V'],
                     row.operation.c_str()};
    const auto dispatch = plan(context, call_of(q, row.implementation)).dispatch;
    const bool sets = !left_out && !(row.block_sizes.empty() && row.knobs.empty());
    EXPECT_EQ(dispatch.block_source, sets ? BlockSource::tuned_table : BlockSource::heuristic);
    EXPECT_EQ(dispatch.block_reason.starts_with(row.where), !left_out) << dispatch.block_reason;
    EXPECT_EQ(dispatch.block_reason.find("not used"), std::string::npos) << dispatch.block_reason;
    ++asked;
  }
  EXPECT_GT(asked, 0);
}

TEST(TunedClasses, ARowOfAClassIsMadeLegalForTheDevice) {
  TunedFile file;
  Context context({.plan_for = "cpu-8"});
  const auto lanes = engines::device_class(opencl::machine_of("cpu-8").facts);
  const Question q{Pass::forward, DType::f32, true, 64, 256, 1000};
  const auto call = call_of(q, "opencl.cpu");
  const auto row = [&](const std::string& of_class) {
    return TunedFile::row("linear_cross_entropy", "opencl.cpu", "", of_class, "",
                          "b_block_size=60 h_block_size=64 v_block_size=4096");
  };
  EXPECT_TRUE(file.write_rows({row("cpu-1-lanes"), row("gpu-x"), row(lanes)}).empty());
  const auto dispatch = plan(context, call).dispatch;
  EXPECT_EQ(dispatch.block_source, BlockSource::tuned_file);
  EXPECT_EQ(dispatch.block_sizes,
            (std::vector<NamedValue>{
                {"b_block_size", 64}, {"h_block_size", 64}, {"v_block_size", 1000}}));
  expect_contains(dispatch.block_reason, ":5: " + lanes + ", any shape, measured");
  expect_contains(dispatch.block_reason, "; b_block_size 60 is 64, a multiple of 8");
  expect_contains(dispatch.block_reason, "; v_block_size 4096 counts as 1000, the problem's");
  for (const auto& [machine, expected] :
       {std::pair{"h100", "gpu-nvidia"}, {"mi300x", "gpu-amd"}, {"a770", "gpu-intel"}}) {
    EXPECT_EQ(engines::device_class(opencl::machine_of(machine).facts), expected);
  }
}

}  // namespace
}  // namespace tessera::test
