#include "lockstep/plan/forecast.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::plan {
namespace {

bool same_launches(const StepSchedule& a, const StepSchedule& b) {
  const auto same = [](const ScheduledLaunch& x, const ScheduledLaunch& y) {
    return x.op == y.op && x.phase == y.phase;
  };
  return std::equal(a.launches.begin(), a.launches.end(), b.launches.begin(), b.launches.end(), same);
}

// Where only one batch size is known: what replicas compute grows with it, what devices update does not.
Line growing(double value, double examples, const ScheduledLaunch& launch) {
  return launch.per_replica ? Line{0, value / examples} : Line{value, 0};
}

Simulated simulated(const StepModel& model, double examples, int64_t devices,
                    const ForecastOptions& options) {
  Surroundings around = options.surroundings;
  around.devices = devices;
  return simulate(step_at(model, examples, devices, options), around);
}

double efficiency_at(const StepModel& model, double examples, int64_t devices,
                     const ForecastOptions& options) {
  return simulated(model, examples, 1, options).step_s / simulated(model, examples, devices, options).step_s;
}

// The smallest whole batch whose efficiency reaches `worth`: efficiency grows with the batch, for sums do
// not.
double smallest_worth(const StepModel& model, int64_t devices, const ForecastOptions& options) {
  constexpr int64_t kMost = 1 << 20;
  const auto good = [&](int64_t examples) {
    return efficiency_at(model, static_cast<double>(examples), devices, options) >= options.worth;
  };
  int64_t high = 1;
  while (high < kMost && !good(high)) high *= 2;
  if (high >= kMost && !good(kMost)) return 0;
  int64_t low = high / 2;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (good(middle) ? high : low) = middle;
  }
  return static_cast<double>(high);
}

}  // namespace

Line line_through(double examples_a, double a, double examples_b, double b) {
  if (examples_a == examples_b) return {0, b / examples_b};
  const double slope = std::max(0.0, (b - a) / (examples_b - examples_a));
  const double constant = b - slope * examples_b;
  return constant >= 0 ? Line{constant, slope} : Line{0, b / examples_b};
}

StepModel step_model(const MeasuredSchedule& small, const MeasuredSchedule& large) {
  const StepSchedule &a = small.schedule, &b = large.schedule;
  require(a.examples > 0 && b.examples >= a.examples && !b.launches.empty(), ErrorCode::invalid_argument,
          std::source_location::current(),
          "step_model: needs schedules of two batches, the smaller one first; received ", a.examples, " and ",
          b.examples, " examples and ", b.launches.size(), " launches");
  const auto at_a = static_cast<double>(a.examples), at_b = static_cast<double>(b.examples);
  const bool two = a.examples < b.examples && same_launches(a, b);
  StepModel model;
  model.measured = large.launch_s.size() == b.launches.size();
  const bool both_measured = two && model.measured && small.launch_s.size() == a.launches.size();
  double sum_a = 0, sum_b = 0;
  for (size_t i = 0; i < b.launches.size(); ++i) {
    const ScheduledLaunch& launch = b.launches[i];
    const auto line = [&](double value_a, double value_b) {
      return two ? line_through(at_a, value_a, at_b, value_b) : growing(value_b, at_b, launch);
    };
    ModelLaunch& made = model.launches.emplace_back();
    made.op = launch.op;
    made.dtype = launch.dtype;
    made.phase = launch.phase;
    made.flops = line(two ? a.launches[i].flops : 0, launch.flops);
    made.bytes = line(two ? a.launches[i].bytes : 0, launch.bytes);
    if (!model.measured) continue;
    made.seconds = both_measured ? line_through(at_a, small.launch_s[i], at_b, large.launch_s[i])
                                 : growing(large.launch_s[i], at_b, launch);
    if (both_measured) sum_a += small.launch_s[i];
    sum_b += large.launch_s[i];
  }
  for (const ScheduledSum& sum : b.sums) model.sums.push_back({sum.bytes, sum.phase, sum.ready});
  const auto bytes = [](const StepSchedule& s) {
    return static_cast<double>(s.variable_bytes + s.arena_bytes + s.batch_bytes);
  };
  model.memory = two ? line_through(at_a, bytes(a), at_b, bytes(b))
                     : Line{static_cast<double>(b.variable_bytes),
                            static_cast<double>(b.arena_bytes + b.batch_bytes) / at_b};
  const double host_b = std::max(0.0, large.step_s - sum_b);
  if (model.measured)
    model.host = both_measured ? line_through(at_a, std::max(0.0, small.step_s - sum_a), at_b, host_b)
                               : Line{host_b, 0};
  return model;
}

