#include "cli/launch/machine.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <tuple>

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

int topology(int cpu, const char* what) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/{}", cpu, what));
  int value = 0;
  return file >> value ? value : 0;
}

// Two threads of one core belong to one worker: those of different workers would slow each other down.
std::vector<int> cpus_core_by_core() {
  cpu_set_t set;
  std::vector<std::tuple<int, int, int>> found;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set))
        found.emplace_back(topology(cpu, "physical_package_id"), topology(cpu, "core_id"), cpu);
  std::sort(found.begin(), found.end());
  std::vector<int> cpus;
  for (const auto& [package, core, cpu] : found) cpus.push_back(cpu);
  return cpus;
}

std::vector<std::string> listed(std::string_view text) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin < text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    names.emplace_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return names;
}

// CUDA counts the GPUs that it can open from 0, whatever the numbers of their files.
std::vector<std::string> gpus_of_driver(const std::string& devices) {
  std::vector<std::string> gpus;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(devices, error)) {
    const std::string name = entry.path().filename().string();
    const bool numbered =
        name.starts_with("nvidia") && name.size() > 6 &&
        std::all_of(name.begin() + 6, name.end(), [](unsigned char c) { return std::isdigit(c); });
    if (numbered) gpus.push_back(std::to_string(gpus.size()));
  }
  return gpus;
}

// Equal parts; where there are fewer things than workers, one that several have.
template <class T>
std::vector<T> part(const std::vector<T>& all, int index, int workers) {
  const size_t count = all.size(), n = static_cast<size_t>(workers), i = static_cast<size_t>(index);
  if (count == 0) return {};
  if (count < n) return {all[i * count / n]};
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i * (count / n));
  return {begin, begin + static_cast<std::ptrdiff_t>(count / n)};
}

std::string describe_part(size_t count, const char* what, int workers) {
  const auto n = static_cast<size_t>(workers);
  std::string text =
      fmt::format("{} of {} {}{}", count < n ? 1 : count / n, count, what, count == 1 ? "" : "s");
  if (count < n)
    text += count * (n / count) == n
                ? fmt::format(", {} workers per {}", n / count, what)
                : fmt::format(", {} to {} workers per {}", n / count, n / count + 1, what);
  if (count > n && count % n != 0) text += fmt::format(" ({} left over)", count % n);
  return text;
}

}  // namespace

Machine this_machine(const std::string& devices) {
  Machine machine;
  machine.cpus = cpus_core_by_core();
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"))
    machine.gpus = listed(visible);
  else
    machine.gpus = gpus_of_driver(devices);
  machine.own_gpus =
      std::getenv("SLURM_GPUS_PER_TASK") != nullptr || std::getenv("SLURM_TRES_PER_TASK") != nullptr;
  return machine;
}

Share share_of(const Machine& machine, int index, int workers) {
  return {part(machine.cpus, index, workers), part(machine.gpus, index, workers)};
}

std::string describe_shares(const Machine& machine, int workers) {
  std::string text = "each has " + describe_part(machine.cpus.size(), "CPU", workers);
  if (!machine.gpus.empty()) text += " and " + describe_part(machine.gpus.size(), "GPU", workers);
  return text;
}

Json to_json(const Machine& machine) {
  return Json::object({{"cpus", Json::List(machine.cpus.begin(), machine.cpus.end())},
                       {"gpus", Json::List(machine.gpus.begin(), machine.gpus.end())},
                       {"own_gpus", machine.own_gpus}});
}

Json to_json(const Share& share) {
  return Json::object({{"cpus", Json::List(share.cpus.begin(), share.cpus.end())},
                       {"gpus", Json::List(share.gpus.begin(), share.gpus.end())}});
}

Share share_from(const Json& json) {
  Share share;
  for (const Json& cpu : json.at("cpus").items()) share.cpus.push_back(static_cast<int>(cpu.as_int()));
  for (const Json& gpu : json.at("gpus").items()) share.gpus.push_back(gpu.as_string());
  return share;
}

Machine machine_from(const Json& json) {
  Share all = share_from(json);
  return {std::move(all.cpus), std::move(all.gpus), json.at("own_gpus").as_bool()};
}

}  // namespace lockstep::launch
