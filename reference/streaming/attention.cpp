// SPDX-License-Identifier: Apache-2.0
#include "reference/streaming/attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "reference/streaming/spans.hpp"

namespace tessera::streaming {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

/// Bytes that a thread may take where blocks are chosen here.
constexpr std::int64_t worker_limit = std::int64_t{1} << 20;
/// Fewer blocks of rows than this become shorter ones; few rows that see many keys are split among
/// so many tasks. Neither follows the threads: results would.
constexpr std::int64_t enough_blocks = 16;
constexpr std::int64_t fewer_rows = 128;
constexpr std::int64_t enough_tasks = 32;
/// Keys below which a part is not worth its start.
constexpr std::int64_t least_part = 512;
/// Bytes that the parts of all rows may take together.
constexpr std::int64_t parts_limit = std::int64_t{1} << 18;
/// Below it gemm is slower than its one-column form for each row.
constexpr std::int64_t few_rows = 4;
/// Keys of a tile below which a product is slow.
constexpr std::int64_t least_cut = 64;
/// Multiplications below which a thread costs as much as it saves.
constexpr std::int64_t least_work = 1 << 18;

/// A query of one head, which sees keys [first, end), and its statistics over those so far,
/// relative to `max`.
struct Row {
  std::int64_t head, query, first, end;
  double sum;
  float max;  ///< NaN: so is the row
};

struct Worker {
  float* q;      ///< [q_block][line(d)], scaled
  float* tile;   ///< [q_block][line(kv_block)]
  float* o;      ///< [q_block][line(e)]
  float* block;  ///< of k or v, [kv_block][d or e]
  float* bias;   ///< [kv_block]
  float* gemm;
  Row* rows;  ///< [q_block]
};

/// The places of a call's scratch arrays.
struct Scratch {
  Worker first;
  std::int64_t worker_bytes;
  float* part_o;   ///< [tasks][parts][q_block][line(e)]
  Row* part_rows;  ///< [tasks][parts][q_block]

  Worker worker(int index) const {
    Worker w = first;
    const std::int64_t bytes = index * worker_bytes;
    const auto move = [&](auto*& piece) {
      piece = reinterpret_cast<std::remove_reference_t<decltype(piece)>>(
          reinterpret_cast<char*>(piece) + bytes);
    };
    move(w.q), move(w.tile), move(w.o), move(w.block), move(w.bias), move(w.gemm), move(w.rows);
    return w;
  }
};

std::int64_t line(std::int64_t floats) { return round_up(floats, lane_quantum); }

std::int64_t rows_of(const AttentionShape& shape) {
  return shape.kv_heads > 0 ? shape.q_heads / shape.kv_heads * shape.queries : 0;
}

/// Blocks of rows, of all heads and batches.
std::int64_t row_blocks(const AttentionShape& shape, const AttentionPlan& plan) {
  return shape.batch * shape.kv_heads * ceil_div(rows_of(shape), plan.q_block);
}

Scratch lay_out(Arena& arena, const AttentionShape& shape, const AttentionPlan& plan) {
  Scratch m = {};
  const std::int64_t rows = plan.q_block;
  const std::int64_t begin = arena.used();
  m.first.q = arena.take<float>(rows * line(shape.d));
  m.first.tile = arena.take<float>(rows * line(plan.kv_block));
  m.first.o = arena.take<float>(plan.parts > 1 ? 0 : rows * line(shape.e));
  m.first.block = arena.take<float>(plan.kv_block * std::max(shape.d, shape.e));
  m.first.bias = arena.take<float>(plan.kv_block);
  m.first.gemm = arena.take<float>(plan.gemm_floats);
  m.first.rows = arena.take<Row>(plan.parts > 1 ? 0 : rows);
  m.worker_bytes = arena.used() - begin;
  arena.take<char>(m.worker_bytes * (plan.threads - 1));
  if (plan.parts > 1) {
    const std::int64_t parts = row_blocks(shape, plan) * plan.parts;
    m.part_o = arena.take<float>(parts * rows * line(shape.e));
    m.part_rows = arena.take<Row>(parts * rows);
  }
  return m;
}

/// Adds to `row` and `o` what other keys came to.
void merge_into(const Kernels& kernels, std::int64_t e, const Row& later, const float* later_o,
                Row& row, float* o) {
  if (std::isnan(row.max) || std::isnan(later.max)) {
    row.max = nan_value;
    return;
  }
  if (later.max == -infinity) return;
  const float max = std::max(row.max, later.max);
  const float own = row.max == -infinity ? 0.0f : std::exp(row.max - max);
  const float other = std::exp(later.max - max);
  kernels.scale(o, e, own);
  kernels.add_scaled(later_o, e, other, o);
  row.sum = row.sum * static_cast<double>(own) + later.sum * static_cast<double>(other);
  row.max = max;
}

class Attention {
 public:
  Attention(const AttentionProblem& problem, const AttentionPlan& plan, const Kernels& kernels,
            const Scratch& memory)
      : p_(problem),
        plan_(plan),
        kernels_(kernels),
        memory_(memory),
        group_(p_.q_heads / p_.kv_heads),
        rows_(rows_of(p_)),
        heads_(p_.batch * p_.kv_heads),
        ldq_(line(p_.d)),
        ld_(line(plan.kv_block)),
        ldo_(line(p_.e)),
        part_keys_(line(ceil_div(p_.keys, plan.parts))),
        cut_keys_(std::max<std::int64_t>(least_cut, plan.kv_block / 2)),
        // Windows beyond every key are none; longer ones would overflow.
        left_(std::min(p_.window_left, p_.queries + p_.keys)),
        right_(p_.causal ? 0 : std::min(p_.window_right, p_.queries + p_.keys)) {}

