// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "host/arguments/shape.hpp"
#include "host/dispatch/context_state.hpp"
#include "tessera/execution.hpp"

/// The checks of a call's arguments that every operator shares. All of them throw before any output
/// is touched; each message names the argument, its value, the limit and what to do.
namespace tessera::arguments {

/// How a call brings its outputs.
enum class Form {
  views,    ///< the caller's views
  owned,    ///< none: the library allocates what `wants` names
  question  ///< as views, or as owned where none is given; host pointers may be null
};

/// Where an expected shape comes from, put into words only when a message needs them.
class Source {
 public:
  Source(std::string text) : owned_(std::move(text)) {}
  /// "what [extents]more"; the extents, where given, must outlive it.
  Source(const char* what, const Dims* extents = nullptr, const char* more = "")
      : what_(what), extents_(extents), more_(more) {}
  /// "what name [extents]"; the extents must outlive it.
  Source(const char* what, const char* name, const Dims& extents)
      : what_(what), name_(name), extents_(&extents) {}
  Source with(const char* more) const;
  std::string text() const;

 private:
  std::string owned_{};
  const char* what_ = "";
  const char* name_ = nullptr;
  const Dims* extents_ = nullptr;
  const char* more_ = "";
};

/// The announced views of a call, in place: an allocation of this size costs glibc's malloc tens of
/// microseconds where a driver has left many small free blocks behind.
class ViewList {
 public:
  struct Entry {
    const char* name;
    View view;
    View lies;            ///< the same elements where they are (DeviceRuntime::underlying)
    std::uint64_t begin;  ///< address, or offset in device memory
    std::uint64_t end;    ///< of the last byte it reaches
  };
  /// `reach`: bytes from element 0 to the end of the last element.
  void add(const char* name, const View& view, const View& lies, std::int64_t reach);
  const Entry* begin() const noexcept { return entries_.data(); }
  const Entry* end() const noexcept { return entries_.data() + count_; }

 private:
  std::array<Entry, 24> entries_;  ///< more than an operator has of either kind
  std::size_t count_ = 0;
};

/// Checks the arguments of one call. First every view is announced by `input` or `output`, then
/// shapes are compared, then `overlaps` and `handles` look at memory and handles.
class Checks {
 public:
  /// `state` null: a call on host memory alone, without a context (combine).
  Checks(const ContextState* state, std::string operation, Form form)
      : state_(state), operation_(std::move(operation)), form_(form) {}

  Form form() const noexcept { return form_; }
  const ContextState* state() const noexcept { return state_; }
  const std::string& operation() const noexcept { return operation_; }

  [[noreturn]] void fail(const std::string& message,
                         ErrorCode code = ErrorCode::invalid_argument) const;

  /// Memory, alignment, type, extents and strides of one view; nothing for one not given.
  void input(const char* name, const View& view, ElementTypes types);
  /// `is_read`: kernels also read what they or the caller wrote there.
  void output(const char* name, const MutableView& view, ElementTypes types, bool is_read = false);
  void require(const char* name, const View& view, const char* why) const;
  void refuse(const char* name, const View& view, const char* why) const;

  /// Error unless the view, where given, has these extents. `expected` is described by `source`,
  /// e.g. "the leading axes of x". Where () is expected, [1] is taken as it.
  template <class V>
  void shape(const char* name, V& view, const Dims& expected, const Source& source) const {
    if (!view || view.extents() == expected) return;
    if (expected.rank() == 0 && view.rank() == 1 && view.extents()[0] == 1) {
      view = view.reshaped({}, {});
      return;
    }
    wrong_shape(name, view, expected, source);
  }

  /// a * b, or an error that names the product.
  std::int64_t product(std::int64_t a, std::int64_t b, const char* what) const;
  std::int64_t product(const Dims& extents, const char* name, const char* what = "") const;

  /// Error when an output touches an input or another output. `in_place` names an output that may
  /// be the very view of the input `in_place_of`.
  void overlaps(const char* in_place = nullptr, const char* in_place_of = nullptr) const;

  /// Queue, events and lent workspace.
  void handles(cl_command_queue queue, const std::vector<cl_event>& wait_for,
               const MutableView& workspace);
  void positive_block(const char* name, std::int64_t value) const;

 private:
  /// Returns the bytes that the view reaches.
  std::int64_t check_view(const char* name, const View& view, ElementTypes types,
                          bool is_written) const;
  void check_memory(const char* name, const View& view, bool is_written) const;
  View underlying(const View& view) const;
  [[noreturn]] void wrong_shape(const char* name, const View& view, const Dims& expected,
                                const Source& source) const;

  const ContextState* state_;
  std::string operation_;
  Form form_;
  ViewList inputs_;
  ViewList outputs_;
};

/// "[3, 4]"
std::string to_string(const Dims& dims);

/// "5", or "5 (index [1, 2])" where there are several leading axes.
std::string describe_row(std::int64_t row, const Dims& leading);

/// True when two views of known memory begin at the same place.
bool same_memory(const View& a, const View& b) noexcept;

}  // namespace tessera::arguments
