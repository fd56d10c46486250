#include "cli/checkpoint_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/checkpoint_file.h"

namespace lockstep::cli {
namespace {

using train::CheckpointFile;

template <class T>
double as_double(T value) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

// Infinite or NaN where one of them is; integers that float64 cannot tell apart have a distance too.
template <class T>
double distance(T a, T b) {
  if constexpr (std::is_same_v<T, int64_t>) {
    return static_cast<double>(a > b ? static_cast<uint64_t>(a) - static_cast<uint64_t>(b)
                                     : static_cast<uint64_t>(b) - static_cast<uint64_t>(a));
  } else {
    const double left = as_double(a), right = as_double(b);
    const bool same = left == right || (std::isnan(left) && std::isnan(right));
    return same ? 0 : std::abs(left - right);
  }
}

struct Difference {
  double most = 0;
  int64_t count = 0;
};

Difference difference(const Tensor& a, const Tensor& b, double tolerance) {
  return dispatch(a.dtype(), [&]<class T>() {
    const std::vector<T> left = a.to_vector<T>(), right = b.to_vector<T>();
    Difference found;
    for (size_t i = 0; i < left.size(); ++i) {
      const double apart = distance<T>(left[i], right[i]);
      if (apart <= tolerance) continue;
      ++found.count;
      found.most = std::isnan(apart) || std::isnan(found.most) ? std::nan("") : std::max(found.most, apart);
    }
    return found;
  });
}

// JSON has no NaN and no infinity.
Json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}
std::string number_text(const Json* json) {
  if (!json || json->is_null()) return "-";
  return json->is_string() ? json->as_string() : fmt::format("{:.6g}", json->as_double());
}

void add_stats(Json& row, const Tensor& tensor) {
  double least = std::numeric_limits<double>::infinity(), most = -least, sum = 0;
  int64_t nan = 0, counted = 0;
  dispatch(tensor.dtype(), [&]<class T>() {
    for (const T element : tensor.to_vector<T>()) {
      const double value = as_double<T>(element);
      if (std::isnan(value)) {
        ++nan;
        continue;
      }
      least = std::min(least, value);
      most = std::max(most, value);
      sum += value;
      ++counted;
    }
  });
  row.set("min", counted > 0 ? number(least) : Json());
  row.set("max", counted > 0 ? number(most) : Json());
  row.set("mean", counted > 0 ? number(sum / static_cast<double>(counted)) : Json());
  row.set("nan", nan);
}

std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string spec_text(const TensorSpec& spec) { return detail::concat(spec); }

// Columns as wide as they have to be; text to the left, numbers to the right.
std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& to_the_right) {
  std::vector<size_t> widths(to_the_right.size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += to_the_right[i] ? fmt::format("  {:>{}}", row[i], widths[i])
                              : fmt::format("  {:<{}}", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::vector<std::string> names_of(const CheckpointFile& file) {
  std::vector<std::string> names;
  for (const auto& entry : file.entries()) names.push_back(entry.name);
  return names;
}

}  // namespace

std::string checkpoint_path(const std::string& given) {
  if (!is_folder(given)) return CheckpointFile(given).path();
  const std::optional<std::string> latest = train::latest_checkpoint(given);
  require(latest.has_value(), ErrorCode::not_found, std::source_location::current(),
          "there is no checkpoint in \"", given, "\"");
  return CheckpointFile(*latest).path();
}

Json inspect_checkpoint(const std::string& path, bool stats) {
  const CheckpointFile file(path);
  Json tensors = Json::list();
  int64_t bytes = 0;
  for (const auto& entry : file.entries()) {
    const auto size = static_cast<int64_t>(entry.spec.bytes());
    bytes += size;
    Json row = Json::object({{"name", entry.name},
                             {"dtype", name(entry.spec.dtype)},
                             {"shape", Json::List(entry.spec.shape.begin(), entry.spec.shape.end())},
                             {"bytes", size},
                             {"crc32c", fmt::format("{:08x}", entry.crc32c)}});
    if (!entry.variable.empty()) row.set("variable", entry.variable);
    if (stats) add_stats(row, file.read(entry.name));
    tensors.push_back(std::move(row));
  }
  return Json::object({{"path", file.path()},
                       {"save_counter", file.save_counter()},
                       {"saved_at", file.saved_at()},
                       {"library", file.library_version()},
                       {"bytes", bytes},
                       {"objects", file.objects()},
                       {"tensors", std::move(tensors)}});
}

std::string inspection_text(const Json& inspection) {
  const Json::List& tensors = inspection.at("tensors").items();
  const auto seconds = static_cast<std::time_t>(inspection.at("saved_at").as_double());
  std::string text = fmt::format("{}\n  saved {:%Y-%m-%d %H:%M:%S} by Lockstep {}{}: {} tensors, {}\n",
                                 inspection.at("path").as_string(), fmt::localtime(seconds),
                                 inspection.at("library").as_string(),
                                 inspection.at("save_counter").as_int() > 0
                                     ? fmt::format(", save {}", inspection.at("save_counter").as_int())
                                     : "",
                                 tensors.size(), bytes_text(inspection.at("bytes").as_int()));
  std::string objects;
  for (const auto& [name, object] : inspection.at("objects").members())
    objects += (objects.empty() ? "" : ", ") + name + " (" + object.at("kind").as_string() + ")";
  text += "  holds " + (objects.empty() ? "nothing" : objects) + "\n\n";

  const bool stats = !tensors.empty() && tensors[0].contains("nan");
  std::vector<std::vector<std::string>> rows{{"name", "dtype", "shape", "bytes"}};
  std::vector<bool> right{false, false, false, true};
  if (stats)
    for (const char* column : {"min", "max", "mean", "NaN"})
      rows[0].emplace_back(column), right.push_back(true);
  rows[0].emplace_back("variable");
  right.push_back(false);
  for (const Json& tensor : tensors) {
    std::string shape = tensor.at("shape").dump();
    std::vector<std::string> row{tensor.at("name").as_string(), tensor.at("dtype").as_string(),
                                 std::move(shape), std::to_string(tensor.at("bytes").as_int())};
    if (stats)
      for (const char* column : {"min", "max", "mean", "nan"})
        row.push_back(number_text(tensor.find(column)));
    const Json* variable = tensor.find("variable");
    row.push_back(variable ? variable->as_string() : "");
    rows.push_back(std::move(row));
  }
  return text + table(rows, right);
}

Json diff_checkpoints(const std::string& path_a, const std::string& path_b, double tolerance) {
  const CheckpointFile a(path_a), b(path_b);
  Json only_a = Json::list(), only_b = Json::list(), differing = Json::list();
  for (const std::string& name : names_of(b))
    if (!a.find(name)) only_b.push_back(name);
  for (const auto& entry : a.entries()) {
    const auto* other = b.find(entry.name);
    if (!other) {
      only_a.push_back(entry.name);
      continue;
    }
    if (other->spec != entry.spec) {
      differing.push_back(
          Json::object({{"name", entry.name}, {"a", spec_text(entry.spec)}, {"b", spec_text(other->spec)}}));
      continue;
    }
    const Difference found = difference(a.read(entry.name), b.read(entry.name), tolerance);
    if (found.count > 0)
      differing.push_back(Json::object({{"name", entry.name},
                                        {"max_difference", number(found.most)},
                                        {"differing_elements", found.count},
                                        {"elements", entry.spec.shape.size()}}));
  }
  const bool same = only_a.items().empty() && only_b.items().empty() && differing.items().empty();
  return Json::object({{"a", a.path()},
                       {"b", b.path()},
                       {"same", same},
                       {"only_in_a", std::move(only_a)},
                       {"only_in_b", std::move(only_b)},
                       {"differing", std::move(differing)}});
}

std::string diff_text(const Json& diff) {
  if (diff.at("same").as_bool()) return "the same\n";
  std::string text;
  for (const char* side : {"a", "b"}) {
    const Json::List& names = diff.at(std::string("only_in_") + side).items();
    if (names.empty()) continue;
    text += fmt::format("only in {}:\n", diff.at(side).as_string());
    for (const Json& name : names) text += "  " + name.as_string() + "\n";
  }
  std::vector<std::vector<std::string>> rows;
  for (const Json& tensor : diff.at("differing").items())
    rows.push_back(
        {tensor.at("name").as_string(),
         tensor.contains("a")
             ? fmt::format("{} and {}", tensor.at("a").as_string(), tensor.at("b").as_string())
             : fmt::format("up to {} in {} of {} elements", number_text(tensor.find("max_difference")),
                           tensor.at("differing_elements").as_int(), tensor.at("elements").as_int())});
  return rows.empty() ? text : text + "differing:\n" + table(rows, {false, false});
}

Json verify_checkpoint(const std::string& path) {
  Json problems = Json::list();
  try {
    for (const std::string& problem : CheckpointFile(path).verify()) problems.push_back(problem);
  } catch (const Error& error) {
    problems.push_back(error.message());
  }
  const bool good = problems.items().empty();
  return Json::object({{"path", path}, {"good", good}, {"problems", std::move(problems)}});
}

}  // namespace lockstep::cli
