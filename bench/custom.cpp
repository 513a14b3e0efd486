// SPDX-License-Identifier: Apache-2.0
#include "bench/custom.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "bench/device_memory.hpp"
#include "bench/row_measurement.hpp"
#include "host/dispatch/files.hpp"
#include "programs/report.hpp"

namespace tessera::bench {
namespace {

using programs::Json;

[[noreturn]] void fail(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, "--custom: " + message);
}

std::string text_of(const std::filesystem::path& file) {
  auto read = dispatch::read_file(file.string());
  if (!read.problem.empty()) fail(fmt::format("cannot read {}: {}", file.string(), read.problem));
  return std::move(read.text);
}

DType type_of(const std::string& name) {
  constexpr DType all[] = {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64};
  for (const DType type : all) {
    if (name == to_string(type)) return type;
  }
  fail(fmt::format("'{}' is no element type: f32, bf16, f16, i32 or i64", name));
}

CustomRow::Array array_of(const Json& array) {
  return {TensorSpec(array.at("shape").get<std::vector<std::int64_t>>(),
                     type_of(array.at("dtype").get<std::string>())),
          array.value("below", std::int64_t{2})};
}

std::string text_of(const CustomRow::Array& array) {
  return fmt::format("{}[{}]", to_string(array.spec.dtype()), fmt::join(array.spec.extents(), ","));
}

KernelScalar scalar_of(const Json& value) {
  if (value.is_number_float()) return value.get<float>();
  // A long says so: {"i64": 5}.
  if (!value.is_number_integer()) return value.at("i64").get<std::int64_t>();
  const auto number = value.get<std::int64_t>();
  if (number < INT32_MIN || number > INT32_MAX) {
    fail(fmt::format("the scalar {} is beyond an int; write {{\"i64\": {}}}", number, number));
  }
  return static_cast<std::int32_t>(number);
}

CustomRow row_of(const Json& file, const Json& row, const std::string& source) {
  CustomRow made;
  CustomKernelSpec spec;
  spec.source = source;
  spec.build_options = file.value("build_options", "");
  spec.entry = row.contains("entry") ? row.at("entry") : file.at("entry");
  spec.name = file.value("name", spec.entry);
  std::vector<TensorSpec> outputs;
  made.name = "custom/" + spec.name;
  for (const auto& array : row.at("inputs")) {
    made.inputs.push_back(array_of(array));
    made.name += '/';
    made.name += text_of(made.inputs.back());
  }
  for (const auto& array : row.at("outputs")) outputs.push_back(array_of(array).spec);
  spec.shape = [outputs](const auto&) { return outputs; };
  const auto add_numbers = [&](const char* what, auto& known, auto& given) {
    if (!row.contains(what)) return;
    for (const auto& [name, value] : row.at(what).items()) {
      if (!value.is_number_integer()) {
        fail(fmt::format("{}: {} is {}; it has to be an integer", what, name, value.dump()));
      }
      known.push_back({.name = name, .standard = value, .least = INT64_MIN});
      given.push_back({name, value});
      made.name += fmt::format("/{}{}", name, given.back().value);
    }
  };
  add_numbers("parameters", spec.parameters, made.options.parameters);
  add_numbers("block_sizes", spec.block_sizes, made.options.block_sizes);
  add_numbers("knobs", spec.knobs, made.options.knobs);
  for (const auto& scalar : row.value("scalars", Json::array())) {
    made.options.scalars.push_back(scalar_of(scalar));
  }
  if (row.contains("global")) {
    const KernelLaunch launch{.entry = spec.entry,
                              .global = row.at("global").get<std::vector<std::int64_t>>(),
                              .local = row.value("local", std::vector<std::int64_t>())};
    spec.launches = [launch](const auto&) { return std::vector<KernelLaunch>{launch}; };
  }
  made.kernel = custom_kernel(std::move(spec));
  return made;
}

/// Arrays of several calls that take turns, so that no cache holds them.
class Sets {
 public:
  struct Set {
    std::vector<View> inputs{};
    std::vector<MutableView> outputs{};
  };

  Sets(Context& context, const CustomRow& row, std::int64_t rotation)
      : context_(context), on_device_(!context.device_info().shares_host_memory) {
    const auto outputs = row.kernel.shapes(question_of(row), row.options);
    for (const auto& array : row.inputs) bytes_ += bytes_of(array.spec);
    for (const auto& output : outputs) bytes_ += bytes_of(output);
    const auto count =
        std::clamp<std::int64_t>(rotation / std::max<std::int64_t>(bytes_, 1), 1, 16);
    try {
      for (std::int64_t i = 0; i < count; ++i) {
        auto& set = sets_.emplace_back();
        for (const auto& array : row.inputs) {
          set.inputs.push_back(place(random_array(array, seed_++)));
        }
        for (const auto& output : outputs) {
          set.outputs.push_back(place(HostTensor(output.dtype(), output.extents())));
        }
      }
    } catch (...) {
      release();
      throw;
    }
  }
  ~Sets() { release(); }
  Sets(const Sets&) = delete;
  Sets& operator=(const Sets&) = delete;

