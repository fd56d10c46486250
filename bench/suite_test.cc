#include "bench/suite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <set>

#include "bench/engine.h"
#include "bench/summary.h"
#include "lockstep/base/error.h"
#include "lockstep/device/config.h"
#include "lockstep/keras/applications.h"
#include "lockstep/ops/math.h"

namespace lockstep::bench {
namespace {

std::set<std::string> ids(const std::vector<Row>& rows) {
  std::set<std::string> names;
  for (const Row& row : rows) names.insert(row.id());
  return names;
}

TEST(Rows, EveryApplicationIsTrainedAndPredictsOnAGpuUnderEveryPolicy) {
  const std::vector<Row> rows = all_rows();
  for (const std::string& application : keras::applications::names())
    for (const Task task : {Task::train, Task::predict})
      for (const std::string& policy : policies())
        EXPECT_TRUE(std::ranges::any_of(rows,
                                        [&](const Row& row) {
                                          return row.on_gpu && row.network->name == application &&
                                                 row.task == task && row.policy == policy;
                                        }))
            << application << " has no row in bench/networks.cc";
}

TEST(Rows, APlainRunHasARowOfEveryApplication) {
  const std::vector<Row> rows = all_rows();
  for (const std::string& application : keras::applications::names())
    EXPECT_TRUE(std::ranges::any_of(rows,
                                    [&](const Row& row) {
                                      return row.on_gpu && row.standard && row.task == Task::train &&
                                             row.network->name == application;
                                    }))
        << application << " is not among the standard rows of bench/suite.cc";
}

TEST(Rows, HaveNamesOfTheirOwn) {
  const std::vector<Row> rows = all_rows();
  const std::set<std::string> names = ids(rows);
  EXPECT_EQ(names.size(), rows.size());
  for (const char* id :
       {"gpu/lenet/float32/128", "gpu/resnet18/float32/128", "gpu/lstm/float32/128", "gpu/nanogpt/float32/64",
        "gpu/nanogpt/mixed_bfloat16/64", "gpu/vit_tiny/float32/128", "gpu/mlp/float32/32",
        "gpu/host/mlp/float32/1024", "gpu/resnet50/mixed_bfloat16/256", "gpu/gpt2/mixed_bfloat16/32",
        "gpu/predict/unet/tf32/32", "cpu/conv3d/float32/4", "cpu/predict/lstm/float32/1"})
    EXPECT_TRUE(names.contains(id)) << id;
  EXPECT_EQ(row_of("gpu/predict/gru/tf32/256").task, Task::predict);
  EXPECT_EQ(row_of("gpu/gpt2/mixed_bfloat16/large").batch, 0);
  EXPECT_TRUE(row_of("gpu/gpt2/mixed_bfloat16/large").large);
  EXPECT_THROW(row_of("gpu/lenet/float32/127"), Error);
}

TEST(Rows, OnesOfAPlainRunAreAllThere) {
  const auto standard =
      std::ranges::count_if(all_rows(), [](const Row& row) { return row.on_gpu && row.standard; });
  EXPECT_EQ(standard, standard_gpu_rows());
}

// What other frameworks call the networks, and which works they have, without importing any of them.
TEST(Rows, AreThoseOfThePeers) {
  const std::string command = "python3 -c \"import sys; sys.path.insert(0, '" LOCKSTEP_SOURCE_DIR
                              "/bench/peers'); import suite; print(*suite.works('gpu'), *suite.works('cpu', "
                              "['float32']), sep='\\n')\"";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(popen(command.c_str(), "r"), pclose);
  ASSERT_NE(out, nullptr);
  std::set<std::string> theirs;
  std::array<char, 256> line{};
  while (std::fgets(line.data(), line.size(), out.get()) != nullptr)
    theirs.insert(std::string(line.data()).substr(0, std::string(line.data()).find('\n')));
  for (const Row& row : all_rows()) EXPECT_TRUE(theirs.contains(row.work())) << row.work();
  std::set<std::string> networks_of_peers;
  for (const std::string& work : theirs)
    if (work.starts_with("gpu/predict/") && work.ends_with("/float32"))
      networks_of_peers.insert(work.substr(12, work.size() - 12 - 8));
  EXPECT_EQ(networks_of_peers.size(), networks().size());
}

void expect_runs(const std::string& name, const Exercise& exercise) {
  SCOPED_TRACE(name + " " + exercise.policy);
  const NetworkStep step = network(name).make(exercise);
  step();
  EXPECT_GT(step.statistics().flops, 0);
  EXPECT_GT(step.statistics().bytes_accessed, 0);
}

TEST(Networks, TrainAndPredictOnACpu) {
  for (const char* name :
       {"mlp", "lenet", "vit_tiny", "gpt_tiny", "lstm", "gru", "unet_small", "attention_1k"})
    for (const Task task : {Task::train, Task::predict}) expect_runs(name, {.task = task, .batch = 1});
}

TEST(Networks, HaveTheirPolicy) {
  expect_runs("lenet", {.batch = 2, .policy = "mixed_bfloat16"});
  expect_runs("gpt_tiny", {.batch = 2, .policy = "tf32"});
  EXPECT_FALSE(config::tensor_float_32_execution_enabled());
}

class LargeNetworks : public ::testing::TestWithParam<const char*> {};

TEST_P(LargeNetworks, LongTrainOnACpu) { expect_runs(GetParam(), {.batch = 1}); }

INSTANTIATE_TEST_SUITE_P(All, LargeNetworks,
                         ::testing::Values("resnet18", "resnet18_small", "resnet50", "vgg16", "densenet121",
                                           "mobilenet_v2", "efficientnet_b0", "inception_v3", "xception",
                                           "nanogpt", "gpt2", "unet", "conv3d", "embedding_bag",
                                           "attention_4k"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Networks, MistakesAreNamed) {
  try {
    network("lenett");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("lenet, "), std::string::npos) << error.message();
  }
}

// Under other settings a function is compiled once more, into kernels that nobody asked for and memory that
// nobody counted.
TEST(NetworkStep, IsCalledUnderTheSettingsThatItWasMadeUnder) {
  int traces = 0;
  const auto body = [&](std::span<const Tensor> in) {
    ++traces;
    EXPECT_TRUE(config::tensor_float_32_execution_enabled());
    EXPECT_FALSE(config::op_determinism_enabled());
    return TensorList{in[0] + 1.0};
  };
  const NetworkStep step(body, {Tensor::full(DType::float32, {4}, 1)}, 1,
                         {.policy = "tf32", .op_determinism = false});
  EXPECT_FALSE(config::tensor_float_32_execution_enabled());
  EXPECT_TRUE(config::op_determinism_enabled());
  step();
  step.statistics();
  EXPECT_EQ(traces, 1);
  EXPECT_FALSE(config::tensor_float_32_execution_enabled());
  EXPECT_TRUE(config::op_determinism_enabled());
}

// Logical devices are chosen once in a process.
TEST(RowCandidatesOwnProcess, TellCostAndMemory) {
  configure_devices();
  const Row row = row_of("cpu/lenet/float32/32");
  std::vector<Candidate> candidates = row_candidates(row, 1);
  ASSERT_EQ(candidates.size(), 1u);
  EXPECT_GT(candidates[0].flops, 0);
  const Reading reading = candidates[0].read(1);
  EXPECT_GT(reading.us, 0);
  EXPECT_GT(reading.memory, 61706 * 3 * 4);  // weights with Adam's two averages at the least
  const Ceiling ceiling = ceiling_of(device_of(row, 1), "float32");
  EXPECT_GT(ceiling.flops_per_second, 0);
  EXPECT_GT(ceiling.bytes_per_second, 0);
}

TEST(RowCandidatesOwnProcess, BatchesGrowAsLongAsTheirMemoryFits) {
  configure_devices();
  Device& device = device_with(1);
  const Row row = row_of("gpu/mlp/float32/large");
  // Weights, Adam's averages and the batch: more than 1.2 MB, and 3 KB for every example.
  EXPECT_EQ(largest_batch(row, device, 1), 1024);
  const int64_t batch = largest_batch(row, device, int64_t{40} << 20);
  EXPECT_GE(batch, 2048);
  EXPECT_LE(batch, 8192);
}

TEST(ProfileOwnProcess, NamesKernelsAndTheirShare) {
  configure_devices();
  const std::string text = network_profile("lenet/float32/2", 1);
  for (const char* part : {"lenet/float32/2", "TFLOP/s", "x floor", "conv"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  EXPECT_THROW(network_profile("lenet/float31", 1), Error);
  EXPECT_THROW(network_profile("lenett", 1), Error);
  EXPECT_THROW(network_profile("lenet/float32/many", 1), Error);
}

Measurement example() {
  return {.work = "gpu/lenet/float32",
          .batch = 128,
          .on_gpu = true,
          .items = 128,
          .item = "images",
          .ceiling = Ceiling{.flops_per_second = 1e12, .bytes_per_second = 1e9},
          .results = {{.name = "Lockstep", .flops = 1e6, .traffic = 2e4, .memory = 1 << 20, .us = 40},
                      {.name = "Lockstep fit", .aside = true, .us = 10},
                      {.name = "PyTorch eager", .is_peer = true, .memory = 1 << 21, .us = 50},
                      {.name = "PyTorch CUDA graph", .is_peer = true, .memory = 1 << 22, .us = 32},
                      {.name = "JAX jit", .is_peer = true, .us = 1, .error = "no such op"}}};
}

TEST(Summary, ComparesWithTheBestPeer) {
  const std::vector<Measurement> measurements{example()};
  const std::vector<Standing> list = standings(measurements);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].work, "gpu/lenet/float32/128");
  EXPECT_EQ(list[0].ours->name, "Lockstep");
  EXPECT_EQ(list[0].best_peer->name, "PyTorch CUDA graph");
  EXPECT_EQ(list[0].ratio(), 1.25);
  EXPECT_EQ(list[0].memory_ratio(), 0.5);  // to the eager one's, which takes less than the fastest
  EXPECT_DOUBLE_EQ(list[0].share_of_ceiling.value().bytes, 0.5);  // 20 us of bytes in 40
  EXPECT_DOUBLE_EQ(list[0].share_of_ceiling.value().flops, 0.025);
  EXPECT_DOUBLE_EQ(list[0].items_per_second, 3.2e6);
  const std::string text = as_table(list);
  for (const char* part : {"slower", "1 of 1 works", "50.0", "2.5", "PyTorch CUDA graph"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  EXPECT_EQ(as_json(list)[0]["slower"], true);
}

// Times of different rounds are not compared.
TEST(Summary, GoesByTheRatiosWithinRounds) {
  Measurement m = example();
  for (Result& result : m.results) result.ratio = result.us / 40;
  m.results[3].us = 45;
  const std::vector<Measurement> measurements{m};
  const std::vector<Standing> list = standings(measurements);
  EXPECT_EQ(list[0].best_peer->name, "PyTorch CUDA graph");
  EXPECT_EQ(list[0].ratio(), 1.25);
}

TEST(Summary, LeavesOutWhatNobodyElseWasMeasuredAt) {
  Measurement alone = example();
  alone.results.resize(2);
  EXPECT_TRUE(standings({alone}).empty());
  EXPECT_EQ(as_table(std::vector<Standing>{}), "");
}

TEST(Reports, HaveCeilingMemoryAndFirstStep) {
  Measurement m = example();
  m.results[0].first_step_s = 1.25;
  m.results[0].first_step_again_s = 0.5;
  const std::string text = as_table(m);
  for (const char* part : {"50.0", "1.0", "1.25 s", "0.50 s", "images/s"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  const auto document = as_json(std::vector<Measurement>{m});
  EXPECT_DOUBLE_EQ(document[0]["share_of_ceiling"]["bytes"].get<double>(), 0.5);
  EXPECT_EQ(document[0]["peak_memory_bytes"], 1 << 20);
  EXPECT_EQ(document[0]["first_step_s"], 1.25);
}

}  // namespace
}  // namespace lockstep::bench
