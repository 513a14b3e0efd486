// SPDX-License-Identifier: Apache-2.0
// Engines by themselves, without an operator: every use of a product by kernels that know nothing
// but the contract, in batches, against sums in double.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>

#include "host/engines/engine.hpp"
#include "tests/support/opencl_fixture.hpp"
#include "tests/support/product_arguments.h"
#include "tests/support/product_kernels.hpp"

namespace tessera::test {
namespace {

using engines::Layout;
using engines::Product;
using engines::Use;

constexpr std::int64_t batches = 2;
constexpr int guard = 3;  ///< elements behind what a kernel may write

/// C = A B^T for A [batch][m][k] and B [batch][n][k], random.
struct Problem {
  std::int64_t m, n, k;
  DType a_type;
  Layout a_layout;
  std::vector<std::byte> a;  ///< [batch], then as the layout says
  std::vector<float> b;
  std::int64_t m_stride, k_stride, batch_stride;
  std::vector<double> c;     ///< [batch][m][n]
  std::vector<double> size;  ///< of the absolute values of its terms

  Problem(std::int64_t rows, std::int64_t columns, std::int64_t depth, DType type, Layout layout)
      : m(rows), n(columns), k(depth), a_type(type), a_layout(layout) {
    m_stride = layout == Layout::along_first ? 1 : layout == Layout::strided ? 2 : k;
    k_stride = layout == Layout::along_second ? 1 : layout == Layout::strided ? 2 * m : m;
    batch_stride = 2 * m * k + 5;
    std::mt19937 random(static_cast<unsigned>(m + 31 * n + 7 * k));
    std::normal_distribution<float> normal;
    a.resize(static_cast<std::size_t>(batches * batch_stride) * size_of(type));
    const auto put = [&](std::int64_t at, float value) {
      auto* to = a.data() + static_cast<std::size_t>(at) * size_of(type);
      if (type == DType::f32) std::memcpy(to, &value, sizeof(value));
      const auto narrow = bf16(value);
      if (type == DType::bf16) std::memcpy(to, &narrow, sizeof(narrow));
      return type == DType::f32 ? value : static_cast<float>(narrow);
    };
    std::vector<double> wide(static_cast<std::size_t>(batches * m * k));
    for (std::int64_t i = 0; i < batches * m * k; ++i) {
      const std::int64_t batch = i / (m * k), row = i / k % m, at = i % k;
      wide[static_cast<std::size_t>(i)] = static_cast<double>(
          put(batch * batch_stride + row * m_stride + at * k_stride, normal(random)));
    }
    b.resize(static_cast<std::size_t>(batches * n * k));
    for (auto& value : b) value = normal(random);
    for (std::int64_t i = 0; i < batches * m * n; ++i) {
      const std::int64_t batch = i / (m * n), row = i / n % m, column = i % n;
      double sum = 0.0, terms = 0.0;
      for (std::int64_t at = 0; at < k; ++at) {
        const double term =
            wide[static_cast<std::size_t>((batch * m + row) * k + at)] *
            static_cast<double>(b[static_cast<std::size_t>((batch * n + column) * k + at)]);
        sum += term;
        terms += std::abs(term);
      }
      c.push_back(sum);
      size.push_back(terms);
    }
  }
  double at(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    return c[static_cast<std::size_t>((batch * m + row) * n + column)];
  }
  /// One rounding of f32 a term, and one of the sum.
  double allowed(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    return static_cast<double>(k + 1) * 0x1p-24 *
           size[static_cast<std::size_t>((batch * m + row) * n + column)];
  }
};

class EngineProducts : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = opencl::Runtime::open({});
    if (!opened) GTEST_SKIP() << "no OpenCL device";
    state_ = opencl::make_state(std::move(opened));
    runtime_ = opencl::runtime_of(*state_);
    namespace cl = opencl;
    cl::override_embedded_kernel("test/product_arguments.h", read_arguments());
    cl::override_embedded_kernel("test/pack_b.cl", pack_kernel);
    for (const auto& [file, kernel] : {std::pair{"visit", visit_kernel},
                                       {"accumulate", accumulate_kernel},
                                       {"store", store_kernel}}) {
      cl::override_embedded_kernel(std::string("test/") + file + ".cl",
                                   std::string(product_head) + kernel);
    }
    cl::override_embedded_kernel("test/two.cl", two_kernel);
  }
  static std::string read_arguments() {
    std::ifstream stream(TESSERA_TEST_SUPPORT "/product_arguments.h");
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  /// Calls `check` with every shape of every engine that the device can run.
  void for_each_engine(const std::function<void(const engines::Engine&)>& check) {
    for (const auto& entry : engines::all_engines()) {
      if (entry.why_unsupported(runtime_->facts(), {})) continue;
      std::vector<std::string> notes;
      for (const auto& engine : entry.shapes(runtime_->facts(), {.n = 1000}, nullptr, notes)) {
        std::string name = entry.name;
        for (const auto& knob : engine->knobs()) {
          name += ", " + knob.name + " " + std::to_string(knob.value);
        }
        SCOPED_TRACE(name);
        check(*engine);
        if (HasFailure()) return;
      }
    }
  }

  /// Packs B, launches a kernel with `out` bound as `memory(call, packed, scratch)` says.
  template <class Launch>
  void run(const engines::Engine& engine, const Problem& p, const Product& product,
           const Launch& launch) {
    dispatch::Attempt attempt;
    opencl::Call call(state_, *runtime_, {}, attempt);
    const std::int64_t panels = engines::ceil_div(p.n, engine.tile_n());
    const std::int64_t words = panels * engine.tile_n() * engine.operand_words(product);
    const auto packed = call.scratch(batches * words, "operand B");
    const std::string options = engine.options() + engine.options(product, "C");
    const auto range = [](std::int64_t first) {
      return opencl::Range{{static_cast<std::size_t>(first), batches, 1}, {1, 1, 1}};
    };
    const auto b = call.read(View::host(p.b.data(), {batches * p.n * p.k}), "b");
    call.launch(
        {"test/pack_b.cl", engine.options() + engine.options(product, "PACK"), engine.folder()},
        range(panels), kernels::pack_b_memory{.from = b, .to = packed},
        {.row_stride = p.k,
         .k_stride = 1,
         .n_count = p.n,
         .k_count = p.k,
         .from_batch = p.n * p.k,
         .to_batch = words});
    const auto cut = engine.cut(product, 1);
    const std::int64_t parts =
        product.use == Use::visit ? engines::ceil_div(p.m, cut.tile_m) : engine.parts(p.m, cut, 1);
    const auto scratch = call.scratch(batches * engine.scratch_words(cut, parts, panels, 1),
                                      "scratch of work-groups");
    auto groups = engine.launch_range(parts, panels, 1);
    groups.global[2] = batches;
    const auto a =
        call.read(View::host(p.a.data(), p.a_type, {batches * p.batch_stride}, {1}), "a");
    kernels::multiply_sizes sizes{.a = {p.m_stride, p.k_stride, p.m},
                                  .m_stride = 0,
                                  .n_stride = 1,
                                  .left_batch = p.batch_stride,
                                  .right_batch = words,
                                  .out_batch = 0,
                                  .m_part = product.use == Use::visit ? cut.tile_m : 0,
                                  .m_count = static_cast<std::int32_t>(p.m),
                                  .n_count = static_cast<std::int32_t>(p.n),
                                  .k_count = static_cast<std::int32_t>(p.k),
                                  .add = 0};
    launch(call,
           options + " -DC_A_TYPE=" + std::to_string(static_cast<int>(p.a_type)) +
               " -DC_A_LAYOUT=" + std::to_string(static_cast<int>(p.a_layout)),
           groups, a, packed, scratch, sizes, engine.call(cut, parts, panels, 1), cut);
    call.finish()->wait_once();
  }

  std::shared_ptr<ContextState> state_;
  opencl::Runtime* runtime_ = nullptr;
};

std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

TEST_F(EngineProducts, Visited) {
  for (const Layout layout : {Layout::along_second, Layout::along_first, Layout::strided}) {
    const Problem p(37, 70, 45, layout == Layout::strided ? DType::f32 : DType::bf16, layout);
    for_each_engine([&](const engines::Engine& engine) {
      for (const std::int64_t k_block : {std::int64_t{0}, std::int64_t{16}}) {
        const Product product{
            .m = p.m, .n = p.n, .k = p.k, .a = {p.a_type, layout}, .k_block = k_block, .most_m = 8};
        const std::int64_t width = engines::round_up(p.n, engine.tile_n());
        std::int64_t tile_m = 0;
        std::vector<float> out;
        run(engine, p, product,
            [&](opencl::Call& call, const std::string& options, const opencl::Range& range,
                const auto& a, const auto& b, const auto& scratch, kernels::multiply_sizes sizes,
                const kernels::engine_call& e, const engines::Cut& cut) {
              tile_m = cut.tile_m;
              sizes.m_stride = width;
              sizes.out_batch = (p.m + 4 * engines::ceil_div(p.m, tile_m)) * width;
              out.assign(index(batches * sizes.out_batch), 0.0f);
              const auto to = call.write(MutableView(out), "out", true);
              call.launch(
                  {"test/visit.cl", options + " -DC_USE=USE_VISIT", engine.folder()}, range,
                  kernels::visit_memory{.left = a, .right = b, .out = to, .scratch = scratch},
                  sizes, e);
            });
        const auto at = [&](std::int64_t batch, std::int64_t row, std::int64_t column) {
          const std::int64_t rows = p.m + 4 * engines::ceil_div(p.m, tile_m);
          return out[index((batch * rows + row) * width + column)];
        };
        for (std::int64_t batch = 0; batch < batches; ++batch) {
          for (std::int64_t n = 0; n < p.n; ++n) {
            for (std::int64_t m = 0; m < p.m; ++m) {
              ASSERT_NEAR(at(batch, m, n), 2.0 * p.at(batch, m, n), 2.0 * p.allowed(batch, m, n));
            }
            for (std::int64_t part = 0; part * tile_m < p.m; ++part) {
              const std::int64_t end = std::min(p.m, (part + 1) * tile_m);
              float best = -INFINITY;
              double sum = 0.0, size = 0.0;
              std::int32_t first = -1;
              for (std::int64_t m = part * tile_m; m < end; ++m) {
                const float value = at(batch, m, n);
                if (value > best) first = static_cast<std::int32_t>(m);
                best = std::max(best, value);
                sum += static_cast<double>(value);
                size += std::abs(static_cast<double>(value));
              }
              const std::int64_t stats = p.m + 4 * part;
              ASSERT_EQ(at(batch, stats, n), best);
              ASSERT_NEAR(at(batch, stats + 1, n), sum, 0x1p-22 * size);
              ASSERT_EQ(std::bit_cast<std::int32_t>(at(batch, stats + 2, n)), first);
              ASSERT_EQ(at(batch, stats + 3, n), 1.0f) << "owners of a column";
            }
          }
        }
      }
    });
  }
}

TEST_F(EngineProducts, Accumulated) {
  for (const Layout layout : {Layout::along_second, Layout::along_first}) {
    const Problem p(50, 41, 300, DType::f32, layout);
    for_each_engine([&](const engines::Engine& engine) {
      const Product product{
          .use = Use::accumulate, .m = p.m, .n = p.n, .k = p.k, .a = {p.a_type, layout}};
      const std::int64_t panels = engines::ceil_div(p.n, engine.tile_n());
      const std::int64_t rows = engine.sums_rows(p.m);
      std::vector<float> sums(index(batches * panels * rows * engine.tile_n()), NAN);
      for (const bool add : {false, true}) {
        run(engine, p, product,
            [&](opencl::Call& call, const std::string& options, const opencl::Range& range,
                const auto& a, const auto& b, const auto& scratch, kernels::multiply_sizes sizes,
                const kernels::engine_call& e, const engines::Cut&) {
              sizes.m_stride = rows;
              sizes.out_batch = panels * rows * engine.tile_n();
              sizes.add = add;
              const auto to = call.write(MutableView(sums), "sums", true);
              call.launch(
                  {"test/accumulate.cl", options + " -DC_USE=USE_ACCUMULATE", engine.folder()},
                  range,
                  kernels::accumulate_memory{.left = a, .right = b, .out = to, .scratch = scratch},
                  sizes, e);
            });
        for (std::int64_t i = 0; i < batches * p.m * p.n; ++i) {
          const std::int64_t batch = i / (p.m * p.n), m = i / p.n % p.m, n = i % p.n;
          const float got =
              sums[index(((batch * panels + n / engine.tile_n()) * rows + m) * engine.tile_n() +
                         n % engine.tile_n())];
          ASSERT_NEAR(got, (add ? 2.0 : 1.0) * p.at(batch, m, n), 3.0 * p.allowed(batch, m, n))
              << m << ", " << n << (add ? ", added" : "");
        }
      }
    });
  }
}

TEST_F(EngineProducts, Stored) {
  for (const Layout out_layout : {Layout::along_second, Layout::along_first, Layout::strided}) {
    const Problem p(37, 53, 70, DType::f32, Layout::along_first);
    const std::int64_t m_stride = out_layout == Layout::along_first ? 1
                                  : out_layout == Layout::strided   ? 2
                                                                    : p.n + 11;
    const std::int64_t n_stride = out_layout == Layout::along_second ? 1
                                  : out_layout == Layout::strided    ? 2 * p.m
                                                                     : p.m + 11;
    // The first of the batch has rows at whole lines, which may be streamed, the second has not.
    const std::int64_t reach = (p.m - 1) * m_stride + (p.n - 1) * n_stride + 1;
    for_each_engine([&](const engines::Engine& engine) {
      const Product product{
          .use = Use::store, .m = p.m, .n = p.n, .k = p.k, .a = {p.a_type, p.a_layout}};
      HostTensor tensor(DType::f32, {batches * (reach + guard)});
      const auto out = tensor.as<float>();
      std::ranges::fill(out, -7.0f);
      for (const int how : {STORE_NEW, STORE_ADD, STORE_STREAMED}) {
        run(engine, p, product,
            [&](opencl::Call& call, const std::string& options, const opencl::Range& range,
                const auto& a, const auto& b, const auto& scratch, kernels::multiply_sizes sizes,
                const kernels::engine_call& e, const engines::Cut&) {
              sizes.m_stride = m_stride;
              sizes.n_stride = n_stride;
              sizes.out_batch = reach + guard;
              sizes.add = how;
              const auto to = call.write(tensor.mutable_view(), "out", true);
              call.launch(
                  {"test/store.cl",
                   options + " -DC_USE=USE_STORE -DC_OUT_TYPE=0 -DC_OUT_LAYOUT=" +
                       std::to_string(static_cast<int>(out_layout)),
                   engine.folder()},
                  range,
                  kernels::store_memory{.left = a, .right = b, .out = to, .scratch = scratch},
                  sizes, e);
            });
        std::vector<bool> written(out.size());
        for (std::int64_t i = 0; i < batches * p.m * p.n; ++i) {
          const std::int64_t batch = i / (p.m * p.n), m = i / p.n % p.m, n = i % p.n;
          const std::size_t at = index(batch * (reach + guard) + m * m_stride + n * n_stride);
          written[at] = true;
          ASSERT_NEAR(out[at], (how == STORE_ADD ? 2.0 : 1.0) * p.at(batch, m, n),
                      3.0 * p.allowed(batch, m, n))
              << m << ", " << n << ", stored " << how;
        }
        for (std::size_t at = 0; at < out.size(); ++at) {
          ASSERT_TRUE(written[at] || out[at] == -7.0f) << "an element beside C, " << at;
        }
      }
    });
  }
}

/// C = D f(S), S = A B, in one kernel: the tile of one product is an operand of the next.
struct TwoProducts {
  static constexpr std::int64_t m = 77, n = 101, k = 45, c = 70;  ///< S is m x n, C is c x n
  static constexpr std::int64_t k_stride = k + 3, m_stride = 80;  ///< of A, and of D's rows
  DType type;
  std::vector<std::byte> a, d;
  std::vector<float> b;
  std::vector<double> expected, allowed;

