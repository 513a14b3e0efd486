// SPDX-License-Identifier: Apache-2.0
// Memory that callers give: under two names, made for one use, and in a forked child.
#include <functional>
#include <optional>

#include "tessera/tessera.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/opencl_fixture.hpp"

namespace tessera::opencl {
namespace {

Error error_of(const std::function<void()>& use) {
  try {
    use();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::execution_failed, "nothing was thrown");
}

class MemoryTest : public OpenclTest {
 protected:
  /// Of every buffer.
  static constexpr std::int64_t bytes = 4096;

  Context context(const ContextOptions& options = {}) const {
    return Context(runtime_->native_context(), runtime_->native_device(), options);
  }
  cl::Buffer make(cl_mem_flags flags, void* host = nullptr) const {
    cl_int status = CL_SUCCESS;
    const cl::Buffer buffer(clCreateBuffer(runtime_->native_context(), flags, bytes, host, &status),
                            false);
    EXPECT_EQ(status, CL_SUCCESS);
    return buffer;
  }
  static MutableView device(const cl::Buffer& buffer, std::int64_t offset) {
    return MutableView::device(buffer(), offset, DType::f32, {2, 8});
  }
  void call(const View& logits, const softmax_cross_entropy::Gradients& gradients,
            const softmax_cross_entropy::ExecutionOptions& execution = {}) const {
    auto own = context();
    softmax_cross_entropy::value_and_grad(own, {.logits = logits, .labels = View(labels_)}, {},
                                          gradients, {}, execution)
        .wait();
  }

