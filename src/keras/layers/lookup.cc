#include "lockstep/keras/layers/lookup.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "graph/emit.h"
#include "keras/fields.h"
#include "keras/fingerprint.h"
#include "keras/layers/adaptable.h"
#include "keras/layers/category_encoding.h"
#include "keras/layers/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/data/element.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"
#include "lockstep/ops/reduce.h"
#include "lockstep/ops/sort.h"

namespace lockstep::keras::layers {
namespace {

using Rows = std::vector<std::vector<std::string>>;
using NumberRows = std::vector<std::vector<int64_t>>;

constexpr int64_t kNoCategory = -1;

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

// One row for each of `rows`: what each number counts in it, added up; 1 where it is there at all, for multi_hot.
template <class T>
std::vector<T> sums_of(const NumberRows& rows, int64_t depth, bool once, const std::vector<double>& worth) {
  std::vector<T> sums(rows.size() * static_cast<size_t>(depth), T{0});
  for (size_t r = 0; r < rows.size(); ++r)
    for (const int64_t number : rows[r]) {
      if (number < 0 || number >= depth) continue;
      T& sum = sums[r * static_cast<size_t>(depth) + static_cast<size_t>(number)];
      if (once)
        sum = T{1};
      else
        sum += worth.empty() ? T{1} : static_cast<T>(worth[static_cast<size_t>(number)]);
    }
  return sums;
}

std::string text_of(int64_t number) { return std::to_string(number); }

// Whole numbers of a tensor as they are written.
std::vector<std::string> texts_of(const Tensor& numbers, const char* layer, std::source_location where) {
  require(numbers.defined(), ErrorCode::invalid_argument, where, layer, ": an undefined tensor was given");
  std::vector<std::string> texts;
  for (const int64_t number : cast(numbers, DType::int64).to_vector<int64_t>())
    texts.push_back(text_of(number));
  return texts;
}

// The most frequent first; of equally frequent ones the largest.
template <class Token>
std::vector<Token> ranked(const std::map<Token, int64_t>& counts, std::optional<int64_t> most) {
  std::vector<std::pair<int64_t, Token>> all;
  for (const auto& [token, count] : counts) all.emplace_back(count, token);
  std::sort(all.rbegin(), all.rend());
  if (most && std::ssize(all) > *most) all.resize(static_cast<size_t>(std::max<int64_t>(*most, 0)));
  std::vector<Token> tokens;
  for (auto& [count, token] : all) tokens.push_back(std::move(token));
  return tokens;
}

// What tokens are worth that occur in so many of the documents, behind what unknown ones are: the mean.
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

template <class Options>
void check_lookup(const Options& o, const char* layer, std::source_location where) {
  const auto check = [&](bool holds, const auto&... rule) {
    require(holds, ErrorCode::invalid_argument, where, layer, ": ", rule...);
  };
  check(!o.pad_to_max_tokens || o.max_tokens, "pad_to_max_tokens needs max_tokens");
  check(!o.invert || o.output_mode == "int", "invert goes with output_mode \"int\", received \"",
        o.output_mode, "\"");
  check(o.idf_weights.empty() || o.output_mode == "tf_idf", "idf_weights are for output_mode \"tf_idf\"");
}

// Tokens without the special ones that they may begin with, all of them different.
template <class Token>
std::vector<Token> plain_tokens(std::vector<Token> tokens, const std::vector<Token>& specials,
                                std::optional<int64_t> max_tokens, const char* layer,
                                std::source_location where) {
  const auto begins = std::ssize(tokens) >= std::ssize(specials) &&
                      std::equal(specials.begin(), specials.end(), tokens.begin());
  if (begins) tokens.erase(tokens.begin(), tokens.begin() + std::ssize(specials));
  require(!tokens.empty(), ErrorCode::invalid_argument, where, layer, ": the vocabulary has no token");
  std::set<Token> seen;
  for (const Token& token : tokens) {
    require(seen.insert(token).second, ErrorCode::invalid_argument, where, layer, ": \"", token,
            "\" is in the vocabulary twice");
    require(std::find(specials.begin(), specials.end(), token) == specials.end(), ErrorCode::invalid_argument,
            where, layer, ": \"", token,
            "\" stands for something else; leave it out of the vocabulary, or put all special tokens first");
  }
  const int64_t size = std::ssize(tokens) + std::ssize(specials);
  require(!max_tokens || size <= *max_tokens, ErrorCode::invalid_argument, where, layer, ": a vocabulary of ",
          size, " tokens, special ones included, passes max_tokens, ", max_tokens.value_or(0));
  return tokens;
}

// Keras' lookups know settings that have one value here: what another value asks for is not lost without a word.
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

// Tokens are strings or whole numbers, any of them.
template <class T>
void visit_token(auto& v, const char* name, T& token) {
  if constexpr (HoldsNumbers<T>)
    v(name, token, kAnything);
  else
    v(name, token);
}

template <class Options>
void visit_lookup(auto& v, Options& o) {
  v("name", o.name);
  v("invert", o.invert);
  v("max_tokens", o.max_tokens, at_least(2));
  v("num_oov_indices", o.num_oov_indices, Range{.low = 0, .high = 1 << 20});  // the vocabulary lists each
  visit_token(v, "oov_token", o.oov_token);
  visit_token(v, "mask_token", o.mask_token);
  v("output_mode", o.output_mode);
  v("pad_to_max_tokens", o.pad_to_max_tokens);
}

// An empty list is null in files.
template <class T>
struct MaybeList {
  std::vector<T>& list;
};
template <class T>
Json to_json(const MaybeList<T>& value) {
  return value.list.empty() ? Json() : keras::to_json(value.list);
}
template <class T>
void from_json(const Json& json, MaybeList<T>& value) {
  value.list.clear();
  if (!json.is_null()) keras::from_json(json, value.list);
}
template <Number T>
void each_number(const MaybeList<T>& value, auto&& f) {
  keras::each_number(value.list, f);
}
template <class T>
void visit_maybe(auto& v, const char* name, std::vector<T>& list, const Range& range = kAnything) {
  MaybeList<T> value{list};
  if constexpr (HoldsNumbers<MaybeList<T>>)
    v(name, value, range);
  else
    v(name, value);
}

// A key of two numbers; Keras takes one number for both.
using Salt = std::optional<std::pair<uint64_t, uint64_t>>;
struct SaltField {
  Salt& salt;
};
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

struct StringLookupFields {
  StringLookupOptions& options;
  void visit(auto& v) {
    visit_lookup(v, options);
    SaltField salt{options.salt};
    v("salt", salt);
    visit_maybe(v, "vocabulary", options.vocabulary);
    visit_maybe(v, "idf_weights", options.idf_weights, kFinite);
  }
};

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

const Json& config_of(const Json& json, const char* class_name, std::source_location where) {
  const Json* given = json.find("class_name");
  require(given && given->is_string() && given->as_string() == class_name, ErrorCode::invalid_argument, where,
          "expected a serialized ", class_name, ", received ", json);
  return json.at("config");
}

}  // namespace

// --- StringLookup ----------------------------------------------------------------------------------------------------

StringLookup::StringLookup(const StringLookupOptions& options, std::source_location where)
    : options_(options) {
  const CallSite site(where);
  check_fields(StringLookupFields{options_}, "StringLookup");
  options_.output_mode = checked_mode(options.output_mode, true, "StringLookup", where);
  check_lookup(options_, "StringLookup", where);
  if (!options_.vocabulary.empty()) set_vocabulary(options_.vocabulary, options_.idf_weights, where);
}

void StringLookup::set_vocabulary(const std::vector<std::string>& tokens,
                                  const std::vector<double>& idf_weights, std::source_location where) {
  std::vector<std::string> specials(static_cast<size_t>(oov_start()), options_.mask_token.value_or(""));
  specials.insert(specials.end(), static_cast<size_t>(options_.num_oov_indices), options_.oov_token);
  std::vector<std::string> plain = plain_tokens(tokens, specials, options_.max_tokens, "StringLookup", where);
  std::vector<double> worth = idf_weights;
  if (options_.output_mode == "tf_idf") {
    require(idf_weights.size() == tokens.size(), ErrorCode::invalid_argument, where,
            "StringLookup: ", tokens.size(), " tokens need as many idf_weights, received ",
            idf_weights.size());
    if (plain.size() == tokens.size()) {
      const double mean =
          std::accumulate(worth.begin(), worth.end(), 0.0) / static_cast<double>(worth.size());
      worth.insert(worth.begin(), specials.size(), mean);
    }
  }
  given_ = true;
  options_.vocabulary = plain;
  use(std::move(plain), worth, where);
}

void StringLookup::use(std::vector<std::string> tokens, const std::vector<double>& idf,
                       std::source_location) {
  tokens_ = std::move(tokens);
  idf_ = idf;
  numbers_.clear();
  for (size_t i = 0; i < tokens_.size(); ++i)
    numbers_.emplace(tokens_[i], token_start() + static_cast<int64_t>(i));
}

void StringLookup::adapt(std::span<const std::string> tokens, std::source_location where) {
  Rows rows;
  for (const std::string& token : tokens) rows.push_back({token});
  learn(rows, where);
}
void StringLookup::adapt(const Rows& rows, std::source_location where) { learn(rows, where); }

void StringLookup::learn(const Rows& rows, std::source_location where) {
  require(!given_, ErrorCode::failed_precondition, where,
          "StringLookup: a vocabulary was given; there is nothing to adapt");
  std::map<std::string, int64_t> counts, documents_with;
  for (const std::vector<std::string>& row : rows) {
    for (const std::string& token : row) ++counts[token];
    for (const std::string& token : std::set(row.begin(), row.end())) ++documents_with[token];
  }
  if (options_.mask_token) counts.erase(*options_.mask_token);
  counts.erase(options_.oov_token);
  std::vector<std::string> tokens = ranked(
      counts, options_.max_tokens ? std::optional(*options_.max_tokens - token_start()) : std::nullopt);
  std::vector<double> worth;
  if (options_.output_mode == "tf_idf") {
    std::vector<int64_t> with;
    for (const std::string& token : tokens) with.push_back(documents_with[token]);
    worth = worth_of(with, std::ssize(rows), token_start());
  }
  use(std::move(tokens), worth, where);
}

std::vector<std::string> StringLookup::get_vocabulary(bool include_special_tokens) const {
  std::vector<std::string> all;
  if (include_special_tokens) {
    all.assign(static_cast<size_t>(token_start()), options_.oov_token);
    if (oov_start() == 1) all[0] = *options_.mask_token;
  }
  all.insert(all.end(), tokens_.begin(), tokens_.end());
  return all;
}
int64_t StringLookup::vocabulary_size() const { return token_start() + std::ssize(tokens_); }

int64_t StringLookup::number_of(const std::string& token, std::source_location where) const {
  if (options_.mask_token && token == *options_.mask_token)
    return options_.output_mode == "int" ? 0 : kNoCategory;
  if (const auto found = numbers_.find(token); found != numbers_.end()) return found->second;
  require(options_.num_oov_indices > 0, ErrorCode::invalid_argument, where, "StringLookup: \"", token,
          "\" is not in the vocabulary; num_oov_indices = 1 would give unknown tokens a number");
  if (options_.num_oov_indices == 1) return oov_start();
  return oov_start() + static_cast<int64_t>(hash_of(token, options_.salt) %
                                            static_cast<uint64_t>(options_.num_oov_indices));
}

NumberRows StringLookup::numbers_of(const Rows& rows, std::source_location where) const {
  require(!options_.invert, ErrorCode::failed_precondition, where,
          "StringLookup: this one has invert set: tokens() gives the tokens of numbers");
  require(!tokens_.empty(), ErrorCode::failed_precondition, where,
          "StringLookup: there is no vocabulary yet; call adapt() or set_vocabulary() first");
  NumberRows numbers;
  for (const std::vector<std::string>& row : rows) {
    std::vector<int64_t>& own = numbers.emplace_back();
    for (const std::string& token : row) own.push_back(number_of(token, where));
  }
  return numbers;
}

Tensor StringLookup::counted(const NumberRows& rows, bool one_row, std::source_location where) const {
  const int64_t depth = options_.pad_to_max_tokens ? *options_.max_tokens : vocabulary_size();
  const Shape shape = one_row ? Shape{depth} : Shape{std::ssize(rows), depth};
  if (options_.output_mode == "tf_idf") {
    std::vector<double> worth = idf_;
    worth.resize(static_cast<size_t>(depth), 0);
    return Tensor::from(sums_of<float>(rows, depth, false, worth), shape, where);
  }
  return Tensor::from(sums_of<int64_t>(rows, depth, options_.output_mode != "count", {}), shape, where);
}

Tensor StringLookup::operator()(const Rows& rows, std::source_location where) const {
  const NumberRows numbers = numbers_of(rows, where);
  if (options_.output_mode != "int" && options_.output_mode != "one_hot")
    return counted(numbers, false, where);
  const int64_t length = numbers.empty() ? 0 : std::ssize(numbers[0]);
  std::vector<int64_t> flat;
  for (const std::vector<int64_t>& row : numbers) {
    require(std::ssize(row) == length, ErrorCode::shape_mismatch, where,
            "StringLookup: rows of one length make a tensor, received rows of ", length, " and ", row.size(),
            " tokens; TextVectorization pads them");
    flat.insert(flat.end(), row.begin(), row.end());
  }
  const Tensor all = Tensor::from(flat, {std::ssize(numbers), length}, where);
  return options_.output_mode == "int" ? all : encode(all, "one_hot", vocabulary_size(), DType::int64);
}

Tensor StringLookup::operator()(std::span<const std::string> tokens, std::source_location where) const {
  const NumberRows numbers = numbers_of({{tokens.begin(), tokens.end()}}, where);
  if (options_.output_mode == "int") return Tensor::from(numbers[0], {std::ssize(numbers[0])}, where);
  if (options_.output_mode != "one_hot") return counted(numbers, true, where);
  NumberRows single;
  for (const int64_t number : numbers[0]) single.push_back({number});
  return counted(single, false, where);
}

Tensor StringLookup::operator()(const Tensor& token, std::source_location where) const {
  const std::vector<std::string> one{data::text(token, where)};
  const Tensor result = (*this)(std::span<const std::string>(one), where);
  return options_.output_mode == "int" || options_.output_mode == "one_hot" ? squeeze(result, {0}) : result;
}

std::vector<std::string> StringLookup::tokens(const Tensor& numbers, std::source_location where) const {
  require(options_.invert, ErrorCode::failed_precondition, where,
          "StringLookup: tokens() is for lookups with invert");
  const std::vector<std::string> vocabulary = get_vocabulary();
  std::vector<std::string> found;
  for (const int64_t number : cast(numbers, DType::int64).to_vector<int64_t>())
    found.push_back(number >= 0 && number < std::ssize(vocabulary) ? vocabulary[static_cast<size_t>(number)]
                                                                   : options_.oov_token);
  return found;
}

Json StringLookup::serialize() const {
  StringLookupOptions options = options_;
  options.vocabulary = tokens_;
  options.idf_weights.assign(idf_.begin() + std::min(token_start(), static_cast<int64_t>(std::ssize(idf_))),
                             idf_.end());
  FieldWriter writer;
  StringLookupFields{options}.visit(writer);
  return serialized("keras.layers", "StringLookup", writer.take());
}

StringLookup StringLookup::deserialize(const Json& json, std::source_location where) {
  const CallSite site(where);
  StringLookupOptions options;
  FieldReader reader(config_of(json, "StringLookup", where));
  StringLookupFields{options}.visit(reader);
  read_constant_fields(reader, config_of(json, "StringLookup", where), "StringLookup", where);
  reader.finish();
  return StringLookup(options, where);
}

// --- TextVectorization -----------------------------------------------------------------------------------------------

namespace {

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

// --- IntegerLookup ---------------------------------------------------------------------------------------------------

namespace {

struct IntegerLookupSettings {
  IntegerLookupOptions options;
  std::string oov_method = "floormod", vocabulary_dtype = "int64";
  Salt salt = {};
  bool sparse = false;
  void visit(auto& v) {
    visit_lookup(v, options);
    v("oov_method", oov_method);
    if constexpr (requires { v.ignore("salt"); }) {
      SaltField given{salt};
      v("salt", given);
    }
    v("vocabulary_dtype", vocabulary_dtype);
    v("sparse", sparse);
    visit_maybe(v, "vocabulary", options.vocabulary);
    visit_maybe(v, "idf_weights", options.idf_weights, kFinite);
    if constexpr (requires { v.ignore("vocabulary_size"); }) {
      v.ignore("vocabulary_size");
      v.ignore("has_input_vocabulary");
    }
  }
};

class IntegerLookupLayer final : public ConfiguredLayer<IntegerLookupSettings>, public Adaptable {
 public:
  static constexpr const char* kClassName = "IntegerLookup";
  IntegerLookupLayer(const char* class_name, IntegerLookupSettings settings)
      : ConfiguredLayer(class_name, std::move(settings)) {
    const auto here = std::source_location::current();
    IntegerLookupOptions& o = settings_.options;
    o.output_mode = checked_mode(o.output_mode, true, kClassName, here);
    check_lookup(o, kClassName, here);
    require(settings_.oov_method == "floormod" || settings_.oov_method == "farmhash",
            ErrorCode::invalid_argument, here,
            "IntegerLookup: oov_method must be \"floormod\" or \"farmhash\", received \"",
            settings_.oov_method, "\"");
    // Of one number for all that is unknown no method says anything.
    require((settings_.oov_method == "floormod" && !settings_.salt) || o.num_oov_indices < 2,
            ErrorCode::unsupported, here,
            "IntegerLookup: oov_method must be \"floormod\", without a salt, received \"",
            settings_.oov_method,
            "\": hashes are made on the host, by StringLookup and Hashing, while this layer runs on devices");
    require(settings_.vocabulary_dtype == "int64" || settings_.vocabulary_dtype == "int32",
            ErrorCode::invalid_argument, here,
            "IntegerLookup: vocabulary_dtype must be int64 or int32, received \"", settings_.vocabulary_dtype,
            "\"");
    require(!settings_.sparse, ErrorCode::unsupported, here,
            "IntegerLookup: sparse must be false: there are no sparse tensors; rows have one length, with "
            "zeros where "
            "nothing is");
    if (!o.vocabulary.empty()) use(o.vocabulary, o.idf_weights, here);
  }

