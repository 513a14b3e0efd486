// SPDX-License-Identifier: Apache-2.0
#include "host/linear/opencl/cost.hpp"

#include <algorithm>
#include <array>

#include "host/engines/shares.hpp"
#include "host/loss/opencl_rows.hpp"

namespace tessera::linear {
namespace {

using engines::ceil_div;

double real(std::int64_t value) { return static_cast<double>(value); }
double bytes_of(DType type) { return static_cast<double>(size_of(type)); }

/// An extent in parts: so many of one size, and what is left.
struct Parts {
  std::int64_t times, size;
};
std::array<Parts, 2> split(std::int64_t extent, std::int64_t size) {
  size = std::max<std::int64_t>(size, 1);
  return {{{extent / size, size}, {extent % size > 0 ? 1 : 0, extent % size}}};
}

/// A product of m rows of A, in parts of at most so many rows, n columns of B and depth k.
struct Grid {
  std::int64_t m = 1, n = 1, k = 1;
  std::int64_t parts = 1, part_rows = 0;
  std::int64_t k_parts = 1;
};

class Count {
 public:
  Count(const Request& r, const engines::Engine& engine, const Schedule& s)
      : r_(r), engine_(engine), s_(s), piece_(std::min(s.v_piece, r.loss.v)) {
    rates_ = engine_.rates(logits_product(r, s));
    cost_.products.reserve(5);
  }

  Cost cost() && {
    const bool first = looks_first(r_, s_) || s_.keeps_logits;
    pack_rows(s_.chunks);
    if (first) look();
    if (has_gradients(r_.loss.pass)) gradients();
    cost_.memory = cost_.bytes / rates_.bytes;
    cost_.shared = shared_ / rates_.bytes;
    return std::move(cost_);
  }

 private:
  /// Nothing where it is found in the cache.
  double missed(double bytes) const { return bytes <= rates_.cached_bytes ? 0.0 : bytes; }
  /// The same of what one launch stores for the next ones.
  double missed_next(double bytes) const {
    return bytes <= 4.0 * real(engine_.cached_words()) ? 0.0 : bytes;
  }

  /// Launches that copy or reduce, or whose products are counted elsewhere.
  void copy(std::int64_t times, double bytes) {
    cost_.launches += real(times) * rates_.launch;
    cost_.bytes += real(times) * bytes;
  }

  /// Launches that multiply: `bytes` each, and B where the cache does not have it.
  void multiply(const char* kernel, std::int64_t times, const Grid& g,
                const engines::Product& product, double bytes, double b_bytes) {
    if (times == 0) return;
    const std::int64_t panels = std::max<std::int64_t>(1, ceil_div(g.n, engine_.tile_n()));
    const std::int64_t row_groups = engine_.groups(g.parts, s_.shrink);
    const std::int64_t each = engine_.panels_per_group(row_groups, panels);
    const std::int64_t groups = row_groups * ceil_div(panels, each) * g.k_parts;
    const std::int64_t longest =
        ceil_div(g.parts, row_groups) * ceil_div(g.part_rows, engine_.strip()) * each;
    const double tiles = real(ceil_div(g.m, engine_.strip()) * panels * g.k_parts);
    const double share =
        tiles > 0.0 ? tiles / engines::room_of(groups, engine_.slots(), real(longest), tiles) : 0.0;
    const double flops = 2.0 * real(g.m) * real(g.n) * real(g.k) * real(times);
    bytes += missed(b_bytes);

    auto& all = cost_.products;
    auto one =
        std::find_if(all.begin(), all.end(), [&](const auto& p) { return p.kernel == kernel; });
    if (one == all.end()) {
      one = all.insert(all.end(), {.kernel = kernel, .groups = groups, .share = share});
    }
    if (flops > 0.0) {
      one->share = (one->flops + flops) / (one->flops / one->share + flops / share);
      one->flops += flops;
      cost_.multiply += flops / (engine_.rates(product).flops * share);
    }
    one->times += times;
    one->bytes += real(times) * bytes;
    copy(times, bytes);
  }

  void pack_rows(std::int64_t times) {
    const double rows = real(s_.chunk_rows);
    const double words = real(engine_.operand_words(logits_product(r_, s_)));
    copy(times, rows * (real(hidden(r_)) * bytes_of(r_.inputs.x.dtype()) + 4.0 * words));
    if (s_.teacher.is_layer)
      copy(times, rows * real(s_.teacher.h) * (bytes_of(s_.teacher.x) + 4.0));
  }

