// SPDX-License-Identifier: Apache-2.0
#include "python/src/partial.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "host/catalog/operators.hpp"
#include "host/loss/partial.hpp"
#include "python/src/context.hpp"
#include "python/src/errors.hpp"
#include "python/src/result.hpp"

namespace tessera::python {
namespace {

/// Rows of a shard of any loss; the divergence's are empty but where there is a teacher.
struct Shard {
  const operators::Description* op;
  linear_distillation::PartialResult partial;
};

template <class Op>
inline constexpr bool has_teacher =
    std::is_same_v<typename Op::Options, linear_distillation::Options>;

/// The options that a call has, in the operator's own struct.
template <class Op>
typename Op::Options options_of(const operators::Call& call) {
  typename Op::Options options;
  std::size_t at = 0;
  for (const auto& each : OperatorTraits<Op>::options) each.set(options, call.options[at++]);
  at = 0;
  for (const auto& each : OperatorTraits<Op>::outputs) {
    if (each.wanted != nullptr) loss_options(options).wants.*each.wanted = call.wants[at];
    ++at;
  }
  return options;
}

/// Calls `use(std::type_identity<Op>())` for the loss of that description.
template <class Use>
void with_loss(const operators::Description& op, const Use& use) {
  for_each_loss([&]<class Op>(std::type_identity<Op> type) {
    if (std::string_view(OperatorTraits<Op>::name) == op.name) use(type);
  });
}

Shard forward_partial(Context& context, PythonCall& bound) {
  const auto& op = *bound.call.op;
  Shard shard{&op, {}};
  with_loss(op, [&]<class Op>(std::type_identity<Op>) {
    if constexpr (has_teacher<Op>) {
      shard.partial.divergence = effective_divergence(options_of<Op>(bound.call));
    }
  });
  auto done =
      without_gil([&] { return operators::forward_partial(context, std::move(bound.call)); });
  static_cast<PartialResult&>(shard.partial) = std::move(done.result);
  shard.partial.divergence_rows = loss::rows_of<linear_distillation::DivergenceSums>(done.own);
  return shard;
}

/// The shards of a list, all of one operator, or a single one.
std::vector<const Shard*> shards_of(nb::handle given, const operators::Description* op) {
  std::vector<const Shard*> shards;
  const auto take = [&](nb::handle each) {
    const Shard* shard = nullptr;
    if (!nb::try_cast(each, shard) || shard == nullptr) {
      raise(PyExc_TypeError, std::string("shards has a ") + type_text(each) +
                                 "; give what forward_partial or merge returned");
    }
    if (op == nullptr) op = shard->op;
    if (shard->op != op) {
      raise(PyExc_ValueError,
            std::string("shards has rows of ") + shard->op->name + ", not of " + op->name);
    }
    shards.push_back(shard);
  };
  if (nb::isinstance<Shard>(given)) {
    take(given);
  } else if (PySequence_Check(given.ptr()) != 0) {
    for (nb::handle each : given) take(each);
  } else {
    take(given);
  }
  return shards;
}

/// The rows as the loss's own functions take them.
template <class Partial>
std::vector<Partial> partials_of(const std::vector<const Shard*>& shards) {
  std::vector<Partial> partials;
  for (const Shard* shard : shards) partials.push_back(shard->partial);
  return partials;
}

Shard merge_shards(nb::handle given) {
  const auto shards = shards_of(given, nullptr);
  Shard merged{shards.empty() ? nullptr : shards.front()->op, {}};
  if (merged.op == nullptr) raise(PyExc_ValueError, "shards is empty; give at least one");
  with_loss(*merged.op, [&]<class Op>(std::type_identity<Op>) {
    if constexpr (has_teacher<Op>) {
      const auto parts = partials_of<linear_distillation::PartialResult>(shards);
      merged.partial = without_gil([&] { return linear_distillation::merge(parts); });
    } else {
      const auto parts = partials_of<PartialResult>(shards);
      static_cast<PartialResult&>(merged.partial) =
          without_gil([&] { return tessera::merge(parts); });
    }
  });
  return merged;
}

CombineInputs combine_inputs(const operators::Call& call) {
  CombineInputs inputs;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const View& view = call.inputs[i];
    const std::string_view name = call.op->inputs[i].name;
    if (!view) continue;
    if (name == "labels") {
      inputs.labels = view;
    } else if (name == "weight") {
      inputs.weight = view;
    } else if (name == "class_weight") {
      inputs.class_weight = view;
    } else if (name == "target_indices") {
      inputs.target_indices = view;
    } else if (name == "target_probs") {
      inputs.target_probs = view;
    } else if (name == "targets") {
      inputs.targets = view;
    } else {
      raise(PyExc_TypeError, "combine() does not read " + std::string(name));
    }
  }
  return inputs;
}

template <class Op>
Result combine_as(const std::vector<const Shard*>& shards, const PythonCall& bound) {
  using Partial = std::conditional_t<has_teacher<Op>, linear_distillation::PartialResult,
                                     tessera::PartialResult>;
  const auto parts = partials_of<Partial>(shards);
  const auto inputs = combine_inputs(bound.call);
  const auto options = options_of<Op>(bound.call);
  auto combined = without_gil([&] {
    if constexpr (has_teacher<Op>) {
      return linear_distillation::combine(parts, inputs, options);
    } else {
      return tessera::combine(parts, inputs, options);
    }
  });
  Result result(std::move(combined.dispatch));
  for (const auto& each : OperatorTraits<Op>::outputs) {
    auto& tensor = combined.*each.owned;
    result.add(each.name, tensor ? to_numpy(std::move(tensor)) : nb::none());
  }
  return result;
}

/// The rows as a numpy array of records, whose memory is the shard's.
nb::object rows_array(nb::handle self) {
  const auto& rows = nb::cast<const Shard&>(self).partial.rows;
  constexpr std::array<std::tuple<const char*, const char*, std::size_t>, 12> fields = {{
      {"max", "f4", offsetof(Partial, max)},
      {"sum", "f4", offsetof(Partial, sum)},
      {"label_logit", "f4", offsetof(Partial, label_logit)},
      {"class_logit", "f4", offsetof(Partial, class_logit)},
      {"class_sum", "f4", offsetof(Partial, class_sum)},
      {"argmax_value", "f4", offsetof(Partial, argmax_value)},
      {"argmax", "i8", offsetof(Partial, argmax)},
      {"exp_logit", "f4", offsetof(Partial, exp_logit)},
      {"target_logit", "f4", offsetof(Partial, target_logit)},
      {"target_sum", "f4", offsetof(Partial, target_sum)},
      {"weighted_logit", "f4", offsetof(Partial, weighted_logit)},
      {"weighted_sum", "f4", offsetof(Partial, weighted_sum)},
  }};
  nb::list names, formats, offsets;
  for (const auto& [name, format, offset] : fields) {
    names.append(name);
    formats.append(format);
    offsets.append(offset);
  }
  nb::dict spec;
  spec["names"] = names;
  spec["formats"] = formats;
  spec["offsets"] = offsets;
  spec["itemsize"] = sizeof(Partial);
  const std::size_t shape[] = {rows.size() * sizeof(Partial)};
  const nb::object bytes = nb::cast(nb::ndarray<nb::numpy, nb::ro, std::uint8_t>(
      static_cast<const void*>(rows.data()), 1, shape, self));
  return bytes.attr("view")(nb::module_::import_("numpy").attr("dtype")(spec));
}

using State = std::tuple<std::string, nb::bytes, nb::bytes, std::vector<std::int64_t>, std::int64_t,
                         std::vector<std::int64_t>, int>;

template <class Row>
nb::bytes bytes_of(const std::vector<Row>& rows) {
  return nb::bytes(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(Row));
}
template <class Row>
std::vector<Row> rows_from(const nb::bytes& bytes) {
  if (bytes.size() % sizeof(Row) != 0) raise(PyExc_ValueError, "the state of a shard is damaged");
  std::vector<Row> rows(bytes.size() / sizeof(Row));
  if (!rows.empty()) std::memcpy(static_cast<void*>(rows.data()), bytes.c_str(), bytes.size());
  return rows;
}

State state_of(const Shard& shard) {
  const auto& partial = shard.partial;
  std::vector<std::int64_t> ranges;
  for (const auto& [begin, end] : partial.ranges) ranges.insert(ranges.end(), {begin, end});
  return {shard.op->name,
          bytes_of(partial.rows),
          bytes_of(partial.divergence_rows),
          {partial.extents.begin(), partial.extents.end()},
          partial.vocab_size_total,
          ranges,
          static_cast<int>(partial.divergence)};
}

void set_state(Shard* shard, const State& state) {
  const auto& [name, rows, own, extents, total, ranges, divergence] = state;
  Shard made{&operators::description(name), {}};
  made.partial.rows = rows_from<Partial>(rows);
  made.partial.divergence_rows = rows_from<linear_distillation::DivergenceSums>(own);
  made.partial.extents = Dims(extents);
  made.partial.vocab_size_total = total;
  for (std::size_t i = 0; i + 1 < ranges.size(); i += 2) {
    made.partial.ranges.push_back({ranges[i], ranges[i + 1]});
  }
  made.partial.divergence = static_cast<linear_distillation::Divergence>(divergence);
  new (shard) Shard(std::move(made));
}

}  // namespace

