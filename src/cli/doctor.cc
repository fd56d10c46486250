#include "lockstep/doctor/doctor.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/commands.h"

namespace lockstep::cli {

void add_doctor(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "doctor", "Say what there is on this machine, what is used of it, and why not the rest");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "One JSON object instead of text");
  command->footer("Exit status: 0 where nothing is wrong, 1 where something should be changed.");
  command->callback([json, &status] {
    const doctor::Report report = doctor::examine();
    std::fputs(((*json ? report.to_json() + "\n" : report.to_text())).c_str(), stdout);
    status = report.problems.empty() ? 0 : 1;
  });
}

}  // namespace lockstep::cli
