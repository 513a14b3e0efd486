// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <unordered_map>

namespace train_text {
namespace {

// ASCII only: the standard's classifiers depend on the locale.
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string read_file(const std::string& name) {
  std::ifstream file(name, std::ios::binary);
  if (!file) throw std::invalid_argument("cannot read the text file " + name);
  // Some 50 million words. A device may have no end.
  constexpr std::size_t most_bytes = std::size_t{1} << 28;
  std::string text;
  std::vector<char> piece(1 << 20);
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0) {
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
    if (text.size() > most_bytes) {
      throw std::invalid_argument("the text file " + name + " has more than 256 MiB; give less");
    }
  }
  return text;
}

// One block of a thousand words in twenty is held out: from all of the text, and long enough that
// most words have their neighbours.
constexpr std::int64_t block_words = 1000;
constexpr std::int64_t held_out_every = 20;

}  // namespace

std::vector<std::string> tokenise(std::string_view text) {
  std::vector<std::string> tokens;
  std::size_t i = 0;
  while (i < text.size()) {
    const std::size_t start = i;
    if (is_letter(text[i])) {
      std::string word;
      // An apostrophe between letters belongs to the word: don't, king's.
      while (i < text.size() && (is_letter(text[i]) || (text[i] == '\'' && i + 1 < text.size() &&
                                                        i > start && is_letter(text[i + 1])))) {
        word += lower(text[i++]);
      }
      tokens.push_back(std::move(word));
    } else if (is_digit(text[i])) {
      while (i < text.size() && is_digit(text[i])) ++i;
      tokens.emplace_back(text.substr(start, i - start));
    } else {
      ++i;
      if (!is_space(text[start])) tokens.emplace_back(1, text[start]);
    }
  }
  return tokens;
}

std::vector<std::string> default_text() {
  std::vector<std::string> files;
  for (const char* folder : {"/usr/share/games/fortunes", "/usr/share/common-licenses"}) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      if (entry.is_regular_file() && !entry.is_symlink() && entry.path().extension() != ".dat") {
        files.push_back(entry.path());
      }
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

Corpus::Corpus(const std::vector<std::string>& files, std::int64_t min_count,
               std::int64_t max_vocab) {
  std::vector<std::string> tokens;
  for (const auto& name : files) {
    auto more = tokenise(read_file(name));
    std::move(more.begin(), more.end(), std::back_inserter(tokens));
  }
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count < 2 * held_out_every * block_words) {
    throw std::invalid_argument("the text has " + std::to_string(count) + " words; at least " +
                                std::to_string(2 * held_out_every * block_words) +
                                " are needed for a training part and a held-out part; give more "
                                "files with --text");
  }
  const auto is_held_out = [](std::int64_t index) {
    return index / block_words % held_out_every == held_out_every - 1;
  };

  std::unordered_map<std::string, std::int64_t> counts;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!is_held_out(i)) ++counts[tokens[static_cast<std::size_t>(i)]];
  }
  std::vector<std::pair<std::int64_t, std::string>> ranked;
  for (const auto& [word, n] : counts) {
    if (n >= min_count) ranked.emplace_back(-n, word);
  }
  std::sort(ranked.begin(), ranked.end());
  if (max_vocab > 0 && static_cast<std::int64_t>(ranked.size()) > max_vocab - 1) {
    ranked.resize(static_cast<std::size_t>(max_vocab - 1));
  }

  words_.push_back("<unk>");
  std::unordered_map<std::string_view, std::int32_t> numbers;
  for (const auto& [n, word] : ranked) words_.push_back(word);
  for (std::size_t i = 1; i < words_.size(); ++i) numbers[words_[i]] = static_cast<std::int32_t>(i);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto found = numbers.find(tokens[static_cast<std::size_t>(i)]);
    (is_held_out(i) ? held_out_ : train_).push_back(found == numbers.end() ? 0 : found->second);
  }
}

double Corpus::unigram_perplexity(const std::vector<std::int32_t>& labels) const {
  std::vector<double> counts(words_.size(), 1.0);
  for (auto word : train_) counts[static_cast<std::size_t>(word)] += 1.0;
  const double total = static_cast<double>(train_.size() + words_.size());
  double nll = 0.0;
  for (auto word : labels) nll -= std::log(counts[static_cast<std::size_t>(word)] / total);
  return std::exp(nll / static_cast<double>(labels.size()));
}

namespace {

void put(const std::vector<std::int32_t>& words, std::int64_t label, std::int64_t context,
         Examples& examples) {
  const auto at = words.begin() + label;
  examples.contexts.insert(examples.contexts.end(), at - context, at);
  examples.labels.push_back(*at);
}

}  // namespace

void sample(const std::vector<std::int32_t>& words, std::int64_t n, std::int64_t context,
            std::mt19937_64& random, Examples& examples) {
  examples.contexts.clear();
  examples.labels.clear();
  const auto places = static_cast<std::uint64_t>(static_cast<std::int64_t>(words.size()) - context);
  for (std::int64_t i = 0; i < n; ++i) {
    // The modulo favours low places by 2^-44 at most.
    put(words, context + static_cast<std::int64_t>(random() % places), context, examples);
  }
}

Examples evenly(const std::vector<std::int32_t>& words, std::int64_t n, std::int64_t context) {
  Examples examples;
  const auto places = static_cast<std::int64_t>(words.size()) - context;
  n = std::min(n, places);
  for (std::int64_t i = 0; i < n; ++i) put(words, context + i * places / n, context, examples);
  return examples;
}

Examples slice(const Examples& from, std::int64_t first, std::int64_t n, std::int64_t context) {
  const auto contexts = from.contexts.begin() + first * context;
  const auto labels = from.labels.begin() + first;
  return {{contexts, contexts + n * context}, {labels, labels + n}};
}

}  // namespace train_text
