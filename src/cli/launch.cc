#include "cli/launch/launch.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.h"
#include "cli/launch/agent.h"
#include "lockstep/base/json.h"

namespace lockstep::cli {
namespace {

constexpr int64_t kMostWorkers = 1 << 16;

const char* const kHelp =
    "Each worker is a process of PROGRAM that knows its place: MultiWorkerMirroredStrategy finds the others "
    "by itself, "
    "through LOCKSTEP_RANK, LOCKSTEP_WORKERS, LOCKSTEP_ADDRESS and LOCKSTEP_SECRET. Their lines come with "
    "the rank in "
    "front, [2] as this.\n"
    "\n"
    "On this machine:\n"
    "  lockstep launch -n 4 -- ./train --epochs 3\n"
    "On several, over ssh (Lockstep, the program and its data in the same places on all):\n"
    "  lockstep launch --hosts a:2,b:2 -- ./train --epochs 3\n"
    "In a Slurm allocation, a worker per task:\n"
    "  salloc --nodes=2 --ntasks-per-node=2 lockstep launch -- ./train --epochs 3\n"
    "To see first what would be started:\n"
    "  lockstep launch -n 4 --dry-run -- ./train --epochs 3\n"
    "A job that goes on from its last checkpoint after a failure, with a file per rank:\n"
    "  lockstep launch -n 4 --restarts 3 --log-dir logs -- lockstep train run.json --backup backup\n"
    "\n"
    "When a worker fails, it is named with its last lines, and the others are asked to end (SIGTERM), then "
    "killed. Signals "
    "are passed on; a second Ctrl-C kills at once. When all is over no process of the job is left, also "
    "where this one was "
    "killed.\n"
    "\n"
    "Exit status: 0 where all workers ended well; else that of the worker that failed first, or 128 and the "
    "number of the "
    "signal that killed it; 128 and the number of the signal that stopped the job (130 after Ctrl-C, 143 "
    "after SIGTERM); "
    "126 or 127 where the program cannot be executed or does not exist; 1 where a machine was lost, 2 where "
    "the call is "
    "wrong.";

// The words of the program are no option, so that the parser does not know of them.
struct Formatter final : CLI::Formatter {
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: lockstep launch [OPTIONS] -- PROGRAM [ARGUMENTS]\n";
  }
};

// What is wrong with the words that nothing reads; empty: they are the program.
std::string about_program(const CLI::App& command, const std::vector<std::string>& words) {
  if (words.empty() || !words[0].starts_with("-")) return "";
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  const std::string near = nearest_spelling(words[0].substr(0, words[0].find('=')), known);
  return "there is no option \"" + words[0] + "\"" +
         (near.empty() ? "" : "; did you mean \"" + near + "\"?") +
         " What is meant for the program stands behind it: lockstep launch -n 4 -- PROGRAM " + words[0];
}

}  // namespace

void add_launch(CLI::App& app, int& status, std::vector<std::string> program) {
  CLI::App* command =
      app.add_subcommand("launch", "Start a program as several workers, on one machine or many");
  auto o = std::make_shared<launch::LaunchOptions>();
  command->prefix_command();
  command->formatter(std::make_shared<Formatter>());
  command->add_option("-n,--workers", o->workers, "Workers; may be left out with --hosts and under Slurm")
      ->check(whole_number(1, kMostWorkers));
  command->add_option("--hosts", o->hosts,
                      "Machines and how many workers each has: a:2,user@b:2, reached by ssh");
  command->add_flag("!--no-slurm", o->slurm, "Workers on this machine, also inside a Slurm allocation");
  command->add_option(
      "--address", o->address,
      "HOST or HOST:PORT at which the others meet rank 0; else the first host's name and a free port");
  command->add_option("--directory", o->folder, "Folder to work in, on every machine; else this one");
  command
      ->add_option(
          "--env", o->environment,
          "NAME=VALUE or NAME: a variable for the workers. Hosts reached by ssh get PATH, LD_LIBRARY_PATH, "
          "PYTHONPATH and LOCKSTEP_*, TF_*, NCCL_*, OMP_*, CUDA_* by themselves, this machine all")
      ->expected(1)
      ->take_all();
  command->add_flag(
      "!--no-divide", o->divide,
      "Every worker sees all CPUs and GPUs; else a machine's workers have equal shares: their threads, "
      "and CUDA_VISIBLE_DEVICES");
  command->add_option("--log-dir", o->log_folder, "Folder for a file per rank: rank_0.log, ...")
      ->check(path());
  command->add_option("--show", o->shown, "Whose lines are shown: all, none, or ranks as 0,3")
      ->capture_default_str();
  command
      ->add_option(
          "--restarts", o->restarts,
          "Times the whole job is started again when a worker fails; a program that keeps checkpoints goes "
          "on from the last")
      ->check(whole_number(0, 1000000))
      ->capture_default_str();
  command
      ->add_option("--backoff", o->backoff_s,
                   "Seconds before the first restart; twice as long each time, at most 60")
      ->check(positive_number())
      ->capture_default_str();
  command->add_flag(
      "--elastic", o->elastic,
      "Start only the worker again that failed, --restarts times in all, for a program that "
      "goes on without it and lets it join anew (StrategyOptions::elastic); the job is as good as "
      "the workers that stay to its end");
  command
      ->add_option("--grace", o->grace_s,
                   "Seconds that workers have to end when they are asked to, before they are killed")
      ->check(positive_number())
      ->capture_default_str();
  command->add_flag("--dry-run", o->dry_run, "Say what would be started, and start nothing");
  command->add_option("--tool", o->tool,
                      "This program's file on the hosts, where it is not the same as here");
  command->footer(kHelp);
  command->callback([o, command, &status, program = std::move(program)] {
    // Without "--" the first word that is no option begins the program.
    const std::vector<std::string> words = command->remaining();
    if (const std::string wrong = about_program(*command, words);
        !wrong.empty() || (!words.empty() && !program.empty())) {
      complain((wrong.empty() ? "there is a word before --: \"" + words[0] + "\"" : wrong) +
               "\nlook at: lockstep launch --help");
      status = 2;
      return;
    }
    o->program = program.empty() ? words : program;
    status = launch::launch(*o);
  });

  CLI::App* agent = app.add_subcommand("launch-agent", "What lockstep launch starts on each machine");
  agent->group("");
  agent->callback([&status] { status = launch::run_agent(); });
}

}  // namespace lockstep::cli
