#include "cli/child_runs.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <thread>

#include "cli/commands.h"
#include "cli/launch/pipes.h"
#include "cli/launch/processes.h"
#include "cli/run_file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/terminal.h"
#include "lockstep/device/config.h"

namespace lockstep::cli {
namespace {

// What is neither a file nor a network is refused by the training itself.
bool is_run_file(const std::string& run) { return !is_network(run) && file_exists(run); }

constexpr size_t kLinesKept = 20;

// The environment of a child that is to see so many GPUs.
launch::Environment environment_with_gpus(int64_t gpus) {
  launch::Environment environment;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos && text.substr(0, equals) != "CUDA_VISIBLE_DEVICES")
      environment.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  const char* before = std::getenv("CUDA_VISIBLE_DEVICES");
  std::string visible;
  std::string rest = before ? before : "";
  for (int64_t i = 0; i < gpus; ++i) {
    std::string name = std::to_string(i);
    if (before) {
      const size_t comma = rest.find(',');
      name = rest.substr(0, comma);
      rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
    visible += (i == 0 ? "" : ",") + name;
  }
  if (gpus > 0) environment.emplace_back("CUDA_VISIBLE_DEVICES", visible);
  return environment;
}

std::string described(const ChildRun& run) {
  return fmt::format("{}{} device{}{}",
                     run.workers > 1 ? fmt::format("{} workers, each with ", run.workers) : "", run.devices,
                     run.devices == 1 ? "" : "s",
                     run.batch_size > 0 ? fmt::format(", batch {}", run.batch_size) : "");
}

}  // namespace

ChildRuns::ChildRuns(int total, bool quiet) : total_(total), quiet_(quiet) { launch::adopt_orphans(); }

ChildRuns::~ChildRuns() {
  if (!quiet_ && terminal::moves(stderr)) terminal::write("\r\x1b[K", stderr);
}

void ChildRuns::say(const std::string& text) {
  if (quiet_) return;
  if (terminal::moves(stderr))
    terminal::write(
        "\r\x1b[K" + text.substr(0, static_cast<size_t>(terminal::columns(stderr).value_or(80) - 1)), stderr);
  else
    terminal::write(text + "\n", stderr);
}

ChildResult ChildRuns::train(const ChildRun& run) {
  ++begun_;
  say(fmt::format("[{}/{}] {}: {} steps", begun_, std::max(total_, begun_), described(run), run.steps));
  const std::string json = folder_.path() + "/result.json", schedule = folder_.path() + "/schedule.json";
  for (const std::string& file : {json, schedule}) std::filesystem::remove(file);
  std::vector<std::string> words{std::filesystem::read_symlink("/proc/self/exe").string(),
                                 "train",
                                 run.run,
                                 "--devices",
                                 std::to_string(run.devices),
                                 "--threads",
                                 std::to_string(run.threads),
                                 "--epochs",
                                 "1",
                                 "--steps",
                                 std::to_string(run.steps),
                                 "--no-test",
                                 "--json",
                                 json};
  // What a run would leave, and go on from, stays out of the way of what is there.
  const std::string beside = folder_.path() + "/" + std::to_string(begun_);
  if (is_run_file(run.run)) {
    const RunFile file = read_run_file(run.run);
    if (!file.output.empty()) words.insert(words.end(), {"--output", beside + "_output"});
    if (!file.backup.empty()) words.insert(words.end(), {"--backup", beside + "_backup"});
  }
  if (run.workers > 1) words.insert(words.end(), {"--workers", std::to_string(run.workers)});
  if (run.batch_size > 0) words.insert(words.end(), {"--batch-size", std::to_string(run.batch_size)});
  if (run.profiles) words.insert(words.end(), {"--schedule", schedule});
  const launch::Environment environment =
      environment_with_gpus(std::min(usable_gpus(), run.devices * run.workers));
  const launch::Process process(
      {.words = words, .environment = &environment, .signal_at_our_death = SIGTERM});

  std::deque<std::string> last_lines;
  const auto keep = [&](std::string_view line) {
    if (line.empty()) return;
    last_lines.emplace_back(line);
    if (last_lines.size() > kLinesKept) last_lines.pop_front();
  };
  launch::LineReader output(process.output()), errors(process.errors());
  std::optional<launch::ExitStatus> status;
  int stopped_by = 0;
  while (!status) {
    pollfd watched[3] = {{signals_.fd(), POLLIN, 0},
                         {output.ended() ? -1 : output.fd(), POLLIN, 0},
                         {errors.ended() ? -1 : errors.fd(), POLLIN, 0}};
    poll(watched, 3, 100);
    while (const std::optional<int> signal = signals_.next())
      if (launch::asks_to_stop(*signal)) {
        // The first asks, the second kills.
        process.signal(stopped_by == 0 ? SIGTERM : SIGKILL);
        stopped_by = *signal;
      }
    if (!output.ended()) output.read_some([](std::string_view) {});
    if (!errors.ended()) errors.read_some(keep);
    int wait_status = 0;
    if (waitpid(process.id(), &wait_status, WNOHANG) == process.id())
      status = launch::ExitStatus::of_wait(wait_status);
  }
  if (!errors.ended()) errors.read_some(keep);
  errors.flush(keep);
  launch::end_descendants([](pid_t, int) {});
  if (stopped_by != 0) throw Interrupted{stopped_by};
  if (!status->good()) {
    std::string said;
    for (const std::string& line : last_lines)
      if (line.starts_with("lockstep: ")) said = line.substr(std::string("lockstep: ").size());
    if (said.empty() && !last_lines.empty()) said = last_lines.back();
    fail(ErrorCode::failed_precondition, std::source_location::current(), "the training with ",
         described(run), " failed: ", said.empty() ? describe(*status) : said);
  }
  return {Json::read_file(json), run.profiles ? Json::read_file(schedule) : Json()};
}

int64_t batch_size_of(const std::string& run) {
  constexpr int64_t kDigits = 128;  // of `lockstep train NETWORK`
  return is_run_file(run) ? read_run_file(run).fit.batch_size : kDigits;
}

int64_t usable_cores() { return std::max<int64_t>(1, std::thread::hardware_concurrency()); }

int64_t usable_gpus() { return static_cast<int64_t>(config::list_physical_devices("GPU").size()); }

int64_t steps_of(const Json& result) {
  return result.at("step_clock").at("replicas").at(0).at("wall").at("count").as_int();
}

namespace {

double slowest_s(const Json& result, const char* quantile) {
  double slowest = 0;
  for (const Json& replica : result.at("step_clock").at("replicas").items())
    slowest = std::max(slowest, replica.at("wall").at(quantile).as_double());
  return slowest / 1000;
}

}  // namespace

double median_step_s(const Json& result) { return slowest_s(result, "median_ms"); }
double undisturbed_step_s(const Json& result) { return slowest_s(result, "p10_ms"); }

double waited_for_cores(const Json& result) {
  const Json& clock = result.at("step_clock");
  double wall_ms = 0;
  for (const Json& replica : clock.at("replicas").items())
    wall_ms += replica.at("wall").at("total_ms").as_double();
  return wall_ms > 0 ? 1000 * clock.at("setting").at("waited_for_cores_s").as_double() / wall_ms : 0;
}

}  // namespace lockstep::cli