  const std::vector<std::int32_t> labels_ = std::vector<std::int32_t>(2);
};

/// What lies in one place under two names: a part of a buffer, and host memory that a buffer uses.
TEST_F(MemoryTest, AliasesOfMemoryOverlap) {
  alignas(4096) static float host[bytes / 4];
  cl_int status = CL_SUCCESS;
  const cl::Buffer whole = make(CL_MEM_READ_WRITE);
  const cl_buffer_region region = {2048, 1024};
  const cl::Buffer part(
      clCreateSubBuffer(whole(), 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &status), false);
  ASSERT_EQ(status, CL_SUCCESS);
  const cl::Buffer shared = make(CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, host);
  const cl::Buffer same = make(CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, host);
  const auto overlaps = [&](const View& logits, const MutableView& gradient) {
    test::expect_error(ErrorCode::invalid_argument, {"grad_logits overlaps the input logits"},
                       [&] { call(logits, {.grad_logits = gradient}); });
  };
  overlaps(device(whole, 2048 + 32), device(part, 0));
  overlaps(device(part, 32), device(whole, 2048));
  call(device(whole, 0), {.grad_logits = device(part, 0)});
  call(device(whole, 2048 + 64), {.grad_logits = device(part, 0)});
  const auto view = [](std::int64_t at) { return MutableView::host(host + at, {2, 8}); };
  overlaps(device(shared, 64), view(24));
  overlaps(view(24), device(shared, 64));
  overlaps(device(shared, 64), device(same, 96));
  call(device(shared, 64), {.grad_logits = view(0)});
}

/// Buffers that were made to be written alone, or read alone.
TEST_F(MemoryTest, BuffersOfOneUse) {
  const cl::Buffer both = make(CL_MEM_READ_WRITE);
  const cl::Buffer read_only = make(CL_MEM_READ_ONLY);
  const cl::Buffer write_only = make(CL_MEM_WRITE_ONLY);
  call(device(read_only, 0), {.grad_logits = device(write_only, 0)});
  const auto refused = [](const std::string& what, const std::function<void()>& use) {
    test::expect_error(ErrorCode::invalid_argument, {what}, use);
  };
  refused("grad_logits is written, but its cl_mem is CL_MEM_READ_ONLY",
          [&] { call(device(both, 0), {.grad_logits = device(read_only, 0)}); });
  const auto is_read = [&](const std::string& name, const std::function<void()>& use) {
    refused(name + " is read, but its cl_mem is CL_MEM_WRITE_ONLY", use);
  };
  is_read("logits", [&] { call(device(write_only, 0), {.grad_logits = device(both, 0)}); });
  // What is added to, scratch, and what is summed step by step.
  is_read("grad_logits", [&] {
    call(device(both, 0), {.grad_logits = device(write_only, 0), .accumulate = true});
  });
  is_read("workspace", [&] {
    softmax_cross_entropy::ExecutionOptions execution;
    execution.workspace = MutableView::device(write_only(), 0, DType::f32, {bytes / 4});
    call(device(read_only, 0), {.grad_logits = device(both, 0)}, execution);
  });
  is_read("grad_w", [&] {
    const linear_cross_entropy::Inputs inputs = {.x = device(read_only, 0),
                                                 .labels = View(labels_),
                                                 .w = View::device(both(), 0, DType::f32, {8, 2})};
    auto own = context();
    linear_cross_entropy::value_and_grad(
        own, inputs, {}, {.grad_w = MutableView::device(write_only(), 0, DType::f32, {8, 2})}, {},
        {});
  });
}

// What belongs to the parent's driver ends in a child without it, or is an Error: its threads,
// which would finish the call and complete the event, are not there.
/// An implementation on the host maps device memory. A length there is judged before y is touched.
TEST_F(MemoryTest, AttentionMapsWhatIsOnTheDevice) {
  std::vector<float> values(bytes / 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.25f * static_cast<float>(i % 7);
  const auto filled = [&](void* host) {
    return make(CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, host);
  };
  const cl::Buffer q = filled(values.data()), kv = filled(values.data());
  const auto heads = [](const auto& of, std::int64_t tokens) {
    return MutableView::device(of(), 0, DType::f32, {2, 1, tokens, 8});
  };
  Context own = context();
  const auto run = [&](std::int32_t second) {
    std::vector<std::int32_t> counted(bytes / 4, 1);
    counted[1] = second;
    const cl::Buffer counts = filled(counted.data());
    std::vector<float> y(bytes / 4, -1.0f);
    const cl::Buffer to = filled(y.data());
    std::string error;
    try {
      attention::forward(own,
                         {.q = heads(q, 2),
                          .k = heads(kv, 3),
                          .v = heads(kv, 3),
                          .kv_lengths = View::device(counts(), 0, DType::i32, {2})},
                         {.y = heads(to, 2)}, {})
          .wait();
    } catch (const Error& caught) {
      error = caught.what();
    }
    runtime_->queue().enqueueReadBuffer(to, CL_TRUE, 0, bytes, y.data());
    return std::pair(error, y);
  };
  const std::vector<std::int32_t> lengths = {1, 3};
  const auto [none, y] = run(lengths[1]);
  EXPECT_EQ(none, "");
  const auto host = attention::forward(own, {.q = View::host(values.data(), {2, 1, 2, 8}),
                                             .k = View::host(values.data(), {2, 1, 3, 8}),
                                             .v = View::host(values.data(), {2, 1, 3, 8}),
                                             .kv_lengths = View(lengths)});
  EXPECT_TRUE(std::ranges::equal(host.y.as<float>(), std::span(y).first(32)));
  const auto [error, untouched] = run(4);
  EXPECT_EQ(error,
            "attention.forward: kv_lengths of sequence 1 is 4; give 0 to 3, the number of "
            "keys T");
  EXPECT_EQ(untouched, std::vector<float>(bytes / 4, -1.0f));
}

TEST_F(MemoryTest, AForkedChildHasNoUseForWhatIsOnTheDevice) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer follows no forked child of a process with threads";
#endif
  cl_int status = CL_SUCCESS;
  const cl::Event gate(clCreateUserEvent(runtime_->native_context(), &status), false);
  const cl_mem x = make_buffer(iota(6));
  const cl_mem y = make_buffer(iota(6));
  const View logits = View::device(x, 0, DType::f32, {2, 3});
  auto state = run_scale(state_, logits, MutableView::device(y, 0, DType::f32, {2, 3}), 2.0f, false,
                         {.wait_for = {gate()}});
  std::vector<std::string> warnings;
  Context context = this->context(
      {.warning_handler = [&](const std::string& text) { warnings.push_back(text); }});
  state->context = context.state().shared_from_this();
  std::optional<Completion> in_flight(std::move(state));
  const auto host = iota(6);
  const auto refused = [&](const std::function<void()>& call) {
    EXPECT_EQ(test::status_of_child([&] {
                const Error error = error_of(call);
                const std::string what = error.what();
                if (error.code() != ErrorCode::unsupported) return 1;
                return what.find("forked") == std::string::npos ? 2 : 0;
              }),
              0);
  };
  using Execution = softmax_cross_entropy::ExecutionOptions;
  const auto run = [&](const View& from, const Execution& execution) {
    softmax_cross_entropy::forward(context, {.logits = from, .labels = View(labels_)},
                                   LossOptions{}, execution);
  };
  const View here = View::host(host.data(), {2, 3});
  refused([&] { in_flight->wait(); });
  refused([&] { run(logits, {}); });
  refused([&] { run(logits, Execution{.implementation = "eigen"}); });
  refused([&] { run(here, Execution{.wait_for = {gate()}}); });
  refused([&] { run(here, Execution{.queue = runtime_->native_queue()}); });
  refused([&] { Context::from_queue(runtime_->native_queue()); });
  EXPECT_EQ(test::status_of_child([&] {
              in_flight.reset();
              context.trim();
              run(here, {});  // on the host
              // Of what was refused, and none of the call that was dropped.
              for (const auto& text : warnings) {
                if (text.find("trying") == std::string::npos) return 3;
              }
              return warnings.empty() ? 4 : 0;
            }),
            0);
  clSetUserEventStatus(gate(), CL_COMPLETE);
  in_flight->wait();
  EXPECT_EQ(content(y, 6)[5], 12.0f);
}

}  // namespace
}  // namespace tessera::opencl
