// Json: a JSON value, for configurations that programs write and people edit. Objects keep the order in
// which their members were set.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

class Json {
 public:
  using List = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Members = std::vector<Member>;

  // NOLINTBEGIN(google-explicit-constructor): {"rate", 0.5} is a member
  Json() = default;  // null
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  template <std::integral T>
  Json(T value) : value_(static_cast<int64_t>(value)) {}
  template <std::floating_point T>
  Json(T value) : value_(static_cast<double>(value)) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(List values) : value_(std::move(values)) {}
  // NOLINTEND(google-explicit-constructor)
  static Json object(Members members = {});
  static Json list(List values = {}) { return Json(std::move(values)); }

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  bool is_number() const { return is_int() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_list() const { return std::holds_alternative<List>(value_); }
  bool is_object() const { return std::holds_alternative<Members>(value_); }

  // The value as this kind; throws Error(invalid_argument) that shows the value where it is another.
  // A number without a fraction is an integer too.
  bool as_bool(std::source_location where = std::source_location::current()) const;
  int64_t as_int(std::source_location where = std::source_location::current()) const;
  double as_double(std::source_location where = std::source_location::current()) const;
  const std::string& as_string(std::source_location where = std::source_location::current()) const;
  const List& items(std::source_location where = std::source_location::current()) const&;
  const Members& members(std::source_location where = std::source_location::current()) const&;
  // A loop over what a temporary holds outlives it.
  const List& items() && = delete;
  const Members& members() && = delete;

  // A member of an object: none where it has no such member or is no object.
  const Json* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  // Throws Error(not_found) where there is no such member.
  const Json& at(std::string_view name, std::source_location where = std::source_location::current()) const;
  const Json& at(size_t position, std::source_location where = std::source_location::current()) const;
  // Makes an object of null; the member is replaced where it exists.
  Json& set(std::string_view name, Json value);
  Json& operator[](std::string_view name);  // added as null where it is missing
  void push_back(Json value);               // makes a list of null
  bool erase(std::string_view name);

  bool operator==(const Json&) const = default;

  // Throws Error(invalid_argument) with line and column. `source` names the text in the message.
  static Json parse(std::string_view text, std::string_view source = "JSON",
                    std::source_location where = std::source_location::current());
  static Json read_file(const std::string& path,
                        std::source_location where = std::source_location::current());
  // indent < 0: one line.
  std::string dump(int indent = -1) const;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, List, Members> value_;
};

std::ostream& operator<<(std::ostream& out, const Json& json);

// The candidate that a misspelt `name` most likely meant; empty where none is near.
std::string nearest_spelling(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace lockstep
