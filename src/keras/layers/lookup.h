// What lookups and hashes have in common: vocabularies, and settings as Keras' files have them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "keras/fields.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep::keras::layers {

// Rows of tokens, and rows of their numbers.
using Rows = std::vector<std::vector<std::string>>;
using NumberRows = std::vector<std::vector<int64_t>>;

constexpr int64_t kNoCategory = -1;  // a number that encode() counts for nothing

// --- vocabularies ------------------------------------------------------------------------------------------

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
std::vector<double> worth_of(const std::vector<int64_t>& documents_with, int64_t documents, int64_t specials);

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

// --- settings ----------------------------------------------------------------------------------------------

// Keras' name of a mode; throws where there is none of that name. `weighs`: there may be "tf_idf".
std::string checked_mode(const std::string& mode, bool weighs, const char* layer, std::source_location where);
// Throws where settings contradict each other.
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

// Keras' lookups know settings that have one value here: what another value asks for is not lost without a
// word.
void read_constant_fields(FieldReader& reader, const Json& config, const char* layer,
                          std::source_location where);
// The configuration of a serialized layer of that class.
const Json& config_of(const Json& json, const char* class_name, std::source_location where);

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
Json to_json(const SaltField& field);
void from_json(const Json& json, SaltField& field);

// The hash of a text: SipHash with a key, else FarmHash.
uint64_t hash_of(const std::string& text, const Salt& salt);

}  // namespace lockstep::keras::layers
