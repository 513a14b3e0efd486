// SPDX-License-Identifier: Apache-2.0
// What a Context does to the process that it is in: handlers of signals, threads of a CPU device.
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "host/opencl/device_facts.hpp"
#include "host/opencl/program_cache.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/opencl_fixture.hpp"

namespace tessera::opencl {
namespace {

volatile sig_atomic_t handled = 0;
void count(int) { handled = handled + 1; }

using Dispositions = std::array<struct sigaction, NSIG>;

Dispositions dispositions() {
  Dispositions all{};
  for (int signal = 1; signal < NSIG; ++signal) {
    sigaction(signal, nullptr, &all[static_cast<std::size_t>(signal)]);
  }
  return all;
}

/// The first signal of which the process disposes otherwise; 0: none. A kernel may divide by zero,
/// for which a driver handles SIGFPE where nobody else does.
int changed_since(const Dispositions& before) {
  const auto now = dispositions();
  for (int signal = 1; signal < NSIG; ++signal) {
    const auto& a = before[static_cast<std::size_t>(signal)];
    const auto& b = now[static_cast<std::size_t>(signal)];
    const int flags = (a.sa_flags ^ b.sa_flags) & (SA_RESTART | SA_SIGINFO | SA_ONSTACK);
    if (signal != SIGFPE && (a.sa_handler != b.sa_handler || flags != 0)) return signal;
  }
  return 0;
}

constexpr const char* division_source =
    "__kernel void divide(__global int* x) { const int i = get_global_id(0); x[i] = x[i] / x[9]; }";

/// A kernel's division by zero goes on, whatever it gives.
void divide_by_zero(Runtime& runtime) {
  override_embedded_kernel("test/divide.cl", division_source);
  const auto kernel = runtime.programs().kernel({"test/divide.cl", ""}, "divide");
  cl_int status = CL_SUCCESS;
  const cl::Buffer zeros(
      clCreateBuffer(runtime.native_context(), CL_MEM_READ_WRITE, 64, nullptr, &status), false);
  const cl_int zero = 0;
  const cl_mem memory = zeros();
  const std::size_t items = 9;
  const cl_command_queue queue = runtime.native_queue();
  clEnqueueFillBuffer(queue, memory, &zero, sizeof(zero), 0, 64, 0, nullptr, nullptr);
  clSetKernelArg(kernel->kernel()(), 0, sizeof(memory), &memory);
  clEnqueueNDRangeKernel(queue, kernel->kernel()(), 1, nullptr, &items, nullptr, 0, nullptr,
                         nullptr);
  EXPECT_EQ(clFinish(queue), CL_SUCCESS);
}

/// In children, since drivers change handlers once in a process.
int handlers_stay(bool lists_first) {
  constexpr std::array signals = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP};
  for (const int signal : signals) {
    struct sigaction action {};
    action.sa_handler = count;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
  const auto before = dispositions();
  if (lists_first) {
    devices();
    if (const int changed = changed_since(before)) return changed;
  }
  auto runtime = Runtime::open({});
  if (runtime == nullptr) return 0;
  if (const int changed = changed_since(before)) return changed;
  if (lists_first) {
    divide_by_zero(*runtime);
    if (const int changed = changed_since(before)) return changed;
  }
  for (const int signal : signals) raise(signal);
  return handled == static_cast<sig_atomic_t>(signals.size()) ? 0 : 90;
}

TEST(Signals, HandlersStayAsTheyWere) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer follows no forked child of a process with threads";
#endif
  for (const bool lists_first : {false, true}) {
    EXPECT_EQ(test::status_of_child([&] { return handlers_stay(lists_first); }), 0)
        << "the signal, or 90 where a handler did not run; lists first: " << lists_first;
  }
}

constexpr const char* meeting_source = R"(
__kernel void meet(__global volatile int* inside, __global volatile int* most) {
  atomic_max(most, atomic_inc(inside) + 1);
  for (int i = 0; i < 1000; ++i) atomic_max(most, atomic_or(inside, 0));
  atomic_dec(inside);
}
)";

