// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/attention.hpp"
#include "tests/support/attention_text.hpp"
#include "tests/support/problem.hpp"

/// One call of attention: what it takes, in guarded memory, and its comparison with the text.
namespace tessera::test {

enum class AttentionLayout {
  dense,
  tokens_first,  ///< [..., S, Q, D] in memory
  padded,        ///< gaps between tokens, heads and rows of the bias
  spread,        ///< every other element
  one_batch,     ///< inputs are the same for the whole batch, by strides of 0
  one_head       ///< so are the heads of k and v
};

struct AttentionCase {
  std::string name;
  Dims batch{};
  std::int64_t q_heads = 2, kv_heads = 1, s = 5, t = 7, d = 8;
  std::int64_t e = 0;  ///< 0: D
  attention::Options options{};
  DType q_type = DType::f32, k_type = DType::f32, v_type = DType::f32, y_type = DType::f32;
  AttentionLayout layout = AttentionLayout::dense;
  /// Extents of the bias, of the rank of q: 1, or 0 for the axis as it is; empty: none.
  Dims bias{};
  DType bias_type = DType::f32;
  bool masks = false;  ///< a third of the bias is -Inf
  std::optional<DType> lengths{}, sinks{}, slopes{};
  std::optional<attention::BlockSizes> blocks{};
  bool y = true, lse = true;
  bool exact_logits = false;  ///< AttentionText's
  double size = 1.0;          ///< of the elements of q

  /// Multiplications of all its pairs of a query and a key.
  std::int64_t work() const { return batch.product() * q_heads * s * t * (d + (e > 0 ? e : d)); }
};

class AttentionCall {
 public:
  explicit AttentionCall(const AttentionCase& c, std::uint64_t seed = 1);

  /// Inputs, to be changed before a run.
  Argument q, k, v, bias, lengths, sinks, slopes;

  void set(Argument& argument, const Dims& at, double value);

  attention::Inputs inputs() const;
  attention::ExecutionOptions on(const std::string& implementation) const;
  std::optional<std::string> refusal(const std::string& implementation) const;

  /// Compares y and lse, memory beside them and canaries, on at most so many multiplications' worth
  /// of rows, spread over all.
  void check(const std::string& implementation, std::int64_t most_work = 3'000'000);
  /// The bits of y and lse.
  std::vector<std::byte> run(Context& context, const std::string& implementation);

 private:
  Argument make(DType type, const Dims& extents, bool of_kv, bool is_output = false) const;
  void expect_surroundings(const Argument& argument, const std::string& what) const;

  AttentionCase c_;
  Argument y_, lse_;
};

/// Without a device, with so many threads.
Context& attention_context(int threads = 2);

}  // namespace tessera::test
