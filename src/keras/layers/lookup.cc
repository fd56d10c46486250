#include "keras/layers/lookup.h"

#include <cmath>
#include <numeric>

#include "keras/fingerprint.h"
#include "keras/layers/registry.h"

namespace lockstep::keras::layers {
namespace {

// Models of Keras that begin with strings can be read up to the place where they do.
[[maybe_unused]] const bool refused = [] {
  for (const char* name : {"StringLookup", "TextVectorization", "Hashing", "HashedCrossing"})
    layer_registry().add(name, [name](const Json&) -> Layer {
      fail(ErrorCode::unsupported, std::source_location::current(), name,
           " works on strings, which no tensor holds: take it out of the model, make it with layers::", name,
           "::deserialize() and apply it to the data before");
    });
  return true;
}();

}  // namespace

std::vector<double> worth_of(const std::vector<int64_t>& documents_with, int64_t documents,
                             int64_t specials) {
  std::vector<double> worth;
  for (const int64_t with : documents_with)
    worth.push_back(std::log(1 + static_cast<double>(documents) / static_cast<double>(1 + with)));
  const double mean =
      worth.empty() ? 0
                    : std::accumulate(worth.begin(), worth.end(), 0.0) / static_cast<double>(worth.size());
  worth.insert(worth.begin(), static_cast<size_t>(specials), mean);
  return worth;
}

std::string checked_mode(const std::string& mode, bool weighs, const char* layer,
                         std::source_location where) {
  if (mode == "binary") return "multi_hot";
  if (mode == "tf-idf" && weighs) return "tf_idf";
  require(mode == "int" || mode == "one_hot" || mode == "multi_hot" || mode == "count" ||
              (weighs && mode == "tf_idf"),
          ErrorCode::invalid_argument, where, layer, ": output_mode must be int, one_hot, multi_hot, count",
          weighs ? " or tf_idf" : "", ", received \"", mode, "\"");
  return mode;
}

void read_constant_fields(FieldReader& reader, const Json& config, const char* layer,
                          std::source_location where) {
  const auto is = [&](const char* name, const Json& value) {
    const Json* found = config.find(name);
    return !found || found->is_null() || *found == value;
  };
  for (const char* name : {"sparse", "ragged"})
    require(is(name, false), ErrorCode::unsupported, where, layer, ": ", name,
            " must be false: there are no ", name,
            " tensors; rows have one length, with zeros where nothing is");
  if (const Json* encoding = config.find("encoding"))
    require(is("encoding", "utf-8"), ErrorCode::unsupported, where, layer,
            ": encoding must be \"utf-8\", received ", *encoding, "; convert the texts first");
  for (const char* name : {"sparse", "ragged", "encoding", "vocabulary_size", "has_input_vocabulary",
                           "vocabulary_dtype", "oov_method", "trainable", "dtype"})
    reader.ignore(name);
}

const Json& config_of(const Json& json, const char* class_name, std::source_location where) {
  const Json* given = json.find("class_name");
  require(given && given->is_string() && given->as_string() == class_name, ErrorCode::invalid_argument, where,
          "expected a serialized ", class_name, ", received ", json);
  return json.at("config");
}

Json to_json(const SaltField& field) {
  if (!field.salt) return {};
  return Json::List{static_cast<int64_t>(field.salt->first), static_cast<int64_t>(field.salt->second)};
}
void from_json(const Json& json, SaltField& field) {
  field.salt.reset();
  if (json.is_null()) return;
  const bool both = json.is_int();
  require(both || (json.is_list() && json.items().size() == 2), ErrorCode::invalid_argument,
          std::source_location::current(), "salt is a whole number or a list of two, received ", json);
  const auto number = [](const Json& item) { return static_cast<uint64_t>(item.as_int()); };
  field.salt = {number(both ? json : json.at(size_t{0})), number(both ? json : json.at(size_t{1}))};
}

uint64_t hash_of(const std::string& text, const Salt& salt) {
  return salt ? sip_hash(text, *salt) : farm_fingerprint(text);
}

}  // namespace lockstep::keras::layers
