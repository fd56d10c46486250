#include "bench/bench.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "bench/first_step.h"
#include "bench/peers.h"

namespace lockstep::bench {
namespace {

Candidate constant(std::string name, double us) {
  return {.name = std::move(name), .read = [=](int) { return Reading{.us = us}; }};
}

const Effort kEffort{.rounds = 10, .reading_us = 100, .pause_us = 0};

TEST(Measure, TakesMediansAndRatiosToTheFirst) {
  const auto results = measure({constant("floor", 10), constant("other", 25)}, kEffort);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].us, 10);
  EXPECT_EQ(results[0].ratio, 1.0);
  EXPECT_EQ(results[1].us, 25);
  EXPECT_EQ(results[1].ratio, 2.5);
  EXPECT_EQ(results[1].clean, 10);
}

TEST(Measure, AsksForReadingsOfTheWantedLength) {
  int asked = 0;
  measure({{.name = "floor",
            .read =
                [&](int iterations) {
                  asked = iterations;
                  return Reading{.us = 2};
                }}},
          kEffort);
  EXPECT_EQ(asked, 50);
}

// The noise is the machine's, so it falls on a whole round; a ratio within the round must not see it.
TEST(Measure, ComparesWithinARound) {
  const auto noisy = [](double us) {
    return [us, reading = 0](int) mutable { return Reading{.us = us * (1 + reading++ * 13 % 7)}; };
  };
  Effort effort = kEffort;
  effort.reading_us = 1;  // calibrated by one reading
  const auto results =
      measure({{.name = "floor", .read = noisy(10)}, {.name = "other", .read = noisy(20)}}, effort);
  EXPECT_EQ(results[1].ratio, 2.0);
  EXPECT_GT(results[1].high, results[1].low);
}

TEST(Measure, LeavesDisturbedReadingsOut) {
  int calls = 0;
  const Candidate shaken{.name = "shaken", .read = [&](int) {
                           return ++calls % 2 == 0 ? Reading{.us = 900, .disturbed = true}
                                                   : Reading{.us = 30};
                         }};
  const auto results = measure({constant("floor", 10), shaken}, kEffort);
  EXPECT_EQ(results[1].us, 30);
  EXPECT_EQ(results[1].high, 30);
  EXPECT_EQ(results[1].ratio, 3.0);
  EXPECT_EQ(results[1].clean, 5);
}

TEST(Measure, SaysWhereTooFewReadingsAreClean) {
  const Candidate shaken{.name = "shaken", .read = [](int) { return Reading{.us = 50, .disturbed = true}; }};
  const auto results = measure({constant("floor", 10), shaken}, kEffort);
  EXPECT_TRUE(results[0].us_is_clean);
  EXPECT_EQ(results[1].clean, 0);
  EXPECT_EQ(results[1].us, 50);
  EXPECT_FALSE(results[1].us_is_clean);
  EXPECT_FALSE(results[1].ratio_is_clean);
  const Measurement m{.work = "mlp", .results = results};
  EXPECT_NE(as_table(m).find("50.0?"), std::string::npos) << as_table(m);
  EXPECT_EQ(as_json({m})[1]["us_is_clean"], false);
}

TEST(Measure, GoesOnWithoutACandidateThatFails) {
  const Candidate broken{.name = "broken",
                         .read = [](int) -> Reading { throw std::runtime_error("no such op"); }};
  const auto results = measure({constant("floor", 10), broken, constant("other", 5)}, kEffort);
  EXPECT_EQ(results[1].error, "no such op");
  EXPECT_FALSE(results[1].ratio.has_value());
  EXPECT_EQ(results[2].ratio, 0.5);
}

TEST(Measure, KeepsApartWhatDoesNotFitTogether) {
  auto held = std::make_shared<int>(0);
  Candidate ours{.name = "ours", .read = [held](int) { return Reading{.us = 10}; }};
  const std::weak_ptr<int> still_held = held;
  held.reset();
  int released = 0;
  const Candidate other{.name = "other", .read = [&](int) {
                          EXPECT_TRUE(still_held.expired());
                          return Reading{.us = 25};
                        }};
  std::vector<Candidate> list;
  list.push_back(std::move(ours));
  const auto results = measure_apart(std::move(list), {other, other}, kEffort, [&] { ++released; });
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].ratio, 1.0);
  EXPECT_EQ(results[2].ratio, 2.5);
  EXPECT_EQ(released, 2);
}

