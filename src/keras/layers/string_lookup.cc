#include "lockstep/keras/layers/lookup.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "keras/layers/category_encoding.h"
#include "keras/layers/lookup.h"
#include "keras/registry.h"
#include "lockstep/base/call_site.h"
#include "lockstep/base/error.h"
#include "lockstep/data/element.h"
#include "lockstep/ops/array.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::layers {
namespace {

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

// One row for each of `rows`: the sum of what each number counts in it; 1 where it is there at all, for
// multi_hot.
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

}  // namespace

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

}  // namespace lockstep::keras::layers