  static std::vector<View> question_of(const CustomRow& row) {
    std::vector<View> views;
    for (const auto& array : row.inputs) {
      views.push_back(View::host(nullptr, array.spec.dtype(), array.spec.extents()));
    }
    return views;
  }
  const Set& at(std::int64_t turn) const {
    return sets_[static_cast<std::size_t>(turn) % sets_.size()];
  }
  std::int64_t bytes() const noexcept { return bytes_; }  ///< of one set

 private:
  void release() {
    for (const cl_mem memory : device_) release_memory(memory);
  }
  static std::int64_t bytes_of(const TensorSpec& array) {
    return array.size() * static_cast<std::int64_t>(size_of(array.dtype()));
  }
  static HostTensor random_array(const CustomRow::Array& array, std::uint64_t seed) {
    const auto& [spec, below] = array;
    if (is_floating(spec.dtype())) {
      return random_tensor(spec.dtype(), spec.extents(), contiguous_strides(spec.extents()), seed,
                           1.0f);
    }
    HostTensor tensor(spec.dtype(), spec.extents());
    Random random(seed);
    const auto fill = [&](auto values) {
      for (auto& value : values) {
        value = static_cast<std::remove_reference_t<decltype(value)>>(random.uniform() *
                                                                      static_cast<double>(below));
      }
    };
    spec.dtype() == DType::i32 ? fill(tensor.as<std::int32_t>()) : fill(tensor.as<std::int64_t>());
    return tensor;
  }
  MutableView place(HostTensor tensor) {
    const auto bytes = static_cast<std::size_t>(tensor.size()) * size_of(tensor.dtype());
    if (!on_device_) {
      return host_.emplace_back(std::make_unique<HostTensor>(std::move(tensor)))->mutable_view();
    }
    const cl_mem memory = create_memory(context_, std::max<std::size_t>(bytes, 1));
    device_.push_back(memory);
    if (bytes > 0) write_memory(context_, memory, tensor.data(), bytes);
    return MutableView::device(memory, 0, tensor.dtype(), tensor.extents());
  }

  Context& context_;
  const bool on_device_;
  std::vector<Set> sets_{};
  std::vector<std::unique_ptr<HostTensor>> host_{};
  std::vector<cl_mem> device_{};
  std::int64_t bytes_ = 0;
  std::uint64_t seed_ = 1;
};

}  // namespace

std::vector<CustomRow> read_custom_rows(const std::string& file) {
  const std::filesystem::path path(file);
  const std::string text = text_of(path);
  std::vector<CustomRow> rows;
  std::string where = file;
  try {
    const Json json = Json::parse(text);
    const auto source = text_of(path.parent_path() / json.at("source").get<std::string>());
    for (const auto& row : json.at("rows")) {
      where = fmt::format("{}, row {}", file, rows.size());
      rows.push_back(row_of(json, row, source));
    }
  } catch (const Json::exception& error) {
    fail(where + ": " + error.what());
  } catch (const Error& error) {
    fail(where + ": " + error.what());
  }
  if (rows.empty()) fail(file + " has no rows");
  return rows;
}

void measure_custom(benchmark::State& state, const CustomRow& row, Context context, Peaks& peaks,
                    const Options& options, double min_seconds) {
  constexpr std::int64_t default_rotation = std::int64_t{256} << 20;
  const Sets sets(context, row, options.rotate_bytes.value_or(default_rotation));
  Dispatch dispatch;
  const auto call = [&](std::int64_t turn) {
    const auto& set = sets.at(turn);
    auto completion = row.kernel.run(context, set.inputs, set.outputs, row.options);
    completion.wait();
    dispatch = completion.dispatch();
  };
  const double start = now();
  row.kernel.plan(context, sets.at(0).inputs, sets.at(0).outputs, row.options);
  const double compiled = now();
  call(0);
  const FirstCall first{.seconds = now() - start, .compile_seconds = compiled - start};
  const Timing timing =
      measure(peaks, peaks::Kind::copy, {options.samples, min_seconds, options.max_seconds}, call,
              {}, most_repeats);
  report_timing(state, timing, first);
  const auto bytes = static_cast<double>(sets.bytes());
  auto& c = state.counters;
  c["bytes_ideal"] = bytes;
  c["bytes_per_second"] = bytes / timing.median;
  c["fraction_of_bound"] = bytes / timing.median / peaks.best(peaks::Kind::copy);
  c["fraction_of_bracket"] = bytes / timing.median_work;
  c["extra_bytes_peak"] = static_cast<double>(dispatch.workspace_bytes + dispatch.staged_bytes);
  state.SetLabel(fmt::format(
      "{}; {:.2f} GB/s; bound by memory{}", dispatch.implementation, 1e-9 * bytes / timing.median,
      timing.noisy ? fmt::format("; noisy: {} of {} samples count", timing.counted, timing.samples)
                   : ""));
}

}  // namespace tessera::bench
