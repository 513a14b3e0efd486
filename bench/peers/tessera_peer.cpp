// SPDX-License-Identifier: Apache-2.0
// tessera as a peer of bench/peers/run.py, which describes the protocol: a JSON object a line on
// stdin, one a line on stdout. The same program takes samples of the machine's peak.
#include <fmt/format.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "peaks/peaks.hpp"
#include "programs/npy.hpp"
#include "programs/output_set.hpp"
#include "tessera/tessera.hpp"

namespace {

namespace lce = tessera::linear_cross_entropy;
using nlohmann::json;
using tessera::Dims;
using tessera::DType;
using tessera::MutableView;
using tessera::View;

/// Pages that no one has touched, so that an output counts as memory when a call writes it.
class FreshPages {
 public:
  explicit FreshPages(std::size_t bytes) : bytes_(bytes) {
    memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~FreshPages() { munmap(memory_, bytes_); }
  FreshPages(const FreshPages&) = delete;
  FreshPages& operator=(const FreshPages&) = delete;
  void* data() const { return memory_; }

 private:
  std::size_t bytes_;
  void* memory_ = nullptr;
};

/// A line "VmRSS:   1234 kB" of the process's status, in bytes.
std::int64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word) {
    if (word != key + ":") continue;
    std::int64_t kilobytes = 0;
    file >> kilobytes;
    return kilobytes * 1024;
  }
  throw std::runtime_error("/proc/self/status has no " + key);
}

void reset_peak_memory() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  if (!file) throw std::runtime_error("the peak of the memory cannot be reset (clear_refs)");
}

