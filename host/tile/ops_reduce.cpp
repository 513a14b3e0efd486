// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <type_traits>

#include "host/tile/core.hpp"
#include "host/tile/machine_state.hpp"
#include "host/tile/ops.hpp"
#include "host/tile/text.hpp"

namespace tessera::tile::detail {
namespace {

/// Partial results of a row, so that the loop over it is one of vector instructions. The same for
/// every machine and number of threads: the order of a sum depends on nothing else. Sixteen floats
/// are one register of AVX-512, two of AVX2.
constexpr int lanes = 16;
/// Elements below which a second thread would take longer to wake than to compute.
constexpr std::int64_t min_elements_per_thread = 32768;

template <class Word>
Word first_value(Reduction reduction) {
  using Limits = std::numeric_limits<Word>;
  if (reduction == Reduction::sum) return Word{0};
  if constexpr (std::is_same_v<Word, float>) {
    return reduction == Reduction::max ? -Limits::infinity() : Limits::infinity();
  } else {
    return reduction == Reduction::max ? Limits::min() : Limits::max();
  }
}

template <Reduction reduction, class Word>
Word combined(Word a, Word b) {
  if constexpr (reduction == Reduction::max) {
    return b > a ? b : a;
  } else if constexpr (reduction == Reduction::min) {
    return b < a ? b : a;
  } else if constexpr (std::is_integral_v<Word>) {
    return static_cast<Word>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  } else {
    return a + b;
  }
}

/// Running results side by side. The larger of two by a comparison drops a NaN, so those are noted
/// beside it.
template <Reduction reduction, class Word, int count>
struct Partial {
  alignas(64) Word value[count];
  alignas(64) std::uint32_t unordered[count];

  void start() {
    std::fill_n(value, count, first_value<Word>(reduction));
    std::fill_n(unordered, count, 0u);
  }
  void take(int i, Word x) {
    if constexpr (reduction != Reduction::sum) unordered[i] |= static_cast<std::uint32_t>(x != x);
    value[i] = combined<reduction>(value[i], x);
  }
  void take(const Word* __restrict x, int n) {
    for (int i = 0; i < n; ++i) take(i, x[i]);
  }
  Word result(int i) const {
    if constexpr (std::is_same_v<Word, float>) {
      if (unordered[i] != 0) return std::numeric_limits<float>::quiet_NaN();
    }
    return value[i];
  }
};

/// The extreme element's index: the first NaN's, else the first of equal ones.
template <Reduction reduction, class Word, int count>
struct PartialIndex {
  Word value[count];
  std::int32_t index[count];

  void take(int i, Word x, std::int32_t at) {
    const bool is_nan = x != x && value[i] == value[i];
    const bool beyond = reduction == Reduction::argmax ? x > value[i] : x < value[i];
    if (at == 0 || is_nan || beyond) {
      value[i] = x;
      index[i] = at;
    }
  }
};

template <Reduction reduction>
constexpr bool gives_index = reduction == Reduction::argmax || reduction == Reduction::argmin;

/// A reduction whose last loop is over the axis, or over what lies beside it.
struct Job {
  Compute& compute;
  const Plan& plan;
  const Function& function;
  ElementType out_type;
  std::size_t axis;  ///< of the loops

  std::size_t results() const { return plan.sources.size(); }
  std::vector<std::int64_t> strides(std::size_t d) const {
    std::vector<std::int64_t> list;
    for (const Shape& s : plan.loops.strides) list.push_back(s[d]);
    return list;
  }
  void store(const void* words, ElementType word, std::int64_t count, std::int64_t at,
             std::int64_t stride) const {
    store_words(words, word, count,
                static_cast<std::byte*>(plan.out.target) + at * bits_of(out_type) / 8, out_type,
                stride);
  }

