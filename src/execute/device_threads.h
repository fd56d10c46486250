// A thread per device.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "base/worker.h"
#include "execute/step_observer.h"
#include "lockstep/device/device.h"

namespace lockstep::execute {

// How threads of these devices wait for each other.
Waiting waiting_of(const std::vector<Device*>& devices);

class DeviceThreads {
 public:
  // `work(d)`: what a run does for device d. Where one throws, `abandon` has to make the others come back.
  // The observer outlives this.
  DeviceThreads(const std::vector<Device*>& devices, std::function<void(int)> work,
                std::function<void()> abandon, const StepObserver& observer);

  // Does all devices' work at once, that of the first on the calling thread, each with its own share of the
  // machine's cores. What the first device of those that failed threw is thrown again when all have come
  // back. Does not allocate.
  void run();

 private:
  struct Task {
    DeviceThreads* self;
    int device;
    int first_core;  // where the device's share of the machine begins
    std::exception_ptr error = nullptr;
  };
  static void run_woken(void* task);
  void run(Task& task) const;

  const std::function<void(int)> work_;
  const std::function<void()> abandon_;
  const StepObserver& observer_;
  std::vector<Task> tasks_;
  std::vector<std::unique_ptr<Worker>> workers_;  // of all devices but the first
};

}  // namespace lockstep::execute
