// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/opencl/runtime.hpp"
#include "tessera/execution.hpp"

/// What the host knows of an engine: gates, legal blocks, knobs. The kernels of an engine are in
/// cl_kernels/engines/<name>.
namespace tessera::engines {

/// The multiples that legal block sizes have.
struct BlockRule {
  std::int64_t b_multiple = 1;
  std::int64_t h_multiple = 1;
  std::int64_t v_multiple = 1;
};

/// Block sizes of the heuristic, before an operator's own type.
struct Blocks {
  std::int64_t b = 1;
  std::int64_t h = 1;
  std::int64_t v = 1;
};

/// How operand A comes to the multiplier; cl_kernels/engines/cpu/engine.cl.
enum class Operand {
  in_place,     ///< from where it lies
  rows_apart,   ///< packed, each row by itself
  interleaved,  ///< packed, the rows of a strip element by element
};

/// How products of two bf16 operands are formed; cl_kernels/engines/cpu/dot_bf16.cl.
enum class DotBf16 {
  none = 0,         ///< widened to f32, like any other 16-bit operand
  instruction = 1,  ///< by pairs, with the processor's instruction
  emulated = 2,     ///< by pairs, with its arithmetic in portable code: for tests
};

/// How a product of `rows` x `depth` by `depth` x columns is cut; see cl_kernels/engines/engine.cl.
struct Steps {
  std::int64_t tile_m = 1;      ///< rows of A held at once
  std::int64_t pack_words = 0;  ///< scratch for packed A per work-group
  std::int64_t tile_words = 0;  ///< scratch for the tile per work-group
};

/// One way a device multiplies.
class Engine {
 public:
  virtual ~Engine() = default;

  /// "cpu" or "simt"; the implementation is "opencl." + name.
  virtual std::string name() const = 0;
  virtual std::string description() const = 0;
  /// Nothing: the device can run it.
  virtual std::optional<std::string> why_unsupported() const = 0;
  /// -D options that select and shape the engine.
  virtual const std::string& options() const = 0;
  /// Whether products of x and w are by pairs, which takes more options.
  virtual bool multiplies_pairs() const { return false; }
  virtual std::string pair_options() const { return {}; }
  /// 32-bit words that hold `depth` elements of an operand in such products.
  virtual std::int64_t words(std::int64_t depth) const { return depth; }
  virtual std::vector<NamedValue> knobs() const = 0;
  virtual BlockRule rule() const = 0;
  /// The memory model: blocks for these extents on this device, where w comes like this to the
  /// logits.
  virtual Blocks heuristic(std::int64_t b, std::int64_t h, std::int64_t v, Operand w) const = 0;

  /// Columns of a tile: rows of x or of dz are padded to a multiple of it.
  virtual std::int64_t tile_n() const = 0;
  virtual std::int64_t lanes() const = 0;
  virtual std::size_t group_size() const = 0;
  /// `depth` in words. `shared`: the groups divide these rows between them (else each group has
  /// rows of its own). `thrift`: where scratch is short, tiles and packed rows take one part in so
  /// many of what the cache could hold.
  virtual Steps steps(std::int64_t rows, std::int64_t depth, bool shared, Operand operand,
                      std::int64_t thrift) const = 0;
  /// Steps of at most `tile_m` rows that the groups divide these rows into, all about equal.
  virtual std::int64_t step_count(std::int64_t rows, std::int64_t tile_m,
                                  std::int64_t thrift) const = 0;
  /// For how many tokens products with a w of this type that is contiguous along H run along H, in
  /// whole vectors (ALONG_K of cl_kernels/engines/cpu/along_k.cl); 0: they do not.
  virtual std::int64_t tokens_along_k(DType) const { return 0; }
  /// Whether an A of this type that is contiguous along its depth is read in place, in products
  /// with f32. (By pairs it always is.)
  virtual bool reads_in_place(DType type) const = 0;
  /// Rows beyond its own that a tile may write.
  virtual std::int64_t row_padding() const = 0;
  /// True: every group walks all panels of tokens, so that A is packed once. False: a group each.
  virtual bool group_walks_panels() const = 0;
  /// Work-groups worth launching for `steps` independent steps; with much thrift fewer of them,
  /// where each has scratch of its own.
  virtual std::int64_t groups(std::int64_t steps, std::int64_t thrift) const = 0;
  /// Up to this `thrift` every group stays busy; beyond it there are fewer of them.
  virtual std::int64_t thrift_of_tiles() const = 0;
  /// Beyond this it saves nothing more.
  virtual std::int64_t most_thrift() const = 0;
  /// Depth of a panel of the vocabulary in grad_x of so many tokens, to which w comes like this.
  virtual std::int64_t v_panel(std::int64_t v, std::int64_t tokens, Operand w) const = 0;
  /// Elements of h that one work-item of the copying kernels takes.
  virtual std::int64_t h_step() const = 0;
};

/// Tokens in a tile of the cpu engine: four vectors of 16 lanes, one of 8 or two of 4.
constexpr std::int64_t cpu_widest_tile = 64, cpu_narrowest_tile = 8;
/// `rows`: tokens that count; an engine may be shaped for few of them. `dot`: for products of x and
/// w. `most_columns`: of a tile; narrower ones take less scratch, down to fewer lanes than the
/// device has.
std::unique_ptr<Engine> make_cpu_engine(const opencl::DeviceFacts& facts, std::int64_t rows,
                                        DotBf16 dot = DotBf16::none,
                                        std::int64_t most_columns = cpu_widest_tile);
std::unique_ptr<Engine> make_simt_engine(const opencl::DeviceFacts& facts);
/// By name ("cpu"), in the shape that is fastest; nullptr for an unknown one.
std::unique_ptr<Engine> make_engine(const std::string& name, const opencl::DeviceFacts& facts,
                                    std::int64_t rows = std::int64_t{1} << 31,
                                    DotBf16 dot = DotBf16::none);
/// The engine of that name in all its shapes: first the fastest, then those with narrower tiles,
/// for blocks and memory that have no room for it.
using EngineShapes = std::vector<std::shared_ptr<const Engine>>;
EngineShapes make_engine_shapes(const std::string& name, const opencl::DeviceFacts& facts,
                                std::int64_t rows, DotBf16 dot);

/// Why extents are beyond what kernels count with: rows, h and columns of one launch are 32-bit
/// (offsets are 64-bit throughout). Nothing: they are not.
std::optional<std::string> beyond_32_bits(
    std::initializer_list<std::pair<const char*, std::int64_t>> extents);

/// Rounds up to a multiple.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

}  // namespace tessera::engines
