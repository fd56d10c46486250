#include "comm/workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error_of_test.h"
#include "comm/free_address_test.h"
#include "lockstep/base/errors.h"

namespace lockstep::comm {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string chosen(ClusterSource source, WorkersOptions options, bool has_pmi,
                   std::vector<std::string> missing) {
  return choose_engine({.source = source, .size = 2}, options, has_pmi,
                       [&](const char* name) {
                         const bool is = std::find(missing.begin(), missing.end(), name) != missing.end();
                         return is ? std::string(name) + " is not installed" : std::string();
                       })
      .engine;
}

TEST(ChooseEngine, FollowsTheLauncher) {
  EXPECT_EQ(chosen(ClusterSource::tf_config, {}, false, {}), "gloo");
  EXPECT_EQ(chosen(ClusterSource::mpi, {}, false, {}), "mpi");
  EXPECT_EQ(chosen(ClusterSource::slurm, {}, true, {}), "mpi");
  EXPECT_EQ(chosen(ClusterSource::slurm, {}, false, {}), "gloo");
  EXPECT_EQ(chosen(ClusterSource::slurm, {}, true, {"mpi"}), "gloo");
  EXPECT_EQ(chosen(ClusterSource::mpi, {.engine = Engine::gloo}, false, {}), "gloo");
  EXPECT_EQ(chosen(ClusterSource::torchrun, {.devices_are_gpus = true}, false, {"gloo"}), "");
}

TEST(ChooseEngine, SaysWhatIsMissing) {
  const auto message = [](ClusterSource source, const WorkersOptions& options,
                          std::vector<std::string> missing) {
    return error_of([&] { chosen(source, options, false, missing); }).message();
  };
  EXPECT_THAT(message(ClusterSource::mpi, {}, {"mpi"}), HasSubstr("mpi is not installed"));
  EXPECT_THAT(message(ClusterSource::tf_config, {}, {"gloo"}),
              AllOf(HasSubstr("gloo is not installed"), HasSubstr("mpirun")));
  EXPECT_THAT(message(ClusterSource::tf_config, {.engine = Engine::nccl}, {}),
              HasSubstr("this worker has none"));
}

// Without an engine: what goes through the group.
std::vector<std::unique_ptr<Workers>> met(int size, double timeout_s) {
  const std::string address = free_address();
  std::vector<std::unique_ptr<Workers>> all(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      all[static_cast<size_t>(r)] = std::make_unique<Workers>(
          std::make_unique<Group>(GroupOptions{.address = address, .rank = r, .size = size, .timeout_s = 30}),
          nullptr, "", timeout_s);
    });
  for (std::thread& thread : threads) thread.join();
  return all;
}

