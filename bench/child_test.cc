#include "bench/child.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "bench/first_step.h"
#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

using namespace std::chrono_literals;

TEST(Child, AnswersLineByLine) {
  Child echo("echo", {"cat"});
  echo.ask({{"one", 1}});
  echo.ask({{"two", 2}});
  EXPECT_EQ(echo.receive(60s)["one"], 1);
  EXPECT_EQ(echo.receive(60s)["two"], 2);
}

TEST(Child, ThatEndsOrIsSilentIsNamed) {
  Child brief("brief", {"true"});
  EXPECT_THROW(brief.receive(60s), Error);
  Child silent("silent", {"sleep", "60"});
  EXPECT_THROW(silent.receive(0s), Error);
  EXPECT_THROW(Child("missing", {"no-such-program"}), Error);
}

TEST(FirstStep, IsTimedTwiceInAFolderOfItsOwn) {
  const FirstStep seconds = first_step("sh", {"sh", "-c", "echo '{}'"});
  EXPECT_GT(seconds.cold_s, 0);
  EXPECT_GT(seconds.again_s, 0);
  // The second run finds what the first one has left, and the first one nothing.
  const std::string script =
      "if test -e $XDG_CACHE_HOME/left; then echo '{\"error\": \"again\"}'; else touch $XDG_CACHE_HOME/left; "
      "echo '{}'; fi";
  for (int i = 0; i < 2; ++i) try {
      first_step("sh", {"sh", "-c", script});
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "again");
    }
}

TEST(FirstStep, SaysWhatWentWrong) {
  try {
    first_step("sh", {"sh", "-c", "echo '{\"missing\": \"no GPU\"}'"});
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "no GPU");
  }
}

}  // namespace
}  // namespace lockstep::bench