  /// Computes the rows of a block over one part of the keys.
  void attend(std::int64_t task, int index) const {
    Block b = block_of(task / plan_.parts, memory_.worker(index));
    if (plan_.parts > 1) place_part(task, b);
    start_rows(b);
    const std::int64_t first = plan_.parts > 1 ? task % plan_.parts * part_keys_ : 0;
    const std::int64_t last = plan_.parts > 1 ? first + part_keys_ : p_.keys;
    const std::int64_t end = std::min(b.rows[b.count - 1].end, last);
    Span keys = {std::max(b.rows[0].first, first), 0};
    if (keys.first < end) load_queries(b);
    for (; keys.first < end; keys.first += keys.count) {
      keys.count = std::min(plan_.kv_block, end - keys.first);
      // A short tile leaves more out where rows see different keys.
      if (!all_see_all(b, {0, b.count}, keys)) keys.count = std::min(keys.count, cut_keys_);
      attend_tile(b, keys);
    }
    if (plan_.parts == 1) store(b);
  }

  /// Merges the parts of a block of rows.
  void merge(std::int64_t block, int index) const {
    Block b = block_of(block, memory_.worker(index));
    place_part(block * plan_.parts, b);
    for (std::int64_t part = 1; part < plan_.parts; ++part) {
      Block later = b;
      place_part(block * plan_.parts + part, later);
      for (std::int64_t r = 0; r < b.count; ++r) {
        merge_into(kernels_, p_.e, later.rows[r], later.o + r * ldo_, b.rows[r], b.o + r * ldo_);
      }
    }
    store(b);
  }

 private:
  /// Consecutive rows of one head of k. Row r of the head is query r / group of query head
  /// r % group of its group.
  struct Block {
    std::int64_t batch, head;
    std::int64_t first, count;
    std::int64_t keys;   ///< of the sequence
    std::int64_t place;  ///< of query 0 among the keys
    Worker scratch;
    float* o;   ///< [count][line(e)]
    Row* rows;  ///< [count]
  };

