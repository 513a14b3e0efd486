// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <optional>

#include "program.hpp"

namespace tessera_ptx {

namespace {

constexpr std::string_view blanks = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

/// With one blank between words.
std::string tidy(std::string_view text) {
  std::string result;
  for (const char letter : trimmed(text)) {
    const bool is_blank = blanks.find(letter) != std::string_view::npos;
    if (!is_blank) {
      result += letter;
    } else if (result.back() != ' ') {
      result += ' ';
    }
  }
  return result;
}

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == by && depth == 0)) {
      const auto part = trimmed(text.substr(first, i - first));
      if (!part.empty()) parts.push_back(part);
      first = i + 1;
    } else if (std::strchr("{[(", text[i]) != nullptr) {
      ++depth;
    } else if (std::strchr("}])", text[i]) != nullptr) {
      --depth;
    }
  }
  return parts;
}

bool is_name(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 ||
         std::strchr("_$%.", letter) != nullptr;
}

/// The word behind `key`, up to a blank or a bracket.
std::string_view behind(std::string_view text, std::string_view key) {
  const auto at = text.find(key);
  if (at == std::string_view::npos) return {};
  const auto rest = trimmed(text.substr(at + key.size()));
  std::size_t end = 0;
  while (end < rest.size() && is_name(rest[end])) ++end;
  return rest.substr(0, end);
}

std::optional<std::uint64_t> number_of(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative) text.remove_prefix(1);
  if (text.ends_with('U')) text.remove_suffix(1);
  const int base = text.starts_with("0x") || text.starts_with("0X") ? 16 : 10;
  if (base == 16) text.remove_prefix(2);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return is_negative ? 0 - value : value;
}

