// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/ptx.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace tessera::opencl {
namespace {

constexpr std::string_view mark = "//@ ";

template <class... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> words, Values&&... values) {
  throw PtxRefused(fmt::format(words, std::forward<Values>(values)...));
}

bool is_of_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' ||
         c == '.';
}

/// Words and signs of a text, without comments and strings. Text behind a mark is none of these.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  /// Empty at the end.
  std::string_view next() {
    while (at_ < text_.size()) {
      const auto rest = text_.substr(at_);
      if (rest.starts_with(mark)) {
        note_mark();
        at_ += mark.size();
      } else if (rest.starts_with("//")) {
        at_ += std::min(rest.find('\n'), rest.size());
      } else if (rest.starts_with("/*")) {
        const auto end = rest.find("*/", 2);
        if (end == rest.npos) refuse("it is cut off: the comment of line {} does not end", line());
        at_ += end + 2;
      } else if (rest.front() == '"') {
        at_ += string_size(rest);
      } else if (std::isspace(static_cast<unsigned char>(rest.front())) != 0) {
        ++at_;
      } else {
        const auto end = std::find_if_not(rest.begin(), rest.end(), is_of_word);
        const auto size = std::max<std::size_t>(static_cast<std::size_t>(end - rest.begin()), 1);
        at_ += size;
        return rest.substr(0, size);
      }
    }
    return {};
  }

  std::size_t at() const { return at_; }  ///< behind what was read
  std::ptrdiff_t line() const { return 1 + std::count(text_.begin(), text_.begin() + at_, '\n'); }
  std::vector<std::size_t> marks;

 private:
  void note_mark() {
    // A kernel's author forgot the end of a line.
    if (!marks.empty() &&
        text_.substr(marks.back(), at_ - marks.back()).find('\n') == std::string_view::npos) {
      refuse("line {} has the mark \"{}\" twice; expected is one instruction a line", line(), mark);
    }
    marks.push_back(at_);
  }
  std::size_t string_size(std::string_view rest) const {
    for (std::size_t i = 1; i < rest.size() && rest[i] != '\n'; ++i) {
      if (rest[i] == '"') return i + 1;
      if (rest[i] == '\\') ++i;
    }
    refuse("it is cut off: the string in line {} does not end", line());
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

std::pair<int, int> version_of(std::string_view word) {
  std::pair<int, int> version;
  const char* end = word.data() + word.size();
  const auto [dot, error] = std::from_chars(word.data(), end, version.first);
  if (error == std::errc() && dot != end && *dot == '.') {
    const auto [last, minor_error] = std::from_chars(dot + 1, end, version.second);
    if (minor_error == std::errc() && last == end) return version;
  }
  refuse("its .version is \"{}\"; expected is one like 8.5", word);
}

/// The head of an entry, up to its body.
PtxParts::Entry read_entry(Reader& reader) {
  PtxParts::Entry entry{.name = std::string(reader.next())};
  for (auto word = reader.next(); word != "{"; word = reader.next()) {
    if (word.empty() || word == ";" || word == "}" || word == ".entry") {
      refuse("it is cut off: .entry {} in line {} has no body", entry.name, reader.line());
    }
    if (word == ".reqntid") entry.has_reqntid = true;
    if (word == ".minnctapersm") entry.has_minnctapersm = true;
  }
  entry.body = reader.at() - 1;
  return entry;
}

std::string_view without_nuls(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\0') + 1);
}

}  // namespace

PtxParts ptx_parts(std::string_view text) {
  text = without_nuls(text);
  if (text.empty()) refuse("it is empty; expected is PTX");
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 32 && byte != '\t' && byte != '\n' && byte != '\r') {
      refuse("it is no text, since byte {} is {}; expected is PTX", at, byte);
    }
  }
  PtxParts parts;
  bool has_version = false;
  std::ptrdiff_t depth = 0;
  std::size_t marks_before = 0;
  bool in_entry = false;
  Reader reader(text);
  for (auto word = reader.next(); !word.empty(); word = reader.next()) {
    if (word == "{") {
      ++depth;
    } else if (word == "}") {
      if (depth-- == 0) refuse("line {} has a }} without a {{", reader.line());
      if (depth == 0 && in_entry) {
        parts.entries.back().has_marks = reader.marks.size() > marks_before;
        in_entry = false;
      }
    } else if (word == ".version") {
      if (has_version) refuse("line {} has a second .version; expected is one", reader.line());
      has_version = true;
      parts.version = version_of(reader.next());
    } else if (word == ".target") {
      if (parts.target_end != 0) {
        refuse("line {} has a second .target; expected is one", reader.line());
      }
      parts.target = reader.next();
      parts.target_end = reader.at();
    } else if (word == ".entry") {
      parts.entries.push_back(read_entry(reader));
      marks_before = reader.marks.size();
      in_entry = depth++ == 0;
    }
  }
  if (!has_version) refuse("it has no .version; expected is PTX");
  if (parts.target_end == 0) refuse("it has no .target; expected is sm_90");
  if (depth != 0) refuse("it is cut off: {} of its {{ have no }}", depth);
  if (parts.entries.empty()) refuse("it is cut off: it has no .entry");
  parts.marks = std::move(reader.marks);
  return parts;
}

PatchedPtx to_sm_90a(std::string_view text, std::int64_t work_items) {
  text = without_nuls(text);
  const PtxParts parts = ptx_parts(text);
  if (parts.target != "sm_90") {
    refuse("its .target is {}; expected is sm_90", parts.target);
  }
  if (parts.version < std::pair{8, 3}) {
    refuse("its .version is {}.{}; instructions of sm_90a need 8.3 or later", parts.version.first,
           parts.version.second);
  }
  if (parts.marks.empty()) {
    refuse(
        "no line has the mark \"{}\"; expected is an instruction behind it, in a comment that "
        "the compiler keeps",
        mark);
  }
  struct Change {
    std::size_t at, removed;
    std::string added;
  };
  std::vector<Change> changes{{parts.target_end, 0, "a"}};
  for (const std::size_t at : parts.marks) changes.push_back({at, mark.size(), {}});
  for (const auto& entry : parts.entries) {
    if (!entry.has_marks) continue;
    std::string added;
    if (!entry.has_reqntid) added += fmt::format(" .reqntid {}, 1, 1\n", work_items);
    if (!entry.has_minnctapersm) added += " .minnctapersm 1\n";
    changes.push_back({entry.body, 0, added});
  }
  std::sort(changes.begin(), changes.end(),
            [](const Change& a, const Change& b) { return a.at < b.at; });
  PatchedPtx patched{{}, static_cast<std::int64_t>(parts.marks.size())};
  std::size_t done = 0;
  for (const auto& change : changes) {
    patched.text += text.substr(done, change.at - done);
    patched.text += change.added;
    done = change.at + change.removed;
  }
  patched.text += text.substr(done);
  return patched;
}

}  // namespace tessera::opencl
