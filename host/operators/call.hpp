// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "host/arguments/shape.hpp"
#include "host/dispatch/knobs.hpp"
#include "tessera/context.hpp"
#include "tessera/cost_estimate.hpp"
#include "tessera/execution.hpp"
#include "tessera/view.hpp"

/// Operators and their calls as values. The public functions bind their structs to a Call
/// (bind.hpp), and all that lies behind them is ordinary code over it, as are the programs, the
/// bench and the tests. Not installed.
namespace tessera {

/// When an input is read.
enum class Reads {
  /// By every pass; it has to be given, or for labels what stands in their place.
  always,
  usually,             ///< by every pass; has to be given, or what stands in its place
  in_place_of_usual,   ///< where given, by every pass, in place of what is read `usually`
  where_given,         ///< by every pass
  in_place_of_labels,  ///< where given, by every pass: all of them, or labels, not both
  with_gradients,      ///< where given, by backward and value_and_grad
  by_backward,         ///< by backward alone, where it has to be given
  in_backward,         ///< by backward alone, which needs one of these
  saved_besides        ///< where given, by backward alone
};

/// Whether a call has to have an input, where no other stands in its place.
constexpr bool is_needed(Reads reads) noexcept {
  return reads == Reads::always || reads == Reads::usually;
}

/// Whether `pass` reads an input that is read as `reads` says.
constexpr bool reads_in(Pass pass, Reads reads) noexcept {
  if (reads == Reads::with_gradients) return has_gradients(pass);
  const bool saved =
      reads == Reads::by_backward || reads == Reads::in_backward || reads == Reads::saved_besides;
  return !saved || pass == Pass::backward;
}

/// The kind of an option.
enum class OptionKind {
  number,  ///< of f32
  integer,
  choice,  ///< one of a list of names
  dtype
};

/// The value of an option that is not set; it has to be one that may be.
struct Unset {
  friend bool operator==(Unset, Unset) = default;
};

/// The value of an option: a number, or an integer. A choice is its place in the list, a type the
/// integer that DType gives it.
using OptionValue = std::variant<float, std::int64_t, Unset>;
/// The number, or "unset".
TESSERA_API std::string to_string(const OptionValue& value);

/// The values that an option may have; a number is finite, whatever the limits.
struct OptionRange {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool below_most = false;  ///< `most` itself is none of them
  const char* hint = "";    ///< what a message says behind the limit: ", which turns it off"
};

}  // namespace tessera

namespace tessera {

/// The other order of axes that an argument may be given in, from languages whose arrays say their
/// shape alone. In C++ strides say it.
enum class Layout {
  fixed,   ///< none
  weight,  ///< a layer's matrix: [H, V] or [V, H]
  heads    ///< [..., heads, tokens, depth] or [..., tokens, heads, depth]
};

}  // namespace tessera

namespace tessera::operators {

class AnyOperator;

struct Input {
  const char* name;
  SymbolicShape shape;
  ElementTypes types;
  Reads reads;
  Layout layout = Layout::fixed;

  /// What a call has to have beside the labels.
  bool is_operand() const noexcept {
    return reads == Reads::always && types == ElementTypes::floating;
  }
  bool is_weight() const noexcept { return layout == Layout::weight; }
};

struct Output {
  const char* name;
  SymbolicShape shape;
  ElementTypes types;  ///< floating: of a call that owns it, the type of the first input
  bool is_wanted;      ///< by default, of a call that owns its results
  const char* in_place = nullptr;  ///< the input whose very view it may be
  /// If `heads`, a result that the library owns lies in memory as the first input does.
  Layout layout = Layout::fixed;
};

/// A gradient has the shape of the input that it is of, and cannot be asked for without it.
struct Gradient {
  const char* name;
  std::size_t of;  ///< place of the input
  /// Its type where no view says another; nothing: the type of the input.
  std::optional<DType> type;
  bool in_place;   ///< its view may be the very view of the input
  bool is_wanted;  ///< by default, of a call that owns its results
};

struct Option {
  const char* name;
  const char* help;
  OptionKind kind;
  bool may_be_unset;
  OptionValue standard;  ///< its default
  OptionRange range;
  std::span<const char* const> choices;
};

/// What an operator is. Places are those of its OperatorTraits.
struct TESSERA_API Description {
  const char* name;
  std::vector<Pass> passes;
  std::vector<Input> inputs;  ///< the first gives the leading axes
  std::vector<Output> outputs;
  std::vector<Gradient> gradients;
  std::vector<Option> options;  ///< what to compute, then those of execution that are its own
  std::vector<NamedValue> block_sizes;  ///< each axis with its default
  const AnyOperator& (*behind)();       ///< what checks and runs its calls

