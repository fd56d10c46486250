// keras::utils::FeatureSpace: tables of columns by name become what a model takes.
//
//   using utils::FeatureSpace;
//   FeatureSpace space({{"age", "float_normalized"},
//                       {"thal", FeatureSpace::string_categorical()},
//                       {"sex", "integer_categorical"}},
//                      {.crosses = {FeatureSpace::cross({"sex", "thal"}, 16)}});
//   space.adapt(columns);                                              // utils::Columns, or a Dataset of rows
//   Tensor x = space(columns);                                         // float32 (rows, width)
//   dataset.map([=](const data::Element& row) { return space(row); })  // float32 (width)
//
// Strings are host data (docs/decisions/0043): the space encodes before the model, and the model begins with
// what it gives, get_encoded_features(). A space of numbers alone may also be part of a model:
// space(space.get_inputs()).
//
// Kinds of features, by their names or by the functions of these names, which take their settings:
//   float, float_rescaled, float_normalized    one number
//   float_discretized                          the bin that it falls into
//   integer_categorical, string_categorical    a place in the vocabulary that adapt() learns
//   integer_hashed, string_hashed              a bin by the hash
//   crosses                                    a bin by the hash of several features together
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/element.h"
#include "lockstep/keras/layer.h"
#include "lockstep/keras/layers/lookup.h"

namespace lockstep::keras::utils {

// Numbers of shape (rows) or (rows, 1), or strings, by the name of their feature.
using Columns = std::map<std::string, layers::Column>;

// What becomes of a column: the preprocessor gives a number for each row, the mode says in which form it is
// wanted.
struct Feature {
  // Layers take numbers. A StringLookup takes strings, a Hashing what the dtype says.
  using Preprocessor = std::variant<Layer, layers::StringLookup, layers::Hashing>;
  std::string dtype = "float32";  // or "int32", "int64", "string"
  Preprocessor preprocessor = {};
  std::string output_mode = "float";  // or "int", "one_hot"
};

// A feature, or the name of its kind.
class FeatureKind {
 public:
  // NOLINTBEGIN(google-explicit-constructor): {"age", "float_normalized"}
  FeatureKind(const char* name) : value_(std::string(name)) {}
  FeatureKind(std::string name) : value_(std::move(name)) {}
  FeatureKind(Feature feature) : value_(std::move(feature)) {}
  // NOLINTEND(google-explicit-constructor)
  const std::variant<std::string, Feature>& value() const { return value_; }

 private:
  std::variant<std::string, Feature> value_;
};

struct FeatureCross {
  std::vector<std::string> feature_names;
  std::optional<int64_t> crossing_dim = {};  // nullopt: that of the space
  std::string output_mode = "one_hot";       // or "int"
  std::string name() const;                  // "a_X_b"
};

struct CategoricalOptions {
  std::optional<int64_t> max_tokens = {};
  int64_t num_oov_indices = 1;
  std::string output_mode = "one_hot";  // or "int"
};

struct FeatureSpaceOptions {
  std::string output_mode = "concat";  // or "dict": encoded() gives every feature by its name
  std::vector<FeatureCross> crosses = {};
  int64_t crossing_dim = 32;             // of crosses that do not say
  int64_t hashing_dim = 32;              // of features that are hashed by name
  int64_t num_discretization_bins = 32;  // of features that are discretized by name
};

// A handle: copies share what was learned. Const functions but adapt() may be called from several threads.
class FeatureSpace {
 public:
  using Where = std::source_location;

  static Feature float_(Where where = Where::current());
  static Feature float_rescaled(double scale = 1, double offset = 0, Where where = Where::current());
  static Feature float_normalized(Where where = Where::current());
  // Bins that adapt() finds, of about equally many numbers; or those between these boundaries.
  static Feature float_discretized(int64_t num_bins, const std::string& output_mode = "one_hot",
                                   Where where = Where::current());
  static Feature float_discretized(const std::vector<double>& bin_boundaries,
                                   const std::string& output_mode = "one_hot",
                                   Where where = Where::current());
  static Feature integer_categorical(const CategoricalOptions& options = {}, Where where = Where::current());
  static Feature string_categorical(const CategoricalOptions& options = {}, Where where = Where::current());
  static Feature integer_hashed(int64_t num_bins, const std::string& output_mode = "one_hot",
                                Where where = Where::current());
  static Feature string_hashed(int64_t num_bins, const std::string& output_mode = "one_hot",
                               Where where = Where::current());
  static FeatureCross cross(const std::vector<std::string>& feature_names,
                            std::optional<int64_t> crossing_dim = {},
                            const std::string& output_mode = "one_hot");

  using Features = std::vector<std::pair<std::string, FeatureKind>>;
  FeatureSpace(std::initializer_list<Features::value_type> features, const FeatureSpaceOptions& options = {},
               Where where = Where::current())
      : FeatureSpace(Features(features), options, where) {}
  explicit FeatureSpace(const Features& features, const FeatureSpaceOptions& options = {},
                        Where where = Where::current());

  // Vocabularies, means and boundaries. Columns that nothing is learned from may be left out.
  void adapt(const Columns& columns, Where where = Where::current()) const;
  // Rows by name: strings are byte strings, numbers scalars or batches of them. Read to its end, held in
  // memory.
  void adapt(const data::Dataset& rows, Where where = Where::current()) const;

  // All features side by side, sorted by name, then the crosses, sorted by name: float32 (rows, width). Error
  // (failed_precondition) where adapt() is missing, or the output mode is "dict".
  Tensor operator()(const Columns& columns, Where where = Where::current()) const;
  Tensor operator()(const data::Element& row, Where where = Where::current()) const;  // one row: (width)
  // Each of its own, in both modes: float32, or int64 where the feature's mode is "int".
  std::map<std::string, Tensor> encoded(const Columns& columns, Where where = Where::current()) const;
  std::map<std::string, Tensor> encoded(const data::Element& row, Where where = Where::current()) const;

  // Inputs of a model that takes what the space gives; in the mode "dict" one for each name. The same at
  // every call.
  KerasTensor get_encoded_features(Where where = Where::current()) const;
  std::map<std::string, KerasTensor> get_encoded_inputs(Where where = Where::current()) const;

  // Inputs of a model that the space is part of, and what it makes of them. Error(unsupported) where a
  // feature takes strings, or is hashed or crossed.
  std::map<std::string, KerasTensor> get_inputs(Where where = Where::current()) const;
  KerasTensor operator()(const std::map<std::string, KerasTensor>& inputs,
                         Where where = Where::current()) const;

  // Keras' configuration, with what was learned.
  Json serialize() const;
  static FeatureSpace deserialize(const Json& json, Where where = Where::current());

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace lockstep::keras::utils
