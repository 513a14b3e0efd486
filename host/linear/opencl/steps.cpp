// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "host/linear/opencl/problem.hpp"
#include "host/loss/opencl_rows.hpp"

// The steps of a schedule: which kernels a call launches, how often, and what each takes.
namespace tessera::linear {

using engines::ceil_div;
using engines::round_up;
using schedule::Order;
using schedule::Phase;
using schedule::Results;
using schedule::Step;
using schedule::Steps;
using schedule::Sums;
using schedule::When;

namespace {

double real(std::int64_t value) { return static_cast<double>(value); }
double bytes_of(DType type) { return static_cast<double>(size_of(type)); }

engines::Product grad_w_product(const Request& r, const Schedule& s, DType dz, std::int64_t rows) {
  // Few rows of dz at a time where it is filtered: all of them are multiplied where one counts.
  constexpr std::int64_t most_filtered = 96;
  return {.use = engines::Use::store,
          .m = s.at.columns,
          .n = s.at.depth,
          .k = rows,
          .a = {.type = dz, .from = engines::Operand::From::stored},
          .b = {r.inputs.x.dtype()},
          .most_m = filters_gradients(r) ? most_filtered : 0};
}

engines::Product grad_x_product(const Request& r, const Schedule& s, DType dz, std::int64_t rows) {
  constexpr engines::Layout transposed[] = {
      engines::Layout::along_first, engines::Layout::along_second, engines::Layout::strided};
  return {.use = engines::Use::accumulate,
          .m = s.at.depth,
          .n = rows,
          .k = s.at.columns,
          .a = {r.inputs.w.dtype(), transposed[layout_of(r.inputs.w)]},
          .b = {.type = dz, .from = engines::Operand::From::stored},
          .k_multiple = filters_gradients(r) ? filter_columns : 1};
}

}  // namespace

engines::Product Problem::logits_product(const Schedule& s) const {
  return {.use = engines::Use::visit,
          .m = s.blocks.m,
          .n = s.at.rows,
          .k = hidden(r_),
          .a = {r_.inputs.w.dtype(), static_cast<engines::Layout>(layout_of(r_.inputs.w))},
          .b = {r_.inputs.x.dtype()},
          .k_block = s.blocks.k};
}

std::int64_t Problem::held_rows(const Schedule& s) const {
  return s.order == Order::depth ? all_rows(s) : s.at.rows;
}

std::int64_t Problem::rows_within(const Schedule& s) const {
  const std::int64_t room = room_in_grad_w();
  return s.order == Order::depth && room < all_rows(s) ? room : 0;
}

engines::Stored Problem::dz(const Schedule& s) const {
  // One work-item of a panel forms dz of all tokens against a word, and sums grad_bias as it does.
  const bool stays_f32 = r_.execution.dz_dtype == DType::f32 ||
                         (r_.gradients.grad_bias && engine().panel_items() != 1);
  return {.type = stays_f32 ? DType::f32
                            : engine().stored_type(r_.inputs.x.dtype(), r_.inputs.w.dtype()),
          .in_place = layers() > 1 || s.results == Results::scratch};
}

bool Problem::sums_bias_on_the_way(const Schedule& s) const {
  return r_.gradients.grad_bias && dz(s).type != DType::f32;
}

bool Problem::packs_once(const Schedule& s) const {
  return engine().packs_alike() && s.at.depth >= hidden(r_);
}

std::int64_t Problem::sums_x_words(const Schedule& s) const {
  return (s.order == Order::columns ? s.chunks() : 1) * held_rows(s) *
         engine().sums_rows(s.at.depth);
}

bool Problem::streams_grad_w(const Schedule& s) const {
  const auto& out = r_.gradients.grad_w;
  return s.sums == Sums::direct && s.chunks() == 1 &&
         engine().streams(r_.loss.v * hidden(r_) * static_cast<std::int64_t>(size_of(out.dtype())));
}

Steps Problem::steps(const Schedule& s) const {
  StepList list(*this, s);
  const bool first = looks() > 0 || s.keeps_results();
  if (first || !list.packs_again_) {
    add_pack(list, first ? Phase::look : Phase::main, schedule::of_rows);
  }
  if (first) {
    for (const auto& range : Steps::kinds_of(s, list.steps.look_columns)) {
      if (range.times > 0) add_look(list, range);
    }
    add_merge(list);
  }
  if (has_gradients(r_.loss.pass)) list.gradients();
  return std::move(list.steps);
}

void Problem::add_pack(StepList& list, Phase phase, unsigned loops) const {
  list.pack(pack_rows, phase, loops, region::packed_rows, of_logits);
}

void Problem::add_merge(StepList& list) const { add_statistics(list, Phase::look); }

void Problem::add_statistics(StepList& list, Phase phase) const {
  const std::int64_t statistics =
      loss::statistics_fields(r_.loss) * list.s.at.rows * list.steps.slices;
  auto& step = list.copy(merge, phase, schedule::of_rows,
                         4.0 * real(statistics + list.steps.slices * list.s.at.rows * sum_words()));
  step.when = When::last;
  step.times *= 2;  // written, and read where slices are merged
  if (r_.loss.wants_values()) step.regions[0] = {region::stats, statistics};
}

StepList::StepList(const Problem& problem, const Schedule& schedule)
    : p(problem),
      s(schedule),
      engine(problem.engine()),
      caches(engine, problem.rates()),
      dz(problem.dz(schedule)),
      keeps_(s.keeps_results()),
      packs_again_(s.order == Order::columns && s.chunks() > 1),
      rows_(problem.held_rows(schedule)),
      row_turns_(s.order == Order::depth ? 1 : s.chunks()) {
  steps.list = std::move(p.spare_);
  steps.list.clear();
  steps.list.reserve(32);
  const Request& r = p.r_;
  steps.products.reserve(4);
  steps.products.push_back({p.logits_product(s)});
  steps.products.push_back({grad_w_product(r, s, dz.type, rows_)});
  steps.products.push_back({grad_x_product(r, s, dz.type, rows_)});
  p.add_products(steps, s);
  for (auto& [product, cut] : steps.products) {
    const bool is_used = product.use == engines::Use::store        ? bool{r.gradients.grad_w}
                         : product.use == engines::Use::accumulate ? bool{r.gradients.grad_x}
                                                                   : true;
    if (is_used) cut = engine.cut(product, s.shrink);
  }
  // Logits of a range wait for those of another layer, whatever the phase is.
  const std::int64_t look = p.layers() > 1 && !keeps_ ? std::min(s.at.columns, s.piece) : s.piece;
  steps.look_columns = look;
  steps.main_rows = rows_;
  // Slices end where a launch does.
  steps.slice = s.blocks.m;
  if (look < s.piece) steps.slice = std::min(steps.slice, even_block(look));
  steps.slices = std::max<std::int64_t>(1, ceil_div(look, steps.slice)) * ceil_div(s.piece, look) *
                 ceil_div(std::max<std::int64_t>(s.all.columns, 1), s.piece);
  dz_words = engine.operand_words(dz, s.results == Results::scratch ? s.all.columns : s.at.columns);
}

bool StepList::has(int kernel) const {
  return std::any_of(steps.list.begin(), steps.list.end(),
                     [&](const Step& step) { return step.kernel == kernel; });
}

std::int64_t StepList::even_block(std::int64_t columns) const {
  engines::Product product = this->product(of_logits);
  product.m = columns;
  return round_up(ceil_div(columns, engine.even_parts(product, s.shrink)), engine.strip());
}

double StepList::logits_bytes(const Steps::Kind& range, std::int64_t rows) const {
  return 4.0 * real(rows) * real(range.columns) * p.layers();
}

Step& StepList::copy(int kernel, Phase phase, unsigned loops, double bytes,
                     const Steps::Kind& range) {
  Step& step = steps.add(s, phase, loops, range);
  step.kernel = kernel;
  step.bytes = bytes;
  return step;
}

Step& StepList::small(int kernel, Phase phase, unsigned loops) {
  Step& step = copy(kernel, phase, loops, 0.0);
  step.is_counted = false;
  return step;
}

Step& StepList::pack(int kernel, Phase phase, unsigned loops, const char* name, std::int8_t place) {
  const auto& packed = product(place);
  const std::int64_t words = engine.operand_words(packed);
  Step& step =
      copy(kernel, phase, loops,
           real(s.at.rows) * (real(packed.k) * bytes_of(packed.b.type) + 4.0 * real(words)));
  step.product = place;
  step.regions[0] = {name, s.at.rows * words};
  return step;
}

Step& StepList::form(int kernel, const char* name, Phase phase, const Steps::Kind& range,
                     std::int8_t place, double stored) {
  const auto& layer = product(place);
  const bool looks = phase != Phase::main;
  const std::int64_t columns = range.columns;
  const std::int64_t block =
      looks ? std::min(steps.slice, columns) : std::min(s.blocks.m, even_block(columns));
  const double packed = 4.0 * real(s.at.rows) * real(engine.operand_words(layer));
  Step& step =
      copy(kernel, phase, schedule::of_rows | schedule::of_columns,
           real(columns) * real(layer.k) * bytes_of(layer.a.type) + stored + caches.missed(packed),
           range);
  step.name = name;
  step.product = place;
  step.grid = {columns, s.at.rows, layer.k, ceil_div(columns, block), block};
  step.order = order_of(place, block);
  // One region serves the launches of all ranges.
  step.scratch_parts = {steps.slices, looks ? 0 : ceil_div(s.at.columns, engine.strip())};
  return step;
}

Step& StepList::sum(int kernel, const char* name, const Steps::Kind& range, std::int8_t place,
                    schedule::Grid grid, double bytes) {
  Step& step = copy(kernel, Phase::main,
                    schedule::of_rows | schedule::of_columns | schedule::of_depth, bytes, range);
  grid.parts = engine.parts(grid.m, cut(place), s.shrink);
  grid.part_rows = ceil_div(ceil_div(grid.m, engine.strip()), grid.parts) * engine.strip();
  step.name = name;
  step.product = place;
  step.grid = grid;
  step.order = order_of(place, 1);
  step.scratch_parts[0] = engine.parts(product(place).m, cut(place), s.shrink);
  return step;
}

schedule::SumOrder StepList::order_of(std::int8_t place, std::int64_t slice) const {
  return {.lanes = engine.tile_n(),
          .k_step = cut(place).k_step,
          .k_parts = place == of_grad_x ? x_parts_ : 1,
          .range = product(place).k,
          .slice = slice};
}

/// The main phase.
void StepList::gradients() {
  const Request& r = p.r_;
  const auto& g = r.gradients;
  const unsigned of_chunk = packs_again_ ? schedule::of_rows | schedule::of_columns
                                         : static_cast<unsigned>(schedule::of_rows);
  const auto kinds = Steps::kinds_of(s, s.at.columns);
  std::int64_t ranges = 0;
  for (const auto& range : kinds) ranges += range.times;
  // A step that packs again does so for each range of any width.
  const auto of_all = [&](Step& step) {
    if (packs_again_) step.times *= ranges;
    return &step;
  };

  // The region has the rows of the last chunk of the look.
  const bool is_packed = s.order == Order::rows || (s.chunks() == 1 && p.rows_within(s) == 0);
  if (packs_again_ && !keeps_) {
    const std::size_t before = steps.list.size();
    p.add_pack(*this, Phase::main, of_chunk);
    for (std::size_t i = before; i < steps.list.size(); ++i) of_all(steps.list[i]);
  } else if (!is_packed && g.grad_w && p.packs_once(s)) {
    of_all(pack(pack_rows, Phase::main, of_chunk, region::packed_rows, of_logits))->is_counted =
        false;
  }
  Step* factors = of_all(copy(coefficients, Phase::main, of_chunk, 0.0));
  factors->is_counted = packs_again_;
  factors->regions[0] = {region::coefficients, 5 * rows_ + (dz.type == DType::f16 ? 1 : 0)};
  if (const std::int64_t within = p.rows_within(s); within > 0) {
    factors->regions[1] = {region::beyond, (rows_ - within) * r.loss.v};
  }
  if (dz.type == DType::f16) small(fit_f16, Phase::main, of_chunk);

  if (g.grad_w) {
    packed_columns_ = engine.operand_words(product(of_grad_w));
    if (!p.packs_once(s)) {
      Step* step = of_all(copy(pack_columns, Phase::main, of_chunk | schedule::of_depth,
                               real(rows_) * real(s.at.depth) * bytes_of(r.inputs.x.dtype()) +
                                   4.0 * real(packed_columns_) * real(s.at.depth)));
      step->product = of_grad_w;
    }
  }
  if (g.grad_x && !filters_gradients(r)) {
    const auto& whole = cut(of_grad_x);
    const std::int64_t parts = engine.parts(s.at.depth, whole, s.shrink);
    const std::int64_t panels = ceil_div(rows_, engine.tile_n());
    x_parts_ = engine.k_parts(whole, engine.launch_groups(parts, panels, s.shrink), s.at.columns);
  }
  for (const auto& range : kinds) {
    if (range.times > 0) of_range(range, ranges);
  }
  if (g.grad_x) {
    const double sums = 4.0 * real(x_parts_ * p.sums_x_words(s));
    const bool is_outer = s.order == Order::columns;
    Step& step = copy(write_x, Phase::main, schedule::of_rows | schedule::of_depth,
                      caches.missed(sums / real(is_outer ? s.chunks() : 1)) / real(s.depths()) +
                          real(rows_) * real(s.at.depth) * bytes_of(g.grad_x.dtype()));
    step.when = When::last;
    step.order = order_of(of_grad_x, 1);
    small(write_excluded, Phase::main, schedule::of_depth).when = When::last;
  }
  if (s.sums == Sums::all && g.grad_w) {
    const std::int64_t pieces = ceil_div(s.all.columns, s.piece);
    Step& step = copy(
        write_w, Phase::main, schedule::of_pieces,
        real(s.all.columns) * real(hidden(r)) * (4.0 + bytes_of(g.grad_w.dtype())) / real(pieces));
    step.times = pieces;
    step.when = When::last;
    step.product = of_grad_w;
    step.regions[0] = {region::sums_w, r.loss.v * hidden(r)};
  }
  if (g.grad_bias) {
    Step& step = small(write_bias, Phase::main, schedule::once);
    step.when = When::last;
    step.product = of_grad_w;
    step.regions[0] = {region::sums_bias, r.loss.v};
  }
}

/// Gradients of the ranges of one width; there are `ranges` of any.
void StepList::of_range(const Steps::Kind& range, std::int64_t ranges) {
  const Request& r = p.r_;
  const auto& g = r.gradients;
  const double c = real(range.columns), h = real(s.at.depth);
  const double dz_bytes =
      caches.missed_next(4.0 * real(rows_) * real(engine.operand_words(dz, range.columns)));
  const unsigned inside = schedule::of_rows | schedule::of_columns;
  p.add_gradient(*this, range, dz_bytes);
  Step& formed = steps.list.back();
  formed.regions[0] = {region::dz, rows_ * dz_words};
  if (g.grad_bias) {
    if (p.sums_bias_on_the_way(s)) {
      formed.regions[1] = {region::bias_lanes, s.at.columns * engine.row_pass().lanes};
    }
    copy(sum_bias, Phase::main, inside, dz_bytes, range);
  }
  if (filters_gradients(r)) {
    copy(mark, Phase::main, inside | schedule::of_depth, dz_bytes, range).regions[0] = {
        region::filter, rows_ / engine.tile_n() * ceil_div(s.at.columns, filter_columns)};
  }
  if (g.grad_w) {
    const double shared = shared_lines(range.columns);
    const double packed = caches.missed(4.0 * real(packed_columns_) * h);
    Step& step = sum(linear::grad_w, "grad_w", range, of_grad_w,
                     {.m = range.columns, .n = s.at.depth, .k = rows_},
                     dz_bytes + written_w(c * h) + shared + packed);
    step.shared = shared;
    // With stored logits x is packed for one product after the other.
    const bool shares = keeps_ || p.packs_once(s);
    step.regions[1] = {shares ? region::packed_rows : region::packed_columns,
                       packed_columns_ * round_up(s.at.depth, engine.tile_n())};
    if (s.sums == Sums::range) {
      step.regions[0] = {region::sums_w, s.at.columns * hidden(r)};
      Step& write = copy(write_w, Phase::main, schedule::of_columns,
                         caches.missed(4.0 * c * h) + c * h * bytes_of(g.grad_w.dtype()), range);
      write.when = When::last;
      write.product = of_grad_w;
    }
  }
  if (g.grad_x) {
    const double w = c * h * bytes_of(r.inputs.w.dtype());
    const std::int64_t words = x_parts_ * p.sums_x_words(s);
    const double sums = 4.0 * real(words);
    // The first range writes them, the others read them too.
    const double moved = caches.missed(sums) / real(s.order == Order::columns ? s.chunks() : 1) *
                         (2.0 - 1.0 / real(ranges));
    Step& step = sum(linear::grad_x, "grad_x", range, of_grad_x,
                     {.m = s.at.depth, .n = rows_, .k = range.columns},
                     dz_bytes + (keeps_ ? w : caches.missed(w)) + moved);
    step.regions[0] = {region::sums_x, words};
  }
}

/// Bytes of a launch: all chunks but the first read what they add to.
double StepList::written_w(double elements) const {
  const auto& g = p.r_.gradients;
  const bool direct = s.sums == Sums::direct;
  const bool adds = direct && g.accumulate.has(Accumulate::grad_w);
  const double again = adds ? 1.0 : 1.0 - 1.0 / real(row_turns_);
  const double type = direct ? bytes_of(g.grad_w.dtype()) : 4.0;
  const double bytes = elements * type * (1.0 + again);
  return s.sums == Sums::range ? caches.missed(elements * type) * (1.0 + again) : bytes;
}

/// Bytes of a launch: a line of grad_w as [H, V] that belongs to two parts is read, and written
/// once more, by both.
double StepList::shared_lines(std::int64_t columns) const {
  constexpr std::int64_t line = 64;
  const auto& out = p.r_.gradients.grad_w;
  if (s.sums != Sums::direct || layout_of(out) != layout_hv) return 0.0;
  const std::int64_t strips = ceil_div(columns, engine.strip());
  const std::int64_t parts = engine.parts(columns, cut(of_grad_w), s.shrink);
  const std::int64_t part =
      strips / parts * engine.strip() * static_cast<std::int64_t>(size_of(out.dtype()));
  if (strips % parts == 0 && part % line == 0) return 0.0;
  return 3.0 * real(line) * real(parts) * real(s.at.depth);
}

}  // namespace tessera::linear
