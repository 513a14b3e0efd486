// SPDX-License-Identifier: Apache-2.0
// Profiles of calls on the host, what a recorder makes of spans, and the files that are written.
#include "tessera/profile.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <barrier>
#include <optional>
#include <thread>

#include "host/dispatch/context_state.hpp"
#include "tessera/tessera.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/trace_checker.hpp"

namespace tessera {
namespace {

using test::checked_trace;
using test::expect_error;
using test::rows_of_kind;
namespace lce = linear_cross_entropy;

/// A call of so many rows, as wide and with as many words.
struct SmallLoss {
  std::int64_t n;
  std::vector<float> x = std::vector<float>(static_cast<std::size_t>(n * n)), w = x;
  std::vector<std::int32_t> labels = std::vector<std::int32_t>(static_cast<std::size_t>(n));
  explicit SmallLoss(std::int64_t extent = 40) : n(extent) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(0.37f * static_cast<float>(i));
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::sin(0.53f * static_cast<float>(i));
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i);
  }
  lce::Result run(Context& context, const std::string& implementation) const {
    lce::ExecutionOptions execution;
    execution.implementation = implementation;
    return lce::value_and_grad(context,
                               {.x = View::host(x.data(), {n, n}),
                                .labels = View(labels),
                                .w = View::host(w.data(), {n, n})},
                               LossOptions{}, execution);
  }
};

Context host_context() { return Context{ContextOptions{.threads = 2, .host_only = true}}; }

TEST(Profile, NamesThePhasesOfEigenAndLeavesItsBitsAlone) {
  Context context = host_context();
  const SmallLoss loss;
  const auto before = loss.run(context, "eigen");
  const Profile profile(context);
  EXPECT_TRUE(profile.kernels().empty());
  const auto within = loss.run(context, "eigen");
  const auto more = loss.run(context, "eigen");
  for (const auto* result : {&within, &more}) {
    for (const auto member : {&lce::Result::grad_x, &lce::Result::grad_w}) {
      const auto a = (before.*member).as<float>(), b = (result->*member).as<float>();
      EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
    }
  }
  const auto calls = rows_of_kind(profile, ProfileKind::call);
  ASSERT_EQ(calls.size(), 1u);
  const auto& call = calls.at("value_and_grad");
  EXPECT_EQ(call.calls, 2);
  EXPECT_EQ(call.implementation, "eigen");
  EXPECT_EQ(call.operation, "linear_cross_entropy");
  EXPECT_EQ(call.pass, "value_and_grad");
  EXPECT_EQ(call.block_sizes, within.dispatch.block_sizes);
  EXPECT_EQ(call.knobs, within.dispatch.knobs);
  EXPECT_LE(call.min_ns, call.max_ns);
  EXPECT_EQ(call.min_ns + call.max_ns, call.total_ns);
  const auto tasks = rows_of_kind(profile, ProfileKind::task);
  for (const char* phase : {"logits", "logits to dz", "grad_x and grad_w"}) {
    ASSERT_TRUE(tasks.count(phase)) << phase;
    EXPECT_EQ(tasks.at(phase).calls % 2, 0) << phase;
  }
  const auto times = profile.times();
  EXPECT_GT(times.kernels, 0.0);
  EXPECT_NEAR(times.total(), static_cast<double>(call.total_ns) * 1e-9, 1e-9);
  test::expect_nested(checked_trace(profile));
}

/// What has no tasks is one.
TEST(Profile, HasASpanOfOtherImplementations) {
  Context context = host_context();
  const Profile profile(context);
  SmallLoss().run(context, "reference");
  SmallLoss(128).run(context, "tpu_tile");  // the least that its blocks divide
  std::vector<std::string> seen;
  for (const auto& row : profile.kernels()) {
    if (row.kind == ProfileKind::task) seen.push_back(row.implementation + ": " + row.name);
  }
  EXPECT_TRUE(std::count(seen.begin(), seen.end(), "reference: value_and_grad"));
  EXPECT_TRUE(std::count(seen.begin(), seen.end(), "tpu_tile: tile machine"));
  test::expect_nested(checked_trace(profile));
}

