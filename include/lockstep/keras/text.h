// keras::utils: from texts to numbers.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::keras::utils {

struct TextVectorizerOptions {
  int64_t max_tokens = 0;                                   // size of the vocabulary; 0: no limit
  std::string standardize = "lower_and_strip_punctuation";  // or "lower", "strip_punctuation", "none"
  std::string split = "whitespace";                         // or "character" (UTF-8), "none"
  int64_t output_sequence_length = 0;                       // 0: the longest text's
};

// Texts as sequences of tokens' numbers: 0 pads, 1 is a token that the vocabulary does not hold. A value type;
// const functions may be called from several threads.
class TextVectorizer {
 public:
  explicit TextVectorizer(const TextVectorizerOptions& options = {},
                          std::source_location where = std::source_location::current());

  // Learns the vocabulary: the most frequent tokens first, equally frequent ones in reverse alphabetical order.
  void adapt(std::span<const std::string> texts);
  // Tokens without the first two, which stand for padding and unknown ones.
  void set_vocabulary(const std::vector<std::string>& tokens,
                      std::source_location where = std::source_location::current());
  // "", "[UNK]", then the tokens.
  const std::vector<std::string>& vocabulary() const { return vocabulary_; }

  // int64 (texts, length).
  Tensor operator()(std::span<const std::string> texts,
                    std::source_location where = std::source_location::current()) const;
  // Without padding or a vocabulary: what a text is split into.
  std::vector<std::string> tokens(std::string_view text) const;

 private:
  void use(std::vector<std::string> tokens);

  TextVectorizerOptions options_;
  std::vector<std::string> vocabulary_;
  std::unordered_map<std::string, int64_t> numbers_;
};

}  // namespace lockstep::keras::utils