void bind_partials(nb::module_& m) {
  nb::class_<Shard>(m, "PartialResult",
                    "Statistics of one shard of the vocabulary, a row for each token, or of "
                    "several merged. It can be pickled, to be sent to another process.")
      .def_prop_ro("operator", [](const Shard& s) { return s.op->name; })
      .def_prop_ro("rows", &rows_array, "[B] records, read only.")
      .def_prop_ro(
          "shape",
          [](const Shard& s) {
            return std::vector<std::int64_t>(s.partial.extents.begin(), s.partial.extents.end());
          },
          "The leading axes of x.")
      .def_prop_ro("vocab_size_total", [](const Shard& s) { return s.partial.vocab_size_total; })
      .def_prop_ro(
          "ranges",
          [](const Shard& s) {
            std::vector<std::tuple<std::int64_t, std::int64_t>> ranges;
            for (const auto& [begin, end] : s.partial.ranges) {
              ranges.emplace_back(begin, end);
            }
            return ranges;
          },
          "The columns of the whole vocabulary that the rows are of.")
      .def_prop_ro("dispatch", [](const Shard& s) { return s.partial.dispatch; })
      .def("__getstate__", &state_of)
      .def("__setstate__", &set_state)
      .def("__repr__", [](const Shard& s) {
        return "<tessera.PartialResult of " + std::string(s.op->name) + ", " +
               std::to_string(s.partial.rows.size()) + " rows>";
      });
  m.def("merge", &merge_shards, nb::arg("shards"), "Merges shards, or merged shards, row by row.");
}

