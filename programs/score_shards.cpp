// SPDX-License-Identifier: Apache-2.0
#include "programs/score_shards.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <type_traits>

#include "host/dispatch/files.hpp"
#include "programs/cli.hpp"
#include "programs/npy.hpp"
#include "programs/score_teacher.hpp"

namespace tessera::programs {
namespace {

using linear_distillation::DivergenceSums;

/// Calls `use(name, member)` for each field of a row.
template <class Use>
void for_each_field(const Partial*, const Use& use) {
  use("max", &Partial::max);
  use("sum", &Partial::sum);
  use("label_logit", &Partial::label_logit);
  use("class_logit", &Partial::class_logit);
  use("class_sum", &Partial::class_sum);
  use("argmax_value", &Partial::argmax_value);
  use("argmax", &Partial::argmax);
  use("exp_logit", &Partial::exp_logit);
  use("target_logit", &Partial::target_logit);
  use("target_sum", &Partial::target_sum);
  use("weighted_logit", &Partial::weighted_logit);
  use("weighted_sum", &Partial::weighted_sum);
}
template <class Use>
void for_each_field(const DivergenceSums*, const Use& use) {
  use("max_u", &DivergenceSums::max_u);
  use("max_v", &DivergenceSums::max_v);
  use("sum_u", &DivergenceSums::sum_u);
  use("sum_v", &DivergenceSums::sum_v);
  use("cross", &DivergenceSums::cross);
  use("exp_v", &DivergenceSums::exp_v);
}

std::filesystem::path path_of(const std::string& folder, const char* field) {
  return std::filesystem::path(folder) / fmt::format("partial_{}.npy", field);
}

template <class Row>
void add_rows(OutputSet& files, const std::vector<Row>& rows, const Dims& extents) {
  for_each_field(rows.data(), [&]<class T>(const char* name, T Row::*member) {
    HostTensor column(dtype_of<T>::value, extents);
    const auto values = column.as<T>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = rows[i].*member;
    files.add_tensor(path_of("", name).string(), column);
  });
}

/// The fields in a folder; `extents` of none yet are taken from the first.
template <class Row>
void read_rows(const std::string& folder, std::vector<Row>& rows, std::optional<Dims>& extents) {
  for_each_field(rows.data(), [&]<class T>(const char* name, T Row::*member) {
    const std::string path = path_of(folder, name).string();
    const auto array = NpyArray::load(
        "--combine", path, std::is_same_v<T, float> ? NpyRole::floating : NpyRole::integer, false);
    const View& view = array.view();
    if (view.dtype() != dtype_of<T>::value) {
      fail_call(fmt::format("--combine {}: holds {}, not {}", path, to_string(view.dtype()),
                            to_string(dtype_of<T>::value)));
    }
    if (!extents) extents = view.extents();
    if (view.extents() != *extents) {
      fail_call(fmt::format(
          "--combine {}: its shape differs from that of partial_max.npy beside it", path));
    }
    if (array.fortran_order() && view.rank() > 1) {
      fail_call(fmt::format("--combine {}: is in Fortran order; save it in C order", path));
    }
    rows.resize(static_cast<std::size_t>(view.size()));
    const T* const values = static_cast<const T*>(view.host_data());
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].*member = values[i];
  });
}

std::filesystem::path report_of(const std::string& folder) {
  return std::filesystem::path(folder) / "report.json";
}

/// What a folder's report.json says of the run that wrote it last.
struct Record {
  std::string folder;
  std::string mode;
  Json options;
  std::optional<ShardRange> range;
};

std::optional<Record> read_record(const std::string& folder) {
  const auto path = report_of(folder);
  const auto file = dispatch::read_file(path.string());
  if (file.is_missing) return std::nullopt;
  if (!file.problem.empty()) {
    fail_call(fmt::format("{} cannot be read: {}", path.string(), file.problem));
  }
  try {
    const Json json = Json::parse(file.text);
    Record record{.folder = folder,
                  .mode = json.value("mode", ""),
                  .options = Json::object(),
                  .range = std::nullopt};
    if (json.contains("options")) record.options = json.at("options");
    if (json.contains("shard")) {
      const Json& shard = json.at("shard");
      record.range = ShardRange{shard.at("vocab_offset").get<std::int64_t>(),
                                shard.at("vocab_size").get<std::int64_t>(),
                                shard.at("vocab_size_total").get<std::int64_t>()};
    }
    return record;
  } catch (const Json::exception& error) {
    fail_call(fmt::format("{} is not a report of tessera-score: {}", path.string(), error.what()));
  }
}

template <class T>
void require_same(const Record& record, const char* option, const char* key, T value,
                  const char* where) {
  if (!record.options.contains(key)) return;
  // As a T, which a number prints as it was given.
  const T written = record.options.at(key).get<T>();
  if (written == value) return;
  fail_call(fmt::format("{} is {} here, but {} was written with {} {}; use the same in every run",
                        option, value, record.folder, where, written));
}

void check_tiling(std::vector<Record> records, std::int64_t total) {
  std::sort(records.begin(), records.end(),
            [](const Record& a, const Record& b) { return a.range->offset < b.range->offset; });
  std::int64_t covered = 0;
  for (const auto& record : records) {
    if (record.range->offset != covered) {
      fail_call(fmt::format(
          "--combine: columns {} to {} {}; {} begins at column {}",
          std::min(covered, record.range->offset), std::max(covered, record.range->offset) - 1,
          record.range->offset > covered ? "are in no folder" : "are in two folders", record.folder,
          record.range->offset));
    }
    covered += record.range->size;
  }
  if (covered != total) {
    fail_call(
        fmt::format("--combine: the folders cover columns 0 to {} of {}; add the missing "
                    "shards",
                    covered - 1, total));
  }
}

}  // namespace

