#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/checkpoint_report.h"
#include "cli/commands.h"
#include "lockstep/base/error.h"

namespace lockstep::cli {
namespace {

struct CheckpointFlags {
  std::vector<std::string> paths;
  bool json = false;
  bool stats = false;
  double tolerance = 0;
};

int inspect(const CheckpointFlags& flags) {
  Json all = Json::list();
  for (const std::string& path : flags.paths) {
    Json inspection = inspect_checkpoint(checkpoint_path(path), flags.stats);
    if (flags.json)
      all.push_back(std::move(inspection));
    else
      print_result(inspection_text(inspection));
  }
  if (flags.json) print_result((all.items().size() == 1 ? all.at(0) : all).dump(2) + "\n");
  return 0;
}

int diff(const CheckpointFlags& flags) {
  try {
    const Json found =
        diff_checkpoints(checkpoint_path(flags.paths[0]), checkpoint_path(flags.paths[1]), flags.tolerance);
    print_result(flags.json ? found.dump(2) + "\n" : diff_text(found));
    return found.at("same").as_bool() ? 0 : 1;
  } catch (const Error& error) {
    complain(error.message());
    return 2;
  }
}

int verify(const CheckpointFlags& flags) {
  Json all = Json::list();
  bool good = true;
  for (const std::string& given : flags.paths) {
    Json found;
    try {
      found = verify_checkpoint(checkpoint_path(given));
    } catch (const Error& error) {
      found = Json::object({{"path", given}, {"good", false}, {"problems", Json::List{error.message()}}});
    }
    good = good && found.at("good").as_bool();
    if (!flags.json) {
      print_result(fmt::format("{}: {}\n", found.at("path").as_string(),
                               found.at("good").as_bool() ? "good" : "damaged"));
      for (const Json& problem : found.at("problems").items())
        print_result("  " + problem.as_string() + "\n");
    }
    all.push_back(std::move(found));
  }
  if (flags.json) print_result((all.items().size() == 1 ? all.at(0) : all).dump(2) + "\n");
  return good ? 0 : 1;
}

}  // namespace

void add_checkpoint(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("checkpoint", "Look into checkpoints, compare and check them");
  command->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, const char* exit,
                       int (*run)(const CheckpointFlags&)) {
    CLI::App* sub = command->add_subcommand(name, help);
    auto flags = std::make_shared<CheckpointFlags>();
    sub->add_option("path", flags->paths,
                    "Checkpoints, with or without .safetensors; a folder stands for its latest")
        ->required();
    sub->add_flag("--json", flags->json, "JSON instead of text");
    sub->footer(exit);
    sub->callback([flags, run, &status] { status = run(*flags); });
    return std::pair(sub, flags);
  };
  const auto [inspecting, inspect_flags] =
      add("inspect", "List objects and tensors", "Exit status: 0, or 1 where one cannot be read.", inspect);
  inspecting->add_flag("--stats", inspect_flags->stats, "Also smallest, largest, mean and number of NaNs");
  const auto [comparing, diff_flags] =
      add("diff", "List the tensors in which two differ",
          "Exit status: 0 where they are the same, 1 where they differ, 2 where one cannot be read.", diff);
  comparing->get_option("path")->expected(2);
  comparing->add_option("--tolerance", diff_flags->tolerance, "Differences up to this do not count");
  add("verify", "Check every byte against the checksums",
      "Exit status: 0 where all are as they were saved, 1 where one is damaged.", verify);
}

}  // namespace lockstep::cli
