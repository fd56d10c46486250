#include "lockstep/keras/feature_space.h"

#include <algorithm>
#include <set>

#include "keras/layers/category_encoding.h"
#include "keras/range.h"
#include "keras/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/keras/layers/core.h"
#include "lockstep/keras/layers/merging.h"
#include "lockstep/keras/layers/preprocessing.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::utils {
namespace {

using Where = std::source_location;

constexpr const char* kModule = "keras.src.layers.preprocessing.feature_space";

Json registered(const char* class_name, Json config) {
  Json json = serialized(kModule, class_name, std::move(config));
  json.set("registered_name", class_name);
  return json;
}

template <class... Accepted>
void require_one_of(const std::string& what, const std::string& value, const Accepted&... accepted) {
  std::string list;
  ((list += (list.empty() ? "\"" : ", \"") + std::string(accepted) + "\""), ...);
  require(((value == accepted) || ...), ErrorCode::invalid_argument, Where::current(), what,
          " must be one of ", list, ", received \"", value, "\"");
}

Feature checked(Feature feature) {
  require_one_of("output_mode of a feature", feature.output_mode, "int", "one_hot", "float");
  require_one_of("dtype of a feature", feature.dtype, "float32", "int32", "int64", "string");
  const auto* layer = std::get_if<Layer>(&feature.preprocessor);
  require(!layer || layer->defined(), ErrorCode::invalid_argument, Where::current(),
          "a feature needs a preprocessor");
  require(feature.dtype == "string" ? !layer
                                    : !std::holds_alternative<layers::StringLookup>(feature.preprocessor),
          ErrorCode::invalid_argument, Where::current(), "a feature of dtype ", feature.dtype,
          " does not go with its preprocessor: layers take numbers, a StringLookup takes strings");
  return feature;
}

// --- configurations ----------------------------------------------------------------------------------------

// What a layer learned stands among its weights; here it is written where a given value would be.
Json written_layer(const Layer& layer) {
  Json json = layer.serialize();
  if (layer.base()->class_name() == "Identity") {
    json.set("class_name", "TFDIdentity");
    json.set("module", kModule);
    json.set("registered_name", "TFDIdentity");
  }
  if (layer.base()->class_name() == "Normalization" && layer.built() && !layer.weights().empty()) {
    const TensorList learned = layer.get_weights();
    for (const auto& [name, at] : {std::pair("mean", size_t{0}), std::pair("variance", size_t{1})}) {
      Json list = Json::list();
      for (const double value : cast(learned[at], DType::float64).to_vector<double>()) list.push_back(value);
      json["config"].set(name, list);
    }
  }
  return json;
}

Json written(const Feature& feature) {
  const Json preprocessor = std::visit(
      [](const auto& given) {
        if constexpr (std::is_same_v<std::decay_t<decltype(given)>, Layer>)
          return written_layer(given);
        else
          return given.serialize();
      },
      feature.preprocessor);
  return registered("Feature", Json::object({{"dtype", feature.dtype},
                                             {"preprocessor", preprocessor},
                                             {"output_mode", feature.output_mode}}));
}

Feature read_feature(const Json& json, Where where) {
  const Json& config = json.at("config", where);
  Json preprocessor = config.at("preprocessor", where);
  const std::string class_name = preprocessor.at("class_name", where).as_string(where);
  Feature feature{.dtype = config.at("dtype", where).as_string(where),
                  .output_mode = config.at("output_mode", where).as_string(where)};
  if (class_name == "StringLookup") {
    feature.preprocessor = layers::StringLookup::deserialize(preprocessor, where);
  } else if (class_name == "Hashing") {
    feature.preprocessor = layers::Hashing::deserialize(preprocessor, where);
  } else {
    if (class_name == "TFDIdentity") {
      preprocessor.set("class_name", "Identity");
      preprocessor.set("registered_name", Json());
    }
    feature.preprocessor = Layer::deserialize(preprocessor, where);
  }
  return checked(std::move(feature));
}

// --- preprocessors -----------------------------------------------------------------------------------------

// Whether something is left to learn, by the configuration.
bool learns(const Feature::Preprocessor& preprocessor) {
  if (const auto* lookup = std::get_if<layers::StringLookup>(&preprocessor))
    return lookup->get_vocabulary(false).empty();
  const auto* layer = std::get_if<Layer>(&preprocessor);
  if (!layer) return false;
  const Json config = layer->base()->get_config();
  for (const auto& [class_name, learned] :
       {std::pair("Normalization", "mean"), std::pair("IntegerLookup", "vocabulary"),
        std::pair("Discretization", "bin_boundaries")})
    if (layer->base()->class_name() == class_name) return config.at(learned).is_null();
  return false;
}

// How many numbers it may give.
int64_t cardinality(const std::string& name, const Feature::Preprocessor& preprocessor) {
  if (const auto* lookup = std::get_if<layers::StringLookup>(&preprocessor)) return lookup->vocabulary_size();
  if (const auto* hashing = std::get_if<layers::Hashing>(&preprocessor))
    return hashing->serialize().at("config").at("num_bins").as_int();
  const Layer& layer = std::get<Layer>(preprocessor);
  const std::string& kind = layer.base()->class_name();
  if (kind == "IntegerLookup") return std::ssize(layers::get_vocabulary(layer));
  const Json config = layer.base()->get_config();
  if (kind == "CategoryEncoding") return config.at("num_tokens").as_int();
  if (kind == "Discretization") {
    const Json& bins = config.at("num_bins");
    return bins.is_null() ? std::ssize(config.at("bin_boundaries").items()) + 1 : bins.as_int();
  }
  fail(ErrorCode::invalid_argument, Where::current(), "feature \"", name,
       "\" has output_mode \"one_hot\", but nobody knows how many numbers layer ", kind,
       " may give; its output_mode may be \"int\" or \"float\"");
}

// (rows, 1)
Tensor as_column(const std::string& name, const Tensor& numbers, Where where) {
  require(numbers.defined(), ErrorCode::invalid_argument, where, "feature \"", name,
          "\" was given an undefined tensor");
  require(numbers.rank() == 1 || (numbers.rank() == 2 && numbers.shape()[1] == 1), ErrorCode::shape_mismatch,
          where, "feature \"", name, "\" takes a column of shape (rows) or (rows, 1), received ",
          numbers.shape());
  return numbers.rank() == 1 ? expand_dims(numbers, 1) : numbers;
}

}  // namespace

