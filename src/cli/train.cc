#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/launch/launch.h"
#include "cli/run.h"
#include "cli/step_profile.h"
#include "cli/temporary_folder.h"
#include "lockstep/base/files.h"
#include "lockstep/base/terminal.h"
#include "lockstep/device/config.h"
#include "lockstep/device/device.h"
#include "lockstep/distribute/strategy.h"
#include "lockstep/execute/step_schedule.h"
#include "lockstep/keras/applications.h"
#include "lockstep/observe/kernel_profile.h"
#include "lockstep/observe/trace.h"

namespace lockstep::cli {
namespace {

struct TrainFlags {
  std::string run = "mlp";  // a run file, or a network to train on the digits
  bool names_run = false;
  bool schema = false;
  // For a run file and for the digits run; where they are not given, the run decides.
  std::optional<int64_t> epochs;
  std::optional<int64_t> batch_size;
  std::optional<int64_t> seed;
  std::string output;
  bool no_shuffle = false;
  bool json = false;
  std::string json_file;  // empty: standard output
  std::string backup;
  int threads = 0;
  std::string step_log;
  std::string tensorboard;
  std::string trace;
  std::string report;
  bool profile = false;
  std::optional<int64_t> steps;
  bool no_test = false;
  std::string schedule;  // of one replica's step, for `lockstep plan`
  // For the digits run alone.
  std::optional<double> learning_rate;
  std::optional<int64_t> train_size;
  std::optional<int64_t> test_size;
  int devices = 1;
  int workers = 1;
  std::optional<int64_t> elastic;  // with so many workers the run goes on
  bool reproducible = false;
};

const std::vector<std::string>& networks() {
  static const std::vector<std::string> all{"linear", "mlp", "lenet", "resnet18", "resnet50", "vit_tiny"};
  return all;
}

// The run that `lockstep train` without a file stands for.
RunFile digits_run(const TrainFlags& flags) {
  RunFile run;
  Json model = Json::object({{"zoo", flags.run == "linear" ? "mlp" : flags.run}});
  if (flags.run == "linear") model.set("hidden", Json::list()), model.set("name", "linear");
  if (flags.run.starts_with("resnet")) model.set("input_shape", Json::List{28, 28, 1});
  run.model.json = model;
  const int64_t seed = flags.seed.value_or(0);
  run.data.source = BuiltinSource{
      .train_size = flags.train_size.value_or(-1), .test_size = flags.test_size.value_or(-1), .seed = seed};
  const auto configured = [](const char* class_name, Json config) {
    return Json::object({{"class_name", class_name}, {"config", std::move(config)}});
  };
  run.compile.emplace();
  run.compile->optimizer =
      configured("Adam", Json::object({{"learning_rate", flags.learning_rate.value_or(1e-3)}}));
  run.compile->loss = configured("SparseCategoricalCrossentropy", Json::object({{"from_logits", true}}));
  run.compile->metrics = Json::List{"accuracy"};
  run.fit.epochs = 5;
  run.fit.batch_size = 128;
  return run;
}

RunFile file_run(const TrainFlags& flags) {
  const std::vector<std::string> known = networks();
  std::error_code error;
  if (std::filesystem::status(flags.run, error).type() == std::filesystem::file_type::not_found) {
    const std::string near = nearest_spelling(flags.run, known);
    fail(ErrorCode::not_found, std::source_location::current(), "there is no run file \"", flags.run,
         "\", and no network of that name", near.empty() ? "." : "; did you mean \"" + near + "\"?",
         " Networks are ", join(known));
  }
  const std::pair<const char*, bool> digits_only[] = {{"--learning-rate", flags.learning_rate.has_value()},
                                                      {"--train-size", flags.train_size.has_value()},
                                                      {"--test-size", flags.test_size.has_value()}};
  for (const auto& [name, given] : digits_only)
    require(!given, ErrorCode::invalid_argument, std::source_location::current(), name,
            " is for the digits run; a run file says this itself");
  return read_run_file(flags.run);
}

// The words of the call, but for an option with a value: "--workers 4", "--workers=4".
std::vector<std::string> without_option(const std::vector<std::string>& words, const std::string& option) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == option)
      ++i;
    else if (!words[i].starts_with(option + "="))
      kept.push_back(words[i]);
  }
  return kept;
}

// Restarts of all workers together: one that fails again and again does not do so for ever.
constexpr int kElasticRestarts = 100;

