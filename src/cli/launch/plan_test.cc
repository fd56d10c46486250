#include "cli/launch/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

Plan plan(LaunchOptions options, const std::map<std::string, std::string, std::less<>>& environment = {}) {
  if (options.program.empty()) options.program = {"true"};
  options.tool = "/opt/lockstep";
  return make_plan(options, [&](std::string_view name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(Plan, OneMachineMeetsAtLoopback) {
  const Plan made = plan({.workers = 3});
  EXPECT_EQ(made.workers, 3);
  ASSERT_EQ(made.agents.size(), 1u);
  EXPECT_EQ(made.agents[0].starter, Starter::here);
  EXPECT_THAT(made.agents[0].ranks, ElementsAre(0, 1, 2));
  EXPECT_THAT(made.agents[0].command, ElementsAre("/opt/lockstep", "launch-agent"));
  EXPECT_EQ(made.meeting_host, "127.0.0.1");
  EXPECT_EQ(made.meeting_port, 0);
  EXPECT_FALSE(made.over_network());
  EXPECT_THAT(made.environment, IsEmpty());
}

TEST(Plan, HostsMeetAtTheFirst) {
  const Plan made = plan({.hosts = "u@a:2,b"});
  EXPECT_EQ(made.workers, 3);
  ASSERT_EQ(made.agents.size(), 2u);
  EXPECT_EQ(made.agents[0].starter, Starter::ssh);
  EXPECT_THAT(made.agents[1].ranks, ElementsAre(2));
  EXPECT_EQ(made.meeting_host, "a");
  EXPECT_TRUE(made.over_network());
  EXPECT_EQ(plan({.hosts = "localhost:2"}).agents[0].starter, Starter::here) << "without ssh";
}

TEST(Plan, AnAddressIsTakenAsItIs) {
  EXPECT_EQ(plan({.workers = 2, .address = "10.0.0.1:77"}).meeting_port, 77);
  EXPECT_EQ(plan({.workers = 2, .address = "[fe80::1]:77"}).meeting_host, "fe80::1");
  EXPECT_EQ(plan({.workers = 2, .address = "[fe80::1]:77"}).meeting_port, 77);
  EXPECT_EQ(plan({.workers = 2, .address = "fe80::1"}).meeting_host, "fe80::1");
  EXPECT_EQ(plan({.workers = 2, .address = "fe80::1"}).meeting_port, 0);
  EXPECT_THROW(plan({.hosts = "a,b", .address = "127.0.0.1"}), Error);
}

TEST(Plan, AnAllocationGivesItsTasks) {
  const auto tasks = [](const std::map<std::string, std::string, std::less<>>& environment,
                        LaunchOptions options = {}) {
    const Plan made = plan(options, environment);
    return made.agents[0].starter == Starter::srun ? made.workers : -made.workers;
  };
  EXPECT_EQ(tasks({{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "6"}, {"SLURM_JOB_NUM_NODES", "2"}}), 6);
  EXPECT_EQ(tasks({{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NUM_NODES", "2"}, {"SLURM_NTASKS_PER_NODE", "4"}}), 8);
  EXPECT_EQ(tasks({{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NUM_NODES", "3"}}), 3) << "a worker per machine";
  EXPECT_EQ(tasks({{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "6"}}, {.workers = 2}), 2);
  // In a shell that srun has opened the resources are taken; in salloc's own they are not.
  EXPECT_EQ(tasks({{"SLURM_JOB_ID", "1"}, {"SLURM_STEP_ID", "0"}}, {.workers = 2}), -2);
  EXPECT_EQ(tasks({{"SLURM_JOB_ID", "1"}, {"SLURM_STEP_ID", "4294967290"}}, {.workers = 2}), 2);
  EXPECT_EQ(tasks({{"SLURM_JOB_ID", "1"}}, {.workers = 2, .slurm = false}), -2);
  EXPECT_EQ(plan({.hosts = "a:2"}, {{"SLURM_JOB_ID", "1"}}).agents[0].starter, Starter::ssh);
  EXPECT_THROW(tasks({{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "many"}}), Error);
  const Plan made = plan({}, {{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "2"}});
  EXPECT_THAT(made.agents[0].command, Contains("--ntasks=2"));
  EXPECT_EQ(made.meeting_host, "") << "srun chooses where rank 0 is";
}

TEST(Plan, VariablesAreNamedOrGiven) {
  const Plan made = plan({.workers = 1, .environment = {"A=1=2", "B", "A=3"}}, {{"B", "b"}});
  EXPECT_EQ(made.environment, (Environment{{"B", "b"}, {"A", "3"}}));
  EXPECT_THROW(plan({.workers = 1, .environment = {"C"}}), Error);
  EXPECT_THROW(plan({.workers = 1, .environment = {"=x"}}), Error);
}

TEST(Backoff, Doubles) {
  const LaunchOptions options{.backoff_s = 2};
  EXPECT_EQ(backoff_s(options, 0), 2);
  EXPECT_EQ(backoff_s(options, 3), 16);
  EXPECT_EQ(backoff_s(options, 1000), 60);
  EXPECT_EQ(backoff_s({.backoff_s = 300}, 5), 300) << "who asks for longer gets it";
}

TEST(ShellQuoting, ReadsBackAsOneWord) {
  EXPECT_EQ(shell_quoted("plain-1.2/x=y"), "plain-1.2/x=y");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("it's $x"), "'it'\\''s $x'");
  EXPECT_EQ(shell_quoted(std::vector<std::string>{"a", "b c"}), "a 'b c'");
}

}  // namespace
}  // namespace lockstep::launch
