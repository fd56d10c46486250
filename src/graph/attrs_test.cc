#include "graph/attrs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

namespace lockstep {
namespace {

using testing::HasSubstr;

enum class Mode : uint8_t { plain, fancy };

struct Settings {
  bool flag = false;
  int64_t count = 0;
  double scale = 0;
  Mode mode = Mode::plain;
  Shape shape = {};
  std::vector<int64_t> axes = {};
  bool operator==(const Settings&) const = default;
  void visit(auto&& v) const {
    v("flag", flag), v("count", count), v("scale", scale), v("mode", mode), v("shape", shape),
        v("axes", axes);
  }
};

struct Other {
  bool flag = false;
  bool operator==(const Other&) const = default;
  void visit(auto&& v) const { v("flag", flag); }
};

std::string text(const Attrs& attrs) {
  std::ostringstream out;
  out << attrs;
  return out.str();
}

TEST(Attrs, GiveBackWhatTheyHold) {
  const Attrs attrs = Settings{.count = 7, .shape = {2, 3}};
  EXPECT_EQ(attrs.as<Settings>().count, 7);
  EXPECT_EQ(attrs.as<Settings>().shape, Shape({2, 3}));
  Attrs copy;
  copy = attrs;
  EXPECT_EQ(&copy.as<Settings>(), &attrs.as<Settings>()) << "copies share";
}

TEST(Attrs, AskedForAnotherTypeTheySaySo) {
  for (const Attrs& attrs : {Attrs(), Attrs(Other{})}) {
    try {
      static_cast<void>(attrs.as<Settings>());
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::internal);
      EXPECT_THAT(error.message(), HasSubstr("Settings"));
    }
  }
}

TEST(Attrs, AreEqualByValue) {
  EXPECT_EQ(Attrs(Settings{.count = 1}), Attrs(Settings{.count = 1}));
  EXPECT_FALSE(Attrs(Settings{.count = 1}) == Attrs(Settings{.count = 2}));
  EXPECT_FALSE(Attrs(Settings{}) == Attrs(Other{}));
  EXPECT_FALSE(Attrs(Settings{}) == Attrs());
  EXPECT_FALSE(Attrs() == Attrs(Settings{}));
  EXPECT_EQ(Attrs(), Attrs());
}

TEST(Attrs, EveryMemberEntersTheHash) {
  const Settings all[] = {{},
                          {.flag = true},
                          {.count = 1},
                          {.count = -1},
                          {.scale = 1},
                          {.scale = 1.0000000001},
                          {.mode = Mode::fancy},
                          {.shape = {1}},
                          {.shape = {1, 1}},
                          {.shape = {2, 3}},
                          {.shape = {3, 2}},
                          {.axes = {0}},
                          {.axes = {0, 0}},
                          {.shape = {0}},
                          {.axes = {1, 2}},
                          {.axes = {2, 1}}};
  std::set<uint64_t> hashes;
  for (const Settings& settings : all) {
    EXPECT_TRUE(hashes.insert(Attrs(settings).hash()).second) << text(settings);
    EXPECT_EQ(Attrs(settings).hash(), Attrs(settings).hash());
  }
}

TEST(Attrs, PrintTheirMembersByName) {
  const std::string printed = text(
      Settings{.flag = true, .count = 3, .scale = 0.5, .mode = Mode::fancy, .shape = {2, 3}, .axes = {1, 2}});
  EXPECT_EQ(printed, "flag=true, count=3, scale=0.5, mode=1, shape=(2, 3), axes=[1 2 ]");
  EXPECT_EQ(text({}), "");
}

}  // namespace
}  // namespace lockstep
