// SPDX-License-Identifier: Apache-2.0
#include "tests/support/results.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/logit_errors.hpp"
#include "tests/support/runner.hpp"
#include "tests/support/test_operator.hpp"

namespace tessera::test {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Strides of twice a dense array's: only every other element is the view's.
Dims spread(const Dims& extents) {
  Dims strides = contiguous_strides(extents);
  for (int axis = 0; axis < strides.rank(); ++axis) strides[axis] *= 2;
  return strides;
}

/// Numbers for a gradient to add to, of the size of gradients.
std::vector<double> fill_base(const Argument& argument) {
  std::vector<double> base(index(argument.size()));
  for (std::int64_t i = 0; i < argument.size(); ++i) {
    argument.storage->set(argument.at(i), 0.01 * static_cast<double>((i * 37) % 101 - 50));
    base[index(i)] = argument.get(i);
  }
  return base;
}

double norm_of(const std::vector<double>& a, std::int64_t first, std::int64_t n,
               std::int64_t step) {
  double squares = 0.0;
  for (std::int64_t i = 0; i < n && !a.empty(); ++i) {
    squares += a[index(first + i * step)] * a[index(first + i * step)];
  }
  return std::sqrt(squares);
}

double at(const std::vector<double>& a, std::int64_t i) { return a.empty() ? 0.0 : a[index(i)]; }

/// Copies an owned result where the results' memory is.
void copy(const HostTensor& from, const char* name, Argument& to) {
  if (!to) return;
  if (!from) {
    ADD_FAILURE() << name << " was asked for and is missing from the owned result";
    return;
  }
  ASSERT_EQ(from.extents(), to.extents) << name;
  for (std::int64_t i = 0; i < from.size(); ++i) {
    if (from.dtype() == DType::i32) {
      to.storage->set_integer(to.at(i), from.as<std::int32_t>()[index(i)]);
    } else {
      to.storage->set(to.at(i), from.as<float>()[index(i)]);
    }
  }
  to.storage->upload();
}

}  // namespace

Results::Results(Context& context, const Case& c, const Expected& expected, Pass pass,
                 const std::string& implementation)
    : case_(c), expected_(expected), pass_(pass), implementation_(implementation) {
  unsigned bit = 0;  // the loss is always asked for, the others by OutputBit
  for (const auto& output : c.op->outputs()) {
    Argument& argument = memory_.add(output.name);
    const bool wanted = bit == 0 || (c.outputs & bit) != 0;
    bit = bit == 0 ? 1 : 2 * bit;
    if (pass == Pass::backward || !wanted) continue;
    const Dims extents = c.op->extents(c, output.shape);
    const DType type = output.types == ElementTypes::integer ? c.label_type : DType::f32;
    argument = make_argument(context, c.place, type, extents,
                             c.strided_outputs ? spread(extents) : Dims{});
  }
  make_gradients(context);
  for (auto& [name, argument] : memory_) {
    if (argument) argument.storage->upload();
  }
}

void Results::make_gradients(Context& context) {
  const Case& c = case_;
  const auto& gradients = c.op->gradients();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const char* name = gradients[i].name;
    const auto& of = c.op->input_of(gradients[i]);
    Argument& argument = memory_.add(name);
    const bool wanted = (c.gradients >> i & 1u) != 0 && c.op->is_given(of, expected_.problem);
    if (!has_gradients(pass_) || !wanted || (c.in_place && i == 0)) continue;
    const ArrayMemory memory = c.op->gradient_memory(c, c.op->rows(c), name);
    argument =
        make_argument(context, c.place, memory.type, c.op->extents(c, of.shape), memory.strides);
    // What is overwritten stays poisoned.
    if ((c.accumulate >> i & 1u) != 0) bases_[name] = fill_base(argument);
  }
}

Outputs Results::outputs() const {
  Outputs all;
  for (const auto& output : loss_outputs) {
    all.*output.view = memory_[output.name].mutable_view();
  }
  return all;
}

void Results::take(const LossResult& owned) {
  for (const auto& output : loss_outputs) {
    take_one(owned.*output.owned, output.name);
  }
}

void Results::take_one(const HostTensor& owned, const char* name) {
  copy(owned, name, memory_[name]);
}

SummaryKey Results::key() const {
  return {implementation_, case_.op->name(), to_string(pass_), case_.op->types_of(case_),
          case_.op->layout_of(case_)};
}

void Results::check(Arguments& arguments) {
  const std::string damage = arguments.damage();
  EXPECT_TRUE(damage.empty()) << "input " << damage;
  check_surroundings();
  if (pass_ != Pass::backward) {
    check_values();
    if (memory_["argmax"]) check_argmax();
    if (memory_["statistics"]) check_statistics();
    if (!expected_.values.divergence.empty()) check_divergence_statistics();
  }
  if (has_gradients(pass_)) check_gradients(arguments);
}

