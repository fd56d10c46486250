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

}  // namespace
}  // namespace lockstep
