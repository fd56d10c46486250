#include "cli/launch/launch.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "cli/commands.h"
#include "cli/launch/job.h"
#include "cli/launch/other_launchers.h"
#include "cli/launch/output.h"
#include "cli/launch/plan.h"
#include "cli/launch/processes.h"
#include "cli/launch/signals.h"
#include "lockstep/base/error.h"
#include "lockstep/base/terminal.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;

std::optional<std::string> environment_variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  if (!value || !*value) return std::nullopt;
  return value;
}

// The signal that came meanwhile and asks to stop; 0: none did.
int wait_between(double seconds, Output& output, Signals& signals) {
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return 0;
    pollfd waited[] = {{signals.fd(), POLLIN, 0}};
    output.standard_output().write_some();
    output.standard_errors().write_some();
    poll(waited, 1, static_cast<int>(std::min<int64_t>(left, 100)));
    while (const std::optional<int> signal = signals.next())
      if (asks_to_stop(*signal)) return *signal;
  }
}

int attempts(const Plan& plan, const LaunchOptions& options, Output& output) {
  Signals signals;
  for (int restart = 0;; ++restart) {
    const Verdict verdict = Job(plan, options, output, signals, restart).run();
    if (!verdict.explanation.empty()) output.say(verdict.explanation);
    if (verdict.code == 0 || !verdict.may_restart || options.elastic || options.restarts == 0)
      return verdict.code;
    if (restart == options.restarts) {
      output.say(fmt::format("{} restart{} did not help; raise --restarts to try more often", restart,
                             restart == 1 ? "" : "s"));
      return verdict.code;
    }
    const double wait = backoff_s(options, restart);
    output.say(fmt::format("restart {} of {}, in {:.3g} s", restart + 1, options.restarts, wait));
    if (const int signal = wait_between(wait, output, signals)) return 128 + signal;
  }
}

}  // namespace

double backoff_s(const LaunchOptions& options, int restarts) {
  constexpr double kMost = 60;
  return std::min(std::max(kMost, options.backoff_s), std::ldexp(options.backoff_s, std::min(restarts, 30)));
}

int launch(const LaunchOptions& given) {
  LaunchOptions options = given;
  if (options.folder.empty()) options.folder = std::filesystem::current_path().string();
  if (options.tool.empty()) options.tool = std::filesystem::read_symlink("/proc/self/exe").string();
  require_no_launcher_around();
  Plan plan = make_plan(options, environment_variable);
  if (options.dry_run) {
    cli::print_result(to_text(plan, options));
    return 0;
  }
  Output output({.workers = plan.workers,
                 .shown = options.shown,
                 .tags_first = options.tags_first,
                 .log_folder = options.log_folder});
  // Lines of workers stand behind their ranks.
  if (const auto columns = terminal::columns(); columns)
    plan.environment.emplace_back("COLUMNS", std::to_string(std::max(20, *columns - output.prefix_width())));
  const bool under_slurm = plan.agents[0].starter == Starter::srun;
  if (const std::string left_out = variables_left_out(under_slurm); !left_out.empty())
    output.say(fmt::format("{} {} set, for a run of another launcher; workers of this one do not see {}",
                           left_out, left_out.find(',') == std::string::npos ? "is" : "are",
                           left_out.find(',') == std::string::npos ? "it" : "them"));
  std::signal(SIGPIPE, SIG_IGN);
  adopt_orphans();
  const int code = attempts(plan, options, output);
  if (output.problem().empty()) {
    output.standard_output().write_all();
    if (output.problem().empty()) {
      output.standard_errors().write_all();
      return code;
    }
  }
  output.say(output.problem());
  output.standard_errors().write_all();
  return code != 0 ? code : 1;
}

}  // namespace lockstep::launch
