// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <string_view>

#include "programs/npy.hpp"
#include "tessera/error.hpp"

namespace tessera::programs {
namespace {

constexpr std::string_view magic{"\x93NUMPY", 6};

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", name, what));
}

/// Reads the Python dictionary literal of a header: three known keys with a string, a bool and a
/// tuple of integers. It is no Python parser, and whatever numpy would not write is an error.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  void parse(NpyHeader& header) {
    bool seen_descr = false, seen_order = false, seen_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !seen_descr) {
        seen_descr = true;
        header.descr = descr();
      } else if (key == "fortran_order" && !seen_order) {
        seen_order = true;
        header.fortran_order = boolean();
      } else if (key == "shape" && !seen_shape) {
        seen_shape = true;
        header.shape = shape();
      } else {
        bad(fmt::format("unexpected key '{}'", printable(key)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) bad("text after the dictionary");
    if (!seen_descr || !seen_order || !seen_shape) {
      bad("one of 'descr', 'fortran_order', 'shape' is missing");
    }
  }

 private:
  [[noreturn]] void bad(const std::string& what) const {
    fail(name_, fmt::format("bad .npy header at byte {}: {}; save the array again with numpy.save",
                            at_, what));
  }
  static std::string printable(std::string_view text) {
    std::string result;
    for (char c : text.substr(0, 40)) result += (c >= ' ' && c < '\x7f') ? c : '?';
    return result;
  }
  void skip_space() {
    while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) && text_[at_] != '\0') ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) bad(fmt::format("expected '{}'", c));
  }
  std::string quoted() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') bad("expected a quoted string");
    const auto end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) bad("a string without an end");
    std::string result(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return result;
  }
  /// A structured type is a list; it is kept as "[...]" so that the type check can name it.
  std::string descr() {
    if (!accept('[')) return quoted();
    for (int depth = 1; depth > 0; ++at_) {
      if (at_ >= text_.size()) bad("a list without an end");
      depth += text_[at_] == '[' ? 1 : text_[at_] == ']' ? -1 : 0;
    }
    return "[...]";
  }
  bool boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}}) {
      const std::string_view w = word;
      if (text_.substr(at_, w.size()) == w) {
        at_ += w.size();
        return value;
      }
    }
    bad("expected True or False");
  }
  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> result;
    expect('(');
    bool comma = false;
    while (!accept(')')) {
      skip_space();
      std::int64_t value = 0;
      const char* const begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
      if (error != std::errc() || value < 0) bad("an extent is not a non-negative integer");
      at_ += static_cast<std::size_t>(end - begin);
      accept('L');  // what Python 2 wrote behind long integers
      result.push_back(value);
      comma = accept(',');
      if (!comma) {
        expect(')');
        break;
      }
    }
    if (result.size() == 1 && !comma) bad("the shape is not a tuple");
    return result;
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

}  // namespace

std::size_t npy_data_offset(std::span<const std::byte> file, const std::string& name) {
  const auto byte = [&](std::size_t i) { return std::to_integer<std::size_t>(file[i]); };
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.substr(0, magic.size()) != magic.substr(0, std::min(magic.size(), text.size())) ||
      text.empty()) {
    fail(name,
         "not a .npy file (it does not begin with \\x93NUMPY); save the array with "
         "numpy.save, one array per file");
  }
  if (text.size() < magic.size() + 2) fail(name, "truncated: it ends inside the .npy header");
  const std::size_t major = byte(6), minor = byte(7);
  if (major < 1 || major > 3 || minor != 0) {
    fail(name,
         fmt::format(".npy version {}.{} is unknown; 1.0, 2.0 and 3.0 are read", major, minor));
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t text_begin = 8 + length_bytes;
  if (file.size() < text_begin) fail(name, "truncated: it ends inside the .npy header");
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) length |= byte(8 + i) << (8 * i);
  // numpy refuses more than 10,000 characters; a type and eight extents take less than 300.
  constexpr std::size_t most = 65536;
  if (length > most) {
    fail(name, fmt::format("its .npy header takes {} bytes, the limit is {}; save the array again "
                           "with numpy.save",
                           length, most));
  }
  return text_begin + length;
}

NpyHeader parse_npy_header(std::span<const std::byte> file, const std::string& name) {
  NpyHeader header;
  header.data_offset = npy_data_offset(file, name);
  if (file.size() < header.data_offset) {
    fail(name, fmt::format("truncated: the .npy header ends at byte {}, {} are there",
                           header.data_offset, file.size()));
  }
  const std::size_t begin = std::to_integer<int>(file[6]) == 1 ? 10 : 12;
  const std::string_view text(reinterpret_cast<const char*>(file.data()), header.data_offset);
  HeaderParser(text.substr(begin), name).parse(header);
  return header;
}

std::string make_npy_header(const std::string& descr, bool fortran_order, const Dims& extents) {
  std::string shape;
  for (auto extent : extents) shape += fmt::format("{}, ", extent);
  // A tuple of one keeps its comma, longer ones lose the last.
  if (extents.rank() == 1) {
    shape.resize(shape.size() - 1);
  } else if (extents.rank() > 1) {
    shape.resize(shape.size() - 2);
  }
  std::string dictionary = fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': ({}), }}",
                                       descr, fortran_order ? "True" : "False", shape);
  // Of the format: magic, version and length; and where the elements must begin.
  constexpr std::size_t preamble = 10, alignment = 64;
  const std::size_t used = preamble + dictionary.size() + 1;
  dictionary.append((alignment - used % alignment) % alignment, ' ');
  dictionary += '\n';
  // Eight axes of at most 19 digits stay far below the 65535 bytes of version 1.0.
  const auto length = static_cast<std::uint16_t>(dictionary.size());
  std::string header(magic);
  header += {'\x01', '\x00', static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  return header + dictionary;
}

std::string npy_descr(DType type, bool bf16_bits) {
  switch (type) {
    case DType::f32:
      return "<f4";
    case DType::f16:
      return "<f2";
    case DType::bf16:
      return bf16_bits ? "<u2" : "<V2";
    case DType::i32:
      return "<i4";
    case DType::i64:
      return "<i8";
  }
  return "";
}

}  // namespace tessera::programs