  /// The last queries, which see most keys of a causal call, come first.
  Block block_of(std::int64_t block, const Worker& scratch) const {
    const std::int64_t of_rows = ceil_div(rows_, plan_.q_block) - 1 - block / heads_;
    const std::int64_t head = block % heads_;
    const Span rows = block_span(of_rows, plan_.q_block, rows_);
    Block b = {};
    b.batch = head / p_.kv_heads;
    b.head = head % p_.kv_heads;
    b.first = rows.first;
    b.count = rows.count;
    b.keys = p_.lengths != nullptr ? p_.lengths[b.batch] : p_.keys;
    b.place = p_.upper_left ? 0 : b.keys - p_.queries;
    b.scratch = scratch;
    b.o = scratch.o;
    b.rows = scratch.rows;
    return b;
  }
  void place_part(std::int64_t task, Block& b) const {
    b.o = memory_.part_o + task * plan_.q_block * ldo_;
    b.rows = memory_.part_rows + task * plan_.q_block;
  }

  void start_rows(const Block& b) const {
    Row row = {};
    row.query = b.first / group_;
    std::int64_t of_group = b.first % group_;
    for (std::int64_t r = 0; r < b.count; ++r) {
      const std::int64_t place = row.query + b.place;
      row.head = b.head * group_ + of_group;
      // Neither falls from one row to the next.
      row.first = left_ < 0 ? 0 : std::max<std::int64_t>(0, place - left_);
      row.end = right_ < 0 ? b.keys : std::min(b.keys, place + right_ + 1);
      row.max = -infinity;
      b.rows[r] = row;
      if (++of_group == group_) ++row.query, of_group = 0;
    }
    std::memset(b.o, 0, static_cast<std::size_t>(b.count * ldo_) * sizeof(float));
  }

  static bool all_see_all(const Block& b, Span rows, Span keys) {
    return b.rows[rows.first + rows.count - 1].first <= keys.first &&
           b.rows[rows.first].end >= keys.first + keys.count;
  }

  template <class Pointer>
  static auto at_token(const HeadsOf<Pointer>& a, std::int64_t batch, std::int64_t head,
                       std::int64_t token) {
    return at(a.data, a.type, a.offsets[batch] + head * a.head_stride + token * a.token_stride);
  }

  void load_queries(const Block& b) const {
    for (std::int64_t r = 0; r < b.count; ++r) {
      float* target = b.scratch.q + r * ldq_;
      kernels_.load(at_token(p_.q, b.batch, b.rows[r].head, b.rows[r].query), p_.q.type,
                    p_.q.depth_stride, p_.d, target);
      kernels_.scale(target, p_.d, p_.scale);
    }
  }

  /// Tokens of k or v, one a row: where they lie, or widened.
  Operand tokens_of(const ConstHeads& a, const Block& b, Span keys, std::int64_t depth) const {
    if (a.type == Type::f32 && (a.depth_stride == 1 || depth == 1) && a.token_stride >= depth) {
      const void* data = at_token(a, b.batch, b.head, keys.first);
      return {static_cast<const float*>(data), a.token_stride};
    }
    return widened(a, b, keys, depth);
  }
  Operand widened(const ConstHeads& a, const Block& b, Span keys, std::int64_t depth) const {
    const void* data = at_token(a, b.batch, b.head, keys.first);
    kernels_.load_block({data, a.type, a.token_stride, a.depth_stride}, keys.count, depth,
                        b.scratch.block, depth);
    return {b.scratch.block, depth};
  }

  /// A product with few columns would pack longer than it multiplies: each is one of its own.
  void multiply(const Gemm& g) const {
    if (g.n >= few_rows) return kernels_.gemm(g);
    for (std::int64_t j = 0; j < g.n; ++j) {
      Gemm column = g;
      column.n = 1;
      column.b += j * g.ldb;
      column.c += j * g.ldc;
      kernels_.gemm(column);
    }
  }

