// Workers on machines with addresses of their own, and links between them that fail.
#include "workers/namespaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/lockstep.h"
#include "workers/processes.h"

namespace lockstep::testing {
namespace {

using distribute::MultiWorkerMirroredStrategy;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// Says which step it is at, until somebody cuts a link.
class Steps final : public keras::CallbackBase {
 public:
  void on_train_batch_end(int64_t batch, const keras::Logs&) override {
    if (batch == 2 && !said_) report("trains");
    said_ = said_ || batch == 2;
  }

 private:
  bool said_ = false;
};

// TEST_EPOCHS: so many; a loss per epoch is reported.
void train_over_network() {
  set_random_seed(7);
  const MultiWorkerMirroredStrategy strategy(
      {.reproducible = true, .report = false, .communication = {.timeout_seconds = 4}});
  keras::Sequential model;
  {
    const auto scope = strategy.scope();
    model = keras::Sequential(
        {keras::layers::Dense(8, {.activation = "relu", .input_shape = {8}}), keras::layers::Dense(2)});
    model.compile({.optimizer = "sgd", .loss = "mse"});
  }
  const Tensor x = random::normal({64, 8}), y = random::normal({64, 2});
  const int epochs = std::atoi(std::getenv("TEST_EPOCHS"));
  const keras::History history = model.fit(
      x, y, {.batch_size = 8, .epochs = epochs, .verbose = 0, .callbacks = {keras::make_callback<Steps>()}});
  report(detail::concat("loss ", history["loss"].back()));
}
const RegisterScenario trained("train over network", train_over_network);

class OverNetwork : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string why = Namespaces::missing(); !why.empty()) GTEST_SKIP() << why;
    if (std::string why = missing(Launcher::lockstep); !why.empty()) GTEST_SKIP() << why;
  }
  // What every worker reports, where all do the same.
  static std::string of(const lockstep::testing::Run& start) {
    const auto results = run(start);
    for (const WorkerResult& worker : results) {
      EXPECT_EQ(worker.status, 0) << worker.output;
      EXPECT_EQ(worker.report, results[0].report);
    }
    return results[0].report;
  }
  static std::string alone() {
    return of(
        {.scenario = "train over network", .launcher = Launcher::alone, .environment = {"TEST_EPOCHS=2"}});
  }
  // A link is cut while they train; every worker ends, and says who is missing.
  static std::vector<WorkerResult> with_cut(int machines, int which) {
    const Namespaces network(machines);
    bool cut = false;
    return run({.scenario = "train over network",
                .workers = machines,
                .environment = {"TEST_EPOCHS=1000000"},
                .network = &network,
                .meanwhile = [&](const std::vector<std::string>& reports) {
                  const auto trains = [](const std::string& text) { return text.starts_with("trains"); };
                  if (cut || !std::all_of(reports.begin(), reports.end(), trains)) return;
                  network.cut(which);
                  cut = true;
                }});
  }
};

TEST_F(OverNetwork, TrainsToTheBitsOfOneMachine) {
  const Namespaces network(4);
  EXPECT_EQ(of({.scenario = "train over network",
                .workers = 4,
                .environment = {"TEST_EPOCHS=2"},
                .network = &network}),
            alone());
}

TEST_F(OverNetwork, TrainsOverASlowLink) {
  if (std::string why = Namespaces::missing_slow(); !why.empty()) GTEST_SKIP() << why;
  const Namespaces network(2);
  network.slow(1, 2000);
  EXPECT_EQ(of({.scenario = "train over network",
                .workers = 2,
                .environment = {"TEST_EPOCHS=2"},
                .network = &network}),
            alone());
}

TEST_F(OverNetwork, TrainsOnMpiOverTcp) {
  if (std::string why = missing(Launcher::mpirun); !why.empty()) GTEST_SKIP() << why;
  const Namespaces network(2);
  EXPECT_EQ(of({.scenario = "train over network",
                .workers = 2,
                .launcher = Launcher::mpirun,
                .environment = {"TEST_EPOCHS=2"},
                .network = &network}),
            alone());
}

TEST_F(OverNetwork, ACutLinkIsNamedOnBothSides) {
  for (const int which : {2, 0}) {
    const std::vector<WorkerResult> results = with_cut(3, which);
    for (int w = 0; w < 3; ++w) {
      const WorkerResult& worker = results[static_cast<size_t>(w)];
      EXPECT_EQ(worker.status, errors::kUnavailableStatus) << worker.output;
      // The one behind the cut link hears of nobody; the first worker cut off is all that the others miss.
      if (w == which)
        EXPECT_THAT(worker.report, AnyOf(HasSubstr("rank 0 (process "), HasSubstr("rank 1 (process "))) << w;
      else
        EXPECT_THAT(worker.report, HasSubstr(detail::concat("rank ", which, " (process "))) << w;
    }
  }
}

TEST_F(OverNetwork, NothingIsLeftBehind) {
  std::vector<std::string> own;
  {
    const Namespaces network(2);
    own = {network.name(0), network.name(1)};
    EXPECT_THAT(Namespaces::all(), ::testing::IsSupersetOf(own));
  }
  for (const std::string& name : Namespaces::all())
    EXPECT_THAT(own, ::testing::Not(::testing::Contains(name)));
}

}  // namespace
}  // namespace lockstep::testing