  /// Every row of the axis, which is the last dimension, to one element.
  template <Reduction reduction, class Word>
  void rows() const {
    const std::int64_t n = plan.loops.extents[axis];
    const auto step = strides(axis);
    std::int64_t count = 1;
    for (std::size_t d = 0; d < axis; ++d) count *= plan.loops.extents[d];
    const auto body = [&](std::int64_t first, std::int64_t last) {
      Chunks chunks(plan.sources, function);
      std::vector<std::int64_t> row(results() + 1), at(results() + 1);
      for (std::int64_t unit = first; unit < last; ++unit) {
        plan.loops.locate(unit, axis, row.data());
        const auto stretch = [&](std::int64_t from, int length) {
          for (std::size_t i = 0; i < results(); ++i) at[i] = row[i] + from * step[i];
          return static_cast<const Word*>(chunks.values(at.data(), step.data(), length));
        };
        if constexpr (gives_index<reduction>) {
          PartialIndex<reduction, Word, 1> partial;
          for (std::int64_t i = 0; i < n; i += chunk_elements) {
            const auto length = static_cast<int>(std::min<std::int64_t>(n - i, chunk_elements));
            const Word* x = stretch(i, length);
            for (int j = 0; j < length; ++j) {
              partial.take(0, x[j], static_cast<std::int32_t>(i + j));
            }
          }
          store(partial.index, ElementType::i32, 1, row[results()], 1);
        } else {
          Partial<reduction, Word, lanes> partial;
          partial.start();
          for (std::int64_t i = 0; i < n; i += chunk_elements) {
            const auto length = static_cast<int>(std::min<std::int64_t>(n - i, chunk_elements));
            const Word* x = stretch(i, length);
            int j = 0;
            for (; j + lanes <= length; j += lanes) partial.take(x + j, lanes);
            partial.take(x + j, length - j);
          }
          for (int width = lanes / 2; width > 0; width /= 2) {
            for (int i = 0; i < width; ++i) {
              partial.value[i] = combined<reduction>(partial.value[i], partial.value[i + width]);
              partial.unordered[i] |= partial.unordered[i + width];
            }
          }
          const Word result = partial.result(0);
          store(&result, function.result, 1, row[results()], 1);
        }
      }
    };
    compute.run(count, min_elements_per_thread / std::max<std::int64_t>(n, 1) + 1, std::ref(body));
  }

  /// Columns side by side, a chunk of the last dimension at a time.
  template <Reduction reduction, class Word>
  void columns() const {
    const Loops& loops = plan.loops;
    const std::size_t last_dimension = loops.extents.size() - 1;
    const std::int64_t n = loops.extents[axis];
    const std::int64_t width = loops.extents[last_dimension];
    const std::int64_t per_row = (width + chunk_elements - 1) / chunk_elements;
    const auto step = strides(axis);
    const auto along = strides(last_dimension);
    // The dimensions that are neither.
    Loops outer = loops;
    outer.extents[axis] = outer.extents[last_dimension] = 1;
    std::int64_t count = per_row;
    for (const auto extent : outer.extents) count *= extent;
    const auto body = [&](std::int64_t first, std::int64_t last) {
      Chunks chunks(plan.sources, function);
      std::vector<std::int64_t> start(results() + 1), at(results() + 1);
      for (std::int64_t unit = first; unit < last; ++unit) {
        outer.locate(unit / per_row, outer.extents.size(), start.data());
        const std::int64_t column = unit % per_row * chunk_elements;
        const auto length =
            static_cast<int>(std::min<std::int64_t>(width - column, chunk_elements));
        const auto stretch = [&](std::int64_t r) {
          for (std::size_t i = 0; i < results(); ++i) {
            at[i] = start[i] + column * along[i] + r * step[i];
          }
          return static_cast<const Word*>(chunks.values(at.data(), along.data(), length));
        };
        const std::int64_t target = start[results()] + column * along[results()];
        if constexpr (gives_index<reduction>) {
          PartialIndex<reduction, Word, chunk_elements> partial;
          for (std::int64_t r = 0; r < n; ++r) {
            const Word* x = stretch(r);
            for (int j = 0; j < length; ++j) partial.take(j, x[j], static_cast<std::int32_t>(r));
          }
          store(partial.index, ElementType::i32, length, target, along[results()]);
        } else {
          Partial<reduction, Word, chunk_elements> partial;
          partial.start();
          for (std::int64_t r = 0; r < n; ++r) partial.take(stretch(r), length);
          Word result[chunk_elements];
          for (int j = 0; j < length; ++j) result[j] = partial.result(j);
          store(result, function.result, length, target, along[results()]);
        }
      }
    };
    compute.run(
        count,
        min_elements_per_thread /
                std::max<std::int64_t>(n * std::min<std::int64_t>(width, chunk_elements), 1) +
            1,
        std::ref(body));
  }

