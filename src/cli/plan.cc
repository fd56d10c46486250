#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>

#include "cli/child_runs.h"
#include "cli/commands.h"
#include "cli/step_profile.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/host.h"
#include "lockstep/base/terminal.h"
#include "lockstep/device/device.h"
#include "lockstep/doctor/doctor.h"
#include "lockstep/plan/forecast.h"
#include "lockstep/plan/probe.h"

namespace lockstep::cli {
namespace {

struct PlanFlags {
  std::string run;
  std::vector<int64_t> gpus{1, 8, 64, 512, 4096};
  std::vector<std::string> links;
  std::string device;
  int per_node = 0;
  int rails = 0;
  int64_t batch_size = 0;
  bool strong = false;
  double jitter = 0.01;
  int64_t steps = 50;
  int64_t threads = 1;
  bool validate = false;
  bool json = false;
  std::string output;
};

// --- how good forecasts were here --------------------------------------------------------------------------

// The error found by the last validation on this machine, for every forecast to come.
std::string error_file() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string root = cache && *cache ? cache : home && *home ? std::string(home) + "/.cache" : "";
  return root.empty() ? "" : root + "/lockstep/plan_error.json";
}

void keep_error(const Json& validation) {
  const std::string path = error_file();
  if (path.empty()) return;
  make_folders(std::filesystem::path(path).parent_path().string());
  AtomicFile file(path);
  file.write(validation.dump(2) + "\n");
  file.commit();
}

// Null where none was found on this machine.
Json kept_error() {
  const std::string path = error_file();
  if (path.empty() || !file_exists(path)) return {};
  const Json kept = Json::read_file(path);
  const Json *host = kept.find("host"), *cores = kept.find("cores"), *gpus = kept.find("gpus");
  if (!host || !cores || !gpus || !kept.find("waited_for_cores") || *host != Json(host_name()) ||
      *cores != Json(usable_cores()) || *gpus != Json(usable_gpus()))
    return {};
  return kept;
}

std::string error_line(const Json& validation) {
  constexpr double kBusy = 0.05;
  if (validation.is_null())
    return "Error: not known, for no forecast was compared with this machine yet; lockstep plan --validate "
           "RUN does it.\n";
  const double waited = validation.at("waited_for_cores").as_double();
  const bool on_gpus = validation.at("gpus").as_int() > 0;
  return fmt::format(
      "Error: on this machine ({}) forecasts for {} were off by {:.0f}% in the mean and {:.0f}% at most, {} "
      "measurements; other machines were not compared.{}{}\n",
      on_gpus ? "logical GPUs" : fmt::format("{} cores", validation.at("cores").as_int()),
      validation.at("model").as_string(), 100 * validation.at("mean_error").as_double(),
      100 * validation.at("largest_error").as_double(), validation.at("rows").items().size(),
      on_gpus ? " Logical GPUs are taken to share theirs in turn: where kernels are too small to fill it, "
                "they run at the same time and the forecast is too long. GPUs of their own share nothing."
              : "",
      waited < kBusy
          ? ""
          : fmt::format(" The machine was busy: threads waited for cores {:.0f}% of the time, which no "
                        "forecast knows. Compare again on an idle one.",
                        100 * waited));
}

// --- the step ----------------------------------------------------------------------------------------------

struct Profiled {
  plan::StepModel model;
  std::string name;
  int64_t batch = 0;
};

// The step of one device at two batch sizes, each with its launches timed and without. Where it is only
// computed from, small batches and few steps will do, and nothing is timed.
constexpr int kProfileRuns = 4;
Profiled profile(const PlanFlags& flags, bool measures, ChildRuns& runs) {
  Profiled made;
  made.batch = flags.batch_size > 0 ? flags.batch_size : batch_size_of(flags.run);
  const int64_t large = measures ? std::max<int64_t>(made.batch, 2) : 4;
  const int64_t small = measures ? std::max<int64_t>(1, large / 4) : 2;
  const auto measure = [&](int64_t examples) {
    ChildRun run{.run = flags.run,
                 .threads = flags.threads,
                 .batch_size = examples,
                 .steps = measures ? flags.steps : 1,
                 .profiles = true};
    const ChildResult child = runs.train(run);
    made.name = child.result.at("model").as_string();
    plan::MeasuredSchedule schedule = read_step_profile(child.profile);
    require(schedule.schedule.examples == examples, ErrorCode::failed_precondition,
            std::source_location::current(), "the data has only ", schedule.schedule.examples,
            " examples, fewer than a batch of ", examples, "; use a smaller --batch-size");
    if (!measures) return schedule;
    // Launches that are timed one by one take longer than in steps that nobody looks at: those are what
    // counts.
    run.profiles = false;
    schedule.step_s = undisturbed_step_s(runs.train(run).result);
    const double sum = std::accumulate(schedule.launch_s.begin(), schedule.launch_s.end(), 0.0);
    for (double& seconds : schedule.launch_s) seconds *= std::min(1.0, schedule.step_s / sum);
    return schedule;
  };
  const plan::MeasuredSchedule first = measure(small);
  made.model = plan::step_model(first, measure(large));
  return made;
}

constexpr int kAll = 1 << 20;  // devices of one node, or of one process

// Devices of this machine that are CPUs share its cores, and sum on their own threads; processes do so
// beside.
plan::Surroundings this_machine(int64_t threads, double jitter) {
  plan::Surroundings around{.jitter = jitter};
  around.network.inside = plan::measure_memory();
  around.network.per_node = kAll;
  around.devices_per_process = kAll;
  around.sums_beside = false;
  around.bucket_bytes = 0;
  around.cores = static_cast<double>(usable_cores());
  around.cores_per_device = static_cast<double>(threads);
  return around;
}

plan::Surroundings processes_here(int64_t threads, double jitter) {
  plan::Surroundings around = this_machine(threads, jitter);
  around.network.inside = plan::measure_loopback();
  around.devices_per_process = 1;
  around.sums_beside = true;
  around.bucket_bytes = 1 << 20;
  around.cores_per_sum = 1;
  return around;
}

// Logical GPUs share the one that they are parts of: what runs on two of them at once takes twice as long. A
// sum of n of them reads n numbers and writes n, all in one memory: in the accounts of a ring, which has each
// send 2 (n - 1) / n, a quarter of its rate for two.
plan::Surroundings parts_of_gpus(double jitter) {
  constexpr double kReadsAndWrites = 4;
  const doctor::Ceilings ceilings = doctor::ceilings(device_by_name("/GPU:0"));
  require(ceilings.bytes_per_second > 0, ErrorCode::unsupported, std::source_location::current(),
          "the rate of the GPU's memory is not known, so that sums in it cannot be forecast");
  plan::Surroundings around{.jitter = jitter};
  around.network.inside = {
      .name = "memory of the GPU",
      .bytes_per_s = plan::Achieved().memory * ceilings.bytes_per_second / kReadsAndWrites,
      .latency_s = 3e-6,
      .source = ceilings.is,
      .assumed = "the part of its rate that is reached, and the latency"};
  around.network.per_node = kAll;
  around.devices_per_process = kAll;
  around.cores = static_cast<double>(usable_gpus());
  around.cores_per_device = 1;
  return around;
}

plan::ForecastOptions options_of(const PlanFlags& flags, const Profiled& step) {
  plan::ForecastOptions options{
      .devices = flags.gpus, .batch_per_replica = static_cast<double>(step.batch), .strong = flags.strong};
  std::sort(options.devices.begin(), options.devices.end());
  if (flags.device != "this") options.gpu = plan::find_gpu(flags.device);
  const bool on_cpus = !options.gpu && usable_gpus() == 0;
  if (on_cpus && flags.links.empty()) {
    options.surroundings = this_machine(flags.threads, flags.jitter);
    return options;
  }
  plan::Surroundings& around = options.surroundings;
  around.jitter = flags.jitter;
  plan::Network& network = around.network;
  network.per_node = flags.per_node > 0 ? flags.per_node : on_cpus ? 1 : 8;
  network.rails = flags.rails;
  const std::string inside = options.gpu ? options.gpu->link : "nvlink4";
  network.inside = plan::find_link(flags.links.size() > 1 ? flags.links[0] : inside);
  network.between = plan::find_link(flags.links.empty() ? "ib400" : flags.links.back());
  // One link that joins GPUs of a node is not meant for a network.
  if (flags.links.size() == 1 && flags.links[0].starts_with("nvlink")) {
    network.inside = network.between;
    network.between = plan::find_link("ib400");
  }
  return options;
}

// --- for people --------------------------------------------------------------------------------------------

std::string amount(double bytes) {
  return bytes >= 1e9 ? fmt::format("{:.1f} GB", bytes / 1e9) : fmt::format("{:.1f} MB", bytes / 1e6);
}

std::string described(const plan::Link& link) {
  return fmt::format("{} ({:.4g} GB/s, {:.3g} us)", link.name, link.bytes_per_s / 1e9, link.latency_s * 1e6);
}

// What the forecast rests on that nobody has measured.
std::string assumptions(const plan::ForecastOptions& options) {
  const plan::Network& network = options.surroundings.network;
  std::string text;
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : "; ") + what; };
  if (options.gpu) add("the parts of its ceilings that " + options.gpu->name + " reaches");
  for (const plan::Link* link : {&network.inside, &network.between})
    if (!link->assumed.empty()) add("of " + link->name + " " + link->assumed);
  if (options.surroundings.jitter > 0)
    add(fmt::format("that steps vary by {:.3g}%", 100 * options.surroundings.jitter));
  return text.empty() ? "" : "Assumed, not measured: " + text + ".\n";
}

