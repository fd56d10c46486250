// Options as Keras' configurations: a `visit` names every member once, and reading and writing follow.
//
//   struct DenseSettings {
//     int64_t units = 0;
//     DenseOptions options;
//     void visit(auto& v) { v("units", units, kPositive); v("activation", options.activation); ... }
//   };
//
// Numbers are visited with the range that they must lie in; it does not compile without one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "keras/range.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/keras/mixed_precision.h"
#include "lockstep/ops/conv.h"
#include "lockstep/ops/image.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::keras {

// --- single values -----------------------------------------------------------------------------------------

inline Json to_json(bool value) { return value; }
inline Json to_json(int value) { return value; }
inline Json to_json(int64_t value) { return value; }
inline Json to_json(double value) { return value; }
inline Json to_json(const std::string& value) { return value; }
inline Json to_json(DType value) { return Json(name(value)); }
inline Json to_json(const Json& value) { return value; }
Json to_json(const Padding& value);
Json to_json(const DataFormat& value);
Json to_json(const Interpolation& value);
Json to_json(const FillMode& value);
Json to_json(const DTypePolicy& policy);
Json to_json(const Dims& value);  // -1 becomes null
template <class T>
requires requires(const T& v) {
  { v.serialize() } -> std::convertible_to<Json>;
}
Json to_json(const T& value) {
  if constexpr (requires { value.defined(); })
    if (!value.defined()) return {};
  return value.serialize();
}
template <class T>
Json to_json(const std::vector<T>& values);
template <class T>
Json to_json(const std::optional<T>& value) {
  return value ? to_json(*value) : Json();
}
template <class T>
Json to_json(const std::vector<T>& values) {
  Json list = Json::list();
  for (const T& value : values) list.push_back(to_json(value));
  return list;
}

inline void from_json(const Json& json, bool& value) { value = json.as_bool(); }
inline void from_json(const Json& json, int& value) {
  const int64_t number = json.as_int();
  require(number >= INT32_MIN && number <= INT32_MAX, ErrorCode::invalid_argument,
          std::source_location::current(), "expected an integer from -2^31 to 2^31 - 1, received ", number);
  value = static_cast<int>(number);
}
inline void from_json(const Json& json, int64_t& value) { value = json.as_int(); }
inline void from_json(const Json& json, double& value) { value = json.as_double(); }
inline void from_json(const Json& json, std::string& value) { value = json.as_string(); }
inline void from_json(const Json& json, Json& value) { value = json; }
void from_json(const Json& json, DType& value);
inline void from_json(const Json& json, Padding& value) { value = Padding(json.as_string()); }
inline void from_json(const Json& json, DataFormat& value) {
  // Keras leaves it out where it is the default of the session.
  value = json.is_null() ? DataFormat(DataFormat::channels_last) : DataFormat(json.as_string());
}
inline void from_json(const Json& json, Interpolation& value) { value = Interpolation(json.as_string()); }
inline void from_json(const Json& json, FillMode& value) { value = FillMode(json.as_string()); }
void from_json(const Json& json, DTypePolicy& policy);
void from_json(const Json& json, Dims& value);  // a number is a list of one; null is -1
inline void from_json(const Json& json, Shape& value) {
  Dims dims;
  from_json(json, dims);
  value = dims;
}
template <class T>
requires requires(const Json& j) {
  { T::deserialize(j, std::source_location::current()) } -> std::convertible_to<T>;
}
void from_json(const Json& json, T& value) {
  value = json.is_null() ? T() : T::deserialize(json, std::source_location::current());
}
template <class T>
void from_json(const Json& json, std::vector<T>& values);
template <class T>
void from_json(const Json& json, std::optional<T>& value) {
  if (json.is_null()) {
    value.reset();
  } else {
    from_json(json, value.emplace());
  }
}
template <class T>
void from_json(const Json& json, std::vector<T>& values) {
  values.clear();
  if (!json.is_list()) {
    from_json(json, values.emplace_back());
    return;
  }
  for (const Json& item : json.items()) from_json(item, values.emplace_back());
}

// --- whole structs -----------------------------------------------------------------------------------------

class FieldWriter {
 public:
  template <class T>
  requires(!HoldsNumbers<T>) void operator()(const char* name, const T& value) {
    json_.set(name, to_json(value));
  }
  template <HoldsNumbers T>
  void operator()(const char* name, const T& value, const Range&) {
    json_.set(name, to_json(value));
  }
  Json take() { return std::move(json_); }

 private:
  Json json_ = Json::object();
};

class FieldReader {
 public:
  explicit FieldReader(const Json& json) : json_(json) { json_.members(); }

  // Members that the file leaves out keep their value.
  template <class T>
  requires(!HoldsNumbers<T>) void operator()(const char* name, T& value) { read(name, value); }
  // Ranges are checked where the thing is made (FieldChecker), whoever makes it.
  template <HoldsNumbers T>
  void operator()(const char* name, T& value, const Range&) {
    read(name, value);
  }
  // Members that are read elsewhere.
  void ignore(const char* name) { known_.emplace_back(name); }
  // Throws where the file says something that nothing read: a misspelt name must not be lost. null and false
  // switch on nothing, so they pass.
  void finish() const;

 private:
  template <class T>
  void read(const char* name, T& value) {
    known_.emplace_back(name);
    const Json* found = json_.find(name);
    if (!found) return;
    try {
      from_json(*found, value);
    } catch (Error& error) {
      error.note("in \"" + std::string(name) + "\"");
      throw;
    }
  }

  const Json& json_;
  std::vector<std::string> known_;
};

// Throws where a number is out of its range, naming the owner, the member, the range and the number.
class FieldChecker {
 public:
  explicit FieldChecker(std::string owner) : owner_(std::move(owner)) {}

  template <class T>
  requires(!HoldsNumbers<T>) void operator()(const char*, const T&) {}
  template <HoldsNumbers T>
  void operator()(const char* name, const T& value, const Range& range) {
    require_in(range, owner_, name, value);
  }

 private:
  std::string owner_;
};

// What is made of settings calls this first.
template <class Settings>
void check_fields(const Settings& settings, const std::string& owner) {
  FieldChecker checker(owner);
  const_cast<Settings&>(settings).visit(checker);  // one visit for all; a checker changes nothing
}

template <class Settings>
Json write_fields(const Settings& settings) {
  FieldWriter writer;
  const_cast<Settings&>(settings).visit(
      writer);  // one visit for reading and writing; a writer changes nothing
  return writer.take();
}

template <class Settings>
Settings read_fields(const Json& config) {
  Settings settings;
  FieldReader reader(config);
  settings.visit(reader);
  reader.finish();
  return settings;
}

}  // namespace lockstep::keras