// This command again, as several processes that train together.
int train_with_workers(const TrainFlags& flags, const std::vector<std::string>& words) {
  if (!is_network(flags.run)) file_run(flags);  // a mistake in the file is told once
  std::vector<std::string> program = without_option(words, "--workers");
  program.insert(program.begin(), std::filesystem::read_symlink("/proc/self/exe").string());
  return launch::launch({.program = std::move(program),
                         .workers = flags.workers,
                         .slurm = false,
                         .tags_first = false,
                         .restarts = flags.elastic ? kElasticRestarts : 0,
                         .elastic = flags.elastic.has_value()});
}

// A launcher has started this process, so that there may be others that train with it.
bool has_launcher() {
  for (const char* name :
       {"TF_CONFIG", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_STEP_ID", "RANK", "LOCKSTEP_RANK"})
    if (const char* value = std::getenv(name); value && *value) return true;
  return false;
}

// As many logical CPUs as devices were asked for, and where there are GPUs, but fewer, as many parts of them.
void set_devices(const TrainFlags& flags) {
  // Of a GPU's memory: the rest is the driver's, and of what else runs there.
  constexpr double kForParts = 0.9;
  set_logical_cpus({.count = flags.devices, .threads = flags.threads});
  const std::vector<config::PhysicalDevice> gpus = config::get_visible_devices("GPU");
  const auto count = static_cast<int>(gpus.size());
  if (count == 0 || flags.devices <= count) return;
  for (int i = 0; i < count; ++i) {
    const int parts = flags.devices / count + (i < flags.devices % count ? 1 : 0);
    const auto memory_mb =
        static_cast<double>(config::get_device_details(gpus[static_cast<size_t>(i)]).memory >> 20);
    const config::LogicalDeviceConfiguration part{.memory_limit_mb =
                                                      static_cast<int64_t>(kForParts * memory_mb / parts)};
    if (parts > 1)
      config::set_logical_device_configuration(gpus[static_cast<size_t>(i)],
                                               std::vector(static_cast<size_t>(parts), part));
  }
}

void check_elastic(const TrainFlags& flags) {
  if (!flags.elastic) return;
  const auto here = std::source_location::current();
  require(flags.workers > 1 || has_launcher(), ErrorCode::invalid_argument, here,
          "--elastic is for several workers: add --workers 4, or start them with lockstep launch --elastic");
  require(flags.workers == 1 || *flags.elastic <= flags.workers, ErrorCode::invalid_argument, here,
          "--elastic ", *flags.elastic, " is more than the ", flags.workers, " workers there are");
  require(
      flags.step_log.empty(), ErrorCode::unsupported, here,
      "--step-log and --elastic exclude each other: the chief writes every step, and some would be missing "
      "where it is lost; the epochs are in --output and --tensorboard");
}

distribute::Strategy make_strategy(const TrainFlags& flags) {
  const distribute::StrategyOptions options{
      .reproducible = flags.reproducible,
      .virtual_replicas = std::max(8, flags.devices),
      .report = false,
      .elastic = {.min_workers = static_cast<int>(flags.elastic.value_or(0))}};
  if (has_launcher()) return distribute::MultiWorkerMirroredStrategy(options);
  const bool several = flags.devices > 1 || config::list_logical_devices("GPU").size() > 1;
  if (several || flags.reproducible || !flags.schedule.empty())
    return distribute::MirroredStrategy({}, options);
  return {};
}

// Whether there is one file of both names.
bool same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error) && !error;
}