double launch_s(const ModelLaunch& launch, double examples, const Gpu& gpu, const Achieved& achieved) {
  const double part = launch.op.find("conv") != std::string::npos ? achieved.convolution : achieved.matmul;
  const double computing = launch.flops(examples) / (part * gpu.flops(launch.dtype));
  const double moving = launch.bytes(examples) / (achieved.memory * gpu.bytes_per_s);
  return achieved.launch_s + std::max(computing, moving);
}

Step step_at(const StepModel& model, double examples, int64_t devices, const ForecastOptions& options) {
  require(options.gpu || model.measured, ErrorCode::invalid_argument, std::source_location::current(),
          "forecast: the step was not measured; name a GPU to compute it for");
  const int64_t of_process = std::min(devices, options.surroundings.devices_per_process);
  Step step{.launches = {},
            .sums = model.sums,
            .host_s = options.gpu ? 0 : model.host(examples * static_cast<double>(of_process))};
  for (const ModelLaunch& launch : model.launches)
    step.launches.push_back(
        {options.gpu ? launch_s(launch, examples, *options.gpu, options.achieved) : launch.seconds(examples),
         launch.phase});
  return step;
}

Forecast forecast(const StepModel& model, const ForecastOptions& options) {
  Forecast made{.options = options, .rows = {}};
  const double alone = simulated(model, options.batch_per_replica, 1, options).step_s;
  for (const int64_t devices : options.devices) {
    ForecastRow& row = made.rows.emplace_back();
    row.devices = devices;
    const int per_node = options.surroundings.network.per_node;
    row.nodes = (devices + per_node - 1) / per_node;
    const auto n = static_cast<double>(devices);
    row.batch_per_replica = options.strong ? options.batch_per_replica / n : options.batch_per_replica;
    row.step = simulated(model, row.batch_per_replica, devices, options);
    row.examples_per_s = row.batch_per_replica * n / row.step.step_s;
    row.efficiency = row.examples_per_s / n / (options.batch_per_replica / alone);
    row.memory_bytes = model.memory(row.batch_per_replica);
    row.fits = !options.gpu || row.memory_bytes <= options.gpu->memory_bytes;
    row.smallest_batch = smallest_worth(model, devices, options);
    row.smallest_fits = !options.gpu || model.memory(row.smallest_batch) <= options.gpu->memory_bytes;
  }
  return made;
}

Json to_json(const Forecast& forecast) {
  const auto link = [](const Link& l) {
    return Json::object({{"name", l.name},
                         {"bytes_per_s", l.bytes_per_s},
                         {"latency_s", l.latency_s},
                         {"source", l.source},
                         {"assumed", l.assumed}});
  };
  const ForecastOptions& options = forecast.options;
  const Network& network = options.surroundings.network;
  Json json = Json::object();
  json.set("kind", "lockstep plan");
  json.set("schema", 1);
  json.set("scaling", options.strong ? "strong" : "weak");
  json.set("device", options.gpu ? options.gpu->name : "this");
  if (options.gpu)
    json.set("achieved", Json::object({{"matmul", options.achieved.matmul},
                                       {"convolution", options.achieved.convolution},
                                       {"memory", options.achieved.memory}}));
  json.set("inside", link(network.inside));
  json.set("between", link(network.between));
  json.set("devices_per_node", network.per_node);
  json.set("jitter", options.surroundings.jitter);
  json.set("worth", options.worth);
  Json rows = Json::list();
  for (const ForecastRow& row : forecast.rows) {
    const Simulated& step = row.step;
    rows.push_back(
        Json::object({{"devices", row.devices},
                      {"nodes", row.nodes},
                      {"batch_per_replica", row.batch_per_replica},
                      {"step_s", step.step_s},
                      {"examples_per_s", row.examples_per_s},
                      {"efficiency", row.efficiency},
                      {"compute_s", step.compute_s},
                      {"exposed_communication_s", step.exposed_s},
                      {"stragglers_s", step.straggler_s},
                      {"sharing_cores_s", step.shared_s},
                      {"host_s", step.host_s},
                      {"communication_inside_s", step.sums.inside_s},
                      {"communication_between_s", step.sums.between_s},
                      {"buckets", static_cast<int64_t>(step.buckets.size())},
                      {"memory_bytes", row.memory_bytes},
                      {"fits", row.fits},
                      {"smallest_batch", row.smallest_batch > 0 ? Json(row.smallest_batch) : Json()},
                      {"smallest_batch_fits", row.smallest_fits}}));
  }
  json.set("rows", std::move(rows));
  return json;
}

}  // namespace lockstep::plan
