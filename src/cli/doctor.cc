#include "lockstep/doctor/doctor.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "lockstep/base/terminal.h"

namespace lockstep::cli {

void add_doctor(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "doctor",
      "Say what there is on this machine, what is used of it, why not the rest, and what to do about it");
  struct Settings {
    bool json = false;
    doctor::Options options;
  };
  auto settings = std::make_shared<Settings>();
  command->add_flag("--json", settings->json, "One JSON object instead of text (docs/doctor.schema.json)");
  command->add_flag("--quick", settings->options.quick, "Only look: no runs on the devices");
  command->footer(
      "Exit status: 0 where there is no problem, 1 where there is one, 2 where the call is wrong.");
  command->callback([settings, &status] {
    const doctor::Report report = doctor::examine(settings->options);
    const std::optional<int> columns = terminal::columns();
    const std::string text = settings->json ? report.to_json() + "\n" : report.to_text();
    print_result(columns && !settings->json ? terminal::wrapped(text, *columns) : text);
    status = report.healthy() ? 0 : 1;
  });
}

}  // namespace lockstep::cli
