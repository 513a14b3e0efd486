// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "host/dispatch/knobs.hpp"
#include "host/engines/segments.hpp"
#include "host/opencl/specialise.hpp"
#include "host/operators/opencl_operator.hpp"
#include "host/rms_norm/opencl_plan.hpp"
#include "rms_norm/arguments.h"

namespace tessera::rms_norm {
namespace {

using engines::ceil_div;
using engines::Segment;

struct Programs {
  opencl::Specialisation rows;
  std::array<opencl::Specialisation*, 1> all() { return {&rows}; }
};

using Prepared = operators::PreparedOf<Schedule, Programs>;

Programs programs_of(const Request& r, const engines::Engine& engine) {
  const auto array = [](const char* name, const View& view) {
    const bool contiguous =
        !view || view.rank() == 0 || view.strides().back() == 1 || view.extents().back() == 1;
    return fmt::format(" {} -D{}_CONTIGUOUS={}",
                       opencl::type_option((std::string(name) + "_TYPE").c_str(),
                                           view ? view.dtype() : DType::f32),
                       name, contiguous ? 1 : 0);
  };
  std::string options =
      fmt::format("-DLANES={} -DGROUP={} -DHAS_SCALE={} -DHAS_GRAD_X={} -DHAS_GRAD_SCALE={}",
                  engine.row_pass().lanes, engine.row_pass().items, r.scale ? 1 : 0,
                  r.grad_x ? 1 : 0, r.grad_scale ? 1 : 0);
  options += array("X", r.x) + array("SCALE", r.scale) + array("DY", r.dy) +
             array("OUT", r.is_backward() ? r.grad_x : r.y);
  options.append(" ").append(
      opencl::type_option("SCALE_OUT_TYPE", r.grad_scale ? r.grad_scale.dtype() : DType::f32));
  return {.rows = {"rms_norm/rms_norm.cl", options}};
}

/// One call.
class Run {
 public:
  Run(opencl::Call& call, const Request& request, const Prepared& prepared)
      : call_(call),
        r_(request),
        program_(prepared.programs.rows),
        rows_(prepared.schedule.blocks.b_block_size),
        pass_(prepared.engine->row_pass()) {}

  void enqueue() {
    const auto bind = [&](const View& view, const char* name, engines::Access access) {
      return view ? engines::bind_segments(call_, view, r_.b, name, access)
                  : std::vector<Segment>{{.begin = 0, .end = r_.b}};
    };
    const auto write = r_.accumulate ? engines::Access::update : engines::Access::write;
    x_ = bind(r_.x, "x", engines::Access::read);
    dy_ = bind(r_.dy, "dy", engines::Access::read);
    out_ = r_.is_backward() ? bind(r_.grad_x, "grad_x", write)
                            : bind(r_.y, "y", engines::Access::write);
    if (r_.scale) scale_ = call_.read(r_.scale, "scale");
    if (r_.grad_scale) {
      grad_scale_ = call_.write(r_.grad_scale, "grad_scale", r_.accumulate);
      sums_ = call_.scratch(groups_of(0, r_.b) * sum_words(r_), "sums of grad_scale");
    }
    for_ranges();
    if (r_.grad_scale) sum_scale();
  }

 private:
  /// Launches for the rows that one segment of each array has, range by range.
  void for_ranges() {
    for (const Segment& x : x_) {
      for (const Segment& dy : dy_) {
        for (const Segment& out : out_) {
          const std::int64_t begin = std::max({x.begin, dy.begin, out.begin});
          const std::int64_t end = std::min({x.end, dy.end, out.end});
          if (begin >= end) continue;
          r_.is_backward() ? differentiate(x, dy, out, begin, end) : normalise(x, out, begin, end);
        }
      }
    }
  }

  std::int64_t groups_of(std::int64_t begin, std::int64_t end) const {
    return ceil_div(end - begin, rows_);
  }
  opencl::Range grid(std::int64_t begin, std::int64_t end) const {
    const auto items = static_cast<std::size_t>(pass_.items);
    return {{static_cast<std::size_t>(groups_of(begin, end)) * items, 1, 1}, {items, 1, 1}};
  }
  static kernels::row_part part(const Segment& segment) {
    return {segment.geometry, segment.stride, segment.begin};
  }
  std::int64_t scale_stride() const { return r_.scale ? scale_.strides[0] : 1; }

  void normalise(const Segment& x, const Segment& y, std::int64_t begin, std::int64_t end) {
    call_.launch(program_, grid(begin, end),
                 kernels::normalise_memory{.x = x.bound, .scale = scale_, .y = y.bound},
                 {.x = part(x),
                  .y = part(y),
                  .scale_stride = scale_stride(),
                  .begin = begin,
                  .end = end,
                  .rows = rows_,
                  .h = r_.h,
                  .epsilon = r_.epsilon,
                  .offset = r_.offset});
  }

