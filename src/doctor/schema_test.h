// What the doctor writes, held against its schema.
#pragma once

#include <algorithm>
#include <string>

#include "lockstep/base/json.h"

namespace lockstep::doctor {

// As much of JSON Schema as docs/doctor.schema.json uses. Returns the path of the first thing that does not
// fit.
class Schema {
 public:
  explicit Schema(const std::string& file) : root_(Json::read_file(file)) {}
  std::string mismatch(const Json& value) const { return mismatch(root_, value, "$"); }
  // As one of its "$defs".
  std::string mismatch(const Json& value, const std::string& part) const {
    return mismatch(root_.at("$defs").at(part), value, "$");
  }

 private:
  static bool is(const Json& value, const std::string& type) {
    return type == "null"      ? value.is_null()
           : type == "string"  ? value.is_string()
           : type == "boolean" ? value.is_bool()
           : type == "integer" ? value.is_int()
           : type == "number"  ? value.is_number()
           : type == "array"   ? value.is_list()
           : type == "object"  ? value.is_object()
                               : false;
  }

  std::string mismatch(const Json& schema, const Json& value, const std::string& path) const {
    if (const Json* reference = schema.find("$ref")) {
      const std::string& name = reference->as_string();
      return mismatch(root_.at("$defs").at(name.substr(name.rfind('/') + 1)), value, path);
    }
    if (const Json* constant = schema.find("const")) return value == *constant ? "" : path;
    if (const Json* choices = schema.find("enum")) {
      const auto& items = choices->items();
      return std::find(items.begin(), items.end(), value) != items.end() ? "" : path;
    }
    const Json& type = schema.at("type");
    bool fits = type.is_string() && is(value, type.as_string());
    if (type.is_list())
      for (const Json& one : type.items()) fits = fits || is(value, one.as_string());
    if (!fits) return path + " is no " + type.dump();
    if (value.is_list())
      for (size_t i = 0; i < value.items().size(); ++i)
        if (std::string wrong =
                mismatch(schema.at("items"), value.at(i), path + "[" + std::to_string(i) + "]");
            !wrong.empty())
          return wrong;
    if (!value.is_object()) return "";
    if (const Json* required = schema.find("required"))
      for (const Json& name : required->items())
        if (!value.contains(name.as_string())) return path + " has no " + name.as_string();
    const Json* properties = schema.find("properties");
    const Json* others = schema.find("additionalProperties");
    for (const auto& [name, member] : value.members()) {
      const Json* known = properties ? properties->find(name) : nullptr;
      if (!known && others && others->is_object()) known = others;
      if (!known) return path + "." + name + " is not in the schema";
      if (std::string wrong = mismatch(*known, member, path + "." + name); !wrong.empty()) return wrong;
    }
    return "";
  }

  Json root_;
};

}  // namespace lockstep::doctor
