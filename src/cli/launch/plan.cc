#include "cli/launch/plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <numeric>

#include "cli/launch/here.h"
#include "cli/launch/hosts.h"
#include "cli/launch/machine.h"
#include "cli/launch/other_launchers.h"
#include "lockstep/base/error.h"

extern "C" char** environ;

namespace lockstep::launch {
namespace {

constexpr const char* kAgent = "launch-agent";

std::optional<int> number(const Lookup& environment, std::string_view name) {
  const std::optional<std::string> text = environment(name);
  if (!text) return std::nullopt;
  int value = 0;
  // "4" and, per node, "2(x3)": the first number is the one that is meant.
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  require(error == std::errc() && value > 0, ErrorCode::invalid_argument, kHere, name, "=\"", *text,
          "\" is no number of tasks or nodes; name the workers with -n");
  return value;
}

// The number of tasks of an allocation, where the caller does not say it.
int tasks_of_allocation(const Lookup& environment) {
  if (const auto tasks = number(environment, "SLURM_NTASKS")) return *tasks;
  const int nodes = number(environment, "SLURM_JOB_NUM_NODES").value_or(1);
  return nodes * number(environment, "SLURM_NTASKS_PER_NODE").value_or(1);
}

// srun starts workers where this is an allocation. A step with one task (a shell that srun has opened) has
// its resources already; the one that salloc opens (its number is one of the large, special ones) has none.
bool is_allocation(const Lookup& environment) {
  if (!environment("SLURM_JOB_ID")) return false;
  const std::optional<std::string> step = environment("SLURM_STEP_ID");
  return !step || step->size() >= 10;
}

std::vector<std::string> ssh_command(const std::string& host, const std::string& tool) {
  return {"ssh",
          "-T",
          "-o",
          "BatchMode=yes",
          "-o",
          "ConnectTimeout=15",
          "-o",
          "ServerAliveInterval=10",
          "-o",
          "ServerAliveCountMax=3",
          "--",
          host,
          "exec " + shell_quoted(tool) + " " + kAgent};
}

std::vector<int> ranks_from(int first, int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

// Other machines have an environment of their own: what is about training goes with the job, what is about
// this machine or this person does not.
bool goes_along(const std::string& name) {
  constexpr std::array<std::string_view, 7> kNames{
      "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LANG", "LC_ALL"};
  constexpr std::array<std::string_view, 8> kPrefixes{"LOCKSTEP_", "TF_",   "NCCL_", "GLOO_",
                                                      "OMP_",      "CUDA_", "UCX_",  "XLA_"};
  if (name == "CUDA_VISIBLE_DEVICES" || name == "LOCKSTEP_SECRET" || decides_before_launch(name, false))
    return false;
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

Environment environment_for(const LaunchOptions& options, const Lookup& environment, bool other_machines) {
  Environment variables;
  if (other_machines)
    for (char** variable = environ; *variable; ++variable) {
      const std::string text = *variable, name = text.substr(0, text.find('='));
      if (name.size() < text.size() && goes_along(name))
        variables.emplace_back(name, text.substr(name.size() + 1));
    }
  for (const std::string& text : options.environment) {
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    require(!name.empty(), ErrorCode::invalid_argument, kHere, "--env \"", text,
            "\": a variable is written as --env NAME=VALUE, or --env NAME for the value that it has here");
    std::erase_if(variables, [&](const auto& variable) { return variable.first == name; });
    if (equals != std::string::npos) {
      variables.emplace_back(name, text.substr(equals + 1));
    } else {
      const std::optional<std::string> value = environment(name);
      require(value.has_value(), ErrorCode::invalid_argument, kHere, "--env ", name,
              ": the variable is not set here; write --env ", name, "=VALUE");
      variables.emplace_back(name, *value);
    }
  }
  return variables;
}

void add_ssh_agents(Plan& plan, const std::vector<Host>& hosts, const std::string& tool) {
  int first = 0;
  const bool alone = hosts.size() == 1;
  for (const Host& host : hosts) {
    const bool here = is_this_machine(host.name);
    plan.agents.push_back(
        {.starter = here ? Starter::here : Starter::ssh,
         .host = here ? "this machine" : host.name,
         .ranks = ranks_from(first, host.workers),
         .command = here ? std::vector<std::string>{tool, kAgent} : ssh_command(host.name, tool)});
    first += host.workers;
  }
  plan.meeting_host = alone ? "127.0.0.1" : network_name(hosts[0].name);
}

void set_meeting_place(Plan& plan, const std::string& address) {
  if (address.empty()) return;
  const size_t colon = address.rfind(':');
  const bool bare_ipv6 = colon != std::string::npos && address.front() != '[' && address.find(':') != colon;
  const bool has_port = colon != std::string::npos && !bare_ipv6 && address.back() != ']';
  plan.meeting_host = has_port ? address.substr(0, colon) : address;
  std::erase_if(plan.meeting_host, [](char c) { return c == '[' || c == ']'; });
  if (has_port) {
    const std::string text = address.substr(colon + 1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), plan.meeting_port);
    require(error == std::errc() && end == text.data() + text.size() && plan.meeting_port >= 1 &&
                plan.meeting_port <= 65535,
            ErrorCode::invalid_argument, kHere, "--address ", address, ": the port must be from 1 to 65535");
  }
  require(!plan.meeting_host.empty(), ErrorCode::invalid_argument, kHere, "--address ", address,
          ": the host is missing; it is written as --address HOST or --address HOST:PORT");
  const bool several = plan.agents.size() > 1 || plan.agents[0].starter == Starter::srun;
  require(!several || !is_loopback(plan.meeting_host), ErrorCode::invalid_argument, kHere, "--address ",
          address,
          " is another machine on each of the hosts; name an address of rank 0's that the others reach");
}

std::string assignment(const std::string& name, const std::string& value) {
  return name + "=" + shell_quoted(value);
}

}  // namespace

Plan make_plan(const LaunchOptions& options, const Lookup& environment) {
  require(!options.program.empty(), ErrorCode::invalid_argument, kHere,
          "there is no program to start; write it behind --: lockstep launch -n 4 -- ./train --epochs 3");
  const bool slurm = options.slurm && options.hosts.empty() && is_allocation(environment);
  require(options.workers > 0 || !options.hosts.empty() || slurm, ErrorCode::invalid_argument, kHere,
          "how many workers? Write -n 4 for four on this machine, --hosts a:2,b:2 for two on each of two; "
          "inside a Slurm "
          "allocation its tasks are taken");
  Plan plan{.workers = options.workers};
  if (slurm) {
    if (plan.workers == 0) plan.workers = tasks_of_allocation(environment);
    plan.agents.push_back(
        {.starter = Starter::srun,
         .host = "srun",
         .ranks = ranks_from(0, plan.workers),
         .command = {"srun", fmt::format("--ntasks={}", plan.workers), "--kill-on-bad-exit=1", "--wait=0",
                     "--input=all", "--export=ALL", options.tool, kAgent}});
  } else if (!options.hosts.empty()) {
    const std::vector<Host> hosts = fill_hosts(parse_hosts(options.hosts), options.workers);
    add_ssh_agents(plan, hosts, options.tool);
    plan.workers = plan.agents.back().ranks.back() + 1;
  } else {
    add_ssh_agents(plan, {{.name = "localhost", .workers = plan.workers}}, options.tool);
  }
  set_meeting_place(plan, options.address);
  const bool other_machines = std::any_of(plan.agents.begin(), plan.agents.end(), [](const AgentPlan& agent) {
    return agent.starter == Starter::ssh;
  });
  plan.environment = environment_for(options, environment, other_machines);
  return plan;
}

std::string to_text(const Plan& plan, const LaunchOptions& options) {
  const std::string port = plan.meeting_port > 0 ? std::to_string(plan.meeting_port) : "<a free port>";
  const std::string host = plan.meeting_host.empty() ? "<the host of task 0>" : plan.meeting_host;
  std::string text;
  for (const AgentPlan& agent : plan.agents) {
    const bool here = agent.starter == Starter::here;
    text += fmt::format("{}, {} worker{}:\n", here ? "on this machine" : "on " + agent.host,
                        agent.ranks.size(), agent.ranks.size() == 1 ? "" : "s");
    text += "  " + shell_quoted(agent.command) + "\n";
    text += "  which starts, in " + options.folder + ":\n";
    const Machine machine = this_machine();
    const auto count = static_cast<int>(agent.ranks.size());
    for (int i = 0; i < count; ++i) {
      const int rank = agent.ranks[static_cast<size_t>(i)];
      std::optional<Share> share;
      if (here && options.divide && count > 1) share = share_of(machine, i, count);
      std::string line = "   ";
      for (const auto& [name, value] : worker_variables(rank, plan.workers, host + ":" + port, 0, share))
        line += " " + assignment(name, value);
      line += " LOCKSTEP_SECRET=<made at the start>";
      for (const auto& [name, value] : plan.environment) line += " " + assignment(name, value);
      if (share && !share->cpus.empty()) {
        std::string cpus;
        for (const int cpu : share->cpus) cpus += (cpus.empty() ? "" : ",") + std::to_string(cpu);
        line += fmt::format(" OMP_NUM_THREADS={} taskset -c {}", share->cpus.size(), cpus);
      }
      text += line + " " + shell_quoted(options.program) + "\n";
    }
    if (!here && options.divide) text += "  with that machine's CPUs and GPUs divided among its workers\n";
  }
  return text;
}

std::string explain_ssh(const std::string& host, const ExitStatus& status, const std::string& errors,
                        const std::string& tool) {
  const std::string try_it = fmt::format("; try it by hand: ssh -o BatchMode=yes {} true", host);
  const auto said = [&](const char* words) { return errors.find(words) != std::string::npos; };
  std::string why;
  if (said("Permission denied") || said("Too many authentication failures"))
    why = fmt::format("it asks for a password or does not know your key. Give it one: ssh-copy-id {}", host);
  else if (said("Host key verification failed") || said("authenticity of host"))
    why = fmt::format("its key is not known here. Connect once by hand and look at it: ssh {}", host);
  else if (said("Could not resolve hostname") || said("Name or service not known"))
    why = "no machine of that name is known here. Is it misspelt, or missing in ~/.ssh/config?";
  else if (said("Connection refused"))
    why = "nothing answers at its port of ssh. Does sshd run there? Another port belongs into ~/.ssh/config";
  else if (said("timed out") || said("No route to host") || said("Network is unreachable"))
    why = "the machine does not answer. Is it up, and in this network?";
  else if (status.code == 127 || said("No such file or directory") || said("not found"))
    return fmt::format(
        "{} was reached, but has no {}. Install Lockstep there in the same place, or say with --tool where "
        "it "
        "is on the hosts",
        host, tool);
  else
    why = fmt::format("ssh ended with {}", describe(status));
  std::string text = fmt::format("{} cannot be reached by ssh: {}{}", host, why, try_it);
  const size_t last = errors.find_last_not_of('\n');
  if (last != std::string::npos) {
    const size_t begin = errors.rfind('\n', last) == std::string::npos ? 0 : errors.rfind('\n', last) + 1;
    text += fmt::format(" (ssh said: {})", errors.substr(begin, last + 1 - begin));
  }
  return text;
}

}  // namespace lockstep::launch