  void attend_tile(const Block& b, Span keys) const {
    // Rows that see none of the tile's keys are left out.
    Span rows = {0, b.count};
    const std::int64_t end = keys.first + keys.count;
    while (rows.count > 0 && b.rows[rows.first].end <= keys.first) ++rows.first, --rows.count;
    while (rows.count > 0 && b.rows[rows.first + rows.count - 1].first >= end) --rows.count;
    if (rows.count == 0) return;
    const Worker& w = b.scratch;
    const Operand k = tokens_of(p_.k, b, keys, p_.d);
    multiply({keys.count, rows.count, p_.d, k.data, k.ld, true, w.q + rows.first * ldq_, ldq_,
              false, w.tile, ld_, false, w.gemm, plan_.gemm_floats});
    for (std::int64_t r = 0; r < rows.count; ++r) {
      attend_row(b, rows.first + r, keys, w.tile + r * ld_);
    }
    if (p_.y.data == nullptr) return;
    Operand v = tokens_of(p_.v, b, keys, p_.e);
    if (p_.bias.data != nullptr || !all_see_all(b, rows, keys)) v = only_finite(v, b, rows, keys);
    multiply({p_.e, rows.count, keys.count, v.data, v.ld, false, w.tile, ld_, false,
              b.o + rows.first * ldo_, ldo_, true, w.gemm, plan_.gemm_floats});
  }

  void attend_row(const Block& b, std::int64_t r, Span keys, float* logits) const {
    Row& row = b.rows[r];
    if (std::isnan(row.max)) return;
    AttentionRow terms = {};
    terms.n = keys.count;
    terms.first = std::max<std::int64_t>(0, row.first - keys.first);
    terms.end = std::min(keys.count, row.end - keys.first);
    terms.cap = p_.cap;
    terms.max = row.max;
    if (p_.slopes != nullptr) {
      terms.slope = p_.slopes[row.head];
      terms.place = static_cast<float>(row.query + b.place - keys.first);
    }
    if (p_.bias.data != nullptr && terms.first < terms.end) {
      const void* bias = bias_at(b, row, keys.first);
      terms.bias = static_cast<const float*>(bias);
      const std::int64_t stride = p_.bias.depth_stride;
      if (p_.bias.type != Type::f32 || stride != 1) {
        kernels_.load(at(bias, p_.bias.type, terms.first * stride), p_.bias.type, stride,
                      terms.end - terms.first, b.scratch.bias + terms.first);
        terms.bias = b.scratch.bias;
      }
    }
    const AttentionStep step = kernels_.attend(logits, terms);
    if (step.max > row.max && row.max != -infinity) {
      const float factor = std::exp(row.max - step.max);
      kernels_.scale(b.o + r * ldo_, p_.e, factor);
      row.sum *= static_cast<double>(factor);
    }
    row.max = step.max;
    row.sum += static_cast<double>(step.sum);
  }

  const void* bias_at(const Block& b, const Row& row, std::int64_t key) const {
    return at(at_token(p_.bias, b.batch, row.head, row.query), p_.bias.type,
              key * p_.bias.depth_stride);
  }

  bool sees(const Block& b, const Row& row, std::int64_t key) const {
    if (key < row.first || key >= row.end) return false;
    if (p_.bias.data == nullptr) return true;
    float bias = 0.0f;
    kernels_.load(bias_at(b, row, key), p_.bias.type, 1, 1, &bias);
    return bias != -infinity;
  }

  /// A product would take what is not finite in v, times 0, to rows that do not see it: such tokens
  /// are added to the rows that do, and become 0 in a copy.
  Operand only_finite(Operand v, const Block& b, Span rows, Span keys) const {
    const Worker& w = b.scratch;
    for (std::int64_t j = 0; j < keys.count; ++j) {
      if (kernels_.all_finite(v.data + j * v.ld, p_.e)) continue;
      if (v.data != w.block) v = widened(p_.v, b, keys, p_.e);
      float* token = w.block + j * v.ld;
      for (std::int64_t r = 0; r < rows.count; ++r) {
        if (!sees(b, b.rows[rows.first + r], keys.first + j)) continue;
        kernels_.add_scaled(token, p_.e, w.tile[r * ld_ + j], b.o + (rows.first + r) * ldo_);
      }
      std::fill(token, token + p_.e, 0.0f);
    }
    return v;
  }

