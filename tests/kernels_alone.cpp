// SPDX-License-Identifier: Apache-2.0
// Writes kernels as they are compiled, their includes resolved, for tests that hand them to a
// compiler: FOLDER/ENGINE/PATH of every kernel file of the operators and of the engine itself. Each
// line of the output says ENGINE, PATH and the options that are the engine's. usage: kernels_alone
// FOLDER
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "host/engines/engine.hpp"
#include "host/opencl/embedded_kernels.hpp"

namespace {

using namespace tessera;

/// A device that every engine accepts. No driver is asked.
opencl::DeviceFacts any_device() {
  opencl::DeviceFacts facts;
  facts.is_cpu = true;
  facts.compute_units = 4;
  facts.local_memory_bytes = 64 * 1024;
  facts.max_work_group_size = 1024;
  facts.cache_bytes = 1024 * 1024;
  facts.native_float_vector = 8;
  return facts;
}

/// Files of common and of engines are parts of others, but for those of engines with kernels, and a
/// product that no kernel has named.
bool stands_alone(const opencl::EmbeddedKernel& file) {
  if (!file.path.ends_with(".cl") || file.path.starts_with("common/")) return false;
  return !file.path.starts_with("engines/") || file.path == "engines/product.cl" ||
         file.text.find("\nkernel ") != std::string_view::npos;
}

void write_all(const std::filesystem::path& folder) {
  for (const auto& entry : engines::all_engines()) {
    std::vector<std::string> notes;
    const auto engine = entry.shapes(any_device(), {}, nullptr, notes).front();
    for (const auto& file : opencl::embedded_kernels()) {
      if (!stands_alone(file)) continue;
      const auto to = folder / entry.name / file.path;
      std::filesystem::create_directories(to.parent_path());
      std::ofstream stream(to);
      stream << opencl::assemble_source(std::string(file.path), engine->folder());
      stream.close();
      if (!stream) throw std::filesystem::filesystem_error("cannot write", to, {});
      std::printf("%s\t%s\t%s\n", entry.name.c_str(), std::string(file.path).c_str(),
                  engine->options().c_str());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: kernels_alone FOLDER\n");
    return 2;
  }
  try {
    write_all(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernels_alone: %s\n", error.what());
    return 1;
  }
  return 0;
}