void Results::check_untouched(Arguments& arguments) {
  const std::string damage = arguments.damage();
  EXPECT_TRUE(damage.empty()) << "input " << damage;
  for (auto& [name, argument] : memory_) {
    if (!argument) continue;
    const std::string beside = argument.storage->download();
    EXPECT_TRUE(beside.empty()) << name << ": " << beside;
    EXPECT_FALSE(argument.storage->changed()) << name << " was written to";
  }
}

void Results::check_surroundings() {
  for (auto& [name, argument] : memory_) {
    if (!argument) continue;
    const std::string damage = argument.storage->download();
    EXPECT_TRUE(damage.empty()) << name << ": " << damage;
    std::vector<bool> reached(index(argument.storage->elements()), false);
    std::int64_t unwritten = 0;
    for (std::int64_t i = 0; i < argument.size(); ++i) {
      reached[index(argument.at(i))] = true;
      unwritten += argument.storage->is_poison(argument.at(i)) ? 1 : 0;
    }
    EXPECT_EQ(unwritten, 0) << "elements of " << name << " were never written";
    std::int64_t overwritten = 0;
    for (std::int64_t i = 0; i < argument.storage->elements(); ++i) {
      if (!reached[index(i)] && !argument.storage->is_poison(i)) ++overwritten;
    }
    EXPECT_EQ(overwritten, 0) << "elements between the rows of " << name << " were overwritten";
  }
}

void Results::check_values() {
  const auto& v = expected_.values;
  auto t = expected_.tolerance;
  if (implementation_ == "reference" && pass_ == Pass::forward_partial) {
    // A Partial's maximum and logit of the label are two numbers of f32. Where logits are f32 too,
    // nothing is lost of their difference; the textbook's are rounded one by one.
    for (std::size_t row = 0; row < t.label_logprob.size(); ++row) {
      if (std::isfinite(v.lse[row])) t.label_logprob[row] += 0x1p-24 * std::abs(v.max[row]);
    }
  }
  auto compare = [&](const char* name, const std::vector<double>& expected,
                     const std::vector<double>& tolerance) {
    const Argument& actual = memory_[name];
    if (!actual) return;
    ASSERT_EQ(index(actual.size()), expected.size()) << name;
    Comparison comparison(key(), name);
    for (std::int64_t i = 0; i < actual.size(); ++i) {
      comparison.number(i, actual.get(i), expected[index(i)], tolerance[index(i)]);
    }
  };
  compare("loss", v.loss, t.loss);
  compare("lse", v.lse, t.lse);
  compare("label_logprob", v.label_logprob, t.label_logprob);
  compare("entropy", v.entropy, t.entropy);
  compare("z_loss", v.z_loss, t.z_loss);
  if (v.divergence.empty()) return;  // no teacher
  compare("divergence", v.divergence, t.divergence);
  compare("target_entropy", v.target_entropy, t.target_entropy);
}

void Results::check_argmax() {
  const auto& p = expected_.problem;
  const auto& v = expected_.values;
  const Argument& argmax = memory_["argmax"];
  Comparison comparison(key(), "argmax");
  for (std::int64_t row = 0; row < p.b; ++row) {
    const std::int64_t actual = argmax.storage->get_integer(argmax.at(row));
    const bool ignored = oracle::is_ignored(p, row);
    if (ignored || case_.data == Data::equal) {
      comparison.number(row, static_cast<double>(actual), static_cast<double>(v.argmax[index(row)]),
                        0.0);
      continue;
    }
    if (std::isnan(v.lse[index(row)])) continue;  // unspecified
    if (actual < 0 || actual >= p.v) {
      comparison.wrong(row, std::to_string(actual) + " is no column");
      continue;
    }
    // Two logits closer than their errors may change places.
    const std::int64_t best = row * p.v + v.argmax[index(row)];
    const std::int64_t taken = row * p.v + actual;
    if (best == taken || v.logits[index(best)] == v.logits[index(taken)]) continue;
    comparison.number(
        row, v.logits[index(taken)], v.logits[index(best)],
        expected_.tolerance.logit[index(best)] + expected_.tolerance.logit[index(taken)]);
  }
}

