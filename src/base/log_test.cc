#include "lockstep/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Explosive {};
std::ostream& operator<<(std::ostream&, const Explosive&) { throw std::logic_error("was built"); }

// Captures messages and restores the sink and the level.
class Log : public testing::Test {
 protected:
  void SetUp() override {
    level_ = log_level();
    set_log_level(LogLevel::info);
    previous_ = set_log_sink([this](const LogMessage& m) { lines_.push_back(render(m, true)); });
  }
  void TearDown() override {
    set_log_sink(previous_);
    set_log_level(level_);
  }

  std::vector<std::string> lines_;

 private:
  LogLevel level_ = LogLevel::info;
  LogSink previous_;
};

TEST_F(Log, NamesTheLevelTheTextAndThePlaceThatLogs) {
  log(LogLevel::warning, "step ", 3, " of ", 7);
  const std::string place = detail::concat("[log_test.cc:", __LINE__ - 1, "]");
  EXPECT_THAT(lines_, ElementsAre(AllOf(HasSubstr(" warning lockstep: step 3 of 7 "), HasSubstr(place))));
}

TEST_F(Log, DropsWhatIsBelowTheLevelWithoutBuildingIt) {
  set_log_level(LogLevel::error);
  log(LogLevel::warning, Explosive{});
  log_once(LogLevel::warning, Explosive{});
  log(LogLevel::error, "c");
  set_log_level(LogLevel::off);
  log(LogLevel::error, Explosive{});
  EXPECT_THAT(lines_, ElementsAre(HasSubstr(": c ")));
}

TEST_F(Log, OnceIsOncePerPlaceAndText) {
  for (int i = 0; i < 3; ++i) log_once(LogLevel::info, "first place ", i / 2);
  log_once(LogLevel::info, "first place ", 0);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("first place 0"), HasSubstr("first place 1"),
                                  HasSubstr("first place 0")));
}

TEST_F(Log, RendersOneLine) {
  using namespace std::chrono;
  const LogMessage message{LogLevel::error, "io: no space\n  in layer dense", std::source_location::current(),
                           system_clock::time_point(milliseconds(1'700'000'000'045))};
  const std::string line = render(message, false);
  EXPECT_THAT(line, AllOf(HasSubstr(".045 error lockstep: io: no space |   in layer dense")));
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST_F(Log, ASinkMayLogAndThrowWithoutHangingOrLosingTheMessage) {
  set_log_sink([](const LogMessage&) {
    log(LogLevel::info, "from inside");
    log_once(LogLevel::info, "once from inside");
    throw std::runtime_error("sink broke");
  });
  testing::internal::CaptureStderr();
  log(LogLevel::warning, "outer");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, AllOf(HasSubstr("from inside\n"), HasSubstr("once from inside\n"), HasSubstr("outer\n")));
}

TEST_F(Log, WritesToStderrWithoutASink) {
  set_log_sink(nullptr);
  testing::internal::CaptureStderr();
  log(LogLevel::info, "plain");
  set_log_level(LogLevel::debug);
  log(LogLevel::debug, "with source");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, AllOf(HasSubstr(" info lockstep: plain\n"), HasSubstr("with source [log_test.cc:")));
}

TEST_F(Log, ThreadsDoNotInterleave) {
  constexpr int kThreads = 4, kMessages = 100;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < kMessages; ++i) {
        log(LogLevel::info, "thread ", t);
        log_once(LogLevel::info, "shared text");
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lines_.size(), size_t{kThreads * kMessages + 1});
}

// In a process of its own, where the level has not been read yet.
TEST(LogDeathTest, AWrongLevelIsReportedAndTheDefaultHolds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("LOCKSTEP_LOG", "loud", 1);
        std::exit(log_level() == LogLevel::info ? 0 : 1);
      },
      testing::ExitedWithCode(0),
      "warning lockstep: LOCKSTEP_LOG=\"loud\": expected debug, info, warning, error or off; using info");
}

TEST(LogDeathTest, TheEnvironmentSetsTheLevel) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("LOCKSTEP_LOG", "error", 1);
        std::exit(log_level() == LogLevel::error ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace lockstep
