#include "base/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "lockstep/base/error.h"

namespace lockstep::env {
namespace {

// Sets a variable for a scope and puts the old value back.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    value != nullptr ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Setting() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.message();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

constexpr std::array<std::string_view, 3> kColours{"red", "green", "blue"};

TEST(Environment, ParsesWholeNumbersInRange) {
  EXPECT_EQ(parse_int("X", "42", 0, 100), 42);
  EXPECT_EQ(parse_int("X", " -7 ", -10, 0), -7);
  EXPECT_EQ(parse_int("X", "9223372036854775807", 0, INT64_MAX), INT64_MAX);
}

TEST(Environment, RefusesWhatIsNotANumberInRange) {
  for (const char* text : {"", " ", "4x", "x4", "1.5", "101", "-1", "99999999999999999999", "4 2"})
    EXPECT_EQ(message_of([&] { parse_int("X", text, 0, 100); }),
              std::string("X=\"") + text + "\": expected a whole number from 0 to 100");
}

TEST(Environment, ParsesTruthValues) {
  for (const char* text : {"1", "true", "TRUE", "Yes", "on"}) EXPECT_TRUE(parse_bool("X", text)) << text;
  for (const char* text : {"0", "false", "No", "OFF", " off "}) EXPECT_FALSE(parse_bool("X", text)) << text;
  EXPECT_EQ(message_of([] { parse_bool("X", "2"); }),
            "X=\"2\": expected 1, true, yes or on; or 0, false, no or off");
}

TEST(Environment, ParsesChoices) {
  EXPECT_EQ(parse_choice("X", "green", kColours), 1);
  EXPECT_EQ(parse_choice("X", "BLUE", kColours), 2);
  EXPECT_EQ(message_of([] { parse_choice("X", "grey", kColours); }),
            "X=\"grey\": expected red, green or blue");
}

TEST(Environment, ReadsVariablesAndFallsBackWhenUnsetOrEmpty) {
  for (const char* absent : {static_cast<const char*>(nullptr), ""}) {
    Setting setting("LOCKSTEP_PLUGIN_PATH", absent);
    EXPECT_EQ(read_string("LOCKSTEP_PLUGIN_PATH"), std::nullopt);
    EXPECT_EQ(read_int("LOCKSTEP_PLUGIN_PATH", 3, 0, 9), 3);
    EXPECT_TRUE(read_bool("LOCKSTEP_PLUGIN_PATH", true));
    EXPECT_EQ(read_choice("LOCKSTEP_PLUGIN_PATH", kColours, 2), 2);
  }
  {
    Setting setting("LOCKSTEP_PLUGIN_PATH", "8");
    EXPECT_EQ(read_string("LOCKSTEP_PLUGIN_PATH"), "8");
    EXPECT_EQ(read_int("LOCKSTEP_PLUGIN_PATH", 3, 0, 9), 8);
  }
  {
    Setting setting("LOCKSTEP_PLUGIN_PATH", "red");
    EXPECT_EQ(read_choice("LOCKSTEP_PLUGIN_PATH", kColours, 2), 0);
    EXPECT_EQ(
        message_of([] { read_bool("LOCKSTEP_PLUGIN_PATH", true); }).find("LOCKSTEP_PLUGIN_PATH=\"red\""), 0u);
  }
}

TEST(Environment, TableIsSortedAndSaysWhatEachVariableMeans) {
  std::string_view last;
  for (const Variable& v : variables()) {
    EXPECT_LT(last, v.name);
    EXPECT_FALSE(v.values.empty()) << v.name;
    EXPECT_FALSE(v.fallback.empty()) << v.name;
    EXPECT_FALSE(v.meaning.empty()) << v.name;
    last = v.name;
  }
}

TEST(Environment, FindsUnknownVariablesAndTheNearestSpelling) {
  Setting typo("LOCKSTEP_PLUGINPATH", "x");
  Setting lower("LOCKSTEP_log", "x");
  Setting far("LOCKSTEP_ZEBRA_CROSSING", "x");
  Setting other("LOCKSTEPPING", "x");
  Setting known("LOCKSTEP_LOG", "info");
  std::map<std::string, std::string> nearest;
  for (const Unknown& unknown : unknown_variables()) nearest[unknown.name] = unknown.nearest;
  EXPECT_EQ(nearest.at("LOCKSTEP_PLUGINPATH"), "LOCKSTEP_PLUGIN_PATH");
  EXPECT_EQ(nearest.at("LOCKSTEP_log"), "LOCKSTEP_LOG");
  EXPECT_EQ(nearest.at("LOCKSTEP_ZEBRA_CROSSING"), "");
  EXPECT_EQ(nearest.count("LOCKSTEPPING"), 0u);
  EXPECT_EQ(nearest.count("LOCKSTEP_LOG"), 0u);
}

}  // namespace
}  // namespace lockstep::env
