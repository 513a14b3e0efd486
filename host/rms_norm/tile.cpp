// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "host/arguments/bytes.hpp"
#include "host/arguments/offsets.hpp"
#include "host/operators/host_implementation.hpp"
#include "host/operators/tile_machine.hpp"
#include "host/rms_norm/request.hpp"
#include "tessera/tile/ops.hpp"

/// The implementation `tpu_tile`: two kernels for a TPU, as Pallas has them, on the tile machine.
namespace tessera::rms_norm {
namespace {

using operators::Optional;
using tile::Array;
using tile::BlockSpec;
using tile::column;
using tile::ix;
using tile::Ref;
using tile::Vmem;

/// How a request is served; decided by shapes, types and options alone.
struct Setup {
  const tile::Chip* chip = nullptr;
  std::int64_t b = 1, h = 1, block = 1;
  BlockSource source = BlockSource::heuristic;
  /// Of x, dy and the result in the kernel: theirs where they have one, else f32.
  DType type = DType::f32;
  float epsilon = 0.0f;

  std::int64_t blocks() const { return (b - 1) / block + 1; }
  /// Cores that share the blocks.
  std::int64_t shares() const { return std::min(operators::cores_of_grid(*chip), blocks()); }
  /// Whether the machine's array has to be another one than the caller's.
  bool copies(const View& view) const {
    return view && (view.dtype() != type || !operators::rows_are_dense(view));
  }
};

/// y, or grad_x where the request is backward.
const MutableView& result_of(const Request& r) { return r.is_backward() ? r.grad_x : r.y; }
bool copies_result(const Request& r, const Setup& s) {
  return result_of(r) && (r.accumulate || s.copies(result_of(r)));
}

/// In place: input 0 is output 0.
template <class T>
std::vector<tile::Alias> aliases_of(const Array<T>& in, const Array<T>& out) {
  if (in.region().buffer != out.region().buffer) return {};
  return {{.in = 0, .out = 0}};
}

/// 1 / sqrt(mean(x^2) + epsilon) of each row.
template <class T>
void find_root(const Ref<float>& root, const Ref<T>& x, const Setup& s) {
  tile::reduce_sum(
      root, 1, {1, 0}, [](float v) { return v * v; }, x);
  tile::map(
      root, {2, 2},
      [h = static_cast<float>(s.h), epsilon = s.epsilon](float squares) {
        return 1.0f / std::sqrt(squares / h + epsilon);
      },
      root);
}

/// y, a block of rows at a time. Rows behind the last one are NaN, which nobody copies out.
template <class T>
void forward(tile::Machine& machine, const Setup& s, const Array<T>& x, const Array<float>& factor,
             const Array<T>& y) {
  const auto rows = BlockSpec::blocks({s.block, s.h}, [](const auto& g) { return ix(g[0], 0); });
  tile::call(
      machine, "rms_norm_forward",
      {.grid = {s.blocks()},
       .in = {rows, BlockSpec::whole()},
       .out = {rows},
       .semantics = {tile::Semantics::parallel},
       .input_output_aliases = aliases_of(x, y)},
      [&](const Ref<T>& in, const Ref<float>& f, const Ref<T>& out, const Ref<float>& root) {
        find_root(root, in, s);
        tile::map(
            out, {2, 0}, [](float v, float weight, float r) { return v * r * weight; }, in, f,
            column(root));
      },
      Vmem<float>{{s.block}, "root"})(x, factor, y);
}

/// grad_x, a block of rows at a time, and grad_scale [shares, 1, H], whose block stays in VMEM
/// while a core walks its share: the cores add to sums of their own.
template <class T>
void backward(tile::Machine& machine, const Setup& s, const Array<T>& x, const Array<T>& dy,
              const Array<float>& factor, const Optional<T>& grad_x,
              const Optional<float>& grad_scale) {
  const std::int64_t per_share = (s.blocks() - 1) / s.shares() + 1;
  const auto rows =
      BlockSpec::blocks({s.block, s.h}, [per_share, last = s.blocks() - 1](const auto& g) {
        return ix(std::min(g[0] * per_share + g[1], last), 0);
      });
  const auto sums =
      BlockSpec::blocks({tile::squeezed(), 1, s.h}, [](const auto& g) { return ix(g[0], 0, 0); });
  using enum tile::Semantics;
  tile::call(
      machine, "rms_norm_backward",
      {.grid = {s.shares(), per_share},
       .in = {rows, rows, BlockSpec::whole()},
       .out = {grad_x.spec(rows), grad_scale.spec(sums)},
       .semantics = {parallel, arbitrary},
       .input_output_aliases = aliases_of(x, grad_x.array())},
      [&](const Ref<T>& in, const Ref<T>& cotangent, const Ref<float>& f, const Ref<T>& out,
          const Ref<float>& total, const Ref<float>& root, const Ref<float>& along,
          const Ref<float>& partial, const Ref<std::int32_t>& row) {
        const std::int64_t local = tile::program_id(1);
        const std::int64_t block = tile::program_id(0) * per_share + local;
        // The last share may have a block less; its index map stays where it was.
        if (block >= s.blocks()) return;
        find_root(root, in, s);
        if (grad_scale.given()) {
          if (local == 0) {
            tile::iota(row, 0);
            tile::fill(total, 0.0f);
          }
          // Rows behind the last one are NaN.
          const auto valid = static_cast<std::int32_t>(std::min(s.block, s.b - block * s.block));
          tile::reduce_sum(
              partial, 0, {4, 0},
              [=](float v, float g, float r, std::int32_t i) {
                return tile::where(i < valid, g * v * r, 0.0f);
              },
              in, cotangent, column(root), column(row));
          tile::map(
              total, [](float sum, float here) { return sum + here; }, total, partial);
        }
        if (!grad_x.given()) return;
        tile::reduce_sum(
            along, 1, {2, 0}, [](float v, float g, float weight) { return v * (g * weight); }, in,
            cotangent, f);
        tile::map(
            along, {3, 1},
            [h = static_cast<float>(s.h)](float sum, float r) { return sum / h * r * r; }, along,
            root);
        tile::map(
            out, {4, 0},
            [](float v, float g, float weight, float r, float a) {
              return r * (g * weight - v * a);
            },
            in, cotangent, f, column(root), column(along));
      },
      Vmem<float>{{s.block}, "root"}, Vmem<float>{{s.block}, "along"},
      Vmem<float>{{1, s.h}, "partial"},
      Vmem<std::int32_t>{{s.block}, "row"})(x, dy, factor, grad_x.array(), grad_scale.array());
}

/// What the kernel of a request holds with blocks of so many rows.
tile::VmemUse vmem_of(const Request& r, const Setup& s, std::int64_t block) {
  using enum tile::ElementType;
  const auto type = tile::element_type(s.type);
  std::vector<tile::Allocation> all = {
      {"x", {block, s.h}, type, 2}, {"factor", {1, s.h}, f32, 1}, {"root", {block}, f32, 1}};
  if (result_of(r)) all.push_back({r.is_backward() ? "grad_x" : "y", {block, s.h}, type, 2});
  if (r.is_backward()) {
    all.insert(all.end(), {{"dy", {block, s.h}, type, 2},
                           {"along", {block}, f32, 1},
                           {"partial", {1, s.h}, f32, 1},
                           {"row", {block}, i32, 1}});
  }
  if (r.grad_scale) all.push_back({"grad_scale", {1, s.h}, f32, 2});
  return tile::vmem_use(*s.chip, all);
}

/// Chooses the block, or says why there is none.
std::optional<std::string> choose_block(const Request& r, Setup& s) {
  const std::int64_t least = std::min<std::int64_t>(s.b, s.chip->sublanes);
  s.block = least;
  if (const auto& given = r.base.call.block_sizes) {
    s.source = BlockSource::caller;
    s.block = std::min((*given)[0], s.b);  // a larger block counts as all rows
    const auto illegal = tile::check_block(*s.chip, "x", {s.b, s.h}, tile::element_type(s.type),
                                           {.dims = tile::BlockDims{s.block, s.h}});
    if (!illegal.empty()) return "b_block_size: " + illegal.front().message;
  }
  if (const auto too_much = tile::check_vmem(vmem_of(r, s, least)); !too_much.empty()) {
    return fmt::format(
        "H = {} is too long: a block has whole rows, and {} of them do not fit; "
        "use eigen, or a chip with more VMEM: {}",
        s.h, least, too_much.front().message);
  }
  if (const auto too_much = tile::check_vmem(vmem_of(r, s, s.block)); !too_much.empty()) {
    return fmt::format("b_block_size is {}: {}", s.block, too_much.front().message);
  }
  if (s.source == BlockSource::caller) return std::nullopt;
  // Half of VMEM is for what a compiler keeps of a block in f32. With four blocks for each core the
  // first copy in and the last one out, behind which no work hides, are small beside the others.
  const std::int64_t most = s.b / (4 * operators::cores_of_grid(*s.chip));
  while (2 * s.block <= most) {
    const auto use = vmem_of(r, s, 2 * s.block);
    if (use.declared > use.limit / 2) break;
    s.block *= 2;
  }
  return std::nullopt;
}

/// `reason`: why there is no setup; then it is of no use.
Setup make_setup(const ContextState& state, const Request& r, std::optional<std::string>& reason) {
  Setup s{.chip = &operators::tile_chip(state), .h = r.h, .type = r.x.dtype()};
  s.b = std::max<std::int64_t>(r.b, 1);  // no rows are cut like one, and do not run
  s.epsilon = r.epsilon;
  const auto differs = [&](const View& view) { return view && view.dtype() != s.type; };
  // What is added to is rounded once, on the host.
  const bool adds = result_of(r) && r.accumulate;
  if (differs(r.dy) || differs(result_of(r)) || adds) s.type = DType::f32;
  reason = choose_block(r, s);
  return s;
}

/// From the caller's views, in host memory, to the machine's arrays, and back.
class TileCall {
 public:
  TileCall(ContextState& state, const Request& r, const Setup& s, Dispatch& dispatch)
      : r_(r),
        s_(s),
        dispatch_(dispatch),
        threads_(state.threads),
        machine_({.chip = *s.chip, .threads = threads_.size(), .model_time = false}) {}

