// The rows of the benchmark that networks make: each network, on a CPU or GPU, for a task, a policy and a
// batch.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.h"
#include "bench/networks.h"
#include "lockstep/device/device.h"

namespace lockstep::bench {

struct Row {
  bool on_gpu = false;
  const Network* network = nullptr;
  Task task = Task::train;
  std::string policy = "float32";
  int64_t batch = 0;      // 0: as large as fits, which is not known yet
  bool standard = false;  // is run where nobody asks for all
  bool large = false;     // the batch is as large as fits: there is room for this one step alone

  std::string work() const;  // "gpu/lenet/float32", "gpu/predict/lenet/float32", "cpu/host/mlp/float32"
  std::string id() const;    // with the batch, or "large"
};

// On GPUs every network for training and prediction, under every policy, at its batches; on CPUs those that
// are small enough, in float32, for training and for the prediction of one example.
std::vector<Row> all_rows();
// How many of them are run on a GPU where nobody asks for all.
int64_t standard_gpu_rows();
// Training on GPUs with batches as large as fit.
std::vector<Row> large_rows();
// By its id. Throws Error(not_found).
Row row_of(std::string_view id, std::source_location where = std::source_location::current());

// Splits the first GPU into two logical ones, unless all of its memory is wanted in one piece. Before a
// device is used.
void configure_gpus(bool in_one_piece);
// Why there is no GPU; empty: there is one.
std::string why_no_gpu();

// Lockstep's side of a row, first of all its single steps. Those of GPUs run on the first one.
std::vector<Candidate> row_candidates(const Row& row, int threads);
// The batch of a row that has none: doubled from the network's largest as long as twice the memory of the
// step fits.
int64_t largest_batch(const Row& row, Device& device, int64_t bytes);
// Bytes of the first GPU that a step can have.
int64_t memory_for_steps();
// Makes one step and waits for it.
void make_one_step(const Row& row, int threads);

// Measured once for each device and policy.
Ceiling ceiling_of(Device& device, const std::string& policy);
Device& device_of(const Row& row, int threads);

// Which kernels a training step spends its time in, on the first GPU, or on a CPU where there is none. `what`
// is NETWORK[/POLICY[/BATCH]]: without a policy or batch those of its first standard row.
std::string network_profile(const std::string& what, int threads);

}  // namespace lockstep::bench