std::string to_text(const plan::Forecast& forecast, const Profiled& step) {
  const plan::ForecastOptions& options = forecast.options;
  const plan::Network& network = options.surroundings.network;
  const bool shares_machine = std::isfinite(options.surroundings.cores);
  std::string text =
      fmt::format("{}, {} scaling, {} examples {}; ", step.name, options.strong ? "strong" : "weak",
                  step.batch, options.strong ? "over all devices" : "per device");
  if (options.gpu)
    text += fmt::format(
        "computed for {}: products at {:.0f}%, convolutions at {:.0f}%, memory at {:.0f}% of its ceilings\n",
        options.gpu->name, 100 * options.achieved.matmul, 100 * options.achieved.convolution,
        100 * options.achieved.memory);
  else
    text += "measured on one device of this machine\n";
  if (shares_machine)
    text += fmt::format("devices of this machine, {} cores; their all-reduce is through {}\n",
                        options.surroundings.cores, described(network.inside));
  else
    text += fmt::format("{} devices per node, {}, between nodes {}{}\n", network.per_node,
                        described(network.inside), described(network.between),
                        network.rails > 0 ? fmt::format(", {} per node", network.rails) : ", one per device");
  text += "\ndevices  ms/step  examples/s  efficiency                        memory  worth from\n";
  for (const plan::ForecastRow& row : forecast.rows) {
    constexpr int kBar = 20;
    const int filled = std::clamp(static_cast<int>(std::lround(row.efficiency * kBar)), 0, kBar);
    text += fmt::format("{:7}  {:7.4g}  {:10.0f}  {:10.2f}  {}{}  {:>8}  {}\n", row.devices,
                        row.step.step_s * 1000, row.examples_per_s, row.efficiency,
                        std::string(static_cast<size_t>(filled), '#'),
                        std::string(static_cast<size_t>(kBar - filled), '.'), amount(row.memory_bytes),
                        row.smallest_batch == 0 ? "never"
                        : row.smallest_fits     ? fmt::format("{:.0f}", row.smallest_batch)
                                                : fmt::format("{:.0f}, does not fit", row.smallest_batch));
  }
  text += "\ndevices  compute  exposed sums  stragglers  host  sharing cores  all sums inside  between, ms\n";
  for (const plan::ForecastRow& row : forecast.rows) {
    const plan::Simulated& s = row.step;
    text += fmt::format("{:7}  {:7.4g}  {:12.4g}  {:10.3g}  {:4.2g}  {:13.3g}  {:15.4g}  {:11.4g}\n",
                        row.devices, s.compute_s * 1000, s.exposed_s * 1000, s.straggler_s * 1000,
                        s.host_s * 1000, s.shared_s * 1000, s.sums.inside_s * 1000, s.sums.between_s * 1000);
  }
  text += fmt::format(
      "\nWorth from: the smallest batch per device with an efficiency of {} against one device with that "
      "batch.\n",
      options.worth);
  for (const plan::ForecastRow& row : forecast.rows)
    if (!row.fits) {
      text += fmt::format("A batch of {:.0f} needs {} on a device that has {}: it does not fit.\n",
                          row.batch_per_replica, amount(row.memory_bytes), amount(options.gpu->memory_bytes));
      break;
    }
  return text + assumptions(options);
}

