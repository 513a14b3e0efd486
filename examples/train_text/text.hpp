// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace train_text {

/// Lower-cased words, numbers and single marks of punctuation of an English text.
std::vector<std::string> tokenise(std::string_view text);

/// English text that Debian has: the licences, which are on every machine, and the fortunes where
/// their package is installed.
std::vector<std::string> default_text();

/// A text as word numbers, cut into a training part and a held-out part.
///
/// Every 20th block of 1000 words is held out, so that both parts see every source. Words are
/// numbered by falling count (ties alphabetically); number 0 is "<unk>", which stands for every
/// word that is rare or unseen in the training part.
class Corpus {
 public:
  /// Throws std::runtime_error for a file that cannot be read or a text too short to split.
  Corpus(const std::vector<std::string>& files, std::int64_t min_count, std::int64_t max_vocab);

  std::int64_t vocab() const { return static_cast<std::int64_t>(words_.size()); }
  const std::vector<std::string>& words() const { return words_; }
  const std::vector<std::int32_t>& train() const { return train_; }
  const std::vector<std::int32_t>& held_out() const { return held_out_; }

  /// Perplexity on `labels` of the best model that sees no context: word frequencies of the
  /// training part, each count raised by one so that no word is impossible.
  double unigram_perplexity(const std::vector<std::int32_t>& labels) const;

 private:
  std::vector<std::string> words_;
  std::vector<std::int32_t> train_;
  std::vector<std::int32_t> held_out_;
};

/// `labels.size()` examples: each label and the `context` words before it.
struct Examples {
  std::vector<std::int32_t> contexts;  ///< [n, context], oldest word first
  std::vector<std::int32_t> labels;    ///< [n]
};

/// `n` random places of `words`. The same generator state gives the same examples anywhere (the
/// standard's distributions differ between libraries, so none is used).
void sample(const std::vector<std::int32_t>& words, std::int64_t n, std::int64_t context,
            std::mt19937_64& random, Examples& examples);

/// `n` places of `words` (or all, if there are fewer) at even distances.
Examples evenly(const std::vector<std::int32_t>& words, std::int64_t n, std::int64_t context);

/// Examples `first` to `first + n` of `from`.
Examples slice(const Examples& from, std::int64_t first, std::int64_t n, std::int64_t context);

}  // namespace train_text
