// What a replicated step is made of, in the order in which a device runs it: launches with their costs, and
// the sums over replicas with the launch after which each may begin. The material of a forecast
// (lockstep/plan/forecast.h).
//
//   ScheduleRecorder recorder;
//   model.fit(x, y, {.epochs = 1, .steps_per_epoch = 1});
//   const std::vector<StepSchedule> schedules = recorder.take();
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/tensor/dtype.h"

namespace lockstep {

struct ScheduledLaunch {
  std::string op = {};     // "matmul"
  std::string layer = {};  // whose weights it works with, as far as that can be told
  DType dtype = DType::float32;
  int phase = 0;            // launches of a phase begin when all sums in front of it are there
  bool per_replica = true;  // else once per device: updates above all
  double flops = 0;
  double bytes = 0;  // read and written, each element once
};

struct ScheduledSum {
  std::string name = {};
  double bytes = 0;
  int phase = 0;  // whose launches read the sum
  int ready = 0;  // launches, from the first of the step on, after which a replica's addend is there
};

struct StepSchedule {
  std::string function = {};  // "mlp: training step"
  int64_t examples = 0;       // of one replica
  std::vector<ScheduledLaunch> launches;
  std::vector<ScheduledSum> sums;
  // Bytes on one device: variables (weights, the optimizer's state, metrics), intermediate values, the batch.
  int64_t variable_bytes = 0;
  int64_t arena_bytes = 0;
  int64_t batch_bytes = 0;
};

// While it lives, every replicated step that is compiled in this process leaves its schedule here. One at a
// time. A step that has one replica is compiled as one of many meanwhile, with its sums, which it does
// without otherwise.
class ScheduleRecorder {
 public:
  ScheduleRecorder();
  ~ScheduleRecorder();
  ScheduleRecorder(const ScheduleRecorder&) = delete;
  ScheduleRecorder& operator=(const ScheduleRecorder&) = delete;

  // Those since the last call, in the order of compilation.
  std::vector<StepSchedule> take();
};

}  // namespace lockstep