// --- the two things it does --------------------------------------------------------------------------------

struct Comparison {
  int64_t workers, devices;
  bool strong;
};

Json validate(const PlanFlags& flags) {
  const bool gpus = usable_gpus() > 0;
  const std::vector<Comparison> all =
      gpus ? std::vector<Comparison>{{1, 1, false}, {1, 2, false}, {1, 2, true}}
           : std::vector<Comparison>{{1, 1, false}, {1, 2, false}, {1, 4, false}, {1, 2, true},
                                     {1, 4, true},  {2, 1, false}, {4, 1, false}};
  ChildRuns runs(static_cast<int>(kProfileRuns + all.size()), false);
  const Profiled step = profile(flags, true, runs);
  const plan::Surroundings devices =
      gpus ? parts_of_gpus(flags.jitter) : this_machine(flags.threads, flags.jitter);
  const plan::Surroundings processes = gpus ? devices : processes_here(flags.threads, flags.jitter);
  Json rows = Json::list();
  double sum = 0, largest = 0, waited_sum = 0;
  for (const Comparison& what : all) {
    const int64_t replicas = what.workers * what.devices;
    const int64_t batch = what.strong ? step.batch : step.batch * replicas;
    const Json result = runs.train({.run = flags.run,
                                    .devices = what.devices,
                                    .workers = what.workers,
                                    .threads = flags.threads,
                                    .batch_size = batch,
                                    .steps = flags.steps})
                            .result;
    const plan::ForecastOptions options{.devices = {replicas},
                                        .batch_per_replica = static_cast<double>(step.batch),
                                        .strong = what.strong,
                                        .surroundings = what.workers > 1 ? processes : devices};
    const double forecast = plan::forecast(step.model, options).rows[0].step.step_s;
    const double measured = undisturbed_step_s(result);
    const double error = forecast / measured - 1, waited = waited_for_cores(result);
    waited_sum += waited;
    sum += std::abs(error);
    largest = std::max(largest, std::abs(error));
    rows.push_back(Json::object({{"scaling", what.strong ? "strong" : "weak"},
                                 {"workers", what.workers},
                                 {"devices", what.devices},
                                 {"batch_size", batch},
                                 {"measured_s", measured},
                                 {"forecast_s", forecast},
                                 {"error", error},
                                 {"waited_for_cores", waited}}));
  }
  return Json::object({{"kind", "lockstep plan validation"},
                       {"schema", 1},
                       {"host", host_name()},
                       {"cores", usable_cores()},
                       {"gpus", usable_gpus()},
                       {"model", step.name},
                       {"mean_error", sum / static_cast<double>(all.size())},
                       {"largest_error", largest},
                       {"waited_for_cores", waited_sum / static_cast<double>(all.size())},
                       {"rows", std::move(rows)}});
}