  template <class T>
  void run() {
    std::vector<float> factors(static_cast<std::size_t>(s_.h), 1.0f);
    for (std::int64_t i = 0; r_.scale && i < s_.h; ++i) {
      factors[static_cast<std::size_t>(i)] =
          r_.offset +
          arguments::load_f32(r_.scale.host_data(), r_.scale.dtype(), i * r_.scale.strides()[0]);
    }
    const auto factor = machine_.array<float>("factor", View::host(factors.data(), {1, s_.h}));
    const MutableView& to = result_of(r_);
    std::optional<Array<T>> result;
    if (copies_result(r_, s_)) {
      result = machine_.empty_ref<T>("result", {s_.b, s_.h});
    } else if (to) {
      result = machine_.array<T>("result", to.reshaped({s_.b, s_.h}, {s_.h, 1}));
    }
    const bool in_place = result && !copies_result(r_, s_) && to.host_data() == r_.x.host_data();
    const Array<T> x = in_place ? *result : read<T>("x", r_.x, x_);
    if (r_.is_backward()) {
      std::optional<Array<float>> sums;
      if (r_.grad_scale) sums = machine_.empty_ref<float>("grad_scale", {s_.shares(), 1, s_.h});
      backward(machine_, s_, x, read<T>("dy", r_.dy, dy_), factor,
               Optional<T>(machine_, result, "grad_x"),
               Optional<float>(machine_, sums, "grad_scale"));
      if (sums) write_grad_scale(machine_.values(*sums));
    } else {
      forward(machine_, s_, x, factor, *result);
    }
    if (!copies_result(r_, s_)) return;
    copy(View::host(machine_.values(*result).data(), {s_.b, s_.h}), to, r_.accumulate);
  }

