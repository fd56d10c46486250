#include "lockstep/base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

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
  EXPECT_THAT(error_of([&] { json.at("name").as_int(); }),
              HasSubstr("expected an integer, received \"adam\""));
  EXPECT_THAT(error_of([&] { json.items(); }), HasSubstr("expected a list"));
  EXPECT_THAT(error_of([&] { json.at("rate"); }), HasSubstr("no member \"rate\" in {\"name\":\"adam\"}"));
  EXPECT_THAT(error_of([&] { Json(Json::List{}).at(0); }), HasSubstr("no item 0 in []"));
  EXPECT_THAT(error_of([] { Json::parse("{\"a\": }", "config"); }),
              HasSubstr("config: parse error at line 1"));
}

}  // namespace
}  // namespace lockstep