void bind_partial(nb::module_& m, const Signature& signature) {
  static const std::string result = " -> PartialResult";
  m.def(
      "forward_partial",
      [&signature](const nb::args& places, const nb::kwargs& names) {
        PythonCall bound(signature.op(), Pass::forward_partial);
        signature.bind(bound, places, 0, names);
        Context context = context_of(bound.context);
        return forward_partial(context, bound);
      },
      nb::sig((new std::string(signature.text("forward_partial") + result))->c_str()),
      (new std::string(signature.doc(Pass::forward_partial)))->c_str());
  m.def(
      "combine",
      [&signature](nb::handle shards, const nb::kwargs& names) {
        PythonCall bound(signature.op(), Pass::forward);
        signature.bind(bound, nb::args(), 0, names);
        if (bound.out.is_valid()) raise(PyExc_TypeError, "combine() has no out; it returns arrays");
        const auto given = shards_of(shards, &signature.op());
        nb::object combined;
        with_loss(signature.op(), [&]<class Op>(std::type_identity<Op>) {
          combined = nb::cast(combine_as<Op>(given, bound));
        });
        return combined;
      },
      nb::sig("def combine(shards, **options) -> Result"),
      "The ordinary outputs, those that `wants` names, from all shards of a vocabulary. Takes "
      "labels, weight, class_weight and targets as forward_partial does, and its options.");
}

}  // namespace tessera::python
