// From words and categories to numbers.
//
// Tensors hold no strings: texts are host data, and become numbers before the model, in the input pipeline or
// in one go, as Keras advises for training on several devices. So these are no layers of a model but values
// with a table inside:
//
//   layers::TextVectorization vectorize({.max_tokens = 20000, .output_sequence_length = 200});
//   vectorize.adapt(texts);
//   Tensor x = vectorize(texts);                                              // int64 (texts, 200)
//   dataset.map([=](const Tensor& line) { return vectorize(line); })         // one text, a byte string
//
// Const functions may be called from several threads. Settings, and what serialize() writes, are Keras'.
// IntegerLookup, which takes numbers, is an ordinary layer.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/keras/layers/preprocessing.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::keras::layers {

// A column of data: strings, or a tensor of numbers.
using Column = std::variant<std::vector<std::string>, Tensor>;

// What is made of the numbers of a row of tokens:
//   "int"        the numbers themselves
//   "one_hot"    each as a row of the vocabulary's size
//   "multi_hot"  one such row for all: 1 for those that occur
//   "count"      how often they occur
//   "tf_idf"     that times what adapt() found each to be worth: log(1 + documents / (1 + documents with it))
// Lookups give int64, tf_idf float32.

struct StringLookupOptions {
  std::optional<int64_t> max_tokens = {};  // of the vocabulary, special ones included
  int64_t num_oov_indices = 1;  // numbers that unknown tokens share, by FarmHash; 0: they are errors
  std::optional<std::string> mask_token = {};  // it gets number 0 ("int"), or counts for nothing
  std::string oov_token = "[UNK]";
  std::vector<std::string> vocabulary = {};  // without special tokens; empty: adapt() learns it
  std::vector<double> idf_weights = {};      // one for each of vocabulary
  bool invert = false;                       // numbers become tokens
  std::string output_mode = "int";
  bool pad_to_max_tokens = false;                          // rows have max_tokens elements
  std::optional<std::pair<uint64_t, uint64_t>> salt = {};  // unknown tokens go by SipHash with this key
  std::string name = "string_lookup";
};

class StringLookup {
 public:
  explicit StringLookup(const StringLookupOptions& options = {},
                        std::source_location where = std::source_location::current());

  // Learns the vocabulary: the most frequent tokens first, equally frequent ones in reverse alphabetical
  // order. A row is a document. Error(failed_precondition) where a vocabulary was given.
  void adapt(std::span<const std::string> tokens,
             std::source_location where = std::source_location::current());
  void adapt(const std::vector<std::vector<std::string>>& rows,
             std::source_location where = std::source_location::current());
  // {"a", "b"} could be two tokens or the ends of one: std::vector<std::string>{"a", "b"} says which.
  void adapt(std::initializer_list<const char*>) = delete;
  // With or without the special tokens at its beginning.
  void set_vocabulary(const std::vector<std::string>& tokens, const std::vector<double>& idf_weights = {},
                      std::source_location where = std::source_location::current());
  std::vector<std::string> get_vocabulary(bool include_special_tokens = true) const;
  int64_t vocabulary_size() const;

  // (n) tokens: (n), (n, vocabulary) for one_hot, else (vocabulary).
  Tensor operator()(std::span<const std::string> tokens,
                    std::source_location where = std::source_location::current()) const;
  // Rows: (rows, length) where all have one length, (rows, vocabulary) where they are counted.
  Tensor operator()(const std::vector<std::vector<std::string>>& rows,
                    std::source_location where = std::source_location::current()) const;
  Tensor operator()(std::initializer_list<const char*>) const = delete;  // as in adapt()
  // One token, a byte string (data::bytes()): a scalar, or (vocabulary).
  Tensor operator()(const Tensor& token, std::source_location where = std::source_location::current()) const;
  // The token of each number; for a lookup with invert.
  std::vector<std::string> tokens(const Tensor& numbers,
                                  std::source_location where = std::source_location::current()) const;

  Json serialize() const;
  static StringLookup deserialize(const Json& json,
                                  std::source_location where = std::source_location::current());

 private:
  friend class TextVectorization;
  int64_t oov_start() const { return options_.mask_token && options_.output_mode == "int" ? 1 : 0; }
  int64_t token_start() const { return oov_start() + options_.num_oov_indices; }
  int64_t number_of(const std::string& token, std::source_location where) const;
  std::vector<std::vector<int64_t>> numbers_of(const std::vector<std::vector<std::string>>& rows,
                                               std::source_location where) const;
  Tensor counted(const std::vector<std::vector<int64_t>>& rows, bool one_row,
                 std::source_location where) const;
  void learn(const std::vector<std::vector<std::string>>& rows, std::source_location where);
  void use(std::vector<std::string> tokens, const std::vector<double>& idf, std::source_location where);

  StringLookupOptions options_;
  std::vector<std::string> tokens_;                   // without special ones
  std::unordered_map<std::string, int64_t> numbers_;  // of tokens_
  std::vector<double> idf_;                           // of the whole vocabulary, where tf_idf
  bool given_ = false;                                // the vocabulary was not learned
};

struct TextVectorizationOptions {
  std::optional<int64_t> max_tokens = {};
  std::optional<std::string> standardize =
      "lower_and_strip_punctuation";                // or lower, strip_punctuation, none
  std::optional<std::string> split = "whitespace";  // or character (UTF-8), none
  std::vector<int64_t> ngrams = {};                 // widths; {1, 2} is Keras' 2
  std::string output_mode = "int";
  std::optional<int64_t> output_sequence_length = {};  // of "int"; nullopt: the longest text's
  bool pad_to_max_tokens = false;
  std::vector<std::string> vocabulary = {};
  std::vector<double> idf_weights = {};
  std::string name = "text_vectorization";
};

