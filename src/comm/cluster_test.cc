#include "comm/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error_of_test.h"

namespace lockstep::comm {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string, std::less<>>;

Cluster read(const Variables& variables) {
  return read_cluster([&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string error_with(const Variables& variables) {
  return error_of([&] { read(variables); }).message();
}

constexpr const char* kTwoWorkers =
    R"({"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}})";

TEST(Cluster, NothingSetIsOneWorkerThatSaysHowToStartMore) {
  const Cluster cluster = read({});
  EXPECT_EQ(cluster.source, ClusterSource::none);
  EXPECT_EQ(cluster.size, 1);
  EXPECT_THAT(cluster.description, AllOf(HasSubstr("one worker"), HasSubstr("lockstep launch -n 4")));
}

TEST(Cluster, TfConfigListsWorkers) {
  const Cluster cluster = read({{"TF_CONFIG", kTwoWorkers}});
  EXPECT_EQ(cluster.source, ClusterSource::tf_config);
  EXPECT_EQ(cluster.rank, 1);
  EXPECT_EQ(cluster.size, 2);
  EXPECT_EQ(cluster.address, "a:1");
  EXPECT_THAT(cluster.addresses, ElementsAre("a:1", "b:2"));
  EXPECT_EQ(cluster.description, "worker 1 of 2, from TF_CONFIG (task worker 1)");
}

TEST(Cluster, TheChiefOfTfConfigIsRankZero) {
  const std::string both = R"({"cluster": {"worker": ["b:2", "c:3"], "chief": ["a:1"]}, "task": )";
  const Cluster chief = read({{"TF_CONFIG", both + R"({"type": "chief", "index": 0}})"}});
  EXPECT_EQ(chief.rank, 0);
  const Cluster worker = read({{"TF_CONFIG", both + R"({"type": "worker", "index": "1"}})"}});
  EXPECT_EQ(worker.rank, 2);
  EXPECT_THAT(worker.addresses, ElementsAre("a:1", "b:2", "c:3"));
}

TEST(Cluster, AnEvaluatorIsNoRank) {
  const Cluster cluster =
      read({{"TF_CONFIG",
             R"({"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "evaluator", "index": 0}})"}});
  EXPECT_TRUE(cluster.evaluator);
  EXPECT_EQ(cluster.size, 1);
  EXPECT_THAT(cluster.description, HasSubstr("evaluator"));
}

TEST(Cluster, TfConfigWithoutAClusterIsOneWorkerAsInTensorFlow) {
  const Cluster cluster = read({{"TF_CONFIG", "{}"}});
  EXPECT_EQ(cluster.source, ClusterSource::tf_config);
  EXPECT_EQ(cluster.size, 1);
}

TEST(Cluster, MistakesInTfConfigAreErrorsAndNeverOneWorker) {
  EXPECT_THAT(error_with({{"TF_CONFIG", "{'cluster'"}}), HasSubstr("TF_CONFIG"));
  EXPECT_THAT(error_with({{"TF_CONFIG", R"({"cluster": {"worker": ["a:1"]}})"}}), HasSubstr("no \"task\""));
  EXPECT_THAT(
      error_with({{"TF_CONFIG",
                   R"({"cluster": {"worker": ["a:1", "a:1"]}, "task": {"type": "worker", "index": 0}})"}}),
      HasSubstr("have the same address, a:1"));
  EXPECT_THAT(
      error_with({{"TF_CONFIG",
                   R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}})"}}),
      HasSubstr("this task is worker 2, but there are 2, 0 to 1"));
  EXPECT_THAT(
      error_with(
          {{"TF_CONFIG",
            R"({"cluster": {"worker": ["localhost:1", "b:1"]}, "task": {"type": "worker", "index": 0}})"}}),
      AllOf(HasSubstr("localhost:1"), HasSubstr("cannot reach")));
}

TEST(Cluster, MpirunOfOpenMpiAndOfMpich) {
  const Cluster open = read({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_EQ(open.source, ClusterSource::mpi);
  EXPECT_EQ(open.rank, 2);
  EXPECT_EQ(open.size, 4);
  EXPECT_EQ(open.address, "");
  EXPECT_EQ(read({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).source, ClusterSource::mpi);
  EXPECT_THAT(error_with({{"OMPI_COMM_WORLD_RANK", "2"}}), HasSubstr("OMPI_COMM_WORLD_SIZE is not"));
}

TEST(Cluster, SrunStartsStepsAndABatchScriptDoesNot) {
  Variables variables{{"SLURM_JOB_ID", "71"}, {"SLURM_PROCID", "3"},
                      {"SLURM_NTASKS", "8"},  {"SLURM_STEP_NUM_TASKS", "4"},
                      {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "gpu[07-08]"},
                      {"PMI_RANK", "3"},      {"PMI_SIZE", "4"}};
  const Cluster cluster = read(variables);
  EXPECT_EQ(cluster.source, ClusterSource::slurm);
  EXPECT_EQ(cluster.rank, 3);
  EXPECT_EQ(cluster.size, 4);
  EXPECT_EQ(cluster.address, "gpu07:16331");
  variables["SLURM_STEP_ID"] = "1";
  EXPECT_NE(read(variables).address, cluster.address) << "two steps of a job must not meet";
  variables["MASTER_PORT"] = "29500";
  EXPECT_EQ(read(variables).address, "gpu07:29500");

  const Cluster batch = read({{"SLURM_JOB_ID", "71"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}});
  EXPECT_EQ(batch.size, 1);
  EXPECT_THAT(batch.description, HasSubstr("srun did not start the program"));
}

TEST(Cluster, TorchrunAndOperatorsOfKubernetes) {
  Variables variables{
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "train-master-0"}, {"MASTER_PORT", "23456"}};
  EXPECT_EQ(read(variables).address, "train-master-0:23456");
  EXPECT_EQ(read(variables).rank, 1);
  variables["TORCHELASTIC_RUN_ID"] = "none";
  EXPECT_EQ(read(variables).address, "train-master-0:23457") << "torchrun's own agent listens at MASTER_PORT";
  variables["MASTER_ADDR"] = "fd00::1";
  EXPECT_EQ(read(variables).address, "[fd00::1]:23457");
  EXPECT_THAT(error_with({{"RANK", "1"}}), HasSubstr("WORLD_SIZE is not"));
  EXPECT_THAT(error_with({{"WORLD_SIZE", "2"}}), HasSubstr("RANK is not"));
  EXPECT_THAT(error_with({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), HasSubstr("MASTER_ADDR is not"));
  EXPECT_THAT(error_with({{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
              HasSubstr("RANK=2 is not below WORLD_SIZE=2"));
  EXPECT_THAT(error_with({{"RANK", "one"}, {"WORLD_SIZE", "2"}}), HasSubstr("received \"one\""));
  EXPECT_EQ(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).size, 1);
}

TEST(Cluster, LockstepLaunch) {
  const Cluster cluster =
      read({{"LOCKSTEP_RANK", "1"}, {"LOCKSTEP_WORKERS", "4"}, {"LOCKSTEP_ADDRESS", "127.0.0.1:5000"}});
  EXPECT_EQ(cluster.source, ClusterSource::lockstep_launch);
  EXPECT_EQ(cluster.address, "127.0.0.1:5000");
  EXPECT_EQ(cluster.description, "worker 1 of 4, from lockstep launch");
}

TEST(Cluster, TheFirstLauncherInTheOrderDecides) {
  Variables all{{"LOCKSTEP_RANK", "0"},    {"LOCKSTEP_WORKERS", "1"},     {"RANK", "0"},
                {"WORLD_SIZE", "1"},       {"SLURM_PROCID", "0"},         {"SLURM_STEP_ID", "0"},
                {"SLURM_NTASKS", "1"},     {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"},
                {"TF_CONFIG", kTwoWorkers}};
  const std::pair<const char*, ClusterSource> order[] = {{"TF_CONFIG", ClusterSource::tf_config},
                                                         {"OMPI_COMM_WORLD_RANK", ClusterSource::mpi},
                                                         {"SLURM_PROCID", ClusterSource::slurm},
                                                         {"RANK", ClusterSource::torchrun},
                                                         {"LOCKSTEP_RANK", ClusterSource::lockstep_launch}};
  for (const auto& [variable, source] : order) {
    EXPECT_EQ(read(all).source, source);
    all.erase(variable);
    all.erase("WORLD_SIZE");
    if (std::string_view(variable) != "RANK" && all.contains("RANK")) all["WORLD_SIZE"] = "1";
  }
}

TEST(Cluster, HostListsOfSlurm) {
  EXPECT_THAT(expand_host_list("node1"), ElementsAre("node1"));
  EXPECT_THAT(expand_host_list("a,b,c"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(expand_host_list("gpu[01-03,7],login"),
              ElementsAre("gpu01", "gpu02", "gpu03", "gpu7", "login"));
  EXPECT_THAT(expand_host_list("rack1-n[9-11]"), ElementsAre("rack1-n9", "rack1-n10", "rack1-n11"));
  for (const char* bad : {"", ",", "a[1-", "a]1", "a[x]", "a[3-1]", "a[1-]", "a[-1]", "a[1-99999999999]"})
    EXPECT_THAT(error_of([&] { expand_host_list(bad); }).message(), HasSubstr("host list")) << bad;
}

}  // namespace
}  // namespace lockstep::comm