  // A vocabulary that is given, with or without the special tokens at its beginning.
  void use(const std::vector<int64_t>& tokens, const std::vector<double>& idf_weights,
           std::source_location where) {
    IntegerLookupOptions& o = settings_.options;
    std::vector<int64_t> plain = plain_tokens(tokens, specials(), o.max_tokens, kClassName, where);
    require(o.output_mode != "tf_idf" || idf_weights.size() == plain.size(), ErrorCode::invalid_argument,
            where, "IntegerLookup: ", plain.size(), " tokens need as many idf_weights, received ",
            idf_weights.size());
    require(!plain.empty(), ErrorCode::invalid_argument, where, "IntegerLookup: a vocabulary needs tokens");
    o.vocabulary = std::move(plain);
    o.idf_weights = idf_weights;
    given_ = true;
  }

  void adapt(const Tensor& data, std::source_location where) override {
    IntegerLookupOptions& o = settings_.options;
    require(!given_, ErrorCode::failed_precondition, where,
            "IntegerLookup: a vocabulary was given; there is nothing to adapt");
    require(data.defined() && data.size() > 0, ErrorCode::invalid_argument, where,
            "IntegerLookup: adapt() needs data");
    const std::vector<int64_t> all = cast(data, DType::int64).to_vector<int64_t>();
    const int64_t width = data.rank() > 1 ? static_cast<int64_t>(all.size()) / data.shape()[0] : 1;
    std::map<int64_t, int64_t> counts, documents_with;
    for (auto row = all.begin(); row != all.end(); row += width) {
      std::for_each(row, row + width, [&](int64_t token) { ++counts[token]; });
      for (const int64_t token : std::set(row, row + width)) ++documents_with[token];
    }
    if (o.mask_token) counts.erase(*o.mask_token);
    counts.erase(o.oov_token);
    o.vocabulary = ranked(counts, o.max_tokens ? std::optional(*o.max_tokens - token_start()) : std::nullopt);
    if (o.output_mode != "tf_idf") return;
    std::vector<int64_t> with;
    for (const int64_t token : o.vocabulary) with.push_back(documents_with[token]);
    o.idf_weights = worth_of(with, static_cast<int64_t>(all.size()) / width, 0);
  }

