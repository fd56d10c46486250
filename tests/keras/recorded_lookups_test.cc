// Lookups, text vectorisation and hashes agree with what Keras recorded: testdata/values/text.json and
// lookups.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/data/dataset.h"
#include "lockstep/data/element.h"
#include "lockstep/keras/layers/lookup.h"
#include "lockstep/keras/model.h"
#include "lockstep/ops/math.h"

namespace lockstep::keras::layers {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Strings = std::vector<std::string>;

Json recorded(const std::string& name) {
  return Json::read_file(LOCKSTEP_SOURCE_DIR "/tests/keras/testdata/values/" + name + ".json");
}

Strings strings(const Json& json) {
  Strings list;
  for (const Json& item : json.items()) list.push_back(item.as_string());
  return list;
}

Tensor numbers(const Json& json) {
  std::vector<double> values;
  Shape shape;
  const auto collect = [&](const auto& self, const Json& item) -> void {
    if (!item.is_list()) return values.push_back(item.as_double());
    for (const Json& inner : item.items()) self(self, inner);
  };
  collect(collect, json);
  for (const Json* at = &json; at->is_list(); at = &at->at(size_t{0}))
    shape.push_back(static_cast<int64_t>(at->items().size()));
  return Tensor::from(values, shape);
}

void expect_same(const Tensor& ours, const Json& theirs) {
  const Tensor want = numbers(theirs);
  ASSERT_EQ(ours.shape(), want.shape());
  const std::vector<double> a = cast(ours, DType::float64).to_vector<double>(), b = want.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6) << i;
}

Json made_of(const std::string& class_name, const Json& arguments) {
  return Json::object({{"class_name", class_name}, {"config", arguments}});
}

// Every setting that Keras wrote is written again, but for what it learned.
void expect_config(const Json& ours, const Json& theirs) {
  EXPECT_EQ(ours.at("class_name"), theirs.at("class_name"));
  EXPECT_EQ(ours.at("module"), theirs.at("module"));
  for (const auto& [key, value] : ours.at("config").members()) {
    if (key == "name" || key == "vocabulary" || key == "idf_weights" || key == "ngrams") continue;
    ASSERT_TRUE(theirs.at("config").contains(key)) << key;
    EXPECT_EQ(value, theirs.at("config").at(key)) << key;
  }
}

TEST(RecordedLookups, TextVectorization) {
  const Json all = recorded("text");
  const Strings documents = strings(all.at("documents")), queries = strings(all.at("queries"));
  for (const Json& record : all.at("vectorization").items()) {
    SCOPED_TRACE(record.at("arguments").dump());
    TextVectorization layer =
        TextVectorization::deserialize(made_of("TextVectorization", record.at("arguments")));
    layer.adapt(documents);
    EXPECT_EQ(layer.get_vocabulary(), strings(record.at("vocabulary")));
    expect_same(layer(queries), record.at("y"));
    const TextVectorization again = TextVectorization::deserialize(layer.serialize());
    expect_same(again(queries), record.at("y"));
  }
  const Json more = recorded("lookups");
  for (const Json& json : more.at("vectorization").items())
    expect_config(TextVectorization::deserialize(json).serialize(), json);
}

TEST(RecordedLookups, Strings) {
  for (const char* file : {"text", "lookups"}) {
    const Json all = recorded(file);
    for (const Json& record : all.at(std::string(file) == "text" ? "lookup" : "strings").items()) {
      SCOPED_TRACE(record.at("arguments").dump());
      StringLookup lookup = StringLookup::deserialize(made_of("StringLookup", record.at("arguments")));
      if (record.at("adapt").is_list()) lookup.adapt(strings(record.at("adapt")));
      EXPECT_EQ(lookup.get_vocabulary(), strings(record.at("vocabulary")));
      const Strings x = strings(record.at("x"));
      expect_same(lookup(x), record.at("y"));
      const StringLookup again = StringLookup::deserialize(lookup.serialize());
      expect_same(again(x), record.at("y"));
      if (const Json* config = record.find("config")) expect_config(lookup.serialize(), *config);
      if (const Json* rows = record.find("rows")) {
        std::vector<Strings> lists;
        for (const Json& row : rows->items()) lists.push_back(strings(row));
        expect_same(lookup(lists), record.at("of_rows"));
      }
    }
  }
}

TEST(RecordedLookups, Integers) {
  const Json all = recorded("lookups");
  for (const Json& record : all.at("integers").items()) {
    SCOPED_TRACE(record.at("arguments").dump());
    const AdaptableLayer lookup(Layer::deserialize(made_of("IntegerLookup", record.at("arguments"))).base());
    if (record.at("adapt").is_list()) lookup.adapt(cast(numbers(record.at("adapt")), DType::int64));
    std::vector<int64_t> vocabulary;
    for (const Json& token : record.at("vocabulary").items()) vocabulary.push_back(token.as_int());
    EXPECT_EQ(get_vocabulary(lookup), vocabulary);
    const Tensor x = cast(numbers(record.at("x")), DType::int64);
    expect_same(lookup(x), record.at("y"));
    expect_same(Layer::deserialize(lookup.serialize())(x), record.at("y"));
    expect_config(lookup.serialize(), record.at("config"));
  }
}

