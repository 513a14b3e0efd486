// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/workload.hpp"

#include <utility>

#include "tests/support/failures.hpp"

namespace tessera::test::soak {
namespace {

/// Odd sizes with several blocks in each extent, and a tiny one.
Case problem(const TestOperator& op, bool large, Place place) {
  Case c;
  c.op = &op;
  c.name = std::string("soak_") + (large ? "large" : "tiny") +
           (place == Place::device ? "_device" : "_host");
  c.b = large ? 37 : 5;
  c.h = large ? 33 : 7;
  c.v = large ? 301 : 37;
  c.bias = true;
  c.labels = Labels::some_ignored;
  c.options.logsumexp_weight = 1e-3f;
  c.place = place;
  return c;
}

constexpr Pass passes[] = {Pass::forward, Pass::backward, Pass::value_and_grad,
                           Pass::forward_partial};

}  // namespace

std::string Job::name() const {
  return std::string(c.op->name()) + "." + tessera::to_string(pass) + " of " + c.name + " on " +
         implementation;
}

std::vector<Job> all_jobs(const std::vector<std::string>& implementations, bool has_device) {
  std::vector<Job> jobs;
  for (const TestOperator* op : test_operators()) {
    for (const auto& implementation : implementations) {
      for (const Place place : {Place::host, Place::device}) {
        if (place == Place::device && !has_device) continue;
        for (const bool large : {false, true}) {
          for (const Pass pass : passes) {
            if (!op->has_pass(pass)) continue;
            jobs.push_back({implementation, pass, problem(*op, large, place)});
          }
        }
      }
    }
  }
  return jobs;
}

const char* to_string(Ending ending) {
  constexpr const char* names[] = {"waited",   "dropped", "moved",     "replaced",
                                   "followed", "gated",   "cancelled", "refused"};
  return names[static_cast<int>(ending)];
}

Station::Station(Context context, const std::vector<Job>& jobs) : context_(std::move(context)) {
  for (const Job& job : jobs) {
    const Expected& e = expected_of(job.c);
    arguments_.push_back(std::make_unique<Arguments>(context_, job.c, e.problem));
    if (job.pass == Pass::backward) arguments_.back()->add_statistics(context_, e.values);
  }
}

std::string Station::damage() {
  std::string all;
  for (const auto& arguments : arguments_) all += arguments->damage();
  return all;
}

Lane::Lane(Station& station, const std::vector<Job>& jobs, bool out_of_order)
    : station_(station), jobs_(jobs), gates_(station.context(), out_of_order) {
  for (const Job& job : jobs) {
    results_.push_back(std::make_unique<Results>(station.context(), job.c, expected_of(job.c),
                                                 job.pass, job.implementation));
  }
}

CaseCall Lane::call(std::size_t job) {
  const Job& j = jobs_[job];
  return {station_.context(),      j.implementation, j.pass, j.c,
          station_.arguments(job), *results_[job]};
}

namespace {
template <class Visit>
void each_result(const Job& job, Results& results, const Visit& visit) {
  const auto one = [&](const char* name) {
    if (Argument& a = results[name]) visit(name, *a.storage);
  };
  for (const auto& output : job.c.op->outputs()) one(output.name);
  for (const auto& gradient : job.c.op->gradients()) one(gradient.name);
}
}  // namespace

void Lane::poison(std::size_t job) {
  each_result(jobs_[job], *results_[job], [](const char*, Storage& storage) {
    storage.poison();
    storage.upload();
  });
}

const std::vector<std::byte>& Lane::bytes_of(std::size_t job, std::string& beside) {
  bytes_.clear();
  each_result(jobs_[job], *results_[job], [&](const char* name, Storage& storage) {
    const std::string found = storage.download();
    if (!found.empty()) beside += std::string(name) + ": " + found + "; ";
    const auto n = static_cast<std::size_t>(storage.elements()) * size_of(storage.type());
    bytes_.insert(bytes_.end(), storage.bytes(), storage.bytes() + n);
  });
  return bytes_;
}

std::string Lane::first_run(std::size_t job, std::vector<std::byte>& bytes) {
  poison(job);
  // Inputs are compared at the end, by Station::damage.
  std::string wrong;
  try {
    jobs_[job].c.op->run(call(job));
    bytes = bytes_of(job, wrong);
    Arguments fresh(station_.context(), jobs_[job].c, expected_of(jobs_[job].c).problem);
    wrong += failures_of([&] { results_[job]->check(fresh); });
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  return wrong;
}

bool Lane::cancel(std::size_t job, bool waits) {
  const cl_event gate = gates_.make();
  Completion done;
  try {
    done = jobs_[job].c.op->start(call(job), {gates_.queue(), {gate}});
  } catch (...) {
    gates_.open(gate);
    throw;
  }
  gates_.fail(gate);
  if (!waits) return false;  // the warning handler is told
  try {
    done.wait();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::execution_failed) throw;
    return false;
  }
  throw std::runtime_error("it was cancelled, and nothing failed");
}

bool Lane::run_to_its_end(std::size_t job, Ending ending, std::mt19937_64& random) {
  const Job& j = jobs_[job];
  const TestOperator& op = *j.c.op;
  const bool in_flight = j.c.place == Place::device && j.implementation.starts_with("opencl.");
  if (ending == Ending::refused) {
    std::string broken;
    try {
      op.run_broken(call(job), random(), broken);
    } catch (const Error&) {
      return false;
    }
    throw std::runtime_error(broken + ": nothing was refused");
  }
  if (j.pass == Pass::forward_partial) {
    op.run(call(job));
    return true;
  }
  const InFlight own = {random() % 2 == 0 ? gates_.queue() : nullptr, {}};
  switch (ending) {
    case Ending::waited: {
      Completion done = op.start(call(job), own);
      done.wait();
      done.wait();
      break;
    }
    case Ending::moved: {
      Completion done = op.start(call(job), own);
      Completion last = std::move(done);
      last.wait();
      break;
    }
    case Ending::replaced: {
      Completion done = op.start(call(job), own);
      done = Completion();
      break;
    }
    case Ending::followed: {
      // The same once more, over the same outputs, on the context's queue.
      Completion first = op.start(call(job), own);
      InFlight behind;
      if (first.event() != nullptr) behind.wait_for = {first.event()};
      Completion second = op.start(call(job), behind);
      first = Completion();
      second.wait();
      break;
    }
    case Ending::gated: {
      if (!in_flight) return run_to_its_end(job, Ending::dropped, random);
      const cl_event gate = gates_.make();
      Completion done;
      try {
        done = op.start(call(job), {gates_.queue(), {gate}});
      } catch (...) {
        gates_.open(gate);
        throw;
      }
      gates_.open(gate);
      done.wait();
      break;
    }
    case Ending::cancelled:
      if (in_flight) return cancel(job, random() % 2 == 0);
      [[fallthrough]];
    default:
      op.start(call(job), own);
      break;
  }
  return true;
}

std::string Lane::run(std::size_t job, Ending ending, std::mt19937_64& random,
                      const std::vector<std::byte>& expected) {
  poison(job);
  std::string wrong;
  try {
    const bool has_results = run_to_its_end(job, ending, random);
    const auto& bytes = bytes_of(job, wrong);
    if (has_results && bytes != expected) wrong += "other bits than the first run's";
    if (ending == Ending::refused) {
      each_result(jobs_[job], *results_[job], [&](const char* name, Storage& storage) {
        if (storage.changed()) wrong += std::string(name) + " was written by a refused call; ";
      });
    }
  } catch (const Error& error) {
    wrong = std::string(tessera::to_string(error.code())) + ": " + error.what();
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  if (wrong.empty()) return wrong;
  return jobs_[job].name() + ", " + to_string(ending) + ": " + wrong;
}

}  // namespace tessera::test::soak
