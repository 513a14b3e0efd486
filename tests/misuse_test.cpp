// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "tessera/tessera.hpp"

/// Calls that are wrong: each is refused at the door with a message that names the argument, its
/// value and the limit, before any output is touched.
namespace tessera {
namespace {

namespace lce = linear_cross_entropy;
namespace sce = softmax_cross_entropy;

constexpr std::int64_t B = 4;
constexpr std::int64_t H = 3;
constexpr std::int64_t V = 5;
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();
constexpr unsigned char poison = 0xa5;

/// Memory for every argument of a call, with outputs poisoned, and a correct call over it.
struct Arrays {
  Arrays() : outputs(512, poison) {}

  template <class T = float>
  T* out(std::size_t byte) {
    return reinterpret_cast<T*>(outputs.data() + byte);
  }
  MutableView out_view(std::size_t byte, const Dims& extents, DType type = DType::f32) {
    return MutableView::host(static_cast<void*>(outputs.data() + byte), type, extents);
  }
  bool untouched() const {
    for (auto byte : outputs) {
      if (byte != poison) return false;
    }
    return true;
  }

  std::vector<float> x = std::vector<float>(B * H, 0.5f);
  std::vector<float> w = std::vector<float>(H * V, 0.25f);
  std::vector<float> z = std::vector<float>(B * V, 0.25f);
  std::vector<float> per_row = std::vector<float>(B * 2, 1.0f);
  std::vector<float> per_word = std::vector<float>(V * 4, 1.0f);
  std::vector<std::int32_t> labels = {0, 1, 2, 4};
  std::vector<unsigned char> outputs;
};

/// Everything a call takes; a case breaks one thing.
struct Call {
  Arrays a;
  Pass pass = Pass::value_and_grad;
  lce::Inputs in{};
  sce::Inputs soft{};
  Outputs out{};
  lce::Gradients grad{};
  sce::Gradients soft_grad{};
  LossOptions options{};
  lce::ExecutionOptions execution{};
  sce::ExecutionOptions soft_execution{};

  Call() {
    in = {.x = View::host(a.x.data(), {B, H}),
          .labels = View::host(a.labels.data(), {B}),
          .w = View::host(a.w.data(), {H, V})};
    soft = {.logits = View::host(a.z.data(), {B, V}), .labels = in.labels};
    out.loss = a.out_view(0, {});
    out.lse = a.out_view(16, {B});
    grad.grad_x = a.out_view(64, {B, H});
    grad.grad_w = a.out_view(128, {H, V});
    soft_grad.grad_logits = a.out_view(192, {B, V});
  }
  Call(const Call&) = delete;

  void to_backward() {
    pass = Pass::backward;
    out = {};
    in.lse = soft.lse = View::host(a.per_row.data(), {B});
  }
  void to_forward() {
    pass = Pass::forward;
    grad = {};
    soft_grad = {};
  }

