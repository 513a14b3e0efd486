// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engines/arguments.h"
#include "host/opencl/call.hpp"
#include "host/opencl/runtime.hpp"
#include "tessera/execution.hpp"

/// What the host knows of an engine, a way in which a device multiplies. Its kernels are in
/// cl_kernels/engines/<folder>, under the contract of cl_kernels/engines/product.cl. An engine
/// answers for products C[m][n] = sum over k of A[m][k] B[k][n], never for an operator.
namespace tessera::engines {

/// Rounds up to a multiple.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

/// The use of C: USE_* of the contract.
enum class Use { visit, accumulate, store };

/// Which index of a matrix [first][second] is contiguous: ALONG_SECOND, ALONG_FIRST and STRIDED of
/// cl_kernels/engines/operand.cl.
enum class Layout { along_second = 0, along_first = 1, strided = 2 };

/// An operand of a product.
struct Operand {
  /// The caller's matrix, where A is read as it lies and B is packed of it; memory that an epilogue
  /// stored (Stored), of an A whose m lay along the k of that operand; or the tile of another
  /// product of the kernel, of k rows at most.
  enum class From { matrix, stored, tile };
  DType type = DType::f32;  ///< of its elements
  Layout layout = Layout::strided;
  From from = From::matrix;
};

/// One product of an operator. Extents are those that one launch reaches, at most.
struct Product {
  Use use = Use::visit;
  std::int64_t m = 1, n = 1, k = 1;
  Operand a{}, b{};
  /// Of k, as much as one step should take; 0: the engine's choice.
  std::int64_t k_block = 0;
  /// Steps of k begin at multiples of this.
  std::int64_t k_multiple = 1;
  /// Of m, as much as a tile may take; 0: the engine's choice.
  std::int64_t most_m = 0;
};

/// An operand that an epilogue stores.
struct Stored {
  DType type = DType::f32;  ///< f32, or Engine::stored_type
  /// It takes the place of f32 [panel][k][tile_n], of which the rows from k on are still read when
  /// row k is stored.
  bool in_place = false;
};

/// Cut::k_step of an engine that takes all of k in one step, whatever it is.
constexpr std::int64_t all_of_k = std::numeric_limits<std::int32_t>::max();

/// How an engine cuts a product, and what it takes.
struct Cut {
  std::int64_t tile_m = 1;       ///< rows of A in a tile, at most
  std::int64_t k_step = 1;       ///< words of k in a step
  std::int64_t group_words = 0;  ///< f32 words of scratch for each work-group
  /// Parts that the work-groups divide A's rows into, at most, and parts of k for each of those.
  std::int64_t most_parts = std::numeric_limits<std::int64_t>::max(), k_parts = 1;
  std::int64_t own[2] = {0, 0};  ///< the engine's own numbers, for its kernels
};

/// The multiples that legal blocks of a visited product have.
struct BlockRule {
  std::int64_t m_multiple = 1, n_multiple = 1, k_multiple = 1;
};

/// Blocks of a visited product: n columns share one pass over parts of m rows, k deep steps.
struct Blocks {
  std::int64_t m = 1, n = 1, k = 1;
};

/// How work-items go over rows that exist in memory, element by element, without a product.
struct RowPass {
  std::int64_t items = 1;    ///< of a work-group, which has a row (or a slice of one)
  std::int64_t lanes = 1;    ///< elements that a work-item treats with one instruction
  std::int64_t longest = 1;  ///< slice that keeps groups balanced
  std::int64_t slots = 1;    ///< work-groups that the device runs at once
  std::int64_t step() const { return items * lanes; }
};

/// How fast a device is where every slot has work, for predictions (host/linear/opencl/cost.hpp).
/// Ratios matter, not the seconds.
struct Rates {
  double flops = 1.0;         ///< that all slots multiply in a second
  double bytes = 1.0;         ///< that come from memory or go there in a second
  double launch = 0.0;        ///< seconds from the end of a launch until the next one works
  double cached_bytes = 0.0;  ///< what is used again stays in the cache up to this
  /// A schedule with more scratch is taken where it needs less than this part of the time.
  double worth_scratch = 0.98;
};

/// One way a device multiplies, in one shape (register tile, vector width). Immutable.
///
/// `shrink`, where it appears: scratch is short, and tiles, then the number of work-groups, take
/// one part in so many of what is best; 1: the best.
class Engine {
 public:
  virtual ~Engine() = default;

