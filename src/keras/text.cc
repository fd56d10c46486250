#include "lockstep/keras/text.h"

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"

namespace lockstep::keras::utils {
namespace {

constexpr std::string_view kPunctuation = "!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'";
constexpr std::string_view kBlanks = " \t\n\v\f\r";
constexpr int64_t kPadding = 0, kUnknown = 1;

// Bytes of the UTF-8 character that starts with this one; a byte that starts none stands alone.
size_t character_size(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  const size_t size = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF8 ? 4 : 1;
  if (size > text.size()) return 1;
  for (size_t i = 1; i < size; ++i)
    if ((static_cast<uint8_t>(text[i]) & 0xC0) != 0x80) return 1;
  return size;
}

}  // namespace

TextVectorizer::TextVectorizer(const TextVectorizerOptions& options, std::source_location where)
    : options_(options) {
  const auto check = [&](bool holds, const auto&... rule) {
    require(holds, ErrorCode::invalid_argument, where, "TextVectorizer: ", rule...);
  };
  const std::string& s = options.standardize;
  check(s == "lower_and_strip_punctuation" || s == "lower" || s == "strip_punctuation" || s == "none",
        "standardize is \"lower_and_strip_punctuation\", \"lower\", \"strip_punctuation\" or \"none\", "
        "received \"",
        s, "\"");
  check(options.split == "whitespace" || options.split == "character" || options.split == "none",
        "split is \"whitespace\", \"character\" or \"none\", received \"", options.split, "\"");
  check(options.max_tokens == 0 || options.max_tokens > 2,
        "max_tokens counts padding and unknown tokens too: it is 0 or at least 3, received ",
        options.max_tokens);
  check(options.output_sequence_length >= 0, "output_sequence_length must not be negative, received ",
        options.output_sequence_length);
  use({});
}

std::vector<std::string> TextVectorizer::tokens(std::string_view text) const {
  const bool lower = options_.standardize.starts_with("lower");
  const bool strip = options_.standardize.ends_with("strip_punctuation");
  std::string plain;
  plain.reserve(text.size());
  for (const char c : text) {
    if (strip && kPunctuation.find(c) != std::string_view::npos) continue;
    plain.push_back(lower && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  }
  std::vector<std::string> found;
  std::string_view rest = plain;
  if (options_.split == "none") {
    found.emplace_back(rest);
  } else if (options_.split == "character") {
    for (; !rest.empty(); rest.remove_prefix(character_size(rest)))
      found.emplace_back(rest.substr(0, character_size(rest)));
  } else {
    for (size_t start = 0; (start = rest.find_first_not_of(kBlanks, start)) != std::string_view::npos;) {
      const size_t end = std::min(rest.find_first_of(kBlanks, start), rest.size());
      found.emplace_back(rest.substr(start, end - start));
      start = end;
    }
  }
  return found;
}

void TextVectorizer::adapt(std::span<const std::string> texts) {
  std::map<std::string, int64_t> counts;
  for (const std::string& text : texts)
    for (std::string& token : tokens(text)) ++counts[std::move(token)];
  counts.erase("");
  std::vector<std::pair<int64_t, std::string>> ranked;
  for (const auto& [token, count] : counts) ranked.emplace_back(count, token);
  std::sort(ranked.rbegin(), ranked.rend());
  if (options_.max_tokens > 0 && std::ssize(ranked) > options_.max_tokens - 2)
    ranked.resize(static_cast<size_t>(options_.max_tokens - 2));
  std::vector<std::string> chosen;
  for (auto& [count, token] : ranked) chosen.push_back(std::move(token));
  use(std::move(chosen));
}

void TextVectorizer::set_vocabulary(const std::vector<std::string>& tokens, std::source_location where) {
  const auto check = [&](bool holds, const auto&... rule) {
    require(holds, ErrorCode::invalid_argument, where, "TextVectorizer: ", rule...);
  };
  check(options_.max_tokens == 0 || std::ssize(tokens) <= options_.max_tokens - 2, "a vocabulary of ",
        tokens.size(), " tokens and the two for padding and unknown ones pass max_tokens, ",
        options_.max_tokens);
  std::vector<std::string> sorted = tokens;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  check(twice == sorted.end(), "the token \"", twice == sorted.end() ? "" : *twice,
        "\" is in the vocabulary twice");
  check(!std::binary_search(sorted.begin(), sorted.end(), "") &&
            !std::binary_search(sorted.begin(), sorted.end(), "[UNK]"),
        "leave \"\" and \"[UNK]\" out of the vocabulary: they are always there");
  use(tokens);
}

void TextVectorizer::use(std::vector<std::string> tokens) {
  vocabulary_ = {"", "[UNK]"};
  vocabulary_.insert(vocabulary_.end(), std::make_move_iterator(tokens.begin()),
                     std::make_move_iterator(tokens.end()));
  numbers_.clear();
  for (size_t i = 2; i < vocabulary_.size(); ++i) numbers_.emplace(vocabulary_[i], static_cast<int64_t>(i));
}

Tensor TextVectorizer::operator()(std::span<const std::string> texts, std::source_location where) const {
  require(!numbers_.empty(), ErrorCode::failed_precondition, where,
          "TextVectorizer: there is no vocabulary yet; call adapt() or set_vocabulary() first");
  std::vector<std::vector<int64_t>> rows;
  int64_t length = options_.output_sequence_length;
  for (const std::string& text : texts) {
    std::vector<int64_t>& row = rows.emplace_back();
    for (const std::string& token : tokens(text)) {
      const auto found = numbers_.find(token);
      row.push_back(found != numbers_.end() ? found->second : token.empty() ? kPadding : kUnknown);
    }
    if (options_.output_sequence_length == 0) length = std::max(length, std::ssize(row));
  }
  std::vector<int64_t> padded(rows.size() * static_cast<size_t>(length), kPadding);
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy_n(rows[i].begin(), std::min(length, std::ssize(rows[i])),
                padded.begin() + static_cast<ptrdiff_t>(i) * length);
  return Tensor::from(padded, {std::ssize(rows), length}, where);
}

}  // namespace lockstep::keras::utils