  Tensor call(const Tensor& input, const CallContext&) override {
    const IntegerLookupOptions& o = settings_.options;
    require(!o.vocabulary.empty(), ErrorCode::failed_precondition, where(),
            "IntegerLookup: there is no vocabulary yet; call adapt(), or give one");
    const Tensor x = cast(input, DType::int64);
    if (o.invert) return inverted(x);
    const Tensor number = numbers_of(x);
    if (o.output_mode == "int") return number;
    const int64_t depth = o.pad_to_max_tokens ? *o.max_tokens : vocabulary_size();
    if (o.output_mode != "tf_idf") return encode(number, o.output_mode, depth, DType::int64);
    std::vector<double> worth = o.idf_weights;
    const double mean = std::accumulate(worth.begin(), worth.end(), 0.0) / static_cast<double>(worth.size());
    worth.insert(worth.begin(), static_cast<size_t>(token_start()), mean);
    worth.resize(static_cast<size_t>(depth), 0);
    return encode(number, "count", depth, DType::float32) *
           table(std::vector<float>(worth.begin(), worth.end()));
  }
  bool autocast_inputs() const override { return false; }

  std::vector<int64_t> vocabulary() const {
    std::vector<int64_t> all = specials();
    all.insert(all.end(), settings_.options.vocabulary.begin(), settings_.options.vocabulary.end());
    return all;
  }

