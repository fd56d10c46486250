// `lockstep run`.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::cli {
namespace {

constexpr std::source_location kHere = std::source_location::current();

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

// Whether a Python finds the package. Nothing of it is loaded.
bool has_package(const std::string& python) {
  std::vector<std::string> words{
      python, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('lockstep') is None)"};
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&quiet, descriptor, "/dev/null", O_RDWR, 0);
  pid_t child = 0;
  const bool started =
      posix_spawnp(&child, python.c_str(), &quiet, nullptr, pointers(words).data(), environ) == 0;
  posix_spawn_file_actions_destroy(&quiet);
  int status = 1;
  return started && waitpid(child, &status, 0) == child && status == 0;
}

// A build tree has the package beside the tool, and the Python that it was built for beside itself.
std::string python_of_build_tree() {
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::filesystem::path package = folder / "python", python = folder / "../python/venv/bin/python";
  if (!file_exists((package / "lockstep/__init__.py").string()) || !file_exists(python.string())) return "";
  const char* before = std::getenv("PYTHONPATH");
  setenv("PYTHONPATH", (package.string() + (before && *before ? ":" + std::string(before) : "")).c_str(), 1);
  return python.lexically_normal().string();
}

std::string find_python() {
  constexpr const char* kHow =
      "; pip install the wheel that ./run wheel makes (build/dist) into a Python, and name that one by "
      "LOCKSTEP_PYTHON where it is not python3";
  if (const char* named = std::getenv("LOCKSTEP_PYTHON"); named && *named) {
    require(has_package(named), ErrorCode::not_found, kHere, "LOCKSTEP_PYTHON=", named,
            " is no Python that has the package lockstep", kHow);
    return named;
  }
  for (const std::string& python : {python_of_build_tree(), std::string("python3"), std::string("python")})
    if (!python.empty() && has_package(python)) return python;
  fail(ErrorCode::not_found, kHere,
       "there is no Python that has the package lockstep (python3 and python of PATH have none)", kHow);
}

}  // namespace

void add_script(CLI::App& app, int&, std::vector<std::string> words) {
  CLI::App* command = app.add_subcommand(
      "run", "Run a TensorFlow or Keras script of Python on Lockstep, unmodified (python -m lockstep)");
  struct Settings {
    std::string script;
    int devices = 0, threads = 0;
    bool no_report = false;
  };
  auto settings = std::make_shared<Settings>();
  command->add_option("script", settings->script, "A file of Python; words behind it are the script's own")
      ->required();
  command
      ->add_option("--devices", settings->devices,
                   "Split the CPU into this many logical devices, so that a strategy has several to work on")
      ->check(whole_number(1, kMostThreads));
  command
      ->add_option("--threads", settings->threads, "Threads of each of them (default: the cores shared out)")
      ->check(whole_number(1, kMostThreads));
  command->add_flag("--no-report", settings->no_report, "Without the report on where the time went");
  command->footer(
      "Examples:\n"
      "  lockstep run train.py\n"
      "  lockstep run --devices 4 train.py --epochs 3\n"
      "LOCKSTEP_PYTHON names the Python to run it by; it needs the package lockstep.");
  command->callback([settings, words = std::move(words)] {
    require(file_exists(settings->script), ErrorCode::not_found, kHere, "there is no file \"",
            settings->script, "\"");
    const std::string python = find_python();
    std::vector<std::string> line{python, "-m", "lockstep"};
    if (settings->devices > 0) line.insert(line.end(), {"--devices", std::to_string(settings->devices)});
    if (settings->threads > 0) line.insert(line.end(), {"--threads", std::to_string(settings->threads)});
    if (settings->no_report) line.emplace_back("--no-report");
    line.push_back(settings->script);
    line.insert(line.end(), words.begin(), words.end());
    execvp(python.c_str(), pointers(line).data());
    fail(ErrorCode::io, kHere, "\"", python, "\" cannot be started: ", std::strerror(errno));
  });
}

}  // namespace lockstep::cli
