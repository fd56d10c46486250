#include "lockstep/keras/layers/lookup.h"

#include <algorithm>

#include "keras/layers/category_encoding.h"
#include "keras/layers/lookup.h"
#include "keras/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/data/element.h"
#include "lockstep/ops/array.h"

namespace lockstep::keras::layers {
namespace {

struct TextVectorizationFields {
  TextVectorizationOptions& options;
  void visit(auto& v) {
    v("name", options.name);
    v("max_tokens", options.max_tokens, at_least(2));
    v("standardize", options.standardize);
    v("split", options.split);
    visit_maybe(v, "ngrams", options.ngrams, kPositive);
    v("output_mode", options.output_mode);
    v("output_sequence_length", options.output_sequence_length, kPositive);
    v("pad_to_max_tokens", options.pad_to_max_tokens);
    visit_maybe(v, "vocabulary", options.vocabulary);
    visit_maybe(v, "idf_weights", options.idf_weights, kFinite);
  }
};

constexpr std::string_view kPunctuation = "!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'";
constexpr std::string_view kBlanks = " \t\n\v\f\r";

// Bytes of the UTF-8 character that starts with this one; a byte that starts none stands alone.
size_t character_size(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  const size_t size = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF8 ? 4 : 1;
  if (size > text.size()) return 1;
  for (size_t i = 1; i < size; ++i)
    if ((static_cast<uint8_t>(text[i]) & 0xC0) != 0x80) return 1;
  return size;
}

StringLookupOptions lookup_options(const TextVectorizationOptions& o) {
  return {.max_tokens = o.max_tokens,
          .mask_token = "",
          .vocabulary = o.vocabulary,
          .idf_weights = o.idf_weights,
          .output_mode = o.output_mode,
          .pad_to_max_tokens = o.pad_to_max_tokens};
}

}  // namespace

TextVectorization::TextVectorization(const TextVectorizationOptions& options, std::source_location where)
    : options_(options), lookup_(lookup_options(options), where) {
  const CallSite site(where);
  check_fields(TextVectorizationFields{options_}, "TextVectorization");
  options_.output_mode = lookup_.options_.output_mode;
  const auto check = [&](bool holds, const auto&... rule) {
    require(holds, ErrorCode::invalid_argument, where, "TextVectorization: ", rule...);
  };
  const std::string standardize = options.standardize.value_or("lower"),
                    split = options.split.value_or("character");
  check(
      standardize == "lower_and_strip_punctuation" || standardize == "lower" ||
          standardize == "strip_punctuation",
      "standardize is \"lower_and_strip_punctuation\", \"lower\", \"strip_punctuation\" or none, received \"",
      standardize, "\"");
  check(split == "whitespace" || split == "character",
        "split is \"whitespace\", \"character\" or none, received \"", split, "\"");
  check(!options.output_sequence_length || options_.output_mode == "int",
        "output_sequence_length goes with output_mode \"int\", received \"", options_.output_mode, "\"");
}

std::vector<std::string> TextVectorization::tokens(std::string_view text) const {
  const std::string standardize = options_.standardize.value_or("");
  const bool lower = standardize.starts_with("lower"), strip = standardize.ends_with("strip_punctuation");
  std::string plain;
  plain.reserve(text.size());
  for (const char c : text) {
    if (strip && kPunctuation.find(c) != std::string_view::npos) continue;
    plain.push_back(lower && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  }
  std::vector<std::string> found;
  std::string_view rest = plain;
  if (!options_.split) {
    found.emplace_back(rest);
  } else if (*options_.split == "character") {
    for (; !rest.empty(); rest.remove_prefix(character_size(rest)))
      found.emplace_back(rest.substr(0, character_size(rest)));
  } else {
    for (size_t start = 0; (start = rest.find_first_not_of(kBlanks, start)) != std::string_view::npos;) {
      const size_t end = std::min(rest.find_first_of(kBlanks, start), rest.size());
      found.emplace_back(rest.substr(start, end - start));
      start = end;
    }
  }
  return grams_of(std::move(found));
}

std::vector<std::string> TextVectorization::grams_of(std::vector<std::string> found) const {
  if (options_.ngrams.empty()) return found;
  std::vector<std::string> grams;
  for (const int64_t width : options_.ngrams)
    for (int64_t i = 0; i + width <= std::ssize(found); ++i) {
      std::string gram = found[static_cast<size_t>(i)];
      for (int64_t k = 1; k < width; ++k) gram += " " + found[static_cast<size_t>(i + k)];
      grams.push_back(std::move(gram));
    }
  return grams;
}

void TextVectorization::adapt(std::span<const std::string> texts, std::source_location where) {
  learn(split(texts), where);
}
void TextVectorization::adapt(const Rows& rows, std::source_location where) {
  learn(with_grams(rows), where);
}

void TextVectorization::learn(const Rows& rows, std::source_location where) {
  try {
    lookup_.learn(rows, where);
  } catch (Error& error) {
    error.note("in TextVectorization");
    throw;
  }
}

void TextVectorization::set_vocabulary(const std::vector<std::string>& tokens,
                                       const std::vector<double>& idf_weights, std::source_location where) {
  lookup_.set_vocabulary(tokens, idf_weights, where);
}

std::vector<std::string> TextVectorization::get_vocabulary(bool include_special_tokens) const {
  return lookup_.get_vocabulary(include_special_tokens);
}

std::vector<std::vector<std::string>> TextVectorization::split(std::span<const std::string> texts) const {
  Rows rows;
  for (const std::string& text : texts) rows.push_back(tokens(text));
  return rows;
}

std::vector<std::vector<std::string>> TextVectorization::with_grams(const Rows& rows) const {
  Rows all;
  for (const std::vector<std::string>& row : rows) all.push_back(grams_of(row));
  return all;
}

Tensor TextVectorization::rows_of(const Rows& rows, std::source_location where) const {
  const NumberRows numbers = lookup_.numbers_of(rows, where);
  if (options_.output_mode == "multi_hot" || options_.output_mode == "count" ||
      options_.output_mode == "tf_idf")
    return lookup_.counted(numbers, false, where);
  int64_t length = options_.output_sequence_length.value_or(0);
  if (!options_.output_sequence_length)
    for (const std::vector<int64_t>& row : numbers)
      length = std::max(length, static_cast<int64_t>(std::ssize(row)));
  std::vector<int64_t> padded(numbers.size() * static_cast<size_t>(length), 0);
  for (size_t i = 0; i < numbers.size(); ++i)
    std::copy_n(numbers[i].begin(), std::min(length, static_cast<int64_t>(std::ssize(numbers[i]))),
                padded.begin() + static_cast<std::ptrdiff_t>(i) * length);
  const Tensor all = Tensor::from(padded, {std::ssize(numbers), length}, where);
  return options_.output_mode == "int" ? all : encode(all, "one_hot", vocabulary_size(), DType::int64);
}

Tensor TextVectorization::operator()(std::span<const std::string> texts, std::source_location where) const {
  return rows_of(split(texts), where);
}
Tensor TextVectorization::operator()(const Rows& rows, std::source_location where) const {
  return rows_of(with_grams(rows), where);
}
Tensor TextVectorization::operator()(const Tensor& text, std::source_location where) const {
  const std::vector<std::string> one{data::text(text, where)};
  return squeeze(rows_of(split(one), where), {0});
}

Json TextVectorization::serialize() const {
  TextVectorizationOptions options = options_;
  const Json lookup = lookup_.serialize();
  FieldWriter writer;
  TextVectorizationFields{options}.visit(writer);
  Json config = writer.take();
  for (const char* learned : {"vocabulary", "idf_weights"})
    config.set(learned, lookup.at("config").at(learned));
  return serialized("keras.layers", "TextVectorization", std::move(config));
}

TextVectorization TextVectorization::deserialize(const Json& json, std::source_location where) {
  const CallSite site(where);
  TextVectorizationOptions options;
  Json config = config_of(json, "TextVectorization", where);
  // Keras' number n stands for all widths up to n.
  if (const Json* ngrams = config.find("ngrams"); ngrams && ngrams->is_int()) {
    Json widths = Json::list();
    for (int64_t width = 1; width <= ngrams->as_int(); ++width) widths.push_back(width);
    config.set("ngrams", widths);
  }
  FieldReader reader(config);
  TextVectorizationFields{options}.visit(reader);
  read_constant_fields(reader, config, "TextVectorization", where);
  reader.finish();
  return TextVectorization(options, where);
}

}  // namespace lockstep::keras::layers
