#include "lockstep/base/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>
#include <unordered_set>

#include "base/file.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Parser = nlohmann::json;

// "line 3, column 7" of a position in a text.
std::string place_of(std::string_view text, size_t position) {
  const std::string_view before = text.substr(0, position);
  const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  const size_t begin = before.rfind('\n');
  return detail::concat("line ", line + 1, ", column ",
                        begin == std::string_view::npos ? position + 1 : position - begin);
}

// Builds the value while the text is read.
class Builder final : public nlohmann::json_sax<Parser> {
 public:
  Builder(std::string_view source, std::source_location where) : source_(source), where_(where) {}
  Json take() { return std::move(root_); }

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override {
    return add(value > static_cast<uint64_t>(INT64_MAX) ? Json(static_cast<double>(value))
                                                        : Json(static_cast<int64_t>(value)));
  }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Parser::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(true); }
  bool start_array(size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    Open& object = open_.back();
    // A few names are compared faster than they are entered.
    constexpr size_t kFew = 16;
    bool fresh = true;
    if (object.members.size() < kFew) {
      for (const Json::Member& member : object.members) fresh = fresh && member.first != name;
    } else {
      if (object.names.empty())
        for (const Json::Member& member : object.members) object.names.insert(member.first);
      fresh = object.names.insert(name).second;
    }
    require(fresh, ErrorCode::invalid_argument, where_, source_, ": the key \"", name,
            "\" is there twice in one object; leave one of the two out");
    object.members.emplace_back(std::move(name), Json());
    return true;
  }
  bool parse_error(size_t, const std::string&, const Parser::exception& error) override {
    std::string message = error.what();
    // nlohmann's prefix "[json.exception.parse_error.101] " says nothing to a reader.
    if (const size_t end = message.find("] "); message.starts_with('[') && end != std::string::npos)
      message.erase(0, end + 2);
    fail(ErrorCode::invalid_argument, where_, source_, ": ", message);
  }

 private:
  struct Open {
    bool is_object;
    Json::List items = {};
    Json::Members members = {};
    std::unordered_set<std::string> names = {};  // of the members, once there are many
  };

  bool add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_object) {
      open_.back().members.back().second = std::move(value);
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }
  bool open(bool is_object) {
    // What walks through a value recurses as deep as it is nested.
    require(open_.size() < 512, ErrorCode::invalid_argument, where_, source_,
            ": nested deeper than 512 levels");
    open_.push_back({.is_object = is_object});
    return true;
  }
  bool close() {
    Open closed = std::move(open_.back());
    open_.pop_back();
    return add(closed.is_object ? Json::object(std::move(closed.members)) : Json(std::move(closed.items)));
  }

  std::string_view source_;
  std::source_location where_;
  std::vector<Open> open_;
  Json root_;
};

void write_value(const Json& json, int indent, int depth, std::string& out) {
  const auto scalar = [&](const Parser& value) {
    out += value.dump(-1, ' ', false, Parser::error_handler_t::replace);
  };
  const auto new_line = [&](int level) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(indent) * static_cast<size_t>(level), ' ');
  };
  // Between `begin` and `end`, what each() writes of every item.
  const auto group = [&](char begin, char end, const auto& items, const auto& each) {
    out += begin;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out += ',';
      first = false;
      new_line(depth + 1);
      each(item);
    }
    if (!first) new_line(depth);
    out += end;
  };
  if (json.is_object()) {
    group('{', '}', json.members(), [&](const Json::Member& member) {
      scalar(member.first);
      out += indent < 0 ? ":" : ": ";
      write_value(member.second, indent, depth + 1, out);
    });
  } else if (json.is_list()) {
    group('[', ']', json.items(), [&](const Json& item) { write_value(item, indent, depth + 1, out); });
  } else if (json.is_bool()) {
    out += json.as_bool() ? "true" : "false";
  } else if (json.is_int()) {
    out += std::to_string(json.as_int());
  } else if (json.is_number()) {
    scalar(json.as_double());
  } else if (json.is_string()) {
    scalar(json.as_string());
  } else {
    out += "null";
  }
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
  // The parser takes a NUL for the end.
  const size_t nul = text.find('\0');
  require(nul == std::string_view::npos, ErrorCode::invalid_argument, where, source,
          ": there is a NUL character at ", place_of(text, std::min(nul, text.size())), "; JSON is text");
  Builder builder(source, where);
  Parser::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

Json Json::read_file(const std::string& path, std::source_location where) {
  return parse(lockstep::read_file(path, where), path, where);
}

std::string Json::dump(int indent) const {
  std::string text;
  write_value(*this, indent, 0, text);
  return text;
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