std::string FeatureCross::name() const {
  std::string joined;
  for (const std::string& feature : feature_names) joined += (joined.empty() ? "" : "_X_") + feature;
  return joined;
}

// --- the space ---------------------------------------------------------------------------------------------

class FeatureSpace::Impl {
 public:
  Impl(const Features& features, FeatureSpaceOptions options) : options_(std::move(options)) {
    require_one_of("FeatureSpace: output_mode", options_.output_mode, "concat", "dict");
    require_in(kPositive, "FeatureSpace", "crossing_dim", options_.crossing_dim);
    require_in(kPositive, "FeatureSpace", "hashing_dim", options_.hashing_dim);
    require_in(kPositive, "FeatureSpace", "num_discretization_bins", options_.num_discretization_bins);
    require(!features.empty(), ErrorCode::invalid_argument, Where::current(),
            "FeatureSpace: there is no feature");
    for (const auto& [name, kind] : features) {
      const auto* by_name = std::get_if<std::string>(&kind.value());
      const Feature feature = by_name ? of_kind(name, *by_name) : checked(std::get<Feature>(kind.value()));
      require(features_.emplace(name, feature).second, ErrorCode::invalid_argument, Where::current(),
              "FeatureSpace: there are two features \"", name, "\"");
      if (learns(feature.preprocessor)) learning_.insert(name);
    }
    for (const FeatureCross& cross : options_.crosses) {
      require(cross.feature_names.size() > 1, ErrorCode::invalid_argument, Where::current(),
              "FeatureSpace: a cross is of two features or more, received ", cross.feature_names.size());
      require_one_of("FeatureSpace: output_mode of a cross", cross.output_mode, "int", "one_hot");
      for (const std::string& name : cross.feature_names) {
        const auto crossed = features_.find(name);
        require(crossed != features_.end(), ErrorCode::not_found, Where::current(), "FeatureSpace: cross \"",
                cross.name(), "\" names a feature \"", name, "\", which there is not");
        require(crossed->second.output_mode != "float", ErrorCode::invalid_argument, Where::current(),
                "FeatureSpace: cross \"", cross.name(), "\" takes whole numbers and feature \"", name,
                "\" is none; float_discretized makes one of it");
      }
      const int64_t bins = cross.crossing_dim.value_or(options_.crossing_dim);
      require_in(kPositive, "FeatureSpace: cross \"" + cross.name() + "\"", "crossing_dim", bins);
      require(crosses_.emplace(cross.name(), Cross{cross, bins, layers::HashedCrossing(bins)}).second,
              ErrorCode::invalid_argument, Where::current(), "FeatureSpace: there are two crosses \"",
              cross.name(), "\"");
    }
    adapted_ = learning_.empty();
  }

