// tf.train.Example: named lists of byte strings, float32s or int64s, the usual contents of TFRecord files.
//
//   TFRecordWriter writer("train.tfrecord");
//   writer.write(Example().bytes("image", png).ints("label", {3}).serialize());
//   writer.close();
//   auto data = TFRecordDataset("train.tfrecord").map(ExampleParser({{"image", {.dtype = DType::uint8}},
//                                                                    {"label", {.dtype = DType::int64}}}));
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/data/element.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::data {

// A value type. Setting a feature again replaces it.
class Example {
 public:
  using BytesList = std::vector<std::string>;
  using FloatList = std::vector<float>;
  using IntList = std::vector<int64_t>;
  using Feature = std::variant<BytesList, FloatList, IntList>;

  Example() = default;
  // Throws Error(io) where the text is no such message.
  static Example parse(std::string_view text, std::source_location where = std::source_location::current());

  Example& bytes(const std::string& name, std::string_view value) {
    return set(name, BytesList{std::string(value)});
  }
  Example& bytes_list(const std::string& name, BytesList values) { return set(name, std::move(values)); }
  Example& floats(const std::string& name, FloatList values) { return set(name, std::move(values)); }
  Example& ints(const std::string& name, IntList values) { return set(name, std::move(values)); }
  // By its dtype: float32 and int64 elements in row-major order, uint8 as one byte string of them.
  Example& tensor(const std::string& name, const Tensor& value,
                  std::source_location where = std::source_location::current());

  const std::map<std::string, Feature>& features() const { return features_; }
  // The same bytes for the same features.
  std::string serialize() const;

 private:
  Example& set(const std::string& name, Feature feature);
  std::map<std::string, Feature> features_;
};

// What is expected of a feature, and what becomes of it.
struct FeatureSpec {
  // float32 and int64 lists, or uint8: byte strings.
  DType dtype = DType::float32;
  // A feature of fixed length, in row-major order: as many values as this shape has. One byte string has the
  // bytes of the shape, or any number of bytes where the shape is {}.
  Shape shape = {};
  // Instead, a feature of variable length: as many values as there are, in a tensor of rank 1; a missing
  // feature is as good as an empty list. Byte strings become a dictionary of "values", all bytes one after
  // another, and "lengths", int64.
  bool variable_length = false;
  // Where the feature is missing: of `dtype` and `shape`, or one value for all. Nullopt: that is an error.
  std::optional<Tensor> default_value{};
};
using FeatureSpecs = std::vector<std::pair<std::string, FeatureSpec>>;

// A function for Dataset::map(), from records to dictionaries of the features, in the order given. Features
// of an example that are not asked for are skipped. A handle; may be called from any thread.
class ExampleParser {
 public:
  // Throws Error(invalid_argument) naming the feature where a specification cannot be.
  explicit ExampleParser(const FeatureSpecs& features,
                         std::source_location where = std::source_location::current());

  // Throws Error(io) where the record is no Example, Error(not_found), Error(dtype_mismatch) or
  // Error(shape_mismatch) naming the feature where that is missing, of another type or of another length.
  Element operator()(const Tensor& record) const;
  Element parse(std::string_view record) const;
  // Many at once: fixed shapes get a dimension in front. What differs in length becomes a dictionary of
  // "values", all of them one after another, and "lengths" (int64, one per record). Lists of byte strings
  // cannot be parsed so.
  Element parse_batch(std::span<const std::string_view> records) const;

  ElementSpec spec() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

Element parse_example(std::string_view record, const FeatureSpecs& features,
                      std::source_location where = std::source_location::current());
Element parse_examples(std::span<const std::string_view> records, const FeatureSpecs& features,
                       std::source_location where = std::source_location::current());

}  // namespace lockstep::data
