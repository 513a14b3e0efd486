// SPDX-License-Identifier: Apache-2.0
// The matrix units: mma.sync, ldmatrix, movmatrix, wgmma.
#include <algorithm>
#include <charconv>

#include "builder.hpp"
#include "layouts.hpp"
#include "tessera/dtype.hpp"

namespace tessera_ptx {
namespace {

constexpr int depth = 16;  // of k, of either instruction

/// ldmatrix.sync.aligned.m8n8.x4{.trans}.shared.b16 {...}, [address].
void build_ldmatrix(Builder& b) {
  b.expect("sync");
  b.expect("aligned");
  b.expect("m8n8");
  const std::size_t count = b.take("x4") ? 4 : b.take("x2") ? 2 : 1;
  if (count == 1) b.expect("x1");
  const bool is_turned = b.take("trans");
  if (!b.take("shared::cta")) b.expect("shared");
  b.expect("b16");
  b.end_of_words();
  const auto& to = b.operand(0);
  if (to.list.size() != count) b.unknown();
  for (const auto& one : to.list) b.output(one, 4);
  b.address(1);
  b.op.number.push_back(is_turned);
  b.op.run = [](Machine& m, Warp& w, const Op& op, Lanes lanes) {
    Machine::require_all(w, lanes);
    for (std::size_t i = 0; i < op.outputs; ++i) {
      std::uint16_t matrix[8][8];  // [row][column]
      for (int row = 0; row < 8; ++row) {
        const auto lane = static_cast<int>(i) * 8 + row;
        std::memcpy(matrix[row], m.shared(w, address_of(w, op, op.outputs, 0, lane), 16), 16);
      }
      for (int l = 0; l < warp_size; ++l) {
        const int row = l / 4, column = l % 4 * 2;
        const bool turns = op.number[2] != 0;
        const std::uint32_t low = turns ? matrix[column][row] : matrix[row][column];
        const std::uint32_t high = turns ? matrix[column + 1][row] : matrix[row][column + 1];
        w.at<std::uint32_t>(op.at[i])[l] = high << 16 | low;
      }
    }
  };
}

/// movmatrix.sync.aligned.m8n8.trans.b16 to, from: lane l has row l / 4, columns 2 (l % 4) and the
/// next.
void build_movmatrix(Builder& b) {
  for (const auto* word : {"sync", "aligned", "m8n8", "trans", "b16"}) b.expect(word);
  b.end_of_words();
  b.output(b.operand(0), 4);
  b.input(b.operand(1), 4);
  b.op.run = [](Machine&, Warp& w, const Op& op, Lanes lanes) {
    Machine::require_all(w, lanes);
    std::uint32_t matrix[8][8];  // [column][row]
    for (int l = 0; l < warp_size; ++l) {
      const std::uint32_t word = w.at<std::uint32_t>(op.at[1])[l];
      matrix[l % 4 * 2][l / 4] = word & 0xffffu;
      matrix[l % 4 * 2 + 1][l / 4] = word >> 16;
    }
    for (int l = 0; l < warp_size; ++l) {
      const auto* row = matrix[l / 4] + l % 4 * 2;
      w.at<std::uint32_t>(op.at[0])[l] = row[1] << 16 | row[0];
    }
  };
}

double widened(bool is_half, std::uint32_t word) {
  const auto bits = static_cast<std::uint16_t>(word);
  return double{is_half ? static_cast<float>(tessera::f16::from_bits(bits)) : from_bf16(bits)};
}

/// The two elements of a register.
void unpack(bool is_half, std::uint32_t word, double* low, double* high) {
  *low = widened(is_half, word);
  *high = widened(is_half, word >> 16);
}

void multiply(Machine&, Warp& w, const Op& op, Lanes lanes) {
  const bool is_half = op.number[0] != 0;
  Machine::require_all(w, lanes);
  double a[16][depth], b[depth][8];  // [m][k], [k][n]
  const auto* in = op.at.data() + 4;
  for (int l = 0; l < warp_size; ++l) {
    for (int i = 0; i < 4; ++i) {
      const auto [row, k] = mma_a(i, l);
      unpack(is_half, w.at<std::uint32_t>(in[i])[l], &a[row][k], &a[row][k + 1]);
    }
    for (int i = 0; i < 2; ++i) {
      const auto [column, k] = mma_b(i, l);
      unpack(is_half, w.at<std::uint32_t>(in[4 + i])[l], &b[k][column], &b[k + 1][column]);
    }
  }
  double c[16][8] = {};
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < depth; ++k) {
      for (int column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int l = 0; l < warp_size; ++l) {
    for (int i = 0; i < 4; ++i) {
      const auto [row, column] = mma_c(i, l);
      w.at<float>(op.at[i])[l] =
          static_cast<float>(double{w.at<float>(in[6 + i])[l]} + c[row][column]);
    }
  }
}

void build_mma(Builder& b) {
  for (const auto* word : {"sync", "aligned", "m16n8k16", "row", "col", "f32"}) b.expect(word);
  const bool is_half = b.take("f16");
  if (!is_half) b.expect("bf16");
  b.expect(is_half ? "f16" : "bf16");
  b.expect("f32");
  b.end_of_words();
  static constexpr std::size_t sizes[] = {4, 4, 2, 4};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto& list = b.operand(i).list;
    if (list.size() != sizes[i]) b.unknown();
    for (const auto& one : list) {
      if (i == 0)
        b.output(one, 4);
      else
        b.input(one, 4);
    }
  }
  b.op.number = {is_half};
  b.op.run = multiply;
}

// wgmma: number has the columns, whether A and B are by m and by n, and their signs.

/// Reads a matrix of 16-bit elements [mn][depth] from shared memory.
void fetch(Warp& w, std::uint64_t bits, int first, int count, bool is_by_mn, float* to) {
  const Descriptor descriptor(bits);
  if (descriptor.mode != 1 || descriptor.base != 0) {
    throw Fault("a descriptor of wgmma without the swizzle of 128 bytes, or with a base offset");
  }
  Group& group = *w.group;
  for (int mn = 0; mn < count; ++mn) {
    for (int k = 0; k < depth; ++k) {
      const auto at = descriptor.at(first + mn, k, is_by_mn);
      if (at < first_shared || at + 2 > group.shared.size()) {
        throw Fault("wgmma reads outside the group's shared memory");
      }
      if (group.ordinary[at] != 0) {
        throw Fault("wgmma reads what an ordinary store wrote, without fence.proxy.async");
      }
      std::uint16_t element = 0;
      std::memcpy(&element, group.shared.data() + at, 2);
      to[mn * depth + k] = from_bf16(element);
    }
  }
}

void finish(Warp& w, const Product& product) {
  const Op& op = *product.op;
  const int columns = static_cast<int>(op.number[0]);
  float a[16 * depth], b[256 * depth];
  fetch(w, product.a, static_cast<int>(w.index % 4) * 16, 16, op.number[1] != 0, a);
  fetch(w, product.b, 0, columns, op.number[2] != 0, b);
  const auto sign = static_cast<float>(op.number[3] * op.number[4]);
  for (int l = 0; l < warp_size; ++l) {
    for (int i = 0; i < columns / 2; ++i) {
      const auto [row, column] = wgmma_c(i, l);
      double sum = 0;
      for (int k = 0; k < depth; ++k) {
        sum += double{a[row * depth + k]} * double{b[column * depth + k]};
      }
      float& to = w.at<float>(op.at[static_cast<std::size_t>(i)])[l];
      to = static_cast<float>(sign * sum + (product.adds ? double{to} : 0.0));
    }
  }
  for (const auto sum : op.own_sums) --w.in_flight[sum];
}

void begin_product(Machine&, Warp& w, const Op& op, Lanes lanes) {
  Machine::require_all(w, lanes);
  for (const auto sum : op.own_sums) {
    if (w.touched[sum] != 0) throw Fault("sums were written and no wgmma.fence came behind it");
    ++w.in_flight[sum];
  }
  const int lane = first_lane(lanes);
  Product product{&op, w.value(op.at[op.outputs], 8, lane), w.value(op.at[op.outputs + 1], 8, lane),
                  (w.predicate(op.at[op.outputs + 2]) & lanes) != 0};
  // A warpgroup's warps run the same instructions with the same descriptors.
  const auto [first, is_new] =
      w.group->products.try_emplace({w.index / 4, w.product_count}, product);
  const Product& others = first->second;
  if (!is_new && (others.op != &op || others.a != product.a || others.b != product.b ||
                  others.adds != product.adds)) {
    throw Fault("warps of a warpgroup run different products");
  }
  ++w.product_count;
  w.products.push_back(product);
}

void build_wgmma(Builder& b) {
  const auto all_lanes_do = [&](Op::Run run) {
    b.expect("sync");
    b.expect("aligned");
    b.end_of_words();
    b.op.run = run;
  };
  if (b.take("fence")) {
    all_lanes_do([](Machine&, Warp& w, const Op&, Lanes lanes) {
      Machine::require_all(w, lanes);
      std::fill(w.touched.begin(), w.touched.end(), 0);
    });
    return;
  }
  if (b.take("commit_group")) {
    all_lanes_do([](Machine& m, Warp& w, const Op&, Lanes lanes) {
      Machine::require_all(w, lanes);
      w.product_groups.push_back(std::move(w.products));
      w.products.clear();
      if (m.is_early()) m.finish_products(w, 0);
    });
    return;
  }
  if (b.take("wait_group")) {
    all_lanes_do([](Machine& m, Warp& w, const Op& op, Lanes lanes) {
      Machine::require_all(w, lanes);
      m.finish_products(w, static_cast<std::size_t>(op.number[0]));
    });
    b.op.number = {b.literal(0)};
    return;
  }
  b.expect("mma_async");
  b.expect("sync");
  b.expect("aligned");
  const auto shape = b.word();
  int columns = 0;
  if (!shape.starts_with("m64n") || !shape.ends_with("k16")) b.unknown();
  std::from_chars(shape.data() + 4, shape.data() + shape.size() - 3, columns);
  if (columns < 8 || columns > 256 || columns % 8 != 0) b.unknown();
  for (const auto* word : {"f32", "bf16", "bf16"}) b.expect(word);
  b.end_of_words();
  const auto& sums = b.operand(0).list;
  if (sums.size() != static_cast<std::size_t>(columns / 2) || b.operands() != 8) b.unknown();
  for (const auto& one : sums) b.output(one, 4);
  for (const std::size_t i : {1u, 2u}) {
    if (b.operand(i).kind == Operand::Kind::list) b.unknown();  // A in registers
    b.input(i, Type::b64);
  }
  b.input(b.operand(3), 0);
  const auto sign = [&](std::size_t i) {
    if (b.literal(i) != 1 && b.literal(i) != -1) b.unknown();
    return b.literal(i);
  };
  b.op.number = {columns, b.literal(6), b.literal(7), sign(4), sign(5)};
  b.op.run = begin_product;
}

}  // namespace

void Machine::finish_products(Warp& warp, std::size_t left) {
  while (warp.product_groups.size() > left) {
    for (const auto& product : warp.product_groups.front()) finish(warp, product);
    warp.product_groups.pop_front();
  }
}

bool build_matrix(Builder& b) {
  const auto head = b.head();
  if (head == "mma") {
    build_mma(b);
  } else if (head == "ldmatrix") {
    build_ldmatrix(b);
  } else if (head == "movmatrix") {
    build_movmatrix(b);
  } else if (head == "wgmma") {
    build_wgmma(b);
  } else {
    return false;
  }
  return true;
}

}  // namespace tessera_ptx
