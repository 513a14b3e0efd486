// SPDX-License-Identifier: Apache-2.0
// An operator whose kernels are written for one engine alone: the others refuse its calls, with the
// reason, and a call falls through to the host. Nothing is compiled.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "host/operators/host_implementation.hpp"
#include "host/operators/opencl_operator.hpp"
#include "host/operators/operator.hpp"

namespace tessera::test {
namespace {

using operators::Kernel;
using operators::Prepared;
using operators::Request;

constexpr const char* served = "mma";

class OneEngine final : public operators::OpenclOperator {
  std::vector<std::int64_t> multiples(const engines::Engine&) const override { return {1}; }
  engines::Operands operands(const Request&) const override {
    return {.a = DType::bf16, .b = DType::bf16};
  }
  std::optional<std::string> refuses(const Request&, const std::string& engine_name,
                                     const opencl::DeviceFacts&) const override {
    if (engine_name == served) return std::nullopt;
    return "there are kernels for " + std::string(served) + ", and none for " + engine_name;
  }
  [[noreturn]] static void fail() { throw std::logic_error("only questions are asked"); }
  std::shared_ptr<Prepared> prepare(const Request&, const std::string&,
                                    opencl::Runtime&) const override {
    fail();
  }
  std::vector<NamedValue> knobs(const Request&, const Prepared&) const override { fail(); }
  std::vector<Kernel> kernels(const Request&, const Prepared&) const override { fail(); }
  std::int64_t minimum_workspace_bytes(const Request&, const Prepared&,
                                       const opencl::Runtime&) const override {
    fail();
  }
  void enqueue(opencl::Call&, const Request&, const Prepared&) const override { fail(); }
  CostEstimate cost(const Request&, const Prepared&) const override { fail(); }
};

class OnHost final : public operators::HostImplementation {
 public:
  OnHost() : HostImplementation({"eigen", "takes what is left", true}) {}
  CostEstimate cost(ContextState&, const dispatch::Request&) const override { return {}; }

 private:
  void describe(const ContextState&, const Request& request, Dispatch& dispatch) const override {
    dispatch.block_sizes = request.call.op->block_sizes;
  }
  void compute(ContextState&, const Request&, Dispatch&, void*) const override {}
};

const operators::AnyOperator& behind() {
  static const operators::PlainOperator all(operators::make_table(
      [](auto) { return operators::opencl_rows(std::make_shared<OneEngine>()); },
      std::make_unique<OnHost>()));
  return all;
}

/// The description of rms_norm with another table.
operators::Call call_of(const operators::Description& op) {
  operators::Call call(op, Pass::forward);
  call.inputs[0] = View::host(nullptr, DType::bf16, {4, 64});
  return call;
}

TEST(OneEngine, OthersRefuseAndTheHostServes) {
  auto op = operators::description("rms_norm");
  op.behind = behind;
  Context cpu({.plan_for = "cpu-64"}), gpu({.plan_for = "h100"});
  const std::string reason = "there are kernels for mma, and none for ";
  EXPECT_EQ(operators::why_unsupported(gpu, "opencl.mma", call_of(op)), std::nullopt);
  EXPECT_EQ(operators::why_unsupported(gpu, "opencl.simt", call_of(op)), reason + "simt");
  EXPECT_EQ(operators::why_unsupported(cpu, "opencl.cpu", call_of(op)), reason + "cpu");
  const auto plan = operators::plan(cpu, call_of(op));
  EXPECT_EQ(plan.dispatch.implementation, "eigen");
  std::string refused;
  for (const auto& each : plan.dispatch.refused)
    refused += each.implementation + ": " + each.reason + "\n";
  EXPECT_NE(refused.find("opencl.cpu: " + reason + "cpu"), std::string::npos) << refused;
}

}  // namespace
}  // namespace tessera::test