  /// "cpu" or "simt"; the implementation is "opencl." + name.
  virtual std::string name() const = 0;
  /// Its folder of cl_kernels/engines, whose kernels may be for more than one engine.
  virtual std::string folder() const { return name(); }
  /// -D options of every kernel that the engine has a part in.
  virtual std::string options() const = 0;
  /// More of them for a product: the format of its operands, under the name that a kernel gives it
  /// ("LOGITS": `// as logits`), or "PACK" for kernels that pack its operand B.
  std::string options(const Product& product, std::string_view name) const;
  /// More of them for kernels that store, load or multiply such an operand.
  virtual std::string options(const Stored& stored) const;
  /// The numbers of that, by their macros' names in the contract: {"DOT_BF16", 1}.
  virtual std::vector<NamedValue> product_options(const Product&) const { return {}; }
  virtual std::vector<NamedValue> knobs() const = 0;
  virtual BlockRule rule() const = 0;
  /// The memory model: blocks of a visited product on this device.
  virtual Blocks heuristic(const Product& product) const = 0;

  /// Columns of a tile: n is padded to a multiple of it.
  virtual std::int64_t tile_n() const = 0;
  virtual Cut cut(const Product& product, std::int64_t shrink) const = 0;
  /// Parts of at most cut.tile_m rows that the work-groups divide m rows into, all about equal.
  virtual std::int64_t parts(std::int64_t m, const Cut& cut, std::int64_t shrink) const = 0;
  /// Work-groups worth launching for so many parts.
  virtual std::int64_t groups(std::int64_t parts, std::int64_t shrink) const = 0;
  /// Parts, of whole strips, that the rows of a visited product are divided into for the fewest
  /// rounds.
  virtual std::int64_t even_parts(const Product& product, std::int64_t shrink) const {
    return groups(ceil_div(product.m, strip()), shrink);
  }
  /// Panels that one group takes, of so many, where `groups` of them divide the parts.
  virtual std::int64_t panels_per_group(std::int64_t groups, std::int64_t panels) const = 0;
  /// Parts that k is divided into, each with sums of its own, of an accumulated product with so
  /// many groups.
  virtual std::int64_t k_parts(const Cut& cut, std::int64_t groups, std::int64_t k) const {
    (void)groups, (void)k;
    return cut.k_parts;
  }
  virtual std::size_t group_size() const = 0;
  /// Specialisation::patched_items of programs that multiply.
  virtual std::int64_t patched_items() const { return 0; }
  /// Work-groups that the device runs at once.
  virtual std::int64_t slots() const = 0;
  /// Rows of A that go together: PRODUCT_STRIP.
  virtual std::int64_t strip() const = 0;
  /// f32 words of what one launch stores for the next ones that they find in the cache.
  virtual std::int64_t cached_words() const { return 524288; }  // 2 MiB: a small share of a CPU's
  /// Whether a matrix of so many bytes, which nothing is added to, is stored past the caches.
  virtual bool streams(std::int64_t bytes) const {
    (void)bytes;
    return false;
  }
  /// Of products like this one. Of an unknown device 7 FLOPs take the time of a byte.
  virtual Rates rates(const Product& product) const;
  /// Up to this `shrink` every group stays busy; beyond it there are fewer of them.
  virtual std::int64_t shrink_of_tiles() const { return 1; }
  /// Beyond this it saves nothing more.
  virtual std::int64_t most_shrink() const { return 1; }

  /// 32-bit words along k of a column of operand B, as operand_pack_rows makes it.
  virtual std::int64_t operand_words(const Product& product) const { return product.k; }
  /// True: what operand_pack_rows makes of a matrix operand_pack_columns makes of it too.
  virtual bool packs_alike() const { return false; }
  /// Rows that accumulated sums of m rows take.
  virtual std::int64_t sums_rows(std::int64_t m) const { return m; }
  /// What an epilogue had best store that is multiplied by operands of these types: f32, or bf16 or
  /// f16, which products of such operands then take.
  virtual DType stored_type(DType, DType) const { return DType::f32; }
  /// 32-bit words along k of a column of a stored operand `depth` deep.
  virtual std::int64_t operand_words(const Stored& stored, std::int64_t depth) const;
  /// Elements of k of a stored operand that share memory: work-items that store others begin at
  /// multiples of it.
  virtual std::int64_t stored_block() const { return 2; }

  /// Work-items that share the columns of a panel in kernels that visit an operand: PANEL_ITEMS.
  virtual std::int64_t panel_items() const = 0;
  /// Elements of a row that one work-item of a copying kernel takes: PACK_STEP.
  virtual std::int64_t pack_step() const = 0;
  virtual RowPass row_pass() const = 0;

  // What follows from those.

