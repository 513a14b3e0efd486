// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/context.hpp"
#include "tessera/view.hpp"

namespace tessera {

/// The pass of an operator that a request asks for.
enum class Pass { forward, backward, value_and_grad, forward_partial };

constexpr bool has_gradients(Pass pass) noexcept {
  return pass == Pass::backward || pass == Pass::value_and_grad;
}

/// "forward", "backward", "value_and_grad" or "forward_partial".
TESSERA_API const char* to_string(Pass pass) noexcept;

/// How per-token losses become the loss.
enum class Reduction { mean, sum, none };
/// Their names, in order.
inline constexpr std::array<const char*, 3> reduction_names = {"mean", "sum", "none"};

/// Its name in that list.
TESSERA_API const char* to_string(Reduction reduction) noexcept;

/// Names of implementations in order of preference. Empty: the default order, `opencl`, `eigen`.
///
/// One name: a request it cannot serve is an error. Several, or none: each refusal is a warning,
/// but for the choice among engines of `opencl`, and the next is tried. An unknown name anywhere in
/// the list is an error.
class ImplementationList {
 public:
  ImplementationList() = default;
  ImplementationList(const char* name) : names_{name} {}
  ImplementationList(std::string name) : names_{std::move(name)} {}
  ImplementationList(std::initializer_list<std::string> names) : names_(names) {}
  ImplementationList(std::vector<std::string> names) : names_(std::move(names)) {}
  const std::vector<std::string>& names() const noexcept { return names_; }

 private:
  std::vector<std::string> names_;
};

/// A named integer: one block size or one knob.
struct NamedValue {
  std::string name{};
  std::int64_t value = 0;
  friend bool operator==(const NamedValue&, const NamedValue&) = default;
};

/// One of an operator's block sizes.
template <class BlockSizes>
struct BlockSizeAxis {
  const char* name;
  std::int64_t BlockSizes::*value;
};

/// An operator's block sizes: `axes()` is an array of BlockSizeAxis.
template <class BlockSizes>
concept HasAxes = requires {
  BlockSizes::axes();
};

/// The block sizes by name.
template <HasAxes BlockSizes>
std::vector<NamedValue> to_named(const BlockSizes& blocks) {
  std::vector<NamedValue> values;
  for (const auto& [name, value] : BlockSizes::axes()) values.push_back({name, blocks.*value});
  return values;
}

/// Sets the block sizes that `values` names; ignores other names.
template <HasAxes BlockSizes>
void from_named(const std::vector<NamedValue>& values, BlockSizes& blocks) {
  for (const auto& [name, value] : BlockSizes::axes()) {
    for (const auto& given : values) {
      if (given.name == name) blocks.*value = given.value;
    }
  }
}

/// How a call of any operator runs; nothing here changes a result beyond rounding. `BlockSizes` is
/// the operator's. An operator with options of its own has a struct with these members first.
template <class BlockSizes>
struct ExecutionOptions {
  ImplementationList implementation{};
  /// Block sizes to use; illegal ones for the implementation that runs are an error with the rule.
  std::optional<BlockSizes> block_sizes{};
  /// Knobs of the implementation that runs, as `Dispatch::knobs` reports them: a call with what
  /// another reported is cut and compiled like that one. Each is an error where the implementation
  /// does not have it, where its value is illegal (the message has the legal ones), and where it
  /// follows from the rest of the call and is not that. Empty: the implementation's own choice.
  std::vector<NamedValue> knobs{};
  /// The older way to give `v_block_size` alone; an error when `block_sizes` disagrees.
  std::optional<std::int64_t> block_size{};
  /// Upper bound on scratch memory; nothing: the larger of 64 MiB and 256 rows of f32 logits on
  /// CPUs and the host (on an OpenCL CPU 1 MiB more for each core beyond 32), 1/16 of device memory
  /// on GPUs. Too small a value is an error that names the minimum.
  std::optional<std::size_t> workspace_bytes{};
  /// A block lent for scratch, of any type; its size bounds scratch memory as `workspace_bytes`
  /// does, so that what `plan` calls the minimum is enough. Not touched after completion. Empty:
  /// the context's pool.
  MutableView workspace{};
  /// Queue for this call; nullptr: the context's.
  cl_command_queue queue = nullptr;
  /// Events that must complete before the first command reads or writes anything.
  std::vector<cl_event> wait_for{};
};

/// What `{}` means where it might stand for several structs of options or of views: in
/// `forward(context, inputs, {}, {})` no views are given, so the call owns its results and has the
/// default options.
enum class Defaults {};

/// Where the block sizes of a call came from, in order of precedence. A row of a table may have
/// knobs beside them or alone, which are used where the caller gave none.
enum class BlockSource {
  caller,        ///< ExecutionOptions::block_sizes
  tuned_file,    ///< the user's tuned file (`tuned_blocks_file`)
  tuned_table,   ///< the table built into the library
  device_class,  ///< that table's row for the class of device
  heuristic,     ///< the memory model
  fallback,      ///< BlockSizes::get_default()
};

/// The enumerator's own name.
TESSERA_API const char* to_string(BlockSource source) noexcept;

/// An implementation that did not serve a request, and why.
struct Refusal {
  std::string implementation{};
  std::string reason{};
};

/// What ran, with which blocks, and why.
struct Dispatch {
  std::string implementation{};           ///< with its family: "opencl.cpu", "eigen"
  std::string schedule{};                 ///< which way the passes were nested, one word
  std::string device{};                   ///< device name, or "host"
  std::string driver{};                   ///< driver version, or ""
  std::vector<NamedValue> block_sizes{};  ///< b_block_size, h_block_size, ...
  /// The implementation's own numbers: register tile, slices, ...; ExecutionOptions::knobs.
  std::vector<NamedValue> knobs{};
  BlockSource block_source = BlockSource::fallback;
  /// Of a table's row: its file and line, device, bucket and provenance, and what was changed to
  /// fit, by which rule. Where a row gave way: why. Else empty.
  std::string block_reason{};
  std::vector<Refusal> refused{};       ///< in the order they were tried
  std::vector<std::string> warnings{};  ///< what this call warned about
  std::int64_t workspace_bytes = 0;     ///< scratch memory of the call
  std::int64_t staged_bytes = 0;        ///< copies of caller arrays made for the device
  /// What the implementation did without, and why: an instruction that the processor lacks. What
  /// slows a call down that the caller can change: host arrays that are copied for a device.
  std::vector<std::string> notes{};
  /// Of merged shards, what ran for each, in order. The members above then hold what all have in
  /// common (else they are empty), every name once ("eigen, opencl.cpu"), or the sum of bytes.
  std::vector<Dispatch> shards{};
};

/// One line: implementation, device, schedule, blocks and their source; of merged shards, each
/// one's.
TESSERA_API std::string to_string(const Dispatch& dispatch);

/// A call in flight. Move-only.
///
/// Dropping one waits, never throws, and hands an error that nobody has seen to the context's
/// warning handler.
class TESSERA_API Completion {
 public:
  class State;