  std::vector<ImplementationInfo> implementations() const;
  /// nullptr: the operator has none of that name.
  const Input* input(std::string_view wanted) const noexcept;
  const Option* option(std::string_view wanted) const noexcept;
  bool has(Pass pass) const noexcept;
  bool has_weights() const noexcept;
  /// Whether an input has an axis of this letter.
  bool has_letter(char letter) const noexcept;
};

/// Every operator, in the order of host/catalog/operators.hpp.
TESSERA_API const std::vector<Description>& descriptions();
/// Throws Error invalid_argument for a name that no operator has.
TESSERA_API const Description& description(std::string_view name);

/// Values in place, by the places of a description: a call allocates nothing for them.
template <class T, std::size_t capacity>
class Values {
 public:
  static constexpr std::size_t max_count = capacity;
  explicit Values(std::size_t count = 0) : count_(count) {}
  std::size_t size() const noexcept { return count_; }
  T* begin() noexcept { return all_.data(); }
  T* end() noexcept { return all_.data() + count_; }
  const T* begin() const noexcept { return all_.data(); }
  const T* end() const noexcept { return all_.data() + count_; }
  T& operator[](std::size_t at) noexcept { return all_[at]; }
  const T& operator[](std::size_t at) const noexcept { return all_[at]; }

 private:
  std::array<T, capacity> all_{};
  std::size_t count_;
};

/// Block sizes by the axes of a description.
using Blocks = Values<std::int64_t, 4>;

/// A call. Views by the places of the description; those not given are empty.
struct TESSERA_API Call {
  Call(const Description& op, Pass pass);

  const Description* op;
  Pass pass;
  static constexpr std::size_t max_gradients = 6;

  Values<View, 20> inputs;
  Values<MutableView, 12> outputs;
  Values<MutableView, max_gradients> gradients;
  Values<bool, max_gradients> accumulate;  ///< of each gradient
  /// Which outputs and gradients a call returns that owns its results.
  Values<bool, 12> wants;
  Values<bool, max_gradients> wants_gradients;
  Values<OptionValue, 24> options;
  ImplementationList implementation{};
  std::optional<Blocks> block_sizes{};
  std::optional<std::int64_t> block_size{};  ///< the older way to give the last of them
  std::vector<NamedValue> knobs{};
  std::optional<std::size_t> workspace_bytes{};
  MutableView workspace{};
  cl_command_queue queue = nullptr;
  std::vector<cl_event> wait_for{};

  /// Sets the option of that name; false: the operator has none.
  bool set(std::string_view name, const OptionValue& value);
  /// Sets the block sizes of those names, the others to their defaults.
  void set_block_sizes(const std::vector<NamedValue>& values);
};

/// What a call returned that owns its results, by the places of the description; empty where not
/// asked for.
struct Owned {
  Values<HostTensor, decltype(Call::outputs)::max_count> outputs;
  Values<HostTensor, decltype(Call::gradients)::max_count> gradients;
  Dispatch dispatch;
};

/// The extents of "...", the leading axes: those of the first input.
Dims leading_extents(const Call& call);
/// Each letter's extent in the first input that is given and has it. Nothing is checked.
ProblemExtents letter_extents(const Call& call);
/// The extents of the output at place `output`, by those of the inputs that are given. Nothing is
/// checked; a letter that no input has is 0.
TESSERA_API Dims output_extents(const Call& call, std::size_t output);
/// The strides of that output, of these extents, where the call owns it: dense, with tokens before
/// heads where the first input has them so and the output's layout is `heads`.
TESSERA_API Dims output_strides(const Call& call, std::size_t output, const Dims& extents);

/// Block sizes by name.
std::vector<NamedValue> blocks_by_name(const Description& op, const Blocks& blocks);

/// These run the call or answer questions about it, and throw what the operator's functions with
/// views throw. The pass is not forward_partial.
TESSERA_API Completion run(Context& context, Call call);
/// Runs a call that has no views of results, and returns what its wants name.
TESSERA_API Owned run_owned(Context& context, Call call);
TESSERA_API Plan plan(Context& context, Call call);
TESSERA_API CostEstimate cost_estimate(Context& context, Call call);
TESSERA_API std::optional<std::string> why_unsupported(Context& context,
                                                       const std::string& implementation,
                                                       Call call);
/// What block sizes and knobs the first implementation that serves the call can be given, the best
/// first; empty: its knobs follow from the call, and any block is legal.
TESSERA_API std::vector<dispatch::Choice> choices(Context& context, Call call);
/// What `plan` reports, without compiling anything.
TESSERA_API Dispatch foresee(Context& context, Call call);
/// Only the pass and the inputs of the call count.
TESSERA_API std::pair<std::vector<NamedValue>, BlockSource> infer_block_sizes(
    Context& context, const std::string& implementation, Call call);

}  // namespace tessera::operators