TEST(Profile, EscapesWhatCallersName) {
  Context context = host_context();
  const std::string name = "my \"kernel\"\n\\ \xff.forward";
  const auto kernel =
      custom_kernel({.source = "kernel void copy(global const float* x, global float* y) {}",
                     .entry = "copy",
                     .name = name,
                     .shape = [](const auto& in) { return std::vector<TensorSpec>{in[0]}; },
                     .host =
                         [](const auto& in, const auto& call) {
                           std::vector<HostTensor> results;
                           results.emplace_back(call.outputs[0].dtype(), call.outputs[0].extents());
                           std::copy_n(static_cast<const float*>(in[0].host_data()), in[0].size(),
                                       results[0].template as<float>().begin());
                           return results;
                         }});
  const Profile profile(context);
  const std::vector<float> x = {1.0f, 2.0f};
  EXPECT_EQ(kernel(context, {View(x)}, {.implementation = "host"})[0].as<float>()[1], 2.0f);
  const auto events = checked_trace(profile);
  ASSERT_EQ(events.size(), 2u);  // the call, and its only task
  // A pass only to those who do not know that it is a caller's: the name is all there, but for the
  // byte that is no character.
  EXPECT_EQ(events.back().name, "my \"kernel\"\n\\ \xef\xbf\xbd.forward");
}

TEST(Profile, RecordsNothingOutsideItsScope) {
  Context context = host_context();
  Context other = host_context();
  const SmallLoss loss;
  std::optional<Profile> profile(std::in_place, context);
  loss.run(other, "eigen");
  EXPECT_TRUE(profile->kernels().empty());
  profile.reset();
  loss.run(context, "eigen");
  EXPECT_EQ(dispatch::current_call(), nullptr);
  const Profile next(context);
  EXPECT_TRUE(next.kernels().empty());
  Context copy = context;  // the same Context
  loss.run(copy, "eigen");
  EXPECT_EQ(rows_of_kind(next, ProfileKind::call).at("value_and_grad").calls, 1);
}

TEST(Profile, IsOneAtATimeAndOutlivesItsContext) {
  std::optional<Context> context(host_context());
  const Context copy = *context;
  std::optional<Profile> profile(std::in_place, *context);
  expect_error(ErrorCode::invalid_argument, {"has a Profile already", "end it first"},
               [&] { const Profile second(copy); });
  // The one that failed has closed nothing.
  SmallLoss().run(*context, "eigen");
  EXPECT_EQ(rows_of_kind(*profile, ProfileKind::call).size(), 1u);
  profile.reset();
  profile.emplace(copy);
  Context moved = std::move(*context);
  expect_error(ErrorCode::invalid_argument, {"moved from"},
               [&] { const Profile of_nothing(*context); });  // NOLINT: what this is about
  SmallLoss().run(moved, "eigen");
  {
    Context gone = host_context();
    profile.emplace(gone);
    SmallLoss().run(gone, "eigen");
  }
  EXPECT_EQ(rows_of_kind(*profile, ProfileKind::call).size(), 1u);
  EXPECT_FALSE(checked_trace(*profile).empty());
}

TEST(Profile, IsThereAfterAFileThatCannotBeWritten) {
  Context context = host_context();
  const Profile profile(context);
  SmallLoss().run(context, "eigen");
  const auto fails = [&](ErrorCode code, const std::string& path, const std::string& why) {
    expect_error(code, {"Profile::write: path", why}, [&] { profile.write(path); });
  };
  const test::TraceFolder folder;
  fails(ErrorCode::execution_failed, folder.file("missing/trace.json"), "No such file");
  fails(ErrorCode::execution_failed, "/dev/full", "No space left on device; what was there is");
  fails(ErrorCode::invalid_argument, folder.file(""), "is a folder; give the name of a file");
  fails(ErrorCode::invalid_argument, "", "is empty");
  EXPECT_EQ(folder.files(), 0u);
  profile.write(folder.file("trace.json"));
  profile.write(folder.file("trace.json"));  // in place of the other
  EXPECT_EQ(folder.files(), 1u);
  EXPECT_EQ(rows_of_kind(profile, ProfileKind::call).at("value_and_grad").calls, 1);
  // Links wait under the names that unfinished files had once.
  std::ofstream(folder.file("elsewhere")) << "text";
  for (int i = 0; i < 200; ++i) {
    std::filesystem::create_symlink("elsewhere",
                                    folder.file("trace.json." + std::to_string(::getpid()) + "." +
                                                std::to_string(i) + ".unfinished"));
  }
  profile.write(folder.file("trace.json"));
  EXPECT_EQ(std::filesystem::file_size(folder.file("elsewhere")), 4u);
}

