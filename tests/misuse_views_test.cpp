// SPDX-License-Identifier: Apache-2.0
// What is wrong of the views of any operator: each of its arguments is missing, of another type or
// shape, misaligned, over another, or elsewhere.
#include "host/arguments/checks.hpp"
#include "tests/support/misuse.hpp"

namespace tessera::misuse {
namespace {

/// A type that the argument may not have, and what the message says of it.
std::pair<DType, std::string> wrong_type(ElementTypes types) {
  switch (types) {
    case ElementTypes::floating:
      return {DType::i32, "has type i32; supported: f32, bf16 or f16"};
    case ElementTypes::integer:
      return {DType::f32, "has type f32; supported: i32 or i64"};
    default:
      return {DType::bf16, "has type bf16; supported: f32"};
  }
}

/// One more at the last axis, or an axis where there is none.
Dims wrong_shape(Dims right) {
  if (right.rank() == 0) return {B};
  ++right[right.rank() - 1];
  return right;
}

/// The same, and an axis too many.
std::vector<std::pair<std::string, Dims>> wrong_shapes(const Dims& right) {
  Dims more = right;
  more.push_back(right.rank() == 0 ? B : 1);
  return {{"OfAnotherShape", wrong_shape(right)}, {"OfAnotherRank", more}};
}

/// "a has shape [5], expected [4]".
std::string shape_message(const char* name, const Dims& wrong, const Dims& right) {
  return name + (" has shape " + arguments::to_string(wrong)) + ", expected " +
         arguments::to_string(right);
}

template <class Op>
std::vector<Case<Op>> input_cases() {
  using C = Call<Op>;
  std::vector<Case<Op>> cases;
  for (const auto& input : OperatorTraits<Op>::inputs) {
    const std::string name = input.name;
    const auto add = [&](const std::string& what, auto breaks, std::vector<std::string> says) {
      cases.push_back({"input_" + name + "_" + what,
                       [&input, breaks](C& c) {
                         c.to_reader_of(input);
                         breaks(c, c.in.*input.view, c.extents(input.shape));
                       },
                       std::move(says)});
    };
    const auto [type, of_type] = wrong_type(input.types);
    add("OfAnotherType",
        [other = type](C& c, View& view, const Dims& extents) {
          view = View::host(c.per_word.data(), other, extents);
        },
        {name + " " + of_type});
    const Dims right = C().extents(input.shape);
    if (is_needed(input.reads)) {
      add("NotGiven", [](C&, View& view, const Dims&) { view = {}; }, {name + " is not given"});
      add("Null",
          [](C&, View& view, const Dims& extents) {
            view = View::host(nullptr, view.dtype(), extents);
          },
          {name + " has " + std::to_string(right.product()) + " elements", "null pointer"});
      add("NullClMem",
          [](C&, View& view, const Dims& extents) {
            view = View::device(nullptr, 0, view.dtype(), extents);
          },
          {name + " has " + std::to_string(right.product()) + " elements", "null pointer"});
      add("Misaligned",
          [](C&, View& view, const Dims& extents) {
            view = View::host(misaligned(static_cast<const char*>(view.host_data())), view.dtype(),
                              extents);
          },
          {name + " has address", "not aligned to 4 bytes"});
      add("OffsetNegative",
          [](C&, View& view, const Dims& extents) {
            view = View::device(some_memory(), -4, view.dtype(), extents);
          },
          {name + " has byte offset -4"});
      add("OffsetMisaligned",
          [](C&, View& view, const Dims& extents) {
            view = View::device(some_memory(), 6, view.dtype(), extents);
          },
          {name + " has byte offset 6", "multiple of 4"});
      add("OnADevice",
          [](C&, View& view, const Dims& extents) {
            view = View::device(some_memory(), 0, view.dtype(), extents);
          },
          {name + " is device memory", "no device"});
      cases.back().code = ErrorCode::foreign_context;
    }
    // What the operator must have and no other has gives the extents, and has its own messages.
    if (is_needed(input.reads) && !test::is_of_every_loss(name)) continue;
    if (name == "target_indices") continue;  // says how many pairs there are
    for (const auto& [what, wrong] : wrong_shapes(right)) {
      std::vector<std::string> says = {shape_message(input.name, wrong, right)};
      if (input.shape.is_reducible()) says.emplace_back("reduction mean");
      add(
          what,
          [extents = wrong](C& c, View& view, const Dims&) {
            const DType type_of_view = view ? view.dtype() : DType::f32;
            view = View::host(c.per_word.data(), type_of_view, extents);
          },
          says);
    }
  }
  return cases;
}

template <class Op>
std::vector<Case<Op>> output_cases() {
  using C = Call<Op>;
  std::vector<Case<Op>> cases;
  for (const auto& output : OperatorTraits<Op>::outputs) {
    const std::string name = output.name;
    const auto type = output.types == ElementTypes::integer ? DType::i32 : DType::f32;
    const auto [other, of_type] = wrong_type(output.types);
    cases.push_back({"output_" + name + "_OfAnotherType",
                     [&output, wrong = other](C& c) {
                       c.out.*output.view = c.out_view(spare, c.extents(output.shape), wrong);
                     },
                     {name + " " + of_type}});
    const Dims right = C().extents(output.shape);
    for (const auto& [what, wrong] : wrong_shapes(right)) {
      std::vector<std::string> says = {shape_message(output.name, wrong, right)};
      if (output.shape.is_reducible()) says.emplace_back("reduction mean");
      cases.push_back({"output_" + name + "_" + what,
                       [&output, extents = wrong, type](C& c) {
                         c.out.*output.view = c.out_view(spare, extents, type);
                       },
                       says});
    }
    cases.push_back({"output_" + name + "_Misaligned",
                     [&output, type](C& c) {
                       c.out.*output.view = c.out_view(spare + 1, c.extents(output.shape), type);
                     },
                     {name + " has address", "not aligned to 4"}});
    cases.push_back({"output_" + name + "_OnADevice",
                     [&output, type](C& c) {
                       c.out.*output.view =
                           MutableView::device(some_memory(), 0, type, c.extents(output.shape));
                     },
                     {name + " is device memory"},
                     ErrorCode::foreign_context});
  }
  return cases;
}

template <class Op>
std::vector<Case<Op>> gradient_cases() {
  using C = Call<Op>;
  std::vector<Case<Op>> cases;
  for (std::size_t i = 0; i < OperatorTraits<Op>::gradients.size(); ++i) {
    const auto& gradient = OperatorTraits<Op>::gradients[i];
    const auto& of = input_of(gradient);
    const std::string name = gradient.name;
    const Dims right = C().extents(of.shape);
    const auto add = [&](const std::string& what, auto view, std::vector<std::string> says) {
      cases.push_back({name + "_" + what,
                       [&gradient, &of, view](C& c) {
                         c.in.*of.view = c.small.view(of);
                         c.grad.*gradient.view = view(c);
                       },
                       std::move(says)});
    };
    add("OfAnotherType", [i, right](C& c) { return c.gradient_view(i, right, DType::i32); },
        {name + " has type i32"});
    // A matrix the other way round; a vector with one element more.
    const Dims wrong = right.rank() == 2 ? Dims{right[1], right[0]} : wrong_shape(right);
    add("OfAnotherShape", [i, wrong](C& c) { return c.gradient_view(i, wrong); },
        {shape_message(gradient.name, wrong, right)});
    add("Null", [right](C&) { return MutableView::host(static_cast<float*>(nullptr), right); },
        {name + " has " + std::to_string(right.product()) + " elements", "null pointer"});
    Dims strides = contiguous_strides(right);
    strides[0] = 0;
    add("OverItself",
        [i, right, strides](C& c) { return MutableView::host(c.at(64 * (i + 1)), right, strides); },
        {name + " with extents " + arguments::to_string(right) + " and strides " +
             arguments::to_string(strides),
         "share memory"});
    if (i == 0) continue;
    // Begins with the last element of the one before.
    const auto& before = OperatorTraits<Op>::gradients[i - 1];
    const auto room = static_cast<std::size_t>(C().extents(input_of(before).shape).product());
    add("OverTheOneBefore",
        [i, right, room](C& c) { return c.out_view(64 * i + 4 * room - 4, right); },
        {std::string(before.name) + " and " + name + " overlap"});
  }
  return cases;
}

/// What takes two arguments, or options, to be wrong.
template <class Op>
std::vector<Case<Op>> joint_cases() {
  using C = Call<Op>;
  const auto& first = OperatorTraits<Op>::inputs[0];
  const Dims rows = C().extents(first.shape);
  const std::string shape_of_first = std::string(first.name) + " " + arguments::to_string(rows);
  std::vector<Case<Op>> cases = {
      {"LabelsLength",
       [](C& c) { c.in.labels = View::host(c.labels.data(), {3}); },
       {"labels has shape [3], expected [4]", "leading axes of " + shape_of_first}},
      {"LabelsRank",
       [](C& c) {
         c.in.labels = View::host(c.labels.data(), {2, 2});
       },
       {"labels has shape [2, 2], expected [4]"}},
      {"LeadingAxes",
       [](C& c) {
         c.set_leading({2, 2});
         c.in.labels = View::host(c.labels.data(), {4});
       },
       {"labels has shape [4], expected [2, 2]",
        std::string(first.name) + " [2, 2, " + std::to_string(rows[rows.rank() - 1]) + "]"}},
      {"LossShapeOfNone",
       [](C& c) { c.options.reduction = Reduction::none; },
       {"loss has shape [], expected [4]", "reduction none"}},
      {"DlossShapeOfNone",
       [](C& c) {
         c.options.reduction = Reduction::none;
         c.out.loss = c.out_view(spare, {B});
         c.in.dloss = View::host(c.per_row.data(), {});
       },
       {"dloss has shape [], expected [4]", "reduction none"}},
      {"NegativeExtent",
       [&first, rows](C& c) {
         Dims extents = rows;
         extents[0] = -4;
         c.in.*first.view = View::host(c.data(first.name), extents, contiguous_strides(rows));
       },
       {first.name + (" has extents [-4, " + std::to_string(rows[1])), "axis 0 is negative"}},
      {"NegativeStride",
       [&first, rows](C& c) {
         c.in.*first.view = View::host(c.data(first.name), rows, {rows[1], -1});
       },
       {first.name + (" has strides [" + std::to_string(rows[1])) + ", -1]", "axis 1 is negative"}},
      {"ReachOverflows",
       [&first, rows](C& c) {
         c.in.*first.view = View::host(c.data(first.name), rows, {std::int64_t{1} << 62, 1});
       },
       {first.name + (" with extents " + arguments::to_string(rows)), "4611686018427387904",
        "beyond 2^63"}},
      {"ExtentsOverflow",
       [&first](C& c) {
         const std::int64_t n = std::int64_t{1} << 40;
         c.in.*first.view = View::host(c.data(first.name), {n, n}, {0, 0});
       },
       {first.name + std::string("'s extents"), "1099511627776", "exceeds 2^63"}},
      {"AddressesAreHexadecimal",
       [&first, rows](C& c) {
         const std::uintptr_t nowhere = 0x12ab5601;
         c.in.*first.view = View::host(reinterpret_cast<const float*>(nowhere), rows);
       },
       {first.name + std::string(" has address 0x12ab5601, which is not aligned to 4 bytes, the "
                                 "size of f32")}},
  };
  return cases;
}

template <class Op>
std::vector<Case<Op>> overlap_cases() {
  using C = Call<Op>;
  const auto& first = OperatorTraits<Op>::inputs[0];
  const Dims rows = C().extents(first.shape);
  return {
      {"OutputsOverlap", [](C& c) { c.out.lse = c.out_view(0, {B}); }, {"loss and lse overlap"}},
      {"OutputOverLabels",
       [](C& c) { c.out.argmax = MutableView::host(c.labels.data(), {B}); },
       {"argmax overlaps the input labels"}},
      {"ColumnsInterleaveAndTouch",
       [](C& c) {
         c.out.lse = MutableView::host(c.at(spare), {B}, {3});
         c.out.entropy = MutableView::host(c.at(spare + 12), {B}, {2});
       },
       {"lse and entropy overlap"}},
      {"WorkspaceOverInput",
       [&first, rows](C& c) {
         c.execution.workspace = MutableView::host(c.data(first.name), {rows.product()});
       },
       {std::string("workspace overlaps the input ") + first.name}},
  };
}

std::vector<Refused> all_cases() {
  std::vector<Refused> all;
  for_each_loss([&]<class Op>(std::type_identity<Op>) {
    add_cases<Op>(all, input_cases<Op>());
    add_cases<Op>(all, output_cases<Op>());
    add_cases<Op>(all, gradient_cases<Op>());
    add_cases<Op>(all, joint_cases<Op>());
    add_cases<Op>(all, overlap_cases<Op>());
  });
  return all;
}

class ViewMisuse : public testing::TestWithParam<Refused> {};
TEST_P(ViewMisuse, IsRefused) { GetParam().expect(); }
INSTANTIATE_TEST_SUITE_P(All, ViewMisuse, testing::ValuesIn(all_cases()), refused_name);

TEST(Misuse, InterleavedOutputsOfOneAllocationAreFine) {
  Context context(ContextOptions{.host_only = true});
  for_each_loss([&]<class Op>(std::type_identity<Op>) {
    SCOPED_TRACE(OperatorTraits<Op>::name);
    Call<Op> call;
    call.execution.implementation = "reference";
    call.out.lse = MutableView::host(call.at(spare), {B}, {2});
    call.out.entropy = MutableView::host(call.at(spare + 4), {B}, {2});
    EXPECT_NO_THROW(call.run(context));
  });
}

}  // namespace
}  // namespace tessera::misuse