  /// Logits of a chunk of rows against columns, of both layers where there are two; each also
  /// moves `stored` bytes.
  void form(const char* kernel, std::int64_t times, std::int64_t columns, std::int64_t block,
            double stored) {
    const auto layer = [&](const char* name, std::int64_t h, const engines::Product& product) {
      multiply(name, times, {columns, s_.chunk_rows, h, ceil_div(columns, block), block}, product,
               real(columns) * real(h) * bytes_of(product.a) + stored,
               4.0 * real(s_.chunk_rows) * real(engine_.operand_words(product)));
    };
    layer(kernel, hidden(r_), logits_product(r_, s_));
    if (s_.teacher.is_layer) layer("teacher", s_.teacher.h, teacher_product(s_));
    if (s_.teacher.given && !s_.teacher.is_layer) copy(times, 2.0 * stored);
  }

  /// The pass over all logits that comes before the first gradient.
  void look() {
    const std::int64_t looked =
        std::max<std::int64_t>(s_.teacher.given ? s_.looked_at() : piece_, 1);
    const std::int64_t block = s_.teacher.given ? s_.look_block : s_.blocks.v_block_size;
    const std::int64_t looks = s_.teacher.looks_twice && !s_.keeps_logits ? 2 : 1;
    for (const auto& piece : split(r_.loss.v, piece_)) {
      for (const auto& part : split(piece.size, looked)) {
        const double logits = 4.0 * real(s_.chunk_rows) * real(part.size);
        const double stored = s_.keeps_logits    ? logits
                              : s_.teacher.given ? 2.0 * missed_next(logits)
                                                 : 0.0;
        form("forward", looks * s_.chunks * piece.times * part.times, part.size,
             std::min(block, std::max<std::int64_t>(part.size, 1)), stored);
      }
    }
    const double statistics = 4.0 * real(s_.slices * s_.chunk_rows *
                                         (loss::statistics_fields(r_.loss) + s_.teacher.sum_words));
    copy(2 * s_.chunks, statistics);  // written, and read where slices are merged
  }

  void gradients() {
    // In grad_w logits wait for the gradients of all rows at once.
    const std::int64_t times = s_.logits_in_grad_w && !s_.v_outer ? 1 : s_.chunks;
    const std::int64_t depths =
        std::max<std::int64_t>(1, ceil_div(hidden(r_), std::max<std::int64_t>(s_.h_range, 1)));
    const std::int64_t range = std::min(s_.v_range, piece_);
    std::int64_t ranges = 0;
    for (const auto& piece : split(r_.loss.v, piece_)) {
      for (const auto& part : split(piece.size, range)) ranges += piece.times * part.times;
    }
    for (const auto& piece : split(r_.loss.v, piece_)) {
      for (const auto& part : split(piece.size, range)) {
        of_range(times, piece.times * part.times, depths, part.size, ranges);
      }
    }
    const double sums = 4.0 * real(s_.x_parts * sums_x_words(s_));
    if (r_.gradients.grad_x) {
      copy(times * depths,
           missed(sums / real(s_.v_outer ? s_.chunks : 1)) / real(depths) +
               real(s_.gradient_rows) * real(s_.h_range) * bytes_of(r_.gradients.grad_x.dtype()));
    }
    if (r_.gradients.grad_w && !packs_again()) pack_columns(times * depths);
    if (s_.grad_w == Schedule::GradW::full) {
      copy(1, real(r_.loss.v) * real(hidden(r_)) * (4.0 + bytes_of(r_.gradients.grad_w.dtype())));
    }
  }

  /// With the vocabulary outside, x is packed for each range and chunk of rows.
  bool packs_again() const { return s_.v_outer && s_.chunks > 1; }
  double packed_columns() const {
    return 4.0 * real(engine_.operand_words(grad_w_product(r_, s_))) * real(s_.h_range);
  }
  void pack_columns(std::int64_t times) {
    if (packs_once(r_, engine_, s_)) return;
    copy(times, real(s_.gradient_rows) * real(s_.h_range) * bytes_of(r_.inputs.x.dtype()) +
                    packed_columns());
  }