/// How many work-groups were seen at work at once.
int most_at_once(Runtime& runtime) {
  override_embedded_kernel("test/meet.cl", meeting_source);
  const auto kernel = runtime.programs().kernel({"test/meet.cl", ""}, "meet");
  std::array<cl_int, 2> counts{};
  cl_int status = CL_SUCCESS;
  std::vector<cl::Buffer> words;
  for (cl_uint i = 0; i < 2; ++i) {
    const cl_mem word = words.emplace_back(
        clCreateBuffer(runtime.native_context(), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                       sizeof(cl_int), &counts[i], &status),
        false)();
    EXPECT_EQ(status, CL_SUCCESS);
    clSetKernelArg(kernel->kernel()(), i, sizeof(word), &word);
  }
  const cl_command_queue queue = runtime.native_queue();
  const std::size_t items = 256, group = 1;
  EXPECT_EQ(clEnqueueNDRangeKernel(queue, kernel->kernel()(), 1, nullptr, &items, &group, 0,
                                   nullptr, nullptr),
            CL_SUCCESS);
  cl_int most = 0;
  EXPECT_EQ(
      clEnqueueReadBuffer(queue, words[1](), CL_TRUE, 0, sizeof(most), &most, 0, nullptr, nullptr),
      CL_SUCCESS);
  return most;
}

class ThreadsTest : public OpenclTest {
 protected:
  void SetUp() override {
    OpenclTest::SetUp();
    if (IsSkipped()) return;
    units_ = runtime_->info().compute_units;
    if (!runtime_->facts().is_cpu || units_ < 2) GTEST_SKIP() << "no CPU device of several units";
  }
  std::int64_t units_ = 0;
};

TEST_F(ThreadsTest, BoundACpuDevice) {
  const auto part = Runtime::open({.threads = 1});
  if (!part->why_whole().empty()) GTEST_SKIP() << part->why_whole();
  EXPECT_EQ(part->info().compute_units, 1);
  EXPECT_EQ(part->facts().compute_units, 1);
  EXPECT_NE(part->native_device(), runtime_->native_device());
  // The rest is the device's: rows of tables, files of programs and plans know it again.
  DeviceInfo info = part->info();
  info.compute_units = units_;
  EXPECT_EQ(info.name, runtime_->info().name);
  EXPECT_EQ(info.driver, runtime_->info().driver);
  EXPECT_EQ(info.platform_index, runtime_->info().platform_index);
  EXPECT_EQ(info.device_index, runtime_->info().device_index);
  EXPECT_EQ(info.shares_host_memory, runtime_->info().shares_host_memory);
  DeviceFacts facts = part->facts();
  facts.compute_units = units_;
  EXPECT_EQ(facts.native_float_vector, runtime_->facts().native_float_vector);
  EXPECT_EQ(facts.zero_copy, runtime_->facts().zero_copy);
  EXPECT_EQ(facts.extensions, runtime_->facts().extensions);
  // Intel's runtime lets the thread that waits work, too.
  const bool is_pocl = part->info().platform == "Portable Computing Language";
  EXPECT_LE(most_at_once(*part), is_pocl ? 1 : 2);
}

TEST_F(ThreadsTest, AsManyAsThereAreOrMoreAreTheDevice) {
  for (const std::int64_t threads : {std::int64_t{0}, units_, units_ + 1}) {
    const auto whole = Runtime::open({.threads = static_cast<int>(threads)});
    EXPECT_EQ(whole->native_device(), runtime_->native_device());
    EXPECT_EQ(whole->info().compute_units, units_);
    EXPECT_TRUE(whole->why_whole().empty());
  }
}

TEST_F(ThreadsTest, PartsAreReleased) {
  cl_device_id id = nullptr;
  {
    const auto part = Runtime::open({.threads = 1});
    if (!part->why_whole().empty()) GTEST_SKIP() << part->why_whole();
    id = part->native_device();
    clRetainDevice(id);
  }
  const cl::Device last(id, false);
  EXPECT_EQ(device_value<cl_uint>(id, CL_DEVICE_REFERENCE_COUNT, 0), 1u);
}

}  // namespace
}  // namespace tessera::opencl