  const FeatureSpaceOptions& options() const { return options_; }
  const std::set<std::string>& learning() const { return learning_; }
  const Feature* find(const std::string& name) const {
    const auto found = features_.find(name);
    return found == features_.end() ? nullptr : &found->second;
  }
  const Feature& at(const std::string& name, Where where) const {
    const Feature* found = find(name);
    require(found, ErrorCode::not_found, where, "FeatureSpace: there is no feature \"", name, "\"");
    return *found;
  }

  void adapt(const Columns& columns, Where where) {
    for (const std::string& name : learning_) {
      Feature& feature = features_.at(name);
      const layers::Column& column = column_of(columns, name, where);
      if (auto* lookup = std::get_if<layers::StringLookup>(&feature.preprocessor))
        lookup->adapt(std::get<std::vector<std::string>>(column), where);
      else
        layers::AdaptableLayer(std::get<Layer>(feature.preprocessor).base())
            .adapt(as_column(name, std::get<Tensor>(column), where), where);
    }
    adapted_ = true;
  }

  std::map<std::string, Tensor> encoded(const Columns& columns, Where where) const {
    require_adapted(where);
    std::map<std::string, Tensor> numbers, result;
    for (const auto& [name, feature] : features_) {
      const layers::Column& column = column_of(columns, name, where);
      const Tensor number = preprocessed(name, feature, column, where);
      if (!numbers.empty()) {
        const auto& [first, other] = *numbers.begin();
        require(number.shape()[0] == other.shape()[0], ErrorCode::shape_mismatch, where,
                "FeatureSpace: columns must have one length; \"", name, "\" has ", number.shape()[0],
                " rows and \"", first, "\" has ", other.shape()[0]);
      }
      numbers.emplace(name, number);
      result.emplace(name, in_mode(number, feature.output_mode, width(name, feature)));
    }
    for (const auto& [name, cross] : crosses_) {
      std::vector<layers::Column> crossed;
      for (const std::string& feature : cross.given.feature_names)
        crossed.emplace_back(reshape(numbers.at(feature), {-1}));
      result.emplace(
          name, in_mode(expand_dims(cross.crosser(crossed, where), 1), cross.given.output_mode, cross.bins));
    }
    return result;
  }

