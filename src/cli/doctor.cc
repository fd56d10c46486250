#include "lockstep/doctor/doctor.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/terminal.h"
#include "lockstep/doctor/runs.h"

namespace lockstep::cli {
namespace {

doctor::Report examined(const std::vector<std::string>& runs, const doctor::Options& options) {
  require(runs.empty() || !options.quick, ErrorCode::invalid_argument, std::source_location::current(),
          "--quick is about this machine; a run is never tried out");
  if (runs.empty()) return doctor::examine(options);
  const observe::RunRecord first = observe::read_record(runs[0]);
  if (runs.size() == 1) return doctor::examine_run(first, runs[0]);
  return doctor::compare_runs(first, runs[0], observe::read_record(runs[1]), runs[1]);
}

}  // namespace

void add_doctor(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("doctor",
                                         "Say what there is on this machine, what is used of it, why not the "
                                         "rest, and what to do about it; or how "
                                         "a run went, or what one became slower by");
  struct Settings {
    bool json = false;
    doctor::Options options;
    std::vector<std::string> runs;
  };
  auto settings = std::make_shared<Settings>();
  command
      ->add_option(
          "runs", settings->runs,
          "Output folders of runs: of one, how it goes or went; of two, what became slower from the first to "
          "the second, in which category and kernel; without one, this machine")
      ->expected(0, 2);
  command->add_flag("--json", settings->json, "One JSON object instead of text (docs/doctor.schema.json)");
  command->add_flag("--quick", settings->options.quick, "Only look: no runs on the devices");
  command->footer(
      "Exit status: 0 where there is no problem, 1 where there is one (of two runs: the second is at least "
      "5% slower), 2 where "
      "the call is wrong.");
  command->callback([settings, &status] {
    const doctor::Report report = examined(settings->runs, settings->options);
    const std::optional<int> columns = terminal::columns();
    const std::string text = settings->json ? report.to_json() + "\n" : report.to_text();
    print_result(columns && !settings->json ? terminal::wrapped(text, *columns) : text);
    status = report.healthy() ? 0 : 1;
  });
}

}  // namespace lockstep::cli