  /// `d_k_stride`, `d_m_stride` of D; `rounding` of f(S), where it becomes an operand, and `step`,
  /// half of what parts its least numbers.
  TwoProducts(DType of_type, std::int64_t d_m_stride, std::int64_t d_k_stride, double rounding,
              double step)
      : type(of_type) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto draw = [&] {
      const float value = normal(random);
      return type == DType::f16 ? static_cast<float>(f16(value)) : static_cast<float>(bf16(value));
    };
    // The spare elements, which nothing may be multiplied with, are NaN.
    const auto put = [&](std::vector<std::byte>& to, std::int64_t count, std::int64_t at,
                         float value) {
      to.resize(index(count) * size_of(type), std::byte{0xff});
      const auto narrow = type == DType::f16 ? f16(value).bits : bf16(value).bits;
      std::memcpy(to.data() + index(at) * size_of(type),
                  type == DType::f32 ? static_cast<const void*>(&value) : &narrow, size_of(type));
    };
    std::vector<double> s, f, wide_d(index(c * m));
    std::vector<float> wide_a(index(m * k));
    for (std::int64_t i = 0; i < m * k; ++i) {
      put(a, m * k_stride, i / k * k_stride + i % k, wide_a[index(i)] = draw());
    }
    b.resize(index(n * k));
    for (auto& value : b) value = draw();
    // A column of S is infinite and f of it 0; in rows that a tile does not have it may be a NaN.
    b[index(5 * k + 3)] = INFINITY;
    for (std::int64_t i = 0; i < c * m; ++i) {
      const float value = draw();
      wide_d[index(i)] = static_cast<double>(value);
      put(d, m_stride * m_stride, i / m * d_m_stride + i % m * d_k_stride, value);
    }
    std::vector<double> wrong;  // of f(S), at most: f has slopes up to 1
    for (std::int64_t i = 0; i < m * n; ++i) {
      double sum = 0.0, size = 0.0;
      for (std::int64_t at = 0; at < k; ++at) {
        const double term = static_cast<double>(wide_a[index(i / n * k + at)]) *
                            static_cast<double>(b[index(i % n * k + at)]);
        sum += term;
        size += std::abs(term);
      }
      f.push_back(1.0 / (1.0 + sum * sum));
      wrong.push_back(std::isinf(sum) ? 0.0
                                      : static_cast<double>(k + 1) * 0x1p-24 * size +
                                            (rounding + 0x1p-22) * f.back() + step);
    }
    for (std::int64_t i = 0; i < c * n; ++i) {
      double sum = 0.0, bound = 0.0;
      for (std::int64_t at = 0; at < m; ++at) {
        const double factor = wide_d[index(i / n * m + at)];
        sum += factor * f[index(at * n + i % n)];
        bound += std::abs(factor) *
                 (wrong[index(at * n + i % n)] +
                  static_cast<double>(m + 1) * 0x1p-24 * std::abs(f[index(at * n + i % n)]));
      }
      expected.push_back(sum);
      allowed.push_back(bound);
    }
  }
};