void Results::check_statistics() {
  const auto& p = expected_.problem;
  const auto& v = expected_.values;
  const Argument& statistics = memory_["statistics"];
  Comparison comparison(key(), "statistics");
  for (std::int64_t row = 0; row < p.b; ++row) {
    if (oracle::is_ignored(p, row)) continue;
    const double max = statistics.get(2 * row);
    const double sum = statistics.get(2 * row + 1);
    const double tolerance = expected_.tolerance.max[index(row)];
    if (std::isfinite(v.lse[index(row)])) {
      comparison.number(2 * row, max, v.max[index(row)], tolerance);
    }
    // Wholly masked: log(0) is that -Inf already. All NaN: whatever the maximum, the sum is NaN.
    const double actual = max + std::log(sum);
    comparison.number(2 * row + 1, actual, v.lse[index(row)],
                      expected_.tolerance.lse[index(row)] + tolerance);
  }
}

void Results::check_divergence_statistics() {
  const Argument& statistics = memory_["divergence_statistics"];
  if (!statistics) return;
  const auto& expected = expected_.values.divergence_statistics;
  const auto& t = expected_.tolerance;
  Comparison comparison(key(), "divergence_statistics");
  for (std::int64_t row = 0; row < expected_.problem.b; ++row) {
    // A maximum and the sum relative to it are one number. Of an ignored row both are as they are.
    const bool ignored = oracle::is_ignored(expected_.problem, row);
    const auto lse = [&](std::int64_t max, const std::vector<double>& tolerance) {
      const std::int64_t at = 5 * row + max;
      if (ignored) {
        comparison.number(at, statistics.get(at), expected[index(at)], 0.0);
        comparison.number(at + 1, statistics.get(at + 1), expected[index(at + 1)], 0.0);
        return;
      }
      comparison.number(at, statistics.get(at) + std::log(statistics.get(at + 1)),
                        expected[index(at)] + std::log(expected[index(at + 1)]),
                        tolerance[index(row)]);
    };
    lse(0, t.student_lse);
    lse(2, t.teacher_lse);
    comparison.number(5 * row + 4, statistics.get(5 * row + 4), expected[index(5 * row + 4)],
                      t.relative[index(row)]);
  }
}

void Results::check_gradients(const Arguments& arguments) {
  Precision precision;
  precision.from_lse = pass_ == Pass::backward && case_.from_lse;
  precision.dz = dz_type(implementation_, case_);
  precision.grad_x = case_.grad_x_type.value_or(case_.x_type);
  precision.grad_w = case_.grad_w_type.value_or(case_.w_type);
  precision.grad_bias = case_.grad_bias_type;
  precision.gradient_filter_eps = static_cast<double>(case_.gradient_filter_eps);
  const GradientTolerance t = case_.op->tolerance_of(expected_, precision);
  const auto& front = case_.op->gradients().front();
  for (const JudgedGradient& judged : case_.op->judged()) {
    const bool in_place = case_.in_place && std::string_view(judged.name) == front.name;
    const Argument& actual =
        in_place ? arguments[case_.op->input_of(front).name] : memory_[judged.name];
    if (!actual) continue;
    const auto& expected = expected_.gradients.*judged.expected;
    const auto& tolerance = t.*judged.tolerance;
    const auto base = bases_.find(judged.name);
    const std::vector<double> before = base == bases_.end() ? std::vector<double>() : base->second;
    // With accumulate the sum is formed in f32 and rounded once: rounding in proportion to the
    // base. On eigen the base is the first term of the sum over the rows.
    const double steps = implementation_ == "eigen" ? lambda * root(expected_.problem.b) : 2.0;
    const auto extra = [&](double added_to) {
      if (added_to == 0.0) return 0.0;
      return (unit_roundoff(actual.storage->type()) + steps * u) * added_to;
    };
    const auto wanted = [&](std::int64_t i) { return expected[index(i)] + at(before, i); };
    Comparison comparison(key(), judged.name);
    if (judged.by == JudgedGradient::By::elements) {
      for (std::int64_t i = 0; i < actual.size(); ++i) {
        comparison.number(i, actual.get(i), wanted(i),
                          tolerance[index(i)] + extra(std::abs(at(before, i))));
      }
      continue;
    }
    // Rows of the last axis, or columns of a matrix.
    const bool rows = judged.by == JudgedGradient::By::rows;
    const std::int64_t last = actual.extents[actual.extents.rank() - 1];
    const std::int64_t parts = rows ? expected_.problem.b : last;
    const std::int64_t count = rows ? last : actual.extents[0];
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t first = rows ? part * last : part, step = rows ? 1 : last;
      comparison.norm(
          part, count, [&](std::int64_t i) { return actual.get(first + i * step); },
          [&](std::int64_t i) { return wanted(first + i * step); },
          tolerance[index(part)] + extra(norm_of(before, first, count, step)));
    }
  }
}

}  // namespace tessera::test