void add_partials(OutputSet& files, const linear_distillation::PartialResult& partial) {
  add_rows(files, partial.rows, partial.extents);
  if (!partial.divergence_rows.empty()) add_rows(files, partial.divergence_rows, partial.extents);
}

linear_distillation::PartialResult read_partials(const std::string& folder, bool has_teacher) {
  linear_distillation::PartialResult result;
  std::optional<Dims> extents;
  read_rows(folder, result.rows, extents);
  if (has_teacher) read_rows(folder, result.divergence_rows, extents);
  result.extents = *extents;
  return result;
}

bool have_teacher(const std::vector<std::string>& folders) {
  return std::any_of(folders.begin(), folders.end(), [](const std::string& folder) {
    return std::filesystem::exists(path_of(folder, "cross"));
  });
}

Json options_to_json(const LossOptions& options, bool class_weight) {
  Json json = described_to_json(options, all_loss_options<LossOptions>);
  json["class_weight"] = class_weight;
  return json;
}

Json range_to_json(const ShardRange& range) {
  return {{"vocab_offset", range.offset},
          {"vocab_size", range.size},
          {"vocab_size_total", range.total}};
}

namespace {

void reconcile_teacher(const Record& record, ScoreOptions& options) {
  for (const auto& option : teacher_options()) {
    if (!record.options.contains(option.name)) continue;
    const Json& written = record.options.at(option.name);
    const std::string name = option_of(option.name);
    const auto given = options.values.find(option.name);
    if (!option.choices.empty()) {
      const auto& choices = option.choices;
      const auto text = written.is_string() ? written.get<std::string>() : written.dump();
      const auto at = std::find(choices.begin(), choices.end(), text);
      if (at == choices.end()) {
        fail_call(fmt::format("{}: {} is '{}', which is not one of {}",
                              report_of(record.folder).string(), option.name, text,
                              fmt::join(choices, ", ")));
      }
      if (given != options.values.end()) {
        const auto here = text_of(given->second, choices);
        require_same(record, name.c_str(), option.name, here, name.c_str());
      }
      options.values[option.name] = static_cast<std::int64_t>(at - choices.begin());
    } else if (given != options.values.end()) {
      const float here = std::get<float>(given->second);
      require_same(record, name.c_str(), option.name, here, name.c_str());
    } else {
      options.values[option.name] = written.get<float>();
    }
  }
}

}  // namespace