  // In the order in which they stand side by side.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, feature] : features_) all.push_back(name);
    for (const auto& [name, cross] : crosses_) all.push_back(name);
    return all;
  }

  TensorList side_by_side(std::map<std::string, Tensor> encoded) const {
    TensorList all;
    for (const std::string& name : names()) all.push_back(encoded.at(name));
    return all;
  }

  void require_concat(const char* what, const char* instead, Where where) const {
    require(options_.output_mode == "concat", ErrorCode::failed_precondition, where, "FeatureSpace: ", what,
            " is for the output mode \"concat\"; ", instead, " gives features by name");
    for (const auto& [name, feature] : features_) require_float(name, feature.output_mode, where);
    for (const auto& [name, cross] : crosses_) require_float(name, cross.given.output_mode, where);
  }

  std::map<std::string, KerasTensor> encoded_inputs(Where where) const {
    require_adapted(where);
    std::map<std::string, KerasTensor> inputs;
    for (const auto& [name, feature] : features_)
      inputs.emplace(
          name, Input({width(name, feature)},
                      {.dtype = feature.output_mode == "int" ? DType::int64 : DType::float32, .name = name},
                      where));
    for (const auto& [name, cross] : crosses_) {
      const bool number = cross.given.output_mode == "int";
      inputs.emplace(name, Input({number ? 1 : cross.bins},
                                 {.dtype = number ? DType::int64 : DType::float32, .name = name}, where));
    }
    return inputs;
  }
  int64_t whole_width() const {
    int64_t sum = 0;
    for (const auto& [name, feature] : features_) sum += width(name, feature);
    for (const auto& [name, cross] : crosses_) sum += cross.bins;
    return sum;
  }

  void require_numbers(Where where) const {
    const std::string* host = crosses_.empty() ? nullptr : &crosses_.begin()->first;
    for (const auto& [name, feature] : features_)
      if (!std::holds_alternative<Layer>(feature.preprocessor)) host = &name;
    require(!host, ErrorCode::unsupported, where, "FeatureSpace: \"", host ? *host : std::string(),
            "\" is made of strings or hashes, which are host data: a model begins with "
            "get_encoded_features(), and "
            "data goes through the space first");
  }
  std::map<std::string, KerasTensor> inputs(Where where) const {
    require_numbers(where);
    std::map<std::string, KerasTensor> inputs;
    for (const auto& [name, feature] : features_)
      inputs.emplace(
          name,
          Input({1}, {.dtype = feature.dtype == "float32" ? DType::float32 : DType::int64, .name = name},
                where));
    return inputs;
  }
  KerasTensorList encoded(const std::map<std::string, KerasTensor>& inputs, Where where) const {
    require_adapted(where);
    require_numbers(where);
    KerasTensorList all;
    for (const auto& [name, feature] : features_) {
      const auto input = inputs.find(name);
      require(input != inputs.end(), ErrorCode::not_found, where, "FeatureSpace: there is no input \"", name,
              "\"");
      const KerasTensor number = std::get<Layer>(feature.preprocessor)(input->second, {}, where);
      all.push_back(feature.output_mode == "one_hot"
                        ? layers::CategoryEncoding(width(name, feature), {}, where)(number, {}, where)
                        : number);
    }
    return all;
  }

  void require_adapted(Where where) const {
    require(adapted_, ErrorCode::failed_precondition, where, "FeatureSpace: call adapt() first: \"",
            learning_.empty() ? std::string() : *learning_.begin(), "\" learns from data");
  }

  Json config() const {
    Json features = Json::object(), crosses = Json::list();
    for (const auto& [name, feature] : features_) features.set(name, written(feature));
    for (const FeatureCross& cross : options_.crosses) {
      Json names = Json::list();
      for (const std::string& name : cross.feature_names) names.push_back(name);
      crosses.push_back(registered(
          "Cross", Json::object({{"feature_names", names},
                                 {"crossing_dim", cross.crossing_dim.value_or(options_.crossing_dim)},
                                 {"output_mode", cross.output_mode}})));
    }
    return Json::object({{"features", features},
                         {"output_mode", options_.output_mode},
                         {"crosses", crosses},
                         {"crossing_dim", options_.crossing_dim},
                         {"hashing_dim", options_.hashing_dim},
                         {"num_discretization_bins", options_.num_discretization_bins}});
  }

  // Made at the first call.
  std::optional<KerasTensor> encoded_features;
  std::map<std::string, KerasTensor> encoded_by_name, raw;

 private:
  struct Cross {
    FeatureCross given;
    int64_t bins = 0;
    layers::HashedCrossing crosser;
  };

  Feature of_kind(const std::string& name, const std::string& kind) const {
    if (kind == "float") return float_();
    if (kind == "float_rescaled") return float_rescaled();
    if (kind == "float_normalized") return float_normalized();
    if (kind == "float_discretized") return float_discretized(options_.num_discretization_bins);
    if (kind == "integer_categorical") return integer_categorical();
    if (kind == "string_categorical") return string_categorical();
    if (kind == "integer_hashed") return integer_hashed(options_.hashing_dim);
    if (kind == "string_hashed") return string_hashed(options_.hashing_dim);
    const std::vector<std::string> kinds = {"float",
                                            "float_rescaled",
                                            "float_normalized",
                                            "float_discretized",
                                            "integer_categorical",
                                            "string_categorical",
                                            "integer_hashed",
                                            "string_hashed"};
    const std::string near = nearest_spelling(kind, kinds);
    std::string known;
    for (const std::string& one : kinds) known += (known.empty() ? "" : ", ") + one;
    fail(ErrorCode::invalid_argument, Where::current(), "FeatureSpace: feature \"", name, "\" is of kind \"",
         kind, "\"", near.empty() ? "" : "; did you mean \"" + near + "\"?", " There are ", known);
  }

  const layers::Column& column_of(const Columns& columns, const std::string& name, Where where) const {
    const auto found = columns.find(name);
    std::string given;
    for (const auto& [other, column] : columns) given += (given.empty() ? "" : ", ") + other;
    require(found != columns.end(), ErrorCode::not_found, where, "FeatureSpace: there is no column \"", name,
            "\"; there are ", given.empty() ? "none" : given);
    const bool strings = features_.at(name).dtype == "string";
    require(std::holds_alternative<Tensor>(found->second) != strings, ErrorCode::dtype_mismatch, where,
            "FeatureSpace: feature \"", name, "\" takes ", strings ? "strings" : "numbers", ", received ",
            strings ? "numbers" : "strings");
    return found->second;
  }

  static Tensor preprocessed(const std::string& name, const Feature& feature, const layers::Column& column,
                             Where where) {
    if (const auto* texts = std::get_if<std::vector<std::string>>(&column)) {
      const auto* lookup = std::get_if<layers::StringLookup>(&feature.preprocessor);
      return expand_dims(
          lookup ? (*lookup)(*texts, where) : std::get<layers::Hashing>(feature.preprocessor)(*texts, where),
          1);
    }
    const Tensor numbers = as_column(name, std::get<Tensor>(column), where);
    if (const auto* hashing = std::get_if<layers::Hashing>(&feature.preprocessor))
      return (*hashing)(numbers, where);
    const Tensor typed =
        feature.dtype == "float32" ? cast(numbers, DType::float32) : cast(numbers, DType::int64);
    return std::get<Layer>(feature.preprocessor)(typed, {}, where);
  }

  static int64_t width(const std::string& name, const Feature& feature) {
    return feature.output_mode == "one_hot" ? cardinality(name, feature.preprocessor) : 1;
  }
  static Tensor in_mode(const Tensor& number, const std::string& mode, int64_t width) {
    if (mode == "one_hot") return layers::encode(number, "multi_hot", width, DType::float32);
    return cast(number, mode == "int" ? DType::int64 : DType::float32);
  }

  static void require_float(const std::string& name, const std::string& mode, Where where) {
    require(mode != "int", ErrorCode::failed_precondition, where, "FeatureSpace: \"", name,
            "\" has output_mode \"int\" and does not stand beside others; output_mode \"dict\" of the space "
            "keeps "
            "features apart");
  }

  FeatureSpaceOptions options_;
  std::map<std::string, Feature> features_;  // Keras sorts them too
  std::map<std::string, Cross> crosses_;
  std::set<std::string> learning_;  // features with something to learn
  bool adapted_ = false;
};

