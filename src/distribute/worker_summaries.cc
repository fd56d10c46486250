#include "distribute/worker_summaries.h"

#include <algorithm>
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

std::string name_of_worker(int rank) { return detail::concat("worker ", rank, " (", comm::own_name(), ")"); }

std::string message_of(const RunSummary& summary, int rank) {
  MessageWriter message;
  message.put_text(name_of_worker(rank))
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

std::string message_of(const WorkerStatistics& statistics, int rank) {
  MessageWriter message;
  message.put_text(message_of(statistics.summary, rank));
  message.put(statistics.width).put(static_cast<int32_t>(statistics.replicas.size()));
  for (const observe::Intervals& intervals : statistics.replicas) {
    message.put(static_cast<int32_t>(intervals.size()));
    for (const observe::RunRecord::Interval& interval : intervals) {
      message.put(interval.first_step).put(interval.steps).put(interval.start_ns).put(interval.wall_ns);
      message.put(interval.outside_ns).put(interval.examples);
      for (size_t c = 0; c < observe::kCategories; ++c) message.put(interval.times_ns[c]);
    }
  }
  return message.take();
}

WorkerStatistics statistics_of(const std::string& body, std::string& name) {
  MessageReader message(body);
  WorkerStatistics statistics;
  statistics.summary = summary_of(message.get_text(), name);
  statistics.width = std::max<int64_t>(1, message.get<int64_t>());
  for (auto replicas = message.get<int32_t>(); replicas > 0 && !message.ended(); --replicas) {
    observe::Intervals& intervals = statistics.replicas.emplace_back();
    for (auto count = message.get<int32_t>(); count > 0 && !message.ended(); --count) {
      observe::RunRecord::Interval& interval = intervals.emplace_back();
      for (int64_t* each : {&interval.first_step, &interval.steps, &interval.start_ns, &interval.wall_ns,
                            &interval.outside_ns, &interval.examples})
        *each = message.get<int64_t>();
      interval.times_ns.resize(observe::kCategories);
      for (int64_t& time : interval.times_ns) time = message.get<int64_t>();
    }
  }
  return statistics;
}

AllWorkersStatistics joined(std::vector<WorkerStatistics> workers, const std::vector<std::string>& names) {
  AllWorkersStatistics all;
  std::vector<RunSummary> summaries;
  for (const WorkerStatistics& worker : workers) summaries.push_back(worker.summary);
  all.summary = observe::joined(std::move(summaries), names);
  all.workers = std::move(workers);
  return all;
}

}  // namespace

void send_statistics(comm::Workers& workers, WorkerStatistics own) {
  // A message has a MiB at most, and a record no room for more.
  constexpr int64_t kMostIntervals = 4096;
  if (const auto replicas = static_cast<int64_t>(own.replicas.size()); replicas > 0)
    own.width = observe::align(own.replicas, own.width, std::max<int64_t>(1, kMostIntervals / replicas));
  workers.group().post(message_of(own, workers.rank()));
}

std::optional<AllWorkersStatistics> latest_statistics(comm::Workers& workers, WorkerStatistics own) {
  std::vector<WorkerStatistics> all;
  std::vector<std::string> names;
  double oldest_s = 0;
  const std::vector<comm::Group::Post> posts = workers.group().posts();
  for (size_t rank = 0; rank < posts.size(); ++rank) {
    if (static_cast<int>(rank) == workers.rank()) {
      names.push_back(name_of_worker(workers.rank()));
      all.push_back(std::move(own));  // NOLINT(bugprone-use-after-move): one rank is this worker's
      continue;
    }
    if (posts[rank].bytes.empty()) return std::nullopt;
    all.push_back(statistics_of(posts[rank].bytes, names.emplace_back()));
    oldest_s = std::max(oldest_s, posts[rank].age_s);
  }
  AllWorkersStatistics made = joined(std::move(all), names);
  made.age_s = oldest_s;
  return made;
}

AllWorkersStatistics gather_statistics(comm::Workers& workers, const WorkerStatistics& own) {
  std::vector<WorkerStatistics> all;
  std::vector<std::string> names;
  for (const std::string& body :
       workers.gather_large("the record of the run", message_of(own, workers.rank())))
    all.push_back(statistics_of(body, names.emplace_back()));
  return joined(std::move(all), names);
}

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