  /// Adds the sinks and writes the rows.
  void store(const Block& b) const {
    for (std::int64_t r = 0; r < b.count; ++r) {
      const Row& row = b.rows[r];
      const float sink = p_.sinks != nullptr ? p_.sinks[row.head] : -infinity;
      const bool poisoned = std::isnan(row.max) || std::isnan(sink) || sink == infinity;
      const double max = static_cast<double>(std::max(row.max, sink));
      // Nothing was seen, or not even a sink: a difference of infinities would be NaN.
      const auto share_of = [max](float logit) {
        return logit == -infinity ? 0.0 : std::exp(static_cast<double>(logit) - max);
      };
      const double share = share_of(row.max);
      const double sum = share * row.sum + share_of(sink);
      if (p_.lse.data != nullptr) {
        *static_cast<float*>(at_token(p_.lse, b.batch, row.head, row.query)) =
            poisoned ? nan_value : static_cast<float>(log_sum_exp(max, sum));
      }
      if (p_.y.data == nullptr) continue;
      float* o = b.o + r * ldo_;
      if (poisoned || row.max == -infinity) {
        std::fill(o, o + p_.e, poisoned ? nan_value : 0.0f);
      } else {
        kernels_.scale(o, p_.e, static_cast<float>(share / sum));
      }
      kernels_.store(o, p_.e, at_token(p_.y, b.batch, row.head, row.query), p_.y.type,
                     p_.y.depth_stride, false);
    }
  }

  const AttentionProblem& p_;
  const AttentionPlan& plan_;
  const Kernels& kernels_;
  const Scratch& memory_;
  std::int64_t group_, rows_, heads_, ldq_, ld_, ldo_;
  std::int64_t part_keys_, cut_keys_;  ///< of a part; of a tile where rows see different keys
  std::int64_t left_, right_;          ///< the window; causal is one without keys on the right
};

// -- Plans ----------------------------------------------------------------------------------------

/// Sizes of blocks of rows and keys.
struct Blocks {
  std::int64_t q, kv;
};
/// Best first. Longer tiles are no faster, and leave less out where rows see different keys.
constexpr Blocks good_blocks[] = {{256, 128}, {192, 128}, {128, 128}, {64, 128}, {64, 64}};
/// For small workspaces.
constexpr Blocks small_blocks[] = {{32, 64}, {16, 32}, {16, 16}, {4, 16}, {1, 16}};
/// The part of the packing buffers that Eigen would like best with which it is hardly slower.
constexpr std::int64_t least_packing = 4;

/// Threads that the work is worth.
int useful_threads(const AttentionShape& s, int threads) {
  const double pairs = static_cast<double>(s.batch * s.q_heads) * static_cast<double>(s.queries) *
                       static_cast<double>(s.keys);
  return static_cast<int>(std::clamp(pairs * static_cast<double>(s.d + s.e) / least_work, 1.0,
                                     static_cast<double>(threads)));
}

/// Rows of a task, less where there would be few tasks.
std::int64_t rows_of_task(const AttentionShape& shape, std::int64_t rows) {
  const std::int64_t blocks = shape.batch * shape.kv_heads * ceil_div(rows_of(shape), rows);
  return blocks < enough_blocks ? std::min(rows, fewer_rows) : rows;
}

AttentionPlan plan_with(const AttentionShape& shape, const Blocks& wanted, int threads) {
  AttentionPlan plan;
  plan.q_block = std::clamp<std::int64_t>(wanted.q, 1, std::max<std::int64_t>(1, rows_of(shape)));
  plan.kv_block = std::clamp<std::int64_t>(wanted.kv, 1, std::max<std::int64_t>(1, shape.keys));
  const std::int64_t blocks = std::max<std::int64_t>(1, row_blocks(shape, plan));
  const std::int64_t of_part =
      blocks * plan.q_block * (line(shape.e) * 4 + static_cast<std::int64_t>(sizeof(Row)));
  plan.parts = std::clamp<std::int64_t>(
      std::min({ceil_div(enough_tasks, blocks), shape.keys / least_part, parts_limit / of_part}), 1,
      enough_tasks);
  plan.threads = static_cast<int>(std::min<std::int64_t>(threads, blocks * plan.parts));
  plan.schedule = plan.parts > 1 ? "parts_of_keys" : "blocks_of_rows";
  return plan;
}

/// Gives products the packing buffers that fit into the limits; false: not even the least.
bool fit(const AttentionShape& shape, std::int64_t limit, std::int64_t limit_of_worker,
         std::int64_t least, std::int64_t best, AttentionPlan& plan) {
  const auto measure = [&](std::int64_t gemm_floats) {
    plan.gemm_floats = gemm_floats;
    Arena counter(nullptr);
    const std::int64_t of_worker = lay_out(counter, shape, plan).worker_bytes;
    plan.workspace_bytes = counter.used();
    return of_worker;
  };
  const std::int64_t of_worker = measure(least);
  if (plan.workspace_bytes > limit || of_worker > limit_of_worker) return false;
  const std::int64_t spare =
      std::min((limit - plan.workspace_bytes) / plan.threads, limit_of_worker - of_worker);
  measure(std::min(best, least + spare / 64 * lane_quantum));
  return true;
}

}  // namespace

