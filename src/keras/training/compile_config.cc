#include "keras/training/compile_config.h"

#include "keras/fields.h"
#include "keras/written_tensors.h"
#include "lockstep/base/error.h"

namespace lockstep::keras {
namespace {

// An object that is itself a loss, a metric, ... and not a map from outputs.
bool is_serialized(const Json& json) { return json.is_string() || json.contains("class_name"); }

template <class T, class Write>
Json write_outputs(const PerOutput<T>& values, Write&& write) {
  if (values.empty()) return {};
  if (values.single()) return write(values.list()[0]);
  if (!values.named().empty()) {
    Json json = Json::object();
    for (const auto& [name, value] : values.named()) json.set(name, write(value));
    return json;
  }
  Json list = Json::list();
  for (const T& value : values.list()) list.push_back(write(value));
  return list;
}

template <class T, class Read>
PerOutput<T> read_outputs(const Json& json, Read&& read) {
  if (json.is_null()) return {};
  if (json.is_number() || is_serialized(json)) return PerOutput<T>(read(json));
  if (json.is_object()) {
    std::map<std::string, T> named;
    for (const auto& [name, value] : json.members()) named.emplace(name, read(value));
    return named;
  }
  std::vector<T> list;
  for (const Json& value : json.items()) list.push_back(read(value));
  return list;
}

Json write_metric_list(const std::vector<Metric>& metrics) {
  Json list = Json::list();
  for (const Metric& metric : metrics) list.push_back(metric.serialize());
  return list;
}

Json write_metrics(const MetricsArg& metrics) {
  if (!metrics.named().empty()) {
    Json json = Json::object();
    for (const auto& [name, list] : metrics.named()) json.set(name, write_metric_list(list));
    return json;
  }
  if (metrics.lists().empty()) return {};
  if (!metrics.by_position()) return write_metric_list(metrics.lists()[0]);
  Json lists = Json::list();
  for (const auto& list : metrics.lists()) lists.push_back(write_metric_list(list));
  return lists;
}

std::vector<Metric> read_metric_list(const Json& json, std::source_location where) {
  if (is_serialized(json)) return {Metric::deserialize(json, where)};
  std::vector<Metric> list;
  for (const Json& metric : json.items())
    if (!metric.is_null()) list.push_back(Metric::deserialize(metric, where));
  return list;
}

MetricsArg read_metrics(const Json& json, std::source_location where) {
  if (json.is_null()) return {};
  if (json.is_object() && !is_serialized(json)) {
    std::map<std::string, std::vector<Metric>> named;
    for (const auto& [name, list] : json.members()) named.emplace(name, read_metric_list(list, where));
    return named;
  }
  bool nested = false;
  for (const Json& item : json.items()) nested = nested || item.is_list();
  if (!nested) return read_metric_list(json, where);
  std::vector<std::vector<Metric>> lists;
  for (const Json& item : json.items())
    lists.push_back(item.is_null() ? std::vector<Metric>() : read_metric_list(item, where));
  return lists;
}

}  // namespace

Json serialize_compile_options(const CompileOptions& options) {
  const auto loss = [](const Loss& value) { return value.defined() ? value.serialize() : Json(); };
  return Json::object(
      {{"optimizer", options.optimizer.serialize()},
       {"loss", write_outputs(options.loss, loss)},
       {"loss_weights", write_outputs(options.loss_weights, [](double w) { return Json(w); })},
       {"metrics", write_metrics(options.metrics)},
       {"weighted_metrics", write_metrics(options.weighted_metrics)},
       {"run_eagerly", options.run_eagerly},
       {"steps_per_execution", options.steps_per_execution},
       {"jit_compile", true}});
}

CompileOptions deserialize_compile_options(const Json& written, std::source_location where) {
  const Json json = with_plain_settings(written);
  FieldReader reader(json);
  for (const char* name : {"optimizer", "loss", "loss_weights", "metrics", "weighted_metrics", "run_eagerly",
                           "steps_per_execution", "jit_compile", "auto_scale_loss"})
    reader.ignore(name);
  reader.finish();
  const Json none;
  const auto part = [&](const char* name) -> const Json& {
    const Json* found = json.find(name);
    return found ? *found : none;
  };
  CompileOptions options;
  if (!part("optimizer").is_null())
    options.optimizer = optimizers::Optimizer::deserialize(part("optimizer"), where);
  options.loss = read_outputs<Loss>(part("loss"), [&](const Json& value) {
    return value.is_null() ? Loss() : Loss::deserialize(value, where);
  });
  options.loss_weights =
      read_outputs<double>(part("loss_weights"), [](const Json& value) { return value.as_double(); });
  options.metrics = read_metrics(part("metrics"), where);
  options.weighted_metrics = read_metrics(part("weighted_metrics"), where);
  if (const Json* value = json.find("run_eagerly")) options.run_eagerly = value->as_bool();
  if (const Json* value = json.find("steps_per_execution"); value && value->is_int())
    options.steps_per_execution = value->as_int();
  if (const Json* value = json.find("auto_scale_loss")) options.auto_scale_loss = value->as_bool();
  return options;
}

Json CompileOptions::serialize() const { return serialize_compile_options(*this); }
CompileOptions CompileOptions::deserialize(const Json& json, std::source_location where) {
  return deserialize_compile_options(json, where);
}

}  // namespace lockstep::keras
