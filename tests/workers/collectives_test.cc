// The engines themselves: every collective of every type between 1 to 4 processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "comm/cluster.h"
#include "comm/workers.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/tensor.h"
#include "workers/processes.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<comm::Workers> met() { return comm::Workers::meet(comm::read_cluster(), {.timeout_s = 60}); }

void must(bool holds, const std::string& what) {
  require(holds, ErrorCode::internal, std::source_location::current(), what);
}

void collectives() {
  const auto workers = met();
  const int rank = workers->rank(), size = workers->size();
  for (const int64_t count : {int64_t{1}, int64_t{7}, int64_t{1000}, int64_t{300'000}}) {
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i % 13) * (rank + 1));
    workers->all_reduce_sum("floats", values.data(), count, DType::float32);
    const auto ranks = static_cast<float>(size * (size + 1)) / 2;
    for (size_t i = 0; i < values.size(); ++i)
      must(values[i] == static_cast<float>(i % 13) * ranks, "a sum of floats");
    std::vector<int64_t> whole(static_cast<size_t>(count), rank);
    workers->all_reduce_sum("integers", whole.data(), count, DType::int64);
    must(whole.back() == size * (size - 1) / 2, "a sum of integers");

    std::vector<float> mine(static_cast<size_t>(count), static_cast<float>(rank));
    std::vector<float> all(static_cast<size_t>(count * size));
    workers->all_gather("all", mine.data(), all.data(), count * 4);
    for (int r = 0; r < size; ++r)
      must(all[static_cast<size_t>(r * count)] == static_cast<float>(r) &&
               all[static_cast<size_t>((r + 1) * count - 1)] == static_cast<float>(r),
           "a gathering");
  }
  // Rank r sends (r + 1) * 10 bytes to each.
  std::vector<int64_t> sent(static_cast<size_t>(size), (rank + 1) * 10), received;
  int64_t total = 0;
  for (int r = 0; r < size; ++r) received.push_back((r + 1) * 10), total += received.back();
  std::string source(static_cast<size_t>((rank + 1) * 10 * size), static_cast<char>('a' + rank)),
      target(static_cast<size_t>(total), ' ');
  workers->all_to_all("letters", source.data(), sent, target.data(), received);
  std::string expected;
  for (int r = 0; r < size; ++r)
    expected += std::string(static_cast<size_t>((r + 1) * 10), static_cast<char>('a' + r));
  must(target == expected, "an exchange: " + target);

  must(workers->broadcast("a text", rank == 0 ? std::string(500'000, 'x') : std::string()) ==
           std::string(500'000, 'x'),
       "a broadcast");
  const std::vector<std::string> small = workers->gather("ranks", std::to_string(rank));
  for (int r = 0; r < size; ++r)
    must(small[static_cast<size_t>(r)] == std::to_string(r), "a small gathering");
  const std::vector<std::string> large =
      workers->gather_large("texts", std::string(static_cast<size_t>(rank * 100'000), 'y'));
  for (int r = 0; r < size; ++r)
    must(large[static_cast<size_t>(r)].size() == static_cast<size_t>(r) * 100'000, "a large gathering");
  report(workers->description());
  must(workers->flight_record().find("all_to_all [letters]") != std::string::npos, workers->flight_record());
}
const RegisterScenario registered("collectives", collectives);

class Engines : public ::testing::TestWithParam<std::pair<Launcher, int>> {};

// On one machine they leave to its memory what a step waits for, unless that is not wanted.
TEST_P(Engines, MoveWhatTheyAreGiven) {
  const auto [launcher, workers] = GetParam();
  if (const std::string why = missing(launcher); !why.empty()) GTEST_SKIP() << why;
  for (const bool shared : {false, true})
    for (const WorkerResult& worker :
         run({.scenario = "collectives",
         .workers = workers,
         .launcher = launcher,
         .environment = {detail::concat("LOCKSTEP_SHARED_MEMORY=", shared ? 1 : 0)}})) {
      EXPECT_EQ(worker.status, 0) << worker.output;
      EXPECT_THAT(worker.report, HasSubstr(launcher == Launcher::mpirun ? "Open MPI" : "Gloo"));
      EXPECT_EQ(worker.report.find("sum in shared memory") != std::string::npos, shared) << worker.report;
    }
}

INSTANTIATE_TEST_SUITE_P(Processes, Engines,
                         ::testing::Values(std::pair(Launcher::lockstep, 2), std::pair(Launcher::lockstep, 4),
                                           std::pair(Launcher::mpirun, 2), std::pair(Launcher::mpirun, 3)));

}  // namespace
}  // namespace lockstep::testing
