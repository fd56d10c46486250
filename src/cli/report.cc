#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/page/page.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kScale = "lockstep scale", kPlan = "lockstep plan";

// What `lockstep scale` or `lockstep plan` wrote; null where the file is something else.
Json scaling_in(const std::string& path) {
  if (is_folder(path) || !file_exists(path)) return {};
  Json json = Json::read_file(path);
  const Json* kind = json.find("kind");
  return kind && (*kind == Json(kScale) || *kind == Json(kPlan)) ? json : Json();
}

PageParts parts_of(const std::vector<std::string>& sources) {
  PageParts parts;
  for (const std::string& source : sources) {
    Json scaling = scaling_in(source);
    if (scaling.is_null()) {
      require(!parts.record, ErrorCode::invalid_argument, std::source_location::current(), "\"", source,
              "\" is a second run; a page is about one. lockstep doctor A B compares two");
      parts.record = observe::read_record(source);
      continue;
    }
    (scaling.at("kind") == Json(kScale) ? parts.scale : parts.plan) = std::move(scaling);
  }
  return parts;
}

}  // namespace

void write_page(const observe::RunRecord& record, AtomicFile& file) {
  file.write(page({.record = record}));
  file.commit();
}

void add_report(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "report", "Write a page about a run: curves, times, a timeline, memory, kernels, scaling");
  struct Settings {
    std::vector<std::string> sources;
    std::string output;
  };
  auto settings = std::make_shared<Settings>();
  command
      ->add_option(
          "run", settings->sources,
          "The output folder of a run, or its record.json; what lockstep scale or lockstep plan wrote, "
          "with it or alone")
      ->required()
      ->expected(1, 3);
  command
      ->add_option("--output", settings->output,
                   "The page; report.html beside the first of them where it is not given")
      ->check(path());
  command->footer(
      "The page is one file that needs no network: it can be mailed, kept and printed. The run may still go "
      "on.\n"
      "\nExamples:\n"
      "  lockstep report runs/7\n"
      "  lockstep report runs/7 scale.json plan.json --output seven.html\n"
      "  lockstep report scale.json");
  command->callback([settings, &status] {
    const PageParts parts = parts_of(settings->sources);
    const std::string& first = settings->sources.front();
    const std::filesystem::path beside =
        is_folder(first) ? std::filesystem::path(first) : std::filesystem::path(first).parent_path();
    AtomicFile file(settings->output.empty() ? (beside / "report.html").string() : settings->output);
    file.write(page(parts));
    file.commit();
    print_result("page written to " + file.path() + ": open it in a browser\n");
    status = 0;
  });
}

}  // namespace lockstep::cli