int train(const TrainFlags& flags) {
  require(flags.json_file.empty() || flags.names_run || !file_exists(flags.json_file),
          ErrorCode::invalid_argument, std::source_location::current(), "--json ", flags.json_file,
          " would write the result over that file; where it is the run, say: lockstep train ",
          flags.json_file, " --json");
  for (const auto& [flag, path] : {std::pair("--json", flags.json_file),
                                   {"--step-log", flags.step_log},
                                   {"--trace", flags.trace},
                                   {"--report", flags.report}})
    require(!same_file(path, flags.run), ErrorCode::invalid_argument, std::source_location::current(), flag,
            " ", path, " would overwrite the run file");
  const bool digits = is_network(flags.run);
  RunFile run = digits ? digits_run(flags) : file_run(flags);
  if (flags.epochs) run.fit.epochs = *flags.epochs;
  if (flags.batch_size) run.fit.batch_size = *flags.batch_size;
  if (flags.steps) run.fit.steps_per_epoch = *flags.steps;
  if (flags.seed) run.seed = *flags.seed;
  if (flags.no_shuffle) run.fit.shuffle = false;
  const bool json_on_stdout = flags.json && flags.json_file.empty();
  if (json_on_stdout) run.fit.verbose = 0;
  if (!flags.output.empty()) run.output = std::filesystem::absolute(flags.output).string();
  if (!flags.backup.empty()) run.backup = std::filesystem::absolute(flags.backup).string();

  set_devices(flags);
  const distribute::Strategy strategy = make_strategy(flags);

  // Opened now, so that a run is not lost to a name that cannot be written.
  std::optional<AtomicFile> json_file, trace_file, page_file, schedule_file;
  const auto open_files = [&] {
    const auto open = [](const char* flag, const std::string& path, std::optional<AtomicFile>& file) {
      if (!path.empty() && !file) at_key(flag, [&] { file.emplace(path); });
    };
    if (!strategy.is_chief()) return;
    open("--json", flags.json_file, json_file);
    open("--trace", flags.trace, trace_file);
    open("--report", flags.report, page_file);
    open("--schedule", flags.schedule, schedule_file);
  };
  open_files();
  // The page is made of the run's record, which needs a folder; every worker takes part in it.
  std::optional<TemporaryFolder> record_folder;
  if (!flags.report.empty() && run.output.empty()) record_folder.emplace();

  const RunReports reports{.trained = flags.run,
                           .out = json_on_stdout ? stderr : stdout,
                           .step_log = flags.step_log,
                           .tensorboard = flags.tensorboard,
                           .record = record_folder ? record_folder->path() : "",
                           .tests = !flags.no_test};
  const bool traces = flags.profile || !flags.trace.empty() || !flags.schedule.empty();
  std::optional<ScheduleRecorder> recorder;
  if (!flags.schedule.empty()) recorder.emplace();
  if (traces) observe::start_tracing({.events_per_thread = flags.profile ? 1 << 20 : 1 << 16});
  const Json result = carry_out(run, strategy, reports);
  // In an elastic run this worker may have become the chief.
  const bool chief = strategy.is_chief();
  open_files();

  // What went well is written, whatever did not.
  std::vector<std::string> problems;
  if (const Json* told = result.find("problems"))
    for (const Json& problem : told->items()) problems.push_back(problem.as_string());
  const auto attempt = [&](const char* flag, auto&& write) {
    try {
      write();
    } catch (const Error& error) {
      problems.push_back(std::string(flag) + ": " + error.message());
    }
  };
  if (traces) {
    observe::stop_tracing();
    const observe::Trace trace = observe::take_trace();
    if (chief && flags.profile)
      terminal::print(
          to_text(observe::kernel_profile(trace), {.steps = std::max(1, observe::steps_in(trace))}),
          reports.out);
    if (schedule_file)
      attempt("--schedule", [&] {
        schedule_file->write(step_profile(recorder->take(), trace, result).dump() + "\n");
        schedule_file->commit();
      });
    if (trace_file)
      attempt("--trace", [&] {
        observe::write_trace(trace, *trace_file);
        trace_file->commit();
        terminal::print(fmt::format("trace written to {}: open it at https://ui.perfetto.dev\n", flags.trace),
                        reports.out);
      });
  }
  if (page_file)
    attempt("--report", [&] {
      write_page(observe::read_record(record_folder ? record_folder->path() : run.resolve(run.output)),
                 *page_file);
      terminal::print(fmt::format("page written to {}: open it in a browser\n", flags.report), reports.out);
    });
  if (json_file)
    attempt("--json", [&] {
      json_file->write(result.dump() + "\n");
      json_file->commit();
    });
  if (chief && json_on_stdout && !terminal::write(result.dump() + "\n"))
    problems.emplace_back("--json: the result could not be written to standard output");
  for (const std::string& problem : problems) complain(problem);
  if (const Json* signal = result.find("signal")) return 128 + static_cast<int>(signal->as_int());
  return problems.empty() ? 0 : 1;
}

}  // namespace

bool is_network(const std::string& run) {
  return std::find(networks().begin(), networks().end(), run) != networks().end();
}