ScoreOptions reconcile_teachers(const ScoreOptions& options) {
  ScoreOptions result = options;
  for (const auto& folder : options.combine) {
    if (const auto record = read_record(folder)) reconcile_teacher(*record, result);
  }
  check_beta(result);
  return result;
}

LossOptions reconcile_shards(const ScoreOptions& options, std::int64_t class_weight_size) {
  LossOptions loss = options.loss_options();
  const bool class_weight = class_weight_size > 0;
  std::vector<Record> records;
  for (const auto& folder : options.combine) {
    const auto record = read_record(folder);
    if (record && record->range) records.push_back(*record);
  }
  for (const auto& record : records) {
    require_same(record, "--ignore-index", "ignore_index", loss.ignore_index, "--ignore-index");
    if (options.values.contains("logit_scale")) {
      require_same(record, "--logit-scale", "logit_scale", loss.logit_scale, "--logit-scale");
    }
    if (options.values.contains("logit_soft_cap")) {
      require_same(record, "--logit-soft-cap", "logit_soft_cap", loss.logit_soft_cap,
                   "--logit-soft-cap");
    }
    // Without smoothing the weights of other columns than the label's are not used.
    if (loss.label_smoothing != 0.0f &&
        record.options.value("class_weight", class_weight) != class_weight) {
      fail_call(
          fmt::format("--class-weight is {}given here, but it was{} when {} was written; "
                      "with --label-smoothing it takes part in both",
                      class_weight ? "" : "not ", class_weight ? " not" : "", record.folder));
    }
    if (loss.vocab_size_total == 0) loss.vocab_size_total = record.range->total;
    if (loss.vocab_size_total != record.range->total) {
      fail_call(fmt::format("--vocab-size-total is {} here, but {} is a shard of {} columns",
                            loss.vocab_size_total, record.folder, record.range->total));
    }
    const auto& first = records.front();
    for (const char* key : {"logit_scale", "logit_soft_cap"}) {
      if (first.options.contains(key)) {
        require_same(record, first.folder.c_str(), key, first.options.at(key).get<float>(), key);
      }
    }
  }
  if (!records.empty()) {
    loss.logit_scale = records.front().options.value("logit_scale", loss.logit_scale);
    loss.logit_soft_cap = records.front().options.value("logit_soft_cap", loss.logit_soft_cap);
  }
  if (loss.vocab_size_total == 0) loss.vocab_size_total = class_weight_size;
  if (loss.vocab_size_total == 0) {
    fail_call(
        "--combine: no folder has a report.json that says how many columns the whole has; "
        "give --vocab-size-total");
  }
  if (records.size() == options.combine.size()) check_tiling(records, loss.vocab_size_total);
  return loss;
}

void check_statistics_folder(const ScoreOptions& given) {
  const std::string& folder = given.statistics;
  const LossOptions options = given.loss_options();
  const auto record = read_record(folder);
  if (record && record->mode == "shard") {
    fail_call(
        fmt::format("--statistics {}: holds one shard's partial sums; merge all shards with "
                    "--combine and give that folder",
                    folder));
  }
  if (!record || (record->mode != "combine" && record->mode != "backward")) return;
  require_same(*record, "--logit-scale", "logit_scale", options.logit_scale, "--logit-scale");
  require_same(*record, "--logit-soft-cap", "logit_soft_cap", options.logit_soft_cap,
               "--logit-soft-cap");
  if (!given.has_teacher()) return;
  // What was left out here is the default, not what was written.
  const auto teacher = distillation_options(given);
  ScoreOptions same = given;
  for (const auto& option : teacher_options()) same.values[option.name] = option.value(teacher);
  reconcile_teacher(*record, same);
}

}  // namespace tessera::programs
