#include "lockstep/data/example.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/files.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class F>
std::string error(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

const FeatureSpecs& recorded_features() {
  static const FeatureSpecs specs{
      {"image", {.dtype = DType::uint8, .shape = {2, 3}}},
      {"words", {.dtype = DType::uint8, .variable_length = true}},
      {"weights", {.dtype = DType::float32, .shape = {2}}},
      {"label", {.dtype = DType::int64}},
      {"numbers", {.dtype = DType::int64, .variable_length = true}},
      {"extra", {.dtype = DType::float32, .default_value = Tensor::scalar(9.0F)}},
  };
  return specs;
}

// testdata/tensorflow/record.py wrote them.
std::string recorded(const std::string& name) {
  return LOCKSTEP_SOURCE_DIR "/src/data/testdata/tensorflow/" + name + ".tfrecord";
}

TEST(ExampleTest, TensorFlowsFilesAreRead) {
  for (const char* name : {"plain", "gzip", "zlib"}) {
    const Dataset data = TFRecordDataset(recorded(name)).map(ExampleParser(recorded_features()));
    int64_t i = 0;
    for (const Element& element : data) {
      EXPECT_EQ(element["image"].tensor().shape(), (Shape{2, 3}));
      EXPECT_EQ(element["image"].tensor().data<uint8_t>()[5], i + 5);
      std::string words;
      std::vector<int64_t> lengths, numbers;
      for (int64_t k = 0; k < i; ++k) {
        words += std::string(static_cast<size_t>(k), 'a');
        lengths.push_back(k);
      }
      int64_t power = 1;
      for (int64_t k = 0; k < 4 * i; ++k, power *= -10) numbers.push_back(power);
      EXPECT_EQ(text(element["words"]["values"].tensor()), words);
      EXPECT_EQ(element["words"]["lengths"].tensor().to_vector<int64_t>(), lengths);
      EXPECT_THAT(element["weights"].tensor().to_vector<float>(),
                  ElementsAre(0.5F * static_cast<float>(i), -1.25F));
      EXPECT_EQ(element["label"].tensor().item<int64_t>(), i - 1);
      EXPECT_EQ(element["numbers"].tensor().to_vector<int64_t>(), numbers);
      EXPECT_EQ(element["extra"].tensor().item<float>(), i == 2 ? 3 : 9);
      ++i;
    }
    EXPECT_EQ(i, 3);
  }
}

TEST(ExampleTest, BytesAreTensorFlows) {
  for (const Element& record : TFRecordDataset(recorded("plain"))) {
    const std::string bytes = text(record.tensor());
    EXPECT_EQ(testing::PrintToString(Example::parse(bytes).serialize()), testing::PrintToString(bytes));
  }
}

TEST(ExampleTest, WhatWasBuiltIsParsed) {
  const Example example = Example()
                              .bytes("b", "old")
                              .bytes("b", std::string("\0x", 2))
                              .bytes_list("s", {"", "ab"})
                              .floats("f", {1.5F, -2})
                              .ints("i", {INT64_MIN, -1, 0, INT64_MAX})
                              .tensor("t", Tensor::from<float>({1, 2, 3, 4}, {2, 2}))
                              .tensor("u", Tensor::from<uint8_t>({1, 2}, {2, 1}));
  EXPECT_EQ(Example::parse(example.serialize()).features(), example.features());
  const Element element = parse_example(example.serialize(), {{"i", {.dtype = DType::int64, .shape = {4}}},
                                                              {"b", {.dtype = DType::uint8}},
                                                              {"t", {.shape = {2, 2}}},
                                                              {"none", {.variable_length = true}}});
  EXPECT_THAT(element["i"].tensor().to_vector<int64_t>(), ElementsAre(INT64_MIN, -1, 0, INT64_MAX));
  EXPECT_EQ(text(element["b"].tensor()), std::string("\0x", 2));
  EXPECT_EQ(element["t"].tensor().shape(), (Shape{2, 2}));
  EXPECT_EQ(element["none"].tensor().shape(), (Shape{0}));
  EXPECT_THAT(error([] { Example().tensor("x", Tensor::scalar(1.0)); }), HasSubstr("\"x\""));
}

TEST(ExampleTest, SpecsAreThoseOfTheElements) {
  const ExampleParser parser(recorded_features());
  for (const Element& record : TFRecordDataset(recorded("plain"))) {
    const ElementSpec spec = parser.spec(), found = parser(record.tensor()).spec();
    EXPECT_EQ(spec.structure, found.structure);
    for (size_t i = 0; i < spec.tensors.size(); ++i) {
      EXPECT_EQ(spec.tensors[i].dtype, found.tensors[i].dtype);
      if (spec.tensors[i].shape != Shape{-1}) {
        EXPECT_EQ(spec.tensors[i], found.tensors[i]);
      }
    }
  }
}

TEST(ExampleTest, ManyAtOnceAreStackedOrRagged) {
  const std::string a = Example().floats("x", {1, 2}).ints("n", {7}).bytes("b", "ab").serialize();
  const std::string b = Example().floats("x", {3, 4}).bytes("b", "c").serialize();
  const std::vector<std::string_view> records{a, b};
  const FeatureSpecs specs{{"x", {.shape = {2}}},
                           {"n", {.dtype = DType::int64, .variable_length = true}},
                           {"b", {.dtype = DType::uint8}},
                           {"d", {.dtype = DType::int64, .default_value = Tensor::scalar<int64_t>(5)}}};
  const Element batch = parse_examples(records, specs);
  EXPECT_EQ(batch["x"].tensor().shape(), (Shape{2, 2}));
  EXPECT_THAT(batch["x"].tensor().to_vector<float>(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(batch["n"]["values"].tensor().to_vector<int64_t>(), ElementsAre(7));
  EXPECT_THAT(batch["n"]["lengths"].tensor().to_vector<int64_t>(), ElementsAre(1, 0));
  EXPECT_EQ(text(batch["b"]["values"].tensor()), "abc");
  EXPECT_THAT(batch["b"]["lengths"].tensor().to_vector<int64_t>(), ElementsAre(2, 1));
  EXPECT_THAT(batch["d"].tensor().to_vector<int64_t>(), ElementsAre(5, 5));
  EXPECT_THAT(error([&] {
                parse_examples(records, {{"n", {.dtype = DType::int64}}});
              }),
              AllOf(HasSubstr("\"n\" is missing"), HasSubstr("in record 1 of the batch")));
  EXPECT_THAT(error([&] {
                parse_examples(records, {{"b", {.dtype = DType::uint8, .variable_length = true}}});
              }),
              HasSubstr("no batch can be made"));
}

TEST(ExampleTest, ErrorsNameTheFeature) {
  const std::string record =
      Example().floats("f", {1, 2}).ints("i", {1}).bytes("b", "abc").bytes_list("s", {"a", "b"}).serialize();
  const auto parsed = [&](const std::string& name, const FeatureSpec& spec) {
    return error([&] { parse_example(record, {{name, spec}}); });
  };
  EXPECT_THAT(parsed("f", {.dtype = DType::int64}), HasSubstr("\"f\" holds float32, where int64"));
  EXPECT_THAT(parsed("f", {.shape = {3}}), HasSubstr("\"f\" holds 2 values, where the shape (3,) takes 3"));
  EXPECT_THAT(parsed("b", {.dtype = DType::uint8, .shape = {2}}), HasSubstr("\"b\" holds 3 bytes"));
  EXPECT_THAT(parsed("s", {.dtype = DType::uint8}), HasSubstr("\"s\" holds 2 byte strings"));
  EXPECT_THAT(parsed("x", {}), HasSubstr("\"x\" is missing"));
  EXPECT_THAT(parsed("x", {.dtype = DType::float64}), HasSubstr("\"x\" is float64"));
  EXPECT_THAT(parsed("x", {.shape = {-1}}), HasSubstr("not fixed"));
  EXPECT_THAT(parsed("x", {.shape = {2}, .variable_length = true}), HasSubstr("variable length"));
  EXPECT_THAT(parsed("x", {.default_value = Tensor::scalar<int64_t>(1)}), HasSubstr("default_value"));
  EXPECT_THAT(parsed("x", {.shape = {2}, .default_value = Tensor::from<float>({1, 2, 3}, {3})}),
              HasSubstr("default_value"));
  EXPECT_THAT(error([] { ExampleParser({{"a", {}}, {"a", {}}}); }), HasSubstr("\"a\" is given twice"));
  EXPECT_THAT(error([&] { parse_example(record.substr(1), {}); }), HasSubstr("protocol buffer"));
  EXPECT_THAT(error([] { ExampleParser({})(Tensor::scalar(1.0F)); }), HasSubstr("a byte string"));
}

// Unpacked numbers, features in two messages, the last one of a name.
TEST(ExampleTest, EveryWayOfWritingItIsRead) {
  const auto field = [](int number, const std::string& bytes) {
    return static_cast<char>(number << 3 | 2) + std::string(1, static_cast<char>(bytes.size())) + bytes;
  };
  const auto feature = [&](const std::string& name, int kind, const std::string& list) {
    return field(1, field(1, field(1, name) + field(2, field(kind, list))));
  };
  const std::string ints = std::string("\x08\x05\x08\x06", 4), floats = std::string("\x0d\0\0\x80\x3f", 5);
  const std::string record = feature("i", 3, std::string("\x0a\x01\x09", 3)) + feature("f", 2, floats) +
                             feature("i", 3, ints) + feature("e", 3, "");
  const Element element = parse_example(record, {{"i", {.dtype = DType::int64, .shape = {2}}},
                                                 {"f", {}},
                                                 {"e", {.dtype = DType::int64, .variable_length = true}}});
  EXPECT_THAT(element["i"].tensor().to_vector<int64_t>(), ElementsAre(5, 6));
  EXPECT_EQ(element["f"].tensor().item<float>(), 1);
  EXPECT_EQ(element["e"].tensor().size(), 0);
}

}  // namespace
}  // namespace lockstep::data
