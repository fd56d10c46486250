#include "device/why_one_device.h"

#include <glob.h>

#include <algorithm>

#include "base/environment.h"
#include "base/shared_library.h"
#include "device/configuration.h"
#include "device/cpu_device.h"
#include "device/gpu_driver.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

int device_nodes() {
  glob_t found{};
  const int count =
      ::glob("/dev/nvidia[0-9]*", 0, nullptr, &found) == 0 ? static_cast<int>(found.gl_pathc) : 0;
  ::globfree(&found);
  return count;
}

bool has_driver() {
  const std::string name = "libcuda.so.1";
  return load_library({&name, 1}).library.has_value();
}

bool hides_all(const std::optional<std::string>& shown) {
  return shown && (shown->empty() || shown->front() == '-');
}

// Why there is none, or not more than one; empty: there are no more.
std::string why_no_more_gpus(const DeviceFacts& facts) {
  const std::string left = facts.visible_gpus == 0 ? "no GPU" : detail::concat(facts.visible_gpus, " GPU");
  if (facts.gpus > facts.visible_gpus)
    return detail::concat("set_visible_devices() leaves ", left, " of ", facts.gpus);
  if (facts.gpus == 0 && !facts.driver) return "no NVIDIA driver (libcuda.so.1)";
  if (facts.gpus == 0 && hides_all(facts.shown))
    return detail::concat("CUDA_VISIBLE_DEVICES=\"", *facts.shown, "\" hides all GPUs");
  if (facts.gpus == 0) return facts.problem;
  if (facts.gpus_of_machine <= facts.gpus) return {};
  return detail::concat(facts.shown ? detail::concat("CUDA_VISIBLE_DEVICES=", *facts.shown) : "CUDA",
                        facts.shown ? " leaves " : " shows ", left, " of ", facts.gpus_of_machine);
}

}  // namespace

DeviceFacts device_facts(const Configuration& configuration) {
  const auto here = std::source_location::current();
  DeviceFacts facts{.gpus = static_cast<int>(configuration.physical_devices("GPU", here).size()),
                    .visible_gpus = static_cast<int>(configuration.visible_devices("GPU", here).size()),
                    .gpus_of_machine = device_nodes(),
                    .problem = machine_gpus().reason,
                    .shown = env::read_string("CUDA_VISIBLE_DEVICES"),
                    .cpus_chosen = configuration.cpus_chosen(),
                    .cores = available_cores()};
  facts.driver = facts.gpus > 0 || has_driver();
  return facts;
}

std::string why_one_device(const DeviceFacts& facts) {
  if (facts.visible_gpus == 0 && facts.cpus_chosen) return {};
  const std::string why = why_no_more_gpus(facts);
  if (facts.visible_gpus > 0) return why;
  return detail::concat(why, "; set_logical_cpus({.count = ", std::max(2, facts.cores), "}) splits the CPU");
}

std::string why_no_gpu(const DeviceFacts& facts) {
  const bool left_out = facts.gpus > 0 || hides_all(facts.shown);
  if (facts.gpus_of_machine == 0 || left_out) return {};
  return facts.driver ? facts.problem : "no NVIDIA driver (libcuda.so.1)";
}

std::string on_cpu_in_place_of_gpu() {
  const Configuration& configuration = Configuration::of_process();
  if (std::string placed = configuration.on_cpu(); !placed.empty()) return placed;
  static const auto* const unused = new std::string([&] {
    const std::string why = why_no_gpu(device_facts(configuration));
    return why.empty() ? "" : "all ops, while the machine's GPU is not used: " + why;
  }());
  return *unused;
}

}  // namespace lockstep
