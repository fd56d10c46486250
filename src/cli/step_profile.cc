#include "cli/step_profile.h"

#include <algorithm>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

// What it takes where nothing disturbs it: the tenth part is as short, or shorter.
double undisturbed(std::vector<double> values) {
  const auto tenth = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 10);
  std::nth_element(values.begin(), tenth, values.end());
  return *tenth;
}

DType dtype_named(const std::string& text) {
  for (int i = 0; i < kNumDTypes; ++i)
    if (name(static_cast<DType>(i)) == text) return static_cast<DType>(i);
  fail(ErrorCode::invalid_argument, std::source_location::current(), "there is no dtype \"", text, "\"");
}

bool is(const observe::Event& event, std::string_view category, std::string_view name = {}) {
  return event.kind == observe::EventKind::span && event.category.c_str() == category &&
         (name.empty() || event.name.c_str() == name);
}

// By step of the first replica: the seconds of its kernels, in order.
std::vector<std::vector<double>> kernels_by_step(const observe::Trace& trace) {
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (const observe::Event& event : trace.events)
    if (is(event, "step", "step") && event.replica <= 0) steps.emplace_back(event.start_ns, event.end_ns);
  std::vector<std::vector<double>> kernels(steps.size());
  size_t s = 0;
  for (const observe::Event& event : trace.events) {
    if (!is(event, "kernel")) continue;
    while (s < steps.size() && steps[s].second < event.start_ns) ++s;
    if (s < steps.size() && event.start_ns >= steps[s].first)
      kernels[s].push_back(static_cast<double>(event.end_ns - event.start_ns) * 1e-9);
  }
  return kernels;
}

// What each launch takes undisturbed, in the steps behind the first, which warms up. Where a device makes
// other launches than the plan has (several as one), the plan's share what the step's took in proportion to
// their bytes.
std::vector<double> launch_seconds(const StepSchedule& schedule, const observe::Trace& trace) {
  std::vector<std::vector<double>> steps = kernels_by_step(trace);
  if (steps.size() > 1) steps.erase(steps.begin());
  const size_t count = schedule.launches.size();
  std::vector<double> seconds;
  std::vector<std::vector<double>> whole;
  for (const auto& step : steps)
    if (step.size() == count) whole.push_back(step);
  if (!whole.empty()) {
    for (size_t i = 0; i < count; ++i) {
      std::vector<double> values;
      for (const auto& step : whole) values.push_back(step[i]);
      seconds.push_back(undisturbed(std::move(values)));
    }
    return seconds;
  }
  std::vector<double> totals;
  for (const auto& step : steps) {
    double total = 0;
    for (const double kernel : step) total += kernel;
    totals.push_back(total);
  }
  double bytes = 0;
  for (const ScheduledLaunch& launch : schedule.launches) bytes += launch.bytes;
  if (totals.empty() || bytes <= 0) return {};
  const double total = undisturbed(std::move(totals));
  for (const ScheduledLaunch& launch : schedule.launches) seconds.push_back(total * launch.bytes / bytes);
  return seconds;
}

}  // namespace

Json step_profile(const std::vector<StepSchedule>& schedules, const observe::Trace& trace,
                  const Json& result) {
  const auto most = [](const StepSchedule& a, const StepSchedule& b) {
    return a.launches.size() < b.launches.size();
  };
  const auto step = std::max_element(schedules.begin(), schedules.end(), most);
  require(step != schedules.end(), ErrorCode::failed_precondition, std::source_location::current(),
          "no step of replicas was compiled in this run; does it have at least one batch of examples?");
  const std::vector<double> seconds = launch_seconds(*step, trace);
  Json launches = Json::list();
  for (size_t i = 0; i < step->launches.size(); ++i) {
    const ScheduledLaunch& launch = step->launches[i];
    launches.push_back(Json::object({{"op", launch.op},
                                     {"layer", launch.layer},
                                     {"dtype", name(launch.dtype)},
                                     {"phase", launch.phase},
                                     {"per_replica", launch.per_replica},
                                     {"flops", launch.flops},
                                     {"bytes", launch.bytes},
                                     {"seconds", seconds.empty() ? Json() : Json(seconds[i])}}));
  }
  Json sums = Json::list();
  for (const ScheduledSum& sum : step->sums)
    sums.push_back(
        Json::object({{"name", sum.name}, {"bytes", sum.bytes}, {"phase", sum.phase}, {"ready", sum.ready}}));
  const Json& wall = result.at("step_clock").at("replicas").at(0).at("wall");
  return Json::object({{"kind", "lockstep step profile"},
                       {"function", step->function},
                       {"examples", step->examples},
                       {"variable_bytes", step->variable_bytes},
                       {"arena_bytes", step->arena_bytes},
                       {"batch_bytes", step->batch_bytes},
                       {"step_s", wall.at("p10_ms").as_double() / 1000},
                       {"launches", std::move(launches)},
                       {"sums", std::move(sums)}});
}

plan::MeasuredSchedule read_step_profile(const Json& json) {
  plan::MeasuredSchedule measured;
  StepSchedule& schedule = measured.schedule;
  schedule.function = json.at("function").as_string();
  schedule.examples = json.at("examples").as_int();
  schedule.variable_bytes = json.at("variable_bytes").as_int();
  schedule.arena_bytes = json.at("arena_bytes").as_int();
  schedule.batch_bytes = json.at("batch_bytes").as_int();
  measured.step_s = json.at("step_s").as_double();
  for (const Json& launch : json.at("launches").items()) {
    schedule.launches.push_back({.op = launch.at("op").as_string(),
                                 .layer = launch.at("layer").as_string(),
                                 .dtype = dtype_named(launch.at("dtype").as_string()),
                                 .phase = static_cast<int>(launch.at("phase").as_int()),
                                 .per_replica = launch.at("per_replica").as_bool(),
                                 .flops = launch.at("flops").as_double(),
                                 .bytes = launch.at("bytes").as_double()});
    if (!launch.at("seconds").is_null()) measured.launch_s.push_back(launch.at("seconds").as_double());
  }
  for (const Json& sum : json.at("sums").items())
    schedule.sums.push_back({.name = sum.at("name").as_string(),
                             .bytes = sum.at("bytes").as_double(),
                             .phase = static_cast<int>(sum.at("phase").as_int()),
                             .ready = static_cast<int>(sum.at("ready").as_int())});
  return measured;
}

}  // namespace lockstep::cli
