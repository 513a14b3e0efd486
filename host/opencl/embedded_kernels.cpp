// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/embedded_kernels.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "tessera/error.hpp"

namespace tessera::opencl {
namespace {

// Never destroyed, like the tables of operators.
std::mutex& override_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

std::map<std::string, std::string>& overrides() {
  static auto& map = *new std::map<std::string, std::string>;
  return map;
}

std::optional<std::string> find_text(const std::string& path) {
  {
    std::lock_guard lock(override_mutex());
    const auto replaced = overrides().find(path);
    if (replaced != overrides().end()) return replaced->second;
  }
  const auto& all = embedded_kernels();
  const auto found = std::lower_bound(
      all.begin(), all.end(), path,
      [](const EmbeddedKernel& kernel, const std::string& wanted) { return kernel.path < wanted; });
  if (found == all.end() || found->path != path) return std::nullopt;
  return std::string(found->text);
}

/// `#include "path"  // as name`: path is empty where a line is no include, name where it says
/// none.
struct Include {
  std::string_view path, name;
};

constexpr std::string_view blanks = " \t\r";

std::string_view skip_blanks(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(blanks), text.size()));
}

Include include_of(std::string_view line) {
  line = skip_blanks(line);
  if (!line.starts_with('#')) return {};
  line = skip_blanks(line.substr(1));
  if (!line.starts_with("include")) return {};
  line = skip_blanks(line.substr(7));
  if (!line.starts_with('"')) return {};
  line.remove_prefix(1);
  const auto end = line.find('"');
  if (end == std::string_view::npos) return {};
  const auto path = line.substr(0, end);
  line = skip_blanks(line.substr(end + 1));
  if (!line.starts_with("//")) return {path, {}};
  line = skip_blanks(line.substr(2));
  if (!line.starts_with("as ")) return {path, {}};
  line = skip_blanks(line.substr(3));
  return {path, line.substr(0, line.find_last_not_of(blanks) + 1)};
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Calls `found(at, end)` for each identifier of a line.
template <class Found>
void for_identifiers(std::string_view line, const Found& found) {
  for (std::size_t at = 0; at < line.size();) {
    std::size_t end = at;
    while (end < line.size() && is_letter(line[end])) ++end;
    if (end > at) found(at, end);
    at = end + 1;
  }
}

/// The name of an instance that its text has in files: product_multiply, PRODUCT_USE.
constexpr std::string_view own_name = "product";
constexpr std::string_view own_prefix = "product_", own_macros = "PRODUCT_";

/// The file is part of a product: it is compiled once for each instance.
bool is_product(std::string_view text) {
  bool found = false;
  for (std::string_view rest = text; !rest.empty() && !found;) {
    const auto end = std::min(rest.find('\n'), rest.size());
    const auto line = rest.substr(0, std::min(end, rest.find("//")));
    for_identifiers(line, [&](std::size_t at, std::size_t) {
      const auto word = line.substr(at);
      found = found || word.starts_with(own_prefix) || word.starts_with(own_macros);
    });
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return found;
}

/// A line of a product's file as it is in an instance.
std::string renamed(std::string_view line, const std::string& instance) {
  std::string macros;
  for (const char c : instance)
    macros += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  std::string out;
  std::size_t written = 0;
  for_identifiers(line, [&](std::size_t at, std::size_t) {
    const auto word = line.substr(at);
    const bool is_macro = word.starts_with(own_macros);
    if (!is_macro && !word.starts_with(own_prefix)) return;
    out.append(line.substr(written, at - written)).append(is_macro ? macros : instance);
    written = at + own_name.size();
  });
  return out.append(line.substr(written));
}

/// The folder that includes name for the engine of a specialisation.
constexpr std::string_view engine_folder = "engines/ENGINE/";

/// Puts a program together from its files.
class Assembler {
 public:
  explicit Assembler(const std::string& engine) : engine_(engine) {}

  std::string assemble(const std::string& path) {
    const auto text = text_of(path);
    append(path, text, is_product(text) ? std::string(own_name) : std::string());
    return std::move(out_);
  }

 private:
  /// A file and the line that is read in it.
  struct Place {
    std::string path;
    int line;
  };

  [[noreturn]] void fail(const std::string& message) const {
    const auto at =
        stack_.empty() ? std::string()
                       : " (" + stack_.back().path + ":" + std::to_string(stack_.back().line) + ")";
    throw Error(ErrorCode::build_failed, message + at);
  }

  std::string text_of(const std::string& path) const {
    auto text = find_text(path);
    if (!text) {
      fail("no embedded kernel file \"" + path + "\"; paths are relative to cl_kernels");
    }
    return *std::move(text);
  }

  /// `instance` is empty for a file that is no product.
  void append(const std::string& path, const std::string& text, const std::string& instance) {
    stack_.push_back({path, 1});
    mark();
    for (std::string_view rest = text; !rest.empty(); ++stack_.back().line) {
      const auto end = std::min(rest.find('\n'), rest.size());
      const auto line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      const auto included = include_of(line);
      if (!included.path.empty()) {
        include(included, instance);
        ++stack_.back().line;
        mark();
        --stack_.back().line;
      } else if (instance.empty()) {
        out_.append(line).push_back('\n');
      } else {
        out_.append(renamed(line, instance)).push_back('\n');
      }
    }
    stack_.pop_back();
  }

  void include(const Include& included, const std::string& includer) {
    std::string path(included.path);
    if (path.starts_with(engine_folder)) {
      path = "engines/" + engine_ + "/" + path.substr(engine_folder.size());
    }
    for (const auto& open : stack_) {
      if (open.path == path) fail("\"" + path + "\" includes itself");
    }
    const auto text = text_of(path);
    std::string instance(included.name);
    if (!is_product(text)) {
      if (!instance.empty()) {
        fail("\"" + path + "\" is no product and takes no name: no name in it begins with " +
             std::string(own_prefix));
      }
      if (seen_.insert(path).second) append(path, text, {});
      return;
    }
    if (instance.empty()) {
      fail("\"" + path + "\" is a product and needs a name: write // as NAME behind the include");
    }
    if (!includer.empty() && instance == own_name) {
      append(path, text, includer);
      return;
    }
    if (instance.front() < 'a' || instance.front() > 'z' ||
        instance.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != instance.npos) {
      fail("\"" + instance + "\" is no name of a product: small letters, digits and _");
    }
    if (instance == own_name || !instances_.insert(instance).second) {
      fail("a product named \"" + instance + "\" is there already");
    }
    append(path, text, instance);
  }

  /// Keeps the compiler's messages in terms of the files we wrote.
  void mark() {
    out_ += "#line " + std::to_string(stack_.back().line) + " \"" + stack_.back().path + "\"\n";
  }

  const std::string& engine_;
  std::string out_;
  std::vector<Place> stack_;
  std::set<std::string> seen_, instances_;
};

}  // namespace

std::string assemble_source(const std::string& path, const std::string& engine) {
  return Assembler(engine).assemble(path);
}

void override_embedded_kernel(const std::string& path, std::string replacement) {
  std::lock_guard lock(override_mutex());
  overrides()[path] = std::move(replacement);
}

}  // namespace tessera::opencl
