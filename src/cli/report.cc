#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/page/page.h"
#include "lockstep/base/files.h"

namespace lockstep::cli {

void write_page(const observe::RunRecord& record, AtomicFile& file) {
  file.write(page(record));
  file.commit();
}

void add_report(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("report", "Write a page about a run: curves, times, a timeline, memory, kernels");
  struct Settings {
    std::string run, output;
  };
  auto settings = std::make_shared<Settings>();
  command->add_option("run", settings->run, "The output folder of a run, or its record.json")->required();
  command->add_option("--output", settings->output,
                      "The page; report.html beside the record where it is not given");
  command->footer(
      "The page is one file that needs no network: it can be mailed, kept and printed. The run may still go "
      "on.\n"
      "\nExamples:\n"
      "  lockstep report runs/7\n"
      "  lockstep report runs/7 --output seven.html");
  command->callback([settings, &status] {
    const observe::RunRecord record = observe::read_record(settings->run);
    const std::filesystem::path beside = is_folder(settings->run)
                                             ? std::filesystem::path(settings->run)
                                             : std::filesystem::path(settings->run).parent_path();
    AtomicFile file(settings->output.empty() ? (beside / "report.html").string() : settings->output);
    write_page(record, file);
    print_result("page written to " + file.path() + ": open it in a browser\n");
    status = 0;
  });
}

}  // namespace lockstep::cli