// --- kinds of features -------------------------------------------------------------------------------------

Feature FeatureSpace::float_(Where where) {
  return {.dtype = "float32", .preprocessor = layers::Identity({}, where), .output_mode = "float"};
}
Feature FeatureSpace::float_rescaled(double scale, double offset, Where where) {
  return {.dtype = "float32",
          .preprocessor = layers::Rescaling(scale, offset, {}, where),
          .output_mode = "float"};
}
Feature FeatureSpace::float_normalized(Where where) {
  return {.dtype = "float32", .preprocessor = layers::Normalization({}, where), .output_mode = "float"};
}
Feature FeatureSpace::float_discretized(int64_t num_bins, const std::string& output_mode, Where where) {
  const CallSite site(where);
  require_in(kPositive, "float_discretized", "num_bins", num_bins);
  return checked({.dtype = "float32",
                  .preprocessor = layers::Discretization({.num_bins = num_bins}, where),
                  .output_mode = output_mode});
}
Feature FeatureSpace::float_discretized(const std::vector<double>& bin_boundaries,
                                        const std::string& output_mode, Where where) {
  const CallSite site(where);
  return checked({.dtype = "float32",
                  .preprocessor = layers::Discretization({.bin_boundaries = bin_boundaries}, where),
                  .output_mode = output_mode});
}
Feature FeatureSpace::integer_categorical(const CategoricalOptions& options, Where where) {
  const CallSite site(where);
  return checked({.dtype = "int32",
                  .preprocessor = layers::IntegerLookup(
                      {.max_tokens = options.max_tokens, .num_oov_indices = options.num_oov_indices}, where),
                  .output_mode = options.output_mode});
}
Feature FeatureSpace::string_categorical(const CategoricalOptions& options, Where where) {
  const CallSite site(where);
  return checked({.dtype = "string",
                  .preprocessor = layers::StringLookup(
                      {.max_tokens = options.max_tokens, .num_oov_indices = options.num_oov_indices}, where),
                  .output_mode = options.output_mode});
}
Feature FeatureSpace::integer_hashed(int64_t num_bins, const std::string& output_mode, Where where) {
  const CallSite site(where);
  return checked(
      {.dtype = "int32", .preprocessor = layers::Hashing(num_bins, {}, where), .output_mode = output_mode});
}
Feature FeatureSpace::string_hashed(int64_t num_bins, const std::string& output_mode, Where where) {
  const CallSite site(where);
  return checked(
      {.dtype = "string", .preprocessor = layers::Hashing(num_bins, {}, where), .output_mode = output_mode});
}
FeatureCross FeatureSpace::cross(const std::vector<std::string>& feature_names,
                                 std::optional<int64_t> crossing_dim, const std::string& output_mode) {
  return {feature_names, crossing_dim, output_mode};
}