  Completion();
  explicit Completion(std::unique_ptr<State> state);
  Completion(Completion&&) noexcept;
  Completion& operator=(Completion&&) noexcept;
  ~Completion();

  /// Blocks until the outputs are written; throws what failed (again on a second call).
  void wait();
  /// The event of the last command, for wait lists; owned by the Completion (retain it to keep
  /// it). nullptr when everything had finished before the call returned.
  cl_event event() const noexcept;
  const Dispatch& dispatch() const noexcept;

 private:
  std::unique_ptr<State> state_;
};

/// Launches of one kernel that multiplies or passes over rows, in one call by a schedule.
struct PlannedLaunches {
  std::string kernel{};
  std::int64_t times = 0;
  std::int64_t groups = 0;  ///< work-groups of each
  /// Of the machine's time, what the work of a launch takes: tiles (or elements of rows) / (waves x
  /// slots x those of the longest group), a slot being what runs one work-group at a time.
  double share = 0.0;
  double flops = 0.0;  ///< of all of them
  double bytes = 0.0;  ///< that all of them move and the caches do not have; 0: not counted
};

/// A schedule that was looked at for a call.
struct ConsideredSchedule {
  std::string name{};            ///< as in Dispatch::schedule
  std::string logits{};          ///< until their gradients are formed; empty: there are none
  bool is_taken = false;         ///< it is the call's
  std::string reason{};          ///< why it is, or is not
  double predicted_share = 0.0;  ///< of the machine that its launches keep busy; 0: it cannot run
  std::int64_t workspace_bytes =
      0;  ///< scratch memory that it takes, or needs at least; 0: unknown
  std::vector<PlannedLaunches> launches{};  ///< in the order of the first ones
  /// Predicted seconds of multiplying, of memory and of waiting for launches, one after the other;
  /// to compare schedules on a device with. 0: not predicted.
  double multiply_seconds = 0.0, memory_seconds = 0.0, launch_seconds = 0.0;
  double predicted_seconds() const { return multiply_seconds + memory_seconds + launch_seconds; }
};

/// What a call would use, answered in advance by `plan`, which also compiles what the call needs.
struct Plan {
  std::int64_t workspace_bytes = 0;          ///< what the call will use
  std::int64_t minimum_workspace_bytes = 0;  ///< the least that a call of this shape accepts
  Dispatch dispatch{};
  /// In the order in which they were looked at; empty where the implementation has one schedule.
  std::vector<ConsideredSchedule> considered{};
};

/// What one implementation says to one request.
struct ImplementationInfo {
  std::string name{};         ///< "opencl.cpu"
  std::string description{};  ///< one line
  bool by_default = false;    ///< part of the default order
};

}  // namespace tessera