TEST(Profile, HasTheTasksOfSeveralThreadsAndOfSeveralCalls) {
  constexpr int callers = 2;
  Context context{ContextOptions{.threads = 2, .host_only = true}};
  auto& state = context.state();
  const Profile profile(context);
  struct Named {
    std::string operation() const { return "rms_norm.forward"; }
  };
  {
    const dispatch::CallScope call(state.profiling, Named{});
    // Each waits for the other, so that they cannot be of one thread.
    std::barrier together(2);
    dispatch::parallel_for(state.threads, "phase", 2,
                           [&](auto, int) { together.arrive_and_wait(); });
  }
  auto events = checked_trace(profile);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].row, "tasks of thread 0");
  EXPECT_EQ(events[1].row, "tasks of thread 1");
  test::expect_nested(events);

  std::vector<std::thread> threads;
  std::barrier start(callers);
  for (int i = 0; i < callers; ++i) {
    threads.emplace_back([&, copy = context]() mutable {
      start.arrive_and_wait();
      for (int turn = 0; turn < 3; ++turn) SmallLoss().run(copy, "eigen");
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(rows_of_kind(profile, ProfileKind::call).at("value_and_grad").calls, 3 * callers);
  test::expect_nested(checked_trace(profile));
}

dispatch::RecordedSpan span(ProfileKind kind, std::int64_t begin, std::int64_t end,
                            bool on_device = false) {
  return {.kind = kind, .name = "some", .begin = begin, .end = end, .on_device = on_device};
}

TEST(ProfileTimes, CountsEachInstantOnce) {
  dispatch::Recorded recorded;
  recorded.calls.resize(1);
  // A host waits for a device that begins later and has gaps; a copy lies within the wait.
  recorded.spans = {
      span(ProfileKind::call, 0, 100),         span(ProfileKind::wait, 10, 90),
      span(ProfileKind::kernel, 20, 40, true), span(ProfileKind::kernel, 30, 50, true),
      span(ProfileKind::copy, 45, 70),         span(ProfileKind::task, 95, 97)};
  recorded.spans.push_back({.kind = ProfileKind::kernel, .is_timed = false, .on_device = true});
  const auto times = dispatch::times_of(recorded);
  EXPECT_DOUBLE_EQ(times.kernels, 32e-9);
  EXPECT_DOUBLE_EQ(times.copies, 20e-9);
  EXPECT_DOUBLE_EQ(times.waits, 30e-9);
  EXPECT_DOUBLE_EQ(times.rest, 18e-9);
  EXPECT_DOUBLE_EQ(times.total(), 100e-9);
  for (const auto& row : dispatch::rows_of(recorded)) {
    if (row.kind != ProfileKind::kernel || row.name != "some") continue;
    EXPECT_EQ(row.calls, 2);
    EXPECT_EQ(row.total_ns, 40);
    EXPECT_EQ(row.min_ns, 20);
    EXPECT_EQ(row.max_ns, 20);
  }
}

TEST(ProfileTrace, GivesCommandsThatRunAtOnceRowsOfTheirOwn) {
  constexpr std::int64_t ms = 1'000'000;
  dispatch::Recorded recorded;
  recorded.calls.resize(1);
  recorded.spans = {span(ProfileKind::call, 0, 100 * ms),
                    span(ProfileKind::kernel, 10 * ms, 40 * ms, true),
                    span(ProfileKind::kernel, 20 * ms, 50 * ms, true),
                    // Later on the first queue by less than the clocks are known.
                    span(ProfileKind::kernel, 40 * ms - 10, 60 * ms, true)};
  const auto events = checked_trace(dispatch::trace_of(recorded, 0, {"a \"note\""}));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[1].row, "device queue");
  EXPECT_EQ(events[2].row, "device queue, beside it 1");
  EXPECT_EQ(events[3].row, "device queue");
  EXPECT_EQ(events[3].begin, 40 * ms);
}

}  // namespace
}  // namespace tessera
