#include "keras/training/run_observer.h"

#include <utility>

#include "device/device_backend.h"
#include "device/memory_summary.h"

namespace lockstep::keras {

RunObserver::RunObserver(observe::StepClock& clock, std::vector<Device*> devices)
    : clock_(clock), devices_(std::move(devices)) {
  clock_.restart();
  for (Device* device : devices_.devices()) backend_of(*device).ledger().begin_run();
}

void RunObserver::finish_steps() const {
  clock_.begin_next_step();
  for (int r = 0; r < clock_.replicas(); ++r)
    clock_.replica(r).enter(observe::Category::compute, observe::ThreadState::blocks);
  for (const Device* device : devices_.devices()) device->synchronize();
  clock_.leave();
  clock_.end_rest();
}

void RunObserver::end_epoch() const {
  for (Device* device : devices_.devices()) backend_of(*device).ledger().settle();
}

observe::RunSummary RunObserver::summary() const {
  observe::RunSummary summary = clock_.summary();
  summary.memory = memory();
  return summary;
}

std::vector<observe::MemorySummary> RunObserver::memory() const {
  std::vector<observe::MemorySummary> all;
  for (const Device* device : devices_.devices()) all.push_back(memory_summary(*device));
  return all;
}

}  // namespace lockstep::keras
