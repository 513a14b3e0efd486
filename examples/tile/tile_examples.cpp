// SPDX-License-Identifier: Apache-2.0
// Runs the kernels beside this file on a simulated TPU and says what each moved and how long a TPU
// would take: tile-examples [chip]
#include <fmt/format.h>

#include <functional>
#include <numeric>

#include "examples/tile/add_refs.hpp"
#include "examples/tile/add_vectors.hpp"
#include "examples/tile/aliased_update.hpp"
#include "examples/tile/collectives.hpp"
#include "examples/tile/dynamic_slice.hpp"
#include "examples/tile/fused_gather.hpp"
#include "examples/tile/gather_blocks.hpp"
#include "examples/tile/loop_of_kernels.hpp"
#include "examples/tile/matmul.hpp"
#include "examples/tile/move_rows.hpp"
#include "examples/tile/pipelines.hpp"

using namespace tile_examples;

namespace {

/// An array of the machine's own with values 0, 1, 2, ...
Array<float> counting(Machine& machine, const char* name, const Shape& shape, int device = 0) {
  std::int64_t count = 1;
  for (const auto extent : shape) count *= extent;
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0.0f);
  return machine.new_ref<float>(
      name, tessera::View::host(values.data(), tessera::DType::f32, shape), device);
}

Array<std::int32_t> table(Machine& machine, const char* name, std::vector<std::int32_t> values,
                          const Shape& shape) {
  return machine.new_ref<std::int32_t>(
      name, tessera::View::host(values.data(), tessera::DType::i32, shape));
}

struct Example {
  const char* name;
  int devices;
  std::function<void(Machine&)> run;
  bool needs_sparse_cores = false;
};

std::vector<Array<float>> on_all(Machine& machine, const char* name, const Shape& shape) {
  std::vector<Array<float>> arrays;
  for (int d = 0; d < machine.options().devices; ++d)
    arrays.push_back(counting(machine, name, shape, d));
  return arrays;
}

const std::vector<Example> examples = {
    {"add_vectors", 1,
     [](Machine& m) {
       add_vectors(m, counting(m, "x", {4096}), counting(m, "y", {4096}),
                   m.empty_ref<float>("o", {4096}));
     }},
    {"add_refs", 1,
     [](Machine& m) {
       add_refs(m, counting(m, "x", {16, 128}), counting(m, "y", {16, 128}),
                m.empty_ref<float>("o", {16, 128}));
     }},
    {"matmul", 1,
     [](Machine& m) {
       matmul(m, counting(m, "x", {256, 384}), counting(m, "y", {384, 256}),
              m.empty_ref<float>("o", {256, 256}));
     }},
    {"matmul_on_cores", 1,
     [](Machine& m) {
       matmul_on_cores(m, counting(m, "x", {256, 384}), counting(m, "y", {384, 256}),
                       m.empty_ref<float>("o", {256, 256}), m.options().chip.megacore ? 2 : 1, 3);
     }},
    {"gather_blocks", 1,
     [](Machine& m) {
       gather_blocks(m, table(m, "table", {3, 3, 0, 7, 1, 1}, {6}), counting(m, "x", {64, 128}),
                     m.empty_ref<float>("o", {48, 128}));
     }},
    {"block_sparse_matmul", 1,
     [](Machine& m) {
       block_sparse_matmul(m, table(m, "row", {0, 0, 1, 2, 2, 2, 3}, {7}),
                           table(m, "column", {0, 2, 1, 0, 1, 2, 2}, {7}),
                           counting(m, "packed", {7, 8, 128}), counting(m, "x", {384, 128}),
                           m.empty_ref<float>("o", {32, 128}));
     }},
    {"aliased_update", 1,
     [](Machine& m) {
       aliased_update(m, counting(m, "x", {32, 128}));
     }},
    {"dynamic_slice", 1,
     [](Machine& m) {
       dynamic_slice(m, table(m, "table", {5, 1, 0, 2, 7, 3, 2, 4, 0, 0}, {5, 2}),
                     counting(m, "x", {64, 128}), m.empty_ref<float>("o", {32, 128}));
     }},
    {"loop_of_kernels", 1,
     [](Machine& m) {
       loop_of_kernels(m, counting(m, "x", {32, 128}), counting(m, "y", {32, 128}), 10);
     }},
    {"twice_with_edges", 1,
     [](Machine& m) {
       twice_with_edges(m, counting(m, "x", {203, 300}), m.empty_ref<float>("o", {203, 300}));
     }},
    {"fused_gather", 1,
     [](Machine& m) {
       std::vector<std::int32_t> indices(64);
       for (std::size_t i = 0; i < indices.size(); ++i)
         indices[i] = static_cast<std::int32_t>(i * 37 % 512);
       fused_gather(m, counting(m, "table", {512, 128}), table(m, "indices", indices, {64}),
                    counting(m, "w", {128, 256}), m.empty_ref<float>("o", {64, 256}), 16);
     },
     true},
    {"move_rows", 1,
     [](Machine& m) {
       std::vector<std::int32_t> from(64), to(64);
       for (std::size_t i = 0; i < from.size(); ++i) {
         from[i] = static_cast<std::int32_t>(i * 37 % 512);
         to[i] = static_cast<std::int32_t>(i * 11 % 64);
       }
       move_rows(m, counting(m, "x", {512, 128}), table(m, "from", from, {64}),
                 m.empty_ref<float>("o", {64, 128}), table(m, "to", to, {64}), 16);
     },
     true},
    {"ring_all_gather", 4,
     [](Machine& m) {
       ring_all_gather(m, on_all(m, "x", {8, 128}), on_all(m, "o", {4, 8, 128}));
     }},
    {"reduce_scatter", 4,
     [](Machine& m) {
       reduce_scatter(m, on_all(m, "x", {4, 8, 128}), on_all(m, "o", {8, 128}));
     }},
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const Chip& chip = find_chip(argc > 1 ? argv[1] : "v5p");
    for (const Example& example : examples) {
      if (example.needs_sparse_cores && !chip.sparse_cores) continue;
      Machine machine({.chip = chip, .devices = example.devices});
      example.run(machine);
      const Report& report = machine.report();
      fmt::print("{:20} {:4} copies {:9} bytes {:8} of VMEM {:9.2f} us\n", example.name,
                 report.copies, report.bytes_copied, report.vmem_high_water_bytes,
                 1e6 * report.time.modelled_seconds);
    }
  } catch (const tessera::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
