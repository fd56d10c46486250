#include "distribute/worker_summaries.h"

#include <type_traits>
#include <utility>

#include "comm/address.h"
#include "comm/connection.h"
#include "comm/workers.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::distribute {
namespace {

using comm::MessageReader;
using comm::MessageWriter;
using observe::MemorySummary;
using observe::ReplicaSummary;
using observe::RunSummary;

static_assert(std::is_trivially_copyable_v<ReplicaSummary>);  // workers have one build of this library

void put(MessageWriter& message, const MemorySummary& memory) {
  message.put_text(memory.device).put(memory.before).put(memory.peak).put(memory.after).put(memory.peak_ns);
  message.put(memory.limit).put(memory.reserved).put(memory.largest_free);
  message.put(static_cast<int32_t>(memory.uses.size()));
  for (const MemorySummary::Use& use : memory.uses)
    message.put_text(use.name).put(use.before).put(use.at_peak).put(use.after).put(use.grown);
  message.put(static_cast<int32_t>(memory.samples.size()));
  for (const MemorySummary::Sample& sample : memory.samples) message.put(sample);
}

MemorySummary get_memory(MessageReader& message) {
  MemorySummary memory;
  memory.device = message.get_text();
  for (int64_t* each : {&memory.before, &memory.peak, &memory.after, &memory.peak_ns, &memory.limit,
                        &memory.reserved, &memory.largest_free})
    *each = message.get<int64_t>();
  for (auto count = message.get<int32_t>(); count > 0 && !message.ended(); --count) {
    MemorySummary::Use& use = memory.uses.emplace_back();
    use.name = message.get_text();
    for (int64_t* each : {&use.before, &use.at_peak, &use.after, &use.grown}) *each = message.get<int64_t>();
  }
  for (auto count = message.get<int32_t>(); count > 0 && !message.ended(); --count)
    memory.samples.push_back(message.get<MemorySummary::Sample>());
  return memory;
}

std::string message_of(const RunSummary& summary, int rank) {
  MessageWriter message;
  message.put_text(detail::concat("worker ", rank, " (", comm::own_name(), ")"))
      .put(summary.measures_descheduled)
      .put(summary.setting)
      .put_text(summary.sums)
      .put_text(summary.on_cpu);
  message.put_text(summary.input.bottleneck).put_text(summary.input.fix);
  message.put(static_cast<int32_t>(summary.replicas.size()));
  for (const ReplicaSummary& replica : summary.replicas) message.put(replica);
  message.put(static_cast<int32_t>(summary.memory.size()));
  for (const MemorySummary& memory : summary.memory) put(message, memory);
  return message.take();
}

RunSummary summary_of(const std::string& body, std::string& name) {
  MessageReader message(body);
  RunSummary summary;
  name = message.get_text();
  summary.measures_descheduled = message.get<bool>();
  summary.setting = message.get<observe::RunSetting>();
  summary.sums = message.get_text();
  summary.on_cpu = message.get_text();
  summary.input.bottleneck = message.get_text();
  summary.input.fix = message.get_text();
  for (auto count = message.get<int32_t>(); count > 0 && !message.ended(); --count)
    summary.replicas.push_back(message.get<ReplicaSummary>());
  for (auto count = message.get<int32_t>(); count > 0 && !message.ended(); --count)
    summary.memory.push_back(get_memory(message));
  return summary;
}

}  // namespace

RunSummary of_all_workers(const Strategy& strategy, RunSummary own) {
  if (!strategy.workers()) return own;
  return of_all_workers(*strategy.workers(), std::move(own), strategy.workers()->timeout_s());
}

RunSummary of_all_workers(comm::Workers& workers, RunSummary own, double timeout_s) noexcept {
  try {
    std::vector<RunSummary> summaries;
    std::vector<std::string> names;
    for (const std::string& body :
         workers.group().gather("the report on the run", message_of(own, workers.rank()), timeout_s))
      summaries.push_back(summary_of(body, names.emplace_back()));
    return observe::joined(std::move(summaries), names);
  } catch (const std::exception& error) {
    log(LogLevel::warning, "the report covers worker ", workers.rank(), " alone: ", error.what());
    return own;
  }
}

}  // namespace lockstep::distribute
