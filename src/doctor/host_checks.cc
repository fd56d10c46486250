// The environment variables, and what the machine grants beside its GPUs.
#include <fmt/format.h>

#include <algorithm>

#include "base/environment.h"
#include "comm/tf_config.h"
#include "doctor/diagnosis.h"
#include "lockstep/base/error.h"

namespace lockstep::doctor {
namespace {

void check_variables(Diagnosis& d) {
  for (const env::Unknown& unknown : d.seen.unknown_variables)
    d.add(Severity::problem, "unknown_variable",
          fmt::format("{} is set, but Lockstep knows no such variable.", unknown.name), {},
          unknown.nearest.empty() ? "unset " + unknown.name
                                  : fmt::format("did you mean {}?   export {}=... && unset {}",
                                                unknown.nearest, unknown.nearest, unknown.name));
  for (const env::Variable& variable : env::variables()) {
    const std::string* value = d.seen.variable(std::string(variable.name));
    if (value == nullptr || value->empty() || variable.values.find('|') == std::string_view::npos) continue;
    std::vector<std::string_view> allowed;
    for (std::string_view rest = variable.values; !rest.empty();) {
      const size_t bar = std::min(rest.find('|'), rest.size());
      allowed.push_back(rest.substr(0, bar));
      rest.remove_prefix(std::min(bar + 1, rest.size()));
    }
    try {
      if (allowed.size() == 2)  // "0|1", "true|false"
        env::parse_bool(variable.name, *value);
      else
        env::parse_choice(variable.name, *value, allowed);
    } catch (const Error& error) {
      d.add(Severity::problem, "invalid_variable",
            fmt::format("{} has a value that is not allowed.", variable.name), {error.message()},
            fmt::format("unset {}   # or one of {}", variable.name, variable.values));
    }
  }
  if (const std::string* policy = d.seen.variable("OMP_WAIT_POLICY");
      policy != nullptr && (*policy == "passive" || *policy == "PASSIVE"))
    d.add(Severity::warning, "wait_policy",
          "Threads sleep between kernels, which makes small steps several times slower.",
          {"OMP_WAIT_POLICY=" + *policy}, "unset OMP_WAIT_POLICY");
  if (const std::string* blocking = d.seen.variable("CUDA_LAUNCH_BLOCKING");
      blocking != nullptr && *blocking == "1" && !d.visible.empty())
    d.add(Severity::warning, "launch_blocking", "Every kernel on a GPU waits for the one before to end.",
          {"CUDA_LAUNCH_BLOCKING=1"}, "unset CUDA_LAUNCH_BLOCKING   # it is for finding faults");
  if (const std::string* config = d.seen.variable("TF_CONFIG"))
    if (std::vector<std::string> faults = comm::tf_config_faults(*config); !faults.empty())
      d.add(
          Severity::problem, "tf_config", "TF_CONFIG does not describe a run on several machines.",
          std::move(faults),
          R"(export TF_CONFIG='{"cluster": {"worker": ["host0:12345", "host1:12345"]}, "task": {"type": "worker", "index": 0}}')");
}

void check_limits(Diagnosis& d) {
  const Host& h = d.seen.host;
  if (h.core_quota && *h.core_quota < h.usable_cores - 0.01)
    d.add(
        Severity::warning, "cpu_quota",
        "The process may use less processor time than its cores have: its threads are stopped again and "
        "again.",
        {fmt::format("{:.1f} cores' time is granted, threads run on {}", *h.core_quota, h.usable_cores)},
        fmt::format("taskset -c 0-{} ...   # or tf::config::threading::set_intra_op_parallelism_threads({})",
                    std::max(1, static_cast<int>(*h.core_quota)) - 1,
                    std::max(1, static_cast<int>(*h.core_quota))));
  if (!h.avx2)
    d.add(Severity::note, "old_processor",
          "The processor has no AVX2: kernels run at a fraction of what newer ones do.", {h.cpu}, "");
  const int64_t limit = h.memory_limit ? std::min(*h.memory_limit, h.memory) : h.memory;
  if (limit > 0 && h.memory_available < limit / 20)
    d.add(Severity::warning, "memory_low", "Little memory is free.",
          {fmt::format("{} of {}", gibibytes(h.memory_available), gibibytes(limit))},
          "ps aux --sort=-rss | head   # who holds it");
}

}  // namespace

void check_host(Diagnosis& d) {
  check_variables(d);
  check_limits(d);
}

}  // namespace lockstep::doctor
