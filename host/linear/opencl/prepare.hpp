// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/linear/opencl/run.hpp"

namespace tessera::linear {

struct Prepared final : operators::Prepared {
  void describe(Dispatch& dispatch) const override;
  std::vector<opencl::Specialisation*> all_programs() override;

  Schedule schedule{};
  Programs programs{};
};

/// The implementations `opencl.*` of an operator whose logits are a product.
class Opencl : public operators::OpenclOperator {
 public:
  engines::Operands operands(const operators::Request& request) const override;
  std::vector<std::int64_t> multiples(const engines::Engine& engine) const override;
  std::optional<std::string> refuses(const operators::Request& request, const std::string&,
                                     const opencl::DeviceFacts& facts) const override;
  std::vector<NamedValue> knobs(const operators::Request& request,
                                const operators::Prepared& prepared) const override;
  std::vector<operators::Kernel> kernels(const operators::Request& request,
                                         const operators::Prepared& prepared) const override;
  std::int64_t minimum_workspace_bytes(const operators::Request& request,
                                       const operators::Prepared& prepared,
                                       const opencl::Runtime& runtime) const override;
  std::vector<ConsideredSchedule> considered(const operators::Request& request,
                                             const operators::Prepared& prepared,
                                             const opencl::Runtime& runtime) const override;
  std::shared_ptr<operators::Prepared> prepare(const operators::Request& request,
                                               const std::string& engine_name,
                                               opencl::Runtime& runtime) const override;
  void enqueue(opencl::Call& call, const operators::Request& request,
               const operators::Prepared& prepared) const override;
  CostEstimate cost(const operators::Request& request,
                    const operators::Prepared& prepared) const override;
  void add_to_key(const operators::Request& request, std::vector<std::int64_t>& key) const override;

 protected:
  using Engine = std::shared_ptr<const engines::Engine>;
  /// The problem of a request that outlives it; the engine may be none, for what needs no engine.
  virtual std::shared_ptr<Problem> problem(const operators::Request& request,
                                           Engine engine) const = 0;
  /// Calls `use` with it, which takes no memory: every call does so.
  virtual void ask(const operators::Request& request, Engine engine,
                   const std::function<void(const Problem&)>& use) const = 0;

 private:
  schedule::MakeProblems problems(const operators::Request& request,
                                  const engines::EngineShapes& shapes) const;
};

/// The operator whose Problem is `Own`; Own::asked makes its Request of a call.
template <class Own>
class OpenclOf final : public Opencl {
  std::shared_ptr<Problem> problem(const operators::Request& request,
                                   Engine engine) const override {
    return std::make_shared<Own>(Own::asked(request), std::move(engine));
  }
  void ask(const operators::Request& request, Engine engine,
           const std::function<void(const Problem&)>& use) const override {
    use(Own(Own::asked(request), std::move(engine)));
  }
};

}  // namespace tessera::linear