  /// From [shares, H]: what each core summed is added by the host, as XLA would do it.
  void write_grad_scale(std::span<const float> sums) const {
    std::vector<float> total(static_cast<std::size_t>(s_.h), 0.0f);
    for (std::size_t i = 0; i < sums.size(); ++i) total[i % total.size()] += sums[i];
    copy(View(total), r_.grad_scale, r_.accumulate);
  }

 private:
  /// The caller's memory, or a copy of it in `storage`.
  template <class T>
  Array<T> read(const char* name, const View& view, HostTensor& storage) {
    const Dims shape = {s_.b, s_.h};
    if (!s_.copies(view)) return machine_.array<T>(name, view.reshaped(shape, {s_.h, 1}));
    storage = HostTensor(s_.type, shape);
    copy(view, storage.mutable_view(), false);
    dispatch_.staged_bytes += storage.size() * static_cast<std::int64_t>(size_of(s_.type));
    return machine_.array<T>(name, storage.view());
  }

  /// to = from, or to += from, row by row, formed in f32 and rounded once.
  void copy(const View& from, const MutableView& to, bool add) const {
    using arguments::load_f32;
    const std::int64_t h = s_.h;
    const arguments::RowOffsets from_row(from, from.rank() - 1), to_row(to, to.rank() - 1);
    threads_.parallel_for(from.size() / h, [&](std::int64_t row, int) {
      for (std::int64_t i = 0; i < h; ++i) {
        const std::int64_t at = to_row(row) + i * to.strides().back();
        const float before = add ? load_f32(to.host_data(), to.dtype(), at) : 0.0f;
        const float value =
            load_f32(from.host_data(), from.dtype(), from_row(row) + i * from.strides().back());
        arguments::store_f32(to.host_data(), to.dtype(), at, before + value);
      }
    });
  }