  /// Work sizes of a kernel that multiplies: groups for the parts of A, and for the panels.
  opencl::Range launch_range(std::int64_t parts, std::int64_t panels, std::int64_t shrink) const;
  /// The groups of that.
  std::int64_t launch_groups(std::int64_t parts, std::int64_t panels, std::int64_t shrink) const;
  /// What such a kernel is told.
  kernels::engine_call call(const Cut& cut, std::int64_t parts, std::int64_t panels,
                            std::int64_t shrink) const;
  /// Scratch of such a launch.
  std::int64_t scratch_words(const Cut& cut, std::int64_t parts, std::int64_t panels,
                             std::int64_t shrink) const;
  /// Columns (rows of A), of `count`, of an operand that a group of such a kernel takes one after
  /// the other: a few kilobytes, beside which its start costs nothing, or fewer where slots would
  /// be idle. A multiple of stored_block().
  std::int64_t panel_rows(std::int64_t count) const;
  /// Work sizes of a kernel that copies rows: (element / pack_step, row).
  opencl::Range copy_range(std::int64_t elements, std::int64_t rows) const;
  /// Work sizes of a kernel that visits an operand: (of a panel's, `second`, and of `panels` as
  /// many as it takes to fill a device of many work-items), a group each.
  opencl::Range panel_range(std::int64_t second, std::int64_t panels = 1) const;
  /// Work sizes of a kernel that copies rows into panels: a work-item for pack_step elements of all
  /// rows of a panel, or a group for a block of them (PACK_EDGE).
  opencl::Range pack_range(std::int64_t elements, std::int64_t panels) const;
  /// Work sizes of a kernel that copies columns into panels: (group of panels, word of rows).
  opencl::Range columns_range(std::int64_t groups, std::int64_t words) const;
};

/// An engine in all its shapes: first the fastest, then those with narrower tiles, for blocks and
/// memory that have no room for it.
using EngineShapes = std::vector<std::shared_ptr<const Engine>>;

/// What the shape of an engine depends on.
struct Operands {
  std::int64_t n = std::int64_t{1} << 31;  ///< columns that count; few may ask for another shape
  DType a = DType::f32, b = DType::f32;    ///< of the visited product
  /// There is no product: rows are passed over element by element. Shapes differ in how many
  /// work-items share a row, fewer first.
  bool rows = false;
  /// Types of the other operands that the call multiplies: of a second layer, and f32 for a stored
  /// one that is not to be rounded.
  std::vector<DType> others{};
  bool filtered = false;  ///< products leave out steps of k: PRODUCT_KEPT
  /// Each operand A of the caller's has lines of elements side by side, which begin at multiples of
  /// so many bytes, up to 16, as kernels get them; 0: one has none, or it is not known.
  std::int64_t line_bytes = 0;
  /// All of them, a and b too, have one type.
  bool are_alike() const {
    return a == b &&
           std::all_of(others.begin(), others.end(), [&](const DType other) { return other == a; });
  }
  friend bool operator==(const Operands&, const Operands&) = default;
};

/// A row of the list of engines.
struct EngineEntry {
  std::string name;
  std::string description;
  /// Nothing: the device can run it, for operands like these.
  std::function<std::optional<std::string>(const opencl::DeviceFacts&, const Operands&)>
      why_unsupported;
  /// `runtime`: where an instruction is probed; nullptr: none is used that needs it. What the
  /// engine does without on this device, and why, or is not known to do well, is added to `notes`.
  std::function<EngineShapes(const opencl::DeviceFacts&, const Operands&, opencl::Runtime* runtime,
                             std::vector<std::string>& notes)>
      shapes;
  /// The same for every legal value of every knob, the best of those that differ in one first.
  decltype(shapes) variants;
};

/// Every engine, best first (engines.cpp).
const std::vector<EngineEntry>& all_engines();
const EngineEntry& engine_entry(const std::string& name);
/// The shapes of an engine that have the knobs given, of those that are the engine's own. Throws
/// Error invalid_argument for an illegal value, with the legal ones.
EngineShapes shapes_with(const EngineEntry& entry, const opencl::DeviceFacts& facts,
                         const Operands& operands, const std::vector<NamedValue>& given,
                         opencl::Runtime* runtime, std::vector<std::string>& notes);
/// The first of them by what its row_pass reports: knobs `lanes` and `group`.
std::vector<NamedValue> row_knobs(const Engine& engine);
/// For tests: one more engine, before the first context is made.
void add_engine(EngineEntry entry);

// One function a file: host/engines/<name>.cpp.
EngineEntry cpu_engine();
EngineEntry mma_engine();
EngineEntry simt_engine();
EngineEntry wgmma_engine();

/// Why extents are beyond what kernels count with: rows, h and columns of one launch are 32-bit
/// (offsets are 64-bit throughout). Nothing: they are not.
std::optional<std::string> beyond_32_bits(
    std::initializer_list<std::pair<const char*, std::int64_t>> extents);

/// arguments::default_workspace_bytes on a device; 1/16 of a GPU's memory.
std::int64_t default_workspace_bytes(const opencl::DeviceFacts& facts, std::int64_t columns);

/// Compute units to plan for: at least one, and no more than what can be counted with.
std::int64_t units_of(const opencl::DeviceFacts& facts);

/// By what name tables of tuned blocks know devices like this one: "cpu-16-lanes", "gpu-nvidia";
/// "accelerator" of what is neither.
std::string device_class(const opencl::DeviceFacts& facts);

}  // namespace tessera::engines
