#include "lockstep/base/json.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Parsed = nlohmann::ordered_json;

Json from_parsed(const Parsed& p) {
  switch (p.type()) {
    case Parsed::value_t::boolean: return p.get<bool>();
    case Parsed::value_t::number_integer: return p.get<int64_t>();
    case Parsed::value_t::number_unsigned: {
      const uint64_t value = p.get<uint64_t>();
      if (value > static_cast<uint64_t>(INT64_MAX)) return static_cast<double>(value);
      return static_cast<int64_t>(value);
    }
    case Parsed::value_t::number_float: return p.get<double>();
    case Parsed::value_t::string: return p.get<std::string>();
    case Parsed::value_t::array: {
      Json::List list;
      list.reserve(p.size());
      for (const Parsed& item : p) list.push_back(from_parsed(item));
      return list;
    }
    case Parsed::value_t::object: {
      Json::Members members;
      members.reserve(p.size());
      for (const auto& [name, value] : p.items()) members.emplace_back(name, from_parsed(value));
      return Json::object(std::move(members));
    }
    default: return {};
  }
}

Parsed to_parsed(const Json& json) {
  if (json.is_bool()) return json.as_bool();
  if (json.is_int()) return json.as_int();
  if (json.is_number()) return json.as_double();
  if (json.is_string()) return json.as_string();
  if (json.is_list()) {
    Parsed list = Parsed::array();
    for (const Json& item : json.items()) list.push_back(to_parsed(item));
    return list;
  }
  if (json.is_object()) {
    Parsed object = Parsed::object();
    for (const auto& [name, value] : json.members()) object[name] = to_parsed(value);
    return object;
  }
  return nullptr;
}

// An excerpt for messages.
std::string shown(const Json& json) {
  std::string text = json.dump();
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

[[noreturn]] void refuse(const char* expected, const Json& json, std::source_location where) {
  fail(ErrorCode::invalid_argument, where, "expected ", expected, ", received ", shown(json));
}

// A wrong case weighs little, so that it only decides between names that are equally near.
constexpr size_t kEdit = 64;

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j * kEdit;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i * kEdit;
    for (size_t j = 1; j <= b.size(); ++j) {
      const char x = a[i - 1], y = b[j - 1];
      const size_t substituted = diagonal + (x == y ? 0 : std::tolower(x) == std::tolower(y) ? 1 : kEdit);
      diagonal = row[j];
      row[j] = std::min({row[j] + kEdit, row[j - 1] + kEdit, substituted});
    }
  }
  return row.back();
}

}  // namespace

Json Json::object(Members members) {
  Json json;
  json.value_ = std::move(members);
  return json;
}

bool Json::as_bool(std::source_location where) const {
  if (!is_bool()) refuse("true or false", *this, where);
  return std::get<bool>(value_);
}

int64_t Json::as_int(std::source_location where) const {
  if (is_int()) return std::get<int64_t>(value_);
  const double* number = std::get_if<double>(&value_);
  if (!number || *number != std::floor(*number) || std::abs(*number) >= 9e15)
    refuse("an integer", *this, where);
  return static_cast<int64_t>(*number);
}

double Json::as_double(std::source_location where) const {
  if (is_int()) return static_cast<double>(std::get<int64_t>(value_));
  if (!is_number()) refuse("a number", *this, where);
  return std::get<double>(value_);
}

const std::string& Json::as_string(std::source_location where) const {
  if (!is_string()) refuse("a string", *this, where);
  return std::get<std::string>(value_);
}

const Json::List& Json::items(std::source_location where) const& {
  if (!is_list()) refuse("a list", *this, where);
  return std::get<List>(value_);
}

const Json::Members& Json::members(std::source_location where) const& {
  if (!is_object()) refuse("an object", *this, where);
  return std::get<Members>(value_);
}

const Json* Json::find(std::string_view name) const {
  const auto* members = std::get_if<Members>(&value_);
  if (!members) return nullptr;
  const auto found = std::find_if(members->begin(), members->end(),
                                  [&](const Member& member) { return member.first == name; });
  return found == members->end() ? nullptr : &found->second;
}

const Json& Json::at(std::string_view name, std::source_location where) const {
  const Json* found = find(name);
  if (!found) fail(ErrorCode::not_found, where, "there is no member \"", name, "\" in ", shown(*this));
  return *found;
}

const Json& Json::at(size_t position, std::source_location where) const {
  const List& list = items(where);
  if (position >= list.size())
    fail(ErrorCode::not_found, where, "there is no item ", position, " in ", shown(*this));
  return list[position];
}

Json& Json::set(std::string_view name, Json value) {
  (*this)[name] = std::move(value);
  return *this;
}

Json& Json::operator[](std::string_view name) {
  if (is_null()) value_ = Members{};
  members();
  auto& own = std::get<Members>(value_);
  for (auto& [key, value] : own)
    if (key == name) return value;
  return own.emplace_back(std::string(name), Json()).second;
}

void Json::push_back(Json value) {
  if (is_null()) value_ = List{};
  items();
  std::get<List>(value_).push_back(std::move(value));
}

bool Json::erase(std::string_view name) {
  auto* own = std::get_if<Members>(&value_);
  return own && std::erase_if(*own, [&](const Member& member) { return member.first == name; }) > 0;
}

Json Json::parse(std::string_view text, std::string_view source, std::source_location where) {
  // Recursion follows the nesting, so its depth is limited before anything is built.
  int depth = 0;
  const auto limit = [&](int, Parsed::parse_event_t event, Parsed&) {
    if (event == Parsed::parse_event_t::object_start || event == Parsed::parse_event_t::array_start) {
      require(++depth <= 512, ErrorCode::invalid_argument, where, source, ": nested deeper than 512 levels");
    } else if (event == Parsed::parse_event_t::object_end || event == Parsed::parse_event_t::array_end) {
      --depth;
    }
    return true;
  };
  try {
    return from_parsed(Parsed::parse(text, limit));
  } catch (const Parsed::exception& error) {
    std::string message = error.what();
    // nlohmann's prefix "[json.exception.parse_error.101] " says nothing to a reader.
    if (const size_t end = message.find("] "); message.starts_with('[') && end != std::string::npos)
      message.erase(0, end + 2);
    fail(ErrorCode::invalid_argument, where, source, ": ", message);
  }
}

Json Json::read_file(const std::string& path, std::source_location where) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  require(static_cast<bool>(file), ErrorCode::io, where, "cannot read \"", path, "\"; does the file exist?");
  return parse(text.str(), path, where);
}

std::string Json::dump(int indent) const {
  return to_parsed(*this).dump(indent, ' ', false, Parsed::error_handler_t::replace);
}

std::ostream& operator<<(std::ostream& out, const Json& json) { return out << json.dump(); }

std::string nearest_spelling(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  // A third of the letters wrong is another word.
  size_t best_distance = (name.size() / 3 + 2) * kEdit;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace lockstep