  const Request& r_;
  const Setup& s_;
  Dispatch& dispatch_;
  dispatch::ThreadPool& threads_;
  tile::Machine machine_;
  HostTensor x_{}, dy_{};
};

class TpuTile final : public operators::HostImplementation {
 public:
  TpuTile() : HostImplementation(operators::tile_info()) {}

  std::optional<std::string> why_unsupported(ContextState& state,
                                             const dispatch::Request& request) const override {
    std::optional<std::string> reason;
    make_setup(state, request_of(request), reason);
    return reason;
  }
  CostEstimate cost(ContextState&, const dispatch::Request& request) const override {
    return rms_norm::cost(request_of(request));
  }
  std::pair<std::string, std::string> tuned_names(const ContextState& state) const override {
    return operators::tuned_names_of_chip(state);
  }

 private:
  static Setup setup_of(const ContextState& state, const Request& r) {
    std::optional<std::string> none;
    return make_setup(state, r, none);
  }

  void describe(const ContextState& state, const operators::Request& request,
                Dispatch& dispatch) const override {
    const auto r = request_of(request);
    const Setup s = setup_of(state, r);
    operators::describe_tile_call(*s.chip, dispatch);
    dispatch.schedule = r.is_backward() ? "rows_and_sums_of_cores" : "blocks_of_rows";
    dispatch.block_sizes = to_named(BlockSizes{s.block});
    dispatch.block_source = s.source;
    // VMEM of every core; the factors, and grad_scale by cores and in all; what is copied.
    const std::int64_t rows = 1 + (r.grad_scale ? s.shares() + 1 : 0);
    const std::int64_t copied = s.copies(r.x) + s.copies(r.dy) + copies_result(r, s);
    dispatch.workspace_bytes = arguments::saturating_sum(
        vmem_of(r, s, s.block).declared * operators::cores_of_grid(*s.chip) + 4 * rows * s.h,
        arguments::saturating_product(copied * static_cast<std::int64_t>(size_of(s.type)),
                                      arguments::saturating_product(s.b, s.h)));
  }
  void compute(ContextState& state, const operators::Request& request, Dispatch& dispatch,
               void*) const override {
    const auto r = request_of(request);
    const Setup s = setup_of(state, r);
    TileCall call(state, r, s, dispatch);
    if (r.b == 0) {
      if (r.grad_scale) call.write_grad_scale({});
      return;
    }
    with_type(s.type, [&](auto* element) { call.run<std::remove_pointer_t<decltype(element)>>(); });
  }
};

}  // namespace

std::unique_ptr<dispatch::Implementation> tile_implementation() {
  return std::make_unique<TpuTile>();
}

}  // namespace tessera::rms_norm
