// Settings that people write as JSON: a `visit` names every key once, with its rule and an explanation;
// reading, checking, writing and the published schema follow from it.
//
//   struct FitSettings {
//     int64_t epochs = 1;
//     void visit(auto& v) { v("epochs", epochs, {.help = "Times the data is gone through", .at_least = 0}); }
//   };
//
// A type that is more than an object of keys has read(json, path), write(folder) and a static schema()
// instead.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep::cli {

struct Rule {
  const char* help = "";
  bool required = false;
  std::optional<double> at_least = {};
  std::optional<double> below = {};
  std::vector<std::string> one_of = {};
  bool file = false;  // the path of a file or folder; relative ones start at the folder of the settings
};

// Throws Error(invalid_argument): "fit.batch_size: expected an integer of at least 1, received "many"".
[[noreturn]] void refuse(const std::string& path, const std::string& expected, const Json& received);
// The same for a key that nothing reads; names the nearest of those that there are.
[[noreturn]] void refuse_key(const std::string& path, const std::string& key,
                             const std::vector<std::string>& known);
std::string join(const std::vector<std::string>& words);
inline std::string child(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}
// Runs f; an Error gets the key in front of its message.
template <class F>
auto at_key(const std::string& path, F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    std::string message = path + ": " + error.message();
    for (const std::string& note : error.notes()) message += "\n  " + note;
    fail(error.code(), error.where(), message);
  }
}

template <class T>
concept ReadsItself = requires(T value, const Json& json, const std::string& path) {
  value.read(json, path);
  value.write(path);
  T::schema();
};

// --- reading -----------------------------------------------------------------------------------------------

void read_value(const Json& json, bool& value, const Rule& rule, const std::string& path);
void read_value(const Json& json, int64_t& value, const Rule& rule, const std::string& path);
void read_value(const Json& json, double& value, const Rule& rule, const std::string& path);
void read_value(const Json& json, std::string& value, const Rule& rule, const std::string& path);
void read_value(const Json& json, std::vector<int64_t>& value, const Rule& rule, const std::string& path);
void read_value(const Json& json, std::vector<std::string>& value, const Rule& rule, const std::string& path);
void read_value(const Json& json, std::map<int64_t, double>& value, const Rule& rule,
                const std::string& path);
inline void read_value(const Json& json, Json& value, const Rule&, const std::string&) { value = json; }
template <class T>
void read_value(const Json& json, std::optional<T>& value, const Rule& rule, const std::string& path) {
  if (json.is_null())
    value.reset();
  else
    read_value(json, value.emplace(), rule, path);
}
template <class T>
requires ReadsItself<T>
void read_value(const Json& json, T& value, const Rule&, const std::string& path) { value.read(json, path); }

class SettingsReader {
 public:
  SettingsReader(const Json& json, std::string path) : json_(json), path_(std::move(path)) {
    if (!json.is_object()) refuse(path_, "an object", json);
  }

  // Keys that the file leaves out keep their value.
  template <class T>
  void operator()(const char* name, T& value, const Rule& rule = {}) {
    known_.emplace_back(name);
    const Json* found = json_.find(name);
    if (!found && rule.required) refuse(path_, "the key \"" + std::string(name) + "\"", json_);
    if (found) read_value(*found, value, rule, child(path_, name));
  }
  // Throws where the file has a key that nothing read.
  void finish() const;

 private:
  const Json& json_;
  std::string path_;
  std::vector<std::string> known_;
};

template <class T>
requires requires(T value, SettingsReader& reader) { value.visit(reader); }
void read_value(const Json& json, T& value, const Rule&, const std::string& path) {
  SettingsReader reader(json, path);
  value.visit(reader);
  reader.finish();
}

// --- writing -----------------------------------------------------------------------------------------------

// What `path` means to a program that runs elsewhere, where relative paths start at `folder`.
std::string absolute_path(const std::string& folder, const std::string& path);

inline Json written_value(bool value, const Rule&, const std::string&) { return value; }
inline Json written_value(int64_t value, const Rule&, const std::string&) { return value; }
inline Json written_value(double value, const Rule&, const std::string&) { return value; }
inline Json written_value(const std::string& value, const Rule& rule, const std::string& folder) {
  return rule.file && !value.empty() ? absolute_path(folder, value) : value;
}
inline Json written_value(const std::vector<int64_t>& value, const Rule&, const std::string&) {
  return Json::List(value.begin(), value.end());
}
inline Json written_value(const std::vector<std::string>& value, const Rule&, const std::string&) {
  return Json::List(value.begin(), value.end());
}
Json written_value(const std::map<int64_t, double>& value, const Rule&, const std::string&);
inline Json written_value(const Json& value, const Rule&, const std::string&) { return value; }
template <class T>
Json written_value(const std::optional<T>& value, const Rule& rule, const std::string& folder) {
  return value ? written_value(*value, rule, folder) : Json();
}
template <class T>
requires ReadsItself<T> Json written_value(const T& value, const Rule&, const std::string& folder) {
  return value.write(folder);
}

// Every key with its value; paths of files are made absolute.
class SettingsWriter {
 public:
  explicit SettingsWriter(std::string folder) : folder_(std::move(folder)) {}
  template <class T>
  void operator()(const char* name, T& value, const Rule& rule = {}) {
    json_.set(name, written_value(value, rule, folder_));
    if (rule.required) required_.emplace_back(name);
  }
  // What is required, and what is not as `defaults` has it.
  Json differing_from(const SettingsWriter& defaults) const;

 private:
  std::string folder_;
  Json json_ = Json::object();
  std::vector<std::string> required_;
};

template <class T>
requires requires(T value, SettingsWriter& writer) { value.visit(writer); }
Json written_value(const T& value, const Rule&, const std::string& folder) {
  T copy = value, defaults;
  SettingsWriter writer(folder), plain(folder);
  copy.visit(writer);
  defaults.visit(plain);
  return writer.differing_from(plain);
}

// --- the schema --------------------------------------------------------------------------------------------

Json typed(const char* type);  // {"type": type}

inline Json value_schema(const bool&) { return typed("boolean"); }
inline Json value_schema(const int64_t&) { return typed("integer"); }
inline Json value_schema(const double&) { return typed("number"); }
inline Json value_schema(const std::string&) { return typed("string"); }
Json value_schema(const std::vector<int64_t>&);
Json value_schema(const std::vector<std::string>&);
Json value_schema(const std::map<int64_t, double>&);
inline Json value_schema(const Json&) { return Json::object(); }
template <class T>
Json value_schema(const std::optional<T>&) {
  return value_schema(T());
}
template <class T>
requires ReadsItself<T> Json value_schema(const T&) { return T::schema(); }

class SettingsSchema {
 public:
  template <class T>
  void operator()(const char* name, T& value, const Rule& rule = {}) {
    add(name, value_schema(value), default_of(value), rule);
  }
  Json take();

 private:
  static Json default_of(bool value) { return value; }
  static Json default_of(int64_t value) { return value; }
  static Json default_of(double value) { return value; }
  static Json default_of(const std::string& value) { return value.empty() ? Json() : Json(value); }
  template <class T>
  static Json default_of(const T&) {
    return {};
  }
  void add(const char* name, Json schema, Json standard, const Rule& rule);

  Json properties_ = Json::object();
  Json required_ = Json::list();
};

template <class T>
requires requires(T value, SettingsSchema& schema) { value.visit(schema); }
Json value_schema(const T&) {
  T defaults;
  SettingsSchema schema;
  defaults.visit(schema);
  return schema.take();
}

}  // namespace lockstep::cli