// --- the handle --------------------------------------------------------------------------------------------

namespace {

// A row of a dataset as columns of one row each; `is_string` says which of its parts are strings.
template <class IsString>
Columns columns_of(const data::Element& row, Where where, IsString is_string) {
  require(row.structure().kind() == data::Structure::Kind::dict, ErrorCode::invalid_argument, where,
          "FeatureSpace: a row is a dictionary of features by name, received ", row.to_string());
  Columns columns;
  for (const std::string& name : row.structure().names()) {
    const Tensor value = row.at(name, where).tensor(where);
    if (is_string(name))
      columns.emplace(name, std::vector<std::string>{data::text(value, where)});
    else
      columns.emplace(name, reshape(value, {-1}));
  }
  return columns;
}

}  // namespace

FeatureSpace::FeatureSpace(const Features& features, const FeatureSpaceOptions& options, Where where) {
  const CallSite site(where);
  impl_ = std::make_shared<Impl>(features, options);
}

void FeatureSpace::adapt(const Columns& columns, Where where) const {
  const CallSite site(where);
  impl_->adapt(columns, where);
}

void FeatureSpace::adapt(const data::Dataset& rows, Where where) const {
  const CallSite site(where);
  std::map<std::string, std::vector<std::string>> texts;
  std::map<std::string, TensorList> numbers;
  for (const data::Element& row : rows)
    for (auto& [name, column] : columns_of(row, where, [&](const std::string& part) {
           const Feature* feature = impl_->find(part);
           return feature && feature->dtype == "string" && impl_->learning().contains(part);
         })) {
      if (!impl_->learning().contains(name)) continue;
      if (auto* strings = std::get_if<std::vector<std::string>>(&column))
        texts[name].push_back(std::move(strings->front()));
      else
        numbers[name].push_back(std::get<Tensor>(column));
    }
  Columns columns;
  for (auto& [name, column] : texts) columns.emplace(name, std::move(column));
  for (auto& [name, parts] : numbers) columns.emplace(name, concat(parts, 0));
  impl_->adapt(columns, where);
}

std::map<std::string, Tensor> FeatureSpace::encoded(const Columns& columns, Where where) const {
  const CallSite site(where);
  return impl_->encoded(columns, where);
}
Tensor FeatureSpace::operator()(const Columns& columns, Where where) const {
  const CallSite site(where);
  impl_->require_concat("operator()", "encoded()", where);
  return concat(impl_->side_by_side(impl_->encoded(columns, where)), -1);
}

