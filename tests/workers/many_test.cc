// Up to 64 workers, real processes with a real group and engine over loopback; what they train on is the null
// device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "comm/cluster.h"
#include "comm/workers.h"
#include "execute/replicated_runs.h"
#include "lockstep/base/error.h"
#include "lockstep/device/null_device.h"
#include "lockstep/lockstep.h"
#include "workers/processes.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kSteps = 5;

// The same in all processes of a machine.
double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Meets the others, makes some steps, and goes on until one dies.
void be_one_of_many() {
  const double began = now_s();
  const std::shared_ptr<comm::Workers> workers =
      comm::Workers::meet(comm::read_cluster(), {.timeout_s = 60, .join_timeout_s = 300});
  report(detail::concat("began ", std::to_string(began)));
  report(detail::concat("formed ", std::to_string(now_s())));
  const DeviceScope scope(null_device());
  execute::ReplicatedRuns runs({.devices = {&null_device()}, .workers = workers});
  const Tensor rows = Tensor::full(DType::float32, {1, 16384}, 1);
  const std::vector<int64_t> worker_rows(static_cast<size_t>(workers->size()), 1);
  const auto step = [&](const Tensor& x) {
    runs.run(
        "step", [](std::span<const Tensor> given) { return TensorList{all_reduce_sum(given[0])}; }, {&x, 1},
        {true}, worker_rows, nullptr, [](const std::vector<Variable>&) {}, std::source_location::current());
  };
  step(rows);
  const double steps_began = now_s();
  for (int i = 0; i < kSteps; ++i) step(rows);
  report(detail::concat("step ", std::to_string((now_s() - steps_began) / kSteps)));
  if (workers->rank() == workers->size() - 2) {
    report(detail::concat("dies ", std::to_string(now_s())));
    kill(getpid(), SIGKILL);
  }
  try {
    while (true) step(rows);
  } catch (const Error& error) {
    report(detail::concat("named ", std::to_string(now_s())));
    report(error.message());
  }
}
const RegisterScenario many("one of many", be_one_of_many);

// Loses one, forms anew without it, and adds up with those who are left.
void form_anew_among_many() {
  const std::shared_ptr<comm::Workers> workers =
      comm::Workers::meet(comm::read_cluster(), {.timeout_s = 60, .join_timeout_s = 300, .min_workers = 1});
  float ones = 1;
  try {
    for (int n = 0;; ++n) {
      // The others may still be in the sum before.
      if (n == 1 && workers->rank() == workers->size() - 2) {
        report(detail::concat("dies ", std::to_string(now_s())));
        kill(getpid(), SIGKILL);
      }
      workers->all_reduce_sum("ones", &ones, 1, DType::float32);
    }
  } catch (const Error&) {
    workers->form_anew(false);
    report(detail::concat("anew ", std::to_string(now_s())));
  }
  ones = 1;
  workers->all_reduce_sum("ones of those who are left", &ones, 1, DType::float32);
  report(detail::concat("left ", ones));
}
const RegisterScenario anew("many form anew", form_anew_among_many);

// The number behind a word; -1: it is not there.
double behind(const std::string& report, const std::string& word) {
  const size_t at = report.find(word + " ");
  return at == std::string::npos ? -1 : std::atof(report.c_str() + at + word.size() + 1);
}

class ManyWorkers : public ::testing::TestWithParam<int> {};

TEST_P(ManyWorkers, LongMeetTrainAndNameOneThatDies) {
  if (const std::string why = missing(Launcher::lockstep); !why.empty()) GTEST_SKIP() << why;
  const int count = GetParam();
  const auto results = run({.scenario = "one of many", .workers = count});
  double began = 0, formed = 0, named = 0, died = 0, step = 0;
  for (int w = 0; w < count; ++w) {
    const std::string& text = results[static_cast<size_t>(w)].report;
    began = std::max(began, behind(text, "began"));
    formed = std::max(formed, behind(text, "formed"));
    step = std::max(step, behind(text, "step"));
    if (w == count - 2) {
      died = behind(text, "dies");
      continue;
    }
    EXPECT_EQ(results[static_cast<size_t>(w)].status, 0) << results[static_cast<size_t>(w)].output;
    EXPECT_THAT(text, HasSubstr(detail::concat("rank ", count - 2, " (process "))) << w;
    EXPECT_GT(behind(text, "named"), 0) << text;
    named = std::max(named, behind(text, "named"));
  }
  // For people; docs/benchmarks.md has them of an idle machine.
  std::printf(
      "%d workers: formed %.2f s after the last had started, %.2f ms per step, a lost one named by all after "
      "%.2f s\n",
      count, formed - began, step * 1e3, named - died);
}

TEST_P(ManyWorkers, LongFormAnewWithoutOneThatDies) {
  if (const std::string why = missing(Launcher::lockstep); !why.empty()) GTEST_SKIP() << why;
  const int count = GetParam();
  const auto results = run({.scenario = "many form anew", .workers = count});
  double anew = 0;
  const double died = behind(results[static_cast<size_t>(count - 2)].report, "dies");
  for (int w = 0; w < count; ++w) {
    if (w == count - 2) continue;
    const WorkerResult& worker = results[static_cast<size_t>(w)];
    EXPECT_EQ(worker.status, 0) << worker.output;
    EXPECT_EQ(behind(worker.report, "left"), count - 1) << worker.report;
    anew = std::max(anew, behind(worker.report, "anew"));
  }
  std::printf("%d workers: formed anew %.2f s after one was killed\n", count, anew - died);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ManyWorkers, ::testing::Values(8, 16, 32, 64),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace lockstep::testing
