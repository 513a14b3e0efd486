// SPDX-License-Identifier: Apache-2.0
// Gradients of bf16 x and w on opencl.cpu, with dz rounded to bf16 and multiplied by pairs (by the
// emulated instruction where the processor has none) and with dz in f32. Reads and writes plain
// arrays: bench/peers/bf16_gradients.py makes them and judges.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "host/dispatch/context_state.hpp"
#include "host/opencl/runtime.hpp"
#include "tessera/tessera.hpp"

namespace {

using namespace tessera;
namespace lce = linear_cross_entropy;

template <class T>
std::vector<T> read(const std::string& path, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  std::ifstream stream(path, std::ios::binary);
  const auto bytes = static_cast<std::streamsize>(values.size() * sizeof(T));
  if (!stream.read(reinterpret_cast<char*>(values.data()), bytes)) {
    throw std::runtime_error(fmt::format("{} has fewer than {} bytes", path, bytes));
  }
  return values;
}

template <class T>
void write(const std::string& path, const std::vector<T>& values) {
  std::ofstream stream(path, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(T)));
  if (!stream) throw std::runtime_error("cannot write " + path);
}

void run(const std::string& folder, std::int64_t b, std::int64_t h, std::int64_t v) {
  Context context;
  auto* runtime = opencl::runtime_of(context.state());
  if (runtime == nullptr) throw std::runtime_error("no OpenCL device");
  const auto x = read<std::uint16_t>(folder + "/x.bin", b * h);
  const auto w = read<std::uint16_t>(folder + "/w.bin", v * h);
  const auto labels = read<std::int64_t>(folder + "/labels.bin", b);
  lce::Inputs inputs;
  inputs.x = View::host(x.data(), DType::bf16, {b, h});
  inputs.w = View::host(w.data(), DType::bf16, {h, v}, Dims{1, h});
  inputs.labels = View::host(labels.data(), Dims{b});
  fmt::print("{}\n", context.device_info().name);
  for (const bool pairs : {true, false}) {
    lce::ExecutionOptions execution;
    execution.implementation = {"opencl.cpu"};
    if (!pairs) execution.dz_dtype = DType::f32;
    if (pairs) {
      auto& products = runtime->facts_for_test().bf16_products;
      if (lce::plan(context, Pass::forward, inputs, {}, {}, {}, execution).dispatch.notes.size() >
          0) {
        products = opencl::Bf16Products::emulated;
      }
    }
    std::vector<std::uint16_t> grad_x(x.size()), grad_w(w.size());
    float loss = 0.0f;
    Outputs outputs;
    outputs.loss = MutableView::host(&loss, DType::f32, {});
    lce::Gradients gradients;
    gradients.grad_x = MutableView::host(grad_x.data(), DType::bf16, {b, h});
    gradients.grad_w = MutableView::host(grad_w.data(), DType::bf16, {h, v}, Dims{1, h});
    auto done = lce::value_and_grad(context, inputs, outputs, gradients, {}, execution);
    done.wait();
    const std::string name = pairs ? "pairs" : "f32";
    for (const auto& note : done.dispatch().notes) fmt::print("{}: {}\n", name, note);
    write(folder + "/grad_x_" + name + ".bin", grad_x);
    write(folder + "/grad_w_" + name + ".bin", grad_w);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Gradients of bf16 by pairs and with dz in f32, for bench/peers/bf16_gradients.py.");
  std::string folder;
  std::int64_t b = 0, h = 0, v = 0;
  app.add_option("folder", folder, "holds x.bin [B, H] and w.bin [V, H], bits of bf16, labels.bin")
      ->required();
  app.add_option("--b", b, "tokens")->required();
  app.add_option("--h", h, "hidden size")->required();
  app.add_option("--v", v, "vocabulary")->required();
  CLI11_PARSE(app, argc, argv);
  try {
    run(folder, b, h, v);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bf16_gradients: {}\n", error.what());
    return 1;
  }
  return 0;
}