  template <Reduction reduction, class Word>
  void run() const {
    axis + 1 == plan.loops.extents.size() ? rows<reduction, Word>() : columns<reduction, Word>();
  }
  template <class Word>
  void run(Reduction reduction) const {
    switch (reduction) {
      case Reduction::sum:
        return run<Reduction::sum, Word>();
      case Reduction::max:
        return run<Reduction::max, Word>();
      case Reduction::min:
        return run<Reduction::min, Word>();
      case Reduction::argmax:
        return run<Reduction::argmax, Word>();
      case Reduction::argmin:
        return run<Reduction::argmin, Word>();
    }
  }
};

const char* name_of(Reduction reduction) {
  constexpr const char* names[] = {"reduce_sum", "reduce_max", "reduce_min", "argmax", "argmin"};
  return names[static_cast<int>(reduction)];
}

/// What the refs broadcast to, as far as they do; `plan` refuses those that do not fit.
Shape domain_of(Operands operands) {
  Shape domain;
  for (const Operand& operand : operands) {
    if (operand.region == nullptr) continue;
    const Shape extents = extents_of(operand);
    if (extents.size() > domain.size())
      domain.insert(domain.begin(), extents.size() - domain.size(), 1);
    const std::size_t missing = domain.size() - extents.size();
    for (std::size_t d = 0; d < extents.size(); ++d) {
      if (domain[missing + d] == 1) domain[missing + d] = extents[d];
    }
  }
  return domain;
}

Work work_of(const Chip& chip, Reduction reduction, const Shape& domain, std::size_t axis,
             const MapCost& cost) {
  const double all = padded_elements(chip, domain);
  Shape reduced = domain;
  reduced[axis] = 1;
  const double left = padded_elements(chip, reduced);
  // An index goes along with every value: a comparison and two selections in place of one maximum.
  const bool with_index = reduction == Reduction::argmax || reduction == Reduction::argmin;
  const double per_element = with_index ? 3 : 1;
  Work work{.vpu_ops = (cost.vpu + per_element) * all, .eup_ops = cost.eup * all};
  const std::size_t behind = domain.size() - 1 - axis;
  // Registers are combined one with the other by the vector unit; what is left of them is one
  // register wide, whose lanes the cross-lane unit combines, and whose sublanes take a rotation
  // and an operation for each halving.
  if (behind == 0) work.xlu_ops = left * (with_index ? 2 : 1);
  if (behind == 1 || domain.size() == 1) {
    for (int rows = chip.sublanes; rows > 1; rows /= 2) work.vpu_ops += per_element * left;
  }
  return work;
}

}  // namespace

void reduce(Reduction reduction, const Region& out, int axis, Operands operands,
            const Function& function, const MapCost& cost) {
  const char* what = name_of(reduction);
  MachineState& machine = machine_of_core(what);
  const Shape domain = domain_of(operands);
  const auto rank = static_cast<int>(domain.size());
  const int a = axis < 0 ? axis + rank : axis;
  if (a < 0 || a >= rank) {
    refuse(what, fmt::format("axis {} is none of {}", axis, to_text(domain)), out);
  }
  const auto d = static_cast<std::size_t>(a);
  Shape keep_dims = domain;
  keep_dims[d] = 1;
  Shape removed = domain;
  removed.erase(removed.begin() + a);
  const Shape extents = extents_of(out);
  if (extents != keep_dims && extents != removed) {
    refuse(what,
           fmt::format("{} along axis {} gives {} or {}, and {} is neither", to_text(domain), axis,
                       to_text(keep_dims), to_text(removed), described(out)),
           out);
  }
  if (domain[d] == 0 && reduction != Reduction::sum) {
    refuse(what, fmt::format("axis {} of {} has no elements", axis, to_text(domain)), out);
  }
  Plan p = plan(what, domain, operands, out, false);
  charge(work_of(machine.options.chip, reduction, domain, d, cost));
  if (p.dry) return;
  Shape strides = p.out.strides;
  if (extents == keep_dims) {
    strides[d] = 0;
  } else {
    strides.insert(strides.begin() + a, 0);
  }
  p.loops.strides.push_back(std::move(strides));
  // Dimensions of one element go, but for the axis.
  std::size_t at = 0;
  for (std::size_t i = 0; i < d; ++i) at += domain[i] != 1 ? 1 : 0;
  const bool alone = domain[d] == 1;
  if (alone) p.loops.extents[d] = 2;  // so that it stays through what follows
  p.loops.simplify(false);
  if (alone) p.loops.extents[at] = 1;
  const Job job{*machine.compute, p, function, type_of(out), at};
  switch (function.result) {
    case ElementType::i32:
      return job.run<std::int32_t>(reduction);
    case ElementType::u32:
      return job.run<std::uint32_t>(reduction);
    default:
      return job.run<float>(reduction);
  }
}

}  // namespace tessera::tile::detail
