// How a training would scale on machines that are not there. docs/plan.md says what is computed, and what is
// not known.
//
//   const plan::StepModel model = plan::step_model(small, large);       // schedules of two batch sizes
//   const plan::Forecast forecast =
//       plan::forecast(model, {.gpu = plan::find_gpu("h100"), .devices = {1, 8, 64}, ...});
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/execute/step_schedule.h"
#include "lockstep/plan/simulate.h"

namespace lockstep::plan {

// A quantity that grows with the examples of a replica's batch.
struct Line {
  double constant = 0;
  double per_example = 0;
  double operator()(double examples) const { return constant + per_example * examples; }
};
// Through two measurements; neither part is negative.
Line line_through(double examples_a, double a, double examples_b, double b);

struct ModelLaunch {
  std::string op = {};
  DType dtype = DType::float32;
  int phase = 0;
  Line flops = {}, bytes = {};
  Line seconds = {};  // measured; 0: not
};

// A replica's training step for any batch.
struct StepModel {
  std::vector<ModelLaunch> launches;
  std::vector<Sum> sums;
  Line memory = {};  // bytes on a device
  Line host = {};    // seconds of the process, measured, by the examples of all of its devices
  bool measured = false;
};

// A schedule, and where it was run what was measured: the seconds of each launch (empty: not measured) and of
// the step.
struct MeasuredSchedule {
  StepSchedule schedule;
  std::vector<double> launch_s;
  double step_s = 0;
};
// The model of a step that follows from its schedules at two batch sizes of the same training. Where the two
// have different launches, it has those of the larger batch, whose costs are taken to grow with the batch but
// for updates.
StepModel step_model(const MeasuredSchedule& small, const MeasuredSchedule& large);

// What a launch would take on a GPU: its operations or its bytes at the rates that are reached, whichever
// takes longer.
double launch_s(const ModelLaunch& launch, double examples, const Gpu& gpu, const Achieved& achieved);

struct ForecastOptions {
  std::optional<Gpu> gpu = {};  // nullopt: as measured
  Achieved achieved = {};
  std::vector<int64_t> devices = {1};
  double batch_per_replica = 1;
  bool strong = false;  // the batch is that of all devices together: it is divided among them
  Surroundings surroundings = {};
  double worth = 0.9;  // the efficiency from which on a batch per replica is worth it
};

struct ForecastRow {
  int64_t devices = 1;
  int64_t nodes = 1;
  double batch_per_replica = 0;
  Simulated step = {};
  double examples_per_s = 0;
  double efficiency = 1;  // against as many times one device
  double memory_bytes = 0;
  bool fits = true;           // into the GPU's memory
  double smallest_batch = 0;  // per replica that is worth it; 0: none up to a million
  bool smallest_fits = true;
};

struct Forecast {
  ForecastOptions options;
  std::vector<ForecastRow> rows;
};

// The step that one of `devices` devices makes, with `examples` examples of its own.
Step step_at(const StepModel& model, double examples, int64_t devices, const ForecastOptions& options);
Forecast forecast(const StepModel& model, const ForecastOptions& options);

// docs/plan.md describes it.
Json to_json(const Forecast& forecast);

}  // namespace lockstep::plan
