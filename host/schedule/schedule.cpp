// SPDX-License-Identifier: Apache-2.0
#include "host/schedule/schedule.hpp"

#include "host/engines/shares.hpp"
#include "host/opencl/specialise.hpp"

namespace tessera::schedule {
namespace {

using engines::ceil_div;

double real(std::int64_t value) { return static_cast<double>(value); }

/// An extent in parts: those of one size, and the rest.
std::array<Steps::Kind, 2> split(std::int64_t extent, std::int64_t size) {
  size = std::max<std::int64_t>(size, 1);
  return {{{size, extent / size}, {extent % size, extent % size > 0 ? 1 : 0}}};
}

class Count {
 public:
  Count(const Steps& steps, std::int64_t shrink, const engines::Engine& engine)
      : steps_(steps), shrink_(shrink), engine_(engine) {
    const Step* visited = steps.visited();
    rates_ =
        engine.rates(visited != nullptr ? steps.product(*visited).product : engines::Product{});
    cost_.products.reserve(5);
  }

  Cost cost() && {
    double shared = 0.0;
    for (const Step& step : steps_.list) {
      if (!step.is_counted || step.times == 0) continue;
      cost_.launches += real(step.times) * rates_.launch;
      cost_.bytes += real(step.times) * step.bytes;
      shared += real(step.times) * step.shared;
      if (step.name != nullptr) multiply(step);
    }
    cost_.memory = cost_.bytes / rates_.bytes;
    cost_.shared = shared / rates_.bytes;
    return std::move(cost_);
  }

 private:
  void multiply(const Step& step) {
    const Grid& g = step.grid;
    const std::int64_t panels = std::max<std::int64_t>(1, ceil_div(g.n, engine_.tile_n()));
    const std::int64_t row_groups = engine_.groups(g.parts, shrink_);
    const std::int64_t each = engine_.panels_per_group(row_groups, panels);
    const std::int64_t groups = row_groups * ceil_div(panels, each) * step.order.k_parts;
    const std::int64_t longest =
        ceil_div(g.parts, row_groups) * ceil_div(g.part_rows, engine_.strip()) * each;
    const double tiles = real(ceil_div(g.m, engine_.strip()) * panels * step.order.k_parts);
    const double share =
        tiles > 0.0 ? tiles / engines::room_of(groups, engine_.slots(), real(longest), tiles) : 0.0;
    const double columns = 2.0 * real(g.n) * real(step.times);
    double flops = 0.0;
    const auto take = [&](const engines::Product& product, double of_each) {
      if (of_each <= 0.0) return;
      flops += of_each;
      cost_.multiply += of_each / (engine_.rates(product).flops * share);
    };
    take(steps_.product(step).product, columns * real(g.m) * real(g.k));
    if (const Product* second = steps_.second(step)) {
      take(second->product, columns * real(second->product.m) * real(g.m));
    }

    auto& all = cost_.products;
    auto one =
        std::find_if(all.begin(), all.end(), [&](const auto& p) { return p.kernel == step.name; });
    if (one == all.end()) {
      one = all.insert(all.end(), {.kernel = step.name, .groups = groups, .share = share});
    }
    if (flops > 0.0) {
      one->share = (one->flops + flops) / (one->flops / one->share + flops / share);
      one->flops += flops;
    }
    one->times += step.times;
    one->bytes += real(step.times) * step.bytes;
  }

  const Steps& steps_;
  std::int64_t shrink_;
  const engines::Engine& engine_;
  engines::Rates rates_{};
  Cost cost_{};
};

}  // namespace

Steps::Kinds Steps::kinds_of(const Schedule& s, std::int64_t columns) {
  Kinds kinds{};
  std::size_t count = 0;
  for (const auto& piece : split(s.all.columns, std::min(s.piece, s.all.columns))) {
    for (const auto& range : split(piece.columns, columns)) {
      const Kind kind{range.columns, piece.times * range.times};
      const auto same = std::find_if(kinds.begin(), kinds.begin() + count, [&](const Kind& other) {
        return other.columns == kind.columns;
      });
      if (same != kinds.begin() + count) {
        same->times += kind.times;
      } else if (kind.times > 0) {
        kinds[count++] = kind;
      }
    }
  }
  return kinds;
}

const Step* Steps::visited() const {
  for (const Step& step : list) {
    if (step.name != nullptr) return &step;
  }
  return nullptr;
}

Step& Steps::add(const Schedule& s, Phase phase, unsigned loops, const Kind& kind) {
  static constexpr Step none{};
  Step& step = list.emplace_back(none);
  step.phase = phase;
  step.loops = static_cast<std::uint8_t>(loops);
  step.columns = kind.columns;
  step.times = kind.times;
  const bool of_all_rows = phase == Phase::main && s.order == Order::depth;
  if ((loops & of_rows) != 0 && !of_all_rows) step.times *= s.chunks();
  if ((loops & of_depth) != 0) step.times *= s.depths();
  return step;
}

Cost cost_of(const Steps& steps, std::int64_t shrink, const engines::Engine& engine) {
  return Count(steps, shrink, engine).cost();
}

Arena::Arena(const Steps& steps, std::int64_t shrink, const engines::Engine& engine) {
  regions_.reserve(16);
  for (const Step& step : steps.list) {
    for (const Region& region : step.regions) add(region);
    for (const std::int64_t parts : step.scratch_parts) {
      if (parts == 0) continue;
      const auto& [product, cut] = steps.product(step);
      const std::int64_t panels = ceil_div(product.n, engine.tile_n());
      std::int64_t words = engine.scratch_words(cut, parts, panels, shrink);
      if (const Product* second = steps.second(step)) {
        words += engine.scratch_words(second->cut, parts, panels, shrink);
      }
      add({groups, step.order.k_parts * words});
    }
  }
}

void Arena::add(const Region& region) {
  if (region.words <= 0) return;
  for (auto& same : regions_) {
    if (same.name != region.name) continue;
    same.words = std::max(same.words, region.words);
    return;
  }
  regions_.push_back(region);
}

std::int64_t Arena::words(const char* name) const {
  for (const auto& region : regions_) {
    if (region.name == name) return region.words;
  }
  return 0;
}

std::int64_t Arena::total() const {
  std::int64_t sum = 0;
  for (const auto& region : regions_) sum += opencl::region_words(region.words);
  return sum;
}

std::int64_t Arena::largest() const {
  std::int64_t most = 0;
  for (const auto& region : regions_) most = std::max(most, region.words);
  return most;
}

void Arena::take(opencl::Call& call) {
  memory_.reserve(regions_.size());
  for (const auto& region : regions_) memory_.push_back(call.scratch(region.words, region.name));
}

opencl::Scratch Arena::operator[](const char* name) const {
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    if (regions_[i].name == name) return memory_[i];
  }
  return {};
}

}  // namespace tessera::schedule
