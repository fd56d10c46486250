#include "lockstep/keras/text.h"
#include "base/error_of_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::keras::utils {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kTexts{"The cat's mat, the HAT!", "a cat \t sat", "the end"};

// The vocabulary and the numbers of keras.layers.TextVectorization.
TEST(TextVectorizer, AgreesWithKeras) {
  TextVectorizer vectorizer;
  vectorizer.adapt(kTexts);
  EXPECT_THAT(vectorizer.vocabulary(),
              ElementsAre("", "[UNK]", "the", "sat", "mat", "hat", "end", "cats", "cat", "a"));
  const std::vector<std::string> texts{"the dog sat", "Mat"};
  const Tensor numbers = vectorizer(texts);
  EXPECT_EQ(numbers.shape(), (Shape{2, 3}));
  EXPECT_THAT(numbers.to_vector<int64_t>(), ElementsAre(2, 1, 3, 4, 0, 0));
}

TEST(TextVectorizer, LengthAndVocabularyAreLimited) {
  TextVectorizer vectorizer({.max_tokens = 4, .output_sequence_length = 2});
  vectorizer.adapt(kTexts);
  EXPECT_THAT(vectorizer.vocabulary(), ElementsAre("", "[UNK]", "the", "sat"));
  EXPECT_THAT(vectorizer(kTexts).to_vector<int64_t>(), ElementsAre(2, 1, 1, 1, 2, 1));
}

TEST(TextVectorizer, TextsAreSplitAndStandardized) {
  EXPECT_THAT(TextVectorizer({.split = "character"}).tokens("Aß\xff€!"), ElementsAre("a", "ß", "\xff", "€"));
  EXPECT_THAT(TextVectorizer({.standardize = "none"}).tokens(" A-b  c\n"), ElementsAre("A-b", "c"));
  EXPECT_THAT(TextVectorizer({.standardize = "lower", .split = "none"}).tokens("A b!"), ElementsAre("a b!"));
  EXPECT_THAT(TextVectorizer({.standardize = "strip_punctuation"}).tokens("A_b!"), ElementsAre("Ab"));
}

TEST(TextVectorizer, MistakesAreSaid) {
  EXPECT_THAT(error_of([] { TextVectorizer()(kTexts); }).message(), HasSubstr("adapt()"));
  EXPECT_THAT(error_of([] { TextVectorizer({.split = "words"}); }).message(), HasSubstr("\"words\""));
  EXPECT_THAT(error_of([] { TextVectorizer({.standardize = "upper"}); }).message(), HasSubstr("\"upper\""));
  EXPECT_THAT(error_of([] { TextVectorizer({.max_tokens = 2}); }).message(), HasSubstr("at least 3"));
  EXPECT_THAT(error_of([] {
                TextVectorizer().set_vocabulary({"a", "b", "a"});
              }).message(),
              HasSubstr("\"a\""));
  EXPECT_THAT(error_of([] { TextVectorizer().set_vocabulary({"[UNK]"}); }).message(),
              HasSubstr("always there"));
  TextVectorizer vectorizer;
  vectorizer.set_vocabulary({"b", "a"});
  EXPECT_THAT(vectorizer(std::vector<std::string>{"a b"}).to_vector<int64_t>(), ElementsAre(3, 2));
}

}  // namespace
}  // namespace lockstep::keras::utils