TEST_F(EngineProducts, ATileIsAnOperandOfTheNextProduct) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    runtime_->facts_for_test().bf16_products = opencl::Bf16Products::emulated;
    for (const auto& entry : engines::all_engines()) {
      const engines::Operands operands{.n = TwoProducts::n, .a = type, .b = type};
      if (entry.why_unsupported(runtime_->facts(), operands)) continue;
      SCOPED_TRACE(entry.name + ", " + to_string(type));
      std::vector<std::string> notes;
      const auto engine = entry.shapes(runtime_->facts(), operands, runtime_, notes).front();
      // An engine that widens what is narrower multiplies as with f32.
      const bool rounds = type != DType::f32;
      if (engine->stored_type(type, type) != type) continue;
      // D lies along the rows of S, or across them.
      const Layout layout = rounds ? Layout::along_second : Layout::along_first;
      const std::int64_t d_m = layout == Layout::along_second ? TwoProducts::m_stride : 1;
      const std::int64_t d_k = layout == Layout::along_second ? 1 : TwoProducts::m_stride;
      const Product scores{.m = TwoProducts::m,
                           .n = TwoProducts::n,
                           .k = TwoProducts::k,
                           .a = {type, Layout::along_second},
                           .b = {type},
                           .k_block = 16,
                           .most_m = 24};
      const auto cut = engine->cut(scores, 1);
      const Product product{.use = Use::store,
                            .m = TwoProducts::c,
                            .n = TwoProducts::n,
                            .k = cut.tile_m,
                            .a = {type, layout},
                            .b = {.type = type, .from = engines::Operand::From::tile}};
      const TwoProducts p(type, d_m, d_k,
                          !rounds              ? 0.0
                          : type == DType::f16 ? 0x1p-11
                                               : 0x1p-8,
                          type == DType::f16 ? 0x1p-25 : 0.0);
      const auto own = engine->cut(product, 1);
      const std::int64_t panels = engines::ceil_div(p.n, engine->tile_n());
      const std::int64_t parts = engine->parts(p.c, own, 1);
      const std::int64_t groups = engine->launch_groups(parts, panels, 1);
      const std::string options = engine->options() + engine->options(scores, "SCORES") +
                                  engine->options(product, "C") +
                                  " -DC_A_TYPE=" + std::to_string(static_cast<int>(type)) +
                                  " -DC_A_LAYOUT=" + std::to_string(static_cast<int>(layout));
      HostTensor tensor(DType::f32, {p.c * TwoProducts::m_stride * 2});
      const auto out = tensor.as<float>();
      std::ranges::fill(out, -7.0f);
      constexpr std::int64_t out_stride = p.n + guard;

      dispatch::Attempt attempt;
      opencl::Call call(state_, *runtime_, {}, attempt);
      const auto packed =
          call.scratch(panels * engine->tile_n() * engine->operand_words(scores), "operand B");
      const auto b = call.read(View::host(p.b.data(), {p.n * p.k}), "b");
      call.launch(
          {"test/pack_b.cl", engine->options() + engine->options(scores, "PACK"), engine->folder()},
          {{index(panels), 1, 1}, {1, 1, 1}}, kernels::pack_b_memory{.from = b, .to = packed},
          {.row_stride = p.k,
           .k_stride = 1,
           .n_count = p.n,
           .k_count = p.k,
           .from_batch = 0,
           .to_batch = 0});
      const auto scratch =
          call.scratch(groups * (cut.group_words + own.group_words), "scratch of work-groups");
      const auto a = call.read(View::host(p.a.data(), type, {p.m * p.k_stride}, {1}), "a");
      const auto d = call.read(View::host(p.d.data(), type, {p.m_stride * p.m_stride}, {1}), "d");
      const auto to = call.write(tensor.mutable_view(), "out", true);
      call.launch({"test/two.cl", options, engine->folder()},
                  engine->launch_range(parts, panels, 1),
                  kernels::two_memory{
                      .left = a, .right = packed, .second = d, .out = to, .scratch = scratch},
                  {.a = {p.k_stride, 1, p.m},
                   .second = {d_m, d_k, p.c},
                   .m_stride = out_stride,
                   .c_scratch = groups * cut.group_words,
                   .m_count = p.m,
                   .n_count = p.n,
                   .k_count = p.k,
                   .c_count = p.c},
                  engine->call(cut, engine->parts(p.m, cut, 1), panels, 1),
                  engine->call(own, parts, panels, 1));
      call.finish()->wait_once();
      for (std::int64_t i = 0; i < p.c * p.n; ++i) {
        ASSERT_NEAR(out[index(i / p.n * out_stride + i % p.n)], p.expected[index(i)],
                    p.allowed[index(i)])
            << i / p.n << ", " << i % p.n;
      }
      for (std::int64_t at = 0; at < static_cast<std::int64_t>(out.size()); ++at) {
        ASSERT_TRUE((at / out_stride < p.c && at % out_stride < p.n) || out[index(at)] == -7.0f)
            << "an element beside C, " << at;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::test
