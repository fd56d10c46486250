#include "lockstep/keras/layers/lookup.h"

#include "keras/fingerprint.h"
#include "keras/layers/category_encoding.h"
#include "keras/layers/lookup.h"
#include "keras/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::layers {
namespace {

std::string text_of(int64_t number) { return std::to_string(number); }

// Whole numbers of a tensor as they are written.
std::vector<std::string> texts_of(const Tensor& numbers, const char* layer, std::source_location where) {
  require(numbers.defined(), ErrorCode::invalid_argument, where, layer, ": an undefined tensor was given");
  std::vector<std::string> texts;
  for (const int64_t number : cast(numbers, DType::int64).to_vector<int64_t>())
    texts.push_back(text_of(number));
  return texts;
}

Tensor encoded(const std::vector<int64_t>& bins, const Shape& shape, const std::string& mode, int64_t depth,
               std::source_location where) {
  const Tensor all = Tensor::from(bins, shape, where);
  return mode == "int" ? all : encode(all, mode, depth, DType::float32);
}

void require_bins(int64_t num_bins, const char* layer, std::source_location where) {
  require(num_bins > 0, ErrorCode::invalid_argument, where, layer, ": num_bins must be positive, received ",
          num_bins);
}

}  // namespace

Hashing::Hashing(int64_t num_bins, const HashingOptions& options, std::source_location where)
    : num_bins_(num_bins), options_(options) {
  require_bins(num_bins, "Hashing", where);
  options_.output_mode = checked_mode(options.output_mode, false, "Hashing", where);
}

Tensor Hashing::binned(std::span<const std::string> values, const Shape& shape,
                       std::source_location where) const {
  std::optional<std::string> mask;
  if (const auto* number = std::get_if<int64_t>(&options_.mask_value)) mask = text_of(*number);
  if (const auto* text = std::get_if<std::string>(&options_.mask_value)) mask = *text;
  const bool reserved = mask && num_bins_ > 1;
  const auto bins = static_cast<uint64_t>(reserved ? num_bins_ - 1 : num_bins_);
  std::vector<int64_t> found;
  for (const std::string& value : values) {
    const auto bin = static_cast<int64_t>(hash_of(value, options_.salt) % bins);
    found.push_back(!reserved ? bin : value == *mask ? 0 : bin + 1);
  }
  return encoded(found, shape, options_.output_mode, num_bins_, where);
}

Tensor Hashing::operator()(std::span<const std::string> values, std::source_location where) const {
  return binned(values, {std::ssize(values)}, where);
}
Tensor Hashing::operator()(const Tensor& numbers, std::source_location where) const {
  return binned(texts_of(numbers, "Hashing", where), numbers.shape(), where);
}

Json Hashing::serialize() const {
  Json config = Json::object({{"name", options_.name}, {"num_bins", num_bins_}});
  Salt salt = options_.salt;
  config.set("salt", to_json(SaltField{salt}));
  Json mask;
  if (const auto* number = std::get_if<int64_t>(&options_.mask_value)) mask = *number;
  if (const auto* text = std::get_if<std::string>(&options_.mask_value)) mask = *text;
  config.set("mask_value", mask);
  config.set("output_mode", options_.output_mode);
  config.set("sparse", false);
  return serialized("keras.layers", "Hashing", std::move(config));
}

Hashing Hashing::deserialize(const Json& json, std::source_location where) {
  const CallSite site(where);
  HashingOptions options;
  int64_t num_bins = 0;
  Json mask;
  SaltField salt{options.salt};
  FieldReader reader(config_of(json, "Hashing", where));
  reader("name", options.name);
  reader("num_bins", num_bins, kPositive);
  reader("salt", salt);
  reader("mask_value", mask);
  reader("output_mode", options.output_mode);
  read_constant_fields(reader, config_of(json, "Hashing", where), "Hashing", where);
  reader.finish();
  if (mask.is_int()) options.mask_value = mask.as_int();
  if (mask.is_string()) options.mask_value = mask.as_string();
  return Hashing(num_bins, options, where);
}

HashedCrossing::HashedCrossing(int64_t num_bins, const HashedCrossingOptions& options,
                               std::source_location where)
    : num_bins_(num_bins), options_(options) {
  require_bins(num_bins, "HashedCrossing", where);
  require(options.output_mode == "int" || options.output_mode == "one_hot", ErrorCode::invalid_argument,
          where, "HashedCrossing: output_mode must be int or one_hot, received \"", options.output_mode,
          "\"");
}

Tensor HashedCrossing::operator()(const std::vector<Column>& columns, std::source_location where) const {
  constexpr uint64_t kKey = 0xDECAFCAFFE;  // TensorFlow's
  require(columns.size() > 1, ErrorCode::invalid_argument, where,
          "HashedCrossing: crosses two columns or more, received ", columns.size());
  std::vector<std::vector<uint64_t>> prints;
  for (const Column& column : columns) {
    std::vector<uint64_t>& own = prints.emplace_back();
    if (const auto* texts = std::get_if<std::vector<std::string>>(&column)) {
      for (const std::string& text : *texts) own.push_back(farm_fingerprint(text));
    } else {
      for (const int64_t number : cast(std::get<Tensor>(column), DType::int64).to_vector<int64_t>())
        own.push_back(static_cast<uint64_t>(number));
    }
    require(own.size() == prints[0].size(), ErrorCode::shape_mismatch, where,
            "HashedCrossing: columns must have one length, received ", prints[0].size(), " and ", own.size());
  }
  std::vector<int64_t> bins;
  for (size_t row = 0; row < prints[0].size(); ++row) {
    uint64_t joined = kKey;
    for (const std::vector<uint64_t>& column : prints) joined = joined_fingerprint(joined, column[row]);
    bins.push_back(static_cast<int64_t>(joined % static_cast<uint64_t>(num_bins_)));
  }
  return encoded(bins, {std::ssize(bins)}, options_.output_mode, num_bins_, where);
}

Json HashedCrossing::serialize() const {
  return serialized("keras.layers", "HashedCrossing",
                    Json::object({{"num_bins", num_bins_},
                                  {"output_mode", options_.output_mode},
                                  {"sparse", false},
                                  {"name", options_.name}}));
}

HashedCrossing HashedCrossing::deserialize(const Json& json, std::source_location where) {
  const CallSite site(where);
  HashedCrossingOptions options;
  int64_t num_bins = 0;
  FieldReader reader(config_of(json, "HashedCrossing", where));
  reader("num_bins", num_bins, kPositive);
  reader("output_mode", options.output_mode);
  reader("name", options.name);
  read_constant_fields(reader, config_of(json, "HashedCrossing", where), "HashedCrossing", where);
  reader.finish();
  return HashedCrossing(num_bins, options, where);
}

}  // namespace lockstep::keras::layers