template <class Work>
std::vector<std::string> at_all(const std::vector<std::unique_ptr<Workers>>& workers, Work work) {
  std::vector<std::string> results(workers.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < workers.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        results[r] = work(*workers[r]);
      } catch (const Error& error) {
        results[r] = error.message();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(Workers, GatherAndBroadcastThroughTheGroup) {
  const auto workers = met(3, 30);
  EXPECT_THAT(at_all(workers,
                     [](Workers& w) {
                       const auto all = w.gather_large(
                           "letters", std::string(static_cast<size_t>(w.rank()) * 50'000 + 1, 'a'));
                       return std::to_string(all[0].size() + all[1].size() + all[2].size()) +
                              w.broadcast("a word", w.chief() ? "word" : "");
                     }),
              ElementsAre("150003word", "150003word", "150003word"));
}

TEST(Workers, SayInWhatTheyDiffer) {
  const auto workers = met(3, 30);
  for (const std::string& message : at_all(workers, [](Workers& w) {
         w.require_equal("the batch size", w.rank() == 2 ? "32" : "64");
         return std::string("all is well");
       }))
    EXPECT_THAT(message, HasSubstr("the workers differ in the batch size: rank 0 has 64; rank 2 has 32"));
}

TEST(Workers, SayThatOneIsAtSomethingElse) {
  const auto workers = met(3, 30);
  for (const std::string& message : at_all(workers, [](Workers& w) {
         w.gather(w.rank() == 1 ? "an evaluation" : "a step", "");
         return std::string("all is well");
       }))
    EXPECT_THAT(message,
                AllOf(HasSubstr("rank 0 is at a step, rank 1 (process "), HasSubstr("at an evaluation")));
}

TEST(Workers, NameWhoDoesNotCome) {
  const auto workers = met(3, 2);
  const std::vector<std::string> messages = at_all(workers, [](Workers& w) {
    if (w.rank() != 2) w.gather("a step", "");
    return std::string();
  });
  EXPECT_THAT(messages[0], AllOf(HasSubstr("rank 2 (process "), HasSubstr("has not come to a step")));
  EXPECT_THAT(messages[1], AllOf(HasSubstr("rank 2 (process "), HasSubstr("has not come to a step")));
}

// What the others throw where rank 1 gives up for `error` while they wait for it.
std::vector<std::string> others_end_with(const std::exception& error) {
  const auto workers = met(3, 30);
  return at_all(workers, [&](Workers& w) -> std::string {
    if (w.rank() == 1) {
      w.give_up("rank 1 has failed", error);
      return "gave up";
    }
    try {
      w.gather("a step", "");
    } catch (const errors::UnavailableError& lost) {
      return "lost: " + lost.message();
    } catch (const errors::FailedPreconditionError& mistake) {
      return "mistake: " + mistake.message();
    }
    return "all is well";
  });
}

TEST(Workers, EndAsTheOneDoesThatGaveUp) {
  const auto here = std::source_location::current();
  const auto says = [](const char* kind) {
    return AllOf(::testing::StartsWith(kind), HasSubstr("gave up: rank 1 has failed"));
  };
  const auto mistake = others_end_with(Error(ErrorCode::failed_precondition, "another program", here));
  EXPECT_THAT(mistake, ElementsAre(says("mistake: "), "gave up", says("mistake: ")));
  // Nothing is wrong with the others, nor with the program.
  const auto disk = others_end_with(Error(ErrorCode::io, "the disk is full", here));
  EXPECT_THAT(disk, ElementsAre(says("lost: "), "gave up", says("lost: ")));
  const auto unknown = others_end_with(std::runtime_error("of the user's own"));
  EXPECT_THAT(unknown, ElementsAre(says("lost: "), "gave up", says("lost: ")));
}

TEST(FlightRecorder, KeepsTheLast) {
  FlightRecorder recorder;
  for (int64_t number = 1; number <= 600; ++number) {
    recorder.begin("all_reduce", "dense/kernel", 40);
    if (number < 600) recorder.end();
  }
  EXPECT_THAT(recorder.text(2), AllOf(HasSubstr("#599 all_reduce [dense/kernel] 40 bytes"),
                                      HasSubstr("#600 all_reduce"), HasSubstr("has not ended")));
  EXPECT_EQ(recorder.text().find("#88 "), std::string::npos);
  EXPECT_NE(recorder.text().find("#89 "), std::string::npos);
}

TEST(FlightRecorder, KnowsWhatIsUnderWay) {
  FlightRecorder recorder;
  EXPECT_EQ(recorder.last().number, 0);
  EXPECT_TRUE(recorder.last().ended);
  recorder.begin("all_reduce", std::string(200, 'n'), 40);
  EXPECT_FALSE(recorder.last().ended);
  EXPECT_EQ(recorder.last().text, "all_reduce #1 [" + std::string(103, 'n') + "]");
  recorder.end();
  EXPECT_TRUE(recorder.last().ended);
  recorder.number_anew();
  EXPECT_EQ(recorder.last().number, 0);
  recorder.begin("broadcast", "state", 8);
  EXPECT_EQ(recorder.last().text, "broadcast #1 [state]");
  EXPECT_THAT(recorder.text(), AllOf(HasSubstr("#1 all_reduce [nnn"), HasSubstr("#1 broadcast [state]")));
}

}  // namespace
}  // namespace lockstep::comm