AttentionPlan plan_attention(const AttentionShape& shape, std::int64_t q_block,
                             std::int64_t kv_block, int threads, std::int64_t limit,
                             const Kernels& kernels) {
  const bool chosen = q_block <= 0 || kv_block <= 0;
  const std::int64_t of_worker = chosen ? worker_limit : limit;
  AttentionPlan plan;
  // Blocks shrink first, then the number of threads, which is sure to cost its part of the speed.
  for (int t = useful_threads(shape, threads);; t /= 2) {
    const auto fits = [&](const Blocks& blocks, bool anyhow) {
      plan = plan_with(shape,
                       {q_block > 0 ? q_block : rows_of_task(shape, blocks.q),
                        kv_block > 0 ? kv_block : blocks.kv},
                       t);
      const std::int64_t best =
          std::max({kernels.gemm_scratch(plan.kv_block, plan.q_block, shape.d),
                    kernels.gemm_scratch(shape.e, plan.q_block, plan.kv_block), min_gemm_scratch});
      const std::int64_t least =
          anyhow ? min_gemm_scratch : std::max(min_gemm_scratch, best / least_packing);
      return fit(shape, limit, of_worker, least, best, plan);
    };
    for (const Blocks& blocks : good_blocks) {
      if (fits(blocks, false)) return plan;
    }
    for (const Blocks& blocks : small_blocks) {
      if (fits(blocks, true)) return plan;
    }
    if (t == 1) return plan;  // with what it takes
  }
}

void run_attention(const AttentionProblem& problem, const AttentionPlan& plan,
                   const Environment& environment, void* workspace) {
  if (problem.batch == 0 || problem.kv_heads == 0 || rows_of(problem) == 0) return;
  Arena arena(workspace);
  const Scratch memory = lay_out(arena, problem, plan);
  const Attention attention(
      problem, plan, environment.kernels != nullptr ? *environment.kernels : kernels(), memory);
  const std::int64_t blocks = row_blocks(problem, plan);
  parallel_for(environment, plan.threads, "attention", blocks * plan.parts,
               [&](std::int64_t task, int worker) { attention.attend(task, worker); });
  if (plan.parts == 1) return;
  parallel_for(environment, plan.threads, "merge", blocks,
               [&](std::int64_t block, int worker) { attention.merge(block, worker); });
}

}  // namespace tessera::streaming
