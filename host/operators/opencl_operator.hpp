// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/engines/engine.hpp"
#include "host/opencl/call.hpp"
#include "host/operators/request.hpp"
#include "host/operators/tuned.hpp"

/// The implementations `opencl.*` of any operator, one for each engine. Each prepares a call, or
/// takes what it prepared for the same kind of call before, and lets the operator enqueue it.
namespace tessera::operators {

/// What calls of one kind share: how their work is cut, and the programs that they compile.
struct Prepared {
  virtual ~Prepared() = default;
  /// Fills in schedule, block sizes, their source and the scratch memory.
  virtual void describe(Dispatch& dispatch) const = 0;
  virtual std::vector<opencl::Specialisation*> all_programs() = 0;

  BlockReport report{};            ///< what a table had to do with it
  engines::EngineShapes shapes{};  ///< the candidates; `engine` is one of them
  std::shared_ptr<const engines::Engine> engine{};
  std::vector<std::string> notes{};        ///< for Dispatch::notes
  std::vector<std::string> block_notes{};  ///< why blocks that were given have no effect
};

/// `Schedule` has name, blocks, source and scratch_words, `Programs` has all().
template <class Schedule, class Programs>
struct PreparedOf final : Prepared {
  void describe(Dispatch& dispatch) const override {
    dispatch.schedule = schedule.name;
    dispatch.block_sizes = to_named(schedule.blocks);
    dispatch.block_source = schedule.source;
    dispatch.workspace_bytes = schedule.scratch_words * 4;
  }
  std::vector<opencl::Specialisation*> all_programs() override {
    auto all = programs.all();
    return {all.begin(), all.end()};
  }

  Schedule schedule{};
  Programs programs{};
};

/// A program and the name of one of its kernels.
using Kernel = std::pair<opencl::Specialisation, std::string>;

/// What an operator provides for its OpenCL implementations.
class OpenclOperator {
 public:
  virtual ~OpenclOperator() = default;

  /// What a legal block of each axis is a multiple of, in the order of the description.
  virtual std::vector<std::int64_t> multiples(const engines::Engine& engine) const = 0;
  /// The types that its products multiply, or that its passes over rows read.
  virtual engines::Operands operands(const Request& request) const = 0;
  /// Why the operator has no kernels by this engine for the request on this device. Nothing: the
  /// engine itself can serve its operands, and the operator has what it needs.
  virtual std::optional<std::string> refuses(const Request& request, const std::string& engine_name,
                                             const opencl::DeviceFacts& facts) const = 0;
  /// Engine, schedule and programs. Throws Error invalid_argument for illegal blocks and knobs,
  /// workspace_too_small, out_of_memory.
  virtual std::shared_ptr<Prepared> prepare(const Request& request, const std::string& engine_name,
                                            opencl::Runtime& runtime) const = 0;
  virtual std::vector<NamedValue> knobs(const Request& request, const Prepared& prepared) const = 0;
  /// All kernels that the call launches.
  virtual std::vector<Kernel> kernels(const Request& request, const Prepared& prepared) const = 0;
  virtual std::int64_t minimum_workspace_bytes(const Request& request, const Prepared& prepared,
                                               const opencl::Runtime& runtime) const = 0;
  /// The schedules that `prepare` looks at; empty: there is one. Slower than that.
  virtual std::vector<ConsideredSchedule> considered(const Request&, const Prepared&,
                                                     const opencl::Runtime&) const {
    return {};
  }
  virtual void enqueue(opencl::Call& call, const Request& request,
                       const Prepared& prepared) const = 0;
  virtual CostEstimate cost(const Request& request, const Prepared& prepared) const = 0;
  /// Adds to the key of a call what `prepare` reads and key_of does not hold.
  virtual void add_to_key(const Request&, std::vector<std::int64_t>&) const {}
};

/// The kind of a call, by which a prepared one is found again: all that its description has, views
/// without their addresses, options, block sizes, knobs, the bound on memory, and of which reading
/// the user's tuned file is.
std::vector<std::int64_t> key_of(const Call& call);

/// The rows of the operator's table, one for each engine, best first.
dispatch::Table opencl_rows(std::shared_ptr<const OpenclOperator> own);
/// All kernels that such a row launches for a call that it serves. Nothing is compiled.
std::vector<Kernel> kernels_of(const dispatch::Implementation& row, ContextState& state,
                               const Request& request);

}  // namespace tessera::operators