  void differentiate(const Segment& x, const Segment& dy, const Segment& grad_x, std::int64_t begin,
                     std::int64_t end) {
    call_.launch(
        program_, grid(begin, end),
        kernels::differentiate_memory{
            .x = x.bound, .scale = scale_, .dy = dy.bound, .grad_x = grad_x.bound, .sums = sums_},
        {.x = part(x),
         .dy = part(dy),
         .grad_x = part(grad_x),
         .scale_stride = scale_stride(),
         .begin = begin,
         .end = end,
         .rows = rows_,
         .sum_words = sum_words(r_),
         .known = groups_,
         .h = r_.h,
         .epsilon = r_.epsilon,
         .offset = r_.offset,
         .add = r_.accumulate,
         .unused = 0});
    groups_ = std::max(groups_, groups_of(begin, end));
  }

  /// Work-items: (SUM_LANES columns, `second`).
  opencl::Range columns_range(std::int64_t second) const {
    const std::int64_t group = column_items(r_, pass_);
    const auto items =
        static_cast<std::size_t>(engines::round_up(ceil_div(r_.h, column_lanes(pass_)), group));
    return opencl::with_second({{items, 1, 1}, {static_cast<std::size_t>(group), 1, 1}}, second);
  }

  void sum_scale() {
    const std::int64_t each = sums_of_part(groups_, pass_);
    if (each > 1) {
      call_.launch(program_, columns_range(ceil_div(groups_, each)),
                   kernels::merge_sums_memory{.sums = sums_},
                   {.groups = groups_, .each = each, .sum_words = sum_words(r_), .h = r_.h});
    }
    call_.launch(program_, columns_range(1),
                 kernels::sum_scale_memory{.sums = sums_, .grad_scale = grad_scale_},
                 {.stride = grad_scale_.strides[0],
                  .groups = ceil_div(groups_, each),
                  .sum_words = each * sum_words(r_),
                  .h = r_.h,
                  .add = r_.accumulate,
                  .unused = 0});
  }

  opencl::Call& call_;
  const Request& r_;
  const opencl::Specialisation& program_;
  std::int64_t rows_;
  engines::RowPass pass_;
  std::vector<Segment> x_, dy_, out_;
  opencl::Binding scale_{}, grad_scale_{};
  opencl::Scratch sums_{};
  std::int64_t groups_ = 0;  ///< rows of sums that launches have begun
};

class Opencl final : public operators::OpenclOperator {
  std::vector<std::int64_t> multiples(const engines::Engine&) const override { return {1}; }
  engines::Operands operands(const operators::Request& request) const override {
    return {.a = request_of(request).x.dtype(), .rows = true};
  }
  std::optional<std::string> refuses(const operators::Request& request, const std::string&,
                                     const opencl::DeviceFacts&) const override {
    const auto r = request_of(request);
    return engines::beyond_32_bits({{"B", r.b}, {"H", r.h}});
  }
  std::shared_ptr<operators::Prepared> prepare(const operators::Request& request,
                                               const std::string& engine_name,
                                               opencl::Runtime& runtime) const override {
    const auto r = request_of(request);
    auto made = std::make_shared<Prepared>();
    const auto& given = request.call.knobs;
    made->shapes =
        engines::shapes_with(engines::engine_entry(engine_name), runtime.facts(),
                             {.a = r.x.dtype(), .rows = true}, given, nullptr, made->notes);
    made->schedule = make_schedule(r, made->shapes, runtime.facts(), made->engine);
    dispatch::check_knobs(given, knobs(request, *made), "opencl." + engine_name);
    made->programs = programs_of(r, *made->engine);
    return made;
  }
  std::vector<NamedValue> knobs(const operators::Request&,
                                const operators::Prepared& prepared) const override {
    return engines::row_knobs(*prepared.engine);
  }
  std::vector<operators::Kernel> kernels(const operators::Request& request,
                                         const operators::Prepared& prepared) const override {
    const auto r = request_of(request);
    const auto& program = own(prepared).programs.rows;
    std::vector<operators::Kernel> kernels = {
        {program, r.is_backward() ? "differentiate" : "normalise"}};
    if (!r.grad_scale) return kernels;
    kernels.emplace_back(program, "sum_scale");
    const std::int64_t rows = own(prepared).schedule.blocks.b_block_size;
    if (sums_of_part(ceil_div(r.b, rows), prepared.engine->row_pass()) > 1) {
      kernels.emplace_back(program, "merge_sums");
    }
    return kernels;
  }
  std::int64_t minimum_workspace_bytes(const operators::Request& request,
                                       const operators::Prepared&,
                                       const opencl::Runtime&) const override {
    return least_scratch_bytes(request_of(request));
  }
  std::vector<ConsideredSchedule> considered(const operators::Request& request,
                                             const operators::Prepared& prepared,
                                             const opencl::Runtime&) const override {
    return {explain(request_of(request), *prepared.engine, own(prepared).schedule)};
  }
  void enqueue(opencl::Call& call, const operators::Request& request,
               const operators::Prepared& prepared) const override {
    const auto r = request_of(request);
    Run(call, r, own(prepared)).enqueue();
  }
  CostEstimate cost(const operators::Request& request, const operators::Prepared&) const override {
    return rms_norm::cost(request_of(request));
  }

  static const Prepared& own(const operators::Prepared& prepared) {
    return static_cast<const Prepared&>(prepared);
  }
};

}  // namespace

dispatch::Table opencl_implementations() {
  return operators::opencl_rows(std::make_shared<Opencl>());
}

}  // namespace tessera::rms_norm
