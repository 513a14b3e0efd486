// SPDX-License-Identifier: Apache-2.0
#include "bench/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "bench/operator.hpp"

namespace tessera::bench {

Work work_of(const Row& row, const Plan& plan, const CostEstimate& cost) {
  Work work;
  const auto& problem = row.problem;
  const auto& op = *problem.op;
  if (!op.has_weights()) {
    // What is read for a loss is all; others write as much.
    const auto bytes = static_cast<double>(cost.bytes_ideal);
    const bool copies = row.gradients() || !op.has_labels();
    work[""] = {.flops = op.multiplies() ? static_cast<double>(cost.flops) : 0.0,
                .exps = static_cast<double>(cost.transcendentals),
                .bytes = copies ? bytes : 0.0,
                .reads = copies ? 0.0 : bytes};
    return work;
  }
  for (const auto& schedule : plan.considered) {
    if (!schedule.is_taken) continue;
    for (const auto& launches : schedule.launches) work[launches.kernel].flops += launches.flops;
  }
  const auto logits =
      static_cast<double>(problem.shape['B']) * static_cast<double>(problem.shape['V']);
  const double product = 2.0 * logits * static_cast<double>(problem.shape['H']);
  const int gradients = (row.grad_x ? 1 : 0) + (row.grad_w ? 1 : 0);
  // Each looks at every logit once. A teacher has as many, which the tasks form beside them.
  const double models = op.has_teacher() ? 2.0 : 1.0;
  for (const char* kernel : {"forward", "gradient", "gradient_of_kept", "distill_gradient"}) {
    work[kernel].exps = logits;
  }
  work["logits"] = {.flops = models * product, .exps = models * logits};
  work["logits to dz"].exps = logits;
  work["grad_x and grad_w"].flops = gradients * product;
  const auto elements =
      static_cast<double>(problem.shape['B']) * static_cast<double>(problem.shape['H']);
  const double narrow = elements * static_cast<double>(size_of(problem.x));
  // x is packed as it is or in f32, and grad_x summed in f32.
  work["pack_rows"].bytes = work["pack_columns"].bytes = 2.0 * narrow;
  work["write_rows"].bytes = narrow + 4.0 * elements;
  return work;
}

namespace {

/// What takes longest at the machine's peaks, and its seconds; "" and 0: nothing is known.
std::pair<const char*, double> bound_of(const KernelWork& work, Peaks& peaks,
                                        peaks::Kind multiply) {
  std::pair<const char*, double> bound{"", 0.0};
  const auto consider = [&](const char* name, double amount, peaks::Kind kind) {
    if (amount <= 0.0 || !peaks.meter().has(kind)) return;
    const double seconds = amount / peaks.best(kind);
    if (seconds > bound.second) bound = {name, seconds};
  };
  consider("multiply", work.flops, multiply);
  consider("exp", work.exps, peaks::Kind::exp);
  consider("copy", work.bytes, peaks::Kind::copy);
  consider("read", work.reads, peaks::Kind::read);
  return bound;
}

bool is_work(const ProfileRow& row) {
  return row.kind == ProfileKind::kernel || row.kind == ProfileKind::task;
}

}  // namespace

std::string profile_table(const Profile& profile, const ProfiledCalls& calls, const Work& work,
                          Peaks& peaks, peaks::Kind multiply) {
  const auto rows = profile.kernels();
  const auto longest = std::find_if(rows.begin(), rows.end(), is_work);
  std::string text = fmt::format(
      "    {:<7} {:<22} {:>8} {:>10} {:>7} {:>9} {:>9} {:>7}  {:<8} {:>6}\n", "kind", "name",
      "launches", "ms a call", "of wall", "min ms", "max ms", "groups", "bound", "share");
  for (auto row = rows.begin(); row != rows.end(); ++row) {
    if (row->kind == ProfileKind::call) continue;
    // Tasks of several threads are at work at once.
    const int at_once = row->kind == ProfileKind::task ? calls.threads : 1;
    const double seconds = static_cast<double>(row->total_ns) * 1e-9 / at_once;
    auto known = is_work(*row) ? work.find(row->name) : work.end();
    if (known == work.end() && row == longest) known = work.find("");
    std::string bound;
    if (known != work.end()) {
      const auto [name, least] = bound_of(known->second, peaks, multiply);
      if (least > 0.0)
        bound = fmt::format("  {:<8} {:>5.1f}%", name, 100.0 * calls.count * least / seconds);
    }
    fmt::format_to(std::back_inserter(text),
                   "    {:<7} {:<22} {:>8} {:>10.3f} {:>6.1f}% {:>9.3f} {:>9.3f} {:>7}{}\n",
                   to_string(row->kind), row->name, row->calls / calls.count,
                   1e3 * seconds / calls.count, 100.0 * seconds / calls.seconds,
                   1e-6 * static_cast<double>(row->min_ns), 1e-6 * static_cast<double>(row->max_ns),
                   row->work_groups, bound);
  }
  const auto times = profile.times();
  const auto share = [&](double seconds) { return 100.0 * seconds / calls.seconds; };
  fmt::format_to(std::back_inserter(text),
                 "    of {:.3f} ms a call: kernels {:.1f}%, copies {:.1f}%, waits {:.1f}%, the "
                 "rest of the calls {:.1f}%\n",
                 1e3 * calls.seconds / calls.count, share(times.kernels), share(times.copies),
                 share(times.waits), share(times.rest));
  for (const auto& note : profile.notes()) text += "    note: " + note + "\n";
  return text;
}

}  // namespace tessera::bench
