#include "cli/launch/other_launchers.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::launch {
namespace {

constexpr std::array<std::string_view, 9> kOfRuns{
    "TF_CONFIG",  "RANK",        "WORLD_SIZE",  "LOCAL_RANK",         "LOCAL_WORLD_SIZE",
    "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"};
constexpr std::array<std::string_view, 4> kOfSteps{"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID",
                                                   "SLURM_STEP_ID"};
constexpr std::array<std::string_view, 3> kOfMpi{"OMPI_", "PMIX_", "PMI_"};

int number(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : 0;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string line;
  for (const std::string& text : texts) line += (line.empty() ? "" : ",") + text;
  return line;
}

}  // namespace

Environment worker_variables(int rank, int workers, const std::string& address, int restart,
                             const std::optional<Share>& share) {
  Environment variables{{"LOCKSTEP_RANK", std::to_string(rank)},
                        {"LOCKSTEP_WORKERS", std::to_string(workers)},
                        {"LOCKSTEP_ADDRESS", address},
                        {"LOCKSTEP_RESTART", std::to_string(restart)}};
  if (share && !share->gpus.empty()) variables.emplace_back("CUDA_VISIBLE_DEVICES", joined(share->gpus));
  return variables;
}

bool decides_before_launch(const std::string& name, bool task_of_srun) {
  const auto is = [&](std::string_view other) { return name == other; };
  const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
  if (std::any_of(kOfRuns.begin(), kOfRuns.end(), is)) return true;
  if (task_of_srun) return name.starts_with("OMPI_COMM_WORLD_");
  return std::any_of(kOfSteps.begin(), kOfSteps.end(), is) ||
         std::any_of(kOfMpi.begin(), kOfMpi.end(), begins);
}

void require_no_launcher_around() {
  struct Around {
    const char* count;
    const char* launcher;
    const char* of_one;  // set in each of its processes; none: `count` is enough
  };
  for (const Around& around : {Around{"OMPI_COMM_WORLD_SIZE", "mpirun", nullptr},
                               {"PMI_SIZE", "mpirun", nullptr},
                               {"SLURM_STEP_NUM_TASKS", "srun", "SLURM_STEP_ID"},
                               {"WORLD_SIZE", "torchrun", "RANK"},
                               {"LOCKSTEP_WORKERS", "lockstep launch", "LOCKSTEP_RANK"}})
    require(number(around.count) < 2 || (around.of_one && !std::getenv(around.of_one)),
            ErrorCode::failed_precondition, std::source_location::current(), around.launcher, " has started ",
            number(around.count), " of these already (", around.count,
            "), and each would start all workers. Start the program itself with ", around.launcher,
            ", or one lockstep launch without it");
}

std::string variables_left_out(bool under_slurm) {
  std::vector<std::string> found;
  for (const std::string_view name : kOfRuns)
    if (std::getenv(std::string(name).c_str()) && decides_before_launch(std::string(name), under_slurm))
      found.emplace_back(name);
  return joined(found);
}

}  // namespace lockstep::launch
