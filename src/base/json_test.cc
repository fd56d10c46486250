#include "lockstep/base/json.h"
#include "base/error_of_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(Json, EveryKindIsWrittenAndReadBack) {
  const Json json = Json::object({{"none", nullptr},
                                  {"flag", true},
                                  {"count", -3},
                                  {"rate", 0.5},
                                  {"name", "a \"b\""},
                                  {"list", Json::List{1, "two", Json::object()}}});
  EXPECT_EQ(json.dump(),
            R"({"none":null,"flag":true,"count":-3,"rate":0.5,"name":"a \"b\"","list":[1,"two",{}]})");
  EXPECT_EQ(Json::parse(json.dump()), json);
}

TEST(Json, ErrorsShowWhatWasThere) {
  const Json json = Json::object({{"name", "adam"}});
  EXPECT_THAT(error_of([&] { json.at("name").as_int(); }).message(),
              HasSubstr("expected an integer, received \"adam\""));
  EXPECT_THAT(error_of([&] { json.items(); }).message(), HasSubstr("expected a list"));
  EXPECT_THAT(error_of([&] { json.at("rate"); }).message(),
              HasSubstr("no member \"rate\" in {\"name\":\"adam\"}"));
  EXPECT_THAT(error_of([&] { Json(Json::List{}).at(0); }).message(), HasSubstr("no item 0 in []"));
  EXPECT_THAT(error_of([] { Json::parse("{\"a\": }", "config"); }).message(),
              HasSubstr("config: parse error at line 1"));
}

TEST(Json, WhatIsWrittenOverSeveralLinesIsReadBack) {
  const Json json = Json::object({{"empty", Json::list()}, {"a", Json::List{1, Json::object({{"b", 2.5}})}}});
  EXPECT_EQ(json.dump(2), R"({
  "empty": [],
  "a": [
    1,
    {
      "b": 2.5
    }
  ]
})");
  EXPECT_EQ(Json::parse(json.dump(2)), json);
}

TEST(Json, AKeyThatIsThereTwiceIsRefused) {
  EXPECT_THAT(error_of([] { Json::parse(R"({"a": 1, "b": {"c": 1, "c": 2}})", "config"); }).message(),
              HasSubstr("config: the key \"c\" is there twice"));
  std::string many = "{";
  for (int i = 0; i < 100; ++i) many += "\"k" + std::to_string(i) + "\": 0, ";
  EXPECT_THAT(error_of([&] { Json::parse(many + "\"k7\": 1}"); }).message(), HasSubstr("\"k7\""));
  EXPECT_EQ(Json::parse(R"([{"a": 1}, {"a": 1}])").dump(), R"([{"a":1},{"a":1}])");
}

TEST(Json, TextBehindANulIsNotLeftOut) {
  EXPECT_THAT(error_of([] { Json::parse(std::string("{\n}\0garbage", 11)); }).message(),
              HasSubstr("NUL character at line 2, column 2"));
}

TEST(Json, TextBehindTheValueIsRefused) {
  EXPECT_THAT(error_of([] { Json::parse("{} {}"); }).message(), HasSubstr("parse error at line 1"));
  EXPECT_THAT(error_of([] { Json::parse(""); }).message(), HasSubstr("parse error"));
  EXPECT_THAT(error_of([] { Json::parse("1e999"); }).message(), HasSubstr("1e999"));
}

TEST(Json, NestingHasALimit) {
  const std::string deep(600, '[');
  EXPECT_THAT(error_of([&] { Json::parse(deep); }).message(), HasSubstr("nested deeper than 512"));
}

// Takes a blink where the time grows with the keys, and longer than any test may where it grows with their
// square.
TEST(Json, ManyKeysAreReadAndWritten) {
  Json::Members members;
  for (int i = 0; i < 300000; ++i) members.emplace_back("tensor_" + std::to_string(i), i);
  const Json json = Json::object(std::move(members));
  EXPECT_EQ(Json::parse(json.dump()), json);
}

}  // namespace
}  // namespace lockstep
