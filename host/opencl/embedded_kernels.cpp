// SPDX-License-Identifier: Apache-2.0
#include "host/opencl/embedded_kernels.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <set>

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

/// The path inside `#include "path"`, or empty.
std::string_view included_path(std::string_view line) {
  constexpr std::string_view blanks = " \t";
  const auto skip = [&](std::string_view text) {
    return text.substr(std::min(text.find_first_not_of(blanks), text.size()));
  };
  line = skip(line);
  if (line.empty() || line.front() != '#') return {};
  line = skip(line.substr(1));
  if (!line.starts_with("include")) return {};
  line = skip(line.substr(7));
  if (line.empty() || line.front() != '"') return {};
  line.remove_prefix(1);
  const auto end = line.find('"');
  return end == std::string_view::npos ? std::string_view() : line.substr(0, end);
}

/// The folder that includes name for the engine of a specialisation.
constexpr std::string_view engine_folder = "engines/ENGINE/";

/// Where an include leads, of a specialisation for this engine.
std::string path_for(std::string_view included, const std::string& engine) {
  if (!included.starts_with(engine_folder)) return std::string(included);
  included.remove_prefix(engine_folder.size());
  return "engines/" + engine + "/" + std::string(included);
}

void append_file(const std::string& path, const std::string& includer, const std::string& engine,
                 std::set<std::string>& seen, std::string& out) {
  if (!seen.insert(path).second) return;
  const auto text = find_text(path);
  if (!text) {
    throw Error(ErrorCode::build_failed,
                "no embedded kernel file \"" + path + "\"" +
                    (includer.empty() ? "" : " (included by " + includer + ")") +
                    "; paths are relative to cl_kernels");
  }
  // #line keeps the compiler's messages in terms of the files we wrote.
  const auto mark = [&](int line) {
    out += "#line " + std::to_string(line) + " \"" + path + "\"\n";
  };
  mark(1);
  int number = 1;
  for (std::string_view rest = *text; !rest.empty(); ++number) {
    const auto end = std::min(rest.find('\n'), rest.size());
    const auto line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const auto included = included_path(line);
    if (included.empty()) {
      out.append(line).push_back('\n');
    } else {
      append_file(path_for(included, engine), path, engine, seen, out);
      mark(number + 1);
    }
  }
}

}  // namespace

std::string assemble_source(const std::string& path, const std::string& engine) {
  std::string out;
  std::set<std::string> seen;
  append_file(path, {}, engine, seen, out);
  return out;
}

void override_embedded_kernel(const std::string& path, std::string replacement) {
  std::lock_guard lock(override_mutex());
  overrides()[path] = std::move(replacement);
}

}  // namespace tessera::opencl