// Texts as rows of tokens' numbers: 0 pads, 1 is a token that the vocabulary does not hold; or as counts of
// them.
class TextVectorization {
 public:
  explicit TextVectorization(const TextVectorizationOptions& options = {},
                             std::source_location where = std::source_location::current());

  void adapt(std::span<const std::string> texts,
             std::source_location where = std::source_location::current());
  // Texts that somebody else has split: a row of tokens each.
  void adapt(const std::vector<std::vector<std::string>>& rows,
             std::source_location where = std::source_location::current());
  // {"a", "b"} could be two texts or the ends of one: std::vector<std::string>{"a", "b"} says which.
  void adapt(std::initializer_list<const char*>) = delete;
  void set_vocabulary(const std::vector<std::string>& tokens, const std::vector<double>& idf_weights = {},
                      std::source_location where = std::source_location::current());
  std::vector<std::string> get_vocabulary(bool include_special_tokens = true) const;
  int64_t vocabulary_size() const { return lookup_.vocabulary_size(); }

  // (texts, length), or (texts, vocabulary).
  Tensor operator()(std::span<const std::string> texts,
                    std::source_location where = std::source_location::current()) const;
  Tensor operator()(const std::vector<std::vector<std::string>>& rows,
                    std::source_location where = std::source_location::current()) const;
  Tensor operator()(std::initializer_list<const char*>) const = delete;  // as in adapt()
  // One text, a byte string: (length), or (vocabulary).
  Tensor operator()(const Tensor& text, std::source_location where = std::source_location::current()) const;
  // What a text is split into.
  std::vector<std::string> tokens(std::string_view text) const;

  Json serialize() const;
  static TextVectorization deserialize(const Json& json,
                                       std::source_location where = std::source_location::current());

 private:
  std::vector<std::vector<std::string>> split(std::span<const std::string> texts) const;
  std::vector<std::string> grams_of(std::vector<std::string> tokens) const;
  std::vector<std::vector<std::string>> with_grams(const std::vector<std::vector<std::string>>& rows) const;
  void learn(const std::vector<std::vector<std::string>>& rows, std::source_location where);
  Tensor rows_of(const std::vector<std::vector<std::string>>& rows, std::source_location where) const;

  TextVectorizationOptions options_;
  StringLookup lookup_;
};

struct IntegerLookupOptions {
  std::optional<int64_t> max_tokens = {};
  int64_t num_oov_indices = 1;  // numbers that unknown ones share, by their remainder; 0: they become -1
  std::optional<int64_t> mask_token = {};
  int64_t oov_token = -1;
  std::vector<int64_t> vocabulary = {};  // without special tokens; empty: adapt() learns it
  std::vector<double> idf_weights = {};
  bool invert = false;
  std::string output_mode = "int";
  bool pad_to_max_tokens = false;
  std::string name = {};
  bool trainable = true;
  DTypePolicy dtype = {};
  Shape input_shape = {};
};
// Whole numbers of any kind as numbers from 0 on: a layer, for the pipeline or inside of a model.
AdaptableLayer IntegerLookup(const IntegerLookupOptions& options = {},
                             std::source_location where = std::source_location::current());
// The vocabulary that adapt() has learned for an IntegerLookup layer, special tokens first.
std::vector<int64_t> get_vocabulary(const Layer& integer_lookup,
                                    std::source_location where = std::source_location::current());
// With or without the special tokens at its beginning; the weights are those of the others, where tf_idf.
void set_vocabulary(const Layer& integer_lookup, const std::vector<int64_t>& tokens,
                    const std::vector<double>& idf_weights = {},
                    std::source_location where = std::source_location::current());

struct HashingOptions {
  std::variant<std::monostate, int64_t, std::string> mask_value =
      {};                                                  // it gets bin 0, and no other value does
  std::optional<std::pair<uint64_t, uint64_t>> salt = {};  // SipHash with this key; nullopt: FarmHash
  std::string output_mode = "int";                         // or one_hot, multi_hot, count
  std::string name = "hashing";
};

// Strings, or whole numbers as the strings that they are written as, in bins by their hash. int64, others
// float32.
class Hashing {
 public:
  explicit Hashing(int64_t num_bins, const HashingOptions& options = {},
                   std::source_location where = std::source_location::current());

  Tensor operator()(std::span<const std::string> values,
                    std::source_location where = std::source_location::current()) const;
  // Whole numbers of any shape. A byte string of a pipeline: hash(std::vector{data::text(line)}).
  Tensor operator()(const Tensor& numbers,
                    std::source_location where = std::source_location::current()) const;

  Json serialize() const;
  static Hashing deserialize(const Json& json, std::source_location where = std::source_location::current());

 private:
  Tensor binned(std::span<const std::string> values, const Shape& shape, std::source_location where) const;

  int64_t num_bins_;
  HashingOptions options_;
};

struct HashedCrossingOptions {
  std::string output_mode = "int";  // or one_hot
  std::string name = "hashed_crossing";
};

// Two or more columns of strings or whole numbers, (n) each, together in bins by their hash.
class HashedCrossing {
 public:
  explicit HashedCrossing(int64_t num_bins, const HashedCrossingOptions& options = {},
                          std::source_location where = std::source_location::current());

  Tensor operator()(const std::vector<Column>& columns,
                    std::source_location where = std::source_location::current()) const;

  Json serialize() const;
  static HashedCrossing deserialize(const Json& json,
                                    std::source_location where = std::source_location::current());

 private:
  int64_t num_bins_;
  HashedCrossingOptions options_;
};

}  // namespace lockstep::keras::layers
