#include "keras/fields.h"

#include <cctype>

#include "keras/registry.h"

namespace lockstep::keras {

std::string to_snake_case(std::string_view class_name) {
  const auto upper = [](char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; };
  const auto lower = [](char c) { return std::islower(static_cast<unsigned char>(c)) != 0; };
  // A capital that small letters follow starts a word; so does, after that, one behind a small letter.
  std::string words;
  for (size_t i = 0; i < class_name.size();) {
    words += class_name[i++];
    if (i + 1 >= class_name.size() || !upper(class_name[i]) || !lower(class_name[i + 1])) continue;
    words += '_';
    words += class_name[i++];
    while (i < class_name.size() && lower(class_name[i])) words += class_name[i++];
  }
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0 && upper(words[i]) && lower(words[i - 1])) text += '_';
    text += static_cast<char>(std::tolower(static_cast<unsigned char>(words[i])));
  }
  return text;
}

Json serialized(std::string_view module, std::string_view class_name, Json config) {
  // A class of a user's own is found by the name that it was registered by alone.
  if (const size_t package = class_name.find('>'); package != std::string_view::npos)
    return Json::object({{"module", nullptr},
                         {"class_name", class_name.substr(package + 1)},
                         {"config", std::move(config)},
                         {"registered_name", class_name}});
  return Json::object({{"module", module},
                       {"class_name", class_name},
                       {"config", std::move(config)},
                       {"registered_name", nullptr}});
}

Json to_json(const DTypePolicy& policy) {
  return serialized("keras", "DTypePolicy", Json::object({{"name", policy.name()}}));
}

void from_json(const Json& json, DTypePolicy& policy) {
  if (json.is_null()) {
    policy = {};
  } else if (json.is_string()) {
    policy = DTypePolicy(json.as_string());
  } else {
    policy = DTypePolicy(json.at("config").at("name").as_string());
  }
}

Json to_json(const Padding& value) {
  static constexpr const char* kNames[] = {"valid", "same", "causal"};
  return kNames[value.kind()];
}
Json to_json(const DataFormat& value) {
  return value.kind() == DataFormat::channels_first ? "channels_first" : "channels_last";
}
Json to_json(const Interpolation& value) { return std::string(value.name()); }
Json to_json(const FillMode& value) {
  static constexpr const char* kNames[] = {"constant", "nearest", "reflect", "wrap"};
  return kNames[value.kind()];
}

Json to_json(const Dims& value) {
  Json list = Json::list();
  for (const int64_t size : value) list.push_back(size < 0 ? Json() : Json(size));
  return list;
}

void from_json(const Json& json, Dims& value) {
  value = {};
  if (json.is_int()) {
    value.push_back(json.as_int());
    return;
  }
  for (const Json& item : json.items()) value.push_back(item.is_null() ? -1 : item.as_int());
}

void from_json(const Json& json, DType& value) {
  const std::string& text = json.as_string();
  for (int i = 0; i <= static_cast<int>(DType::boolean); ++i)
    if (name(static_cast<DType>(i)) == text) {
      value = static_cast<DType>(i);
      return;
    }
  fail(ErrorCode::invalid_argument, std::source_location::current(), "there is no dtype \"", text, "\"");
}

std::ostream& operator<<(std::ostream& out, const Range& range) {
  const bool low = std::isfinite(range.low), high = std::isfinite(range.high);
  if (!low && !high) return out << "a finite number";
  if (range.low == 0 && range.above_low && !high) return out << "positive";
  if (low && high && !range.above_low && !range.below_high)
    return out << "from " << range.low << " to " << range.high;
  if (low) out << (range.above_low ? "above " : "at least ") << range.low;
  if (low && high) out << " and ";
  if (high) out << (range.below_high ? "below " : "at most ") << range.high;
  return out;
}

void FieldReader::finish() const {
  for (const auto& [name, value] : json_.members()) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    if (value.is_null() || (value.is_bool() && !value.as_bool())) continue;
    const std::string near = nearest_spelling(name, known_);
    std::string known;
    for (const std::string& key : known_) known += (known.empty() ? "" : ", ") + key;
    fail(ErrorCode::invalid_argument, std::source_location::current(), "unknown setting \"", name, "\"",
         near.empty() ? "" : "; did you mean \"" + near + "\"?", " There are ", known);
  }
}

}  // namespace lockstep::keras
