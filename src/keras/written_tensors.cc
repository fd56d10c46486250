#include "keras/written_tensors.h"

#include <algorithm>

#include "keras/fields.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras {
namespace {

// Numbers, or lists of them in lists of one length each, row by row.
void flatten(const Json& json, size_t depth, Shape& shape, std::vector<double>& values) {
  if (!json.is_list()) {
    require(static_cast<int>(depth) == shape.rank(), ErrorCode::invalid_argument,
            std::source_location::current(), "rows of a constant have different lengths");
    values.push_back(json.is_bool() ? (json.as_bool() ? 1.0 : 0.0) : json.as_double());
    return;
  }
  const auto size = static_cast<int64_t>(json.items().size());
  const auto d = static_cast<int>(depth);
  if (d == shape.rank() && values.empty()) shape.push_back(size);
  require(d < shape.rank() && shape[d] == size, ErrorCode::invalid_argument, std::source_location::current(),
          "rows of a constant have different lengths");
  for (const Json& item : json.items()) flatten(item, depth + 1, shape, values);
}

bool all_of_kind(const Json& json, bool (Json::*kind)() const) {
  if (!json.is_list()) return (json.*kind)();
  return std::all_of(json.items().begin(), json.items().end(),
                     [&](const Json& item) { return all_of_kind(item, kind); });
}

}  // namespace

bool is_written_tensor(const Json& json) {
  const Json* class_name = json.find("class_name");
  return class_name && (*class_name == Json("__numpy__") || *class_name == Json("__tensor__"));
}

Tensor read_tensor(const Json& json) {
  const Json* given = &json;
  DType dtype = DType::float32;
  if (is_written_tensor(json)) {
    given = &json.at("config").at("value");
    from_json(json.at("config").at("dtype"), dtype);
  } else if (!json.is_list()) {
    return {};
  } else if (all_of_kind(json, &Json::is_bool)) {
    dtype = DType::boolean;
  } else if (all_of_kind(json, &Json::is_int)) {
    dtype = DType::int32;
  }
  Shape shape;
  std::vector<double> values;
  flatten(*given, 0, shape, values);
  return cast(Tensor::from(values, shape), dtype);
}

Json with_plain_settings(const Json& json) {
  if (is_written_tensor(json)) return json.at("config").at("value");
  if (json.is_list()) {
    Json list = Json::list();
    for (const Json& item : json.items()) list.push_back(with_plain_settings(item));
    return list;
  }
  if (!json.is_object()) return json;
  Json object = Json::object();
  for (const auto& [name, value] : json.members())
    object.set(name, name == "inbound_nodes" ? value : with_plain_settings(value));
  return object;
}

}  // namespace lockstep::keras