std::string validation_text(const Json& validation) {
  std::string text = "scaling  workers  devices   batch  measured ms  forecast ms  error  waited for cores\n";
  for (const Json& row : validation.at("rows").items())
    text += fmt::format("{:7}  {:7}  {:7}  {:6}  {:11.4g}  {:11.4g}  {:+4.0f}%  {:15.0f}%\n",
                        row.at("scaling").as_string(), row.at("workers").as_int(), row.at("devices").as_int(),
                        row.at("batch_size").as_int(), row.at("measured_s").as_double() * 1000,
                        row.at("forecast_s").as_double() * 1000, 100 * row.at("error").as_double(),
                        100 * row.at("waited_for_cores").as_double());
  return text + error_line(validation) + "It is kept, and printed with every forecast made here.\n";
}

int plan_run(const PlanFlags& given) {
  PlanFlags flags = given;
  if (flags.device.empty()) flags.device = usable_gpus() > 0 ? "this" : "h100";
  if (flags.device != "this") plan::find_gpu(flags.device);
  for (const std::string& link : flags.links) plan::find_link(link);
  std::optional<AtomicFile> file;
  if (!flags.output.empty()) file.emplace(flags.output);
  Json json;
  std::string text;
  if (flags.validate) {
    json = validate(flags);
    keep_error(json);
    text = validation_text(json);
  } else {
    Profiled step;
    {
      const bool measures = flags.device == "this";
      ChildRuns runs(measures ? kProfileRuns : 2, false);
      step = profile(flags, measures, runs);
    }
    const plan::Forecast forecast = plan::forecast(step.model, options_of(flags, step));
    const Json validation = kept_error();
    json = plan::to_json(forecast);
    json.set("model", step.name);
    json.set("validation", validation);
    text = to_text(forecast, step) + error_line(validation);
  }
  if (file) {
    file->write(json.dump(2) + "\n");
    file->commit();
  }
  const std::optional<int> columns = terminal::columns();
  print_result(flags.json ? json.dump(2) + "\n" : columns ? terminal::wrapped(text, *columns) : text);
  return 0;
}

