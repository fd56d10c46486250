#include "observe/cause_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/log.h"
#include "lockstep/observe/step_clock.h"
#include "observe/fake_clock.h"

namespace lockstep::observe {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class CauseWatchTest : public testing::Test {
 protected:
  CauseWatchTest() : previous_(set_log_sink([this](const LogMessage& m) { said_.emplace_back(m.text); })) {
    set_log_level(LogLevel::info);
  }
  ~CauseWatchTest() override {
    set_log_sink(previous_);
    set_log_level(level_);
  }

  // So many steps of a tenth of a second, of which a part is waited for input.
  void run(int steps, double input_share) {
    for (int i = 0; i < steps; ++i) {
      clock_.begin_next_step();
      {
        const TimeScopeOfAll waits(clock_, Category::input_wait);
        time_.sleep(static_cast<int64_t>(input_share * 1e8));
      }
      {
        const TimeScopeOfAll compute(clock_, Category::compute);
        time_.run(static_cast<int64_t>((1 - input_share) * 1e8));
      }
      clock_.end_step();
      watch_.look(clock_, [](RunSummary& summary) { summary.setting.kind = RunKind::dataset; });
    }
  }

  const LogLevel level_ = log_level();
  std::vector<std::string> said_;
  const LogSink previous_;
  FakeClock time_;
  StepClock clock_{{.measure_descheduled_every = 0, .clock = &time_}};
  CauseWatch watch_{"fit", &time_};
};

TEST_F(CauseWatchTest, SaysWhenTheInputBecomesSlowAndWhenItIsQuickAgain) {
  run(4000, 0);
  EXPECT_THAT(said_, IsEmpty());
  run(150, 0.5);
  ASSERT_THAT(said_, ElementsAre(AllOf(StartsWith("fit: from about step 40"),
                                       HasSubstr(" on the run is input-bound: "),
                                       HasSubstr("; fix: dataset = dataset.prefetch("))));
  run(1000, 0.5);
  EXPECT_EQ(said_.size(), 1U) << "it is no news";
  run(300, 0);
  ASSERT_EQ(said_.size(), 2U);
  EXPECT_THAT(said_[1], HasSubstr("the run is no longer input-bound"));
}

TEST_F(CauseWatchTest, IsSilentForAMinuteAndSaysThenWhatIsStillSo) {
  run(200, 0);
  for (int i = 0; i < 4; ++i) run(110, i % 2 == 0 ? 0.5 : 0);
  EXPECT_EQ(said_.size(), 1U) << "four changes in 44 seconds";
  run(500, 0);
  ASSERT_EQ(said_.size(), 2U);
  EXPECT_THAT(said_[1], HasSubstr("no longer"));
}

TEST_F(CauseWatchTest, WhatARunBeginsWithIsNoChange) {
  run(2000, 0.5);
  EXPECT_THAT(said_, IsEmpty());
}

}  // namespace
}  // namespace lockstep::observe
