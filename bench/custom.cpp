// SPDX-License-Identifier: Apache-2.0
#include "bench/custom.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "bench/device_memory.hpp"
#include "bench/judge.hpp"
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

std::string text_of(const TensorSpec& array) {
  return fmt::format("{}[{}]", to_string(array.dtype()), fmt::join(array.extents(), ","));
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

/// Sizes of a launch; none where the row has none.
std::vector<std::int64_t> sizes_of(const Json& row, const char* name) {
  const Json sizes = row.value(name, Json::array());
  const bool right = sizes.is_array() && sizes.size() <= 3 &&
                     std::all_of(sizes.begin(), sizes.end(), [](const auto& size) {
                       return size.is_number_integer() && size.template get<std::int64_t>() >= 1;
                     });
  if (!right) {
    fail(fmt::format("{} is {}; give a list of up to three integers from 1 on, such as [1024, 16]",
                     name, sizes.dump()));
  }
  return sizes.get<std::vector<std::int64_t>>();
}

CustomRow row_of(const Json& file, const Json& row, const std::string& source) {
  CustomRow made;
  CustomKernelSpec spec;
  spec.source = source;
  spec.build_options = file.value("build_options", "");
  spec.entry = row.contains("entry") ? row.at("entry") : file.at("entry");
  spec.name = file.value("name", spec.entry);
  made.name = "custom/" + spec.name;
  for (const auto& array : row.at("inputs")) {
    made.inputs.push_back(array_of(array));
    made.name += '/';
    made.name += text_of(made.inputs.back().spec);
    made.shape += text_of(made.inputs.back().spec) + ' ';
  }
  made.shape += "->";
  for (const auto& array : row.at("outputs")) {
    made.outputs.push_back(array_of(array).spec);
    made.shape += ' ' + text_of(made.outputs.back());
  }
  spec.shape = [outputs = made.outputs](const auto&) { return outputs; };
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
  const KernelLaunch launch{
      .entry = spec.entry, .global = sizes_of(row, "global"), .local = sizes_of(row, "local")};
  if (launch.global.empty() && !launch.local.empty()) {
    fail("local is given without global; give global too, the work-items of the launch");
  }
  if (!launch.global.empty()) {
    spec.launches = [launch](const auto&) { return std::vector<KernelLaunch>{launch}; };
  }
  made.kernel = custom_kernel(std::move(spec));
  return made;
}

/// The row with what a candidate of its "tune" has otherwise.
Json changed(const Json& row, const Json& candidate) {
  if (!candidate.is_object()) {
    fail(fmt::format("it is {}; give what differs, such as {{\"knobs\": {{\"width\": 4}}}}",
                     candidate.dump()));
  }
  Json made = row;
  for (const auto& [key, value] : candidate.items()) {
    if (key == "global" || key == "local") {
      made[key] = value;
      continue;
    }
    if (key != "block_sizes" && key != "knobs") {
      fail(fmt::format("it has \"{}\"; a candidate may have block_sizes, knobs, global and local",
                       key));
    }
    if (!value.is_object()) {
      fail(fmt::format("{} is {}; give names and numbers, such as {{\"width\": 4}}", key,
                       value.dump()));
    }
    const Json own = row.value(key, Json::object());
    for (const auto& [name, number] : value.items()) {
      if (!own.contains(name)) {
        fail(
            fmt::format("{} has \"{}\", which the row does not have; give the row its own value "
                        "of it in {}, or leave it out",
                        key, name, key));
      }
      made[key][name] = number;
    }
  }
  return made;
}

/// The numbers and sizes by which `made` differs from the row.
std::string config_of(const Json& row, const Json& made) {
  std::string config;
  const auto add = [&](const std::string& name, const std::string& value) {
    config += fmt::format("{}{}={}", config.empty() ? "" : " ", name, value);
  };
  for (const char* key : {"block_sizes", "knobs"}) {
    const Json numbers = made.value(key, Json::object());
    for (const auto& [name, value] : numbers.items()) {
      if (value != row.at(key).at(name)) add(name, value.dump());
    }
  }
  for (const char* key : {"global", "local"}) {
    const auto sizes = sizes_of(made, key);
    if (sizes == sizes_of(row, key)) continue;
    add(key, sizes.empty() ? "any" : fmt::format("{}", fmt::join(sizes, "x")));
  }
  return config;
}

/// Digits that change with all that the results of a row depend on.
std::string revision_of(Json file, Json row, const std::string& source) {
  for (const char* key : {"rows", "tune"}) file.erase(key);
  row.erase("tune");
  return fmt::format("{:016x}", std::hash<std::string>()(source + file.dump() + row.dump()));
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
    for (const auto& array : row.inputs) bytes_ += bytes_of(array.spec);
    for (const auto& output : row.outputs) bytes_ += bytes_of(output);
    const auto count =
        std::clamp<std::int64_t>(rotation / std::max<std::int64_t>(bytes_, 1), 1, 16);
    try {
      for (std::int64_t i = 0; i < count; ++i) {
        auto& set = sets_.emplace_back();
        for (const auto& array : row.inputs) {
          set.inputs.push_back(place(random_array(array, seed_++)));
        }
        for (const auto& output : row.outputs) {
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

/// Adds the candidates of `tune` to the row; `where` says, for errors, which of them is read.
void add_candidates(const Json& file, const Json& row, const Json& tune, const std::string& source,
                    std::string& where, CustomRow& made) {
  if (!tune.is_array() || tune.empty()) {
    fail(fmt::format(
        "tune is {}; give a list such as [{{\"knobs\": {{\"width\": 4}}}}], or leave it out",
        tune.dump()));
  }
  const std::string row_place = where;
  for (const auto& candidate : tune) {
    where = fmt::format("{}, tune[{}]", row_place, made.candidates.size());
    const Json json = changed(row, candidate);
    auto& each = made.candidates.emplace_back(row_of(file, json, source));
    each.name = made.name;
    each.config = config_of(row, json);
  }
}

/// An element of an array of integers.
std::int64_t whole(const HostTensor& tensor, std::int64_t index) {
  const auto i = static_cast<std::size_t>(index);
  return tensor.dtype() == DType::i32 ? tensor.as<std::int32_t>()[i] : tensor.as<std::int64_t>()[i];
}

/// Compares each element with that of `wanted`. What is summed in another order differs in the last
/// places of the sum's terms: these are taken to be as large as the element, or as all of them in
/// the root mean square.
void hold(const std::string& what, const HostTensor& tensor, const HostTensor& wanted,
          Deviation& deviation) {
  const bool floats = is_floating(wanted.dtype());
  const auto value = [&](const HostTensor& of, std::int64_t i) {
    return floats ? element(of, i) : static_cast<double>(whole(of, i));
  };
  double squares = 0.0;
  for (std::int64_t i = 0; floats && i < wanted.size(); ++i) {
    const double x = element(wanted, i);
    if (std::isfinite(x)) squares += x * x;
  }
  const double mean = std::sqrt(squares / std::max(1.0, static_cast<double>(wanted.size())));
  const double relative = std::max(4.0 * roundoff(wanted.dtype()), 0x1p-13);
  for (std::int64_t i = 0; i < wanted.size(); ++i) {
    const double is = value(tensor, i), x = value(wanted, i);
    double off = is == x ? 0.0 : is - x;
    double tolerance = 0.0;
    if (!floats) {
      // Large ones have the same double.
      if (off == 0.0 && whole(tensor, i) != whole(wanted, i)) off = 1.0;
    } else if (std::isfinite(x)) {
      tolerance = relative * (std::abs(x) + mean) + smallest(wanted.dtype());
    }
    deviation.add(off);
    if (std::abs(off) <= tolerance * deviation.worst) continue;
    deviation.hold(fmt::format("{}, element {}, {:g} where the row has {:g}", what, i, is, x), off,
                   tolerance);
    if (deviation.worst > 1.0) return;
  }
}

/// Calls of a row, one by one.
class Calls {
 public:
  Calls(const CustomRow& row, Context context, const Options& options)
      : row_(row),
        context_(std::move(context)),
        sets_(context_, row_, options.rotate_bytes.value_or(default_rotation)) {}

  FirstCall first() {
    const double start = now();
    row_.kernel.plan(context_, sets_.at(0).inputs, sets_.at(0).outputs, row_.options);
    const double compiled = now();
    make(0);
    return {.seconds = now() - start, .compile_seconds = compiled - start};
  }
  void make(std::int64_t turn) { dispatch_ = run(row_, turn); }
  /// Compares the results of one more call with those of the row `own` on the same arrays.
  Deviation compare(const CustomRow& own) {
    const auto results_of = [&](const CustomRow& row) {
      const auto& outputs = sets_.at(0).outputs;
      for (const auto& output : outputs) poison(context_, output);
      run(row, 0);
      std::vector<HostTensor> results;
      for (const auto& output : outputs) results.push_back(fetch(context_, output));
      return results;
    };
    const auto results = results_of(row_), wanted = results_of(own);
    Deviation deviation;
    for (std::size_t i = 0; i < results.size(); ++i) {
      hold(fmt::format("outputs[{}]", i), results[i], wanted[i], deviation);
    }
    return deviation;
  }

  const Dispatch& dispatch() const { return dispatch_; }  ///< of the last call
  std::int64_t bytes() const noexcept { return sets_.bytes(); }

 private:
  static constexpr std::int64_t default_rotation = std::int64_t{256} << 20;

  Dispatch run(const CustomRow& row, std::int64_t turn) {
    const auto& set = sets_.at(turn);
    auto completion = row.kernel.run(context_, set.inputs, set.outputs, row.options);
    completion.wait();
    return completion.dispatch();
  }

  const CustomRow row_;
  Context context_;
  const Sets sets_;
  Dispatch dispatch_{};
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
      auto made = row_of(json, row, source);
      made.shape = fmt::format("row {}: {}", rows.size(), made.shape);
      made.revision = revision_of(json, row, source);
      const Json& holder = row.contains("tune") ? row : json;
      if (holder.contains("tune"))
        add_candidates(json, row, holder.at("tune"), source, where, made);
      rows.push_back(std::move(made));
    }
  } catch (const Json::exception& error) {
    fail(where + ": " + error.what());
  } catch (const Error& error) {
    fail(where + ": " + error.what());
  }
  if (rows.empty()) fail(file + " has no rows");
  return rows;
}

CustomRow find_candidate(const std::vector<CustomRow>& rows, const std::string& name) {
  for (const auto& row : rows) {
    if (!name.starts_with(row.revision + ':')) continue;
    const auto config = name.substr(row.revision.size() + 1);
    const auto found = std::find_if(row.candidates.begin(), row.candidates.end(),
                                    [&](const auto& each) { return each.config == config; });
    if (found == row.candidates.end() && !config.empty()) continue;
    CustomRow candidate = config.empty() ? row : *found;
    candidate.own = std::make_shared<const CustomRow>(row);
    return candidate;
  }
  fail(fmt::format("no row has the candidate '{}'; the file or its source has changed, begin anew",
                   name));
}

std::function<double()> prepare_custom(const CustomRow& row, Context context,
                                       const Options& options) {
  const auto calls = std::make_shared<Calls>(row, std::move(context), options);
  calls->first();
  return [calls, turn = std::int64_t{0}]() mutable {
    const double start = now();
    calls->make(turn++);
    return now() - start;
  };
}

void measure_custom(benchmark::State& state, const CustomRow& row, Context context, Peaks& peaks,
                    const Options& options, double min_seconds) {
  Calls calls(row, std::move(context), options);
  const FirstCall first = calls.first();
  const Timing timing = measure(
      peaks, peaks::Kind::copy, {options.samples, min_seconds, options.max_seconds},
      [&](std::int64_t turn) { calls.make(turn); }, {}, most_repeats);
  if (row.own) {
    const Deviation deviation = calls.compare(*row.own);
    if (!(deviation.worst <= 1.0)) throw WrongResults(deviation.where);
    report_deviation(state, deviation);
  }
  report_timing(state, timing, first);
  const auto bytes = static_cast<double>(calls.bytes());
  const Dispatch dispatch = calls.dispatch();
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