  void run(Context& context, bool softmax) {
    if (softmax) {
      if (pass == Pass::forward) {
        sce::forward(context, soft, out, options, soft_execution).wait();
      } else if (pass == Pass::backward) {
        sce::backward(context, soft, soft_grad, options, soft_execution).wait();
      } else if (pass == Pass::forward_partial) {
        sce::forward_partial(context, soft, options, soft_execution);
      } else {
        sce::value_and_grad(context, soft, out, soft_grad, options, soft_execution).wait();
      }
      return;
    }
    if (pass == Pass::forward) {
      lce::forward(context, in, out, options, execution).wait();
    } else if (pass == Pass::backward) {
      lce::backward(context, in, grad, options, execution).wait();
    } else if (pass == Pass::forward_partial) {
      lce::forward_partial(context, in, options, execution);
    } else {
      lce::value_and_grad(context, in, out, grad, options, execution).wait();
    }
  }
};

struct Case {
  const char* name;
  std::function<void(Call&)> breaks;
  std::vector<std::string> says;
  ErrorCode code = ErrorCode::invalid_argument;
};

void PrintTo(const Case& c, std::ostream* stream) { *stream << c.name; }

void expect_refused(const Case& c, bool softmax) {
  // Host only: whatever could run would come after the door.
  Context context(ContextOptions{.host_only = true, .warning_handler = [](const auto&) {}});
  Call call;
  c.breaks(call);
  const auto labels = call.a.labels;
  try {
    call.run(context, softmax);
    FAIL() << c.name << ": nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), std::string(to_string(c.code))) << error.what();
    for (const auto& part : c.says) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "\"" << part << "\" in \"" << error.what() << "\"";
    }
  }
  EXPECT_TRUE(call.a.untouched());
  EXPECT_EQ(call.a.labels, labels);
}

template <class T>
T* misaligned(T* pointer) {
  return reinterpret_cast<T*>(reinterpret_cast<char*>(pointer) + 1);
}

/// A cl_mem that is never looked at: the context has no device.
cl_mem some_memory() {
  static int token;
  return reinterpret_cast<cl_mem>(&token);
}

const std::vector<Case>& linear_cases() {
  static const std::vector<Case> cases = {
      // Views.
      {"NoX", [](Call& c) { c.in.x = {}; }, {"x is not given"}},
      {"NoW", [](Call& c) { c.in.w = {}; }, {"w is not given"}},
      {"NoLabels", [](Call& c) { c.in.labels = {}; }, {"labels is not given"}},
      {"NullX",
       [](Call& c) {
         c.in.x = View::host(static_cast<float*>(nullptr), {B, H});
       },
       {"x has 12 elements", "null pointer"}},
      {"NullGradW",
       [](Call& c) {
         c.grad.grad_w = MutableView::host(static_cast<float*>(nullptr), {H, V});
       },
       {"grad_w has 15 elements", "null pointer"}},
      {"NullClMem",
       [](Call& c) {
         c.in.w = View::device(nullptr, 0, DType::f32, {H, V});
       },
       {"w has 15 elements", "null pointer"}},
      {"NegativeExtent",
       [](Call& c) {
         c.in.x = View::host(c.a.x.data(), {-4, H}, {H, 1});
       },
       {"x has extents [-4, 3]", "axis 0 is negative"}},
      {"NegativeStride",
       [](Call& c) {
         c.in.w = View::host(c.a.w.data(), {H, V}, {V, -1});
       },
       {"w has strides [5, -1]", "axis 1 is negative"}},
      {"MisalignedX",
       [](Call& c) {
         c.in.x = View::host(misaligned(c.a.x.data()), {1, H});
       },
       {"x has address", "not aligned to 4 bytes", "f32"}},
      {"MisalignedLoss",
       [](Call& c) { c.out.loss = MutableView::host(misaligned(c.a.out(0)), {}); },
       {"loss has address", "not aligned to 4"}},
      {"ReachOverflows",
       [](Call& c) {
         c.in.x = View::host(c.a.x.data(), {B, H}, {std::int64_t{1} << 62, 1});
       },
       {"x with extents [4, 3]", "4611686018427387904", "beyond 2^63"}},
      {"ExtentsOverflow",
       [](Call& c) {
         c.in.x = View::host(c.a.x.data(), {std::int64_t{1} << 40, std::int64_t{1} << 40}, {0, 0});
       },
       {"x's extents", "1099511627776", "exceeds 2^63"}},
      {"RowsTimesColumnsOverflow",
       [](Call& c) {
         const std::int64_t n = std::int64_t{1} << 40;
         c.in.x = View::host(c.a.x.data(), {n, H}, {0, 1});
         c.in.w = View::host(c.a.w.data(), {H, n}, {1, 0});
         c.in.labels = View::host(c.a.labels.data(), {n}, {0});
       },
       {"rows * columns", "1099511627776 * 1099511627776"}},
      // Types.
      {"IntegerX",
       [](Call& c) {
         c.in.x = View::host(c.a.labels.data(), {1, 4});
       },
       {"x has type i32", "f32, bf16 or f16"}},
      {"IntegerW",
       [](Call& c) {
         c.in.w = View::host(c.a.w.data(), DType::i32, {H, V});
       },
       {"w has type i32"}},
      {"FloatLabels",
       [](Call& c) { c.in.labels = View::host(c.a.x.data(), {B}); },
       {"labels has type f32", "i32 or i64"}},
      {"Bf16Loss",
       [](Call& c) { c.out.loss = c.a.out_view(0, {}, DType::bf16); },
       {"loss has type bf16", "supported: f32"}},
      {"I64Argmax",
       [](Call& c) { c.out.argmax = c.a.out_view(256, {B}, DType::i64); },
       {"argmax has type i64", "supported: i32"}},
      {"F16Statistics",
       [](Call& c) {
         c.out.statistics = c.a.out_view(256, {B, 2}, DType::f16);
       },
       {"statistics has type f16", "supported: f32"}},
      {"IntegerGradX",
       [](Call& c) {
         c.grad.grad_x = c.a.out_view(64, {B, H}, DType::i32);
       },
       {"grad_x has type i32"}},
      {"IntegerBias",
       [](Call& c) { c.in.bias = View::host(c.a.w.data(), DType::i32, {V}); },
       {"bias has type i32"}},
      {"Bf16SavedLse",
       [](Call& c) {
         c.to_backward();
         c.in.lse = View::host(c.a.per_row.data(), DType::bf16, {B});
       },
       {"lse has type bf16", "supported: f32"}},
      // Shapes.
      {"RankOfX", [](Call& c) { c.in.x = View::host(c.a.x.data(), {}); }, {"x has no axes"}},
      {"RankOfW",
       [](Call& c) { c.in.w = View::host(c.a.w.data(), {15}); },
       {"w has shape [15]", "[H, V]"}},
      {"HiddenSizes",
       [](Call& c) {
         c.in.w = View::host(c.a.w.data(), {2, V});
       },
       {"w has shape [2, 5]", "x has shape [4, 3]", "first axis of w must be H"}},
      {"WeightAsStored",
       [](Call& c) {
         c.in.w = View::host(c.a.w.data(), {V, H});
       },
       {"w has shape [5, 3]", "strides {1, H}"}},
      {"LabelsLength",
       [](Call& c) { c.in.labels = View::host(c.a.labels.data(), {3}); },
       {"labels has shape [3], expected [4]", "leading axes of x [4, 3]"}},
      {"LabelsRank",
       [](Call& c) {
         c.in.labels = View::host(c.a.labels.data(), {2, 2});
       },
       {"labels has shape [2, 2], expected [4]"}},
      {"LeadingAxes",
       [](Call& c) {
         c.in.x = View::host(c.a.x.data(), {2, 2, H});
         c.in.labels = View::host(c.a.labels.data(), {4});
       },
       {"labels has shape [4], expected [2, 2]", "x [2, 2, 3]"}},
      {"NoVocabulary",
       [](Call& c) {
         c.in.w = View::host(c.a.w.data(), {H, 0});
       },
       {"0 columns", "4 rows"}},
      {"WeightShape",
       [](Call& c) { c.in.weight = View::host(c.a.per_row.data(), {5}); },
       {"weight has shape [5], expected [4]"}},
      {"BiasShape",
       [](Call& c) { c.in.bias = View::host(c.a.per_word.data(), {4}); },
       {"bias has shape [4], expected [5]"}},
      {"ClassWeightShape",
       [](Call& c) { c.in.class_weight = View::host(c.a.per_word.data(), {6}); },
       {"class_weight has shape [6], expected [5]"}},
      {"LossShapeOfMean",
       [](Call& c) { c.out.loss = c.a.out_view(0, {B}); },
       {"loss has shape [4], expected []", "reduction mean"}},
      {"LossShapeOfNone",
       [](Call& c) { c.options.reduction = Reduction::none; },
       {"loss has shape [], expected [4]", "reduction none"}},
      {"LseShape",
       [](Call& c) {
         c.out.lse = c.a.out_view(16, {B, 1});
       },
       {"lse has shape [4, 1], expected [4]"}},
      {"StatisticsShape",
       [](Call& c) {
         c.out.statistics = c.a.out_view(256, {2, B});
       },
       {"statistics has shape [2, 4], expected [4, 2]"}},
      {"GradXShape",
       [](Call& c) {
         c.grad.grad_x = c.a.out_view(64, {H, B});
       },
       {"grad_x has shape [3, 4], expected [4, 3]"}},
      {"GradWShape",
       [](Call& c) {
         c.grad.grad_w = c.a.out_view(128, {V, H});
       },
       {"grad_w has shape [5, 3], expected [3, 5]"}},
      {"GradBiasShape",
       [](Call& c) {
         c.in.bias = View::host(c.a.per_word.data(), {V});
         c.grad.grad_bias = c.a.out_view(256, {4});
       },
       {"grad_bias has shape [4], expected [5]"}},
      {"DlossShapeOfMean",
       [](Call& c) { c.in.dloss = View::host(c.a.per_row.data(), {B}); },
       {"dloss has shape [4], expected []", "reduction mean"}},
      {"DlossShapeOfNone",
       [](Call& c) {
         c.options.reduction = Reduction::none;
         c.out.loss = c.a.out_view(0, {B});
         c.in.dloss = View::host(c.a.per_row.data(), {});
       },
       {"dloss has shape [], expected [4]", "reduction none"}},
      {"DlseShape",
       [](Call& c) { c.in.dlse = View::host(c.a.per_row.data(), {2}); },
       {"dlse has shape [2], expected [4]"}},
      {"SavedLseShape",
       [](Call& c) {
         c.to_backward();
         c.in.lse = View::host(c.a.per_row.data(), {2});
       },
       {"lse has shape [2], expected [4]"}},
      {"SavedStatisticsShape",
       [](Call& c) {
         c.to_backward();
         c.in.statistics = View::host(c.a.per_row.data(), {B});
       },
       {"statistics has shape [4], expected [4, 2]"}},
      // Overlaps.
      {"OutputsOverlap",
       [](Call& c) { c.out.lse = c.a.out_view(0, {B}); },
       {"loss and lse overlap"}},
      {"GradientsOverlap",
       [](Call& c) {
         c.grad.grad_w = c.a.out_view(108, {H, V});
       },
       {"grad_x and grad_w overlap"}},
      {"OutputOverInput",
       [](Call& c) {
         c.grad.grad_x = MutableView::host(c.a.x.data(), {B, H});
       },
       {"grad_x overlaps the input x"}},
      {"OutputOverLabels",
       [](Call& c) { c.out.argmax = MutableView::host(c.a.labels.data(), {B}); },
       {"argmax overlaps the input labels"}},
      {"ColumnsInterleaveAndTouch",
       [](Call& c) {
         c.out.lse = MutableView::host(c.a.out(256), {B}, {3});
         c.out.entropy = MutableView::host(c.a.out(256 + 12), {B}, {2});
       },
       {"lse and entropy overlap"}},
      {"OutputOverItself",
       [](Call& c) {
         c.grad.grad_w = MutableView::host(c.a.out(128), {H, V}, {0, 1});
       },
       {"grad_w with extents [3, 5] and strides [0, 1]", "share memory"}},
      {"WorkspaceOverInput",
       [](Call& c) { c.execution.workspace = MutableView::host(c.a.w.data(), {H * V}); },
       {"workspace overlaps the input w"}},
      {"WorkspaceWithGaps",
       [](Call& c) { c.execution.workspace = MutableView::host(c.a.out(256), {8}, {2}); },
       {"workspace", "has gaps"}},
      // Labels.
      {"LabelTooLarge",
       [](Call& c) { c.a.labels[2] = 5; },
       {"labels: row 2 is 5", "0 to 4", "ignore_index is -100"},
       ErrorCode::label_out_of_range},
      {"LabelNegative",
       [](Call& c) { c.a.labels[3] = -1; },
       {"labels: row 3 is -1"},
       ErrorCode::label_out_of_range},
      {"LabelIndexOfLeadingAxes",
       [](Call& c) {
         c.in.x = View::host(c.a.x.data(), {2, 2, H});
         c.in.labels = View::host(c.a.labels.data(), {2, 2});
         c.out.lse = c.a.out_view(16, {2, 2});
         c.grad.grad_x = c.a.out_view(64, {2, 2, H});
         c.a.labels[3] = 77;
       },
       {"row 3 (index [1, 1]) is 77"},
       ErrorCode::label_out_of_range},
      {"LabelWithAnotherIgnoreIndex",
       [](Call& c) {
         c.options.ignore_index = 2;
         c.a.labels[0] = -100;
       },
       {"row 0 is -100", "ignore_index is 2"},
       ErrorCode::label_out_of_range},
      // Options.
      {"SmoothingAboveOne",
       [](Call& c) { c.options.label_smoothing = 1.5f; },
       {"label_smoothing is 1.5", "0 to 1"}},
      {"SmoothingBelowZero",
       [](Call& c) { c.options.label_smoothing = -0.1f; },
       {"label_smoothing is -0.1"}},
      {"SmoothingNaN",
       [](Call& c) { c.options.label_smoothing = nan_value; },
       {"label_smoothing is nan"}},
      {"NegativeCap",
       [](Call& c) { c.options.logit_soft_cap = -30.0f; },
       {"logit_soft_cap is -30", "least is 0"}},
      {"NaNCap",
       [](Call& c) { c.options.logit_soft_cap = nan_value; },
       {"logit_soft_cap is nan", "finite"}},
      {"InfiniteScale",
       [](Call& c) { c.options.logit_scale = std::numeric_limits<float>::infinity(); },
       {"logit_scale is inf", "finite"}},
      {"NaNZWeight",
       [](Call& c) { c.options.logsumexp_weight = nan_value; },
       {"logsumexp_weight is nan", "finite"}},
      {"NoSuchReduction",
       [](Call& c) { c.options.reduction = static_cast<Reduction>(9); },
       {"reduction is 9"}},
      // Shards.
      {"OffsetWithoutTotal",
       [](Call& c) { c.options.vocab_offset = 2; },
       {"vocab_offset is 2 without vocab_size_total"}},
      {"NegativeOffset",
       [](Call& c) {
         c.options.vocab_offset = -1;
         c.options.vocab_size_total = 10;
       },
       {"vocab_offset is -1"}},
      {"NegativeTotal",
       [](Call& c) { c.options.vocab_size_total = -5; },
       {"vocab_size_total is -5"}},
      {"ShardBeyondTotal",
       [](Call& c) {
         c.options.vocab_offset = 6;
         c.options.vocab_size_total = 10;
       },
       {"vocab_offset 6 and 5 columns", "vocab_size_total 10"}},
      {"ForwardOnAShard",
       [](Call& c) {
         c.to_forward();
         c.options.vocab_size_total = 10;
       },
       {"vocab_size_total is 10", "forward_partial", "combine"}},
      {"ValueAndGradOnAShard",
       [](Call& c) { c.options.vocab_size_total = 10; },
       {"vocab_size_total is 10", "forward_partial", "backward"}},
      {"ShardClassWeightOfTheShardOnly",
       [](Call& c) {
         c.pass = Pass::forward_partial;
         c.options.vocab_size_total = 10;
         c.in.class_weight = View::host(c.a.per_word.data(), {V});
       },
       {"class_weight has shape [5], expected [10]", "whole vocabulary"}},
      // Passes.
      {"BackwardWithoutStatistics",
       [](Call& c) {
         c.to_backward();
         c.in.lse = {};
       },
       {"neither statistics nor lse"}},
      {"DlossInForward",
       [](Call& c) {
         c.to_forward();
         c.in.dloss = View::host(c.a.per_row.data(), {});
       },
       {"dloss is given", "backward and value_and_grad"}},
      {"DlseInForward",
       [](Call& c) {
         c.to_forward();
         c.in.dlse = View::host(c.a.per_row.data(), {B});
       },
       {"dlse is given"}},
      {"SavedLseInValueAndGrad",
       [](Call& c) { c.in.lse = View::host(c.a.per_row.data(), {B}); },
       {"lse is given", "backward alone"}},
      {"SavedStatisticsInForward",
       [](Call& c) {
         c.to_forward();
         c.in.statistics = View::host(c.a.per_row.data(), {B, 2});
       },
       {"statistics is given", "backward alone"}},
      {"GradBiasWithoutBias",
       [](Call& c) { c.grad.grad_bias = c.a.out_view(256, {V}); },
       {"grad_bias", "no bias"}},
      {"NoGradientInBackward",
       [](Call& c) {
         c.to_backward();
         c.grad = {};
       },
       {"no gradient is asked for"}},
      {"NoGradientInValueAndGrad", [](Call& c) { c.grad = {}; }, {"no gradient is asked for"}},
      {"NoOutputInForward",
       [](Call& c) {
         c.to_forward();
         c.out = {};
       },
       {"no output is asked for"}},
      // Execution.
      {"ZeroBlock",
       [](Call& c) { c.execution.block_sizes = lce::BlockSizes{.h_block_size = 0}; },
       {"h_block_size is 0", "1 to 2147483647"}},
      {"NegativeBlock",
       [](Call& c) { c.execution.block_sizes = lce::BlockSizes{.b_block_size = -8}; },
       {"b_block_size is -8"}},
      {"HugeBlock",
       [](Call& c) {
         c.execution.block_sizes = lce::BlockSizes{.v_block_size = std::int64_t{1} << 40};
       },
       {"v_block_size is 1099511627776"}},
      {"OldBlockSizeZero", [](Call& c) { c.execution.block_size = 0; }, {"block_size is 0"}},
      {"OldBlockSizeDisagrees",
       [](Call& c) {
         c.execution.block_sizes = lce::BlockSizes{.v_block_size = 256};
         c.execution.block_size = 512;
       },
       {"block_size is 512", "v_block_size is 256"}},
      {"UnknownImplementation",
       [](Call& c) { c.execution.implementation = "cuda"; },
       {"unknown name \"cuda\"", "reference"}},
      {"UnknownImplementationLastInTheList",
       [](Call& c) {
         c.execution.implementation = {"reference", "nope"};
       },
       {"unknown name \"nope\""}},
      {"NullEvent", [](Call& c) { c.execution.wait_for = {nullptr}; }, {"wait_for[0] is null"}},
      {"QueueWithoutDevice",
       [](Call& c) { c.execution.queue = reinterpret_cast<cl_command_queue>(some_memory()); },
       {"queue is given", "no device"},
       ErrorCode::foreign_context},
      {"EventWithoutDevice",
       [](Call& c) { c.execution.wait_for = {reinterpret_cast<cl_event>(some_memory())}; },
       {"wait_for is given", "no device"},
       ErrorCode::foreign_context},
      {"DeviceInputWithoutDevice",
       [](Call& c) {
         c.in.w = View::device(some_memory(), 0, DType::f32, {H, V});
       },
       {"w is device memory", "no device"},
       ErrorCode::foreign_context},
      {"DeviceOutputWithoutDevice",
       [](Call& c) { c.out.lse = MutableView::device(some_memory(), 0, DType::f32, {B}); },
       {"lse is device memory"},
       ErrorCode::foreign_context},
      {"DeviceOffsetNegative",
       [](Call& c) {
         c.in.w = View::device(some_memory(), -4, DType::f32, {H, V});
       },
       {"w has byte offset -4"}},
      {"DeviceOffsetMisaligned",
       [](Call& c) {
         c.in.w = View::device(some_memory(), 6, DType::f32, {H, V});
       },
       {"w has byte offset 6", "multiple of 4"}},
  };
  return cases;
}

const std::vector<Case>& softmax_cases() {
  static const std::vector<Case> cases = {
      {"NoLogits", [](Call& c) { c.soft.logits = {}; }, {"logits is not given"}},
      {"RankOfLogits",
       [](Call& c) { c.soft.logits = View::host(c.a.z.data(), {}); },
       {"logits have no axes"}},
      {"IntegerLogits",
       [](Call& c) {
         c.soft.logits = View::host(c.a.labels.data(), {2, 2});
       },
       {"logits has type i32"}},
      {"LabelsLength",
       [](Call& c) { c.soft.labels = View::host(c.a.labels.data(), {3}); },
       {"labels has shape [3], expected [4]", "logits [4, 5]"}},
      {"GradShape",
       [](Call& c) {
         c.soft_grad.grad_logits = c.a.out_view(192, {V, B});
       },
       {"grad_logits has shape [5, 4], expected [4, 5]"}},
      {"PartlyInPlace",
       [](Call& c) {
         c.soft.logits = View::host(c.a.z.data(), {3, V});
         c.soft.labels = View::host(c.a.labels.data(), {3});
         c.out.lse = c.a.out_view(16, {3});
         c.soft_grad.grad_logits = MutableView::host(c.a.z.data() + V, {3, V});
       },
       {"grad_logits overlaps the input logits", "the very same view"}},
      {"InPlaceInAnotherType",
       [](Call& c) {
         c.soft_grad.grad_logits =
             MutableView::host(static_cast<void*>(c.a.z.data()), DType::bf16, {B, V});
       },
       {"grad_logits overlaps the input logits", "the very same view"}},
      {"AccumulateInPlace",
       [](Call& c) {
         c.soft_grad.grad_logits = MutableView::host(c.a.z.data(), {B, V});
         c.soft_grad.accumulate = true;
       },
       {"accumulate", "grad_logits is the view logits"}},
      {"LabelTooLarge",
       [](Call& c) { c.a.labels[1] = 9; },
       {"labels: row 1 is 9"},
       ErrorCode::label_out_of_range},
      {"ForwardOnAShard",
       [](Call& c) {
         c.to_forward();
         c.options.vocab_size_total = 10;
       },
       {"forward_partial"}},
      {"NoGradient", [](Call& c) { c.soft_grad = {}; }, {"no gradient is asked for"}},
      {"ZeroBlock",
       [](Call& c) { c.soft_execution.block_sizes = sce::BlockSizes{.v_block_size = 0}; },
       {"v_block_size is 0"}},
  };
  return cases;
}

class LinearMisuse : public testing::TestWithParam<Case> {};
TEST_P(LinearMisuse, IsRefused) { expect_refused(GetParam(), false); }
INSTANTIATE_TEST_SUITE_P(All, LinearMisuse, testing::ValuesIn(linear_cases()),
                         [](const auto& i) { return std::string(i.param.name); });

class SoftmaxMisuse : public testing::TestWithParam<Case> {};
TEST_P(SoftmaxMisuse, IsRefused) { expect_refused(GetParam(), true); }
INSTANTIATE_TEST_SUITE_P(All, SoftmaxMisuse, testing::ValuesIn(softmax_cases()),
                         [](const auto& i) { return std::string(i.param.name); });

TEST(Misuse, TheCallThatEveryCaseBreaksIsCorrect) {
  Context context(ContextOptions{.host_only = true});
  for (bool softmax : {false, true}) {
    Call call;
    call.execution.implementation = call.soft_execution.implementation = "reference";
    EXPECT_NO_THROW(call.run(context, softmax));
    EXPECT_FALSE(call.a.untouched());
  }
}

TEST(Misuse, InterleavedOutputsOfOneAllocationAreFine) {
  Context context(ContextOptions{.host_only = true});
  Call call;
  call.execution.implementation = "reference";
  call.out.lse = MutableView::host(call.a.out(256), {B}, {2});
  call.out.entropy = MutableView::host(call.a.out(260), {B}, {2});
  EXPECT_NO_THROW(call.run(context, false));
}

TEST(Misuse, QuestionsAnswerInsteadOfThrowing) {
  Context context(ContextOptions{.host_only = true});
  Call call;
  call.in.labels = View::host(call.a.labels.data(), {3});
  const auto why = lce::why_unsupported(context, "reference", Pass::forward, call.in, {}, {});
  ASSERT_TRUE(why);
  EXPECT_NE(why->find("labels has shape [3]"), std::string::npos);
  EXPECT_THROW(lce::why_unsupported(context, "cuda", Pass::forward, call.in, {}, {}), Error);
  // Host pointers may be null in a question.
  const lce::Inputs shapes{.x = View::host(nullptr, DType::bf16, {B, H}),
                           .labels = View::host(nullptr, DType::i64, {B}),
                           .w = View::host(nullptr, DType::bf16, {H, V}, {1, H})};
  EXPECT_EQ(lce::why_unsupported(context, "reference", Pass::value_and_grad, shapes, {}, {}),
            std::nullopt);
}

TEST(Misuse, ContextOptionsAreChecked) {
  EXPECT_THROW(Context(ContextOptions{.threads = -1}), Error);
  EXPECT_THROW(Context(ContextOptions{.device = "x", .host_only = true}), Error);
  EXPECT_THROW(Context(nullptr, nullptr), Error);
  EXPECT_THROW(Context::from_queue(nullptr), Error);
  try {
    Context context(ContextOptions{.device = "no such device anywhere"});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::device_not_found);
    EXPECT_NE(std::string(error.what()).find("no such device anywhere"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera
