#include "execute/step_schedule.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

struct Recorded {
  std::atomic<bool> wanted = false;
  std::mutex mutex;
  std::vector<StepSchedule> schedules;
};
Recorded& recorded() {
  static auto* all = new Recorded;
  return *all;
}

int64_t bytes_of(const TensorSpec& spec) { return static_cast<int64_t>(spec.bytes()); }

}  // namespace

ScheduleRecorder::ScheduleRecorder() {
  require(!recorded().wanted.exchange(true), ErrorCode::failed_precondition, std::source_location::current(),
          "ScheduleRecorder: there is one already; let it go first");
}

ScheduleRecorder::~ScheduleRecorder() {
  recorded().wanted = false;
  take();
}

std::vector<StepSchedule> ScheduleRecorder::take() {
  const std::lock_guard lock(recorded().mutex);
  return std::exchange(recorded().schedules, {});
}

namespace execute {

StepSchedule schedule_of(const compile::Plan& plan, const std::string& function, int64_t examples) {
  StepSchedule schedule{.function = function, .examples = examples, .launches = {}, .sums = {}};
  for (const compile::KernelCall& call : plan.calls) {
    schedule.launches.push_back({.op = std::string(call.op->name),
                                 .layer = call.layer,
                                 .dtype = call.dtype(),
                                 .phase = call.place.phase,
                                 .per_replica = call.place.per_replica,
                                 .flops = static_cast<double>(call.cost.flops),
                                 .bytes = static_cast<double>(call.cost.bytes)});
  }
  for (const compile::Collective& sum : plan.collectives)
    schedule.sums.push_back({.name = sum.name,
                             .bytes = static_cast<double>(bytes_of(sum.spec)),
                             .phase = sum.phase,
                             .ready = sum.ready});
  for (const Variable& variable : plan.variables)
    schedule.variable_bytes += bytes_of({variable.dtype(), variable.shape()});
  for (const compile::ArenaSize& arena : plan.device_arenas)
    schedule.arena_bytes += static_cast<int64_t>(arena.bytes);
  schedule.arena_bytes += static_cast<int64_t>(plan.replica_arena.bytes);
  for (const TensorSpec& parameter : plan.parameters) schedule.batch_bytes += bytes_of(parameter);
  return schedule;
}

bool schedules_are_recorded() { return recorded().wanted; }

void record_schedule(const compile::Plan& plan, const std::string& function, int64_t examples) {
  if (!schedules_are_recorded()) return;
  StepSchedule schedule = schedule_of(plan, function, examples);
  const std::lock_guard lock(recorded().mutex);
  recorded().schedules.push_back(std::move(schedule));
}

}  // namespace execute
}  // namespace lockstep
