// What a job is made of: which machines, which workers on each, and the commands that start the agents there.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch/launch.h"
#include "cli/launch/processes.h"

namespace lockstep::launch {

enum class Starter { here, ssh, srun };

// The agents that one command starts: one on a machine, or those of all tasks of srun.
struct AgentPlan {
  Starter starter = Starter::here;
  std::string host = {};  // as it was written; "this machine"; "srun"
  std::vector<int> ranks = {};
  std::vector<std::string> command = {};
};

struct Plan {
  int workers = 0;
  std::vector<AgentPlan> agents = {};
  // Where rank 0 is met: a name, and a port where one was asked for. Without a name it is that of rank 0's
  // machine, which srun chooses.
  std::string meeting_host = {};
  int meeting_port = 0;          // 0: one that is free there
  Environment environment = {};  // for the workers, beside what their machine has

  bool over_network() const { return agents.size() > 1 || agents[0].starter != Starter::here; }
};

using Lookup = std::function<std::optional<std::string>(std::string_view name)>;

// From the options and the environment. Throws Error(invalid_argument) that names the mistake and the fix.
Plan make_plan(const LaunchOptions& options, const Lookup& environment);

// The commands and variables, as a person would write them.
std::string to_text(const Plan& plan, const LaunchOptions& options);

// Why ssh to a host ended before the agent there had said anything, and what to do about it. `errors`: what
// it wrote.
std::string explain_ssh(const std::string& host, const ExitStatus& status, const std::string& errors,
                        const std::string& tool);

}  // namespace lockstep::launch