double seconds_of(const auto& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// A copy in ordinary memory, so that no page of a file is charged to the first call.
struct Array {
  tessera::HostTensor tensor;
  static Array load(const std::string& path, tessera::programs::NpyRole role) {
    const auto file = tessera::programs::NpyArray::load("array", path, role, true);
    const View& view = file.view();
    Array a{tessera::HostTensor(view.dtype(), view.extents())};
    std::memcpy(a.tensor.data(), view.host_data(),
                static_cast<std::size_t>(view.size()) * tessera::size_of(view.dtype()));
    return a;
  }
};

class Problem {
 public:
  explicit Problem(const json& job)
      : context_(options_of(job)),
        gradients_(job.at("pass") == "value_and_grad"),
        hv_(job.at("layout") == "hv"),
        x_(Array::load(job.at("x"), tessera::programs::NpyRole::floating)),
        w_(Array::load(job.at("w"), tessera::programs::NpyRole::floating)),
        labels_(Array::load(job.at("labels"), tessera::programs::NpyRole::integer)) {
    execution_.implementation = job.at("implementation").get<std::string>();
    if (job.contains("workspace_bytes")) {
      execution_.workspace_bytes = job.at("workspace_bytes").get<std::size_t>();
    }
  }

  json run() {
    if (gradients_ && !grad_w_) {
      grad_x_.emplace(bytes(x_));
      grad_w_.emplace(bytes(w_));
    }
    lce::Gradients gradients;
    if (gradients_) {
      gradients.grad_x = MutableView::host(grad_x_->data(), x_.tensor.dtype(), x_.tensor.extents(),
                                           x_.tensor.strides());
      const View w = weight();
      gradients.grad_w = MutableView::host(grad_w_->data(), w.dtype(), w.extents(), w.strides());
    }
    const lce::Inputs inputs{.x = x_.tensor.view(), .labels = labels_.tensor.view(), .w = weight()};
    const tessera::Outputs outputs{.loss = MutableView::host(&loss_, {})};
    const double seconds = seconds_of([&] {
      auto completion =
          gradients_ ? lce::value_and_grad(context_, inputs, outputs, gradients, {}, execution_)
                     : lce::forward(context_, inputs, outputs, {}, execution_);
      completion.wait();
      dispatch_ = completion.dispatch();
    });
    return {{"seconds", seconds}, {"loss", loss_}};
  }

  /// What a call adds to the memory of a process that has compiled and holds its inputs; the
  /// gradients are part of it.
  json memory() {
    if (dispatch_.implementation.empty()) run();  // the call that compiles
    drop();
    const std::int64_t before = status_bytes("VmRSS");
    reset_peak_memory();
    const json timed = run();
    const std::int64_t peak = status_bytes("VmHWM");
    drop();
    run();  // the next call is as steady as the ones after it
    return {{"before_bytes", before}, {"peak_bytes", peak}, {"seconds", timed.at("seconds")}};
  }

  json save(const json& request) const {
    const std::string prefix = request.at("prefix");
    if (gradients_) {
      const std::int64_t h = x_.tensor.extents()[1];
      const View w = weight();
      write_rows(prefix + ".grad_x.npy", grad_x_->data(), request.at("rows"), h, h, 1);
      write_rows(prefix + ".grad_w.npy", grad_w_->data(), request.at("columns"), h, w.strides()[1],
                 w.strides()[0]);
    }
    return {{"loss", loss_}};
  }

  json description() const {
    return {{"what", tessera::to_string(dispatch_)},
            {"version", fmt::format("{} {}", tessera::version(), tessera::revision())},
            {"device", context_.has_device() ? context_.device_info().name : "host"},
            {"driver", context_.has_device() ? context_.device_info().driver : ""}};
  }

 private:
  static tessera::ContextOptions options_of(const json& job) {
    tessera::ContextOptions o;
    o.threads = job.at("threads");
    o.host_only = !job.at("implementation").get<std::string>().starts_with("opencl");
    return o;
  }
  static std::size_t bytes(const Array& a) {
    return static_cast<std::size_t>(a.tensor.size()) * tessera::size_of(a.tensor.dtype());
  }
  /// [H, V], whichever way the file has it.
  View weight() const {
    const Dims& e = w_.tensor.extents();
    if (hv_) return w_.tensor.view();
    return View::host(w_.tensor.data(), w_.tensor.dtype(), {e[1], e[0]}, {1, e[1]});
  }
  void drop() {
    grad_x_.reset();
    grad_w_.reset();
    context_.trim();
    malloc_trim(0);
  }
  void write_rows(const std::string& path, const void* data, const json& rows, std::int64_t count,
                  std::int64_t row_stride, std::int64_t stride) const {
    std::vector<float> values;
    for (const std::int64_t row : rows) {
      for (std::int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(row * row_stride + i * stride);
        values.push_back(x_.tensor.dtype() == DType::bf16
                             ? static_cast<float>(static_cast<const tessera::bf16*>(data)[at])
                             : static_cast<const float*>(data)[at]);
      }
    }
    const std::filesystem::path file(path);
    tessera::programs::OutputSet files(file.parent_path());
    files.add_array(file.filename().string(), values.data(), DType::f32,
                    {static_cast<std::int64_t>(rows.size()), count});
    files.commit();
  }

  tessera::Context context_;
  bool gradients_, hv_;
  Array x_, w_, labels_;
  lce::ExecutionOptions execution_{};
  std::optional<FreshPages> grad_x_{}, grad_w_{};
  float loss_ = 0.0f;
  tessera::Dispatch dispatch_{};
};

class Worker {
 public:
  json answer(const json& request) {
    const std::string op = request.at("op");
    if (op == "prepare") {
      problem_.emplace(request);
      return json::object();
    }
    if (op == "peak") return peak(request);
    if (!problem_) throw std::runtime_error("nothing is prepared");
    if (op == "run") return problem_->run();
    if (op == "memory") return problem_->memory();
    if (op == "save") return problem_->save(request);
    if (op == "describe") return problem_->description();
    throw std::runtime_error("unknown op " + op);
  }

 private:
  /// One sample of what the host's threads multiply and add at best, for operands of this type.
  json peak(const json& request) {
    if (!meter_) meter_ = tessera::peaks::host_meter(request.at("threads"));
    const DType type = request.at("dtype") == "bf16" ? DType::bf16 : DType::f32;
    const auto kind = tessera::peaks::multiplication(*meter_, type, type);
    return {{"flops_per_second", meter_->sample(kind)}, {"kind", tessera::peaks::to_string(kind)}};
  }

  std::optional<Problem> problem_{};
  std::unique_ptr<tessera::peaks::Meter> meter_{};
};

}  // namespace

int main() {
  // Drivers may print: the answers have a descriptor of their own.
  const int answers = dup(STDOUT_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  Worker worker;
  std::string line;
  while (std::getline(std::cin, line)) {
    json reply;
    try {
      reply = worker.answer(json::parse(line));
    } catch (const std::exception& error) {
      reply = {{"error", error.what()}};
    }
    const std::string text = reply.dump() + "\n";
    if (write(answers, text.data(), text.size()) != static_cast<ssize_t>(text.size())) return 1;
  }
  return 0;
}