 private:
  int64_t oov_start() const {
    return settings_.options.mask_token && settings_.options.output_mode == "int" ? 1 : 0;
  }
  int64_t token_start() const { return oov_start() + settings_.options.num_oov_indices; }
  int64_t vocabulary_size() const { return token_start() + std::ssize(settings_.options.vocabulary); }
  std::vector<int64_t> specials() const {
    const IntegerLookupOptions& o = settings_.options;
    std::vector<int64_t> specials(static_cast<size_t>(oov_start()), o.mask_token.value_or(0));
    specials.insert(specials.end(), static_cast<size_t>(o.num_oov_indices), o.oov_token);
    return specials;
  }

  template <class T>
  static Tensor table(const std::vector<T>& values) {
    const TracePause outside;
    return Tensor::from(values, {std::ssize(values)});
  }

  // A look into the sorted tokens says where one would stand, and whether it stands there.
  Tensor numbers_of(const Tensor& x) const {
    const IntegerLookupOptions& o = settings_.options;
    std::vector<std::pair<int64_t, int64_t>> sorted;
    for (const int64_t token : o.vocabulary)
      sorted.emplace_back(token, token_start() + static_cast<int64_t>(sorted.size()));
    std::sort(sorted.begin(), sorted.end());
    std::vector<int64_t> tokens, numbers;
    for (const auto& [token, number] : sorted) {
      tokens.push_back(token);
      numbers.push_back(number);
    }
    const Tensor keys = table(tokens);
    const Tensor place = reshape(searchsorted(keys, reshape(x, {-1})), x.shape());
    const Tensor at = minimum(cast(place, DType::int64), std::ssize(tokens) - 1);
    Tensor unknown = full_like(x, o.num_oov_indices == 0 ? kNoCategory : oov_start());
    if (o.num_oov_indices > 1) unknown = floormod(x, o.num_oov_indices) + oov_start();
    Tensor number = lockstep::where(equal(gather(keys, at), x), gather(table(numbers), at), unknown);
    if (o.mask_token)
      number =
          lockstep::where(equal(x, *o.mask_token), o.output_mode == "int" ? int64_t{0} : kNoCategory, number);
    return number;
  }
  static Tensor full_like(const Tensor& x, int64_t value) { return zeros_like(x) + value; }

