#include "cli/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

namespace lockstep::cli {
namespace {

std::string shown(const Json& json) {
  std::string text = json.dump();
  return text.size() > 80 ? text.substr(0, 77) + "..." : text;
}

// Without a fraction where it has none.
Json number(double value) {
  return value == std::floor(value) && std::abs(value) < 9e15 ? Json(static_cast<int64_t>(value))
                                                              : Json(value);
}

// A range of whole numbers, short.
std::string whole_limits(const Rule& rule) {
  if (rule.at_least && rule.below)
    return " from " + number(*rule.at_least).dump() + " to " + number(*rule.below - 1).dump();
  if (rule.at_least) return " of at least " + number(*rule.at_least).dump();
  return rule.below ? " below " + number(*rule.below).dump() : "";
}

std::string limits(const Rule& rule) {
  std::string text;
  if (rule.at_least) text += " of at least " + number(*rule.at_least).dump();
  if (rule.below) text += std::string(rule.at_least ? " and" : "") + " below " + number(*rule.below).dump();
  return text;
}

bool within(double value, const Rule& rule) {
  return (!rule.at_least || value >= *rule.at_least) && (!rule.below || value < *rule.below);
}

}  // namespace

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

void refuse(const std::string& path, const std::string& expected, const Json& received) {
  fail(ErrorCode::invalid_argument, std::source_location::current(), path.empty() ? "the run file" : path,
       ": expected ", expected, ", received ", shown(received));
}

void refuse_key(const std::string& path, const std::string& key, const std::vector<std::string>& known) {
  const std::string near = nearest_spelling(key, known);
  fail(ErrorCode::invalid_argument, std::source_location::current(), child(path, key),
       ": there is no such key", near.empty() ? "." : "; did you mean \"" + near + "\"?", " There are ",
       join(known));
}

void read_value(const Json& json, bool& value, const Rule&, const std::string& path) {
  if (!json.is_bool()) refuse(path, "true or false", json);
  value = json.as_bool();
}

void read_value(const Json& json, int64_t& value, const Rule& rule, const std::string& path) {
  const bool whole = json.is_int() || (json.is_number() && number(json.as_double()).is_int());
  if (!whole || !within(json.as_double(), rule)) refuse(path, "an integer" + whole_limits(rule), json);
  value = json.as_int();
}

void read_value(const Json& json, double& value, const Rule& rule, const std::string& path) {
  if (!json.is_number() || !within(json.as_double(), rule)) refuse(path, "a number" + limits(rule), json);
  value = json.as_double();
}

void read_value(const Json& json, std::string& value, const Rule& rule, const std::string& path) {
  if (!json.is_string()) refuse(path, "a string", json);
  value = json.as_string();
  // Paths above all: the system would not read on behind it.
  if (value.find('\0') != std::string::npos) refuse(path, "text without a NUL character", json);
  if (rule.one_of.empty() || std::find(rule.one_of.begin(), rule.one_of.end(), value) != rule.one_of.end())
    return;
  const std::string near = nearest_spelling(value, rule.one_of);
  refuse(path, "one of " + join(rule.one_of) + (near.empty() ? "" : " (did you mean \"" + near + "\"?)"),
         json);
}

void read_value(const Json& json, std::vector<int64_t>& value, const Rule& rule, const std::string& path) {
  if (!json.is_list()) refuse(path, "a list of integers", json);
  value.clear();
  for (const Json& item : json.items()) read_value(item, value.emplace_back(), rule, path);
}

void read_value(const Json& json, std::vector<std::string>& value, const Rule& rule,
                const std::string& path) {
  if (!json.is_list()) refuse(path, "a list of strings", json);
  value.clear();
  for (const Json& item : json.items()) read_value(item, value.emplace_back(), rule, path);
}

void read_value(const Json& json, std::map<int64_t, double>& value, const Rule&, const std::string& path) {
  if (!json.is_object()) refuse(path, "an object from class numbers to weights", json);
  value.clear();
  for (const auto& [key, weight] : json.members()) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
    if (error != std::errc() || end != key.data() + key.size())
      refuse(path, "class numbers as keys", Json(key));
    read_value(weight, value[number], {.at_least = 0}, child(path, key));
  }
}

void SettingsReader::finish() const {
  for (const auto& [key, value] : json_.members())
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) refuse_key(path_, key, known_);
}

std::string absolute_path(const std::string& folder, const std::string& path) {
  return std::filesystem::absolute(std::filesystem::path(folder) / path).lexically_normal().string();
}

Json written_value(const std::map<int64_t, double>& value, const Rule&, const std::string&) {
  Json json = Json::object();
  for (const auto& [key, number] : value) json.set(std::to_string(key), number);
  return json;
}

Json SettingsWriter::differing_from(const SettingsWriter& defaults) const {
  Json json = Json::object();
  for (const auto& [name, value] : json_.members()) {
    const Json* standard = defaults.json_.find(name);
    const bool required = std::find(required_.begin(), required_.end(), name) != required_.end();
    if (required || !standard || *standard != value) json.set(name, value);
  }
  return json;
}

Json typed(const char* type) { return Json::object({{"type", type}}); }

Json value_schema(const std::vector<int64_t>&) {
  return Json::object({{"type", "array"}, {"items", typed("integer")}});
}

Json value_schema(const std::vector<std::string>&) {
  return Json::object({{"type", "array"}, {"items", typed("string")}});
}

Json value_schema(const std::map<int64_t, double>&) {
  return Json::object({{"type", "object"}, {"additionalProperties", typed("number")}});
}

void SettingsSchema::add(const char* name, Json schema, Json standard, const Rule& rule) {
  Json entry = Json::object();
  if (*rule.help != '\0') entry.set("description", rule.help);
  for (const auto& [key, value] : schema.members()) entry.set(key, value);
  if (rule.at_least) entry.set("minimum", number(*rule.at_least));
  if (rule.below) entry.set("exclusiveMaximum", number(*rule.below));
  if (!rule.one_of.empty()) entry.set("enum", Json::List(rule.one_of.begin(), rule.one_of.end()));
  if (!rule.required && !standard.is_null()) entry.set("default", std::move(standard));
  if (rule.required) required_.push_back(name);
  properties_.set(name, std::move(entry));
}

Json SettingsSchema::take() {
  Json schema = Json::object({{"type", "object"}, {"properties", std::move(properties_)}});
  if (required_.is_list() && !required_.items().empty()) schema.set("required", std::move(required_));
  schema.set("additionalProperties", false);
  return schema;
}

}  // namespace lockstep::cli