void add_train(CLI::App& app, int& status, std::vector<std::string> words) {
  CLI::App* command = app.add_subcommand(
      "train", "Train what a run file says, or a network on the embedded handwritten-like digits");
  auto f = std::make_shared<TrainFlags>();
  CLI::Option* run =
      command
          ->add_option("run,--network", f->run,
                       "A run file (JSON), or a network to train on the digits: " + join(networks()))
          ->capture_default_str();
  command->add_flag("--schema", f->schema, "Print the JSON schema of run files, and do nothing else");
  command->add_option("--epochs", f->epochs, "Times the training examples are gone through (digits: 5)")
      ->check(whole_number(0, INT32_MAX));
  command->add_option("--batch-size", f->batch_size, "Examples per step, over all devices (digits: 128)")
      ->check(whole_number(1));
  command->add_option("--steps", f->steps, "Steps per epoch; else until the data ends")
      ->check(whole_number(1));
  command->add_flag("--no-test", f->no_test, "Do not test what was learnt, for a look at the speed alone");
  command->add_option("--schedule", f->schedule, "Write the launches and sums of a step to this file")
      ->group("");
  command->add_option("--seed", f->seed, "Of the weights, the order and the digits")->check(whole_number(0));
  command
      ->add_option("--output", f->output,
                   "Folder for weights.safetensors, model.json, history.json, run.json and record.json "
                   "(for lockstep report, watch and "
                   "doctor)")
      ->check(path());
  command
      ->add_option("--backup", f->backup,
                   "Folder that the run is kept in after every epoch until it has ended: killed at any "
                   "moment and started again, it goes on there and ends with the same bits")
      ->check(path());
  command->add_flag("--no-shuffle", f->no_shuffle, "Examples in the order of the data");
  command->add_option("--step-log", f->step_log, "Write every step's own loss to this file: step,epoch,loss")
      ->check(path());
  command->add_option("--tensorboard", f->tensorboard, "Write event files for TensorBoard into this folder")
      ->check(path());
  command->add_option("--trace", f->trace, "Write a Chrome/Perfetto trace of every kernel to this file")
      ->check(path());
  command
      ->add_option("--report", f->report, "Write a page about the run to this file, as lockstep report does")
      ->check(path());
  command->add_flag("--profile", f->profile,
                    "Say which kernels the time goes into; a GPU's launches are made and timed one by one");
  command->add_option("--threads", f->threads, "Threads of each device; 0: the cores shared out")
      ->check(whole_number(0, kMostThreads))
      ->capture_default_str();
  command
      ->add_option("--devices", f->devices,
                   "Devices that share the work: logical CPUs, or where there are fewer GPUs parts of them")
      ->check(whole_number(1, 256))
      ->capture_default_str();
  command
      ->add_option(
          "--workers", f->workers,
          "Processes that train together on this machine, as lockstep launch starts them; each has --devices "
          "and an equal share of the cores")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  command
      ->add_option("--elastic", f->elastic,
                   "The run goes on while so many workers are left; one that is lost is started again, and "
                   "joins the others with their state")
      ->check(whole_number(1, 1024))
      ->type_name("MIN");
  command->add_flag("--reproducible", f->reproducible, "The same bits on any number of devices and threads");
  CLI::Option* json =
      command
          ->add_option("--json", f->json_file,
                       "The result as one JSON object in this file; without a file on standard output, and "
                       "nothing else there")
          ->expected(0, 1)
          ->type_name("[FILE]");
  const char* digits = "Digits run";
  command->add_option("--learning-rate", f->learning_rate, "Adam's step size (0.001)")
      ->check(positive_number())
      ->group(digits);
  command->add_option("--train-size", f->train_size, "Training examples (60000)")
      ->check(whole_number(1))
      ->group(digits);
  command->add_option("--test-size", f->test_size, "Test examples (10000)")
      ->check(whole_number(1))
      ->group(digits);
  command->footer(
      run_help() +
      "\nOthers:\n"
      "  lockstep train lenet --epochs 3 --devices 2 --reproducible\n"
      "  lockstep train run.json --workers 4\n"
      "  lockstep train run.json --workers 4 --elastic 2 --reproducible\n"
      "  lockstep train run.json --epochs 10 --step-log steps.csv --json result.json\n"
      "\nExit status: 0 where all went well, 1 where the run or a file failed, 2 where the call is "
      "wrong, 130 after Ctrl-C, 143 after SIGTERM.");
  command->callback([f, run, json, &status, words = std::move(words)] {
    f->names_run = run->count() > 0;
    f->json = json->count() > 0;
    if (f->schema) {
      print_result(run_schema().dump(2) + "\n");
      return;
    }
    check_elastic(*f);
    status = f->workers > 1 ? train_with_workers(*f, words) : train(*f);
  });
}

}  // namespace lockstep::cli