std::string names(const auto& all) {
  std::string text;
  for (const auto& each : all) text += (text.empty() ? "" : ", ") + each.name;
  return text;
}

}  // namespace

void add_plan(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("plan", "Forecast how a training would scale on machines that are not there");
  auto f = std::make_shared<PlanFlags>();
  command->add_option("run", f->run, "A run file, or the name of a network, as lockstep train takes it")
      ->required();
  command->add_option("--gpus", f->gpus, "How many devices in all, a forecast for each")
      ->delimiter(',')
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option("--link", f->links,
                   "The link inside a node and the one between nodes, or the latter alone: " +
                       names(plan::links()) + "; or name=GBps:latency_us")
      ->delimiter(',')
      ->expected(1, 2);
  command->add_option(
      "--device", f->device,
      "What to forecast for: " + names(plan::gpus()) +
          ", computed from its ceilings; or this: measured on one device of this machine (where "
          "it has GPUs, the default; else h100)");
  command->add_option("--per-node", f->per_node, "Devices of a node (8)")->check(whole_number(1, 1 << 20));
  command->add_option("--rails", f->rails, "Network cards of a node; 0: one per device")
      ->check(whole_number(0, 1024))
      ->capture_default_str();
  command->add_option("--batch-size", f->batch_size, "Examples per device, instead of the run's batch size")
      ->check(whole_number(1));
  command->add_flag("--strong", f->strong, "The batch is that of all devices together");
  command
      ->add_option(
          "--jitter", f->jitter,
          "How much a step's time varies from device to device: its standard deviation as a part of it")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--steps", f->steps, "Steps of a measurement")
      ->check(whole_number(4, 1000000))
      ->capture_default_str();
  command->add_option("--threads", f->threads, "Threads of a CPU device that is measured")
      ->check(whole_number(1, kMostThreads))
      ->capture_default_str();
  command->add_flag("--validate", f->validate,
                    "Compare forecasts for 1, 2 and 4 devices and processes of this machine (where it has "
                    "GPUs, for 1 and 2 "
                    "logical GPUs) with trainings there, and keep the error");
  command->add_flag("--json", f->json, "The forecast as one JSON object (docs/plan.md)");
  command->add_option("--output", f->output, "Also write that object to this file")->check(path());
  command->footer(
      "A step is simulated as it is run: its kernels, the buckets of gradients that they fill, the sums of "
      "these "
      "beside the backward pass, inside nodes and between them, and the wait for the slowest device. "
      "docs/plan.md "
      "says how, and what is not known.\n"
      "\n"
      "  lockstep plan run.json --gpus 1,8,64,512,4096 --link nvlink,ib400\n"
      "  lockstep plan resnet50 --device a100 --link nvlink3,eth100 --batch-size 64\n"
      "  lockstep plan run.json --device this --gpus 1,2,4\n"
      "  lockstep plan --validate run.json\n"
      "\n"
      "Exit status: 0 where all went well, 1 where a training failed, 2 where the call is wrong, 130 after "
      "Ctrl-C.");
  command->callback([f, &status] {
    try {
      status = plan_run(*f);
    } catch (const Interrupted& interrupted) {
      status = 128 + interrupted.signal;
    }
  });
}

}  // namespace lockstep::cli