TEST(RecordedLookups, Hashes) {
  const Json all = recorded("lookups");
  for (const Json& record : all.at("hashing").items()) {
    SCOPED_TRACE(record.at("arguments").dump());
    const Hashing hash = Hashing::deserialize(made_of("Hashing", record.at("arguments")));
    const Json& x = record.at("x");
    expect_same(x.at(size_t{0}).is_string() ? hash(strings(x)) : hash(cast(numbers(x), DType::int64)),
                record.at("y"));
    expect_config(Hashing::deserialize(record.at("config")).serialize(), record.at("config"));
  }
  for (const Json& record : all.at("crossing").items()) {
    SCOPED_TRACE(record.at("arguments").dump());
    const HashedCrossing cross =
        HashedCrossing::deserialize(made_of("HashedCrossing", record.at("arguments")));
    std::vector<Column> columns;
    for (const Json& column : record.at("columns").items()) {
      if (column.at(size_t{0}).is_string())
        columns.emplace_back(strings(column));
      else
        columns.emplace_back(cast(numbers(column), DType::int64));
    }
    expect_same(cross(columns), record.at("y"));
  }
}

TEST(Lookups, WorkInPipelines) {
  TextVectorization vectorize({.output_sequence_length = 3, .vocabulary = {"cat", "dog"}});
  const StringLookup lookup({.vocabulary = {"no", "yes"}});
  const std::vector<std::pair<std::string, std::string>> lines = {{"a cat", "yes"},
                                                                  {"dog cat dog dog", "no"}};
  for (const auto& [text, label] : lines) {
    const Tensor line = data::bytes(text), word = data::bytes(label);
    EXPECT_EQ(vectorize(line).shape(), Shape{3});
    EXPECT_EQ(lookup(word).shape(), Shape{});
  }
  EXPECT_THAT(vectorize(data::bytes("dog cat dog dog")).to_vector<int64_t>(), ElementsAre(3, 2, 3));
  EXPECT_EQ(lookup(data::bytes("yes")).item<int64_t>(), 2);
  EXPECT_THAT(StringLookup({.mask_token = "", .vocabulary = {"x", "y"}, .invert = true})
                  .tokens(Tensor::from<int64_t>({0, 1, 2, 3, 9}, {5})),
              ElementsAre("", "[UNK]", "x", "y", "[UNK]"));
}

TEST(Lookups, IntegersAreLookedUpInsideOfModels) {
  const KerasTensor input = Input({2}, {.dtype = DType::int64});
  const Model model(input, IntegerLookup({.vocabulary = {100, 7, 50}})(input));
  const Tensor x = Tensor::from<int64_t>({7, 8, 100, 50}, {2, 2});
  EXPECT_THAT(model.predict(Data(x), {.verbose = 0}).to_vector<int64_t>(), ElementsAre(2, 0, 1, 3));
}

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Lookups, MistakesAreSaid) {
  const Strings texts{"a b"};
  EXPECT_THAT(message_of([&] { TextVectorization()(texts); }), HasSubstr("adapt()"));
  EXPECT_THAT(message_of([] { TextVectorization({.split = "words"}); }), HasSubstr("\"words\""));
  EXPECT_THAT(message_of([] { TextVectorization({.standardize = "upper"}); }), HasSubstr("\"upper\""));
  EXPECT_THAT(message_of([] { TextVectorization({.output_mode = "count", .output_sequence_length = 3}); }),
              HasSubstr("output_sequence_length"));
  EXPECT_THAT(message_of([] {
                StringLookup().set_vocabulary({"a", "b", "a"});
              }),
              HasSubstr("\"a\" is in the vocabulary twice"));
  EXPECT_THAT(message_of([] {
                StringLookup({.max_tokens = 2, .vocabulary = {"a", "b"}});
              }),
              HasSubstr("passes max_tokens"));
  EXPECT_THAT(message_of([&] { StringLookup({.num_oov_indices = 0, .vocabulary = {"a"}})(texts); }),
              HasSubstr("\"a b\" is not in the vocabulary"));
  EXPECT_THAT(message_of([&] {
                StringLookup given({.vocabulary = {"a"}});
                given.adapt(texts);
              }),
              HasSubstr("nothing to adapt"));
  EXPECT_THAT(message_of([] { StringLookup({.output_mode = "hot"}); }), HasSubstr("\"hot\""));
  EXPECT_THAT(message_of([] { IntegerLookup()(Tensor::from<int64_t>({1}, {1})); }), HasSubstr("adapt()"));
  EXPECT_THAT(message_of([] { Hashing(0); }), HasSubstr("num_bins must be positive"));
  EXPECT_THAT(message_of([&] { HashedCrossing(3)({texts}); }), HasSubstr("two columns or more"));
  EXPECT_THAT(message_of([] { Layer::deserialize(made_of("StringLookup", Json::object())); }),
              HasSubstr("before"));
}

}  // namespace
}  // namespace lockstep::keras::layers