std::size_t rounded_up(std::size_t size, std::size_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

/// ".shared .align 16 .b8 name[64]" and its like.
struct Variable {
  std::string name;
  std::size_t align = 1, element = 1, bytes = 0;
  std::string_view values;  // of an initialiser
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {
    remove_comments();
    program_.constants.reserve(most_constants);
  }

  Program read() {
    while (skip_blanks()) {
      if (at_word(".version") || at_word(".address_size")) {
        take_line();
      } else if (at_word(".target")) {
        if (!program_.target.empty()) fail("a second .target");
        const auto words = take_line();
        program_.target = std::string(behind(words, ".target"));
      } else {
        read_object();
      }
    }
    if (program_.target.empty()) fail("there is no .target");
    return std::move(program_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Fault("PTX, line " + std::to_string(line_) + ": " + what);
  }
  void remove_comments() {
    for (std::size_t i = 0; i + 1 < text_.size(); ++i) {
      if (text_[i] != '/' || (text_[i + 1] != '/' && text_[i + 1] != '*')) continue;
      const bool is_line = text_[i + 1] == '/';
      auto end = text_.find(is_line ? "\n" : "*/", i + 2);
      if (end == std::string::npos)
        end = text_.size();
      else if (!is_line)
        end += 2;
      for (; i < end; ++i) {
        if (text_[i] != '\n') text_[i] = ' ';
      }
    }
    while (!text_.empty() && text_.back() == '\0') text_.pop_back();
  }
  bool skip_blanks() {
    for (; at_ < text_.size() && blanks.find(text_[at_]) != std::string_view::npos; ++at_) {
      line_ += text_[at_] == '\n' ? 1 : 0;
    }
    return at_ < text_.size();
  }
  bool at_word(std::string_view word) const {
    return std::string_view(text_).substr(at_).starts_with(word);
  }
  /// Up to one of `ends`, which is passed over and put into `end_`.
  std::string_view take_until(std::string_view ends) {
    const auto first = at_;
    for (; at_ < text_.size() && ends.find(text_[at_]) == std::string_view::npos; ++at_) {
      line_ += text_[at_] == '\n' ? 1 : 0;
    }
    if (at_ == text_.size()) fail("the text ends in the middle");
    end_ = text_[at_++];
    return std::string_view(text_).substr(first, at_ - 1 - first);
  }
  /// The same for ends of statements and labels, of which "shared::cta" is none.
  std::string_view take_statement() {
    const auto first = at_;
    for (;;) {
      take_until(";{}:");
      if (end_ != ':' || text_[at_] != ':') break;
      ++at_;
    }
    return std::string_view(text_).substr(first, at_ - 1 - first);
  }
  std::string_view take_line() {
    const auto first = at_;
    at_ = std::min(text_.find('\n', at_), text_.size());
    return std::string_view(text_).substr(first, at_ - first);
  }

  void read_object() {
    const auto header = take_until(";{=");
    if (header.find(".entry") != std::string_view::npos && end_ == '{') {
      read_entry(header);
      return;
    }
    // clang leaves functions in the text that it has inlined; the interpreter knows no call.
    if (header.find(".func") != std::string_view::npos) return skip_body();
    Variable variable = variable_of(header);
    if (end_ == '=')
      variable.values = take_until(";");
    else if (end_ != ';')
      fail("not known: " + tidy(header));
    if (header.find(".shared") != std::string_view::npos) {
      shared_.push_back(variable);
    } else if (header.find(".global") != std::string_view::npos ||
               header.find(".const") != std::string_view::npos) {
      add_constants(variable);
    } else {
      fail("not known: " + tidy(header));
    }
  }

  void skip_body() {
    for (int depth = end_ == '{' ? 1 : 0; depth > 0; depth += end_ == '{' ? 1 : -1) {
      take_until("{}");
    }
  }

  Variable variable_of(std::string_view text) const {
    Variable variable;
    const auto bracket = text.find('[');
    const auto before = trimmed(text.substr(0, bracket));
    std::size_t first = before.size();
    while (first > 0 && is_name(before[first - 1])) --first;
    variable.name = std::string(before.substr(first));
    Type type = Type::b8;
    const auto kind = tidy(before.substr(0, first));
    for (const auto word : split(kind, ' ')) {
      if (word.starts_with('.')) read_type(word.substr(1), type);
    }
    variable.element = variable.align = size_of(type);
    std::uint64_t count = 1;
    if (bracket != std::string_view::npos) {
      const auto inside = text.substr(bracket + 1, text.find(']', bracket) - bracket - 1);
      const auto number = number_of(trimmed(inside));
      if (!number) fail("no size: " + tidy(text));
      count = *number;
    }
    if (const auto align = number_of(behind(before, ".align"))) variable.align = *align;
    variable.bytes = count * variable.element;
    return variable;
  }

  void add_constants(const Variable& variable) {
    auto& all = program_.constants;
    all.resize(rounded_up(all.size(), variable.align));
    constants_.emplace_back(variable.name, all.size());
    if (all.size() + variable.bytes > most_constants) fail("too many constants");
    all.resize(all.size() + variable.bytes);
    auto values = trimmed(variable.values);
    if (values.starts_with('{')) values = values.substr(1, values.size() - 2);
    std::size_t at = constants_.back().second;
    for (const auto text : split(values, ',')) {
      const auto literal = literal_of(text);
      if (!literal || at + variable.element > all.size()) fail("not a value: " + tidy(text));
      std::memcpy(all.data() + at, &literal->bits, variable.element);
      at += variable.element;
    }
  }

  void read_entry(std::string_view header) {
    Entry& entry = program_.entries.emplace_back();
    entry_ = &entry;
    entry.signature.name = std::string(behind(header, ".entry"));
    symbols_.clear();
    names_.assign(1, {});
    parent_.assign(1, 0);
    labels_.clear();
    const auto open = header.find('('), close = header.rfind(')');
    if (open == std::string_view::npos) fail("an entry without parameters");
    for (const auto text : split(header.substr(open + 1, close - open - 1), ',')) {
      add_parameter(text);
    }
    read_attributes(header.substr(close + 1));
    for (int i = 0; i < special_count; ++i) entry.special_at[i] = entry.add_register(4);
    shared_end_ = first_shared;
    for (const auto& variable : shared_) add_shared(variable);
    read_body();
    resolve_branches();
  }

  void add_parameter(std::string_view text) {
    const Variable variable = variable_of(text);
    Parameter parameter;
    parameter.bytes = variable.bytes;
    std::size_t align = variable.align;
    if (text.find(".ptr") != std::string_view::npos) {
      parameter.kind = text.find(".shared") != std::string_view::npos ? Parameter::Kind::local
                                                                      : Parameter::Kind::global;
      align = 8;
    }
    entry_->parameter_bytes = rounded_up(entry_->parameter_bytes, align);
    entry_->parameter_at.push_back(entry_->parameter_bytes);
    symbols_[variable.name] = entry_->parameter_bytes;
    entry_->parameter_bytes += parameter.bytes;
    entry_->signature.parameters.push_back(parameter);
  }
  void read_attributes(std::string_view text) {
    const auto at = text.find(".reqntid");
    if (at != std::string_view::npos) {
      auto numbers = text.substr(at + 8);
      numbers = numbers.substr(0, numbers.find('.'));
      entry_->signature.required_items = {1, 1, 1};
      std::size_t axis = 0;
      for (const auto number : split(numbers, ',')) {
        const auto items = number_of(number);
        if (!items || axis == 3) fail("not a size: .reqntid" + tidy(numbers));
        entry_->signature.required_items[axis++] = *items;
      }
    }
    entry_->limits_registers =
        at != std::string_view::npos && (text.find(".minnctapersm") != std::string_view::npos ||
                                         text.find(".maxnreg") != std::string_view::npos);
  }
  void add_shared(const Variable& variable) {
    shared_end_ = rounded_up(shared_end_, variable.align);
    symbols_[variable.name] = shared_end_;
    shared_end_ += variable.bytes;
    entry_->signature.shared_bytes = shared_end_ - first_shared;
  }

  void read_body() {
    std::vector<std::size_t> open{0};
    while (!open.empty()) {
      skip_blanks();
      const int line = line_;
      const auto text = trimmed(take_statement());
      if (end_ == ':') {
        labels_[{open.back(), std::string(text)}] = entry_->statements.size();
      } else if (end_ == '}' && text.empty()) {
        open.pop_back();
      } else if (end_ == '{' && text.empty()) {
        parent_.push_back(open.back());
        names_.emplace_back();
        open.push_back(names_.size() - 1);
      } else if (end_ == ';') {
        add_statement(tidy(text), line, open.back());
      } else if (end_ == '{') {
        // Operands in braces.
        std::string whole = std::string(text) + " ";
        for (;;) {
          whole += end_;
          whole += take_until(";{}");
          if (end_ == ';') break;
        }
        add_statement(tidy(whole), line, open.back());
      } else {
        fail("not known: " + tidy(text));
      }
    }
  }

  void add_statement(const std::string& text, int line, std::size_t scope) {
    if (text.empty()) return;
    if (text.starts_with(".reg")) return add_registers(text, scope);
    if (text.starts_with(".shared")) return add_shared(variable_of(text));
    if (text.starts_with(".local")) {
      const Variable variable = variable_of(text);
      entry_->local_bytes = rounded_up(entry_->local_bytes, variable.align);
      symbols_[variable.name] = entry_->local_bytes;
      entry_->local_bytes += variable.bytes;
      return;
    }
    if (text.starts_with(".pragma") || text.starts_with(".loc")) return;
    if (text.starts_with('.')) fail("not known: " + text);
    Statement statement;
    statement.text = text;
    statement.line = line;
    std::string_view rest = text;
    if (rest.starts_with('@')) {
      const auto blank = rest.find(' ');
      statement.has_guard = true;
      statement.guard = operand_of(rest.substr(1, blank - 1), scope);
      rest = trimmed(rest.substr(blank));
    }
    const auto blank = std::min(rest.find(' '), rest.size());
    for (const auto word : split(rest.substr(0, blank), '.')) statement.words.emplace_back(word);
    const auto& head = statement.words.front();
    const bool needs_sm_90a = head == "wgmma" || head == "setmaxnreg" || head == "tensormap";
    if (needs_sm_90a && program_.target != "sm_90a") fail(head + " needs the target sm_90a");
    const bool is_branch = head == "bra";
    for (const auto part : split(rest.substr(blank), ',')) {
      if (!is_branch) {
        statement.operands.push_back(operand_of(part, scope));
        continue;
      }
      Operand label;
      label.kind = Operand::Kind::label;
      label.text = std::string(part);
      label.bits = scope;
      statement.operands.push_back(label);
    }
    entry_->statements.push_back(std::move(statement));
  }

  void add_registers(const std::string& text, std::size_t scope) {
    const auto words = split(text, ' ');
    Type type = Type::b32;
    if (words.size() < 3 || !read_type(words[1].substr(1), type)) fail("not known: " + text);
    const auto names = std::string_view(text).substr(text.find(words[1]) + words[1].size());
    for (const auto name : split(names, ',')) {
      const auto bracket = name.find('<');
      if (bracket == std::string_view::npos) {
        add_register(std::string(name), type, scope);
        continue;
      }
      const auto count = number_of(name.substr(bracket + 1, name.size() - bracket - 2));
      if (!count) fail("not known: " + text);
      for (std::uint64_t i = 0; i < *count; ++i) {
        add_register(std::string(name.substr(0, bracket)) + std::to_string(i), type, scope);
      }
    }
  }
  void add_register(const std::string& name, Type type, std::size_t scope) {
    Operand reg;
    reg.kind = Operand::Kind::reg;
    reg.bytes = type == Type::pred ? 0 : static_cast<std::uint8_t>(size_of(type));
    reg.place = entry_->add_register(reg.bytes);
    reg.text = name;
    names_[scope][name] = reg;
  }

  static std::optional<Operand> literal_of(std::string_view text) {
    Operand operand;
    operand.kind = Operand::Kind::literal;
    operand.text = std::string(text);
    if (text.size() > 2 && text[0] == '0' && std::strchr("fFdD", text[1]) != nullptr) {
      const auto bits = number_of("0x" + std::string(text.substr(2)));
      if (!bits) return std::nullopt;
      operand.is_float = true;
      operand.bytes = text[1] == 'f' || text[1] == 'F' ? 4 : 8;
      operand.bits = *bits;
      return operand;
    }
    const auto number = number_of(text);
    if (!number) return std::nullopt;
    operand.bits = *number;
    return operand;
  }

  Operand operand_of(std::string_view text, std::size_t scope) {
    Operand operand;
    operand.text = std::string(text);
    if (text == "_") return operand;
    if (text.starts_with('{') || text.find('|') != std::string_view::npos) {
      operand.kind = Operand::Kind::list;
      const bool is_braced = text.starts_with('{');
      const auto inside = is_braced ? text.substr(1, text.size() - 2) : text;
      for (const auto part : split(inside, is_braced ? ',' : '|')) {
        operand.list.push_back(operand_of(part, scope));
      }
      return operand;
    }
    if (text.starts_with('[')) return address_of(text.substr(1, text.size() - 2), scope);
    if (text.starts_with('!')) {
      operand = operand_of(text.substr(1), scope);
      operand.is_not = true;
      return operand;
    }
    if (const auto literal = literal_of(text)) return *literal;
    for (std::size_t s = scope;; s = parent_[s]) {
      const auto found = names_[s].find(std::string(text));
      if (found != names_[s].end()) return found->second;
      if (s == 0) break;
    }
    if (const auto special = special_of(text)) return *special;
    operand.kind = Operand::Kind::literal;
    if (const auto found = symbols_.find(std::string(text)); found != symbols_.end()) {
      operand.bits = found->second;
      return operand;
    }
    for (const auto& [name, at] : constants_) {
      if (name != text) continue;
      operand.bits = reinterpret_cast<std::uintptr_t>(program_.constants.data()) + at;
      return operand;
    }
    fail("no register, variable or number: " + std::string(text));
  }

  /// "%rd1+8", "name+4", or "%rd1, {%r1, %r2}" of a copy by a tensor map.
  Operand address_of(std::string_view text, std::size_t scope) {
    const auto parts = split(text, ',');
    Operand address;
    address.kind = Operand::Kind::address;
    address.text = std::string(text);
    auto base = parts.at(0);
    const auto plus = base.find('+');
    if (plus != std::string_view::npos) {
      const auto offset = number_of(trimmed(base.substr(plus + 1)));
      if (!offset) fail("not an address: " + std::string(text));
      address.bits = *offset;
      base = trimmed(base.substr(0, plus));
    }
    const Operand found = operand_of(base, scope);
    if (found.kind == Operand::Kind::reg) {
      address.has_base = true;
      address.place = found.place;
      address.bytes = found.bytes;
    } else {
      address.bits += found.bits;
    }
    if (parts.size() > 1) address.list = operand_of(parts[1], scope).list;
    return address;
  }

  std::optional<Operand> special_of(std::string_view text) const {
    static constexpr const char* names[special_count] = {
        "%tid.x",   "%tid.y",   "%tid.z",    "%ntid.x",   "%ntid.y",   "%ntid.z", "%ctaid.x",
        "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid", "%warpid"};
    for (int i = 0; i < special_count; ++i) {
      if (text != names[i]) continue;
      Operand operand;
      operand.kind = Operand::Kind::reg;
      operand.place = entry_->special_at[i];
      operand.bytes = 4;
      return operand;
    }
    return std::nullopt;
  }

  void resolve_branches() {
    for (auto& statement : entry_->statements) {
      if (statement.words.front() != "bra") continue;
      const auto& label = statement.operands.at(0);
      bool is_found = false;
      for (std::size_t s = label.bits; !is_found; s = parent_[s]) {
        const auto found = labels_.find({s, label.text});
        is_found = found != labels_.end();
        if (is_found) statement.target = found->second;
        if (s == 0) break;
      }
      if (!is_found) fail("no label " + label.text);
    }
  }

  // Operands hold addresses of constants, which must not move.
  static constexpr std::size_t most_constants = 1 << 20;

  std::string text_;
  std::size_t at_ = 0;
  int line_ = 1;
  char end_ = 0;
  Program program_;
  Entry* entry_ = nullptr;
  std::size_t shared_end_ = 0;  // of the entry
  std::vector<Variable> shared_;
  std::vector<std::pair<std::string, std::size_t>> constants_;
  std::map<std::string, std::uint64_t> symbols_;
  std::vector<std::map<std::string, Operand>> names_;  // by scope
  std::vector<std::size_t> parent_;                    // of a scope
  std::map<std::pair<std::size_t, std::string>, std::size_t> labels_;
};

}  // namespace

bool read_type(std::string_view word, Type& type) {
  static constexpr const char* names[] = {"u8",  "s8",  "b8",  "u16", "s16", "b16", "u32", "s32",
                                          "b32", "u64", "s64", "b64", "f32", "f64", "pred"};
  for (int i = 0; i < 15; ++i) {
    if (word == names[i]) {
      type = static_cast<Type>(i);
      return true;
    }
  }
  return false;
}

std::size_t size_of(Type type) {
  if (type == Type::f32) return 4;
  if (type == Type::f64) return 8;
  if (type == Type::pred) return 0;
  return std::size_t{1} << static_cast<int>(type) / 3;
}

std::uint32_t Entry::add_register(std::size_t bytes) {
  const auto place = static_cast<std::uint32_t>(rounded_up(image.size(), 8));
  // All bits set is a NaN.
  image.resize(place + (bytes == 0 ? 4 : bytes * warp_size), std::byte{0xFF});
  return place;
}

std::uint32_t Entry::literal(std::size_t bytes, std::uint64_t bits) {
  const auto [found, is_new] = literals.try_emplace({bytes, bits}, 0);
  if (is_new) {
    found->second = add_register(bytes);
    for (int lane = 0; lane < (bytes == 0 ? 1 : warp_size); ++lane) {
      std::memcpy(image.data() + found->second + static_cast<std::size_t>(lane) * bytes, &bits,
                  bytes == 0 ? 4 : bytes);
    }
  }
  return found->second;
}

Program parse(std::string_view text) { return Reader(text).read(); }

}  // namespace tessera_ptx