TEST(Reports, ShowFiguresUnitsAndErrors) {
  const Measurement m{.work = "mlp",
                      .batch = 32,
                      .threads = 2,
                      .results = {{.name = "floor", .note = "packed", .us = 155.04, .ratio = 1.0},
                                  {.name = "other", .error = "no such op"}}};
  const std::string text = as_table(m);
  for (const char* part : {"mlp, batch 32, 2 threads", "us/step", "155.0", "no such op", "packed"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  const auto document = as_json({m});
  EXPECT_EQ(document[0]["ratio_to_floor"], 1.0);
  EXPECT_EQ(document[0]["threads"], 2);
  EXPECT_EQ(document[1]["error"], "no such op");
}

// Peers on a GPU that need none: bench/testdata/peers.
class PeersOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("LOCKSTEP_BENCH_PEERS", LOCKSTEP_SOURCE_DIR "/bench/testdata/peers", 1);
    setenv("LOCKSTEP_BENCH_PYTHON", "python3", 1);
  }
  void TearDown() override {
    unsetenv("LOCKSTEP_BENCH_PEERS");
    unsetenv("LOCKSTEP_BENCH_PYTHON");
  }
};

TEST_F(PeersOnGpu, AreAskedForReadingsAndLetGo) {
  const Peers peers = Peers::on_gpu("eager|JAX jit");
  EXPECT_EQ(peers.inventory(),
            (std::vector<std::string>{"PyTorch eager 1.0",
                                      "JAX jit: missing (ModuleNotFoundError: No module named 'jax')"}));
  EXPECT_TRUE(peers.candidates("gpu/gru/float32", 32).empty());
  const std::vector<Candidate> candidates = peers.candidates("gpu/lenet/float32", 32);
  ASSERT_EQ(candidates.size(), 1u);
  EXPECT_EQ(candidates[0].name, "PyTorch eager");
  EXPECT_TRUE(candidates[0].is_peer);
  EXPECT_EQ(candidates[0].read(1).us, 100);
  const Reading second = candidates[0].read(1);
  EXPECT_EQ(second.us, 200);
  EXPECT_EQ(second.memory, 4096);
  peers.release();
  EXPECT_EQ(candidates[0].read(1).us, 100);
}

TEST_F(PeersOnGpu, ThatCompileAreAskedToBeforehand) {
  const Peers peers = Peers::on_gpu("torch");
  std::vector<std::string> told;
  peers.prepare({{"gpu/lenet/float32", 32}, {"gpu/gru/float32", 32}, {"gpu/lenet/float32", 2048}},
                [&](const std::string& line) { told.push_back(line); });
  EXPECT_EQ(told, (std::vector<std::string>{"torch.compile, gpu/lenet/float32/32: compiled in 1.5 s",
                                            "torch.compile, gpu/lenet/float32/2048: out of memory"}));
}

TEST_F(PeersOnGpu, MakeFirstSteps) {
  const Peers peers = Peers::on_gpu("PyTorch (eager|CUDA graph)");
  const auto commands = peers.first_step_commands("gpu/lenet/float32", 32);
  ASSERT_EQ(commands.size(), 2u);
  for (const auto& [peer, command] : commands) EXPECT_GT(first_step(peer, command).cold_s, 0) << peer;
}

TEST(Peers, SaysWhichAreMissingAndWhy) {
  setenv("LOCKSTEP_BENCH_PYTHON", "no-such-python", 1);
  const Peers peers(1);
  unsetenv("LOCKSTEP_BENCH_PYTHON");
  int missing = 0;
  for (const std::string& line : peers.inventory())
    missing += line.find("missing") != std::string::npos && line.find("no-such-python") != std::string::npos;
  EXPECT_EQ(missing, 3);
}

}  // namespace
}  // namespace lockstep::bench