  /// The gradients of `count` ranges of so many columns, of each of `chunks` chunks of rows.
  void of_range(std::int64_t chunks, std::int64_t count, std::int64_t depths, std::int64_t columns,
                std::int64_t ranges) {
    if (count == 0) return;
    const std::int64_t times = chunks * count;
    const double rows = real(s_.gradient_rows), c = real(columns), h = real(s_.h_range);
    const double dz = missed_next(4.0 * rows * real(engine_.operand_words(s_.dz, columns)));
    const double logits = 4.0 * rows * c * (s_.teacher.given ? 2.0 : 1.0);
    if (packs_again()) {
      if (!s_.keeps_logits) pack_rows(times);
      if (r_.gradients.grad_w) pack_columns(times);
      copy(times, 0.0);  // coefficients of its rows
    }
    if (s_.keeps_logits || s_.teacher.given) {
      copy(times * depths, (s_.keeps_logits ? logits : missed_next(logits)) + dz);
    }
    if (!s_.keeps_logits) {
      const std::int64_t block =
          std::min(s_.blocks.v_block_size, even_block(r_, engine_, s_, columns));
      form("gradient", times, columns, block, s_.teacher.given ? missed_next(logits) / 2 : dz);
    }
    if (r_.gradients.grad_bias) copy(times, dz);
    if (filters_gradients(r_)) copy(times * depths, dz);
    if (r_.gradients.grad_w) {
      const double shared = shared_lines(columns);
      shared_ += real(times * depths) * shared;
      sum("grad_w", times * depths, s_.grad_w_cut,
          {.m = columns, .n = s_.h_range, .k = s_.gradient_rows}, grad_w_product(r_, s_),
          dz + written_w(chunks, c * h) + shared, packed_columns());
      if (s_.grad_w == Schedule::GradW::range) {
        copy(count, missed(4.0 * c * h) + c * h * bytes_of(r_.gradients.grad_w.dtype()));
      }
    }
    if (r_.gradients.grad_x) {
      const double w = c * h * bytes_of(r_.inputs.w.dtype());
      const double sums = 4.0 * real(s_.x_parts * sums_x_words(s_));
      // The first range writes them, the others read them too.
      const double moved =
          missed(sums) / real(s_.v_outer ? s_.chunks : 1) * (2.0 - 1.0 / real(ranges));
      sum("grad_x", times * depths, s_.grad_x_cut,
          {.m = s_.h_range, .n = s_.gradient_rows, .k = columns, .k_parts = s_.x_parts},
          grad_x_product(r_, s_), dz + (s_.keeps_logits ? w : missed(w)) + moved, 0.0);
    }
  }

  /// Of a launch: all chunks but the first read what they add to.
  double written_w(std::int64_t chunks, double elements) const {
    const bool direct = s_.grad_w == Schedule::GradW::direct;
    const bool adds = direct && r_.gradients.accumulate.has(Accumulate::grad_w);
    const double again = adds ? 1.0 : 1.0 - 1.0 / real(chunks);
    const double type = direct ? bytes_of(r_.gradients.grad_w.dtype()) : 4.0;
    const double bytes = elements * type * (1.0 + again);
    return s_.grad_w == Schedule::GradW::range ? missed(elements * type) * (1.0 + again) : bytes;
  }

  /// Bytes of a launch: a line of grad_w as [H, V] that belongs to two parts is read, and written
  /// once more, by both.
  double shared_lines(std::int64_t columns) const {
    constexpr std::int64_t line = 64;
    if (s_.grad_w != Schedule::GradW::direct) return 0.0;
    if (layout_of(r_.gradients.grad_w) != layout_hv) return 0.0;
    const std::int64_t strips = ceil_div(columns, engine_.strip());
    const std::int64_t parts = engine_.parts(columns, s_.grad_w_cut, s_.shrink);
    const std::int64_t part = strips / parts * engine_.strip() *
                              static_cast<std::int64_t>(size_of(r_.gradients.grad_w.dtype()));
    if (strips % parts == 0 && part % line == 0) return 0.0;
    return 3.0 * real(line) * real(parts) * real(s_.h_range);
  }

  void sum(const char* kernel, std::int64_t times, const engines::Cut& cut, Grid g,
           const engines::Product& product, double bytes, double b_bytes) {
    g.parts = engine_.parts(g.m, cut, s_.shrink);
    g.part_rows = ceil_div(ceil_div(g.m, engine_.strip()), g.parts) * engine_.strip();
    multiply(kernel, times, g, product, bytes, b_bytes);
  }

  const Request& r_;
  const engines::Engine& engine_;
  const Schedule& s_;
  std::int64_t piece_;
  engines::Rates rates_{};
  double shared_ = 0.0;  // bytes
  Cost cost_{};
};

}  // namespace

Cost cost_of(const Request& request, const engines::Engine& engine, const Schedule& schedule) {
  return Count(request, engine, schedule).cost();
}

}  // namespace tessera::linear