std::map<std::string, Tensor> FeatureSpace::encoded(const data::Element& row, Where where) const {
  const CallSite site(where);
  const Columns columns = columns_of(row, where, [&](const std::string& name) {
    const Feature* feature = impl_->find(name);
    return feature && feature->dtype == "string";
  });
  std::map<std::string, Tensor> result = impl_->encoded(columns, where);
  for (auto& [name, value] : result) {
    require(value.shape()[0] == 1, ErrorCode::shape_mismatch, where,
            "FeatureSpace: a row has one value of each feature, \"", name, "\" has ", value.shape()[0],
            "; map() over single rows comes before batch()");
    value = squeeze(value, {0});
  }
  return result;
}
Tensor FeatureSpace::operator()(const data::Element& row, Where where) const {
  const CallSite site(where);
  impl_->require_concat("operator()", "encoded()", where);
  return concat(impl_->side_by_side(encoded(row, where)), -1);
}

KerasTensor FeatureSpace::get_encoded_features(Where where) const {
  const CallSite site(where);
  impl_->require_concat("get_encoded_features()", "get_encoded_inputs()", where);
  impl_->require_adapted(where);
  if (!impl_->encoded_features)
    impl_->encoded_features = Input({impl_->whole_width()}, {.name = "encoded_features"}, where);
  return *impl_->encoded_features;
}
std::map<std::string, KerasTensor> FeatureSpace::get_encoded_inputs(Where where) const {
  const CallSite site(where);
  if (impl_->encoded_by_name.empty()) impl_->encoded_by_name = impl_->encoded_inputs(where);
  return impl_->encoded_by_name;
}
std::map<std::string, KerasTensor> FeatureSpace::get_inputs(Where where) const {
  const CallSite site(where);
  if (impl_->raw.empty()) impl_->raw = impl_->inputs(where);
  return impl_->raw;
}
KerasTensor FeatureSpace::operator()(const std::map<std::string, KerasTensor>& inputs, Where where) const {
  const CallSite site(where);
  impl_->require_concat("operator()", "encoded()", where);
  const KerasTensorList all = impl_->encoded(inputs, where);
  return all.size() == 1 ? all[0] : layers::Concatenate({}, where)(all, {}, where);
}

Json FeatureSpace::serialize() const { return serialized("keras.utils", "FeatureSpace", impl_->config()); }

FeatureSpace FeatureSpace::deserialize(const Json& json, Where where) {
  const CallSite site(where);
  const Json* class_name = json.find("class_name");
  require(class_name && class_name->is_string() && class_name->as_string() == "FeatureSpace",
          ErrorCode::invalid_argument, where, "expected a serialized FeatureSpace, received ", json);
  const Json& config = json.at("config", where);
  Features features;
  for (const auto& [name, feature] : config.at("features", where).members()) {
    if (feature.is_string())
      features.emplace_back(name, feature.as_string());
    else
      features.emplace_back(name, read_feature(feature, where));
  }
  FeatureSpaceOptions options;
  const auto number = [&](const char* name, int64_t& value) {
    if (const Json* found = config.find(name)) value = found->as_int(where);
  };
  number("crossing_dim", options.crossing_dim);
  number("hashing_dim", options.hashing_dim);
  number("num_discretization_bins", options.num_discretization_bins);
  if (const Json* mode = config.find("output_mode")) options.output_mode = mode->as_string(where);
  if (const Json* crosses = config.find("crosses"); crosses && crosses->is_list())
    for (const Json& cross : crosses->items()) {
      const Json& settings = cross.at("config", where);
      FeatureCross& read = options.crosses.emplace_back();
      for (const Json& name : settings.at("feature_names", where).items())
        read.feature_names.push_back(name.as_string(where));
      read.crossing_dim = settings.at("crossing_dim", where).as_int(where);
      read.output_mode = settings.at("output_mode", where).as_string(where);
    }
  return FeatureSpace(features, options, where);
}

}  // namespace lockstep::keras::utils
