#include "cli/run_file.h"

#include <algorithm>
#include <filesystem>

#include "lockstep/keras/applications.h"

namespace lockstep::cli {
namespace {

namespace applications = keras::applications;

// The schema of an option from its default.
Json schema_of_default(const Json& value) {
  Json schema = Json::object();
  if (value.is_bool()) schema.set("type", "boolean");
  if (value.is_int()) schema.set("type", "integer");
  if (value.is_number() && !value.is_int()) schema.set("type", "number");
  if (value.is_string()) schema.set("type", "string");
  if (value.is_list()) schema = Json::object({{"type", "array"}, {"items", typed("integer")}});
  schema.set("default", value);
  return schema;
}

template <class... Alternatives>
std::vector<std::string> keys_of(const std::variant<Alternatives...>*) {
  return {Alternatives::kKey...};
}

// The alternative whose key the object has.
template <class... Alternatives>
bool choose(const Json& json, std::variant<Alternatives...>& source) {
  return ((json.contains(Alternatives::kKey) ? (source = Alternatives(), true) : false) || ...);
}

Source read_source(const Json& json, const std::string& path, DataOptions* options) {
  Source source;
  if (json.is_string()) {
    BuiltinSource builtin;
    read_value(json, builtin.name, {.one_of = BuiltinSource::names()}, path);
    return builtin;
  }
  const std::vector<std::string> keys = keys_of(static_cast<const Source*>(nullptr));
  if (!json.is_object() || !choose(json, source))
    refuse(path,
           "one of the names " + join(BuiltinSource::names()) + " or an object with one of the keys " +
               join(keys),
           json);
  SettingsReader reader(json, path);
  std::visit([&](auto& alternative) { alternative.visit(reader); }, source);
  if (options) options->visit(reader);
  reader.finish();
  return source;
}

Json written_source(const Source& source, const std::string& folder) {
  return std::visit([&](const auto& alternative) { return written_value(alternative, {}, folder); }, source);
}

template <class... Alternatives>
Json source_schema(const std::variant<Alternatives...>*, bool with_options) {
  const auto object = [&]<class Alternative>(Alternative alternative) {
    SettingsSchema schema;
    alternative.visit(schema);
    DataOptions options;
    if (with_options) options.visit(schema);
    return schema.take();
  };
  const std::vector<std::string>& names = BuiltinSource::names();
  return Json::object({{"anyOf", Json::List{Json::object({{"enum", Json::List(names.begin(), names.end())}}),
                                            object(Alternatives())...}}});
}

}  // namespace

// --- model -------------------------------------------------------------------------------------------------

bool ModelSettings::from_json() const {
  return json.contains("class_name") ||
         (json.is_string() && (json.as_string().ends_with(".json") || is_archive()));
}

bool ModelSettings::is_archive() const { return json.is_string() && json.as_string().ends_with(".keras"); }

void ModelSettings::read(const Json& given, const std::string& path) {
  json = given;
  const std::vector<std::string> names = applications::names();
  const auto check_name = [&](const Json& name, const std::string& where) {
    std::string known;
    read_value(name, known, {.one_of = names}, where);
  };
  if (from_json()) return;
  if (given.is_string()) return check_name(given, path);
  if (!given.is_object() || !given.contains("zoo"))
    refuse(path,
           "one of " + join(names) +
               ", the path of a .keras file or of a model's JSON, that JSON itself (with \"class_name\"), or "
               "{\"zoo\": name, "
               "options...}",
           given);
  check_name(given.at("zoo"), child(path, "zoo"));
  std::vector<std::string> known{"zoo"};
  const Json options = applications::default_options(given.at("zoo").as_string());
  for (const auto& [key, value] : options.members()) known.push_back(key);
  for (const auto& [key, value] : given.members())
    if (key != "zoo" && !options.contains(key)) refuse_key(path, key, known);
}

Json ModelSettings::write(const std::string& folder) const {
  return from_json() && json.is_string() ? Json(absolute_path(folder, json.as_string())) : json;
}

Json ModelSettings::schema() {
  const std::vector<std::string> names = applications::names();
  Json choices = Json::List{
      Json::object({{"description", "An application"}, {"enum", Json::List(names.begin(), names.end())}}),
      Json::object(
          {{"description", "The path of a model's JSON, or of a .keras file, which has weights, too"},
           {"type", "string"},
           {"pattern", "\\.(json|keras)$"}}),
      Json::object({{"description", "A model as Keras' to_json() writes it"},
                    {"type", "object"},
                    {"required", Json::List{"class_name"}}})};
  for (const std::string& name : names) {
    Json properties = Json::object({{"zoo", Json::object({{"const", name}})}});
    const Json options = applications::default_options(name);
    for (const auto& [key, value] : options.members()) properties.set(key, schema_of_default(value));
    choices.push_back(Json::object({{"type", "object"},
                                    {"properties", properties},
                                    {"required", Json::List{"zoo"}},
                                    {"additionalProperties", false}}));
  }
  return Json::object({{"anyOf", choices}});
}

// --- data --------------------------------------------------------------------------------------------------

const std::vector<std::string>& BuiltinSource::names() {
  static const std::vector<std::string> all{"digits", "mnist", "fashion_mnist", "cifar10", "cifar100"};
  return all;
}

std::vector<std::vector<std::string>> FieldNames::of(const std::vector<std::string>& ends,
                                                     const std::string& key) const {
  std::vector<std::vector<std::string>> fields(ends.size());
  for (const auto& [end, names] : named) {
    const auto found = std::find(ends.begin(), ends.end(), end);
    if (found == ends.end()) refuse_key(key, end, ends);
    fields[static_cast<size_t>(found - ends.begin())] = names;
  }
  if (listed.empty()) return fields;
  if (ends.size() == 1) return {listed};
  require(listed.size() == ends.size(), ErrorCode::invalid_argument, std::source_location::current(), key,
          ": there ", listed.size() == 1 ? "is 1 name" : detail::concat("are ", listed.size(), " names"),
          " for the model's ", join(ends), "; give a name for each, or an object by these names");
  for (size_t i = 0; i < ends.size(); ++i) fields[i] = {listed[i]};
  return fields;
}

void FieldNames::read(const Json& json, const std::string& path) {
  const auto names_of = [](const Json& value, const std::string& at) {
    std::vector<std::string> names;
    if (value.is_string())
      read_value(value, names.emplace_back(), {}, at);
    else if (value.is_list())
      read_value(value, names, {}, at);
    else
      refuse(at, "a name or a list of names", value);
    return names;
  };
  listed.clear();
  named.clear();
  if (json.is_null()) return;
  if (!json.is_object()) {
    listed = names_of(json, path);
    return;
  }
  for (const auto& [end, value] : json.members()) named[end] = names_of(value, child(path, end));
}

Json FieldNames::write(const std::string&) const {
  const auto names = [](const std::vector<std::string>& list) {
    return list.size() == 1 ? Json(list[0]) : Json(Json::List(list.begin(), list.end()));
  };
  if (empty()) return {};
  if (named.empty()) return names(listed);
  Json json = Json::object();
  for (const auto& [end, list] : named) json.set(end, names(list));
  return json;
}

Json FieldNames::schema() {
  const Json names = Json::List{typed("string"), value_schema(std::vector<std::string>())};
  Json all = names;
  all.push_back(
      Json::object({{"type", "object"}, {"additionalProperties", Json::object({{"anyOf", names}})}}));
  return Json::object({{"anyOf", all}});
}

void SourceSettings::read(const Json& json, const std::string& path) {
  source = read_source(json, path, nullptr);
}
Json SourceSettings::write(const std::string& folder) const { return written_source(source, folder); }
Json SourceSettings::schema() { return source_schema(static_cast<const Source*>(nullptr), false); }

void DataSettings::read(const Json& json, const std::string& path) {
  source = read_source(json, path, &options);
  if (options.validation && options.validation_split > 0)
    refuse(path, "either \"validation\" or \"validation_split\"", json);
  if (options.validation_random && options.validation_split == 0)
    refuse(child(path, "validation_random"), "\"validation_split\" beside it", json);
}
Json DataSettings::write(const std::string& folder) const {
  Json json = written_source(source, folder);
  const Json more = written_value(options, {}, folder);
  for (const auto& [key, value] : more.members()) json.set(key, value);
  return json;
}
Json DataSettings::schema() { return source_schema(static_cast<const Source*>(nullptr), true); }

// --- compile -----------------------------------------------------------------------------------------------

keras::CompileOptions CompileSettings::options(const std::string& path) const {
  Json config = Json::object({{"run_eagerly", run_eagerly},
                              {"steps_per_execution", steps_per_execution},
                              {"auto_scale_loss", auto_scale_loss}});
  const std::pair<const char*, const Json*> parts[] = {{"optimizer", &optimizer},
                                                       {"loss", &loss},
                                                       {"loss_weights", &loss_weights},
                                                       {"metrics", &metrics},
                                                       {"weighted_metrics", &weighted_metrics}};
  for (const auto& [key, value] : parts) {
    if (value->is_null()) continue;
    // Each by itself first, so that a mistake names its key.
    at_key(child(path, key), [&, key = key, value = value] {
      return keras::CompileOptions::deserialize(Json::object({{key, *value}}));
    });
    config.set(key, *value);
  }
  return keras::CompileOptions::deserialize(config);
}

// --- the file ----------------------------------------------------------------------------------------------

std::string RunFile::resolve(const std::string& path) const {
  return (std::filesystem::path(folder) / path).lexically_normal().string();
}

RunFile parse_run(const Json& json, const std::string& folder) {
  RunFile run;
  read_value(json, run, {}, "");
  run.folder = folder;
  return run;
}

RunFile read_run_file(const std::string& path) {
  return parse_run(Json::read_file(path), std::filesystem::path(path).parent_path().string());
}

Json written_run(const RunFile& run) { return written_value(run, {}, run.folder); }

Json run_schema() {
  Json schema = Json::object(
      {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
       {"title", "A training run of Lockstep"},
       {"description", "What `lockstep train FILE` reads. Relative paths start at the file's folder."}});
  const Json body = value_schema(RunFile());
  for (const auto& [key, value] : body.members()) schema.set(key, value);
  return schema;
}

namespace {

// Below a key of which every choice has keys of its own, each is listed once.
void list_keys(const Json& schema, const std::string& path, std::vector<std::string>& seen,
               std::string& text) {
  if (const Json* choices = schema.find("anyOf"))
    for (const Json& choice : choices->items()) list_keys(choice, path, seen, text);
  const Json* properties = schema.find("properties");
  if (!properties) return;
  for (const auto& [key, value] : properties->members()) {
    const std::string whole = child(path, key);
    if (key == "$schema" || std::find(seen.begin(), seen.end(), whole) != seen.end()) continue;
    seen.push_back(whole);
    const Json* help = value.find("description");
    // What an application takes is its own; the names say it.
    if (help)
      text += "  " + whole + std::string(whole.size() < 26 ? 28 - whole.size() : 2, ' ') + help->as_string() +
              "\n";
    if (whole != "model" && whole != "data.validation") list_keys(value, whole, seen, text);
  }
}

}  // namespace

std::string run_help() {
  std::string text = "Keys of a run file:\n";
  std::vector<std::string> seen;
  list_keys(run_schema(), "", seen, text);
  return text +
         "\nAn example, to be pasted as it stands:\n"
         "  echo '{\"model\": {\"zoo\": \"mlp\", \"hidden\": [64]},\n"
         "         \"data\": {\"name\": \"digits\", \"train_size\": 4000},\n"
         "         \"fit\": {\"epochs\": 3, \"batch_size\": 64},\n"
         "         \"output\": \"trained\", \"backup\": \"backup\"}' > run.json\n"
         "  lockstep train run.json\n";
}

}  // namespace lockstep::cli