  Tensor inverted(const Tensor& x) const {
    const std::vector<int64_t> all = vocabulary();
    const Tensor inside = logical_and(x >= 0, x < std::ssize(all));
    return lockstep::where(inside, gather(table(all), lockstep::where(inside, x, 0)),
                           settings_.options.oov_token);
  }

  bool given_ = false;
};
const RegisterLayer<IntegerLookupLayer> integer_lookup;

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

AdaptableLayer IntegerLookup(const IntegerLookupOptions& options, std::source_location where) {
  const CallSite site(where);
  return AdaptableLayer(make_configured<IntegerLookupLayer>({options}).base());
}

namespace {

IntegerLookupLayer& integer_lookup_of(const Layer& layer, const char* what, std::source_location where) {
  auto* found = dynamic_cast<IntegerLookupLayer*>(layer.base().get());
  require(found, ErrorCode::invalid_argument, where, what, ": this names no IntegerLookup");
  return *found;
}

}  // namespace

std::vector<int64_t> get_vocabulary(const Layer& integer_lookup, std::source_location where) {
  return integer_lookup_of(integer_lookup, "get_vocabulary", where).vocabulary();
}
void set_vocabulary(const Layer& integer_lookup, const std::vector<int64_t>& tokens,
                    const std::vector<double>& idf_weights, std::source_location where) {
  integer_lookup_of(integer_lookup, "set_vocabulary", where).use(tokens, idf_weights, where);
}

// --- hashes ----------------------------------------------------------------------------------------------------------

namespace {

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
